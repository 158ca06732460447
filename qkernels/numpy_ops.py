"""Layout and bookkeeping operators of ai.onnx: shapes, slices and constants, in NumPy itself.

Nothing here computes, so nothing here is a kernel. Where NumPy can show the result as a view of the input, the result is that view
(each function says so) and must not be written to; everything else is a new array.
"""
import builtins
import math
import operator

import numpy as np

from qkernels._conversion import BF16, convert
from qkernels.layout import _cast

__all__ = ["cast_like", "concat", "constant", "constant_of_shape", "expand", "flatten", "gather_elements", "gather_nd", "identity", "pad", "range",
           "reshape", "scatter_elements", "scatter_nd", "shape", "size", "slice", "split", "squeeze", "tensor_scatter", "tile", "transpose", "trilu",
           "unsqueeze"]

# `range` and `slice` are operators below
_range, _slice = builtins.range, builtins.slice


def _array(x, func, arg):
    if x is None:
        raise TypeError(f"{func}: {arg}: expected an array, got None")
    return x if isinstance(x, np.ndarray) else np.asarray(x)


def _ints(x, func, arg):
    """A tuple of int from a 1-D array of integers, or any sequence of them."""
    a = _array(x, func, arg)
    if a.size == 0 and a.ndim == 1:
        return ()
    if a.dtype.kind not in "iu":
        raise TypeError(f"{func}: {arg}: expected integers, got {a.dtype}")
    if a.ndim != 1:
        raise ValueError(f"{func}: {arg}: expected 1 dimension, got shape {a.shape}")
    return tuple(a.tolist())


def _int(x, func, arg):
    """An int from a number or an array of one integer."""
    a = _array(x, func, arg)
    if a.dtype.kind not in "iu":
        raise TypeError(f"{func}: {arg}: expected an integer, got {a.dtype}")
    if a.size != 1:
        raise ValueError(f"{func}: {arg}: expected one element, got shape {a.shape}")
    return int(a.reshape(()))


def _axis(axis, rank, func, arg="axis", extra=0):
    """A non-negative axis; `extra` allows one more at the end."""
    try:
        axis = operator.index(axis)
    except TypeError:
        raise TypeError(f"{func}: {arg}: expected an int, got {type(axis).__name__}") from None
    if not -rank <= axis < rank + extra:
        raise ValueError(f"{func}: {arg}: expected {-rank} to {rank - 1 + extra} for rank {rank}, got {axis}")
    return axis + rank if axis < 0 else axis


def _axes(axes, rank, func):
    axes = [_axis(a, rank, func, "axes") for a in _ints(axes, func, "axes")]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{func}: axes: expected distinct axes, got {axes}")
    return axes


def _native(a):
    return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))


def cast_like(x, target_type, *, saturate=1, round_mode="up"):
    """The elements of `x` in the type of `target_type`.

    ONNX ai.onnx CastLike, since version 15, as far as version 25.

    Parameters
    ----------
    x : array
    target_type : array
        Only its dtype matters.
    saturate, round_mode
        As in `cast`, for results in 8-bit floats.

    Returns
    -------
    ndarray
        As from `cast`.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.cast_like(np.float32([1.5]), np.int64([0]))
    array([1])
    """
    func = "cast_like"
    return _cast(x, _array(target_type, func, "target_type").dtype, saturate, round_mode, None, None, func, "target_type")


