"""Linear quantization: ai.onnx QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger and QLinearMatMul,
com.microsoft GatherBlockQuantized; 4-bit bytes."""
cimport cython
cimport numpy as cnp
from libc.math cimport isinf, rintf
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from posix.stdlib cimport posix_memalign

from qkernels cimport _arrays, _runtime

import ml_dtypes
import numpy as np

from qkernels import _conversion
from qkernels.matmul import matmul

cnp.import_array()

cdef extern from "quantization/quantization.h" nogil:
    ctypedef struct qk_linear_args:
        const void *x
        const void *scale
        const void *zero
        void *y
        int code, value_dtype, scale_dtype, precision, vector
        int64_t outer, runs, length, last, outer_step, repeat, step
    ctypedef struct qk_integer_args:
        const uint8_t *a
        const uint8_t *b
        const uint8_t *packed
        void *y
        const int32_t *a_zero
        const int32_t *b_zero
        const float *a_scale
        const float *b_scale
        const float *bias
        const int64_t *a_batch
        const int64_t *b_batch
        const int64_t *b_columns
        uint8_t *rows
        int32_t *sums
        uint8_t *panels
        float y_scale
        int y_zero, y_code, a_signed, b_signed
        int64_t batches, m, n, k, a_rows, b_k_stride, b_n_stride
    void qk_range(int isa, int threads, const float *x, int64_t n, float *low, float *high)
    void qk_integer_matmul(int isa, int threads, const qk_integer_args *args)
    void qk_integer_pack(int isa, int threads, const qk_integer_args *args, uint8_t *panels)
    int QK_I8, QK_U8, QK_I16, QK_U16, QK_I32, QK_I4, QK_U4, QK_I2, QK_U2, QK_VALUE
    void qk_dequantize(int isa, int threads, const qk_linear_args *args)
    void qk_quantize(int isa, int threads, const qk_linear_args *args)

# elements, and multiplications, for which starting a second thread pays; elements of a run where one scale serves the whole tensor
cdef enum:
    GRAIN = 1 << 17
    PRODUCTS = 1 << 18
    RUN = 1 << 12

_E8M0, _SMALL_FLOATS = _conversion.E8M0, _conversion.SMALL_FLOATS
# the kernels' own types of codes; the small floats go through tables and ml_dtypes' conversions
_CODES = {np.dtype(t): code for t, code in (
    (np.int8, QK_I8), (np.uint8, QK_U8), (np.int16, QK_I16), (np.uint16, QK_U16), (np.int32, QK_I32), (ml_dtypes.int4, QK_I4),
    (ml_dtypes.uint4, QK_U4), (ml_dtypes.int2, QK_I2), (ml_dtypes.uint2, QK_U2))}
_QUANTIZED = tuple([t for t in _CODES if t != np.int32]) + _SMALL_FLOATS
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_INT32 = np.dtype(np.int32)


cdef object _dtype_of(object value, tuple offered, str func, str name):
    """The dtype that an attribute names as a dtype or as an onnx.TensorProto.DataType; None for None and 0."""
    if value is None or type(value) is int and value == 0:
        return None
    if isinstance(value, np.integer) and value == 0:
        return None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        dtype = _conversion.DTYPES.get(int(value))
    else:
        try:
            dtype = np.dtype(value)
        except TypeError:
            dtype = None
    if dtype not in offered or dtype is None:
        raise TypeError(f"{func}: {name}: expected one of {', '.join([t.name for t in offered])}, got {value}")
    return dtype


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
        if inner == 1:  # scales along the row
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
    if _arrays.dtype_code(s) < 0:
        if s.dtype == _E8M0:
            return _conversion.table_values(s)
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
        if dtype == _INT32 and z.any():
            raise ValueError(f"{func}: x_zero_point: expected 0 for int32, got {z[z != 0].flat[0]}")
    y = _arrays.output_of(out, _arrays.shape_of(a), result, func)
    if out is not None:
        _arrays.check_overlap(y, a, False, func, "x")
        _arrays.check_overlap(y, s, False, func, "x_scale")
        if z is not None:
            _arrays.check_overlap(y, z, False, func, "x_zero_point")
    args.code = _CODES.get(dtype, QK_VALUE)
    if args.code == QK_VALUE:
        a, z = _conversion.table_values(a), None if z is None else _conversion.table_values(z)
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
    if _arrays.dtype_code(a) < 0 and cnp.PyArray_TYPE(a) != cnp.NPY_INT32:
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
    if getattr(y_scale, "dtype", None) == _INT32:
        if division is None:  # quotients of integers: exact enough in float64, then as values already divided
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
        _arrays.check_apart(y, a, func, "x")
    if cnp.PyArray_TYPE(a) == cnp.NPY_INT32:
        a = a.astype(np.float32)
    a = _arrays.contiguous(a)
    if not y.size:
        return y
    args.code = _CODES.get(result, QK_VALUE)
    values = y
    if args.code == QK_VALUE:
        values, z = np.empty(_arrays.shape_of(a), np.float32), None if z is None else _conversion.table_values(z)
    args.x, args.scale, args.y = cnp.PyArray_DATA(a), cnp.PyArray_DATA(s), cnp.PyArray_DATA(values)
    args.zero = NULL if z is None else cnp.PyArray_DATA(z)
    args.value_dtype, args.scale_dtype, args.precision = _arrays.dtype_code(a), _arrays.dtype_code(s), _FLOATS.index(division)
    n_threads = _arrays.worth(n_threads, y.size, GRAIN)
    with nogil:
        qk_quantize(_runtime.isa(), n_threads, &args)
    if args.code == QK_VALUE:
        y[...] = _conversion.convert(values, result, saturate)
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


