"""Data movement: ai.onnx Gather and Cast."""
cimport numpy as cnp
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

from qkernels import _conversion

cnp.import_array()

cdef extern from "layout/layout.h" nogil:
    ctypedef struct qk_gather_args:
        const char *data
        const int64_t *index
        char *out
        int64_t outer, size, count, block, outer_stride, row_stride
    ctypedef struct qk_cast_args:
        const void *x
        void *y
        int x_dtype, y_dtype
        int64_t n
    int64_t qk_gather(int threads, const qk_gather_args *args)
    void qk_cast(int isa, int threads, const qk_cast_args *args)

# bytes, and elements, for which starting a second thread pays
cdef enum:
    GATHER_GRAIN = 1 << 19
    CAST_GRAIN = 1 << 17

cdef object _OFFERED = frozenset(_conversion.DTYPES.values())
cdef dict _TYPES = {dtype.type: dtype for dtype in _OFFERED}


cdef bint _is_dense(cnp.ndarray a, int first, int last, int64_t innermost):
    """Do the axes first <= i < last lie as one axis of stride `innermost`?"""
    cdef int64_t stride = innermost
    cdef int i
    for i in range(last - 1, first - 1, -1):
        if cnp.PyArray_DIM(a, i) != 1 and cnp.PyArray_STRIDE(a, i) != stride:
            return False
        stride *= cnp.PyArray_DIM(a, i)
    return True


cdef int64_t _innermost_stride(cnp.ndarray a, int first, int last):
    """The stride of the last of these axes that has more than one element."""
    cdef int i
    for i in range(last - 1, first - 1, -1):
        if cnp.PyArray_DIM(a, i) != 1:
            return cnp.PyArray_STRIDE(a, i)
    return 0


def gather(data, indices, *, axis=0, out=None, threads=None):
    """Entries of `data` along an axis, picked by index: ``out[..., i, ...] = data[..., indices[i], ...]``.

    ONNX ai.onnx Gather, since version 13. Whole rows are copied as bytes, so every dtype works and only the rows asked for are read: `data`
    may be a memory map of a file.

    Parameters
    ----------
    data : array, or packed weights
        At least one dimension, any dtype but object, any strides. Packed weights (anything with ``take_rows(indices)``) unpack just the rows asked for.
    indices : array of integers
        Any shape. Negative ones count from the end.
    axis : int, default 0
        For packed weights 0 only.
    out : ndarray, optional
        Result, C-contiguous.
    threads : int, optional

    Returns
    -------
    ndarray
        Shape ``data.shape[:axis] + indices.shape + data.shape[axis + 1:]``, data's dtype in native byte order.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape or an axis.
    IndexError
        For an index outside ``[-size, size)``.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.gather(np.float32([[1, 2], [3, 4], [5, 6]]), [0, -1])
    array([[1., 2.],
           [5., 6.]], dtype=float32)
    """
    cdef str func = "gather"
    cdef cnp.ndarray a, index = _arrays.int_input(indices, func, "indices"), y
    cdef qk_gather_args args
    cdef int64_t bad
    cdef int rank, ax, n, code
    cdef tuple shape, given
    if not cnp.PyArray_Check(data) and hasattr(data, "take_rows"):
        if axis != 0:
            raise ValueError(f"{func}: axis: expected 0 for packed weights, got {axis}")
        return data.take_rows(indices) if out is None else data.take_rows(indices, out=out)
    if data is None:
        raise TypeError(f"{func}: data: expected an array, got None")
    a = data if isinstance(data, np.ndarray) else np.asarray(data)
    code = _arrays.dtype_code(a)
    if code < 0 and a.dtype.hasobject:
        raise TypeError(f"{func}: data: expected a dtype without Python objects, got {a.dtype}")
    given = _arrays.shape_of(a)
    rank = cnp.PyArray_NDIM(a)
    if not rank:
        raise ValueError(f"{func}: data: expected at least 1 dimension, got a 0-d array")
    ax = _arrays.normalize_axis(axis, rank, func)
    shape = given[:ax] + _arrays.shape_of(index) + given[ax + 1:]
    y = _arrays.output_of(out, shape, a.dtype.newbyteorder("=") if code < 0 or not cnp.PyArray_ISNOTSWAPPED(a) else _arrays.numpy_dtype(code), func)
    if out is not None:
        _arrays.check_apart(y, a, func, "data")
        _arrays.check_overlap(y, index, False, func, "indices")
    if not _is_dense(a, ax + 1, rank, cnp.PyArray_ITEMSIZE(a)) or not _is_dense(a, 0, ax, _innermost_stride(a, 0, ax)):
        a = np.ascontiguousarray(a)
    args.size, args.row_stride, args.count = cnp.PyArray_DIM(a, ax), cnp.PyArray_STRIDE(a, ax), cnp.PyArray_SIZE(index)
    args.outer, args.outer_stride, args.block = 1, _innermost_stride(a, 0, ax), cnp.PyArray_ITEMSIZE(a)
    for n in range(ax):
        args.outer *= cnp.PyArray_DIM(a, n)
    for n in range(ax + 1, rank):
        args.block *= cnp.PyArray_DIM(a, n)
    args.data, args.index, args.out = cnp.PyArray_BYTES(a), <int64_t *>cnp.PyArray_DATA(index), cnp.PyArray_BYTES(y)
    n = _arrays.worth(_arrays.num_threads(threads, func), args.outer * args.count * args.block, GATHER_GRAIN)
    with nogil:
        bad = qk_gather(n, &args)
    if bad >= 0:
        raise IndexError(f"{func}: indices: expected {-args.size} to {args.size - 1} for size {args.size} of axis {ax}, got {index.flat[bad]}")
    if not cnp.PyArray_ISNOTSWAPPED(a) or cnp.PyArray_TYPE(a) == cnp.NPY_VOID and not a.dtype.isnative:
        np.copyto(y, y.view(a.dtype))
    return y


