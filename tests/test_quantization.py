"""Linear quantization."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, layouts, one_result, onnxruntime_node
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
    with np.errstate(over="ignore"):  # beyond float16: infinity
        expected = (value * spread(scale.astype(np.float32), shape, axis, block)).astype(result or scale_dtype)
    assert_equal_bits(y, expected)


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
    with np.errstate(over="ignore"):
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


EIGHT = (np.uint8, np.int8)


@st.composite
def products(draw):
    """Operands of an integer product, with zero points and scales in any of their shapes."""
    m, k, n, seed = draw(st.integers(1, 30)), draw(st.one_of(st.integers(0, 40), st.just(300))), draw(st.integers(1, 70)), draw(seeds)
    a_lead, b_lead = draw(st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((2, 3), (2, 3))]))
    a, b = codes(seed, (*a_lead, m, k), np.dtype(draw(st.sampled_from(EIGHT)))), codes(seed + 1, (*b_lead, k, n), np.dtype(draw(st.sampled_from(EIGHT))))
    lines = lambda lead, count, rows: draw(st.sampled_from([(), (1,), (count,), (*lead, count, 1) if rows else (*lead, 1, count)]))
    return a, b, lines(a_lead, m, True), lines(b_lead, n, False), seed


def lined(v, rows):
    """A scale or zero point as it broadcasts to its matrix."""
    return v.reshape(-1, 1) if rows and v.ndim == 1 else v


@pytest.mark.differential("matmul_integer")
@given(p=products(), with_zeros=st.booleans())
def test_matmul_integer_is_exact_on_all_tiers(p, with_zeros):
    a, b, a_shape, b_shape, seed = p
    az, bz = (codes(seed + 2, a_shape, a.dtype), codes(seed + 3, b_shape, b.dtype)) if with_zeros else (None, None)
    y = one_result(lambda t: qkernels.matmul_integer(a, b, az, bz, threads=t))
    x = np.int64(a) - (0 if az is None else lined(np.int64(az), True))
    w = np.int64(b) - (0 if bz is None else np.int64(bz))
    assert_equal_bits(y, (x @ w).astype(np.int32))
    if not with_zeros:
        assert_equal_bits(y, evaluate("", "MatMulInteger", [a, b])[0])


@pytest.mark.differential("qlinear_matmul")
@given(p=products(), y_type=st.sampled_from(EIGHT), scale_dtype=float_dtypes, per_line=st.booleans())
def test_qlinear_matmul_against_formula_and_tiers(p, y_type, scale_dtype, per_line):
    a, b, a_shape, b_shape, seed = p
    if not per_line:
        a_shape = b_shape = ()
    scale = lambda s, shape: (np.abs(normal(s, shape)) * 0.1 + 0.01).astype(scale_dtype)
    az, bz, yz = codes(seed + 2, a_shape, a.dtype), codes(seed + 3, b_shape, b.dtype), codes(seed + 4, (), np.dtype(y_type))
    sa, sb, sy = scale(seed + 5, a_shape), scale(seed + 6, b_shape), scale(seed + 7, ())
    y = one_result(lambda t: qkernels.qlinear_matmul(a, sa, az, b, sb, bz, sy, yz, threads=t))
    exact = (np.int64(a) - lined(np.int64(az), True)) @ (np.int64(b) - np.int64(bz))
    factor = lined(sa.astype(np.float32), True) * sb.astype(np.float32) / sy.astype(np.float32)
    info = np.iinfo(y_type)
    assert_equal_bits(y, np.clip(np.rint(exact.astype(np.float32) * factor) + np.float32(yz), info.min, info.max).astype(y_type))


@pytest.mark.differential("PackedInt8Matrix", "matmul_integer", "qlinear_matmul")
@given(p=products(), y_type=st.sampled_from(EIGHT), transposed=st.booleans())
def test_packed_matrix_is_the_matrix(p, y_type, transposed):
    a, b, a_shape, b_shape, seed = p
    while b.ndim > 2:
        b, b_shape = b[0], b_shape[1:] if len(b_shape) > 2 else b_shape
    b = np.ascontiguousarray(b.T).T if transposed else b
    packed = one_result(lambda t: np.array(qkernels.PackedInt8Matrix(b, threads=t).buffers[0]))
    w = qkernels.PackedInt8Matrix(b)
    assert_equal_bits(w.buffers[0], packed)
    assert_equal_bits(w.unpack(), b)
    assert w.shape == b.shape and w.dtype == b.dtype and w.nbytes == packed.nbytes == -(-b.shape[1] // 16) * 64 * (1 + -(-b.shape[0] // 4))
    az, bz = codes(seed + 2, a_shape, a.dtype), codes(seed + 3, b_shape, b.dtype)
    y = one_result(lambda t: w(a, az, bz, threads=t))
    assert_equal_bits(y, qkernels.matmul_integer(a, b, az, bz))
    assert_equal_bits(qkernels.matmul_integer(a, w, az, bz), y)
    assert_equal_bits(w(a), qkernels.matmul_integer(a, b))
    out = np.empty_like(y)
    assert w(np.asfortranarray(a), az, bz, out=out) is out
    assert_equal_bits(out, y)
    scale = lambda s, shape: np.abs(normal(s, shape)) * 0.1 + 0.01
    rest = scale(seed + 6, b_shape), bz, scale(seed + 7, ()), codes(seed + 4, (), np.dtype(y_type))
    assert_equal_bits(one_result(lambda t: qkernels.qlinear_matmul(a, scale(seed + 5, a_shape), az, w, *rest, threads=t)),
                      qkernels.qlinear_matmul(a, scale(seed + 5, a_shape), az, b, *rest))


def test_packed_matrix_with_vectors_and_float8(tier):
    b = codes(0, (20, 7), np.dtype(np.uint8))
    w, a = qkernels.PackedInt8Matrix(b), codes(1, (20,), np.dtype(np.int8))
    assert_equal_bits(w(a), qkernels.matmul_integer(a, b))
    for name, v in layouts(b):
        assert_equal_bits(qkernels.PackedInt8Matrix(v).buffers[0], w.buffers[0], name)
    x, half, zero = codes(2, (3, 20), FLOAT8[0]), np.float32(0.5), np.zeros((), FLOAT8[0])
    same(qkernels.qlinear_matmul(x, half, zero, w, half, np.uint8(3), half, zero), qkernels.qlinear_matmul(x, half, zero, b, half, np.uint8(3), half, zero))
    for shape in ((0, 5), (5, 0), (0, 0)):
        assert qkernels.PackedInt8Matrix(np.zeros(shape, np.int8))(np.zeros((2, shape[0]), np.uint8)).tolist() == [[0] * shape[1]] * 2
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        w.buffers[0][0] = 1
    assert qkernels.PackedInt8Matrix.__new__(qkernels.PackedInt8Matrix)(np.zeros((2, 0), np.int8)).shape == (2, 0)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 13, 515, 1030])
def test_large_integer_products_on_any_number_of_threads(rows):
    a, b = codes(0, (rows, 517), np.dtype(np.uint8)), codes(1, (517, 1301 if rows < 500 else 131), np.dtype(np.int8))
    w, za, zb = qkernels.PackedInt8Matrix(b), codes(2, (rows,), np.dtype(np.uint8)), codes(3, b.shape[1:], np.dtype(np.int8))
    y = one_result(lambda t: w(a, za, zb, threads=t), (1, 2, 3, 7))
    assert_equal_bits(y, ((np.int64(a) - np.int64(za)[:, None]) @ (np.int64(b) - zb)).astype(np.int32))
    assert_equal_bits(one_result(lambda t: qkernels.matmul_integer(a, b, za, zb, threads=t), (1, 2, 7)), y)


@pytest.mark.differential("qlinear_matmul")
@pytest.mark.parametrize("dtype", FLOAT8)
def test_qlinear_matmul_of_float8(dtype):
    a, b, half = codes(0, (3, 16), dtype), codes(1, (16, 4), dtype), np.float32(0.5)
    zero = np.zeros((), dtype)
    y = one_result(lambda t: qkernels.qlinear_matmul(a, half, zero, b, half, zero, np.float32(1), zero, threads=t).astype(np.float32))
    exact = np.float64(a) @ np.float64(b) / 4
    # one float32 product, then half a step of two or three mantissa bits, less near 0
    assert (np.abs(y - np.clip(exact, float(ml_dtypes.finfo(dtype).min), float(ml_dtypes.finfo(dtype).max))) <= np.abs(exact) * 0.126 + 0.01).all()
    y = qkernels.qlinear_matmul(a, half, zero, codes(1, (16, 4), np.dtype(np.int8)), half, np.int8(1), np.float32(1), np.uint8(100))
    assert y.dtype == np.uint8 and y.shape == (3, 4)


def test_B10_integer_products_of_nothing(tier):
    assert qkernels.matmul_integer(np.zeros((0, 3), np.uint8), np.zeros((3, 4), np.int8)).shape == (0, 4)
    assert qkernels.matmul_integer(np.zeros((2, 0), np.uint8), np.zeros((0, 4), np.int8), np.uint8(3), np.int8(2)).tolist() == [[0] * 4] * 2
    assert qkernels.matmul_integer(np.zeros((2, 3), np.uint8), np.zeros((3, 0), np.int8)).shape == (2, 0)


def test_B12_nothing_saturates_and_nothing_wraps_early(tier):
    assert qkernels.matmul_integer(np.uint8([[255, 255]]), np.int8([[127], [127]])).tolist() == [[64770]]
    assert qkernels.matmul_integer(np.uint8([[255, 0]]), np.int8([[125], [-123]]), np.uint8(42), np.int8(-26)).tolist() == [[36237]]
    for x in EIGHT:
        for w in EIGHT:
            for p in (np.iinfo(x).min, np.iinfo(x).max):
                for q in (np.iinfo(w).min, np.iinfo(w).max):
                    for zero in ((np.iinfo(x).min, np.iinfo(w).max), (np.iinfo(x).max, np.iinfo(w).min), (0, 0)):
                        y = qkernels.matmul_integer(np.full((1, 67), p, x), np.full((67, 17), q, w), np.array(zero[0], x), np.array(zero[1], w))
                        assert (y == 67 * (int(p) - int(zero[0])) * (int(q) - int(zero[1]))).all()
    assert qkernels.matmul_integer(np.full((1, 2**17), 255, np.uint8), np.full((2**17, 1), 255, np.uint8)) == 255 * 255 * 2**17 - 2**33


def test_B23_zero_points_per_row_and_column(tier):
    identity = np.eye(2, dtype=np.uint8)
    assert qkernels.matmul_integer(np.uint8([[1, 2], [3, 4]]), identity, np.uint8([1, 3])).tolist() == [[0, 1], [0, 1]]
    assert qkernels.matmul_integer(identity, np.uint8([[1, 2], [3, 4]]), None, np.uint8([1, 3])).tolist() == [[0, -1], [2, 1]]
    # vectors, as in NumPy
    assert qkernels.matmul_integer(np.uint8([1, 2]), np.uint8([3, 4])) == 11
    assert qkernels.matmul_integer(np.uint8([1, 2]), identity, np.uint8(1)).tolist() == [0, 1]
    assert qkernels.matmul_integer(identity, np.uint8([3, 4]), None, np.uint8([3])).tolist() == [0, 1]


def test_B22_ranges_without_extent(tier):
    y, scale, zero = qkernels.dynamic_quantize_linear(np.zeros(4, np.float32))
    assert y.tolist() == [0] * 4 and scale == 1 and zero == 0 and scale.shape == zero.shape == ()
    y, scale, zero = qkernels.dynamic_quantize_linear(np.float32([-1, -2.1, -1.3, -2.5, -3.34, -4]))
    assert abs(float(scale) - .0156862754) < 1e-9 and zero == 255 and y.tolist() == [191, 121, 172, 96, 42, 0]
    for shape in ((0,), (3, 0)):
        y, scale, zero = qkernels.dynamic_quantize_linear(np.zeros(shape, np.float32))
        assert y.shape == shape and scale == 1 and zero == 0
    for x in ([3e38, -3e38], [1e-45, 0], [-0.0]):
        y, scale, zero = qkernels.dynamic_quantize_linear(np.float32(x))
        assert np.isfinite(scale) and scale > 0
        assert np.abs((y.astype(np.float64) - float(zero)) * float(scale) - np.float32(x)).max() <= float(scale)


def test_B19_dynamic_range_ignores_nan(tier):
    x = normal(0, (37,))
    with_nan = np.concatenate([x, np.float32([np.nan] * 5)])
    for values in (with_nan, with_nan[::-1]):
        y, scale, zero = qkernels.dynamic_quantize_linear(values)
        assert_equal_bits(scale, qkernels.dynamic_quantize_linear(x)[1])
        assert (y[np.isnan(values)] == 0).all()


@pytest.mark.differential("dynamic_quantize_linear")
@given(seed=seeds, shape=st.lists(st.integers(0, 40), max_size=3), shift=st.sampled_from([0, 3, -3]))
def test_dynamic_quantize_against_onnx_reference_and_tiers(seed, shape, shift):
    x = normal(seed, tuple(shape)) + np.float32(shift)
    y, scale, zero = one_result(lambda t: qkernels.dynamic_quantize_linear(x, threads=t))
    if x.size:
        for ours, theirs in zip((y, scale, zero), evaluate("", "DynamicQuantizeLinear", [x], outputs=3), strict=True):
            assert_equal_bits(ours, theirs)


@st.composite
def gathers(draw):
    kind = np.dtype(draw(st.sampled_from([np.uint8, np.int8, ml_dtypes.uint4, ml_dtypes.int4, *FLOAT8, ml_dtypes.float4_e2m1fn])))
    bits = draw(st.sampled_from([2, 4, 8]))
    shape = [draw(st.integers(1, 6)), draw(st.sampled_from([4, 8, 32, 36])), draw(st.sampled_from([4, 16, 20, 64]))][:draw(st.integers(2, 3))]
    is_float = kind not in INTEGERS
    g = 0 if kind == np.uint8 else draw(st.integers(-len(shape), len(shape) - 1))
    q = draw(st.integers(-len(shape), len(shape) - 1).filter(lambda q: kind != np.uint8 or bits == 8 or q % len(shape) != 0))
    bits = bits if kind == np.uint8 or is_float else 8 if kind == np.int8 else 4
    return dict(kind=kind, bits=bits, shape=tuple(shape), gather_axis=g, quantize_axis=q, seed=draw(seeds), with_zeros=not is_float and draw(st.booleans()),
                block_size=draw(st.sampled_from([16, 32, 128] + [0] * is_float)), count=draw(st.sampled_from([(), (0,), (3,), (2, 2)])))


@pytest.mark.differential("gather_block_quantized")
@given(p=gathers(), scale_dtype=float_dtypes)
def test_gather_block_quantized_against_specification(p, scale_dtype):
    per = 8 // p["bits"] if p["kind"] == np.uint8 else 1
    data = codes(p["seed"], p["shape"], p["kind"])
    axis = p["quantize_axis"] % data.ndim
    logical = (*p["shape"][:-1], p["shape"][-1] * per)
    blocks = [-(-d // (p["block_size"] or d)) if i == axis else d for i, d in enumerate(logical)]
    scales = normal(p["seed"] + 1, tuple(blocks), scale_dtype)
    zeros = codes(p["seed"] + 2, (*blocks[:-1], -(-blocks[-1] // per)), p["kind"]) if p["with_zeros"] else None
    size = logical[p["gather_axis"]]
    indices = np.random.default_rng(p["seed"]).integers(-size - 2, size + 2, p["count"])
    attributes = {k: p[k] for k in ("bits", "block_size", "gather_axis", "quantize_axis")}
    expected, = evaluate("com.microsoft", "GatherBlockQuantized", [data, indices, scales, zeros], **attributes)
    y = one_result(lambda t: qkernels.contrib.gather_block_quantized(data, indices, scales, zeros, threads=t, **attributes))
    assert_equal_bits(y, expected)
    out = np.empty_like(y)
    assert qkernels.contrib.gather_block_quantized(np.asfortranarray(data), indices, scales, zeros, out=out, **attributes) is out
    assert_equal_bits(out, y)


@pytest.mark.differential("gather_block_quantized")
@given(p=gathers(), scale_dtype=st.sampled_from([np.float32, np.float16]), index_dtype=st.sampled_from([np.int32, np.int64]))
def test_gather_block_quantized_against_onnx_runtime(p, scale_dtype, index_dtype):
    assume(p["kind"] != np.int8)  # ours only
    assume(p["kind"] != np.uint8 or p["quantize_axis"] in (-1, len(p["shape"]) - 1))  # the others it refuses
    per = 8 // p["bits"] if p["kind"] == np.uint8 else 1
    data = codes(p["seed"], p["shape"], p["kind"])
    axis = p["quantize_axis"] % data.ndim
    logical = (*p["shape"][:-1], p["shape"][-1] * per)
    blocks = [-(-d // (p["block_size"] or d)) if i == axis else d for i, d in enumerate(logical)]
    scales = normal(p["seed"] + 1, tuple(blocks), scale_dtype)
    zeros = codes(p["seed"] + 2, (*blocks[:-1], -(-blocks[-1] // per)), p["kind"]) if p["with_zeros"] else None
    size = logical[p["gather_axis"]]
    indices = np.random.default_rng(p["seed"]).integers(-size - 2, size + 2, p["count"]).astype(index_dtype)
    attributes = {k: p[k] for k in ("bits", "block_size", "gather_axis", "quantize_axis")}
    expected, = onnxruntime_node("com.microsoft", "GatherBlockQuantized", [data, indices, scales, zeros], constants=(0, 2, 3), **attributes)
    assert_equal_bits(qkernels.contrib.gather_block_quantized(data, indices, scales, zeros, **attributes), expected)


def test_B13_default_zero_point_follows_the_storage(tier):
    scale = np.float32([[0.5]])
    data = np.full((1, 8), 0xAA, np.uint8)
    assert set(qkernels.contrib.gather_block_quantized(data, [0], scale, block_size=16).flat) == {1.0}
    assert set(qkernels.contrib.gather_block_quantized(np.full((1, 4), 0xAA, np.uint8), [0], scale, bits=2, block_size=16).flat) == {0.0}
    assert set(qkernels.contrib.gather_block_quantized(np.full((1, 16), 138, np.uint8), [0], scale, bits=8, block_size=16).flat) == {5.0}
    native = qkernels.unpack_int4(data, (1, 16), ml_dtypes.uint4)
    assert set(qkernels.contrib.gather_block_quantized(native, [0], scale, block_size=16).flat) == {5.0}
    native = qkernels.unpack_int4(data, (1, 16), ml_dtypes.int4)
    assert set(qkernels.contrib.gather_block_quantized(native, [0], scale, block_size=16).flat) == {-3.0}


def test_B16_negative_and_foreign_indices(tier):
    data, scale = np.arange(24, dtype=np.uint8).reshape(3, 8), np.ones((3, 1), np.float32)
    rows = qkernels.contrib.gather_block_quantized(data, [0, 1, 2], scale, block_size=16)
    y = qkernels.contrib.gather_block_quantized(data, np.int64([0, -1, -3, 3, -4, 2**62, -2**63]), scale, block_size=16)
    assert_equal_bits(y, np.concatenate([rows[[0, 2, 0]], np.zeros((4, 16), np.float32)]))


def test_empty_and_0d(tier):
    for shape in ((0,), (3, 0), (0, 4)):
        assert qkernels.quantize_linear(np.zeros(shape, np.float32), np.float32(1)).shape == shape
        assert qkernels.dequantize_linear(np.zeros(shape, np.uint8), np.float32(1)).shape == shape
    assert qkernels.dequantize_linear(np.zeros((0, 4), np.uint8), np.ones((0, 2), np.float32), block_size=2).shape == (0, 4)
    assert qkernels.dequantize_linear(np.zeros((3, 0), np.uint8), np.ones((3, 0), np.float32), block_size=2).shape == (3, 0)
    assert qkernels.dequantize_linear(np.zeros((3, 0), np.uint8), np.ones(0, np.float32)).shape == (3, 0)
    y = qkernels.quantize_linear(np.float32(3), np.float32([2]))
    assert y.shape == () and y == 2


X, S, B8 = np.ones((4, 6), np.float32), np.ones(6, np.float32), np.ones((4, 4), np.uint8)
gather = qkernels.contrib.gather_block_quantized


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
    (lambda: qkernels.PackedInt8Matrix(B8.astype(np.int16)), TypeError, "PackedInt8Matrix: b: expected dtype uint8 or int8, got int16"),
    (lambda: qkernels.PackedInt8Matrix(B8[None]), ValueError, r"PackedInt8Matrix: b: expected 2 dimensions, got shape \(1, 4, 4\)"),
    (lambda: qkernels.PackedInt8Matrix(B8)(B8[:, :3]), ValueError, r"PackedInt8Matrix: b: expected shape \(3, N\) for a of shape \(4, 3\), got \(4, 4\)"),
    (lambda: qkernels.PackedInt8Matrix(B8)(B8, None, np.int8(1)), TypeError, "PackedInt8Matrix: b_zero_point: expected dtype uint8, got int8"),
    (lambda: qkernels.PackedInt8Matrix(B8)(a := B8.view(np.uint8), out=a), TypeError, "PackedInt8Matrix: out: expected dtype int32, got uint8"),
    (lambda: qkernels.matmul_integer(B8, B8.astype(np.int16)), TypeError, "matmul_integer: b: expected dtype uint8 or int8, got int16"),
    (lambda: qkernels.matmul_integer(B8, B8[:3]), ValueError, r"matmul_integer: b: expected shape \(4, N\) for a of shape \(4, 4\), got \(3, 4\)"),
    (lambda: qkernels.matmul_integer(B8, B8, np.int8(1)), TypeError, "matmul_integer: a_zero_point: expected dtype uint8, got int8"),
    (lambda: qkernels.matmul_integer(B8, B8, B8[:3, 0]), ValueError, r"a_zero_point: expected one element, shape \(4,\) or \(4, 1\), got \(3,\)"),
    (lambda: qkernels.matmul_integer(B8, B8, None, B8[:, :1]), ValueError, r"b_zero_point: expected one element, shape \(4,\) or \(1, 4\), got \(4, 1\)"),
    (lambda: qkernels.matmul_integer(B8, B8, out=np.empty((4, 4), np.int64)), TypeError, "matmul_integer: out: expected dtype int32, got int64"),
    (lambda: qkernels.qlinear_matmul(B8, S[0], B8[0, 0], B8, S[0], B8[0, 0], S[:2], B8[0, 0]), ValueError, "y_scale: expected one element"),
    (lambda: qkernels.qlinear_matmul(B8, S[0], None, B8, S[0], B8[0, 0], S[0], B8[0, 0]), TypeError, "a_zero_point: expected an array, got None"),
    (lambda: qkernels.qlinear_matmul(B8, np.float64(1), B8[0, 0], B8, S[0], B8[0, 0], S[0], B8[0, 0]), TypeError, "a_scale: expected dtype float32"),
    (lambda: qkernels.dynamic_quantize_linear(X.astype(np.float16)), TypeError, "dynamic_quantize_linear: x: expected dtype float32, got float16"),
    (lambda: gather(B8, [0], X[:, :1], bits=3), ValueError, "gather_block_quantized: bits: expected 2, 4 or 8, got 3"),
    (lambda: gather(B8.astype(ml_dtypes.uint4), [0], X[:, :1], bits=8), ValueError, "gather_block_quantized: bits: expected 4 for uint4, got 8"),
    (lambda: gather(B8, [0], X[:, :1], block_size=24), ValueError, "block_size: expected a power of two, at least 16, got 24"),
    (lambda: gather(B8, [0], X[:, :1], block_size=0), ValueError, "block_size: expected a power of two, at least 16, got 0"),
    (lambda: gather(B8, [0], X[:, :2]), ValueError, r"gather_block_quantized: scales: expected shape \(4, 1\), got \(4, 2\)"),
    (lambda: gather(B8, [0], X[:, :1], gather_axis=1), ValueError, "gather_axis: expected 0 for uint8, got 1"),
    (lambda: gather(B8, [0], X[:1], quantize_axis=0), ValueError, "quantize_axis: expected another axis than gather_axis for packed codes"),
    (lambda: gather(B8, [0], X[:, :1], B8), ValueError, r"zero_points: expected shape \(4, 1\), got \(4, 4\)"),
    (lambda: gather(B8.astype(FLOAT8[0]), [0], X[:, :1], B8.astype(FLOAT8[0])), ValueError, "zero_points: expected None for float8_e4m3fn"),
    (lambda: gather(X, [0], X), TypeError, "gather_block_quantized: data: expected dtype uint8"),
    (lambda: gather(B8, [0.5], X[:, :1]), TypeError, "gather_block_quantized: indices: expected an integer dtype"),
    (lambda: qkernels.pack_int4(np.int8([16])), ValueError, "pack_int4: x: expected integers in -8..15, got 16 to 16"),
    (lambda: qkernels.pack_int4(X), TypeError, "pack_int4: x: expected int4, uint4 or an integer dtype, got float32"),
    (lambda: qkernels.unpack_int4(np.zeros(3, np.uint8), 7), ValueError, r"unpack_int4: packed: expected 4 bytes for shape \(7,\), got 3"),
    (lambda: qkernels.unpack_int4(np.zeros(3, np.int8), 6), TypeError, "unpack_int4: packed: expected dtype uint8, got int8"),
    (lambda: qkernels.unpack_int4(np.zeros(3, np.uint8), 6, np.int8), TypeError, "unpack_int4: dtype: expected int4 or uint4"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
