"""ONNX files: reading a model without trusting it, and its tensors as views of the mapped files.

Nothing that a file says is believed before it is checked against the file itself: paths stay inside the model's directory, offsets and
lengths inside the files, shapes agree with the bytes that are there, and every node's inputs are made before it runs.
"""
import heapq
import math
import mmap
import os
import pathlib
import stat
from collections import Counter
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from qwen3._extras import MissingExtraError

try:
    import onnx
    import onnx.inliner
    from google.protobuf.message import DecodeError
    from onnx import TensorProto
except ImportError as error:
    raise MissingExtraError(f'ONNX models need onnx, which is not usable here ({error}): pip install "qkernels[onnx]"') from error

from qkernels import backend

__all__ = ["MISTAKES", "Graph", "Node", "OnnxError", "Tensor", "named", "read_graph"]

MAX_PROTO = 2**31 - 1  # bytes; the limit of protobuf
MAX_ELEMENTS = 2**40
MAX_RANK = 32
MAX_NODES = 1_000_000  # with all functions inlined
_WIDTH = {  # bits of an element
    TensorProto.FLOAT: 32, TensorProto.UINT8: 8, TensorProto.INT8: 8, TensorProto.UINT16: 16, TensorProto.INT16: 16, TensorProto.INT32: 32,
    TensorProto.INT64: 64, TensorProto.BOOL: 8, TensorProto.FLOAT16: 16, TensorProto.DOUBLE: 64, TensorProto.UINT32: 32, TensorProto.UINT64: 64,
    TensorProto.BFLOAT16: 16, TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT8E4M3FNUZ: 8,
    TensorProto.FLOAT8E5M2: 8, TensorProto.FLOAT8E5M2FNUZ: 8}
_SUB_BYTE = {TensorProto.UINT4: ml_dtypes.uint4, TensorProto.INT4: ml_dtypes.int4}
for _name, _bits, _dtype in (("UINT2", 2, ml_dtypes.uint2), ("INT2", 2, ml_dtypes.int2), ("FLOAT4E2M1", 4, ml_dtypes.float4_e2m1fn),
                             ("FLOAT8E8M0", 8, ml_dtypes.float8_e8m0fnu)):  # newer than the oldest onnx that this runs with
    if hasattr(TensorProto, _name):
        _WIDTH[getattr(TensorProto, _name)] = _bits
        if _bits < 8:
            _SUB_BYTE[getattr(TensorProto, _name)] = _dtype
_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


class OnnxError(ValueError):
    """An ONNX model that is damaged, contradictory, unsafe, or beyond what is implemented."""


class OnnxTypeError(OnnxError, TypeError):
    """An `OnnxError` about a type: what a kernel says of the array that a node hands it."""


class OnnxIndexError(OnnxError, IndexError):
    """An `OnnxError` about an index: what a kernel says of the array that a node hands it."""


class OnnxMemoryError(OnnxError, MemoryError):
    """An `OnnxError` about a result that does not fit into memory."""


MISTAKES = (ValueError, TypeError, LookupError, ArithmeticError, MemoryError)  # what kernels say of arrays and attributes that do not fit each other


