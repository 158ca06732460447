"""Rotary position embedding: ai.onnx RotaryEmbedding and com.microsoft's."""
cimport numpy as cnp
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "rotary/rotary.h" nogil:
    ctypedef struct qk_rotary_args:
        const void *x
        void *y
        const void *cos
        const void *sin
        const int64_t *positions
        int dtype, cache_dtype, interleaved
        int64_t batch, sequence, heads, head_size, half
        int64_t x_batch, x_sequence, x_head, y_batch, y_sequence, y_head
        int64_t first_row, batch_rows, rows
    int64_t qk_rotary(int isa, int threads, const qk_rotary_args *args)

# elements for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 16


cdef int64_t _whole_number(object value, str func, str name) except -1:
    if PyLong_CheckExact(value) and value >= 0:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{func}: {name}: expected an int, got {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{func}: {name}: expected a number >= 0, got {value}")
    return value


cdef int _flag(object value, str func, str name) except -1:
    if value not in (0, 1):
        raise ValueError(f"{func}: {name}: expected 0 or 1, got {value!r}")
    return int(value)


cdef cnp.ndarray _heads_input(object x, str func):
    """x with each head's elements side by side in memory, else as it is: a transposed view is not copied."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "x")
    cdef int rank = cnp.PyArray_NDIM(a)
    if _arrays.dtype_code(a) < 0:
        raise TypeError(f"{func}: x: expected dtype {_arrays.names_of(_arrays.FLOATS)}, got {a.dtype}")
    if rank != 3 and rank != 4:
        raise ValueError(f"{func}: x: expected 3 or 4 dimensions, got shape {_arrays.shape_of(a)}")
    if not cnp.PyArray_ISALIGNED(a) or cnp.PyArray_STRIDE(a, rank - 1) != cnp.PyArray_ITEMSIZE(a) and cnp.PyArray_DIM(a, rank - 1) > 1:
        return _arrays.contiguous(np.ascontiguousarray(a))
    return a


cdef int _measure(qk_rotary_args *args, cnp.ndarray a, object num_heads, int64_t head_size, str func) except -1:
    """Sizes and strides of x; head_size is what a 3-D x without num_heads takes, 0 if it needs num_heads."""
    cdef int64_t heads = _whole_number(num_heads, func, "num_heads"), hidden
    cdef cnp.npy_intp *strides = cnp.PyArray_STRIDES(a)
    args.batch = cnp.PyArray_DIM(a, 0)
    args.x_batch = strides[0]
    if cnp.PyArray_NDIM(a) == 4:
        args.heads, args.sequence, args.head_size = cnp.PyArray_DIM(a, 1), cnp.PyArray_DIM(a, 2), cnp.PyArray_DIM(a, 3)
        args.x_head, args.x_sequence = strides[1], strides[2]
        if heads and heads != args.heads:
            raise ValueError(f"{func}: num_heads: expected {args.heads} or 0 for x of shape {_arrays.shape_of(a)}, got {heads}")
        return 0
    args.sequence, hidden = cnp.PyArray_DIM(a, 1), cnp.PyArray_DIM(a, 2)
    args.x_sequence = strides[1]
    if heads:
        if hidden % heads:
            raise ValueError(f"{func}: num_heads: expected a divisor of x's last dimension {hidden}, got {heads}")
        args.heads, args.head_size = heads, hidden // heads
    elif head_size:
        if hidden % head_size:
            raise ValueError(f"{func}: x: expected a multiple of {head_size}, twice the caches' width, as last dimension, got {hidden}")
        args.heads, args.head_size = hidden // head_size, head_size
    else:
        raise ValueError(f"{func}: num_heads: expected a number > 0 for x with 3 dimensions, got 0")
    args.x_head = args.head_size * cnp.PyArray_ITEMSIZE(a)
    return 0


cdef int _rotary_dim(qk_rotary_args *args, object rotary_embedding_dim, str func) except -1:
    cdef int64_t dim = _whole_number(rotary_embedding_dim, func, "rotary_embedding_dim")
    if dim % 2 or dim > args.head_size:
        raise ValueError(f"{func}: rotary_embedding_dim: expected an even number up to the head size {args.head_size}, got {dim}")
    if not dim and args.head_size % 2:
        raise ValueError(f"{func}: x: expected an even head size, got {args.head_size}")
    args.half = (dim if dim else args.head_size) // 2
    return 0


cdef cnp.ndarray _cache(object cache, int code, str func, str name):
    return _arrays.float_input(cache, 1 << code | _arrays.F32_ONLY, func, name)


cdef cnp.ndarray _run(qk_rotary_args *args, cnp.ndarray a, cnp.ndarray cos, cnp.ndarray sin, cnp.ndarray positions, object out, object threads, str func):
    cdef cnp.ndarray y = _arrays.output(out, _arrays.shape_of(a), _arrays.dtype_code(a), func)
    cdef int64_t size = cnp.PyArray_ITEMSIZE(a), bad, work = args.batch * args.sequence * args.heads * args.head_size
    cdef int n = _arrays.num_threads(threads, func)
    args.dtype, args.cache_dtype = _arrays.dtype_code(a), _arrays.dtype_code(cos)
    if _arrays.dtype_code(sin) != args.cache_dtype:
        raise TypeError(f"{func}: sin_cache: expected dtype {cos.dtype} as cos_cache, got {sin.dtype}")
    if out is not None:
        if cnp.PyArray_IS_C_CONTIGUOUS(a):
            _arrays.check_overlap(y, a, True, func, "x")
        elif np.may_share_memory(y, a):
            raise ValueError(f"{func}: out: overlaps x without being the same array")
        _arrays.check_overlap(y, cos, False, func, "cos_cache")
        _arrays.check_overlap(y, sin, False, func, "sin_cache")
        if positions is not None:
            _arrays.check_overlap(y, positions, False, func, "position_ids")
    args.y_batch = args.sequence * args.heads * args.head_size * size
    if cnp.PyArray_NDIM(a) == 4:
        args.y_head, args.y_sequence = args.sequence * args.head_size * size, args.head_size * size
    else:
        args.y_head, args.y_sequence = args.head_size * size, args.heads * args.head_size * size
    args.x, args.y, args.cos, args.sin = cnp.PyArray_DATA(a), cnp.PyArray_DATA(y), cnp.PyArray_DATA(cos), cnp.PyArray_DATA(sin)
    args.positions = NULL if positions is None else <int64_t *>cnp.PyArray_DATA(positions)
    n = _arrays.worth(n, work, GRAIN)
    if n > args.batch * args.sequence:
        n = <int>(args.batch * args.sequence)
    if args.batch * args.sequence:
        with nogil:
            bad = qk_rotary(_runtime.isa(), n, args)
        if bad >= 0:
            raise IndexError(f"{func}: position_ids: expected 0 to {args.rows - 1} for caches of {args.rows} rows, got {positions.flat[bad]}")
    return y


def rotary_embedding(x, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=0, rotary_embedding_dim=0, out=None, threads=None):
    """Turn pairs of each head's elements by the angles of the token's position.

    ONNX ai.onnx RotaryEmbedding, since version 23. Of each pair ``(a, b)`` with its ``(cos, sin)`` comes ``(a * cos - b * sin, b * cos + a * sin)``,
    every operation rounded in float32, so float32 results equal NumPy's to the bit; float16 and bfloat16 are rounded once.

    Parameters
    ----------
    x : array, float32, float16 or bfloat16
        (batch, heads, sequence, head_size), or (batch, sequence, heads * head_size) with `num_heads`. Any strides; not copied if a head's
        elements lie side by side.
    cos_cache, sin_cache : array, x's dtype or float32
        (rows, r / 2) with `position_ids`, (batch, sequence, r / 2) without; r is `rotary_embedding_dim`, or head_size where that is 0.
    position_ids : array of integers, (batch, sequence), optional
        Rows of the caches, 0 to rows - 1.
    interleaved : {0, 1}, default 0
        The pairs are elements (i, r / 2 + i) for 0, (2 i, 2 i + 1) for 1.
    num_heads : int, default 0
    rotary_embedding_dim : int, default 0
        How many elements of a head are turned, an even number; the others are copied. 0: all.
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
        For a shape or an attribute.
    IndexError
        For a position without a row in the caches.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> x = np.float32([[[[1, 2, 3, 4]]]])
    >>> qkernels.rotary_embedding(x, np.float32([[[0, 1]]]), np.float32([[[1, 0]]]))
    array([[[[-3.,  2.,  1.,  4.]]]], dtype=float32)
    """
    cdef str func = "rotary_embedding"
    cdef cnp.ndarray a = _heads_input(x, func), positions = None
    cdef cnp.ndarray cos = _cache(cos_cache, _arrays.dtype_code(a), func, "cos_cache"), sin = _cache(sin_cache, _arrays.dtype_code(a), func, "sin_cache")
    cdef qk_rotary_args args
    args.interleaved = _flag(interleaved, func, "interleaved")
    _measure(&args, a, num_heads, 0, func)
    _rotary_dim(&args, rotary_embedding_dim, func)
    args.first_row = args.batch_rows = args.rows = 0
    if position_ids is None:
        args.batch_rows = args.sequence
        _arrays.check_shape(cos, (args.batch, args.sequence, args.half), func, "cos_cache")
    else:
        positions = _arrays.int_input(position_ids, func, "position_ids")
        _arrays.check_shape(positions, (args.batch, args.sequence), func, "position_ids")
        if cnp.PyArray_NDIM(cos) != 2:
            raise ValueError(f"{func}: cos_cache: expected 2 dimensions where position_ids are given, got shape {_arrays.shape_of(cos)}")
        args.rows = cnp.PyArray_DIM(cos, 0)
        _arrays.check_shape(cos, (args.rows, args.half), func, "cos_cache")
    _arrays.check_shape(sin, _arrays.shape_of(cos), func, "sin_cache")
    return _run(&args, a, cos, sin, positions, out, threads, func)


def _in_microsoft_order(x, position_ids, cos_cache, sin_cache, interleaved, num_heads, rotary_embedding_dim, scale, is_packed_batching, out, threads):
    """`qkernels.contrib.rotary_embedding`."""
    cdef str func = "contrib.rotary_embedding"
    cdef cnp.ndarray a = _heads_input(x, func), positions = _arrays.int_input(position_ids, func, "position_ids")
    cdef cnp.ndarray cos = _cache(cos_cache, _arrays.dtype_code(a), func, "cos_cache"), sin = _cache(sin_cache, _arrays.dtype_code(a), func, "sin_cache")
    cdef qk_rotary_args args
    cdef int64_t start
    cdef int packed = _flag(is_packed_batching, func, "is_packed_batching")
    if scale != 1:
        raise ValueError(f"{func}: scale: expected 1, got {scale}")
    if cnp.PyArray_NDIM(cos) != 2:
        raise ValueError(f"{func}: cos_cache: expected 2 dimensions, got shape {_arrays.shape_of(cos)}")
    args.interleaved = _flag(interleaved, func, "interleaved")
    _measure(&args, a, num_heads, 0 if rotary_embedding_dim else 2 * cnp.PyArray_DIM(cos, 1), func)
    _rotary_dim(&args, rotary_embedding_dim, func)
    args.first_row, args.batch_rows, args.rows = 0, 0, cnp.PyArray_DIM(cos, 0)
    _arrays.check_shape(cos, (args.rows, args.half), func, "cos_cache")
    _arrays.check_shape(sin, (args.rows, args.half), func, "sin_cache")
    if cnp.PyArray_SIZE(positions) == 1 and cnp.PyArray_NDIM(positions) < 2 and not packed:
        start = positions.item()
        if start < 0 or start > args.rows - args.sequence:
            raise IndexError(f"{func}: position_ids: expected 0 to {args.rows - args.sequence} for {args.sequence} tokens and caches of "
                             f"{args.rows} rows, got {start}")
        args.first_row, positions = start, None
    elif not _arrays.has_shape(positions, (args.batch, args.sequence)):
        raise ValueError(f"{func}: position_ids: expected shape {'' if packed else '(1,) or '}{(args.batch, args.sequence)}, "
                         f"got {_arrays.shape_of(positions)}")
    return _run(&args, a, cos, sin, positions, out, threads, func)
