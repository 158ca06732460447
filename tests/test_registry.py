"""Nothing in the registry is without its test, example, benchmark and line in the documentation; nothing public is outside of it."""
import ast
import doctest
import inspect
import pathlib
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest

import qkernels
from qkernels import _selfcheck, backend, registry

ROOT = pathlib.Path(__file__).parent.parent
# public, but no kernel: the runtime, a cache's bookkeeping, a namespace
NOT_KERNELS = {"available_isa", "get_isa", "get_num_threads", "set_num_threads", "show_config", "use_isa", "KVCache", "contrib"}
NAMES = [k.name for k in registry.KERNELS]


def differential_tests():
    """Names in the differential marks of the test functions."""
    names = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = [d for d in node.decorator_list if isinstance(d, ast.Call) and ast.unparse(d.func) == "pytest.mark.differential"]
                names |= {a.value for mark in marks for a in mark.args if isinstance(a, ast.Constant)}
    return names


def benchmarks():
    """Names in the `kernels` of the benchmark classes that time something."""
    names = set()
    for path in sorted((ROOT / "asv_bench/benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            timed = any(isinstance(f, ast.FunctionDef) and f.name.startswith(("time_", "track_")) for f in node.body)
            if timed or {"Compared", "common.Compared"} & set(map(ast.unparse, node.bases)):
                for assignment in node.body:
                    if isinstance(assignment, ast.Assign) and ast.unparse(assignment.targets[0]) == "kernels":
                        names |= set(ast.literal_eval(assignment.value))
    return names


def test_rows_are_distinct_and_callable():
    assert len(set(NAMES)) == len(NAMES)
    operators = [(k.domain, k.op_type, version) for k in registry.KERNELS for version in k.versions]
    assert len(set(operators)) == len(operators)
    for k in registry.KERNELS:
        assert callable(k.function) and k.summary and k.dtypes, k.name
        assert (k.domain is None) == (k.op_type is None) == (not k.versions), k.name
        assert k.family == "numpy" or (ROOT / f"qkernels/{k.family}.pyx").exists(), k.name


SCHEMAS = {}
for _schema in onnx.defs.get_all_schemas_with_history():
    if not _schema.domain and _schema.since_version <= backend.NEWEST_OPSET:
        SCHEMAS.setdefault(_schema.name, {})[_schema.since_version] = _schema
ONNX_KERNELS = [k for k in registry.KERNELS if k.domain == "" and k.op_type in SCHEMAS]
# ONNX's names of types → NumPy's and ml_dtypes'
TYPES = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2",
         "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn", "float6e2m3": "float6_e2m3fn", "float6e3m2": "float6_e3m2fn"}
NO_NUMBERS = {"string", "complex64", "complex128"}
NO_DOUBLE = {"attention"}  # of the schemas with float64, whose kernel has none

# com.microsoft's schemas, and that of ONNX Runtime's SimplifiedLayerNormalization, as of ONNX Runtime 1.32: attributes with their defaults (... where
# the node must have it), inputs (optional ones with ?), outputs, types of the first input
FLOAT3, FLOAT4 = "float32 float16 bfloat16", "float32 float16 bfloat16 float64"
CONTRIB = {
    "Attention": (dict(scale=None, mask_filter_value=-10000.0, do_rotary=0, past_present_share_buffer=None, qkv_hidden_sizes=None, unidirectional=0,
                       rotary_embedding_dim=None, num_heads=...),  # mask_filter_value: by the text, as below
                  "input weights bias? mask_index? past? attention_bias? past_sequence_length?", "output present?", FLOAT3),
    "MultiHeadAttention": (dict(unidirectional=0, scale=None, mask_filter_value=-10000.0, num_heads=...),
                           "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length? cache_indirection?",
                           "output present_key? present_value? qk?", FLOAT3),
    "PagedAttention": (dict(rotary_offset=None, v_head_size=None, kv_cache_layout="SEPARATE", softcap=None, kv_num_heads=..., do_rotary=None, num_heads=...,
                            k_cache_dtype="", scale=None, local_window_size=-1, is_causal=1, rotary_interleaved=None, qk_norm_epsilon=1e-6,
                            v_quant_type="NONE", k_quant_type="NONE", v_cache_dtype=""),
                       "query key? value? key_cache value_cache? cumulative_sequence_length past_seqlens block_table cos_cache? sin_cache? slot_mapping? "
                       "head_sink? q_norm_weight? k_norm_weight? k_scale? v_scale? attention_metadata?", "output key_cache_out? value_cache_out?", "float16 bfloat16"),
    "SparseAttention": (dict(rotary_interleaved=None, sparse_block_size=..., scale=None, do_rotary=None, kv_num_heads=..., num_heads=...),
                        "query key? value? past_key past_value block_row_indices block_col_indices total_sequence_length key_total_sequence_lengths cos_cache? "
                        "sin_cache?", "output present_key present_value", FLOAT3),
    "GroupQueryAttention": (dict(k_norm_epsilon=None, q_norm_epsilon=None, kv_cache_bit_width=None, num_heads=..., softcap=None, kv_num_heads=...,
                                 sliding_window_cache=0, do_rotary=None, causal=1, scale=None, local_window_size=-1, rotary_interleaved=None, qk_output=0,
                                 qk_norm_epsilon=1e-6, v_quant_type="NONE", smooth_softmax=0, k_quant_type="NONE"),  # smooth_softmax: -1 in the schema, the same
                            "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? position_ids? attention_bias? "
                            "head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight? query_seqlens?", "output present_key? present_value? output_qk?", FLOAT3),
    "BiasGelu": ({}, "A B", "C", FLOAT4),
    "FastGelu": ({}, "X bias?", "Y", FLOAT4),
    "Gelu": ({}, "X", "Y", FLOAT4),
    "QuickGelu": (dict(alpha=1.702), "X", "Y", FLOAT4),
    "GatherBlockQuantized": (dict(bits=4, block_size=128, quantize_axis=1, gather_axis=0), "data indices scales zero_points?", "output",
                             "int4 uint4 uint8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float4_e2m1fn"),
    "MatMulNBits": (dict(weight_prepacked=0, accuracy_level=0, block_size=..., bits=4, N=..., K=...), "A B scales zero_points? g_idx? bias?", "Y", FLOAT3),
    "RotaryEmbedding": (dict(num_heads=0, rotary_embedding_dim=0, interleaved=0, is_packed_batching=0, scale=1.0), "input position_ids cos_cache sin_cache",
                        "output", FLOAT3),
    "SimplifiedLayerNormalization": (dict(stash_type=1, epsilon=1e-5, axis=-1), "X scale", "Y inv_std_var?", FLOAT4),
    "SkipSimplifiedLayerNormalization": (dict(epsilon=1e-12), "input skip gamma bias?", "output mean? inv_std_var? input_skip_bias_sum?", FLOAT3),
}


@pytest.mark.parametrize("k", ONNX_KERNELS, ids=lambda k: k.name)
def test_versions_are_all_since_the_one_in_force_at_opset_13(k):
    known = sorted(SCHEMAS[k.op_type])
    first = max([v for v in known if v <= 13], default=known[0])
    assert [*k.versions] == [v for v in known if v >= first]


def _assert_signature(k, attributes, inputs, outputs, newest=True):
    """`inputs`: (name, optional?, variadic?); `attributes`: name → default, ... where the node must have it, None where there is none."""
    parameters = inspect.signature(k.function).parameters
    positional = [p for p in parameters.values() if p.kind != p.KEYWORD_ONLY and p.name not in attributes]
    for name, default in attributes.items():
        assert name in parameters, f"{k.name}: attribute {name} is no keyword"
        ours = parameters[name].default
        if not newest or ours == default:
            continue
        if default is ...:
            assert ours is inspect.Parameter.empty, f"{k.name}: {name}: a node must have it, ours is {ours}"
        elif default is None:
            assert ours in (None, 0), f"{k.name}: {name}: the schema has no default, ours is {ours}"
        else:
            assert np.float32(ours) == np.float32(default), f"{k.name}: {name}: expected default {default}, got {ours}"
    if any(p.kind == p.VAR_POSITIONAL for p in positional):
        assert any(variadic for _, _, variadic in inputs)
        return
    assert len(positional) >= len(inputs), f"{k.name}: inputs {inputs}"
    for i, ((name, optional, _), p) in enumerate(zip(inputs, positional, strict=False)):
        optional = optional or any(before for _, before, _ in inputs[:i])  # Python has no required argument behind an optional one
        assert optional == (p.default is None) or p.default is not inspect.Parameter.empty and not newest, f"{k.name}: {name}: optional {optional}"
    for p in positional[len(inputs):]:  # of another version
        assert p.default is None
    if len(outputs) > 1 and any(optional for _, optional, _ in outputs):
        assert "outputs" in parameters, f"{k.name}: optional outputs {outputs}"


@pytest.mark.parametrize("k", ONNX_KERNELS, ids=lambda k: k.name)
def test_signature_is_the_schema(k):
    option = onnx.defs.OpSchema.FormalParameterOption
    for version in k.versions:
        schema = SCHEMAS[k.op_type][version]
        attributes = {n: backend.attribute_value(a.default_value) if a.default_value.name else ... if a.required else None for n, a in schema.attributes.items()}
        inputs, outputs = ([(p.name, p.option == option.Optional, p.option == option.Variadic) for p in ps] for ps in (schema.inputs, schema.outputs))
        _assert_signature(k, attributes, inputs, outputs, version == max(k.versions))
        if schema.inputs:
            types = {TYPES.get(t[7:-1], t[7:-1]) for t in schema.inputs[0].types if t.startswith("tensor(")} - NO_NUMBERS
            assert types - {*k.dtypes} == ({"float64"} if k.name in NO_DOUBLE else set()), f"{k.name}: version {version}"


@pytest.mark.parametrize("op_type", CONTRIB)
def test_contrib_signature_is_the_schema(op_type):
    attributes, inputs, outputs, types = CONTRIB[op_type]
    k = registry.find(op_type, "" if op_type == "SimplifiedLayerNormalization" else "com.microsoft")
    formal = lambda names: [(n.rstrip("?"), n.endswith("?"), False) for n in names.split()]
    _assert_signature(k, attributes, formal(inputs), formal(outputs))
    assert {*types.split()} <= {*k.dtypes}
    offered = inspect.signature(k.function).parameters
    assert {p for p in offered if offered[p].kind == inspect.Parameter.KEYWORD_ONLY} - {*attributes} <= {"out", "outputs", "sum_out", "threads", "activations"}


def test_contrib_table_is_of_the_installed_onnxruntime():
    pytest.importorskip("onnxruntime")
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    found = 0
    for schema in get_all_operator_schema():
        if schema.name in CONTRIB and (schema.domain == "com.microsoft" or schema.name == "SimplifiedLayerNormalization"):
            attributes, inputs, outputs, types = CONTRIB[schema.name]
            suffix = lambda p: p.name + ("?" if p.option.name == "Optional" else "")
            assert {*attributes} == {*schema.attributes} and {n for n, v in attributes.items() if v is ...} == {n for n, a in schema.attributes.items() if a.required}
            assert inputs.split() == [suffix(p) for p in schema.inputs] and outputs.split() == [suffix(p) for p in schema.outputs]
            first = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}[schema.inputs[0].typeStr]
            assert {*types.split()} == {TYPES.get(t[7:-1], t[7:-1]) for t in first}
            found += 1
    assert found == len(CONTRIB)


