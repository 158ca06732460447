"""The graphs that `qwen3.onnx_export` writes: what they hold, who accepts them, and that they give the checkpoint's bits."""
import collections
import hashlib
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import qwen3
from qwen3.onnx_export import export
from qwen3.onnx_graph import OnnxModel
from tests.oracle import assert_equal_bits
from tests.qwen3.checkpoints import make_checkpoint
from tests.qwen3.graphs import IDS, feeds, session, spread_error


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


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """``deep(contract, tied)``: a graph with Qwen3-0.6B's 28 layers and grouping of heads, its sizes small, read with its metadata."""
    base, made = tmp_path_factory.mktemp("deep"), {}

    def get(contract, tied=True):
        if (contract, tied) not in made:
            source, out = base / f"checkpoint-{tied}", base / f"{contract}-{tied}"
            if not source.exists():
                make_checkpoint(source, layers=28, hidden=64, intermediate=96, heads=4, kv_heads=2, tied=tied)
            metadata = export(source, out, contract=contract)
            made[contract, tied] = out, onnx.load(out / "model.onnx", load_external_data=False), metadata
        return made[contract, tied]

    return get


def interface(values):
    return {v.name: (v.type.tensor_type.elem_type, [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim]) for v in values}


def attributes(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("contract", ["ort-int4", "float", "int4-qdq"])
def test_inputs_and_outputs_of_a_contract(contract, deep):
    _, model, metadata = deep(contract)
    kind, kv = TensorProto.FLOAT if contract == "ort-int4" else TensorProto.BFLOAT16, range(28)
    past = {f"past_key_values.{i}.{t}": (kind, ["batch_size", 2, "past_sequence_length", 128]) for i in kv for t in ("key", "value")}
    present = {f"present.{i}.{t}": (kind, ["batch_size", 2, "total_sequence_length", 128]) for i in kv for t in ("key", "value")}
    assert len(past) == len(present) == 56
    assert interface(model.graph.input) == {"input_ids": (TensorProto.INT64, ["batch_size", "sequence_length"]),
                                            "attention_mask": (TensorProto.INT64, ["batch_size", "total_sequence_length"])} | past
    assert interface(model.graph.output) == {"logits": (kind, ["batch_size", "sequence_length", 320])} | present
    assert model.ir_version == 10
    assert {o.domain: o.version for o in model.opset_import} == ({"": 26, "com.microsoft": 1} if contract == "ort-int4" else {"": 23})
    assert metadata["graph"]["opsets"] == ({"ai.onnx": 26, "com.microsoft": 1} if contract == "ort-int4" else {"ai.onnx": 23})


def test_ort_int4_has_exactly_its_inventory(deep):
    _, model, _ = deep("ort-int4")
    nodes, constants = model.graph.node, {t.name: t for t in model.graph.initializer}
    assert collections.Counter(n.op_type for n in nodes) == {
        "Mul": 56, "Sub": 1, "Constant": 6, "Cast": 2, "Gather": 2, "ReduceSum": 1, "Reshape": 112, "Shape": 1, "Sigmoid": 28,
        "SimplifiedLayerNormalization": 57, "Split": 28, "MatMulNBits": 141, "GroupQueryAttention": 28, "SkipSimplifiedLayerNormalization": 56}
    assert (len(nodes), len(constants)) == (519, 398)
    assert {n.op_type for n in nodes if n.domain == "com.microsoft"} == {"MatMulNBits", "GroupQueryAttention", "SkipSimplifiedLayerNormalization"}
    assert {n.domain for n in nodes} == {"", "com.microsoft"}
    shapes = {name: (t.data_type, list(t.dims)) for name, t in constants.items()}
    assert shapes["model.embed_tokens.weight"] == (TensorProto.FLOAT, [320, 64])
    assert shapes["cos_cache"] == shapes["sin_cache"] == (TensorProto.FLOAT, [512, 64])
    products = collections.Counter()
    for node in nodes:
        a = attributes(node)
        if node.op_type == "MatMulNBits":
            k, n = a["K"], a["N"]
            assert (a["bits"], a["block_size"], a["accuracy_level"], len(node.input)) == (4, 32, 4, 3)
            assert [shapes[i] for i in node.input[1:]] == [(TensorProto.UINT8, [n, k // 32, 16]), (TensorProto.FLOAT, [n, k // 32])]
            products[k, n] += 1
        elif node.op_type == "SimplifiedLayerNormalization":
            assert a == {"axis": -1, "epsilon": np.float32(1e-6), "stash_type": 1}
        elif node.op_type == "SkipSimplifiedLayerNormalization":
            last = node.name == "/model/layers.28/final_norm_layernorm/SkipLayerNorm"
            assert a == {"epsilon": np.float32(1e-6)}
            assert [bool(o) for o in node.output] == ([True] if last else [True, False, False, True])
        elif node.op_type == "GroupQueryAttention":
            assert a == {"num_heads": 4, "kv_num_heads": 2, "scale": np.float32(128**-0.5), "do_rotary": 1, "rotary_interleaved": 0,
                         "local_window_size": -1, "softcap": 0.0}
            assert (len(node.input), len(node.output), list(node.input[-2:])) == (9, 3, ["cos_cache", "sin_cache"])
        elif node.op_type == "Split":
            assert a == {"axis": -1}
        elif node.op_type == "Cast":
            assert a == {"to": TensorProto.INT32}
        elif node.op_type == "Constant":
            assert a["value"].data_type == TensorProto.INT64
    # of Qwen3-0.6B: 1024x4096 (28), 2048x1024 (28), 1024x3072 (56), 3072x1024 (28), 1024x151936 (1)
    assert products == {(64, 1024): 28, (512, 64): 28, (64, 96): 56, (96, 64): 28, (64, 320): 1}
    values = [numpy_helper.to_array(attributes(n)["value"]).tolist() for n in nodes if n.op_type == "Constant"]
    assert values == [[1], 1, [512, 256, 256], [0, -1, 128], [0, -1, 512], [0, -1, 256]]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("contract", ["float", "int4-qdq"])
def test_portable_contracts_have_exactly_their_inventory(contract, tied, deep):
    _, model, _ = deep(contract, tied)
    quantized, nodes, constants = contract == "int4-qdq", model.graph.node, {t.name: t for t in model.graph.initializer}
    assert {n.domain for n in nodes} == {""}
    prelude = {"Add": 56, "Attention": 28, "Cast": 1, "Concat": 1, "Constant": 8, "CumSum": 1, "Expand": 1, "Gather": 1, "Neg": 1, "Shape": 1, "Slice": 1,
               "Sub": 1, "Unsqueeze": 1}
    expected = prelude | {"MatMul": 197, "Mul": 57, "RMSNormalization": 113, "Reshape": 112, "RotaryEmbedding": 56, "Sigmoid": 28}
    expected |= ({"Transpose": 1} if tied else {}) | ({"DequantizeLinear": 197} if quantized else {})
    assert collections.Counter(n.op_type for n in nodes) == expected
    shapes = {name: (t.data_type, list(t.dims)) for name, t in constants.items()}
    matrices = collections.Counter()
    made = {o: n for n in nodes for o in n.output}
    for node in nodes:
        a = attributes(node)
        if node.op_type == "DequantizeLinear":
            # UINT4 (K, N) with blocks along axis 0; the tied embedding (vocabulary, hidden) along axis 1
            rows = node.input[0] == "model.embed_tokens.weight_Q4"
            assert a == {"axis": 1 if rows else 0, "block_size": 32}
            kind, shape = shapes[node.input[0]]
            grid = [n // 32 if i == a["axis"] else n for i, n in enumerate(shape)]
            assert kind == TensorProto.UINT4
            assert [shapes[i] for i in node.input[1:]] == [(TensorProto.BFLOAT16, grid), (TensorProto.UINT4, grid)]
            matrices[tuple(shape)] += 1
        elif node.op_type == "MatMul" and not quantized and node.input[1] in shapes:
            assert shapes[node.input[1]][0] == TensorProto.BFLOAT16
            matrices[tuple(shapes[node.input[1]][1])] += 1
        elif node.op_type == "RotaryEmbedding":
            heads = 4 if "q_rotary" in node.name else 2
            assert a == {"num_heads": heads, "interleaved": 0, "rotary_embedding_dim": 128} and len(node.input) == 4
        elif node.op_type == "Attention":
            assert a == {"is_causal": 1, "q_num_heads": 4, "kv_num_heads": 2, "scale": np.float32(128**-0.5)}
        elif node.op_type == "RMSNormalization":
            assert a == {"axis": -1, "epsilon": np.float32(1e-6)}
    projections = {(64, 512): 28, (64, 256): 56, (512, 64): 28, (64, 96): 56, (96, 64): 28}
    assert matrices == projections | ({(64, 320): 1} if not tied else {(320, 64): 1} if quantized else {})
    if tied:  # one initializer, read by the Gather and, transposed, by the head
        (gather,), (transpose,) = ([n for n in nodes if n.op_type == op] for op in ("Gather", "Transpose"))
        assert gather.input[0] == transpose.input[0]
        assert gather.input[0] == ("model.embed_tokens.weight_dequantized" if quantized else "model.embed_tokens.weight")
        assert made["logits"].input[1] == transpose.output[0]
    if quantized:
        assert len([n for n in constants if n.endswith("_Q4")]) == len([n for n in constants if n.endswith("_zero_points")]) == 197


@pytest.mark.parametrize("contract", ["ort-int4", "float", "int4-qdq"])
def test_metadata_says_what_was_written(contract, deep):
    out, model, metadata = deep(contract)
    assert json.loads((out / "metadata.json").read_text()) == metadata
    digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
    assert metadata["graph"]["files"] == {name: digest(out / name) for name in ("model.onnx", "model.onnx.data")}
    source = out.parent / "checkpoint-True"
    assert metadata["source"]["files"] == {name: digest(source / name) for name in (
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")}
    assert metadata["source"]["revision"] is None and metadata["exporter"].startswith("qkernels ")
    assert (metadata["graph"]["nodes"], metadata["graph"]["initializers"]) == (len(model.graph.node), len(model.graph.initializer))
    assert metadata["contract"] == contract and metadata["activations"] == ("float32" if contract == "ort-int4" else "bfloat16")
    assert metadata["tied_embedding"] is True
    assert metadata["embedding_and_head"] == ("two initializers" if contract == "ort-int4" else "one initializer")
    if contract == "float":
        assert metadata["quantization"] is None
    else:
        q = metadata["quantization"]
        assert (q["bits"], q["block_size"], q["symmetric"]) == (4, 32, True)
        assert q["scales"] == ("float32" if contract == "ort-int4" else "bfloat16")
    # the external data are exactly what the initializers say, without a gap of more than the alignment
    end = 0
    for tensor in model.graph.initializer:
        entries = {e.key: e.value for e in tensor.external_data}
        assert entries["location"] == "model.onnx.data" and int(entries["offset"]) % 64 == 0 and int(entries["offset"]) - end < 64
        end = int(entries["offset"]) + int(entries["length"])
    assert end == (out / "model.onnx.data").stat().st_size


def test_revision_is_that_of_the_hubs_cache(tmp_path):
    commit = "0123456789abcdef" * 2 + "01234567"
    source = tmp_path / "models--Someone--Model" / "snapshots" / commit
    make_checkpoint(source)
    assert export(source, tmp_path / "graph")["source"]["revision"] == commit


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
    reference = session(graph, 0)
    logits, *present = reference.run(None, feeds(reference, IDS))
    model = qwen3.load(graph, activations="f32", kv="f32")
    assert model.cache_kind == "persistent", model.uncached
    ours = model.forward(IDS, model.new_cache(), last_only=False)
    # products, norms and softmax in float32 on both sides, in other orders: some 2^-24 for each of the 2 layers' steps
    assert spread_error(ours, logits[0]) <= 1e-5
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


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("contract", ["float", "int4-qdq"])
def test_bfloat16_graphs_against_the_reference(contract, tied, exported):
    _, graph = exported(contract, tied=tied)
    model = qwen3.load(graph, activations="f32", kv="bf16")
    assert model.cache_kind == "persistent", model.uncached
    proto = onnx.load(graph / "model.onnx")
    inputs = {"input_ids": np.array([IDS]), "attention_mask": np.ones((1, len(IDS)), np.int64)}
    inputs |= {v.name: np.zeros((1, 2, 0, 128), ml_dtypes.bfloat16) for v in proto.graph.input if "past" in v.name}
    expected = ReferenceEvaluator(proto).run(["logits"], inputs)[0].astype(np.float32)
    logits = model.forward(IDS, model.new_cache(), last_only=False)
    assert logits.dtype == np.float32
    # some 30 nodes in a row round to 2^-9 on both sides: sqrt(2 · 30) · 2^-9 = 1.5 %, and twice that
    assert spread_error(logits, expected[0]) <= 0.03
    cache = model.new_cache()
    assert_equal_bits(np.concatenate([model.forward([i], cache) for i in IDS]), logits)


def test_tied_initializer_is_packed_once(exported):
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
