"""Attention: ai.onnx Attention and com.microsoft GroupQueryAttention on arrays, and the fused call of a decoder with its cache."""
cimport numpy as cnp
from cpython.long cimport PyLong_CheckExact
from libc.math cimport INFINITY, isfinite, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from qkernels cimport _arrays, _runtime
from qkernels.kv_cache cimport KVCache

import numpy as np

cnp.import_array()

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

# products (rows × keys × head size) for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 16


cdef int _threads_worth(const qk_attention_args *a, int threads) noexcept nogil:
    return _arrays.worth(threads, a.batch * a.heads * a.rows * (a.keys + 16) * (a.d + a.dv), GRAIN)


cdef void _clear(qk_attention_args *a) noexcept nogil:
    """Everything optional absent."""
    memset(a, 0, sizeof(a[0]))
    a.mask_dtype, a.left, a.right, a.scores_hidden = QK_MASK_NONE, -1, -1, -INFINITY


cdef int _run(qk_attention_args *a, int threads, bint attend) except -1:
    """The attention, and the scores where they are asked for; where `attend` is False and no probabilities are wanted, the scores alone."""
    cdef float *scratch
    if not (a.batch and a.heads and a.rows):
        return 0
    threads = _threads_worth(a, threads)
    with nogil:
        scratch = <float *>aligned_alloc(64, 4 * qk_attention_scratch(a, threads))
        if scratch:
            if attend:
                qk_attention(_runtime.isa(), threads, a, scratch)
            if a.scores:
                qk_attention_scores(_runtime.isa(), threads, a, scratch)
    if not scratch:
        raise MemoryError
    free(scratch)
    return 0


cdef void _place(qk_attention_args *a, cnp.ndarray q, cnp.ndarray k, cnp.ndarray v) noexcept:
    """Data and strides of (batch, heads, rows or keys, size) arrays."""
    a.q_dtype, a.k_dtype, a.v_dtype = _arrays.dtype_code(q), _arrays.dtype_code(k), _arrays.dtype_code(v)
    a.q, a.k, a.v = cnp.PyArray_DATA(q), cnp.PyArray_DATA(k), cnp.PyArray_DATA(v)
    a.q_batch, a.q_head, a.q_row = _step(q, 0), _step(q, 1), _step(q, 2)
    a.k_batch, a.k_head, a.k_row = _step(k, 0), _step(k, 1), _step(k, 2)
    a.v_batch, a.v_head, a.v_row = _step(v, 0), _step(v, 1), _step(v, 2)


cdef void _place_result(qk_attention_args *a, cnp.ndarray y) noexcept:
    a.y, a.y_dtype = cnp.PyArray_DATA(y), a.q_dtype
    a.y_batch, a.y_head, a.y_row = _step(y, 0), _step(y, 1), _step(y, 2)


cdef cnp.ndarray _strided(object x, int allowed, str func, str arg):
    """An aligned array of an allowed float type whose last axis is contiguous: the caller's own where it is so already."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    cdef int code = _arrays.dtype_code(a), n = cnp.PyArray_NDIM(a), i
    cdef bint plain
    if code < 0 or not (allowed >> code) & 1:
        raise TypeError(f"{func}: {arg}: expected dtype {_arrays.names_of(allowed)}, got {a.dtype}")
    plain = cnp.PyArray_ISALIGNED(a) and n > 0 and (cnp.PyArray_DIM(a, n - 1) == 1 or cnp.PyArray_STRIDE(a, n - 1) == cnp.PyArray_ITEMSIZE(a))
    for i in range(n - 1):
        plain = plain and cnp.PyArray_STRIDE(a, i) % cnp.PyArray_ITEMSIZE(a) == 0
    return a if plain else np.require(a, requirements=("C", "A"))


cdef cnp.ndarray _heads(cnp.ndarray a, int64_t heads, str func, str arg, str attribute):
    """(batch, heads, sequence, size), as a view of (batch, sequence, heads * size) where the array has three dimensions."""
    cdef tuple shape = _arrays.shape_of(a)
    cdef cnp.npy_intp sizes[4]
    cdef cnp.PyArray_Dims dims
    if len(shape) == 4:
        if heads and shape[1] != heads:
            raise ValueError(f"{func}: {arg}: expected {attribute} {heads}, got shape {shape}")
        return a
    if heads <= 0:
        raise ValueError(f"{func}: {attribute}: expected the number of heads with 3-D inputs, got {heads}")
    if shape[2] % heads:
        raise ValueError(f"{func}: {arg}: expected a last dimension divisible by {attribute} {heads}, got shape {shape}")
    sizes[0], sizes[1], sizes[2], sizes[3] = cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(a, 1), heads, cnp.PyArray_DIM(a, 2) // heads
    dims.ptr, dims.len = sizes, 4
    return cnp.PyArray_SwapAxes(cnp.PyArray_Newshape(a, &dims, cnp.NPY_CORDER), 1, 2)


cdef int64_t _step(cnp.ndarray a, int axis) noexcept:
    """Stride in elements."""
    return cnp.PyArray_STRIDE(a, axis) // cnp.PyArray_ITEMSIZE(a) if cnp.PyArray_DIM(a, axis) > 1 else 0


cdef void _copy_past(cnp.ndarray past, cnp.ndarray present, int threads):
    """The first tokens of (batch, heads, tokens, size)."""
    cdef int64_t size = cnp.PyArray_ITEMSIZE(past), bytes
    if not (cnp.PyArray_IS_C_CONTIGUOUS(past) and cnp.PyArray_IS_C_CONTIGUOUS(present)):
        (<object>present)[:, :, :past.shape[2]] = past
        return
    bytes = past.shape[2] * past.shape[3] * size
    threads = _arrays.worth(threads, past.size * size, 1 << 18)
    with nogil:
        qk_attention_copy(threads, cnp.PyArray_BYTES(present), present.shape[2] * present.shape[3] * size, cnp.PyArray_BYTES(past), bytes,
                          past.shape[0] * past.shape[1], bytes)


cdef cnp.ndarray _concatenate(cnp.ndarray past, cnp.ndarray new, int threads):
    cdef cnp.ndarray both = np.empty((new.shape[0], new.shape[1], (past.shape[2] if past is not None else 0) + new.shape[2], new.shape[3]),
                                     (<object>new).dtype)
    if past is not None:
        _copy_past(past, both, threads)
    (<object>both)[:, :, both.shape[2] - new.shape[2]:] = new
    return both


cdef cnp.ndarray _past(object x, cnp.ndarray new, str func, str arg, str other):
    cdef cnp.ndarray a = _strided(x, 1 << _arrays.dtype_code(new), func, arg)
    if a.ndim != 4 or a.shape[0] != new.shape[0] or a.shape[1] != new.shape[1] or a.shape[3] != new.shape[3]:
        raise ValueError(f"{func}: {arg}: expected shape ({new.shape[0]}, {new.shape[1]}, past, {new.shape[3]}) for this {other}, "
                         f"got {_arrays.shape_of(a)}")
    return a


cdef cnp.ndarray _mask(object x, qk_attention_args *args, int64_t least, str func):
    """The mask broadcast to (batch, heads, rows, its own last dimension), of `least` at the least. What it does not reach is hidden."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, "attn_mask")
    cdef int code = _arrays.dtype_code(a)
    cdef object full
    if a.dtype == np.bool_:
        args.mask_dtype = QK_MASK_BOOL
        if a.ndim and not (cnp.PyArray_STRIDE(a, a.ndim - 1) == 1):
            a = np.ascontiguousarray(a)
    elif code >= 0:
        args.mask_dtype = code
        a = _strided(a, _arrays.FLOATS, func, "attn_mask")
    else:
        raise TypeError(f"{func}: attn_mask: expected dtype bool, float32, float16 or bfloat16, got {a.dtype}")
    full = (args.batch, args.heads, args.rows, args.keys)
    if not 1 <= a.ndim <= 4 or a.shape[a.ndim - 1] > args.keys:
        raise ValueError(f"{func}: attn_mask: expected a shape that broadcasts to {full}, got {_arrays.shape_of(a)}")
    if a.shape[a.ndim - 1] < least:
        raise ValueError(f"{func}: attn_mask: expected a last dimension of at least nonpad_kv_seqlen's {least}, got {_arrays.shape_of(a)}")
    args.keys = a.shape[a.ndim - 1]
    try:
        a = np.broadcast_to(a, (args.batch, args.heads, args.rows, args.keys))
    except ValueError:
        raise ValueError(f"{func}: attn_mask: expected a shape that broadcasts to {full}, got {_arrays.shape_of(a)}") from None
    args.mask = cnp.PyArray_DATA(a)
    args.mask_batch, args.mask_head, args.mask_row = _step(a, 0), _step(a, 1), _step(a, 2)
    return a