def concat(*inputs, axis):
    """The inputs joined along an axis.

    ONNX ai.onnx Concat, since version 13.

    Parameters
    ----------
    *inputs : array
        At least one, of one dtype, their shapes equal but for `axis`.
    axis : int

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.concat(np.int64([1]), np.int64([2, 3]), axis=0)
    array([1, 2, 3])
    """
    func = "concat"
    if not inputs:
        raise ValueError(f"{func}: inputs: expected at least one array, got none")
    arrays = [_native(_array(x, func, f"inputs[{i}]")) for i, x in enumerate(inputs)]
    first = arrays[0]
    axis = _axis(axis, first.ndim, func)
    for i, a in enumerate(arrays):
        if a.dtype != first.dtype:
            raise TypeError(f"{func}: inputs[{i}]: expected dtype {first.dtype}, got {a.dtype}")
        if a.shape[:axis] + a.shape[axis + 1:] != first.shape[:axis] + first.shape[axis + 1:] or a.ndim != first.ndim:
            raise ValueError(f"{func}: inputs[{i}]: expected a shape like {first.shape} but for axis {axis}, got {a.shape}")
    return np.concatenate(arrays, axis)


def constant(*, value=None, sparse_value=None, value_float=None, value_floats=None, value_int=None, value_ints=None, value_string=None,
             value_strings=None):
    """A constant; exactly one argument says which.

    ONNX ai.onnx Constant, since version 13.

    Parameters
    ----------
    value : array, optional
    sparse_value : None
        Sparse tensors are not offered.
    value_float, value_floats, value_int, value_ints, value_string, value_strings : optional
        A number or a sequence as float32 or int64, text as an object array.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import qkernels
    >>> qkernels.constant(value_ints=[1, 2])
    array([1, 2])
    """
    given = [(name, v, dtype) for name, v, dtype in (
        ("value", value, None), ("sparse_value", sparse_value, None), ("value_float", value_float, np.float32), ("value_floats", value_floats, np.float32),
        ("value_int", value_int, np.int64), ("value_ints", value_ints, np.int64), ("value_string", value_string, object),
        ("value_strings", value_strings, object)) if v is not None]
    if len(given) != 1:
        raise ValueError(f"constant: expected exactly one of value, value_float … value_strings, got {[name for name, _, _ in given]}")
    name, v, dtype = given[0]
    if name == "sparse_value":
        raise ValueError("constant: sparse_value: sparse tensors are not offered")
    return np.asarray(v, dtype)


def constant_of_shape(shape, *, value=None):
    """An array of one value.

    ONNX ai.onnx ConstantOfShape, since version 9.

    Parameters
    ----------
    shape : array of integers, 1-D
    value : array of one element, optional
        Default float32 zero.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.constant_of_shape([2], value=np.int64([7]))
    array([7, 7])
    """
    func = "constant_of_shape"
    dims = _ints(shape, func, "shape")
    if any(d < 0 for d in dims):
        raise ValueError(f"{func}: shape: expected sizes >= 0, got {dims}")
    value = np.float32([0]) if value is None else _native(_array(value, func, "value"))
    if value.size != 1:
        raise ValueError(f"{func}: value: expected one element, got shape {value.shape}")
    return np.full(dims, value.reshape(()), value.dtype)


def expand(x, shape):
    """Broadcast to the common shape of `x` and `shape`; a view.

    ONNX ai.onnx Expand, since version 13.

    Parameters
    ----------
    x : array
    shape : array of integers, 1-D

    Returns
    -------
    ndarray
        Read-only.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.expand(np.int64([[1], [2]]), [2]).tolist()
    [[1, 1], [2, 2]]
    """
    func = "expand"
    a, dims = _array(x, func, "x"), _ints(shape, func, "shape")
    try:
        return np.broadcast_to(a, np.broadcast_shapes(a.shape, dims))
    except ValueError:
        raise ValueError(f"{func}: shape: expected one that broadcasts with {a.shape}, got {dims}") from None


def flatten(x, *, axis=1):
    """A matrix: the axes before `axis`, and the rest. A view where the strides allow it.

    ONNX ai.onnx Flatten, since version 13.

    Parameters
    ----------
    x : array
    axis : int, default 1
        ``-rank`` to ``rank``.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.flatten(np.zeros((2, 3, 4))).shape
    (2, 12)
    """
    a = _array(x, "flatten", "x")
    axis = _axis(axis, a.ndim, "flatten", extra=1)
    return a.reshape(math.prod(a.shape[:axis]), math.prod(a.shape[axis:]))


