"""Sum, mean and maximum over axes: ai.onnx ReduceSum, ReduceMean and ReduceMax."""
cimport numpy as cnp
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "reduction/reduction.h" nogil:
    enum:
        QK_SUM, QK_MEAN, QK_MAX
    ctypedef struct qk_reduction_args:
        const void *x
        void *y
        int op, dtype
        int64_t outer, n, inner
    int64_t qk_reduction_units(const qk_reduction_args *args)
    void qk_reduction(int isa, int threads, const qk_reduction_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 16

_SUMMED = tuple(np.dtype(t) for t in ("float64", "int32", "int64", "uint32", "uint64"))
_COMPARED = _SUMMED + tuple(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "bool"))


cdef tuple _axes(object axes, int rank, bint noop, str func):
    """The axes to reduce, ascending; None: nothing to do."""
    if axes is None:
        axes = ()
    elif isinstance(axes, np.ndarray):
        if axes.dtype.kind not in "iu" and axes.size:
            raise TypeError(f"{func}: axes: expected integers, got {axes.dtype}")
        axes = axes.ravel().tolist()
    elif not isinstance(axes, (list, tuple)):
        axes = (axes,)
    if len(axes) == 1:
        return (_arrays.normalize_axis(axes[0], rank, func, "axes"),)
    if not axes:
        return None if noop else tuple(range(rank))
    axes = [_arrays.normalize_axis(axis, rank, func, "axes") for axis in axes]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{func}: axes: expected distinct axes, got {axes}")
    return tuple(sorted(axes))


cdef object _with_numpy(int op, cnp.ndarray x, tuple axes, bint keepdims):
    """Types that have no kernel. Integers wrap around; an integer mean is exact and truncated toward zero."""
    dtype = x.dtype
    if op == QK_MAX:
        if dtype == bool:
            return np.logical_or.reduce(x, axis=axes, keepdims=keepdims)
        least = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
        return np.maximum.reduce(x, axis=axes, keepdims=keepdims, initial=least)
    if op == QK_SUM:
        return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=dtype)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return np.add.reduce(x, axis=axes, keepdims=keepdims) / np.float64(count)
    if not count:
        raise ValueError(f"reduce_mean: x: the mean of no {dtype} does not exist, got shape {_arrays.shape_of(x)}")
    form = dict(axis=axes, keepdims=keepdims)
    total = np.add.reduce(x.astype(object), **form) if dtype.itemsize == 8 else np.add.reduce(x, dtype=np.int64, **form)
    quotient = abs(total) // count
    return np.asarray(np.where(total < 0, -quotient, quotient), dtype)


cdef object _reduce(int op, object x, object axes, object keepdims, object noop_with_empty_axes, object out, object threads, str func):
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), y
    cdef tuple shape = _arrays.shape_of(a), reduced
    cdef list result = []
    cdef qk_reduction_args args
    cdef bint is_reduced[64]
    cdef bint keep = bool(keepdims)
    cdef int i, rank = cnp.PyArray_NDIM(a), code = _arrays.dtype_code(a), n = _arrays.num_threads(threads, func), runs = 0
    if code < 0 and a.dtype not in (_COMPARED if op == QK_MAX else _SUMMED):
        others = _COMPARED if op == QK_MAX else _SUMMED
        raise TypeError(f"{func}: x: expected dtype float32, float16, bfloat16, {', '.join(map(str, others))}, got {a.dtype}")
    reduced = _axes(axes, rank, noop_with_empty_axes, func)
    if reduced is None:
        y = _arrays.output_of(out, shape, a.dtype, func)
        (<object>y)[...] = a
        return y
    for i in range(rank):
        is_reduced[i] = False
    for i in reduced:
        is_reduced[i] = True
    args.n = args.inner = 1
    for i in range(rank):
        if not is_reduced[i]:
            result.append(shape[i])
        else:
            args.n *= cnp.PyArray_DIM(a, i)
            if keep:
                result.append(1)
        runs += not i or is_reduced[i] != is_reduced[i - 1]
    y = _arrays.output_of(out, tuple(result), a.dtype if code < 0 else _arrays.numpy_dtype(code), func)
    if out is not None:
        _arrays.check_apart(y, a, func, "x")
    if code < 0:
        (<object>y)[...] = _with_numpy(op, a, reduced, keep)
        return y
    if not args.n:
        (<object>y)[...] = (0.0, np.nan, -np.inf)[op]
        return y
    if not cnp.PyArray_SIZE(y):
        return y
    if rank and not is_reduced[rank - 1] and reduced and runs == 2 + (not is_reduced[0]):  # neighbours within: columns
        for i in range(reduced[len(reduced) - 1] + 1, rank):
            args.inner *= cnp.PyArray_DIM(a, i)
    elif runs > 2 or runs == 2 and is_reduced[0]:
        a = a.transpose([i for i in range(rank) if not is_reduced[i]] + list(reduced))
    a = _arrays.contiguous(a)
    args.outer = cnp.PyArray_SIZE(y) // args.inner
    args.x, args.y, args.op, args.dtype = cnp.PyArray_DATA(a), cnp.PyArray_DATA(y), op, code
    n = _arrays.worth(n, cnp.PyArray_SIZE(a), GRAIN)
    if n > 1 and n > qk_reduction_units(&args):
        n = <int>qk_reduction_units(&args)
    with nogil:
        qk_reduction(_runtime.isa(), n, &args)
    return y


