"""com.microsoft Attention and MultiHeadAttention: against the specification in NumPy, against ONNX Runtime, and their rows of faults."""
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import FLOAT_DTYPES, HALF_ULP, assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import float_dtypes, normal, seeds

ATTENTION = ("input", "weights", "bias", "mask_index", "past", "attention_bias", "past_sequence_length")
MULTI = ("query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value", "past_sequence_length", "cache_indirection")
attention, mha = qkernels.contrib.attention, qkernels.multi_head_attention


def mask_of(kind, batch, rows, keys, random):
    """A mask of a kind; also rows of which all or no keys are masked."""
    ends = random.integers(0, keys + 3, batch)
    if kind == "ends":
        return np.int32(ends)
    if kind == "ends and starts":
        return np.int32([*ends, *random.integers(-1, keys + 2, batch)])
    if kind == "sums":
        return np.int32([*ends, *(np.arange(batch + 1) * rows), *(np.arange(batch + 1) * keys)])
    shape = {"keys": (batch, keys), "queries and keys": (batch, rows, keys), "square": (batch, 1, keys + 2, keys + 2)}[kind]
    mask = random.integers(-2, 3, shape) if random.integers(2) else random.integers(0, 2, shape) * random.integers(0, 2, shape[:-1])[..., None]
    return mask.astype(np.int32)


def common(draw, kinds, batch, rows, keys, heads, dtype, seed, runtime):
    """(mask or None, attention_bias or None, attributes)."""
    kind = draw(st.sampled_from([None, *kinds]))
    mask = None if kind is None else mask_of(kind, batch, rows, keys, np.random.default_rng(seed))
    if runtime and kind == "ends and starts":
        mask = np.clip(mask, 0, keys)
    bias = None
    if draw(st.booleans()):
        bias = normal(seed + 5, (draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), rows, keys), dtype)
    attributes = dict(num_heads=heads, unidirectional=draw(st.integers(0, 1)), scale=draw(st.sampled_from([None, 0.3])),
                      mask_filter_value=draw(st.sampled_from([-10000.0, -1.0] if runtime else [-10000.0, -1.0, 2.5])))
    return mask, bias, attributes


@st.composite
def attention_calls(draw, runtime=False):
    seed, dtype = draw(seeds), np.float32 if runtime else draw(float_dtypes)
    batch, rows, heads = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    d, inputs = draw(st.sampled_from([8, 16] if runtime else [1, 4, 8, 17])), draw(st.sampled_from([5, 24]))
    past = draw(st.sampled_from([None, 1, 5] if runtime else [None, 0, 1, 5, 260]))
    dv = d if past is not None or draw(st.booleans()) else draw(st.sampled_from([4, 8]))
    kinds = ["ends", "ends and starts", "sums", "keys", "queries and keys"] + ([] if runtime else ["square"])
    mask, bias, attributes = common(draw, kinds, batch, rows, rows + (past or 0), heads, dtype, seed, runtime)
    columns = heads * (2 * d + dv)
    x = dict(input=normal(seed, (batch, rows, inputs), dtype), weights=normal(seed + 1, (inputs, columns), dtype, inputs**-0.5), mask_index=mask,
             bias=normal(seed + 2, (columns,), dtype) if draw(st.booleans()) else None, attention_bias=None if runtime and past is not None else bias)
    if dv != d or draw(st.booleans()):
        attributes["qkv_hidden_sizes"] = [heads * d, heads * d, heads * dv]
    if past is not None:
        x["past"] = normal(seed + 3, (2, batch, heads, past, d), dtype)
        if not runtime and draw(st.booleans()):
            x["past"] = normal(seed + 3, (2, batch, heads, past + rows + draw(st.integers(0, 3)), d), dtype)
            x["past_sequence_length"] = np.int32([past])
            attributes["past_present_share_buffer"] = 1
    return x, attributes, (0, 1) if d == dv else (0,)


