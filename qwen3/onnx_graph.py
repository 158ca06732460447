"""ONNX decoder graphs on the kernels of `qkernels`: prepared once, fused where a pattern is there, every node accounted for.

A graph becomes a list of steps. Constants are prepared (weights packed, each initializer once), patterns that have a kernel of their own
are lowered onto it, and whatever is left runs node by node on the function that the registry names. Nothing falls back in silence:
`OnnxModel.report` says for every node which kernel runs it and why, and a node that nothing runs is an error before any work.

>>> import numpy as np, onnx, tempfile, pathlib
>>> from qwen3.onnx_graph import OnnxModel
>>> node = onnx.helper.make_node("Sigmoid", ["x"], ["y"])
>>> value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])
>>> path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
>>> onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [value("x")], [value("y")])), path)
>>> OnnxModel(path).run({"x": np.zeros(1, np.float32)})
[array([0.5], dtype=float32)]
"""
import math
import pathlib
import time

import numpy as np
import onnx

from qkernels import backend
from qwen3.onnx_file import MISTAKES, OnnxError, named, read_graph
from qwen3.onnx_patterns import Lowering
from qwen3.onnx_weights import Weights
from qwen3.profiling import attended_nbytes

__all__ = ["OnnxError", "OnnxModel", "Plan", "Weights"]

ACTIVATIONS = ("int16", "int8", "f32")


def find_model(path):
    """The .onnx file that a path means: itself, or the model of a directory."""
    path = pathlib.Path(path)
    if path.is_file():
        return path
    if (path / "model.onnx").is_file():
        return path / "model.onnx"
    found = sorted(p.name for p in path.glob("*.onnx")) if path.is_dir() else []
    if len(found) == 1:
        return path / found[0]
    raise OnnxError(f"{path}: expected model.onnx, found {', '.join(found) or 'no .onnx file'}")


def _moved(step, arrays, results, context):
    """Bytes that a step reads and writes, each once: of a gathered table the rows asked for, of a view none, of the cache what is attended to."""
    arrays, results = [a for a in arrays if a is not None], [r for r in results if r is not None]
    if step.aliases and all(any(np.may_share_memory(a, r) for a in arrays) for r in results):
        return 0
    written = sum(r.nbytes for r in results)
    most = written if step.kernel in ("gather", "gather_elements", "gather_nd") else math.inf
    read = sum(min(a.nbytes, most) for a in arrays)
    if step.kernel == "cached_attention":
        read += attended_nbytes(context.cache, arrays[0].shape[-2])
    return written + read + step.weight_bytes()


class Context:
    """What the steps of one run share: the cache, the options, and arrays that are no longer needed."""

    def __init__(self, cache=None, last_only=False):
        self.cache, self.last_only, self.free, self.out = cache, last_only, {}, None

    def new(self, shape, dtype=np.float32):
        """An uninitialized array, a used one where one fits."""
        free = self.free.get((shape, dtype))
        return free.pop() if free else np.empty(shape, dtype)

    def give_back(self, array):
        """The array may be handed out again by `new`."""
        if array.base is None:
            self.free.setdefault((array.shape, array.dtype.type), []).append(array)


class Plan:
    """A graph lowered to steps for a set of outputs; `run` executes them.

    Parameters
    ----------
    graph : Graph
    outputs : sequence of str
    weights : Weights
    cached : bool
        Past and present keys and values live in a `qkernels.KVCache` of the context, where the graph allows it.
    activations : {None, "int16", "int8", "f32"}
    threads : int or None
    positions : int
        For how many tokens rotary tables are made where the graph computes its angles.
    """

    def __init__(self, graph, outputs, weights, *, cached=False, activations=None, threads=None, positions=4096):
        self.graph, self.outputs, self.weights = graph, tuple(outputs), weights
        lowering = Lowering(graph, self.outputs, weights, cached=cached, activations=activations, threads=threads,
                            positions=positions)
        self.steps, self.status, self.cache_layers = lowering.steps, lowering.status, len(lowering.attentions)
        if lowering.unsupported:
            raise OnnxError(f"{graph.path}: {backend.UnsupportedError(lowering.unsupported)}")
        self.inputs = lowering.live_inputs
        self.cache_shape, self.cache_positions, self.uncached = lowering.cache_shape, lowering.cache_positions, tuple(lowering.uncached)
        self._lowering = lowering
        self._program = None

    def prepare(self, progress=None):
        """Pack the weights and fix the program; done once, at the latest by the first run."""
        if self._program is not None:
            return self
        low, slots = self._lowering, {None: 0}
        slot = lambda name: slots.setdefault(name, len(slots))
        last, maker, readers = {}, {}, {}
        for index, step in enumerate(self.steps):
            for name in step.inputs:
                last[name] = index
                readers.setdefault(name, []).append(step)
            for name in step.outputs:
                last.setdefault(name, index)
                maker[name] = step
        program, done, total = [], 0, sum(s.stored for step in self.steps for _, specs in step.packed for s in specs)
        for index, step in enumerate(self.steps):
            try:
                run = step.make()
            except MISTAKES as error:
                raise named(error, f"{self.graph.path}: {step.name}") from error
            drop = [n for n in {*step.inputs, *step.outputs} if last.get(n) == index and n in maker and n not in self.outputs]
            recycled = [slot(n) for n in drop if maker[n].fresh and all(not r.aliases for r in readers.get(n, ()))]
            program.append((run, tuple(map(slot, step.inputs)), tuple(map(slot, step.outputs)), tuple(map(slot, drop)), tuple(recycled), step))
            if progress and step.packed:
                done += sum(s.stored for _, specs in step.packed for s in specs)
                progress(done, total)
        self._initial = [None] * len(slots)
        for name, index in slots.items():
            if name is not None and name in low.constants:
                self._initial[index] = low.array(name)
        for name in self.outputs:
            if name in low.constants and name not in slots:
                self._initial.append(low.array(name))
                slots[name] = len(self._initial) - 1
        self._slots, self._program = slots, program
        return self

    def run(self, feeds, context=None, profile=None):
        """The outputs, in the plan's order, for a dict of arrays."""
        if self._program is None:
            self.prepare()
        context = context or Context()
        values = self._initial.copy()
        for name, array in feeds.items():
            if name in self._slots:
                values[self._slots[name]] = array
        clock = time.perf_counter
        for run, inputs, outputs, drop, recycled, step in self._program:
            arrays = [values[i] for i in inputs]
            begin = clock() if profile is not None else 0
            try:
                results = run(arrays, context)
                if len(results) != len(outputs):
                    raise ValueError(f"expected {len(outputs)} results, got {len(results)}")
            except MISTAKES as error:
                raise named(error, step.name) from error
            if profile is not None:
                end = clock()
                profile.add(step.label, step.kernel, end - begin, _moved(step, arrays, results, context))
                profile.accounting += clock() - end
            for i, array in zip(outputs, results, strict=True):
                values[i] = array
            for i in recycled:
                context.give_back(values[i])
            for i in drop:
                values[i] = None
        return [values[self._slots[n]] if n in self._slots else feeds[n] for n in self.outputs]

    @property
    def rotary(self):
        """The tables (cos, sin) that attention on the cache reads, or None."""
        names = self._lowering.rotary
        return None if names is None else tuple(self._lowering.array(n) for n in names)

    @property
    def nbytes(self):
        """Bytes of the packed weights of this plan, each counted once."""
        return sum({id(w): w.nbytes for step in self.steps for w in step.weights()}.values())


