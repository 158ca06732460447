"""Arithmetic with broadcasting and functions of single elements: ai.onnx Add, Sub, Mul, Div, Pow, Sigmoid, Swish, SwiGLU, Gelu, Exp, Sin and
others, com.microsoft's Gelu family, and the product of SiLU and a second array."""
import math
cimport numpy as cnp
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint16_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "elementwise/elementwise.h" nogil:
    enum:
        QK_ADD, QK_SUB, QK_MUL, QK_SILU_MUL, QK_SIGMOID, QK_SILU, QK_SWISH, QK_DIV, QK_NEG, QK_SQRT, QK_SWISH_MUL, QK_FUNCTION, QK_SIMPLE, QK_LOOKUP
    enum:
        QK_GELU, QK_BIAS_GELU, QK_GELU_TANH, QK_BIAS_GELU_TANH, QK_ERF, QK_EXP, QK_LOG, QK_SOFTPLUS, QK_TANH, QK_RECIPROCAL, QK_SIN, QK_COS, QK_POW
        QK_SOFTSIGN, QK_ELU, QK_CELU, QK_SELU, QK_MISH, QK_HARD_SIGMOID, QK_HARD_SWISH, QK_LEAKY_RELU
        QK_ABS, QK_FLOOR, QK_CEIL, QK_ROUND, QK_SIGN, QK_RELU, QK_CLIP, QK_THRESHOLDED_RELU, QK_PRELU
    ctypedef struct qk_elementwise_args:
        const char *a
        const char *b
        char *y
        int op, function, dtype, axes
        float alpha, beta
        const uint16_t *table
        int64_t shape[64]
        int64_t a_step[64]
        int64_t b_step[64]
    void qk_elementwise(int isa, int threads, const qk_elementwise_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 16
    GRAIN_FUNCTION = 1 << 13


cdef cnp.ndarray _input(object x, int allowed, str func, str arg, str more=""):
    """A float array with whatever strides; `more`: what the function takes besides."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    cdef int code = _arrays.dtype_code(a)
    if code < 0 or not (allowed >> code) & 1:
        raise TypeError(f"{func}: {arg}: expected dtype {_arrays.names_of(allowed)}{more}, got {a.dtype}")
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


_tables = {}  # (tier, op, function, dtype, alpha, beta): the results of a function of a 16-bit type, or how many elements it has seen

cdef enum:
    TABLES_FROM = 1 << 15  # elements that pay for a table
    TABLES = 64            # of 128 KiB at most


cdef cnp.ndarray _table(const qk_elementwise_args *call, int64_t size):
    """The results for all 65,536 inputs as bits, once a function has seen enough elements; None before."""
    cdef qk_elementwise_args args
    cdef cnp.ndarray x, y
    key = (_runtime.isa(), call.op, call.function, call.dtype, call.alpha, call.beta)
    known = _tables.get(key, 0)
    if type(known) is np.ndarray:
        return known
    if known + size < TABLES_FROM or len(_tables) >= TABLES and key not in _tables:
        if len(_tables) < TABLES or key in _tables:
            _tables[key] = known + size
        return None
    x, y = np.arange(65536, dtype=np.uint16), np.empty(65536, np.uint16)
    args = call[0]
    args.a = args.b = cnp.PyArray_BYTES(x)
    args.y = cnp.PyArray_BYTES(y)
    args.axes, args.shape[0], args.a_step[0], args.b_step[0] = 1, 65536, 2, 2
    with nogil:
        qk_elementwise(_runtime.isa(), 1, &args)
    y.flags.writeable = False
    _tables[key] = y
    return y


cdef cnp.ndarray _run(int op, cnp.ndarray a, cnp.ndarray b, tuple shape, float alpha, object out, object threads, str func, str a_name, str b_name,
                      int function=0, float beta=0):
    cdef int code = _arrays.dtype_code(a), n = _arrays.num_threads(threads, func)
    cdef cnp.ndarray y = _arrays.output(out, shape, code, func)
    cdef cnp.ndarray table
    cdef qk_elementwise_args args
    if out is not None:
        _check_out(y, a, func, a_name)
        if b is not a:
            _check_out(y, b, func, b_name)
    if cnp.PyArray_SIZE(y):
        _collapse(&args, a, b, y)
        args.a, args.b, args.y = cnp.PyArray_BYTES(a), cnp.PyArray_BYTES(b), cnp.PyArray_BYTES(y)
        args.op, args.function, args.dtype, args.alpha, args.beta = op, function, code, alpha, beta
        if code != _arrays.F32 and a is b and (op == QK_FUNCTION or op == QK_SIGMOID or op == QK_SILU or op == QK_SWISH):
            table = _table(&args, cnp.PyArray_SIZE(y))
            if table is not None:
                args.op, args.table = QK_LOOKUP, <const uint16_t *>cnp.PyArray_DATA(table)
        n = _arrays.worth(n, cnp.PyArray_SIZE(y), GRAIN_FUNCTION if op == QK_FUNCTION else GRAIN)
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
    return _run(op, p, q, _common_shape(p, q, func), 0, out, threads, func, "a", "b")


def _divide(p, q):
    """Integers toward zero."""
    if p.dtype.kind == "f":
        return p / q
    if not q.all():
        raise ZeroDivisionError("div: b: expected integers other than 0, got 0")
    quotient = np.floor_divide(p, q)
    return quotient + ((np.remainder(p, q) != 0) & ((p < 0) != (q < 0))).astype(p.dtype)


cdef cnp.ndarray _function(int function, object x, object out, object threads, str func, object in_float64, float alpha=0, float beta=0):
    """A function of one operand; float64 by `in_float64`."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x")
    if _is_double(a):
        _arrays.num_threads(threads, func)
        with np.errstate(all="ignore"):
            return _numpy_out(in_float64(a), _arrays.shape_of(a), a.dtype, out, func, {"x": a})
    a = _input(a, _arrays.FLOATS, func, "x", " or float64")
    return _run(QK_FUNCTION, a, a, _arrays.shape_of(a), alpha, out, threads, func, "x", "x", function, beta)


