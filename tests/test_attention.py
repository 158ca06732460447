"""Attention on arrays, and the fused call with a cache."""
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, normal, seeds

ALL_THREADS = (1, 2, 3, 5)
# keys around a vector, a piece and several pieces
key_counts = st.one_of(st.integers(1, 40), st.sampled_from([255, 256, 257, 511, 513, 600]))
head_sizes = st.one_of(st.integers(1, 40), st.sampled_from([64, 80, 96, 127, 128, 129, 130, 256]))


def exact(q, k, v, *, visible=None, mask=None, scale=None, softcap=0.0):
    """float64 (batch, heads, rows, dv), and the scale of its error: what |p| |v| and the scores' size allow."""
    q, k, v = np.float64(q), np.float64(k), np.float64(v)
    group, d = q.shape[1] // k.shape[1], q.shape[3]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = float(np.float32(d**-0.5)) if scale is None else scale
    s = q @ k.swapaxes(2, 3) * scale
    size = np.abs(q) @ np.abs(k).swapaxes(2, 3) * scale
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    if s.shape[3] == 0:
        return np.zeros((*q.shape[:3], v.shape[3])), 0.0
    top = s.max(-1, keepdims=True)
    p = np.where(np.isfinite(s), np.exp(s - np.where(np.isfinite(top), top, 0)), 0)
    total = p.sum(-1, keepdims=True)
    p = np.divide(p, total, out=np.zeros_like(p), where=total > 0)
    # A score of d products in 16 lanes is off by at most (d / 16 + 5) roundings of its absolute terms, and by 8 more of itself through scale,
    # cap and exp's argument; that moves p relatively by as much, times 2 through the quotient. Sums over the keys: 16 lanes and one chain per piece.
    keys, u = s.shape[3], 2.0**-24
    relative = 2 * (d / 16 + 13) * u * max(float(size.max()), 1.0) + (min(keys, 256) + keys / 256 * 4 + 10) * u
    return p @ v, relative * (p @ np.abs(v))


def causal(rows, keys, past=0):
    return np.arange(keys) <= np.arange(rows)[:, None] + past


def assert_near(y, expected, dtype=np.float32):
    value, error = expected
    error = error + HALF_ULP[np.dtype(dtype)] * np.abs(value) + 1e-30 + (2.0**-25 if dtype == np.float16 else 0)
    assert y.dtype == dtype and y.shape == value.shape
    assert (np.abs(np.float64(y) - value) <= error).all(), float((np.abs(np.float64(y) - value) / error).max())


def draw(seed, batch, heads, kv_heads, rows, keys, d, dv, dtype=np.float32):
    return (normal(seed, (batch, heads, rows, d), dtype), normal(seed + 1, (batch, kv_heads, keys, d), dtype),
            normal(seed + 2, (batch, kv_heads, keys, dv), dtype))


@pytest.mark.differential("attention")
@given(seed=seeds, dtype=float_dtypes, batch=st.integers(1, 2), kv_heads=st.integers(1, 2), group=st.integers(1, 5), rows=st.integers(1, 9), keys=key_counts,
       d=head_sizes, dv=head_sizes, is_causal=st.booleans(), softcap=st.sampled_from([0.0, 0.0, 0.5, 30.0]),
       kind=st.sampled_from([None, None, "bool", "float"]))
def test_against_exact_and_tiers(seed, dtype, batch, kv_heads, group, rows, keys, d, dv, is_causal, softcap, kind):
    q, k, v = draw(seed, batch, kv_heads * group, kv_heads, rows, keys, d, dv, dtype)
    mask = None if kind is None else normal(seed + 3, (rows, keys)) if kind == "float" else normal(seed + 3, (batch, 1, rows, keys)) > -0.5
    y = one_result(lambda t: qkernels.attention(q, k, v, mask, is_causal=int(is_causal), softcap=softcap, threads=t), ALL_THREADS)
    assert_near(y, exact(q, k, v, visible=causal(rows, keys) if is_causal else None, mask=mask, softcap=softcap), dtype)


@pytest.mark.parametrize("d", [1, 2, 7, 15, 16, 17, 33, 64, 96, 100, 128, 130, 256])
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_head_sizes(d, dtype):
    q, k, v = draw(d, 1, 6, 2, 40, 290, d, d + 3, dtype)  # 120 rows a kv head: the path of blocks, and with three threads that of pieces
    y = one_result(lambda t: qkernels.attention(q, k, v, is_causal=1, threads=t), (1, 3))
    assert_near(y, exact(q, k, v, visible=causal(40, 290)), dtype)


def reference(version, feeds, **attributes):
    names = ["q", "k", "v", "attn_mask", "past_key", "past_value"]
    node = helper.make_node("Attention", [n if feeds.get(n) is not None else "" for n in names], ["y", "pk", "pv"], **attributes)
    types = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(bool): onnx.TensorProto.BOOL}
    feeds = {n: x for n, x in feeds.items() if x is not None}
    inputs = [helper.make_tensor_value_info(n, types[x.dtype], None) for n, x in feeds.items()]
    outputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("y", "pk", "pv")]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", version)])
    return ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.differential("attention")
@given(seed=seeds, three=st.booleans(), batch=st.integers(1, 3), kv_heads=st.integers(1, 3), group=st.integers(1, 3), rows=st.integers(1, 5),
       new=st.integers(1, 20), past=st.sampled_from([None, 0, 1, 17, 260]), d=st.integers(1, 20), dv=st.integers(1, 20), is_causal=st.integers(0, 1),
       softcap=st.sampled_from([0.0, 2.0]), scale=st.sampled_from([None, 0.3]), kind=st.sampled_from([None, "bool", "float"]), data=st.data())
