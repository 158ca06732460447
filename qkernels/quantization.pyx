"""Linear quantization: ai.onnx QuantizeLinear and DequantizeLinear, and 4-bit bytes packed and unpacked."""
cimport numpy as cnp
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import ml_dtypes
import numpy as np

cnp.import_array()

cdef extern from "quantization/quantization.h" nogil:
    ctypedef struct qk_linear_args:
        const void *x
        const void *scale
        const void *zero
        void *y
        int code, value_dtype, scale_dtype, precision, vector
        int64_t outer, runs, length, last, outer_step, repeat, step
    int QK_I8, QK_U8, QK_I16, QK_U16, QK_I32, QK_I4, QK_U4, QK_I2, QK_U2, QK_VALUE
    void qk_dequantize(int isa, int threads, const qk_linear_args *args)
    void qk_quantize(int isa, int threads, const qk_linear_args *args)

# elements for which starting a second thread pays; elements of a run where one scale serves the whole tensor
cdef enum:
    GRAIN = 1 << 17
    RUN = 1 << 12

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
# the kernels' own types of codes, and those that go through tables and ml_dtypes' conversions
_CODES = {np.dtype(t): code for t, code in (
    (np.int8, QK_I8), (np.uint8, QK_U8), (np.int16, QK_I16), (np.uint16, QK_U16), (np.int32, QK_I32), (ml_dtypes.int4, QK_I4),
    (ml_dtypes.uint4, QK_U4), (ml_dtypes.int2, QK_I2), (ml_dtypes.uint2, QK_U2))}
_SMALL_FLOATS = tuple([np.dtype(t) for t in (
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float4_e2m1fn,
    ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)])
_QUANTIZED = tuple([t for t in _CODES if t != np.int32]) + _SMALL_FLOATS
# onnx.TensorProto.DataType
_NUMBERS = {number: np.dtype(t) for number, t in (
    (1, np.float32), (2, np.uint8), (3, np.int8), (4, np.uint16), (5, np.int16), (6, np.int32), (10, np.float16), (16, ml_dtypes.bfloat16),
    (17, ml_dtypes.float8_e4m3fn), (18, ml_dtypes.float8_e4m3fnuz), (19, ml_dtypes.float8_e5m2), (20, ml_dtypes.float8_e5m2fnuz),
    (21, ml_dtypes.uint4), (22, ml_dtypes.int4), (23, ml_dtypes.float4_e2m1fn), (24, ml_dtypes.float8_e8m0fnu), (25, ml_dtypes.uint2),
    (26, ml_dtypes.int2), (27, ml_dtypes.float6_e2m3fn), (28, ml_dtypes.float6_e3m2fn))}
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


cdef object _dtype_of(object value, tuple offered, str func, str name):
    """The dtype that an attribute names as a dtype or as an onnx.TensorProto.DataType; None for None and 0."""
    if value is None or isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value == 0:
        return None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        dtype = _NUMBERS.get(int(value))
    else:
        try:
            dtype = np.dtype(value)
        except TypeError:
            dtype = None
    if dtype not in offered or dtype is None:
        raise TypeError(f"{func}: {name}: expected one of {', '.join([t.name for t in offered])}, got {value}")
    return dtype


cdef cnp.ndarray _table_values(cnp.ndarray a):
    """Float32 values of an array of a small float type, by a table of its 256 bytes."""
    table = np.arange(256, dtype=np.uint8).view(a.dtype).astype(np.float32)
    return np.asarray(table[(<object>a).view(np.uint8)])