@st.composite
def multi_calls(draw, runtime=False):
    seed, dtype = draw(seeds), np.float32 if runtime else draw(float_dtypes)
    batch, rows, heads = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    d = draw(st.sampled_from([8, 16] if runtime else [1, 4, 8, 17]))
    form = draw(st.sampled_from(["separate", "cached"] if runtime else ["separate", "cached", "qkv", "kv"]))
    keys = rows if form == "qkv" or draw(st.booleans()) else draw(st.integers(1, 9))
    dv = draw(st.sampled_from([d, 4])) if form in ("separate", "cached") else d
    past = draw(st.sampled_from([None, 0, 1, 5, 260])) if form != "cached" else None
    if runtime:
        past, dv = (None if past == 0 else past), d if past or form == "cached" else dv
    total = keys + (past or 0)
    mask, bias, attributes = common(draw, ["ends", "sums", "keys", "queries and keys"], batch, rows, total, heads, dtype, seed, runtime)
    if runtime and rows != keys:
        attributes["unidirectional"] = 0  # there the last query sees all, whatever its position
    f = lambda n, *shape: normal(seed + n, shape, dtype)
    x = dict(key_padding_mask=mask, attention_bias=bias)
    if form == "qkv":
        x["query"] = f(0, batch, rows, heads, 3, d)
    elif form == "kv":
        x |= dict(query=f(0, batch, rows, heads * d), key=f(1, batch, keys, heads, 2, d))
    elif form == "cached":
        x |= dict(query=f(0, batch, rows, heads * d), key=f(1, batch, heads, keys, d), value=f(2, batch, heads, keys, dv))
    else:
        x |= dict(query=f(0, batch, rows, heads * d), key=f(1, batch, keys, heads * d), value=f(2, batch, keys, heads * dv))
    if draw(st.booleans()):
        x["bias"] = f(3, heads * (2 * d + dv))
    if past is not None:
        room = past
        if draw(st.booleans()) and not (runtime and keys != 1):
            room = past + keys + draw(st.integers(0, 3))
            x["past_sequence_length"] = np.int32([past])
            if not runtime and draw(st.booleans()):
                beams = draw(st.sampled_from([b for b in (1, 2, 3) if batch % b == 0]))
                x["cache_indirection"] = np.random.default_rng(seed).integers(0, beams, (batch // beams, beams, room)).astype(np.int32)
        x |= dict(past_key=f(6, batch, heads, room, d), past_value=f(7, batch, heads, room, dv))
    return x, attributes


def tolerance(dtype, x, attributes, projected=False):
    """float32: a few roundings of scores of some units, each worth its own size in the probabilities, and the sums, of values up to about 6; scores round to
    the last place of what is added to them. 16-bit types: the result's rounding; a projection's may tip over, which moves scores and values by an ulp of theirs."""
    mask = abs(attributes["mask_filter_value"]) * 2.0**-22 if x.get("mask_index", x.get("key_padding_mask")) is not None else 0
    return 6 * (5e-6 + mask + (0 if dtype == np.float32 else HALF_ULP[np.dtype(dtype)] * (2 + 24 * projected)))


def assert_near(y, expected, bound):
    assert y.dtype == expected.dtype and y.shape == expected.shape
    np.testing.assert_allclose(np.float64(y), np.float64(expected), rtol=bound, atol=bound)


def run(function, names, x, attributes, outputs, threads=None, **more):
    return function(*map(x.get, names), **attributes, outputs=outputs, threads=threads, **more)


def tuples(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.differential("contrib.attention")
@settings(max_examples=120)
@given(call=attention_calls())
def test_attention_against_the_specification(call):
    x, attributes, outputs = call
    results = tuples(one_result(lambda t: run(attention, ATTENTION, x, attributes, outputs, t), (1, 3)))
    expected = evaluate("com.microsoft", "Attention", [x.get(n) for n in ATTENTION], outputs=2, **attributes)
    dtype = x["input"].dtype
    assert_near(results[0], expected[0], tolerance(dtype, x, attributes, True))
    if len(outputs) > 1:
        assert_near(results[1], expected[1], 6 * (2e-6 if dtype == np.float32 else 2 * HALF_ULP[dtype]))
    packed = x | dict(weights=qkernels.PackedMatrix(x["weights"]))
    for a, e in zip(tuples(run(attention, ATTENTION, packed, attributes, outputs)), results, strict=True):
        assert_equal_bits(a, e)
    if "past" not in x:
        assert_equal_bits(run(attention, ATTENTION, x, attributes, (0,)), results[0])


@settings(max_examples=80)
@given(call=attention_calls(runtime=True))
def test_attention_against_onnx_runtime(call):
    x, attributes, outputs = call
    expected = onnxruntime_node("com.microsoft", "Attention", [x.get(n) for n in ATTENTION], len(outputs), **attributes)
    for a, e in zip(tuples(run(attention, ATTENTION, x, attributes, outputs)), expected, strict=True):
        assert_near(a, e, 2 * tolerance(np.float32, x, attributes))


@pytest.mark.differential("multi_head_attention")
@settings(max_examples=150)
@given(call=multi_calls())
def test_multi_head_attention_against_the_specification(call):
    x, attributes = call
    results = one_result(lambda t: run(mha, MULTI, x, attributes, (0, 1, 2, 3), t), (1, 3))
    expected = evaluate("com.microsoft", "MultiHeadAttention", [x.get(n) for n in MULTI], outputs=4, **attributes)
    dtype = x["query"].dtype
    bound = tolerance(dtype, x, attributes, "bias" in x)
    assert_near(results[0], expected[0], bound)
    for a, e in zip(results[1:3], expected[1:3], strict=True):
        assert_equal_bits(a, e)  # copies, and sums of two numbers, which float64 rounds no other way
    least = np.float64(expected[3]) < -1e38
    assert (results[3][least] == expected[3][least]).all()
    assert_near(np.where(least, 0, results[3]), np.where(least, 0, expected[3]), 4 * bound)
    assert_equal_bits(run(mha, MULTI, x, attributes, (0,)), results[0])
    assert_equal_bits(run(mha, MULTI, x, attributes, (3,)), results[3])


@settings(max_examples=100)
@given(call=multi_calls(runtime=True))
def test_multi_head_attention_against_onnx_runtime(call):
    x, attributes = call
    inputs = [x.get(n) for n in MULTI]
    if "past_sequence_length" in x:
        expected = onnxruntime_node("com.microsoft", "MultiHeadAttention", inputs, 3, in_place={1: 6, 2: 7}, **attributes)
        results = run(mha, MULTI, x, attributes, (0, 1, 2))
    else:
        expected = onnxruntime_node("com.microsoft", "MultiHeadAttention", inputs, 4, dtype=np.float32, **attributes)
        results = run(mha, MULTI, x, attributes, (0, 1, 2, 3))
    for a, e in zip(results, expected, strict=True):
        assert_near(a, e, 4 * tolerance(np.float32, x, attributes))


# ---- one result ----

@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("share", [False, True])
def test_a_past_continues_a_prompt(dtype, share, tier):
    heads, d, n = 2, 16, 300
    mask = np.ones((1, n), np.int32)
    mask[0, [3, 7, 260]] = 0
    x, w, b = normal(0, (1, n, 24), dtype), normal(1, (24, 3 * heads * d), dtype, 0.2), normal(2, (3 * heads * d,), dtype)
    options = dict(num_heads=heads, unidirectional=1, outputs=(0, 1))
    whole, present = attention(x, w, b, mask, **options)
    q, k, v = (normal(i, (1, n, heads * d), dtype) for i in (3, 4, 5))
    expected, keys, values = mha(q, k, v, b, mask, num_heads=heads, unidirectional=1, outputs=(0, 1, 2))
    for cuts in ([256], [1, 2, 250], list(range(43, n, 43))):
        kept, caches, start = (np.zeros((2, 1, heads, n, d), dtype), [np.zeros((1, heads, n, d), dtype) for _ in range(2)], 0) if share else (None, (None, None), 0)
        for end in [*cuts, n]:
            more = dict(past_sequence_length=np.int32([start])) if share else {}
            y, new = attention(x[:, start:end], w, b, mask[:, :end], kept, **more, past_present_share_buffer=int(share), **options,
                               out=(None, kept) if share else None)
            assert (new is kept) == share
            assert_equal_bits(y, whole[:, start:end])
            z, *grown = mha(q[:, start:end], k[:, start:end], v[:, start:end], b, mask[:, :end], None, *caches, **more, num_heads=heads, unidirectional=1,
                            outputs=(0, 1, 2), out=(None, *caches) if share else None)
            assert all((a is c) == share for a, c in zip(grown, caches, strict=True))
            assert_equal_bits(z, expected[:, start:end])
            kept, caches, start = new, grown, end
        assert_equal_bits(kept, present)
        for a, e in zip(caches, (keys, values), strict=True):
            assert_equal_bits(a, e)


def test_the_same_bits_as_each_other_and_as_attention(tier):
    heads, d, n, past = 3, 8, 5, 4
    x, w, b = normal(0, (2, n, 20)), normal(1, (20, 3 * heads * d)), normal(2, (3 * heads * d,))
    old = normal(3, (2, 2, heads, past, d))
    q, k, v = np.split(qkernels.matmul(x, w), 3, -1)
    y, present = attention(x, w, b, None, old, num_heads=heads, unidirectional=1, outputs=(0, 1))
    expected = qkernels.attention(*(qkernels.add(a, c) for a, c in zip((q, k, v), np.split(b, 3), strict=True)), None, *old, is_causal=1, q_num_heads=heads,
                                  kv_num_heads=heads, outputs=(0, 1, 2))
    for a, e in zip((y, *present), expected, strict=True):
        assert_equal_bits(a, e)
    for a, e in zip(mha(q, k, v, b, None, None, *old, num_heads=heads, unidirectional=1, outputs=(0, 1, 2)), expected, strict=True):
        assert_equal_bits(a, e)
    side_by_side = np.stack([a.reshape(2, n, heads, d) for a in (q, k, v)], 3)
    assert_equal_bits(mha(side_by_side, None, None, b, None, None, *old, num_heads=heads, unidirectional=1), y)
    assert_equal_bits(mha(q, side_by_side[:, :, :, 1:], None, b, None, None, *old, num_heads=heads, unidirectional=1), y)


# ---- cases ----

def by_attention(rows, mask, bias=None, **options):
    """Queries and keys of 0, values 1, 2, …: each row's result."""
    x = np.arange(1, rows + 1, dtype=np.float32).reshape(1, rows, 1)
    return attention(x, np.float32([[0, 0, 1]]), None, mask, None, bias, num_heads=1, **options).ravel().tolist()


def by_multi(rows, mask, bias=None, **options):
    x = np.arange(1, rows + 1, dtype=np.float32).reshape(1, rows, 1)
    return mha(0 * x, 0 * x, x, None, mask, bias, num_heads=1, **options).ravel().tolist()


BOTH = pytest.mark.parametrize("q", [by_attention, by_multi])


@BOTH
def test_B38_padding_and_direction(q, tier):
    """The future never leaks, whatever is padded; a query whose own keys are all padded attends to them."""
    assert q(2, np.int32([[1, 0]]), unidirectional=1) == [1, 1]
    assert q(2, np.int32([[0, 1]]), unidirectional=1) == [1, 2]  # not 1.5: the first query sees the first key alone
    assert q(2, np.int32([[0, 0]]), unidirectional=1) == [1, 1.5]
    assert q(2, np.int32([1]), unidirectional=1) == [1, 1]
    assert q(2, np.int32([[[1, 0], [0, 1]]])) == [1, 2]
    assert q(2, np.int32([[[0, 1], [1, 0]]]), unidirectional=1) == [1, 1]
    assert q(2, np.int32([[0, 1]]), np.zeros((1, 1, 2, 2), np.float32), unidirectional=1) == [1, 2]
    assert q(2, np.int32([1, 0, 2, 0, 2]), unidirectional=1) == [1, 1]  # lengths and sums
    for filter_value in (-10000.0, -1e30, float(np.finfo(np.float32).min)):
        assert q(3, np.int32([[0, 1, 1]]), unidirectional=1, mask_filter_value=filter_value) == [1, 2, 2.5]


def test_B38_starts_and_squares(tier):
    assert by_attention(2, np.int32([2, 1])) == [2, 2]  # an end, then a start: padded on the left
    assert by_attention(2, np.int32([2, 1]), unidirectional=1) == [1, 2]
    square = np.ones((1, 1, 4, 4), np.int32)
    square[0, 0, 1, 0] = 0
    assert by_attention(2, square) == [1.5, 2]
    assert by_attention(2, square, unidirectional=1) == [1, 2]
    with pytest.raises(ValueError, match=r"key_padding_mask: expected shape \(1,\), \(5,\), \(1, 2\) or \(1, 2, 2\), got \(1, 1, 4, 4\)"):
        by_multi(2, square)


@BOTH
def test_B29_a_row_without_a_visible_key(q, tier):
    assert q(2, np.int32([[0, 0]])) == [1.5, 1.5]  # a finite value hides all alike: a plain softmax
    assert q(2, np.int32([0])) == [1.5, 1.5]
    assert q(2, np.int32([[0, 0]]), mask_filter_value=-np.inf) == [0, 0]
    assert q(2, np.int32([[0, 1]]), mask_filter_value=-np.inf, unidirectional=1) == [0, 2]
    hidden = np.float32([[[[-np.inf, -np.inf], [0, 0]]]])
    assert q(2, None, hidden) == [0, 1.5]
    assert q(2, np.int32([[1, 0]]), hidden) == [0, 1]
    y = q(2, None, np.float32([[[[np.nan, 0], [0, 0]]]]))
    assert np.isnan(y[0]) and y[1] == 1.5


def test_B25_the_bias_decides_after_the_scale(tier):
    """Neither operator has a soft cap; what is added is added to the scaled score, and -inf hides."""
    one = np.ones((1, 1, 1), np.float32)
    bias = np.float32([np.log(3), 0]).reshape(1, 1, 1, 2)
    y = mha(one, np.zeros((1, 2, 1), np.float32), np.float32([[[4], [8]]]), None, None, bias, num_heads=1, scale=7.0)
    assert y.item() == pytest.approx(5, rel=1e-6)
    assert by_multi(2, None, np.float32([[[[0, -np.inf]] * 2]])) == [1, 1]


def test_B27_direction_is_anchored_at_the_past(tier):
    q, v = np.zeros((1, 1, 1), np.float32), np.float32([10, 20, 60]).reshape(1, 3, 1)
    assert mha(q, v * 0, v, num_heads=1, unidirectional=1).item() == 10
    past = np.float32([10, 20]).reshape(1, 1, 2, 1)
    assert mha(q, q, v[:, 2:], None, None, None, past * 0, past, num_heads=1, unidirectional=1).item() == 30
    two = np.concatenate([q, q], 1)
    assert mha(two, v * 0, v, num_heads=1, unidirectional=1).ravel().tolist() == [10, 15]


def test_B32_present_without_past(tier):
    x, w = normal(0, (1, 3, 8)), normal(1, (8, 24))
    y, present = attention(x, w, num_heads=2, outputs=(0, 1))
    again, same = attention(x, w, None, None, np.zeros((2, 1, 2, 0, 4), np.float32), num_heads=2, outputs=(0, 1))
    assert_equal_bits(again, y)
    assert_equal_bits(same, present)
    q = normal(2, (1, 3, 8))
    results, empty = mha(q, q, q, num_heads=2, outputs=(0, 1, 2)), np.zeros((1, 2, 0, 4), np.float32)
    for a, e in zip(mha(q, q, q, None, None, None, empty, empty, num_heads=2, outputs=(0, 1, 2)), results, strict=True):
        assert_equal_bits(a, e)
    assert_equal_bits(results[1], q.reshape(1, 3, 2, 4).transpose(0, 2, 1, 3))
    assert_equal_bits(mha(q, results[1], results[2], num_heads=2), results[0])
    with pytest.raises(ValueError, match="past_value: expected both past_key and past_value or neither"):
        mha(q, q, q, None, None, None, empty, num_heads=2)
    with pytest.raises(ValueError, match=r"outputs: expected present \(1\) among them with a past"):
        attention(x, w, None, None, np.zeros((2, 1, 2, 0, 4), np.float32), num_heads=2)


def test_B33_lengths_of_buffers_are_checked(tier):
    past, q = np.zeros((1, 1, 8, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    call = lambda n, q=q: mha(q, q, q, None, None, None, past, past, np.int32(n), num_heads=1, outputs=(0, 1, 2))
    for bad in (-1, 8):
        with pytest.raises(ValueError, match=f"past_sequence_length: expected 0 to 7 for 1 new tokens in a buffer of 8, got {bad}"):
            call([bad])
    assert call([7])[1].shape == (1, 1, 8, 1)
    assert_equal_bits(call([3])[0], call(3)[0])
    with pytest.raises(ValueError, match=r"past_sequence_length: expected one number, got shape \(2,\)"):
        call([1, 2])
    with pytest.raises(ValueError, match="past_key: expected room for the 9 new tokens"):
        call([0], np.zeros((1, 9, 1), np.float32))
    with pytest.raises(ValueError, match="past_sequence_length: expected 0 to 7 for 1 new tokens in a buffer of 8, got 8"):
        attention(q, np.zeros((1, 3), np.float32), None, None, np.zeros((2, 1, 1, 8, 1), np.float32), None, np.int32([8]), num_heads=1, past_present_share_buffer=1,
                  outputs=(0, 1))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_lies_beyond_the_end_or_the_direction_does_not_leak(value, tier):
    past, x = normal(0, (1, 1, 300, 8)), normal(1, (1, 3, 8))
    for old in (5, 256, 290):
        dirty = past.copy()
        dirty[:, :, old:] = value
        call = lambda c, old=old: mha(x, x, x, None, None, None, c, c, np.int32([old]), num_heads=1, unidirectional=1)
        assert_equal_bits(call(dirty), call(past))
    dirty = x.copy()
    dirty[:, 2] = value
    assert_equal_bits(mha(x, dirty, dirty, num_heads=1, unidirectional=1)[:, :2], mha(x, x, x, num_heads=1, unidirectional=1)[:, :2])


def test_where_onnx_runtime_differs(tier):
    """Where there are more keys than queries and a direction, the last query sees all keys there; here what a query sees does not depend on how many come with
    it. A row of -inf is NaN there, and 0 here."""
    q, v = np.zeros((1, 2, 16), np.float32), np.ones((1, 3, 16), np.float32) * np.float32([[[10], [20], [60]]])
    for n in (1, 2):
        runtime = onnxruntime_node("com.microsoft", "MultiHeadAttention", [q[:, :n], v * 0, v], num_heads=1, unidirectional=1)[0]
        assert runtime[0, :, 0].tolist() == [10, 30][2 - n:]
        assert mha(q[:, :n], v * 0, v, num_heads=1, unidirectional=1)[0, :, 0].tolist() == [10, 15][:n]
    q = q[:, :1]
    mask = np.zeros((1, 3), np.int32)
    runtime = onnxruntime_node("com.microsoft", "MultiHeadAttention", [q, v * 0, v, None, mask], num_heads=1, mask_filter_value=-np.inf)[0]
    assert np.isnan(runtime).all() and not mha(q, v * 0, v, None, mask, num_heads=1, mask_filter_value=-np.inf).any()


def test_beams_against_onnx_runtime():
    """What its operator of decoders does with the table of beams."""
    heads, d, beams, past = 2, 16, 2, 5
    q = normal(0, (4, 1, heads * d))
    caches = [normal(i, (4, heads, 8, d)) for i in (1, 2)]
    table = np.random.default_rng(3).integers(0, beams, (2, beams, 8)).astype(np.int32)
    expected = onnxruntime_node("com.microsoft", "DecoderMaskedMultiHeadAttention",
                                [q, q, q, None, None, *caches, np.int32([past]), np.int32([beams]), table], 3, in_place={1: 5, 2: 6}, num_heads=heads,
                                past_present_share_buffer=1)
    for a, e in zip(mha(q, q, q, None, None, None, *caches, np.int32([past]), table, num_heads=heads, outputs=(0, 1, 2)), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


# ---- arrays ----

@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype):
    arrays = dict(input=normal(0, (2, 3, 12), dtype), weights=normal(1, (12, 24), dtype), bias=normal(2, (24,), dtype), past=normal(3, (2, 2, 2, 4, 4), dtype),
                  attention_bias=normal(4, (2, 2, 3, 7), dtype), mask_index=np.random.default_rng(5).integers(0, 2, (2, 3, 7)).astype(np.int32))
    options = dict(num_heads=2, outputs=(0, 1))
    expected = attention(*map(arrays.get, ATTENTION), **options)
    for forms in zip(*map(layouts, arrays.values()), strict=False):
        x = {name: a for name, (_, a) in zip(arrays, forms, strict=True)}
        for a, e in zip(attention(*map(x.get, ATTENTION), **options), expected, strict=True):
            assert_equal_bits(a, e, forms[0][0])
    arrays = dict(query=normal(0, (2, 3, 8), dtype), key=normal(1, (2, 5, 8), dtype), value=normal(2, (2, 5, 12), dtype), bias=normal(3, (28,), dtype),
                  past_key=normal(4, (2, 2, 4, 4), dtype), past_value=normal(5, (2, 2, 4, 6), dtype), attention_bias=normal(6, (1, 2, 3, 9), dtype),
                  key_padding_mask=np.random.default_rng(5).integers(0, 2, (2, 9)).astype(np.int32))
    options = dict(num_heads=2, outputs=(0, 1, 2, 3))
    expected = mha(*map(arrays.get, MULTI), **options)
    for forms in zip(*map(layouts, arrays.values()), strict=False):
        x = {name: a for name, (_, a) in zip(arrays, forms, strict=True)}
        for a, e in zip(mha(*map(x.get, MULTI), **options), expected, strict=True):
            assert_equal_bits(a, e, forms[0][0])


def test_empty_shapes(tier):
    for batch, rows, past, inputs in itertools.product([0, 2], [0, 3], [None, 0, 2], [0, 4]):
        old = None if past is None else normal(0, (2, batch, 2, past, 4))
        y, present = attention(np.zeros((batch, rows, inputs), np.float32), np.zeros((inputs, 24), np.float32), None, None, old, num_heads=2, outputs=(0, 1))
        assert y.shape == (batch, rows, 8) and present.shape == (2, batch, 2, rows + (past or 0), 4)
        assert past or not y.any()
        for keys in (0, 2):
            q, k = np.zeros((batch, rows, 8), np.float32), np.zeros((batch, keys, 8), np.float32)
            z, a, b, s = mha(q, k, k, None, None, None, *((None, None) if old is None else old), num_heads=2, outputs=(0, 1, 2, 3))
            total = keys + (past or 0)
            assert z.shape == (batch, rows, 8) and a.shape == b.shape == (batch, 2, total, 4) and s.shape == (batch, 2, rows, total)
            assert total or not z.any()


def test_out(tier):
    x, w, past = normal(0, (1, 2, 8)), normal(1, (8, 24)), normal(2, (2, 1, 2, 5, 4))
    expected = attention(x, w, None, None, past, num_heads=2, outputs=(0, 1))
    y, present = np.empty((1, 2, 8), np.float32), np.empty((2, 1, 2, 7, 4), np.float32)
    results = attention(x, w, None, None, past, num_heads=2, outputs=(1, 0), out=(present, y))
    assert results[0] is present and results[1] is y
    assert_equal_bits(y, expected[0])
    assert_equal_bits(present, expected[1])
    q, buffers = normal(3, (1, 1, 8)), [normal(i, (1, 2, 5, 4)) for i in (4, 5)]
    before = [b.copy() for b in buffers]
    expected = mha(q, q, q, None, None, None, *buffers, np.int32([2]), num_heads=2, outputs=(0, 1, 2))
    for a, b in zip(buffers, before, strict=True):
        assert_equal_bits(a, b)
    z, k, v = mha(q, q, q, None, None, None, *buffers, np.int32([2]), num_heads=2, outputs=(0, 1, 2), out=(None, *buffers))
    assert k is buffers[0] and v is buffers[1]
    for a, e in zip((z, k, v), expected, strict=True):
        assert_equal_bits(a, e)
    for out, message in (((None, buffers[1], None), "out: present_key: overlaps past_value"), ((q, None, None), "out: overlaps query"),
                         ((None, buffers[0][:, :, ::-1], None), "out: present_key: expected an aligned C-contiguous array"), ((None, None), "out: expected a tuple")):
        with pytest.raises(ValueError, match=f"multi_head_attention: {message}"):
            mha(q, q, q, None, None, None, *buffers, np.int32([2]), num_heads=2, outputs=(0, 1, 2), out=out)
    with pytest.raises(ValueError, match="contrib.attention: out: overlaps input"):
        attention(x, w, num_heads=2, out=x)
    with pytest.raises(ValueError, match="contrib.attention: out: present: overlaps past without being the same array"):
        buffer = np.zeros((3, 1, 2, 5, 4), np.float32)
        attention(x, w, None, None, buffer[:2], None, np.int32([0]), num_heads=2, past_present_share_buffer=1, outputs=(0, 1), out=(None, buffer[1:]))


# ---- errors ----

def attention_problem():
    return dict(input=normal(0, (2, 3, 8)), weights=normal(1, (8, 24)), bias=normal(2, (24,))), dict(num_heads=2)


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(input=np.zeros((2, 3, 8))), TypeError, "input: expected dtype float32 or float16 or bfloat16, got float64"),
    (dict(input=np.zeros((3, 8), np.float32)), ValueError, r"input: expected shape \(batch, sequence, 8\) for these weights, got \(3, 8\)"),
    (dict(input=np.zeros((2, 3, 7), np.float32)), ValueError, r"input: expected shape \(batch, sequence, 8\) for these weights, got \(2, 3, 7\)"),
    (dict(weights=np.zeros((8, 24), np.float16)), TypeError, "weights: expected dtype float32, got float16"),
    (dict(weights=qkernels.PackedMatrix(np.zeros((8, 24), np.float16))), TypeError, "weights: expected dtype float32, got float16"),
    (dict(weights=np.zeros(8, np.float32)), ValueError, r"weights: expected 2 dimensions, got shape \(8,\)"),
    (dict(weights=np.zeros((8, 25), np.float32)), ValueError, r"weights: expected 3 \* hidden columns divisible by num_heads 2, got 25"),
    (dict(weights=np.zeros((8, 9), np.float32)), ValueError, r"weights: expected 3 \* hidden columns divisible by num_heads 2, got 9"),
    (dict(bias=np.zeros(23, np.float32)), ValueError, r"bias: expected shape \(24,\), got \(23,\)"),
    (dict(mask_index=np.zeros((2, 4), np.int32)), ValueError, r"mask_index: expected shape \(2,\), \(4,\), \(8,\), \(2, 3\), \(2, 3, 3\) or "
                                                              r"\(2, 1, n, n\) of n >= 3, got \(2, 4\)"),
    (dict(mask_index=np.zeros((2, 1, 2, 2), np.int32)), ValueError, "mask_index: expected shape"),
    (dict(mask_index=np.zeros((2, 1), np.int32)), ValueError, "mask_index: expected shape"),
    (dict(mask_index=np.int32([1, -2])), ValueError, "mask_index: expected end positions >= 0, got -2"),
    (dict(mask_index=np.int32([1, 2, 1, 3, 6, 0, 3, 6])), ValueError, "mask_index: expected sums that begin with 0"),
    (dict(mask_index=np.zeros((2, 3), np.float32)), TypeError, "mask_index: expected an integer dtype, got float32"),
    (dict(past=np.zeros((2, 2, 2, 1, 5), np.float32)), ValueError, r"past: expected shape \(2, 2, 2, past, 4\), got \(2, 2, 2, 1, 5\)"),
    (dict(past=np.zeros((2, 2, 2, 1, 4), np.float16)), TypeError, "past: expected dtype float32, got float16"),
    (dict(attention_bias=np.zeros((2, 2, 3, 4), np.float32)), ValueError, r"attention_bias: expected shape \(2 or 1, 2 or 1, 3, 3\), got \(2, 2, 3, 4\)"),
    (dict(past_sequence_length=np.int32([1])), ValueError, "past_sequence_length: expected it and a past with past_present_share_buffer 1, and only then"),
])
def test_errors_of_attention_inputs(change, error, match):
    x, attributes = attention_problem()
    with pytest.raises(error, match=f"contrib.attention: {match}"):
        run(attention, ATTENTION, x | change, attributes, (0, 1))


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(num_heads=0), ValueError, "num_heads: expected a number > 0, got 0"),
    (dict(num_heads=2.0), TypeError, "num_heads: expected an int, got float"),
    (dict(do_rotary=1), ValueError, "do_rotary: expected 0, since no reference defines the rotation, got 1"),
    (dict(rotary_embedding_dim=32), ValueError, "rotary_embedding_dim: expected 0, since no reference defines the rotation, got 32"),
    (dict(past_present_share_buffer=1), ValueError, "past_sequence_length: expected it and a past"),
    (dict(past_present_share_buffer=2), ValueError, "past_present_share_buffer: expected 0 or 1, got 2"),
    (dict(unidirectional=2), ValueError, "unidirectional: expected 0 or 1, got 2"),
    (dict(qkv_hidden_sizes=[8, 8]), ValueError, r"qkv_hidden_sizes: expected three numbers, the first two the same, got \[8, 8\]"),
    (dict(qkv_hidden_sizes=[8, 6, 10]), ValueError, "qkv_hidden_sizes: expected three numbers, the first two the same"),
    (dict(qkv_hidden_sizes=[8, 8, 6]), ValueError, "weights: expected the 22 columns of qkv_hidden_sizes, each divisible by num_heads 2, got 24"),
    (dict(scale=np.inf), ValueError, "scale: expected a finite number, got inf"),
    (dict(mask_filter_value=np.nan), ValueError, "mask_filter_value: expected a number, got nan"),
    (dict(out=np.empty((2, 3, 7), np.float32)), ValueError, r"out: expected shape \(2, 3, 8\), got \(2, 3, 7\)"),
])
def test_errors_of_attention_attributes(change, error, match):
    x, attributes = attention_problem()
    with pytest.raises(error, match=f"contrib.attention: {match}"):
        run(attention, ATTENTION, x, attributes | change, (0,))


