"""Constant matrices of products, in the three forms that graphs have them in, and their packed forms: each initializer once."""
import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import TensorProto

import qkernels
from qwen3.onnx_file import OnnxError

__all__ = ["WeightSpec", "Weights", "int8_spec", "matrix_spec", "nbits_spec", "quantized_spec"]

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
CODES = {TensorProto.UINT4: (4, ml_dtypes.uint4), TensorProto.INT4: (4, ml_dtypes.int4), TensorProto.UINT8: (8, np.uint8), TensorProto.INT8: (8, np.int8)}
CODES |= {getattr(TensorProto, name): (2, dtype) for name, dtype in (("UINT2", ml_dtypes.uint2), ("INT2", ml_dtypes.int2)) if hasattr(TensorProto, name)}


@dataclass(eq=False)
class WeightSpec:
    """A constant (N, K) matrix of a product: how to get what its packed form is made of, without doing it yet.

    Attributes
    ----------
    kind : {"nbits", "codes", "matrix", "int8"}
        As MatMulNBits has it, as DequantizeLinear has it, floats, or the (K, N) bytes of an integer product, which are not stacked.
    key : hashable
        Equal for equal bytes.
    n, k : int
    form : tuple
        What specifications must have in common to be stacked along N, besides K.
    parts : callable
        ``parts()`` gives the arrays, views of the file; see `Weights`.
    bits, block : int
        Of quantized ones.
    stored : int
        Bytes in the file.
    """

    kind: str
    key: tuple
    n: int
    k: int
    form: tuple
    parts: object
    bits: int = 0
    block: int = 0
    stored: int = 0

    def stacks_with(self, other):
        """Whether the two can be one packed object."""
        return (self.kind, self.k, self.form) == (other.kind, other.k, other.form)


def _key(tensor):
    return tensor.source or tensor.name if tensor is not None else None


def matrix_spec(tensor, array, rows):
    """Of a float tensor; ``array()`` has its elements, (N, K) with `rows`, else (K, N); None where it is no such matrix."""
    if len(tensor.shape) != 2 or tensor.kind not in FLOATS or 0 in tensor.shape:
        return None
    n, k = tensor.shape if rows else tensor.shape[::-1]
    # a view that is transposed has a name of its own
    base, turned = (tensor.name[:-2], True) if tensor.name.endswith("|T") else (tensor.name, False)
    return WeightSpec("matrix", ("matrix", tensor.source or base, n, k, rows != turned), n, k, (tensor.kind,), lambda: array() if rows else array().T,
                      stored=tensor.nbytes)


def int8_spec(tensor, array):
    """Of the constant operand of MatMulInteger or QLinearMatMul; ``array()`` has its elements, (K, N)."""
    k, n = tensor.shape
    return WeightSpec("int8", ("int8", _key(tensor), n, k), n, k, (), array, stored=tensor.nbytes)