cdef int _lay_out(qk_linear_args *args, tuple shape, tuple scale_shape, object axis, object block_size, str func, str scale_name) except -1:
    """The walk over runs, see quantization.h."""
    cdef int64_t size = 1, inner = 1, block, n
    cdef int rank = len(shape), ax
    if isinstance(block_size, bool) or not hasattr(block_size, "__index__"):
        raise TypeError(f"{func}: block_size: expected an int, got {type(block_size).__name__}")
    if block_size < 0:
        raise ValueError(f"{func}: block_size: expected at least 0, got {block_size}")
    for n in shape:
        size *= n
    args.vector, args.repeat = 0, 1
    if not scale_shape or scale_shape == (1,) and (not block_size or rank == 0):
        args.outer, args.length, args.runs = 1, RUN, max(1, (size + RUN - 1) // RUN)
        args.last, args.outer_step, args.step = size - (args.runs - 1) * RUN, 0, 0
        return 0
    ax = _arrays.normalize_axis(axis, rank, func)
    n = shape[ax]
    for i in range(ax + 1, rank):
        inner *= shape[i]
    args.outer = size // (n * inner) if size else 0
    if not block_size:
        if scale_shape != (n,):
            raise ValueError(f"{func}: {scale_name}: expected a scalar or shape ({n},) for axis {ax} of {shape}, got {scale_shape}")
        args.outer_step = 0
        if inner == 1: # scales along the row
            args.vector, args.runs, args.length, args.last, args.step = 1, args.outer, n, n, 0
            args.outer = 1
        else:
            args.runs, args.length, args.last, args.step = n, inner, inner, 1
        return 0
    block = block_size
    expected = shape[:ax] + ((n + block - 1) // block,) + shape[ax + 1:]
    if scale_shape != expected:
        raise ValueError(f"{func}: {scale_name}: expected shape {expected} for blocks of {block} along axis {ax} of {shape}, got {scale_shape}")
    args.outer_step = (n + block - 1) // block * inner
    if inner == 1:
        args.runs, args.length, args.step = args.outer_step, block, 1
        args.last = n - (args.runs - 1) * block
    else:
        args.vector, args.runs, args.length, args.last, args.repeat, args.step = 1, n, inner, inner, block, inner
    return 0


cdef cnp.ndarray _scale_input(object scale, str func, str name):
    cdef cnp.ndarray s = _arrays.as_array(scale, func, name)
    if s.dtype == _E8M0:
        return _table_values(s)
    if s.dtype not in _FLOATS:
        raise TypeError(f"{func}: {name}: expected dtype float32, float16, bfloat16 or float8_e8m0fnu, got {s.dtype}")
    return _arrays.contiguous(s)


cdef cnp.ndarray _zero_input(object zero, object dtype, cnp.ndarray s, str func, str name, str scale_name):
    """A zero point of `dtype` and of the scale's shape."""
    cdef cnp.ndarray z = _arrays.as_array(zero, func, name)
    if z.dtype != dtype:
        raise TypeError(f"{func}: {name}: expected dtype {dtype}, got {z.dtype}")
    if _arrays.shape_of(z) != _arrays.shape_of(s) and not (z.size == 1 and s.size == 1 and z.ndim <= 1 and s.ndim <= 1):
        raise ValueError(f"{func}: {name}: expected {scale_name}'s shape {_arrays.shape_of(s)}, got {_arrays.shape_of(z)}")
    return _arrays.contiguous(z)


def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0, out=None, threads=None):
    """Values of codes: ``y = (x - x_zero_point) * x_scale``.

    ONNX ai.onnx DequantizeLinear, since version 13, as far as version 28. The product is float32 and rounded once to the result's type.

    Parameters
    ----------
    x : array
        int8, uint8, int16, uint16, int32, or ``ml_dtypes`` int4, uint4, int2, uint2; also float8_e4m3fn, float8_e4m3fnuz, float8_e5m2,
        float8_e5m2fnuz, float6_e2m3fn, float6_e3m2fn and float4_e2m1fn, which a table widens first. Serialized 4-bit tensors become such
        arrays by `unpack_int4`.
    x_scale : array, float32, float16, bfloat16 or float8_e8m0fnu
        A scalar or one element; (D,) for the D indices of `axis`; or x's shape with ``ceil(D / block_size)`` in place of D.
    x_zero_point : array of x's dtype and x_scale's shape, optional
        Default 0. For int32 it must be 0.
    axis : int, default 1
        Of scales that are not one number.
    block_size : int, default 0
        Elements along `axis` that share a scale; 0 for no blocks.
    output_dtype : dtype or int, optional
        float32, float16 or bfloat16, or the number of its ``onnx.TensorProto.DataType``. Default x_scale's type; needed for float8_e8m0fnu.
    out : ndarray, optional
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape or an attribute.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.dequantize_linear(np.uint8([0, 3, 128]), np.float32(2), np.uint8(128))
    array([-256., -250.,    0.], dtype=float32)
    """
    cdef str func = "dequantize_linear"
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), s, z = None, y
    cdef qk_linear_args args
    cdef int n_threads = _arrays.num_threads(threads, func)
    dtype = a.dtype
    if dtype not in _CODES and dtype not in _SMALL_FLOATS:
        raise TypeError(f"{func}: x: expected dtype {', '.join([t.name for t in (*_CODES, *_SMALL_FLOATS)])}, got {dtype}")
    a = _arrays.contiguous(a)
    s = _scale_input(x_scale, func, "x_scale")
    result = _dtype_of(output_dtype, _FLOATS, func, "output_dtype")
    if result is None:
        if getattr(x_scale, "dtype", None) == _E8M0:
            raise ValueError(f"{func}: output_dtype: expected float32, float16 or bfloat16 for scales of {_E8M0}, got none")
        result = s.dtype
    _lay_out(&args, _arrays.shape_of(a), _arrays.shape_of(s), axis, block_size, func, "x_scale")
    if x_zero_point is not None:
        z = _zero_input(x_zero_point, dtype, s, func, "x_zero_point", "x_scale")
        if dtype == np.int32 and z.any():
            raise ValueError(f"{func}: x_zero_point: expected 0 for int32, got {z[z != 0].flat[0]}")
    y = _arrays.output_of(out, _arrays.shape_of(a), result, func)
    if out is not None:
        _arrays.check_overlap(y, a, False, func, "x")
        _arrays.check_overlap(y, s, False, func, "x_scale")
        if z is not None:
            _arrays.check_overlap(y, z, False, func, "x_zero_point")
    args.code = _CODES.get(dtype, QK_VALUE)
    if args.code == QK_VALUE:
        a, z = _table_values(a), None if z is None else _table_values(z)
    if not y.size:
        return y
    args.x, args.scale, args.y = cnp.PyArray_DATA(a), cnp.PyArray_DATA(s), cnp.PyArray_DATA(y)
    args.zero = NULL if z is None or args.code == QK_I32 else cnp.PyArray_DATA(z)
    args.value_dtype, args.scale_dtype, args.precision = _arrays.dtype_code(y), _arrays.dtype_code(s), _arrays.F32
    n_threads = _arrays.worth(n_threads, y.size, GRAIN)
    with nogil:
        qk_dequantize(_runtime.isa(), n_threads, &args)
    return y