cdef cnp.ndarray _simple(int op, object x, object out, object threads, str func, object in_numpy, str kinds, int function=0,
                         float alpha=0, float beta=0):
    """The same for an operation of its own; `kinds` of other numbers that NumPy does."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x")
    if _arrays.dtype_code(a) < 0 and _is_number(a) and a.dtype.kind in kinds:
        _arrays.num_threads(threads, func)
        with np.errstate(all="ignore"):
            return _numpy_out(in_numpy(a), _arrays.shape_of(a), a.dtype, out, func, {"x": a})
    a = _input(a, _arrays.FLOATS, func, "x", {"f": " or float64", "fi": " or float64 or a signed integer type", "fiu": " or float64 or an integer type"}[kinds])
    return _run(op, a, a, _arrays.shape_of(a), alpha, out, threads, func, "x", "x", function, beta)


cdef cnp.ndarray _biased(int function, object x, object bias, object out, object threads, str func, object in_float64):
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
    return _run(QK_FUNCTION, a, b, shape, 0, out, threads, func, "x", "bias", function)


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


cdef float _attribute(object value, str func, str arg) except? -1:
    """A finite number as an attribute's float32."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{func}: {arg}: expected a number, got {type(value).__name__}")
    if not isfinite(<float>value):
        raise ValueError(f"{func}: {arg}: expected a finite number, got {value}")
    return value


cdef bint _broadcasts(cnp.ndarray a, tuple shape):
    """Whether `a` can be repeated to the shape."""
    cdef int missing = len(shape) - cnp.PyArray_NDIM(a), i
    if missing < 0:
        return False
    for i in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_DIM(a, i) != 1 and cnp.PyArray_DIM(a, i) != shape[missing + i]:
            return False
    return True


cdef bint _is_kernels(cnp.ndarray a):
    return _arrays.dtype_code(a) >= 0


def _limit(value, x, arg):
    """A limit of `clip` as a 0-d array, or None."""
    if value is None:
        return None
    limit = _arrays.as_array(value, "clip", arg)
    if limit.dtype != x.dtype:
        raise TypeError(f"clip: {arg}: expected dtype {x.dtype}, got {limit.dtype}")
    if limit.size != 1:
        raise ValueError(f"clip: {arg}: expected one element, got shape {_arrays.shape_of(limit)}")
    return limit.reshape(())


def _relu64(x):
    return np.maximum(x, np.zeros((), x.dtype))


def _mish64(x):
    x = np.maximum(x, -800.0)
    e = np.exp(np.minimum(x, 60.0))
    return x * (e * (e + 2) / (e * (e + 2) + 2))


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
    return _simple(QK_SIGMOID, x, out, threads, "sigmoid", lambda a: 1 / (1 + np.exp(-a)), "f")


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


cdef float _alpha(object alpha, str func) except? -1:
    cdef float factor = <float>_arrays.number(alpha, func, "alpha")
    if not isfinite(factor):
        raise ValueError(f"{func}: alpha: expected a finite number, got {alpha}")
    return factor