cdef float _number(object value, bint positive, str func, str arg) except? -1:
    cdef float number = value
    if not isfinite(number) or (positive and number < 0):
        raise ValueError(f"{func}: {arg}: expected a finite number{' >= 0' if positive else ''}, got {value}")
    return number


cdef cnp.ndarray _lengths(object x, int64_t batch, int64_t most, str func, str arg):
    """(batch,) numbers of valid tokens, 0 to `most`."""
    cdef cnp.ndarray a = _arrays.int_input(x, func, arg)
    _arrays.check_shape(a, (batch,), func, arg)
    for n in a.tolist():
        if not 0 <= n <= most:
            raise ValueError(f"{func}: {arg}: expected 0 to {most}, got {n}")
    return a


cdef int64_t _window(object value, str func, str arg) except? -2:
    if PyLong_CheckExact(value) and value == -1:
        return -1
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{func}: {arg}: expected an int, got {type(value).__name__}")
    if value < -1:
        raise ValueError(f"{func}: {arg}: expected -1 (no bound) or a number >= 0, got {value}")
    return min(value, 2**40)


def attention(q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0, q_num_heads=0, kv_num_heads=0,
              scale=None, softcap=0.0, left_window_size=-1, right_window_size=-1, qk_matmul_output_mode=0, softmax_precision=None, outputs=(0,),
              out=None, threads=None):
    """Scaled dot-product attention: ``softmax(softcap(q @ k.T * scale) + mask) @ v``, with grouped heads.

    ONNX ai.onnx Attention, since version 23; `nonpad_kv_seqlen` is version 24's, the windows are version 25's. Scores, softmax and sums are float32
    whatever the inputs are, and the result is rounded once.
    A query gives the same bits whether it comes alone, in a prompt or after a past. Query head h reads kv head ``h // (heads // kv_heads)``.
    A query that sees no key gives zeros; keys beyond its causal frontier are never multiplied, so what lies there cannot leak.

    Parameters
    ----------
    q : array, float32, float16 or bfloat16
        (batch, heads, sequence, head size), or (batch, sequence, heads * head size) with `q_num_heads` and `kv_num_heads`.
    k, v : array, float32, float16 or bfloat16
        (batch, kv_heads, keys, size) or (batch, keys, kv_heads * size), the rank of q. The size of v may differ from that of q and k; their
        dtypes may differ from each other's and from q's.
    attn_mask : array, bool, float32, float16 or bfloat16, optional
        Broadcasts to (batch, heads, sequence, past + keys) but for its last dimension, which is not stretched: keys beyond it are hidden.
        False hides a key; floats are added to the scores, and -inf hides.
    past_key, past_value : array, optional
        (batch, kv_heads, past, size): in front of k and v.
    nonpad_kv_seqlen : array of integers, (batch,), optional
        How many keys each sequence has, where k and v are a whole cache. The queries are the last ones: query i has position
        ``nonpad_kv_seqlen - sequence + i``. Not together with a past or with present outputs.
    is_causal : int, default 0
        1: a query sees the keys up to its own position, which is past + i, or as `nonpad_kv_seqlen` says.
    q_num_heads, kv_num_heads : int, default 0
        Required with three dimensions.
    scale : float, optional
        Default 1 / sqrt(head size).
    softcap : float, default 0
        c > 0 turns a score s into ``c * tanh(s / c)`` before the mask.
    left_window_size, right_window_size : int, default -1
        A query at position p sees the keys p - left to p + right; -1: no bound. (com.microsoft's ``local_window_size=W`` is ``left_window_size=W - 1``.)
    qk_matmul_output_mode : int, default 0
        What output 3 holds: 0 the scaled scores, 1 after the soft cap, 2 after mask, causality, windows and lengths, 3 the probabilities.
    softmax_precision : int, optional
        ONNX data type of the softmax: 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16). It changes nothing: the softmax is float32's,
        with an error below the rounding of a float32 result for 11, and exacter than what is asked for by the others.
    outputs : tuple of int, default (0,)
        Which of y (0), present_key (1), present_value (2) and qk_matmul_output (3) to return.
    out : ndarray, optional
        Receives y; overlaps no input.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        y has q's rank and dtype; present_key and present_value are (batch, kv_heads, past + keys, size), qk_matmul_output is
        (batch, heads, sequence, past + keys) of q's dtype.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> q = np.zeros((1, 1, 2, 4), np.float32)
    >>> v = np.float32([1, 3]).reshape(1, 1, 2, 1)
    >>> qkernels.attention(q, q, v, is_causal=1).ravel()
    array([1., 2.], dtype=float32)
    """
    cdef str func = "attention"
    cdef cnp.ndarray a = _strided(q, _arrays.FLOATS, func, "q"), b = _strided(k, _arrays.FLOATS, func, "k")
    cdef cnp.ndarray c = _strided(v, _arrays.FLOATS, func, "v")
    cdef cnp.ndarray past_a = None, past_b = None, mask = None, y, lengths = None, starts, statistics, scores
    cdef qk_attention_args args
    cdef int n
    cdef tuple shape
    cdef dict results = {}
    cdef bint attend
    outputs = _arrays.check_outputs(outputs, (0, 1, 2, 3), func)
    if out is not None and 0 not in outputs:
        raise ValueError(f"{func}: out: output 0 is not among outputs={outputs}")
    if qk_matmul_output_mode not in (0, 1, 2, 3):
        raise ValueError(f"{func}: qk_matmul_output_mode: expected 0 to 3, got {qk_matmul_output_mode}")
    if softmax_precision is not None and softmax_precision not in (0, 1, 10, 11, 16):
        raise ValueError(f"{func}: softmax_precision: expected 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16), got {softmax_precision}")
    if is_causal not in (0, 1):
        raise ValueError(f"{func}: is_causal: expected 0 or 1, got {is_causal}")
    shape = _arrays.shape_of(a)
    if len(shape) not in (3, 4) or b.ndim != a.ndim or c.ndim != a.ndim:
        raise ValueError(f"{func}: q, k, v: expected 3 or 4 dimensions each, got shapes {shape}, {_arrays.shape_of(b)}, {_arrays.shape_of(c)}")
    a = _heads(a, q_num_heads, func, "q", "q_num_heads")
    b = _heads(b, kv_num_heads, func, "k", "kv_num_heads")
    c = _heads(c, kv_num_heads, func, "v", "kv_num_heads")
    if b.shape[0] != a.shape[0] or b.shape[3] != a.shape[3]:
        raise ValueError(f"{func}: k: expected batch {a.shape[0]} and head size {a.shape[3]}, got shape {_arrays.shape_of(b)} "
                         "as (batch, heads, keys, size)")
    if a.shape[3] == 0:
        raise ValueError(f"{func}: q: expected a head size of at least 1, got shape {shape}")
    if c.shape[0] != b.shape[0] or c.shape[1] != b.shape[1] or c.shape[2] != b.shape[2]:
        raise ValueError(f"{func}: v: expected batch {b.shape[0]}, {b.shape[1]} heads and {b.shape[2]} keys, got shape {_arrays.shape_of(c)} "
                         "as (batch, heads, keys, size)")
    if b.shape[1] == 0 or a.shape[1] % b.shape[1]:
        raise ValueError(f"{func}: q: expected a multiple of {b.shape[1]} kv heads, got {a.shape[1]} heads")
    if (past_key is None) != (past_value is None):
        raise ValueError(f"{func}: past_{'value' if past_value is None else 'key'}: expected both past_key and past_value or neither")
    _clear(&args)
    if past_key is not None:
        past_a, past_b = _past(past_key, b, func, "past_key", "k"), _past(past_value, c, func, "past_value", "v")
        if past_a.shape[2] != past_b.shape[2]:
            raise ValueError(f"{func}: past_value: expected {past_a.shape[2]} past keys, got shape {_arrays.shape_of(past_b)}")
        args.past = past_a.shape[2]
    n = _arrays.num_threads(threads, func)
    if args.past or 1 in outputs:
        b = results[1] = _concatenate(past_a, b, n)
    if args.past or 2 in outputs:
        c = results[2] = _concatenate(past_b, c, n)

    args.batch, args.heads, args.kv_heads, args.rows, args.keys = a.shape[0], a.shape[1], b.shape[1], a.shape[2], b.shape[2]
    args.d, args.dv, args.causal = a.shape[3], c.shape[3], is_causal
    args.scale = 1 / sqrt(<double>args.d) if scale is None else _number(scale, False, func, "scale")
    args.softcap = _number(softcap, True, func, "softcap")
    args.left, args.right = _window(left_window_size, func, "left_window_size"), _window(right_window_size, func, "right_window_size")
    args.scores_keys = args.keys
    if nonpad_kv_seqlen is not None:
        if past_key is not None or 1 in outputs or 2 in outputs:
            raise ValueError(f"{func}: nonpad_kv_seqlen: expected no past and no present outputs with it, since k and v are the whole cache")
        lengths = _lengths(nonpad_kv_seqlen, args.batch, args.keys, func, "nonpad_kv_seqlen")
        starts = lengths - args.rows
        args.ends, args.pasts = <const int64_t *>cnp.PyArray_DATA(lengths), <const int64_t *>cnp.PyArray_DATA(starts)
    if attn_mask is not None:
        mask = _mask(attn_mask, &args, 0 if lengths is None or not args.batch else lengths.max(), func)
    _place(&args, a, b, c)
    attend = 0 in outputs
    shape = shape[:3] + (args.dv,) if len(shape) == 4 else (shape[0], shape[1], args.heads * args.dv)
    if attend or (3 in outputs and qk_matmul_output_mode == QK_PROBABILITIES):
        attend = True
        y = results[0] = _arrays.output(out, shape, args.q_dtype, func)
        if out is not None:
            _arrays.check_apart(y, a, func, "q")
            _arrays.check_apart(y, b, func, "k")
            _arrays.check_apart(y, c, func, "v")
            if mask is not None:
                _arrays.check_apart(y, mask, func, "attn_mask")
        _place_result(&args, _heads(y, args.heads, func, "out", "q_num_heads") if args.dv else y)
    if 3 in outputs:
        scores = results[3] = np.empty((args.batch, args.heads, args.rows, args.scores_keys), a.dtype)
        args.scores, args.scores_mode, args.y_dtype = cnp.PyArray_DATA(scores), qk_matmul_output_mode, args.q_dtype
        if qk_matmul_output_mode == QK_PROBABILITIES:
            statistics = np.empty((args.batch, args.heads, args.rows, 2), np.float32)
            args.statistics = <float *>cnp.PyArray_DATA(statistics)
    if attend or args.scores:
        _run(&args, n, attend)
    return _arrays.pick(results, outputs)


