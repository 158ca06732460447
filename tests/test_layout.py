"""Gather and Cast."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, bits, layouts, one_result
from tests.strategies import float_dtypes, lengths, normal, seeds

SMALL_FLOATS = [np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
                                      ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)]
SMALL_INTEGERS = [np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2)]
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
NUMERIC = [np.dtype(t) for t in (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float64)]


@pytest.mark.differential("gather")
@given(seed=seeds, shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), indices=st.lists(st.integers(0, 4), max_size=3),
       dtype=st.sampled_from([*FLOAT_DTYPES, *NUMERIC, *SMALL_FLOATS, *SMALL_INTEGERS, E8M0]), index_dtype=st.sampled_from([np.int32, np.int64]), data=st.data())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gather_against_onnx_reference(seed, shape, indices, dtype, index_dtype, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    a = normal(seed, shape, np.float32, 50).astype(dtype)
    index = np.random.default_rng(seed).integers(-size, size, indices, index_dtype)
    expected, = evaluate("", "Gather", [a, index], axis=axis)
    assert_equal_bits(one_result(lambda t: qkernels.gather(a, index, axis=axis, threads=t)), expected)


@pytest.mark.differential("cast")
@given(seed=seeds, n=lengths, source=float_dtypes, target=float_dtypes)
def test_cast_between_floats(seed, n, source, target):
    x = normal(seed, (n,), source, 100)
    y = one_result(lambda t: qkernels.cast(x, target, threads=t))
    assert_equal_bits(y, x.astype(target))
    expected, = evaluate("", "Cast", [x], to={"float32": 1, "float16": 10, "bfloat16": 16}[target.name])
    assert_equal_bits(y, expected)


@np.errstate(invalid="ignore", over="ignore")  # NumPy warns of signalling NaN, and of what float16 does not hold
def test_cast_of_every_16_bit_value(tier):
    every = np.arange(65536, dtype=np.uint16)
    for source, target in ((np.float16, BF16), (BF16, np.float16), (np.float16, np.float32), (BF16, np.float32)):
        x = every.view(source)
        assert_equal_bits(qkernels.cast(x, target), x.astype(target))
        back = qkernels.cast(qkernels.cast(x, np.float32), source)
        assert (bits(back) == bits(x)).all()


@np.errstate(invalid="ignore")
def test_cast_to_16_bits_around_every_tie(tier):
    for target in (np.float16, BF16):
        value = np.arange(65536, dtype=np.uint16).view(target).astype(np.float64)
        value = np.unique(value[np.isfinite(value)])
        middle = ((value[:-1] + value[1:]) / 2).astype(np.float32)
        x = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))])
        assert_equal_bits(qkernels.cast(x, target), x.astype(target))


def codes_of(y):
    return y.view(np.uint16 if y.dtype == BF16 else np.uint8).astype(np.int64)


@pytest.mark.parametrize("target", [*SMALL_FLOATS, BF16], ids=str)
@np.errstate(invalid="ignore", over="ignore")
def test_cast_around_every_tie_of_every_source(target):
    """Between two neighbours of the type what lies above the middle is the upper one, however little, and the middle the even one."""
    every = np.arange(65536 if target == BF16 else 256)
    value = every.astype(np.uint16 if target == BF16 else np.uint8).view(target).astype(np.float64)
    kept = np.isfinite(value) & ~np.signbit(value) & (every < {"float4_e2m1fn": 8, "float6_e2m3fn": 32, "float6_e3m2fn": 32}.get(target.name, 65536))
    code, value = every[kept], value[kept]
    low, middle = code[:-1], (value[:-1] + value[1:]) / 2
    assert (np.diff(value) > 0).all() and (np.diff(code) == 1).all()
    even = low + low % 2
    for source in (np.dtype(np.float64), *(d for d in FLOAT_DTYPES if d != target)):
        x = middle.astype(source)
        exact = (x.astype(np.float64) == middle) & (x.astype(np.float64) > 0)
        assert exact.any(), source
        for sign in (1, -1):
            negative = sign < 0
            zero = 0 if target.name.endswith("fnuz") else {"float4_e2m1fn": 8, "float6_e2m3fn": 32, "float6_e3m2fn": 32, "bfloat16": 32768}.get(target.name, 128)
            expect = lambda c, negative=negative, zero=zero: np.where(c == 0, zero, c + (32768 if target == BF16 else zero or 128)) if negative else c
            for way, expected in ((0, even), (np.inf, low + 1), (-np.inf, low)):
                moved = x if way == 0 else np.nextafter(x, np.array(way, source))
                y = qkernels.cast(sign * moved[exact], target)
                np.testing.assert_array_equal(codes_of(y), expect(expected[exact]), f"{source}, {way}")
    # what is not a type of ml_dtypes' own casts: integers above the middle of two bfloat16, by as little as one
    if target == BF16:
        for dtype in (np.int32, np.uint32, np.int64, np.uint64):
            for shift in (22, 40, 52, 54, 55):
                if shift + 9 <= np.iinfo(dtype).bits - (np.iinfo(dtype).min < 0):
                    for tie, lower in ((257, 256), (259, 258)):
                        for difference, expected in ((0, 256 if tie == 257 else 260), (1, lower + 2), (-1, lower)):
                            for sign in (1, -1)[:2 if np.iinfo(dtype).min else 1]:
                                x = np.array([sign * ((tie << shift) + difference)], dtype)
                                assert float(qkernels.cast(x, BF16)[0]) == sign * expected * 2.0**shift, (dtype, shift, tie, difference)


@pytest.mark.differential("cast", "cast_like")
@pytest.mark.parametrize("target", SMALL_FLOATS[:4], ids=str)
@np.errstate(over="ignore")
def test_cast_beyond_the_range_of_float8(target):
    largest = float(ml_dtypes.finfo(target).max)
    step = largest - float(np.array(int(np.array(largest, target).view(np.uint8)) - 1, np.uint8).view(target))
    for source in (np.float64, np.float32, np.float16, np.int32):
        x = np.array([largest, -largest, 60000, -60000] if source == np.int32 else
                     [largest, -largest, largest + step, -largest - step, np.inf, -np.inf, np.nan, largest + step * 0.49], source)
        y = qkernels.cast_like(x, np.zeros(1, target)).astype(np.float64)
        np.testing.assert_array_equal(y, np.where(np.isnan(x), np.nan, np.sign(x) * largest))
        over = np.inf if target == ml_dtypes.float8_e5m2 else np.nan
        y = qkernels.cast(x, target, saturate=0).astype(np.float64)
        inside = np.abs(np.float64(x)) <= largest + step * 0.495
        np.testing.assert_array_equal(y, np.where(inside, np.sign(x) * largest, np.where(np.isnan(x), np.nan, np.sign(x) * over)))


@np.errstate(over="ignore")
def test_cast_to_powers_of_two():
    cast = lambda x, mode="up", saturate=1: qkernels.cast(x, E8M0, saturate=saturate, round_mode=mode).view(np.uint8).tolist()
    one = np.float64([1, np.nextafter(1, 2), 1.5, np.nextafter(1.5, 0), 2])
    assert cast(one) == [127, 128, 128, 128, 128]
    assert cast(one, "down") == [127, 127, 127, 127, 128]
    assert cast(one, "nearest") == [127, 127, 128, 127, 128]
    assert cast(np.int64([1, 2**24 + 1, 2**53 + 1, 2**62 + 1])) == [127, 152, 181, 190] and cast(np.int32([3, 5, 6]), "nearest") == [129, 129, 130]
    assert cast(np.uint64([2**64 - 1, 2**63]), "down") == [190, 190] and cast(np.uint64([2**64 - 1])) == [191]
    smallest = 2.0**-127
    for dtype in (np.float32, np.float64, BF16):
        x = np.array([0, -0.0, smallest, smallest / 2, smallest * 1.5, 2.0**127, np.inf, np.nan, -1, -np.inf], dtype)
        assert cast(x) == [0, 0, 0, 0, 1, 254, 254, 255, 255, 255]
        assert cast(x, "down") == [0, 0, 0, 0, 0, 254, 254, 255, 255, 255]
        assert cast(x, "nearest", 0) == [255, 255, 0, 255, 1, 254, 255, 255, 255, 255]
        beyond = np.array([1.25 * 2.0**127, 1.5 * 2.0**127], dtype)
        assert cast(beyond) == [254, 254] and cast(beyond, "up", 0) == [255, 255] and cast(beyond, "nearest", 0) == [254, 255]
    assert cast(np.float64([1e300, 1e-300])) == [254, 0] and cast(np.float64([1e300, 1e-300]), "down", 0) == [255, 255]
    every = np.arange(256, dtype=np.uint8).view(E8M0)
    for dtype in (np.float64, np.float32, BF16):
        assert cast(qkernels.cast(every, dtype)) == list(range(256))
    assert np.isnan(qkernels.cast(every[255:], np.float16)).all() and qkernels.cast(every[[0, 127]], np.float16).tolist() == [0, 1]


@pytest.mark.differential("cast", "cast_like")
@given(seed=seeds, source=st.sampled_from([*FLOAT_DTYPES, *NUMERIC, *SMALL_FLOATS, *SMALL_INTEGERS]), target=st.sampled_from([*SMALL_FLOATS, *SMALL_INTEGERS, E8M0]))
def test_cast_to_and_from_small_types(seed, source, target):
    x = (normal(seed, (3, 21), np.float32, 3)).astype(source if source not in SMALL_INTEGERS else np.int8).astype(source)
    if source in (np.uint8, np.uint16, np.uint32, np.uint64):
        x = x % source.type(8)
    y = qkernels.cast_like(x, np.zeros((), target))
    wide = x.astype(np.float64)
    if target in SMALL_INTEGERS:
        n, low = (4, -8) if target == ml_dtypes.int4 else (4, 0) if target == ml_dtypes.uint4 else (2, -2) if target == ml_dtypes.int2 else (2, 0)
        expected = (np.trunc(wide).astype(np.int64) - low) % 2**n + low
        assert y.dtype == target and y.astype(np.int64).tolist() == expected.tolist()
    elif target != E8M0:
        values = np.arange(256, dtype=np.uint8)[:{"float4_e2m1fn": 16, "float6_e2m3fn": 64, "float6_e3m2fn": 64}.get(target.name, 256)].view(target).astype(np.float64)
        values = values[np.isfinite(values)]
        nearest = np.abs(values - wide[..., None]).min(-1)
        np.testing.assert_array_equal(np.abs(y.astype(np.float64) - wide), nearest)
    # what a small type holds every larger one holds
    for other in (np.float64, np.float32, BF16):
        assert_equal_bits(qkernels.cast(y, other), y.astype(np.float32).astype(other))
    assert_equal_bits(qkernels.cast(qkernels.cast(y, np.float32), target).view(np.uint8), qkernels.cast(y, target).view(np.uint8))
    assert qkernels.cast(y, bool).tolist() == (y.astype(np.float64) != 0).tolist()
    for name, v in layouts(np.ascontiguousarray(x)) if source not in (BF16, *SMALL_FLOATS, *SMALL_INTEGERS) else ():
        assert_equal_bits(qkernels.cast(v, target).view(np.uint8), y.view(np.uint8), name)


def test_cast_of_what_no_small_integer_holds():
    x = np.array([np.nan, np.inf, -np.inf, 1e30, 17.9, -9.5, 2.0**40 + 3], np.float64)
    assert qkernels.cast(x, ml_dtypes.int4).astype(int).tolist() == [0, 0, 0, 0, 1, 7, 3]
    assert qkernels.cast(x, ml_dtypes.uint2).astype(int).tolist() == [0, 0, 0, 0, 1, 3, 3]
    assert qkernels.cast(np.array([np.nan, np.inf, -7], BF16), ml_dtypes.float4_e2m1fn).astype(float).tolist() == [0, 6, -6]
    assert qkernels.cast(np.uint64([2**64 - 1]), ml_dtypes.int4).astype(int).tolist() == [-1]
    assert qkernels.cast(np.array([True, False]), ml_dtypes.float8_e4m3fn).astype(float).tolist() == [1, 0]
    same = np.array([1, 2], ml_dtypes.int4)
    y = qkernels.cast(same, ml_dtypes.int4)
    assert y is not same and y.astype(int).tolist() == [1, 2]


def test_B52_float32_to_bfloat16(tier):
    for source, expected in ((0x3E89CCD5, 0x3E8A), (0x3F808000, 0x3F80), (0x3F818000, 0x3F82), (0x7F7FFFFF, 0x7F80), (0x00008000, 0x0000),
                             (0xFF7FFFFF, 0xFF80), (0x80008001, 0x8001), (0x7F800000, 0x7F80)):
        for n in (1, 16, 33):
            x = np.full(n, source, np.uint32).view(np.float32)
            assert (qkernels.cast(x, BF16).view(np.uint16) == expected).all(), hex(source)
    for source in (0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC00000, 0x7F80FFFF):
        x = np.full(17, source, np.uint32).view(np.float32)
        for target in (BF16, np.float16):
            assert np.isnan(qkernels.cast(x, target).astype(np.float32)).all(), hex(source)


@pytest.mark.differential("cast")
@given(seed=seeds, source=st.sampled_from([*FLOAT_DTYPES, *NUMERIC]), target=st.sampled_from([*FLOAT_DTYPES, *NUMERIC]))
def test_cast_of_other_types(seed, source, target):
    x = np.abs(normal(seed, (3, 7), np.float32, 30)).astype(source)
    y = qkernels.cast(x, target)
    expected = x.astype(target)
    assert_equal_bits(y, expected)
    assert qkernels.cast(x, source) is not x


def test_cast_truncates_and_tests_for_zero():
    assert qkernels.cast(np.float32([1.9, -1.9, 0]), np.int32).tolist() == [1, -1, 0]
    assert qkernels.cast(np.array([0.4, 0, -0.0, np.nan], BF16), bool).tolist() == [True, False, False, True]
    assert qkernels.cast(np.int16([200]), np.int8).tolist() == [-56]
    assert qkernels.cast(np.float32([1.5]), 10).dtype == np.float16 and qkernels.cast(np.float32([1.5]), 16).dtype == BF16


def test_B16_indices(tier):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert_equal_bits(qkernels.gather(a, [0, -1]), a[[0, 2]])
    for bad in (3, -4, 2**40, -2**63):
        with pytest.raises(IndexError, match=f"gather: indices: expected -3 to 2 for size 3 of axis 0, got {bad}$"):
            qkernels.gather(a, np.int64([0, 1, bad]))
    with pytest.raises(IndexError, match="expected -4 to 3 for size 4 of axis 1, got 4"):
        qkernels.gather(a, np.int32([[4]]), axis=-1)
    with pytest.raises(IndexError, match="for size 0"):
        qkernels.gather(a[:0], [0])


@pytest.mark.parametrize("dtype", [*FLOAT_DTYPES, np.dtype(np.int64), np.dtype(np.uint8)])
def test_B58_gather_of_any_layout(dtype):
    a = normal(0, (5, 4, 6), np.float32, 50).astype(dtype)
    index = np.int64([[1, -2, 0]])
    for axis in (0, 1, 2):
        expected = qkernels.gather(a, index, axis=axis)
        assert_equal_bits(expected, np.take(a, index, axis))
        for name, b in layouts(a):
            y = qkernels.gather(b, index, axis=axis)
            assert y.dtype.isnative and y.flags.c_contiguous
            assert_equal_bits(y, expected, name)
        for name, i in layouts(index):
            assert_equal_bits(qkernels.gather(a, i, axis=axis), expected, name)
        wide = np.zeros((7, 6, 9), dtype)
        wide[1:6, 1:5, 2:8] = a
        assert_equal_bits(qkernels.gather(wide[1:6, 1:5, 2:8], index, axis=axis), expected)
        assert_equal_bits(qkernels.gather(np.broadcast_to(a[:1], a.shape), index, axis=axis), np.take(np.broadcast_to(a[:1], a.shape), index, axis))


@pytest.mark.parametrize("source", FLOAT_DTYPES)
def test_B58_cast_of_any_layout(source):
    x = normal(0, (6, 40), source)
    for target in (*FLOAT_DTYPES, np.dtype(np.int32)):
        expected = qkernels.cast(x, target)
        for name, a in layouts(x):
            assert_equal_bits(qkernels.cast(a, target), expected, name)


def test_B57_gather_from_a_read_only_map(tmp_path):
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    (tmp_path / "table").write_bytes(b"x" + table.tobytes())
    mapped = np.memmap(tmp_path / "table", np.float32, "r", offset=1, shape=(10, 4))
    y = qkernels.gather(mapped, [3, 9])
    assert type(y) is np.ndarray and y.flags.writeable
    assert_equal_bits(y, table[[3, 9]])
    frozen = np.frombuffer(table.tobytes(), np.float32)
    assert_equal_bits(qkernels.cast(frozen, BF16), table.ravel().astype(BF16))
    for out in (np.frombuffer(bytes(32), np.float32).reshape(2, 4),):
        with pytest.raises(ValueError, match="gather: out: expected a writeable array"):
            qkernels.gather(table, [3, 9], out=out)


def test_gather_from_packed_weights():
    class Packed:
        def take_rows(self, indices, out=None):
            rows = np.float32([[i, -i] for i in indices])
            if out is None:
                return rows
            out[...] = rows
            return out
    assert qkernels.gather(Packed(), [2, 3]).tolist() == [[2, -2], [3, -3]]
    out = np.empty((1, 2), np.float32)
    assert qkernels.gather(Packed(), [2], out=out) is out and out.tolist() == [[2, -2]]
    with pytest.raises(ValueError, match="axis: expected 0 for packed weights"):
        qkernels.gather(Packed(), [2], axis=1)


def test_gather_of_many_rows_is_the_same_with_threads():
    a, index = normal(0, (100, 1000)), np.random.default_rng(0).integers(-100, 100, (3, 500))
    assert_equal_bits(one_result(lambda t: qkernels.gather(a, index, threads=t), (1, 2, 7)), a[index])
    big = normal(1, (700_001,))
    assert_equal_bits(one_result(lambda t: qkernels.cast(big, BF16, threads=t), (1, 2, 7)), big.astype(BF16))


def test_out():
    a, index = normal(0, (5, 8)), np.int64([1, 0])
    out = np.empty((2, 8), np.float32)
    assert qkernels.gather(a, index, out=out) is out
    assert_equal_bits(out, a[index])
    big_endian = a.astype(">f4")
    assert_equal_bits(qkernels.gather(big_endian, index, out=out), a[index])
    half = np.empty((5, 8), np.float16)
    assert qkernels.cast(a, np.float16, out=half) is half
    assert_equal_bits(half, a.astype(np.float16))
    same = a.copy()
    assert_equal_bits(qkernels.cast(same, np.float32, out=same), a)
    integers = np.empty((5, 8), np.int32)
    assert_equal_bits(qkernels.cast(a * 9, np.int32, out=integers), (a * 9).astype(np.int32))


def test_B51_empty_shapes():
    a = np.zeros((3, 4), np.float32)
    assert qkernels.gather(a, np.zeros((0, 2), np.int64)).shape == (0, 2, 4)
    assert qkernels.gather(a[:, :0], [0, 1]).shape == (2, 0)
    assert qkernels.gather(np.zeros((0, 4), np.float32), np.zeros(0, np.int32)).shape == (0, 4)
    assert qkernels.gather(a, np.int64(1)).shape == (4,)
    assert qkernels.gather(np.float32([5, 6]), np.int64(1)).shape == ()
    for shape in ((), (0,), (0, 4)):
        assert qkernels.cast(np.ones(shape, np.float32), BF16).shape == shape


@pytest.mark.parametrize("call, error, message", [
    (lambda a: qkernels.gather(None, [0]), TypeError, "gather: data: expected an array, got None"),
    (lambda a: qkernels.gather(a, None), TypeError, "gather: indices: expected an array, got None"),
    (lambda a: qkernels.gather(a, [0.5]), TypeError, "gather: indices: expected an integer dtype, got float64"),
    (lambda a: qkernels.gather(a, np.uint64([0])), TypeError, "gather: indices: expected an integer dtype that fits int64, got uint64"),
    (lambda a: qkernels.gather(a, [True]), TypeError, "gather: indices: expected an integer dtype"),
    (lambda a: qkernels.gather(a, [0], axis=2), ValueError, "gather: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda a: qkernels.gather(a, [0], axis=None), TypeError, "gather: axis: expected an int, got NoneType"),
    (lambda a: qkernels.gather(np.float32(1), [0]), ValueError, "gather: data: expected at least 1 dimension, got a 0-d array"),
    (lambda a: qkernels.gather(np.array([None]), [0]), TypeError, "gather: data: expected a dtype without Python objects, got object"),
    (lambda a: qkernels.gather(a, [0], out=np.empty((2, 8), np.float32)), ValueError, r"gather: out: expected shape \(1, 8\), got \(2, 8\)"),
    (lambda a: qkernels.gather(a, [0], out=np.empty((1, 8), np.float64)), TypeError, "gather: out: expected dtype float32, got float64"),
    (lambda a: qkernels.gather(a, [0], out=np.empty((1, 16), np.float32)[:, ::2]), ValueError, "gather: out: expected an aligned C-contiguous array"),
    (lambda a: qkernels.gather(a, [0], out=a[1:2]), ValueError, "gather: out: overlaps data"),
    (lambda a: qkernels.gather(a, [0], threads=0), ValueError, "gather: threads: expected 1 to 1024, got 0"),
    (lambda a: qkernels.cast(a, "float8"), TypeError, "cast: to: expected bool, an integer type"),
    (lambda a: qkernels.cast(a, ml_dtypes.float8_e4m3), TypeError, "cast: to: expected bool, an integer type, .* got"),
    (lambda a: qkernels.cast(a, ml_dtypes.float8_e4m3fn, saturate=2), ValueError, "cast: saturate: expected 0 or 1, got 2"),
    (lambda a: qkernels.cast(a, ml_dtypes.float8_e8m0fnu, round_mode="even"), ValueError, "cast: round_mode: expected 'up', 'down' or 'nearest', got 'even'"),
    (lambda a: qkernels.cast_like(a, np.zeros(1, complex)), TypeError, "cast_like: target_type: expected bool, .*, got complex128"),
    (lambda a: qkernels.cast_like(np.array(["1"]), a), TypeError, "cast_like: x: expected bool, .*, got <U1"),
    (lambda a: qkernels.cast(a, 8), TypeError, "cast: to: expected bool, an integer type, .* got 8"),
    (lambda a: qkernels.cast(a, None), TypeError, "cast: to: expected bool"),
    (lambda a: qkernels.cast(a.astype(np.complex64), np.float32), TypeError, "cast: x: expected bool, .*, got complex64"),
    (lambda a: qkernels.cast(a, np.float16, out=np.empty((4, 8), np.float32)), TypeError, "cast: out: expected dtype float16, got float32"),
    (lambda a: qkernels.cast(a, np.float16, out=a.view(np.float16)[:, ::2]), ValueError, "cast: out: expected an aligned C-contiguous array"),
    (lambda a: qkernels.cast(a, np.float16, out=a.reshape(-1).view(np.float16)[:32].reshape(4, 8)), ValueError, "cast: out: overlaps x"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)))