cdef cnp.ndarray _swish(object x, object alpha, object out, object threads, str func):
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x")
    cdef float factor = _alpha(alpha, func)
    if _is_double(a):
        _arrays.num_threads(threads, func)
        with np.errstate(all="ignore"):
            return _numpy_out(_swish64(a, float(alpha)), _arrays.shape_of(a), a.dtype, out, func, {"x": a})
    a = _input(a, _arrays.FLOATS, func, "x")
    if factor == 0:  # sigmoid is 1/2
        return _run(QK_MUL, a, np.asarray(0.5, a.dtype), _arrays.shape_of(a), 0, out, threads, func, "x", "alpha")
    return _run(QK_SILU if factor == 1 else QK_SWISH, a, a, _arrays.shape_of(a), factor, out, threads, func, "x", "x")


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
    return _run(QK_SILU_MUL, a, b, shape, 0, out, threads, func, "gate", "up")


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
                return _run(QK_MUL, p, p, shape, 0, out, threads, func, "a", "a") if shape == _arrays.shape_of(p) else \
                       _run(QK_MUL, np.broadcast_to(p, shape), np.broadcast_to(p, shape), shape, 0, out, threads, func, "a", "a")
            return _run(QK_FUNCTION, p, q, shape, 0, out, threads, func, "a", "b", QK_POW)
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
    return _simple(QK_NEG, x, out, threads, "neg", np.negative, "fi")


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
    return _simple(QK_SQRT, x, out, threads, "sqrt", np.sqrt, "f")


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
    return _function(QK_EXP, x, out, threads, "exp", np.exp)


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
    return _function(QK_LOG, x, out, threads, "log", np.log)


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
    return _function(QK_SIN, x, out, threads, "sin", np.sin)


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
    return _function(QK_COS, x, out, threads, "cos", np.cos)


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
    return _function(QK_TANH, x, out, threads, "tanh", np.tanh)


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
    return _function(QK_ERF, x, out, threads, "erf", _erf64)


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
    return _simple(QK_SIMPLE, x, out, threads, "reciprocal", np.reciprocal, "f", QK_RECIPROCAL)


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
    return _function(QK_SOFTPLUS, x, out, threads, "softplus", lambda a: np.logaddexp(0, a))


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
    array([-5.9195258e-09,  8.4134477e-01], dtype=float32)
    >>> qkernels.gelu(np.float32([-6, 1]), approximate="tanh")
    array([-8.439647e-11,  8.411920e-01], dtype=float32)
    """
    if approximate == "none":
        return _function(QK_GELU, x, out, threads, "gelu", _gelu64)
    if approximate == "tanh":
        return _function(QK_GELU_TANH, x, out, threads, "gelu", _gelu_tanh64)
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
    array([[-5.9195258e-09,  8.4134477e-01]], dtype=float32)
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
        return _function(QK_GELU_TANH, x, out, threads, "fast_gelu", _gelu_tanh64)
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
    cdef float factor = _alpha(alpha, func)
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
    return _run(QK_SILU_MUL if factor == 1 else QK_SWISH_MUL, p, q, _arrays.shape_of(p), factor, out, threads, func, "a", "b")


def abs(x, *, out=None, threads=None):
    """Absolute values; the least integer of a type wraps around.

    ONNX ai.onnx Abs, since version 13. Exact.

    Parameters
    ----------
    x : array, any float or integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.abs(np.float32([-3, 5]))
    array([3., 5.], dtype=float32)
    """
    return _simple(QK_SIMPLE, x, out, threads, "abs", np.abs, "fiu", QK_ABS)


def floor(x, *, out=None, threads=None):
    """The largest whole numbers that are not larger.

    ONNX ai.onnx Floor, since version 13. Exact.

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
        x's shape and dtype; NaN for NaN.

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
    return _simple(QK_SIMPLE, x, out, threads, "floor", np.floor, "f", QK_FLOOR)


def ceil(x, *, out=None, threads=None):
    """The smallest whole numbers that are not smaller.

    ONNX ai.onnx Ceil, since version 13. Exact; -0.5 gives -0.

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
        x's shape and dtype; NaN for NaN.

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
    return _simple(QK_SIMPLE, x, out, threads, "ceil", np.ceil, "f", QK_CEIL)


def round(x, *, out=None, threads=None):
    """The nearest whole numbers, halves to even.

    ONNX ai.onnx Round, since version 11. Exact.

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
        x's shape and dtype; NaN for NaN.

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
    return _simple(QK_SIMPLE, x, out, threads, "round", np.rint, "f", QK_ROUND)


