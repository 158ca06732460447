"""The whole decoder: against Hugging Face's logits, and the promise of one result."""
import pathlib
import warnings

import numpy as np
import pytest

import qkernels
import qwen3
from qwen3.model import Layer
from qwen3.profiling import Profile, profile
from tests.oracle import BF16, assert_equal_bits
from tests.qwen3.checkpoints import CASES, make_checkpoint, write_safetensors

STORED = np.load(pathlib.Path(__file__).parent / "data/logits.npz")
DEMO = pathlib.Path(qwen3.__file__).parent / "demo"


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """A directory for each case that logits are stored for, the demo model's included."""
    made = {"demo": DEMO}
    for name, options in CASES.items():
        made[name] = tmp_path_factory.mktemp("checkpoint")
        make_checkpoint(made[name], **options)
    return made


def spread_error(logits, expected):
    """Root mean square error, relative to the spread of the expected logits."""
    return np.sqrt(((np.float64(logits) - expected) ** 2).mean()) / np.float64(expected).std()


def digest(directory):
    import hashlib
    total = hashlib.sha256()
    for file in sorted(directory.glob("*.safetensors")):
        total.update(file.read_bytes())
    return total.hexdigest()


@pytest.mark.parametrize("name", [*CASES, "demo"])
def test_float32_against_transformers(name, directories):
    assert digest(directories[name]) == str(STORED[f"{name}/digest"]), "the checkpoint is not the one whose logits are stored"
    model = qwen3.load(directories[name], weights="f32", activations="f32", kv="f32")
    ids, expected = STORED[f"{name}/ids"], STORED[f"{name}/logits"]
    assert spread_error(model.forward(ids, model.new_cache(), last_only=False), expected) <= 1e-5
    cache, greedy = model.new_cache(), []
    logits = model.forward(ids, cache)
    for _ in range(len(STORED[f"{name}/greedy"])):
        greedy.append(int(logits[-1].argmax()))
        logits = model.forward(greedy[-1:], cache)
    assert greedy == STORED[f"{name}/greedy"].tolist()


@pytest.mark.parametrize("weights, activations, bound", [
    # float16 keys and values add 5e-4; bfloat16 weights are the checkpoint's own
    ("bf16", "f32", 1e-3),
    # 8 bits a row: a step is max|row| / 127, about 3 standard deviations: 0.7 % a product, a few of which stand one behind the other
    ("int8", "f32", 0.05), ("int8", "int16", 0.05), ("int8", "int8", 0.06),
    # 4 bits round to 1/8 of the block's largest: 10 % a product on weights without any structure
    ("int4", "f32", 0.5), ("int4", "int16", 0.5), ("int4", "int8", 0.5)])
@pytest.mark.parametrize("name", ["tied", "untied"])
def test_quantized_weights_stay_near(name, weights, activations, bound, directories):
    model = qwen3.load(directories[name], weights=weights, activations=activations)
    assert spread_error(model.forward(STORED[f"{name}/ids"], model.new_cache(), last_only=False), STORED[f"{name}/logits"]) <= bound


@pytest.mark.parametrize("name", ["tied", "untied", "demo", "outliers"])
def test_int16_activations_are_near_float32(name, directories, tmp_path):
    if name == "outliers":
        make_checkpoint(tmp_path, seed=11, hidden=256, intermediate=768, heads=4, kv_heads=2, outliers=True)
    directory = directories.get(name, tmp_path)
    exact, rounded = (qwen3.load(directory, activations=a, kv="f32") for a in ("f32", "int16"))
    ids = STORED[f"{'tied' if name == 'outliers' else name}/ids"]
    logits = [m.forward(ids, m.new_cache(), last_only=False) for m in (exact, rounded)]
    assert spread_error(logits[1], logits[0]) <= 2e-4


@pytest.mark.parametrize("weights, activations, kv", [
    ("int4", "int16", "f32"), ("int4", "int16", "f16"), ("int4", "int16", "bf16"), ("int4", "int16", "int8"), ("int4", "int8", "f32"),
    ("int4", "f32", "f32"), ("int8", "int16", "f32"), ("int8", "int8", "f32"), ("bf16", "f32", "f32"), ("f32", "f32", "f32")])