cdef inline bint _is_plain(object x, int rank) noexcept:
    """An aligned C-contiguous float32 ndarray of a rank, of native byte order."""
    return (isinstance(x, cnp.ndarray) and cnp.PyArray_TYPE(x) == cnp.NPY_FLOAT32 and cnp.PyArray_NDIM(x) == rank
            and cnp.PyArray_ISCARRAY_RO(x))


cdef int _flag(object value, str func, str arg) except -1:
    if value not in (0, 1):
        raise ValueError(f"{func}: {arg}: expected 0 or 1, got {value!r}")
    return int(value)


cdef int64_t _local_window(object value, str func) except? -2:
    """The left bound of com.microsoft's window of W keys, the query's own among them."""
    cdef int64_t size = _window(value, func, "local_window_size")
    if size == 0:
        raise ValueError(f"{func}: local_window_size: expected -1 (no window) or a number > 0, got {value}")
    return size - 1 if size > 0 else -1


cdef int64_t _rotary_half(object cos, int64_t d, str func, str arg) except -1:
    """The width of a rotary table: half of the dimensions that are turned."""
    cdef cnp.ndarray a = _arrays.as_array(cos, func, arg)
    if cnp.PyArray_NDIM(a) != 2 or not 0 < 2 * cnp.PyArray_DIM(a, 1) <= d:
        raise ValueError(f"{func}: {arg}: expected shape (positions, width) with a width of 1 to {d // 2} for a head size of {d}, got {_arrays.shape_of(a)}")
    return cnp.PyArray_DIM(a, 1)


cdef cnp.ndarray _vector(object x, int64_t n, str func, str arg):
    cdef cnp.ndarray a = x if _is_plain(x, 1) else _arrays.same_float_input(x, _arrays.F32, func, arg)
    if cnp.PyArray_NDIM(a) != 1 or cnp.PyArray_DIM(a, 0) != n:
        _arrays.check_shape(a, (n,), func, arg)
    return a


cdef cnp.ndarray _table(object x, int64_t half, int64_t positions, str func, str arg):
    cdef cnp.ndarray a = x if _is_plain(x, 2) else _arrays.same_float_input(x, _arrays.F32, func, arg)
    if cnp.PyArray_NDIM(a) != 2 or cnp.PyArray_DIM(a, 1) != half:
        raise ValueError(f"{func}: {arg}: expected shape (positions, {half}), got {_arrays.shape_of(a)}")
    if cnp.PyArray_DIM(a, 0) < positions:
        raise ValueError(f"{func}: {arg}: expected at least {positions} positions, got {cnp.PyArray_DIM(a, 0)}")
    return a