def test_against_onnx_reference(seed, three, batch, kv_heads, group, rows, new, past, d, dv, is_causal, softcap, scale, kind, data):
    # onnx 1.23.2: causal is anchored at the past, heads are grouped, hidden rows are zero. Its soft cap of 0 divides, so it is not passed.
    q, k, v = draw(seed, batch, kv_heads * group, kv_heads, rows, new, d, dv)
    attributes = dict(is_causal=is_causal)
    if softcap:
        attributes["softcap"] = softcap
    if scale is not None:
        attributes["scale"] = scale
    keys = new + (past or 0)
    feeds = dict(past_key=None, past_value=None, attn_mask=None)
    if past is not None:
        feeds.update(past_key=normal(seed + 3, (batch, kv_heads, past, d)), past_value=normal(seed + 4, (batch, kv_heads, past, dv)))
    if kind:
        full = [batch, kv_heads * group, rows, keys]
        rank = data.draw(st.integers(1, 4))
        shape = [n if i == rank - 1 or data.draw(st.booleans()) else 1 for i, n in enumerate(full[4 - rank:])]
        feeds["attn_mask"] = normal(seed + 5, shape) if kind == "float" else normal(seed + 5, shape) > 0
    if three:
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attributes.update(q_num_heads=kv_heads * group, kv_num_heads=kv_heads)
    # nor does it broadcast: with is_causal it takes the frontier's shape from the mask's last two dimensions
    masked = feeds | dict(attn_mask=np.array(np.broadcast_to(feeds["attn_mask"], full)) if kind else None)
    expected = reference(23, dict(q=q, k=k, v=v, **masked), **attributes)
    y, pk, pv = one_result(lambda t: qkernels.attention(q, k, v, **feeds, **attributes, outputs=(0, 1, 2), threads=t))
    np.testing.assert_allclose(y, expected[0], rtol=2e-5, atol=2e-5)  # the reference multiplies by the root of scale twice, in float32
    assert_equal_bits(pk, expected[1])
    assert_equal_bits(pv, expected[2])


@pytest.mark.differential("attention")
@settings(max_examples=120)
@given(seed=seeds, batch=st.integers(1, 3), kv_heads=st.integers(1, 2), group=st.integers(1, 3), rows=st.integers(1, 40), keys=key_counts,
       past=st.sampled_from([None, 3, 260]), padded=st.booleans(), left=st.sampled_from([-1, 0, 2, 17, 300]), right=st.sampled_from([-1, 0, 3]),
       is_causal=st.integers(0, 1), softcap=st.sampled_from([0.0, 2.0]), kind=st.sampled_from([None, "bool", "float", "short"]), mode=st.integers(0, 3))
def test_windows_lengths_and_scores_against_onnx_reference(seed, batch, kv_heads, group, rows, keys, past, padded, left, right, is_causal, softcap, kind, mode):
    past = None if padded else past
    q, k, v = draw(seed, batch, kv_heads * group, kv_heads, rows, keys, 16, 12)
    total = keys + (past or 0)
    attributes = dict(is_causal=is_causal, left_window_size=left, right_window_size=right, qk_matmul_output_mode=mode)
    if softcap:
        attributes["softcap"] = softcap
    inputs = dict(attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None)
    if past is not None:
        inputs |= dict(past_key=normal(seed + 3, (batch, kv_heads, past, 16)), past_value=normal(seed + 4, (batch, kv_heads, past, 12)))
    if padded:
        inputs["nonpad_kv_seqlen"] = np.random.default_rng(seed).integers(0, keys + 1, batch)
    if kind is not None:
        last = total if kind != "short" else int(inputs["nonpad_kv_seqlen"].max()) if padded else max(1, total - 2)
        mask = normal(seed + 5, (batch, kv_heads * group, rows, max(last, 1)))
        inputs["attn_mask"] = mask if kind == "float" else mask > -0.5
    y, scores = one_result(lambda t: qkernels.attention(q, k, v, *inputs.values(), **attributes, outputs=(0, 3), threads=t), (1, 3))
    expected = evaluate("", "Attention", [q, k, v, *inputs.values()], outputs=4, opset=25, **attributes)
    np.testing.assert_allclose(y, expected[0], rtol=2e-5, atol=2e-5)
    if mode == 0 and softcap:  # onnx 1.23.2 caps the raw scores too
        expected = evaluate("", "Attention", [q, k, v, *inputs.values()], outputs=4, opset=25, **attributes | dict(softcap=0.0))
    np.testing.assert_allclose(scores, expected[3], rtol=2e-5, atol=2e-5)
    assert_equal_bits(qkernels.attention(q, k, v, *inputs.values(), **attributes, outputs=(3,)), scores)


def test_windows_and_lengths_do_not_change_the_bits(tier):
    q, k, v = draw(0, 1, 4, 2, 300, 300, 24, 24)
    for left in (0, 5, 16, 255, 256, 257):
        whole = qkernels.attention(q, k, v, is_causal=1, left_window_size=left)
        seen = np.arange(300) >= np.arange(300)[:, None] - left
        assert_equal_bits(qkernels.attention(q, k, v, seen, is_causal=1), whole)
        for i in (0, 4, 255, 256, 299):
            cut = qkernels.attention(q[:, :, i:i + 1], k, v, nonpad_kv_seqlen=np.int64([i + 1]), left_window_size=left)
            assert_equal_bits(cut, whole[:, :, i:i + 1], f"left {left}, query {i}")


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_probabilities_are_those_of_the_result(dtype, tier):
    q, k, v = draw(0, 2, 4, 2, 20, 280, 24, 24, dtype)
    mask = np.arange(280) % 7 != 3
    y, p = qkernels.attention(q, k, v, mask, is_causal=1, qk_matmul_output_mode=3, outputs=(0, 3))
    assert p.dtype == dtype and not p[..., ~mask].any()
    assert (p[:, :, 0, 1:] == 0).all()
    np.testing.assert_allclose(np.float64(p).sum(-1), 1, atol=280 * 2 * HALF_ULP[np.dtype(dtype)])
    np.testing.assert_allclose(np.float64(p) @ np.float64(np.repeat(v, 2, 1)), np.float64(y), atol=40 * HALF_ULP[np.dtype(dtype)])


# ---- the promise: one result ----