def test_values_of_another_size_have_no_present():
    x, w = normal(0, (1, 2, 8)), normal(1, (8, 20))
    assert attention(x, w, num_heads=2, qkv_hidden_sizes=[8, 8, 4]).shape == (1, 2, 4)
    with pytest.raises(ValueError, match=r"outputs: expected no past and no present \(1\) where heads of queries have 4 elements and those of values 2"):
        attention(x, w, num_heads=2, qkv_hidden_sizes=[8, 8, 4], outputs=(0, 1))


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(query=np.zeros((2, 3, 8))), TypeError, "query: expected dtype float32 or float16 or bfloat16, got float64"),
    (dict(query=np.zeros((2, 3, 7), np.float32)), ValueError, r"query: expected 3 dimensions, the last divisible by num_heads 2, got shape \(2, 3, 7\)"),
    (dict(key=None, value=None), ValueError, r"query: expected shape \(batch, sequence, 2, 3, head_size\) without key, got \(2, 3, 8\)"),
    (dict(key=None), ValueError, r"value: expected None with a query of shape \(2, 3, 8\)"),
    (dict(query=np.zeros((2, 3, 2, 3, 4), np.float32)), ValueError, "key: expected None with a query of shape"),
    (dict(key=np.zeros((2, 5, 6), np.float32)), ValueError, "key: expected batch 2, 2 heads and head size 4, got shape"),
    (dict(key=np.zeros((2, 5, 8), np.float16)), TypeError, "key: expected dtype float32, got float16"),
    (dict(key=np.zeros((2, 5, 2, 2, 4), np.float32)), ValueError, "value: expected None with a key of shape"),
    (dict(key=np.zeros((2, 5, 2, 2, 3), np.float32), value=None), ValueError, r"key: expected shape \(2, keys, 2, 2, 4\), got \(2, 5, 2, 2, 3\)"),
    (dict(key=np.zeros((2, 2, 5, 4), np.float32)), ValueError, r"value: expected as many dimensions as key of shape \(2, 2, 5, 4\) has"),
    (dict(value=None), TypeError, "value: expected an array, got None"),
    (dict(value=np.zeros((2, 4, 8), np.float32)), ValueError, "value: expected batch 2, 2 heads and 5 keys, got shape"),
    (dict(bias=np.zeros(25, np.float32)), ValueError, r"bias: expected shape \(24,\), got \(25,\)"),
    (dict(key_padding_mask=np.ones((2, 3), np.int32)), ValueError, r"key_padding_mask: expected shape \(2,\), \(8,\), \(2, 5\) or \(2, 3, 5\), got \(2, 3\)"),
    (dict(key_padding_mask=np.ones(4, np.int32)), ValueError, "key_padding_mask: expected shape"),
    (dict(attention_bias=np.zeros((2, 2, 3, 4), np.float32)), ValueError, r"attention_bias: expected shape \(2 or 1, 2 or 1, 3, 5\), got \(2, 2, 3, 4\)"),
    (dict(past_key=np.zeros((2, 2, 1, 4), np.float32)), ValueError, "past_value: expected both past_key and past_value or neither"),
    (dict(past_key=np.zeros((2, 2, 1, 3), np.float32), past_value=np.zeros((2, 2, 1, 4), np.float32)), ValueError,
     r"past_key: expected shape \(2, 2, 1, 4\), got \(2, 2, 1, 3\)"),
    (dict(past_sequence_length=np.int32([0])), ValueError, "past_sequence_length: expected past_key and past_value with it"),
    (dict(cache_indirection=np.zeros((1, 2, 4), np.int32)), ValueError, "cache_indirection: expected past_sequence_length with it"),
])
def test_errors_of_multi_head_inputs(change, error, match):
    x = dict(query=normal(0, (2, 3, 8)), key=normal(1, (2, 5, 8)), value=normal(2, (2, 5, 8)))
    with pytest.raises(error, match=f"multi_head_attention: {match}"):
        run(mha, MULTI, x | change, dict(num_heads=2), (0,))


