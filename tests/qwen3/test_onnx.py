"""ONNX decoder graphs: reported node by node, profiled, fed, and their patterns lowered."""
import importlib.util
import shutil

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qkernels
import qwen3
from qkernels.reference.op_matmul_nbits import dequantize
from qwen3.onnx_decoder import OnnxDecoder
from qwen3.onnx_file import OnnxError
from qwen3.onnx_graph import OnnxModel
from qwen3.onnx_inspection import describe_graph
from qwen3.profiling import Profile, profile
from tests.oracle import assert_equal_bits
from tests.qwen3.graphs import IDS, feeds, normal, session, spread_error
from tests.test_matmul_nbits import weights

# --- report and profile ---------------------------------------------------------------------------------------------------


def test_every_node_is_reported(exported):
    _, graph = exported()
    text = describe_graph(graph)
    nodes = onnx.load(graph / "model.onnx", load_external_data=False).graph.node
    for node in nodes:
        assert any(line.startswith(node.name + " ") for line in text.splitlines()), node.name
    assert "cached_attention" in text and "in place, appended to" in text and not text.startswith("unsupported")
    model = qwen3.load(graph)
    assert [name for name, *_ in model.report()] == [n.name for n in nodes]
    assert {kernel for _, _, kernel, _ in model.report()} == {
        "constant", "not run", "gather", "rms_normalization", "PackedNBits, int16 activations", "cached_attention",
        "skip_simplified_layer_normalization", "silu_mul"}
    assert len(model.plan.steps) == 2 + 8 * 2 + 1  # embedding and first norm, 8 calls a layer, head


def test_profile_counts_calls_and_bytes(exported):
    _, graph = exported()
    model, watch = qwen3.load(graph), Profile()
    cache = model.new_cache()
    watch.phase = "prefill"
    model.forward(IDS, cache, profile=watch)
    watch.phase = "decode"
    for i in IDS:
        model.forward([i], cache, profile=watch)
    calls, seconds, nbytes = watch.rows["decode", "MatMulNBits", "PackedNBits, int16 activations"]
    assert calls == len(IDS) * (2 * 4 + 1) and seconds > 0 and nbytes > len(IDS) * model.nbytes
    n, hidden = len(IDS), model.config.hidden_size
    # rows of the embedding and ids, not the whole table; qkv, keys and values of all tokens so far, and the result
    assert watch.rows["prefill", "Gather", "gather"][2] == 8 * n + 2 * 4 * n * hidden
    (_, _, nbytes), = (row for (phase, _, kernel), row in watch.rows.items() if (phase, kernel) == ("decode", "cached_attention"))
    tokens = sum(n + 1 + i for i in range(n))
    assert nbytes == 2 * (n * 4 * (4 + 2 * 2 + 4) * 128 + tokens * 2 * 2 * 128 * 2)
    text = profile(graph, prompt=8, tokens=3)
    assert "prefill: 8 tokens" in text and "decode: 3 tokens" in text and "MatMulNBits" in text
    with pytest.raises(ValueError, match="exceed the context"):
        profile(graph, prompt=600, tokens=1)


def test_unsupported_operators_are_named_before_any_work(tmp_path):
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("Det", ["x"], ["y"], name="first"), helper.make_node("Nonsense", ["y"], ["z"], name="second", domain="org.example")]
    model = helper.make_model(helper.make_graph(nodes, "g", [value("x")], [value("z")]),
                              opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("org.example", 1)])
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(OnnxError, match=r"2 unsupported: ai.onnx Det \(first\): no such operator here; org.example Nonsense \(second\)"):
        OnnxModel(tmp_path)
    text = describe_graph(tmp_path)
    assert text.startswith("unsupported   ai.onnx Det (first)") and "org.example::Nonsense" in text


def test_load_arguments(exported, tmp_path):
    _, graph = exported()
    with pytest.raises(ValueError, match="load: weights: expected None for an ONNX graph"):
        qwen3.load(graph, weights="int4")
    assert qwen3.load(graph / "model.onnx").cache_kind == "persistent"
    assert qwen3.load(graph, max_context=64).new_cache().max_length == 64
    (tmp_path / "empty").mkdir()
    with pytest.raises(OnnxError, match="expected model.onnx, found no .onnx file"):
        OnnxModel(tmp_path / "empty")