def cached_attention(KVCache cache not None, layer, qkv, *, q_norm=None, k_norm=None, epsilon=1e-6, cos=None, sin=None, interleaved=0, num_heads,
                     scale=None, softcap=0.0, local_window_size=-1, sink=None, out=None, threads=None):
    """One decoder layer's attention in one call: norm and rotation of q and k, append to the cache, causal attention.

    The same bits as `rms_normalization` of each head, `rotary_embedding`, `KVCache.append` and `attention` over the cache. New tokens take
    the positions from ``cache.length`` on; ``cache.advance(n)`` commits them after the last layer, and until then a call may be repeated.

    Parameters
    ----------
    cache : KVCache
    layer : int
    qkv : array, float32
        (n, (num_heads + 2 * kv_heads) * head_size): each row is all heads of q, then of k, then of v. With a cache of several sequences
        (batch, n, ...).
    q_norm, k_norm : array, float32, (head_size,), optional
        Weights of the RMS normalization of every head before the rotation.
    epsilon : float, default 1e-6
    cos, sin : array, float32, (positions, head_size // 2), optional
        Rotary tables, read at the absolute position. A narrower table turns only the first dimensions.
    interleaved : {0, 1}, default 0
        The pairs are dimensions (i, w + i) of tables of width w for 0, (2 i, 2 i + 1) for 1.
    num_heads : int
        Query heads, a multiple of the cache's kv_heads.
    scale : float, optional
        Default 1 / sqrt(head_size).
    softcap : float, default 0
        c > 0 turns a score s into ``c * tanh(s / c)``.
    local_window_size : int, default -1
        W > 0: a query sees the last W keys, its own among them.
    sink : array, float32, (num_heads,), optional
        What each head's softmax has in its denominator besides, as a score.
    out : ndarray, float32, optional
        Overlaps no input.
    threads : int, optional

    Returns
    -------
    ndarray, float32
        (n, num_heads * head_size), or (batch, n, num_heads * head_size).

    Raises
    ------
    IndexError
        For the layer.
    TypeError, ValueError
        Also beyond the cache's max_length or the tables' positions, naming both numbers.
    RuntimeError
        Where another call is using the cache.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> cache = qkernels.KVCache(layers=1, kv_heads=1, head_size=2)
    >>> qkv = np.float32([[0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 3, 4]])
    >>> qkernels.cached_attention(cache, 0, qkv, num_heads=1)
    array([[1., 2.],
           [2., 3.]], dtype=float32)
    >>> cache.advance(2)
    """
    cdef str func = "cached_attention"
    cdef int rank = 2 if cache.batch == 1 and not (isinstance(qkv, cnp.ndarray) and cnp.PyArray_NDIM(qkv) == 3) else 3, n, index
    cdef int64_t heads, width, d = cache.head_size, new
    cdef cnp.ndarray x, y, q_weight = None, k_weight = None, cosine = None, sine = None, sinks = None
    cdef qk_attention_args args
    cdef float *scratch
    cdef const float *data
    index = cache.check_layer(layer, func)
    heads = num_heads
    if heads <= 0 or heads % cache.kv_heads:
        raise ValueError(f"{func}: num_heads: expected a multiple of the cache's {cache.kv_heads} kv heads, got {num_heads}")
    width = (heads + 2 * cache.kv_heads) * d
    x = qkv if _is_plain(qkv, rank) else _arrays.same_float_input(qkv, _arrays.F32, func, "qkv")
    if cnp.PyArray_NDIM(x) != rank or cnp.PyArray_DIM(x, rank - 1) != width or (rank == 3 and cnp.PyArray_DIM(x, 0) != cache.batch):
        raise ValueError(f"{func}: qkv: expected shape ({'' if cache.batch == 1 else f'{cache.batch}, '}n, {width}), got {_arrays.shape_of(x)}")
    new = cnp.PyArray_DIM(x, rank - 2)
    _clear(&args)
    if q_norm is not None:
        q_weight = _vector(q_norm, d, func, "q_norm")
        args.q_norm = <const float *>cnp.PyArray_DATA(q_weight)
    if k_norm is not None:
        k_weight = _vector(k_norm, d, func, "k_norm")
        args.k_norm = <const float *>cnp.PyArray_DATA(k_weight)
    args.q_epsilon = args.k_epsilon = epsilon
    if not args.q_epsilon >= 0:
        raise ValueError(f"{func}: epsilon: expected a number >= 0, got {epsilon}")
    if (cos is None) != (sin is None):
        raise ValueError(f"{func}: {'cos' if cos is None else 'sin'}: expected both cos and sin or neither")
    if cos is not None:
        args.half = _rotary_half(cos, d, func, "cos")
        args.interleaved = _flag(interleaved, func, "interleaved")
        cosine, sine = _table(cos, args.half, cache.length + new, func, "cos"), _table(sin, args.half, cache.length + new, func, "sin")
        args.cos, args.sin = <const float *>cnp.PyArray_DATA(cosine), <const float *>cnp.PyArray_DATA(sine)
    args.scale = 1 / sqrt(<double>d) if scale is None else _number(scale, False, func, "scale")
    args.softcap = _number(softcap, True, func, "softcap")
    args.left = _local_window(local_window_size, func)
    if sink is not None:
        sinks = _vector(sink, heads, func, "sink")
        args.sink = <const float *>cnp.PyArray_DATA(sinks)
    n = _arrays.num_threads(threads, func)
    if (out is not None and _is_plain(out, rank) and cnp.PyArray_ISWRITEABLE(out) and cnp.PyArray_DIM(out, rank - 1) == heads * d
            and cnp.PyArray_DIM(out, rank - 2) == new and (rank == 2 or cnp.PyArray_DIM(out, 0) == cache.batch)):
        y = out
    else:
        y = _arrays.output(out, ((cache.batch,) if rank == 3 else ()) + (new, heads * d), _arrays.F32, func)
    if out is not None:
        _arrays.check_overlap(y, x, False, func, "qkv")
        for a, name in ((q_weight, "q_norm"), (k_weight, "k_norm"), (cosine, "cos"), (sine, "sin"), (sinks, "sink")):
            if a is not None:
                _arrays.check_overlap(y, a, False, func, name)

    args.batch, args.heads, args.kv_heads, args.rows = cache.batch, heads, cache.kv_heads, new
    args.d = args.dv = d
    args.causal = 1
    args.q_dtype = args.y_dtype = _arrays.F32
    args.k_dtype = args.v_dtype = cache.code
    data = <const float *>cnp.PyArray_DATA(x)
    args.q, args.new_k, args.new_v, args.y = data, data + heads * d, data + (heads + cache.kv_heads) * d, cnp.PyArray_DATA(y)
    args.q_batch = args.new_k_batch = args.new_v_batch = new * width
    args.q_head = args.new_k_head = args.new_v_head = d
    args.q_row = args.new_k_row = args.new_v_row = width
    args.y_batch, args.y_head, args.y_row = new * heads * d, d, heads * d
    cache.enter(func)
    try:
        args.past, args.keys = cache.length, cache.length + new
        if cosine is not None and cnp.PyArray_DIM(cosine, 0) < args.keys or sine is not None and cnp.PyArray_DIM(sine, 0) < args.keys:
            raise RuntimeError(f"{func}: cache: changed by another thread during the call")
        cache.reserve(args.keys, func)
        args.k, args.v = cache.keys_data[index], cache.values_data[index]
        args.k_row = args.v_row = d
        args.k_head = args.v_head = cache.room[index] * d
        args.k_batch = args.v_batch = cache.kv_heads * args.k_head
        if cache.code == QK_CACHE_I8:
            args.k_rows, args.v_rows = cache.key_scales[index], cache.value_scales[index]
            args.rows_head, args.rows_batch = cache.room[index], cache.kv_heads * cache.room[index]
        if new:
            n = _threads_worth(&args, n)
            scratch = cache.working_memory(qk_attention_scratch(&args, n))
            with nogil:
                qk_attention(_runtime.isa(), n, &args, scratch)
        cache.pending[index] = new
    finally:
        cache.leave()
    return y


cdef int64_t _count(object value, str func, str arg) except -1:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{func}: {arg}: expected an int, got {type(value).__name__}")
    if not 0 < value < 2**31:
        raise ValueError(f"{func}: {arg}: expected a number > 0, got {value}")
    return value


cdef float _epsilon(object value, str func, str arg) except? -1:
    cdef double number = _arrays.number(value, func, arg)
    if not (isfinite(number) and number > 0):
        raise ValueError(f"{func}: {arg}: expected a finite number > 0, got {value}")
    return number


cdef cnp.ndarray _widened(object x, int64_t n, int code, str func, str arg):
    """(n,) of the float type `code` or float32, as float32."""
    cdef cnp.ndarray a = _arrays.float_input(x, 1 << code | _arrays.F32_ONLY, func, arg)
    _arrays.check_shape(a, (n,), func, arg)
    return (<object>a).astype(np.float32, copy=False)


