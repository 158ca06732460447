"""Sequences with a state that is carried on: ai.onnx LinearAttention and CausalConvWithState."""
cimport numpy as cnp
from libc.math cimport sqrt
from libc.stdint cimport int64_t

from qkernels cimport _arrays, _runtime

import numpy as np

from qkernels.elementwise import exp

cnp.import_array()

cdef extern from "recurrent/recurrent.h" nogil:
    ctypedef struct qk_linear_attention_args:
        const void *q
        const void *k
        const void *v
        const float *decay
        const void *beta
        const void *past
        void *y
        void *present
        int dtype, state_dtype
        int64_t batch, rows, heads, kv_heads, dk, dv, decay_width, beta_width
        float scale
        float *scratch
    ctypedef struct qk_causal_conv_args:
        const void *x
        const void *weight
        const void *bias
        const void *past
        void *y
        void *present
        int dtype, silu
        int64_t batch, channels, length, taps
        float *scratch
    int64_t qk_linear_attention_units(const qk_linear_attention_args *args)
    int64_t qk_linear_attention_floats(int64_t dk)
    int64_t qk_causal_conv_floats(int64_t length, int64_t taps)
    void qk_linear_attention(int isa, int threads, const qk_linear_attention_args *args)
    void qk_causal_conv(int isa, int threads, const qk_causal_conv_args *args)

# multiplications for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 15

_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}  # with decay, with beta


cdef int64_t _heads(object value, str arg) except -1:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"linear_attention: {arg}: expected an int, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"linear_attention: {arg}: expected at least 1, got {value}")
    return value


cdef cnp.ndarray _packed(object x, int allowed, str arg, int64_t heads):
    cdef cnp.ndarray a = _arrays.float_input(x, allowed, "linear_attention", arg)
    cdef tuple shape = _arrays.shape_of(a)
    if len(shape) != 3 or shape[2] % heads:
        raise ValueError(f"linear_attention: {arg}: expected shape (batch, tokens, a multiple of {heads} heads), got {shape}")
    return a


cdef cnp.ndarray _gate(object x, int code, tuple lead, tuple widths, str arg):
    """(batch, tokens, one of the widths)."""
    cdef cnp.ndarray a = _arrays.same_float_input(x, code, "linear_attention", arg)
    cdef tuple shape = _arrays.shape_of(a)
    if len(shape) != 3 or shape[:2] != lead or shape[2] not in widths:
        expected = " or ".join(str((*lead, width)) for width in dict.fromkeys(widths))
        raise ValueError(f"linear_attention: {arg}: expected shape {expected}, got {shape}")
    return a