def test_feeds_are_checked(exported):
    _, graph = exported("float", dtype="f32")
    model = OnnxModel(graph)
    good = feeds(model, IDS)
    for change, error, message in (({"input_ids": good["input_ids"].astype(np.int32)}, TypeError, "run: feeds: input_ids: expected dtype int64, got int32"),
                                   ({"input_ids": good["input_ids"][0]}, ValueError, "run: feeds: input_ids: expected shape"),
                                   ({"colour": good["input_ids"]}, ValueError, "run: feeds: no input is called 'colour'")):
        with pytest.raises(error, match=message):
            model.run(good | change)
    with pytest.raises(ValueError, match="run: feeds: past_key_values.1.value is missing"):
        model.run({n: a for n, a in good.items() if n != "past_key_values.1.value"})
    with pytest.raises(ValueError, match="run: outputs: expected names among"):
        model.run(good, ["nothing"])
    with pytest.raises(IndexError, match="/model/embed_tokens/Gather: gather: indices: expected -320 to 319"):
        model.run(good | {"input_ids": np.full((1, len(IDS)), 320)})


# --- patterns -------------------------------------------------------------------------------------------------------------


def run_graph(tmp_path, nodes, inputs, outputs, initializers=(), opset=23):
    """(results of the plan, results node by node, kernels) of a small graph."""
    from qkernels import backend

    value = lambda n, a: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
    graph = helper.make_graph(nodes, "g", [value(n, a) for n, a in inputs.items()],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
                              [numpy_helper.from_array(a, n) for n, a in dict(initializers).items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    ours = OnnxModel(tmp_path)
    return ours.run(inputs), backend.prepare(model, check=False).run(inputs) if not backend.unsupported(model) else None, [r[2] for r in ours.report()]


def test_silu_and_its_gate(tmp_path):
    nodes = [helper.make_node("Sigmoid", ["g"], ["s"]), helper.make_node("Mul", ["g", "s"], ["a"]), helper.make_node("Mul", ["u", "a"], ["y"])]
    inputs = {"g": normal(3, 8), "u": normal(3, 8, seed=1)}
    (y,), (expected,), kernels = run_graph(tmp_path, nodes, inputs, ["y"])
    assert kernels == ["silu_mul"] * 3
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    (y, s), _, kernels = run_graph(tmp_path, nodes, inputs, ["y", "s"])  # the sigmoid is asked for: nothing is fused
    assert kernels == ["sigmoid", "mul", "mul"]
    np.testing.assert_array_equal(s, qkernels.sigmoid(inputs["g"]))


def test_residual_sum_and_norm(tmp_path):
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("RMSNormalization", ["s", "w"], ["y"], epsilon=1e-6)]
    inputs, w = {"a": normal(2, 3, 8), "b": normal(2, 3, 8, seed=1)}, {"w": normal(8, seed=2)}
    results, expected, kernels = run_graph(tmp_path, nodes, inputs, ["y", "s"], w)
    assert kernels == ["skip_simplified_layer_normalization"] * 2
    for a, b in zip(results, expected, strict=True):
        assert_equal_bits(a, b)
    inputs["b"] = normal(8)  # broadcasts: the sum and the norm one after the other, by the same step
    results, expected, _ = run_graph(tmp_path, nodes, inputs, ["y", "s"], w)
    for a, b in zip(results, expected, strict=True):
        assert_equal_bits(a, b)


@pytest.mark.parametrize("form", ["div", "reciprocal", "one over", "square"])
def test_decomposed_norm(form, tmp_path):
    square = helper.make_node("Mul", ["x", "x"], ["q"]) if form == "square" else helper.make_node("Pow", ["x", "two"], ["q"])
    nodes = [square, helper.make_node("ReduceMean", ["q", "axes"], ["m"], keepdims=1), helper.make_node("Add", ["m", "eps"], ["e"]),
             helper.make_node("Sqrt", ["e"], ["r"])]
    if form == "reciprocal":
        nodes += [helper.make_node("Reciprocal", ["r"], ["i"]), helper.make_node("Mul", ["x", "i"], ["n"])]
    elif form == "one over":
        nodes += [helper.make_node("Div", ["one", "r"], ["i"]), helper.make_node("Mul", ["i", "x"], ["n"])]
    else:
        nodes += [helper.make_node("Div", ["x", "r"], ["n"])]
    nodes += [helper.make_node("Mul", ["w", "n"], ["y"])]
    constants = {"two": np.float32(2), "one": np.float32(1), "eps": np.float32(1e-6), "axes": np.array([-1]), "w": normal(16, seed=1)}
    x = normal(2, 16)
    (y,), _, kernels = run_graph(tmp_path, nodes, {"x": x}, ["y"], constants)
    assert set(kernels) == {"rms_normalization"}
    assert_equal_bits(y, qkernels.rms_normalization(x, constants["w"], epsilon=1e-6))


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("form", ["columns", "transposed", "partial", "per output", "per tensor", "no zero point"])
def test_dequantized_products(kind, form, tmp_path):
    k, n = (50 if form == "partial" else 64), 6
    bits = 4 if kind.endswith("4") else 8
    rng = np.random.default_rng(0)
    low, high = (-(2**(bits - 1)), 2**(bits - 1)) if kind[0] == "i" else (0, 2**bits)
    codes, blocks = rng.integers(low, high, (k, n)), -(-k // 32)
    grid = {"per output": (n,), "per tensor": ()}.get(form, (blocks, n))
    scales = (rng.random(grid, np.float32) + 0.5) if grid else np.float32(0.5)
    points = rng.integers(low, high, grid)
    if form == "no zero point":
        points = np.zeros(grid, int)
    full = lambda a: np.repeat(a, 32, 0)[:k] if np.ndim(a) == 2 else np.broadcast_to(a, (k, n))
    w = ((codes - full(points)) * full(scales)).astype(np.float32)
    transposed = form == "transposed"
    turn = lambda a: np.ascontiguousarray(a.T) if transposed and np.ndim(a) == 2 else np.asarray(a)
    types = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
    tensor = lambda name, a: helper.make_tensor(name, types[kind], np.shape(turn(a)), turn(a).reshape(-1))
    attributes = {} if grid == () else {"axis": 1} if len(grid) == 1 else {"axis": 1 if transposed else 0, "block_size": 32}
    names = ["q", "s"] + ([] if form == "no zero point" else ["z"])
    nodes = [helper.make_node("DequantizeLinear", names, ["d"], **attributes)]
    nodes += [helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])] if transposed else []
    nodes += [helper.make_node("MatMul", ["x", "t" if transposed else "d"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [tensor("q", codes), numpy_helper.from_array(turn(scales), "s"), *([tensor("z", points)] if len(names) == 3 else [])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "model.onnx")
    model, x = OnnxModel(tmp_path), normal(3, k)
    assert {r[2] for r in model.report()} == {"PackedNBits, f32 activations"}
    np.testing.assert_allclose(model.run({"x": x})[0], x @ w, rtol=1e-4, atol=1e-3 * np.abs(w).max())


def gated(directory, first, second, extra=()):
    """Save silu(x · w1) · (x · w2) with the two products made by `first` and `second`, and return the loaded model."""
    nodes = [*first, *second, helper.make_node("Sigmoid", ["g"], ["s"]), helper.make_node("Mul", ["g", "s"], ["a"]), helper.make_node("Mul", ["a", "u"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], extra)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), directory / "model.onnx")
    return OnnxModel(directory)


def silu_mul(g, u):
    return g / (1 + np.exp(-g)) * u


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("n", [6, 7])
@pytest.mark.parametrize("block", [16, 0])
def test_stacked_dequantized_products(kind, rows, n, block, tmp_path):
    """Two DequantizeLinear of one input become one packed object, one of them with zero points."""
    bits, rng = int(kind.strip("uint")), np.random.default_rng(n)
    least, most = (-(2**(bits - 1)), 2**(bits - 1)) if kind[0] == "i" else (0, 2**bits)
    types = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
    nodes, tensors, weights = [], [], []
    for name, width, pointed in (("g", n, True), ("u", n, False)):
        codes, grid = rng.integers(least, most, (64, width)), (4, width) if block else (width,)
        scales, points = rng.random(grid, np.float32) + 0.5, rng.integers(least, most, grid) if pointed else np.zeros(grid, int)
        full = lambda a: np.repeat(a, 16, 0) if block else a
        weights.append(((codes - full(points)) * full(scales)).astype(np.float32))
        turn = (lambda a: a.T) if rows else (lambda a: a)
        tensors += [helper.make_tensor(f"{name}q", types[kind], turn(codes).shape, turn(codes).reshape(-1)),
                    numpy_helper.from_array(np.ascontiguousarray(turn(scales)), f"{name}s")]
        tensors += [helper.make_tensor(f"{name}z", types[kind], turn(points).shape, turn(points).reshape(-1))] if pointed else []
        attributes = {"axis": 1 if rows else 0, "block_size": block} if block else {"axis": 0 if rows else 1}
        step = [helper.make_node("DequantizeLinear", [f"{name}q", f"{name}s"] + ([f"{name}z"] if pointed else []), [f"{name}d"], **attributes)]
        step += [helper.make_node("Transpose", [f"{name}d"], [f"{name}t"], perm=[1, 0])] if rows else []
        nodes.append([*step, helper.make_node("MatMul", ["x", f"{name}t" if rows else f"{name}d"], [name])])
    model = gated(tmp_path, *nodes, tensors)
    (packed,) = (w for step in model.plan.prepare().steps for w in step.weights())
    assert packed.shape == (2 * n, 64) and [k for *_, k, _ in model.report()].count("silu_mul") == 3
    x = normal(3, 64) / 100
    np.testing.assert_allclose(model.run({"x": x})[0], silu_mul(x @ weights[0], x @ weights[1]), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", [None, "bytes", "floats"])
@pytest.mark.parametrize("order", [False, True])
def test_every_form_of_matmulnbits_is_packed_once(bits, points, order, tmp_path):
    n, rng = 5, np.random.default_rng(bits)
    g_idx = rng.permutation(np.repeat(np.arange(4), 16)).astype(np.int32)
    nodes, tensors, expected = [], [], []
    x = normal(3, 64)
    for name, pointed in (("g", points), ("u", None)):
        b, scales = rng.integers(0, 256, (n, 4, 2 * bits), np.uint8), rng.random((n, 4), np.float32)
        z = {None: None, "bytes": rng.integers(0, 256, (n, (4 * bits + 7) // 8), np.uint8), "floats": rng.random((n, 4), np.float32) * 3}[pointed]
        values = {"b": b, "s": scales, "z": z, "o": g_idx if order else None}
        tensors += [numpy_helper.from_array(a, name + k) for k, a in values.items() if a is not None]
        inputs = ["x", *(name + k if a is not None else "" for k, a in values.items())]
        nodes.append([helper.make_node("MatMulNBits", inputs, [name], domain="com.microsoft", K=64, N=n, bits=bits, block_size=16)])
        expected.append(qkernels.matmul_nbits(x, b, scales, z, g_idx if order else None, K=64, N=n, bits=bits, block_size=16))
    model = gated(tmp_path, *nodes, tensors)
    packed = {id(w): w for step in model.plan.prepare().steps for w in step.weights()}.values()
    assert sum(w.shape[0] for w in packed) == 2 * n and len(packed) == (2 if order or points == "floats" else 1)
    assert {kernel for _, op, kernel, _ in model.report() if op.endswith("MatMulNBits")} == {"PackedNBits, f32 activations"}
    np.testing.assert_allclose(model.run({"x": x})[0], qkernels.silu_mul(*expected), rtol=1e-5, atol=1e-5)


def test_a_dequantized_matrix_that_others_read_too(tmp_path):
    codes, scales = np.random.default_rng(0).integers(0, 16, (32, 6), np.uint8), normal(1, 6, seed=1)
    nodes = [helper.make_node("DequantizeLinear", ["q", "s"], ["d"], axis=0, block_size=32), helper.make_node("MatMul", ["x", "d"], ["y"]),
             helper.make_node("Transpose", ["d"], ["t"]), helper.make_node("MatMul", ["v", "t"], ["u"]), helper.make_node("Neg", ["t"], ["n"]),
             helper.make_node("MatMul", ["d", "d2"], ["w"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 32]), ("v", [3, 6]), ("d2", [6, 2]))],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in ("y", "u", "n", "w", "d")],
                              [helper.make_tensor("q", TensorProto.UINT4, codes.shape, codes.reshape(-1)), numpy_helper.from_array(scales, "s")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "model.onnx")
    d, x, v, d2 = codes * scales, normal(3, 32), normal(3, 6), normal(6, 2)
    y, u, n, w, whole = OnnxModel(tmp_path).run({"x": x, "v": v, "d2": d2})
    assert_equal_bits(whole, d)
    assert_equal_bits(n, -d.T)
    for found, expected in ((y, x @ d), (u, v @ d.T), (w, d @ d2)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("ordered", [False, True])
def test_matmul_nbits_is_packed_once(bits, zeros, ordered, tmp_path):
    k, n = 80, 6
    b, scales, points = weights(0, n, k, bits, 16, zeros)
    g_idx = np.random.default_rng(1).integers(0, 5, k).astype(np.int32) if ordered else None
    constants = {name: v for name, v in dict(b=b, s=scales, z=points, g=g_idx, c=normal(n, seed=3)).items() if v is not None}
    names = ["x", "b", "s", "z" if points is not None else "", "g" if ordered else "", "c"]
    form = dict(K=k, N=n, bits=bits, block_size=16)
    nodes = [helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **form),
             helper.make_node("MatMulNBits", names[:5], ["u"], domain="com.microsoft", **form)]
    x = normal(3, k, seed=2)
    (y, u), _, kernels = run_graph(tmp_path, nodes, {"x": x}, ["y", "u"], constants)
    assert kernels == ["PackedNBits, f32 activations"] * 2
    assert_equal_bits(y, qkernels.matmul_nbits(x, b, scales, points, g_idx, constants["c"], **form))
    assert_equal_bits(u, qkernels.matmul_nbits(x, b, scales, points, g_idx, **form))
    model = OnnxModel(tmp_path)
    assert len({id(step.weights()[0]) for step in model.plan.prepare().steps}) == 1
    assert all(("by g_idx" in r[3]) == ordered for r in model.report())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed"])
def test_quantized_embedding_is_packed_once(bits, zeros, tmp_path):
    rows, k = 9, 64
    b, scales, points = weights(0, rows, k, bits, 16, zeros)
    constants = {name: v for name, v in dict(d=b.reshape(rows, -1), s=scales, z=points).items() if v is not None}
    node = helper.make_node("GatherBlockQuantized", ["d", "i", "s", *["z"][:points is not None]], ["y"], domain="com.microsoft", bits=bits, block_size=16)
    ids = np.int64([[0, 8, -1], [9, -10, 3]])  # of which two are outside and give zeros
    (y,), (expected,), kernels = run_graph(tmp_path, [node], {"i": ids}, ["y"], constants)
    assert kernels == ["take_rows"]
    assert_equal_bits(y, expected)
    assert not y[1, :2].any()


def test_products_side_by_side_have_one_form(tmp_path):
    """A gate without zero points and an up with float ones, or with another g_idx, are no stack; with packed ones they are."""
    k, n = 64, 16
    x, silu = normal(3, k), lambda v: v / (1 + np.exp(-v))
    order = np.repeat(np.int32([1, 0, 3, 2]), 16)
    for zeros, order_of_up, together in (("none", None, True), ("packed", None, True), ("float", None, False), ("none", order, False)):
        gate, up = weights(0, n, k, 2, 16), weights(1, n, k, 2, 16, zeros)
        constants = dict(zip("abcde", (*gate[:2], *up), strict=True)) | ({} if order_of_up is None else {"g": order_of_up})
        constants = {name: v for name, v in constants.items() if v is not None}
        product = lambda names, out: helper.make_node("MatMulNBits", ["x", *names], [out], domain="com.microsoft", K=k, N=n, bits=2, block_size=16)
        nodes = [product("ab", "gate"), product(["c", "d", "e" if zeros != "none" else "", "g" if order_of_up is not None else ""], "up"),
                 helper.make_node("Sigmoid", ["gate"], ["s"]), helper.make_node("Mul", ["gate", "s"], ["m"]), helper.make_node("Mul", ["m", "up"], ["y"])]
        (y,), _, _ = run_graph(tmp_path, nodes, {"x": x}, ["y"], constants)
        dense = [dequantize(*w, g, k, n, 2, 16) for w, g in ((gate, None), (up, order_of_up))]
        np.testing.assert_allclose(y, silu(x @ dense[0].T) * (x @ dense[1].T), rtol=1e-4, atol=1e-4)
        assert any("2 products of one input" in r[3] for r in OnnxModel(tmp_path).report()) == together, zeros


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_integer_products_are_packed_once(dtype, tmp_path):
    rng = np.random.default_rng(0)
    b = rng.integers(0 if dtype == np.uint8 else -128, 128, (33, 20)).astype(dtype)
    scale, zero, one = np.float32(0.02), np.uint8(120), lambda v: np.array(v)
    constants = {"b": b, "za": one(zero), "zb": one(dtype(3)), "s": one(scale)}
    nodes = [helper.make_node("MatMulInteger", ["x", "b", "za", "zb"], ["y"]), helper.make_node("Cast", ["y"], ["f"], to=1),
             helper.make_node("MatMulInteger", ["x", "b"], ["v"]), helper.make_node("Cast", ["v"], ["g"], to=1),
             helper.make_node("QLinearMatMul", ["x", "s", "za", "b", "s", "zb", "s", "za"], ["q"]), helper.make_node("Cast", ["q"], ["h"], to=1)]
    x = rng.integers(0, 256, (3, 33), np.uint8)
    (f, g, h), expected, kernels = run_graph(tmp_path, nodes, {"x": x}, ["f", "g", "h"], constants, 24)
    assert kernels.count("PackedInt8Matrix") == 3
    for ours, by_node in zip((f, g, h), expected, strict=True):
        assert_equal_bits(ours, by_node)
    assert_equal_bits(f, ((np.int64(x) - 120) @ (np.int64(b) - 3)).astype(np.float32))
    steps = [s for s in OnnxModel(tmp_path).plan.prepare().steps if s.kernel == "PackedInt8Matrix"]
    assert len({id(s.weights()[0]) for s in steps}) == 1 and steps[0].weight_bytes() == 2 * (64 + 9 * 64)


def test_gemm_and_shared_matrices(tmp_path):
    w, b = normal(8, 5), normal(5, seed=1)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"]), helper.make_node("MatMul", ["x", "w"], ["z"]),
             helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("Gemm", ["x", "t"], ["v"], transB=1)]
    x = normal(3, 8, seed=2)
    (y, z, v), _, kernels = run_graph(tmp_path, nodes, {"x": x}, ["y", "z", "v"], {"w": w, "b": b})
    assert kernels.count("PackedMatrix") == 3
    np.testing.assert_allclose(y, x @ w + b, rtol=1e-4, atol=1e-5)
    assert_equal_bits(v, z)
    model = OnnxModel(tmp_path)
    assert len({id(s.weights()[0]) for s in model.plan.prepare().steps}) == 1


def test_decomposed_rotation(tmp_path):
    nodes = [helper.make_node("Slice", ["x", "zero", "half", "last", "one"], ["x1"]), helper.make_node("Slice", ["x", "half", "end", "last", "one"], ["x2"]),
             helper.make_node("Neg", ["x2"], ["m"]), helper.make_node("Concat", ["m", "x1"], ["r"], axis=-1), helper.make_node("Mul", ["x", "c"], ["a"]),
             helper.make_node("Mul", ["r", "s"], ["b"]), helper.make_node("Add", ["a", "b"], ["y"])]
    constants = {"zero": np.array([0]), "half": np.array([4]), "end": np.array([2**63 - 1]), "last": np.array([3]), "one": np.array([1])}
    x, angle = normal(1, 2, 3, 8), normal(1, 1, 3, 4, seed=1)
    cos, sin = (np.concatenate([f(angle)] * 2, -1) for f in (np.cos, np.sin))
    (y,), _, kernels = run_graph(tmp_path, nodes, {"x": x, "c": cos, "s": sin}, ["y"], constants)
    assert set(kernels) == {"rotary_embedding"}
    expected = qkernels.rotary_embedding(x, cos[:, 0, :, :4], sin[:, 0, :, :4])
    assert_equal_bits(y, expected)
    other = normal(1, 1, 3, 8, seed=2)  # not the same in both halves
    (y,), _, _ = run_graph(tmp_path, nodes, {"x": x, "c": other, "s": sin}, ["y"], constants)
    np.testing.assert_allclose(y, x * other + np.concatenate([-x[..., 4:], x[..., :4]], -1) * sin, rtol=1e-5, atol=1e-6)


# --- what must not be lowered onto the cache ----------------------------------------------------------------------------------


def changed(graph, out, change):
    """A copy of an exported graph after `change(model)`."""
    out.mkdir()
    for file in graph.iterdir():
        shutil.copy(file, out / file.name)
    model = onnx.load(out / "model.onnx", load_external_data=False)
    change(model.graph)
    (out / "model.onnx").write_bytes(model.SerializeToString())
    return out


def insert(graph, before, *nodes):
    """Put nodes in front of the first one whose name begins with `before`."""
    at = next(i for i, n in enumerate(graph.node) if n.name.startswith(before))
    for i, node in enumerate(nodes):
        graph.node.insert(at + i, node)


def window(graph):
    """Each token sees 40 others at most: what no short sequence shows."""
    node = helper.make_node
    graph.initializer.extend([numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("w0", 0), ("w1", 1), ("w40", 40), ("wa", [1, 3]), ("wi", [0]))])
    insert(graph, "/model/layers.0/input_layernorm",
           node("Shape", ["attention_mask"], ["ws"], "ws", start=1), node("Squeeze", ["ws", "wi"], ["wn"], "wn"), node("Range", ["w0", "wn", "w1"], ["wk"], "wk"),
           node("Unsqueeze", ["/model/positions/Slice/output_0", "wa"], ["wq"], "wq"), node("Sub", ["wq", "wk"], ["wd"], "wd"),
           node("Less", ["wd", "w40"], ["wl"], "wl"), node("And", ["/model/mask/Expand/output_0", "wl"], ["wm"], "wm"))
    for n in graph.node:
        if n.op_type == "Attention":
            n.input[3] = "wm"


def unlike_tokens(graph):
    """The mask hides tokens with id 0."""
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "zero"))
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    insert(graph, "/model/layers.0/input_layernorm", helper.make_node("Greater", ["input_ids", "zero"], ["not0"], "not0"),
           helper.make_node("Unsqueeze", ["not0", "axes"], ["not0_4"], "not0_4"))
    for n in graph.node:
        if n.name == "/model/mask/Unsqueeze":
            n.input[0], n.input[1] = "not0", n.input[1]
        if n.name.startswith("/model/mask/Cast"):
            n.output[0] = "unused"


