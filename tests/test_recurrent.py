"""Linear attention and the causal convolution: against exact sums, onnx.reference, in pieces, and in every layout."""
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_STEP, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, normal, seeds

RULES = ("linear", "gated", "delta", "gated_delta")


def problem(seed, dtype, batch, rows, kv_heads, group, dk, dv, rule, wide_decay, one_beta, with_past, state_dtype=np.float32):
    q, k = normal(seed, (batch, rows, kv_heads * group * dk), dtype), np.float32(normal(seed + 1, (batch, rows, kv_heads, dk)))
    k = (k / np.maximum(np.linalg.norm(k, axis=-1, keepdims=True), 1e-3)).reshape(batch, rows, kv_heads * dk).astype(dtype)
    inputs = dict(query=q, key=k, value=normal(seed + 2, (batch, rows, kv_heads * dv), dtype))
    inputs["past_state"] = normal(seed + 3, (batch, kv_heads, dk, dv), state_dtype) if with_past else None
    inputs["decay"] = -np.abs(normal(seed + 4, (batch, rows, kv_heads * (dk if wide_decay else 1)), np.float32)).astype(dtype) if rule.startswith("gated") else None
    inputs["beta"] = (1 / (1 + np.exp(-normal(seed + 5, (batch, rows, 1 if one_beta else kv_heads))))).astype(dtype) if "delta" in rule else None
    return inputs