def linear_attention(query, key, value, past_state=None, decay=None, beta=None, *, q_num_heads, kv_num_heads, chunk_size=64, scale=0.0,
                     update_rule="gated_delta", threads=None):
    """Attention by a recurrent state instead of a cache: ``S = exp(g) S + β k (v - exp(g) Sᵀ k)ᵀ``, ``o = scale · Sᵀ q``.

    ONNX ai.onnx LinearAttention, since version 27. Token after token in float32, rounded once at the end: a sequence in pieces through a float32
    state gives the bits of the whole.

    Parameters
    ----------
    query : array (batch, tokens, q_num_heads * d_k), float32, float16 or bfloat16
    key : array (batch, tokens, kv_num_heads * d_k) of query's dtype
        Of unit length for the delta rules.
    value : array (batch, tokens, kv_num_heads * d_v) of query's dtype
    past_state : array (batch, kv_num_heads, d_k, d_v), float32, float16 or bfloat16, optional
        Zeros where it is absent.
    decay : array (batch, tokens, kv_num_heads) or (batch, tokens, kv_num_heads * d_k) of query's dtype
        The gate g, a logarithm; of the rules "gated" and "gated_delta" only.
    beta : array (batch, tokens, kv_num_heads) or (batch, tokens, 1) of query's dtype
        The rate β of the rules "delta" and "gated_delta" only.
    q_num_heads, kv_num_heads : int
        The first a multiple of the second: query heads share the states of theirs.
    chunk_size : int, default 64
        A hint for implementations that work in chunks; no effect here.
    scale : float, default 0
        0 is 1 / sqrt(d_k).
    update_rule : {"linear", "gated", "delta", "gated_delta"}
    threads : int, optional

    Returns
    -------
    output : ndarray (batch, tokens, q_num_heads * d_v) of query's dtype
    present_state : ndarray (batch, kv_num_heads, d_k, d_v)
        Of past_state's dtype, else query's.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape, a rule, or a gate that the rule has not or lacks.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> x = np.ones((1, 3, 1), np.float32)
    >>> y, state = qkernels.linear_attention(x, x, x, q_num_heads=1, kv_num_heads=1, update_rule="linear")
    >>> y.ravel(), state.ravel()
    (array([1., 2., 3.], dtype=float32), array([3.], dtype=float32))
    """
    cdef str func = "linear_attention"
    cdef qk_linear_attention_args args
    cdef int n = _arrays.num_threads(threads, func), code
    cdef cnp.ndarray q, k, v, past, gate, rate, y, present, scratch
    args.heads, args.kv_heads = _heads(q_num_heads, "q_num_heads"), _heads(kv_num_heads, "kv_num_heads")
    if args.heads % args.kv_heads:
        raise ValueError(f"{func}: q_num_heads: expected a multiple of kv_num_heads={kv_num_heads}, got {q_num_heads}")
    if update_rule not in _RULES:
        raise ValueError(f"{func}: update_rule: expected one of {', '.join(_RULES)}, got {update_rule!r}")
    for x, arg, wanted in ((decay, "decay", _RULES[update_rule][0]), (beta, "beta", _RULES[update_rule][1])):
        if wanted != (x is not None):
            raise ValueError(f"{func}: {arg}: expected {'an array' if wanted else 'None'} for update_rule={update_rule!r}, got {_arrays.type_name(x)}")
    q = _packed(query, _arrays.FLOATS, "query", args.heads)
    code = _arrays.dtype_code(q)
    k = _packed(key, 1 << code, "key", args.kv_heads)
    v = _packed(value, 1 << code, "value", args.kv_heads)
    args.batch, args.rows, args.dk = q.shape[0], q.shape[1], q.shape[2] // args.heads
    args.dv = v.shape[2] // args.kv_heads
    lead = (args.batch, args.rows)
    _arrays.check_shape(k, (*lead, args.kv_heads * args.dk), func, "key")
    _arrays.check_shape(v, (*lead, args.kv_heads * args.dv), func, "value")
    args.q, args.k, args.v, args.dtype, args.state_dtype = cnp.PyArray_DATA(q), cnp.PyArray_DATA(k), cnp.PyArray_DATA(v), code, code
    args.decay, args.beta, args.past, args.decay_width, args.beta_width = NULL, NULL, NULL, 0, 0
    if decay is not None:
        gate = _gate(decay, code, lead, (args.kv_heads, args.kv_heads * args.dk), "decay")
        args.decay_width = gate.shape[2] // args.kv_heads
        gate = exp(gate.astype(np.float32), threads=n)
        args.decay = <const float *>cnp.PyArray_DATA(gate)
    if beta is not None:
        rate = _gate(beta, code, lead, (args.kv_heads, 1), "beta")
        args.beta, args.beta_width = cnp.PyArray_DATA(rate), rate.shape[2]
    state = (args.batch, args.kv_heads, args.dk, args.dv)
    if past_state is not None:
        past = _arrays.float_input(past_state, _arrays.FLOATS, func, "past_state")
        _arrays.check_shape(past, state, func, "past_state")
        args.past, args.state_dtype = cnp.PyArray_DATA(past), _arrays.dtype_code(past)
    args.scale = _arrays.number(scale, func, "scale")
    if args.scale == 0 and args.dk:
        args.scale = <float>(1 / sqrt(<double>args.dk))
    y = _arrays.output(None, (*lead, args.heads * args.dv), code, func)
    present = _arrays.output(None, state, args.state_dtype, func)
    args.y, args.present = cnp.PyArray_DATA(y), cnp.PyArray_DATA(present)
    units = qk_linear_attention_units(&args)
    if not args.dk:  # no state, nothing to read from it
        y[...] = 0
    elif units:
        n = _arrays.worth(n, units * (args.rows + 1) * args.dk * 16, GRAIN)
        n = <int>min(n, units)
        scratch = _arrays.aligned_empty((n, qk_linear_attention_floats(args.dk)), np.float32)
        args.scratch = <float *>cnp.PyArray_DATA(scratch)
        with nogil:
            qk_linear_attention(_runtime.isa(), n, &args)
    return y, present