@pytest.mark.parametrize("change, reason", [(window, "its mask is not the causal one"), (unlike_tokens, "its mask could not be looked at: it depends on")])
def test_other_masks_stay_with_the_tensors(change, reason, exported, tmp_path):
    _, graph = exported("float", dtype="f32")
    out = changed(graph, tmp_path / "graph", change)
    model = qwen3.load(out, activations="f32", kv="f32")
    assert model.cache_kind == "tensors" and len(model.uncached) == 2 and reason in model.uncached[0]
    assert {kernel for _, op, kernel, _ in model.report() if op == "Attention"} == {"attention"}
    assert f"not cached 0  /model/layers.0/attn/Attention: {reason}" in describe_graph(out)
    if change is window:
        ids = (IDS * 6)[:60]
        cache = model.new_cache()
        logits = np.concatenate([model.forward(ids[:50], cache, last_only=False), *(model.forward([i], cache) for i in ids[50:])])
        reference = session(out)
        expected = reference.run(["logits"], feeds(reference, ids))[0][0]
        assert spread_error(logits, expected) <= 1e-5
        full = qwen3.load(graph, activations="f32", kv="f32")
        plain = full.forward(ids, full.new_cache(), last_only=False)
        assert spread_error(logits[:40], plain[:40]) <= 1e-6 and spread_error(logits[45:], plain[45:]) > 1e-3