@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("heads, kv_heads, d, keys", [(4, 2, 128, 600), (3, 3, 20, 300), (7, 1, 96, 270), (16, 8, 64, 257)])
def test_any_chunking_is_one_result(dtype, heads, kv_heads, d, keys, tier):
    q, k, v = draw(0, 1, heads, kv_heads, keys, keys, d, d)
    k, v = k.astype(dtype), v.astype(dtype)
    whole = qkernels.attention(q, k, v, is_causal=1)
    for cuts in ([256], [1, 2, 3, 7, 250], list(range(37, keys, 37)), [keys - 1]):
        start, parts = 0, []
        for end in [*cuts, keys]:
            parts.append(qkernels.attention(q[:, :, start:end], k[:, :, start:end], v[:, :, start:end], past_key=k[:, :, :start],
                                            past_value=v[:, :, :start], is_causal=1, threads=2))
            start = end
        assert_equal_bits(np.concatenate(parts, 2), whole, str(cuts))
    for i in (0, 15, 16, 255, 256, keys - 1):  # alone, and without causality over just the keys that it sees
        alone = qkernels.attention(q[:, :, i:i + 1], k[:, :, :i + 1], v[:, :, :i + 1])
        assert_equal_bits(alone, whole[:, :, i:i + 1], f"query {i}")


def test_causal_as_attribute_or_as_mask_is_one_result(tier):
    q, k, v = draw(0, 1, 4, 2, 70, 300, 40, 40)
    expected = qkernels.attention(q, k, v, is_causal=1)
    assert_equal_bits(qkernels.attention(q, k, v, causal(70, 300)), expected)
    assert_equal_bits(qkernels.attention(q, k, v, np.where(causal(70, 300), np.float32(0), np.float32(-np.inf))), expected)