def causal_conv_with_state(input, weight, bias=None, past_state=None, *, activation="none", threads=None):
    """A causal convolution of each channel with its own few taps, and the positions that the next call begins with.

    ONNX ai.onnx CausalConvWithState, since version 27. Summed in float32 from the first tap to the last, then bias and activation, rounded once: a
    sequence in pieces through the state gives the bits of the whole.

    Parameters
    ----------
    input : array (batch, channels, length), float32, float16 or bfloat16
    weight : array (channels, 1, taps) of input's dtype
    bias : array (channels,) of input's dtype, optional
    past_state : array (batch, channels, taps - 1) of input's dtype, optional
        What came before; zeros where it is absent.
    activation : {"none", "silu", "swish"}
    threads : int, optional

    Returns
    -------
    output : ndarray, input's shape and dtype
    present_state : ndarray (batch, channels, taps - 1) of input's dtype
        The last positions of past and input together.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape or an activation.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> y, state = qkernels.causal_conv_with_state(np.float32([[[1, 2, 3]]]), np.float32([[[10, 1]]]))
    >>> y.ravel(), state.ravel()
    (array([ 1., 12., 23.], dtype=float32), array([3.], dtype=float32))
    """
    cdef str func = "causal_conv_with_state"
    cdef qk_causal_conv_args args
    cdef int n = _arrays.num_threads(threads, func), code
    cdef cnp.ndarray x = _arrays.float_input(input, _arrays.FLOATS, func, "input"), w, b, past, y, present, scratch
    cdef tuple shape = _arrays.shape_of(x)
    code = _arrays.dtype_code(x)
    if len(shape) != 3:
        raise ValueError(f"{func}: input: expected 3 dimensions, (batch, channels, length), got shape {shape}")
    args.batch, args.channels, args.length = shape
    w = _arrays.same_float_input(weight, code, func, "weight")
    if cnp.PyArray_NDIM(w) != 3 or w.shape[0] != args.channels or w.shape[1] != 1 or not w.shape[2]:
        raise ValueError(f"{func}: weight: expected shape ({args.channels}, 1, at least 1), got {_arrays.shape_of(w)}")
    args.taps = w.shape[2]
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"{func}: activation: expected one of none, silu, swish, got {activation!r}")
    state = (args.batch, args.channels, args.taps - 1)
    args.x, args.weight, args.bias, args.past = cnp.PyArray_DATA(x), cnp.PyArray_DATA(w), NULL, NULL
    args.dtype, args.silu = code, activation != "none"
    if bias is not None:
        b = _arrays.same_float_input(bias, code, func, "bias")
        _arrays.check_shape(b, (args.channels,), func, "bias")
        args.bias = cnp.PyArray_DATA(b)
    if past_state is not None:
        past = _arrays.same_float_input(past_state, code, func, "past_state")
        _arrays.check_shape(past, state, func, "past_state")
        args.past = cnp.PyArray_DATA(past)
    y = _arrays.output(None, shape, code, func)
    present = _arrays.output(None, state, code, func)
    args.y, args.present = cnp.PyArray_DATA(y), cnp.PyArray_DATA(present)
    if args.batch * args.channels:
        n = _arrays.worth(n, args.batch * args.channels * (args.length + 16) * args.taps, GRAIN)
        n = <int>min(n, args.batch * args.channels)
        scratch = np.empty((n, qk_causal_conv_floats(args.length, args.taps)), np.float32)
        args.scratch = <float *>cnp.PyArray_DATA(scratch)
        with nogil:
            qk_causal_conv(_runtime.isa(), n, &args)
    return y, present
