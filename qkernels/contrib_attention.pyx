"""com.microsoft's attention operators beside GroupQueryAttention, all on the engine of `qkernels.attention`: Attention, QAttention, MultiHeadAttention,
SparseAttention and PagedAttention."""
cimport numpy as cnp
from libc.math cimport sqrt
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from qkernels cimport _arrays
from qkernels.attention cimport (QK_CACHE_I8, QK_PROBABILITIES, QK_SCORES_MASKED, _clear, _concatenate, _copy_past, _count, _epsilon, _flag, _is_same,
                                 _local_window, _number, _outs, _place, _place_result, _rotary_half, _rows_of, _run, _scales, _step, _strided, _vector,
                                 _widened, qk_attention_args)
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


cdef int _check_outs(dict given, tuple names, list used, str func) except -1:
    """Results that are given overlap neither an input nor one another; only a present may be its past, as the same array."""
    for index, a in given.items():
        if a is None:
            continue
        name = names[index]
        for other_name, other in used:
            if isinstance(other, np.ndarray) and np.may_share_memory(a, other) and not (other_name == name.replace("present", "past") and _is_same(a, other)):
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
