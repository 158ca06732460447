"""Sums, means and maxima over axes."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_STEP, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, normal, seeds

CALLS = {"reduce_sum": qkernels.reduce_sum, "reduce_mean": qkernels.reduce_mean, "reduce_max": qkernels.reduce_max}
OPERATORS = {"reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax"}


def exact(name, x, axes, keepdims):
    wide = np.longdouble(np.float64(x))
    return {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max}[name](wide, axis=axes, keepdims=bool(keepdims))


@pytest.mark.differential("reduce_sum", "reduce_mean", "reduce_max")
@given(seed=seeds, name=st.sampled_from(list(CALLS)), dtype=float_dtypes, shape=st.lists(st.one_of(st.integers(1, 5), st.integers(14, 70)), max_size=4), keepdims=st.integers(0, 1), data=st.data())
def test_against_exact_and_onnx_reference(seed, name, dtype, shape, keepdims, data):
    shape = [min(n, 5) for n in shape[:-2]] + shape[-2:]
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True)) if shape else []
    x = normal(seed, shape, dtype, 3)
    signed = [a - len(shape) if seed >> a & 1 else a for a in axes]
    y = one_result(lambda t: CALLS[name](x, np.array(signed, np.int64) if axes else None, keepdims=keepdims, threads=t))
    v = exact(name, x, tuple(axes) or None, keepdims)
    assert y.dtype == dtype and y.shape == np.shape(v)
    if name == "reduce_max":
        assert_equal_bits(y, np.asarray(v).astype(np.float32).astype(dtype))
    else:  # double precision, then the one rounding
        scale = np.sum(np.abs(np.float64(x)))
        smallest = HALF_STEP[np.dtype(dtype)]
        np.testing.assert_allclose(np.float64(y), np.float64(v), rtol=HALF_ULP[dtype] * 1.0001, atol=scale * 2.0**-50 + smallest)
    if dtype == np.float32:
        expected = np.asarray(evaluate("", OPERATORS[name], [x, np.array(signed, np.int64)], keepdims=keepdims, opset=20)[0])
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-3)


@given(seed=seeds, dtype=st.sampled_from(["int32", "int64", "uint32", "uint64", "float64"]), name=st.sampled_from(list(CALLS)), keepdims=st.integers(0, 1))
def test_other_types_against_onnx_reference(seed, dtype, name, keepdims):
    x = (np.random.default_rng(seed).integers(0 if "u" in dtype else -50, 50, (3, 4, 5))).astype(dtype)
    for axes in ((), (1,), (0, 2), (-1,)):
        y = CALLS[name](x, axes, keepdims=keepdims)
        assert y.dtype == x.dtype
        if name == "reduce_mean":
            total = np.sum(x.astype(np.float64), axis=axes or None, keepdims=bool(keepdims))
            mean = total / (x.size / max(1, total.size))
            np.testing.assert_allclose(y, mean if dtype == "float64" else np.trunc(mean), rtol=1e-14)
        else:
            assert_equal_bits(y, np.asarray(evaluate("", OPERATORS[name], [x, np.array(axes, np.int64)], keepdims=keepdims, opset=20)[0]))


def test_integers_are_exact():
    assert qkernels.reduce_mean(np.int64([2**62, 2**62, 2**62 + 3])).tolist() == [2**62 + 1]
    assert qkernels.reduce_mean(np.int32([-7, 0])).tolist() == [-3]
    assert qkernels.reduce_sum(np.int32([2**31 - 1, 1])).tolist() == [-(2**31)]
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        assert_equal_bits(qkernels.reduce_max(np.array([[3, 5], [9, 2]], dtype), [1], keepdims=0), np.array([5, 9], dtype))
    assert_equal_bits(qkernels.reduce_max(np.array([[False, True], [False, False]]), [1], keepdims=0), np.array([True, False]))


def test_float16_neither_overflows_nor_drifts(tier):
    x = np.full(70_000, 1, np.float16)
    assert qkernels.reduce_mean(x).tolist() == [1] and qkernels.reduce_sum(x).tolist() == [np.inf] and qkernels.reduce_sum(x[:2049]).tolist() == [2048]
    assert qkernels.reduce_sum(np.float16([60000, 60000, -60000])).tolist() == [60000]
    assert qkernels.reduce_sum(np.float32([3e38, 3e38, -3e38])).tolist() == [np.float32(3e38)]
    assert qkernels.reduce_sum(np.full(2**17 + 1, 2.0**-8, BF16)).astype(np.float32).tolist() == [512]
    x = np.concatenate([np.float32([2.0**24]), np.ones(2**16, np.float32)])
    assert qkernels.reduce_sum(x).tolist() == [2.0**24 + 2**16]
    assert_equal_bits(qkernels.reduce_sum(np.stack([x, x], 1), [0], keepdims=0), np.float32([2.0**24 + 2**16] * 2))


def test_special_values(tier):
    for dtype in FLOAT_DTYPES:
        for n in (5, 16, 40, 100):
            for i in range(n):
                x = np.full(n, -1, dtype)
                x[i] = np.nan
                assert np.isnan(np.float32(qkernels.reduce_max(x))).all() and np.isnan(np.float32(qkernels.reduce_sum(x))).all()
                assert np.isnan(np.float32(qkernels.reduce_max(np.stack([x, x], 1), [0]))).all()
                x[i] = np.inf
                assert np.float32(qkernels.reduce_max(x)) == np.inf and np.float32(qkernels.reduce_mean(x)) == np.inf
        x = np.array([np.inf, -np.inf], dtype)
        assert np.isnan(np.float32(qkernels.reduce_sum(x))) and np.float32(qkernels.reduce_max(x)) == np.inf
        assert np.float32(qkernels.reduce_max(np.full(20, -np.inf, dtype))) == -np.inf


def test_empty_sets_and_noop():
    for dtype in (*FLOAT_DTYPES, np.dtype(np.float64)):
        x = np.zeros((2, 0, 3), dtype)
        assert_equal_bits(qkernels.reduce_sum(x, [1]), np.zeros((2, 1, 3), dtype))
        assert_equal_bits(qkernels.reduce_max(x, [1], keepdims=0), np.full((2, 3), -np.inf, dtype))
        assert np.isnan(np.float64(qkernels.reduce_mean(x))).all()
        assert qkernels.reduce_sum(x, [0]).shape == (1, 0, 3)
        x = normal(0, (2, 3)).astype(dtype)
        for axes in (None, [], np.zeros(0, np.int64)):
            for call in CALLS.values():
                y = call(x, axes, noop_with_empty_axes=1)
                assert_equal_bits(y, x)
                assert not np.shares_memory(y, x)
                assert call(x, axes).shape == (1, 1) and call(x, axes, keepdims=0).shape == ()
    assert qkernels.reduce_sum(np.zeros((0, 2), np.int32)).tolist() == [[0]]
    assert qkernels.reduce_max(np.zeros((0, 2), np.int32), [0]).tolist() == [[-(2**31)] * 2]
    assert qkernels.reduce_max(np.zeros(0, bool)).tolist() == [False]
    assert qkernels.reduce_sum(np.float32(3)) == 3
    with pytest.raises(ValueError, match="reduce_mean: x: the mean of no int32 does not exist"):
        qkernels.reduce_mean(np.zeros(0, np.int32))


def test_threads_and_long_rows():
    x = normal(0, (7, 70_001))
    for call in CALLS.values():
        one_result(lambda t, call=call: call(x, [1], threads=t), (1, 2, 3, 7))
        one_result(lambda t, call=call: call(x, [0], threads=t), (1, 2, 3, 7))
        one_result(lambda t, call=call: call(x, threads=t), (1, 2, 3, 7))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype, tier):
    x = normal(0, (6, 5, 40), dtype)
    for call in CALLS.values():
        for axes in ([0], [1], [2], [0, 2], [1, 2], None):
            expected = call(x, axes)
            for name, a in (*layouts(x), ("transposed", np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0))):
                assert_equal_bits(call(a, axes), expected, name)
    out = np.empty((6, 5, 1), dtype)
    assert qkernels.reduce_mean(x, [2], out=out) is out
    assert_equal_bits(out, qkernels.reduce_mean(x, axes=(-1,)))


@pytest.mark.parametrize("call, error, message", [
    (lambda x: qkernels.reduce_sum(x.astype(np.int8)), TypeError, "reduce_sum: x: expected dtype float32, float16, bfloat16, float64, .*got int8"),
    (lambda x: qkernels.reduce_max(x.astype(np.complex64)), TypeError, "reduce_max: x: expected dtype .*got complex64"),
    (lambda x: qkernels.reduce_sum(x, [2]), ValueError, "reduce_sum: axes: expected -2 to 1 for rank 2, got 2"),
    (lambda x: qkernels.reduce_mean(x, [0, -2]), ValueError, "reduce_mean: axes: expected distinct axes"),
    (lambda x: qkernels.reduce_mean(x, np.float32([0])), TypeError, "reduce_mean: axes: expected integers, got float32"),
    (lambda x: qkernels.reduce_sum(x, [0], out=np.empty(8, np.float32)), ValueError, r"reduce_sum: out: expected shape \(1, 8\), got \(8,\)"),
    (lambda x: qkernels.reduce_sum(x, [0], out=x[:1]), ValueError, "reduce_sum: out: overlaps x"),
    (lambda x: qkernels.reduce_sum(x, threads=0), ValueError, "reduce_sum: threads: expected 1 to 1024, got 0"),
    (lambda x: qkernels.reduce_sum(None), TypeError, "reduce_sum: x: expected an array, got None"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)))