def test_batch_and_heads_do_not_matter(tier):
    q, k, v = draw(0, 3, 6, 3, 5, 300, 32, 48)
    y = qkernels.attention(q, k, v, threads=3)
    for b in range(3):
        for h in range(6):
            assert_equal_bits(qkernels.attention(q[b:b + 1, h:h + 1], k[b:b + 1, h // 2:h // 2 + 1], v[b:b + 1, h // 2:h // 2 + 1]), y[b:b + 1, h:h + 1])


# ---- cases ----

def column(*values):
    return np.float32(values).reshape(1, 1, -1, 1)


def test_B25_softcap_comes_before_the_mask(tier):
    q, k = column(0), column(1, 1)
    for mask in (np.float32([[0, -np.inf]]), np.array([[True, False]])):
        assert qkernels.attention(q, k, column(10, 20), mask, softcap=1.0).item() == 10
    y = qkernels.attention(column(3), column(1, 2), column(10, 20), softcap=2.0, scale=1.0).item()
    p = np.exp(2 * np.tanh(np.float64([3, 6]) / 2))
    assert y == pytest.approx(float(p @ [10, 20] / p.sum()), rel=1e-6)


def test_softcap_is_accurate(tier):
    scores = np.float32(np.concatenate([np.linspace(-40, 40, 401), [1e-3, -1e-5, 1e-30, -1e30]]))
    y = qkernels.attention(scores.reshape(1, 1, -1, 1), column(1, 0), column(1, 0), softcap=1.0, scale=1.0).ravel()
    expected = 1 / (1 + np.exp(-np.tanh(np.float64(scores))))
    np.testing.assert_allclose(y, expected, rtol=5e-7)


def test_B26_heads_are_grouped(tier):
    q, k = np.zeros((1, 4, 1, 1), np.float32), np.zeros((1, 2, 1, 1), np.float32)
    assert qkernels.attention(q, k, np.float32([1, 2]).reshape(1, 2, 1, 1)).ravel().tolist() == [1, 1, 2, 2]


def test_B27_causal_is_anchored_at_the_past(tier):
    assert qkernels.attention(column(0), column(0, 0, 0), column(10, 20, 60), is_causal=1).item() == 10
    assert qkernels.attention(column(0), column(0), column(60), past_key=column(0, 0), past_value=column(10, 20), is_causal=1).item() == 30


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_B29_a_row_without_keys_is_zero(dtype, tier):
    q, k, v = (x.astype(dtype) for x in (column(1, 1), column(1, 1), column(10, 20)))
    for hidden in (np.array([[False, False], [True, True]]), np.float32([[-np.inf, -np.inf], [0, 0]])):
        assert qkernels.attention(q, k, v, hidden).ravel().tolist() == [0, 15]
    assert qkernels.attention(q, k, v, np.array([[False, True], [True, True]]), is_causal=1).ravel().tolist() == [0, 15]
    assert qkernels.attention(q, k, v, np.float32([[-10000, -10000], [0, 0]])).ravel().tolist() == [15, 15]
    assert qkernels.attention(q, k[:, :, :0], v[:, :, :0]).ravel().tolist() == [0, 0]
    poison = q.copy()
    poison[0, 0, 0] = np.nan
    y = qkernels.attention(poison, k, v)
    assert np.isnan(y[0, 0, 0, 0]) and y[0, 0, 1, 0] == 15
    long = normal(0, (1, 1, 300, 1), dtype)
    for i in (0, 15, 16, 255, 256, 299):  # wherever the NaN or infinity stands, the row shows it
        for value in (np.nan, np.inf):
            bad = long.copy()
            bad[0, 0, i] = value
            assert np.isnan(qkernels.attention(q, bad, long)).all()
    # a NaN score under a mask is hidden like any other
    y = qkernels.attention(q, np.array([np.nan, 1], dtype).reshape(1, 1, 2, 1), v, np.array([[False, True]]))
    assert y.ravel().tolist() == [20, 20]


def test_B30_a_short_mask_hides_the_rest(tier):
    v = column(1, 3, 100)
    for mask in (np.ones((1, 2), bool), np.zeros((1, 2), np.float32), np.zeros((1, 1, 1, 2), np.float16)):
        assert qkernels.attention(column(0), column(0, 0, 0), v, mask).item() == 2
    assert qkernels.attention(column(0), column(0, 0, 0), v, np.ones((1, 1), bool)).item() == 1
    assert qkernels.attention(column(0), column(0, 0, 0), v, np.ones((1, 0), bool)).item() == 0
    q, k, v = draw(0, 1, 2, 1, 40, 300, 16, 16)
    assert_equal_bits(qkernels.attention(q, k, v, np.ones((40, 257), bool)), qkernels.attention(q, k[:, :, :257], v[:, :, :257]))


def test_B32_present_without_past(tier):
    q, k, v = draw(0, 2, 4, 2, 3, 5, 8, 6)
    y, pk, pv = qkernels.attention(q, k, v, outputs=(0, 1, 2))
    assert_equal_bits(pk, k)
    assert_equal_bits(pv, v)
    assert not np.shares_memory(pk, k)
    empty = qkernels.attention(q, k, v, past_key=k[:, :, :0], past_value=v[:, :, :0], outputs=(0, 1, 2))
    for a, b in zip(empty, (y, pk, pv), strict=True):
        assert_equal_bits(a, b)
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    pk3, y3 = qkernels.attention(*flat, q_num_heads=4, kv_num_heads=2, outputs=(1, 0))
    assert_equal_bits(pk3, k)
    assert_equal_bits(y3, y.transpose(0, 2, 1, 3).reshape(2, 3, -1))
    assert_equal_bits(qkernels.attention(q, k, v, outputs=(2,)), v)
    with pytest.raises(ValueError, match="attention: past_value: expected both past_key and past_value or neither"):
        qkernels.attention(q, k, v, past_key=k)


def test_B37_a_second_chunk_sees_the_past(tier):
    y = qkernels.attention(column(0, 0), column(0, 0), column(3, 4), past_key=column(0, 0), past_value=column(1, 2), is_causal=1)
    assert y.ravel().tolist() == [2, 2.5]
    for dtype in FLOAT_DTYPES:
        cache = qkernels.KVCache(1, 1, 2, dtype=dtype)
        row = lambda x: np.float32([0, 0, 0, 0, x, x])
        qkernels.cached_attention(cache, 0, np.stack([row(1), row(2)]), num_heads=1)
        cache.advance(2)
        assert qkernels.cached_attention(cache, 0, np.stack([row(3), row(4)]), num_heads=1).tolist() == [[2, 2], [2.5, 2.5]]


@pytest.mark.parametrize("rows", [3, 40])
def test_what_lies_beyond_the_frontier_does_not_leak(rows, tier):
    q, k, v = draw(0, 1, 4, 2, rows, 290, 24, 40)
    expected = qkernels.attention(q, k, v, is_causal=1)
    for value in (np.nan, np.inf):
        for i in (0, 1, rows // 2, rows - 1):
            bad_k, bad_v = k.copy(), v.copy()
            bad_k[:, :, i + 1:] = bad_v[:, :, i + 1:] = value
            assert_equal_bits(qkernels.attention(q, bad_k, bad_v, is_causal=1)[:, :, :i + 1], expected[:, :, :i + 1])
            # padding at either end of a piece that a mask hides is not multiplied either
            bad_k, bad_v = k.copy(), v.copy()
            bad_k[:, :, :i] = bad_v[:, :, :i] = value
            mask = np.arange(290) >= i
            assert_equal_bits(qkernels.attention(q, bad_k, bad_v, mask), qkernels.attention(q, k, v, mask))


# ---- arrays ----

@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("rows", [2, 40])
def test_B57_B58_any_layout(dtype, rows):
    q, k, v = draw(0, 2, 4, 2, rows, 50, 24, 24, dtype)
    mask, boolean = normal(3, (2, 4, rows, 50), dtype), normal(4, (2, 4, rows, 50)) > 0
    expected, hidden = qkernels.attention(q, k, v, mask, is_causal=1), qkernels.attention(q, k, v, boolean)
    pasts = qkernels.attention(q, k, v, past_key=k, past_value=v, outputs=(0, 1, 2))
    for (name, a), (_, b), (_, c), (_, m) in zip(layouts(q), layouts(k), layouts(v), layouts(mask), strict=True):
        assert_equal_bits(qkernels.attention(a, b, c, m, is_causal=1), expected, name)
        for x, y in zip(qkernels.attention(a, b, c, past_key=b, past_value=c, outputs=(0, 1, 2)), pasts, strict=True):
            assert_equal_bits(x, y, name)
    for name, m in layouts(boolean.view(np.uint8)):
        assert_equal_bits(qkernels.attention(q, k, v, m.view(bool) if name != "big-endian" else boolean), hidden, name)
    one = k[:1, :1]
    assert_equal_bits(qkernels.attention(q, np.broadcast_to(one, k.shape), np.broadcast_to(one, k.shape)),
                      qkernels.attention(q, np.repeat(np.repeat(one, 2, 0), 2, 1), np.repeat(np.repeat(one, 2, 0), 2, 1)))
    raw = np.frombuffer(k.tobytes(), dtype).reshape(k.shape)
    assert_equal_bits(qkernels.attention(q, raw, raw), qkernels.attention(q, k, k))
    assert_equal_bits(raw, k)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_views_of_three_dimensions_equal_four(dtype, tier):
    q, k, v = draw(0, 2, 6, 2, 20, 270, 32, 16, dtype)
    y = qkernels.attention(q, k, v)
    flat = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    assert_equal_bits(qkernels.attention(*flat, q_num_heads=6, kv_num_heads=2), y.transpose(0, 2, 1, 3).reshape(2, 20, -1))


def test_mixed_dtypes():
    q, k, v = draw(0, 1, 2, 1, 3, 40, 16, 16)
    y = qkernels.attention(q, k.astype(np.float16), v.astype(BF16))
    assert y.dtype == np.float32
    assert_equal_bits(y, qkernels.attention(q, k.astype(np.float16).astype(np.float32), v.astype(BF16).astype(np.float32)))


def test_out_and_empty_shapes(tier):
    q, k, v = draw(0, 1, 2, 1, 3, 4, 8, 8)
    out = np.empty((1, 2, 3, 8), np.float32)
    assert qkernels.attention(q, k, v, out=out) is out
    assert_equal_bits(out, qkernels.attention(q, k, v))
    for batch, rows, dv in ((0, 3, 8), (1, 0, 8), (1, 3, 0)):
        y = qkernels.attention(q[:batch, :, :rows], k[:batch], v[:batch, :, :, :dv])
        assert y.shape == (batch, 2, rows, dv)
    assert qkernels.attention(q.reshape(1, 3, 16)[:, :0], k.reshape(1, 4, 8), v.reshape(1, 4, 8), q_num_heads=2, kv_num_heads=1).shape == (1, 0, 16)


@pytest.mark.parametrize("call, error, message", [
    (lambda q, k, v: qkernels.attention(q.astype(np.float64), k, v), TypeError, "attention: q: expected dtype float32 or float16 or bfloat16, got float64"),
    (lambda q, k, v: qkernels.attention(q, None, v), TypeError, "attention: k: expected an array, got None"),
    (lambda q, k, v: qkernels.attention(q, k, v[0]), ValueError, r"attention: q, k, v: expected 3 or 4 dimensions each"),
    (lambda q, k, v: qkernels.attention(q[0, 0], k[0, 0], v[0, 0]), ValueError, "expected 3 or 4 dimensions"),
    (lambda q, k, v: qkernels.attention(q, k[..., :7], v), ValueError, r"attention: k: expected batch 2 and head size 8, got shape \(2, 2, 5, 7\)"),
    (lambda q, k, v: qkernels.attention(q, k, v[:, :, :4]), ValueError, r"attention: v: expected batch 2, 2 heads and 5 keys, got shape"),
    (lambda q, k, v: qkernels.attention(q[:, :3], k, v), ValueError, "attention: q: expected a multiple of 2 kv heads, got 3 heads"),
    (lambda q, k, v: qkernels.attention(q, k, v, q_num_heads=3), ValueError, "attention: q: expected q_num_heads 3, got shape"),
    (lambda q, k, v: qkernels.attention(q[0], k[0], v[0]), ValueError, "attention: q_num_heads: expected the number of heads with 3-D inputs, got 0"),
    (lambda q, k, v: qkernels.attention(q[0], k[0], v[0], q_num_heads=3, kv_num_heads=1), ValueError, "q: expected a last dimension divisible by"),
    (lambda q, k, v: qkernels.attention(q, k, v, np.zeros((3, 6), np.float32)), ValueError, r"attn_mask: expected a shape that broadcasts to \(2, 4, 3, 5\), got"),
    (lambda q, k, v: qkernels.attention(q, k, v, np.zeros((2, 5), bool)), ValueError, "attn_mask: expected a shape that broadcasts"),
    (lambda q, k, v: qkernels.attention(q, k, v, np.zeros((3, 5), np.int32)), TypeError, "attn_mask: expected dtype bool, float32"),
    (lambda q, k, v: qkernels.attention(q, k, v, None, k), ValueError, "past_value: expected both"),
    (lambda q, k, v: qkernels.attention(q, k, v, None, k[:1], v), ValueError, r"past_key: expected shape \(2, 2, past, 8\)"),
    (lambda q, k, v: qkernels.attention(q, k, v, None, k.astype(np.float16), v), TypeError, "past_key: expected dtype float32, got float16"),
    (lambda q, k, v: qkernels.attention(q, k, v, None, k, v[:, :, :2]), ValueError, "past_value: expected 5 past keys"),
    (lambda q, k, v: qkernels.attention(q, k, v, is_causal=2), ValueError, "is_causal: expected 0 or 1, got 2"),
    (lambda q, k, v: qkernels.attention(q, k, v, softcap=-1), ValueError, "softcap: expected a finite number >= 0, got -1"),
    (lambda q, k, v: qkernels.attention(q, k, v, scale=np.nan), ValueError, "scale: expected a finite number, got nan"),
    (lambda q, k, v: qkernels.attention(q, k, v, softmax_precision=7), ValueError, "softmax_precision: expected 1"),
    (lambda q, k, v: qkernels.attention(q, k, v, qk_matmul_output_mode=4), ValueError, "qk_matmul_output_mode: expected 0 to 3"),
    (lambda q, k, v: qkernels.attention(q, k, v, outputs=(0, 4)), ValueError, "outputs: expected distinct indices"),
    (lambda q, k, v: qkernels.attention(q, k, v, left_window_size=-2), ValueError, r"left_window_size: expected -1 \(no bound\) or a number >= 0, got -2"),
    (lambda q, k, v: qkernels.attention(q, k, v, right_window_size=0.5), TypeError, "right_window_size: expected an int, got float"),
    (lambda q, k, v: qkernels.attention(q, k, v, nonpad_kv_seqlen=np.int64([1])), ValueError, r"nonpad_kv_seqlen: expected shape \(2,\), got \(1,\)"),
    (lambda q, k, v: qkernels.attention(q, k, v, nonpad_kv_seqlen=np.int64([1, 6])), ValueError, "nonpad_kv_seqlen: expected 0 to 5, got 6"),
    (lambda q, k, v: qkernels.attention(q, k, v, nonpad_kv_seqlen=np.int64([1, -1])), ValueError, "nonpad_kv_seqlen: expected 0 to 5, got -1"),
    (lambda q, k, v: qkernels.attention(q, k, v, nonpad_kv_seqlen=np.float32([1, 1])), TypeError, "nonpad_kv_seqlen: expected an integer dtype"),
    (lambda q, k, v: qkernels.attention(q, k, v, None, k, v, np.int64([1, 1])), ValueError, "nonpad_kv_seqlen: expected no past"),
    (lambda q, k, v: qkernels.attention(q, k, v, nonpad_kv_seqlen=np.int64([1, 1]), outputs=(1,)), ValueError, "nonpad_kv_seqlen: expected no past"),
    (lambda q, k, v: qkernels.attention(q, k, v, np.ones((3, 2), bool), nonpad_kv_seqlen=np.int64([1, 3])), ValueError, "last dimension of at least .* 3, got"),
    (lambda q, k, v: qkernels.attention(q, k, v, outputs=(1,), out=q), ValueError, "out: output 0 is not among"),
    (lambda q, k, v: qkernels.attention(q, k, v, out=q), ValueError, "attention: out: overlaps q"),
    (lambda q, k, v: qkernels.attention(q, k, v, threads=0), ValueError, "threads: expected 1 to 1024, got 0"),
    (lambda q, k, v: qkernels.attention(q[..., :0], k[..., :0], v), ValueError, "q: expected a head size of at least 1"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(*draw(0, 2, 4, 2, 3, 5, 8, 8))


def test_read_only_out_raises():
    q, k, v = draw(0, 1, 1, 1, 1, 1, 4, 4)
    out = np.empty_like(q)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: expected a writeable array"):
        qkernels.attention(q, k, v, out=out)


# ---- the fused call ----

def rotary_tables(positions, d):
    angles = np.arange(positions)[:, None] * (10000.0 ** (-np.arange(d // 2) / (d // 2)))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(x, cos, sin, positions):
    """(n, heads, d) float32, each product rounded."""
    n, heads, d = x.shape
    y = qkernels.rotary_embedding(x.reshape(1, n, heads * d), cos, sin, positions[None], num_heads=heads).reshape(x.shape)
    a, b = np.split(x, 2, axis=-1)
    cos, sin = cos[positions, None], sin[positions, None]
    assert_equal_bits(y, np.concatenate([a * cos - b * sin, b * cos + a * sin], -1))
    return y


def unfused(cache, layer, qkv, heads, q_norm, k_norm, cos, sin, epsilon=1e-6):
    """The same layer in separate steps."""
    n, d, start = len(qkv), cache.head_size, cache.length
    q, k, v = np.split(qkv.reshape(n, -1, d), [heads, heads + cache.kv_heads], axis=1)
    if q_norm is not None:
        q = qkernels.rms_normalization(q, q_norm, epsilon=epsilon)
    if k_norm is not None:
        k = qkernels.rms_normalization(k, k_norm, epsilon=epsilon)
    if cos is not None:
        q, k = (rotated(x, cos, sin, np.arange(start, start + n)) for x in (q, k))
    cache.append(layer, k, v)
    view = [np.concatenate([old, x.transpose(1, 0, 2)[None].astype(cache.dtype)], 2) for old, x in
            ((cache.keys(layer), k), (cache.values(layer), v))]
    y = qkernels.attention(q.transpose(1, 0, 2)[None], view[0][:, :, start:], view[1][:, :, start:], past_key=view[0][:, :, :start],
                           past_value=view[1][:, :, :start], is_causal=1)
    return y[0].transpose(1, 0, 2).reshape(n, heads * d)


@pytest.mark.differential("cached_attention")
@settings(max_examples=30)
@given(seed=seeds, dtype=float_dtypes, kv_heads=st.integers(1, 3), group=st.integers(1, 4), d=st.sampled_from([1, 2, 6, 16, 34, 64, 96, 128, 130]),
       norms=st.booleans(), rotary=st.booleans(), chunks=st.lists(st.sampled_from([1, 1, 2, 3, 7, 20, 40, 260]), min_size=1, max_size=4))
def test_cached_against_separate_steps(seed, dtype, kv_heads, group, d, norms, rotary, chunks):
    heads, total = kv_heads * group, sum(chunks)
    q_norm, k_norm = (normal(seed + 1, (d,)), normal(seed + 2, (d,))) if norms else (None, None)
    cos, sin = rotary_tables(total, d) if rotary and d % 2 == 0 else (None, None)
    make = lambda: qkernels.KVCache(2, kv_heads, d, dtype=dtype)
    caches, apart = {}, make()
    start = 0
    for n in chunks:
        qkv = [normal(seed + 10 * layer + start, (n, (heads + 2 * kv_heads) * d)) for layer in range(2)]
        expected = [unfused(apart, layer, qkv[layer], heads, q_norm, k_norm, cos, sin) for layer in range(2)]
        apart.advance(n)
        for isa in qkernels.available_isa():
            for threads in ALL_THREADS if isa != "scalar" else (2,):
                cache = caches.setdefault((isa, threads), make())
                with qkernels.use_isa(isa):
                    for layer in range(2):
                        y = qkernels.cached_attention(cache, layer, qkv[layer], q_norm=q_norm, k_norm=k_norm, cos=cos, sin=sin, num_heads=heads,
                                                      threads=threads)
                        assert_equal_bits(y, expected[layer], f"{isa}, {threads} threads, from {start}")
                cache.advance(n)
                for layer in range(2):
                    assert_equal_bits(cache.keys(layer), apart.keys(layer))
                    assert_equal_bits(cache.values(layer), apart.values(layer))
        start += n


@pytest.mark.differential("cached_attention")
def test_cached_against_exact(tier):
    d, heads, n = 16, 4, 300
    qkv, cache = normal(0, (n, 8 * d)), qkernels.KVCache(1, 2, d)
    y = qkernels.cached_attention(cache, 0, qkv, num_heads=heads)
    q, k, v = np.split(qkv.reshape(n, 8, d).transpose(1, 0, 2)[None], [4, 6], axis=1)
    expected = exact(q, k, v, visible=causal(n, n))
    assert_near(y, [x[0].transpose(1, 0, 2).reshape(n, -1) for x in expected])


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_cached_prompt_cut_anyhow_is_one_result(dtype, tier):
    d, heads, kv_heads, n = 128, 4, 2, 300
    qkv, norm, (cos, sin) = normal(0, (n, (heads + 2 * kv_heads) * d)), normal(1, (d,)), rotary_tables(n, d)

    def run(cuts, threads):
        cache, parts, start = qkernels.KVCache(1, kv_heads, d, dtype=dtype), [], 0
        for end in [*cuts, n]:
            parts.append(qkernels.cached_attention(cache, 0, qkv[start:end], q_norm=norm, k_norm=norm, cos=cos, sin=sin, num_heads=heads, threads=threads))
            cache.advance(end - start)
            start = end
        return np.concatenate(parts)

    whole = run([], 1)
    for cuts in ([1], [256], list(range(1, 8)), [n - 1], list(range(16, n, 16)), list(range(240, n))):
        for threads in (1, 3):
            assert_equal_bits(run(cuts, threads), whole, f"{cuts[:3]}, {threads} threads")


def codes_of(x, limit):
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(limit)
    return np.rint(x / scale), scale


@pytest.mark.parametrize("d", [20, 24, 64, 80, 128, 512, 544])  # rows of whole steps of 32 or not; beyond 512 sums of codes might overflow
@pytest.mark.parametrize("heads", [2, 4, 6, 8])
def test_a_cache_of_bytes(d, heads, tier):
    if heads != 4 and d not in (80, 128):
        pytest.skip("other heads are tried with other paths of the kernel, not with every size")
    kv_heads, n = 2, 300
    qkv, norm, (cos, sin) = normal(0, (n, (heads + 2 * kv_heads) * d)), normal(1, (d,)), rotary_tables(n, d)
    options = dict(q_norm=norm, k_norm=norm, cos=cos, sin=sin, num_heads=heads)

    def run(cuts, threads):
        cache, parts, start = qkernels.KVCache(1, kv_heads, d, dtype=np.int8), [], 0
        for end in [*cuts, n]:
            parts.append(qkernels.cached_attention(cache, 0, qkv[start:end], threads=threads, **options))
            cache.advance(end - start)
            start = end
        return np.concatenate(parts), cache

    whole, cache = run([], 1)
    for cuts in ([1], [256], list(range(1, 8)), [n - 1], list(range(16, n, 16)), list(range(240, n)))[: 6 if d <= 128 else 3]:
        for threads in (1, 3):
            y, other = run(cuts, threads)
            assert_equal_bits(y, whole, f"{cuts[:3]}, {threads} threads")
            assert_equal_bits(other.keys(0), cache.keys(0))
            for a, b in zip(other.token_scales(0), cache.token_scales(0), strict=True):
                assert_equal_bits(a, b)
    # the same codes and scales as `append` makes, each within half a step, and attention over what they stand for
    exact_cache = qkernels.KVCache(1, kv_heads, d)
    qkernels.cached_attention(exact_cache, 0, qkv, **options)
    exact_cache.advance(n)
    k, v = exact_cache.keys(0), exact_cache.values(0)
    appended = qkernels.KVCache(1, kv_heads, d, dtype=np.int8)
    appended.append(0, k, v)
    appended.advance(n)
    for codes, scale, stored, other, x in zip((cache.keys(0), cache.values(0)), cache.token_scales(0), (appended.keys(0), appended.values(0)),
                                              appended.token_scales(0), (k, v), strict=True):
        assert_equal_bits(stored, codes)
        assert_equal_bits(other, scale)
        assert (np.abs(codes * scale[..., None] - x) <= scale[..., None] * (0.5 + 2.0**-15)).all()
        assert_equal_bits(scale, np.abs(x).max(-1) / np.float32(127))
    q = np.split(qkv.reshape(n, -1, d), [heads, heads + kv_heads], axis=1)[0]
    q = rotated(qkernels.rms_normalization(q, norm, epsilon=1e-6), cos, sin, np.arange(n)).transpose(1, 0, 2)[None]
    wide = [c * s[..., None] for c, s in zip((cache.keys(0), cache.values(0)), cache.token_scales(0), strict=True)]
    if d <= 512:
        codes, scale = codes_of(q, 32767)
        q = np.float64(codes) * scale
    value, error = exact(q, *wide, visible=causal(n, n))
    if d <= 512:  # each probability times its token's scale is off by half of the piece's largest / 32767
        s = np.where(causal(n, n), q @ np.repeat(wide[0], heads // 2, 1).swapaxes(2, 3) * d**-0.5, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        p *= np.repeat(cache.token_scales(0)[1], heads // 2, 1)[:, :, None]
        for start in range(0, n, 256):
            of, sizes = slice(start, start + 256), np.abs(np.repeat(cache.values(0), heads // 2, 1).astype(np.float64))
            error = error + (0.5 + 2.0**-8) / 32767 * p[..., of].max(-1, keepdims=True) * (causal(n, n)[:, of] @ sizes[:, :, of])
    assert_near(whole, [x[0].transpose(1, 0, 2).reshape(n, -1) for x in (value, error)])
    # that bound holds without the codes' exact rounding, too; on the average their error is far below it, and below a float16's
    assert np.sqrt(np.mean((whole - value[0].transpose(1, 0, 2).reshape(n, -1)) ** 2) / np.mean(value**2)) < 1e-4


def test_a_cache_of_bytes_at_its_edges(tier):
    row = lambda k, v: np.float32([[1, 1, *k, *v]])
    cache = qkernels.KVCache(1, 1, 2, dtype=np.int8)
    for k, v in (([0, 0], [0, 0]), ([1e-40, 0], [3e38, -3e38]), ([-1, 1], [1, -0.0])):
        assert np.isfinite(qkernels.cached_attention(cache, 0, row(k, v), num_heads=1)).all()
        cache.advance(1)
    assert cache.keys(0)[0, 0].tolist()[0] == [0, 0] and cache.values(0)[0, 0].tolist()[1:] == [[127, -127], [127, 0]]
    for bad in (np.nan, np.inf, -np.inf):
        assert np.isnan(qkernels.cached_attention(cache, 0, row([bad, 0], [1, 1]), num_heads=1)).all()
        assert np.isnan(qkernels.cached_attention(cache, 0, row([0, 0], [bad, 1]), num_heads=1)).all()
    # a scale below the smallest normal number has lost bits: codes stop at the limit, none wraps around; q's neither
    cache = qkernels.KVCache(1, 1, 2, dtype=np.int8)
    y = qkernels.cached_attention(cache, 0, np.ldexp(np.float32([[187, -71, 187, -71, 187, -187]]), -149), num_heads=1)
    cache.advance(1)
    appended = qkernels.KVCache(1, 1, 2, dtype=np.int8)
    appended.append(0, np.ldexp(np.float32([[[187, -71]]]), -149), np.ldexp(np.float32([[[187, -187]]]), -149))
    appended.advance(1)
    assert_equal_bits(appended.keys(0), cache.keys(0))
    assert cache.keys(0)[0, 0].tolist() == [[127, -71]] and cache.values(0)[0, 0].tolist() == [[127, -127]] and np.abs(y).max() < np.finfo(np.float32).tiny
    with pytest.raises(TypeError, match="KVCache.append: k: expected dtype float32, got int8"):
        cache.append(0, np.zeros((1, 1, 2), np.int8), np.zeros((1, 1, 2), np.int8))
    with pytest.raises(TypeError, match="KVCache.token_scales: expected a cache of int8, this one is float32"):
        qkernels.KVCache(1, 1, 2).token_scales(0)


def test_cached_in_a_batch_is_one_result(tier):
    qkv, cache = normal(0, (3, 5, 4 * 8)), qkernels.KVCache(1, 1, 8, batch=3)
    y = qkernels.cached_attention(cache, 0, qkv, num_heads=2)
    assert y.shape == (3, 5, 16)
    for b in range(3):
        assert_equal_bits(qkernels.cached_attention(qkernels.KVCache(1, 1, 8), 0, qkv[b], num_heads=2), y[b])


def test_a_repeated_call_writes_the_same_place(tier):
    cache, qkv = qkernels.KVCache(1, 1, 8), normal(0, (3, 32))
    first = qkernels.cached_attention(cache, 0, qkv, num_heads=2)
    qkernels.cached_attention(cache, 0, normal(1, (9, 32)), num_heads=2)
    assert_equal_bits(qkernels.cached_attention(cache, 0, qkv, num_heads=2), first)
    assert cache.length == 0
    cache.advance(3)
    assert cache.length == 3


def test_cached_uncommitted_memory_is_not_read(tier):
    cache, qkv = qkernels.KVCache(1, 1, 8), normal(0, (40, 32))
    expected = qkernels.cached_attention(cache, 0, qkv, num_heads=2)
    qkernels.cached_attention(cache, 0, np.full((60, 32), np.nan, np.float32), num_heads=2)
    for n in (1, 40):
        assert_equal_bits(qkernels.cached_attention(cache, 0, qkv[:n], num_heads=2), expected[:n])


@pytest.mark.parametrize("name, a", list(layouts(normal(0, (6, 32)))))
def test_cached_any_layout(name, a):
    expected = qkernels.cached_attention(qkernels.KVCache(1, 1, 8), 0, normal(0, (6, 32)), num_heads=2)
    assert_equal_bits(qkernels.cached_attention(qkernels.KVCache(1, 1, 8), 0, a, num_heads=2), expected, name)


def test_cached_out():
    cache, qkv, out = qkernels.KVCache(1, 1, 8), normal(0, (6, 32)), np.empty((6, 16), np.float32)
    assert qkernels.cached_attention(cache, 0, qkv, num_heads=2, out=out) is out
    assert_equal_bits(out, qkernels.cached_attention(cache, 0, qkv, num_heads=2))
    assert qkernels.cached_attention(cache, 0, qkv[:0], num_heads=2).shape == (0, 16)


@pytest.mark.parametrize("call, error, message", [
    (lambda c, x: qkernels.cached_attention(None, 0, x, num_heads=2), TypeError, "cache"),
    (lambda c, x: qkernels.cached_attention(c, 2, x, num_heads=2), IndexError, "cached_attention: layer: expected 0 to 1, got 2"),
    (lambda c, x: qkernels.cached_attention(c, -1, x, num_heads=2), IndexError, "layer: expected 0 to 1, got -1"),
    (lambda c, x: qkernels.cached_attention(c, 0.0, x, num_heads=2), TypeError, "layer: expected an int, got float"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=0), ValueError, "num_heads: expected a multiple of the cache's 1 kv heads, got 0"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=3), ValueError, r"qkv: expected shape \(n, 40\), got \(4, 32\)"),
    (lambda c, x: qkernels.cached_attention(c, 0, x.astype(np.float16), num_heads=2), TypeError, "qkv: expected dtype float32, got float16"),
    (lambda c, x: qkernels.cached_attention(c, 0, x[0], num_heads=2), ValueError, r"qkv: expected shape \(n, 32\), got \(32,\)"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, q_norm=x[0]), ValueError, r"q_norm: expected shape \(8,\), got \(32,\)"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, epsilon=-1), ValueError, "epsilon: expected a number >= 0, got -1"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, cos=x), ValueError, "sin: expected both cos and sin or neither"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, cos=x, sin=x), ValueError, r"cos: expected shape \(positions, width\) with a width of 1 to 4 "),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, cos=x[:3, :4], sin=x[:3, :4]), ValueError, "cos: expected at least 4 positions, got 3"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, softcap=-1), ValueError, "softcap: expected a finite number >= 0, got -1"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, local_window_size=0), ValueError, "local_window_size: expected -1"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, sink=x[0]), ValueError, r"sink: expected shape \(2,\), got \(32,\)"),
    (lambda c, x: qkernels.cached_attention(c, 0, np.tile(x, (3, 1)), num_heads=2), ValueError, "length 0 . 12 new tokens exceeds max_length 10"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, out=x[:, :16]), ValueError, "out: expected an aligned C-contiguous array"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, out=x.reshape(8, 16)[:4]), ValueError, "out: overlaps qkv"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, out=np.empty((3, 16), np.float32)), ValueError, r"out: expected shape \(4, 16\)"),
    (lambda c, x: qkernels.cached_attention(c, 0, x, num_heads=2, threads=1.5), TypeError, "threads: expected an int or None, got float"),
])
def test_cached_errors(call, error, message):
    cache = qkernels.KVCache(2, 1, 8, max_length=10)
    with pytest.raises(error, match=message):
        call(cache, normal(0, (4, 32)))
    assert cache.length == 0
    cache.append(0, np.zeros((0, 1, 8), np.float32), np.zeros((0, 1, 8), np.float32))  # the lock is free again