def gather_elements(data, indices, *, axis=0):
    """``out[i][j] = data[indices[i][j]][j]``, for axis 0 of a matrix; and so on for any rank and axis.

    ONNX ai.onnx GatherElements, since version 13.

    Parameters
    ----------
    data : array
    indices : array of int32 or int64
        Of data's rank; no larger than data in the other axes. Negative ones count from the end.
    axis : int, default 0

    Returns
    -------
    ndarray
        Of indices' shape and data's dtype.

    Raises
    ------
    IndexError, TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.gather_elements(np.int64([[1, 2], [3, 4]]), np.int64([[0, 0], [1, -2]]), axis=1).tolist()
    [[1, 1], [4, 3]]
    """
    func = "gather_elements"
    a, index, axis = _elements(data, indices, axis, func)
    a = a[tuple(_slice(None) if i == axis else _slice(n) for i, n in enumerate(index.shape))]
    return np.take_along_axis(a, index, axis)


def _elements(data, indices, axis, func):
    """Checked data, non-negative indices and axis of the operators that work element by element."""
    a, index = _native(_array(data, func, "data")), _array(indices, func, "indices")
    if index.dtype.kind not in "iu":
        raise TypeError(f"{func}: indices: expected integers, got {index.dtype}")
    if a.ndim != index.ndim or a.ndim == 0:
        raise ValueError(f"{func}: indices: expected the rank of data, {a.ndim}, at least 1, got shape {index.shape}")
    axis = _axis(axis, a.ndim, func)
    if any(n > m for i, (n, m) in enumerate(zip(index.shape, a.shape, strict=True)) if i != axis):
        raise ValueError(f"{func}: indices: expected at most data's sizes {a.shape} but for axis {axis}, got {index.shape}")
    return a, _wrapped(index, a.shape[axis], func), axis


def _wrapped(index, n, func):
    index = index.astype(np.int64)
    wrong = (index < -n) | (index >= n)
    if wrong.any():
        raise IndexError(f"{func}: indices: expected {-n} to {n - 1}, got {index[wrong].flat[0]}")
    return np.where(index < 0, index + n, index)


def gather_nd(data, indices, *, batch_dims=0):
    """Slices of `data` at the index tuples along the last axis of `indices`.

    ONNX ai.onnx GatherND, since version 13.

    Parameters
    ----------
    data : array
    indices : array of int64
    batch_dims : int, default 0
        Leading axes that both have in common.

    Returns
    -------
    ndarray

    Raises
    ------
    IndexError, TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.gather_nd(np.int64([[1, 2], [3, 4]]), np.int64([[0, 1], [-1, 0]]))
    array([2, 3])
    """
    func = "gather_nd"
    a, index = _native(_array(data, func, "data")), _array(indices, func, "indices")
    b = operator.index(batch_dims)
    picked = _tuples(a, index, b, func)
    batch = np.indices(index.shape[:b], sparse=True)
    batch = [x.reshape(x.shape + (1,) * (index.ndim - 1 - b)) for x in batch]
    return a[(*batch, *picked)]


def _tuples(a, index, b, func):
    """Checked index arrays, one for each axis that the index tuples address."""
    if index.dtype.kind not in "iu":
        raise TypeError(f"{func}: indices: expected integers, got {index.dtype}")
    if a.ndim == 0 or index.ndim == 0:
        raise ValueError(f"{func}: {'data' if a.ndim == 0 else 'indices'}: expected at least 1 dimension, got a 0-d array")
    if not 0 <= b < min(a.ndim, index.ndim) or a.shape[:b] != index.shape[:b]:
        raise ValueError(f"{func}: batch_dims: expected leading axes that data {a.shape} and indices {index.shape} share, got {b}")
    if not 1 <= index.shape[-1] <= a.ndim - b:
        raise ValueError(f"{func}: indices: expected tuples of 1 to {a.ndim - b} indices, got shape {index.shape}")
    return [_wrapped(index[..., i], a.shape[b + i], func) for i in _range(index.shape[-1])]