def test_lengths_that_are_others_stay_with_the_tensors(exported, tmp_path):
    """seqlens_k one too small: a graph that drops its last token."""
    def change(graph):
        for node in graph.node:
            if node.name.endswith("attn_mask_subgraph/Sub/Cast"):
                node.input[0], shorter = "shorter", node.input[0]
        insert(graph, "/model/attn_mask_reformat/attn_mask_subgraph/Sub/Cast", helper.make_node("Sub", [shorter, "/model/constants/INT64/[1]"], ["shorter"], "one less"))

    out = changed(exported()[1], tmp_path / "graph", change)
    model = OnnxDecoder(out, prepare=False)
    assert model.cache_kind == "tensors" and "its lengths are not those of the sequence" in model.uncached[0]


def test_layers_that_logits_do_not_need_take_no_place_in_the_cache(exported, tmp_path):
    def change(graph):
        for node in graph.node:
            if node.name == "/model/layers.1/input_layernorm/SkipLayerNorm":
                node.input[0] = "/model/embed_tokens/Gather/output_0"
                node.input[1] = "/model/embed_tokens/Gather/output_0"

    out = changed(exported()[1], tmp_path / "graph", change)
    model = qwen3.load(out, activations="f32", kv="f32")
    assert model.cache_kind == "persistent" and model.plan.cache_layers == 1
    tensors = OnnxModel(out, activations="f32")
    assert_equal_bits(tensors.run(feeds(tensors, IDS), ["logits"])[0][0], model.forward(IDS, model.new_cache(), last_only=False))


