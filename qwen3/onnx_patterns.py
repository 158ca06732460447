"""From nodes to steps: constants prepared, patterns lowered onto the kernel that computes them whole, the rest bound one by one."""
import math
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

import qkernels
from qkernels import backend
from qwen3.onnx_file import MISTAKES, Node, Tensor, named
from qwen3.onnx_weights import int8_spec, matrix_spec, nbits_spec, quantized_spec

__all__ = ["Lowering", "Step"]

FOLD_ELEMENTS = 1 << 16  # shape arithmetic is folded, weights are not
MAX_ELEMENTS = 1 << 30  # of a result that a node by itself may ask for
VIEWS = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Flatten"}


@dataclass(eq=False)
class Linear:
    """A product with a constant matrix that has not become a step yet."""

    x: str
    out: str
    specs: tuple
    nodes: list
    bias: str | None
    level: int | None
    why: str


@dataclass(eq=False)
class Step:
    """One call of a plan.

    Attributes
    ----------
    kernel : str
    why : str
    nodes : list of Node
        What it computes.
    inputs, outputs : list of (str or None)
    make : callable
        ``make()`` prepares and returns ``run(arrays, context) -> tuple of arrays``.
    fresh : bool
        Its outputs are new arrays that nothing else shows.
    aliases : bool
        Its outputs may be views of its inputs.
    packed : list of (Weights, specs)
    error : list of str
        Why it cannot be run.
    """

    kernel: str
    why: str
    nodes: list
    inputs: list
    outputs: list
    make: object = None
    fresh: bool = False
    aliases: bool = True
    packed: list = field(default_factory=list)
    error: list = field(default_factory=list)

    @property
    def name(self):
        return self.nodes[-1].name

    @property
    def label(self):
        """The operators, counted, in order."""
        ops = [n.op.rpartition("::")[2] for n in self.nodes]
        return "+".join(dict.fromkeys(ops))

    def weights(self):
        """The packed objects that it reads."""
        return [weights.get(specs) for weights, specs in self.packed]

    def weight_bytes(self):
        return sum(w.nbytes for w in self.weights()) if self.kernel != "take_rows" else 0