def sign(x, *, out=None, threads=None):
    """-1, 0 or 1.

    ONNX ai.onnx Sign, since version 13. Exact.

    Parameters
    ----------
    x : array, any float or integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.sign(np.float32([-3, 0, 5]))
    array([-1.,  0.,  1.], dtype=float32)
    """
    return _simple(QK_SIMPLE, x, out, threads, "sign", np.sign, "fiu", QK_SIGN)


def relu(x, *, out=None, threads=None):
    """The larger of x and 0.

    ONNX ai.onnx Relu, since version 13. Exact.

    Parameters
    ----------
    x : array, any float or signed integer type
        Any strides. float64 and integers go through NumPy.
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

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.relu(np.float32([-3, 5]))
    array([0., 5.], dtype=float32)
    """
    return _simple(QK_SIMPLE, x, out, threads, "relu", _relu64, "fi", QK_RELU)


def leaky_relu(x, *, alpha=0.01, out=None, threads=None):
    """x, or ``alpha * x`` where x is negative.

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
        x's shape and dtype; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For an attribute that is no finite number.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.leaky_relu(np.float32([-1, 2]))
    array([-0.01,  2.  ], dtype=float32)
    """
    cdef double a = _attribute(alpha, "leaky_relu", "alpha")
    return _function(QK_LEAKY_RELU, x, out, threads, "leaky_relu", lambda v: np.where(v < 0, a * v, v), a)


def thresholded_relu(x, *, alpha=1.0, out=None, threads=None):
    """x where it is above alpha, else 0.

    ONNX ai.onnx ThresholdedRelu, since version 10. Exact.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1
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
        For an attribute that is no finite number.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.thresholded_relu(np.float32([0.5, 2]))
    array([0., 2.], dtype=float32)
    """
    cdef double a = _attribute(alpha, "thresholded_relu", "alpha")
    return _simple(QK_SIMPLE, x, out, threads, "thresholded_relu", lambda v: np.where((v > a) | np.isnan(v), v, 0), "f", QK_THRESHOLDED_RELU, a)


def elu(x, *, alpha=1.0, out=None, threads=None):
    """x, or ``alpha * (exp(x) - 1)`` where x is negative.

    ONNX ai.onnx Elu, since version 6. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1
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
        For an attribute that is no finite number.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.elu(np.float32([-1, 2]))
    array([-0.63212055,  2.        ], dtype=float32)
    """
    cdef double a = _attribute(alpha, "elu", "alpha")
    return _function(QK_ELU, x, out, threads, "elu", lambda v: np.where(v < 0, a * np.expm1(v), v), a)


def celu(x, *, alpha=1.0, out=None, threads=None):
    """x, or ``alpha * (exp(x / alpha) - 1)`` where x is negative.

    ONNX ai.onnx Celu, since version 12. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1, not 0
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
        For an attribute that is no finite number.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.celu(np.float32([-1, 2]), alpha=2)
    array([-0.78693867,  2.        ], dtype=float32)
    """
    cdef double a = _attribute(alpha, "celu", "alpha")
    if a == 0:
        raise ValueError("celu: alpha: expected a number other than 0, got 0")
    return _function(QK_CELU, x, out, threads, "celu", lambda v: np.where(v < 0, a * np.expm1(v / a), v), a)


def selu(x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875, out=None, threads=None):
    """``gamma * x``, or ``gamma * alpha * (exp(x) - 1)`` where x is negative.

    ONNX ai.onnx Selu, since version 6. Correctly rounded for float16 and bfloat16; see docs/accuracy.md for float32.

    Parameters
    ----------
    x : array, float32, float16, bfloat16 or float64
        Any strides. float64 goes through NumPy.
    alpha : float, default 1.67326319217681884765625
    gamma : float, default 1.05070102214813232421875
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
        For an attribute that is no finite number.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.selu(np.float32([-1, 2]))
    array([-1.1113307,  2.101402 ], dtype=float32)
    """
    cdef double a = _attribute(alpha, "selu", "alpha"), g = _attribute(gamma, "selu", "gamma")
    return _function(QK_SELU, x, out, threads, "selu", lambda v: np.where(v < 0, a * g * np.expm1(v), g * v), a, g)


def softsign(x, *, out=None, threads=None):
    """``x / (1 + |x|)``; 1 in size for an infinity, the limit.

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
        x's shape and dtype; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.softsign(np.float32([-1, 3]))
    array([-0.5 ,  0.75], dtype=float32)
    """
    return _function(QK_SOFTSIGN, x, out, threads, "softsign", lambda v: np.where(np.isinf(v), np.sign(v), v / (1 + np.abs(v))))


