"""Root-mean-square and layer normalization: ai.onnx RMSNormalization and LayerNormalization, com.microsoft's (Skip)SimplifiedLayerNormalization."""
cimport numpy as cnp
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import ml_dtypes
import numpy as np

from qkernels.reduction import reduce_mean

cnp.import_array()

cdef extern from "normalization/normalization.h" nogil:
    ctypedef struct qk_rms_args:
        const void *x
        const void *skip
        const void *bias
        const void *scale
        void *y
        void *sum
        float *inv
        int x_dtype, scale_dtype, y_dtype
        int64_t rows, n, scale_step
        float epsilon
    ctypedef struct qk_layer_norm_args:
        const void *x
        const void *scale
        const void *bias
        void *y
        float *mean
        float *inv
        int x_dtype, scale_dtype, bias_dtype
        int64_t rows, n, scale_step, bias_step
        float epsilon
    void qk_rms(int isa, int threads, const qk_rms_args *args)
    void qk_layer_norm(int isa, int threads, const qk_layer_norm_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 16


cdef int _run(qk_rms_args *args, int threads) except -1:
    cdef int n = _arrays.worth(threads, args.rows * args.n, GRAIN)
    if args.rows and args.n:
        if n > args.rows:
            n = <int>args.rows
        with nogil:
            qk_rms(_runtime.isa(), n, args)
    return 0


cdef float _epsilon(object epsilon, str func) except? -1:
    cdef float value = <float>_arrays.number(epsilon, func, "epsilon")
    if not value >= 0:
        raise ValueError(f"{func}: epsilon: expected a number >= 0, got {epsilon}")
    return value


cdef bint _is_double(cnp.ndarray a) noexcept:
    return a is not None and cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT64


cdef cnp.ndarray _number(object x, str func, str name):
    """An array of a float type, float64 among them."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, name)
    if _arrays.dtype_code(a) < 0 and not _is_double(a):
        raise TypeError(f"{func}: {name}: expected dtype float32, float16, bfloat16 or float64, got {a.dtype}")
    return _arrays.contiguous(a)


cdef cnp.ndarray _affine(cnp.ndarray a, tuple shape, tuple normalized, str func, str name):
    """Scale or bias: contiguous, of the normalized shape, or of x's where it has more than that."""
    if _arrays.has_shape(a, normalized):
        return a
    for target in (normalized, shape):
        try:
            return _arrays.contiguous(np.broadcast_to(a, target))
        except ValueError:
            pass
    raise ValueError(f"{func}: {name}: expected a shape that broadcasts to {normalized}, got {_arrays.shape_of(a)}")


cdef cnp.ndarray _out_float64(object out, object y, object dtype, str func, inputs):
    """A result of NumPy's, in `out` where there is one."""
    cdef cnp.ndarray target, given
    cdef str name
    if out is None:
        return np.asarray(y, dtype)
    target = _arrays.output_of(out, y.shape, dtype, func)
    for name, given in inputs:
        _arrays.check_overlap(target, given, name == "x", func, name)
    target[...] = y
    return target


cdef object _rms_float64(cnp.ndarray a, cnp.ndarray s, int first, double epsilon, object out, str func, object inv_dtype):
    """(y, inverse root) where a type is float64, or the statistics are to be: everything in float64 and NumPy."""
    x = (<object>a).astype(np.float64)
    axes = tuple(range(first, x.ndim))
    with np.errstate(all="ignore"):
        squares = (x * x).mean(axis=axes, keepdims=True) if x.size else np.zeros(x.shape[:first] + (1,) * len(axes))
        inv = 1 / np.sqrt(squares + epsilon)
        y = _out_float64(out, x * inv * (<object>s).astype(np.float64), s.dtype, func, (("x", a), ("scale", s)))
        return y, inv.astype(inv_dtype)


cdef object _rms(object x, object scale, object axis, object epsilon, object stash_type, object out, object threads, str func, bint want_inv):
    """One output, or (y, inverse root) when want_inv."""
    cdef cnp.ndarray a = _number(x, func, "x"), s = _number(scale, func, "scale"), y
    cdef qk_rms_args args
    cdef int first
    cdef tuple shape = _arrays.shape_of(a), normalized
    cdef object inv = None
    if not shape:
        raise ValueError(f"{func}: x: expected at least 1 dimension, got a 0-d array")
    first = _arrays.normalize_axis(axis, len(shape), func)
    normalized = shape[first:]
    s = _affine(s, shape, normalized, func, "scale")
    args.epsilon = _epsilon(epsilon, func)
    if _is_double(a) or _is_double(s) or stash_type == 11:
        _arrays.num_threads(threads, func)
        y, inv = _rms_float64(a, s, first, float(epsilon), out, func, np.float64 if stash_type == 11 else np.float32)
        return (y, inv) if want_inv else y
    y = _arrays.output(out, shape, _arrays.dtype_code(s), func)
    if out is not None:
        _arrays.check_overlap(y, a, True, func, "x")
        _arrays.check_overlap(y, s, False, func, "scale")
    args.n = 1
    for size in normalized:
        args.n *= size
    args.rows = cnp.PyArray_SIZE(a) // args.n if args.n else 0
    args.scale_step = 0 if _arrays.has_shape(s, normalized) else args.n
    args.skip = args.bias = args.sum = NULL
    args.inv = NULL
    if want_inv:
        inv = np.empty(shape[:first] + (1,) * len(normalized), np.float32)
        args.inv = <float *>cnp.PyArray_DATA(inv)
    args.x, args.scale, args.y = cnp.PyArray_DATA(a), cnp.PyArray_DATA(s), cnp.PyArray_DATA(y)
    args.x_dtype, args.scale_dtype, args.y_dtype = _arrays.dtype_code(a), _arrays.dtype_code(s), _arrays.dtype_code(y)
    _run(&args, _arrays.num_threads(threads, func))
    return (y, inv) if want_inv else y


def rms_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1, out=None, threads=None):
    """Normalize by the root mean square over the axes from `axis` on: ``y = x / sqrt(mean(x**2) + epsilon) * scale``.

    ONNX ai.onnx RMSNormalization, since version 23. Everything is computed in float32 and rounded once, so float16 rows
    neither overflow nor lose their epsilon; where a type is float64, in float64 through NumPy.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        At least one dimension, any strides.
    scale : array, float32, float16, bfloat16 or float64
        Broadcasts to ``x.shape[axis:]``, or to ``x.shape``.
    axis : int, default -1
        First of the normalized axes.
    epsilon : float, default 1e-5
    stash_type : {1, 10, 11, 16}, default 1
        ONNX's type in which to compute: 1 for float32, which also serves 10 and 16, float16 and bfloat16; 11 for float64.
    out : ndarray, optional
        Result of x's shape and scale's dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape, scale's dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape, an axis or an attribute.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.rms_normalization(np.float32([[3, 4]]), np.float32([1, 2]), epsilon=0)
    array([[0.84852815, 2.2627418 ]], dtype=float32)
    """
    if stash_type not in (1, 10, 11, 16):
        raise ValueError(f"rms_normalization: stash_type: expected 1, 10, 11 or 16, got {stash_type}")
    return _rms(x, scale, axis, epsilon, stash_type, out, threads, "rms_normalization", False)