def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, saturate=1, block_size=0, output_dtype=0, precision=0, out=None, threads=None):
    """Codes of values: ``y = saturate(round(x / y_scale) + y_zero_point)``, rounded to nearest even.

    ONNX ai.onnx QuantizeLinear, since version 13, as far as version 28. x and y_scale are rounded to the type of the division, and so is
    the quotient: y_scale's type unless `precision` says another, as versions 23 and later define it. Infinities become the ends of
    the range; a NaN becomes the smallest code of an integer type.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or int32
    y_scale : array, float32, float16, bfloat16, float8_e8m0fnu or int32
        A scalar or one element; (D,) for the D indices of `axis`; or x's shape with ``ceil(D / block_size)`` in place of D. By
        float8_e8m0fnu it is divided in float32, by int32 in float64, both unless `precision` says another.
    y_zero_point : array of y_scale's shape, optional
        Its dtype is the result's: int8, uint8, int16, uint16, or ``ml_dtypes`` int4, uint4, int2, uint2, float8_e4m3fn, float8_e4m3fnuz,
        float8_e5m2, float8_e5m2fnuz, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn. The float types are ml_dtypes' own conversion of the
        kernel's quotient.
    axis : int, default 1
        Of scales that are not one number.
    saturate : {1, 0}, default 1
        For float8 results: beyond the range the largest number, or (0) an infinity or NaN.
    block_size : int, default 0
        Elements along `axis` that share a scale; 0 for no blocks.
    output_dtype : dtype or int, optional
        Type of the result where there is no zero point, as a dtype or as the number of its ``onnx.TensorProto.DataType``; default uint8.
    precision : dtype or int, optional
        float32, float16 or bfloat16: type of the division.
    out : ndarray, optional
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape or an attribute.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.quantize_linear(np.float32([-1, 2.5, 3.5, 300]), np.float32(1))
    array([  0,   2,   4, 255], dtype=uint8)
    """
    cdef str func = "quantize_linear"
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), s, z = None, y, values
    cdef qk_linear_args args
    cdef int n_threads = _arrays.num_threads(threads, func)
    if a.dtype not in _FLOATS and a.dtype != np.int32:
        raise TypeError(f"{func}: x: expected dtype float32, float16, bfloat16 or int32, got {a.dtype}")
    if saturate not in (0, 1):
        raise ValueError(f"{func}: saturate: expected 0 or 1, got {saturate}")
    division = _dtype_of(precision, _FLOATS, func, "precision")
    result = _dtype_of(output_dtype, _QUANTIZED, func, "output_dtype")
    if y_zero_point is not None:
        given = _arrays.as_array(y_zero_point, func, "y_zero_point").dtype
        if given not in _QUANTIZED:
            raise TypeError(f"{func}: y_zero_point: expected dtype {', '.join([t.name for t in _QUANTIZED])}, got {given}")
        if result is not None and given != result:
            raise TypeError(f"{func}: y_zero_point: expected dtype {result} as output_dtype says, got {given}")
        result = given
    elif result is None:
        result = np.dtype(np.uint8)
    if getattr(y_scale, "dtype", None) == np.int32:
        if division is None: # quotients of integers: exact enough in float64, then as values already divided
            s = np.asarray(y_scale)
            _lay_out(&args, _arrays.shape_of(a), _arrays.shape_of(s), axis, block_size, func, "y_scale")
            return _divide_by_integers(a, s, y_zero_point, axis, block_size, result, saturate, out, threads)
        s = np.ascontiguousarray(y_scale.astype(division)).reshape(y_scale.shape)
    else:
        s = _scale_input(y_scale, func, "y_scale")
    if division is None:
        division = s.dtype
    _lay_out(&args, _arrays.shape_of(a), _arrays.shape_of(s), axis, block_size, func, "y_scale")
    if y_zero_point is not None:
        z = _zero_input(y_zero_point, result, s, func, "y_zero_point", "y_scale")
    y = _arrays.output_of(out, _arrays.shape_of(a), result, func)
    if out is not None:
        _arrays.check_overlap(y, s, False, func, "y_scale")
        if z is not None:
            _arrays.check_overlap(y, z, False, func, "y_zero_point")
        if np.may_share_memory(y, a):
            raise ValueError(f"{func}: out: overlaps x")
    if a.dtype == np.int32:
        a = a.astype(np.float32)
    a = _arrays.contiguous(a)
    if not y.size:
        return y
    args.code = _CODES.get(result, QK_VALUE)
    values = y
    if args.code == QK_VALUE:
        values, z = np.empty(_arrays.shape_of(a), np.float32), None if z is None else _table_values(z)
    args.x, args.scale, args.y = cnp.PyArray_DATA(a), cnp.PyArray_DATA(s), cnp.PyArray_DATA(values)
    args.zero = NULL if z is None else cnp.PyArray_DATA(z)
    args.value_dtype, args.scale_dtype, args.precision = _arrays.dtype_code(a), _arrays.dtype_code(s), _FLOATS.index(division)
    n_threads = _arrays.worth(n_threads, y.size, GRAIN)
    with nogil:
        qk_quantize(_runtime.isa(), n_threads, &args)
    if args.code == QK_VALUE:
        if saturate or result.name.startswith(("float4", "float6")):
            limits = ml_dtypes.finfo(result)
            np.clip(values, np.float32(limits.min), np.float32(limits.max), out=values)
        with np.errstate(all="ignore"):
            y[...] = values.astype(result)
    return y