def mish(x, *, out=None, threads=None):
    """``x * tanh(log(1 + exp(x)))``; 0 for minus infinity, the limit.

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
        x's shape and dtype; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.mish(np.float32([-1, 2]))
    array([-0.30340147,  1.943959  ], dtype=float32)
    """
    return _function(QK_MISH, x, out, threads, "mish", _mish64)


def hard_sigmoid(x, *, alpha=0.2, beta=0.5, out=None, threads=None):
    """``alpha * x + beta``, limited to 0 to 1.

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
        x's shape and dtype; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For an attribute that is no finite number.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.hard_sigmoid(np.float32([-5, 1]))
    array([0. , 0.7], dtype=float32)
    """
    cdef double a = _attribute(alpha, "hard_sigmoid", "alpha"), b = _attribute(beta, "hard_sigmoid", "beta")
    return _function(QK_HARD_SIGMOID, x, out, threads, "hard_sigmoid", lambda v: np.clip(a * v + b, 0, 1), a, b)


def hard_swish(x, *, out=None, threads=None):
    """``x * min(max(x + 3, 0), 6) / 6``; 0 for minus infinity, the limit.

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
        x's shape and dtype; NaN for NaN.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.hard_swish(np.float32([-1, 4]))
    array([-0.33333334,  4.        ], dtype=float32)
    """
    return _function(QK_HARD_SWISH, x, out, threads, "hard_swish", lambda v: np.maximum(v, -4) * np.clip(v + 3, 0, 6) / 6)


def clip(x, min=None, max=None, *, out=None, threads=None):
    """Elements limited to an interval: ``min(max(x, lower), upper)``.

    ONNX ai.onnx Clip, since version 13. Exact.

    Parameters
    ----------
    x : array, any float or integer type
        Any strides. float64 and integers go through NumPy.
    min, max : array of one element of x's dtype, optional
        The lower and upper limits. Where the lower is above the upper, everything is the upper.
    out : ndarray, optional
        Result of x's shape and dtype, C-contiguous; may be `x` itself.
    threads : int, optional

    Returns
    -------
    ndarray
        x's dtype and shape; NaN for NaN.

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
    cdef cnp.ndarray a = _arrays.as_array(x, "clip", "x")
    low, high = (_limit(v, a, arg) for v, arg in ((min, "min"), (max, "max")))

    def in_numpy(v):
        v = v if low is None else np.maximum(v, low)
        return v if high is None else np.minimum(v, high)

    return _simple(QK_SIMPLE, a, out, threads, "clip", in_numpy, "fiu", QK_CLIP,
                   -math.inf if low is None or not _is_kernels(a) else low, math.inf if high is None or not _is_kernels(a) else high)


def prelu(x, slope, *, out=None, threads=None):
    """x, or ``slope * x`` where x is negative.

    ONNX ai.onnx PRelu, since version 9. float16 and bfloat16 are rounded once.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64, or int32, int64, uint32, uint64
        Any strides. float64 and integers go through NumPy.
    slope : array of x's dtype
        A shape that broadcasts to x's.
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
        For a shape.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.prelu(np.float32([[-1, 2], [-3, -4]]), np.float32([0.5, 0.25]))
    array([[-0.5,  2. ],
           [-1.5, -1. ]], dtype=float32)
    """
    cdef cnp.ndarray a = _arrays.as_array(x, "prelu", "x"), b = _arrays.as_array(slope, "prelu", "slope")
    cdef tuple shape = _arrays.shape_of(a)
    cdef bint other = _is_double(a) or a.dtype.name in ("int32", "int64", "uint32", "uint64")
    if not other:
        a = _input(a, _arrays.FLOATS, "prelu", "x")
    if b.dtype != a.dtype:
        raise TypeError(f"prelu: slope: expected dtype {a.dtype}, got {b.dtype}")
    if not _arrays.has_shape(b, shape) and not _broadcasts(b, shape):
        raise ValueError(f"prelu: slope: expected a shape that broadcasts to {shape}, got {_arrays.shape_of(b)}")
    if other:
        _arrays.num_threads(threads, "prelu")
        with np.errstate(all="ignore"):
            return _numpy_out(np.where((<object>a) < 0, (<object>a) * b, a), shape, a.dtype, out, "prelu", {"x": a, "slope": b})
    return _run(QK_SIMPLE, a, b, shape, 0, out, threads, "prelu", "x", "slope", QK_PRELU)