FORMS = [{"softcap": 2.0}, {"local_window_size": 3}, {"smooth_softmax": 1}, {"rotary_interleaved": 1}, {"head_sink": np.float32([0.5, -1, 2, 0])}]


@pytest.fixture(params=FORMS, ids=lambda form: next(iter(form)))
def formed(request, exported, tmp_path):
    """The directory of an ort-int4 graph whose GroupQueryAttention nodes have an option more."""
    def change(graph):
        for node in graph.node:
            if node.op_type != "GroupQueryAttention":
                continue
            for name, value in request.param.items():
                if name == "head_sink":
                    node.input.extend([""] * (11 - len(node.input)) + ["sink"])
                else:
                    kept = [a for a in node.attribute if a.name != name]
                    del node.attribute[:]
                    node.attribute.extend([*kept, helper.make_attribute(name, value)])
        if "head_sink" in request.param:
            graph.initializer.append(numpy_helper.from_array(request.param["head_sink"], "sink"))

    return changed(exported()[1], tmp_path / "graph", change)


CUTS = [(0, 5), (5, 6), (6, 7), (7, 8), (8, 9)]


def with_tensors(model, run, names):
    """Logits of a prompt of five tokens and four single ones, keys and values handed over as tensors."""
    parts, past = [], None
    for start, end in CUTS:
        logits, *present = run(feeds(model, IDS[start:end], past))
        past = dict(zip([n for n in names if "past" in n], present, strict=True))
        parts.append(logits[0])
    return parts