@cython.cdivision(True)
cdef void _parameters(float low, float high, float *scale, uint8_t *zero_point) noexcept nogil:
    """Scale and zero point of DynamicQuantizeLinear for a range that contains 0."""
    cdef float step = (high - low) / <float>255, zero
    if isinf(step) and not isinf(low) and not isinf(high):
        step = high / <float>255 - low / <float>255
    if step == 0:
        step = 1
    zero = -low / step  # no number for an infinite range, which then has zero point 0
    scale[0], zero_point[0] = step, <uint8_t>rintf(zero if zero < 255 else 255) if zero > 0 else 0


def dynamic_quantize_linear(x, *, threads=None):
    """Codes of the values' own range: uint8 with a scale and a zero point for the whole array.

    ONNX ai.onnx DynamicQuantizeLinear, since version 11: ``scale = (max(0, x) - min(0, x)) / 255``, ``zero_point = round(-min / scale)``,
    ``y = saturate(round(x / scale) + zero_point)``, in float32, rounded to nearest even. Where the specification leaves a hole: the scale is 1
    for a range of 0 (and one whose 255th part is 0); NaNs do not count for the range and become 0; an infinity makes the scale infinite.

    Parameters
    ----------
    x : array, float32
    threads : int, optional

    Returns
    -------
    y : ndarray uint8
        x's shape.
    y_scale : ndarray float32
        0-d.
    y_zero_point : ndarray uint8
        0-d.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.dynamic_quantize_linear(np.float32([0, 2, -3, -2.5, 1.34, 0.5]))
    (array([153, 255,   0,  26, 221, 179], dtype=uint8), array(0.01960784, dtype=float32), array(153, dtype=uint8))
    """
    cdef str func = "dynamic_quantize_linear"
    cdef cnp.ndarray a = _arrays.float_input(x, _arrays.F32_ONLY, func, "x")
    cdef int n_threads = _arrays.worth(_arrays.num_threads(threads, func), a.size, GRAIN)
    cdef const float *data = <const float *>cnp.PyArray_DATA(a)
    cdef int64_t n = a.size
    cdef float smallest, largest
    cdef cnp.ndarray scale, zero_point
    with nogil:
        qk_range(_runtime.isa(), n_threads, data, n, &smallest, &largest)
    scale, zero_point = np.empty((), np.float32), np.empty((), np.uint8)
    _parameters(smallest, largest, <float *>cnp.PyArray_DATA(scale), <uint8_t *>cnp.PyArray_DATA(zero_point))
    return quantize_linear(a, scale, zero_point, threads=threads), scale, zero_point


