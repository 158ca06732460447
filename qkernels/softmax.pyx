"""Softmax and its logarithm along any axis: ai.onnx Softmax and LogSoftmax."""
cimport numpy as cnp
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "softmax/softmax.h" nogil:
    ctypedef struct qk_softmax_args:
        const void *x
        void *y
        float *scratch
        int dtype, log
        int64_t rows, n
    int64_t qk_softmax_rows(int64_t n)
    void qk_softmax(int isa, int threads, const qk_softmax_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 14


cdef object _in_float64(cnp.ndarray x, int axis, bint log, object out, str func):
    """float64 through NumPy."""
    cdef cnp.ndarray y = _arrays.output_of(out, _arrays.shape_of(x), np.dtype(np.float64), func)
    if x.size:
        with np.errstate(invalid="ignore"):
            shifted = x - x.max(axis=axis, keepdims=True)
            e = np.exp(shifted)
            total = e.sum(axis=axis, keepdims=True)
            y[...] = shifted - np.log(total) if log else e / total
    return y


cdef object _softmax(object x, object axis, bint log, object out, object threads, str func):
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), y, scratch
    cdef qk_softmax_args args
    cdef tuple shape = _arrays.shape_of(a)
    cdef int along, n = _arrays.num_threads(threads, func)
    if not shape:
        raise ValueError(f"{func}: x: expected at least 1 dimension, got a 0-d array")
    along = _arrays.normalize_axis(axis, len(shape), func)
    if cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT64:
        return _in_float64(a, along, log, out, func)
    if along != len(shape) - 1:  # rows first, then back
        moved = _softmax(np.moveaxis(a, along, -1), -1, log, None, threads, func)
        y = _arrays.output(out, shape, _arrays.dtype_code(a), func)
        y[...] = np.moveaxis(moved, -1, along)
        return y
    a = _arrays.float_input(a, _arrays.FLOATS, func, "x")
    y = _arrays.output(out, shape, _arrays.dtype_code(a), func)
    if out is not None:
        _arrays.check_overlap(y, a, True, func, "x")
    args.n = shape[along]
    args.rows = cnp.PyArray_SIZE(a) // args.n if args.n else 0
    args.x, args.y, args.scratch = cnp.PyArray_DATA(a), cnp.PyArray_DATA(y), NULL
    args.dtype, args.log = _arrays.dtype_code(a), log
    n = _arrays.worth(n, cnp.PyArray_SIZE(a), GRAIN)
    if args.rows:
        if n > args.rows:
            n = <int>args.rows
        if args.dtype != _arrays.F32 and not log:
            scratch = np.empty((n, qk_softmax_rows(args.n), args.n), np.float32)
            args.scratch = <float *>cnp.PyArray_DATA(scratch)
        with nogil:
            qk_softmax(_runtime.isa(), n, &args)
    return y


def softmax(x, *, axis=-1, out=None, threads=None):
    """Exponentials that sum to 1 along an axis: ``exp(x - max(x)) / sum(exp(x - max(x)))``.

    ONNX ai.onnx Softmax, since version 13. Computed in float32 and rounded once; float64 goes through NumPy. A slice that holds a NaN or
    +inf, or nothing but -inf, is NaN throughout, as in ONNX's reference.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        At least one dimension, any strides. The last axis is the fast one; others are moved there first.
    axis : int, default -1
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For an axis.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.softmax(np.float32([[0, 0, 1000, 1000], [1, -np.inf, 1, -np.inf]]))
    array([[0. , 0. , 0.5, 0.5],
           [0.5, 0. , 0.5, 0. ]], dtype=float32)
    """
    return _softmax(x, axis, False, out, threads, "softmax")


def log_softmax(x, *, axis=-1, out=None, threads=None):
    """The logarithm of `softmax`: ``x - max(x) - log(sum(exp(x - max(x))))``.

    ONNX ai.onnx LogSoftmax, since version 13. Computed in float32 and rounded once; float64 goes through NumPy.

    Parameters
    ----------
    x, axis, out, threads
        As in `softmax`.

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As in `softmax`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.log_softmax(np.float32([0, 1000]))
    array([-1000.,     0.], dtype=float32)
    """
    return _softmax(x, axis, True, out, threads, "log_softmax")
