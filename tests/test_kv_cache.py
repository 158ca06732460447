"""The key and value cache: positions, growth, views, errors."""
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from tests.oracle import FLOAT_DTYPES, assert_equal_bits, layouts
from tests.strategies import float_dtypes, normal, seeds


@given(seed=seeds, dtype=float_dtypes, batch=st.integers(1, 3), kv_heads=st.integers(1, 3), d=st.integers(1, 20), capacity=st.integers(0, 70),
       chunks=st.lists(st.integers(0, 90), max_size=5), own_dtype=st.booleans())
def test_append_is_a_concatenation(seed, dtype, batch, kv_heads, d, capacity, chunks, own_dtype):
    cache = qkernels.KVCache(2, kv_heads, d, capacity=capacity, dtype=dtype, batch=batch)
    assert cache.capacity == capacity and cache.length == 0
    parts = [[np.zeros((batch, kv_heads, 0, d), dtype)] for _ in range(4)]
    for n in chunks:
        new = [normal(seed + len(parts[0]) + 100 * i, (batch, kv_heads, n, d)) for i in range(4)]
        new = [x.astype(dtype) for x in new] if own_dtype else new
        for layer in range(2):
            k, v = new[2 * layer:2 * layer + 2]
            if batch == 1:
                k, v = k[0].transpose(1, 0, 2), v[0].transpose(1, 0, 2)
            cache.append(layer, k, v)
        cache.advance(n)
        for part, x in zip(parts, new, strict=True):
            part.append(x.astype(dtype))
    whole = [np.concatenate(part, 2) for part in parts]
    assert cache.length == sum(chunks) <= cache.capacity
    for layer in range(2):
        assert_equal_bits(cache.keys(layer), whole[2 * layer])
        assert_equal_bits(cache.values(layer), whole[2 * layer + 1])


def test_growth_is_geometric():
    cache, one = qkernels.KVCache(1, 1, 4), np.zeros((1, 1, 4), np.float32)
    capacities = set()
    for _ in range(2000):
        cache.append(0, one, one)
        cache.advance(1)
        capacities.add(cache.capacity)
    assert len(capacities) <= 6 and cache.nbytes == 2 * cache.capacity * 4 * 4
    cache = qkernels.KVCache(3, 2, 8, capacity=100, max_length=120, dtype=np.float16, batch=2)
    assert cache.nbytes == 2 * 3 * 2 * 2 * 100 * 8 * 2
    k = np.zeros((2, 2, 120, 8), np.float32)
    cache.append(0, k, k)
    assert cache.capacity == 120


def test_views_are_read_only_and_outlive_growth():
    cache = qkernels.KVCache(1, 2, 4, capacity=64)
    a = normal(0, (3, 2, 4))
    cache.append(0, a, -a)
    assert cache.keys(0).shape == (1, 2, 0, 4)
    cache.advance(3)
    k, v = cache.keys(0), cache.values(0)
    assert np.shares_memory(k, cache.keys(0)) and k.shape == (1, 2, 3, 4) and k.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        k[...] = 0
    cache.append(0, normal(1, (500, 2, 4)), normal(2, (500, 2, 4)))
    cache.advance(500)
    assert not np.shares_memory(k, cache.keys(0))
    del cache
    assert_equal_bits(k, a.transpose(1, 0, 2)[None])
    assert_equal_bits(v, -a.transpose(1, 0, 2)[None])


def test_truncate_and_reset():
    cache, a = qkernels.KVCache(1, 1, 2), normal(0, (9, 1, 2))
    cache.append(0, a, a)
    cache.advance(9)
    capacity = cache.capacity
    cache.truncate(4)
    assert cache.length == 4 and cache.capacity == capacity
    assert_equal_bits(cache.keys(0)[0, 0], a[:4, 0])
    cache.append(0, a[7:], a[7:])
    cache.advance(2)
    assert_equal_bits(cache.values(0)[0, 0], np.concatenate([a[:4, 0], a[7:, 0]]))
    cache.append(0, a, a)
    cache.reset()
    assert cache.length == 0 and cache.keys(0).shape == (1, 1, 0, 2)
    with pytest.raises(ValueError, match="layer 0 has 0 new tokens, got 9"):
        cache.advance(9)


def test_advance_wants_every_layer():
    cache, a = qkernels.KVCache(2, 1, 2), normal(0, (3, 1, 2))
    cache.append(0, a, a)
    with pytest.raises(ValueError, match="KVCache.advance: n: layer 1 has 0 new tokens, got 3"):
        cache.advance(3)
    assert cache.length == 0
    cache.append(1, a[:2], a[:2])
    with pytest.raises(ValueError, match="layer 1 has 2 new tokens, got 3"):
        cache.advance(3)
    cache.append(1, a, a)  # written again, not behind
    cache.advance(3)
    assert cache.length == 3
    with pytest.raises(ValueError, match="layer 0 has 0 new tokens, got 1"):
        cache.advance(1)


