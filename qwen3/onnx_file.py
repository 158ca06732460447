"""ONNX files: reading a model without trusting it, and its tensors as views of the mapped files.

Nothing that a file says is believed before it is checked against the file itself: paths stay inside the model's directory, offsets and
lengths inside the files, shapes agree with the bytes that are there, and every node's inputs are made before it runs.
"""
import math
import mmap
import os
import pathlib
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from qwen3._extras import MissingExtraError

try:
    import onnx
    import onnx.inliner
    from google.protobuf.message import DecodeError
    from onnx import TensorProto, numpy_helper
except ImportError as error:
    raise MissingExtraError(f'ONNX models need onnx, which is not usable here ({error}): pip install "qkernels[onnx]"') from error

from qkernels import backend

__all__ = ["Graph", "Node", "OnnxError", "Tensor", "read_graph"]

MAX_PROTO = 2**31 - 1  # bytes; the limit of protobuf
MAX_ELEMENTS = 2**40
_WIDTH = {  # bits of an element
    TensorProto.FLOAT: 32, TensorProto.UINT8: 8, TensorProto.INT8: 8, TensorProto.UINT16: 16, TensorProto.INT16: 16, TensorProto.INT32: 32,
    TensorProto.INT64: 64, TensorProto.BOOL: 8, TensorProto.FLOAT16: 16, TensorProto.DOUBLE: 64, TensorProto.UINT32: 32, TensorProto.UINT64: 64,
    TensorProto.BFLOAT16: 16, TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT8E4M3FNUZ: 8,
    TensorProto.FLOAT8E5M2: 8, TensorProto.FLOAT8E5M2FNUZ: 8}
_SUB_BYTE = {TensorProto.UINT4: ml_dtypes.uint4, TensorProto.INT4: ml_dtypes.int4}


class OnnxError(ValueError):
    """An ONNX model that is damaged, contradictory, unsafe, or beyond what is implemented."""


@dataclass(eq=False)
class Tensor:
    """A constant of a graph.

    Attributes
    ----------
    name : str
    kind : int
        onnx.TensorProto.DataType.
    shape : tuple of int
    raw : ndarray
        Its elements in their own dtype; int4 and uint4 as packed bytes, flat. Read-only where it is a view of a file.
    """

    name: str
    kind: int
    shape: tuple
    raw: np.ndarray
    source: object = None  # what several tensors over the same bytes have in common

    @property
    def packed(self):
        """Whether `raw` is bytes with two elements each."""
        return self.kind in _SUB_BYTE

    def array(self):
        """The elements with the tensor's shape; int4 and uint4 unpacked into an array of their own."""
        if not self.packed:
            return self.raw.reshape(self.shape)
        nibbles = np.empty((self.raw.size, 2), np.uint8)
        np.bitwise_and(self.raw, 15, out=nibbles[:, 0])
        np.right_shift(self.raw, 4, out=nibbles[:, 1])
        flat = nibbles.reshape(-1)[:math.prod(self.shape)]
        if self.kind == TensorProto.INT4:
            flat = (flat ^ 8).astype(np.int8) - 8
        return flat.astype(_SUB_BYTE[self.kind]).reshape(self.shape)

    @property
    def nbytes(self):
        """Bytes as stored."""
        return self.raw.nbytes


@dataclass(eq=False)
class Node:
    """One node: `op` is "Operator" or "domain::Operator"; inputs that are absent are None."""

    op: str
    inputs: list
    outputs: list
    proto: object
    name: str
    attributes: dict = field(default_factory=dict)

    def __repr__(self):
        return f"{self.op} {self.name!r}"