def nbits_spec(node, b, scales, points, g_idx, n, k, bits, block):
    """Of the constants of a MatMulNBits or GatherBlockQuantized; None for a form that has no packed one."""
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1) or n < 1 or k < 1:
        return None
    blocks = -(-k // block)
    for what, tensor, size in (("B", b, n * blocks * block * bits // 8), ("scales", scales, n * blocks)):
        if math.prod(tensor.shape) != size:
            raise OnnxError(f"node {node}: {what} {tensor.name}: expected {size} elements for N={n}, K={k}, {bits} bits and blocks of {block}, "
                            f"got shape {tensor.shape}")
    if points is not None:
        size = n * (-(-blocks * bits // 8) if points.kind == TensorProto.UINT8 else blocks)
        if math.prod(points.shape) != size:
            raise OnnxError(f"node {node}: zero points {points.name}: expected {size} elements for N={n}, K={k} and blocks of {block}, "
                            f"got shape {points.shape}")
    if scales.kind not in FLOATS:
        raise OnnxError(f"node {node}: scales {scales.name}: expected float32, float16 or bfloat16, got type {scales.kind}")

    def parts():
        return (b.raw.reshape(n, blocks, block * bits // 8), scales.raw.reshape(n, blocks), None if points is None else points.raw.reshape(n, -1),
                None if g_idx is None else g_idx.raw)

    floats = points is not None and points.kind != TensorProto.UINT8
    return WeightSpec("nbits", ("nbits", *map(_key, (b, scales, points, g_idx)), n, k, bits, block), n, k,
                      (bits, block, floats, _key(g_idx)), parts, bits, block, sum(t.nbytes for t in (b, scales, points, g_idx) if t is not None))


def quantized_spec(node, rows):
    """Of a DequantizeLinear whose inputs `node.constants` are constants and whose tensor is (N, K) with `rows`, else (K, N); None for other forms."""
    t, s, z = node.constants
    if t.kind not in CODES or len(t.shape) != 2 or s.kind not in FLOATS or 0 in t.shape:
        return None
    if node.attributes.get("output_dtype", 0) not in (0, s.kind) or (z is not None and z.kind != t.kind):
        return None
    bits, (n, k), k_axis = CODES[t.kind][0], t.shape if rows else t.shape[::-1], 1 if rows else 0
    axis, block = node.attributes.get("axis", 1), node.attributes.get("block_size", 0)
    if not -2 <= axis < 2:
        return None
    if block:
        if axis % 2 != k_axis or block < 16 or block & (block - 1):
            return None
        blocks = -(-k // block)
        grid = (n, blocks) if rows else (blocks, n)
    else:
        if math.prod(s.shape) != 1 and (axis % 2 == k_axis or s.shape != (n,)):
            return None
        grid = (n,)
    if s.shape != grid and math.prod(s.shape) != 1:
        raise OnnxError(f"node {node}: scale {s.name}: expected shape {grid}, got {s.shape}")
    if z is not None and z.shape != s.shape:
        raise OnnxError(f"node {node}: zero point {z.name}: expected the shape of the scale, {s.shape}, got {z.shape}")

    def parts():
        points = None if z is None else np.broadcast_to(z.codes() if s.shape == grid else z.codes().reshape(()), grid)
        return t, np.broadcast_to(s.array() if s.shape == grid else s.array().reshape(()), grid), points

    return WeightSpec("codes", ("codes", *map(_key, (t, s, z)), n, k, rows, block), n, k, (t.kind, rows, block, s.kind), parts, bits, block or k,
                      sum(a.nbytes for a in (t, s, z) if a is not None))


class Weights:
    """The packed weights of a model: each initializer, or stack of them, once."""

    def __init__(self, threads=None):
        self.threads, self._packed = threads, {}

    def get(self, specs):
        """The packed form of one weight, or of several stacked along their outputs."""
        key = tuple(s.key for s in specs)
        if key not in self._packed:
            pack = {"matrix": self._matrix, "nbits": self._nbits, "codes": self._codes, "int8": self._int8}[specs[0].kind]
            self._packed[key] = pack(specs)
        return self._packed[key]

    def _matrix(self, specs):
        arrays = [s.parts() for s in specs]
        return qkernels.PackedMatrix(arrays if len(arrays) > 1 else arrays[0], trans_b=True, threads=self.threads)

    def _int8(self, specs):
        return qkernels.PackedInt8Matrix(specs[0].parts(), threads=self.threads)

    def _nbits(self, specs):
        first, parts = specs[0], [s.parts() for s in specs]
        b, scales = (_joined([p[i] for p in parts], 0) for i in (0, 1))
        points = [p[2] for p in parts]
        if any(z is not None for z in points):
            points = [_default_points(s) if z is None else z for s, z in zip(specs, points, strict=True)]
        return qkernels.PackedNBits(b, scales, None if points[0] is None else _joined(points, 0), K=first.k, N=sum(s.n for s in specs), bits=first.bits,
                                    block_size=first.block, g_idx=parts[0][3], threads=self.threads)

    def _codes(self, specs):
        parts = [s.parts() for s in specs]
        kind, rows, block, _ = specs[0].form
        bits, dtype = CODES[kind]
        along = 0 if rows else 1
        options = dict(axis=1 - along, block_size=block, dtype=dtype, threads=self.threads)
        scales = _joined([p[1] for p in parts], along if block else 0)
        points = [p[2] for p in parts]
        if any(z is not None for z in points):
            points = [np.zeros(p[1].shape, np.uint8) if z is None else z for p, z in zip(parts, points, strict=True)]
        points = None if points[0] is None else _joined(points, along if block else 0)
        tensors = [p[0] for p in parts]
        if bits == 4 and (len(tensors) == 1 or all(t.shape[1] % 2 == 0 for t in tensors)):
            # whole bytes in each row: as they are
            codes = tensors[0].raw if len(tensors) == 1 else _joined([t.raw.reshape(t.shape[0], -1) for t in tensors], along)
            shape = [sum(t.shape[i] for t in tensors) if i == along else tensors[0].shape[i] for i in (0, 1)]
            return qkernels.PackedNBits.from_codes(codes.view(np.uint8).reshape(-1), scales, points, shape=shape, **options)
        return qkernels.PackedNBits.from_codes(_joined([t.codes() for t in tensors], along), scales, points, **options)


def _joined(arrays, axis):
    return np.concatenate(arrays, axis) if len(arrays) > 1 else arrays[0]


def _default_points(spec):
    """Zero points that say what none say."""
    blocks = -(-spec.k // spec.block)
    if spec.form[2]:
        return np.full((spec.n, blocks), 1 << (spec.bits - 1), np.float32)
    codes = np.full((spec.n, blocks + -blocks % (8 // spec.bits)), 1 << (spec.bits - 1), np.uint8)
    codes[:, blocks:] = 0
    return np.bitwise_or.reduce(codes.reshape(spec.n, -1, 8 // spec.bits) << np.arange(0, 8, spec.bits, dtype=np.uint8), -1)