cdef object _divide_by_integers(cnp.ndarray a, cnp.ndarray s, object zero, object axis, object block_size, object result, object saturate,
                                object out, object threads):
    """QuantizeLinear with int32 scales: the quotient in float64 and NumPy, then the kernel with scale 1."""
    scale = s.astype(np.float64)
    if s.ndim == 1 and s.size > 1 and not block_size:
        scale = scale.reshape([-1 if i == axis % a.ndim else 1 for i in range(a.ndim)])
    elif s.ndim and block_size:
        scale = np.repeat(scale, block_size, axis).take(np.arange((<object>a).shape[axis]), axis)
    with np.errstate(all="ignore"):
        quotient = np.rint((<object>a).astype(np.float64) / scale) if result in _CODES else (<object>a).astype(np.float64) / scale
        quotient = np.clip(quotient, -2.0**24, 2.0**24) if result in _CODES else quotient
    return quantize_linear(quotient.astype(np.float32), np.ones(_arrays.shape_of(s), np.float32), zero, axis=axis, block_size=block_size,
                           output_dtype=result, saturate=saturate, out=out, threads=threads)


def pack_int4(x):
    """4-bit elements as bytes, two in each, the first in the low nibble: the raw data of an ONNX INT4 or UINT4 tensor.

    Parameters
    ----------
    x : array of ``ml_dtypes.int4`` or ``uint4``, or of integers in -8..15
        Any shape; taken in C order. An odd number of elements leaves the last high nibble 0.

    Returns
    -------
    ndarray uint8
        (ceil(x.size / 2),).

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import ml_dtypes, numpy as np, qkernels
    >>> [hex(byte) for byte in qkernels.pack_int4(np.array([1, -1, 7], ml_dtypes.int4))]
    ['0xf1', '0x7']
    """
    cdef cnp.ndarray a = _arrays.as_array(x, "pack_int4", "x")
    if a.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        codes = np.ascontiguousarray(a).view(np.uint8).reshape(-1)
    elif a.dtype.kind in "iu":
        if a.size and (a.min() < -8 or a.max() > 15):
            raise ValueError(f"pack_int4: x: expected integers in -8..15, got {a.min()} to {a.max()}")
        codes = a.astype(np.uint8).reshape(-1)
    else:
        raise TypeError(f"pack_int4: x: expected int4, uint4 or an integer dtype, got {a.dtype}")
    packed = codes[::2] & np.uint8(15)
    packed[:codes.size // 2] |= codes[1::2] << 4
    return packed


def unpack_int4(packed, shape, dtype=ml_dtypes.int4):
    """The elements of `pack_int4`'s bytes.

    Parameters
    ----------
    packed : array uint8
        ``ceil(n / 2)`` bytes for the n elements of `shape`.
    shape : int or tuple of int
    dtype : ``ml_dtypes.int4`` (default) or ``uint4``

    Returns
    -------
    ndarray of `shape` and `dtype`

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import ml_dtypes, numpy as np, qkernels
    >>> qkernels.unpack_int4(np.uint8([0xF1, 0x07]), (3,))
    array([1, -1, 7], dtype=int4)
    >>> qkernels.unpack_int4(np.uint8([0xF1, 0x07]), 3, ml_dtypes.uint4)
    array([1, 15, 7], dtype=uint4)
    """
    cdef cnp.ndarray a = _arrays.as_array(packed, "unpack_int4", "packed")
    if a.dtype != np.uint8:
        raise TypeError(f"unpack_int4: packed: expected dtype uint8, got {a.dtype}")
    if np.dtype(dtype) not in (ml_dtypes.int4, ml_dtypes.uint4):
        raise TypeError(f"unpack_int4: dtype: expected int4 or uint4, got {dtype}")
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    size = 1
    for n in shape:
        if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
            raise ValueError(f"unpack_int4: shape: expected ints of at least 0, got {shape}")
        size *= int(n)
    if a.size != (size + 1) // 2:
        raise ValueError(f"unpack_int4: packed: expected {(size + 1) // 2} bytes for shape {shape}, got {a.size}")
    data = (<object>a).reshape(-1)
    codes = np.empty(2 * data.size, np.uint8)
    codes[::2] = data & 15
    codes[1::2] = data >> 4
    return codes[:size].view(dtype).reshape(shape)
