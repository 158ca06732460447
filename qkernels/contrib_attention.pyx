"""com.microsoft's attention operators beside GroupQueryAttention, all on the engine of `qkernels.attention`: Attention, QAttention, MultiHeadAttention,
SparseAttention and PagedAttention."""
cimport numpy as cnp
from libc.math cimport sqrt
from libc.stdint cimport int64_t, uint8_t

from qkernels cimport _arrays
from qkernels.attention cimport (QK_CACHE_I8, QK_SCORES_MASKED, _clear, _copy_past, _count, _epsilon, _flag, _heads, _is_same, _local_window, _number, _outs,
                                 _place, _place_result, _rotary_half, _rows_of, _run, _scales, _step, _strided, _vector, _widened, qk_attention_args)
from qkernels.quantization cimport PackedInt8Matrix, integer_projection

import numpy as np

from qkernels.elementwise import add
from qkernels.matmul import PackedMatrix, gemm

cnp.import_array()

cdef enum:  # of masks, beside (batch,), (batch, keys) and (batch, rows, keys)
    STARTS = 1     # (2 batch,): ends, then starts
    CUMULATED = 2  # (3 batch + 2,): ends, then where each sequence's queries and keys begin
    SQUARE = 4     # (batch, 1, most, most): of all positions


cdef cnp.ndarray _padding(object mask_index, int forms, int64_t batch, int64_t rows, int64_t keys, object filter_value, str func, str arg):
    """What is added to scores, (batch, 1, rows or 1, keys), or None where that is nothing."""
    cdef cnp.ndarray a = _arrays.int_input(mask_index, func, arg)
    cdef tuple shape = _arrays.shape_of(a)
    cdef int64_t past = keys - rows
    m = <object>a
    if shape == (batch,) or (forms & STARTS and shape == (2 * batch,)) or (forms & CUMULATED and shape == (3 * batch + 2,)):
        ends, at = m[:batch, None], np.arange(keys)
        if (ends < 0).any():
            raise ValueError(f"{func}: {arg}: expected end positions >= 0, got {ends.min()}")
        keep = at < ends
        if len(m) == 2 * batch:
            keep &= at >= np.minimum(m[batch:, None], keys)
        elif len(m) > batch:
            begins = m[batch:].reshape(2, batch + 1)
            if begins[:, 0].any() or (np.diff(begins) < 0).any():
                raise ValueError(f"{func}: {arg}: expected sums that begin with 0 and do not fall behind the {batch} end positions, got {begins.tolist()}")
        keep = keep[:, None]
    elif shape == (batch, keys):
        keep = m[:, None] > 0
    elif shape == (batch, rows, keys):
        keep = m > 0
    elif forms & SQUARE and len(shape) == 4 and shape[:2] == (batch, 1) and shape[2] == shape[3] >= keys:
        keep = m[:, 0, past:keys, :keys] > 0
    else:
        more = [f"({2 * batch},)"] * (forms & STARTS > 0) + [f"({3 * batch + 2},)"] * (forms & CUMULATED > 0)
        last = [f"({batch}, {rows}, {keys})"] + [f"({batch}, 1, n, n) of n >= {keys}"] * (forms & SQUARE > 0)
        names = [f"({batch},)", *more, f"({batch}, {keys})", *last]
        final = names.pop()
        raise ValueError(f"{func}: {arg}: expected shape {', '.join(names)} or {final}, got {shape}")
    return None if keep.all() else np.where(keep[:, None], np.float32(0), np.float32(filter_value))


cdef float _filter_value(object value, str func) except? -1:
    cdef float number = _arrays.number(value, func, "mask_filter_value")
    if number != number:
        raise ValueError(f"{func}: mask_filter_value: expected a number, got {value}")
    return number


cdef cnp.ndarray _bias_of_scores(object x, int code, qk_attention_args *args, str func):
    """(batch or 1, heads or 1, rows, keys) of the type `code`."""
    cdef cnp.ndarray a = _strided(x, 1 << code, func, "attention_bias")
    cdef tuple shape = _arrays.shape_of(a)
    if (len(shape) != 4 or shape[0] not in (1, args.batch) or shape[1] not in (1, args.heads) or shape[2] != args.rows or shape[3] != args.keys):
        raise ValueError(f"{func}: attention_bias: expected shape ({args.batch} or 1, {args.heads} or 1, {args.rows}, {args.keys}), got {shape}")
    return a


cdef cnp.ndarray _set_mask(qk_attention_args *args, cnp.ndarray padding, cnp.ndarray bias):
    """Padding and bias, which are both added to scores, as the engine's mask. Returns what it points to."""
    cdef cnp.ndarray a = padding if bias is None else bias
    if a is None:
        return None
    if padding is not None and bias is not None:
        with np.errstate(invalid="ignore"):
            a = (<object>bias).astype(np.float32) + padding
    args.mask, args.mask_dtype = cnp.PyArray_DATA(a), _arrays.dtype_code(a)
    # axes of one element have step 0
    args.mask_batch, args.mask_head, args.mask_row = _step(a, 0), _step(a, 1), _step(a, 2)
    return a


cdef bint _may_share(cnp.ndarray a, object x):
    """Whether the bounds of a contiguous array and of anything overlap."""
    cdef cnp.ndarray b
    if not isinstance(x, cnp.ndarray):
        return False
    b = x
    if not cnp.PyArray_IS_C_CONTIGUOUS(b):
        return np.may_share_memory(a, b)
    return (cnp.PyArray_BYTES(a) < cnp.PyArray_BYTES(b) + cnp.PyArray_NBYTES(b) and cnp.PyArray_BYTES(b) < cnp.PyArray_BYTES(a) + cnp.PyArray_NBYTES(a))


cdef int _check_outs(dict given, tuple names, list used, str func) except -1:
    """Results that are given overlap neither an input nor one another; only a present may be its past, as the same array."""
    for index, a in given.items():
        if a is None:
            continue
        name = names[index]
        for other_name, other in used:
            if _may_share(a, other) and not (other_name == name.replace("present", "past") and _is_same(a, other)):
                arg = "out" if index == 0 else f"out: {name}"
                raise ValueError(f"{func}: {arg}: overlaps {other_name}" + (" without being the same array" if index else ""))
        used.append((name, a))
    return 0


cdef int64_t _one_number(object x, int64_t most, str why, str func, str arg) except -1:
    """An array of one integer from 0 to `most`."""
    cdef cnp.ndarray a = _arrays.int_input(x, func, arg)
    if a.size != 1:
        raise ValueError(f"{func}: {arg}: expected one number, got shape {_arrays.shape_of(a)}")
    if not 0 <= a.item() <= most:
        raise ValueError(f"{func}: {arg}: expected 0 to {most}{why}, got {a.item()}")
    return a.item()


cdef float _scale_of(object scale, int64_t d, str func) except? -1:
    cdef float number = 0 if scale is None else _number(scale, False, func, "scale")
    return number if number else 1 / sqrt(<double>d)


cdef class _SelfAttention:
    """Attention of tokens to themselves and a past, of one product that has q, k and v side by side. `check` is before the product, `run` behind it."""
    cdef qk_attention_args args
    cdef cnp.ndarray y, present, mask
    cdef tuple outputs
    cdef int64_t hidden, v_hidden
    cdef int threads

    cdef int check(self, int code, int64_t batch, int64_t rows, int64_t heads, int64_t d, int64_t dv, object mask_index, int forms, object attention_bias,
                   object past, object past_length, object mask_filter_value, object scale, object unidirectional, object outputs, object out, list used,
                   object threads, str func) except -1:
        cdef qk_attention_args *args = &self.args
        cdef cnp.ndarray before = None, padding = None, bias = None
        cdef int64_t room
        cdef float filter_value
        cdef dict given
        cdef tuple shape
        self.threads = _arrays.num_threads(threads, func)
        self.outputs = outputs = _arrays.check_outputs(outputs, (0, 1), func)
        given = dict(zip(outputs, _outs(out, outputs, func)))
        _clear(args)
        args.q_dtype = args.k_dtype = args.v_dtype = args.y_dtype = code
        args.batch, args.heads, args.kv_heads, args.rows, args.d, args.dv = batch, heads, heads, rows, d, dv
        if (past is not None or 1 in outputs) and d != dv:
            raise ValueError(f"{func}: {'outputs' if past is None else 'past'}: expected no past and no present (1) where heads of queries have {d} elements "
                             f"and those of values {dv}")
        room = rows
        if past is not None:
            before = _arrays.same_float_input(past, code, func, "past")
            args.past = before.shape[3] if before.ndim == 5 else 0
            if _arrays.shape_of(before) != (2, batch, heads, args.past, d):
                raise ValueError(f"{func}: past: expected shape (2, {batch}, {heads}, past, {d}), got {_arrays.shape_of(before)}")
            if 1 not in outputs:
                raise ValueError(f"{func}: outputs: expected present (1) among them with a past, got {outputs}")
            room += args.past
            if past_length is not None:
                room = args.past
                if room < rows:
                    raise ValueError(f"{func}: past: expected room for the {rows} new tokens, got shape {_arrays.shape_of(before)}")
                args.past = _one_number(past_length, room - rows, f" for {rows} new tokens in a buffer of {room}", func, "past_sequence_length")
        args.keys = args.past + rows
        filter_value = _filter_value(mask_filter_value, func)
        args.scale = _scale_of(scale, d, func)
        args.causal = _flag(unidirectional, func, "unidirectional")
        if mask_index is not None:
            padding = _padding(mask_index, forms, batch, rows, args.keys, filter_value, func, "mask_index")
        if attention_bias is not None:
            bias = _bias_of_scores(attention_bias, code, args, func)
        self.mask = _set_mask(args, padding, bias)
        self.hidden, self.v_hidden = heads * d, heads * dv
        self.y = _arrays.output(given.get(0), (batch, rows, self.v_hidden), code, func)
        shape = (2, batch, heads, room, d)
        if given.get(1) is not None:
            _arrays.output_of(given[1], shape, _arrays.numpy_dtype(code), func, "out: present")
        if out is not None:
            _check_outs(given, ("output", "present"), used + [("past", past)], func)
        if 1 in outputs:
            self.present = given.get(1) if given.get(1) is not None else np.empty(shape, _arrays.numpy_dtype(code))
            if before is not None and before.size and not _is_same(self.present, before):
                _copy_past(before.reshape(2 * batch, heads, before.shape[3], d), self.present.reshape(2 * batch, heads, room, d), self.threads)
        return 0

    cdef object run(self, cnp.ndarray product):
        """product: (batch, rows, queries of all heads, keys of all heads, values of all heads)."""
        cdef qk_attention_args *args = &self.args
        cdef int64_t row = 2 * self.hidden + self.v_hidden, size = cnp.PyArray_ITEMSIZE(self.y)
        cdef const char *data = cnp.PyArray_BYTES(product)
        args.q, args.k, args.v, args.y = data, data + self.hidden * size, data + 2 * self.hidden * size, cnp.PyArray_DATA(self.y)
        args.q_batch = args.k_batch = args.v_batch = args.rows * row
        args.q_head = args.k_head = args.d
        args.v_head = args.y_head = args.dv
        args.q_row = args.k_row = args.v_row = row
        args.y_batch, args.y_row = args.rows * self.v_hidden, self.v_hidden
        if self.present is not None:
            args.new_k, args.new_v = args.k, args.v
            args.new_k_batch, args.new_k_head, args.new_k_row = args.k_batch, args.k_head, args.k_row
            args.new_v_batch, args.new_v_head, args.new_v_row = args.v_batch, args.v_head, args.v_row
            data = cnp.PyArray_BYTES(self.present)
            args.k, args.v = data, data + cnp.PyArray_NBYTES(self.present) // 2
            args.k_row = args.v_row = args.d
            args.k_head = args.v_head = cnp.PyArray_DIM(self.present, 3) * args.d
            args.k_batch = args.v_batch = args.heads * args.k_head
        _run(args, self.threads, True)
        return _arrays.pick({0: self.y, 1: self.present}, self.outputs)