def exact_attention(query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads, update_rule, scale=0.0):
    """In double, and the size of what is added up for each result."""
    wide = lambda x: None if x is None else np.float64(x)
    q, k, v, decay, beta = map(wide, (query, key, value, decay, beta))
    batch, rows = q.shape[:2]
    q, k, v = (x.reshape(batch, rows, heads, x.shape[2] // heads) for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    state = np.zeros((batch, kv_num_heads, k.shape[-1], v.shape[-1])) if past_state is None else np.float64(past_state)
    size = np.abs(state)
    scale = scale or q.shape[-1] ** -0.5
    y, sizes = [], []
    for t in range(rows):
        if decay is not None:
            factor = np.exp(decay[:, t].reshape(batch, kv_num_heads, -1))[..., None]
            state, size = state * factor, size * factor
        new, new_size = v[:, t], np.abs(v[:, t])
        if beta is not None:
            rate = beta[:, t, :, None]
            new = rate * (new - np.einsum("bhdm,bhd->bhm", state, k[:, t]))
            new_size = rate * (new_size + np.einsum("bhdm,bhd->bhm", size, np.abs(k[:, t])))
        state = state + k[:, t, :, :, None] * new[:, :, None]
        size = size + np.abs(k[:, t, :, :, None]) * new_size[:, :, None]
        each = np.repeat(state, q_num_heads // kv_num_heads, 1)
        y.append(scale * np.einsum("bhd,bhdm->bhm", q[:, t], each))
        sizes.append(scale * np.einsum("bhd,bhdm->bhm", np.abs(q[:, t]), np.repeat(size, q_num_heads // kv_num_heads, 1)))
    together = lambda x: np.stack(x, 1).reshape(batch, rows, -1) if rows else np.zeros((batch, 0, q_num_heads * v.shape[-1]))
    return together(y), state, together(sizes), size


@pytest.mark.differential("linear_attention")
@given(seed=seeds, dtype=float_dtypes, batch=st.integers(1, 2), rows=st.integers(0, 9), kv_heads=st.integers(1, 3), group=st.integers(1, 3), dk=st.integers(1, 20),
       dv=st.integers(1, 35), rule=st.sampled_from(RULES), wide_decay=st.booleans(), one_beta=st.booleans(), with_past=st.booleans(),
       scale=st.sampled_from([0.0, 0.3]), state_dtype=float_dtypes)
def test_linear_attention_against_exact_and_onnx_reference(seed, dtype, batch, rows, kv_heads, group, dk, dv, rule, wide_decay, one_beta, with_past, scale, state_dtype):
    inputs = problem(seed, dtype, batch, rows, kv_heads, group, dk, dv, rule, wide_decay, one_beta, with_past, state_dtype)
    heads = dict(q_num_heads=kv_heads * group, kv_num_heads=kv_heads, update_rule=rule)
    y, state = one_result(lambda t: qkernels.linear_attention(*inputs.values(), **heads, scale=scale, threads=t))
    exact, exact_state, sizes, state_sizes = exact_attention(**inputs, **heads, scale=scale)
    assert y.dtype == dtype and y.shape == (batch, rows, kv_heads * group * dv)
    assert state.dtype == (state_dtype if with_past else dtype) and state.shape == (batch, kv_heads, dk, dv)
    # each token's few roundings of a sum of dk terms, in float32, then one to the type
    steps = (rows + 1) * (dk + 8) * 2.0**-24
    assert (np.abs(np.float64(y) - exact) <= sizes * steps + np.abs(exact) * HALF_ULP[y.dtype] * 1.01 + HALF_STEP[y.dtype] + 1e-30).all()
    assert (np.abs(np.float64(state) - exact_state) <= state_sizes * steps + np.abs(exact_state) * HALF_ULP[state.dtype] * 1.01 + HALF_STEP[state.dtype] + 1e-30).all()
    if not rows:
        return
    wide = [None if x is None else np.float32(x) for x in inputs.values()]
    expected, expected_state = evaluate("", "LinearAttention", wide, outputs=2, opset=27, **heads, scale=scale)
    np.testing.assert_array_less(np.abs(np.float64(expected) - exact), sizes * 8 * steps + 1e-30)
    np.testing.assert_array_less(np.abs(np.float64(expected_state) - exact_state), state_sizes * 8 * steps + 1e-30)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_linear_attention_in_pieces_batches_and_alone(rule, dtype):
    inputs = problem(7, dtype, 3, 11, 2, 2, 24, 40, rule, True, False, True)
    heads = dict(q_num_heads=4, kv_num_heads=2, update_rule=rule)
    whole, last = qkernels.linear_attention(*inputs.values(), **heads)
    part = lambda x, rows: None if x is None else x[:, rows]
    for cuts in ((0, 11), (0, 1, 2, 11), (0, 5, 11), tuple(range(12))):
        state, parts = inputs["past_state"], []
        for rows in itertools.starmap(slice, itertools.pairwise(cuts)):
            given = {name: part(x, rows) for name, x in inputs.items() if name != "past_state"}
            y, state = qkernels.linear_attention(**given, past_state=state, **heads)
            parts.append(y)
        assert_equal_bits(np.concatenate(parts, 1), whole, str(cuts))
        assert_equal_bits(state, last, str(cuts))
    for i in range(3):
        y, state = qkernels.linear_attention(*[None if x is None else x[i:i + 1] for x in inputs.values()], **heads)
        assert_equal_bits(y, whole[i:i + 1])
        assert_equal_bits(state, last[i:i + 1])
    assert_equal_bits(qkernels.linear_attention(*inputs.values(), **heads, chunk_size=3)[0], whole)


def test_linear_attention_by_hand():
    one = np.ones((1, 2, 1), np.float32)
    gate, rate = np.log(np.float32([[[0.5], [0.5]]])), np.float32([[[1.0], [0.5]]])
    heads = dict(q_num_heads=1, kv_num_heads=1)
    assert qkernels.linear_attention(one, one, one * 3, update_rule="linear", **heads)[0].ravel().tolist() == [3, 6]
    assert qkernels.linear_attention(one, one, one * 3, decay=gate, update_rule="gated", **heads)[0].ravel().tolist() == [3, 4.5]
    assert qkernels.linear_attention(one, one, one * 3, beta=rate, update_rule="delta", **heads)[0].ravel().tolist() == [3, 3]
    y, state = qkernels.linear_attention(one, one, one * 3, np.float32([[[[8]]]]), gate, rate, **heads)  # 4 + (3 - 4); 1.5 + 0.5 (3 - 1.5)
    assert y.ravel().tolist() == [3, 2.25] and state.ravel().tolist() == [2.25]
    two = np.float32([[[1, 2]]])  # two query heads share the state of one
    assert qkernels.linear_attention(two, one[:, :1], one[:, :1] * 3, q_num_heads=2, kv_num_heads=1, update_rule="linear", scale=10)[0].ravel().tolist() == [30, 60]


@pytest.mark.differential("causal_conv_with_state")
@given(seed=seeds, dtype=float_dtypes, batch=st.integers(0, 3), channels=st.integers(0, 9), length=st.integers(0, 40), taps=st.integers(1, 19), with_bias=st.booleans(),
       with_past=st.booleans(), activation=st.sampled_from(["none", "silu", "swish"]))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_causal_conv_against_exact_and_onnx_reference(seed, dtype, batch, channels, length, taps, with_bias, with_past, activation):
    x, w = normal(seed, (batch, channels, length), dtype), normal(seed + 1, (channels, 1, taps), dtype)
    bias, past = normal(seed + 2, (channels,), dtype) if with_bias else None, normal(seed + 3, (batch, channels, taps - 1), dtype) if with_past else None
    y, state = one_result(lambda t: qkernels.causal_conv_with_state(x, w, bias, past, activation=activation, threads=t))
    padded = np.concatenate([np.zeros((batch, channels, taps - 1), dtype) if past is None else past, x], 2)
    assert_equal_bits(state, padded[..., length:])
    wide, weight = np.float64(padded), np.float64(w)[:, 0]
    terms = np.stack([wide[..., j:j + length] * weight[:, j:j + 1] for j in range(taps)])
    exact, size = terms.sum(0), np.abs(terms).sum(0)
    if with_bias:
        exact, size = exact + np.float64(bias)[:, None], size + np.abs(np.float64(bias))[:, None]
    error = size * (taps + 2) * 2.0**-24
    if activation != "none":
        error, exact = 1.1 * error, exact / (1 + np.exp(-exact))  # SiLU's slope is below 1.1
    assert (np.abs(np.float64(y) - exact) <= error + np.abs(exact) * HALF_ULP[dtype] * 1.03 + HALF_STEP[dtype] + 1e-30).all()
    if batch and channels and length:
        expected, expected_state = evaluate("", "CausalConvWithState", [np.float32(v) if v is not None else None for v in (x, w, bias, past)], outputs=2, opset=27, activation=activation)
        np.testing.assert_array_less(np.abs(np.float64(expected) - exact), 8 * error + 1e-6)
        assert_equal_bits(np.asarray(expected_state).astype(dtype), state)


def test_causal_conv_in_pieces():
    x, w, bias, past = normal(0, (2, 5, 50), BF16), normal(1, (5, 1, 4), BF16), normal(2, (5,), BF16), normal(3, (2, 5, 3), BF16)
    whole, last = qkernels.causal_conv_with_state(x, w, bias, past, activation="silu")
    for cuts in ((0, 1, 2, 3, 50), (0, 17, 18, 34, 50), tuple(range(51))):
        state, parts = past, []
        for rows in itertools.starmap(slice, itertools.pairwise(cuts)):
            y, state = qkernels.causal_conv_with_state(x[..., rows], w, bias, state, activation="silu")
            parts.append(y)
        assert_equal_bits(np.concatenate(parts, 2), whole)
        assert_equal_bits(state, last)


def test_layouts():
    inputs = problem(3, np.dtype(np.float32), 2, 4, 2, 1, 6, 8, "gated_delta", True, False, True)
    heads = dict(q_num_heads=2, kv_num_heads=2)
    whole = qkernels.linear_attention(*inputs.values(), **heads)
    for name, x in inputs.items():
        for _, other in layouts(x):
            y = qkernels.linear_attention(**{**inputs, name: other}, **heads)
            assert_equal_bits(y[0], whole[0], name)
            assert_equal_bits(y[1], whole[1], name)
    x, w = normal(0, (2, 4, 9)), normal(1, (4, 1, 3))
    whole = qkernels.causal_conv_with_state(x, w)
    for _, other in layouts(x):
        assert_equal_bits(qkernels.causal_conv_with_state(other, w)[0], whole[0])
    for _, other in layouts(w):
        assert_equal_bits(qkernels.causal_conv_with_state(x, other)[0], whole[0])


X, HEADS = np.ones((1, 2, 4), np.float32), dict(q_num_heads=2, kv_num_heads=2)
G = np.zeros((1, 2, 2), np.float32)
W = np.ones((2, 1, 3), np.float32)


@pytest.mark.parametrize("call, error, message", [
    (lambda: qkernels.linear_attention(X, X, X, update_rule="lin", **HEADS), ValueError, "linear_attention: update_rule: expected one of linear, gated, delta, gated_delta, got 'lin'"),
    (lambda: qkernels.linear_attention(X, X, X, **HEADS), ValueError, "linear_attention: decay: expected an array for update_rule='gated_delta', got NoneType"),
    (lambda: qkernels.linear_attention(X, X, X, None, G, update_rule="linear", **HEADS), ValueError, "linear_attention: decay: expected None for update_rule='linear'"),
    (lambda: qkernels.linear_attention(X, X, X, None, None, G, update_rule="gated", **HEADS), ValueError, "linear_attention: decay: expected an array"),
    (lambda: qkernels.linear_attention(X, X, X, None, G[:, :1], G, **HEADS), ValueError, r"linear_attention: decay: expected shape \(1, 2, 2\) or \(1, 2, 4\), got \(1, 1, 2\)"),
    (lambda: qkernels.linear_attention(X, X, X, None, G, X, **HEADS), ValueError, r"linear_attention: beta: expected shape \(1, 2, 2\) or \(1, 2, 1\), got \(1, 2, 4\)"),
    (lambda: qkernels.linear_attention(X, X[:, :1], X, update_rule="linear", **HEADS), ValueError, r"linear_attention: key: expected shape \(1, 2, 4\), got \(1, 1, 4\)"),
    (lambda: qkernels.linear_attention(X, X, X[0], update_rule="linear", **HEADS), ValueError, r"linear_attention: value: expected shape \(batch, tokens, a multiple of 2 heads\), got \(2, 4\)"),
    (lambda: qkernels.linear_attention(X, X, X, np.ones((1, 2, 2, 3), np.float32), update_rule="linear", **HEADS), ValueError, r"linear_attention: past_state: expected shape \(1, 2, 2, 2\)"),
    (lambda: qkernels.linear_attention(X, X.astype(np.float16), X, update_rule="linear", **HEADS), TypeError, "linear_attention: key: expected dtype float32, got float16"),
    (lambda: qkernels.linear_attention(X, X, X, update_rule="linear", q_num_heads=3, kv_num_heads=2), ValueError, "linear_attention: q_num_heads: expected a multiple of kv_num_heads=2, got 3"),
    (lambda: qkernels.linear_attention(X, X, X, update_rule="linear", q_num_heads=0, kv_num_heads=2), ValueError, "linear_attention: q_num_heads: expected at least 1, got 0"),
    (lambda: qkernels.causal_conv_with_state(X[0], W), ValueError, r"causal_conv_with_state: input: expected 3 dimensions, \(batch, channels, length\), got shape \(2, 4\)"),
    (lambda: qkernels.causal_conv_with_state(X, W[:1]), ValueError, r"causal_conv_with_state: weight: expected shape \(2, 1, at least 1\), got \(1, 1, 3\)"),
    (lambda: qkernels.causal_conv_with_state(X, W, activation="gelu"), ValueError, "causal_conv_with_state: activation: expected one of none, silu, swish, got 'gelu'"),
    (lambda: qkernels.causal_conv_with_state(X, W, np.ones(3, np.float32)), ValueError, r"causal_conv_with_state: bias: expected shape \(2,\), got \(3,\)"),
    (lambda: qkernels.causal_conv_with_state(X, W, None, X), ValueError, r"causal_conv_with_state: past_state: expected shape \(1, 2, 2\), got \(1, 2, 4\)"),
    (lambda: qkernels.causal_conv_with_state(X.astype(np.int32), W), TypeError, "causal_conv_with_state: input: expected dtype"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
