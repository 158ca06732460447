"""Rotary position embedding in both domains."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels import contrib
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import float_dtypes, normal, seeds

small = st.integers(1, 4)
halves = st.one_of(st.integers(1, 40), st.just(64))


def caches(seed, shape, dtype=np.float32):
    """cos and sin of random angles."""
    angle = np.random.default_rng(seed).uniform(0, 100, shape).astype(np.float32)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


@pytest.mark.differential("rotary_embedding")
@given(seed=seeds, dtype=float_dtypes, batch=small, sequence=small, heads=small, half=halves, rest=st.integers(0, 20), interleaved=st.booleans(),
       flat=st.booleans(), by_position=st.booleans())
def test_rotary_embedding_against_onnx_reference(seed, dtype, batch, sequence, heads, half, rest, interleaved, flat, by_position):
    size = 2 * half + rest
    x = normal(seed, (batch, sequence, heads * size) if flat else (batch, heads, sequence, size), dtype)
    cos, sin = caches(seed, (7, half) if by_position else (batch, sequence, half), dtype)
    positions = np.random.default_rng(seed).integers(0, 7, (batch, sequence)) if by_position else None
    attributes = {"interleaved": int(interleaved), "num_heads": heads if flat else 0, "rotary_embedding_dim": 2 * half if rest else 0}
    if not rest and size % 2:
        return
    y = one_result(lambda t: qkernels.rotary_embedding(x, cos, sin, positions, **attributes, threads=t))
    # the reference computes in the type itself: in float32 every bit is determined; then one rounding to the type
    wide = [x.astype(np.float32), cos.astype(np.float32), sin.astype(np.float32), positions]
    expected, = evaluate("", "RotaryEmbedding", wide if by_position else wide[:3], **attributes)
    assert_equal_bits(y, expected.astype(dtype))


@pytest.mark.differential("contrib.rotary_embedding")
@given(seed=seeds, dtype=float_dtypes, batch=small, sequence=small, heads=small, half=halves, rest=st.integers(0, 20), interleaved=st.booleans(),
       flat=st.booleans(), offset=st.booleans(), wide_cache=st.booleans())
def test_contrib_against_specification(seed, dtype, batch, sequence, heads, half, rest, interleaved, flat, offset, wide_cache):
    size = 2 * half + rest
    x = normal(seed, (batch, sequence, heads * size) if flat else (batch, heads, sequence, size), dtype)
    cos, sin = caches(seed, (9, half), np.float32 if wide_cache else dtype)
    positions = np.int64([9 - sequence]) if offset else np.random.default_rng(seed).integers(0, 9, (batch, sequence))
    attributes = {"interleaved": int(interleaved), "num_heads": heads if flat and rest else 0, "rotary_embedding_dim": 2 * half if rest else 0}
    y = one_result(lambda t: contrib.rotary_embedding(x, positions, cos, sin, **attributes, threads=t))
    expected, = evaluate("com.microsoft", "RotaryEmbedding", [x, positions, cos, sin], **attributes)
    assert_equal_bits(y, expected)


@pytest.mark.differential("contrib.rotary_embedding")
@given(seed=seeds, dtype=st.sampled_from([np.float32, np.float16]), batch=st.integers(1, 3), heads=st.integers(1, 4), sequence=st.integers(1, 6), half=st.integers(1, 20),
       rest=st.sampled_from([0, 2, 6]), interleaved=st.integers(0, 1), flat=st.booleans(), offset=st.booleans(), packed=st.booleans())
def test_contrib_against_onnx_runtime(seed, dtype, batch, heads, sequence, half, rest, interleaved, flat, offset, packed):
    size, rows = 2 * half + rest, 11
    # ONNX Runtime wants num_heads for partial rotation even with 4 dimensions
    attributes = {"interleaved": interleaved, "num_heads": heads if rest else 0, "rotary_embedding_dim": 2 * half if rest else 0,
                  "is_packed_batching": int(packed and not offset)}
    x = normal(seed, (batch, sequence, heads * size) if flat else (batch, heads, sequence, size), dtype)
    cos, sin = (c.astype(dtype) for c in caches(seed + 1, (rows, half)))
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, rows - sequence + 1, 1) if offset else rng.integers(0, rows, (batch, sequence))
    expected, = onnxruntime_node("com.microsoft", "RotaryEmbedding", [x, positions, cos, sin], **attributes)
    y = contrib.rotary_embedding(x, positions, cos, sin, **attributes)
    assert y.dtype == expected.dtype and y.shape == expected.shape
    # it may fuse one product and the sum: one rounding of a product less, two values of up to |a| + |b| apart; then one rounding to float16 more
    allowed = 2 * 2.0**-24 * 2 * np.abs(np.float64(x)).max() + (2.0**-10 * np.abs(np.float64(y)) + 2.0**-24 if dtype == np.float16 else 0)
    assert (np.abs(np.float64(y) - np.float64(expected)) <= allowed).all()


@pytest.mark.parametrize("domain", ["ai.onnx", "com.microsoft"])
def test_B40_partial_rotation(domain, tier):
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 1, 8)
    zero, one = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)

    def call(dim, **attributes):
        if domain == "ai.onnx":
            return qkernels.rotary_embedding(x, zero[None], one[None], rotary_embedding_dim=dim, **attributes)
        return contrib.rotary_embedding(x, np.int64([0]), zero, one, rotary_embedding_dim=dim, **attributes)
    assert call(4).ravel().tolist() == [-3, -4, 1, 2, 5, 6, 7, 8]
    assert call(4, interleaved=1).ravel().tolist() == [-2, 1, -4, 3, 5, 6, 7, 8]
    for dim in (5, 10, 1):
        with pytest.raises(ValueError, match=f"rotary_embedding_dim: expected an even number up to the head size 8, got {dim}"):
            call(dim)
    with pytest.raises(ValueError, match="cos_cache: expected shape"):
        call(0)


def test_B41_ranks_and_argument_order(tier):
    batch, sequence, heads, size = 2, 5, 3, 8
    x = normal(0, (batch, heads, sequence, size))
    flat = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, sequence, heads * size)
    cos, sin = caches(1, (6, size // 2))
    positions = np.int64([[0, 1, 2, 3, 4], [5, 4, 3, 3, 0]])
    expected = qkernels.rotary_embedding(x, cos, sin, positions)
    back = lambda y: y.reshape(batch, sequence, heads, size).transpose(0, 2, 1, 3)
    assert_equal_bits(back(qkernels.rotary_embedding(flat, cos, sin, positions, num_heads=heads)), expected)
    assert_equal_bits(qkernels.rotary_embedding(x, cos[positions], sin[positions]), expected)
    assert_equal_bits(qkernels.rotary_embedding(x, cos, sin, positions, num_heads=heads), expected)
    assert_equal_bits(contrib.rotary_embedding(x, positions, cos, sin), expected)
    assert_equal_bits(back(contrib.rotary_embedding(flat, positions, cos, sin)), expected)
    assert_equal_bits(back(contrib.rotary_embedding(flat, positions, cos, sin, num_heads=heads)), expected)
    assert_equal_bits(contrib.rotary_embedding(x, np.int64([1]), cos, sin), contrib.rotary_embedding(x, np.int64([[1, 2, 3, 4, 5]] * 2), cos, sin))
    assert_equal_bits(contrib.rotary_embedding(x, positions, cos, sin, is_packed_batching=1), expected)
    with pytest.raises(ValueError, match=r"rotary_embedding: num_heads: expected a number > 0 for x with 3 dimensions"):
        qkernels.rotary_embedding(flat, cos, sin, positions)
    with pytest.raises(ValueError, match="contrib.rotary_embedding: num_heads: expected a number > 0"):
        contrib.rotary_embedding(flat, positions, cos, sin, rotary_embedding_dim=8)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("interleaved", [0, 1])
def test_any_layout(dtype, interleaved):
    x, (cos, sin), positions = normal(0, (4, 3, 5, 38), dtype), caches(1, (9, 18), dtype), np.random.default_rng(0).integers(0, 9, (4, 5))
    call = lambda x, cos, sin, p: qkernels.rotary_embedding(x, cos, sin, p, rotary_embedding_dim=36, interleaved=interleaved)
    expected = call(x, cos, sin, positions)
    for name, a in layouts(x):
        assert_equal_bits(call(a, cos, sin, positions), expected, name)
    for name, a in layouts(x.transpose(0, 2, 1, 3)):
        assert_equal_bits(call(a.transpose(0, 2, 1, 3), cos, sin, positions), expected, name)
    for (name, c), (_, s) in zip(layouts(cos), layouts(sin), strict=True):
        assert_equal_bits(call(x, c, s, positions), expected, name)
    for name, p in layouts(positions):
        assert_equal_bits(call(x, cos, sin, p), expected, name)
    broadcast = np.broadcast_to(x[:1], x.shape)
    assert_equal_bits(call(broadcast, cos, sin, positions), call(broadcast.copy(), cos, sin, positions))
    sliced = np.zeros((4, 3, 7, 50), dtype)
    sliced[:, :, 1:6, 5:43] = x
    assert_equal_bits(call(sliced[:, :, 1:6, 5:43], cos, sin, positions), expected)


def test_interleaved_is_half_split_of_sorted_pairs(tier):
    for half in range(1, 50):
        x, (cos, sin) = normal(half, (1, 2, 3, 2 * half)), caches(half, (1, 3, half))
        pairs = np.concatenate([x[..., ::2], x[..., 1::2]], -1)
        y = qkernels.rotary_embedding(x, cos, sin, interleaved=1)
        assert_equal_bits(np.concatenate([y[..., ::2], y[..., 1::2]], -1), qkernels.rotary_embedding(pairs, cos, sin))


def test_float32_caches_with_16_bit_heads(tier):
    x, (cos, sin) = normal(0, (1, 2, 3, 64)), caches(1, (1, 3, 32))
    for dtype in (np.float16, BF16):
        narrow = x.astype(dtype)
        assert_equal_bits(qkernels.rotary_embedding(narrow, cos, sin), qkernels.rotary_embedding(narrow.astype(np.float32), cos, sin).astype(dtype))


def test_any_chunking_is_the_same():
    x, (cos, sin) = normal(0, (2, 3, 300, 128)), caches(1, (300, 64))
    whole = one_result(lambda t: contrib.rotary_embedding(x, np.int64([0]), cos, sin, threads=t), (1, 2, 5))
    for start, stop in ((0, 1), (3, 10), (299, 300)):
        assert_equal_bits(contrib.rotary_embedding(x[:, :, start:stop], np.int64([start]), cos, sin), whole[:, :, start:stop])


def test_out():
    x, (cos, sin) = normal(0, (2, 3, 5, 20)), caches(1, (2, 5, 8))
    for interleaved in (0, 1):
        expected = qkernels.rotary_embedding(x, cos, sin, rotary_embedding_dim=16, interleaved=interleaved)
        out = np.full_like(x, np.nan)
        assert qkernels.rotary_embedding(x, cos, sin, rotary_embedding_dim=16, interleaved=interleaved, out=out) is out
        assert_equal_bits(out, expected)
        a = x.copy()
        qkernels.rotary_embedding(a, cos, sin, rotary_embedding_dim=16, interleaved=interleaved, out=a)
        assert_equal_bits(a, expected)


def test_B51_empty_shapes():
    for shape in ((0, 2, 3, 8), (1, 0, 3, 8), (1, 2, 0, 8), (1, 2, 3, 0)):
        cache = np.zeros((shape[0], shape[2], shape[3] // 2), np.float32)
        assert qkernels.rotary_embedding(np.zeros(shape, np.float32), cache, cache).shape == shape
    cache = np.zeros((4, 4), np.float32)
    assert contrib.rotary_embedding(np.zeros((1, 0, 16), np.float32), np.int64([0]), cache, cache).shape == (1, 0, 16)


def test_B57_read_only_inputs_and_out():
    x, (cos, sin) = normal(0, (1, 1, 2, 8)), caches(1, (3, 4))
    frozen = [np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for a in (x, cos, sin, np.int64([[0, 2]]))]
    assert_equal_bits(qkernels.rotary_embedding(*frozen), qkernels.rotary_embedding(x, cos, sin, np.int64([[0, 2]])))
    with pytest.raises(ValueError, match="out: expected a writeable array"):
        qkernels.rotary_embedding(*frozen, out=frozen[0])


X, C, P = np.zeros((2, 3, 5, 8), np.float32), np.zeros((6, 4), np.float32), np.zeros((2, 5), np.int64)


@pytest.mark.parametrize("bad", [6, -1, 2**40])
def test_positions_out_of_range(bad):
    positions = P.copy()
    positions[1, 2] = bad
    for call in (lambda: qkernels.rotary_embedding(X, C, C, positions), lambda: contrib.rotary_embedding(X, positions, C, C)):
        with pytest.raises(IndexError, match=f"rotary_embedding: position_ids: expected 0 to 5 for caches of 6 rows, got {bad}$"):
            call()
    for start in (2, -1, 2**62):
        with pytest.raises(IndexError, match=f"position_ids: expected 0 to 1 for 5 tokens and caches of 6 rows, got {start}$"):
            contrib.rotary_embedding(X, np.int64([start]), C, C)


@pytest.mark.parametrize("call, error, message", [
    (lambda: qkernels.rotary_embedding(X.astype(np.float64), C, C, P), TypeError, "rotary_embedding: x: expected dtype float32 or float16 or bfloat16"),
    (lambda: qkernels.rotary_embedding(X, C.astype(np.float16), C, P), TypeError, "rotary_embedding: cos_cache: expected dtype float32, got float16"),
    (lambda: qkernels.rotary_embedding(X.astype(BF16), C.astype(BF16), C, P), TypeError, "sin_cache: expected dtype bfloat16 as cos_cache, got float32"),
    (lambda: qkernels.rotary_embedding(X[0, 0], C, C, P), ValueError, r"x: expected 3 or 4 dimensions, got shape \(5, 8\)"),
    (lambda: qkernels.rotary_embedding(X, C, C), ValueError, r"cos_cache: expected shape \(2, 5, 4\), got \(6, 4\)"),
    (lambda: qkernels.rotary_embedding(X, C, C[:5], P), ValueError, r"sin_cache: expected shape \(6, 4\), got \(5, 4\)"),
    (lambda: qkernels.rotary_embedding(X, C[None], C[None], P), ValueError, "cos_cache: expected 2 dimensions where position_ids are given"),
    (lambda: qkernels.rotary_embedding(X, C, C, P[:1]), ValueError, r"position_ids: expected shape \(2, 5\), got \(1, 5\)"),
    (lambda: qkernels.rotary_embedding(X, C, C, P.astype(np.float32)), TypeError, "position_ids: expected an integer dtype"),
    (lambda: qkernels.rotary_embedding(X, C, C, P, num_heads=2), ValueError, "num_heads: expected 3 or 0 for x of shape"),
    (lambda: qkernels.rotary_embedding(X[0], C, C, P, num_heads=3), ValueError, "num_heads: expected a divisor of x's last dimension 8, got 3"),
    (lambda: qkernels.rotary_embedding(X, C, C, P, num_heads=-3), ValueError, "num_heads: expected a number >= 0, got -3"),
    (lambda: qkernels.rotary_embedding(X, C, C, P, num_heads=3.0), TypeError, "num_heads: expected an int, got float"),
    (lambda: qkernels.rotary_embedding(X, C, C, P, interleaved=2), ValueError, "interleaved: expected 0 or 1, got 2"),
    (lambda: qkernels.rotary_embedding(X[..., :7], C, C, P), ValueError, "x: expected an even head size, got 7"),
    (lambda: qkernels.rotary_embedding(X, C, C, P, out=X.astype(np.float16)), TypeError, "out: expected dtype float32, got float16"),
    (lambda: qkernels.rotary_embedding(X, C, C, P, threads=0), ValueError, "threads: expected 1 to 1024"),
    (lambda: qkernels.rotary_embedding(X.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3), C, C, P, out=X), ValueError, "out: overlaps x without"),
    (lambda: contrib.rotary_embedding(X, P, C, C, scale=2.0), ValueError, "contrib.rotary_embedding: scale: expected 1, got 2.0"),
    (lambda: contrib.rotary_embedding(X, P, C[0], C), ValueError, r"cos_cache: expected 2 dimensions, got shape \(4,\)"),
    (lambda: contrib.rotary_embedding(X, P[0], C, C), ValueError, r"position_ids: expected shape \(1,\) or \(2, 5\), got \(5,\)"),
    (lambda: contrib.rotary_embedding(X, np.int64([0]), C, C, is_packed_batching=1), ValueError, r"position_ids: expected shape \(2, 5\), got \(1,\)"),
    (lambda: contrib.rotary_embedding(X[0][..., :6], P, C, C), ValueError, "x: expected a multiple of 8, twice the caches' width"),
    (lambda: contrib.rotary_embedding(X, None, C, C), TypeError, "position_ids: expected an array, got None"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