def named(error, where):
    """The same mistake as an `OnnxError` that says where it was made, of a class that is also that of `error`."""
    kinds = ((TypeError, OnnxTypeError), (IndexError, OnnxIndexError), (MemoryError, OnnxMemoryError))
    return next((kind for base, kind in kinds if isinstance(error, base)), OnnxError)(f"{where}: {error}")


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
        Its elements in their own dtype; those of 2 and 4 bits as packed bytes, flat. Read-only where it is a view of a file.
    """

    name: str
    kind: int
    shape: tuple
    raw: np.ndarray
    source: object = None  # what several tensors over the same bytes have in common

    @property
    def packed(self):
        """Whether `raw` is bytes with several elements each."""
        return self.kind in _SUB_BYTE

    def array(self):
        """The elements with the tensor's shape; of 2 and 4 bits unpacked into an array of their own, and copied where the file has them unaligned."""
        if not self.packed:
            return (self.raw if self.raw.flags.aligned else self.raw.copy()).reshape(self.shape)
        dtype, codes = np.dtype(_SUB_BYTE[self.kind]), self.codes()
        if dtype == ml_dtypes.float4_e2m1fn:
            return codes.view(dtype)
        if np.dtype(dtype).type in (ml_dtypes.int4, ml_dtypes.int2):
            half = 1 << (_WIDTH[self.kind] - 1)
            codes = (codes ^ half).astype(np.int8) - half
        return codes.astype(dtype)

    def codes(self):
        """The bits of elements of up to 8 bits, each in a byte, with the tensor's shape."""
        raw, bits = self.raw.view(np.uint8), _WIDTH[self.kind]
        if bits == 8:
            return raw.reshape(self.shape)
        codes = np.empty((raw.size, 8 // bits), np.uint8)
        for i in range(8 // bits):
            np.bitwise_and(np.right_shift(raw, bits * i, out=codes[:, i]), (1 << bits) - 1, out=codes[:, i])
        return codes.reshape(-1)[:math.prod(self.shape)].reshape(self.shape)

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
    _bound: object = None

    def bound(self, opsets):
        """The `backend.Call` of the node, or the `backend.UnsupportedError` that says why there is none."""
        if self._bound is None:
            try:
                self._bound = backend.bind(self.proto, opsets)
            except backend.UnsupportedError as error:
                self._bound = error
        return self._bound

    def __repr__(self):
        return f"{self.op} {self.name!r}"


class Files:
    """The external data of one model: each file is mapped once, after its path has been checked.

    They lie in the model's directory, or where it is only linked to (the hub's cache does that), in the directory where the model really lies.
    """

    def __init__(self, model):
        self.directory = pathlib.Path(model).parent
        self._roots = {os.path.realpath(self.directory), os.path.dirname(os.path.realpath(model))}
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
        shown = self.directory / location
        try:
            path = os.path.realpath(shown)
            if all(os.path.commonpath([path, root]) != root for root in self._roots):
                raise OnnxError(f"{where}: {location!r} leads out of the model's directory, to {path}")
            with _opened(path) as file:
                size = os.fstat(file.fileno()).st_size
                return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8) if size else np.empty(0, np.uint8)
        except FileNotFoundError as error:
            raise OnnxError(f"{where}: {shown}: no such file") from error
        except OSError as error:
            raise OnnxError(f"{where}: {shown}: not readable: {error.strerror or error}") from error


def _opened(path):
    """A regular file, open for reading; nothing else can be, and nothing can make it wait."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


def _type_name(kind):
    return TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else str(kind)


def _number(text, what):
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise OnnxError(f"{what}: expected a number of bytes, got {text!r}")
    return int(text)


def _tensor(proto, files, label):
    """A checked `Tensor` from a TensorProto."""
    shape, kind = tuple(proto.dims), proto.data_type
    bits = _WIDTH.get(kind)
    if bits is None:
        raise OnnxError(f"{label}: element type {_type_name(kind)} is not supported")
    if any(d < 0 for d in shape):
        raise OnnxError(f"{label}: expected sizes >= 0, got shape {shape}")
    if len(shape) > MAX_RANK:
        raise OnnxError(f"{label}: expected at most {MAX_RANK} dimensions, got {len(shape)}")
    count = math.prod(shape)
    if math.prod(d for d in shape if d) > MAX_ELEMENTS:
        raise OnnxError(f"{label}: shape {shape} claims {count} elements")
    if proto.HasField("segment"):
        raise OnnxError(f"{label}: a tensor in segments is not supported")
    given = [name for name in _DATA_FIELDS if len(getattr(proto, name))]
    if len(given) > 1 or given and proto.data_location == TensorProto.EXTERNAL:
        raise OnnxError(f"{label}: expected its elements in one place, got {' and '.join(given)}"
                        f"{' and external data' if proto.data_location == TensorProto.EXTERNAL else ''}")
    nbytes = (count * bits + 7) // 8
    dtype = np.dtype(np.uint8) if kind in _SUB_BYTE else onnx.helper.tensor_dtype_to_np_dtype(kind)
    source = None
    if proto.data_location == TensorProto.EXTERNAL:
        entries = {e.key: e.value for e in proto.external_data}
        if len(entries) != len(proto.external_data):
            raise OnnxError(f"{label}: external data: {_repeated(e.key for e in proto.external_data)} occurs twice")
        offset = _number(entries.get("offset", "0"), f"{label}: external data: offset")
        length = _number(entries["length"], f"{label}: external data: length") if "length" in entries else nbytes
        if length != nbytes:
            raise OnnxError(f"{label}: external data: shape {shape} is {nbytes} bytes, length says {length}")
        flat = files.view(proto.name, entries.get("location", ""), offset, nbytes)
        source = (entries.get("location"), offset, nbytes)
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
    """Elements from the field of their type, counted before they are converted. Narrow ones are the bits in int32_data or uint64_data."""
    name = onnx.helper.tensor_dtype_to_field(kind)
    values = getattr(proto, name)
    per_byte = 2 if kind in _SUB_BYTE else 1
    if len(values) != -(-count // per_byte):
        raise OnnxError(f"{label}: shape {tuple(proto.dims)} has {count} elements, {name} has {len(values)}")
    if name in ("float_data", "double_data", "int64_data"):
        return np.array(values, dtype)
    wide = np.array(values, np.uint64 if name == "uint64_data" else np.int64)
    bits = np.dtype(f"u{dtype.itemsize}") if dtype.kind not in "iub" else dtype  # floats and sub-byte types come as their bits
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(bits).min, np.iinfo(bits).max)
    if wide.size and not (least <= int(wide.min()) and int(wide.max()) <= most):
        raise OnnxError(f"{label}: {name}: expected {least} to {most}, got {int(wide.min()) if int(wide.min()) < least else int(wide.max())}")
    return wide.astype(bits).view(dtype)


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
        with _opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_PROTO:
                raise OnnxError(f"{path}: {size} bytes: expected at most {MAX_PROTO} for a protobuf file, with weights in external data")
            content = file.read(size)
    except OSError as error:
        raise OnnxError(f"{path}: not readable: {error.strerror or error}") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RecursionError, ValueError) as error:
        raise OnnxError(f"{path}: not an ONNX model, or truncated: {error}") from error
    if wrong := _no_text(model):
        raise OnnxError(f"{path}: malformed: {wrong!r} is not UTF-8")
    if not model.HasField("graph") or not model.ir_version or not model.opset_import:
        raise OnnxError(f"{path}: not an ONNX model: it has no {'graph' if not model.HasField('graph') else 'IR version or opset'}")
    try:
        if model.functions:
            _check_functions(model)
            model = onnx.inliner.inline_local_functions(model)
        return _checked(model, path)
    except OnnxError as error:
        raise OnnxError(f"{path}: {error}") from None
    except (UnicodeDecodeError, RuntimeError, onnx.checker.ValidationError) as error:
        raise OnnxError(f"{path}: malformed: {error}") from error


def _no_text(message):
    """A string of a message that is not UTF-8, which protobuf hands out as bytes; else None."""
    stack = [message]
    while stack:
        for field_, value in stack.pop().ListFields():
            values = value if field_.is_repeated else (value,)
            if field_.type == field_.TYPE_MESSAGE:
                stack += values
            elif field_.type == field_.TYPE_STRING and (wrong := [v for v in values if isinstance(v, bytes)]):
                return wrong[0]
    return None


def _check_functions(model):
    """Functions that call themselves, or each other so often that the graph would have no end of nodes, are refused before they are inlined."""
    for node in (*model.graph.node, *(n for f in model.functions for n in f.node)):
        for attribute in node.attribute:
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) or attribute.HasField("g") or attribute.graphs:
                raise OnnxError(f"node {node.op_type} {node.name!r}: attribute {attribute.name}: of type GRAPH")
    functions = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    if len(functions) != len(model.functions):
        raise OnnxError(f"function {_repeated((f.domain, f.name, f.overload) for f in model.functions)[1]} is defined twice")
    sizes, stack = {}, [(key, False) for key in functions]
    open_ = set()
    while stack:
        key, done = stack.pop()
        calls = [k for k in ((n.domain, n.op_type, n.overload) for n in functions[key]) if k in functions]
        if done:
            open_.discard(key)
            sizes[key] = len(functions[key]) + sum(sizes[k] for k in calls)
        elif key not in sizes:
            if key in open_:
                raise OnnxError(f"function {key[1]} calls itself")
            open_.add(key)
            stack += [(key, True), *((k, False) for k in dict.fromkeys(calls) if k not in sizes)]
    total = sum(sizes.get((n.domain, n.op_type, n.overload), 1) for n in model.graph.node)
    if total > MAX_NODES:
        raise OnnxError(f"with its functions inlined the graph would have {total} nodes, expected at most {MAX_NODES}")


def _repeated(names):
    return next(name for name, count in Counter(names).items() if count > 1)


def _checked(model, path):
    graph, files = model.graph, Files(path)
    if graph.sparse_initializer:
        raise OnnxError("sparse initializers are not supported")
    if len(backend.opsets_of(model)) != len(model.opset_import):
        raise OnnxError("two opsets of one domain")
    if wrong := [o for o in model.opset_import if not 0 < o.version < 2**31]:
        raise OnnxError(f"opset of {wrong[0].domain or 'ai.onnx'}: expected a version >= 1, got {wrong[0].version}")
    for what, values in (("input", graph.input), ("output", graph.output)):
        if not all(v.name for v in values):
            raise OnnxError(f"an {what} has no name")
        if len({v.name for v in values}) != len(values):
            raise OnnxError(f"{what} {_repeated(v.name for v in values)!r} occurs twice")
    constants = {}
    for proto in graph.initializer:
        if not proto.name or proto.name in constants:
            raise OnnxError(f"initializer {proto.name!r}: {'occurs twice' if proto.name else 'has no name'}")
        constants[proto.name] = _tensor(proto, files, f"initializer {proto.name}")
    inputs = {i.name: _value_type(i) for i in graph.input if i.name not in constants}
    if wrong := [name for name, (kind, _) in inputs.items() if kind not in _WIDTH]:
        raise OnnxError(f"input {wrong[0]}: element type {_type_name(inputs[wrong[0]][0])} is not supported")
    for i in graph.input:
        if i.name in constants and i.type.HasField("tensor_type"):
            kind, shape = _value_type(i)
            t = constants[i.name]
            if kind != t.kind or (shape is not None and not _fits(t.shape, shape)):
                raise OnnxError(f"initializer {i.name}: {t.shape} of type {t.kind} is not what the graph's input declares: {shape} of type {kind}")
    nodes, made = [], {**dict.fromkeys(inputs, "an input"), **dict.fromkeys(constants, "an initializer")}
    for index, proto in enumerate(graph.node):
        op = f"{proto.domain}::{proto.op_type}" if proto.domain not in ("", "ai.onnx") else proto.op_type
        node = Node(op, [n or None for n in proto.input], [n or None for n in proto.output], proto, proto.name or f"#{index}")
        for name in filter(None, node.outputs):
            if name in made:
                raise OnnxError(f"node {node}: output {name!r} is already made by {made[name]}")
            made[name] = f"node {node}"
        if len({a.name for a in proto.attribute}) != len(proto.attribute):
            raise OnnxError(f"node {node}: attribute {_repeated(a.name for a in proto.attribute)!r} occurs twice")
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
    if any(d.HasField("dim_value") and d.dim_value < 0 for d in t.shape.dim):
        raise OnnxError(f"{value.name}: expected sizes >= 0, got shape {[d.dim_value for d in t.shape.dim]}")
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