def attention(input, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, *, num_heads, qkv_hidden_sizes=None,
              do_rotary=0, mask_filter_value=-10000.0, past_present_share_buffer=0, rotary_embedding_dim=None, scale=None, unidirectional=0, outputs=(0,),
              out=None, threads=None):
    """Self-attention with its projection: ``x = input @ weights + bias`` is queries, keys and values, which attend with masks and a past.

    com.microsoft Attention, since version 1. The projection is rounded to input's type once, scores, softmax and sums are float32. A query gives the same bits
    whether it comes alone, in a prompt or after a past.

    Parameters
    ----------
    input : array, float32, float16 or bfloat16, (batch, sequence, inputs)
    weights : array of input's dtype, (inputs, hidden + hidden + v_hidden), or PackedMatrix
        Columns are all heads' queries, then keys, then values. A `PackedMatrix` is one that stays, prepared once.
    bias : array of input's dtype, (hidden + hidden + v_hidden,), optional
    mask_index : array of integers, optional
        (batch,) end positions; (2 * batch,) ends and then starts; (3 * batch + 2,) ends and then, each with its own end, where every sequence's queries and
        keys begin, which ends make redundant; or a mask where a key counts if its value is above 0: (batch, keys), (batch, sequence, keys), or
        (batch, 1, n, n) of all positions, n >= keys. keys = past + sequence. `mask_filter_value` is added to the scores of the others, so that a query
        all of whose keys are masked attends by its raw scores.
    past : array of input's dtype, (2, batch, num_heads, past, head_size), optional
        Keys and values in front of the new ones; then `outputs` must have present, and hidden and v_hidden are the same.
    attention_bias : array of input's dtype, (batch or 1, num_heads or 1, sequence, keys), optional
        Added to the scores.
    past_sequence_length : array of one integer, optional
        With `past_present_share_buffer`: how many tokens of the past there are.
    num_heads : int
        Divides hidden and v_hidden.
    qkv_hidden_sizes : sequence of three ints, optional
        hidden, hidden, v_hidden; by default a third of the columns each.
    do_rotary, rotary_embedding_dim : int
        Only 0: neither the operator nor ONNX Runtime's CPU kernel says by which angles to turn.
    mask_filter_value : float, default -10000
    past_present_share_buffer : {0, 1}, default 0
        1: past and present are buffers (2, batch, num_heads, room, head_size) of which `past_sequence_length` tokens are there; new tokens follow them.
    scale : float, optional
        Of query · key; None or 0 for 1 / sqrt(head_size).
    unidirectional : {0, 1}, default 0
        1: a query sees the keys up to its own position, past + i. What it does not see weighs nothing, whatever the mask.
    outputs : tuple of int, default (0,)
        Which of output (0) and present (1) to return.
    out : ndarray or tuple, optional
        Receives output, or each of `outputs`, None where a new array is wanted. Where present is past itself, the new tokens are written into it and
        no past is copied.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        output (batch, sequence, v_hidden); present (2, batch, num_heads, keys, head_size), or of the buffer's shape, keys first.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> x = np.float32([[[1], [3]]])
    >>> qkernels.contrib.attention(x, np.float32([[0, 0, 2]]), num_heads=1, unidirectional=1)
    array([[[2.],
            [4.]]], dtype=float32)
    """
    cdef str func = "contrib.attention"
    cdef cnp.ndarray x = _arrays.float_input(input, _arrays.FLOATS, func, "input"), b = None, w, product
    cdef int code = _arrays.dtype_code(x)
    cdef int64_t heads = _count(num_heads, func, "num_heads"), columns, inputs, hidden, v_hidden
    cdef _SelfAttention call = _SelfAttention()
    _only_zero(do_rotary, func, "do_rotary", "since no reference defines the rotation")
    _only_zero(rotary_embedding_dim, func, "rotary_embedding_dim", "since no reference defines the rotation")
    if isinstance(weights, PackedMatrix):
        if weights.dtype != x.dtype:
            raise TypeError(f"{func}: weights: expected dtype {x.dtype}, got {weights.dtype}")
        columns, inputs = weights.shape
    else:
        w = _arrays.as_array(weights, func, "weights")
        if w.dtype != x.dtype:
            raise TypeError(f"{func}: weights: expected dtype {x.dtype}, got {w.dtype}")
        if w.ndim != 2:
            raise ValueError(f"{func}: weights: expected 2 dimensions, got shape {_arrays.shape_of(w)}")
        inputs, columns = w.shape[0], w.shape[1]
    if x.ndim != 3 or x.shape[2] != inputs:
        raise ValueError(f"{func}: input: expected shape (batch, sequence, {inputs}) for these weights, got {_arrays.shape_of(x)}")
    if qkv_hidden_sizes is None:
        hidden = v_hidden = columns // 3
    else:
        sizes = [_count(n, func, "qkv_hidden_sizes") for n in qkv_hidden_sizes]
        if len(sizes) != 3 or sizes[0] != sizes[1]:
            raise ValueError(f"{func}: qkv_hidden_sizes: expected three numbers, the first two the same, got {sizes}")
        hidden, v_hidden = sizes[0], sizes[2]
    if 2 * hidden + v_hidden != columns or not columns or hidden % heads or v_hidden % heads:
        raise ValueError(f"{func}: weights: expected " + ("3 * hidden columns" if qkv_hidden_sizes is None else f"the {2 * hidden + v_hidden} columns of "
                         f"qkv_hidden_sizes, each") + f" divisible by num_heads {heads}, got {columns}")
    if bias is not None:
        b = _arrays.same_float_input(bias, code, func, "bias")
        _arrays.check_shape(b, (columns,), func, "bias")
    share = _flag(past_present_share_buffer, func, "past_present_share_buffer")
    if share != (past_sequence_length is not None) or share and past is None:
        raise ValueError(f"{func}: past_sequence_length: expected it and a past with past_present_share_buffer 1, and only then")
    call.check(code, x.shape[0], x.shape[1], heads, hidden // heads, v_hidden // heads, mask_index, STARTS | CUMULATED | SQUARE, attention_bias, past,
               past_sequence_length, mask_filter_value, scale, unidirectional, outputs, out,
               [("input", input), ("weights", weights), ("bias", bias), ("attention_bias", attention_bias)], threads, func)
    if isinstance(weights, PackedMatrix):
        product = weights(x, bias=b, threads=threads)
    else:
        product = gemm(x.reshape(x.shape[0] * x.shape[1], inputs), w, b, threads=threads)
    return call.run(product)


cdef cnp.ndarray _in_heads(cnp.ndarray a, int64_t heads, str func, str arg):
    """(batch, heads, sequence, size), a view of (batch, sequence, heads * size)."""
    if a.ndim != 3 or not a.shape[2] or a.shape[2] % heads:
        raise ValueError(f"{func}: {arg}: expected 3 dimensions, the last divisible by num_heads {heads}, got shape {_arrays.shape_of(a)}")
    return _heads(a, heads, func, arg, "num_heads")


