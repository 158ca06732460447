"""What the benchmarks share: shapes, peers, rates, and the certainty that the tier meant is the tier run.

Peers are parameters of the same benchmark, measured in the same run: only ratios within a run mean something. A peer that is not installed
raises NotImplementedError in `setup`, which asv shows as n/a.
"""
import abc
import dataclasses
import importlib
import time

import ml_dtypes
import numpy as np

import qkernels
from qkernels._config import families

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclasses.dataclass(frozen=True)
class Shape:
    """Dimensions of a dense Qwen3."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int = 128
    vocabulary: int = 151_936


QWEN3 = {"0.6B": Shape(1024, 3072, 28, 16, 8), "4B": Shape(2560, 9728, 36, 32, 8)}


def peer(module):
    """The module of a peer; n/a where it is missing. torch gets as many threads as qkernels."""
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise NotImplementedError(f"{module} is not installed") from error
    if module == "torch":
        found.set_num_threads(qkernels.get_num_threads())
    return found


def assert_tier(family):
    """In `setup`, untimed: the family runs the best tier of this machine, not what a variable or a missing body left over."""
    best, tiers = qkernels.available_isa()[-1], families()[family]
    # not every family has a body for the tier of integer products
    assert qkernels.get_isa() == best and tiers in (best, "avx512" if best == "amx" else best), f"{family} runs {tiers}, not {best}"


def normal(*shape, dtype="f32", seed=0, scale=1.0):
    """Reproducible normally distributed values."""
    return (np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)).astype(DTYPES.get(dtype, dtype))


def seconds(call, budget=0.3, repeat=7):
    """The shortest time of `repeat` rounds, each of as many calls as a part of the budget holds."""
    call()
    start = time.perf_counter()
    call()
    number = max(1, int(budget / repeat / max(time.perf_counter() - start, 1e-9)))
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter() - start) / number)
    return best


def gigabytes_per_second(call, nbytes):
    """For `track_` benchmarks of what memory limits; nbytes are read and written once."""
    return nbytes / seconds(call) / 1e9


def giga_macs_per_second(call, m, n, k):
    """For `track_` benchmarks of products: multiply-accumulates."""
    return m * n * k / seconds(call) / 1e9


def from_memory(make, nbytes, beyond=256 << 20):
    """A function that returns one of several equal objects in turn, together larger than any cache, so that each is read from memory.

    make() builds one of `nbytes`."""
    pool, turn = [make() for _ in range(max(1, -(-beyond // nbytes)))], [0]

    def following():
        turn[0] = (turn[0] + 1) % len(pool)
        return pool[turn[0]]
    return following


def onnxruntime_node(domain, op_type, inputs, outputs=1, opset=23, bound=False, shared=(), result=None, **attributes):
    """A function that runs one node in ONNX Runtime on `inputs`, a dict of arrays; those that do not change from call to call should be `constants`.

    `constants`, an attribute of that name, lists the inputs that become initializers. `outputs` is a number, or a list with "" for what is not wanted.
    `order`, likewise, names all inputs that the operator may have in their order, where some between those given are absent.
    `then`, likewise, is the operator of a second node and the name of an input: its operands are the first node's result and that input.
    bound: inputs and outputs are bound once and stay in place, as with ``out=``; else a call returns new arrays. `shared`, pairs of an input and an output
    that are one buffer, as decoders bind their past and present keys and values. `result`: dtype of the outputs, where it is not the first input's.
    n/a where ONNX Runtime has no such kernel."""
    onnx, ort = peer("onnx"), peer("onnxruntime")
    constants, (second, other) = attributes.pop("constants", ()), attributes.pop("then", (None, None))
    places = [name if name in inputs else "" for name in attributes.pop("order", inputs)]
    types = {name: onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
    names = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    results = ["first"] if second else names
    nodes = [onnx.helper.make_node(op_type, [name for name in places if name != other], results, domain=domain, **attributes)]
    if second:
        nodes.append(onnx.helper.make_node(second, [*results, other], names))
    infos = [onnx.helper.make_tensor_value_info(name, types[name], x.shape) for name, x in inputs.items() if name not in constants]
    initializers = [onnx.helper.make_tensor(name, types[name], inputs[name].shape, inputs[name].tobytes(), raw=True) for name in constants]
    main_type = next(iter(types.values())) if result is None else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(result))
    graph = onnx.helper.make_graph(nodes, op_type, infos, [onnx.helper.make_tensor_value_info(name, main_type, None) for name in names if name], initializers)
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)])
    options = ort.SessionOptions()
    options.intra_op_num_threads = qkernels.get_num_threads()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.InvalidGraph) as error:
        raise NotImplementedError(str(error)) from error
    feeds = {name: x for name, x in inputs.items() if name not in constants}
    if not bound:
        return lambda: session.run(None, feeds)
    binding, values = session.io_binding(), {}
    for name, x in feeds.items():
        plain = x.view(np.uint16) if x.dtype == DTYPES["bf16"] else x
        values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, types[name])
        binding.bind_ortvalue_input(name, values[name])
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    for name, output in shared:
        binding.bind_ortvalue_output(output, values[name])
    session.run_with_iobinding(binding)
    for output, value in zip(session.get_outputs(), binding.get_outputs(), strict=True):
        binding.bind_ortvalue_output(output.name, value)
    return lambda: session.run_with_iobinding(binding)


def torch_tensors(*arrays):
    """The same values as tensors of the same types."""
    torch = peer("torch")
    bf16 = lambda a: torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return [bf16(a) if a.dtype == DTYPES["bf16"] else torch.from_numpy(a) for a in arrays]


class Compared(abc.ABC):
    """A call of a kernel and the same call of its peers, at the shapes of the models: the last two parameters are threads and who.

    A benchmark names its `family` and has a method for each name of who, given the other parameters, that returns the call; `nbytes`, given the
    same, is what a call must at least read and write."""

    THREADS = sorted({1, qkernels.get_num_threads()})
    timeout = 120

    @property
    @abc.abstractmethod
    def family(self):
        """The family whose tier is asserted."""

    def setup(self, *values):
        *parameters, threads, who = values
        qkernels.set_num_threads(threads)
        if who == "qkernels":
            assert_tier(self.family)
        self.call = getattr(self, who)(*parameters)
        self.call()

    def time_call(self, *values):
        self.call()

    def peakmem_call(self, *values):
        self.call()

    def track_gigabytes_per_second(self, *values):
        return gigabytes_per_second(self.call, self.nbytes(*values[:-2]))
    track_gigabytes_per_second.unit = "GB/s"