def test_errors_of_caches():
    q, cache = normal(0, (2, 1, 8)), np.zeros((2, 2, 6, 4), np.float32)
    with pytest.raises(ValueError, match=r"past_key: expected None with a key of shape \(2, 2, 6, 4\), which has all keys"):
        mha(q, cache, cache, None, None, None, cache, cache, num_heads=2)
    with pytest.raises(IndexError, match="cache_indirection: expected 0 to 1, got 0 to 2"):
        mha(q, q, q, None, None, None, cache, cache, np.int32([2]), np.int32([[[0, 1, 0], [2, 0, 0]]]), num_heads=2)
    with pytest.raises(ValueError, match=r"cache_indirection: expected past_sequence_length with it and shape \(n, beams, at least 4\) of n \* beams = 2"):
        mha(q, q, q, None, None, None, cache, cache, np.int32([4]), np.zeros((1, 2, 3), np.int32), num_heads=2)
    for change, error, match in ((dict(unidirectional=2), ValueError, "unidirectional: expected 0 or 1, got 2"), (dict(outputs=(4,)), ValueError, "outputs:"),
                                 (dict(num_heads=3), ValueError, "query: expected 3 dimensions"), (dict(threads=0), ValueError, "threads:")):
        with pytest.raises(error, match=f"multi_head_attention: {match}"):
            mha(q, q, q, **(dict(num_heads=2) | change))
