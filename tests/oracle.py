"""What results are compared with, and how."""
import ml_dtypes
import numpy as np

import qkernels

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOAT_DTYPES = (np.dtype(np.float32), np.dtype(np.float16), BF16)
SMALL_INTEGERS = tuple(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
# half a unit in the last place, relative: the most that one rounding to the type may move a normal value
HALF_ULP = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11, BF16: 2.0**-8}
# half a step among the subnormal numbers: the most that one rounding to the type may move those
HALF_STEP = {np.dtype(np.float32): 2.0**-150, np.dtype(np.float16): 2.0**-25, BF16: 2.0**-134}


def bits(a):
    """The array's bytes as unsigned integers; every NaN counts as one and the same."""
    a = np.asarray(a)
    if a.dtype.kind == "f" or a.dtype.name.startswith(("float", "bfloat")):
        nan = np.array(np.nan, a.dtype) if np.isnan(np.array(np.nan, a.dtype)) else np.zeros((), a.dtype)  # types of 4 and 6 bits have none
        a = np.where(np.isnan(a), nan, a)
        return np.ascontiguousarray(a).view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize])
    return a.astype(np.int8) if a.dtype in SMALL_INTEGERS else a


def assert_equal_bits(actual, expected, message=""):
    """Same shape, dtype and bits (NaN for NaN)."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, (message, actual.dtype, expected.dtype, actual.shape, expected.shape)
    different = bits(actual) != bits(expected)
    assert not different.any(), f"{message}: {different.sum()} of {different.size} differ, first at {np.argwhere(different)[:1].tolist()}: " \
                                f"{actual[different][:4]} against {expected[different][:4]}"


def narrow(v, dtype):
    """Doubles rounded once; ml_dtypes goes to bfloat16 over float32, which rounds twice."""
    v = np.asarray(v, np.float64)
    if dtype != BF16:
        return v.astype(dtype)
    nearest = v.astype(np.float32)
    # inexact: of the two float32 around the value the odd one, which no later rounding takes for a tie
    away = np.abs(np.float64(nearest)) > np.abs(v)
    code = nearest.view(np.uint32) - away.astype(np.uint32)
    return np.where(np.isfinite(nearest) & (nearest != v), code | 1, nearest.view(np.uint32)).astype(np.uint32).view(np.float32).astype(BF16)


def one_result(call, threads=(1, 2, 3)):
    """call(threads) on every tier and thread count: all the same bits. Returns the scalar tier's result."""
    first = None
    for isa in qkernels.available_isa():
        with qkernels.use_isa(isa):
            for n in threads:
                result = call(n)
                parts = result if isinstance(result, tuple) else (result,)
                first = first if first is not None else parts
                for a, b in zip(parts, first, strict=True):
                    assert_equal_bits(a, b, f"{isa}, {n} threads")
    return first if len(first) > 1 else first[0]


def layouts(a):
    """The same values in every memory layout that NumPy users meet: (name, array)."""
    a = np.ascontiguousarray(a)
    yield "fortran", np.asfortranarray(a)
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    yield "every second", wide[..., ::2]
    yield "reversed", np.ascontiguousarray(a[::-1])[::-1]
    read_only = a.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    raw = np.zeros(a.nbytes + 1, np.uint8)
    misaligned = raw[1:].view(a.dtype).reshape(a.shape) if a.size else a
    misaligned[...] = a
    yield "misaligned", misaligned
    if a.dtype.isbuiltin == 1:  # ml_dtypes has one byte order
        yield "big-endian", a.astype(a.dtype.newbyteorder(">"))


def onnxruntime_node(domain, op_type, inputs, outputs=1, *, opset=23, constants=(), dtype=None, in_place=None, **attributes):
    """The outputs of one node by ONNX Runtime, on one thread; skips the test without it. None stands for an absent input.

    `outputs` is how many are asked for, or which of them as a sequence of bool. `constants` are the places of inputs that the model holds, as it
    does weights. `dtype` is the outputs', for operators that it cannot infer it of; `in_place`, output → input, are those that share a copy of the
    input's memory. Raises ONNX Runtime's exception where it refuses the node.
    """
    import pytest
    from onnx import TensorProto, helper, numpy_helper

    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    held = {f"x{i}" for i in constants}
    feeds = {n: x for n, x in given.items() if n not in held}
    results = [f"y{i}" if wanted else "" for i, wanted in enumerate((True,) * outputs if isinstance(outputs, int) else outputs)]
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph([helper.make_node(op_type, names, results, domain=domain, **{k: v for k, v in attributes.items() if v is not None})], "node",
                              [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in feeds.items()],
                              [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in results if n],
                              [numpy_helper.from_array(np.ascontiguousarray(x).reshape(x.shape), n) for n, x in given.items() if n in held])
    for output in graph.output:  # of the type that it infers
        output.ClearField("type")
        if dtype is not None:
            output.type.tensor_type.elem_type = kind(np.dtype(dtype))
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    if not in_place:
        return session.run(None, feeds)
    binding, values = session.io_binding(), {n: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x).reshape(x.shape)) for n, x in feeds.items()}
    for n, x in values.items():
        binding.bind_ortvalue_input(n, x)
    for i, n in enumerate(results):
        if i in in_place:
            binding.bind_ortvalue_output(n, values[f"x{in_place[i]}"])
        elif n:
            binding.bind_output(n, "cpu")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