def simplified_layer_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1, outputs=(0,), out=None, threads=None):
    """RMS normalization in the form that ONNX Runtime's graphs carry; optionally with the inverse root mean square.

    SimplifiedLayerNormalization, since version 1: an experimental operator of the default domain, also found in com.microsoft. The same
    kernel as `rms_normalization`.

    Parameters
    ----------
    x, scale, axis, epsilon, out, threads
        As in `rms_normalization`.
    stash_type : {1, 11}, default 1
        ONNX's type in which to compute, and of inv_std_var: 1 for float32, 11 for float64.
    outputs : tuple of int, default (0,)
        Which of y (0) and inv_std_var (1) to return.

    Returns
    -------
    ndarray or tuple of ndarray
        y of x's shape and scale's dtype; inv_std_var of x's shape with the normalized axes 1.

    Raises
    ------
    TypeError, ValueError
        As in `rms_normalization`; ValueError for `outputs`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> y, inv = qkernels.simplified_layer_normalization(np.float32([[3, 4]]), np.float32([1, 1]), epsilon=0, outputs=(0, 1))
    >>> inv
    array([[0.28284273]], dtype=float32)
    """
    cdef str func = "simplified_layer_normalization"
    if stash_type not in (1, 11):
        raise ValueError(f"{func}: stash_type: expected 1 (float32) or 11 (float64), got {stash_type}")
    outputs = _arrays.check_outputs(outputs, (0, 1), func)
    if outputs == (0,):
        return _rms(x, scale, axis, epsilon, stash_type, out, threads, func, False)
    results = _rms(x, scale, axis, epsilon, stash_type, out, threads, func, 1 in outputs)
    results = dict(zip((0, 1), results if 1 in outputs else (results,)))
    return _arrays.pick(results, outputs)


