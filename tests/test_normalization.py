"""RMS normalization and its com.microsoft forms."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_STEP, HALF_ULP, assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import float_dtypes, lengths, normal, seeds


def exact(x, scale, axis=-1, epsilon=1e-5):
    x, axes = np.float64(x), tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * np.float64(scale)


def assert_near(actual, expected, dtype):
    # float32 statistics of n terms: 8 roundings of 2^-24 cover sum (16 lanes, 4 chains), division, root and two products; then one to the type
    tolerance = (8 + expected.shape[-1] / 64) * 2.0**-24 + HALF_ULP[np.dtype(dtype)]
    smallest = HALF_STEP[np.dtype(dtype)]
    np.testing.assert_allclose(np.float64(actual), expected, rtol=tolerance * 1.01, atol=smallest)


@pytest.mark.differential("rms_normalization")
@given(seed=seeds, dtype=float_dtypes, lead=st.lists(st.integers(1, 4), max_size=2), n=lengths, data=st.data())
def test_rms_normalization_against_exact_and_tiers(seed, dtype, lead, n, data):
    shape = (*lead, n)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = normal(seed, shape, dtype, 3)
    scale = normal(seed + 1, shape[axis % len(shape):], dtype)
    y = one_result(lambda t: qkernels.rms_normalization(x, scale, axis=axis, epsilon=1e-6, threads=t))
    assert y.dtype == dtype and y.shape == shape
    assert_near(y, exact(x, scale, axis, 1e-6), dtype)


@pytest.mark.differential("rms_normalization")
@given(seed=seeds, lead=st.lists(st.integers(1, 3), max_size=2), n=lengths)
def test_rms_normalization_against_onnx_reference(seed, lead, n):
    # float32 only: the reference of onnx 1.23 squares float16 in float16
    import onnx
    from onnx import helper
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"], epsilon=1e-5)
    info = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", [info("x"), info("s")], [info("y")]), opset_imports=[helper.make_opsetid("", 23)])
    x, s = normal(seed, (*lead, n)), normal(seed + 1, (n,))
    expected, = ReferenceEvaluator(model).run(None, {"x": x, "s": s})
    np.testing.assert_allclose(qkernels.rms_normalization(x, s), expected, rtol=2e-6, atol=1e-30)


@pytest.mark.differential("simplified_layer_normalization", "skip_simplified_layer_normalization")
@given(seed=seeds, dtype=float_dtypes, rows=st.integers(0, 5), n=lengths, with_bias=st.booleans())
def test_contrib_against_specification(seed, dtype, rows, n, with_bias):
    x, skip, gamma = normal(seed, (rows, n), dtype), normal(seed + 1, (rows, n), dtype), normal(seed + 2, (n,), dtype)
    bias = normal(seed + 3, (n,), dtype) if with_bias else None
    y, mean, inv, total = one_result(lambda t: qkernels.skip_simplified_layer_normalization(x, skip, gamma, bias, outputs=(0, 1, 2, 3), threads=t))
    expected = evaluate("com.microsoft", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs=4)
    assert_equal_bits(mean, expected[1])  # of float32 sums in double, where order does not show
    assert_equal_bits(total, expected[3])  # one float32 sum and one rounding leave no choice
    np.testing.assert_allclose(inv, expected[2], rtol=(4 + n / 64) * 2.0**-24)
    np.testing.assert_allclose(np.float64(y), np.float64(expected[0]), rtol=2.02 * HALF_ULP[dtype] + (8 + n / 64) * 2.0**-24, atol=1e-7)
    z, inv = one_result(lambda t: qkernels.simplified_layer_normalization(x, gamma, outputs=(0, 1), threads=t))
    expected = evaluate("", "SimplifiedLayerNormalization", [x, gamma], outputs=2, epsilon=1e-5)
    np.testing.assert_allclose(inv, expected[1], rtol=(4 + n / 64) * 2.0**-24)
    assert_equal_bits(z, qkernels.rms_normalization(x, gamma))


@pytest.mark.differential("simplified_layer_normalization")
@given(seed=seeds, dtype=st.sampled_from([np.float32, np.float16, np.float64]), scale_dtype=st.sampled_from([None, np.float32]),
       shape=st.lists(st.integers(1, 40), min_size=1, max_size=3), axis=st.integers(-3, 2), epsilon=st.sampled_from([None, 1e-6, 0.1]))
def test_simplified_norm_against_onnxruntime(seed, dtype, scale_dtype, shape, axis, epsilon):
    axis = max(min(axis, len(shape) - 1), -len(shape))
    scale_dtype = dtype if scale_dtype is None or dtype == np.float64 else scale_dtype  # it has no float64 with another scale
    x, scale = normal(seed, tuple(shape), np.float32, 3).astype(dtype), normal(seed + 1, tuple(shape[axis:])).astype(scale_dtype)
    attributes = {"axis": axis} | ({} if epsilon is None else {"epsilon": epsilon})
    expected = onnxruntime_node("", "SimplifiedLayerNormalization", [x, scale], 2, **attributes)
    y = qkernels.simplified_layer_normalization(x, scale, outputs=(0, 1), **attributes)
    n = scale.size
    for ours, theirs, factor in zip(y, expected, (2, 1), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        # either sum has n roundings at most, a square root halves what they amount to; then one rounding to the type in each
        rounding = 2.0**-24 if ours.dtype == np.float64 == dtype else HALF_ULP.get(ours.dtype, 0)
        np.testing.assert_allclose(np.float64(ours), np.float64(theirs), rtol=(8 + n) * 2.0**-24 + factor * 1.01 * rounding, atol=2.0**-24 if ours.dtype == np.float16 else 1e-30)


@pytest.mark.differential("skip_simplified_layer_normalization")
@given(seed=seeds, dtype=st.sampled_from([np.float32, np.float16]), lead=st.lists(st.integers(1, 5), min_size=1, max_size=2), n=lengths, with_bias=st.booleans(),
       one_skip=st.sampled_from([None, 2, 3]), with_sum=st.booleans(), epsilon=st.sampled_from([None, 1e-6, 0.1]))
def test_skip_norm_against_onnxruntime(seed, dtype, lead, n, with_bias, one_skip, with_sum, epsilon):
    x, gamma, bias = normal(seed, (*lead, n), dtype), normal(seed + 1, (n,), dtype), normal(seed + 2, (n,), dtype) if with_bias else None
    skip = normal(seed + 3, x.shape if one_skip is None or len(lead) == 1 else (lead[1], n) if one_skip == 2 else (1, lead[1], n), dtype)
    attributes = {} if epsilon is None else {"epsilon": epsilon}
    # of its outputs 1 and 2 ONNX Runtime's CPU kernel writes nothing
    expected = onnxruntime_node("com.microsoft", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], (True, False, False, True)[:4 if with_sum else 1],
                                **attributes)
    y = qkernels.skip_simplified_layer_normalization(x, skip, gamma, bias, outputs=(0, 3) if with_sum else (0,), **attributes)
    y = y if with_sum else (y,)
    half = HALF_ULP[np.dtype(dtype)]
    total = np.abs(np.float64(x)) + np.abs(np.float64(skip)) + (0 if bias is None else np.abs(np.float64(bias)))
    # it may add in another order: three float32 roundings at the size of the terms in each, which the root carries into y
    moved = 6 * 2.0**-24 * total
    if with_sum:
        assert (np.abs(np.float64(y[1]) - np.float64(expected[1])) <= moved + 2.02 * half * np.abs(np.float64(y[1])) + 2.0**-24).all()
    exact = np.float64(x) + np.float64(skip) + (0 if bias is None else np.float64(bias))
    inv = 1 / np.sqrt((exact**2).mean(-1, keepdims=True) + (1e-12 if epsilon is None else epsilon))
    allowed = (moved * inv + (8 + n) * 2.0**-24 * np.abs(exact) * inv * (1 + (moved * inv).max(-1, keepdims=True))) * np.abs(np.float64(gamma))
    allowed += (moved * inv).max(-1, keepdims=True) * np.abs(np.float64(y[0]))
    assert (np.abs(np.float64(y[0]) - np.float64(expected[0])) <= allowed + 2.02 * half * np.abs(np.float64(y[0])) + (2.0**-24 if dtype == np.float16 else 1e-30)).all()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype, tier):
    x, skip, gamma = normal(0, (6, 40), dtype), normal(1, (6, 40), dtype), normal(2, (40,), dtype)
    expected, both = qkernels.rms_normalization(x, gamma), qkernels.skip_simplified_layer_normalization(x, skip, gamma, gamma)
    for name, a in layouts(x):
        assert_equal_bits(qkernels.rms_normalization(a, gamma), expected, name)
        assert_equal_bits(qkernels.skip_simplified_layer_normalization(a, skip, gamma, gamma), both, name)
        assert_equal_bits(qkernels.skip_simplified_layer_normalization(skip, a, gamma, gamma), both, name)
    for name, g in layouts(gamma):
        assert_equal_bits(qkernels.rms_normalization(x, g), expected, name)
        assert_equal_bits(qkernels.skip_simplified_layer_normalization(x, skip, g, g), both, name)


def test_B43_float16_does_not_overflow(tier):
    for value in (256, 60000):
        x = np.full((1, 2), value, np.float16)
        one = np.ones(2, np.float16)
        assert qkernels.rms_normalization(x, one, epsilon=0).tolist() == [[1, 1]]
        assert qkernels.simplified_layer_normalization(x, one, epsilon=0).tolist() == [[1, 1]]
        assert qkernels.skip_simplified_layer_normalization(x, np.zeros_like(x), one, epsilon=0).tolist() == [[1, 1]]
    x = normal(0, (3, 50))
    assert_equal_bits(qkernels.rms_normalization(x.astype(BF16), np.ones(50, BF16)),
                      qkernels.rms_normalization(x.astype(BF16), np.ones(50, np.float32)).astype(BF16))
    tiny = np.full((1, 4), 1e-4, np.float16)  # epsilon 1e-12 is 0 in float16
    expected = float(tiny[0, 0]) / np.sqrt(float(tiny[0, 0])**2 + 1e-12)
    np.testing.assert_allclose(np.float64(qkernels.rms_normalization(tiny, np.ones(4, np.float16), epsilon=1e-12)), expected, rtol=2**-11)


def test_B44_bias_and_sum(tier):
    for shape in ((1, 2), (1, 1, 2)):
        one = np.ones(shape, np.float32)
        y, total = qkernels.skip_simplified_layer_normalization(one, one, np.float32([1, 2]), np.float32([2, 2]), epsilon=0, outputs=(0, 3))
        assert y.ravel().tolist() == [1, 2] and total.ravel().tolist() == [4, 4]
    # 1 + 2^-11 + 2^-11: float16 sums would lose both halves
    x, skip, bias = np.float16([[1, 1]]), np.float16([[2**-11, 2**-11]]), np.float16([2**-11, 2**-11])
    assert qkernels.skip_simplified_layer_normalization(x, skip, np.ones(2, np.float16), bias, outputs=(3,)).tolist() == [[1 + 2**-10] * 2]


def test_scale_broadcasts_and_may_have_its_own_dtype(tier):
    x = normal(0, (2, 3, 8), np.float16)
    for shape in ((), (1,), (8,), (3, 1), (1, 8), (2, 1, 8), (1, 3, 1), (2, 3, 8)):
        for axis in (1, 2):
            scale = normal(1, shape)
            y = one_result(lambda t: qkernels.rms_normalization(x, scale, axis=axis, threads=t))
            assert y.dtype == np.float32
            assert_near(y, exact(x, scale, axis), np.float32)
            assert_equal_bits(qkernels.simplified_layer_normalization(x, scale, axis=axis), y)


def test_float64_through_numpy():
    x, s = (np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate([(2, 3, 8), (3, 8)]))
    expected = exact(x, s, 1)
    y, inv = qkernels.simplified_layer_normalization(x, s, axis=1, outputs=(0, 1))
    np.testing.assert_allclose(y, expected, rtol=1e-14)
    assert y.dtype == np.float64 and inv.dtype == np.float32 and inv.shape == (2, 1, 1)
    assert qkernels.simplified_layer_normalization(x, s, axis=1, stash_type=11, outputs=(1,)).dtype == np.float64
    out = np.empty_like(x)
    assert qkernels.rms_normalization(x, s, axis=1, out=out) is out
    assert_equal_bits(out, y)
    for name, v in layouts(x):
        assert_equal_bits(qkernels.rms_normalization(v, s, axis=1), y, name)
    for dtype in FLOAT_DTYPES:  # mixed: the result's type is the scale's, and only there it is rounded
        narrow = qkernels.rms_normalization(x, s.astype(dtype), axis=1)
        assert narrow.dtype == dtype
        np.testing.assert_allclose(np.float64(narrow), exact(x, s.astype(dtype), 1), rtol=HALF_ULP[dtype] * 1.001, atol=HALF_STEP[dtype])
        np.testing.assert_allclose(qkernels.rms_normalization(x.astype(dtype), s, axis=1), exact(x.astype(dtype), s, 1), rtol=1e-14)
        z = x.astype(dtype)
        assert_equal_bits(qkernels.rms_normalization(z, z, stash_type=16), qkernels.rms_normalization(z, z, stash_type=10))
        np.testing.assert_allclose(np.float64(qkernels.rms_normalization(z, z, stash_type=11)), exact(z, z), rtol=HALF_ULP[dtype], atol=HALF_STEP[dtype])
    assert qkernels.rms_normalization(np.zeros((3, 0)), np.zeros(0)).shape == (3, 0)


def test_skip_norm_of_one_skip_for_all_batches_and_its_default_epsilon(tier):
    x, skip, gamma, bias = normal(0, (3, 4, 40)), normal(1, (4, 40)), normal(2, (40,)), normal(3, (40,))
    whole = np.ascontiguousarray(np.broadcast_to(skip, x.shape))
    expected = qkernels.skip_simplified_layer_normalization(x, whole, gamma, bias, outputs=(0, 1, 2, 3))
    for one in (skip, skip[None]):
        for a, b in zip(qkernels.skip_simplified_layer_normalization(x, one, gamma, bias, outputs=(0, 1, 2, 3)), expected, strict=True):
            assert_equal_bits(a, b)
    small = np.full((1, 4), 1e-5, np.float32)  # its square is 1e-10: 1e-12 leaves most of it, RMSNormalization's 1e-5 would leave nothing
    np.testing.assert_allclose(qkernels.skip_simplified_layer_normalization(small, 0 * small, np.ones(4, np.float32)), 1 / np.sqrt(1.01), rtol=1e-6)
    a, b = x.copy(), whole.copy()
    y, mean, total = qkernels.skip_simplified_layer_normalization(a, b, gamma, bias, outputs=(0, 1, 3), out=a, sum_out=b)
    assert_equal_bits(mean, expected[1])
    assert_equal_bits(a, expected[0])


def test_outputs_in_place(tier):
    x, skip, gamma = normal(0, (4, 33)), normal(1, (4, 33)), normal(2, (33,))
    y, total = qkernels.skip_simplified_layer_normalization(x, skip, gamma, outputs=(0, 3))
    a, b = x.copy(), skip.copy()
    assert qkernels.skip_simplified_layer_normalization(a, b, gamma, outputs=(0, 3), out=a, sum_out=b)[0] is a
    assert_equal_bits(a, y)
    assert_equal_bits(b, total)
    a, b = x.copy(), skip.copy()
    qkernels.skip_simplified_layer_normalization(a, b, gamma, outputs=(3, 0), out=b, sum_out=a)
    assert_equal_bits(a, total)
    assert_equal_bits(b, y)
    a = x.copy()
    assert_equal_bits(qkernels.rms_normalization(a, gamma, out=a), qkernels.rms_normalization(x, gamma))


def test_special_values(tier):
    x = np.float32([[1, np.nan, 2], [1, 2, 3], [np.inf, 1, 1]])
    y = qkernels.rms_normalization(x, np.ones(3, np.float32))
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all() and np.isnan(y[2, 0]) and y[2, 1:].tolist() == [0, 0]
    assert qkernels.rms_normalization(np.zeros((1, 3), np.float32), np.ones(3, np.float32)).tolist() == [[0, 0, 0]]


def test_empty_shapes(tier):
    for shape in ((0, 4), (3, 0), (0,)):
        assert qkernels.rms_normalization(np.zeros(shape, np.float32), np.ones(shape[-1:], np.float32)).shape == shape
    a = np.zeros((2, 0, 4), np.float32)
    assert qkernels.skip_simplified_layer_normalization(a, a, np.ones(4, np.float32), outputs=(0, 3))[1].shape == a.shape


@pytest.mark.parametrize("call, error, message", [
    (lambda x, g: qkernels.rms_normalization(x.astype(np.int32), g), TypeError, "rms_normalization: x: expected dtype float32, float16, bfloat16 or float64"),
    (lambda x, g: qkernels.rms_normalization(x, g > 0), TypeError, "rms_normalization: scale: expected dtype float32, .*, got bool"),
    (lambda x, g: qkernels.rms_normalization(np.float64(x), np.float64(g), out=x), TypeError, "rms_normalization: out: expected dtype float64, got float32"),
    (lambda x, g: qkernels.rms_normalization(np.float64(x), np.float64(g)[:3]), ValueError, r"rms_normalization: scale: expected a shape that broadcasts to \(8,\), got"),
    (lambda x, g: qkernels.simplified_layer_normalization(x, g, stash_type=16), ValueError, "simplified_layer_normalization: stash_type: expected 1"),
    (lambda x, g: qkernels.rms_normalization(x, g[:3]), ValueError, r"rms_normalization: scale: expected a shape that broadcasts to \(8,\), got"),
    (lambda x, g: qkernels.rms_normalization(x, g, axis=2), ValueError, "rms_normalization: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda x, g: qkernels.rms_normalization(x, g, epsilon=-1), ValueError, "epsilon: expected a number >= 0"),
    (lambda x, g: qkernels.rms_normalization(x, g, epsilon=np.nan), ValueError, "epsilon: expected a number >= 0"),
    (lambda x, g: qkernels.rms_normalization(x, g, epsilon="1"), TypeError, "rms_normalization: epsilon: expected a number, got str"),
    (lambda x, g: qkernels.rms_normalization(x, g, stash_type=7), ValueError, "stash_type: expected 1, 10, 11 or 16"),
    (lambda x, g: qkernels.rms_normalization(x, None), TypeError, "rms_normalization: scale: expected an array, got None"),
    (lambda x, g: qkernels.rms_normalization(np.float32(1), g), ValueError, "rms_normalization: x: expected at least 1 dimension"),
    (lambda x, g: qkernels.rms_normalization(x, g, threads=0), ValueError, "rms_normalization: threads: expected 1 to 1024, got 0"),
    (lambda x, g: qkernels.rms_normalization(x, g, out=np.empty((2, 8), np.float16)), TypeError, "rms_normalization: out: expected dtype float32"),
    (lambda x, g: qkernels.rms_normalization(x, g, out=np.empty((3, 8), np.float32)), ValueError, r"out: expected shape \(4, 8\), got \(3, 8\)"),
    (lambda x, g: qkernels.rms_normalization(x, g, out=np.empty((4, 16), np.float32)[:, ::2]), ValueError, "out: expected an aligned C-contiguous"),
    (lambda x, g: qkernels.rms_normalization(x[1:], g, out=x[:3]), ValueError, "out: overlaps x without being the same array"),
    (lambda x, g: qkernels.skip_simplified_layer_normalization(x, x[:2], g), ValueError, r"skip: expected shape \(4, 8\), got \(2, 8\)"),
    (lambda x, g: qkernels.skip_simplified_layer_normalization(x, x.astype(np.float16), g), TypeError, "skip: expected dtype float32, got float16"),
    (lambda x, g: qkernels.skip_simplified_layer_normalization(x, x, g, g[:2]), ValueError, r"bias: expected shape \(8,\), got \(2,\)"),
    (lambda x, g: qkernels.skip_simplified_layer_normalization(x, x, g, outputs=(4,)), ValueError, r"outputs: expected distinct indices"),
    (lambda x, g: qkernels.skip_simplified_layer_normalization(x, x, g, sum_out=x), ValueError, "sum_out: output 3 is not among"),
    (lambda x, g: qkernels.skip_simplified_layer_normalization(x[0], x[0], g), ValueError, "x: expected 2 or 3 dimensions"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)), np.ones(8, np.float32))


def test_read_only_out_raises():
    out = np.empty((1, 2), ml_dtypes.bfloat16)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: expected a writeable array"):
        qkernels.rms_normalization(np.ones((1, 2), ml_dtypes.bfloat16), np.ones(2, ml_dtypes.bfloat16), out=out)