class Lowering:
    """The steps of a graph for some outputs.

    Attributes
    ----------
    steps : list of Step
        In an order in which they can run; only those that the outputs need.
    status : dict of Node to (kernel, why)
        For every node of the graph.
    constants : dict of str to Tensor
    unsupported : list of str
    live_inputs : list of str
        Graph inputs that the steps read.
    attentions : list of Step
        Those that keep their keys and values in a cache, a layer each.
    """

    def __init__(self, graph, outputs, weights, *, cached, activations, threads, positions=4096):
        self.graph, self.weights, self.activations, self.threads = graph, weights, activations, threads
        self.outputs, self.positions = outputs, positions
        self.constants = dict(graph.constants)
        self._arrays = {}
        self.status, self.steps, self.linears = {}, [], {}
        self.nodes, self.written_out = list(graph.nodes), {}  # nodes that stand for several: node → these
        self.producer = {out: (node, i) for node in graph.nodes for i, out in enumerate(node.outputs) if out is not None}
        self.readers = {}
        for node in graph.nodes:
            for name in node.inputs:
                if name is not None:
                    self.readers.setdefault(name, []).append(node)
        self.kept = {*graph.outputs}  # values that must not vanish in a fusion
        self.claimed = set()
        self.attentions, self.cached = [], cached
        self.evaluated, self.samples, self.judged = {}, {}, {}  # values of the graph looked at for single sequences, and what was found
        self.cache_shape, self.cache_positions, self.rotary, self.uncached = (None, None), 2**31 - 1, None, []
        if cached:
            self.kept = {*outputs}
        for node in self.nodes:
            if isinstance(node.bound(graph.opsets), backend.UnsupportedError):
                self._refuse(node)
            elif node.op == "com.microsoft::GroupQueryAttention" and (wrong := self._unknown_cache(node)):
                self._refuse(node, wrong)
        self._fold()
        for match in (self._decomposed_norm, self._decomposed_rotation):
            for node in self.nodes.copy():
                if node not in self.claimed and self.producer.get(node.outputs[0], (None,))[0] is node:
                    match(node)
        for node in self.nodes:
            if node not in self.claimed:
                self._linear(node)
        if cached:
            for node in self.nodes:
                if node not in self.claimed and node.op in ("com.microsoft::GroupQueryAttention", "Attention"):
                    self._cached_attention(node)
        for match in (self._silu, self._embedding, self._norm, self._residual_norm, self._rotation, self._integer_product):
            for node in self.nodes:
                if node not in self.claimed:
                    match(node)
        for linear in list(self.linears.values()):
            self._linear_step(linear)
        for node in self.nodes:
            if node not in self.claimed:
                self._single(node)
        self._finish()

    # --- what patterns ask -------------------------------------------------------------------------------------------------

    def array(self, name):
        """A constant as an array."""
        if name not in self._arrays:
            self._arrays[name] = self.constants[name].array()
        return self._arrays[name]

    def small(self, name, limit=16):
        """The values of a small constant as a list, or None."""
        t = self.constants.get(name)
        return None if t is None or math.prod(t.shape) > limit else self.array(name).reshape(-1).tolist()

    def made_by(self, name, *ops):
        """The node that makes a value, if it is one of these operators and not part of something else yet."""
        node = self.producer.get(name, (None,))[0]
        return node if node is not None and node.op in ops and node not in self.claimed else None

    def only_reader(self, name, *nodes):
        """Whether a value vanishes if these nodes do."""
        return name not in self.kept and all(r in nodes for r in self.readers.get(name, ()))

    def reader(self, name, op):
        """The one node that reads a value which vanishes with it, if it is this operator and not part of something else yet."""
        readers = self.readers.get(name, ())
        return readers[0] if len(readers) == 1 and readers[0].op == op and readers[0] not in self.claimed and self.only_reader(name, readers[0]) else None

    def claim(self, step):
        self.steps.append(step)
        self.claimed.update(step.nodes)
        step.nodes = [part for n in step.nodes for part in self.written_out.get(n, [n])]
        for node in step.nodes:
            self.status[node] = step.kernel, step.why

    def stand_in(self, op, inputs, attributes, parts):
        """One node instead of several that compute the same; the last one's output is its own."""
        node = Node(op, inputs, [parts[-1].outputs[0]], None, parts[-1].name, attributes)
        gone = {*parts}
        for part in parts:
            for name in part.inputs:
                if name in self.readers:
                    self.readers[name] = [r for r in self.readers[name] if r not in gone]
            for name in part.outputs:
                self.producer.pop(name, None)
        self.producer[node.outputs[0]] = node, 0
        for name in inputs:
            self.readers.setdefault(name, []).append(node)
        self.nodes[self.nodes.index(parts[-1])] = node
        self.nodes = [n for n in self.nodes if n not in gone]
        self.written_out[node] = parts

    # --- constants ---------------------------------------------------------------------------------------------------------

    def _fold(self):
        """Constant nodes, views of constants, and small arithmetic on constants."""
        for node in self.graph.nodes:
            if node in self.claimed or node.op == "DequantizeLinear" or not node.inputs and node.op != "Constant":
                continue
            if any(n is not None and n not in self.constants for n in node.inputs):
                continue
            if node.op == "Constant":
                self._constant(node)
            elif node.op in VIEWS and not self.constants[node.inputs[0]].packed:
                self._fold_view(node)
            elif all(n is None or math.prod(self.constants[n].shape) <= FOLD_ELEMENTS and not self.constants[n].packed for n in node.inputs):
                self._fold_small(node)

    def _constant(self, node):
        attributes = node.attributes
        if isinstance(attributes.get("value"), Tensor):
            t = attributes["value"]
            self._define(node, Tensor(node.outputs[0], t.kind, t.shape, t.raw), "constant", "prepared once")
            return
        try:
            array = qkernels.constant(**attributes)
        except MISTAKES as error:
            raise named(error, f"node {node}") from error
        self._define_array(node, array, "constant", "prepared once")

    def _define(self, node, tensor, kernel, why):
        self.constants[node.outputs[0]] = tensor
        self.claimed.add(node)
        self.status[node] = kernel, why

    def _define_array(self, node, array, kernel, why, name=None):
        import onnx

        if array.dtype == object:
            return
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self._define(node, Tensor(name or node.outputs[0], kind, array.shape, array), kernel, why)

    def _fold_view(self, node):
        source = self.constants[node.inputs[0]]
        try:
            (view,) = self._call(node)([self.array(n) if n is not None else None for n in node.inputs])
        except MISTAKES as error:
            raise named(error, f"node {node}") from error
        if not np.may_share_memory(view, source.raw):
            return
        tensor = Tensor(source.name, source.kind, view.shape, view, source.source)
        self._define(node, tensor, "view of a constant", f"{node.op} of {node.inputs[0]}, no copy")
        # a transposed view must be told from its base
        if node.op == "Transpose" and view.ndim == 2:
            tensor.name = source.name + "|T" if not source.name.endswith("|T") else source.name[:-2]
        elif node.op == "Transpose":
            tensor.name = f"{source.name}|{node.outputs[0]}"

    def _fold_small(self, node):
        if len([o for o in node.outputs if o is not None]) != 1 or node.outputs[0] is None:
            return
        arrays, call = [self.array(n) if n is not None else None for n in node.inputs], self._call(node)
        if _result_size(call, arrays) > FOLD_ELEMENTS:
            return
        try:
            (result,) = call(arrays)
        except MISTAKES:
            return  # it will fail by name, as a step
        if result.size <= FOLD_ELEMENTS:
            self._define_array(node, np.ascontiguousarray(result).reshape(result.shape), "folded", "its inputs are constants")

    def _call(self, node):
        return node.bound(self.graph.opsets)

    # --- products ----------------------------------------------------------------------------------------------------------

    def _linear(self, node):
        found = {"MatMul": self._matmul, "Gemm": self._gemm, "com.microsoft::MatMulNBits": self._nbits}.get(node.op, lambda node: None)(node)
        if found is not None:
            self.linears[found.out] = found
            self.claimed.update(found.nodes)

    def _nbits(self, node):
        names = node.inputs + [None] * (6 - len(node.inputs))
        x, b, scales, points, g_idx, bias = names[:6]
        a = node.attributes
        if any(n is not None and n not in self.constants for n in (b, scales, points, g_idx, bias)) or a.get("weight_prepacked"):
            return None
        n, k, bits, block = a["N"], a["K"], a.get("bits", 4), a["block_size"]
        if 0 in self.constants[b].shape or self.constants[b].kind != TensorProto.UINT8:
            return None
        spec = nbits_spec(node, *(self.constants.get(name) for name in (b, scales, points, g_idx)), n, k, bits, block)
        if spec is None:
            return None
        why = f"{bits}-bit weights in blocks of {block}, packed once"
        if g_idx is not None:
            why = f"{bits}-bit weights in blocks of {block} by g_idx, packed once"
        return Linear(x, node.outputs[0], (spec,), [node], bias, a.get("accuracy_level", 0), why)

    def _matmul(self, node):
        x, w = node.inputs[:2]
        spec, nodes, why = self._matrix_spec(w, False)
        return None if spec is None or x in self.constants else Linear(x, node.outputs[0], (spec,), [*nodes, node], None, None, why)

    def _gemm(self, node):
        a = node.attributes
        x, w = node.inputs[:2]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1 or a.get("transA", 0) or x in self.constants:
            return None
        spec, nodes, why = self._matrix_spec(w, bool(a.get("transB", 0)))
        if spec is None or (bias is not None and (bias not in self.constants or self.constants[bias].shape not in ((spec.n,), (1, spec.n)))):
            return None
        return Linear(x, node.outputs[0], (spec,), [*nodes, node], bias, None, why)

    def _matrix_spec(self, w, transposed):
        """(spec, nodes, why) of the second operand of a product: (K, N), or with `transposed` (N, K)."""
        if w in self.constants:
            spec = matrix_spec(self.constants[w], lambda: self.array(w), transposed)
            return spec, [], "" if spec is None else "constant matrix, packed once"
        nodes = []
        node = self.made_by(w, "Transpose")
        if node is not None and node.attributes.get("perm", [1, 0]) == [1, 0]:
            nodes, w, transposed = [node], node.inputs[0], not transposed
        node = self._dequantize(w)
        if node is None:
            return None, [], ""
        spec = self._dequantize_spec(node, transposed)
        return spec, [node, *nodes], "" if spec is None else f"DequantizeLinear of a constant: {spec.bits}-bit weights in blocks of {spec.block}, packed once"

    def _dequantize(self, name):
        """The DequantizeLinear of a constant that makes a value, claimed or not: several products may read one."""
        node = self.producer.get(name, (None,))[0]
        if node is None or node.op != "DequantizeLinear" or self.status.get(node, (None,))[0] == "none":
            return None
        return node if all(n is None or n in self.constants for n in node.inputs) else None

    def _dequantize_spec(self, node, rows):
        """The (N, K) matrix behind a DequantizeLinear whose tensor is (N, K) with `rows`, else (K, N); None where the pattern does not match."""
        names = node.inputs + [None] * (3 - len(node.inputs))
        node.constants = tuple(self.constants.get(name) for name in names[:3])
        return quantized_spec(node, rows)

    def _integer_product(self, node):
        """MatMulInteger and QLinearMatMul with a constant matrix."""
        place = {"MatMulInteger": 1, "QLinearMatMul": 3}.get(node.op)
        t = self.constants.get(node.inputs[place]) if place is not None else None
        if t is None or len(t.shape) != 2 or t.kind not in (TensorProto.UINT8, TensorProto.INT8):
            return
        name = node.inputs[place]
        spec = int8_spec(t, lambda: self.array(name))
        call = self._call(node)

        def make():
            packed = self.weights.get((spec,))

            def run(arrays, context):
                return call((*arrays[:place], packed, *arrays[place:]), **options)

            return run

        options = {} if self.threads is None else {"threads": self.threads}
        others = [n for i, n in enumerate(call.inputs) if i != place]
        self.claim(Step("PackedInt8Matrix", "constant 8-bit matrix, packed once", [node], others, list(call.outputs), make, packed=[(self.weights, (spec,))]))

    def _mode(self, linear):
        if linear.specs[0].kind == "matrix":
            return None
        return self.activations or ("int16" if linear.level == 4 else "f32")

    def _linear_step(self, linear):
        kind, mode, bias = linear.specs[0].kind, self._mode(linear), linear.bias
        kernel = "PackedMatrix" if kind == "matrix" else f"PackedNBits, {mode} activations"
        n = sum(s.n for s in linear.specs)
        options = {"threads": self.threads} | ({"activations": mode} if mode else {})
        last = linear.out in self.outputs and self.cached

        def make():
            packed = self.weights.get(linear.specs)
            if bias is not None:
                options["bias"] = self.array(bias).reshape(-1)

            def run(arrays, context):
                x = arrays[0]
                if last and context.last_only:
                    x = x[..., -1:, :]
                    if context.out is not None:
                        return (packed(x, out=context.out.reshape(x.shape[:-1] + (n,)), **options),)
                    return (packed(x, **options),)
                if x.ndim == 0:
                    raise ValueError(f"expected an array of at least 1 dimension, got shape {x.shape}")
                return (packed(x, out=context.new((*x.shape[:-1], n), x.dtype.type), **options),)

            return run

        step = Step(kernel, linear.why, linear.nodes, [linear.x], [linear.out], make, fresh=True, aliases=False, packed=[(self.weights, linear.specs)])
        self.claim(step)
        del self.linears[linear.out]

    def _take_linears(self, *names):
        """The products that make these values, if they read the same input, can be one packed object and are read by nobody else; or None."""
        found = [self.linears.get(n) for n in names]
        if any(f is None or f.bias is not None for f in found) or len({f.x for f in found}) != 1:
            return None
        if len({f.level for f in found}) != 1 or not all(found[0].specs[0].stacks_with(f.specs[0]) for f in found[1:]):
            return None
        return found

    def _merge(self, found, out):
        """One product instead of several; its result is them side by side."""
        merged = Linear(found[0].x, out, tuple(s for f in found for s in f.specs), [n for f in found for n in f.nodes], None, found[0].level,
                        f"{found[0].why}; {len(found)} products of one input in one call")
        for f in found:
            del self.linears[f.out]
        self.linears[out] = merged

    # --- activations -------------------------------------------------------------------------------------------------------

    def _silu(self, node):
        """x · sigmoid(x), and that times another value."""
        if node.op != "Mul":
            return
        for gated, up in (node.inputs, node.inputs[::-1]):
            inner = self.made_by(gated, "Mul", "Swish")
            if inner is None or not self.only_reader(gated, node):
                continue
            gate, nodes = self._sigmoid_product(inner)
            if gate is None or up == gated:
                continue
            halves = self._halves(gate, up, [*nodes, node])
            if halves is not None:
                self.claim(Step("silu_mul", "x · sigmoid(x) · up in one pass, of both halves of one product", [halves, *nodes, node], [halves.inputs[0]],
                                [node.outputs[0]], self._make_silu_mul, fresh=True, aliases=False))
                return
            found = self._take_linears(gate, up) if self.only_reader(gate, *nodes) and self.only_reader(up, node) else None
            why = "x · sigmoid(x) · up in one pass"
            if found:
                both = f"{gate} | {up}"
                self._merge(found, both)
                self.claim(Step("silu_mul", why, [*nodes, node], [both], [node.outputs[0]], self._make_silu_mul, fresh=True, aliases=False))
            else:
                self.claim(Step("silu_mul", why, [*nodes, node], [gate, up], [node.outputs[0]], self._make_silu_mul, fresh=True, aliases=False))
            return
        gate, nodes = self._sigmoid_product(node)
        if gate is not None and len(nodes) > 1 and not self._feeds_gate(node):
            def make():
                return lambda arrays, context: (qkernels.silu(arrays[0], threads=self.threads),)
            self.claim(Step("silu", "x · sigmoid(x) in one pass", nodes, [gate], [node.outputs[0]], make, fresh=True, aliases=False))

    def _halves(self, gate, up, nodes):
        """The Split along the last axis whose equal halves these are, if nobody else reads them; or None."""
        split = self.made_by(gate, "Split")
        if split is None or split.outputs != [gate, up] or not self.only_reader(gate, *nodes) or not self.only_reader(up, *nodes):
            return None
        sizes = self.small(split.inputs[1]) if len(split.inputs) > 1 else [1, 1] if split.attributes.get("num_outputs") == 2 else None
        product = self.linears.get(split.inputs[0])
        if split.attributes.get("axis", 0) != -1 or not sizes or sizes[0] != sizes[1] or product is None or product.bias is not None:
            return None
        return split if sum(s.n for s in product.specs) % 2 == 0 else None

    def _feeds_gate(self, node):
        """Whether a Mul that comes later will take this product in."""
        reader = self.reader(node.outputs[0], "Mul")
        return reader is not None and reader.inputs[0] != reader.inputs[1]

    def _sigmoid_product(self, node):
        """(x, nodes) of a node that is x · sigmoid(x), else (None, [])."""
        if node.op == "Swish":
            return (node.inputs[0], [node]) if node.attributes.get("alpha", 1.0) == 1 else (None, [])
        for x, s in (node.inputs, node.inputs[::-1]):
            sigmoid = self.made_by(s, "Sigmoid")
            if sigmoid is not None and sigmoid.inputs[0] == x and self.only_reader(s, node):
                return x, [sigmoid, node]
        return None, []

    def _make_silu_mul(self):
        threads = self.threads

        def run(arrays, context):
            x = arrays[0]
            shape = x.shape if len(arrays) == 2 else (*x.shape[:-1], x.shape[-1] // 2)
            if len(arrays) == 2 and arrays[1].shape != shape:
                return (qkernels.mul(qkernels.silu(x, threads=threads), arrays[1], threads=threads),)
            return (qkernels.silu_mul(*arrays, out=context.new(shape, x.dtype.type), threads=threads),)

        return run

    # --- embeddings --------------------------------------------------------------------------------------------------------

    def _embedding(self, node):
        if node.op == "com.microsoft::GatherBlockQuantized":
            self._gather_quantized(node)
        elif node.op == "Gather" and node.attributes.get("axis", 0) == 0:
            self._gather(node)

    def _gather_quantized(self, node):
        data, ids, scales, points = (node.inputs + [None])[:4]
        a = node.attributes
        if any(n is not None and n not in self.constants for n in (data, scales, points)):
            return
        t = self.constants[data]
        bits = 4 if t.kind in (TensorProto.UINT4, TensorProto.INT4) else a.get("bits", 4)
        if len(t.shape) != 2 or a.get("gather_axis", 0) % 2 != 0 or a.get("quantize_axis", 1) % 2 != 1 or t.kind != TensorProto.UINT8:
            return
        n, k, block = t.shape[0], t.shape[1] * 8 // bits, a.get("block_size", 128)
        spec = nbits_spec(node, t, self.constants[scales], self.constants.get(points), None, n, k, bits, block) if k % block == 0 else None
        if spec is None:
            return
        dtype = np.dtype(self.array(scales).dtype)
        self._rows(node, [node], ids, spec, dtype, "rows of the packed weights, only those asked for", beyond="zeros")

    def _gather(self, node):
        table, ids = node.inputs
        nodes, rows = [], True
        inner = self.made_by(table, "Transpose")
        if inner is not None and inner.attributes.get("perm", [1, 0]) == [1, 0] and self._dequantize(inner.inputs[0]):
            nodes, rows, table = [inner], False, inner.inputs[0]
        quantized = self._dequantize(table)
        if quantized is not None and len(self.constants[quantized.inputs[0]].shape) == 2:
            spec = self._dequantize_spec(quantized, rows)
            if spec is not None:
                dtype = self.array(quantized.inputs[1]).dtype
                self._rows(node, [quantized, *nodes, node], ids, spec, dtype, "Gather of a DequantizeLinear: rows of the packed weights, only those asked for")
                return
        if table in self.constants and self.constants[table].name.endswith("|T") and len(self.constants[table].shape) == 2:
            spec, _, _ = self._matrix_spec(table, True)
            if spec is not None:
                self._rows(node, [node], ids, spec, self.array(table).dtype, "rows of the packed matrix")

    def _rows(self, node, nodes, ids, spec, dtype, why, beyond="raise"):
        def make():
            packed = self.weights.get((spec,))

            def run(arrays, context):
                index = arrays[0]
                if beyond == "zeros":
                    wrong = (index < -spec.n) | (index >= spec.n)
                    if wrong.any():
                        rows = packed.take_rows(np.where(wrong, 0, index), threads=self.threads) if hasattr(packed, "bits") else None
                        rows[wrong] = 0
                        return (rows.astype(dtype, copy=False),)
                rows = packed.take_rows(index)
                return (rows if rows.dtype == dtype else qkernels.cast(rows, dtype),)

            return run

        self.claim(Step("take_rows", why, nodes, [ids], [node.outputs[0]], make, fresh=True, aliases=False, packed=[(self.weights, (spec,))]))

    # --- normalization -----------------------------------------------------------------------------------------------------

    def _rms_of(self, node):
        """(x, scale's name, epsilon, axis) of a node that is an RMS normalization with a float32 scale and nothing else asked for, else None."""
        if node.op not in ("SimplifiedLayerNormalization", "com.microsoft::SimplifiedLayerNormalization", "RMSNormalization"):
            return None
        if any(o is not None for o in node.outputs[1:]) or node.attributes.get("stash_type", 1) != 1:
            return None
        return node.inputs[0], node.inputs[1], node.attributes.get("epsilon", 1e-5), node.attributes.get("axis", -1)

    def _norm(self, node):
        if node.op == "com.microsoft::SkipSimplifiedLayerNormalization":
            self._skip_norm(node)

    def _make_norm(self, epsilon, axis):
        def make():
            def run(arrays, context):
                x, scale = arrays
                return (qkernels.rms_normalization(x, scale, axis=axis, epsilon=epsilon, out=context.new(x.shape, scale.dtype.type), threads=self.threads),)
            return run
        return make

    def _skip_norm(self, node):
        x, skip, gamma, bias = (node.inputs + [None])[:4]
        outputs = [(i, o) for i, o in enumerate(node.outputs) if o is not None]
        if any(i not in (0, 3) for i, _ in outputs):
            return
        epsilon, places = node.attributes.get("epsilon", 1e-12), tuple(i for i, _ in outputs)
        self.claim(Step("skip_simplified_layer_normalization", "residual sum and norm in one pass", [node], [x, skip, gamma, bias],
                        [o for _, o in outputs], self._make_skip(epsilon, places), fresh=True, aliases=False))

    def _make_skip(self, epsilon, places):
        def make():
            def run(arrays, context):
                x, skip, gamma, bias = arrays
                out = context.new(x.shape, x.dtype.type) if 0 in places else None
                total = context.new(x.shape, x.dtype.type) if 3 in places else None
                result = qkernels.skip_simplified_layer_normalization(x, skip, gamma, bias, epsilon=epsilon, outputs=places, out=out, sum_out=total,
                                                                      threads=self.threads)
                return result if isinstance(result, tuple) else (result,)
            return run
        return make

    def _residual_norm(self, node):
        """Add and the norm of the sum, where both are float32; else a norm alone."""
        found = self._rms_of(node)
        if found is None:
            return
        x, scale, epsilon, axis = found
        add = self.made_by(x, "Add")
        t = self.constants.get(scale)
        if add is None or t is None or len(t.shape) != 1 or t.kind != TensorProto.FLOAT or axis != -1 or any(n in self.constants for n in add.inputs):
            self.claim(Step("rms_normalization", self._norm_reason(node), [node],
                            [x, scale], [node.outputs[0]], self._make_norm(epsilon, axis), fresh=True, aliases=False))
            return

        def make():
            fused = self._make_skip(epsilon, (0, 3))()

            def run(arrays, context):
                a, b, gamma = arrays
                if a.dtype == b.dtype == np.float32 and a.shape == b.shape and a.ndim in (2, 3):
                    return fused((a, b, gamma, None), context)
                total = qkernels.add(a, b, threads=self.threads)
                return qkernels.rms_normalization(total, gamma, epsilon=epsilon, threads=self.threads), total

            return run

        self.claim(Step("skip_simplified_layer_normalization", "Add and the norm of the sum in one pass (float32)", [add, node], [*add.inputs, scale],
                        [node.outputs[0], x], make, fresh=True, aliases=False))

    def _norm_reason(self, node):
        if node in self.written_out:
            return "Pow, ReduceMean, Add, Sqrt, Div, Mul written out"
        return "the operator's kernel" if node.op == "RMSNormalization" else "the same kernel by another name"

    def _decomposed_norm(self, node):
        """x / sqrt(mean(x²) + ε) · scale written out: Pow or Mul, ReduceMean, Add, Sqrt, Div or Reciprocal and Mul."""
        if node.op != "Mul":
            return
        for scale, y in (node.inputs, node.inputs[::-1]):
            t = self.constants.get(scale)
            found = self._decomposed(y, node) if t is not None and len(t.shape) == 1 and t.kind == TensorProto.FLOAT else None
            if found is not None:
                x, epsilon, nodes = found
                self.stand_in("RMSNormalization", [x, scale], {"epsilon": epsilon, "axis": -1}, [*nodes, node])
                return

    def _decomposed(self, y, reader):
        node = self.made_by(y, "Mul", "Div")
        if node is None or not self.only_reader(y, reader):
            return None
        if node.op == "Div":
            x, root = node.inputs
            nodes = [node]
        else:
            for other, inverse in (node.inputs, node.inputs[::-1]):
                r = self.made_by(inverse, "Reciprocal", "Div")
                if r is not None and (r.op == "Reciprocal" or self.small(r.inputs[0]) == [1.0]) and self.only_reader(inverse, node):
                    x, root, nodes = other, r.inputs[-1], [r, node]
                    break
            else:
                return None
        sqrt = self.made_by(root, "Sqrt")
        add = sqrt and self.made_by(sqrt.inputs[0], "Add")
        if not add or not self.only_reader(root, nodes[0]) or not self.only_reader(sqrt.inputs[0], sqrt):
            return None
        for mean_name, eps in (add.inputs, add.inputs[::-1]):
            value = self.small(eps)
            mean = self.made_by(mean_name, "ReduceMean")
            if value is None or len(value) != 1 or mean is None or not self.only_reader(mean_name, add):
                continue
            axes = mean.attributes.get("axes") or (self.small(mean.inputs[1]) if len(mean.inputs) > 1 else None)
            square = self.made_by(mean.inputs[0], "Pow", "Mul")
            if axes != [-1] or mean.attributes.get("keepdims", 1) != 1 or square is None or not self.only_reader(mean.inputs[0], mean):
                continue
            squared = square.inputs[0] == x and (square.inputs[1] == x if square.op == "Mul" else self.small(square.inputs[1]) in ([2], [2.0]))
            if squared and value[0] >= 0:
                return x, value[0], [square, mean, add, sqrt, *nodes]
        return None

    # --- rotation ----------------------------------------------------------------------------------------------------------

    def _decomposed_rotation(self, node):
        """x · cos + concat(-x₂, x₁) · sin, with cos and sin of whole heads."""
        if node.op != "Add":
            return
        for a, b in (node.inputs, node.inputs[::-1]):
            direct, crossed = self.made_by(a, "Mul"), self.made_by(b, "Mul")
            if direct is None or crossed is None or not self.only_reader(a, node) or not self.only_reader(b, node):
                continue
            for swapped, sin in (crossed.inputs, crossed.inputs[::-1]):
                concat = self.made_by(swapped, "Concat")
                found = self._half_swap(concat, crossed) if concat is not None else None
                if found is None or found[0] not in direct.inputs:
                    continue
                x, half, parts = found
                cos = direct.inputs[1 - direct.inputs.index(x)]
                self.stand_in("RotaryEmbedding", [x, cos, sin], {"whole": 1, "half": half}, [*parts, concat, direct, crossed, node])
                return

    def _half_swap(self, concat, reader):
        """(x, half, nodes) of concat(-x[..., half:], x[..., :half])."""
        if len(concat.inputs) != 2 or concat.attributes.get("axis") not in (-1, 3) or not self.only_reader(concat.outputs[0], reader):
            return None
        negative = self.made_by(concat.inputs[0], "Neg")
        if negative is None or not self.only_reader(concat.inputs[0], concat):
            return None
        second, first = self.made_by(negative.inputs[0], "Slice", "Split"), self.made_by(concat.inputs[1], "Slice", "Split")
        if second is None or first is None or second.inputs[0] != first.inputs[0]:
            return None
        if not self.only_reader(negative.inputs[0], negative) or not self.only_reader(concat.inputs[1], concat):
            return None
        if first.op == "Split":
            sizes = self.small(first.inputs[1]) if len(first.inputs) > 1 else None
            if first is not second or first.outputs != [concat.inputs[1], negative.inputs[0]] or not sizes or sizes[0] != sizes[1]:
                return None
            return first.inputs[0], sizes[0], [first, negative]
        ranges = []
        for part in (first, second):
            names = part.inputs[1:] + [None] * (5 - len(part.inputs))
            start, end, axes, steps = (self.small(n) if n else None for n in names)
            if not start or not end or axes not in ([-1], [3]) or steps not in (None, [1]):
                return None
            ranges.append((start[0], end[0]))
        (zero, half), (begin, end) = ranges
        return (first.inputs[0], half, [first, second, negative]) if zero == 0 and 0 < half == begin and end >= 2 * half else None

    def _rotation(self, node):
        """A rotation written out that no attention has taken in."""
        if node not in self.written_out or node.op != "RotaryEmbedding":
            return
        half = node.attributes["half"]

        def make():
            def run(arrays, context):
                x, cos, sin = arrays
                whole = x.ndim == 4 and x.shape[-1] == 2 * half and all(
                    t.ndim == 4 and t.shape[1] == 1 and t.shape[2:] == x.shape[2:] and np.array_equal(t[..., :half], t[..., half:]) for t in (cos, sin))
                if whole:
                    tables = [np.broadcast_to(t[:, 0, :, :half], (x.shape[0], x.shape[2], half)) for t in (cos, sin)]
                    return (qkernels.rotary_embedding(x, *tables, threads=self.threads),)
                minus = qkernels.sub(np.zeros(1, x.dtype), x[..., half:])
                swapped = qkernels.concat(minus, x[..., :half], axis=-1)
                return (qkernels.add(qkernels.mul(x, cos), qkernels.mul(swapped, sin), threads=self.threads),)

            return run

        self.claim(Step("rotary_embedding", "Slice, Neg, Concat, Mul and Add written out", [node], list(node.inputs), [node.outputs[0]], make))

    # --- attention with a cache --------------------------------------------------------------------------------------------

    def _cached_attention(self, node):
        from qwen3 import onnx_attention

        onnx_attention.lower(self, node)

    # --- everything else ---------------------------------------------------------------------------------------------------

    def _unknown_cache(self, node):
        """Why no function runs a node on keys and values of this type: what the graph declares them to be; or None."""
        known = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8, TensorProto.UINT8)
        wrong = [n for n in node.inputs[3:5] if n in self.graph.inputs and self.graph.inputs[n][0] not in known]
        if wrong:
            return f"{node.op.replace('::', ' ')} ({node.name}): {wrong[0]} of type {TensorProto.DataType.Name(self.graph.inputs[wrong[0]][0])}"
        return None

    def _refuse(self, node, reason=None):
        """A node that no function runs: an error, if its results are needed."""
        reasons = (reason,) if reason else node.bound(self.graph.opsets).reasons
        self.claim(Step("none", reasons[0], [node], list(node.inputs), [o for o in node.outputs if o is not None], error=list(reasons)))

    def _single(self, node):
        """A node on the function that the registry names."""
        call = self._call(node)
        threads = {"threads": self.threads} if self.threads is not None and backend.accepts(call.function, "threads") else {}

        def make():
            def run(arrays, context):
                if (size := _result_size(call, arrays)) > MAX_ELEMENTS:
                    raise ValueError(f"expected at most {MAX_ELEMENTS} elements, got shapes and numbers that ask for {size}")
                return call(arrays, **threads)

            return run

        why = "a view or bookkeeping, in NumPy" if call.kernel.family == "numpy" else "the operator's kernel"
        aliases = call.kernel.family == "numpy"
        self.claim(Step(call.kernel.name, why, [node], list(call.inputs), list(call.outputs), make, aliases=aliases))

    def _finish(self):
        """Order the steps, drop those that nobody needs, and collect what is unsupported."""
        maker = {o: s for s in self.steps for o in s.outputs}
        # a dequantized matrix that products took in may be read by others as well: for them it is made
        wanted = [n for s in self.steps for n in s.inputs] + [*self.outputs]
        while wanted:
            name = wanted.pop()
            if name is not None and name not in maker and name not in self.constants and name in self.producer:
                self._single(self.producer[name][0])
                maker |= dict.fromkeys(self.steps[-1].outputs, self.steps[-1])
                wanted += self.steps[-1].inputs
        needed, stack = set(), [maker[o] for o in self.outputs if o in maker]
        while stack:
            step = stack.pop()
            if step not in needed:
                needed.add(step)
                stack += [maker[n] for n in step.inputs if n in maker]
        for step in self.steps:
            if step not in needed:
                for node in step.nodes:
                    self.status[node] = "not run", "no output that is asked for needs it"
        order, done = [], set()
        place = {node: i for i, node in enumerate(self.graph.nodes)}
        waiting = sorted(needed, key=lambda s: max(place[n] for n in s.nodes))
        for first in waiting:
            stack = [(first, False)]
            while stack:
                step, ready = stack.pop()
                if step in done:
                    continue
                if ready:
                    done.add(step)
                    order.append(step)
                    continue
                stack.append((step, True))
                stack += [(maker[n], False) for n in step.inputs if n in maker and maker[n] not in done]
        self.steps = order
        self.attentions = [step for step in self.attentions if step in needed]
        self.unsupported = list(dict.fromkeys(reason for s in order for reason in s.error))
        read = {n for s in order for n in s.inputs} | {*self.outputs}
        self.live_inputs = [n for n in self.graph.inputs if n in read]


