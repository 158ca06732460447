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

NUMERIC = [np.dtype(t) for t in (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float64)]


@pytest.mark.differential("gather")
@given(seed=seeds, shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), indices=st.lists(st.integers(0, 4), max_size=3),
       dtype=st.sampled_from([*FLOAT_DTYPES, *NUMERIC]), index_dtype=st.sampled_from([np.int32, np.int64]), data=st.data())
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


@np.errstate(invalid="ignore")  # NumPy warns of signalling NaN
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
    (lambda a: qkernels.cast(a, ml_dtypes.float8_e4m3fn), TypeError, "cast: to: expected bool, an integer type"),
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