def cast(x, to, *, saturate=1, round_mode="up", out=None, threads=None):
    """The elements of `x` in another type.

    ONNX ai.onnx Cast, since version 13, as far as version 28, for all its types but text.

    Parameters
    ----------
    x : array
        bool, an integer type, float16, bfloat16, float32 or float64, or of ``ml_dtypes`` int4, uint4, int2, uint2, float8_e4m3fn, float8_e4m3fnuz,
        float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float6_e2m3fn, float6_e3m2fn and float4_e2m1fn.
    to : dtype, or int
        One of these, or the number of its ``onnx.TensorProto.DataType``.
    saturate : {1, 0}, default 1
        Only for results in float8: beyond the range the largest number, or (0) an infinity where the type has one and NaN where not.
    round_mode : {"up", "down", "nearest"}, default "up"
        Only for results in float8_e8m0fnu, the powers of two from 2**-127 to 2**127: away from zero, toward it, or to the nearest, ties up.
    out : ndarray, optional
        Result of x's shape, C-contiguous; may be `x` itself where the type is the same.
    threads : int, optional

    Returns
    -------
    ndarray
        A new array even if the type is the same.

    Raises
    ------
    TypeError
        For a type that is not offered.
    ValueError
        For an attribute or `out`.

    Notes
    -----
    A float is rounded once from its own type to nearest even, too large values become infinity, NaN stays NaN, subnormal numbers are kept. Types
    without an infinity: float8 as `saturate` says, float6 and float4 have the largest number for it and a zero for NaN. A float becomes an
    integer by truncation, undefined where it does not fit; of 4 and 2 bits it is the low bits of the truncated value. An integer in a smaller
    integer loses its high bits. In float8_e8m0fnu a value below 2**-127 counts as beyond the range, so 0 becomes 2**-127, or NaN without `saturate`,
    and a negative number, which the specification leaves open, becomes NaN. Conversions among float32, float16 and bfloat16 are this package's
    own kernel, all others go through NumPy and ml_dtypes.

    Examples
    --------
    >>> import ml_dtypes, numpy as np, qkernels
    >>> qkernels.cast(np.float32([1 / 3, 70000]), np.float16)
    array([0.3333,    inf], dtype=float16)
    >>> qkernels.cast(np.float32([0.3, 1000]), ml_dtypes.float8_e4m3fn).astype(float).tolist()
    [0.3125, 448.0]
    """
    return _cast(x, to, saturate, round_mode, out, threads, "cast", "to")


def _cast(x, to, saturate, round_mode, out, threads, str func, str to_name):
    """`cast` under the name of the function that the caller called."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), y
    cdef qk_cast_args args
    cdef int n
    cdef str names = "bool, an integer type, float16, bfloat16, float32, float64 or a type of ml_dtypes that ONNX has"
    if type(to) is type and to in _TYPES:
        dtype = _TYPES[to]
    elif isinstance(to, (int, np.integer)) and not isinstance(to, bool):
        dtype = _conversion.DTYPES.get(int(to))
    else:
        try:
            dtype = np.dtype(to).newbyteorder("=")
        except TypeError:
            dtype = None
    if to is None or dtype is None or dtype not in _OFFERED:  # np.dtype(None) is float64
        raise TypeError(f"{func}: {to_name}: expected {names}, got {to}")
    if _arrays.dtype_code(a) < 0 and a.dtype not in _OFFERED:
        raise TypeError(f"{func}: x: expected {names}, got {a.dtype}")
    if saturate not in (0, 1):
        raise ValueError(f"{func}: saturate: expected 0 or 1, got {saturate}")
    if round_mode not in _conversion.ROUND_MODES:
        raise ValueError(f"{func}: round_mode: expected 'up', 'down' or 'nearest', got {round_mode!r}")
    y = _arrays.output_of(out, _arrays.shape_of(a), dtype, func)
    args.x_dtype, args.y_dtype = _arrays.dtype_code(a), _arrays.dtype_code(y)
    n = _arrays.num_threads(threads, func)
    if args.x_dtype < 0 or args.y_dtype < 0:
        if a.dtype == dtype:
            np.copyto(y, a)
        else:
            y[...] = _conversion.convert(a, dtype, bool(saturate), round_mode)
        return y
    a = _arrays.contiguous(a)
    if out is not None:
        _arrays.check_overlap(y, a, args.x_dtype == args.y_dtype, func, "x")
    args.x, args.y, args.n = cnp.PyArray_DATA(a), cnp.PyArray_DATA(y), cnp.PyArray_SIZE(a)
    if args.x != args.y and args.n:
        n = _arrays.worth(n, args.n, CAST_GRAIN)
        with nogil:
            qk_cast(_runtime.isa(), n, &args)
    return y