class Files:
    """The external data of one model: each file is mapped once, after its path has been checked."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self._root = os.path.realpath(directory)
        self._maps = {}

    def view(self, tensor, location, offset, length):
        """`length` bytes at `offset` of a file in the directory."""
        where = f"initializer {tensor}: external data"
        if location in self._maps:
            data = self._maps[location]
        else:
            data = self._maps[location] = self._open(where, location)
        if offset < 0 or length < 0 or offset + length > data.size:
            raise OnnxError(f"{where}: bytes {offset} to {offset + length} are outside of {location!r}, which has {data.size}: truncated?")
        return data[offset:offset + length]

    def _open(self, where, location):
        parts = location.replace("\\", "/").split("/")
        if not location or "\0" in location or os.path.isabs(location) or ".." in parts or (len(location) > 1 and location[1] == ":"):
            raise OnnxError(f"{where}: expected a relative path inside the model's directory, got {location!r}")
        path = os.path.realpath(os.path.join(self._root, location))
        if os.path.commonpath([path, self._root]) != self._root:
            raise OnnxError(f"{where}: {location!r} leads out of the model's directory, to {path}")
        if not os.path.isfile(path):
            raise OnnxError(f"{where}: {self.directory / location}: {'not a regular file' if os.path.exists(path) else 'no such file'}")
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8) if size else np.empty(0, np.uint8)
        except OSError as error:
            raise OnnxError(f"{where}: {self.directory / location}: not readable: {error.strerror or error}") from error


def _number(text, what):
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise OnnxError(f"{what}: expected a number of bytes, got {text!r}")
    return int(text)


def _tensor(proto, files, label):
    """A checked `Tensor` from a TensorProto."""
    shape, kind = tuple(proto.dims), proto.data_type
    bits = _WIDTH.get(kind)
    if bits is None:
        names = dict(TensorProto.DataType.items())
        name = next((n for n, v in names.items() if v == kind), str(kind))
        raise OnnxError(f"{label}: element type {name} is not supported")
    if any(d < 0 for d in shape):
        raise OnnxError(f"{label}: expected sizes >= 0, got shape {shape}")
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise OnnxError(f"{label}: shape {shape} claims {count} elements")
    nbytes = (count * bits + 7) // 8
    dtype = np.dtype(np.uint8) if kind in _SUB_BYTE else onnx.helper.tensor_dtype_to_np_dtype(kind)
    source = None
    if proto.data_location == TensorProto.EXTERNAL:
        entries = {e.key: e.value for e in proto.external_data}
        offset = _number(entries.get("offset", "0"), f"{label}: external data: offset")
        length = _number(entries["length"], f"{label}: external data: length") if "length" in entries else nbytes
        if length != nbytes:
            raise OnnxError(f"{label}: external data: shape {shape} is {nbytes} bytes, length says {length}")
        flat = files.view(proto.name, entries.get("location", ""), offset, nbytes)
        source = (entries.get("location"), offset, nbytes)
        flat = flat if flat.ctypes.data % dtype.itemsize == 0 else flat.copy()
        raw = flat.view(dtype)
    elif proto.HasField("raw_data"):
        if len(proto.raw_data) != nbytes:
            raise OnnxError(f"{label}: shape {shape} is {nbytes} bytes, raw_data has {len(proto.raw_data)}")
        raw = np.frombuffer(proto.raw_data, dtype)
    else:
        raw = _typed(proto, kind, count, dtype, label)
    raw.flags.writeable = False
    return Tensor(proto.name, kind, shape, raw, source)


def _typed(proto, kind, count, dtype, label):
    """Elements from the field of their type, counted before they are converted."""
    name = onnx.helper.tensor_dtype_to_field(kind)
    values = getattr(proto, name)
    per_byte = 2 if kind in _SUB_BYTE else 1
    if len(values) != -(-count // per_byte):
        raise OnnxError(f"{label}: shape {tuple(proto.dims)} has {count} elements, {name} has {len(values)}")
    if kind in _SUB_BYTE:
        return np.array(values, np.int64).astype(np.uint8)
    try:
        return np.ascontiguousarray(numpy_helper.to_array(proto)).reshape(-1)
    except (ValueError, OverflowError) as error:
        raise OnnxError(f"{label}: {error}") from error


@dataclass(eq=False)
class Graph:
    """A checked graph, its nodes in an order in which they can run.

    Attributes
    ----------
    path : pathlib.Path
    nodes : list of Node
    constants : dict of str to Tensor
        Initializers.
    inputs, outputs : dict of str to (element type, shape)
        Sizes are int, or str for a symbol, or None; initializers are no inputs.
    opsets : dict of str to int
    """

    path: pathlib.Path
    nodes: list
    constants: dict
    inputs: dict
    outputs: dict
    opsets: dict
    ir_version: int
    metadata: dict
    producer: str = ""


def read_graph(path):
    """Read and check a model.

    Parameters
    ----------
    path : str or os.PathLike
        A .onnx file; its external data lie in its directory.

    Returns
    -------
    Graph

    Raises
    ------
    OnnxError
        Naming what is wrong.
    """
    path = pathlib.Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_PROTO:
            raise OnnxError(f"{path}: {size} bytes: expected at most {MAX_PROTO} for a protobuf file, with weights in external data")
        content = path.read_bytes()
    except OSError as error:
        raise OnnxError(f"{path}: not readable: {error.strerror or error}") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RecursionError, ValueError) as error:
        raise OnnxError(f"{path}: not an ONNX model, or truncated: {error}") from error
    if not model.HasField("graph") or not model.ir_version or not model.opset_import:
        raise OnnxError(f"{path}: not an ONNX model: it has no {'graph' if not model.HasField('graph') else 'IR version or opset'}")
    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        return _checked(model, path)
    except OnnxError as error:
        raise OnnxError(f"{path}: {error}") from None
    except (UnicodeDecodeError, RuntimeError, onnx.checker.ValidationError) as error:
        raise OnnxError(f"{path}: malformed: {error}") from error


def _checked(model, path):
    graph, files = model.graph, Files(path.parent)
    if graph.sparse_initializer:
        raise OnnxError("sparse initializers are not supported")
    constants = {}
    for proto in graph.initializer:
        if not proto.name or proto.name in constants:
            raise OnnxError(f"initializer {proto.name!r}: {'occurs twice' if proto.name else 'has no name'}")
        constants[proto.name] = _tensor(proto, files, f"initializer {proto.name}")
    inputs = {i.name: _value_type(i) for i in graph.input if i.name not in constants}
    for i in graph.input:
        if i.name in constants and i.type.HasField("tensor_type"):
            kind, shape = _value_type(i)
            t = constants[i.name]
            if kind != t.kind or (shape is not None and not _fits(t.shape, shape)):
                raise OnnxError(f"initializer {i.name}: {t.shape} of type {t.kind} is not what the graph's input declares: {shape} of type {kind}")
    if len({i.name for i in graph.input}) != len(graph.input):
        raise OnnxError("two inputs have the same name")
    nodes, made = [], {**dict.fromkeys(inputs, "an input"), **dict.fromkeys(constants, "an initializer")}
    for index, proto in enumerate(graph.node):
        op = f"{proto.domain}::{proto.op_type}" if proto.domain not in ("", "ai.onnx") else proto.op_type
        node = Node(op, [n or None for n in proto.input], [n or None for n in proto.output], proto, proto.name or f"#{index}")
        for name in filter(None, node.outputs):
            if name in made:
                raise OnnxError(f"node {node}: output {name!r} is already made by {made[name]}")
            made[name] = f"node {node}"
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                node.attributes[attribute.name] = _tensor(attribute.t, files, f"node {node}: attribute {attribute.name}")
            else:
                try:
                    node.attributes[attribute.name] = backend.attribute_value(attribute)
                except backend.UnsupportedError as error:
                    raise OnnxError(f"node {node}: {error.reasons[0]}") from None
        nodes.append(node)
    outputs = {o.name: _value_type(o) for o in graph.output}
    if not outputs:
        raise OnnxError("the graph has no outputs")
    for name in outputs:
        if name not in made:
            raise OnnxError(f"output {name!r} is made by no node")
    return Graph(path, _sorted(nodes, {*inputs, *constants}, made), constants, inputs, outputs, backend.opsets_of(model), model.ir_version,
                 {p.key: p.value for p in model.metadata_props}, f"{model.producer_name} {model.producer_version}".strip())


def _value_type(value):
    if value.type.WhichOneof("value") != "tensor_type":
        raise OnnxError(f"{value.name}: expected a tensor, got {value.type.WhichOneof('value') or 'no type'}")
    t = value.type.tensor_type
    if not t.HasField("shape"):
        return t.elem_type, None
    return t.elem_type, tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in t.shape.dim)


def _fits(shape, declared):
    return len(shape) == len(declared) and all(not isinstance(d, int) or n == d for n, d in zip(shape, declared, strict=True))


def _sorted(nodes, known, made):
    """The nodes in an order in which each one's inputs are made before it; the given order where that is one."""
    waiting = {}  # value → nodes that still wait for it
    missing = []
    for index, node in enumerate(nodes):
        wanted = {n for n in node.inputs if n is not None and n not in known}
        for name in wanted:
            if name not in made:
                raise OnnxError(f"node {node}: input {name!r} is made by no node and is no input of the graph")
            waiting.setdefault(name, []).append(index)
        missing.append(len(wanted))
    ready = [i for i, n in enumerate(missing) if n == 0]
    if all(n == 0 for n in missing):
        return nodes
    import heapq

    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for name in filter(None, nodes[index].outputs):
            for other in waiting.pop(name, ()):
                missing[other] -= 1
                if missing[other] == 0:
                    heapq.heappush(ready, other)
    if len(order) != len(nodes):
        stuck = [nodes[i] for i, n in enumerate(missing) if n]
        raise OnnxError(f"the graph has a cycle: {len(stuck)} nodes wait for each other, among them {', '.join(map(str, stuck[:3]))}")
    return order