# called with one and with two arrays
UNARY = ("sigmoid silu swish neg sqrt exp log sin cos tanh erf reciprocal softplus gelu contrib.gelu quick_gelu fast_gelu log_softmax softmax identity shape size "
         "transpose flatten abs bitwise_not ceil clip floor is_inf is_nan not_ relu round sign leaky_relu thresholded_relu elu celu selu softsign mish hard_sigmoid hard_swish reduce_sum reduce_mean reduce_max argmax squeeze trilu PackedMatrix "
         "PackedInt8Rows quantize_nbits PackedInt8Matrix dynamic_quantize_linear")
BINARY = ("prelu add sub mul div pow silu_mul swiglu and_ bitwise_and bitwise_or bitwise_xor equal greater greater_or_equal less less_or_equal max min mod or_ xor "
          "cast_like")


def _accepted():
    """name → what a call of it needs besides a (3, 4) array of the row's type, as a function of that array."""
    q = qkernels
    i64 = lambda *x: np.array(x, np.int64)
    calls = {n: lambda f, a: f(a) for n in UNARY.split()} | {n: lambda f, a: f(a, a) for n in BINARY.split()}
    heads = lambda a: np.tile(a.reshape(-1)[:8], 2)[:16].reshape(1, 2, 1, 8)
    cache = lambda a: (np.ones((4, 4), a.dtype),) * 2
    flat = lambda a: heads(a).reshape(1, 1, 16)
    codes, scale = np.zeros((4, 1, 8), np.uint8), np.float32(1)
    return calls | {
        "matmul": lambda f, a: f(a, a.T), "gemm": lambda f, a: f(a, a.T, a[:1, :1]), "bias_gelu": lambda f, a: f(a, a[0]),
        "gather": lambda f, a: f(a, [0, -1]), "cast": lambda f, a: f(a, np.float32), "concat": lambda f, a: f(a, a, axis=0), "constant": lambda f, a: f(value=a),
        "constant_of_shape": lambda f, a: f([2], value=a[:1, 0]), "expand": lambda f, a: f(a, [2, 1, 1]), "gather_elements": lambda f, a: f(a, np.zeros((1, 4), np.int64)),
        "gather_nd": lambda f, a: f(a, i64([0, 1])), "pad": lambda f, a: f(a, [1, 0, 0, 1], a[0, 0]), "range": lambda f, a: f(a[0, 0], a[2, 3], a[0, 1]),
        "reshape": lambda f, a: f(a, [-1]), "scatter_elements": lambda f, a: f(a, np.zeros((1, 4), np.int64), a[1:2]), "scatter_nd": lambda f, a: f(a, i64([0]), a[1:2]),
        "slice": lambda f, a: f(a, [0], [2]), "split": lambda f, a: f(a, num_outputs=2, axis=1)[0], "tensor_scatter": lambda f, a: f(a, a[:, :1], i64(0, 1, 2), axis=1),
        "tile": lambda f, a: f(a, [2, 1]), "unsqueeze": lambda f, a: f(a, [0]), "cumsum": lambda f, a: f(a, 0), "topk": lambda f, a: f(a, 2)[0],
        "where": lambda f, a: f(np.ones((3, 1), bool), a, a), "rms_normalization": lambda f, a: f(a, a[0]), "simplified_layer_normalization": lambda f, a: f(a, a[0]),
        "skip_simplified_layer_normalization": lambda f, a: f(a, a, a[0], a[0]), "layer_normalization": lambda f, a: f(a, a[0], a[0]),
        "rotary_embedding": lambda f, a: f(heads(a), *cache(a), i64([3])), "contrib.rotary_embedding": lambda f, a: f(heads(a), i64([3]), *cache(a)),
        "contrib.attention": lambda f, a: f(a[None], a.T[:, :3], num_heads=1),
        "multi_head_attention": lambda f, a: f(*[flat(a)] * 3, num_heads=2),
        "sparse_attention": lambda f, a: f(*[flat(a)] * 3, heads(a), heads(a), [[0, 1]], [[0]], 1, [1], num_heads=2, kv_num_heads=2, sparse_block_size=16),
        "paged_attention": lambda f, a: f(*[flat(a)[0]] * 3, heads(a).reshape(1, 1, 2, 8), np.zeros((1, 1, 2, 8), a.dtype), [0, 1], [0], [[0]], num_heads=2,
                                          kv_num_heads=2),
        "attention": lambda f, a: f(*[heads(a)] * 3), "sample": lambda f, a: f(a[0], seed=1, step=1),
        "group_query_attention": lambda f, a: f(flat(a), flat(a), flat(a), seqlens_k=np.int32([0]), total_sequence_length=np.int32([1]), num_heads=2, kv_num_heads=2),
        "qattention": lambda f, a: f(a[None], a.T[:, :3], np.zeros(3, np.float32), scale, scale, num_heads=1),
        "PackedQAttention": lambda f, a: f(a.T[:, :3], np.zeros(3, np.float32), scale, num_heads=1)(a[None], scale),
        "matmul_nbits": lambda f, a: f(np.tile(a, 4), codes, np.ones((4, 1), a.dtype), K=16, N=4, block_size=16),
        "PackedNBits": lambda f, a: f(codes, np.ones((4, 1), a.dtype), K=16, N=4, block_size=16)(np.tile(a, 4)),
        "quantize_linear": lambda f, a: f(a, scale), "dequantize_linear": lambda f, a: f(a, scale), "matmul_integer": lambda f, a: f(a, a.T),
        "qlinear_matmul": lambda f, a: f(a, scale, a[0, 0], a.T, scale, a[0, 0], scale, a[0, 0]),
        "gather_block_quantized": lambda f, a: f(np.tile(a, 4), [0], np.ones((3, 2 if a.dtype == np.uint8 else 1), np.float32), block_size=16,
                                                 bits=8 if a.dtype == np.int8 else 4),
        "linear_attention": lambda f, a: f(a[None], a[None], a[None], q_num_heads=2, kv_num_heads=2, update_rule="linear")[0],
        "causal_conv_with_state": lambda f, a: f(a[None], a[:, None, :2])[0], "pack_int4": lambda f, a: f(a), "unpack_int4": lambda f, a: f(q.pack_int4(a), (3, 4), a.dtype),
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_type_of_the_row_is_accepted(name):
    k = next(k for k in registry.KERNELS if k.name == name)
    if name == "cached_attention":  # which works on a cache of its own type
        return
    same = {"reshape", "transpose", "concat", "pad", "where", "slice", "split", "trilu", "tile", "topk", "cumsum", "gather", "add", "matmul", "gemm", "scatter_nd", "max"}
    for dtype in k.dtypes:
        dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
        a = (np.arange(12).reshape(3, 4) % 5 + (name in ("div", "mod", "pow"))).astype(np.int8).astype(dtype)
        y = _accepted()[name](k.function, a)
        if name in same:
            assert np.asarray(y).dtype == dtype, dtype


def test_functions_are_called_what_they_are_called():
    for k in registry.KERNELS:
        name = k.name.rpartition(".")[2]
        assert k.function.__name__ == name, k.name
        assert pickle.loads(pickle.dumps(k.function)) is k.function


def test_every_kernel_has_a_differential_test():
    assert not set(NAMES) - differential_tests()
    assert not differential_tests() - set(NAMES), "marks that name no kernel"


def test_every_kernel_has_a_benchmark():
    assert not {k.name for k in registry.KERNELS if not k.layout} - benchmarks()
    assert not benchmarks() - set(NAMES), "benchmarks that name no kernel"


def test_every_family_is_in_the_self_check():
    families = {k.family for k in registry.KERNELS} - {"numpy"}  # which has no code of ours to check
    assert not families - {k.family for k in registry.KERNELS if k.name in _selfcheck.CHECKS}


@pytest.mark.parametrize("name", NAMES)
def test_documented_example(name):
    function = next(k for k in registry.KERNELS if k.name == name).function
    documentation = function.__doc__
    assert "Examples\n" in documentation and ("Parameters\n" in documentation)
    test = doctest.DocTestParser().get_doctest(documentation, {}, name, None, None)
    assert test.examples
    output = []
    with np.printoptions(precision=8, linewidth=75, threshold=1000, suppress=False, floatmode="maxprec", sign="-"):
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=output.append)
    assert not result.failed, "".join(output)