def test_one_result_over_tiers_threads_and_chunking(weights, activations, kv, directories):
    """Logits of all 7 tokens, as equal bits: tiers x threads 1, 2, 3 x prompt 1x7, 3+4, 7x1 and all at once."""
    ids = STORED["untied/ids"][:7]
    reference = None
    for threads in (1, 2, 3):
        model = qwen3.load(directories["untied"], weights=weights, activations=activations, threads=threads, kv=kv)
        for isa in qkernels.available_isa():
            with qkernels.use_isa(isa):
                for split in ([7], [3, 4], [1] * 7, [2, 5]):
                    cache, rows, start = model.new_cache(), [], 0
                    for n in split:
                        rows.append(model.forward(ids[start:start + n], cache, last_only=False))
                        start += n
                    logits = np.concatenate(rows)
                    reference = logits if reference is None else reference
                    assert_equal_bits(logits, reference, f"{isa}, {threads} threads, split {split}")
                    assert_equal_bits(rows[-1][-1:], logits[-1:])


def test_a_cache_of_bytes_is_near_one_of_floats(tmp_path):
    """`kv="int8"`: a rounding to 1/127 of the largest of 128 elements is 0.6 % of their root mean square, 40 times that of float16; so are the logits'
    errors, within what chance does."""
    make_checkpoint(tmp_path, seed=11, hidden=256, intermediate=768, heads=4, kv_heads=2)
    ids = np.random.default_rng(0).integers(0, 300, 128)
    exact, half, rounded = (qwen3.load(tmp_path, kv=kv) for kv in ("f32", "f16", "int8"))
    logits = [m.forward(ids, m.new_cache(), last_only=False) for m in (exact, half, rounded)]
    assert spread_error(logits[2], logits[0]) <= 2 * 40 * spread_error(logits[1], logits[0])
    caches = [m.new_cache() for m in (exact, rounded)]
    for m, c in zip((exact, rounded), caches, strict=True):
        m.forward(ids, c)
    assert caches[1].nbytes * 3 < caches[0].nbytes


def test_B37_long_prompt_in_chunks(tier, directories):
    """Across the attention's pieces of 256 keys: chunks of any size give the bits of the whole prompt."""
    model = qwen3.load(directories["tied"], kv="f16")
    ids = np.random.default_rng(0).integers(0, 300, 300)
    whole = model.forward(ids, model.new_cache(), last_only=False)
    for size in (128, 255, 299):
        cache = model.new_cache()
        rows = [model.forward(ids[i:i + size], cache, last_only=False) for i in range(0, len(ids), size)]
        assert_equal_bits(np.concatenate(rows), whole, f"chunks of {size}")


def test_B65_cached_decode_equals_the_full_forward(directories):
    model = qwen3.load(directories["untied"], weights="f32", activations="f32", kv="f32")
    for layer in model.layers:
        assert isinstance(layer, Layer) and (layer.q_norm != 1).any() and (layer.k_norm != 1).any()
    ids = STORED["untied/ids"]
    cache = model.new_cache()
    decoded = np.concatenate([model.forward([i], cache) for i in ids])
    assert_equal_bits(decoded, model.forward(ids, model.new_cache(), last_only=False))
    assert spread_error(decoded, STORED["untied/logits"]) <= 1e-5


def test_truncate_and_reset_give_the_same_bits(directories):
    model = qwen3.load(directories["tied"])
    ids = STORED["tied/ids"][:12]
    cache = model.new_cache()
    first = model.forward(ids, cache)
    cache.truncate(5)
    assert cache.length == 5
    assert_equal_bits(model.forward(ids[5:], cache), first)
    cache.reset()
    assert_equal_bits(model.forward(ids, cache), first)


def test_B68_which_head_is_used(tmp_path):
    ids = [5, 6, 7]
    logits = {}
    for name, options in {"tied": {}, "tied, head present": dict(head="double"), "untied, head": dict(tied=False, head="double"),
                          "untied, missing": dict(tied=False, head="missing")}.items():
        directory = tmp_path / name
        make_checkpoint(directory, seed=9, **options)
        if name == "untied, missing":
            with pytest.raises(qwen3.CheckpointError, match="lm_head.weight"):
                qwen3.load(directory)
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = qwen3.load(directory, weights="f32", activations="f32")
        assert any("lm_head.weight differs" in str(w.message) for w in caught) == (name == "tied, head present")
        logits[name] = model.forward(ids, model.new_cache())
    assert_equal_bits(logits["tied"], logits["tied, head present"])
    assert_equal_bits(logits["tied"] * 2, logits["untied, head"])


