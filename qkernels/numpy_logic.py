"""Comparisons, logic, bounds, running sums and the largest elements: ai.onnx operators that NumPy itself does right.

No kernels of ours, so nothing here is timed; the functions add ONNX's meaning, its checks and its error messages. Results are new arrays
of native byte order.
"""
import operator

import ml_dtypes
import numpy as np

from qkernels import _conversion

__all__ = ["and_", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cumsum", "equal", "greater", "greater_or_equal", "is_inf", "is_nan", "less",
           "less_or_equal", "max", "min", "mod", "not_", "or_", "topk", "where", "xor"]

_BF16 = np.dtype(ml_dtypes.bfloat16)
_FLOATS = tuple(np.dtype(t) for t in (np.float32, np.float16, _BF16, np.float64))
_SIGNED = tuple(np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
_UNSIGNED = tuple(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
_NUMBERS = _FLOATS + _SIGNED + _UNSIGNED
_BOOL = (np.dtype(bool),)


def _array(x, func, arg, dtypes):
    """An array of native byte order and one of the dtypes."""
    if x is None:
        raise TypeError(f"{func}: {arg}: expected an array, got None")
    a = x if isinstance(x, np.ndarray) else np.asarray(x)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype not in dtypes and not (str in dtypes and a.dtype.kind in "UOT"):
        names = " or ".join("str" if d is str else d.name for d in dtypes)
        raise TypeError(f"{func}: {arg}: expected dtype {names}, got {a.dtype}")
    return a


def _pair(a, b, func, dtypes):
    """Two arrays of one dtype that broadcast."""
    a = _array(a, func, "a", dtypes)
    b = _array(b, func, "b", dtypes)
    if a.dtype != b.dtype and not a.dtype.kind == b.dtype.kind == "U":
        raise TypeError(f"{func}: b: expected dtype {a.dtype}, got {b.dtype}")
    _broadcast(func, "b", a, b)
    return a, b


def _broadcast(func, arg, *arrays):
    try:
        return np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError:
        raise ValueError(f"{func}: {arg}: expected a shape that broadcasts with {arrays[0].shape}, got {arrays[-1].shape}") from None


def _ufunc(ufunc, *arrays):
    """An array also where all operands are 0-d; no warnings about NaN or overflow, which are values here."""
    with np.errstate(all="ignore"):
        return np.asarray(ufunc(*arrays))


def equal(a, b):
    """Whether elements are equal; NaN is not equal to itself.

    ONNX ai.onnx Equal, since version 13.

    Parameters
    ----------
    a, b : array, any float or integer type, bool or str
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.equal(np.int64([1, 2]), np.int64(2))
    array([False,  True])
    """
    return _ufunc(np.equal, *_pair(a, b, "equal", (*_NUMBERS, *_BOOL, str)))


def greater(a, b):
    """Whether ``a > b``; never with a NaN.

    ONNX ai.onnx Greater, since version 13.

    Parameters
    ----------
    a, b : array, any float or integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.greater(np.float32([1, 2, 3]), np.float32(2))
    array([False, False,  True])
    """
    return _ufunc(np.greater, *_pair(a, b, "greater", _NUMBERS))


def greater_or_equal(a, b):
    """Whether ``a >= b``; never with a NaN.

    ONNX ai.onnx GreaterOrEqual, since version 12.

    Parameters
    ----------
    a, b : array, any float or integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.greater_or_equal(np.float32([1, 2, 3]), np.float32(2))
    array([False,  True,  True])
    """
    return _ufunc(np.greater_equal, *_pair(a, b, "greater_or_equal", _NUMBERS))


def less(a, b):
    """Whether ``a < b``; never with a NaN.

    ONNX ai.onnx Less, since version 13.

    Parameters
    ----------
    a, b : array, any float or integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.less(np.float32([1, 2, 3]), np.float32(2))
    array([ True, False, False])
    """
    return _ufunc(np.less, *_pair(a, b, "less", _NUMBERS))


def less_or_equal(a, b):
    """Whether ``a <= b``; never with a NaN.

    ONNX ai.onnx LessOrEqual, since version 12.

    Parameters
    ----------
    a, b : array, any float or integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.less_or_equal(np.float32([1, 2, 3]), np.float32(2))
    array([ True,  True, False])
    """
    return _ufunc(np.less_equal, *_pair(a, b, "less_or_equal", _NUMBERS))


def and_(a, b):
    """The logical and of truth values.

    ONNX ai.onnx And, since version 7.

    Parameters
    ----------
    a, b : array, bool
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.and_(np.array([True, False]), np.array(True))
    array([ True, False])
    """
    return _ufunc(np.logical_and, *_pair(a, b, "and_", _BOOL))


def or_(a, b):
    """The logical or of truth values.

    ONNX ai.onnx Or, since version 7.

    Parameters
    ----------
    a, b : array, bool
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.or_(np.array([True, False]), np.array(True))
    array([ True,  True])
    """
    return _ufunc(np.logical_or, *_pair(a, b, "or_", _BOOL))


def xor(a, b):
    """The logical xor of truth values.

    ONNX ai.onnx Xor, since version 7.

    Parameters
    ----------
    a, b : array, bool
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        bool, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.xor(np.array([True, False]), np.array(True))
    array([False,  True])
    """
    return _ufunc(np.logical_xor, *_pair(a, b, "xor", _BOOL))


def bitwise_and(a, b):
    """The bitwise and of integers.

    ONNX ai.onnx BitwiseAnd, since version 18.

    Parameters
    ----------
    a, b : array, any integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        a's dtype, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.bitwise_and(np.int32([6, 3]), np.int32(5))
    array([4, 1], dtype=int32)
    """
    return _ufunc(np.bitwise_and, *_pair(a, b, "bitwise_and", _SIGNED + _UNSIGNED))


def bitwise_or(a, b):
    """The bitwise or of integers.

    ONNX ai.onnx BitwiseOr, since version 18.

    Parameters
    ----------
    a, b : array, any integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        a's dtype, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.bitwise_or(np.int32([6, 3]), np.int32(5))
    array([7, 7], dtype=int32)
    """
    return _ufunc(np.bitwise_or, *_pair(a, b, "bitwise_or", _SIGNED + _UNSIGNED))


def bitwise_xor(a, b):
    """The bitwise xor of integers.

    ONNX ai.onnx BitwiseXor, since version 18.

    Parameters
    ----------
    a, b : array, any integer type
        Of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        a's dtype, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.bitwise_xor(np.int32([6, 3]), np.int32(5))
    array([3, 6], dtype=int32)
    """
    return _ufunc(np.bitwise_xor, *_pair(a, b, "bitwise_xor", _SIGNED + _UNSIGNED))


def not_(x):
    """The logical not of truth values.

    ONNX ai.onnx Not, since version 1.

    Parameters
    ----------
    x : array, bool


    Returns
    -------
    ndarray
        bool, x's shape.


    Raises
    ------
    TypeError
        For a dtype.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.not_(np.array([True, False]))
    array([False,  True])
    """
    return _ufunc(np.logical_not, _array(x, "not_", "x", _BOOL))


def bitwise_not(x):
    """The bits of integers inverted.

    ONNX ai.onnx BitwiseNot, since version 18.

    Parameters
    ----------
    x : array, any integer type


    Returns
    -------
    ndarray
        x's dtype, x's shape.


    Raises
    ------
    TypeError
        For a dtype.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.bitwise_not(np.int32([0, 5]))
    array([-1, -6], dtype=int32)
    """
    return _ufunc(np.bitwise_not, _array(x, "bitwise_not", "x", _SIGNED + _UNSIGNED))


def is_nan(x):
    """Whether elements are NaN.

    ONNX ai.onnx IsNaN, since version 13.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64, or float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 and float8_e5m2fnuz of ``ml_dtypes``


    Returns
    -------
    ndarray
        bool, x's shape.


    Raises
    ------
    TypeError
        For a dtype.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.is_nan(np.float32([1, np.nan]))
    array([False,  True])
    """
    a = _array(x, "is_nan", "x", _FLOATS + _conversion.FLOAT8)
    return _ufunc(np.isnan, _conversion.table_values(a) if a.dtype in _conversion.FLOAT8 else a)


def is_inf(x, *, detect_negative=1, detect_positive=1):
    """Whether elements are infinite.

    ONNX ai.onnx IsInf, since version 10.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64, or float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 and float8_e5m2fnuz of ``ml_dtypes``
    detect_negative, detect_positive : int, default 1
        0: not the infinities of this sign.


    Returns
    -------
    ndarray
        bool, x's shape.


    Raises
    ------
    TypeError
        For a dtype.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.is_inf(np.float32([1, -np.inf, np.inf]), detect_negative=0)
    array([False, False,  True])
    """
    a = _array(x, "is_inf", "x", _FLOATS + _conversion.FLOAT8)
    a = _conversion.table_values(a) if a.dtype in _conversion.FLOAT8 else a
    infinite = _ufunc(np.isinf, a)
    if not detect_negative:
        infinite = infinite & (a > 0)
    if not detect_positive:
        infinite = infinite & (a < 0)
    return np.asarray(infinite)


def mod(a, b, *, fmod=0):
    """The rest of a division.

    ONNX ai.onnx Mod, since version 13.

    Parameters
    ----------
    a, b : array, any float or integer type
        Of one dtype, shapes that broadcast.

    fmod : int, default 0
        0: the quotient is rounded down, and the rest has b's sign, as in Python. 1: it is rounded toward zero, and the rest has a's sign, as in C.
        Before version 28, ONNX asks for 1 with float types; here both work.


    Returns
    -------
    ndarray
        a's dtype, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast, or another fmod.
    ZeroDivisionError
        For an integer 0 in b.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.mod(np.int32([-4, 7]), np.int32([3]))
    array([2, 1], dtype=int32)
    >>> qkernels.mod(np.int32([-4, 7]), np.int32([3]), fmod=1)
    array([-1,  1], dtype=int32)
    """
    if fmod not in (0, 1):
        raise ValueError(f"mod: fmod: expected 0 or 1, got {fmod}")
    a, b = _pair(a, b, "mod", _NUMBERS)
    if b.dtype not in _FLOATS and not b.all():
        raise ZeroDivisionError("mod: b: expected integers other than 0, got 0")
    if a.dtype in (np.float16, _BF16):  # in float32, where the rest is exact
        return _ufunc(np.fmod if fmod else np.mod, np.float32(a), np.float32(b)).astype(a.dtype)
    return _ufunc(np.fmod if fmod else np.mod, a, b)


def min(*inputs):
    """The smallest of the inputs, element by element; NaN where one is NaN.

    ONNX ai.onnx Min, since version 13.

    Parameters
    ----------
    *inputs : array, any float or integer type
        At least one, of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        The common dtype and shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast, or no input.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.min(np.float32([1, 5]), np.float32([3]), np.float32([2, 4]))
    array([1., 3.], dtype=float32)
    """
    return _extreme(np.minimum, inputs, "min")


def max(*inputs):
    """The largest of the inputs, element by element; NaN where one is NaN.

    ONNX ai.onnx Max, since version 13.

    Parameters
    ----------
    *inputs : array, any float or integer type
        At least one, of one dtype, shapes that broadcast.


    Returns
    -------
    ndarray
        The common dtype and shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast, or no input.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.max(np.float32([1, 5]), np.float32([3]), np.float32([2, 4]))
    array([3., 5.], dtype=float32)
    """
    return _extreme(np.maximum, inputs, "max")


def _extreme(ufunc, inputs, func):
    if not inputs:
        raise ValueError(f"{func}: inputs: expected at least 1, got none")
    result = _array(inputs[0], func, "inputs[0]", _NUMBERS)
    for i, x in enumerate(inputs[1:], 1):
        a = _array(x, func, f"inputs[{i}]", (result.dtype,))
        _broadcast(func, f"inputs[{i}]", result, a)
        result = _ufunc(ufunc, result, a)
    return result.copy() if len(inputs) == 1 else result


def where(condition, x, y):
    """Elements of x where the condition holds, else of y.

    ONNX ai.onnx Where, since version 9.

    Parameters
    ----------
    condition : array, bool
    x, y : array
        Of one dtype, any; the three shapes broadcast.


    Returns
    -------
    ndarray
        x's dtype, the common shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For shapes that do not broadcast.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.where(np.array([True, False]), np.float32([1, 2]), np.float32(0))
    array([1., 0.], dtype=float32)
    """
    c = _array(condition, "where", "condition", _BOOL)
    if x is None or y is None:
        raise TypeError(f"where: {'x' if x is None else 'y'}: expected an array, got None")
    a, b = np.asarray(x), np.asarray(y)
    a, b = (v if v.dtype.isnative else v.astype(v.dtype.newbyteorder("=")) for v in (a, b))
    if a.dtype != b.dtype and not a.dtype.kind == b.dtype.kind == "U":
        raise TypeError(f"where: y: expected dtype {a.dtype}, got {b.dtype}")
    try:
        return np.asarray(np.where(c, a, b))
    except ValueError:
        raise ValueError(f"where: y: expected shapes that broadcast, got {c.shape}, {a.shape} and {b.shape}") from None


def _int(x, func, arg):
    """An int from a number or an array of one integer."""
    if x is None:
        raise TypeError(f"{func}: {arg}: expected an integer, got None")
    a = np.asarray(x)
    if a.dtype.kind not in "iu":
        raise TypeError(f"{func}: {arg}: expected an integer, got {a.dtype}")
    if a.size != 1:
        raise ValueError(f"{func}: {arg}: expected one element, got shape {a.shape}")
    return int(a.reshape(()))


def _axis(axis, rank, func):
    if not -rank <= axis < rank:
        raise ValueError(f"{func}: axis: expected {-rank} to {rank - 1} for rank {rank}, got {axis}")
    return axis % rank


def cumsum(x, axis, *, exclusive=0, reverse=0):
    """Running sums along an axis.

    ONNX ai.onnx CumSum, since version 11. Float types are summed in float64 and each sum is rounded; integers wrap around.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64, int32, int64, uint32 or uint64
    axis : int, or array of one integer
    exclusive : int, default 0
        1: each sum leaves out its own element and begins with 0.
    reverse : int, default 0
        1: from the last element to the first.


    Returns
    -------
    ndarray
        x's dtype and shape.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For an axis.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.cumsum(np.float32([1, 2, 3]), 0)
    array([1., 3., 6.], dtype=float32)
    >>> qkernels.cumsum(np.float32([1, 2, 3]), 0, exclusive=1, reverse=1)
    array([5., 3., 0.], dtype=float32)
    """
    a = _array(x, "cumsum", "x", (*_FLOATS, *_SIGNED[2:], *_UNSIGNED[2:]))
    at = _axis(_int(axis, "cumsum", "axis"), a.ndim, "cumsum")
    v = np.moveaxis(a, at, -1)
    v = v[..., ::-1] if reverse else v
    wide = np.float64 if a.dtype in _FLOATS else a.dtype
    sums = np.zeros(v.shape, wide)
    with np.errstate(all="ignore"):
        if exclusive:
            np.cumsum(v[..., :-1], axis=-1, dtype=wide, out=sums[..., 1:])
        else:
            np.cumsum(v, axis=-1, dtype=wide, out=sums)
        sums = sums[..., ::-1] if reverse else sums
        return np.ascontiguousarray(np.moveaxis(_conversion.convert(sums, a.dtype), -1, at))


def topk(x, k, *, axis=-1, largest=1, sorted=1, outputs=(0, 1)):
    """The k largest or smallest elements along an axis, and their indices.

    ONNX ai.onnx TopK, since version 11. Of equal elements the lower index comes first. NaN is larger than everything: first among the
    largest, last among the smallest.

    Parameters
    ----------
    x : array, any float or integer type
        At least one dimension.
    k : int, or array of one integer
        0 to the size of the axis.
    axis : int, default -1
    largest : int, default 1
        0: the smallest, in ascending order.
    sorted : int, default 1
        0: in any order; here they are sorted all the same.
    outputs : tuple of int, default (0, 1)
        Which of values (0) and indices (1) to return.


    Returns
    -------
    ndarray or tuple of ndarray
        Values of x's dtype and int64 indices: x's shape with k along the axis.


    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For k, an axis or `outputs`.


    Examples
    --------
    >>> import numpy as np, qkernels
    >>> values, indices = qkernels.topk(np.float32([5, 5, 3]), 2)
    >>> values, indices
    (array([5., 5.], dtype=float32), array([0, 1]))
    """
    a = _array(x, "topk", "x", _NUMBERS)
    wanted = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= {0, 1}:
        raise ValueError(f"topk: outputs: expected distinct indices of (0, 1), got {outputs}")
    if not a.ndim:
        raise ValueError("topk: x: expected at least 1 dimension, got a 0-d array")
    at = _axis(operator.index(axis), a.ndim, "topk")
    n, count = a.shape[at], _int(k, "topk", "k")
    if not 0 <= count <= n:
        raise ValueError(f"topk: k: expected 0 to {n}, the size of axis {at}, got {count}")
    rows = np.moveaxis(a, at, -1)
    keys = rows.astype(np.float32) if a.dtype in (np.float16, _BF16) else rows  # the same order
    if count * 8 < n and n >= 1024:
        indices = np.empty((*rows.shape[:-1], count), np.int64)
        for i in np.ndindex(rows.shape[:-1]):
            indices[i] = _few(keys[i], count, largest)
    else:
        indices = _order(keys, largest)[..., :count]
    results = {0: np.take_along_axis(rows, indices, -1), 1: indices}
    results = [np.ascontiguousarray(np.moveaxis(results[o], -1, at)) for o in wanted]
    return results[0] if len(wanted) == 1 else tuple(results)


def _order(keys, largest):
    """All indices of the last axis, best first."""
    if not largest:
        return np.argsort(keys, -1, kind="stable")
    return keys.shape[-1] - 1 - np.argsort(keys[..., ::-1], -1, kind="stable")[..., ::-1]


def _few(keys, count, largest):
    """The indices of the best of a row, best first: those better than the last of them, then its equals from the left."""
    if not count:
        return np.empty(0, np.int64)
    n = keys.size
    last = np.partition(keys, n - count if largest else count - 1)[n - count if largest else count - 1]
    nan = keys != keys
    if last != last:
        better, equal = (np.zeros(n, bool) if largest else ~nan), nan
    else:
        better, equal = (((keys > last) | nan) if largest else keys < last), keys == last
    better = np.flatnonzero(better)
    chosen = np.concatenate([better, np.flatnonzero(equal)[:count - better.size]])
    chosen.sort()
    return chosen[_order(keys[chosen], largest)]