def gather_block_quantized(data, indices, scales, zero_points=None, *, bits=4, block_size=128, quantize_axis=1, gather_axis=0, out=None, threads=None):
    """Entries of block-quantized data, picked by index and dequantized: ``(code - zero_point) * scale``.

    com.microsoft GatherBlockQuantized, since version 1. Codes, scales and zero points of the entries asked for are picked by NumPy, then
    the kernel of `dequantize_linear` runs on them.

    Parameters
    ----------
    data : array
        uint8, `bits` for each code, packed along the last axis, the first in the lowest bits; ``ml_dtypes`` uint4 or int4; int8; or, without
        zero points, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz or float4_e2m1fn.
    indices : array of integers
        Any shape, negative ones from the end. One outside the axis gives zeros: this operator's rule, unlike that of `gather`.
    scales : array, float32, float16 or bfloat16
        The codes' shape with ``ceil(D / block_size)`` for the D of `quantize_axis`. For the float types 1 on any other axis broadcasts.
    zero_points : array of data's dtype, optional
        scales' shape; for uint8 packed along the last axis as data is. Default ``2**(bits - 1)`` for uint8, 0 for the other types.
    bits : {2, 4, 8}, default 4
        Of uint8's codes. uint4 and int4 have 4; the float types and int8 do not ask.
    block_size : int, default 128
        A power of two, at least 16; for the float types also 0, one block along the axis.
    quantize_axis : int, default 1
    gather_axis : int, default 0
        Must be 0 for uint8, and not `quantize_axis` where that is packed.
    out : ndarray, optional
    threads : int, optional

    Returns
    -------
    ndarray
        Shape ``shape[:gather_axis] + indices.shape + shape[gather_axis + 1:]`` for the codes' shape, scales' dtype.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> data = np.full((2, 8), 0xAA, np.uint8)  # codes 10, zero point 8
    >>> qkernels.gather_block_quantized(data, [1, 2], np.float32([[1], [0.5]]), block_size=16)[:, :3]
    array([[1., 1., 1.],
           [0., 0., 0.]], dtype=float32)
    """
    cdef str func = "gather_block_quantized"
    cdef cnp.ndarray a = _arrays.as_array(data, func, "data"), index = _arrays.int_input(indices, func, "indices"), y
    cdef int g_axis, q_axis, rank = a.ndim, per = 1
    kind = a.dtype
    is_float = kind in (*_conversion.FLOAT8, np.dtype(ml_dtypes.float4_e2m1fn))
    if not is_float and kind not in (np.uint8, np.int8, ml_dtypes.uint4, ml_dtypes.int4):
        raise TypeError(f"{func}: data: expected dtype uint8, int8, uint4, int4, a float8 or float4_e2m1fn, got {kind}")
    if not rank:
        raise ValueError(f"{func}: data: expected at least 1 dimension, got a 0-d array")
    g_axis, q_axis = _arrays.normalize_axis(gather_axis, rank, func, "gather_axis"), _arrays.normalize_axis(quantize_axis, rank, func, "quantize_axis")
    shape = list(_arrays.shape_of(a))
    if kind == np.uint8:
        if bits not in (2, 4, 8):
            raise ValueError(f"{func}: bits: expected 2, 4 or 8, got {bits}")
        if g_axis:
            raise ValueError(f"{func}: gather_axis: expected 0 for uint8, got {gather_axis}")
        per = 8 // bits
        if per > 1 and g_axis == q_axis:
            raise ValueError(f"{func}: quantize_axis: expected another axis than gather_axis for packed codes, got {quantize_axis}")
        shape[rank - 1] *= per
        kind = np.dtype({2: ml_dtypes.uint2, 4: ml_dtypes.uint4, 8: np.uint8}[bits])
    elif kind in (ml_dtypes.uint4, ml_dtypes.int4) and bits != 4:
        raise ValueError(f"{func}: bits: expected 4 for {kind}, got {bits}")
    if isinstance(block_size, bool) or not hasattr(block_size, "__index__"):
        raise TypeError(f"{func}: block_size: expected an int, got {type(block_size).__name__}")
    if not (block_size == 0 and is_float) and (block_size < 16 or block_size & (block_size - 1)):
        raise ValueError(f"{func}: block_size: expected a power of two, at least 16{', or 0' if is_float else ''}, got {block_size}")
    block = max(1, shape[q_axis]) if block_size == 0 else block_size
    s = <object>_arrays.float_input(scales, _arrays.FLOATS, func, "scales")
    blocks = shape[:q_axis] + [-(-shape[q_axis] // block)] + shape[q_axis + 1:]
    if s.ndim != rank or any([got != want and not (is_float and got == 1 and i != q_axis) for i, (got, want) in enumerate(zip(s.shape, blocks))]):
        raise ValueError(f"{func}: scales: expected shape {tuple(blocks)}, got {s.shape}")
    z = None
    if zero_points is not None:
        if is_float:
            raise ValueError(f"{func}: zero_points: expected None for {kind}, got {_arrays.type_name(zero_points)}")
        z = <object>_arrays.as_array(zero_points, func, "zero_points")
        if z.dtype != a.dtype:
            raise TypeError(f"{func}: zero_points: expected dtype {a.dtype}, got {z.dtype}")
        packed = blocks[:rank - 1] + [-(-blocks[rank - 1] // per)]
        if z.shape != tuple(packed):
            raise ValueError(f"{func}: zero_points: expected shape {tuple(packed)}, got {z.shape}")
    size = shape[g_axis]
    picked = (<object>index).reshape(-1)
    outside = (picked < -size) | (picked >= size)
    picked = np.where(outside, 0, np.where(picked < 0, picked + size, picked))
    flat = tuple(shape[:g_axis] + [picked.size] + shape[g_axis + 1:])
    y = _arrays.output_of(out, tuple(shape[:g_axis]) + _arrays.shape_of(index) + tuple(shape[g_axis + 1:]), s.dtype, func)
    if out is not None:
        for other, name in ((a, "data"), (index, "indices"), (scales, "scales"), (zero_points, "zero_points")):
            if other is not None and np.may_share_memory(y, np.asarray(other)):
                raise ValueError(f"{func}: out: overlaps {name}")
    if not y.size:
        return y
    if not size:
        y[...] = 0
        return y
    codes = _spread(np.take(_bytes_of(a), picked, axis=g_axis), per, shape[rank - 1]).view(kind)
    line = picked // block if g_axis == q_axis else picked
    effective = 1 if g_axis == q_axis else block
    if s.shape[g_axis] == 1 and is_float:
        line = np.zeros_like(line)
    s = np.take(s, line, axis=g_axis)
    wanted = list(flat)
    wanted[q_axis] = -(-flat[q_axis] // effective)
    if z is not None:
        z = _spread(np.take(_bytes_of(z), line, axis=g_axis), per, wanted[rank - 1]).view(kind)
    elif a.dtype == np.uint8:
        z = np.full(s.shape, 1 << (bits - 1), np.uint8).view(kind)
    target = (<object>y).reshape(flat)
    dequantize_linear(codes, np.broadcast_to(s, tuple(wanted)), z, axis=q_axis, block_size=effective, out=target, threads=threads)
    if outside.any():
        target[(slice(None),) * g_axis + (outside,)] = 0
    return y


cdef object _bytes_of(object a):
    """The array's one-byte elements as uint8, any strides."""
    return a.view(np.uint8) if a.dtype != np.uint8 else a


cdef object _spread(object a, int per, int64_t last):
    """Bytes along the last axis as `per` codes each, one in each byte, cut to `last`."""
    cdef int i
    if per == 1:
        return a
    wide = np.empty(a.shape[:a.ndim - 1] + (a.shape[a.ndim - 1] * per,), np.uint8)
    for i in range(per):
        wide[..., i::per] = a >> (8 // per * i) & ((1 << (8 // per)) - 1)
    return np.ascontiguousarray(wide[..., :last])


cdef bint _is_byte(cnp.ndarray a):
    return cnp.PyArray_TYPE(a) == cnp.NPY_UINT8 or cnp.PyArray_TYPE(a) == cnp.NPY_INT8


cdef object _matrix(object x, str func, str name):
    """(array of uint8 or int8 with at least two dimensions, whether it was a vector, is it signed)."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, name)
    if not _is_byte(a):
        raise TypeError(f"{func}: {name}: expected dtype uint8 or int8, got {a.dtype}")
    if a.ndim == 0:
        raise ValueError(f"{func}: {name}: expected at least 1 dimension, got a 0-d array")
    return a


cdef cnp.ndarray _per_line(object value, tuple lead, int64_t count, bint rows, object dtype, object kept, str func, str name):
    """A scale or zero point for each row of a (or column of b): (prod(lead) * count) elements of type `kept`, float32 or int32; None is 0."""
    cdef cnp.ndarray v, filled
    cdef cnp.npy_intp total = count, i
    cdef int32_t whole
    cdef float real
    for size in lead:
        total *= size
    if value is None:
        return np.zeros(total, kept)
    v = _arrays.as_array(value, func, name)
    if dtype is not None and v.dtype != dtype:
        raise TypeError(f"{func}: {name}: expected dtype {dtype}, got {v.dtype}")
    if dtype is None and v.dtype not in _FLOATS:
        raise TypeError(f"{func}: {name}: expected dtype float32, float16 or bfloat16, got {v.dtype}")
    if v.size == 1:
        filled = cnp.PyArray_EMPTY(1, &total, cnp.NPY_FLOAT32 if kept is np.float32 else cnp.NPY_INT32, 0)
        if kept is np.float32:
            real = v.item()
            for i in range(total):
                (<float *>cnp.PyArray_DATA(filled))[i] = real
        else:
            whole = v.item()
            for i in range(total):
                (<int32_t *>cnp.PyArray_DATA(filled))[i] = whole
        return filled
    given = _arrays.shape_of(v)
    wide = (<object>v).astype(kept)
    if given != (count,):
        full = lead + (count, 1)
        if not rows:
            full = lead + (1, count)
        if len(given) != len(full) or given[len(given) - 2:] != full[len(full) - 2:] or \
                any([g not in (1, f) for g, f in zip(given[:len(given) - 2], lead)]):
            raise ValueError(f"{func}: {name}: expected one element, shape ({count},) or {full}, got {given}")
        wide = wide.reshape(given[:len(given) - 2] + (count,))
    return np.ascontiguousarray(np.broadcast_to(wide, lead + (count,))).reshape(-1)


cdef object _integer_matmul(object a, object b, object a_zero, object b_zero, object a_scale, object b_scale, object y_scale, object y_zero,
                            object out, object threads, str func, cnp.ndarray bias=None):
    cdef PackedInt8Matrix ready = b if isinstance(b, PackedInt8Matrix) else None
    cdef cnp.ndarray x = _matrix(a, func, "a"), w = _matrix(b, func, "b") if ready is None else ready._shaped
    cdef cnp.ndarray y, az, bz, sa = None, sb = None, a_batch, b_batch, b_columns
    cdef qk_integer_args args
    cdef int n_threads = _arrays.num_threads(threads, func)
    cdef int64_t rows_bytes, sums_bytes, panel_bytes, tasks, first = 0
    cdef void *scratch = NULL
    a_type, b_type = x.dtype, w.dtype
    a_shape, b_shape = _arrays.shape_of(x), _arrays.shape_of(w)
    a_vector, b_vector = len(a_shape) == 1, len(b_shape) == 1
    x = _arrays.contiguous(x)
    if a_vector:
        x = x.reshape(1, -1)
    if b_vector:
        w = w.reshape(-1, 1)
    args.m, args.k, args.n = x.shape[x.ndim - 2], x.shape[x.ndim - 1], w.shape[w.ndim - 1]
    if w.shape[w.ndim - 2] != args.k:
        raise ValueError(f"{func}: b: expected shape ({'' if w.ndim == 2 else '..., '}{args.k}, N) for a of shape {a_shape}, got {b_shape}")
    a_lead, b_lead = _arrays.shape_of(x)[:x.ndim - 2], _arrays.shape_of(w)[:w.ndim - 2]
    try:
        lead = np.broadcast_shapes(a_lead, b_lead) if b_lead else a_lead
    except ValueError:
        raise ValueError(f"{func}: b: leading dimensions {b_lead} do not broadcast with a's {a_lead}") from None
    az = _per_line(a_zero, a_lead, args.m, True, a_type, np.int32, func, "a_zero_point")
    bz = _per_line(b_zero, b_lead, args.n, False, b_type, np.int32, func, "b_zero_point")
    args.a_scale = args.b_scale = args.bias = NULL
    args.y_code, args.y_zero, args.y_scale = QK_I32, 0, 1
    result = np.dtype(np.int32)
    if a_scale is not None:
        sa = _per_line(a_scale, a_lead, args.m, True, None, np.float32, func, "a_scale")
        sb = _per_line(b_scale, b_lead, args.n, False, None, np.float32, func, "b_scale")
        args.a_scale, args.b_scale = <const float *>cnp.PyArray_DATA(sa), <const float *>cnp.PyArray_DATA(sb)
        if bias is not None:
            result, args.y_code, args.bias = np.dtype(np.float32), QK_VALUE, <const float *>cnp.PyArray_DATA(bias)
        else:
            result = y_zero.dtype
            args.y_code = QK_U8 if result == np.uint8 else QK_I8
            args.y_zero, args.y_scale = int(y_zero.reshape(-1)[0]), float(y_scale.astype(np.float32).reshape(-1)[0])
    y = _arrays.output_of(out, lead + (() if a_vector else (args.m,)) + (() if b_vector else (args.n,)), result, func)
    if out is not None:
        for other, name in ((a, "a"), (b, "b")):
            if not isinstance(other, PackedInt8Matrix) and np.may_share_memory(y, other):
                raise ValueError(f"{func}: out: overlaps {name}")
    if not y.size:
        return y
    args.packed = NULL
    if ready is not None:
        args.packed = <const uint8_t *>cnp.PyArray_DATA(ready._panels)
    args.a_rows = args.m
    for size in a_lead:
        args.a_rows *= size
    if w.size == args.k * args.n and lead == a_lead:  # without batches in b, a's are rows
        args.m, lead, a_lead, b_lead = args.a_rows, (), (), ()
        w = w.reshape(args.k, args.n) if w.ndim > 2 else w
    args.batches = 1
    args.a_batch = args.b_batch = args.b_columns = &first
    if lead:
        a_batch = _batches(a_lead, lead, args.m)
        b_columns = _batches(b_lead, lead, args.n)
        b_batch = _strided_batches(b_lead, lead, (<object>w).strides)
        args.batches = a_batch.size
        args.a_batch, args.b_batch = <const int64_t *>cnp.PyArray_DATA(a_batch), <const int64_t *>cnp.PyArray_DATA(b_batch)
        args.b_columns = <const int64_t *>cnp.PyArray_DATA(b_columns)
    args.a, args.b, args.y = <const uint8_t *>cnp.PyArray_DATA(x), <const uint8_t *>cnp.PyArray_DATA(w), cnp.PyArray_DATA(y)
    args.a_zero, args.b_zero = <const int32_t *>cnp.PyArray_DATA(az), <const int32_t *>cnp.PyArray_DATA(bz)
    args.a_signed, args.b_signed = a_type == np.int8, b_type == np.int8
    args.b_k_stride, args.b_n_stride = w.strides[w.ndim - 2], w.strides[w.ndim - 1]
    tasks = args.batches * ((args.n + 15) // 16) * ((args.m + 511) // 512)
    n_threads = _arrays.worth(n_threads, args.batches * args.m * args.n * (args.k + 1), PRODUCTS)
    if n_threads > tasks:
        n_threads = <int>tasks
    rows_bytes = (args.a_rows * ((args.k + 3) // 4 * 4) + 63) // 64 * 64
    sums_bytes = (args.a_rows * 4 + 63) // 64 * 64
    panel_bytes = n_threads * 4 * (64 + 64 * ((args.k + 3) // 4)) if ready is None else 0
    if posix_memalign(&scratch, 64, rows_bytes + sums_bytes + panel_bytes + 64):
        raise MemoryError(f"{func}: {rows_bytes + sums_bytes + panel_bytes} bytes of scratch")
    args.rows = <uint8_t *>scratch
    args.sums = <int32_t *>(args.rows + rows_bytes)
    args.panels = args.rows + rows_bytes + sums_bytes
    with nogil:
        qk_integer_matmul(_runtime.isa(), n_threads, &args)
        free(scratch)
    return y


cdef cnp.ndarray integer_projection(cnp.ndarray x, object w, object x_zero, object w_zero, object x_scale, object w_scale, cnp.ndarray bias, int threads,
                                    str func):
    """``float32(exact integer product) * (x_scale * w_scale) + bias``, of arguments that are checked."""
    return _integer_matmul(x, w, x_zero, w_zero, x_scale, w_scale, None, None, None, threads, func, bias)


cdef cnp.ndarray _strided_batches(tuple own, tuple lead, tuple strides):
    """Offset of each batch of the broadcast shape `lead`, for an operand with leading dimensions `own` at these strides."""
    offsets = np.zeros(lead, np.int64)
    for axis, (size, stride) in enumerate(zip(own, strides), len(lead) - len(own)):
        if size > 1:
            offsets += (np.arange(size, dtype=np.int64) * stride).reshape((-1,) + (1,) * (len(lead) - 1 - axis))
    return np.ascontiguousarray(offsets).reshape(-1)


cdef cnp.ndarray _batches(tuple own, tuple lead, int64_t lines):
    """The same for contiguous batches of `lines` each."""
    strides = []
    for size in reversed(own):
        strides.insert(0, lines)
        lines *= size
    return _strided_batches(own, lead, tuple(strides))


cdef class PackedInt8Matrix:
    """A constant uint8 or int8 matrix prepared once for integer products: what `matmul_integer` and `qlinear_matmul` take as `b`.

    Immutable; one packed form for all instruction sets, of one byte for each element and 4 for the sum of each column.

    Parameters
    ----------
    b : array (K, N), uint8 or int8
        Any strides.
    threads : int, optional
        For packing.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> w = qkernels.PackedInt8Matrix(np.int8([[1, -2], [3, 4]]))
    >>> w(np.uint8([[1, 2]]), np.uint8([1]))
    array([[3, 4]], dtype=int32)
    >>> qkernels.matmul_integer(np.uint8([[1, 2]]), w, np.uint8([1]))
    array([[3, 4]], dtype=int32)
    """

    def __cinit__(self, *args, **kwargs):
        # an object made by __new__ alone is an empty matrix
        self._panels, self._shaped = np.empty((0, 64), np.uint8), np.empty((0, 0), np.uint8)

    def __init__(self, b, *, threads=None):
        cdef str func = "PackedInt8Matrix"
        cdef cnp.ndarray w = _matrix(b, func, "b")
        cdef qk_integer_args args
        cdef int64_t first = 0
        cdef uint8_t *panels
        cdef int n_threads = _arrays.num_threads(threads, func)
        if w.ndim != 2:
            raise ValueError(f"{func}: b: expected 2 dimensions, got shape {_arrays.shape_of(w)}")
        args.k, args.n, args.b_signed = w.shape[0], w.shape[1], w.dtype == np.int8
        args.b, args.b_batch = <const uint8_t *>cnp.PyArray_DATA(w), &first
        args.b_k_stride, args.b_n_stride = w.strides[0], w.strides[1]
        self._panels = _arrays.weights_empty(((args.n + 15) // 16, 64 + 64 * ((args.k + 3) // 4)), np.uint8)
        self._shaped = np.broadcast_to(np.zeros((), w.dtype), (args.k, args.n))  # shape and type, no elements of its own
        panels = <uint8_t *>cnp.PyArray_DATA(self._panels)
        n_threads = _arrays.worth(n_threads, args.k * args.n, GRAIN)
        with nogil:
            qk_integer_pack(_runtime.isa(), n_threads, &args, panels)

    @property
    def shape(self):
        """(K, N): rows and columns of b."""
        return _arrays.shape_of(self._shaped)

    @property
    def dtype(self):
        """b's dtype."""
        return self._shaped.dtype

    @property
    def nbytes(self):
        """Bytes of the packed matrix."""
        return self._panels.nbytes

    @property
    def buffers(self):
        """The packed array, read-only: panels of 16 columns, their sums first."""
        view = (<object>self._panels).view()
        view.flags.writeable = False
        return (view,)

    def __repr__(self):
        return f"PackedInt8Matrix(K={self.shape[0]}, N={self.shape[1]}, dtype={self.dtype}, nbytes={self.nbytes})"

    def __call__(self, a, a_zero_point=None, b_zero_point=None, *, out=None, threads=None):
        """`matmul_integer` with this matrix.

        Parameters
        ----------
        a, a_zero_point, b_zero_point, out, threads
            As in `matmul_integer`.

        Returns
        -------
        ndarray int32 (..., M, N)
        """
        return _integer_matmul(a, self, a_zero_point, b_zero_point, None, None, None, None, out, threads, "PackedInt8Matrix")

    def unpack(self):
        """The matrix again, (K, N)."""
        k, n = self.shape
        codes = self._panels[:, 64:].reshape((n + 15) // 16, (k + 3) // 4, 16, 4).transpose(1, 3, 0, 2).reshape((k + 3) // 4 * 4, (n + 15) // 16 * 16)
        return (codes[:k, :n] ^ np.uint8(0 if self.dtype == np.int8 else 128)).view(self.dtype)


def matmul_integer(a, b, a_zero_point=None, b_zero_point=None, *, out=None, threads=None):
    """Matrix product of 8-bit integers less their zero points, exact in int32.

    ONNX ai.onnx MatMulInteger, since version 10. Sums that do not fit wrap modulo 2**32; nothing saturates on the way.

    Parameters
    ----------
    a : array (..., M, K) or (K,), uint8 or int8
    b : array (..., K, N) or (K,), uint8 or int8; or PackedInt8Matrix
        Leading dimensions broadcast against a's, as in NumPy. A matrix that stays is prepared once.
    a_zero_point : array of a's dtype, optional
        One element; (M,), one for each row; or (..., M, 1) with a's leading dimensions or ones.
    b_zero_point : array of b's dtype, optional
        One element; (N,), one for each column; or (..., 1, N) with b's leading dimensions or ones.
    out : ndarray int32, optional
    threads : int, optional

    Returns
    -------
    ndarray int32
        (..., M, N), without the dimensions that vectors lack.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.matmul_integer(np.uint8([[1, 2], [3, 4]]), np.eye(2, dtype=np.uint8), np.uint8([1, 3]))
    array([[0, 1],
           [0, 1]], dtype=int32)
    """
    return _integer_matmul(a, b, a_zero_point, b_zero_point, None, None, None, None, out, threads, "matmul_integer")


def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, *, out=None, threads=None):
    """Matrix product of quantized operands, quantized: ``saturate(round(Σ (a - za) (b - zb) · (a_scale · b_scale / y_scale)) + zy)``.

    ONNX ai.onnx QLinearMatMul, since version 10, and 21. The sum is exact in int32, its scaling float32, rounding to nearest even. Operands or results
    in float8 (version 21) are widened by NumPy and go through the float32 product.

    Parameters
    ----------
    a, b : array, uint8 or int8
        As in `matmul_integer`, b also a PackedInt8Matrix; also float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 and float8_e5m2fnuz of ``ml_dtypes``.
    a_scale, b_scale : array, float32, float16 or bfloat16
        One element, or one for each row of a and each column of b: (M,) or (..., M, 1), (N,) or (..., 1, N).
    a_zero_point, b_zero_point : array of a's and b's dtype
        In the same shapes.
    y_scale : array with one element, float32, float16 or bfloat16
    y_zero_point : array with one element
        Its dtype is the result's.
    out : ndarray, optional
    threads : int, optional

    Returns
    -------
    ndarray
        (..., M, N), without the dimensions that vectors lack.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> half = np.float32(0.5)
    >>> qkernels.qlinear_matmul(np.uint8([[130, 126]]), half, np.uint8(128), np.int8([[4], [-4]]), half, np.int8(0), half, np.uint8(10))
    array([[18]], dtype=uint8)
    """
    cdef str func = "qlinear_matmul"
    ys, yz = _arrays.as_array(y_scale, func, "y_scale"), _arrays.as_array(y_zero_point, func, "y_zero_point")
    for value, name in ((a_zero_point, "a_zero_point"), (b_zero_point, "b_zero_point"), (a_scale, "a_scale"), (b_scale, "b_scale")):
        _arrays.as_array(value, func, name)
    if ys.dtype not in _FLOATS:
        raise TypeError(f"{func}: y_scale: expected dtype float32, float16 or bfloat16, got {ys.dtype}")
    for value, name in ((ys, "y_scale"), (yz, "y_zero_point")):
        if value.size != 1:
            raise ValueError(f"{func}: {name}: expected one element, got shape {value.shape}")
    packed = isinstance(b, PackedInt8Matrix)
    x, w = _arrays.as_array(a, func, "a"), (<PackedInt8Matrix>b)._shaped if packed else _arrays.as_array(b, func, "b")
    if not _is_byte(x) or not _is_byte(w) or not _is_byte(yz):
        for value, name in ((x, "a"), (w, "b"), (yz, "y_zero_point")):
            if value.dtype not in _conversion.FLOAT8 and not _is_byte(value):
                raise TypeError(f"{func}: {name}: expected dtype uint8, int8 or a float8, got {value.dtype}")
    else:
        return _integer_matmul(a, b, a_zero_point, b_zero_point, a_scale, b_scale, ys, yz, out, threads, func)
    w = b.unpack() if packed else w
    wide = []
    for value, scale, zero, name, rows in ((x, a_scale, a_zero_point, "a", True), (w, b_scale, b_zero_point, "b", False)):
        if value.ndim == 0:
            raise ValueError(f"{func}: {name}: expected at least 1 dimension, got a 0-d array")
        matrix = value.reshape((1, -1) if rows else (-1, 1)) if value.ndim == 1 else value
        lead, count = matrix.shape[:matrix.ndim - 2], matrix.shape[matrix.ndim - 2 if rows else matrix.ndim - 1]
        z = _per_line(zero, lead, count, rows, value.dtype, np.float32, func, f"{name}_zero_point")
        s = _per_line(scale, lead, count, rows, None, np.float32, func, f"{name}_scale")
        lines = lead + ((count, 1) if rows else (1, count))
        wide.append(((matrix.astype(np.float32) - (<object>z).reshape(lines)) * (<object>s).reshape(lines)).reshape(value.shape))
    return quantize_linear(matmul(wide[0], wide[1], threads=threads), ys.astype(np.float32).reshape(()), yz.reshape(()), out=out, threads=threads)


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
    >>> qkernels.unpack_int4(np.uint8([0xF1, 0x07]), (3,)).tolist()
    [1, -1, 7]
    >>> qkernels.unpack_int4(np.uint8([0xF1, 0x07]), 3, ml_dtypes.uint4).tolist()
    [1, 15, 7]
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