def test_packed_weights_are_compressed_and_the_embedding_is_the_file(directories):
    model = qwen3.load(directories["untied"])
    serialized = 0
    for layer in model.layers:
        for w in (layer.qkv, layer.out, layer.gate_up, layer.down):
            n, k = w.shape
            serialized += n * k // 2 + n * (k // 32) * 4
    n, k = model.head.shape
    serialized += n * k // 2 + n * (k // 32) * 4
    assert model.nbytes <= 1.25 * serialized
    assert not model.embedding.flags.owndata and not model.embedding.flags.writeable and model.embedding.dtype == np.dtype("bfloat16")


def test_B71_mixed_dtypes_in_one_product(tmp_path, directories):
    """A checkpoint whose projections of one layer are stored in different types gives what one of float32 gives."""
    tensors = make_checkpoint(tmp_path / "f32", seed=1, dtype="float32")
    make_checkpoint(tmp_path / "mixed", seed=1, dtype="float32")
    tensors = {name: t.astype(BF16).astype(np.float32) for name, t in tensors.items()}
    write_safetensors(tmp_path / "f32/model.safetensors", tensors)
    write_safetensors(tmp_path / "mixed/model.safetensors", {n: t.astype(BF16) if "k_proj" in n or "up_proj" in n else t for n, t in tensors.items()})
    for weights in ("int4", "int8", "bf16", "f32"):
        a, b = (qwen3.load(tmp_path / d, weights=weights, activations="f32") for d in ("f32", "mixed"))
        assert_equal_bits(a.forward([1, 2, 3], a.new_cache()), b.forward([1, 2, 3], b.new_cache()))


def test_progress_reaches_the_total(directories):
    calls = []
    qwen3.load(directories["sharded"], progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls) and calls[-1][0] == calls[-1][1] > 0


def test_two_sequences_do_not_disturb_each_other(directories):
    model = qwen3.load(directories["tied"])
    a, b = STORED["tied/ids"][:8], STORED["tied/ids"][8:20]
    alone = model.forward(a, model.new_cache()), model.forward(b, model.new_cache())
    first, second = model.new_cache(), model.new_cache()
    for i in range(12):
        if i < 8:
            la = model.forward(a[i:i + 1], first)
        lb = model.forward(b[i:i + 1], second)
    assert_equal_bits(la, alone[0])
    assert_equal_bits(lb, alone[1])


@pytest.mark.parametrize("options, message", [
    (dict(weights="int2"), "load: weights: expected one of int4, int8, bf16, f32, got 'int2'"),
    (dict(activations="int4"), "load: activations: expected one of int16, int8, f32, got 'int4'"),
    (dict(weights="bf16", activations="int8"), "load: activations: int8 needs integer weights, got weights='bf16'"),
    (dict(kv="int4"), "load: kv: expected one of f32, f16, bf16, int8, got 'int4'"),
    (dict(max_context=0), "load: max_context: expected an integer >= 1, got 0"),
    (dict(max_context=1.5), "load: max_context: expected an integer >= 1, got 1.5"),
    (dict(threads=0), "threads: expected 1 to 1024, got 0"),
])
def test_load_errors(options, message):
    with pytest.raises(ValueError, match=message):
        qwen3.load(**options)


