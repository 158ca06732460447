"""com.microsoft GroupQueryAttention: against the specification in NumPy, against ONNX Runtime, and its rows of faults."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_ULP, assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import float_dtypes, normal, seeds

INPUTS = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache", "position_ids", "attention_bias",
          "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens")
gqa = qkernels.group_query_attention


def positional(inputs):
    return [inputs.get(name) for name in INPUTS]


def tables(rows, half, dtype=np.float32):
    angles = np.arange(rows)[:, None] / 100.0 ** (np.arange(half) / half)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


@st.composite
def calls(draw, quantized=False, plain=False):
    """(inputs by name, attributes, which output rows are valid): any call that the schema allows; `plain` is what ONNX Runtime's CPU kernel has too."""
    seed, dtype = draw(seeds), np.float32 if plain or quantized else draw(float_dtypes)
    batch, groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads, d = groups * each, draw(st.sampled_from([32, 64] if quantized else [16, 32, 64]) if plain else st.sampled_from([2, 6, 16, 34, 64]))
    form = draw(st.sampled_from(["prompt", "decode", "chunk", "padded", "sliding"]))
    rows, past_rows, counts = draw(st.integers(1, 6)), draw(st.sampled_from([0, 3, 20, 270])), None
    attributes = dict(num_heads=heads, kv_num_heads=groups, scale=draw(st.sampled_from([None, 0.3])), softcap=draw(st.sampled_from([0.0, 2.0])))
    window = draw(st.sampled_from([-1, -1, 1, 3, 17]))
    if form == "sliding":
        batch, window = 1, draw(st.integers(1, 9))
        past_rows = window + draw(st.integers(0, 4))
        before = draw(st.integers(0, 40))
        lengths, total = [before + rows], before + rows
        attributes["sliding_window_cache"] = 1
    elif form == "prompt":
        total, past_rows = rows, draw(st.sampled_from([0, max(past_rows, rows)]))
        lengths = [draw(st.integers(1, rows)) for _ in range(batch)]
        lengths[0] = rows
    elif form == "padded":
        past_rows = max(past_rows, 1)
        counts, before = [draw(st.integers(0, rows)) for _ in range(batch)], [draw(st.integers(1, past_rows)) for _ in range(batch)]
        lengths = [c + b for c, b in zip(counts, before, strict=True)]
        total = max(max(b + rows for b in before), past_rows)
    else:
        rows, batch = (1, batch) if form == "decode" else (rows, 1)
        before = [draw(st.integers(0, past_rows)) for _ in range(batch)]
        before[0] = past_rows if draw(st.booleans()) else before[0]
        lengths = [b + rows for b in before]
        total = max(lengths) if max(lengths) <= past_rows else past_rows + rows  # a buffer with room, or one that grows
    if window > 0:
        attributes["local_window_size"] = window
    f = lambda n, *shape: normal(seed + n, shape, dtype)
    inputs = dict(seqlens_k=np.int32(lengths) - 1, total_sequence_length=np.int32([total]))
    if draw(st.booleans()):
        inputs["query"] = f(0, batch, rows, (heads + 2 * groups) * d)
    else:
        inputs |= dict(query=f(0, batch, rows, heads * d), key=f(1, batch, rows, groups * d), value=f(2, batch, rows, groups * d))
    if past_rows or form in ("padded", "sliding"):
        inputs |= dict(past_key=f(3, batch, groups, past_rows, d), past_value=f(4, batch, groups, past_rows, d))
    if quantized:
        bits, rng = draw(st.sampled_from([4, 8])), np.random.default_rng(seed)
        codes = lambda: rng.integers(0, 256, (batch, groups, past_rows, d * bits // 8), np.uint8).view(np.uint8 if bits == 4 else np.int8)
        scale = lambda: (rng.random((1, groups, 1, d) if channel else 1, np.float32) + 1) * np.float32(0.02 if bits == 8 else 0.3)
        channel = draw(st.booleans())
        inputs |= dict(past_key=codes(), past_value=codes(), k_scale=scale(), v_scale=scale())
        kind = "PER_CHANNEL" if channel else "PER_TENSOR"
        attributes |= dict(kv_cache_bit_width=bits, k_quant_type=kind, v_quant_type=kind)
    if counts is not None:
        inputs["query_seqlens"] = np.int32(counts)
    if draw(st.booleans()):
        half = d // 2 if plain else draw(st.integers(1, d // 2))
        inputs["cos_cache"], inputs["sin_cache"] = tables(max(total, max(lengths)) + 12, half, dtype)
        attributes |= dict(do_rotary=1, rotary_interleaved=draw(st.integers(0, 1)))
        if draw(st.booleans()):
            inputs["position_ids"] = np.random.default_rng(seed).integers(0, total, (batch, rows))
    if draw(st.booleans()):
        bias = f(6, draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), rows, total)
        bias[np.random.default_rng(seed).random(bias.shape) < 0.1] = -np.inf if not plain else 0
        inputs["attention_bias"] = bias
    sink = draw(st.sampled_from(["none", "smooth", "sink"]))
    if sink == "smooth":
        attributes["smooth_softmax"] = 1
    elif sink == "sink":
        inputs["head_sink"] = f(7, heads)
    if not plain and draw(st.booleans()):
        inputs |= dict(q_norm_weight=f(8, d), k_norm_weight=f(9, d))
        attributes |= dict(qk_norm_epsilon=1e-5, k_norm_epsilon=draw(st.sampled_from([None, 1e-4])))
    if "query_seqlens" not in inputs and form != "sliding" and window < 0:
        attributes["causal"] = draw(st.sampled_from([1, 1, 0]))
    attributes["qk_output"] = 0 if plain and form == "sliding" else draw(st.sampled_from([0, 1, 2]))
    valid = np.arange(rows) < (np.array(counts) if counts is not None else np.minimum(lengths, rows))[:, None]
    return inputs, {k: v for k, v in attributes.items() if v is not None}, valid


def bound(inputs, attributes, dtype):
    """What roundings in float32 and one to the type may do: scores of some tens, and values of up to the largest one there."""
    scores = 2.0**-24 * 64 * 8 if not attributes.get("do_rotary") or dtype == np.float32 else 2.0**-24 * 64 * 8 * 2
    largest = 6.0 if "k_scale" not in inputs else 6.0 * 127 * float(inputs["v_scale"].max()) / 6
    cache = 0 if dtype == np.float32 or "past_key" in inputs and inputs["past_key"].dtype == np.float32 else 8 * HALF_ULP[np.dtype(dtype)]
    return largest * (scores + cache + 2 * HALF_ULP[np.dtype(dtype)])


def check(result, expected, inputs, attributes, valid, ends):
    dtype = inputs["query"].dtype
    tolerance = bound(inputs, attributes, dtype)
    y, present_k, present_v = result[:3]
    np.testing.assert_allclose(np.float64(y[valid]), np.float64(np.asarray(expected[0])[valid]), rtol=0, atol=tolerance)
    for mine, theirs in zip((present_k, present_v), expected[1:3], strict=True):
        theirs = np.asarray(theirs)
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        for b, end in enumerate(ends):
            a, e = mine[b, :, :end], theirs[b, :, :end]
            if "k_scale" in inputs:  # a code may tip where a rotation is rounded otherwise
                nibbles = (lambda c: np.int64(c)) if a.dtype == np.int8 else (lambda c: np.stack([np.int64(c & 15), np.int64(c >> 4)]))
                assert np.abs(nibbles(a) - nibbles(e)).max(initial=0) <= 1
            else:
                np.testing.assert_allclose(np.float64(a), np.float64(e), rtol=0, atol=8 * (2 * HALF_ULP[a.dtype] + 2.0**-22))
    if len(result) > 3:
        a, e = (np.float64(np.asarray(x)).transpose(0, 2, 1, 3)[valid] for x in (result[3], expected[3]))
        same = np.isinf(a) & np.isinf(e)
        np.testing.assert_allclose(np.where(same, 0, a), np.where(same, 0, e), rtol=2 * HALF_ULP[np.dtype(dtype)], atol=4 * tolerance)


def ends_of(inputs, attributes):
    """How many rows of each sequence's cache hold something."""
    tokens = (np.ravel(inputs["seqlens_k"]) + 1).tolist()
    if not attributes.get("sliding_window_cache"):
        return tokens
    capacity = inputs["past_key"].shape[2]
    step = capacity - attributes["local_window_size"] + 1
    return [t if t <= capacity else t - step * -(-(t - capacity) // step) for t in tokens]


def outputs_of(attributes):
    return (0, 1, 2, 3) if attributes["qk_output"] else (0, 1, 2)


@pytest.mark.differential("group_query_attention")
@settings(max_examples=150)
@given(call=calls())
def test_against_the_specification(call):
    inputs, attributes, valid = call
    outputs = outputs_of(attributes)
    result = one_result(lambda t: gqa(*positional(inputs), **attributes, outputs=outputs, threads=t), (1, 3))
    expected = evaluate("com.microsoft", "GroupQueryAttention", positional(inputs), outputs=4, **attributes)
    check(result, expected, inputs, attributes, valid, ends_of(inputs, attributes))
    assert not result[0][~valid].any()  # rows of padding are zero


@settings(max_examples=60)
@given(call=calls(quantized=True))
def test_a_cache_of_codes_against_the_specification(call):
    inputs, attributes, valid = call
    outputs = outputs_of(attributes)
    result = one_result(lambda t: gqa(*positional(inputs), **attributes, outputs=outputs, threads=t), (1, 3))
    expected = evaluate("com.microsoft", "GroupQueryAttention", positional(inputs), outputs=4, **attributes)
    if any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(result[1:3], expected[1:3], strict=True)):
        return  # a code tipped over, and a whole step of the cache lies between the results
    check(result, expected, inputs, attributes, valid, ends_of(inputs, attributes))


@settings(max_examples=100)
@given(call=calls(plain=True))
def test_against_onnxruntime(call):
    pytest.importorskip("onnxruntime")
    inputs, attributes, valid = call
    outputs = outputs_of(attributes)
    expected = onnxruntime_node("com.microsoft", "GroupQueryAttention", positional(inputs), len(outputs), **attributes)
    result = gqa(*positional(inputs), **attributes, outputs=outputs)
    check(result, expected, inputs, attributes, valid, ends_of(inputs, attributes))


@settings(max_examples=25)
@given(call=calls(plain=True, quantized=True))
def test_a_cache_of_codes_against_onnxruntime(call):
    pytest.importorskip("onnxruntime")
    inputs, attributes, valid = call
    attributes["qk_output"] = 0
    expected = onnxruntime_node("com.microsoft", "GroupQueryAttention", positional(inputs), 3, **attributes)
    result = gqa(*positional(inputs), **attributes, outputs=(0, 1, 2))
    if any((a[b, :, :n] != e[b, :, :n]).any() for a, e in zip(result[1:3], expected[1:3], strict=True) for b, n in enumerate(ends_of(inputs, attributes))):
        return
    check(result, expected, inputs, attributes, valid, ends_of(inputs, attributes))


# ---- one result ----

@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("extra", [{}, {"local_window_size": 40}, {"softcap": 3.0, "smooth_softmax": 1}])
def test_any_chunking_batch_and_buffer_is_one_result(dtype, extra, tier):
    heads, groups, d, n = 4, 2, 32, 300
    q, k, v = normal(0, (2, n, heads * d), dtype), normal(1, (2, n, groups * d), dtype), normal(2, (2, n, groups * d), dtype)
    cos, sin = tables(n, d // 2, dtype)
    options = dict(num_heads=heads, kv_num_heads=groups, do_rotary=1) | extra
    whole, keys, values = gqa(q, k, v, None, None, np.int32([n - 1] * 2), n, cos, sin, **options, outputs=(0, 1, 2))
    for b in range(2):
        for cuts in ([256], [1, 2, 3, 250], [n - 1], list(range(37, n, 37))):
            buffers = [np.zeros((1, groups, n, d), dtype) for _ in range(2)]
            grown, parts, start = (None, None), [], 0
            for end in [*cuts, n]:
                new = [x[b:b + 1, start:end] for x in (q, k, v)]
                y, *grown = gqa(*new, *grown, np.int32([end - 1]), end, cos, sin, **options, outputs=(0, 1, 2), threads=2)
                again, *kept = gqa(*new, *buffers, np.int32([end - 1]), end, cos, sin, **options, outputs=(0, 1, 2), out=(None, *buffers))
                assert kept[0] is buffers[0] and kept[1] is buffers[1]
                assert_equal_bits(again, y)
                parts.append(y)
                start = end
            assert_equal_bits(np.concatenate(parts, 1), whole[b:b + 1], str(cuts))
            for a, e in zip((*grown, *buffers), (keys, values) * 2, strict=True):
                assert_equal_bits(a, e[b:b + 1])


def test_sequences_of_different_lengths_are_those_alone(tier):
    heads, groups, d = 4, 2, 16
    past, counts = [5, 270, 0, 20], [3, 1, 2, 0]
    buffers = [normal(i, (4, groups, 280, d)) for i in (0, 1)]
    q, k, v = normal(2, (4, 3, heads * d)), normal(3, (4, 3, groups * d)), normal(4, (4, 3, groups * d))
    ends = np.int32(past) + np.int32(counts)
    y, pk, pv = gqa(q, k, v, *buffers, ends - 1, 280, query_seqlens=np.int32(counts), num_heads=heads, kv_num_heads=groups, outputs=(0, 1, 2))
    for b in range(4):
        n, old = counts[b], [x[b:b + 1, :, :past[b]] for x in buffers]
        assert not y[b, n:].any()
        if n:
            alone, ak, av = gqa(q[b:b + 1, :n], k[b:b + 1, :n], v[b:b + 1, :n], *old, ends[b:b + 1] - 1, ends[b], num_heads=heads, kv_num_heads=groups,
                                outputs=(0, 1, 2))
            assert_equal_bits(y[b:b + 1, :n], alone)
            assert_equal_bits(pk[b:b + 1, :, :ends[b]], ak)
            assert_equal_bits(pv[b:b + 1, :, :ends[b]], av)
        assert_equal_bits(pk[b, :, ends[b]:], buffers[0][b, :, ends[b]:])


@pytest.mark.parametrize("capacity", [4, 6, 9])
def test_a_sliding_cache_is_the_whole_one_seen_through_its_window(capacity, tier):
    heads, groups, d, n, window = 2, 1, 16, 600, 4
    q, k, v = normal(0, (1, n, heads * d)), normal(1, (1, n, groups * d)), normal(2, (1, n, groups * d))
    cos, sin = tables(n, d // 2)
    options = dict(num_heads=heads, kv_num_heads=groups, do_rotary=1, local_window_size=window)
    whole, keys, _ = gqa(q, k, v, None, None, np.int32([n - 1]), n, cos, sin, **options, outputs=(0, 1, 2))
    for cuts in (range(1, 40), [7, 255, 256, 270], []):
        cache, start = [np.full((1, groups, capacity, d), np.nan, np.float32) for _ in range(2)], 0
        for end in [*cuts, n]:
            y, *cache = gqa(q[:, start:end], k[:, start:end], v[:, start:end], *cache, np.int32([end - 1]), end, cos, sin, **options,
                            sliding_window_cache=1, outputs=(0, 1, 2))
            assert_equal_bits(y, whole[:, start:end])
            step = capacity - window + 1
            held = end if end <= capacity else end - step * -(-(end - capacity) // step)
            assert_equal_bits(cache[0][:, :, :held], keys[:, :, end - held:end])
            start = end


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_the_same_bits_as_attention_and_rotary_embedding(dtype, tier):
    heads, groups, d, n, past = 4, 2, 64, 9, 280
    q, k, v = normal(0, (1, n, heads * d), dtype), normal(1, (1, n, groups * d), dtype), normal(2, (1, n, groups * d), dtype)
    old = [normal(i, (1, groups, past, d), dtype) for i in (3, 4)]
    cos, sin = tables(past + n, d // 2)
    y, pk, pv = gqa(q, k, v, *old, np.int32([past + n - 1]), past + n, num_heads=heads, kv_num_heads=groups, softcap=2.0, outputs=(0, 1, 2))
    expected = qkernels.attention(q, k, v, past_key=old[0], past_value=old[1], is_causal=1, q_num_heads=heads, kv_num_heads=groups, softcap=2.0,
                                  outputs=(0, 1, 2))
    for a, e in zip((y, pk, pv), expected, strict=True):
        assert_equal_bits(a, e)
    if dtype == np.float32:
        turned = [qkernels.rotary_embedding(x, cos, sin, np.arange(past, past + n)[None], num_heads=h) for x, h in ((q, heads), (k, groups))]
        y = gqa(q, k, v, *old, np.int32([past + n - 1]), past + n, cos, sin, num_heads=heads, kv_num_heads=groups, do_rotary=1)
        assert_equal_bits(y, gqa(*turned, v, *old, np.int32([past + n - 1]), past + n, num_heads=heads, kv_num_heads=groups))


def test_the_same_bits_as_a_decoders_cache(tier):
    heads, groups, d, n = 4, 2, 32, 20
    qkv, norms, (cos, sin) = normal(0, (n, (heads + 2 * groups) * d)), [normal(i, (d,)) for i in (1, 2)], tables(n, d // 2)
    for extra in ({}, {"softcap": 2.0}, {"local_window_size": 3}, {"sink": normal(3, (heads,))}, {"interleaved": 1}, {"half": 5}):
        options, half = {k: v for k, v in extra.items() if k in ("softcap", "local_window_size")}, extra.get("half", d // 2)
        table = dict(cos=cos[:, :half].copy(), sin=sin[:, :half].copy())
        expected = gqa(qkv[None], None, None, None, None, np.int32([n - 1]), n, table["cos"], table["sin"], head_sink=extra.get("sink"), q_norm_weight=norms[0],
                       k_norm_weight=norms[1], num_heads=heads, kv_num_heads=groups, do_rotary=1, rotary_interleaved=extra.get("interleaved", 0), **options)
        more = {k: v for k, v in extra.items() if k in ("sink", "interleaved")}
        cache = qkernels.KVCache(1, groups, d)
        for start in (0, 7):
            end = 7 if start == 0 else n
            y = qkernels.cached_attention(cache, 0, qkv[start:end], q_norm=norms[0], k_norm=norms[1], num_heads=heads, **table, **options, **more)
            cache.advance(end - start)
            assert_equal_bits(y, expected[0, start:end], str(extra))


# ---- cases ----

def column(*values):
    return np.float32(values).reshape(1, -1, 1)


ONE = dict(num_heads=1, kv_num_heads=1)


def test_B33_lengths_are_checked(tier):
    past = np.zeros((2, 1, 8, 1), np.float32)
    x = np.zeros((2, 1, 1), np.float32)
    call = lambda s, total=8, x=x: gqa(x, x, x, past, past, s, total, **ONE)
    for bad in ([-1, 3], [8, 3]):
        with pytest.raises(ValueError, match=rf"seqlens_k: expected 0 to total_sequence_length - 1 = 7, got {bad[0]}"):
            call(np.int32(bad))
    assert call(np.int32([7, 3])).shape == (2, 1, 1)
    with pytest.raises(ValueError, match=r"seqlens_k: expected shape \(2,\), got \(3,\)"):
        call(np.int32([7, 3, 3]))
    with pytest.raises(ValueError, match=r"seqlens_k: expected shape \(2,\), got \(1, 2\)"):
        call(np.int32([[7, 3]]))
    assert_equal_bits(call(np.int32([[7], [3]])), call(np.int32([7, 3])))
    assert_equal_bits(call(np.int64([7, 3]), np.array(8)), call(np.int32([7, 3])))
    three = np.zeros((1, 3, 1), np.float32)
    with pytest.raises(ValueError, match="seqlens_k: expected at least 2 for 3 new tokens after a past, got 1"):
        gqa(three, three, three, past[:1], past[:1], np.int32([1]), 8, **ONE)
    with pytest.raises(ValueError, match="means 8 tokens before this call, but the past holds 7"):
        gqa(x[:1], x[:1], x[:1], past[:1, :, :7], past[:1, :, :7], np.int32([8]), 9, **ONE)
    with pytest.raises(ValueError, match="means 4 tokens before this call, but the past holds none"):
        gqa(x[:1], x[:1], x[:1], None, None, np.int32([4]), 5, **ONE)


def test_B34_a_window_of_two_keys_has_the_query_in_it(tier):
    q, v = column(0, 0, 0, 0), column(1, 2, 3, 4)
    assert gqa(q, q, v, None, None, np.int32([3]), 4, local_window_size=2, **ONE)[0, -1, 0] == 3.5
    y = qkernels.attention(q[None], q[None], v[None], left_window_size=2, is_causal=1)
    assert y[0, 0, -1, 0] == 3
    assert gqa(q, q, v, None, None, np.int32([3]), 4, local_window_size=1, **ONE).ravel().tolist() == [1, 2, 3, 4]
    assert qkernels.attention(q[None], q[None], v[None], left_window_size=0, is_causal=1).ravel().tolist() == [1, 2, 3, 4]


def test_B35_a_sink_is_part_of_the_maximum(tier):
    call = lambda score, **sink: gqa(column(1), column(score), column(4), None, None, np.int32([0]), 1, scale=1.0, **ONE, **sink).item()
    assert call(0, smooth_softmax=1) == 2
    assert call(0, head_sink=np.float32([np.log(3)])) == pytest.approx(1, rel=1e-6)
    assert call(-1000, head_sink=np.float32([0])) == 0
    assert 0 <= call(0, head_sink=np.float32([200])) < 1e-37
    hidden = np.full((1, 1, 1, 1), -np.inf, np.float32)
    for sink in (dict(smooth_softmax=1), dict(head_sink=np.float32([0]))):
        assert call(0, attention_bias=hidden, **sink) == 0
    assert call(1000, smooth_softmax=1) == 4


def test_B37_more_rows_of_several_sequences_need_their_lengths(tier):
    x, past = np.zeros((2, 2, 1), np.float32), np.zeros((2, 1, 2, 1), np.float32)
    with pytest.raises(ValueError, match="query_seqlens: expected it for a batch of 2 with 2 new tokens after a past"):
        gqa(x, x, x, past, past, np.int32([3, 3]), 4, **ONE)
    y = gqa(column(0, 0), column(0, 0), column(3, 4), np.zeros((1, 1, 2, 1), np.float32), np.float32([1, 2]).reshape(1, 1, 2, 1), np.int32([3]), 4, **ONE)
    assert y.ravel().tolist() == [2, 2.5]


def test_B26_heads_are_grouped(tier):
    y = gqa(np.zeros((1, 1, 4), np.float32), np.zeros((1, 1, 2), np.float32), np.float32([[[1, 2]]]), None, None, np.int32([0]), 1, num_heads=4, kv_num_heads=2)
    assert y.ravel().tolist() == [1, 1, 2, 2]


def test_B32_present_without_past(tier):
    q = normal(0, (1, 3, 4))
    y, k, v = gqa(q, q, q, None, None, np.int32([2]), 3, outputs=(0, 1, 2), **ONE)
    empty = np.zeros((1, 1, 0, 4), np.float32)
    for a, e in zip(gqa(q, q, q, empty, empty, np.int32([2]), 3, outputs=(0, 1, 2), **ONE), (y, k, v), strict=True):
        assert_equal_bits(a, e)
    assert_equal_bits(k[0], q)
    with pytest.raises(ValueError, match="past_value: expected both past_key and past_value or neither"):
        gqa(q, q, q, empty, None, np.int32([2]), 3, **ONE)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_lies_beyond_the_end_does_not_leak(value, tier):
    past = normal(0, (1, 1, 300, 8))
    x = normal(1, (1, 1, 8))
    for end in (5, 256, 290):
        dirty = past.copy()
        dirty[:, :, end:] = value
        assert_equal_bits(gqa(x, x, x, dirty, dirty, np.int32([end]), end + 1, **ONE), gqa(x, x, x, past, past, np.int32([end]), end + 1, **ONE))
        dirty = past.copy()
        dirty[:, :, :end - 3] = value
        options = dict(local_window_size=4, **ONE)
        assert_equal_bits(gqa(x, x, x, dirty, dirty, np.int32([end]), end + 1, **options), gqa(x, x, x, past, past, np.int32([end]), end + 1, **options))


# ---- arrays ----

@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_B57_B58_any_layout(dtype):
    names = ("query", "key", "value", "past_key", "past_value", "cos_cache", "sin_cache", "attention_bias", "head_sink", "q_norm_weight", "k_norm_weight")
    shapes = ((2, 1, 64), (2, 1, 32), (2, 1, 32), (2, 2, 5, 16), (2, 2, 5, 16), (9, 8), (9, 8), (2, 4, 1, 6), (4,), (16,), (16,))
    arrays = [normal(i, s, dtype) for i, s in enumerate(shapes)]
    fixed = dict(seqlens_k=np.int32([5, 3]), total_sequence_length=6, position_ids=np.int64([[5], [3]]))
    options = dict(num_heads=4, kv_num_heads=2, do_rotary=1, outputs=(0, 1, 2))
    expected = gqa(*positional(dict(zip(names, arrays, strict=True)) | fixed), **options)
    for forms in zip(*map(layouts, arrays), strict=True):
        inputs = {name: a for name, (_, a) in zip(names, forms, strict=True)}
        for a, e in zip(gqa(*positional(inputs | fixed), **options), expected, strict=True):
            assert_equal_bits(a, e, forms[0][0])


def test_out_and_in_place(tier):
    x, past = normal(0, (1, 1, 8)), [normal(i, (1, 1, 6, 8)) for i in (1, 2)]
    expected = gqa(x, x, x, *past, np.int32([4]), 5, **ONE, outputs=(0, 1, 2))
    y = np.empty((1, 1, 8), np.float32)
    assert gqa(x, x, x, *past, np.int32([4]), 5, **ONE, out=y) is y
    assert_equal_bits(y, expected[0])
    caches = [p.copy() for p in past]
    results = gqa(x, x, x, *caches, np.int32([4]), 5, **ONE, outputs=(2, 0, 1), out=(caches[1], None, caches[0]))
    assert results[0] is caches[1] and results[2] is caches[0]
    for a, e in zip((results[1], results[2], results[0]), expected, strict=True):
        assert_equal_bits(a, e)
    fresh = [np.empty_like(p) for p in past]
    gqa(x, x, x, *past, np.int32([4]), 5, **ONE, outputs=(1, 2), out=tuple(fresh))
    for a, e in zip(fresh, expected[1:], strict=True):
        assert_equal_bits(a, e)
    for out, message in (((None, past[0][:, :, ::-1], None), "out: present_key: expected an aligned C-contiguous array"),
                         ((None, past[1], None), "out: present_key: overlaps past_value"), ((None, None), "out: expected a tuple"),
                         ((None, fresh[0], fresh[0]), "out: present_value: overlaps present_key")):
        with pytest.raises(ValueError, match=message):
            gqa(x, x, x, *past, np.int32([4]), 5, **ONE, outputs=(0, 1, 2), out=out)
    caches[0].flags.writeable = False
    with pytest.raises(ValueError, match="out: present_key: expected a writeable array"):
        gqa(x, x, x, *caches, np.int32([4]), 5, **ONE, outputs=(0, 1, 2), out=(None, *caches))


def test_empty_shapes(tier):
    empty = np.zeros((0, 3, 8), np.float32)
    assert gqa(empty, empty, empty, None, None, np.zeros(0, np.int32), 3, **ONE).shape == (0, 3, 8)
    none, past = np.zeros((1, 0, 8), np.float32), np.zeros((1, 1, 4, 8), np.float32)
    y, k, v = gqa(none, none, none, past, past, np.int32([3]), 4, **ONE, outputs=(0, 1, 2))
    assert y.shape == (1, 0, 8) and k.shape == past.shape


def test_keys_of_the_past_alone(tier):
    q, past = normal(0, (1, 3, 8)), [normal(i, (1, 1, 9, 8)) for i in (1, 2)]
    none = np.zeros((1, 0, 8), np.float32)
    y, k, v = gqa(q, none, none, *past, np.int32([6]), 7, **ONE, outputs=(0, 1, 2))
    assert_equal_bits(y[:, None], qkernels.attention(q[:, None], *past, nonpad_kv_seqlen=np.int64([7]), is_causal=1))
    assert_equal_bits(k, past[0])
    assert_equal_bits(v, past[1])


def test_a_cache_of_another_float_type(tier):
    q, past = normal(0, (1, 2, 8)), [normal(i, (1, 1, 9, 8), BF16) for i in (1, 2)]
    y, k, v = gqa(q, q, q, *past, np.int32([10]), 11, **ONE, outputs=(0, 1, 2))
    assert y.dtype == np.float32 and k.dtype == v.dtype == BF16
    assert_equal_bits(k[:, :, 9:], q[:, None].astype(BF16))


PAST = dict(past_key=np.zeros((1, 1, 4, 8), np.float32), past_value=np.zeros((1, 1, 4, 8), np.float32))
CODES = {name: a.astype(np.int8) for name, a in PAST.items()}
BASE = dict(query=np.zeros((1, 1, 8), np.float32), key=np.zeros((1, 1, 8), np.float32), value=np.zeros((1, 1, 8), np.float32), seqlens_k=np.int32([4]),
            total_sequence_length=5, **PAST)
TABLE = dict(cos_cache=np.zeros((5, 4), np.float32), sin_cache=np.zeros((5, 4), np.float32))


@pytest.mark.parametrize("inputs, attributes, error, message", [
    ({"query": np.zeros((1, 8), np.float32)}, {}, ValueError, r"query: expected 3 dimensions, got shape \(1, 8\)"),
    ({"query": np.zeros((1, 1, 8))}, {}, TypeError, "query: expected dtype float32 or float16 or bfloat16, got float64"),
    ({"query": np.zeros((1, 1, 0), np.float32)}, {}, ValueError, "query: expected a last dimension divisible by 1 heads"),
    ({"key": None}, {}, ValueError, "key: expected both key and value or neither"),
    ({"key": None, "value": None}, {}, ValueError, "query: expected a last dimension divisible by 3 heads"),
    ({"key": np.zeros((1, 1, 9), np.float32)}, {}, ValueError, r"key: expected shape \(1, 1, 8\), got \(1, 1, 9\)"),
    ({"value": np.zeros((1, 1, 8), np.float16)}, {}, TypeError, "value: expected dtype float32, got float16"),
    ({"past_key": np.zeros((1, 1, 4, 7), np.float32)}, {}, ValueError, r"past_key: expected shape \(1, 1, past, 8\), got \(1, 1, 4, 7\)"),
    ({"past_value": np.zeros((1, 1, 3, 8), np.float32)}, {}, ValueError, r"past_value: expected shape \(1, 1, 4, 8\), got \(1, 1, 3, 8\)"),
    ({"past_value": np.zeros((1, 1, 4, 8), np.float16)}, {}, TypeError, "past_value: expected dtype float32 as past_key, got float16"),
    ({"seqlens_k": None}, {}, TypeError, "seqlens_k: expected an array, got None"),
    ({"seqlens_k": np.float32([4])}, {}, TypeError, "seqlens_k: expected an integer dtype, got float32"),
    ({"total_sequence_length": np.int32([5, 5])}, {}, ValueError, r"total_sequence_length: expected one number, got shape \(2,\)"),
    ({"total_sequence_length": 0}, {}, ValueError, "total_sequence_length: expected at least the 1 new tokens, got 0"),
    ({}, {"num_heads": 0}, ValueError, "num_heads: expected a number > 0, got 0"),
    ({}, {"num_heads": 1.0}, TypeError, "num_heads: expected an int, got float"),
    ({}, {"num_heads": 4, "kv_num_heads": 3}, ValueError, "num_heads: expected a multiple of kv_num_heads 3, got 4"),
    ({}, {"do_rotary": 1}, ValueError, "cos_cache: expected cos_cache and sin_cache with do_rotary 1"),
    ({}, {"rotary_interleaved": 1}, ValueError, "rotary_interleaved: expected do_rotary 1 with it"),
    ({"cos_cache": TABLE["cos_cache"]}, {}, ValueError, "sin_cache: expected both"),
    ({n: a[:4] for n, a in TABLE.items()}, {"do_rotary": 1}, IndexError, "cos_cache: expected at least 5 positions, got 4"),
    ({n: np.zeros((9, 5), np.float32) for n in TABLE}, {"do_rotary": 1}, ValueError, r"cos_cache: expected shape \(positions, width\)"),
    ({**TABLE, "position_ids": np.int64([[5]])}, {"do_rotary": 1}, IndexError, "position_ids: expected 0 to 4 for tables of 5 rows, got 5"),
    ({**TABLE, "position_ids": np.int64([[-1]])}, {"do_rotary": 1}, IndexError, "position_ids: expected 0 to 4 for tables of 5 rows, got -1"),
    ({**TABLE, "position_ids": np.int64([1])}, {"do_rotary": 1}, ValueError, r"position_ids: expected shape \(1, 1\), got \(1,\)"),
    ({"attention_bias": np.zeros((1, 1, 1, 4), np.float32)}, {}, ValueError, r"attention_bias: expected shape \(1 or 1, 1 or 1, 1, 5\), got \(1, 1, 1, 4\)"),
    ({"head_sink": np.zeros(2, np.float32)}, {}, ValueError, r"head_sink: expected shape \(1,\), got \(2,\)"),
    ({"q_norm_weight": np.zeros(8, np.float32)}, {}, ValueError, "k_norm_weight: expected both q_norm_weight and k_norm_weight or neither"),
    ({"q_norm_weight": np.zeros(8, np.float32), "k_norm_weight": np.zeros(4, np.float32)}, {}, ValueError, r"k_norm_weight: expected shape \(8,\), got \(4,\)"),
    ({}, {"qk_norm_epsilon": 0}, ValueError, "epsilon: expected a finite number > 0, got 0"),
    ({}, {"local_window_size": 0}, ValueError, r"local_window_size: expected -1 \(no window\) or a number > 0, got 0"),
    ({}, {"local_window_size": 2, "causal": 0}, ValueError, "local_window_size: expected -1 with causal 0, got 2"),
    ({}, {"causal": 2}, ValueError, "causal: expected 0 or 1, got 2"),
    ({}, {"smooth_softmax": 2}, ValueError, "smooth_softmax: expected 0 or 1, got 2"),
    ({}, {"scale": np.inf}, ValueError, "scale: expected a finite number, got inf"),
    ({}, {"softcap": -1.0}, ValueError, "softcap: expected a finite number >= 0, got -1.0"),
    ({}, {"qk_output": 3}, ValueError, "qk_output: expected 0, 1 or 2, got 3"),
    ({}, {"outputs": (0, 3)}, ValueError, "qk_output: expected 1 or 2 with output 3, got 0"),
    ({}, {"outputs": (4,)}, ValueError, "outputs: expected distinct indices"),
    ({"query_seqlens": np.int32([2])}, {}, ValueError, "query_seqlens: expected 0 to 1 where there are 1 rows and seqlens_k is 4, got 2"),
    ({"query_seqlens": np.int32([1])}, {"causal": 0}, ValueError, "query_seqlens: expected causal 1 with it"),
    ({"k_scale": np.float32([1])}, {}, ValueError, "k_scale: expected None for a cache that is not quantized"),
    ({}, {"k_quant_type": "PER_ROW"}, ValueError, "k_quant_type: expected NONE, PER_TENSOR or PER_CHANNEL, got 'PER_ROW'"),
    ({}, {"k_quant_type": "PER_TENSOR"}, ValueError, "v_quant_type: expected a quantization as for keys, PER_TENSOR, got NONE"),
    (CODES, {}, TypeError, "past_key: expected dtype float32 or float16 or bfloat16 without a quantization, got int8"),
    (CODES, {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}, ValueError, "k_scale: expected the scales of a cache with quantization PER_TENSOR"),
    (CODES, {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 4}, TypeError, "expected dtype uint8 for a cache of 4 bits"),
    ({**CODES, "k_scale": np.float32([0]), "v_scale": np.float32([1])}, {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}, ValueError,
     "k_scale: expected finite scales > 0"),
    ({**CODES, "k_scale": np.float32([1, 2]), "v_scale": np.float32([1])}, {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_TENSOR"}, ValueError,
     r"k_scale: expected a shape that broadcasts to \(1, 1, 1, 8\), got \(2,\)"),
    ({}, {"sliding_window_cache": 1}, ValueError, "sliding_window_cache: expected local_window_size > 0"),
    ({}, {"sliding_window_cache": 1, "local_window_size": 5}, ValueError, "sliding_window_cache: expected .* got a window of 5 and 4"),
    ({}, {"threads": 0}, ValueError, "threads: expected 1 to 1024, got 0"),
])
def test_errors(inputs, attributes, error, message):
    with pytest.raises(error, match=f"^group_query_attention: .*{message}"):
        gqa(*positional(BASE | inputs), **{**ONE, **attributes})