cdef cnp.ndarray _beams(cnp.ndarray cache, cnp.ndarray rows):
    """(batch, heads, past, size) whose token t of sequence b is that of sequence rows[b, t]."""
    return (<object>cache)[(<object>rows)[:, None], np.arange(cache.shape[1])[:, None], np.arange(rows.shape[1])]


def multi_head_attention(query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None, past_key=None, past_value=None,
                         past_sequence_length=None, cache_indirection=None, *, num_heads, mask_filter_value=-10000.0, scale=None, unidirectional=0,
                         outputs=(0,), out=None, threads=None):
    """Attention of queries to keys and values that are projected already, with masks and a past.

    com.microsoft MultiHeadAttention, since version 1. Scores, softmax and sums are float32; a query gives the same bits whether it comes alone, in a prompt or
    after a past.

    Parameters
    ----------
    query : array, float32, float16 or bfloat16
        (batch, sequence, hidden), or with keys and values side by side: (batch, sequence, num_heads, 3, head_size).
    key : array of query's dtype, optional
        (batch, kv_sequence, hidden); with values side by side (batch, kv_sequence, num_heads, 2, head_size); or as a cache has them, of another sequence
        mostly, (batch, num_heads, kv_sequence, head_size). None where query has them.
    value : array of query's dtype, optional
        (batch, kv_sequence, v_hidden), or (batch, num_heads, kv_sequence, v_head_size) if key has four dimensions. None where query or key has them.
    bias : array of query's dtype, (hidden + hidden + v_hidden,), optional
        Added to queries, keys and values, with one rounding. Keys and values of four dimensions have theirs already.
    key_padding_mask : array of integers, optional
        (batch,) numbers of keys; (3 * batch + 2,) these and then, each with its own end, where every sequence's queries and keys begin, which the numbers
        make redundant; or a mask where a key counts if its value is above 0: (batch, keys) or (batch, sequence, keys). keys = past + kv_sequence.
        `mask_filter_value` is added to the scores of the others, so that a query all of whose keys are masked attends by its raw scores.
    attention_bias : array of query's dtype, (batch or 1, num_heads or 1, sequence, keys), optional
        Added to the scores.
    past_key, past_value : array of query's dtype, optional
        (batch, num_heads, past, size): in front of key and value; not with those of four dimensions.
    past_sequence_length : array of one integer, optional
        How many tokens of the past there are: past and present are then buffers, in which the new tokens follow them.
    cache_indirection : array of integers, (n, beams, tokens), optional
        With `past_sequence_length`: token t of beam j of group i is the one that beam ``[i, j, t]`` of the group has in the past; n * beams = batch.
    num_heads : int
    mask_filter_value : float, default -10000
    scale : float, optional
        Of query · key; None or 0 for 1 / sqrt(head_size).
    unidirectional : {0, 1}, default 0
        1: query i sees the keys up to past + i. What it does not see weighs nothing, whatever the mask.
    outputs : tuple of int, default (0,)
        Which of output (0), present_key (1), present_value (2) and qk (3) to return.
    out : ndarray or tuple, optional
        Receives output, or each of `outputs`, None where a new array is wanted. Where present_key is past_key itself (and likewise the values), the
        new tokens are written into it and no past is copied.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        output: (batch, sequence, v_hidden). present_key, present_value: (batch, num_heads, keys, size), or of the buffers' shape. qk: (batch, num_heads,
        sequence, keys), the scaled scores after masks and bias; the least float32 where direction hides a key.

    Raises
    ------
    TypeError, ValueError
    IndexError
        For a beam that does not exist.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> q = np.zeros((1, 2, 1), np.float32)
    >>> v = np.float32([1, 3]).reshape(1, 2, 1)
    >>> qkernels.multi_head_attention(q, q, v, key_padding_mask=np.int32([[1, 0]]), num_heads=1).ravel()
    array([1., 1.], dtype=float32)
    """
    cdef str func = "multi_head_attention"
    cdef cnp.ndarray x = _strided(query, _arrays.FLOATS, func, "query"), q, k, v, b = None, old_k = None, old_v = None
    cdef cnp.ndarray padding = None, scores_bias = None, _added, y, present_k = None, present_v = None, scores, sources
    cdef int code = _arrays.dtype_code(x), n
    cdef int64_t heads = _count(num_heads, func, "num_heads"), room, beams
    cdef qk_attention_args args
    cdef float filter_value = _filter_value(mask_filter_value, func)
    cdef dict given, results = {}
    cdef bint cached = False
    outputs = _arrays.check_outputs(outputs, (0, 1, 2, 3), func)
    given = dict(zip(outputs, _outs(out, outputs, func)))
    n = _arrays.num_threads(threads, func)

    # q, k, v as (batch, heads, sequence, size)
    if x.ndim == 5 or key is None:
        if key is not None or value is not None:
            raise ValueError(f"{func}: {'value' if key is None else 'key'}: expected None with a query of shape {_arrays.shape_of(x)}")
        if x.ndim != 5 or (x.shape[2], x.shape[3]) != (heads, 3) or not x.shape[4]:
            raise ValueError(f"{func}: query: expected shape (batch, sequence, {heads}, 3, head_size) without key, got {_arrays.shape_of(x)}")
        q, k, v = (<object>x).transpose(3, 0, 2, 1, 4)
    else:
        q = _in_heads(x, heads, func, "query")
        k = _strided(key, 1 << code, func, "key")
        if k.ndim == 5:
            if value is not None:
                raise ValueError(f"{func}: value: expected None with a key of shape {_arrays.shape_of(k)}")
            if _arrays.shape_of(k) != (q.shape[0], k.shape[1], heads, 2, q.shape[3]):
                raise ValueError(f"{func}: key: expected shape ({q.shape[0]}, keys, {heads}, 2, {q.shape[3]}), got {_arrays.shape_of(k)}")
            k, v = (<object>k).transpose(3, 0, 2, 1, 4)
        else:
            v = _strided(value, 1 << code, func, "value")
            cached = k.ndim == 4
            if v.ndim != k.ndim:
                raise ValueError(f"{func}: value: expected as many dimensions as key of shape {_arrays.shape_of(k)} has, got {_arrays.shape_of(v)}")
            if not cached:
                k, v = _in_heads(k, heads, func, "key"), _in_heads(v, heads, func, "value")
            if _arrays.shape_of(k) != (q.shape[0], heads, k.shape[2], q.shape[3]):
                raise ValueError(f"{func}: key: expected batch {q.shape[0]}, {heads} heads and head size {q.shape[3]}, got shape {_arrays.shape_of(k)} "
                                 "as (batch, heads, keys, size)")
            if _arrays.shape_of(v) != (k.shape[0], heads, k.shape[2], v.shape[3]) or not v.shape[3]:
                raise ValueError(f"{func}: value: expected batch {k.shape[0]}, {heads} heads and {k.shape[2]} keys, got shape {_arrays.shape_of(v)} "
                                 "as (batch, heads, keys, size)")
    _clear(&args)
    args.batch, args.heads, args.kv_heads, args.rows = q.shape[0], heads, heads, q.shape[2]
    args.d, args.dv = q.shape[3], v.shape[3]
    if bias is not None:
        b = _arrays.same_float_input(bias, code, func, "bias")
        _arrays.check_shape(b, (heads * (2 * args.d + args.dv),), func, "bias")

    # the past
    if (past_key is None) != (past_value is None):
        raise ValueError(f"{func}: past_{'value' if past_value is None else 'key'}: expected both past_key and past_value or neither")
    room = k.shape[2]
    if past_key is not None:
        if cached:
            raise ValueError(f"{func}: past_key: expected None with a key of shape {_arrays.shape_of(k)}, which has all keys")
        old_k, old_v = _strided(past_key, 1 << code, func, "past_key"), _strided(past_value, 1 << code, func, "past_value")
        args.past = old_k.shape[2] if old_k.ndim == 4 else 0
        _arrays.check_shape(old_k, (args.batch, heads, args.past, args.d), func, "past_key")
        _arrays.check_shape(old_v, (args.batch, heads, args.past, args.dv), func, "past_value")
        room += args.past
    if past_sequence_length is not None:
        if old_k is None:
            raise ValueError(f"{func}: past_sequence_length: expected past_key and past_value with it")
        room = args.past
        if room < k.shape[2]:
            raise ValueError(f"{func}: past_key: expected room for the {k.shape[2]} new tokens, got shape {_arrays.shape_of(old_k)}")
        args.past = _one_number(past_sequence_length, room - k.shape[2], f" for {k.shape[2]} new tokens in a buffer of {room}", func, "past_sequence_length")
    args.keys = args.past + k.shape[2]
    if cache_indirection is not None:
        sources = _arrays.int_input(cache_indirection, func, "cache_indirection")
        beams = sources.shape[1] if sources.ndim == 3 else 0
        if past_sequence_length is None or sources.ndim != 3 or sources.shape[0] * beams != args.batch or sources.shape[2] < args.past:
            raise ValueError(f"{func}: cache_indirection: expected past_sequence_length with it and shape (n, beams, at least {args.past}) of n * beams = "
                             f"{args.batch}, got {_arrays.shape_of(sources)}")
        sources = (<object>sources)[:, :, :args.past]
        if ((<object>sources < 0) | (<object>sources >= beams)).any():
            raise IndexError(f"{func}: cache_indirection: expected 0 to {beams - 1}, got {sources.min()} to {sources.max()}")
        sources = (<object>sources + (np.arange(sources.shape[0]) * beams)[:, None, None]).reshape(args.batch, args.past)

    # numbers and masks
    args.scale = _scale_of(scale, args.d, func)
    args.causal = _flag(unidirectional, func, "unidirectional")
    if key_padding_mask is not None:
        padding = _padding(key_padding_mask, CUMULATED, args.batch, args.rows, args.keys, filter_value, func, "key_padding_mask")
    if attention_bias is not None:
        scores_bias = _bias_of_scores(attention_bias, code, &args, func)
    _added = _set_mask(&args, padding, scores_bias)  # args points to it

    # every result is checked before anything is written
    shape_k, shape_v = (args.batch, heads, room, args.d), (args.batch, heads, room, args.dv)
    y = results[0] = _arrays.output(given.get(0), (args.batch, args.rows, heads * args.dv), code, func)
    if 3 in outputs:
        scores = results[3] = _arrays.output(given.get(3), (args.batch, heads, args.rows, args.keys), code, func, "out: qk")
    for index, shape in ((1, shape_k), (2, shape_v)):
        if given.get(index) is not None:
            _arrays.output_of(given[index], shape, x.dtype, func, "out: present_key" if index == 1 else "out: present_value")
    if out is not None:
        _check_outs(given, ("output", "present_key", "present_value", "qk"),
                    [("query", query), ("key", key), ("value", value), ("bias", bias), ("attention_bias", attention_bias), ("past_key", past_key),
                     ("past_value", past_value)], func)
    fused = cache_indirection is None and (k.shape[2] == args.rows or old_k is None and 1 not in outputs and 2 not in outputs)
    if b is not None:
        b = (<object>b).astype(np.float32, copy=False)
        args.q_bias = <const float *>cnp.PyArray_DATA(b)
        if fused and not cached:
            args.k_bias, args.v_bias = args.q_bias + heads * args.d, args.q_bias + 2 * heads * args.d
        elif not cached:
            k, v = _with_bias(k, bias, heads * args.d, n), _with_bias(v, bias, 2 * heads * args.d, n)
    if old_k is not None or 1 in outputs or 2 in outputs:
        present_k = results[1] = _present_of(given.get(1), old_k, shape_k, x, n)
        present_v = results[2] = _present_of(given.get(2), old_v, shape_v, x, n)
        if fused:
            args.new_k, args.new_k_batch, args.new_k_head, args.new_k_row = cnp.PyArray_DATA(k), _step(k, 0), _step(k, 1), _step(k, 2)
            args.new_v, args.new_v_batch, args.new_v_head, args.new_v_row = cnp.PyArray_DATA(v), _step(v, 0), _step(v, 1), _step(v, 2)
        else:
            (<object>present_k)[:, :, args.past:args.keys], (<object>present_v)[:, :, args.past:args.keys] = k, v
        k, v = present_k, present_v
    if cache_indirection is not None:
        k, v = [np.concatenate([_beams(a, sources), (<object>a)[:, :, args.past:args.keys]], 2) for a in (present_k, present_v)]
    _place(&args, q, k, v)
    _place_result(&args, _heads(y, heads, func, "out", "num_heads"))
    if 3 in outputs:
        args.scores, args.scores_keys, args.scores_mode, args.scores_hidden = cnp.PyArray_DATA(scores), args.keys, QK_SCORES_MASKED, np.finfo(np.float32).min
    _run(&args, n, 0 in outputs or args.new_k)
    return _arrays.pick(results, outputs)