class OnnxModel:
    """An ONNX model, ready to run like a session of ONNX Runtime.

    Parameters
    ----------
    path : str or os.PathLike
        A .onnx file, or a directory with ``model.onnx``; its external data are mapped, not read.
    activations : {None, "int16", "int8", "f32"}
        How activations enter products with quantized weights. None: as integers of 16 bits where a node's accuracy_level 4 permits integers, else as
        float32.
    threads : int, optional
        By default `qkernels.get_num_threads()`.
    lazy : bool, default False
        Plan for all outputs only when `run` or `report` is called, not at once: unsupported nodes are then found there.

    Attributes
    ----------
    graph : Graph
    inputs, outputs : dict of str to (dtype, shape)
        Sizes are int, str for a symbol, or None.

    Raises
    ------
    OnnxError
        For a file that is damaged, unsafe or contradictory; and listing the nodes that no kernel runs, before any weight is read.
    """

    def __init__(self, path, *, activations=None, threads=None, lazy=False):
        if activations is not None and activations not in ACTIVATIONS:
            raise ValueError(f"OnnxModel: activations: expected one of {', '.join(ACTIVATIONS)} or None, got {activations!r}")
        self.path = find_model(path)
        self.graph = read_graph(self.path)
        self.weights = Weights(threads)
        self._options = dict(activations=activations, threads=threads)
        self.inputs, self.outputs = self.graph.inputs, self.graph.outputs
        self._plans = {}
        if not lazy:
            self.plan_for(self.graph.outputs)

    @property
    def plan(self):
        """The plan for all outputs."""
        return self.plan_for(self.graph.outputs)

    def plan_for(self, outputs):
        """The plan that makes these outputs and nothing else."""
        outputs = tuple(outputs)
        if outputs not in self._plans:
            self._plans[outputs] = Plan(self.graph, outputs, self.weights, **self._options)
        return self._plans[outputs]

    def run(self, feeds, outputs=None, *, profile=None):
        """Run the model.

        Parameters
        ----------
        feeds : dict of str to array
            By input name.
        outputs : sequence of str, optional
            Which outputs to make; by default all. What only others need is not computed.
        profile : qwen3.profiling.Profile, optional
            Receives times, bytes and calls.

        Returns
        -------
        list of ndarray

        Raises
        ------
        TypeError, ValueError
            For a feed, naming it, what was expected and what came.
        OnnxError
            For arrays that a node cannot take, naming it; also a TypeError, IndexError or MemoryError where the kernel's error is one.
        """
        outputs = tuple(self.outputs) if outputs is None else tuple(outputs)
        for name in outputs:
            if name not in self.outputs:
                raise ValueError(f"run: outputs: expected names among {', '.join(list(self.outputs)[:8])}…, got {name!r}")
        plan = self.plan_for(outputs)
        feeds = {name: np.asarray(array) for name, array in feeds.items()}
        for name in feeds:
            if name not in self.inputs:
                raise ValueError(f"run: feeds: no input is called {name!r}")
        for name in plan.inputs:
            if name not in feeds:
                raise ValueError(f"run: feeds: {name} is missing")
            check_feed(name, feeds[name], self.inputs[name])
        return plan.run(feeds, profile=profile)

    def report(self):
        """For every node of the graph: (name, operator, kernel, why), in the graph's order."""
        return [(node.name, node.op, *self.plan.status[node]) for node in self.graph.nodes]

    @property
    def nbytes(self):
        """Bytes of the packed weights."""
        return self.plan.prepare().nbytes


def check_feed(name, array, declared):
    """Type, rank and fixed sizes of an input."""
    kind, shape = declared
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if array.dtype != dtype:
        raise TypeError(f"run: feeds: {name}: expected dtype {dtype}, got {array.dtype}")
    if shape is not None and (array.ndim != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(shape, array.shape, strict=True))):
        raise ValueError(f"run: feeds: {name}: expected shape {shape}, got {array.shape}")
