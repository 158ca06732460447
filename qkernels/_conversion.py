"""Conversions that pass through NumPy and ml_dtypes, each value rounded once: what `cast`, `cast_like` and `quantize_linear` share for the types
below 16 bits, and for bfloat16 of wider types."""
import ml_dtypes
import numpy as np

BF16, E8M0 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e8m0fnu)
# onnx.TensorProto.DataType
DTYPES = {number: np.dtype(t) for number, t in (
    (1, np.float32), (2, np.uint8), (3, np.int8), (4, np.uint16), (5, np.int16), (6, np.int32), (7, np.int64), (9, np.bool_), (10, np.float16),
    (11, np.float64), (12, np.uint32), (13, np.uint64), (16, ml_dtypes.bfloat16), (17, ml_dtypes.float8_e4m3fn), (18, ml_dtypes.float8_e4m3fnuz),
    (19, ml_dtypes.float8_e5m2), (20, ml_dtypes.float8_e5m2fnuz), (21, ml_dtypes.uint4), (22, ml_dtypes.int4), (23, ml_dtypes.float4_e2m1fn),
    (24, ml_dtypes.float8_e8m0fnu), (25, ml_dtypes.uint2), (26, ml_dtypes.int2), (27, ml_dtypes.float6_e2m3fn), (28, ml_dtypes.float6_e3m2fn))}
FLOAT8 = tuple(DTYPES[number] for number in (17, 18, 19, 20))
SMALL_FLOATS = (*FLOAT8, *(DTYPES[number] for number in (23, 27, 28)))  # with a sign and a zero: all but float8_e8m0fnu
SMALL_INTEGERS = tuple(DTYPES[number] for number in (21, 22, 25, 26))
ROUND_MODES = ("up", "down", "nearest")


def table_values(a):
    """Float32 values of an array of an 8-bit or smaller float type, all of which float32 holds, by a table of its 256 bytes."""
    table = np.arange(256, dtype=np.uint8).view(a.dtype).astype(np.float32)
    return np.asarray(table[a.view(np.uint8)])


def to_odd_float32(a):
    """Float32 values whose rounding to a type of at most 22 bits is that of `a` itself: what float32 does not hold is rounded to odd.

    Of the two neighbours the one with an odd last bit is never a number nor a tie of a smaller type, and lies on the same side of both.
    """
    if a.dtype in (np.int64, np.uint64):  # to odd too, by keeping the upper bits of numbers that float64 does not hold
        wide, lost = (a >= 2**53) | (a <= -2**53 if a.dtype == np.int64 else False), a & a.dtype.type(2047)
        a = np.where(wide, (a - lost) | ((lost != 0).astype(a.dtype) << 11), a).astype(np.float64)
    elif a.dtype.kind in "iu" and a.dtype.itemsize == 4:
        a = a.astype(np.float64)
    if a.dtype != np.float64:
        return a.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        y = a.astype(np.float32)
        inexact = (y != a) & ~np.isnan(a)
        y = np.where(inexact & (np.abs(y) > np.abs(a)), np.nextafter(y, np.float32(0)), y)
    return (y.view(np.uint32) | inexact).view(np.float32)


def convert(a, dtype, saturate=True, round_mode="up"):
    """The array `a`, of one of DTYPES, in another of them, as ai.onnx Cast defines it.

    Beyond the range: for 8-bit floats the largest number or, without `saturate`, an infinity or NaN; for smaller floats the largest; for integers
    of fewer bits than 8 the low bits of the truncated value, 0 where that does not fit 64 bits or is none. `round_mode` is float8_e8m0fnu's, which has
    neither a zero nor a sign: what is less than its smallest number counts as beyond the range, and negative numbers become NaN.
    """
    if a.dtype in SMALL_FLOATS or a.dtype == E8M0:
        a = table_values(a)
    elif a.dtype in SMALL_INTEGERS:
        a = a.astype(np.int8)
    with np.errstate(all="ignore"):
        if dtype == E8M0:
            return _to_e8m0(a if a.dtype == np.float64 else to_odd_float32(a), saturate, round_mode)
        if dtype in SMALL_FLOATS:
            limits, values = ml_dtypes.finfo(dtype), to_odd_float32(a)
            if saturate or dtype not in FLOAT8:
                values = np.clip(values, np.float32(limits.min), np.float32(limits.max))
            return values.astype(dtype)
        if dtype in SMALL_INTEGERS:
            if a.dtype.kind not in "biu":
                values = a.astype(np.float64)
                a = np.where(np.abs(values) < 2.0**63, values, 0).astype(np.int64)
            return a.astype(np.int8).astype(dtype)
        if dtype == BF16:
            return to_odd_float32(a).astype(dtype)
        return a.astype(dtype)


def _to_e8m0(values, saturate, round_mode):
    mantissa, exponent = np.frexp(np.abs(values))  # 0.5 <= mantissa < 1
    code = exponent.astype(np.int32) + (126 + (mantissa > 0.5 if round_mode == "up" else mantissa >= 0.75 if round_mode == "nearest" else 0))
    code = np.where(values == 0, -1, np.where(np.isinf(values), 255, code))
    code = np.clip(code, 0, 254) if saturate else np.where((code < 0) | (code > 254), 255, code)
    return np.where(np.isnan(values) | (values < 0), 255, code).astype(np.uint8).view(E8M0)