def test_attention_of_every_form_runs_on_the_cache(formed, exported):
    """Soft cap, window, sinks and the other rotation: in place, with the bits of tensors."""
    decoder, tensors = qwen3.load(formed, activations="f32", kv="f32"), OnnxModel(formed, activations="f32")
    assert decoder.cache_kind == "persistent" and not decoder.uncached
    cache, plain = decoder.new_cache(), OnnxModel(exported()[1], activations="f32")
    expected = with_tensors(tensors, tensors.run, tensors.inputs)
    for (start, end), logits in zip(CUTS, expected, strict=True):
        assert_equal_bits(decoder.forward(IDS[start:end], cache, last_only=False), logits)
    for with_form, without in zip(expected, with_tensors(plain, plain.run, plain.inputs), strict=True):
        assert spread_error(with_form, without) > 1e-3  # the option does something


@pytest.mark.parametrize("capacity", [3, 5])
def test_a_sliding_cache_runs_on_the_persistent_one(capacity, exported, tmp_path):
    """Buffers that keep `capacity` tokens give what the whole cache gives, seen through the same window."""
    def change(graph):
        for node in graph.node:
            if node.op_type == "GroupQueryAttention":
                kept = [a for a in node.attribute if a.name != "local_window_size"]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute("local_window_size", 3), helper.make_attribute("sliding_window_cache", 1)])

    out = changed(exported()[1], tmp_path / "graph", change)
    decoder, model = qwen3.load(out, activations="f32", kv="f32"), OnnxModel(out, activations="f32")
    assert decoder.cache_kind == "persistent" and not decoder.uncached
    runs = [(model, model.run)]
    if importlib.util.find_spec("onnxruntime"):
        reference = session(out, 0)
        runs.append((reference, lambda fed: reference.run(None, fed)))
    for at, (source, run) in enumerate(runs):
        cache, names = decoder.new_cache(), [n for n in model.inputs if "past" in n]
        past = {n: np.zeros((1, model.inputs[n][1][1], capacity, 128), np.float32) for n in names}
        for start, end in CUTS:
            fed = feeds(source, IDS[start:end], past) | {"attention_mask": np.ones((1, end), np.int64)}
            logits, *present = run(fed)
            past = dict(zip(names, present, strict=True))
            ours = decoder.forward(IDS[start:end], cache, last_only=False)
            if at == 0:
                assert_equal_bits(ours, logits[0])
            assert spread_error(ours, logits[0]) <= 1e-5
        assert all(array.shape[2] == capacity for array in past.values())