cdef tuple _rows_of(object cos, object sin, int64_t half, int code, cnp.ndarray positions, cnp.ndarray pasts, cnp.ndarray counts, int64_t rows, str func):
    """(cos, sin, positions): float32 tables whose rows every valid token's position lies in. Of 16-bit tables only the rows that are
    wanted are widened, and positions then count in these."""
    cdef cnp.ndarray a = _arrays.float_input(cos, 1 << code | _arrays.F32_ONLY, func, "cos_cache")
    cdef cnp.ndarray b = _arrays.float_input(sin, 1 << code | _arrays.F32_ONLY, func, "sin_cache"), at, valid
    cdef int64_t have = a.shape[0]
    _arrays.check_shape(b, _arrays.shape_of(a), func, "sin_cache")
    if positions is None:
        end = (pasts + counts).max() if pasts.size else 0
        if end > have:
            raise IndexError(f"{func}: cos_cache: expected at least {end} positions, got {have}")
        if _arrays.dtype_code(a) == _arrays.F32 and _arrays.dtype_code(b) == _arrays.F32:
            return a, b, None
        at = pasts[:, None] + np.arange(rows)
    else:
        at = positions
    valid = np.arange(rows) < counts[:, None]
    wrong = (at[valid] < 0) | (at[valid] >= have)
    if wrong.any():
        raise IndexError(f"{func}: position_ids: expected 0 to {have - 1} for tables of {have} rows, got {at[valid][wrong][0]}")
    at = np.where(valid, at, 0)
    if _arrays.dtype_code(a) == _arrays.F32 and _arrays.dtype_code(b) == _arrays.F32:
        return a, b, np.ascontiguousarray(at)
    flat = (<object>at).ravel()
    return (<object>a)[flat].astype(np.float32), (<object>b)[flat].astype(np.float32), np.arange(flat.size)


cdef tuple _outs(object out, tuple outputs, str func):
    """`out` as one array, or None, for each output."""
    if not isinstance(out, tuple):
        if out is not None and 0 not in outputs:
            raise ValueError(f"{func}: out: output 0 is not among outputs={outputs}")
        return tuple([out if o == 0 else None for o in outputs])
    if len(out) != len(outputs):
        raise ValueError(f"{func}: out: expected a tuple with an array or None for each of outputs={outputs}, got {len(out)}")
    return out


cdef cnp.ndarray _present(object out, cnp.ndarray past, tuple shape, object dtype, int threads):
    """Where the keys or values of all tokens go, past tokens in place: `out`, which may be the past itself and is then not copied, or a new array."""
    cdef cnp.ndarray a
    if out is None:
        a = np.empty(shape, dtype) if past is not None and past.shape[2] == shape[2] else np.zeros(shape, dtype)
    else:
        a = out
        if _is_same(a, past):
            return a
    if past is not None:
        _copy_past(past, a, threads)
    return a


cdef bint _is_same(cnp.ndarray a, cnp.ndarray b):
    """Whether two arrays are the same memory in the same form."""
    return (b is not None and cnp.PyArray_DATA(a) == cnp.PyArray_DATA(b) and _arrays.shape_of(a) == _arrays.shape_of(b) and cnp.PyArray_ISCARRAY_RO(a)
            and cnp.PyArray_ISCARRAY_RO(b))


cdef cnp.ndarray _scales(object x, object kind, int64_t heads, int64_t d, str func, str arg):
    """(heads, d) float32 scales of a cache of codes."""
    cdef cnp.ndarray a
    if x is None:
        raise ValueError(f"{func}: {arg}: expected the scales of a cache with quantization {kind}, got None")
    a = _arrays.same_float_input(x, _arrays.F32, func, arg)
    if kind == "PER_TENSOR" and a.size != 1:
        raise ValueError(f"{func}: {arg}: expected one scale, got shape {_arrays.shape_of(a)}")
    if a.ndim == 1 and a.size == heads * d and d > 1:
        a = (<object>a).reshape(1, heads, 1, d)
    try:
        a = np.ascontiguousarray(np.broadcast_to(a, (1, heads, 1, d))).reshape(heads, d)
    except ValueError:
        raise ValueError(f"{func}: {arg}: expected a shape that broadcasts to (1, {heads}, 1, {d}), got {_arrays.shape_of(a)}") from None
    if not ((<object>a > 0) & np.isfinite(a)).all():
        raise ValueError(f"{func}: {arg}: expected finite scales > 0")
    return a


cdef int _cache_code(cnp.ndarray past, object k_kind, object v_kind, object bits, int code, str func) except -1:
    """The element type of the cache in C: that of the past, or the query's `code`, or codes of 4 or 8 bits."""
    for kind, name in ((k_kind, "k_quant_type"), (v_kind, "v_quant_type")):
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
            raise ValueError(f"{func}: {name}: expected NONE, PER_TENSOR or PER_CHANNEL, got {kind!r}")
    if (k_kind == "NONE") != (v_kind == "NONE"):
        raise ValueError(f"{func}: v_quant_type: expected a quantization as for keys, {k_kind}, got {v_kind}")
    if k_kind == "NONE":
        if bits:
            raise ValueError(f"{func}: kv_cache_bit_width: expected none for a cache that is not quantized, got {bits}")
        if past is not None and _arrays.dtype_code(past) < 0:
            raise TypeError(f"{func}: past_key: expected dtype {_arrays.names_of(_arrays.FLOATS)} without a quantization, got {past.dtype}")
        return code if past is None else _arrays.dtype_code(past)
    if not bits:
        if past is None:
            raise ValueError(f"{func}: kv_cache_bit_width: expected 4 or 8 for a quantized cache without a past, got {bits}")
        bits = 4 if past.dtype == np.uint8 else 8
    if bits not in (4, 8):
        raise ValueError(f"{func}: kv_cache_bit_width: expected 4 or 8, got {bits}")
    expected = np.uint8 if bits == 4 else np.int8
    if past is not None and past.dtype != expected:
        raise TypeError(f"{func}: past_key: expected dtype {np.dtype(expected)} for a cache of {bits} bits, got {past.dtype}")
    return QK_CACHE_U4 if bits == 4 else QK_CACHE_I8


cdef cnp.ndarray _cache_input(object x, str func, str arg):
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    if a.dtype != np.int8 and a.dtype != np.uint8:
        return _strided(a, _arrays.FLOATS, func, arg)
    return _arrays.contiguous(a)