cdef cnp.ndarray _with_bias(cnp.ndarray a, object bias, int64_t start, int threads):
    """(batch, heads, sequence, size) plus the elements of bias from `start` on, in the same order."""
    cdef int64_t heads = a.shape[1], size = a.shape[3]
    return add((<object>a).transpose(0, 2, 1, 3), np.asarray(bias)[start:start + heads * size].reshape(heads, size), threads=threads).transpose(0, 2, 1, 3)


cdef cnp.ndarray _present_of(object out, cnp.ndarray past, tuple shape, cnp.ndarray x, int threads):
    """`out`, which may be the past itself, or a new array of x's type, with the past in it."""
    cdef cnp.ndarray both = out if out is not None else np.empty(shape, (<object>x).dtype)
    if past is not None and not _is_same(both, past):
        _copy_past(past, both, threads)
    return both


cdef tuple _table_blocks(object row_indices, object col_indices, int64_t heads, int64_t block, int64_t first, int64_t last, str func):
    """(layouts, blocks, blocks) bytes that say which blocks of keys the rows [first, last) of blocks see: the dense form of compressed rows."""
    cdef cnp.ndarray rows = _arrays.int_input(row_indices, func, "block_row_indices"), dense
    cdef cnp.ndarray columns = _arrays.int_input(col_indices, func, "block_col_indices")
    cdef int64_t layouts, count, layout, row, i
    cdef const int64_t *r
    cdef const int64_t *c
    cdef uint8_t *seen
    cdef bint good
    if rows.ndim != 2 or rows.shape[1] < 2 or not rows.shape[0] or heads % rows.shape[0]:
        raise ValueError(f"{func}: block_row_indices: expected shape (layouts, blocks + 1) of a number of layouts that divides num_heads {heads}, "
                         f"got {_arrays.shape_of(rows)}")
    layouts, count = rows.shape[0], rows.shape[1] - 1
    if columns.ndim != 2 or columns.shape[0] != layouts:
        raise ValueError(f"{func}: block_col_indices: expected shape ({layouts}, n), got {_arrays.shape_of(columns)}")
    if last > count:
        raise ValueError(f"{func}: block_row_indices: expected at least {last} blocks of {block} for total_sequence_length, got {count}")
    r, dense = <const int64_t *>cnp.PyArray_DATA(rows), np.zeros((layouts, count, count), np.uint8)
    seen = <uint8_t *>cnp.PyArray_DATA(dense)
    for layout in range(layouts):
        c = <const int64_t *>cnp.PyArray_DATA(columns) + layout * columns.shape[1]
        good = r[0] == 0 and r[count] <= columns.shape[1]
        for row in range(count):
            good = good and r[row] <= r[row + 1]
        if not good:
            raise ValueError(f"{func}: block_row_indices: expected from 0 to at most {columns.shape[1]}, not decreasing")
        for row in range(first, last):
            for i in range(r[row], r[row + 1]):
                if not 0 <= c[i] < count:
                    raise IndexError(f"{func}: block_col_indices: expected 0 to {count - 1}, got {c[i]}")
                seen[row * count + c[i]] = 1
        r += count + 1
        seen += count * count
    return dense, count


