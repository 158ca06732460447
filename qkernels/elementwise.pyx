"""Arithmetic with broadcasting and functions of single elements: ai.onnx Add, Sub, Mul, Div, Pow, Sigmoid, Swish, SwiGLU, Gelu, Relu and its kin, Exp, Sin
and others, com.microsoft's Gelu family, and the product of SiLU and a second array."""
import math
cimport numpy as cnp
from libc.math cimport isfinite
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "elementwise/elementwise.h" nogil:
    enum:
        QK_ADD, QK_SUB, QK_MUL, QK_DIV, QK_PRELU, QK_SILU_MUL, QK_SWISH_MUL, QK_BIAS_GELU, QK_BIAS_GELU_TANH, QK_POW
        QK_NEG, QK_ABS, QK_RELU, QK_SIGN, QK_FLOOR, QK_CEIL, QK_ROUND, QK_CLIP, QK_THRESHOLDED_RELU, QK_LEAKY_RELU
        QK_SQRT, QK_RECIPROCAL, QK_HARD_SIGMOID, QK_HARD_SWISH, QK_SOFTSIGN, QK_SIGMOID, QK_SILU, QK_SWISH, QK_GELU, QK_GELU_TANH, QK_ERF, QK_EXP, QK_LOG
        QK_SOFTPLUS, QK_MISH, QK_TANH, QK_SIN, QK_COS, QK_ELU, QK_CELU, QK_SELU
    ctypedef struct qk_elementwise_args:
        const char *a
        const char *b
        char *y
        int op, dtype, axes
        float alpha, beta
        int64_t shape[64]
        int64_t a_step[64]
        int64_t b_step[64]
    void qk_elementwise(int isa, int threads, qk_elementwise_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 15
    GRAIN_POW = 1 << 13


cdef cnp.ndarray _input(object x, int allowed, str func, str arg):
    """A float array with whatever strides."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    cdef int code = _arrays.dtype_code(a)
    if code < 0 or not (allowed >> code) & 1:
        raise TypeError(f"{func}: {arg}: expected dtype {_arrays.names_of(allowed)}, got {a.dtype}")
    return a


cdef tuple _common_shape(cnp.ndarray a, cnp.ndarray b, str func):
    cdef tuple p = _arrays.shape_of(a), q
    if _arrays.has_shape(b, p):
        return p
    q = _arrays.shape_of(b)
    try:
        return np.broadcast_shapes(p, q)
    except ValueError:
        raise ValueError(f"{func}: b: expected a shape that broadcasts with {p}, got {q}") from None


cdef int64_t _step(cnp.ndarray a, int axis):
    """The stride along an axis of the result, counted from the end; 0 where `a` repeats."""
    cdef int i = cnp.PyArray_NDIM(a) - axis
    return cnp.PyArray_STRIDE(a, i) if i >= 0 and cnp.PyArray_DIM(a, i) != 1 else 0


cdef int _collapse(qk_elementwise_args *args, cnp.ndarray a, cnp.ndarray b, cnp.ndarray y) noexcept:
    """Axes of size 1 go; neighbours that both operands walk with one step become one axis."""
    cdef int rank = cnp.PyArray_NDIM(y), axis, n = 0
    cdef int64_t size, p, q
    for axis in range(rank, 0, -1):
        size = cnp.PyArray_DIM(y, rank - axis)
        if size == 1:
            continue
        p, q = _step(a, axis), _step(b, axis)
        if n and args.a_step[n - 1] == p * size and args.b_step[n - 1] == q * size:
            args.shape[n - 1] *= size
            args.a_step[n - 1], args.b_step[n - 1] = p, q
        else:
            args.shape[n], args.a_step[n], args.b_step[n] = size, p, q
            n += 1
    if not n:
        args.shape[0], args.a_step[0], args.b_step[0] = 1, 0, 0
        n = 1
    args.axes = n
    return 0


cdef int _check_out(cnp.ndarray y, cnp.ndarray a, str func, str arg) except -1:
    if cnp.PyArray_ISCARRAY_RO(a):
        _arrays.check_overlap(y, a, True, func, arg)
    elif np.may_share_memory(y, a):
        raise ValueError(f"{func}: out: overlaps {arg} without being the same array")
    return 0


cdef cnp.ndarray _run(int op, cnp.ndarray a, cnp.ndarray b, tuple shape, object out, object threads, str func, str a_name, str b_name,
                      float alpha=0, float beta=0):
    cdef int code = _arrays.dtype_code(a), n = _arrays.num_threads(threads, func)
    cdef cnp.ndarray y = _arrays.output(out, shape, code, func)
    cdef qk_elementwise_args args
    if out is not None:
        _check_out(y, a, func, a_name)
        if b is not a:
            _check_out(y, b, func, b_name)
    if cnp.PyArray_SIZE(y):
        _collapse(&args, a, b, y)
        args.a, args.b, args.y = cnp.PyArray_BYTES(a), cnp.PyArray_BYTES(b), cnp.PyArray_BYTES(y)
        args.op, args.dtype, args.alpha, args.beta = op, code, alpha, beta
        n = _arrays.worth(n, cnp.PyArray_SIZE(y), GRAIN_POW if op == QK_POW else GRAIN)
        with nogil:
            qk_elementwise(_runtime.isa(), n, &args)
    return y


cdef cnp.ndarray _numpy_out(object values, tuple shape, object dtype, object out, str func, inputs):
    """Results that NumPy made, of the dtype; in `out` where there is one."""
    if out is None:
        return np.asarray(values, dtype).reshape(shape)
    y = _arrays.output_of(out, shape, dtype, func)
    for name, a in inputs.items():
        _check_out(y, a, func, name)
    y[...] = values
    return y


cdef bint _is_double(cnp.ndarray a) noexcept:
    return cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT64


cdef bint _is_number(cnp.ndarray a):
    return a.dtype.kind in "iu" or _is_double(a)


cdef cnp.ndarray _binary(int op, object a, object b, object out, object threads, str func):
    """Float types by a kernel, float64 and integers by NumPy."""
    cdef cnp.ndarray p = _arrays.as_array(a, func, "a"), q
    cdef tuple shape
    if _arrays.dtype_code(p) < 0 and _is_number(p):
        q = _arrays.as_array(b, func, "b")
        if q.dtype != p.dtype:
            raise TypeError(f"{func}: b: expected dtype {p.dtype}, got {q.dtype}")
        shape = _common_shape(p, q, func)
        _arrays.num_threads(threads, func)
        with np.errstate(all="ignore"):
            return _numpy_out(_divide(p, q) if op == QK_DIV else {QK_ADD: np.add, QK_SUB: np.subtract, QK_MUL: np.multiply}[op](p, q),
                              shape, p.dtype, out, func, {"a": p, "b": q})
    p = _input(p, _arrays.FLOATS, func, "a")
    q = _input(b, 1 << _arrays.dtype_code(p), func, "b")
    return _run(op, p, q, _common_shape(p, q, func), out, threads, func, "a", "b")


def _divide(p, q):
    """Integers toward zero."""
    if p.dtype.kind == "f":
        return p / q
    if not q.all():
        raise ZeroDivisionError("div: b: expected integers other than 0, got 0")
    quotient = np.floor_divide(p, q)
    return quotient + ((np.remainder(p, q) != 0) & ((p < 0) != (q < 0))).astype(p.dtype)


cdef cnp.ndarray _unary(int op, object x, object out, object threads, str func, object in_numpy, float alpha=0, float beta=0, str kinds="f"):
    """An operation on one operand: the float types by a kernel, float64 and integers of the `kinds` by NumPy."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x")
    cdef int code = _arrays.dtype_code(a)
    if code >= 0:
        return _run(op, a, a, _arrays.shape_of(a), out, threads, func, "x", "x", alpha, beta)
    if not _is_number(a) or a.dtype.kind not in kinds:
        also = "".join(f" or {also}" for kind, also in (("f", "float64"), ("i", "a signed integer type"), ("u", "an unsigned one")) if kind in kinds)
        raise TypeError(f"{func}: x: expected dtype {_arrays.names_of(_arrays.FLOATS)}{also}, got {a.dtype}")
    _arrays.num_threads(threads, func)
    with np.errstate(all="ignore"):
        return _numpy_out(in_numpy(a), _arrays.shape_of(a), a.dtype, out, func, {"x": a})