def identity(x):
    """The array itself.

    ONNX ai.onnx Identity, since version 13.

    Parameters
    ----------
    x : array

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import qkernels
    >>> qkernels.identity([1, 2])
    array([1, 2])
    """
    return _array(x, "identity", "x")


def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    """Grow an array at its ends, or cut from them.

    ONNX ai.onnx Pad, since version 13.

    Parameters
    ----------
    data : array
    pads : array of int64
        For each axis how much before, then for each axis how much after; negative cuts.
    constant_value : array of one element, optional
        For the constant mode; default 0.
    axes : array of integers, optional
        Which axes `pads` speaks of; default all.
    mode : {"constant", "reflect", "edge", "wrap"}

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.pad(np.int64([1, 2, 3]), [1, -1])
    array([0, 1, 2])
    """
    func = "pad"
    a = _native(_array(data, func, "data"))
    axes = list(_range(a.ndim)) if axes is None else _axes(axes, a.ndim, func)
    pads = _ints(pads, func, "pads")
    if len(pads) != 2 * len(axes):
        raise ValueError(f"{func}: pads: expected {2 * len(axes)} numbers for {len(axes)} axes, got {len(pads)}")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(f"{func}: mode: expected constant, reflect, edge or wrap, got {mode!r}")
    widths, cut = [(0, 0)] * a.ndim, [_slice(None)] * a.ndim
    for i, axis in enumerate(axes):
        before, after = pads[i], pads[len(axes) + i]
        if a.shape[axis] + min(before, 0) + min(after, 0) < 0:
            raise ValueError(f"{func}: pads: cannot cut {(-min(before, 0), -min(after, 0))} from axis {axis} of size {a.shape[axis]}")
        widths[axis] = max(before, 0), max(after, 0)
        cut[axis] = _slice(max(-before, 0), a.shape[axis] - max(-after, 0))
    a = a[tuple(cut)]
    if mode != "constant":
        if any(n == 0 and any(w) for n, w in zip(a.shape, widths, strict=True)):
            raise ValueError(f"{func}: data: expected sizes of at least 1 for mode {mode}, got shape {a.shape}")
        return np.pad(a, widths, mode)
    value = np.zeros((), a.dtype) if constant_value is None else _array(constant_value, func, "constant_value")
    if value.size != 1:
        raise ValueError(f"{func}: constant_value: expected one element, got shape {value.shape}")
    out = np.full([n + sum(w) for n, w in zip(a.shape, widths, strict=True)], value.reshape(()).astype(a.dtype), a.dtype)
    out[tuple(_slice(w[0], w[0] + n) for n, w in zip(a.shape, widths, strict=True))] = a
    return out


