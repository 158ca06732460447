"""Attention: ai.onnx Attention on arrays, and the fused call of a decoder with its cache."""
cimport numpy as cnp
from libc.math cimport isfinite, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from qkernels cimport _arrays, _runtime
from qkernels.kv_cache cimport KVCache

import numpy as np

cnp.import_array()

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from "attention/attention.h" nogil:
    enum:
        QK_MASK_NONE
        QK_MASK_BOOL
    ctypedef struct qk_attention_args:
        const void *q
        const void *k
        const void *v
        void *y
        const void *mask
        int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, y_batch, y_head, y_row, mask_batch, mask_head, mask_row
        int q_dtype, k_dtype, v_dtype, y_dtype, mask_dtype
        int64_t batch, heads, kv_heads, rows, keys, d, dv, past
        int causal
        float scale, softcap
        const float *q_norm
        const float *k_norm
        const float *cos
        const float *sin
        int64_t half
        float epsilon
        const float *new_k
        const float *new_v
    int64_t qk_attention_scratch(const qk_attention_args *args, int threads)
    void qk_attention(int isa, int threads, const qk_attention_args *args, float *scratch)

# products (rows × keys × head size) for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 18


cdef int _threads_worth(const qk_attention_args *a, int threads) noexcept nogil:
    return _arrays.worth(threads, a.batch * a.heads * a.rows * (a.keys + 16) * (a.d + a.dv), GRAIN)


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
    if len(shape) == 4:
        if heads and shape[1] != heads:
            raise ValueError(f"{func}: {arg}: expected {attribute} {heads}, got shape {shape}")
        return a
    if heads <= 0:
        raise ValueError(f"{func}: {attribute}: expected the number of heads with 3-D inputs, got {heads}")
    if shape[2] % heads:
        raise ValueError(f"{func}: {arg}: expected a last dimension divisible by {attribute} {heads}, got shape {shape}")
    return (<object>a).reshape(shape[0], shape[1], heads, shape[2] // heads).transpose(0, 2, 1, 3)


cdef int64_t _step(cnp.ndarray a, int axis) noexcept:
    """Stride in elements."""
    return cnp.PyArray_STRIDE(a, axis) // cnp.PyArray_ITEMSIZE(a) if cnp.PyArray_DIM(a, axis) > 1 else 0


cdef cnp.ndarray _concatenate(cnp.ndarray past, cnp.ndarray new):
    cdef cnp.ndarray both = np.empty((new.shape[0], new.shape[1], (past.shape[2] if past is not None else 0) + new.shape[2], new.shape[3]),
                                     (<object>new).dtype)
    if past is not None:
        (<object>both)[:, :, :past.shape[2]] = past
    (<object>both)[:, :, both.shape[2] - new.shape[2]:] = new
    return both


cdef cnp.ndarray _past(object x, cnp.ndarray new, str func, str arg, str other):
    cdef cnp.ndarray a = _strided(x, 1 << _arrays.dtype_code(new), func, arg)
    if a.ndim != 4 or a.shape[0] != new.shape[0] or a.shape[1] != new.shape[1] or a.shape[3] != new.shape[3]:
        raise ValueError(f"{func}: {arg}: expected shape ({new.shape[0]}, {new.shape[1]}, past, {new.shape[3]}) for this {other}, "
                         f"got {_arrays.shape_of(a)}")
    return a


cdef cnp.ndarray _mask(object x, qk_attention_args *args, str func):
    """The mask broadcast to (batch, heads, rows, its own last dimension). A shorter last dimension hides the keys beyond it."""
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


def attention(q, k, v, attn_mask=None, past_key=None, past_value=None, *, is_causal=0, q_num_heads=0, kv_num_heads=0, scale=None,
              softcap=0.0, qk_matmul_output_mode=0, softmax_precision=None, outputs=(0,), out=None, threads=None):
    """Scaled dot-product attention: ``softmax(softcap(q @ k.T * scale) + mask) @ v``, with grouped heads.

    ONNX ai.onnx Attention, since version 23. Scores, softmax and sums are float32 whatever the inputs are, and the result is rounded once.
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
    is_causal : int, default 0
        1: query i sees keys up to past + i.
    q_num_heads, kv_num_heads : int, default 0
        Required with three dimensions.
    scale : float, optional
        Default 1 / sqrt(head size).
    softcap : float, default 0
        c > 0 turns a score s into ``c * tanh(s / c)`` before the mask.
    qk_matmul_output_mode : int, default 0
        What output 3 would hold. Output 3 is not offered yet.
    softmax_precision : int, optional
        ONNX data type of the softmax: 1 (float32), 10 (float16) or 16 (bfloat16), all of which run in float32.
    outputs : tuple of int, default (0,)
        Which of y (0), present_key (1) and present_value (2) to return.
    out : ndarray, optional
        Receives y; overlaps no input.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        y has q's rank and dtype; present_key and present_value are (batch, kv_heads, past + keys, size).

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
    cdef cnp.ndarray past_a = None, past_b = None, mask = None, y, y4
    cdef qk_attention_args args
    cdef int n
    cdef float *scratch
    cdef tuple shape
    cdef dict results = {}
    if isinstance(outputs, (tuple, list)) and 3 in outputs:
        raise ValueError(f"{func}: outputs: output 3 (qk_matmul_output) is not offered yet, got {outputs}")
    outputs = _arrays.check_outputs(outputs, (0, 1, 2), func)
    if out is not None and 0 not in outputs:
        raise ValueError(f"{func}: out: output 0 is not among outputs={outputs}")
    if qk_matmul_output_mode not in (0, 1, 2, 3):
        raise ValueError(f"{func}: qk_matmul_output_mode: expected 0 to 3, got {qk_matmul_output_mode}")
    if softmax_precision is not None and softmax_precision not in (0, 1, 10, 16):
        raise ValueError(f"{func}: softmax_precision: expected 1 (float32), 10 (float16) or 16 (bfloat16), got {softmax_precision}")
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
    args.past = 0
    if past_key is not None:
        past_a, past_b = _past(past_key, b, func, "past_key", "k"), _past(past_value, c, func, "past_value", "v")
        if past_a.shape[2] != past_b.shape[2]:
            raise ValueError(f"{func}: past_value: expected {past_a.shape[2]} past keys, got shape {_arrays.shape_of(past_b)}")
        args.past = past_a.shape[2]
    if args.past or 1 in outputs:
        b = results[1] = _concatenate(past_a, b)
    if args.past or 2 in outputs:
        c = results[2] = _concatenate(past_b, c)

    args.batch, args.heads, args.kv_heads, args.rows, args.keys = a.shape[0], a.shape[1], b.shape[1], a.shape[2], b.shape[2]
    args.d, args.dv, args.causal = a.shape[3], c.shape[3], is_causal
    args.scale = 1 / sqrt(<double>args.d) if scale is None else _number(scale, False, func, "scale")
    args.softcap = _number(softcap, True, func, "softcap")
    args.mask, args.mask_dtype, args.mask_batch, args.mask_head, args.mask_row = NULL, QK_MASK_NONE, 0, 0, 0
    if attn_mask is not None:
        mask = _mask(attn_mask, &args, func)
    args.q_dtype, args.k_dtype, args.v_dtype = _arrays.dtype_code(a), _arrays.dtype_code(b), _arrays.dtype_code(c)
    args.q, args.k, args.v = cnp.PyArray_DATA(a), cnp.PyArray_DATA(b), cnp.PyArray_DATA(c)
    args.q_batch, args.q_head, args.q_row = _step(a, 0), _step(a, 1), _step(a, 2)
    args.k_batch, args.k_head, args.k_row = _step(b, 0), _step(b, 1), _step(b, 2)
    args.v_batch, args.v_head, args.v_row = _step(c, 0), _step(c, 1), _step(c, 2)
    args.q_norm = args.k_norm = args.cos = args.sin = args.new_k = args.new_v = NULL
    args.half, args.epsilon = 0, 0
    n = _arrays.num_threads(threads, func)
    if 0 not in outputs:
        return _arrays.pick(results, outputs)

    shape = shape[:3] + (args.dv,) if len(shape) == 4 else (shape[0], shape[1], args.heads * args.dv)
    y = results[0] = _arrays.output(out, shape, args.q_dtype, func)
    if out is not None:
        for x, name in ((a, "q"), (b, "k"), (c, "v"), (mask, "attn_mask")):
            if x is not None and np.may_share_memory(y, x):
                raise ValueError(f"{func}: out: overlaps {name}")
    y4 = _heads(y, args.heads, func, "out", "q_num_heads")
    args.y, args.y_dtype = cnp.PyArray_DATA(y), args.q_dtype
    args.y_batch, args.y_head, args.y_row = _step(y4, 0), _step(y4, 1), _step(y4, 2)
    if args.batch and args.heads and args.rows and args.dv:
        n = _threads_worth(&args, n)
        with nogil:
            scratch = <float *>aligned_alloc(64, 4 * qk_attention_scratch(&args, n))
            if scratch:
                qk_attention(_runtime.isa(), n, &args, scratch)
        if not scratch:
            raise MemoryError
        free(scratch)
    return _arrays.pick(results, outputs)


cdef inline bint _is_plain(object x, int rank) noexcept:
    """An aligned C-contiguous float32 ndarray of a rank, of native byte order."""
    return (isinstance(x, cnp.ndarray) and cnp.PyArray_TYPE(x) == cnp.NPY_FLOAT32 and cnp.PyArray_NDIM(x) == rank
            and cnp.PyArray_ISCARRAY_RO(x))


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


def cached_attention(KVCache cache not None, layer, qkv, *, q_norm=None, k_norm=None, epsilon=1e-6, cos=None, sin=None, num_heads, scale=None,
                     out=None, threads=None):
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
        Rotary tables, read at the absolute position; dimensions i and head_size // 2 + i are a pair.
    num_heads : int
        Query heads, a multiple of the cache's kv_heads.
    scale : float, optional
        Default 1 / sqrt(head_size).
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
    cdef cnp.ndarray x, y, q_weight = None, k_weight = None, cosine = None, sine = None
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
    args.q_norm = args.k_norm = args.cos = args.sin = NULL
    args.half = 0
    if q_norm is not None:
        q_weight = _vector(q_norm, d, func, "q_norm")
        args.q_norm = <const float *>cnp.PyArray_DATA(q_weight)
    if k_norm is not None:
        k_weight = _vector(k_norm, d, func, "k_norm")
        args.k_norm = <const float *>cnp.PyArray_DATA(k_weight)
    args.epsilon = epsilon
    if not args.epsilon >= 0:
        raise ValueError(f"{func}: epsilon: expected a number >= 0, got {epsilon}")
    if (cos is None) != (sin is None):
        raise ValueError(f"{func}: {'cos' if cos is None else 'sin'}: expected both cos and sin or neither")
    if cos is not None:
        if d % 2:
            raise ValueError(f"{func}: cos: expected an even head size to rotate, got {d}")
        args.half = d // 2
        cosine, sine = _table(cos, args.half, cache.length + new, func, "cos"), _table(sin, args.half, cache.length + new, func, "sin")
        args.cos, args.sin = <const float *>cnp.PyArray_DATA(cosine), <const float *>cnp.PyArray_DATA(sine)
    args.scale = 1 / sqrt(<double>d) if scale is None else _number(scale, False, func, "scale")
    n = _arrays.num_threads(threads, func)
    if (out is not None and _is_plain(out, rank) and cnp.PyArray_ISWRITEABLE(out) and cnp.PyArray_DIM(out, rank - 1) == heads * d
            and cnp.PyArray_DIM(out, rank - 2) == new and (rank == 2 or cnp.PyArray_DIM(out, 0) == cache.batch)):
        y = out
    else:
        y = _arrays.output(out, ((cache.batch,) if rank == 3 else ()) + (new, heads * d), _arrays.F32, func)
    if out is not None:
        _arrays.check_overlap(y, x, False, func, "qkv")
        for a, name in ((q_weight, "q_norm"), (k_weight, "k_norm"), (cosine, "cos"), (sine, "sin")):
            if a is not None:
                _arrays.check_overlap(y, a, False, func, name)

    args.batch, args.heads, args.kv_heads, args.rows = cache.batch, heads, cache.kv_heads, new
    args.d = args.dv = d
    args.causal, args.softcap, args.mask, args.mask_dtype, args.mask_batch, args.mask_head, args.mask_row = 1, 0, NULL, QK_MASK_NONE, 0, 0, 0
    args.q_dtype = args.y_dtype = _arrays.F32
    args.k_dtype = args.v_dtype = cache.code
    data = <const float *>cnp.PyArray_DATA(x)
    args.q, args.new_k, args.new_v, args.y = data, data + heads * d, data + (heads + cache.kv_heads) * d, cnp.PyArray_DATA(y)
    args.q_batch, args.q_head, args.q_row = new * width, d, width
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
        if new:
            n = _threads_worth(&args, n)
            scratch = cache.working_memory(qk_attention_scratch(&args, n))
            with nogil:
                qk_attention(_runtime.isa(), n, &args, scratch)
        cache.pending[index] = new
    finally:
        cache.leave()
    return y