cdef cnp.ndarray _biased(int op, object x, object bias, object out, object threads, str func, object in_float64):
    """A function of x + bias, bias along the last axis; float64 by `in_float64`."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), b = _arrays.as_array(bias, func, "bias")
    cdef tuple shape = _arrays.shape_of(a)
    cdef bint double = _is_double(a)
    if not double:
        a = _input(a, _arrays.FLOATS, func, "x")
    if cnp.PyArray_TYPE(b) != cnp.PyArray_TYPE(a):
        raise TypeError(f"{func}: bias: expected dtype {a.dtype}, got {b.dtype}")
    if not shape:
        raise ValueError(f"{func}: x: expected at least 1 dimension, got a 0-d array")
    _arrays.check_shape(b, shape[len(shape) - 1:], func, "bias")
    if double:
        _arrays.num_threads(threads, func)
        with np.errstate(all="ignore"):
            return _numpy_out(in_float64((<object>a) + b), shape, a.dtype, out, func, {"x": a, "bias": b})
    return _run(op, a, b, shape, out, threads, func, "x", "bias")


def _each(f):
    """A function of Python floats over float64 arrays."""
    return lambda a: np.fromiter(map(f, a.ravel().tolist()), np.float64, a.size).reshape(a.shape)


_erf64 = _each(math.erf)
_gelu64 = _each(lambda x: 0.0 if x == -math.inf else x * 0.5 * math.erfc(-x * math.sqrt(0.5)))


def _gelu_tanh64(x):
    x = np.maximum(x, -50.0)
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _swish64(x, alpha):
    return np.where(np.isneginf(alpha * x), np.zeros_like(x), x / (1 + np.exp(-alpha * x)))


def _mish64(x):
    w = np.exp(np.minimum(x, 40.0))
    n = w * (w + 2)
    return np.where(np.isneginf(x), 0.0, x * (n / (n + 2)))


def _softsign64(x):
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


def _hard_swish64(x):
    return np.where(x > 3, x, np.maximum(x, -4.0) * np.clip(x + 3, 0, 6) / 6)


def add(a, b, *, out=None, threads=None):
    """The sum ``a + b`` with NumPy's broadcasting.

    ONNX ai.onnx Add, since version 13. Integers wrap around; float16 and bfloat16 are added in float32 and rounded once.

    Parameters
    ----------
    a : array, float32, float16, bfloat16, float64 or any integer type
        Any strides. float64 and integers go through NumPy.
    b : array of a's dtype
    out : ndarray, optional
        Result, C-contiguous; may be `a` or `b` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        The common shape, a's dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.add(np.float32([[1], [2]]), np.float32([10, 20]))
    array([[11., 21.],
           [12., 22.]], dtype=float32)
    """
    return _binary(QK_ADD, a, b, out, threads, "add")


def sub(a, b, *, out=None, threads=None):
    """The difference ``a - b`` with NumPy's broadcasting.

    ONNX ai.onnx Sub, since version 13. Integers wrap around; float16 and bfloat16 are subtracted in float32 and rounded once.

    Parameters
    ----------
    a, b, out, threads
        As in `add`.

    Returns
    -------
    ndarray
        The common shape, a's dtype.

    Raises
    ------
    TypeError, ValueError
        As in `add`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.sub(np.float32([1, 2]), np.float32(3))
    array([-2., -1.], dtype=float32)
    """
    return _binary(QK_SUB, a, b, out, threads, "sub")


def mul(a, b, *, out=None, threads=None):
    """The product ``a * b`` with NumPy's broadcasting.

    ONNX ai.onnx Mul, since version 13. Integers wrap around; float16 and bfloat16 are multiplied in float32 and rounded once.

    Parameters
    ----------
    a, b, out, threads
        As in `add`.

    Returns
    -------
    ndarray
        The common shape, a's dtype.

    Raises
    ------
    TypeError, ValueError
        As in `add`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.mul(np.float32([1, 2]), np.float32(3))
    array([3., 6.], dtype=float32)
    """
    return _binary(QK_MUL, a, b, out, threads, "mul")


def sigmoid(x, *, out=None, threads=None):
    """The logistic function ``1 / (1 + exp(-x))``.

    ONNX ai.onnx Sigmoid, since version 13. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16 or bfloat16
        Any strides.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype, values from 0 to 1; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.sigmoid(np.float32([-18, 0, 2]))
    array([1.5229979e-08, 5.0000000e-01, 8.8079709e-01], dtype=float32)
    """
    return _unary(QK_SIGMOID, x, out, threads, "sigmoid", lambda a: 1 / (1 + np.exp(-a)))


def silu(x, *, alpha=1.0, out=None, threads=None):
    """The sigmoid linear unit ``x * sigmoid(alpha * x)``, also called swish.

    ONNX ai.onnx Swish, since version 24. Correctly rounded for float16 and bfloat16 where alpha is 1; see docs/accuracy.md for the rest.

    Parameters
    ----------
    x : array, float32, float16 or bfloat16
        Any strides.
    alpha : float, default 1.0
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype. For infinities the limits: 0 where sigmoid goes to 0.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For an alpha that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.silu(np.float32([-6, 0, 2]))
    array([-0.01483574,  0.        ,  1.7615942 ], dtype=float32)
    """
    return _swish(x, alpha, out, threads, "silu")


cdef float _attribute(object value, str func, str name="alpha") except? -1:
    cdef float number = <float>_arrays.number(value, func, name)
    if not isfinite(number):
        raise ValueError(f"{func}: {name}: expected a finite number, got {value}")
    return number


cdef cnp.ndarray _swish(object x, object alpha, object out, object threads, str func):
    cdef cnp.ndarray a
    cdef float factor = _attribute(alpha, func)
    if factor == 0:  # sigmoid is 1/2
        a = _arrays.as_array(x, func, "x")
        if _arrays.dtype_code(a) >= 0:
            return _run(QK_MUL, a, np.asarray(0.5, a.dtype), _arrays.shape_of(a), out, threads, func, "x", "alpha")
    return _unary(QK_SILU if factor == 1 else QK_SWISH, x, out, threads, func, lambda v: _swish64(v, float(alpha)), 0 if factor == 1 else factor)


def silu_mul(gate, up=None, *, out=None, threads=None):
    """The gated unit of a feed-forward layer in one pass: ``silu(gate) * up``.

    Computed in float32 as ``mul(silu(gate), up)``, to the bit; for float16 and bfloat16 only the product is rounded to the type.

    Parameters
    ----------
    gate : array, float32, float16 or bfloat16
        Any strides; without `up`, (..., 2 n) with gate and up side by side in the last axis.
    up : array of gate's shape and dtype, optional
    out : ndarray, optional
        Result, C-contiguous; may be `gate` or `up` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        gate's dtype; its shape, or (..., n) without `up`.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.silu_mul(np.float32([2, -6]), np.float32([1, 10]))
    array([ 1.7615942 , -0.14835739], dtype=float32)
    >>> qkernels.silu_mul(np.float32([2, -6, 1, 10]))
    array([ 1.7615942 , -0.14835739], dtype=float32)
    """
    cdef str func = "silu_mul"
    cdef cnp.ndarray a = _input(gate, _arrays.FLOATS, func, "gate"), b
    cdef tuple shape = _arrays.shape_of(a)
    if up is None:
        if not shape or shape[len(shape) - 1] % 2:
            raise ValueError(f"{func}: gate: expected an even last dimension where up is None, got shape {shape}")
        n = shape[len(shape) - 1] // 2
        a, b = a[..., :n], a[..., n:]
        shape = _arrays.shape_of(a)
    else:
        b = _input(up, 1 << _arrays.dtype_code(a), func, "up")
        _arrays.check_shape(b, shape, func, "up")
    return _run(QK_SILU_MUL, a, b, shape, out, threads, func, "gate", "up")


def div(a, b, *, out=None, threads=None):
    """The quotient ``a / b`` with NumPy's broadcasting.

    ONNX ai.onnx Div, since version 13. Integers are divided toward zero; float16 and bfloat16 in float32, rounded once.

    Parameters
    ----------
    a, b, out, threads
        As in `add`.

    Returns
    -------
    ndarray
        The common shape, a's dtype.

    Raises
    ------
    TypeError, ValueError
        As in `add`.
    ZeroDivisionError
        For an integer 0 in b.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.div(np.float32([1, 2]), np.float32(4))
    array([0.25, 0.5 ], dtype=float32)
    >>> qkernels.div(np.int32([7, -7]), np.int32([2]))
    array([ 3, -3], dtype=int32)
    """
    return _binary(QK_DIV, a, b, out, threads, "div")


def pow(a, b, *, out=None, threads=None):
    """The power ``a ** b`` with NumPy's broadcasting.

    ONNX ai.onnx Pow, since version 13. Float types by way of double precision, with the special values of C's pow; exact where the power is a
    number of the type.

    Parameters
    ----------
    a : array, float32, float16, bfloat16, float64, int32 or int64
    b : array, any of these, or of another integer type
        Any strides. Its type does not change the result's.
    out : ndarray, optional
        Result of a's dtype, C-contiguous; may be `a` or `b` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        The common shape, a's dtype. Integers wrap around, and a power that is no integer is truncated toward zero.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape.
    ZeroDivisionError
        For an integer 0 to a negative integer power.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.pow(np.float32([1, 2, 3]), np.float32(2))
    array([1., 4., 9.], dtype=float32)
    >>> qkernels.pow(np.float32([4]), np.int64([-1, 3]))
    array([ 0.25, 64.  ], dtype=float32)
    """
    cdef str func = "pow"
    cdef cnp.ndarray p = _arrays.as_array(a, func, "a"), q = _arrays.as_array(b, func, "b"), exponent
    cdef int code = _arrays.dtype_code(p)
    cdef tuple shape
    if code < 0 and p.dtype not in (np.float64, np.int32, np.int64):
        raise TypeError(f"{func}: a: expected dtype float32, float16, bfloat16, float64, int32 or int64, got {p.dtype}")
    if _arrays.dtype_code(q) < 0 and not _is_number(q):
        raise TypeError(f"{func}: b: expected a dtype of numbers, got {q.dtype}")
    shape = _common_shape(p, q, func)
    if code >= 0:
        if q.dtype == p.dtype:
            if q.size == 1 and q.item() == 2:  # the square of a norm, which the function would give as well
                return _run(QK_MUL, p, p, shape, out, threads, func, "a", "a") if shape == _arrays.shape_of(p) else \
                       _run(QK_MUL, np.broadcast_to(p, shape), np.broadcast_to(p, shape), shape, out, threads, func, "a", "a")
            return _run(QK_POW, p, q, shape, out, threads, func, "a", "b")
        with np.errstate(all="ignore"):
            exponent = q.astype(p.dtype)
        exact = q.dtype.itemsize < 8 or not q.size or np.abs(q.astype(np.float64)).max() < 2.0**53
        if exact and np.array_equal(exponent.astype(np.float64), q.astype(np.float64)):
            if out is not None:
                _check_out(_arrays.output(out, shape, code, func), q, func, "b")
            return pow(p, exponent, out=out, threads=threads)
    _arrays.num_threads(threads, func)
    with np.errstate(all="ignore"):
        return _numpy_out(_power(p, q), shape, p.dtype, out, func, {"a": p, "b": q})


def _power(p, q):
    """Whatever pairs of types, through float64 or exactly in integers."""
    if p.dtype.kind not in "iu":
        return np.power(p.astype(np.float64), q.astype(np.float64)).astype(p.dtype)
    if q.dtype.kind not in "iu":
        return np.trunc(np.power(p.astype(np.float64), q.astype(np.float64))).astype(p.dtype)
    p, q = np.broadcast_arrays(p, q)
    negative = q < 0
    if (negative & (p == 0)).any():
        raise ZeroDivisionError("pow: a: expected integers other than 0 for negative powers, got 0")
    wide = np.power(p.astype(np.int64), np.where(negative, 0, q).astype(np.uint64).astype(np.int64)).astype(p.dtype)
    inverse = np.where(np.abs(p) == 1, np.where(q % 2 == 0, 1, p), 0)  # 1 / a^n toward zero
    return np.where(negative, inverse, wide).astype(p.dtype)


def neg(x, *, out=None, threads=None):
    """The negative ``-x``; of a float only the sign bit changes.

    ONNX ai.onnx Neg, since version 13. Signed integers wrap around.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or a signed integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.neg(np.float32([1, -2]))
    array([-1.,  2.], dtype=float32)
    """
    return _unary(QK_NEG, x, out, threads, "neg", np.negative, 0, 0, "fi")


def sqrt(x, *, out=None, threads=None):
    """The square root, correctly rounded; NaN below zero.

    ONNX ai.onnx Sqrt, since version 13.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.sqrt(np.float32([4, 2]))
    array([2.       , 1.4142135], dtype=float32)
    """
    return _unary(QK_SQRT, x, out, threads, "sqrt", np.sqrt)


def exp(x, *, out=None, threads=None):
    """The exponential function ``e ** x``.

    ONNX ai.onnx Exp, since version 13. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.exp(np.float32([0, 1]))
    array([1.       , 2.7182817], dtype=float32)
    """
    return _unary(QK_EXP, x, out, threads, "exp", np.exp)


def log(x, *, out=None, threads=None):
    """The natural logarithm; -inf for 0, NaN below.

    ONNX ai.onnx Log, since version 13. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.log(np.float32([1, 10]))
    array([0.       , 2.3025851], dtype=float32)
    """
    return _unary(QK_LOG, x, out, threads, "log", np.log)


def sin(x, *, out=None, threads=None):
    """The sine of radians, exact for arguments of any size.

    ONNX ai.onnx Sin, since version 7. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.sin(np.float32([0, 1]))
    array([0.        , 0.84147096], dtype=float32)
    """
    return _unary(QK_SIN, x, out, threads, "sin", np.sin)


def cos(x, *, out=None, threads=None):
    """The cosine of radians, exact for arguments of any size.

    ONNX ai.onnx Cos, since version 7. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.cos(np.float32([0, 1]))
    array([1.       , 0.5403023], dtype=float32)
    """
    return _unary(QK_COS, x, out, threads, "cos", np.cos)


def tanh(x, *, out=None, threads=None):
    """The hyperbolic tangent.

    ONNX ai.onnx Tanh, since version 13. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.tanh(np.float32([0, 1]))
    array([0.       , 0.7615942], dtype=float32)
    """
    return _unary(QK_TANH, x, out, threads, "tanh", np.tanh)


def erf(x, *, out=None, threads=None):
    """The error function.

    ONNX ai.onnx Erf, since version 13. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.erf(np.float32([0, 1]))
    array([0.       , 0.8427008], dtype=float32)
    """
    return _unary(QK_ERF, x, out, threads, "erf", _erf64)


def reciprocal(x, *, out=None, threads=None):
    """The reciprocal ``1 / x``.

    ONNX ai.onnx Reciprocal, since version 13. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.reciprocal(np.float32([4, -3]))
    array([ 0.25      , -0.33333334], dtype=float32)
    """
    return _unary(QK_RECIPROCAL, x, out, threads, "reciprocal", np.reciprocal)


def softplus(x, *, out=None, threads=None):
    """The softplus ``log(1 + exp(x))``, which does not overflow: x for a large x, exp(x) for a very negative one.

    ONNX ai.onnx Softplus, since version 1. Correctly rounded for float16 and bfloat16; see docs/accuracy.md
    for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.softplus(np.float32([-100, 0, 100]))
    array([3.783506e-44, 6.931472e-01, 1.000000e+02], dtype=float32)
    """
    return _unary(QK_SOFTPLUS, x, out, threads, "softplus", lambda a: np.logaddexp(0, a))


def gelu(x, *, approximate="none", out=None, threads=None):
    """The Gaussian error linear unit ``x * Phi(x)``, Phi the normal distribution function.

    ONNX ai.onnx Gelu, since version 20. Phi comes from its own tail, so nothing cancels for negative x: the relative error stays that of one
    rounding down to the smallest results. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides.
    approximate : {"none", "tanh"}, default "none"
        "tanh": ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`` instead.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype; for minus infinity the limit 0.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For another `approximate`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.gelu(np.float32([-6, 1]))
    array([-5.9195258e-09,  8.4134471e-01], dtype=float32)
    >>> qkernels.gelu(np.float32([-6, 1]), approximate="tanh")
    array([-8.439647e-11,  8.411920e-01], dtype=float32)
    """
    if approximate == "none":
        return _unary(QK_GELU, x, out, threads, "gelu", _gelu64)
    if approximate == "tanh":
        return _unary(QK_GELU_TANH, x, out, threads, "gelu", _gelu_tanh64)
    raise ValueError(f"gelu: approximate: expected 'none' or 'tanh', got {approximate!r}")


def quick_gelu(x, *, alpha=1.702, out=None, threads=None):
    """The sigmoid approximation of GELU, ``x * sigmoid(alpha * x)``.

    com.microsoft QuickGelu, since version 1: `silu` with another default.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides.
    alpha : float, default 1.702
    out, threads
        As in `silu`.

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As in `silu`.

    Examples
    --------
    >>> import numpy as np
    >>> from qkernels import contrib
    >>> contrib.quick_gelu(np.float32([-6, 1]))
    array([-2.2035353e-04,  8.4579575e-01], dtype=float32)
    """
    return _swish(x, alpha, out, threads, "quick_gelu")


def bias_gelu(x, bias, *, out=None, threads=None):
    """GELU of a sum, ``gelu(x + bias)``, in one pass.

    com.microsoft BiasGelu, since version 1. The sum is float32 and not rounded to a 16-bit type before the function; float64 goes through NumPy.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        At least one dimension, any strides.
    bias : array of x's dtype, (x.shape[-1],)
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
        For a shape.

    Examples
    --------
    >>> import numpy as np
    >>> from qkernels import contrib
    >>> contrib.bias_gelu(np.float32([[-7, 0]]), np.float32([1, 1]))
    array([[-5.9195258e-09,  8.4134471e-01]], dtype=float32)
    """
    return _biased(QK_BIAS_GELU, x, bias, out, threads, "bias_gelu", _gelu64)


def fast_gelu(x, bias=None, *, out=None, threads=None):
    """The tanh approximation of GELU of a sum, ``gelu(x + bias, approximate="tanh")``, in one pass.

    com.microsoft FastGelu, since version 1. The sum is float32 and not rounded to a 16-bit type before the function; float64 goes through NumPy.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides.
    bias : array of x's dtype, (x.shape[-1],), optional
    out, threads
        As in `bias_gelu`.

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As in `bias_gelu`.

    Examples
    --------
    >>> import numpy as np
    >>> from qkernels import contrib
    >>> contrib.fast_gelu(np.float32([[-7, 0]]), np.float32([1, 1]))
    array([[-8.439647e-11,  8.411920e-01]], dtype=float32)
    """
    if bias is None:
        return _unary(QK_GELU_TANH, x, out, threads, "fast_gelu", _gelu_tanh64)
    return _biased(QK_BIAS_GELU_TANH, x, bias, out, threads, "fast_gelu", _gelu_tanh64)


def swish(x, *, alpha=1.0, out=None, threads=None):
    """The swish function ``x * sigmoid(alpha * x)``: `silu` under its ONNX name.

    ONNX ai.onnx Swish, since version 24.

    Parameters
    ----------
    x, alpha, out, threads
        As in `silu`; float64 as well, through NumPy.

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As in `silu`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.swish(np.float32([-6, 0, 2]))
    array([-0.01483574,  0.        ,  1.7615942 ], dtype=float32)
    """
    return _swish(x, alpha, out, threads, "swish")


def swiglu(a, b, *, alpha=1.0, out=None, threads=None):
    """The gated unit ``swish(a, alpha=alpha) * b`` in one pass.

    ONNX ai.onnx SwiGLU, since version 28. Computed in float32; only the product is rounded to a 16-bit type.

    Parameters
    ----------
    a : array, float32, float16, bfloat16 or float64
        The gate, any strides.
    b : array of a's shape and dtype
    alpha : float, default 1.0
    out : ndarray, optional
        Result, C-contiguous; may be `a` or `b` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        a's shape and dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape, or an alpha that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.swiglu(np.float32([2, -6]), np.float32([1, 10]))
    array([ 1.7615942 , -0.14835739], dtype=float32)
    """
    cdef str func = "swiglu"
    cdef float factor = _attribute(alpha, func)
    cdef cnp.ndarray p = _arrays.as_array(a, func, "a"), q
    if p.dtype == np.float64:
        q = _arrays.as_array(b, func, "b")
        if q.dtype != p.dtype:
            raise TypeError(f"{func}: b: expected dtype {p.dtype}, got {q.dtype}")
        _arrays.check_shape(q, _arrays.shape_of(p), func, "b")
        _arrays.num_threads(threads, func)
        with np.errstate(all="ignore"):
            return _numpy_out(_swish64(p, float(alpha)) * q, _arrays.shape_of(p), p.dtype, out, func, {"a": p, "b": q})
    p = _input(p, _arrays.FLOATS, func, "a")
    q = _input(b, 1 << _arrays.dtype_code(p), func, "b")
    _arrays.check_shape(q, _arrays.shape_of(p), func, "b")
    return _run(QK_SILU_MUL if factor == 1 else QK_SWISH_MUL, p, q, _arrays.shape_of(p), out, threads, func, "a", "b", factor)


def abs(x, *, out=None, threads=None):
    """The absolute value; of a float only the sign bit changes.

    ONNX ai.onnx Abs, since version 13. The least integer of a type wraps around.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or any integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.abs(np.float32([-3, 5]))
    array([3., 5.], dtype=float32)
    """
    return _unary(QK_ABS, x, out, threads, "abs", np.absolute, 0, 0, "fiu")


def sign(x, *, out=None, threads=None):
    """-1, 0 or 1; NaN for NaN.

    ONNX ai.onnx Sign, since version 13.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or any integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.sign(np.float32([-3, 0, 5]))
    array([-1.,  0.,  1.], dtype=float32)
    """
    return _unary(QK_SIGN, x, out, threads, "sign", np.sign, 0, 0, "fiu")


def floor(x, *, out=None, threads=None):
    """The largest whole number that is not larger.

    ONNX ai.onnx Floor, since version 13. The sign of a zero stays, and so do infinities and NaN.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.floor(np.float32([1.5, -1.5]))
    array([ 1., -2.], dtype=float32)
    """
    return _unary(QK_FLOOR, x, out, threads, "floor", np.floor)


def ceil(x, *, out=None, threads=None):
    """The smallest whole number that is not smaller.

    ONNX ai.onnx Ceil, since version 13. The sign of a zero stays, and so do infinities and NaN.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.ceil(np.float32([1.5, -1.5]))
    array([ 2., -1.], dtype=float32)
    """
    return _unary(QK_CEIL, x, out, threads, "ceil", np.ceil)


def round(x, *, out=None, threads=None):
    """The nearest whole number, halves to even.

    ONNX ai.onnx Round, since version 11. The sign of a zero stays, and so do infinities and NaN.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.round(np.float32([0.5, 1.5, -2.6]))
    array([ 0.,  2., -3.], dtype=float32)
    """
    return _unary(QK_ROUND, x, out, threads, "round", np.rint)


def relu(x, *, out=None, threads=None):
    """x, but 0 below 0; NaN for NaN.

    ONNX ai.onnx Relu, since version 13.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or a signed integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.relu(np.float32([-3, 5]))
    array([0., 5.], dtype=float32)
    """
    return _unary(QK_RELU, x, out, threads, "relu", lambda v: np.maximum(v, v.dtype.type(0)), 0, 0, "fi")


def leaky_relu(x, *, alpha=0.01, out=None, threads=None):
    """x, but ``alpha * x`` below 0.

    ONNX ai.onnx LeakyRelu, since version 6. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 0.01
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
        For an attribute that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.leaky_relu(np.float32([-3, 5]), alpha=0.5)
    array([-1.5,  5. ], dtype=float32)
    """
    cdef float slope = _attribute(alpha, "leaky_relu")
    return _unary(QK_LEAKY_RELU, x, out, threads, "leaky_relu", lambda v: np.where(v < 0, np.float64(slope) * v, v), slope)


def thresholded_relu(x, *, alpha=1.0, out=None, threads=None):
    """x above alpha, else 0; NaN for NaN.

    ONNX ai.onnx ThresholdedRelu, since version 10.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1.0
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
        For an attribute that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.thresholded_relu(np.float32([-3, 1, 5]))
    array([0., 0., 5.], dtype=float32)
    """
    cdef float threshold = _attribute(alpha, "thresholded_relu")
    return _unary(QK_THRESHOLDED_RELU, x, out, threads, "thresholded_relu", lambda v: np.where(v <= threshold, 0.0, v), threshold)


def elu(x, *, alpha=1.0, out=None, threads=None):
    """x, but ``alpha * (exp(x) - 1)`` below 0.

    ONNX ai.onnx Elu, since version 6. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1.0
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
        For an attribute that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.elu(np.float32([-1, 5]))
    array([-0.63212055,  5.        ], dtype=float32)
    """
    cdef float scale = _attribute(alpha, "elu")
    return _unary(QK_ELU, x, out, threads, "elu", lambda v: np.where(v < 0, scale * np.expm1(v), v), scale)


def celu(x, *, alpha=1.0, out=None, threads=None):
    """x, but ``alpha * (exp(x / alpha) - 1)`` below 0.

    ONNX ai.onnx Celu, since version 12. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1.0
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
        For an attribute that is not finite, or 0.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.celu(np.float32([-1, 5]), alpha=2)
    array([-0.78693867,  5.        ], dtype=float32)
    """
    cdef float scale = _attribute(alpha, "celu")
    if scale == 0:
        raise ValueError(f"celu: alpha: expected a number other than 0, got {alpha}")
    return _unary(QK_CELU, x, out, threads, "celu", lambda v: np.where(v < 0, scale * np.expm1(v / scale), v), scale)


def selu(x, *, alpha=1.6732632, gamma=1.050701, out=None, threads=None):
    """``gamma * x``, but ``gamma * alpha * (exp(x) - 1)`` below 0.

    ONNX ai.onnx Selu, since version 6. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1.6732632
    gamma : float, default 1.050701
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
        For an attribute that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.selu(np.float32([-1, 5]))
    array([-1.1113307,  5.253505 ], dtype=float32)
    """
    cdef float scale = _attribute(alpha, "selu"), factor = _attribute(gamma, "selu", "gamma")
    return _unary(QK_SELU, x, out, threads, "selu", lambda v: np.where(v < 0, <double>factor * scale * np.expm1(v), factor * v), scale, factor)


def mish(x, *, out=None, threads=None):
    """``x * tanh(softplus(x))``.

    ONNX ai.onnx Mish, since version 18. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype; for minus infinity the limit 0.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.mish(np.float32([-6, 0, 100]))
    array([-1.485408e-02,  0.000000e+00,  1.000000e+02], dtype=float32)
    """
    return _unary(QK_MISH, x, out, threads, "mish", _mish64)


def softsign(x, *, out=None, threads=None):
    """``x / (1 + abs(x))``.

    ONNX ai.onnx Softsign, since version 1. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype; for infinities the limits -1 and 1.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.softsign(np.float32([-3, 0, 1]))
    array([-0.75,  0.  ,  0.5 ], dtype=float32)
    """
    return _unary(QK_SOFTSIGN, x, out, threads, "softsign", _softsign64)


def hard_sigmoid(x, *, alpha=0.2, beta=0.5, out=None, threads=None):
    """``alpha * x + beta`` within 0 and 1.

    ONNX ai.onnx HardSigmoid, since version 6. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 0.2
    beta : float, default 0.5
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
        For an attribute that is not finite.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.hard_sigmoid(np.float32([-3, 0, 1]))
    array([0. , 0.5, 0.7], dtype=float32)
    """
    cdef float slope = _attribute(alpha, "hard_sigmoid"), offset = _attribute(beta, "hard_sigmoid", "beta")
    return _unary(QK_HARD_SIGMOID, x, out, threads, "hard_sigmoid", lambda v: np.clip(<double>slope * v + <double>offset, 0, 1), slope, offset)


def hard_swish(x, *, out=None, threads=None):
    """``x * (x + 3) / 6``, 0 up to -3, x from 3 on.

    ONNX ai.onnx HardSwish, since version 14. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype; for minus infinity the limit 0.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.hard_swish(np.float32([-4, -1, 0, 1, 4]))
    array([-0.        , -0.33333334,  0.        ,  0.6666667 ,  4.        ],
          dtype=float32)
    """
    return _unary(QK_HARD_SWISH, x, out, threads, "hard_swish", _hard_swish64)


def prelu(x, slope, *, out=None, threads=None):
    """x, but ``slope * x`` below 0.

    ONNX ai.onnx PRelu, since version 9.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or any integer type
        Any strides. float64 and integers go through NumPy.
    slope : array of x's dtype
        A shape that broadcasts to x's.
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
        For a shape.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.prelu(np.float32([[-3, 5], [-1, -2]]), np.float32([0.5, 2]))
    array([[-1.5,  5. ],
           [-0.5, -4. ]], dtype=float32)
    """
    cdef str func = "prelu"
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x"), b = _arrays.as_array(slope, func, "slope")
    cdef tuple shape = _arrays.shape_of(a)
    cdef bint ours = _arrays.dtype_code(a) >= 0
    if not ours and not _is_number(a):
        raise TypeError(f"{func}: x: expected dtype {_arrays.names_of(_arrays.FLOATS)} or float64 or an integer type, got {a.dtype}")
    if b.dtype != a.dtype:
        raise TypeError(f"{func}: slope: expected dtype {a.dtype}, got {b.dtype}")
    try:
        fits = np.broadcast_shapes(shape, _arrays.shape_of(b)) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{func}: slope: expected a shape that broadcasts to {shape}, got {_arrays.shape_of(b)}")
    if ours:
        return _run(QK_PRELU, a, b, shape, out, threads, func, "x", "slope")
    _arrays.num_threads(threads, func)
    with np.errstate(all="ignore"):
        return _numpy_out(np.where(a < 0, np.multiply(a, b), a), shape, a.dtype, out, func, {"x": a, "slope": b})


def clip(x, min=None, max=None, *, out=None, threads=None):
    """x limited to an interval: ``min(max(x, lower), upper)``.

    ONNX ai.onnx Clip, since version 13.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or any integer type
        Any strides. float64 and integers go through NumPy.
    min, max : array of one element of x's dtype, optional
        The lower and upper limits. Where the lower is above the upper, everything is the upper.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's shape and dtype; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a limit of more than one element.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.clip(np.float32([-1, 0.5, 7]), np.float32(0), np.float32(6))
    array([0. , 0.5, 6. ], dtype=float32)
    """
    cdef str func = "clip"
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x")
    cdef object low = _limit(a, min, "min"), high = _limit(a, max, "max")
    cdef double least = -math.inf if low is None else low, most = math.inf if high is None else high
    if _arrays.dtype_code(a) >= 0 and least == least and most == most:
        return _run(QK_CLIP, a, a, _arrays.shape_of(a), out, threads, func, "x", "x", least, most)
    if _arrays.dtype_code(a) < 0 and not _is_number(a):
        raise TypeError(f"{func}: x: expected dtype {_arrays.names_of(_arrays.FLOATS)} or float64 or an integer type, got {a.dtype}")
    _arrays.num_threads(threads, func)
    values = a.copy() if low is None and high is None else a
    with np.errstate(all="ignore"):
        values = values if low is None else np.maximum(values, low)
        values = values if high is None else np.minimum(values, high)
    return _numpy_out(values, _arrays.shape_of(a), a.dtype, out, func, {"x": a})


def _limit(cnp.ndarray a, limit, str arg):
    """One element of a's dtype, or None."""
    if limit is None:
        return None
    cdef cnp.ndarray b = _arrays.as_array(limit, "clip", arg)
    if b.dtype != a.dtype:
        raise TypeError(f"clip: {arg}: expected dtype {a.dtype}, got {b.dtype}")
    if b.size != 1:
        raise ValueError(f"clip: {arg}: expected one element, got shape {_arrays.shape_of(b)}")
    return b.reshape(())[()]
