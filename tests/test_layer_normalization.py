"""Layer normalization."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_STEP, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, lengths, normal, seeds


def exact(x, scale, bias=None, axis=-1, epsilon=1e-5):
    x, axes = np.float64(x), tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    inv = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)
    y = (x - mean) * inv * np.float64(scale)
    return (y if bias is None else y + np.float64(bias)), mean, inv


def assert_near(actual, x, scale, bias, axis, epsilon):
    y, mean, inv = exact(x, scale, bias, axis, epsilon)
    # float32 sums of n terms; the mean's error, relative to the values' size, is what y sees as an absolute one
    n = mean.size and x.size // mean.size
    error = (8 + n / 64) * 2.0**-24
    size = np.abs(np.float64(x)).max(initial=0)
    np.testing.assert_allclose(actual[1], mean, rtol=0, atol=error * size)
    np.testing.assert_allclose(actual[2], inv, rtol=2 * error + error * size * inv.max(initial=0))
    terms = np.abs(np.float64(x) - mean) * inv * np.abs(np.float64(scale)) + (0 if bias is None else np.abs(np.float64(bias)))
    smallest = HALF_STEP[actual[0].dtype]
    allowed = HALF_ULP[actual[0].dtype] * 1.01 * np.abs(y) + 3 * error * (terms + size * inv * np.abs(np.float64(scale))) + smallest
    assert (np.abs(np.float64(actual[0]) - y) <= allowed).all()


@pytest.mark.differential("layer_normalization")
@given(seed=seeds, dtype=float_dtypes, lead=st.lists(st.integers(1, 4), max_size=2), n=lengths, with_bias=st.booleans(), offset=st.sampled_from([0, 10]), data=st.data())
def test_against_exact_and_tiers(seed, dtype, lead, n, with_bias, offset, data):
    shape = (*lead, n)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = (normal(seed, shape, scale=3) + np.float32(offset)).astype(dtype)
    scale = normal(seed + 1, shape[axis % len(shape):], dtype)
    bias = normal(seed + 2, shape[axis % len(shape):], dtype) if with_bias else None
    results = one_result(lambda t: qkernels.layer_normalization(x, scale, bias, axis=axis, epsilon=1e-3, outputs=(0, 1, 2), threads=t))
    assert [r.dtype for r in results] == [dtype, np.float32, np.float32]
    assert [r.shape for r in results] == [shape, *[shape[:axis % len(shape)] + (1,) * (len(shape) - axis % len(shape))] * 2]
    assert_near(results, x, scale, bias, axis, 1e-3)
    assert_equal_bits(qkernels.layer_normalization(x, scale, bias, axis=axis, epsilon=1e-3), results[0])
    if dtype == np.float32:
        expected = evaluate("", "LayerNormalization", [x, scale, bias], outputs=3, axis=axis, epsilon=1e-3)
        np.testing.assert_allclose(results[0], expected[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(results[2], expected[2], rtol=1e-4)


def test_large_mean_does_not_hurt_the_variance(tier):
    x = (1000 + np.arange(64) / 64).astype(np.float32)[None]
    y, mean, inv = qkernels.layer_normalization(x, np.ones(64, np.float32), epsilon=0, outputs=(0, 1, 2))
    expected = exact(x, np.ones(64), epsilon=0)
    np.testing.assert_allclose(inv, expected[2], rtol=1e-6)
    np.testing.assert_allclose(y, expected[0], atol=2e-4)
    half = np.full((1, 300), 60000, np.float16)  # float16 sums would overflow
    half[0, ::2] = 59968
    y = qkernels.layer_normalization(half, np.ones(300, np.float16), epsilon=0)
    assert np.float32(y[0, :2]).tolist() == [-1, 1]


def test_outputs_and_stash_type(tier):
    x, one = normal(0, (3, 40)), np.ones(40, np.float32)
    y, mean, inv = qkernels.layer_normalization(x, one, outputs=(0, 1, 2))
    assert_equal_bits(qkernels.layer_normalization(x, one, outputs=(2,)), inv)
    a, b = qkernels.layer_normalization(x, one, outputs=(2, 0))
    assert_equal_bits(a, inv)
    assert_equal_bits(b, y)
    _, m16, i16 = qkernels.layer_normalization(x, one, stash_type=16, outputs=(0, 1, 2))
    assert_equal_bits(m16, mean.astype(BF16))
    assert_equal_bits(i16, inv.astype(BF16))
    z = x.copy()
    assert qkernels.layer_normalization(z, one, out=z) is z
    assert_equal_bits(z, y)


def test_scale_and_bias_broadcast(tier):
    x = normal(0, (2, 3, 8))
    for shape in ((), (1,), (8,), (3, 1), (1, 8), (3, 8), (2, 1, 8), (2, 3, 8)):
        s, b = normal(1, shape), normal(2, shape)
        y = qkernels.layer_normalization(x, s, b, axis=1)
        np.testing.assert_allclose(y, exact(x, s, b, 1)[0], rtol=1e-5, atol=1e-5)
    mixed = qkernels.layer_normalization(x.astype(np.float16), s, b.astype(BF16), axis=1)
    assert mixed.dtype == np.float16


def test_float64_through_numpy():
    x, s, b = (np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate([(3, 8), (8,), (8,)]))
    y, mean, inv = qkernels.layer_normalization(x, s, b, outputs=(0, 1, 2))
    expected = exact(x, s, b)
    np.testing.assert_allclose(y, expected[0], rtol=1e-13)
    assert y.dtype == np.float64 and mean.dtype == inv.dtype == np.float32
    for dtype in FLOAT_DTYPES:  # mixed: the result's type is x's
        z = qkernels.layer_normalization(x.astype(dtype), s, b)
        assert_equal_bits(z, exact(x.astype(dtype), s, b)[0].astype(dtype))
    z = x.copy()
    assert qkernels.layer_normalization(z, s, b, out=z) is z
    assert_equal_bits(z, y)


def test_special_values_and_empty_shapes(tier):
    one = np.ones(3, np.float32)
    y = qkernels.layer_normalization(np.float32([[1, np.nan, 2], [1, 2, 3], [np.inf, 1, 1]]), one)
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all() and np.isnan(y[2]).all()
    assert qkernels.layer_normalization(np.full((1, 3), 5, np.float32), one, one).tolist() == [[1, 1, 1]]
    for shape in ((0, 4), (3, 0), (0,)):
        y, mean, inv = qkernels.layer_normalization(np.zeros(shape, np.float32), np.ones(shape[-1:], np.float32), outputs=(0, 1, 2))
        assert y.shape == shape and mean.shape == inv.shape == (*shape[:-1], 1)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype, tier):
    x, s, b = normal(0, (6, 40), dtype), normal(1, (40,), dtype), normal(2, (40,), dtype)
    expected = qkernels.layer_normalization(x, s, b)
    for name, a in layouts(x):
        assert_equal_bits(qkernels.layer_normalization(a, s, b), expected, name)
    for name, a in layouts(s):
        assert_equal_bits(qkernels.layer_normalization(x, a, b), expected, name)
    for name, a in layouts(b):
        assert_equal_bits(qkernels.layer_normalization(x, s, a), expected, name)


@pytest.mark.parametrize("call, error, message", [
    (lambda x, g: qkernels.layer_normalization(x.astype(np.int32), g), TypeError, "layer_normalization: x: expected dtype float32, float16, bfloat16 or float64"),
    (lambda x, g: qkernels.layer_normalization(np.float64(x), g[:3]), ValueError, r"layer_normalization: scale: expected a shape that broadcasts to \(8,\), got \(3,\)"),
    (lambda x, g: qkernels.layer_normalization(np.float64(x), np.ones((2, 4, 8))), ValueError, r"scale: expected a shape that broadcasts to \(8,\), got \(2, 4, 8\)"),
    (lambda x, g: qkernels.layer_normalization(d := np.float64(x), np.float64(g), out=d[::-1]), ValueError, "layer_normalization: out: expected an aligned C-contiguous"),
    (lambda x, g: qkernels.layer_normalization(x, g[:3]), ValueError, r"layer_normalization: scale: expected a shape that broadcasts to \(8,\), got \(3,\)"),
    (lambda x, g: qkernels.layer_normalization(x, g, g[:3]), ValueError, r"layer_normalization: bias: expected a shape that broadcasts to \(8,\)"),
    (lambda x, g: qkernels.layer_normalization(x, g, axis=2), ValueError, "layer_normalization: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda x, g: qkernels.layer_normalization(x, g, epsilon=-1), ValueError, "epsilon: expected a number >= 0"),
    (lambda x, g: qkernels.layer_normalization(x, g, stash_type=10), ValueError, "stash_type: expected 1"),
    (lambda x, g: qkernels.layer_normalization(x, None), TypeError, "layer_normalization: scale: expected an array, got None"),
    (lambda x, g: qkernels.layer_normalization(x, g, outputs=(3,)), ValueError, "outputs: expected distinct indices"),
    (lambda x, g: qkernels.layer_normalization(x, g, outputs=(1,), out=x), ValueError, "out: output 0 is not among"),
    (lambda x, g: qkernels.layer_normalization(np.float32(1), g), ValueError, "x: expected at least 1 dimension"),
    (lambda x, g: qkernels.layer_normalization(x, g, out=np.empty((4, 8), ml_dtypes.bfloat16)), TypeError, "out: expected dtype float32, got bfloat16"),
    (lambda x, g: qkernels.layer_normalization(x[1:], g, out=x[:3]), ValueError, "out: overlaps x without being the same array"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)), np.ones(8, np.float32))