def _result_size(call, arrays):
    """Elements that a node's result will have where a few numbers in its inputs can make it much larger than them, else 0.

    Where they contradict each other, 0 as well: the kernel says how."""
    name, family = call.kernel.name, call.kernel.family
    try:
        if name == "constant_of_shape":
            return math.prod(arrays[0].tolist())
        if name == "expand":
            return math.prod(_broadcast([arrays[0].shape, tuple(arrays[1].tolist())]))
        if name == "tile":
            return math.prod(n * r for n, r in zip(arrays[0].shape, arrays[1].tolist(), strict=True))
        if name == "pad":
            axes = arrays[3].tolist() if len(arrays) > 3 and arrays[3] is not None else range(arrays[0].ndim)
            grown = list(arrays[0].shape)
            for axis, before, after in zip(axes, arrays[1][:len(axes)].tolist(), arrays[1][len(axes):].tolist(), strict=True):
                grown[axis] += before + after
            return math.prod(max(n, 0) for n in grown)
        if name == "range":
            start, limit, delta = (a.reshape(()).item() for a in arrays)
            return max(0, math.ceil((limit - start) / delta))
        if name == "gather":
            return arrays[1].size * (arrays[0].size // max(1, arrays[0].shape[call.attributes.get("axis", 0)]))
        if name == "gather_nd":
            return math.prod(arrays[1].shape[:-1]) * math.prod(arrays[0].shape[call.attributes.get("batch_dims", 0) + arrays[1].shape[-1]:])
        if name in ("matmul", "matmul_integer") and arrays[0].ndim > 1 and arrays[1].ndim > 1:
            return math.prod(_broadcast([a.shape[:-2] for a in arrays[:2]])) * arrays[0].shape[-2] * arrays[1].shape[-1]
        if name == "gemm":
            m, n = (a.shape[i] for a, i in zip(arrays, (call.attributes.get("transA", 0), 1 - call.attributes.get("transB", 0)), strict=False))
            return m * n
        if family == "elementwise" or name in BROADCASTS:
            return math.prod(_broadcast([a.shape for a in arrays if a is not None]))
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        pass
    return 0


BROADCASTS = {"and_", "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "greater", "greater_or_equal", "less", "less_or_equal", "max", "min", "mod", "or_",
              "where", "xor"}


def _broadcast(shapes):
    """As np.broadcast_shapes, which refuses large ones."""
    rank = max(map(len, shapes), default=0)
    sizes = []
    for axis in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        wide = {n for n in axis if n != 1} or {1}
        if len(wide) > 1:
            raise ValueError("not to be broadcast")
        sizes += wide
    return sizes
