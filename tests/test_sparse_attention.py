"""com.microsoft SparseAttention and PagedAttention: against the specifications in NumPy, ONNX Runtime where it runs them, and GroupQueryAttention bit for bit."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import FLOAT_DTYPES, HALF_ULP, assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import float_dtypes, normal, seeds

SPARSE = ("query", "key", "value", "past_key", "past_value", "block_row_indices", "block_col_indices", "total_sequence_length", "key_total_sequence_lengths",
          "cos_cache", "sin_cache")
PAGED = ("query", "key", "value", "key_cache", "value_cache", "cumulative_sequence_length", "past_seqlens", "block_table", "cos_cache", "sin_cache", "slot_mapping",
         "head_sink", "q_norm_weight", "k_norm_weight", "k_scale", "v_scale", "attention_metadata")
sparse, paged, gqa = qkernels.sparse_attention, qkernels.paged_attention, qkernels.group_query_attention


def tables(rows, half, dtype=np.float32):
    angles = np.arange(rows)[:, None] / 100.0 ** (np.arange(half) / half)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def compressed(mask):
    """(layouts, n, n) of bool as compressed rows, -1 behind the shorter ones."""
    rows = np.concatenate([np.zeros((len(mask), 1), np.int64), mask.sum(2).cumsum(1)], 1)
    columns = np.full((len(mask), max(1, rows[:, -1].max())), -1)
    for layout, m in enumerate(mask):
        columns[layout, :rows[layout, -1]] = np.nonzero(m)[1]
    return rows.astype(np.int32), columns.astype(np.int32)


def names_of(names, x):
    return [x.get(n) for n in names]


def close(a, e, dtype, scores=5e-6):
    """Roundings of scores of a few units, and two to the type, of values up to about 6."""
    assert a.dtype == e.dtype and a.shape == e.shape
    bound = 6 * (scores + (0 if dtype == np.float32 else 12 * HALF_ULP[np.dtype(dtype)]))
    np.testing.assert_allclose(np.float64(a), np.float64(e), rtol=bound, atol=bound)


@st.composite
def sparse_calls(draw, runtime=False):
    seed, dtype = draw(seeds), np.float32 if runtime else draw(float_dtypes)
    batch, groups, each = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 4]))
    heads, d, block = groups * each, draw(st.sampled_from([16, 32] if runtime else [2, 16, 34, 64])), draw(st.sampled_from([16, 32]))
    layouts_ = draw(st.sampled_from([n for n in (1, 2, 3, 4) if heads % n == 0]))
    past, rows = draw(st.sampled_from([0, 0, 5, 40, 270])), draw(st.sampled_from([1, 3, 17, 40]))
    total = past + rows
    lengths = [total] + [draw(st.integers(rows if past else 1, total)) for _ in range(batch - 1)]
    if runtime:
        lengths = [total] * batch  # see test_where_onnx_runtime_differs
    count = -(-total // block) + draw(st.integers(0, 2))
    mask = np.tril(np.random.default_rng(seed).random((layouts_, count, count)) < 0.6)
    if runtime:
        mask |= np.eye(count, dtype=bool)  # a query without a key attends to all of them there
    f = lambda n, *shape: normal(seed + n, shape, dtype)
    x = dict(zip(("block_row_indices", "block_col_indices"), compressed(mask), strict=True))
    room = total + draw(st.integers(0, 3))
    x |= dict(past_key=f(3, batch, groups, room, d), past_value=f(4, batch, groups, room, d), total_sequence_length=np.int32([total]),
              key_total_sequence_lengths=np.int32(lengths))
    if draw(st.booleans()):
        x["query"] = f(0, batch, rows, (heads + 2 * groups) * d)
    else:
        x |= dict(query=f(0, batch, rows, heads * d), key=f(1, batch, rows, groups * d), value=f(2, batch, rows, groups * d))
    attributes = dict(num_heads=heads, kv_num_heads=groups, sparse_block_size=block, scale=draw(st.sampled_from([None, 0.3])))
    if draw(st.booleans()):
        x["cos_cache"], x["sin_cache"] = tables(total + 3, d // 2 if runtime else draw(st.integers(1, d // 2)), dtype)
        attributes |= dict(do_rotary=1, rotary_interleaved=draw(st.integers(0, 1)))
    return x, attributes


@pytest.mark.differential("sparse_attention")
@settings(max_examples=60)
@given(call=sparse_calls())
def test_sparse_against_the_specification(call):
    x, attributes = call
    results = one_result(lambda t: sparse(*names_of(SPARSE, x), **attributes, outputs=(0, 1, 2), threads=t), (1, 3))
    expected = evaluate("com.microsoft", "SparseAttention", names_of(SPARSE, x), outputs=3, **attributes)
    for a, e in zip(results, expected, strict=True):
        close(a, e, x["query"].dtype)


@settings(max_examples=60)
@given(call=sparse_calls(runtime=True))
def test_sparse_against_onnx_runtime(call):
    x, attributes = call
    expected = onnxruntime_node("com.microsoft", "SparseAttention", names_of(SPARSE, x), 3, in_place={1: 3, 2: 4}, **attributes)
    for a, e in zip(sparse(*names_of(SPARSE, x), **attributes, outputs=(0, 1, 2)), expected, strict=True):
        close(a, e, np.float32)


def test_where_onnx_runtime_differs(tier):
    """Of a sequence that is shorter than the longest one it weighs its only key by less than 1."""
    x, cache = normal(0, (2, 1, 16)), np.zeros((2, 1, 6, 16), np.float32)
    inputs = x, x, x, cache, cache, np.int32([[0, 1]]), np.int32([[0]]), np.int32([6]), np.int32([6, 1])
    options = dict(num_heads=1, kv_num_heads=1, sparse_block_size=16)
    runtime = onnxruntime_node("com.microsoft", "SparseAttention", inputs, 3, in_place={1: 3, 2: 4}, **options)[0]
    y = sparse(*inputs, **options)
    close(y[:1], runtime[:1], np.float32)
    assert_equal_bits(y[1], x[1])
    assert (np.abs(runtime[1]) < 0.9 * np.abs(x[1])).all()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_layout_with_every_block_is_group_query_attention(dtype, tier):
    heads, groups, d, n = 4, 2, 32, 300
    q, k, v = normal(0, (1, n, heads * d), dtype), normal(1, (1, n, groups * d), dtype), normal(2, (1, n, groups * d), dtype)
    cos, sin = tables(n, d // 2)
    rows, columns = compressed(np.tril(np.ones((1, 5, 5), bool)))
    options, cache = dict(num_heads=heads, kv_num_heads=groups, do_rotary=1), np.zeros((1, groups, n, d), dtype)
    expected = gqa(q, k, v, None, None, np.int32([n - 1]), n, cos, sin, **options, outputs=(0, 1, 2))
    results = sparse(q, k, v, cache, cache, rows, columns, n, np.int32([n]), cos, sin, **options, sparse_block_size=64, outputs=(0, 1, 2))
    for a, e in zip(results, expected, strict=True):
        assert_equal_bits(a, e)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("block", [16, 64, 128])
def test_any_chunking_is_one_result(dtype, block, tier):
    heads, groups, d, n, layouts_ = 4, 2, 32, 420, 2
    q, k, v = normal(0, (1, n, heads * d), dtype), normal(1, (1, n, groups * d), dtype), normal(2, (1, n, groups * d), dtype)
    count = -(-n // block)
    rows, columns = compressed(np.tril(np.random.default_rng(1).random((layouts_, count, count)) < 0.5) | np.eye(count, dtype=bool))
    options = dict(num_heads=heads, kv_num_heads=groups, sparse_block_size=block, outputs=(0, 1, 2))
    caches = [np.zeros((1, groups, n, d), dtype) for _ in range(2)]
    whole, keys, values = sparse(q, k, v, *caches, rows, columns, n, np.int32([n]), **options)
    for cuts in ([256], [1, 2, 3, 250, 401], list(range(53, n, 53))):
        start = 0
        for end in [*cuts, n]:
            y, *kept = sparse(q[:, start:end], k[:, start:end], v[:, start:end], *caches, rows, columns, end, np.int32([end]), **options, out=(None, *caches), threads=2)
            assert kept[0] is caches[0] and kept[1] is caches[1]
            assert_equal_bits(y, whole[:, start:end])
            start = end
        for a, e in zip(caches, (keys, values), strict=True):
            assert_equal_bits(a, e)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_hidden_blocks_do_not_leak(value, tier):
    """Neither those in the middle nor those behind: what lies there is not even multiplied."""
    n, d = 320, 8
    q, past = normal(0, (1, 16, d)), normal(1, (1, 1, n, d))
    mask = np.zeros((1, 20, 20), bool)
    mask[0, 19, [0, 3, 17, 19]] = True
    dirty = past.copy()
    for i in range(20):
        if not mask[0, 19, i]:
            dirty[:, :, 16 * i:16 * i + 16] = value
    options = dict(num_heads=1, kv_num_heads=1, sparse_block_size=16)
    call = lambda cache: sparse(q, q, q, cache, cache, *compressed(mask), n, np.int32([n]), **options)
    assert np.isfinite(call(past)).all()
    assert_equal_bits(call(dirty), call(past))
    assert_equal_bits(sparse(q[:, 15:], q[:, 15:], q[:, 15:], *sparse(q, q, q, dirty, dirty, *compressed(mask), n, np.int32([n]), **options, outputs=(1, 2)),
                             *compressed(mask), n, np.int32([n]), **options), call(past)[:, 15:])


def column(*values):
    return np.float32(values).reshape(1, -1, 1)


def test_B26_B29_B33_rows_of_sparse_attention(tier):
    one, cache = dict(num_heads=1, kv_num_heads=1, sparse_block_size=16), np.zeros((1, 1, 32, 1), np.float32)
    q, v = np.zeros((1, 20, 1), np.float32), column(*range(1, 21))
    call = lambda rows, columns, length=20, total=20, **options: sparse(q, q, v, cache, cache, np.int32(rows), np.int32(columns), total, np.int32([length]),
                                                                        **(one | options)).ravel()
    y = call([[0, 1, 1]], [[0]])  # the second block sees nothing
    assert y[:16].tolist() == [(i + 2) / 2 for i in range(16)] and not y[16:].any()
    assert call([[0, 1, 2]], [[0, 1]])[16:].tolist() == [17, 17.5, 18, 18.5]
    assert call([[0, 1, 3]], [[0, 1, 0]])[19] == 10.5 and call([[0, 1, 3]], [[0, 1, 1]])[19] == 18.5  # in any order, and twice
    assert call([[0, 2, 3]], [[0, 1, 1]])[:2].tolist() == [1, 1.5]  # blocks behind a query stay hidden
    assert not call([[0, 1, 2]], [[0, 1]], 18)[18:].any()  # padding
    for bad in (0, 21, -1):
        with pytest.raises(ValueError, match=f"key_total_sequence_lengths: expected 1 to total_sequence_length 20 for 20 new tokens, got {bad}"):
            call([[0, 1, 2]], [[0, 1]], bad)
    with pytest.raises(ValueError, match="key_total_sequence_lengths: expected 20 to total_sequence_length 24 for 20 new tokens, got 19"):
        call([[0, 1, 2]], [[0, 1]], 19, 24)
    y = sparse(np.zeros((1, 1, 4), np.float32), np.zeros((1, 1, 2), np.float32), np.float32([[[1, 2]]]), *[np.zeros((1, 2, 1, 1), np.float32)] * 2, np.int32([[0, 1]]),
               np.int32([[0]]), 1, np.int32([1]), num_heads=4, kv_num_heads=2, sparse_block_size=16)
    assert y.ravel().tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout_of_sparse_inputs(dtype):
    shapes = dict(query=(2, 3, 32), key=(2, 3, 16), value=(2, 3, 16), past_key=(2, 2, 20, 8), past_value=(2, 2, 20, 8), cos_cache=(20, 4), sin_cache=(20, 4))
    arrays = {name: normal(i, shape, dtype) for i, (name, shape) in enumerate(shapes.items())}
    rows, columns = compressed(np.tril(np.ones((1, 2, 2), bool)))
    arrays |= dict(block_row_indices=rows, block_col_indices=columns, key_total_sequence_lengths=np.int32([20, 17]))
    options = dict(num_heads=4, kv_num_heads=2, sparse_block_size=16, do_rotary=1, outputs=(0, 1, 2))
    call = lambda x: sparse(*names_of(SPARSE, x | dict(total_sequence_length=np.int32([20]))), **options)
    expected = call(arrays)
    for forms in zip(*map(layouts, arrays.values()), strict=False):
        for a, e in zip(call({name: a for name, (_, a) in zip(arrays, forms, strict=True)}), expected, strict=True):
            assert_equal_bits(a, e, forms[0][0])


def test_empty_sparse(tier):
    rows, columns = compressed(np.ones((1, 1, 1), bool))
    for batch, n in ((0, 3), (2, 0)):
        x, cache = np.zeros((batch, n, 8), np.float32), np.zeros((batch, 1, 4, 8), np.float32)
        y, k, v = sparse(x, x, x, cache, cache, rows, columns, n, np.full(batch, n, np.int32), num_heads=1, kv_num_heads=1, sparse_block_size=16, outputs=(0, 1, 2))
        assert y.shape == x.shape and k.shape == v.shape == cache.shape


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(query=np.zeros((1, 2, 8))), TypeError, "query: expected dtype float32 or float16 or bfloat16, got float64"),
    (dict(query=np.zeros((1, 2, 7), np.float32)), ValueError, r"query: expected 3 dimensions, the last divisible by 2 heads, got shape \(1, 2, 7\)"),
    (dict(key=None), ValueError, "key: expected both key and value or neither"),
    (dict(key=np.zeros((1, 2, 8), np.float32)), ValueError, r"key: expected shape \(1, 2, 4\), got \(1, 2, 8\)"),
    (dict(past_key=None), TypeError, "past_key: expected an array, got None"),
    (dict(past_key=np.zeros((1, 1, 6, 3), np.float32)), ValueError, r"past_key: expected shape \(1, 1, 6, 4\), got \(1, 1, 6, 3\)"),
    (dict(past_value=np.zeros((1, 1, 5, 4), np.float32)), ValueError, r"past_value: expected shape \(1, 1, 6, 4\), got \(1, 1, 5, 4\)"),
    (dict(past_value=np.zeros((1, 1, 6, 4), np.float16)), TypeError, "past_value: expected dtype float32, got float16"),
    (dict(block_row_indices=np.int32([[0, 1]] * 3)), ValueError, "block_row_indices: expected shape .* that divides num_heads 2"),
    (dict(block_row_indices=np.int32([[0]])), ValueError, "block_row_indices: expected shape"),
    (dict(block_row_indices=np.int32([[0, 2]])), ValueError, "block_row_indices: expected from 0 to at most 1, not decreasing"),
    (dict(block_row_indices=np.int32([[1, 1]])), ValueError, "block_row_indices: expected from 0"),
    (dict(block_col_indices=np.int32([[1]])), IndexError, "block_col_indices: expected 0 to 0, got 1"),
    (dict(block_col_indices=np.int32([[-1]])), IndexError, "block_col_indices: expected 0 to 0, got -1"),
    (dict(block_col_indices=np.int32([0])), ValueError, r"block_col_indices: expected shape \(1, n\), got \(1,\)"),
    (dict(total_sequence_length=np.int32([7])), ValueError, "total_sequence_length: expected 0 to 6 rows of the past's buffer, got 7"),
    (dict(total_sequence_length=np.int32([1])), ValueError, "total_sequence_length: expected at least the 2 new tokens, got 1"),
    (dict(key_total_sequence_lengths=np.int32([2, 2])), ValueError, r"key_total_sequence_lengths: expected shape \(1,\), got \(2,\)"),
    (dict(cos_cache=np.zeros((9, 2), np.float32)), ValueError, "sin_cache: expected both cos_cache and sin_cache or neither"),
])
def test_errors_of_sparse_inputs(change, error, match):
    x, cache = np.zeros((1, 2, 4), np.float32), np.zeros((1, 1, 6, 4), np.float32)
    inputs = dict(query=np.zeros((1, 2, 8), np.float32), key=x, value=x, past_key=cache, past_value=cache, block_row_indices=np.int32([[0, 1]]),
                  block_col_indices=np.int32([[0]]), total_sequence_length=np.int32([2]), key_total_sequence_lengths=np.int32([2]))
    with pytest.raises(error, match=f"sparse_attention: {match}"):
        sparse(*names_of(SPARSE, inputs | change), num_heads=2, kv_num_heads=1, sparse_block_size=16)


def test_errors_of_sparse_attributes():
    x, cache = np.zeros((1, 2, 4), np.float32), np.zeros((1, 1, 6, 4), np.float32)
    lists = np.int32([[0, 1]]), np.int32([[0]]), np.int32([2]), np.int32([2])
    for change, error, match in ((dict(sparse_block_size=24), ValueError, "sparse_block_size: expected 16, 32, 64 or 128, got 24"),
                                 (dict(num_heads=3, kv_num_heads=2), ValueError, "num_heads: expected a multiple of kv_num_heads 2, got 3"),
                                 (dict(do_rotary=1), ValueError, "cos_cache: expected cos_cache and sin_cache with do_rotary 1"),
                                 (dict(rotary_interleaved=1), ValueError, "rotary_interleaved: expected do_rotary 1 with it"),
                                 (dict(out=np.zeros((1, 2, 3), np.float32)), ValueError, r"out: expected shape \(1, 2, 4\), got \(1, 2, 3\)"),
                                 (dict(out=x), ValueError, "out: overlaps query")):
        with pytest.raises(error, match=f"sparse_attention: {match}"):
            sparse(x, x, x, cache, cache, *lists, **(dict(num_heads=1, kv_num_heads=1, sparse_block_size=16) | change))
    with pytest.raises(ValueError, match="block_row_indices: expected at least 2 blocks of 16 for total_sequence_length, got 1"):
        large, x = np.zeros((1, 1, 20, 4), np.float32), np.zeros((1, 17, 4), np.float32)
        sparse(x, x, x, large, large, lists[0], lists[1], 17, np.int32([17]), num_heads=1, kv_num_heads=1, sparse_block_size=16)
    with pytest.raises(IndexError, match="cos_cache: expected at least 2 positions, got 1"):
        table, x = np.zeros((1, 2), np.float32), np.zeros((1, 2, 4), np.float32)
        sparse(x, x, x, cache, cache, *lists, table, table, num_heads=1, kv_num_heads=1, sparse_block_size=16, do_rotary=1)


# ---- pages ----

@st.composite
def paged_calls(draw):
    seed, dtype = draw(seeds), draw(float_dtypes)
    batch, groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads, d, page = groups * each, draw(st.sampled_from([2, 8, 16, 34, 64])), draw(st.sampled_from([1, 3, 16, 256, 512]))
    counts, pasts = [draw(st.integers(0, 5)) for _ in range(batch)], [draw(st.sampled_from([0, 1, 7, 260])) for _ in range(batch)]
    each_row = [-(-(c + p) // page) for c, p in zip(counts, pasts, strict=True)]
    random, width = np.random.default_rng(seed), max(max(each_row), 1) + draw(st.integers(0, 1))
    blocks = sum(each_row) + draw(st.integers(0, 2))
    order, table = random.permutation(blocks), np.full((batch, width), -1, np.int32)
    for b, n in enumerate(each_row):
        table[b, :n], order = order[:n], order[n:]
    tokens = sum(counts)
    f = lambda n, *shape: normal(seed + n, shape, dtype)
    x = dict(key_cache=f(3, blocks, page, groups, d), value_cache=f(4, blocks, page, groups, d), cumulative_sequence_length=np.int32([0, *np.cumsum(counts)]),
             past_seqlens=np.int32(pasts), block_table=table)
    latent = draw(st.integers(0, 4)) == 0 and groups == 1
    attributes = dict(num_heads=heads, kv_num_heads=groups, scale=draw(st.sampled_from([None, 0.3])), softcap=draw(st.sampled_from([0.0, 2.0])),
                      local_window_size=draw(st.sampled_from([-1, -1, 1, 3, 17])), is_causal=draw(st.sampled_from([1, 1, 0])))
    if latent:
        x |= dict(query=f(0, tokens, heads * d), key=f(1, tokens, d))
        del x["value_cache"]
        attributes |= dict(kv_cache_layout="LATENT", v_head_size=draw(st.integers(1, d)), scale=0.3)
    elif draw(st.booleans()):
        x["query"] = f(0, tokens, (heads + 2 * groups) * d)
    else:
        x |= dict(query=f(0, tokens, heads * d), key=f(1, tokens, groups * d), value=f(2, tokens, groups * d))
    if draw(st.booleans()):
        first = draw(st.sampled_from([0, 8])) if d > 8 else 0
        x["cos_cache"], x["sin_cache"] = tables(270, draw(st.integers(1, (d - first) // 2)), dtype)
        attributes |= dict(do_rotary=1, rotary_interleaved=draw(st.integers(0, 1)), rotary_offset=first)
    if draw(st.booleans()):
        x |= dict(q_norm_weight=f(8, d), k_norm_weight=f(9, d))
        attributes["qk_norm_epsilon"] = 1e-5
    if draw(st.booleans()):
        x["head_sink"] = f(7, heads)
    if draw(st.booleans()):
        at = [(b, p + i) for b, (c, p) in enumerate(zip(counts, pasts, strict=True)) for i in range(c)]
        x["slot_mapping"] = np.int32([-1 if random.random() < 0.2 else table[b, t // page] * page + t % page for b, t in at])
    if draw(st.booleans()):
        x["attention_metadata"] = np.int32([8, 300])
    if draw(st.integers(0, 3)) == 0 and not latent:
        x |= {name: random.integers(-128, 128, x[name].shape).astype(np.int8) for name in ("key_cache", "value_cache")}
        kind = draw(st.sampled_from(["PER_TENSOR", "PER_CHANNEL"]))
        scale = lambda: (random.random((groups, 1, d) if kind == "PER_CHANNEL" else 1, np.float32) + 1) * np.float32(0.02)
        x |= dict(k_scale=scale(), v_scale=scale())
        attributes |= dict(k_quant_type=kind, v_quant_type=kind)
    return x, attributes


def run_paged(x, attributes, threads=None):
    """(output, caches …) with caches of its own."""
    x = x | {name: x[name].copy() for name in ("key_cache", "value_cache") if name in x}
    wanted = (0, 1, 2) if "value_cache" in x else (0, 1)
    results = paged(*names_of(PAGED, x), **attributes, outputs=wanted, threads=threads)
    assert results[1] is x["key_cache"] and ("value_cache" not in x or results[2] is x["value_cache"])
    return results


@pytest.mark.differential("paged_attention")
@settings(max_examples=150)
@given(call=paged_calls())
def test_paged_against_the_specification(call):
    x, attributes = call
    results = one_result(lambda t: run_paged(x, attributes, t), (1, 3))
    expected = evaluate("com.microsoft", "PagedAttention", names_of(PAGED, x), outputs=3, **attributes)
    dtype = x["query"].dtype
    if "k_scale" in x:
        for a, e in zip(results[1:], expected[1:], strict=True):
            assert np.abs(np.int64(a) - e).max(initial=0) <= 1
            if (a != e).any():
                return  # a code tipped over, and a whole step of the cache lies between the results
    else:
        for a, e in zip(results[1:], expected[1:], strict=False):
            np.testing.assert_allclose(np.float64(a), np.float64(e), rtol=0, atol=8 * (2 * HALF_ULP[a.dtype] + 2.0**-21))
    close(results[0], expected[0], dtype, 2e-5)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("page", [1, 16, 100, 256, 512])
def test_any_pages_chunks_and_company_are_one_result(dtype, page, tier):
    """Two sequences in pages of any size, their tokens in any portions, alone or together: what GroupQueryAttention gives for each."""
    heads, groups, d, lengths = 4, 2, 32, (300, 270)
    cos, sin = tables(300, d // 2, dtype)
    norms = [normal(i, (d,), dtype) for i in (8, 9)]
    qkv = [normal(i, (n, (heads + 2 * groups) * d), dtype) for i, n in enumerate(lengths)]
    options = dict(num_heads=heads, kv_num_heads=groups, do_rotary=1, local_window_size=200)
    expected = [gqa(x[None], None, None, None, None, np.int32([len(x) - 1]), len(x), cos, sin, None, None, None, None, None, *norms, **options)[0] for x in qkv]
    width = -(-300 // page)
    table = np.random.default_rng(0).permutation(2 * width).reshape(2, width)
    for portions in ([(300, 270)], [(256, 1), (1, 200), (43, 69)], [(7, 0), (0, 250), (290, 19), (3, 1)]):
        caches, past, rows = [np.zeros((2 * width, page, groups, d), dtype) for _ in range(2)], np.zeros(2, np.int64), [[], []]
        for counts in portions:
            tokens = np.concatenate([x[p:p + c] for x, p, c in zip(qkv, past, counts, strict=True)])
            y = paged(tokens, None, None, *caches, np.int32([0, counts[0], sum(counts)]), past.astype(np.int32), table, cos, sin, None, None, *norms, **options, threads=2)
            for b, part in enumerate(np.split(y, [counts[0]])):
                rows[b].append(part)
            past += counts
        for b in range(2):
            assert_equal_bits(np.concatenate(rows[b]), expected[b])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("page", [5, 256])
def test_other_pages_do_not_leak(value, page, tier):
    """Nor what lies behind the last token, nor in front of the window, whose pages may be gone."""
    pages = [normal(i, (8, page, 1, 8)) for i in (0, 1)]
    x, past = normal(2, (2, 8)), 2 * page - 1  # two new tokens, in blocks 1 and 2
    call = lambda caches, first: paged(x, x, x, *[c.copy() for c in caches], np.int32([0, 2]), np.int32([past]), np.int32([[first, 5, 2, -1]]), num_heads=1, kv_num_heads=1,
                                       local_window_size=page)
    expected, dirty = call(pages, 3), [p.copy() for p in pages]
    for p in dirty:
        p[[0, 1, 3, 4, 6, 7]] = value
        p[2, 1:] = value
    assert_equal_bits(call(dirty, 3), expected)
    assert_equal_bits(call(dirty, -1), expected)
    with pytest.raises(IndexError, match=f"block_table: expected the block of tokens 0 to {page - 1} of sequence 0, which its queries see, got -1"):
        paged(x, x, x, *pages, np.int32([0, 2]), np.int32([past]), np.int32([[-1, 5, 2, -1]]), num_heads=1, kv_num_heads=1)


def test_B26_B34_B35_rows_of_paged_attention(tier):
    def call(v, q=None, k=None, counts=None, **options):
        v = np.float32(v).reshape(-1, 1)
        q, k = (np.zeros_like(v) if a is None else np.float32(a).reshape(-1, 1) for a in (q, k))
        cache = np.zeros((2, 4, 1, 1), np.float32)
        sink = options.pop("sink", None)
        return paged(q, k, v, cache, cache.copy(), np.int32([0, len(v)]), np.int32([0]), np.int32([[1, 0]]), None, None, None, sink, num_heads=1, kv_num_heads=1,
                     **options).ravel().tolist()
    assert call([1, 2, 3, 4], local_window_size=2) == [1, 1.5, 2.5, 3.5]
    assert call([1, 2, 3, 4], local_window_size=1) == [1, 2, 3, 4]
    assert call([1, 2, 3, 4], is_causal=0) == [2.5] * 4
    assert call([1, 2, 3, 4], is_causal=0, local_window_size=2) == [2.5, 2.5, 3, 3.5]
    assert call([4], sink=np.float32([0])) == [2]
    assert call([4], [1], [-1000], sink=np.float32([0]), scale=1.0) == [0]
    assert 0 <= call([4], sink=np.float32([200]))[0] < 1e-37
    y = paged(np.zeros((1, 4), np.float32), np.zeros((1, 2), np.float32), np.float32([[1, 2]]), *[np.zeros((1, 1, 2, 1), np.float32) for _ in range(2)], np.int32([0, 1]),
              np.int32([0]), np.int32([[0]]), num_heads=4, kv_num_heads=2)
    assert y.ravel().tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout_of_paged_inputs(dtype):
    shapes = dict(query=(4, 32), key=(4, 16), value=(4, 16), cos_cache=(9, 4), sin_cache=(9, 4), head_sink=(4,), q_norm_weight=(8,), k_norm_weight=(8,))
    arrays = {name: normal(i, shape, dtype) for i, (name, shape) in enumerate(shapes.items())}
    arrays |= dict(cumulative_sequence_length=np.int32([0, 3, 4]), past_seqlens=np.int32([2, 5]), block_table=np.int32([[0, 2], [3, 1]]))
    caches = dict(key_cache=normal(20, (4, 4, 2, 8), dtype), value_cache=normal(21, (4, 4, 2, 8), dtype))
    options = dict(num_heads=4, kv_num_heads=2, do_rotary=1)
    expected = run_paged(arrays | caches, options)
    for forms in zip(*map(layouts, arrays.values()), strict=False):
        for a, e in zip(run_paged({name: a for name, (_, a) in zip(arrays, forms, strict=True)} | caches, options), expected, strict=True):
            assert_equal_bits(a, e, forms[0][0])


def test_empty_paged(tier):
    x, caches = np.zeros((0, 8), np.float32), [np.zeros((1, 4, 1, 8), np.float32) for _ in range(2)]
    assert paged(x, x, x, *caches, np.int32([0]), np.zeros(0, np.int32), np.zeros((0, 1), np.int32), num_heads=1, kv_num_heads=1).shape == (0, 8)
    assert paged(x, x, x, *caches, np.int32([0, 0]), np.int32([3]), np.int32([[-1]]), num_heads=1, kv_num_heads=1).shape == (0, 8)


def paged_problem():
    x, caches = normal(0, (3, 8)), [np.zeros((4, 4, 1, 8), np.float32) for _ in range(2)]
    inputs = dict(query=np.concatenate([x, x], 1), key=x, value=x, key_cache=caches[0], value_cache=caches[1], cumulative_sequence_length=np.int32([0, 2, 3]),
                  past_seqlens=np.int32([1, 3]), block_table=np.int32([[0, 1], [3, 2]]))
    return inputs, dict(num_heads=2, kv_num_heads=1)


def read_only(a):
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(query=np.zeros((3, 16))), TypeError, "query: expected dtype float32 or float16 or bfloat16, got float64"),
    (dict(query=np.zeros((1, 3, 16), np.float32)), ValueError, "query: expected 2 dimensions, the last divisible by 2 heads"),
    (dict(key=None), ValueError, "key: expected both key and value or neither"),
    (dict(key=np.zeros((2, 8), np.float32)), ValueError, r"key: expected shape \(3, 8\), got \(2, 8\)"),
    (dict(key_cache=None), TypeError, "key_cache: expected an array, got None"),
    (dict(key_cache=[1.0]), TypeError, "key_cache: expected an ndarray, which is written in place, got list"),
    (dict(key_cache=np.zeros((4, 4, 1, 7), np.float32)), ValueError, r"key_cache: expected shape \(4, 4, 1, 8\), got \(4, 4, 1, 7\)"),
    (dict(key_cache=np.zeros((4, 4, 1, 8), np.float32)[::-1]), ValueError, "key_cache: expected an aligned, C-contiguous and writeable array"),
    (dict(value_cache=read_only(np.zeros((4, 4, 1, 8), np.float32))), ValueError, "value_cache: expected an aligned, C-contiguous and writeable array"),
    (dict(value_cache=np.zeros((4, 4, 1, 8), np.float16)), TypeError, "value_cache: expected dtype float32 as key_cache, got float16"),
    (dict(value_cache=np.zeros((4, 4, 1, 8), np.uint8)), TypeError, "value_cache: expected dtype float32, float16, bfloat16 or int8, got uint8"),
    (dict(value_cache=np.zeros((3, 4, 1, 8), np.float32)), ValueError, r"value_cache: expected shape \(4, 4, 1, 8\), got \(3, 4, 1, 8\)"),
    (dict(cumulative_sequence_length=np.int32([0, 2, 4])), ValueError, "cumulative_sequence_length: expected from 0 to the 3 tokens of query, not decreasing"),
    (dict(cumulative_sequence_length=np.int32([1, 2, 3])), ValueError, "cumulative_sequence_length: expected from 0"),
    (dict(cumulative_sequence_length=np.int32([0, 4, 3])), ValueError, "cumulative_sequence_length: expected from 0"),
    (dict(past_seqlens=np.int32([1])), ValueError, r"past_seqlens: expected shape \(2,\), got \(1,\)"),
    (dict(past_seqlens=np.int32([-1, 3])), ValueError, "past_seqlens: expected 0 to 6 for 2 new tokens and 2 blocks of 4, got -1"),
    (dict(past_seqlens=np.int32([7, 3])), ValueError, "past_seqlens: expected 0 to 6 for 2 new tokens and 2 blocks of 4, got 7"),
    (dict(block_table=np.int32([[0, 1]])), ValueError, r"block_table: expected shape \(2, n\), got \(1, 2\)"),
    (dict(block_table=np.int32([[0, 4], [3, 2]])), IndexError, "block_table: expected -1 to 3, got 0 to 4"),
    (dict(block_table=np.int32([[0, -2], [3, 2]])), IndexError, "block_table: expected -1 to 3, got -2 to 3"),
    (dict(block_table=np.int32([[2, 1], [2, 2]]), past_seqlens=np.int32([1, 1])), ValueError, "block_table: expected a place of its own for each new token"),
    (dict(slot_mapping=np.int32([0, 1])), ValueError, r"slot_mapping: expected shape \(3,\), got \(2,\)"),
    (dict(slot_mapping=np.int32([0, 1, 16])), IndexError, "slot_mapping: expected -1 to 15, got 0 to 16"),
    (dict(slot_mapping=np.int32([0, 1, 1])), ValueError, "slot_mapping: expected a place of its own for each new token"),
    (dict(head_sink=np.zeros(3, np.float32)), ValueError, r"head_sink: expected shape \(2,\), got \(3,\)"),
    (dict(q_norm_weight=np.zeros(8, np.float32)), ValueError, "k_norm_weight: expected both q_norm_weight and k_norm_weight or neither"),
    (dict(k_scale=np.float32([1])), ValueError, "k_scale: expected None for a cache that is not quantized"),
    (dict(cos_cache=np.zeros((9, 2), np.float32)), ValueError, "sin_cache: expected both cos_cache and sin_cache or neither"),
    (dict(attention_metadata=np.int32([1, 9])), ValueError, r"attention_metadata: expected bounds of 2 new tokens and 4 keys of a sequence, got \[1, 9\]"),
    (dict(attention_metadata=np.int32([1])), ValueError, r"attention_metadata: expected shape \(2,\) or \(3,\), got \(1,\)"),
])
def test_errors_of_paged_inputs(change, error, match):
    x, attributes = paged_problem()
    with pytest.raises(error, match=f"paged_attention: {match}"):
        paged(*names_of(PAGED, x | change), **attributes)
    assert not x["key_cache"].any() and not x["value_cache"].any()  # nothing is written before everything is checked


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(num_heads=3, kv_num_heads=2), ValueError, "num_heads: expected a multiple of kv_num_heads 2, got 3"),
    (dict(kv_cache_layout="OTHER"), ValueError, "kv_cache_layout: expected SEPARATE or LATENT, got 'OTHER'"),
    (dict(kv_cache_layout="LATENT"), ValueError, "kv_cache_layout: expected kv_num_heads 1, a key, and nothing of values with LATENT"),
    (dict(v_head_size=4), ValueError, "v_head_size: expected 0 with kv_cache_layout SEPARATE, got 4"),
    (dict(local_window_size=0), ValueError, "local_window_size: expected -1"),
    (dict(is_causal=2), ValueError, "is_causal: expected 0 or 1, got 2"),
    (dict(softcap=-1.0), ValueError, "softcap: expected a finite number >= 0"),
    (dict(do_rotary=1), ValueError, "cos_cache: expected cos_cache and sin_cache with do_rotary 1"),
    (dict(rotary_offset=8), ValueError, "rotary_offset: expected do_rotary 1 with it"),
    (dict(rotary_interleaved=1), ValueError, "rotary_interleaved: expected do_rotary 1 with it"),
    (dict(k_quant_type="PER_TENSOR"), ValueError, "k_quant_type: expected NONE for a cache of floats"),
    (dict(k_quant_type="BOTH"), ValueError, "k_quant_type: expected NONE, PER_TENSOR or PER_CHANNEL, got 'BOTH'"),
    (dict(k_cache_dtype="int4"), ValueError, "k_cache_dtype: expected '' or the type of the cache, float32, got 'int4'"),
    (dict(outputs=(3,)), ValueError, "outputs:"),
    (dict(out=np.zeros((3, 15), np.float32)), ValueError, r"out: expected shape \(3, 16\), got \(3, 15\)"),
])
def test_errors_of_paged_attributes(change, error, match):
    x, attributes = paged_problem()
    with pytest.raises(error, match=f"paged_attention: {match}"):
        paged(*names_of(PAGED, x), **(attributes | change))
    assert not x["key_cache"].any()


def test_more_errors_of_pages():
    x, attributes = paged_problem()
    tables_ = dict(cos_cache=np.zeros((4, 4), np.float32), sin_cache=np.zeros((4, 4), np.float32))
    assert paged(*names_of(PAGED, x | tables_), **attributes, do_rotary=1).shape == (3, 16)
    for change, options, error, match in ((dict(cos_cache=np.zeros((3, 4), np.float32)), {}, IndexError, "cos_cache: expected at least 4 positions, got 3"),
                                          ({}, dict(rotary_offset=4), ValueError, "rotary_offset: expected a multiple of 8 below head_size 8, got 4"),
                                          ({}, dict(rotary_offset=8), ValueError, "rotary_offset: expected a multiple of 8 below head_size 8, got 8")):
        with pytest.raises(error, match=f"paged_attention: {match}"):
            paged(*names_of(PAGED, x | tables_ | change), **attributes, do_rotary=1, **options)
    with pytest.raises(ValueError, match="paged_attention: value_cache: overlaps key_cache"):
        paged(*names_of(PAGED, x | dict(value_cache=x["key_cache"])), **attributes)
    with pytest.raises(ValueError, match="paged_attention: key_cache: overlaps key"):
        paged(*names_of(PAGED, x | dict(key=x["key_cache"].reshape(-1)[:24].reshape(3, 8))), **attributes)
    latent = {k: v for k, v in x.items() if k not in ("value", "value_cache")}
    with pytest.raises(ValueError, match="paged_attention: scale: expected it where v_head_size 4 is not head_size 8"):
        paged(*names_of(PAGED, latent), **attributes, kv_cache_layout="LATENT", v_head_size=4)
    with pytest.raises(ValueError, match="paged_attention: v_head_size: expected 1 to head_size 8, got 9"):
        paged(*names_of(PAGED, latent), **attributes, kv_cache_layout="LATENT", v_head_size=9)
    with pytest.raises(ValueError, match="paged_attention: k_scale: expected the scales of a cache with quantization PER_TENSOR, got None"):
        codes = dict(key_cache=np.zeros((4, 4, 1, 8), np.int8), value_cache=np.zeros((4, 4, 1, 8), np.int8))
        paged(*names_of(PAGED, x | codes), **attributes, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR")