def test_attention_of_every_form_is_onnx_runtimes(formed):
    reference, model = session(formed, 0), OnnxModel(formed, activations="f32")
    names = [i.name for i in reference.get_inputs()]
    assert names == list(model.inputs)
    theirs = with_tensors(reference, lambda fed: reference.run(None, fed), names)
    for ours, logits in zip(with_tensors(model, model.run, names), theirs, strict=True):
        assert spread_error(ours, logits) <= 1e-5


@pytest.mark.parametrize("name, kernel", [("int2", "PackedNBits"), ("uint2", "PackedNBits"), ("int4", "PackedNBits"), ("uint4", "PackedNBits"),
                                          ("float8_e4m3fn", "dequantize_linear"), ("float4_e2m1fn", "dequantize_linear")])
@pytest.mark.parametrize("columns", [1, 3, 5])
def test_constants_of_every_width(name, kernel, columns, tmp_path):
    """Elements of 2, 4 and 8 bits, in rows that are no whole number of bytes."""
    codes = np.random.default_rng(columns).integers(0, 2, (7, columns)) if name != "uint2" else np.random.default_rng(columns).integers(0, 4, (7, columns))
    w = (-codes if name[0] != "u" else codes).astype(getattr(ml_dtypes, name))
    x = normal(2, 7)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"]), helper.make_node("MatMul", ["x", "d"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 7])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, columns])],
                              [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.float32(0.5), "s")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), tmp_path / "model.onnx")
    model = OnnxModel(tmp_path)
    np.testing.assert_allclose(model.run({"x": x})[0], x @ (w.astype(np.float32) * np.float32(0.5)), rtol=1e-6, atol=1e-6)
    assert model.report()[0][2].startswith(kernel)