cdef int64_t _resident(int64_t tokens, int64_t capacity, int64_t window) noexcept:
    """How many of so many tokens a sliding cache holds."""
    cdef int64_t step = capacity - window + 1
    return tokens if tokens <= capacity else tokens - step * ((tokens - capacity + step - 1) // step)


cdef tuple _stage(cnp.ndarray past_k, cnp.ndarray past_v, cnp.ndarray pasts, cnp.ndarray ends, int64_t window, int64_t whole):
    """(keys, values, bases): a sliding cache's tokens at their positions minus a base, a whole number of pieces, so that nothing depends on where
    the window stands; with `whole`, that many rows from position 0 on."""
    cdef int64_t capacity = past_k.shape[2], b, past, held, base
    cdef cnp.ndarray bases = np.array([0 if whole else (n - _resident(n, capacity, window)) // QK_PIECE * QK_PIECE for n in pasts.tolist()], np.int64)
    rows = whole or max((<object>ends - bases).tolist(), default=0)
    staged = []
    for old in (past_k, past_v):
        new = np.zeros((old.shape[0], old.shape[1], rows, old.shape[3]), (<object>old).dtype)
        for b in range(old.shape[0]):
            past, base = (<object>pasts)[b], (<object>bases)[b]
            held = _resident(past, capacity, window)
            new[b, :, past - held - base:past - base] = old[b, :, :held]
        staged.append(new)
    return staged[0], staged[1], bases


cdef tuple _token_counts(cnp.ndarray seqlens, object query_seqlens, int64_t batch, int64_t rows, int64_t new, int64_t total, int64_t past, bint has_past,
                         bint windowed, str func):
    """(past, end, queries) of each sequence, as GroupQueryAttention counts them; `past` is the length of the past's buffer, `new` is `rows`, or 0
    where every key is in the past already."""
    cdef cnp.ndarray ends = np.empty(batch, np.int64), counts = np.empty(batch, np.int64), given = None
    cdef int64_t b, end, count
    cdef bint first = rows == total
    if query_seqlens is not None:
        given = _arrays.int_input(query_seqlens, func, "query_seqlens")
        _arrays.check_shape(given, (batch,), func, "query_seqlens")
        if not has_past:
            raise ValueError(f"{func}: query_seqlens: expected past_key and past_value with it")
        if not windowed and new and given.size and max([e + 1 - c + rows for e, c in zip(seqlens.tolist(), given.tolist())]) > max(past, total):
            raise ValueError(f"{func}: query_seqlens: expected room for all {rows} rows behind each sequence's past in {max(past, total)} cache rows")
    elif rows > 1 and not first and batch > 1:
        raise ValueError(f"{func}: query_seqlens: expected it for a batch of {batch} with {rows} new tokens after a past "
                         f"(total_sequence_length {total})")
    for b in range(batch):
        end = (<object>seqlens)[b] + 1
        if not 0 < end <= total:
            raise ValueError(f"{func}: seqlens_k: expected 0 to total_sequence_length - 1 = {total - 1}, got {end - 1}")
        count = min(rows, end)
        if given is not None:
            count = (<object>given)[b]
            if not 0 <= count <= min(rows, end):
                raise ValueError(f"{func}: query_seqlens: expected 0 to {min(rows, end)} where there are {rows} rows and seqlens_k is {end - 1}, "
                                 f"got {count}")
        elif end < rows and not first:
            raise ValueError(f"{func}: seqlens_k: expected at least {rows - 1} for {rows} new tokens after a past, got {end - 1}")
        if (end - count if new else end) > past and not windowed:
            raise ValueError(f"{func}: seqlens_k: {end - 1} means {end - count if new else end} tokens before this call, but the past holds "
                             f"{past if has_past else 'none'}")
        (<object>ends)[b], (<object>counts)[b] = end, count
    return ends - counts, ends, counts


def group_query_attention(query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None, total_sequence_length=None, cos_cache=None,
                          sin_cache=None, position_ids=None, attention_bias=None, head_sink=None, k_scale=None, v_scale=None, q_norm_weight=None,
                          k_norm_weight=None, query_seqlens=None, *, num_heads, kv_num_heads, scale=None, softcap=0.0, do_rotary=0,
                          rotary_interleaved=0, local_window_size=-1, smooth_softmax=0, causal=1, qk_output=0, qk_norm_epsilon=1e-6,
                          q_norm_epsilon=None, k_norm_epsilon=None, k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=None,
                          sliding_window_cache=0, outputs=(0,), out=None, threads=None):
    """Attention with grouped heads on a key and value cache: norms, rotation, append, causal attention.

    com.microsoft GroupQueryAttention, since version 1. Computes as `attention` does: scores and softmax in float32, each query the same bits
    in any batch and chunk. In terms of the operator, of sequence b there are ``T = seqlens_k[b] + 1`` tokens after the call, of which
    ``Q = query_seqlens[b]``, or else ``min(sequence, T)``, are new; they take the positions from T - Q on. Rows of the result beyond Q are zero.

    Parameters
    ----------
    query : array, float32, float16 or bfloat16
        (batch, sequence, num_heads * head_size), or all three side by side: (batch, sequence, (num_heads + 2 * kv_num_heads) * head_size).
    key, value : array, query's dtype, optional
        (batch, sequence, kv_num_heads * head_size); None where query has them. Without rows, (batch, 0, ...), nothing is appended: the past has
        every token's keys already.
    past_key, past_value : array, float32, float16, bfloat16, int8 or uint8, optional
        (batch, kv_num_heads, past, head_size): the tokens so far, followed by anything where there are fewer than `past`. Codes of 4 bits are two
        in a byte of uint8, the first one low, stored + 8: (batch, kv_num_heads, past, head_size / 2).
    seqlens_k : array of integers, (batch,) or (batch, 1)
        Tokens of each sequence after the call, minus one.
    total_sequence_length : int, or array of one
        The largest number of tokens of a sequence after the call. A call is a first prompt where it equals `sequence`: then a T below it
        means padding at the end.
    cos_cache, sin_cache : array, query's dtype or float32, (positions, w), optional
        With `do_rotary`: the first 2 w dimensions of each head are turned.
    position_ids : array of integers, (batch, sequence), optional
        Rows of the tables; by default a token's position. As the operator has it, a first prompt (without `query_seqlens`) uses only the first
        element, from which on all sequences count.
    attention_bias : array, query's dtype, optional
        Added to the scores: broadcasts to (batch, num_heads, sequence, total_sequence_length).
    head_sink : array, query's dtype, (num_heads,), optional
        A score that each head's softmax has in its denominator besides the keys'.
    k_scale, v_scale : array, float32, optional
        Of a quantized cache: a value is its code times a scale. One element, or a shape that broadcasts to (1, kv_num_heads, 1, head_size), or flat,
        (kv_num_heads * head_size,). New tokens are rounded to codes, halves to even, and attended to as rounded.
    q_norm_weight, k_norm_weight : array, query's dtype, (head_size,), optional
        Weights of an RMS normalization of every head before the rotation.
    query_seqlens : array of integers, (batch,), optional
        The new tokens of each sequence; the rows beyond are padding. With several sequences that have a past it is needed for more than one row.
    num_heads, kv_num_heads : int
        Query head h reads kv head ``h // (num_heads // kv_num_heads)``.
    scale : float, optional
        Default, and where 0, 1 / sqrt(head_size).
    softcap : float, default 0
        c > 0 turns a score s into ``c * tanh(s / c)``.
    do_rotary, rotary_interleaved : {0, 1}, default 0
        Turn q and new k; interleaved pairs are dimensions (2 i, 2 i + 1), else (i, w + i).
    local_window_size : int, default -1
        W > 0: a query sees the last W keys, its own among them.
    smooth_softmax : {0, 1}, default 0
        1: a sink of 0 for every head.
    causal : {0, 1}, default 1
        0: every new token sees all T keys.
    qk_output : {0, 1, 2}, default 0
        What output 3 holds: 1 the scores after soft cap and bias, 0 for keys that causality, window or length hide; 2 the probabilities.
    qk_norm_epsilon : float, default 1e-6
    q_norm_epsilon, k_norm_epsilon : float, optional
        Instead of it for one of both.
    k_quant_type, v_quant_type : {"NONE", "PER_TENSOR", "PER_CHANNEL"}, default "NONE"
    kv_cache_bit_width : {8, 4}, optional
        By default what the past's type says. The cache of 8-bit floats that the schema has besides is not offered.
    sliding_window_cache : {0, 1}, default 0
        1: past and present hold only the last tokens, in the first rows of C >= local_window_size rows; how many, the number of tokens
        determines: of T > C tokens it is ``T - g * ceil((T - C) / g)`` with ``g = C - local_window_size + 1``.
    outputs : tuple of int, default (0,)
        Which of output (0), present_key (1), present_value (2) and output_qk (3) to return.
    out : ndarray or tuple, optional
        Receives output, or each of `outputs`, None where a new array is wanted. Where present_key's is past_key itself (and likewise the
        values), the new tokens are written into it and no past is copied.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        output: (batch, sequence, num_heads * head_size). present_key, present_value: (batch, kv_num_heads, max(past, total_sequence_length),
        head_size), of the past's dtype, or else query's. output_qk: (batch, num_heads, sequence, total_sequence_length).

    Raises
    ------
    TypeError, ValueError
        Also where lengths do not fit the cache.
    IndexError
        For a position without a row in the tables.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> q = np.zeros((1, 2, 1), np.float32)
    >>> v = np.float32([1, 3]).reshape(1, 2, 1)
    >>> y, k, v = qkernels.group_query_attention(q, q, v, None, None, np.int32([1]), 2, num_heads=1, kv_num_heads=1, outputs=(0, 1, 2))
    >>> y.ravel(), v.shape
    (array([1., 2.], dtype=float32), (1, 1, 2, 1))
    """
    cdef str func = "group_query_attention"
    cdef cnp.ndarray q, k, v, x, seqlens, pasts, ends, counts, bases, y, old_k = None, old_v = None, keys, values
    cdef cnp.ndarray cosine, sine, positions = None, mask = None, sinks = None, q_weight, k_weight, k_scales, v_scales, scores, statistics
    cdef qk_attention_args args
    cdef int64_t heads, kv_heads, d, batch, rows, new, past = 0, total, width, window, b
    cdef int n, code, cache
    cdef bint windowed
    cdef tuple shape
    cdef dict results = {}, given
    outputs = _arrays.check_outputs(outputs, (0, 1, 2, 3), func)
    given = dict(zip(outputs, _outs(out, outputs, func)))
    _clear(&args)
    heads, kv_heads = _count(num_heads, func, "num_heads"), _count(kv_num_heads, func, "kv_num_heads")
    if heads % kv_heads:
        raise ValueError(f"{func}: num_heads: expected a multiple of kv_num_heads {kv_heads}, got {heads}")

    # query, key, value
    q = _strided(query, _arrays.FLOATS, func, "query")
    code = _arrays.dtype_code(q)
    if q.ndim != 3:
        raise ValueError(f"{func}: query: expected 3 dimensions, got shape {_arrays.shape_of(q)}")
    if (key is None) != (value is None):
        raise ValueError(f"{func}: {'key' if key is None else 'value'}: expected both key and value or neither")
    batch, rows, width = q.shape[0], q.shape[1], heads + (2 * kv_heads if key is None else 0)
    if not q.shape[2] or q.shape[2] % width:
        raise ValueError(f"{func}: query: expected a last dimension divisible by {width} heads, got shape {_arrays.shape_of(q)}")
    d, new = q.shape[2] // width, rows
    if key is None:
        whole = (<object>q).reshape(batch, rows, width, d)
        q, k, v = whole[:, :, :heads], whole[:, :, heads:heads + kv_heads], whole[:, :, heads + kv_heads:]
    else:
        k, v = _strided(key, 1 << code, func, "key"), _strided(value, 1 << code, func, "value")
        if k.ndim == 3 and not k.shape[1]:
            new = 0
        _arrays.check_shape(k, (batch, new, kv_heads * d), func, "key")
        _arrays.check_shape(v, (batch, new, kv_heads * d), func, "value")
        q = (<object>q).reshape(batch, rows, heads, d)
        k, v = (<object>k).reshape(batch, new, kv_heads, d), (<object>v).reshape(batch, new, kv_heads, d)

    # the cache
    if (past_key is None) != (past_value is None):
        raise ValueError(f"{func}: past_{'value' if past_value is None else 'key'}: expected both past_key and past_value or neither")
    if past_key is not None:
        old_k, old_v = _cache_input(past_key, func, "past_key"), _cache_input(past_value, func, "past_value")
    cache = _cache_code(old_k, k_quant_type, v_quant_type, kv_cache_bit_width, code, func)
    if cache == QK_CACHE_U4 and d % 2:
        raise ValueError(f"{func}: query: expected an even head size for a cache of 4 bits, got {d}")
    width = d // 2 if cache == QK_CACHE_U4 else d
    if past_key is not None:
        if old_k.ndim != 4 or (batch, kv_heads, width) != (old_k.shape[0], old_k.shape[1], old_k.shape[3]):
            raise ValueError(f"{func}: past_key: expected shape ({batch}, {kv_heads}, past, {width}), got {_arrays.shape_of(old_k)}")
        _arrays.check_shape(old_v, _arrays.shape_of(old_k), func, "past_value")
        if old_v.dtype != old_k.dtype:
            raise TypeError(f"{func}: past_value: expected dtype {old_k.dtype} as past_key, got {old_v.dtype}")
        past = old_k.shape[2]
    if cache > _arrays.BF16:
        k_scales, v_scales = _scales(k_scale, k_quant_type, kv_heads, d, func, "k_scale"), _scales(v_scale, v_quant_type, kv_heads, d, func, "v_scale")
        args.k_scale, args.v_scale = <const float *>cnp.PyArray_DATA(k_scales), <const float *>cnp.PyArray_DATA(v_scales)
    else:
        for scales, name in ((k_scale, "k_scale"), (v_scale, "v_scale")):
            if scales is not None:
                raise ValueError(f"{func}: {name}: expected None for a cache that is not quantized")

    # lengths
    if seqlens_k is None or total_sequence_length is None:
        raise TypeError(f"{func}: {'seqlens_k' if seqlens_k is None else 'total_sequence_length'}: expected an array, got None")
    seqlens = _arrays.int_input(seqlens_k, func, "seqlens_k")
    if seqlens.ndim == 2 and seqlens.shape[1] == 1:
        seqlens = (<object>seqlens).reshape(-1)
    _arrays.check_shape(seqlens, (batch,), func, "seqlens_k")
    x = _arrays.int_input(total_sequence_length, func, "total_sequence_length")
    if x.size != 1:
        raise ValueError(f"{func}: total_sequence_length: expected one number, got shape {_arrays.shape_of(x)}")
    total = x.item()
    if not rows <= total < 2**31:
        raise ValueError(f"{func}: total_sequence_length: expected at least the {rows} new tokens, got {total}")
    args.causal = _flag(causal, func, "causal")
    args.left = _local_window(local_window_size, func)
    if args.left >= 0 and not args.causal:
        raise ValueError(f"{func}: local_window_size: expected -1 with causal 0, got {local_window_size}")
    windowed = _flag(sliding_window_cache, func, "sliding_window_cache")
    window = args.left + 1
    if windowed and (past_key is None or not 0 < window <= past):
        raise ValueError(f"{func}: sliding_window_cache: expected local_window_size > 0 and a past of at least so many rows, got a window of "
                         f"{local_window_size} and {'no past' if past_key is None else past}")
    if query_seqlens is not None and not args.causal:
        raise ValueError(f"{func}: query_seqlens: expected causal 1 with it")
    if not new and rows and (past_key is None or query_seqlens is not None or windowed):
        raise ValueError(f"{func}: key: expected {rows} rows, or none with a past, no query_seqlens and no sliding_window_cache, got {_arrays.shape_of(k)}")
    pasts, ends, counts = _token_counts(seqlens, query_seqlens, batch, rows, new, total, past, past_key is not None, windowed, func)

    # numbers, tables, weights
    args.scale = _number(0 if scale is None else scale, False, func, "scale")
    if not args.scale:
        args.scale = 1 / sqrt(<double>d)
    args.softcap = _number(softcap, True, func, "softcap")
    if (cos_cache is None) != (sin_cache is None):
        raise ValueError(f"{func}: {'cos_cache' if cos_cache is None else 'sin_cache'}: expected both cos_cache and sin_cache or neither")
    if _flag(do_rotary, func, "do_rotary"):
        if cos_cache is None:
            raise ValueError(f"{func}: cos_cache: expected cos_cache and sin_cache with do_rotary 1")
        args.half, args.interleaved = _rotary_half(cos_cache, d, func, "cos_cache"), _flag(rotary_interleaved, func, "rotary_interleaved")
        if position_ids is not None:
            positions = _arrays.int_input(position_ids, func, "position_ids")
            _arrays.check_shape(positions, (batch, rows), func, "position_ids")
            if rows == total and query_seqlens is None and positions.size:
                positions = np.broadcast_to((<object>positions)[0, 0] + np.arange(rows), (batch, rows))
        elif windowed:
            positions = <object>pasts[:, None] + np.arange(rows)
        cosine, sine, positions = _rows_of(cos_cache, sin_cache, args.half, code, positions, pasts, counts, rows, func)
        args.cos, args.sin = <const float *>cnp.PyArray_DATA(cosine), <const float *>cnp.PyArray_DATA(sine)
        if positions is not None:
            args.positions = <const int64_t *>cnp.PyArray_DATA(positions)
    elif _flag(rotary_interleaved, func, "rotary_interleaved"):
        raise ValueError(f"{func}: rotary_interleaved: expected do_rotary 1 with it")
    if (q_norm_weight is None) != (k_norm_weight is None):
        raise ValueError(f"{func}: {'q' if q_norm_weight is None else 'k'}_norm_weight: expected both q_norm_weight and k_norm_weight or neither")
    if q_norm_weight is not None:
        q_weight, k_weight = _widened(q_norm_weight, d, code, func, "q_norm_weight"), _widened(k_norm_weight, d, code, func, "k_norm_weight")
        args.q_norm, args.k_norm = <const float *>cnp.PyArray_DATA(q_weight), <const float *>cnp.PyArray_DATA(k_weight)
    args.q_epsilon = _epsilon(qk_norm_epsilon if q_norm_epsilon is None else q_norm_epsilon, func, "q_norm_epsilon")
    args.k_epsilon = _epsilon(qk_norm_epsilon if k_norm_epsilon is None else k_norm_epsilon, func, "k_norm_epsilon")
    if smooth_softmax not in (-1, 0, 1):
        raise ValueError(f"{func}: smooth_softmax: expected 0 or 1, got {smooth_softmax!r}")
    if head_sink is not None:
        sinks = _widened(head_sink, heads, code, func, "head_sink")
    elif smooth_softmax == 1:
        sinks = np.zeros(heads, np.float32)
    if sinks is not None:
        args.sink = <const float *>cnp.PyArray_DATA(sinks)
    if qk_output not in (0, 1, 2):
        raise ValueError(f"{func}: qk_output: expected 0, 1 or 2, got {qk_output}")
    if 3 in outputs and not qk_output:
        raise ValueError(f"{func}: qk_output: expected 1 or 2 with output 3, got {qk_output}")
    if attention_bias is not None:
        mask = _strided(attention_bias, 1 << code, func, "attention_bias")
        shape = (batch, heads, rows, total)
        if mask.ndim != 4 or _arrays.shape_of(mask)[2:] != shape[2:] or any([m not in (1, f) for m, f in zip(_arrays.shape_of(mask), shape)]):
            raise ValueError(f"{func}: attention_bias: expected shape ({batch} or 1, {heads} or 1, {rows}, {total}), got {_arrays.shape_of(mask)}")
    n = _arrays.num_threads(threads, func)

    # every result is checked before anything is written
    y = results[0] = _arrays.output(given.get(0), (batch, rows, heads * d), code, func)
    if 3 in outputs:
        results[3] = _arrays.output(given.get(3), (batch, heads, rows, total), code, func, "out: output_qk")
    shape = (batch, kv_heads, past if windowed else max(past, total), width)
    dtype = np.dtype(np.int8 if cache == QK_CACHE_I8 else np.uint8 if cache == QK_CACHE_U4 else _arrays.numpy_dtype(cache))
    used = [("query", query), ("key", key), ("value", value), ("past_key", old_k), ("past_value", old_v), ("attention_bias", attention_bias),
            ("cos_cache", cos_cache), ("sin_cache", sin_cache), ("head_sink", head_sink), ("q_norm_weight", q_norm_weight),
            ("k_norm_weight", k_norm_weight), ("k_scale", k_scale), ("v_scale", v_scale)]
    for index, a in given.items():
        if a is None:
            continue
        name = ("output", "present_key", "present_value", "output_qk")[index]
        if index in (1, 2):
            _arrays.output_of(a, shape, dtype, func, f"out: {name}")
        for other_name, other in used:
            if isinstance(other, np.ndarray) and np.may_share_memory(a, other) and not (other_name == name.replace("present", "past") and _is_same(a, other)):
                raise ValueError(f"{func}: out: {name}: overlaps {other_name}" + (" without being the same array" if index in (1, 2) else ""))
        used.append((name, a))

    args.batch, args.heads, args.kv_heads, args.rows, args.keys, args.d, args.dv = batch, heads, kv_heads, rows, total, d, d
    if windowed:
        keys, values, bases = _stage(old_k, old_v, pasts, ends, window, total if 3 in outputs or mask is not None else 0)
        pasts, ends, args.keys = <object>pasts - bases, <object>ends - bases, keys.shape[2]
    else:
        keys = results[1] = _present(given.get(1), old_k, shape, dtype, n)
        values = results[2] = _present(given.get(2), old_v, shape, dtype, n)
    args.pasts, args.ends = <const int64_t *>cnp.PyArray_DATA(pasts), <const int64_t *>cnp.PyArray_DATA(ends)
    args.counts = <const int64_t *>cnp.PyArray_DATA(counts)
    if mask is not None:
        args.mask, args.mask_dtype = cnp.PyArray_DATA(mask), code
        args.mask_batch, args.mask_head, args.mask_row = _step(mask, 0), _step(mask, 1), _step(mask, 2)
    _place(&args, (<object>q).transpose(0, 2, 1, 3), keys, values)
    args.k_dtype = args.v_dtype = cache
    if cache == QK_CACHE_U4:
        args.k_batch, args.k_head, args.k_row = 2 * args.k_batch, 2 * args.k_head, 2 * args.k_row
        args.v_batch, args.v_head, args.v_row = 2 * args.v_batch, 2 * args.v_head, 2 * args.v_row
    if new:
        k, v = (<object>k).transpose(0, 2, 1, 3), (<object>v).transpose(0, 2, 1, 3)
        args.new_k, args.new_k_batch, args.new_k_head, args.new_k_row = cnp.PyArray_DATA(k), _step(k, 0), _step(k, 1), _step(k, 2)
        args.new_v, args.new_v_batch, args.new_v_head, args.new_v_row = cnp.PyArray_DATA(v), _step(v, 0), _step(v, 1), _step(v, 2)
    _place_result(&args, (<object>y).reshape(batch, rows, heads, d).transpose(0, 2, 1, 3))
    if 3 in outputs:
        scores = results[3]
        args.scores, args.scores_keys, args.scores_hidden = cnp.PyArray_DATA(scores), total, 0
        args.scores_mode = QK_SCORES_MASKED if qk_output == 1 else QK_PROBABILITIES
        statistics = np.empty((batch, heads, rows, 2), np.float32)
        args.statistics = <float *>cnp.PyArray_DATA(statistics)
    _run(&args, n, True)
    if windowed:
        for index, staged in ((1, keys), (2, values)):
            results[index] = given.get(index) if given.get(index) is not None else np.zeros(shape, dtype)
            for b in range(batch):
                held = _resident((<object>ends + bases)[b], past, window)
                results[index][b, :, :held] = staged[b, :, (<object>ends)[b] - held:(<object>ends)[b]]
    return _arrays.pick(results, outputs)