def reduce_sum(x, axes=None, *, keepdims=1, noop_with_empty_axes=0, out=None, threads=None):
    """The sum over axes.

    ONNX ai.onnx ReduceSum, since version 13. Sums of float types are made in double precision in a fixed order and rounded once; integers
    wrap around. The sum of nothing is 0.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64, int32, int64, uint32 or uint64
        Any strides.
    axes : array of int, optional
        Input or attribute, as the operator's version has it. None or empty: all axes.
    keepdims : int, default 1
        Keep reduced axes with size 1 (1) or drop them (0).
    noop_with_empty_axes : int, default 0
        1: without axes nothing is reduced.
    out : ndarray, optional
        Result, C-contiguous.
    threads : int, optional

    Returns
    -------
    ndarray
        x's dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For axes.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.reduce_sum(np.float32([[1, 2], [3, 4]]), [0])
    array([[4., 6.]], dtype=float32)
    >>> qkernels.reduce_sum(np.float32([[1, 2], [3, 4]]), keepdims=0)
    array(10., dtype=float32)
    """
    return _reduce(QK_SUM, x, axes, keepdims, noop_with_empty_axes, out, threads, "reduce_sum")


def reduce_mean(x, axes=None, *, keepdims=1, noop_with_empty_axes=0, out=None, threads=None):
    """The mean over axes.

    ONNX ai.onnx ReduceMean, since version 13 (axes as attribute) and 18 (as input). The mean of float types is rounded once; that of
    integers is exact and then truncated toward zero. The mean of nothing is NaN.

    Parameters
    ----------
    x, axes, keepdims, noop_with_empty_axes, out, threads
        As in `reduce_sum`.

    Returns
    -------
    ndarray
        x's dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For axes, or the mean of no integers.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.reduce_mean(np.float32([[1, 2], [3, 4]]), [1], keepdims=0)
    array([1.5, 3.5], dtype=float32)
    """
    return _reduce(QK_MEAN, x, axes, keepdims, noop_with_empty_axes, out, threads, "reduce_mean")


def reduce_max(x, axes=None, *, keepdims=1, noop_with_empty_axes=0, out=None, threads=None):
    """The maximum over axes; NaN where there is a NaN.

    ONNX ai.onnx ReduceMax, since version 13 (axes as attribute), 18 (as input) and 20 (bool). The maximum of nothing is minus infinity or
    the type's least value.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64, any integer type or bool
        Any strides.
    axes, keepdims, noop_with_empty_axes, out, threads
        As in `reduce_sum`.

    Returns
    -------
    ndarray
        x's dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For axes.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.reduce_max(np.float32([[1, 2], [3, np.nan]]), [1], keepdims=0)
    array([ 2., nan], dtype=float32)
    """
    return _reduce(QK_MAX, x, axes, keepdims, noop_with_empty_axes, out, threads, "reduce_max")