def range(start, limit, delta, *, stash_type=1):
    """``start + i * delta`` up to `limit`, which is not reached.

    ONNX ai.onnx Range, since version 11.

    Parameters
    ----------
    start, limit, delta : array of one element
        Of one dtype.
    stash_type : {1, 11}, default 1
        ONNX's type in which float16 and bfloat16 are counted: 1 for float32, 11 for float64. Other types do not ask.

    Returns
    -------
    ndarray
        1-D.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.range(np.int64(10), np.int64(4), np.int64(-2))
    array([10,  8,  6])
    """
    func = "range"
    arrays = [_native(_array(x, func, name)) for x, name in ((start, "start"), (limit, "limit"), (delta, "delta"))]
    dtype = arrays[0].dtype
    narrow = dtype == np.float16 or dtype == BF16
    if narrow and stash_type not in (1, 11):
        raise ValueError(f"{func}: stash_type: expected 1 (float32) or 11 (float64), got {stash_type}")
    for a, name in zip(arrays, ("start", "limit", "delta"), strict=True):
        if a.size != 1:
            raise ValueError(f"{func}: {name}: expected one element, got shape {a.shape}")
        if a.dtype != dtype or dtype.kind not in "iuf" and dtype != BF16:
            raise TypeError(f"{func}: {name}: expected numbers of one dtype, got {dtype} for start and {a.dtype}")
    if dtype.kind in "iu":
        first, last, step = (int(a.reshape(())) for a in arrays)
        if step == 0:
            raise ValueError(f"{func}: delta: expected a number other than 0, got 0")
        count = max(-((first - last) // step), 0)
        return (np.arange(count, dtype=np.int64) * step + first).astype(dtype)
    wide = np.float64 if dtype == np.float64 or narrow and stash_type == 11 else np.float32
    first, last, step = (a.reshape(()).astype(wide) for a in arrays)
    if step == 0 or not np.isfinite([first, last, step]).all():
        raise ValueError(f"{func}: delta: expected finite numbers and a delta other than 0, got {first}, {last}, {step}")
    count = max(math.ceil((np.float64(last) - np.float64(first)) / np.float64(step)), 0)
    return convert(np.arange(count).astype(wide) * step + first, dtype)


def reshape(data, shape, *, allowzero=0):
    """The same elements in another shape. A view where the strides allow it.

    ONNX ai.onnx Reshape, since version 13.

    Parameters
    ----------
    data : array
    shape : array of integers, 1-D
        -1, at most once, is whatever remains; 0 is data's size of that axis.
    allowzero : int, default 0
        1: 0 is 0.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.reshape(np.zeros((2, 3, 4)), [0, -1]).shape
    (2, 12)
    """
    func = "reshape"
    a, dims = _array(data, func, "data"), _ints(shape, func, "shape")
    if any(d < -1 for d in dims) or dims.count(-1) > 1:
        raise ValueError(f"{func}: shape: expected sizes >= 0 and at most one -1, got {dims}")
    if allowzero:
        if -1 in dims and 0 in dims:
            raise ValueError(f"{func}: shape: expected no -1 beside 0 where allowzero is 1, got {dims}")
        full = dims
    else:
        if any(d == 0 and i >= a.ndim for i, d in enumerate(dims)):
            raise ValueError(f"{func}: shape: 0 at an axis that data of shape {a.shape} has not, got {dims}")
        full = tuple(a.shape[i] if d == 0 else d for i, d in enumerate(dims))
    if -1 in full:
        known = math.prod(d for d in full if d != -1)
        full = tuple(((a.size // known) if known else 0) if d == -1 else d for d in full)
    if math.prod(full) != a.size:
        raise ValueError(f"{func}: shape: {dims} does not hold the {a.size} elements of shape {a.shape}")
    return a.reshape(full)


def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    """A copy of `data` with ``out[indices[i][j]][j] = updates[i][j]``, for axis 0 of a matrix; and so on for any rank and axis.

    ONNX ai.onnx ScatterElements, since version 13.

    Parameters
    ----------
    data : array
    indices : array of int32 or int64
    updates : array of data's dtype and indices' shape
    axis : int, default 0
    reduction : {"none", "add", "mul", "max", "min"}
        How an update meets what is there.

    Returns
    -------
    ndarray

    Raises
    ------
    IndexError, TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.scatter_elements(np.int64([1, 2, 3]), np.int64([2, 0]), np.int64([7, 8]))
    array([8, 2, 7])
    """
    func = "scatter_elements"
    a, index, axis = _elements(data, indices, axis, func)
    where = list(np.indices(index.shape, sparse=True))
    where[axis] = index
    return _scatter(a, tuple(where), updates, index.shape, reduction, func)


def scatter_nd(data, indices, updates, *, reduction="none"):
    """A copy of `data` with the slices at the index tuples along the last axis of `indices` replaced.

    ONNX ai.onnx ScatterND, since version 13.

    Parameters
    ----------
    data : array
    indices : array of int64
    updates : array of data's dtype
    reduction : {"none", "add", "mul", "max", "min"}

    Returns
    -------
    ndarray

    Raises
    ------
    IndexError, TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.scatter_nd(np.int64([1, 2, 3]), np.int64([[1]]), np.int64([9]))
    array([1, 9, 3])
    """
    func = "scatter_nd"
    a, index = _native(_array(data, func, "data")), _array(indices, func, "indices")
    where = _tuples(a, index, 0, func)
    return _scatter(a, tuple(where), updates, index.shape[:-1] + a.shape[index.shape[-1]:], reduction, func)


def _scatter(a, where, updates, expected, reduction, func):
    values = _array(updates, func, "updates")
    if values.dtype != a.dtype:
        raise TypeError(f"{func}: updates: expected dtype {a.dtype}, got {values.dtype}")
    if values.shape != expected:
        raise ValueError(f"{func}: updates: expected shape {expected}, got {values.shape}")
    ufuncs = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if reduction != "none" and reduction not in ufuncs:
        raise ValueError(f"{func}: reduction: expected none, {', '.join(ufuncs)}, got {reduction!r}")
    out = a.copy()
    if reduction == "none":
        out[where] = values
    else:
        ufuncs[reduction].at(out, where, values)
    return out


def shape(x, *, start=0, end=None):
    """The sizes of the axes `start` to `end`, as int64.

    ONNX ai.onnx Shape, since version 13.

    Parameters
    ----------
    x : array
    start : int, default 0
    end : int, optional
        Both count from the end where negative, and are clamped to the rank.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.shape(np.zeros((2, 3)), start=-1)
    array([3])
    """
    a = _array(x, "shape", "x")
    clamp = lambda i: min(max(i + a.ndim if i < 0 else i, 0), a.ndim)
    return np.array(a.shape[clamp(start):clamp(a.ndim if end is None else end)], np.int64)


def size(x):
    """The number of elements, as int64.

    ONNX ai.onnx Size, since version 13.

    Parameters
    ----------
    x : array

    Returns
    -------
    ndarray of int64, 0-d

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.size(np.zeros((2, 3)))
    array(6)
    """
    return np.array(_array(x, "size", "x").size, np.int64)


def slice(data, starts, ends, axes=None, steps=None):
    """Every `steps`-th element from `starts` to `ends` along `axes`; a view.

    ONNX ai.onnx Slice, since version 13.

    Parameters
    ----------
    data : array
    starts, ends : array of integers, 1-D
        Count from the end where negative, and are clamped to the size.
    axes : array of integers, optional
        Default the first axes.
    steps : array of integers, optional
        Default 1; negative goes backwards.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.slice(np.int64([1, 2, 3, 4]), [-1], [-100], [0], [-2])
    array([4, 2])
    """
    func = "slice"
    a, starts, ends = _array(data, func, "data"), _ints(starts, func, "starts"), _ints(ends, func, "ends")
    axes = list(_range(len(starts))) if axes is None else _axes(axes, a.ndim, func)
    steps = (1,) * len(starts) if steps is None else _ints(steps, func, "steps")
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(starts) > a.ndim:
        raise ValueError(f"{func}: starts, ends, axes, steps: expected equally many, at most {a.ndim}, "
                         f"got {len(starts)}, {len(ends)}, {len(axes)}, {len(steps)}")
    index = [_slice(None)] * a.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise ValueError(f"{func}: steps: expected numbers other than 0, got {steps}")
        n = a.shape[axis]
        start, end = (i + n if i < 0 else i for i in (start, end))
        if step > 0:
            index[axis] = _slice(min(max(start, 0), n), min(max(end, 0), n), step)
        else:
            start, end = min(max(start, -1), n - 1), min(max(end, -1), n - 1)
            index[axis] = _slice(start, None if end < 0 else end, step) if start >= 0 else _slice(0, 0)
    return a[tuple(index)]


def split(data, split=None, *, axis=0, num_outputs=None):
    """Parts of an array along an axis; views.

    ONNX ai.onnx Split, since version 13.

    Parameters
    ----------
    data : array
    split : array of integers, optional
        Sizes of the parts.
    axis : int, default 0
    num_outputs : int, optional
        Equal parts, the last one smaller if need be. Exactly one of `split` and `num_outputs`; a version 13 node without `split`
        means as many as it has outputs.

    Returns
    -------
    tuple of ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.split(np.int64([1, 2, 3]), num_outputs=2)
    (array([1, 2]), array([3]))
    """
    func = "split"
    a = _array(data, func, "data")
    axis = _axis(axis, a.ndim, func)
    n = a.shape[axis]
    if (split is None) == (num_outputs is None):
        raise ValueError(f"{func}: split: expected either split or num_outputs, got {'neither' if split is None else 'both'}")
    if split is None:
        count = operator.index(num_outputs)
        part = -(-n // count) if count > 0 else 0
        if count < 1 or (count - 1) * part > n:
            raise ValueError(f"{func}: num_outputs: cannot make {count} parts of axis {axis} of size {n}")
        sizes = [part] * (count - 1) + [n - part * (count - 1)]
    else:
        sizes = _ints(split, func, "split")
        if any(s < 0 for s in sizes) or sum(sizes) != n:
            raise ValueError(f"{func}: split: expected sizes that add up to {n}, got {sizes}")
    parts, start = [], 0
    for s in sizes:
        parts.append(a[(_slice(None),) * axis + (_slice(start, start + s),)])
        start += s
    return tuple(parts)


def squeeze(data, axes=None):
    """Without the axes of size 1: the given ones, or all; a view.

    ONNX ai.onnx Squeeze, since version 13.

    Parameters
    ----------
    data : array
    axes : array of integers, optional

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.squeeze(np.zeros((1, 3, 1)), [0]).shape
    (3, 1)
    """
    func = "squeeze"
    a = _array(data, func, "data")
    drop = {i for i, n in enumerate(a.shape) if n == 1} if axes is None else set(_axes(axes, a.ndim, func))
    if any(a.shape[i] != 1 for i in drop):
        raise ValueError(f"{func}: axes: expected axes of size 1 of shape {a.shape}, got {sorted(drop)}")
    return a.reshape(tuple(n for i, n in enumerate(a.shape) if i not in drop))


def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    """A copy of a cache with an update written at each sample's index.

    ONNX ai.onnx TensorScatter, since version 24.

    Parameters
    ----------
    past_cache : array (batch, …, max_sequence, …)
    update : array of the cache's dtype
        Of the cache's shape but for `axis`, where it is no longer.
    write_indices : array of int64 (batch,), optional
        Default zeros.
    axis : int, default -2
        The sequence axis, never the first.
    mode : {"linear", "circular"}
        Whether writing goes on at the start when the end is reached; linear raises.

    Returns
    -------
    ndarray

    Raises
    ------
    IndexError, TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.tensor_scatter(np.zeros((1, 3), np.int64), np.int64([[5, 6]]), np.int64([1]), axis=1)
    array([[0, 5, 6]])
    """
    func = "tensor_scatter"
    a, new = _native(_array(past_cache, func, "past_cache")), _array(update, func, "update")
    axis = _axis(axis, a.ndim, func)
    if axis == 0:
        raise ValueError(f"{func}: axis: expected a sequence axis behind the batch, got 0")
    if new.dtype != a.dtype:
        raise TypeError(f"{func}: update: expected dtype {a.dtype}, got {new.dtype}")
    if new.ndim != a.ndim or new.shape[:axis] + new.shape[axis + 1:] != a.shape[:axis] + a.shape[axis + 1:] or new.shape[axis] > a.shape[axis]:
        raise ValueError(f"{func}: update: expected the shape of past_cache {a.shape}, not longer along axis {axis}, got {new.shape}")
    if mode not in ("linear", "circular"):
        raise ValueError(f"{func}: mode: expected linear or circular, got {mode!r}")
    first = (0,) * a.shape[0] if write_indices is None else _ints(write_indices, func, "write_indices")
    if len(first) != a.shape[0]:
        raise ValueError(f"{func}: write_indices: expected {a.shape[0]} indices, one for each sample, got {len(first)}")
    room, n = a.shape[axis], new.shape[axis]
    out = a.copy()
    for sample, start in enumerate(first):
        if start < 0 or (mode == "linear" and start + n > room):
            raise IndexError(f"{func}: write_indices: expected 0 to {room - n} for {n} new entries in {room}, got {start}")
        where = (start + np.arange(n)) % room if mode == "circular" and room else _slice(start, start + n)
        out[sample][(_slice(None),) * (axis - 1) + (where,)] = new[sample]
    return out


def tile(x, repeats):
    """The array repeated along each axis.

    ONNX ai.onnx Tile, since version 13.

    Parameters
    ----------
    x : array
    repeats : array of int64
        One number for each axis.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.tile(np.int64([1, 2]), [2])
    array([1, 2, 1, 2])
    """
    func = "tile"
    a, repeats = _native(_array(x, func, "x")), _ints(repeats, func, "repeats")
    if len(repeats) != a.ndim or any(r < 0 for r in repeats):
        raise ValueError(f"{func}: repeats: expected {a.ndim} numbers >= 0, got {repeats}")
    return np.tile(a, repeats)


def transpose(data, *, perm=None):
    """The axes in another order; a view.

    ONNX ai.onnx Transpose, since version 13.

    Parameters
    ----------
    data : array
    perm : sequence of int, optional
        Default reversed.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.transpose(np.zeros((2, 3, 4)), perm=[0, 2, 1]).shape
    (2, 4, 3)
    """
    a = _array(data, "transpose", "data")
    if perm is None:
        return a.T
    if sorted(perm) != list(_range(a.ndim)):
        raise ValueError(f"transpose: perm: expected the axes 0 to {a.ndim - 1} in some order, got {list(perm)}")
    return a.transpose(perm)


def trilu(x, k=None, *, upper=1):
    """The upper or lower triangle of the last two axes, zeros elsewhere.

    ONNX ai.onnx Trilu, since version 14.

    Parameters
    ----------
    x : array
        At least two dimensions.
    k : array of one integer, optional
        The diagonal where it begins, or ends; default 0.
    upper : int, default 1

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.trilu(np.ones((2, 2), np.int64), upper=0).tolist()
    [[1, 0], [1, 1]]
    """
    func = "trilu"
    a = _native(_array(x, func, "x"))
    if a.ndim < 2:
        raise ValueError(f"{func}: x: expected at least 2 dimensions, got shape {a.shape}")
    k = 0 if k is None else _int(k, func, "k")
    below = np.subtract.outer(np.arange(a.shape[-2]), np.arange(a.shape[-1]))  # > 0 below the main diagonal
    return np.where(below <= -k if upper else below >= -k, a, np.zeros((), a.dtype))


def unsqueeze(data, axes):
    """With new axes of size 1 at these places of the result; a view.

    ONNX ai.onnx Unsqueeze, since version 13.

    Parameters
    ----------
    data : array
    axes : array of integers

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.unsqueeze(np.zeros(3), [0, -1]).shape
    (1, 3, 1)
    """
    func = "unsqueeze"
    a = _array(data, func, "data")
    count = len(_ints(np.atleast_1d(_array(axes, func, "axes")), func, "axes"))
    places = set(_axes(np.atleast_1d(axes), a.ndim + count, func))
    sizes = iter(a.shape)
    return a.reshape(tuple(1 if i in places else next(sizes) for i in _range(a.ndim + count)))
