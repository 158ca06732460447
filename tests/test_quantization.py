"""Linear quantization."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, normal, seeds

INTEGERS = tuple(np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
FLOAT8 = tuple(np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz))
SMALLER = tuple(np.dtype(t) for t in (ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn))


def same(actual, expected, message=""):
    """Equal bits, for ml_dtypes' small types too."""
    if actual.dtype.itemsize == 1 and actual.dtype.kind not in "iu":
        assert actual.dtype == expected.dtype
        wide = lambda a: np.ascontiguousarray(a).astype(np.float32)  # all of them embed in float32
        actual, expected = wide(actual), wide(expected)
    assert_equal_bits(actual, expected, message)


def codes(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    if dtype == np.int32:
        return rng.integers(-2**31, 2**31, shape, np.int32)
    if dtype in INTEGERS:
        info = ml_dtypes.iinfo(dtype)
        return rng.integers(int(info.min), int(info.max) + 1, shape).astype(np.int32).astype(dtype)
    return (rng.standard_normal(shape) * 3).astype(np.float32).astype(dtype)


@st.composite
def layouts_of_scales(draw):
    """A shape, and (scale shape, axis, block_size) of one of the three granularities."""
    shape = tuple(draw(st.lists(st.one_of(st.integers(1, 5), st.sampled_from([16, 17, 33, 40])), min_size=1, max_size=3)))
    kind, axis = draw(st.sampled_from(["tensor", "axis", "blocks"])), draw(st.integers(-len(shape), len(shape) - 1))
    if kind == "tensor":
        return shape, (), axis, 0
    if kind == "axis":
        return shape, (shape[axis],), axis, 0
    block = draw(st.sampled_from([1, 2, 3, 16, 20, 32]))
    scale_shape = list(shape)
    scale_shape[axis] = -(-shape[axis] // block)
    return shape, tuple(scale_shape), axis, block


def spread(scale, shape, axis, block):
    """Scales (or zero points) as an array that broadcasts to x."""
    if scale.ndim == 0 or not block and scale.size == 1:
        return scale.reshape(())
    if not block:
        return scale.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    return np.repeat(scale, block, axis).take(np.arange(shape[axis]), axis)


@pytest.mark.differential("dequantize_linear")
@given(where=layouts_of_scales(), dtype=st.sampled_from((*INTEGERS, np.dtype(np.int32), *FLOAT8, *SMALLER)), scale_dtype=float_dtypes,
       result=st.sampled_from([None, *FLOAT_DTYPES]), with_zero=st.booleans(), seed=seeds)
def test_dequantize_against_formula_and_tiers(where, dtype, scale_dtype, result, with_zero, seed):
    shape, scale_shape, axis, block = where
    x, scale = codes(seed, shape, dtype), normal(seed + 1, scale_shape, scale_dtype)
    zero = None if not with_zero else np.zeros(scale_shape, dtype) if dtype == np.int32 else codes(seed + 2, scale_shape, dtype)
    y = one_result(lambda t: qkernels.dequantize_linear(x, scale, zero, axis=axis, block_size=block, output_dtype=result, threads=t))
    value = x.astype(np.float32)  # exact but for int32, rounded as in the kernel
    if zero is not None:
        value = value - spread(zero.astype(np.float32), shape, axis, block)
    assert_equal_bits(y, (value * spread(scale.astype(np.float32), shape, axis, block)).astype(result or scale_dtype))


@pytest.mark.differential("quantize_linear")
@given(where=layouts_of_scales(), dtype=st.sampled_from((*INTEGERS, *FLOAT8, *SMALLER)), x_dtype=float_dtypes, scale_dtype=float_dtypes,
       precision=st.sampled_from([None, *FLOAT_DTYPES]), with_zero=st.booleans(), saturate=st.booleans(), seed=seeds)
def test_quantize_against_formula_and_tiers(where, dtype, x_dtype, scale_dtype, precision, with_zero, saturate, seed):
    shape, scale_shape, axis, block = where
    x, scale = normal(seed, shape, x_dtype, 20), np.abs(normal(seed + 1, scale_shape, scale_dtype)) + np.array(0.01, scale_dtype)
    x.reshape(-1)[::7] = np.resize([np.inf, -np.inf, np.nan], x.reshape(-1)[::7].size)
    zero = codes(seed + 2, scale_shape, dtype) if with_zero else None
    y = one_result(lambda t: qkernels.quantize_linear(x, scale, zero, axis=axis, block_size=block, output_dtype=None if with_zero else dtype,
                                                      precision=precision, saturate=int(saturate), threads=t).astype(np.float32)).astype(dtype)
    division = precision or scale_dtype
    with np.errstate(all="ignore"):
        q = (x.astype(division).astype(np.float32) / spread(scale.astype(division).astype(np.float32), shape, axis, block)).astype(division)
        q = q.astype(np.float32)
        z = np.float32(0) if zero is None else spread(zero.astype(np.float32), shape, axis, block)
        if dtype in INTEGERS:
            info = ml_dtypes.iinfo(dtype)
            q = np.clip(np.rint(np.float64(q)) + z, int(info.min), int(info.max))
            expected = np.where(np.isnan(q), int(info.min), q).astype(np.int32).astype(dtype)  # NaN: the smallest code
        else:
            q = q + z
            limits = ml_dtypes.finfo(dtype)
            expected = (np.clip(q, float(limits.min), float(limits.max)) if saturate or dtype in SMALLER else q).astype(np.float32).astype(dtype)
    same(y, expected)


@pytest.mark.differential("quantize_linear", "dequantize_linear")
@given(where=layouts_of_scales(), dtype=st.sampled_from(INTEGERS), value_dtype=float_dtypes, seed=seeds)
def test_against_onnx_reference(where, dtype, value_dtype, seed):
    shape, scale_shape, axis, block = where
    x, scale = normal(seed, shape, value_dtype, 20), np.abs(normal(seed + 1, scale_shape, value_dtype)) + np.array(0.01, value_dtype)
    zero = codes(seed + 2, scale_shape, dtype)
    attributes = dict(axis=axis, block_size=block)
    expected, = evaluate("", "QuantizeLinear", [x, scale, zero.astype(dtype)], opset=25, **attributes)
    # the reference adds in int32 after a cast, which our clamp agrees with as long as nothing overflows there
    same(qkernels.quantize_linear(x, scale, zero, **attributes), expected)
    q = codes(seed + 3, shape, dtype)
    expected, = evaluate("", "DequantizeLinear", [q, scale, zero], opset=25, **attributes)
    same(qkernels.dequantize_linear(q, scale, zero, **attributes), expected)


@pytest.mark.differential("quantize_linear")
def test_integer_inputs_and_scales():
    x = np.int32([[-7, 3, 250], [1000, 5, 6]])
    assert qkernels.quantize_linear(x, np.float32(2)).tolist() == [[0, 2, 125], [255, 2, 3]]
    assert qkernels.quantize_linear(x, np.int32([2, 5]), np.int8([1, 0]), axis=0).tolist() == [[-3, 3, 126], [127, 1, 1]]
    assert qkernels.quantize_linear(x, np.int32(4), precision=1).tolist() == qkernels.quantize_linear(x, np.float32(4)).tolist()
    assert qkernels.quantize_linear(np.float32([6, -6]), np.array(4, ml_dtypes.float8_e8m0fnu), np.int8(0)).tolist() == [2, -2]
    assert qkernels.dequantize_linear(np.int8([3]), np.array(4, ml_dtypes.float8_e8m0fnu), output_dtype=BF16) == 12
    assert qkernels.dequantize_linear(np.int32([2**24 + 1, 5]), np.float32(2), np.int32(0)).tolist() == [2**25, 10]


def test_B18_rounds_to_even_and_uses_the_whole_range(tier):
    assert qkernels.quantize_linear(np.float16([.05002, -.05002]), np.float16(.09998), np.int8(0)).tolist() == [1, -1]
    values = np.float32([2.5, 3.5, -2.5, -129, -128, 128, np.inf, -np.inf])
    for n in range(1, 34):
        for dtype, expected in ((np.int8, [2, 4, -2, -128, -128, 127, 127, -128]), (np.uint8, [2, 4, 0, 0, 0, 128, 255, 0]),
                                (ml_dtypes.int4, [2, 4, -2, -8, -8, 7, 7, -8]), (ml_dtypes.uint4, [2, 4, 0, 0, 0, 15, 15, 0])):
            for x_dtype in FLOAT_DTYPES:
                y = qkernels.quantize_linear(np.resize(values, n).astype(x_dtype), np.ones((), x_dtype), np.zeros((), dtype))
                assert y.dtype == dtype
                same(y, np.resize(expected, n).astype(np.int32).astype(dtype))


def test_B19_every_nan_gives_the_smallest_code(tier):
    for dtype in INTEGERS:
        for bits in (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF):
            x = np.full(37, bits, np.uint32).view(np.float32)
            low = int(ml_dtypes.iinfo(dtype).min)
            assert (qkernels.quantize_linear(x, np.float32(2), np.zeros((), dtype)).astype(np.int32) == low).all()
    # no quotient that has no value: 0 / 0 is a NaN too, 1 / 0 an infinity
    assert qkernels.quantize_linear(np.float32([0, 1, -1]), np.float32(0)).tolist() == [0, 255, 0]


def test_B20_zero_point_may_be_absent(tier):
    y = qkernels.quantize_linear(np.float32([-1, 2, 300]), np.float32(1))
    assert y.dtype == np.uint8 and y.tolist() == [0, 2, 255]
    assert qkernels.dequantize_linear(np.int8([-3]), np.float32(2)).tolist() == [-6]
    assert qkernels.dequantize_linear(np.int8([-3]), np.float32(2), None).tolist() == [-6]


def test_B21_nibble_order_sign_and_odd_counts():
    x = np.array([1, -1, 7], ml_dtypes.int4)
    assert qkernels.pack_int4(x).tolist() == [0xF1, 0x07] == qkernels.pack_int4(np.int8([1, -1, 7])).tolist()
    same(qkernels.unpack_int4(np.uint8([0xF1, 0x07]), (3,)), x)
    same(qkernels.unpack_int4(np.uint8([0xF1, 0x07]), (3,), ml_dtypes.uint4), np.array([1, 15, 7], ml_dtypes.uint4))
    assert qkernels.pack_int4(np.array([], ml_dtypes.int4)).shape == (0,) == qkernels.unpack_int4(np.zeros(0, np.uint8), (0,)).shape
    assert qkernels.pack_int4(np.array([-8], ml_dtypes.int4)).tolist() == [8]
    assert qkernels.unpack_int4(np.uint8([8]), 1).astype(int).tolist() == [-8]
    # the order of ONNX's own tensors
    from onnx import TensorProto, helper, numpy_helper
    tensor = helper.make_tensor("t", TensorProto.INT4, (3,), qkernels.pack_int4(x).tobytes(), raw=True)
    same(numpy_helper.to_array(tensor), x)


@given(seed=seeds, shape=st.lists(st.integers(0, 7), min_size=1, max_size=3), dtype=st.sampled_from([ml_dtypes.int4, ml_dtypes.uint4]))
@pytest.mark.differential("pack_int4", "unpack_int4")
def test_packing_round_trip(seed, shape, dtype):
    x = codes(seed, tuple(shape), np.dtype(dtype))
    packed = qkernels.pack_int4(x)
    assert packed.shape == ((x.size + 1) // 2,)
    same(qkernels.unpack_int4(packed, tuple(shape), dtype), x)
    for axis in range(x.ndim):
        same(qkernels.unpack_int4(qkernels.pack_int4(x.swapaxes(0, axis)), x.swapaxes(0, axis).shape, dtype), x.swapaxes(0, axis))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype, tier):
    x, scale, zero = normal(0, (6, 40), dtype, 9), np.abs(normal(1, (6, 3), dtype)), codes(2, (6, 3), np.dtype(np.int8))
    form = dict(axis=1, block_size=16)
    q = qkernels.quantize_linear(x, scale, zero, **form)
    y = qkernels.dequantize_linear(q, scale, zero, **form)
    for name, v in layouts(x):
        assert_equal_bits(qkernels.quantize_linear(v, scale, zero, **form), q, name)
    for name, v in layouts(scale):
        assert_equal_bits(qkernels.quantize_linear(x, v, zero, **form), q, name)
        assert_equal_bits(qkernels.dequantize_linear(q, v, zero, **form), y, name)
    for name, v in layouts(zero):
        assert_equal_bits(qkernels.quantize_linear(x, scale, v, **form), q, name)
    for name, v in layouts(q):
        assert_equal_bits(qkernels.dequantize_linear(v, scale, zero, **form), y, name)
    fours = codes(3, (6, 40), np.dtype(ml_dtypes.int4))
    assert_equal_bits(qkernels.dequantize_linear(np.asfortranarray(fours), scale, **form), qkernels.dequantize_linear(fours, scale, **form))
    out = np.empty_like(x)
    assert qkernels.dequantize_linear(q, scale, zero, out=out, **form) is out
    assert_equal_bits(out, y)


def test_empty_and_0d(tier):
    for shape in ((0,), (3, 0), (0, 4)):
        assert qkernels.quantize_linear(np.zeros(shape, np.float32), np.float32(1)).shape == shape
        assert qkernels.dequantize_linear(np.zeros(shape, np.uint8), np.float32(1)).shape == shape
    assert qkernels.dequantize_linear(np.zeros((0, 4), np.uint8), np.ones((0, 2), np.float32), block_size=2).shape == (0, 4)
    assert qkernels.dequantize_linear(np.zeros((3, 0), np.uint8), np.ones((3, 0), np.float32), block_size=2).shape == (3, 0)
    assert qkernels.dequantize_linear(np.zeros((3, 0), np.uint8), np.ones(0, np.float32)).shape == (3, 0)
    y = qkernels.quantize_linear(np.float32(3), np.float32([2]))
    assert y.shape == () and y == 2


X, S = np.ones((4, 6), np.float32), np.ones(6, np.float32)


@pytest.mark.parametrize("call, error, message", [
    (lambda: qkernels.quantize_linear(X.astype(np.float64), S), TypeError, "quantize_linear: x: expected dtype float32, float16, bfloat16 or int32"),
    (lambda: qkernels.quantize_linear(X, S[:5]), ValueError, r"y_scale: expected a scalar or shape \(6,\) for axis 1 of \(4, 6\), got \(5,\)"),
    (lambda: qkernels.quantize_linear(X, S, axis=2), ValueError, "quantize_linear: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda: qkernels.quantize_linear(X, S.reshape(1, 6)), ValueError, "y_scale: expected a scalar"),
    (lambda: qkernels.quantize_linear(X, X, block_size=4), ValueError, r"y_scale: expected shape \(4, 2\) for blocks of 4 along axis 1 of \(4, 6\), got"),
    (lambda: qkernels.quantize_linear(X, S, block_size=-1), ValueError, "block_size: expected at least 0, got -1"),
    (lambda: qkernels.quantize_linear(X, S, np.zeros(5, np.int8)), ValueError, r"y_zero_point: expected y_scale's shape \(6,\), got \(5,\)"),
    (lambda: qkernels.quantize_linear(X, S, np.zeros(6, np.int8), output_dtype=2), TypeError, "y_zero_point: expected dtype uint8 as output_dtype says, got int8"),
    (lambda: qkernels.quantize_linear(X, S, np.zeros(6, np.int32)), TypeError, "y_zero_point: expected dtype int8"),
    (lambda: qkernels.quantize_linear(X, S, output_dtype=6), TypeError, "output_dtype: expected one of int8"),
    (lambda: qkernels.quantize_linear(X, S, precision=11), TypeError, "precision: expected one of float32, float16, bfloat16, got 11"),
    (lambda: qkernels.quantize_linear(X, S, saturate=2), ValueError, "saturate: expected 0 or 1"),
    (lambda: qkernels.quantize_linear(X, S.astype(np.float64)), TypeError, "y_scale: expected dtype float32, float16, bfloat16 or float8_e8m0fnu"),
    (lambda: qkernels.quantize_linear(X, None), TypeError, "y_scale: expected an array, got None"),
    (lambda: qkernels.quantize_linear(X, S, out=X), TypeError, "out: expected dtype uint8, got float32"),
    (lambda: qkernels.dequantize_linear(X, S), TypeError, "dequantize_linear: x: expected dtype int8, uint8"),
    (lambda: qkernels.dequantize_linear(np.zeros(3, np.int32), np.float32(1), np.int32(2)), ValueError, "x_zero_point: expected 0 for int32, got 2"),
    (lambda: qkernels.dequantize_linear(np.zeros(3, np.int8), np.float32(1), np.uint8(2)), TypeError, "x_zero_point: expected dtype int8, got uint8"),
    (lambda: qkernels.dequantize_linear(np.zeros(3, np.int8), np.float32(1), output_dtype=2), TypeError, "output_dtype: expected one of float32"),
    (lambda: qkernels.dequantize_linear(np.zeros(3, np.int8), np.ones((), ml_dtypes.float8_e8m0fnu)), ValueError, "output_dtype: expected float32"),
    (lambda: qkernels.pack_int4(np.int8([16])), ValueError, "pack_int4: x: expected integers in -8..15, got 16 to 16"),
    (lambda: qkernels.pack_int4(X), TypeError, "pack_int4: x: expected int4, uint4 or an integer dtype, got float32"),
    (lambda: qkernels.unpack_int4(np.zeros(3, np.uint8), 7), ValueError, r"unpack_int4: packed: expected 4 bytes for shape \(7,\), got 3"),
    (lambda: qkernels.unpack_int4(np.zeros(3, np.int8), 6), TypeError, "unpack_int4: packed: expected dtype uint8, got int8"),
    (lambda: qkernels.unpack_int4(np.zeros(3, np.uint8), 6, np.int8), TypeError, "unpack_int4: dtype: expected int4 or uint4"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
