"""Softmax and log-softmax."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_STEP, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, lengths, normal, seeds


def exact(x, axis=-1, log=False):
    x = np.float64(x)
    x = x - x.max(axis, keepdims=True)
    total = np.exp(x).sum(axis, keepdims=True)
    return x - np.log(total) if log else np.exp(x) / total


def assert_near(y, x, axis, log):
    expected, n = exact(x, axis, log), x.shape[axis]
    smallest = HALF_STEP[y.dtype] * (4 if y.dtype == np.float32 else 1)  # float32: exponential, quotient and product round there
    # float32: x - m and the exponential of 1 ulp (each x up to 2^-24 |x - m|), a sum of n terms, quotient and product; then one rounding to the type
    spread = np.abs(np.float64(x) - np.float64(x).max(axis, keepdims=True)).max(initial=0)
    error = (6 + n / 64 + spread) * 2.0**-24
    if log:  # relative to the terms, not to a small result
        np.testing.assert_allclose(np.float64(y), expected, rtol=HALF_ULP[y.dtype] * 1.01, atol=error + spread * 2.0**-23)
    else:
        np.testing.assert_allclose(np.float64(y), expected, rtol=error + HALF_ULP[y.dtype] * 1.01, atol=smallest)


@pytest.mark.differential("softmax", "log_softmax")
@given(seed=seeds, dtype=float_dtypes, lead=st.lists(st.integers(1, 4), max_size=2), n=lengths, log=st.booleans(), scale=st.sampled_from([1, 10, 50]), data=st.data())
def test_against_exact_and_tiers(seed, dtype, lead, n, log, scale, data):
    shape = (*lead, n)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = normal(seed, shape, dtype, scale)
    call = qkernels.log_softmax if log else qkernels.softmax
    y = one_result(lambda t: call(x, axis=axis, threads=t))
    assert y.dtype == dtype and y.shape == shape
    assert_near(y, x, axis, log)
    if dtype == np.float32:
        expected, = evaluate("", "Softmax", [x], axis=axis)  # its LogSoftmax is the logarithm of this, -inf where this is 0
        usual = expected > 1e-37
        np.testing.assert_allclose(y[usual], np.log(expected[usual]) if log else expected[usual], rtol=1e-5, atol=2e-5 if log else 0)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 1000, 151_936])
def test_rows_of_any_length(n):
    for dtype in FLOAT_DTYPES:
        x = normal(n, (3, n), dtype, 4)
        for call, log in ((qkernels.softmax, False), (qkernels.log_softmax, True)):
            y = one_result(lambda t, call=call: call(x, threads=t))
            assert_near(y, x, -1, log)
            assert_equal_bits(y[1], call(x[1]), "a row does not depend on the others")


def test_special_values(tier):
    inf, nan = np.inf, np.nan
    for dtype in FLOAT_DTYPES:
        x = np.array([[0, 1, 0], [-inf, -inf, -inf], [-inf, 3, 3], [inf, 0, 0], [nan, 0, 1], [0, 0, nan]], dtype)
        y = np.float32(qkernels.softmax(x))
        assert np.isfinite(y[0]).all() and np.isnan(y[1]).all() and y[2].tolist() == [0, 0.5, 0.5] and np.isnan(y[3:]).all()
        with np.errstate(invalid="ignore"):
            expected, = evaluate("", "Softmax", [np.float32(x)])
        assert (np.isnan(y) == np.isnan(expected)).all()
        y = np.float32(qkernels.log_softmax(x))
        assert np.isnan(y[1]).all() and y[2, 0] == -inf and np.isnan(y[3:]).all()
        wide = np.full((1, 100), -60000, dtype)  # far from any range of exp
        assert_equal_bits(qkernels.softmax(wide), np.full((1, 100), np.float32(0.01), dtype))
        for n in (17, 70, 130):  # a NaN anywhere, in any accumulator
            for i in range(n):
                x = np.zeros((1, n), dtype)
                x[0, i] = nan
                assert np.isnan(np.float32(qkernels.softmax(x))).all()


def test_float64_through_numpy():
    x = np.random.default_rng(0).standard_normal((3, 5)) * 10
    for axis in (0, 1):
        np.testing.assert_allclose(qkernels.softmax(x, axis=axis), exact(x, axis), rtol=1e-14)
        np.testing.assert_allclose(qkernels.log_softmax(x, axis=axis), exact(x, axis, True), rtol=1e-13)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype, tier):
    x = normal(0, (6, 5, 40), dtype)
    for call in (qkernels.softmax, qkernels.log_softmax):
        for axis in (0, 1, 2):
            expected = call(x, axis=axis)
            for name, a in layouts(x):
                assert_equal_bits(call(a, axis=axis), expected, name)
            assert_equal_bits(call(np.moveaxis(x, axis, -1)), np.moveaxis(expected, axis, -1))


def test_empty_shapes_and_out():
    for shape in ((0, 4), (3, 0), (0,)):
        for dtype in (*FLOAT_DTYPES, np.float64):
            assert qkernels.softmax(np.zeros(shape, dtype)).shape == qkernels.log_softmax(np.zeros(shape, dtype), axis=0).shape == shape
    x = normal(0, (6, 40), BF16)
    expected = qkernels.softmax(x)
    assert qkernels.softmax(x, out=x) is x
    assert_equal_bits(x, expected)
    x, out = normal(0, (6, 40)), np.empty((6, 40), np.float32)
    assert qkernels.softmax(x, axis=0, out=out) is out
    assert_equal_bits(out, qkernels.softmax(x, axis=0))


@pytest.mark.parametrize("call, error, message", [
    (lambda x: qkernels.softmax(x.astype(np.int32)), TypeError, "softmax: x: expected dtype float32 or float16 or bfloat16, got int32"),
    (lambda x: qkernels.log_softmax(x, axis=2), ValueError, "log_softmax: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda x: qkernels.softmax(x, axis=1.0), TypeError, "softmax: axis: expected an int, got float"),
    (lambda x: qkernels.softmax(np.float32(1)), ValueError, "softmax: x: expected at least 1 dimension"),
    (lambda x: qkernels.softmax(x, out=np.empty((3, 8), np.float32)), ValueError, r"softmax: out: expected shape \(4, 8\), got \(3, 8\)"),
    (lambda x: qkernels.softmax(x[1:], out=x[:3]), ValueError, "softmax: out: overlaps x without being the same array"),
    (lambda x: qkernels.softmax(x, threads=0), ValueError, "softmax: threads: expected 1 to 1024, got 0"),
    (lambda x: qkernels.softmax(None), TypeError, "softmax: x: expected an array, got None"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)))