def sparse_attention(query, key=None, value=None, past_key=None, past_value=None, block_row_indices=None, block_col_indices=None, total_sequence_length=None,
                     key_total_sequence_lengths=None, cos_cache=None, sin_cache=None, *, num_heads, kv_num_heads, sparse_block_size, scale=None, do_rotary=0,
                     rotary_interleaved=0, outputs=(0,), out=None, threads=None):
    """Causal attention with grouped heads in which a block of queries sees some blocks of keys, on a key and value cache.

    com.microsoft SparseAttention, since version 1. Computes as `group_query_attention` does, so that layouts with every block give its bits; what a layout
    hides is neither multiplied nor read as scores. A query that sees no key gives zeros.

    Parameters
    ----------
    query : array, float32, float16 or bfloat16
        (batch, sequence, num_heads * head_size), or all three side by side: (batch, sequence, (num_heads + 2 * kv_num_heads) * head_size).
    key, value : array of query's dtype, optional
        (batch, sequence, kv_num_heads * head_size); None where query has them.
    past_key, past_value : array of query's dtype
        (batch, kv_num_heads, room, head_size): buffers of the tokens so far, followed by anything.
    block_row_indices, block_col_indices : array of integers, (layouts, blocks + 1) and (layouts, n)
        Of layout h mod layouts for head h, compressed rows: the block i of queries sees the blocks of keys ``col[row[i]:row[i + 1]]``, of those up to its own
        position. What follows the last row's columns is not read.
    total_sequence_length : int, or array of one
        The largest number of tokens of a sequence after the call. A call is a first prompt where it equals `sequence`: then fewer tokens mean
        padding at the end, whose rows are zero.
    key_total_sequence_lengths : array of integers, (batch,)
        Tokens of each sequence after the call. But for a first prompt the last `sequence` of them are new.
    cos_cache, sin_cache : array, query's dtype or float32, (positions, w), optional
        With `do_rotary`: the first 2 w dimensions of each head are turned.
    num_heads, kv_num_heads : int
        Query head h reads kv head ``h // (num_heads // kv_num_heads)``.
    sparse_block_size : {16, 32, 64, 128}
    scale : float, optional
        Default, and where 0, 1 / sqrt(head_size).
    do_rotary, rotary_interleaved : {0, 1}, default 0
        Turn q and new k; interleaved pairs are dimensions (2 i, 2 i + 1), else (i, w + i).
    outputs : tuple of int, default (0,)
        Which of output (0), present_key (1) and present_value (2) to return.
    out : ndarray or tuple, optional
        Receives output, or each of `outputs`, None where a new array is wanted. Where present_key is past_key itself (and likewise the values), the
        new tokens are written into it and no past is copied.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        output: (batch, sequence, num_heads * head_size); present_key, present_value of the buffers' shape.

    Raises
    ------
    TypeError, ValueError
    IndexError
        For a block that does not exist, and for a position without a row in the tables.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> q, v = np.zeros((1, 17, 1), np.float32), np.ones((1, 17, 1), np.float32)
    >>> v[:, 16] = 5
    >>> cache = np.zeros((1, 1, 32, 1), np.float32)
    >>> rows, columns = np.int32([[0, 1, 2]]), np.int32([[0, 1]])  # each block sees itself alone
    >>> y = qkernels.sparse_attention(q, q, v, cache, cache.copy(), rows, columns, 17, np.int32([17]), num_heads=1, kv_num_heads=1, sparse_block_size=16)
    >>> y[0, 15:, 0]
    array([1., 5.], dtype=float32)
    """
    cdef str func = "sparse_attention"
    cdef cnp.ndarray q = _strided(query, _arrays.FLOATS, func, "query"), k, v, old_k, old_v, y, lengths, pasts, counts, keys, values, cosine, sine
    cdef cnp.ndarray positions = None, blocks
    cdef qk_attention_args args
    cdef int64_t heads = _count(num_heads, func, "num_heads"), kv_heads = _count(kv_num_heads, func, "kv_num_heads"), d, width, total, block, first
    cdef int code = _arrays.dtype_code(q), n = _arrays.num_threads(threads, func)
    cdef dict given, results = {}
    outputs = _arrays.check_outputs(outputs, (0, 1, 2), func)
    given = dict(zip(outputs, _outs(out, outputs, func)))
    _clear(&args)
    if heads % kv_heads:
        raise ValueError(f"{func}: num_heads: expected a multiple of kv_num_heads {kv_heads}, got {heads}")
    block = _count(sparse_block_size, func, "sparse_block_size")
    if block not in (16, 32, 64, 128):
        raise ValueError(f"{func}: sparse_block_size: expected 16, 32, 64 or 128, got {block}")
    if (key is None) != (value is None):
        raise ValueError(f"{func}: {'key' if key is None else 'value'}: expected both key and value or neither")
    width = heads + (2 * kv_heads if key is None else 0)
    if q.ndim != 3 or not q.shape[2] or q.shape[2] % width:
        raise ValueError(f"{func}: query: expected 3 dimensions, the last divisible by {width} heads, got shape {_arrays.shape_of(q)}")
    args.batch, args.rows, d = q.shape[0], q.shape[1], q.shape[2] // width
    if key is None:
        whole = (<object>q).reshape(args.batch, args.rows, width, d)
        q, k, v = whole[:, :, :heads], whole[:, :, heads:heads + kv_heads], whole[:, :, heads + kv_heads:]
    else:
        k, v = _strided(key, 1 << code, func, "key"), _strided(value, 1 << code, func, "value")
        for a, name in ((k, "key"), (v, "value")):
            _arrays.check_shape(a, (args.batch, args.rows, kv_heads * d), func, name)
        q = (<object>q).reshape(args.batch, args.rows, heads, d)
        k, v = [(<object>a).reshape(args.batch, args.rows, kv_heads, d) for a in (k, v)]
    for a, name in ((past_key, "past_key"), (past_value, "past_value"), (block_row_indices, "block_row_indices"), (block_col_indices, "block_col_indices"),
                    (total_sequence_length, "total_sequence_length"), (key_total_sequence_lengths, "key_total_sequence_lengths")):
        if a is None:
            raise TypeError(f"{func}: {name}: expected an array, got None")
    old_k, old_v = _strided(past_key, 1 << code, func, "past_key"), _strided(past_value, 1 << code, func, "past_value")
    shape = (args.batch, kv_heads, old_k.shape[2] if old_k.ndim == 4 else 0, d)
    _arrays.check_shape(old_k, shape, func, "past_key")
    _arrays.check_shape(old_v, shape, func, "past_value")
    total = _one_number(total_sequence_length, shape[2], " rows of the past's buffer", func, "total_sequence_length")
    if total < args.rows:
        raise ValueError(f"{func}: total_sequence_length: expected at least the {args.rows} new tokens, got {total}")
    lengths = _arrays.int_input(key_total_sequence_lengths, func, "key_total_sequence_lengths")
    _arrays.check_shape(lengths, (args.batch,), func, "key_total_sequence_lengths")
    least = 1 if total == args.rows else args.rows
    for length in lengths.tolist():
        if not least <= length <= total and args.rows:
            raise ValueError(f"{func}: key_total_sequence_lengths: expected {least} to total_sequence_length {total} for {args.rows} new tokens, got {length}")
    counts = np.minimum(lengths, args.rows)
    pasts = lengths - counts
    args.scale = _scale_of(scale, d, func)
    if (cos_cache is None) != (sin_cache is None):
        raise ValueError(f"{func}: {'cos_cache' if cos_cache is None else 'sin_cache'}: expected both cos_cache and sin_cache or neither")
    if _flag(do_rotary, func, "do_rotary"):
        if cos_cache is None:
            raise ValueError(f"{func}: cos_cache: expected cos_cache and sin_cache with do_rotary 1")
        args.half, args.interleaved = _rotary_half(cos_cache, d, func, "cos_cache"), _flag(rotary_interleaved, func, "rotary_interleaved")
        cosine, sine, positions = _rows_of(cos_cache, sin_cache, args.half, code, None, pasts, counts, args.rows, func)
        args.cos, args.sin = <const float *>cnp.PyArray_DATA(cosine), <const float *>cnp.PyArray_DATA(sine)
        if positions is not None:
            args.positions = <const int64_t *>cnp.PyArray_DATA(positions)
    elif _flag(rotary_interleaved, func, "rotary_interleaved"):
        raise ValueError(f"{func}: rotary_interleaved: expected do_rotary 1 with it")
    first = min(pasts.tolist(), default=0) // block
    blocks, args.block_count = _table_blocks(block_row_indices, block_col_indices, heads, block, first, max(first, (total + block - 1) // block), func)
    args.blocks, args.layouts, args.block_log2 = <const uint8_t *>cnp.PyArray_DATA(blocks), blocks.shape[0], {16: 4, 32: 5, 64: 6, 128: 7}[block]

    # every result is checked before anything is written
    y = results[0] = _arrays.output(given.get(0), (args.batch, args.rows, heads * d), code, func)
    for index, name in ((1, "out: present_key"), (2, "out: present_value")):
        if given.get(index) is not None:
            _arrays.output_of(given[index], shape, _arrays.numpy_dtype(code), func, name)
    if out is not None:
        _check_outs(given, ("output", "present_key", "present_value"), [("query", query), ("key", key), ("value", value), ("past_key", past_key),
                    ("past_value", past_value), ("cos_cache", cos_cache), ("sin_cache", sin_cache)], func)
    keys, values = [a if a is not None else np.empty(shape, _arrays.numpy_dtype(code)) for a in (given.get(1), given.get(2))]
    for a, old in ((keys, old_k), (values, old_v)):
        if not _is_same(a, old):
            _copy_past(old, a, n)
    results[1], results[2] = keys, values
    args.heads, args.kv_heads, args.keys, args.d, args.dv, args.causal = heads, kv_heads, total, d, d, 1
    args.pasts, args.ends = <const int64_t *>cnp.PyArray_DATA(pasts), <const int64_t *>cnp.PyArray_DATA(lengths)
    args.counts = <const int64_t *>cnp.PyArray_DATA(counts)
    _place(&args, cnp.PyArray_SwapAxes(q, 1, 2), keys, values)
    k, v = cnp.PyArray_SwapAxes(k, 1, 2), cnp.PyArray_SwapAxes(v, 1, 2)
    args.new_k, args.new_k_batch, args.new_k_head, args.new_k_row = cnp.PyArray_DATA(k), _step(k, 0), _step(k, 1), _step(k, 2)
    args.new_v, args.new_v_batch, args.new_v_head, args.new_v_row = cnp.PyArray_DATA(v), _step(v, 0), _step(v, 1), _step(v, 2)
    _place_result(&args, _heads(y, heads, func, "out", "num_heads"))
    _run(&args, n, True)
    return _arrays.pick(results, outputs)


cdef cnp.ndarray _pool(object x, str func, str arg):
    """A cache of pages, which is written in place."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{func}: {arg}: expected an ndarray, which is written in place, got {type(x).__name__}")
    cdef cnp.ndarray a = x
    if _arrays.dtype_code(a) < 0 and a.dtype != np.int8:
        raise TypeError(f"{func}: {arg}: expected dtype float32, float16, bfloat16 or int8, got {a.dtype}")
    if a.ndim != 4 or not a.shape[1]:
        raise ValueError(f"{func}: {arg}: expected shape (blocks, block_size, kv_num_heads, head_size), got {_arrays.shape_of(a)}")
    if not (cnp.PyArray_ISCARRAY(a) and cnp.PyArray_ISNOTSWAPPED(a)):
        raise ValueError(f"{func}: {arg}: expected an aligned, C-contiguous and writeable array, since it is written in place, got strides {x.strides}")
    return a


def paged_attention(query, key=None, value=None, key_cache=None, value_cache=None, cumulative_sequence_length=None, past_seqlens=None, block_table=None,
                    cos_cache=None, sin_cache=None, slot_mapping=None, head_sink=None, q_norm_weight=None, k_norm_weight=None, k_scale=None, v_scale=None,
                    attention_metadata=None, *, num_heads, kv_num_heads, scale=None, softcap=0.0, do_rotary=0, rotary_interleaved=0, rotary_offset=0,
                    local_window_size=-1, is_causal=1, qk_norm_epsilon=1e-6, k_quant_type="NONE", v_quant_type="NONE", k_cache_dtype="", v_cache_dtype="",
                    kv_cache_layout="SEPARATE", v_head_size=0, outputs=(0,), out=None, threads=None):
    """Attention with grouped heads of the tokens of several sequences, packed without padding, on a cache of pages that is written in place.

    com.microsoft PagedAttention, since version 1, which ONNX Runtime runs on other devices only. Computes as `group_query_attention` does and gives its
    bits, whatever the pages: norms, rotation, append, attention.

    Parameters
    ----------
    query : array, float32, float16 or bfloat16
        (tokens, num_heads * head_size), or all three side by side: (tokens, (num_heads + 2 * kv_num_heads) * head_size). The tokens of the first sequence
        come first.
    key, value : array of query's dtype, (tokens, kv_num_heads * head_size), optional
        None where query has them.
    key_cache, value_cache : ndarray, float32, float16, bfloat16 or int8, (blocks, block_size, kv_num_heads, head_size)
        Any block size. C-contiguous; new tokens are written into them. With `kv_cache_layout` "LATENT" there is no value and no value_cache.
    cumulative_sequence_length : array of integers, (batch + 1,)
        Where each sequence's tokens begin in query; the last is their number.
    past_seqlens : array of integers, (batch,)
        The tokens of each sequence in the cache before the call.
    block_table : array of integers, (batch, n)
        The block of each sequence's tokens [i * block_size, (i + 1) * block_size). -1: none, of which no query may see a token.
    cos_cache, sin_cache : array, query's dtype or float32, (positions, w), optional
        With `do_rotary`: 2 w dimensions of each head are turned, from `rotary_offset` on.
    slot_mapping : array of integers, (tokens,), optional
        Where each new token is written, ``block * block_size + place``; -1: nowhere. By default where `block_table` has it.
    head_sink : array of query's dtype, (num_heads,), optional
        A score that each head's softmax has in its denominator besides the keys'.
    q_norm_weight, k_norm_weight : array of query's dtype, (head_size,), optional
        Weights of an RMS normalization of every head before the rotation.
    k_scale, v_scale : array, float32, optional
        Of an int8 cache: one element, or (kv_num_heads, 1, head_size). New tokens are rounded to codes, halves to even, and attended to as rounded.
    attention_metadata : array of integers, (2,) or (3,), optional
        Bounds of the lengths, for devices that cannot see these: checked, and not needed.
    num_heads, kv_num_heads : int
        Query head h reads kv head ``h // (num_heads // kv_num_heads)``.
    scale : float, optional
        Default, and where 0, 1 / sqrt(head_size). Needed where v_head_size is not head_size.
    softcap : float, default 0
        c > 0 turns a score s into ``c * tanh(s / c)``.
    do_rotary, rotary_interleaved : {0, 1}, default 0
        Turn q and new k; interleaved pairs are dimensions (2 i, 2 i + 1), else (i, w + i).
    rotary_offset : int, default 0
        A multiple of 8.
    local_window_size : int, default -1
        W > 0: a query sees the last W keys up to its position, its own among them.
    is_causal : {0, 1}, default 1
        0: a query also sees the keys behind its position.
    qk_norm_epsilon : float, default 1e-6
    k_quant_type, v_quant_type : {"NONE", "PER_TENSOR", "PER_CHANNEL"}, default "NONE"
    k_cache_dtype, v_cache_dtype : str, default ""
        The cache's own type by its ONNX name, or "". Caches of 4 bits and of 8-bit floats, which the operator has besides, are not offered.
    kv_cache_layout : {"SEPARATE", "LATENT"}, default "SEPARATE"
        "LATENT": there is one kv head, and values are the first `v_head_size` elements of the keys.
    v_head_size : int, default 0
        With "LATENT"; 0: head_size.
    outputs : tuple of int, default (0,)
        Which of output (0), key_cache_out (1) and value_cache_out (2) to return; the last two are the caches themselves.
    out : ndarray, optional
        Receives output.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        output: (tokens, num_heads * head_size), or (tokens, num_heads * v_head_size).

    Raises
    ------
    TypeError, ValueError
    IndexError
        For a block or slot that does not exist, and for a position without a row in the tables.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> q, v = np.zeros((3, 1), np.float32), np.float32([[1], [3], [7]])  # two tokens of one sequence and one of another
    >>> pages = np.zeros((2, 4, 1, 1), np.float32)
    >>> qkernels.paged_attention(q, q, v, pages, pages.copy(), np.int32([0, 2, 3]), np.int32([0, 0]), np.int32([[1], [0]]), num_heads=1, kv_num_heads=1).ravel()
    array([1., 2., 7.], dtype=float32)
    """
    cdef str func = "paged_attention"
    cdef cnp.ndarray q = _strided(query, _arrays.FLOATS, func, "query"), k, v = None, keys, values, y, starts, pasts, counts, ends, table, slots, cosine, sine
    cdef cnp.ndarray positions = None, sinks, q_weight, k_weight, k_scales, v_scales
    cdef qk_attention_args args
    cdef int64_t heads = _count(num_heads, func, "num_heads"), kv_heads = _count(kv_num_heads, func, "kv_num_heads"), d, width, tokens, batch, b
    cdef int code = _arrays.dtype_code(q), n = _arrays.num_threads(threads, func), cache
    cdef bint latent
    outputs = _arrays.check_outputs(outputs, (0, 1, 2), func)
    if out is not None and 0 not in outputs:
        raise ValueError(f"{func}: out: output 0 is not among outputs={outputs}")
    if kv_cache_layout not in ("SEPARATE", "LATENT"):
        raise ValueError(f"{func}: kv_cache_layout: expected SEPARATE or LATENT, got {kv_cache_layout!r}")
    latent = kv_cache_layout == "LATENT"
    _clear(&args)
    if heads % kv_heads:
        raise ValueError(f"{func}: num_heads: expected a multiple of kv_num_heads {kv_heads}, got {heads}")
    for a, name in ((key_cache, "key_cache"), (cumulative_sequence_length, "cumulative_sequence_length"), (past_seqlens, "past_seqlens"),
                    (block_table, "block_table")):
        if a is None:
            raise TypeError(f"{func}: {name}: expected an array, got None")

    # query, key, value, caches
    if latent:
        if kv_heads != 1 or value is not None or value_cache is not None or key is None or 2 in outputs or v_quant_type != "NONE" or v_scale is not None:
            raise ValueError(f"{func}: kv_cache_layout: expected kv_num_heads 1, a key, and nothing of values with LATENT")
    elif v_head_size:
        raise ValueError(f"{func}: v_head_size: expected 0 with kv_cache_layout SEPARATE, got {v_head_size}")
    elif (key is None) != (value is None):
        raise ValueError(f"{func}: {'key' if key is None else 'value'}: expected both key and value or neither")
    width = heads + (2 * kv_heads if key is None else 0)
    if q.ndim != 2 or not q.shape[1] or q.shape[1] % width:
        raise ValueError(f"{func}: query: expected 2 dimensions, the last divisible by {width} heads, got shape {_arrays.shape_of(q)}")
    tokens, d = q.shape[0], q.shape[1] // width
    if key is None:
        whole = (<object>q).reshape(tokens, width, d)
        q, k, v = whole[:, :heads], whole[:, heads:heads + kv_heads], whole[:, heads + kv_heads:]
    else:
        k = _strided(key, 1 << code, func, "key")
        _arrays.check_shape(k, (tokens, kv_heads * d), func, "key")
        q, k = (<object>q).reshape(tokens, heads, d), (<object>k).reshape(tokens, kv_heads, d)
        if not latent:
            v = _strided(value, 1 << code, func, "value")
            _arrays.check_shape(v, (tokens, kv_heads * d), func, "value")
            v = (<object>v).reshape(tokens, kv_heads, d)
    args.d = args.dv = d
    if latent and v_head_size:
        args.dv = _count(v_head_size, func, "v_head_size")
        if args.dv > d:
            raise ValueError(f"{func}: v_head_size: expected 1 to head_size {d}, got {args.dv}")
        if args.dv != d and scale is None:
            raise ValueError(f"{func}: scale: expected it where v_head_size {args.dv} is not head_size {d}")
    keys = _pool(key_cache, func, "key_cache")
    _arrays.check_shape(keys, (keys.shape[0], keys.shape[1], kv_heads, d), func, "key_cache")
    values = keys if latent else _pool(value_cache, func, "value_cache")
    _arrays.check_shape(values, _arrays.shape_of(keys), func, "value_cache")
    if values.dtype != keys.dtype:
        raise TypeError(f"{func}: value_cache: expected dtype {keys.dtype} as key_cache, got {values.dtype}")
    if not latent and np.may_share_memory(keys, values):
        raise ValueError(f"{func}: value_cache: overlaps key_cache")
    for kind, factors, name in ((k_quant_type, k_scale, "k"), *(() if latent else ((v_quant_type, v_scale, "v"),))):
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
            raise ValueError(f"{func}: {name}_quant_type: expected NONE, PER_TENSOR or PER_CHANNEL, got {kind!r}")
        if (kind == "NONE") != (keys.dtype != np.int8):
            raise ValueError(f"{func}: {name}_quant_type: expected NONE for a cache of floats, else PER_TENSOR or PER_CHANNEL, got {kind} for {keys.dtype}")
        if kind == "NONE" and factors is not None:
            raise ValueError(f"{func}: {name}_scale: expected None for a cache that is not quantized")
    for logical, name in ((k_cache_dtype, "k_cache_dtype"), (v_cache_dtype, "v_cache_dtype")):
        if logical not in ("", {"float32": "float"}.get(str(keys.dtype), str(keys.dtype))):
            raise ValueError(f"{func}: {name}: expected '' or the type of the cache, {keys.dtype}, got {logical!r}")
    cache = QK_CACHE_I8 if keys.dtype == np.int8 else _arrays.dtype_code(keys)
    if cache == QK_CACHE_I8:
        k_scales = _scales(k_scale, k_quant_type, kv_heads, d, func, "k_scale")
        v_scales = k_scales if latent else _scales(v_scale, v_quant_type, kv_heads, d, func, "v_scale")
        args.k_scale, args.v_scale = <const float *>cnp.PyArray_DATA(k_scales), <const float *>cnp.PyArray_DATA(v_scales)

    # lengths and pages
    starts = _arrays.int_input(cumulative_sequence_length, func, "cumulative_sequence_length")
    if starts.ndim != 1 or not starts.size:
        raise ValueError(f"{func}: cumulative_sequence_length: expected shape (batch + 1,), got {_arrays.shape_of(starts)}")
    batch = starts.size - 1
    counts = np.diff(starts)
    if (<object>starts)[0] or (<object>starts)[batch] != tokens or (<object>counts < 0).any():
        raise ValueError(f"{func}: cumulative_sequence_length: expected from 0 to the {tokens} tokens of query, not decreasing, got {starts.tolist()}")
    pasts = _arrays.int_input(past_seqlens, func, "past_seqlens")
    _arrays.check_shape(pasts, (batch,), func, "past_seqlens")
    table = _arrays.int_input(block_table, func, "block_table")
    if table.ndim != 2 or table.shape[0] != batch:
        raise ValueError(f"{func}: block_table: expected shape ({batch}, n), got {_arrays.shape_of(table)}")
    args.page, args.pages_row = keys.shape[1], table.shape[1]
    ends = <object>pasts + counts
    for b in range(batch):
        if not 0 <= (<object>pasts)[b] <= (<object>ends)[b] <= args.page * args.pages_row:
            raise ValueError(f"{func}: past_seqlens: expected 0 to {args.page * args.pages_row - (<object>counts)[b]} for {(<object>counts)[b]} new tokens and "
                             f"{args.pages_row} blocks of {args.page}, got {(<object>pasts)[b]}")
    if table.size and not -1 <= table.min() <= table.max() < keys.shape[0]:
        raise IndexError(f"{func}: block_table: expected -1 to {keys.shape[0] - 1}, got {table.min()} to {table.max()}")
    args.causal = _flag(is_causal, func, "is_causal")
    args.left = _local_window(local_window_size, func)
    # what the first query of a sequence sees begins here
    seen_from = np.maximum(0, <object>pasts - args.left) if args.left >= 0 else np.zeros(batch, np.int64)
    block_at = np.arange(args.pages_row) * args.page
    needed = (block_at + args.page > seen_from[:, None]) & (block_at < (<object>ends)[:, None]) & (<object>counts > 0)[:, None]
    if (needed & (<object>table < 0)).any():
        b, i = np.argwhere(needed & (<object>table < 0))[0]
        raise IndexError(f"{func}: block_table: expected the block of tokens {i * args.page} to {(i + 1) * args.page - 1} of sequence {b}, which its queries "
                         "see, got -1")
    at = np.repeat(<object>pasts - (<object>starts)[:batch], counts) + np.arange(tokens)
    if slot_mapping is None:
        slots = (<object>table)[np.repeat(np.arange(batch), counts), at // args.page] * args.page + at % args.page if tokens else np.zeros(0, np.int64)
    else:
        slots = _arrays.int_input(slot_mapping, func, "slot_mapping")
        _arrays.check_shape(slots, (tokens,), func, "slot_mapping")
        if slots.size and not -1 <= slots.min() <= slots.max() < keys.shape[0] * args.page:
            raise IndexError(f"{func}: slot_mapping: expected -1 to {keys.shape[0] * args.page - 1}, got {slots.min()} to {slots.max()}")
        slots = np.ascontiguousarray(slots)
    written = np.sort((<object>slots)[<object>slots >= 0])
    if (written[1:] == written[:written.size - 1]).any():
        raise ValueError(f"{func}: {'block_table' if slot_mapping is None else 'slot_mapping'}: expected a place of its own for each new token")
    if attention_metadata is not None:
        _check_metadata(attention_metadata, max(counts.tolist(), default=0), max(ends.tolist(), default=0), func)

    # numbers, tables, weights
    args.scale = _scale_of(scale, d, func)
    args.softcap = _number(softcap, True, func, "softcap")
    args.turned = 0 if rotary_offset == 0 else _count(rotary_offset, func, "rotary_offset")
    if (cos_cache is None) != (sin_cache is None):
        raise ValueError(f"{func}: {'cos_cache' if cos_cache is None else 'sin_cache'}: expected both cos_cache and sin_cache or neither")
    if _flag(do_rotary, func, "do_rotary"):
        if cos_cache is None:
            raise ValueError(f"{func}: cos_cache: expected cos_cache and sin_cache with do_rotary 1")
        if args.turned % 8 or args.turned >= d:
            raise ValueError(f"{func}: rotary_offset: expected a multiple of 8 below head_size {d}, got {rotary_offset}")
        args.half, args.interleaved = _rotary_half(cos_cache, d - args.turned, func, "cos_cache"), _flag(rotary_interleaved, func, "rotary_interleaved")
        for a, name in ((cos_cache, "cos_cache"), (sin_cache, "sin_cache")):
            if tokens and len(a) <= at.max():
                raise IndexError(f"{func}: {name}: expected at least {at.max() + 1} positions, got {len(a)}")
        cosine, sine, positions = _rows_of(cos_cache, sin_cache, args.half, code, at.reshape(1, tokens), np.zeros(1, np.int64), np.int64([tokens]), tokens,
                                           func)
        args.cos, args.sin = <const float *>cnp.PyArray_DATA(cosine), <const float *>cnp.PyArray_DATA(sine)
        args.positions = <const int64_t *>cnp.PyArray_DATA(positions)
    elif _flag(rotary_interleaved, func, "rotary_interleaved") or args.turned:
        raise ValueError(f"{func}: {'rotary_offset' if args.turned else 'rotary_interleaved'}: expected do_rotary 1 with it")
    if (q_norm_weight is None) != (k_norm_weight is None):
        raise ValueError(f"{func}: {'q' if q_norm_weight is None else 'k'}_norm_weight: expected both q_norm_weight and k_norm_weight or neither")
    if q_norm_weight is not None:
        q_weight, k_weight = _widened(q_norm_weight, d, code, func, "q_norm_weight"), _widened(k_norm_weight, d, code, func, "k_norm_weight")
        args.q_norm, args.k_norm = <const float *>cnp.PyArray_DATA(q_weight), <const float *>cnp.PyArray_DATA(k_weight)
    args.q_epsilon = args.k_epsilon = _epsilon(qk_norm_epsilon, func, "qk_norm_epsilon")
    if head_sink is not None:
        sinks = _widened(head_sink, heads, code, func, "head_sink")
        args.sink = <const float *>cnp.PyArray_DATA(sinks)
    y = _arrays.output(out, (tokens, heads * args.dv), code, func)
    used = [("query", query), ("key", key), ("value", value), ("cos_cache", cos_cache), ("sin_cache", sin_cache), ("head_sink", head_sink),
            ("q_norm_weight", q_norm_weight), ("k_norm_weight", k_norm_weight), ("k_scale", k_scale), ("v_scale", v_scale)]
    for target, name in ((y, "out"), (keys, "key_cache"), (values, "value_cache")):
        for other_name, other in used + [("key_cache", keys), ("value_cache", values)] * (target is y):
            if _may_share(target, other):
                raise ValueError(f"{func}: {name}: overlaps {other_name}")

    args.batch, args.heads, args.kv_heads = batch, heads, kv_heads
    args.rows, args.keys = max(counts.tolist(), default=0), max(ends.tolist(), default=0)
    counts, ends = np.ascontiguousarray(counts, np.int64), np.ascontiguousarray(ends, np.int64)
    args.starts, args.pages = <const int64_t *>cnp.PyArray_DATA(starts), <const int64_t *>cnp.PyArray_DATA(table)
    args.slots, args.pasts = <const int64_t *>cnp.PyArray_DATA(slots), <const int64_t *>cnp.PyArray_DATA(pasts)
    args.counts, args.ends = <const int64_t *>cnp.PyArray_DATA(counts), <const int64_t *>cnp.PyArray_DATA(ends)
    args.q_dtype = args.y_dtype = code
    args.k_dtype = args.v_dtype = cache
    args.q, args.q_row, args.q_head = cnp.PyArray_DATA(q), _step(q, 0), _step(q, 1)
    args.new_k, args.new_k_row, args.new_k_head = cnp.PyArray_DATA(k), _step(k, 0), _step(k, 1)
    if v is not None:
        args.new_v, args.new_v_row, args.new_v_head = cnp.PyArray_DATA(v), _step(v, 0), _step(v, 1)
    args.k, args.v, args.y = cnp.PyArray_DATA(keys), cnp.PyArray_DATA(values), cnp.PyArray_DATA(y)
    args.k_head = args.v_head = d
    args.k_row = args.v_row = kv_heads * d
    args.k_batch = args.v_batch = args.page * args.k_row
    args.y_head, args.y_row = args.dv, heads * args.dv
    _run(&args, n, True)
    return _arrays.pick({0: y, 1: keys, 2: values}, outputs)


cdef int _check_metadata(object x, int64_t queries, int64_t keys, str func) except -1:
    cdef cnp.ndarray a = _arrays.int_input(x, func, "attention_metadata")
    if _arrays.shape_of(a) not in ((2,), (3,)):
        raise ValueError(f"{func}: attention_metadata: expected shape (2,) or (3,), got {_arrays.shape_of(a)}")
    bounds = a.tolist() + [0]
    if 0 < bounds[0] < queries or 0 < bounds[1] < keys or bounds[2] > keys or min(bounds) < 0:
        raise ValueError(f"{func}: attention_metadata: expected bounds of {queries} new tokens and {keys} keys of a sequence, got {a.tolist()}")
    return 0


cdef cnp.ndarray _codes(object x, tuple dtypes, int rank, str func, str arg):
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    if a.dtype not in dtypes:
        raise TypeError(f"{func}: {arg}: expected dtype {' or '.join([d.name for d in dtypes])}, got {a.dtype}")
    if a.ndim != rank:
        raise ValueError(f"{func}: {arg}: expected {rank} dimensions, got shape {_arrays.shape_of(a)}")
    return a


cdef cnp.ndarray _one_or(object x, object dtype, int64_t columns, str func, str arg):
    """A scalar or one element, or with `columns` also one for each column: flat and contiguous."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    if a.dtype != dtype:
        raise TypeError(f"{func}: {arg}: expected dtype {dtype}, got {a.dtype}")
    if a.ndim > 1 or a.size != 1 and not (columns >= 0 and a.size == columns):
        raise ValueError(f"{func}: {arg}: expected a scalar or shape (1,){f' or ({columns},)' if columns >= 0 else ''}, got {_arrays.shape_of(a)}")
    return _arrays.contiguous(a).reshape(-1)


cdef class _Projection:
    """The weight of QAttention with what belongs to it, checked."""
    cdef object w  # the matrix or a PackedInt8Matrix
    cdef cnp.ndarray bias, scale, zero
    cdef int64_t inputs, heads, size

    def __cinit__(self, weight, bias, weight_scale, weight_zero_point, num_heads, str func):
        cdef cnp.ndarray w = _codes(weight, _BYTES, 2, func, "weight")
        cdef int64_t columns = w.shape[1]
        self.heads = _count(num_heads, func, "num_heads")
        if columns % (3 * self.heads) or not columns:
            raise ValueError(f"{func}: weight: expected 3 * hidden_size columns with a hidden_size divisible by num_heads {self.heads}, "
                             f"got shape {_arrays.shape_of(w)}")
        self.inputs, self.size = w.shape[0], columns // (3 * self.heads)
        self.bias = _vector(bias, columns, func, "bias")
        self.scale = _one_or(weight_scale, np.dtype(np.float32), columns, func, "weight_scale")
        self.zero = np.zeros(1, w.dtype) if weight_zero_point is None else _one_or(weight_zero_point, w.dtype, columns, func, "weight_zero_point")
        self.w = w

    cdef object attend(self, object input, object input_scale, object mask_index, object input_zero_point, object past, object mask_filter_value,
                       object scale, object unidirectional, object outputs, object out, object threads, str func):
        cdef cnp.ndarray x = _codes(input, (_BYTES[0],), 3, func, "input")
        cdef _SelfAttention call = _SelfAttention()
        if x.shape[2] != self.inputs:
            raise ValueError(f"{func}: input: expected shape (batch, sequence, {self.inputs}) for this weight, got {_arrays.shape_of(x)}")
        x_scale = _one_or(input_scale, np.dtype(np.float32), -1, func, "input_scale")
        x_zero = np.zeros(1, np.uint8) if input_zero_point is None else _one_or(input_zero_point, _BYTES[0], -1, func, "input_zero_point")
        call.check(_arrays.F32, x.shape[0], x.shape[1], self.heads, self.size, self.size, mask_index, STARTS, None, past, None, mask_filter_value, scale,
                   unidirectional, outputs, out, [("input", input), ("bias", self.bias), ("weight_scale", self.scale), ("weight", self.w)], threads, func)
        return call.run(integer_projection(x, self.w, x_zero, self.zero, x_scale, self.scale, self.bias, call.threads, func))


cdef int _only_zero(object value, str func, str arg, str why) except -1:
    if value is not None and value != 0:
        raise ValueError(f"{func}: {arg}: expected 0, {why}, got {value!r}")
    return 0


_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


def qattention(input, weight, bias, input_scale, weight_scale, mask_index=None, input_zero_point=None, weight_zero_point=None, past=None, *, num_heads,
               do_rotary=0, mask_filter_value=-10000.0, past_present_share_buffer=0, scale=None, unidirectional=0, outputs=(0,), out=None, threads=None):
    """Self-attention of a quantized activation by a quantized weight.

    com.microsoft QAttention, since version 1. Queries, keys and values are ``float32(Σ (input - zero) (weight - zero)) * (input_scale * weight_scale) + bias``
    with the sum exact in int32; then masked softmax attention in float32.

    Parameters
    ----------
    input : array uint8, (batch, sequence, inputs)
    weight : array uint8 or int8, (inputs, 3 * hidden)
        Columns are all heads' queries, then keys, then values. `PackedQAttention` prepares one that stays.
    bias : array float32, (3 * hidden,)
    input_scale : array float32
        A scalar or one element.
    weight_scale : array float32
        A scalar or one element, or one for each column.
    mask_index : array of integers, optional
        (batch,) end positions, or (2 * batch,) ends and then starts; or (batch, keys) or (batch, sequence, keys), where a key counts if its value is
        above 0. keys = past + sequence. `mask_filter_value` is added to the scores of the others, so that a query all of whose keys are masked
        attends by its raw scores.
    input_zero_point : array uint8, optional
        A scalar or one element; default 0.
    weight_zero_point : array of weight's dtype, optional
        A scalar or one element, or one for each column; default 0.
    past : array float32, (2, batch, num_heads, past, hidden / num_heads), optional
        Keys and values in front of the new ones; then `outputs` must have present.
    num_heads : int
        Divides hidden.
    do_rotary, past_present_share_buffer : int
        Only 0: ONNX Runtime's CPU kernel ignores the one, and past and present are arrays of their own here.
    mask_filter_value : float, default -10000
    scale : float, optional
        Of query · key; None or 0 for 1 / sqrt(hidden / num_heads).
    unidirectional : int, default 0
        1: a query sees the keys up to its own position, past + i. What it does not see weighs nothing, whatever the mask.
    outputs : tuple of int, default (0,)
        Which of output (0) and present (1) to return.
    out : ndarray float32, optional
        Receives output; overlaps no input.
    threads : int, optional

    Returns
    -------
    ndarray or tuple of ndarray
        output (batch, sequence, hidden); present (2, batch, num_heads, past + sequence, hidden / num_heads), keys first.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> one = np.float32(1)
    >>> qkernels.qattention(np.uint8([[[2], [4]]]), np.uint8([[0, 0, 3]]), np.zeros(3, np.float32), one, one, num_heads=1)
    array([[[9.],
            [9.]]], dtype=float32)
    """
    cdef str func = "qattention"
    cdef _Projection projection
    _only_zero(do_rotary, func, "do_rotary", "since no reference defines the rotation")
    _only_zero(past_present_share_buffer, func, "past_present_share_buffer", "since past and present are two arrays")
    projection = _Projection(weight, bias, weight_scale, weight_zero_point, num_heads, func)
    return projection.attend(input, input_scale, mask_index, input_zero_point, past, mask_filter_value, scale, unidirectional, outputs, out, threads, func)


cdef class PackedQAttention:
    """The constant part of `qattention`, its weight prepared once.

    Immutable.

    Parameters
    ----------
    weight, bias, weight_scale, weight_zero_point, num_heads
        As in `qattention`.
    threads : int, optional
        For packing.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> layer = qkernels.PackedQAttention(np.uint8([[0, 0, 3]]), np.zeros(3, np.float32), np.float32(1), num_heads=1)
    >>> layer(np.uint8([[[2], [4]]]), np.float32(1), unidirectional=1)
    array([[[6.],
            [9.]]], dtype=float32)
    """

    cdef _Projection _projection

    def __cinit__(self, *args, **kwargs):
        # an object made by __new__ alone has no inputs
        self._projection = _Projection(np.empty((0, 3), np.uint8), np.zeros(3, np.float32), np.float32(1), None, 1, "PackedQAttention")

    def __init__(self, weight, bias, weight_scale, weight_zero_point=None, *, num_heads, threads=None):
        cdef _Projection projection = _Projection(weight, bias, weight_scale, weight_zero_point, num_heads, "PackedQAttention")
        projection.w = PackedInt8Matrix(projection.w, threads=threads)
        projection.bias, projection.scale, projection.zero = projection.bias.copy(), projection.scale.copy(), projection.zero.copy()
        self._projection = projection

    @property
    def shape(self):
        """(inputs, 3 * hidden)."""
        return self._projection.w.shape

    @property
    def num_heads(self):
        return self._projection.heads

    @property
    def nbytes(self):
        """Bytes of the packed weight."""
        return self._projection.w.nbytes

    def __repr__(self):
        return f"PackedQAttention(inputs={self.shape[0]}, hidden={self.shape[1] // 3}, num_heads={self.num_heads}, nbytes={self.nbytes})"

    def __call__(self, input, input_scale, mask_index=None, input_zero_point=None, past=None, *, mask_filter_value=-10000.0, scale=None, unidirectional=0,
                 outputs=(0,), out=None, threads=None):
        """`qattention` with this weight.

        Parameters
        ----------
        input, input_scale, mask_index, input_zero_point, past, mask_filter_value, scale, unidirectional, outputs, out, threads
            As in `qattention`.

        Returns
        -------
        ndarray or tuple of ndarray
        """
        return self._projection.attend(input, input_scale, mask_index, input_zero_point, past, mask_filter_value, scale, unidirectional, outputs, out,
                                       threads, "PackedQAttention")