@pytest.mark.parametrize("ids, error, message", [
    ([], ValueError, "forward: ids: expected at least one token"),
    ([-1], IndexError, "forward: ids: expected 0 <= id < 320, got -1"),
    ([5, 320], IndexError, "forward: ids: expected 0 <= id < 320, got 320"),
    ([[1]], TypeError, r"forward: ids: expected a flat sequence of integers, got int64 of shape \(1, 1\)"),
    ([0.5], TypeError, "forward: ids: expected a flat sequence of integers, got float64"),
    ([1] * 17, ValueError, "forward: ids: 17 tokens after 0 exceed the context of 16"),
])
def test_B16_B88_forward_errors_leave_the_cache_as_it_was(ids, error, message, directories):
    model = qwen3.load(directories["tied"], max_context=16)
    cache = model.new_cache()
    with pytest.raises(error, match=message):
        model.forward(ids, cache)
    assert cache.length == 0
    model.forward([1] * 15, cache)
    last = model.forward([2], cache)  # the last slot is written and read
    assert cache.length == 16
    assert_equal_bits(last, model.forward([1] * 15 + [2], model.new_cache()))
    with pytest.raises(ValueError, match="forward: ids: 1 tokens after 16 exceed the context of 16"):
        model.forward([1], cache)


@pytest.mark.parametrize("weights", ["int4", "bf16"])
def test_profile_of_a_checkpoint(weights):
    model, watch, ids = qwen3.load(weights=weights), Profile(), [5, 6, 7]
    c, plain, cache = model.config, model.new_cache(), model.new_cache()
    for watch.phase, part in (("prefill", ids), ("decode", [8]), ("decode", [9])):
        assert_equal_bits(model.forward(part, cache, profile=watch), model.forward(part, plain))
    rows = {(phase, operators): row for (phase, operators, _), row in watch.rows.items()}
    layers = c.num_hidden_layers
    assert {operators: calls for (phase, operators), (calls, _, _) in rows.items() if phase == "decode"} == {
        "norm; query, key and value": 2 * layers, "norm, rotation, attention": 2 * layers, "attention's output and sum": 2 * layers,
        "norm; gate and up": 2 * layers, "SwiGLU; down and sum": 2 * layers, "norm; head": 2}
    assert all(seconds > 0 for _, seconds, _ in rows.values())
    down = sum(layer.down.nbytes for layer in model.layers)
    assert rows["prefill", "SwiGLU; down and sum"][2] == down + 4 * 3 * layers * 2 * (c.intermediate_size + c.hidden_size)
    width = (2 * c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim
    kept = 2 * 2 * c.num_key_value_heads * c.head_dim  # float16 keys and values of a token
    assert rows["decode", "norm, rotation, attention"][2] == layers * (2 * 4 * width + (4 + 5) * kept)
    text = profile(prompt=600, tokens=2, weights=weights)
    assert "prefill: 600 tokens" in text and "decode: 2 tokens" in text and ("PackedNBits" if weights == "int4" else "PackedMatrix") in text
    with pytest.raises(ValueError, match="exceed the context"), pytest.warns(UserWarning, match="positions"):
        profile(prompt=2**20, tokens=1)


@pytest.mark.parametrize(("weights", "activations"), [("int4", "int16"), ("int4", "int8"), ("int8", "f32"), ("bf16", "f32")])
def test_fused_and_single_steps(weights, activations, tier):
    """A layer with norms, gate and sums inside the products, and one step after the other."""
    options = dict(activations=activations)
    model = qwen3.load(weights=weights, activations=activations if weights != "bf16" else "int16")
    c, eps = model.config, model.config.rms_norm_eps
    for n in (1, 5):
        ids, cache, plain = np.arange(n) + 7, model.new_cache(), model.new_cache()
        x = np.float32(model.embedding[ids])
        h = qkernels.rms_normalization(x, model.layers[0].input_norm, epsilon=eps)
        for i, layer in enumerate(model.layers):
            following = model.layers[i + 1].input_norm if i + 1 < len(model.layers) else model.norm
            attended = qkernels.cached_attention(plain, i, layer.qkv(h, **options), q_norm=layer.q_norm, k_norm=layer.k_norm, epsilon=eps,
                                                 cos=model._cos, sin=model._sin, num_heads=c.num_attention_heads)
            h, x = qkernels.skip_simplified_layer_normalization(x, layer.out(attended, **options), layer.post_norm, epsilon=eps, outputs=(0, 3))
            y = layer.down(qkernels.silu_mul(layer.gate_up(h, **options)), **options)
            h, x = qkernels.skip_simplified_layer_normalization(x, y, following, epsilon=eps, outputs=(0, 3))
        plain.advance(n)
        assert_equal_bits(model.forward(ids, cache, last_only=False), model.head(h, **options))
