"""Arithmetic with broadcasting, sigmoid and SiLU: ai.onnx Add, Sub, Mul, Sigmoid, Swish, and the product of SiLU and a second array."""
cimport numpy as cnp
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "elementwise/elementwise.h" nogil:
    enum:
        QK_ADD, QK_SUB, QK_MUL, QK_SILU_MUL, QK_SIGMOID, QK_SILU, QK_SWISH
    ctypedef struct qk_elementwise_args:
        const char *a
        const char *b
        char *y
        int op, dtype, axes
        float alpha
        int64_t shape[64]
        int64_t a_step[64]
        int64_t b_step[64]
    void qk_elementwise(int isa, int threads, const qk_elementwise_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 16


cdef cnp.ndarray _input(object x, int allowed, str func, str arg):
    """A float array with whatever strides."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    cdef int code = _arrays.dtype_code(a)
    if code < 0 or not (allowed >> code) & 1:
        raise TypeError(f"{func}: {arg}: expected dtype {_arrays.names_of(allowed)}, got {a.dtype}")
    return a


cdef tuple _common_shape(cnp.ndarray a, cnp.ndarray b, str func):
    cdef tuple p = _arrays.shape_of(a), q = _arrays.shape_of(b)
    if p == q:
        return p
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


cdef cnp.ndarray _run(int op, cnp.ndarray a, cnp.ndarray b, tuple shape, float alpha, object out, object threads, str func, str a_name, str b_name):
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
        args.op, args.dtype, args.alpha = op, code, alpha
        n = _arrays.worth(n, cnp.PyArray_SIZE(y), GRAIN)
        with nogil:
            qk_elementwise(_runtime.isa(), n, &args)
    return y


cdef cnp.ndarray _binary(int op, object a, object b, object out, object threads, str func):
    cdef cnp.ndarray p = _input(a, _arrays.FLOATS, func, "a"), q = _input(b, 1 << _arrays.dtype_code(p), func, "b")
    return _run(op, p, q, _common_shape(p, q, func), 0, out, threads, func, "a", "b")


def add(a, b, *, out=None, threads=None):
    """The sum ``a + b`` with NumPy's broadcasting.

    ONNX ai.onnx Add, since version 14, for float types. float16 and bfloat16 are added in float32 and rounded once.

    Parameters
    ----------
    a : array, float32, float16 or bfloat16
        Any strides.
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

    ONNX ai.onnx Sub, since version 14, for float types. float16 and bfloat16 are subtracted in float32 and rounded once.

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

    ONNX ai.onnx Mul, since version 14, for float types. float16 and bfloat16 are multiplied in float32 and rounded once.

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
    cdef cnp.ndarray a = _input(x, _arrays.FLOATS, "sigmoid", "x")
    return _run(QK_SIGMOID, a, a, _arrays.shape_of(a), 0, out, threads, "sigmoid", "x", "x")


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
    cdef cnp.ndarray a = _input(x, _arrays.FLOATS, "silu", "x")
    cdef float factor = alpha
    if not -np.inf < factor < np.inf:
        raise ValueError(f"silu: alpha: expected a finite number, got {alpha}")
    if factor == 0: # sigmoid is 1/2
        return _run(QK_MUL, a, np.asarray(0.5, a.dtype), _arrays.shape_of(a), 0, out, threads, "silu", "x", "alpha")
    return _run(QK_SILU if factor == 1 else QK_SWISH, a, a, _arrays.shape_of(a), factor, out, threads, "silu", "x", "x")


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