cdef int _check_skip_overlaps(cnp.ndarray y, cnp.ndarray a, cnp.ndarray b, cnp.ndarray g, cnp.ndarray c, str func, str name) except -1:
    _arrays.check_overlap(y, a, True, func, "x", name)
    _arrays.check_overlap(y, b, True, func, "skip", name)
    _arrays.check_overlap(y, g, False, func, "gamma", name)
    if c is not None:
        _arrays.check_overlap(y, c, False, func, "bias", name)
    return 0


def skip_simplified_layer_normalization(x, skip, gamma, bias=None, *, epsilon=1e-12, outputs=(0,), out=None, sum_out=None, threads=None):
    """Residual sum and RMS normalization in one pass: ``s = x + skip + bias; y = s / sqrt(mean(s**2) + epsilon) * gamma``.

    com.microsoft SkipSimplifiedLayerNormalization, since version 1. Sums and statistics are float32; each output is rounded once, so
    y does not see the rounding of the sum.

    Parameters
    ----------
    x, skip : array, float32, float16 or bfloat16
        (tokens, hidden) or (batch, sequence, hidden); skip may also be (sequence, hidden) or (1, sequence, hidden) for every batch.
    gamma : array, (hidden,)
    bias : array, (hidden,), optional
    epsilon : float, default 1e-12
    outputs : tuple of int, default (0,)
        Which of y (0), the sum's mean over the row (1), inv_std_var (2) and the residual sum (3) to return. The normalization does not use the mean.
    out : ndarray, optional
        Receives y; may be `x` or `skip`.
    sum_out : ndarray, optional
        Receives the residual sum; may be `x` or `skip`.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        In the order of `outputs`.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> one = np.ones((1, 2), np.float32)
    >>> y, s = qkernels.skip_simplified_layer_normalization(one, one, np.float32([1, 2]), np.float32([2, 2]), epsilon=0, outputs=(0, 3))
    >>> y, s
    (array([[1., 2.]], dtype=float32), array([[4., 4.]], dtype=float32))
    """
    cdef str func = "skip_simplified_layer_normalization"
    cdef cnp.ndarray a = _arrays.float_input(x, _arrays.FLOATS, func, "x"), b, g, c = None, y = None, s = None
    cdef int code = _arrays.dtype_code(a)
    cdef tuple shape = _arrays.shape_of(a), row
    cdef qk_rms_args args
    cdef bint[4] wanted
    cdef int i
    cdef object inv = None
    outputs = _arrays.check_outputs(outputs, (0, 1, 2, 3), func)
    if len(shape) not in (2, 3):
        raise ValueError(f"{func}: x: expected 2 or 3 dimensions, got shape {shape}")
    b = _arrays.same_float_input(skip, code, func, "skip")
    if not _arrays.has_shape(b, shape):
        if len(shape) != 3 or _arrays.shape_of(b) not in (shape[1:], (1,) + shape[1:]):
            raise ValueError(f"{func}: skip: expected shape {shape}, got {_arrays.shape_of(b)}")
        b = _arrays.contiguous(np.broadcast_to(b, shape))
    g = _arrays.same_float_input(gamma, code, func, "gamma")
    row = shape[len(shape) - 1:]
    _arrays.check_shape(g, row, func, "gamma")
    args.bias = NULL
    if bias is not None:
        c = _arrays.same_float_input(bias, code, func, "bias")
        _arrays.check_shape(c, row, func, "bias")
        args.bias = cnp.PyArray_DATA(c)
    for i in range(4):
        wanted[i] = i in outputs
    if out is not None and not wanted[0]:
        raise ValueError(f"{func}: out: output 0 is not among outputs={outputs}")
    if sum_out is not None and not wanted[3]:
        raise ValueError(f"{func}: sum_out: output 3 is not among outputs={outputs}")
    args.y = args.sum = NULL
    args.inv = NULL
    if wanted[0]:
        y = _arrays.output(out, shape, code, func)
        args.y = cnp.PyArray_DATA(y)
    if wanted[3]:
        s = _arrays.output(sum_out, shape, code, func, "sum_out")
        args.sum = cnp.PyArray_DATA(s)
    if out is not None:
        _check_skip_overlaps(y, a, b, g, c, func, "out")
    if sum_out is not None:
        _check_skip_overlaps(s, a, b, g, c, func, "sum_out")
        if out is not None:
            _arrays.check_overlap(y, s, False, func, "sum_out")
    if wanted[2]:
        inv = np.empty(shape[:len(shape) - 1] + (1,), np.float32)
        args.inv = <float *>cnp.PyArray_DATA(inv)
    args.n = shape[len(shape) - 1]
    args.rows = cnp.PyArray_SIZE(a) // args.n if args.n else 0
    args.x, args.skip, args.scale = cnp.PyArray_DATA(a), cnp.PyArray_DATA(b), cnp.PyArray_DATA(g)
    args.x_dtype = args.scale_dtype = args.y_dtype = code
    args.epsilon = _epsilon(epsilon, func)
    args.scale_step = 0
    mean = None
    if wanted[1]:  # before the kernel, whose outputs may be x and skip
        total = a.astype(np.float32) + b.astype(np.float32)
        mean = reduce_mean(total if c is None else total + c.astype(np.float32), [len(shape) - 1], threads=threads)
    _run(&args, _arrays.num_threads(threads, func))
    if not wanted[1] and not wanted[2] and wanted[0]:  # as decoders ask
        if not wanted[3]:
            return y
        return (y, s) if outputs[0] == 0 else (s, y)
    return _arrays.pick({0: y, 1: mean, 2: inv, 3: s}, outputs)