def test_pending_tokens_survive_growth():
    cache, a = qkernels.KVCache(2, 1, 2, capacity=64), normal(0, (3, 1, 2))
    cache.append(0, a, a)
    cache.append(1, np.tile(a, (100, 1, 1)), np.tile(a, (100, 1, 1)))
    cache.append(1, a, a)
    cache.advance(3)
    assert_equal_bits(cache.keys(0)[0, 0], a[:, 0])


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_rounds_once_to_nearest(dtype):
    cache = qkernels.KVCache(1, 1, 5, dtype=dtype)
    x = np.float32([1 + 2**-9, 1 + 3 * 2**-12, 1e6, 2**-25, np.nan]).reshape(1, 1, 5)
    cache.append(0, x, x)
    cache.advance(1)
    with np.errstate(over="ignore"):
        assert_equal_bits(cache.keys(0).ravel(), x.ravel().astype(dtype))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_B58_any_layout(dtype):
    a = normal(0, (6, 2, 8), dtype)
    for name, x in layouts(a):
        cache = qkernels.KVCache(1, 2, 8, dtype=dtype)
        cache.append(0, x, x)
        cache.advance(6)
        assert_equal_bits(np.ascontiguousarray(cache.keys(0)[0].transpose(1, 0, 2)), a, name)


def test_in_use_by_another_call_raises():
    """Two threads in one cache: each call either runs alone or raises, and the memory stays whole."""
    cache, qkv = qkernels.KVCache(1, 4, 64), normal(0, (400, 12 * 64))
    expected = qkernels.cached_attention(cache, 0, qkv, num_heads=4)
    seen, failures = [], []

    def work():
        for _ in range(5):
            try:
                seen.append(qkernels.cached_attention(cache, 0, qkv, num_heads=4, threads=1))
            except RuntimeError as error:
                failures.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen and all("cached_attention: cache: in use by another call" in f for f in failures)
    for y in seen:
        assert_equal_bits(y, expected)


@pytest.mark.parametrize("call, error, message", [
    (lambda c, a: c.append(2, a, a), IndexError, "KVCache.append: layer: expected 0 to 1, got 2"),
    (lambda c, a: c.append(-1, a, a), IndexError, "layer: expected 0 to 1, got -1"),
    (lambda c, a: c.append("0", a, a), TypeError, "layer: expected an int, got str"),
    (lambda c, a: c.keys(5), IndexError, "KVCache.keys: layer: expected 0 to 1, got 5"),
    (lambda c, a: c.append(0, a.astype(np.float64), a), TypeError, "KVCache.append: k: expected dtype float32 or float16, got float64"),
    (lambda c, a: c.append(0, a, None), TypeError, "KVCache.append: v: expected an array, got None"),
    (lambda c, a: c.append(0, a, a[:2]), ValueError, "KVCache.append: v: expected as many tokens as k, 3, got 2"),
    (lambda c, a: c.append(0, a[:, :1], a), ValueError, r"k: expected shape \(n, 2, 4\) or \(1, 2, n, 4\), got \(3, 1, 4\)"),
    (lambda c, a: c.append(0, np.tile(a, (3, 1, 1)), np.tile(a, (3, 1, 1))), ValueError, "KVCache.append: cache: length 0 . 9 new tokens exceeds max_length 8"),
    (lambda c, a: c.truncate(1), ValueError, "KVCache.truncate: n: expected 0 to length 0, got 1"),
    (lambda c, a: c.truncate(-1), ValueError, "truncate: n: expected 0 to"),
    (lambda c, a: c.advance(1.0), TypeError, "advance: n: expected an int, got float"),
    (lambda c, a: qkernels.KVCache(0, 1, 1), ValueError, "KVCache: layers: expected 1 to"),
    (lambda c, a: qkernels.KVCache(1, 1, 1, dtype=np.float64), TypeError, "KVCache: dtype: expected float32 or float16 or bfloat16 or int8, got float64"),
    (lambda c, a: qkernels.KVCache(1, 1, 1, capacity=9, max_length=8), ValueError, "KVCache: capacity: 9 exceeds max_length 8"),
    (lambda c, a: qkernels.KVCache(1, 1, 1, batch=True), TypeError, "KVCache: batch: expected an int, got bool"),
])
def test_errors(call, error, message):
    cache = qkernels.KVCache(2, 2, 4, max_length=8, dtype=np.float16)
    with pytest.raises(error, match=message):
        call(cache, normal(0, (3, 2, 4)))
    assert cache.length == 0
