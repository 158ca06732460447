"""ONNX decoder graphs: exported, loaded, run against ONNX Runtime and the checkpoint, reported node by node; damaged files refused."""
import contextlib
import json
import os
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qkernels
import qwen3
from qkernels import registry
from qkernels.reference.op_matmul_nbits import dequantize
from qwen3.onnx_export import export
from qwen3.onnx_file import OnnxError, read_graph
from qwen3.onnx_graph import OnnxModel, Plan, Profile, Weights
from qwen3.onnx_inspection import describe_graph, profile_graph
from tests.oracle import assert_equal_bits
from tests.qwen3.checkpoints import make_checkpoint
from tests.test_matmul_nbits import weights

IDS = [5, 17, 200, 3, 3, 99, 310, 1, 42, 7, 250, 64]
INVENTORY = {  # of a layer, and besides
    "Mul": (2, 0), "Sub": (0, 1), "Constant": (0, 6), "Cast": (0, 2), "Gather": (0, 2), "ReduceSum": (0, 1), "Reshape": (4, 0),
    "Shape": (0, 1), "Sigmoid": (1, 0),
    "SimplifiedLayerNormalization": (2, 1), "Split": (1, 0), "MatMulNBits": (5, 1), "GroupQueryAttention": (1, 0), "SkipSimplifiedLayerNormalization": (2, 0)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """``exported(contract, **options)``: (checkpoint's directory, graph's directory), each made once."""
    made = {}

    def get(contract="ort-int4", tied=True, **options):
        key = (contract, tied, *sorted(options.items()))
        if key not in made:
            base = tmp_path_factory.mktemp("export")
            make_checkpoint(base / "checkpoint", seed=4, tied=tied, heads=4, kv_heads=2)
            export(base / "checkpoint", base / "graph", contract=contract, **options)
            made[key] = base / "checkpoint", base / "graph"
        return made[key]

    return get


def session(path, level=None):
    """An ONNX Runtime session; with `level` all MatMulNBits nodes at that accuracy level."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # its own fusion of DequantizeLinear and MatMul is at 4 otherwise
    if level is None:
        return ort.InferenceSession(str(path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    model = onnx.load(path / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level":
                attribute.i = level
    onnx.save(model, path / "level.onnx")
    try:
        return ort.InferenceSession(str(path / "level.onnx"), options, providers=["CPUExecutionProvider"])
    finally:
        (path / "level.onnx").unlink()


def feeds(run, ids, past=None):
    """Inputs for a session or model: {name: array}."""
    inputs = {i.name: i.shape for i in run.get_inputs()} if hasattr(run, "get_inputs") else {n: s for n, (_, s) in run.inputs.items()}
    past = past or {n: np.zeros((1, s[1], 0, 128), np.float32) for n, s in inputs.items() if "past" in n}
    length = next(iter(past.values())).shape[2] if past else 0
    made = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, length + len(ids)), np.int64), **past}
    return {n: a for n, a in made.items() if n in inputs}


def require(*operators):
    """Skip where an operator of a graph has no kernel yet."""
    for op in operators:
        if registry.find(op) is None:
            pytest.skip(f"needs {op}")


def spread_error(logits, expected):
    return np.sqrt(((np.float64(logits) - expected) ** 2).mean()) / np.float64(expected).std()


# --- export ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_export_and_load_give_the_checkpoints_bits(tied, exported):
    checkpoint, graph = exported(tied=tied)
    for activations in ("int16", "int8", "f32"):
        a, b = (qwen3.load(d, activations=activations) for d in (checkpoint, graph))
        assert b.cache_kind == "persistent" and b.config == a.config
        assert_equal_bits(b.forward(IDS, b.new_cache(), last_only=False), a.forward(IDS, a.new_cache(), last_only=False), activations)
        ca, cb = a.new_cache(), b.new_cache()
        for i in IDS:
            assert_equal_bits(b.forward([i], cb), a.forward([i], ca))
        out = np.empty((1, 320), np.float32)
        assert b.forward([1], cb, out=out) is not None
        assert_equal_bits(out, a.forward([1], ca))
    sampler = lambda: qwen3.Sampler(temperature=0)
    assert [s.token for s in a.generate(IDS, max_new_tokens=8, sampler=sampler())] == [s.token for s in b.generate(IDS, max_new_tokens=8, sampler=sampler())]


def test_ort_int4_has_exactly_its_inventory(exported):
    _, graph = exported()
    model = onnx.load(graph / "model.onnx", load_external_data=False)
    counts = {}
    for node in model.graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    assert counts == {op: 2 * each + once for op, (each, once) in INVENTORY.items()}
    assert sum(28 * each + once for each, once in INVENTORY.values()) == 519
    assert {o.domain: o.version for o in model.opset_import} == {"": 26, "com.microsoft": 1} and model.ir_version == 10
    # 12 in a layer and 6 besides: 28 layers have 398 with the embedding, the head, both tables and the norms
    assert len(model.graph.initializer) == 14 * 2 + 6 and 14 * 28 + 6 == 398
    shapes = {t.name: (t.data_type, list(t.dims)) for t in model.graph.initializer}
    assert shapes["model.embed_tokens.weight"] == (TensorProto.FLOAT, [320, 64]) and shapes["cos_cache"] == (TensorProto.FLOAT, [512, 64])
    metadata = json.loads((graph / "metadata.json").read_text())
    assert metadata["contract"] == "ort-int4" and metadata["quantization"]["block_size"] == 32 and metadata["graph"]["nodes"] == len(model.graph.node)
    assert len(metadata["graph"]["files"]["model.onnx.data"]) == 64 and "model.safetensors" in metadata["source"]["files"]


@pytest.mark.parametrize("contract, options", [("ort-int4", {}), ("float", {}), ("float", {"dtype": "f32"}), ("int4-qdq", {}), ("int4-qdq", {"dtype": "f32"})])
def test_onnx_checker_accepts(contract, options, exported):
    _, graph = exported(contract, **options)
    if contract == "ort-int4" and not onnx.defs.has("SimplifiedLayerNormalization"):
        # ONNX Runtime's experimental operator of the default domain: the checker knows it once its schema is registered
        schema = onnx.defs.OpSchema
        onnx.defs.register_schema(schema(
            "SimplifiedLayerNormalization", "", 1, inputs=[schema.FormalParameter("X", "T"), schema.FormalParameter("scale", "T")],
            outputs=[schema.FormalParameter("Y", "T")], type_constraints=[("T", ["tensor(float)"], "")],
            attributes=[schema.Attribute("axis", schema.AttrType.INT, ""), schema.Attribute("epsilon", schema.AttrType.FLOAT, ""),
                        schema.Attribute("stash_type", schema.AttrType.INT, "")]))
        try:
            onnx.checker.check_model(str(graph / "model.onnx"))
        finally:
            onnx.defs.deregister_schema("SimplifiedLayerNormalization", 1, "")
    else:
        onnx.checker.check_model(str(graph / "model.onnx"), full_check=True)


@pytest.mark.parametrize("contract, options", [("ort-int4", {"tied": False}), ("ort-int4", {"accuracy_level": 0}), ("float", {"dtype": "f32"}),
                                               ("int4-qdq", {"dtype": "f32"}), ("int4-qdq", {"dtype": "f32", "tied": False})])
def test_logits_against_onnx_runtime(contract, options, exported):
    _, graph = exported(contract, **options)
    if contract != "ort-int4":
        require("CumSum", "Neg")
    reference = session(graph, 0)
    logits, *present = reference.run(None, feeds(reference, IDS))
    model = qwen3.load(graph, activations="f32", kv="f32")
    assert model.cache_kind == "persistent", model.uncached
    ours = model.forward(IDS, model.new_cache(), last_only=False)
    # products, norms and softmax in float32 on both sides, in other orders: some 2^-24 for each of the 2 layers' steps
    assert spread_error(ours, logits[0]) <= 1e-5
    if contract == "ort-int4" and registry.find("GroupQueryAttention", "com.microsoft") is None:
        pytest.skip("tensors need group_query_attention")
    tensors = OnnxModel(graph, activations="f32")
    results = tensors.run(feeds(tensors, IDS))
    assert_equal_bits(results[0][0], ours)
    for a, b in zip(results[1:], present, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    names = [n for n in tensors.inputs if "past" in n]
    outputs = [n.replace("past_key_values", "present") for n in names]
    past = dict(zip(names, tensors.run(feeds(tensors, IDS[:7]), outputs), strict=True))
    (rest,) = tensors.run(feeds(tensors, IDS[7:], past), ["logits"])
    assert_equal_bits(rest[0], ours[7:])


def test_bfloat16_graphs_run(exported):
    require("CumSum", "Neg")
    for contract in ("float", "int4-qdq"):
        checkpoint, graph = exported(contract)
        model = qwen3.load(graph, activations="f32", kv="bf16")
        assert model.cache_kind == "persistent", model.uncached
        expected = qwen3.load(checkpoint, weights="bf16" if contract == "float" else "int4", activations="f32")
        logits = model.forward(IDS, model.new_cache(), last_only=False)
        assert logits.dtype == np.float32
        # activations are rounded to 8 bits at every node; int4-qdq quantizes the tied embedding besides
        assert spread_error(logits, expected.forward(IDS, expected.new_cache(), last_only=False)) <= (0.05 if contract == "float" else 0.3)
        cache = model.new_cache()
        assert_equal_bits(np.concatenate([model.forward([i], cache) for i in IDS]), logits)


def test_tied_initializer_is_packed_once(exported):
    require("CumSum", "Neg")
    _, graph = exported("int4-qdq")
    model = OnnxModel(graph)
    packed = [w for step in model.plan.prepare().steps for w in step.weights()]
    rows, head = packed[0], packed[-1]
    assert rows is head and model.nbytes == sum({id(w): w.nbytes for w in packed}.values())
    stored = sum(t.nbytes for name, t in model.graph.constants.items() if "_Q4" in name or "_scales" in name or "_zero_points" in name)
    assert model.nbytes <= 1.25 * stored


def test_export_refuses(tmp_path, exported):
    checkpoint, graph = exported()
    for options, message in ((dict(contract="int4"), "export: contract: expected one of ort-int4, float, int4-qdq, got 'int4'"),
                             (dict(dtype="bf16"), "export: dtype: expected f32, got 'bf16'"), (dict(accuracy_level=5), "accuracy_level: expected 0 to 4")):
        with pytest.raises(ValueError, match=message):
            export(checkpoint, tmp_path / "x", **options)
    with pytest.raises(ValueError, match="model.onnx is there already"):
        export(checkpoint, graph)


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
    model, profile = qwen3.load(graph), Profile()
    cache = model.new_cache()
    profile.phase = "prefill"
    model.forward(IDS, cache, profile=profile)
    profile.phase = "decode"
    for i in IDS:
        model.forward([i], cache, profile=profile)
    calls, seconds, nbytes = profile.rows["decode", "MatMulNBits", "PackedNBits, int16 activations"]
    assert calls == len(IDS) * (2 * 4 + 1) and seconds > 0 and nbytes > len(IDS) * model.nbytes
    text = profile_graph(graph, prompt=8, tokens=3)
    assert "prefill: 8 tokens" in text and "decode: 3 tokens" in text and "MatMulNBits" in text
    with pytest.raises(ValueError, match="exceed the context"):
        profile_graph(graph, prompt=600, tokens=1)


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
    require("CumSum", "Neg")
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


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


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


# --- damaged and hostile files ----------------------------------------------------------------------------------------------


@pytest.fixture
def external(tmp_path):
    """``external(**changes)`` writes y = x · w with w in external data, its entries changed, and returns the path."""
    def write(dims=(4,), kind=TensorProto.FLOAT, data=None, **entries):
        data = np.arange(4, dtype=np.float32) if data is None else data
        (tmp_path / "weights.bin").write_bytes(data.tobytes())
        tensor = TensorProto(name="w", data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in ({"location": "weights.bin", "offset": "0", "length": "16"} | entries).items():
            if value is not None:
                tensor.external_data.add(key=key, value=value)
        value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"])
        graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"], name="product")], "g", [value("x")], [value("y")], [tensor])
        (tmp_path / "model.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString())
        return tmp_path / "model.onnx"

    return write


def test_external_data_is_mapped(external):
    for entries in ({}, {"length": None}, {"offset": None}):
        model = OnnxModel(external(**entries))
        assert model.run({"x": np.ones(4, np.float32)})[0].tolist() == [0, 1, 2, 3]
        assert not model.graph.constants["w"].raw.flags.writeable
    shifted = OnnxModel(external(dims=(3,), offset="2", length="12", data=np.arange(14, dtype=np.uint8)))  # not aligned
    assert shifted.run({"x": np.ones(3, np.float32)})[0].shape == (3,)


@pytest.mark.parametrize("entries, message", [
    ({"offset": "8"}, "bytes 8 to 24 are outside of 'weights.bin', which has 16: truncated?"),
    ({"offset": "-4"}, "offset: expected a number of bytes, got '-4'"),
    ({"offset": "1e3"}, "offset: expected a number of bytes, got '1e3'"),
    ({"offset": "9" * 40}, "offset: expected a number of bytes"),
    ({"offset": str(2**50)}, "are outside of 'weights.bin'"),
    ({"length": "17"}, r"shape \(4,\) is 16 bytes, length says 17"),
    ({"length": str(2**31)}, "length says 2147483648"),
    ({"location": "../weights.bin"}, "expected a relative path inside the model's directory, got '../weights.bin'"),
    ({"location": "a/../../weights.bin"}, "expected a relative path"),
    ({"location": "/etc/passwd"}, "expected a relative path inside the model's directory, got '/etc/passwd'"),
    ({"location": "..\\weights.bin"}, "expected a relative path"),
    ({"location": "C:\\weights.bin"}, "expected a relative path"),
    ({"location": ""}, "expected a relative path"),
    ({"location": None}, "expected a relative path"),
    ({"location": "nowhere.bin"}, "no such file"),
    ({"location": "."}, "not a regular file"),
    ({"dims": (5,)}, r"shape \(5,\) is 20 bytes, length says 16"),
    ({"dims": (-1,)}, r"expected sizes >= 0, got shape \(-1,\)"),
    ({"dims": (2**40, 2**40)}, "claims .* elements"),
    ({"kind": TensorProto.STRING}, "element type STRING is not supported"),
    ({"kind": 999}, "element type 999 is not supported"),
])
def test_external_data_is_checked(entries, message, external):
    with pytest.raises(OnnxError, match=message):
        OnnxModel(external(**entries))


def test_links_out_of_the_directory(external, tmp_path_factory):
    path, outside = external(), tmp_path_factory.mktemp("outside")
    (path.parent / "weights.bin").rename(outside / "secret.bin")
    (path.parent / "weights.bin").symlink_to(outside / "secret.bin")
    with pytest.raises(OnnxError, match="leads out of the model's directory"):
        OnnxModel(path)
    (path.parent / "weights.bin").unlink()
    os.link(outside / "secret.bin", path.parent / "inside.bin")
    (path.parent / "weights.bin").symlink_to("inside.bin")
    OnnxModel(path)


def save(path, graph, **options):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10, **options)
    path.write_bytes(model.SerializeToString())
    return path


def test_damaged_graphs(tmp_path):
    path = tmp_path / "model.onnx"
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"])
    make = lambda nodes, outputs=("y",), initializers=(): save(path, helper.make_graph(nodes, "g", [value("x")], [value(o) for o in outputs], initializers))
    add = lambda a, b, y, **k: helper.make_node("Add", [a, b], [y], **k)
    raw = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=b"123")
    typed = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**30], float_data=[1.0])
    for nodes, outputs, initializers, message in (
            ([add("x", "b", "a", name="one"), add("a", "x", "b", name="two")], ("b",), (),
             "the graph has a cycle: 2 nodes wait for each other, among them Add 'one'"),
            ([add("x", "nowhere", "y", name="n")], ("y",), (), "node Add 'n': input 'nowhere' is made by no node and is no input of the graph"),
            ([add("x", "x", "y"), add("x", "x", "y")], ("y",), (), "output 'y' is already made by node"),
            ([add("x", "x", "x")], ("x",), (), "output 'x' is already made by an input"),
            ([add("x", "x", "y")], ("z",), (), "output 'z' is made by no node"),
            ([add("x", "w", "y")], ("y",), (raw,), r"initializer w: shape \(4,\) is 16 bytes, raw_data has 3"),
            ([add("x", "w", "y")], ("y",), (typed,), "has 1073741824 elements, float_data has 1"),
            ([add("x", "w", "y")], ("y",), (typed, typed), "initializer 'w': occurs twice|has 1073741824 elements")):
        with pytest.raises(OnnxError, match=message):
            OnnxModel(make(nodes, outputs, initializers))
    # not sorted, but without a cycle: sorted here
    unsorted = OnnxModel(make([add("a", "x", "y"), add("x", "x", "a")]))
    assert unsorted.run({"x": np.ones(1, np.float32)})[0].tolist() == [3]
    for content in (b"", b"\0" * 100, b"not a model", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(OnnxError, match="not an ONNX model|malformed|no outputs|is made by no node"):
            OnnxModel(path)


def test_wrong_shapes_of_weights_are_named(tmp_path):
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 32])
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], name="product", domain="com.microsoft", K=32, N=16, bits=4, block_size=32)
    for b, s, message in ((np.zeros((16, 1, 15), np.uint8), np.zeros(16, np.float32), "node com.microsoft::MatMulNBits 'product': B b: expected 256 elements"),
                          (np.zeros((16, 1, 16), np.uint8), np.zeros(15, np.float32), "scales s: expected 16 elements")):
        graph = helper.make_graph([node], "g", [value("x")], [value("y")], [numpy_helper.from_array(b, "b"), numpy_helper.from_array(s, "s")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        onnx.save(model, tmp_path / "model.onnx")
        with pytest.raises(OnnxError, match=message):
            OnnxModel(tmp_path)


def test_every_truncation_of_a_graph_is_refused_or_runs(exported, tmp_path):
    _, graph = exported()
    content = (graph / "model.onnx").read_bytes()
    (tmp_path / "model.onnx.data").symlink_to(graph / "model.onnx.data")
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content[:rng.integers(0, len(content))] if rng.random() < 0.5 else content)
        for position in rng.integers(0, max(1, len(damaged)), 3):
            if damaged:
                damaged[position] = rng.integers(0, 256)
        (tmp_path / "model.onnx").write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(OnnxError):
                Plan(read_graph(tmp_path / "model.onnx"), ["logits"], Weights(), cached=True)


# --- the exporters that users have ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision, options", [("int4", "accuracy_level=4 block_size=32"), ("int4", "accuracy_level=0 block_size=16 shared_embeddings=false"),
                                                ("fp32", "prune_lm_head=false")])
def test_model_builder_of_onnxruntime_genai(precision, options, tmp_path):
    pytest.importorskip("onnxruntime_genai")
    pytest.importorskip("transformers")
    import subprocess
    import sys

    make_checkpoint(tmp_path / "checkpoint", hidden=128, heads=4, kv_heads=2)
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", tmp_path / "checkpoint", "-o", tmp_path / "graph", "-p", precision, "-e", "cpu",
               "-c", tmp_path / "cache", "--extra_options", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    model = qwen3.load(tmp_path / "graph", activations="f32", kv="f32")
    assert model.cache_kind == "persistent" and not model.uncached
    reference = session(tmp_path / "graph", 0)
    (logits,) = reference.run(["logits"], feeds(reference, IDS))
    ours = model.forward(IDS, model.new_cache(), last_only=False)
    assert spread_error(ours, logits[0]) <= 1e-5
    assert (ours.argmax(-1) == logits[0].argmax(-1)).all()


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


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("past", [False, True])
def test_torch_export(past, opset, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    require("CumSum", "Neg", "LessOrEqual", "Max", "And", "Cos")
    from transformers.cache_utils import DynamicCache

    make_checkpoint(tmp_path / "checkpoint", heads=4, kv_heads=2)
    hf = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32).eval()
    layers, dynamic = range(2), torch.export.Dim.DYNAMIC

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = hf

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False).logits

    class Step(Whole):
        def forward(self, input_ids, attention_mask, position_ids, pairs):
            cache = DynamicCache()
            for i, (k, v) in enumerate(pairs):
                cache.update(k, v, i)
            done = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
            return done.logits, [(layer.keys, layer.values) for layer in done.past_key_values.layers]

    if past:
        pairs = [(torch.randn(1, 2, 4, 128), torch.randn(1, 2, 4, 128)) for _ in layers]
        arguments = (torch.tensor([[1, 2, 3]]), torch.ones(1, 7, dtype=torch.long), torch.arange(4, 7)[None], pairs)
        shapes = {"input_ids": {1: dynamic}, "attention_mask": {1: dynamic}, "position_ids": {1: dynamic},
                  "pairs": [({2: dynamic}, {2: dynamic}) for _ in layers]}
        inputs = ["input_ids", "attention_mask", "position_ids"] + [f"past_key_values.{i}.{t}" for i in layers for t in ("key", "value")]
        outputs = ["logits"] + [f"present.{i}.{t}" for i in layers for t in ("key", "value")]
    else:
        arguments, shapes, inputs, outputs = (torch.tensor([[1, 2, 3, 4, 5]]),), {"input_ids": {1: dynamic}}, ["input_ids"], ["logits"]
    (tmp_path / "graph").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Step() if past else Whole(), arguments, dynamo=True, opset_version=opset, dynamic_shapes=shapes, input_names=inputs,
                          output_names=outputs, verbose=False).save(tmp_path / "graph/model.onnx", external_data=True)
    model = qwen3.load(tmp_path / "graph", activations="f32", kv="f32")
    assert model.cache_kind == "persistent" and not model.uncached
    with torch.no_grad():
        expected = hf(torch.tensor([IDS])).logits[0].numpy()
    logits = model.forward(IDS, model.new_cache(), last_only=False)
    assert spread_error(logits, expected) <= 1e-5
    cache = model.new_cache()
    assert_equal_bits(np.concatenate([model.forward([i], cache) for i in IDS]), logits)