cdef dict _layer_norm_float64(cnp.ndarray a, cnp.ndarray s, cnp.ndarray b, tuple axes, epsilon, dtype):
    x = (<object>a).astype(np.float64)
    with np.errstate(all="ignore"):
        mean = x.mean(axis=axes, keepdims=True) if x.size else np.zeros([1 if i in axes else n for i, n in enumerate(x.shape)])
        inv = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon) if x.size else np.zeros_like(mean)
        y = (x - mean) * inv * (<object>s).astype(np.float64)
        return {0: y if b is None else y + (<object>b).astype(np.float64), 1: mean.astype(dtype), 2: inv.astype(dtype)}


def layer_normalization(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1, outputs=(0,), out=None, threads=None):
    """Normalize to mean 0 and variance 1 over the axes from `axis` on: ``y = (x - mean) / sqrt(variance + epsilon) * scale + bias``.

    ONNX ai.onnx LayerNormalization, since version 17. Everything is computed in float32 and rounded once, the variance from the differences
    to the mean; where a type is float64, in float64 through NumPy.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        At least one dimension, any strides.
    scale : array, float32, float16, bfloat16 or float64
        Broadcasts to ``x.shape[axis:]``, or to ``x.shape``.
    bias : array, as scale, optional
    axis : int, default -1
        First of the normalized axes.
    epsilon : float, default 1e-5
    stash_type : int, default 1
        ONNX's type of the mean and the inverse deviation: 1 for float32, 16 for bfloat16, to which they are then rounded. They are computed in
        float32 either way.
    outputs : tuple of int, default (0,)
        Which of y (0), mean (1) and inv_std_dev (2) to return.
    out : ndarray, optional
        Receives y; x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        In the order of `outputs`: y of x's shape and dtype; the statistics with the normalized axes 1.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape, an axis or an attribute.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.layer_normalization(np.float32([[1, 3]]), np.float32([1, 2]), np.float32([0, 10]), epsilon=0)
    array([[-1., 12.]], dtype=float32)
    """
    cdef str func = "layer_normalization"
    cdef cnp.ndarray a = _number(x, func, "x"), s, b = None, y = None, mean = None, inv = None
    cdef qk_layer_norm_args args
    cdef bint[3] wanted
    cdef tuple shape = _arrays.shape_of(a), normalized
    cdef int i, first, n = _arrays.num_threads(threads, func)
    if stash_type not in (1, 16):
        raise ValueError(f"{func}: stash_type: expected 1 (float32) or 16 (bfloat16), got {stash_type}")
    dtype = np.float32 if stash_type == 1 else ml_dtypes.bfloat16
    outputs = _arrays.check_outputs(outputs, (0, 1, 2), func)
    if out is not None and 0 not in outputs:
        raise ValueError(f"{func}: out: output 0 is not among outputs={outputs}")
    if not shape:
        raise ValueError(f"{func}: x: expected at least 1 dimension, got a 0-d array")
    first = _arrays.normalize_axis(axis, len(shape), func)
    normalized = shape[first:]
    args.epsilon = _epsilon(epsilon, func)
    s = _affine(_number(scale, func, "scale"), shape, normalized, func, "scale")
    if bias is not None:
        b = _affine(_number(bias, func, "bias"), shape, normalized, func, "bias")
    if _is_double(a) or _is_double(s) or _is_double(b):
        results = _layer_norm_float64(a, s, b, tuple(range(first, len(shape))), float(epsilon), dtype)
        if 0 in outputs:
            results[0] = _out_float64(out, results[0], a.dtype, func, [("x", a), ("scale", s)] + ([] if b is None else [("bias", b)]))
        return _arrays.pick(results, outputs)
    args.y = args.bias = NULL
    args.mean = args.inv = NULL
    args.n = 1
    for size in normalized:
        args.n *= size
    args.rows = cnp.PyArray_SIZE(a) // args.n if args.n else 0
    args.scale_step = 0 if _arrays.has_shape(s, normalized) else args.n
    args.bias_step = args.bias_dtype = 0
    if b is not None:
        args.bias, args.bias_dtype = cnp.PyArray_DATA(b), _arrays.dtype_code(b)
        args.bias_step = 0 if _arrays.has_shape(b, normalized) else args.n
    for i in range(3):
        wanted[i] = i in outputs
    if wanted[0]:
        y = _arrays.output(out, shape, _arrays.dtype_code(a), func)
        args.y = cnp.PyArray_DATA(y)
    if out is not None:
        _arrays.check_overlap(y, a, True, func, "x")
        _arrays.check_overlap(y, s, False, func, "scale")
        if bias is not None:
            _arrays.check_overlap(y, b, False, func, "bias")
    if wanted[1]:
        mean = np.zeros(shape[:first] + (1,) * len(normalized), np.float32)
        args.mean = <float *>cnp.PyArray_DATA(mean)
    if wanted[2]:
        inv = np.zeros(shape[:first] + (1,) * len(normalized), np.float32)
        args.inv = <float *>cnp.PyArray_DATA(inv)
    args.x, args.scale = cnp.PyArray_DATA(a), cnp.PyArray_DATA(s)
    args.x_dtype, args.scale_dtype = _arrays.dtype_code(a), _arrays.dtype_code(s)
    n = _arrays.worth(n, cnp.PyArray_SIZE(a), GRAIN)
    if args.rows:
        if n > args.rows:
            n = <int>args.rows
        with nogil:
            qk_layer_norm(_runtime.isa(), n, &args)
    if not wanted[1] and not wanted[2]:
        return y
    results = {i: one.astype(dtype, copy=False) for i, one in ((1, mean), (2, inv)) if one is not None}
    return _arrays.pick(results | {0: y}, outputs)