def test_public_names_are_registered():
    public = {*qkernels.__all__, "abs", "max", "min", "pow", "range", "round", "slice", *(f"contrib.{name}" for name in qkernels.contrib.__all__)}
    functions = {k.function for k in registry.KERNELS}
    for name in public - NOT_KERNELS:
        *path, last = name.split(".")
        assert getattr(qkernels.contrib if path else qkernels, last) in functions, f"{name} is neither registered nor listed as no kernel"
    assert set(NAMES) <= public
    for name in public:
        *path, last = name.split(".")
        assert hasattr(qkernels.contrib if path else qkernels, last), name


def test_operators_page_is_current():
    done = subprocess.run([sys.executable, "-W", "error", "-m", "qkernels.registry"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "" and done.stdout == registry.markdown()
    page = (ROOT / "docs/operators.md").read_text(encoding="utf-8")
    assert page == registry.markdown(), "docs/operators.md: run `python -m qkernels.registry > docs/operators.md`"
    sections = {s.split("`")[1]: s for s in page.split("\n## ")[1:]}
    assert [*sections] == [*registry.FAMILIES] and {k.family for k in registry.KERNELS} == {*sections}
    for k in registry.KERNELS:
        assert sections[k.family].count(f"| `{k.name}` | ") == 1


@pytest.mark.parametrize("page", ["docs/accuracy.md", "CHANGELOG.md"])
def test_every_function_is_on_the_page(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [name for name in NAMES if f"`{name}`" not in text and f"`{name}(" not in text]


def test_tests_named_in_the_accuracy_page_exist():
    text = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8")
    functions = {path.name: {n.name for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef)}
                 for path in (ROOT / "tests").glob("test_*.py")}
    for quoted in re.findall(r"`(?:tests/)?(test_\w+(?:\.py)?(?:::\w+)?)`", text):
        path, _, function = quoted.partition("::") if ".py" in quoted else ("", "", quoted)
        assert path in functions and (not function or function in functions[path]) if path else any(function in names for names in functions.values()), quoted


def test_find():
    assert registry.find("RMSNormalization").name == "rms_normalization"
    assert registry.find("RMSNormalization", opset=22) is None
    assert registry.find("ArgMax", "", 13).name == "argmax" and registry.find("ArgMax", "", 12) is None
    assert registry.find("SkipSimplifiedLayerNormalization", "com.microsoft").name == "skip_simplified_layer_normalization"
    assert registry.find("SkipSimplifiedLayerNormalization") is None
