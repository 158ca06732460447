"""com.microsoft QAttention: against the specification in NumPy, against ONNX Runtime, its 24 forms, and its corners."""
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import normal, seeds

ONE = np.float32(1)
INPUTS = ("input", "weight", "bias", "input_scale", "weight_scale", "mask_index", "input_zero_point", "weight_zero_point", "past")
MASKS = ("ends", "ends and starts", "keys", "queries and keys")


def mask_of(kind, batch, rows, keys, random):
    """Of every kind also rows of which all or no keys are masked."""
    if kind in ("ends", "ends and starts"):
        ends = random.integers(0, keys + 3, batch)
        return np.int32(ends if kind == "ends" else np.concatenate([ends, random.integers(-1, keys + 2, batch)]))
    shape = (batch, keys) if kind == "keys" else (batch, rows, keys)
    mask = random.integers(-2, 3, shape) if random.integers(2) else random.integers(0, 2, shape) * random.integers(0, 2, shape[:-1])[..., None]
    return mask.astype(np.int32)


def problem(seed, batch=2, rows=3, inputs=20, heads=2, size=8, past=None, mask=None, weight_dtype=np.int8, zero=True, weight_zero=True, by_column=True):
    """Inputs by name. Magnitudes are those of a quantized layer: products of a few units."""
    random, columns = np.random.default_rng(seed), 3 * heads * size
    codes = lambda dtype, shape: random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
    x = dict(input=codes(np.uint8, (batch, rows, inputs)), weight=codes(weight_dtype, (inputs, columns)), bias=normal(seed, (columns,)),
             input_scale=np.float32(random.uniform(0.001, 0.02)).reshape((1,) if seed % 2 else ()),
             weight_scale=(normal(seed + 1, (columns,)) * np.float32(0.01)) if by_column else np.float32([0.01]))
    if mask is not None:
        x["mask_index"] = mask_of(mask, batch, rows, rows + (past or 0), random)
    if zero:
        x["input_zero_point"] = codes(np.uint8, ())
    if weight_zero:
        x["weight_zero_point"] = codes(weight_dtype, (columns,) if by_column else ())
    if past is not None:
        x["past"] = normal(seed + 2, (2, batch, heads, past, size))
    return x, dict(num_heads=heads)


@st.composite
def problems(draw):
    past = draw(st.sampled_from([None, 0, 1, 5, 300]))
    x, attributes = problem(draw(seeds), draw(st.integers(0, 3)), draw(st.integers(1, 7)), draw(st.integers(0, 40)), draw(st.integers(1, 3)),
                            draw(st.sampled_from([1, 4, 8, 17])), past, draw(st.sampled_from([None, *MASKS])), draw(st.sampled_from([np.uint8, np.int8])),
                            draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))
    attributes |= dict(unidirectional=draw(st.integers(0, 1)), scale=draw(st.sampled_from([None, 0.0, 0.3])),
                       mask_filter_value=draw(st.sampled_from([-10000.0, -1.0, 2.5])))
    return x, attributes


def call(x, attributes, outputs=(0, 1), threads=None):
    return qkernels.qattention(*map(x.get, INPUTS), **attributes, outputs=outputs, threads=threads)


def layer_of(x, attributes):
    return qkernels.PackedQAttention(x["weight"], x["bias"], x["weight_scale"], x.get("weight_zero_point"), num_heads=attributes["num_heads"])


def packed(x, attributes, outputs=(0, 1), threads=None):
    rest = {k: v for k, v in attributes.items() if k != "num_heads"}
    return layer_of(x, attributes)(x["input"], x["input_scale"], x.get("mask_index"), x.get("input_zero_point"), x.get("past"), **rest, outputs=outputs,
                                   threads=threads)


def assert_close(y, expected, x, filter_value=-10000.0):
    """A softmax's average of values: half a dozen roundings of scores, each worth its own size in the probabilities, and the sums; and where a mask is added
    to all that a query sees, scores are rounded to its last place."""
    assert y.dtype == np.float32 and y.shape == expected.shape
    bound = 2e-5 + (abs(filter_value) * 2.0**-23 if "mask_index" in x else 0)
    np.testing.assert_allclose(y, expected, rtol=bound, atol=bound * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.differential("qattention", "PackedQAttention")
@given(p=problems())
def test_against_op_run_and_tiers(p):
    x, attributes = p
    y, present = one_result(lambda t: call(x, attributes, threads=t))
    for a, b in zip(packed(x, attributes), (y, present), strict=True):
        assert_equal_bits(a, b)
    expected, expected_present = evaluate("com.microsoft", "QAttention", [x.get(name) for name in INPUTS], outputs=2, **attributes)
    assert_equal_bits(present, expected_present)  # the projection is exact, its scaling and bias two roundings
    assert_close(y, expected, x, attributes["mask_filter_value"])
    if "past" not in x:
        assert_equal_bits(call(x, attributes, (0,)), y)


@pytest.mark.differential("qattention")
@given(seed=seeds, batch=st.integers(1, 3), rows=st.integers(1, 7), past=st.sampled_from([None, 1, 5]), mask=st.sampled_from([None, *MASKS]),
       weight_dtype=st.sampled_from([np.uint8, np.int8]), zero=st.booleans(), by_column=st.booleans(), unidirectional=st.integers(0, 1))
def test_against_onnx_runtime(seed, batch, rows, past, mask, weight_dtype, zero, by_column, unidirectional):
    x, attributes = problem(seed, batch, rows, 24, 2, 8, past, mask, weight_dtype, zero, True, by_column)
    # it takes one zero point for all columns alone with the scale for all; starts and ends are its own where they are within the keys
    if "mask_index" in x:
        x["mask_index"] = np.clip(x["mask_index"], 0, rows + (past or 0))
    outputs = onnxruntime_node("com.microsoft", "QAttention", [x.get(name) for name in INPUTS], 2, unidirectional=unidirectional, **attributes)
    y, present = call(x, attributes | {"unidirectional": unidirectional})
    np.testing.assert_allclose(present, outputs[1], rtol=1e-6, atol=1e-5)
    assert_close(y, outputs[0], x)


@pytest.mark.parametrize(("form", "mask", "zero", "weight_zero"), [*itertools.product(["plain", "present", "past"], [None, "keys"], [False, True], [False, True])])
def test_every_form_of_the_card(form, mask, zero, weight_zero):
    """The 24 forms, each with both types of weights, scales of both kinds, one direction and two."""
    for weight_dtype, by_column, unidirectional in itertools.product([np.uint8, np.int8], [False, True], [0, 1]):
        x, attributes = problem(5, past=4 if form == "past" else None, mask=mask, weight_dtype=weight_dtype, zero=zero, weight_zero=weight_zero, by_column=by_column)
        attributes["unidirectional"] = unidirectional
        wanted = (0,) if form == "plain" else (0, 1)
        results = one_result(lambda t: call(x, attributes, wanted, t))  # noqa: B023
        y = results if form == "plain" else results[0]
        expected, present = evaluate("com.microsoft", "QAttention", [x.get(name) for name in INPUTS], outputs=2, **attributes)
        assert_close(y, expected, x)
        if form != "plain":
            assert_equal_bits(results[1], present)


def values(rows, inputs=1):
    """Keys and queries of 0 and values 1, 2, …: (input, weight, bias, scale, scale)."""
    return np.arange(1, rows + 1, dtype=np.uint8).reshape(1, rows, 1), np.uint8([[0, 0, 1]]), np.zeros(3, np.float32), ONE, ONE


def test_B38_padding_and_direction(tier):
    """The future never leaks, whatever is padded; a query whose own keys are all padded attends to them."""
    q = lambda mask, **options: qkernels.qattention(*values(2), np.int32(mask), num_heads=1, **options).ravel().tolist()
    assert q([[1, 0]], unidirectional=1) == [1, 1]
    assert q([[0, 1]], unidirectional=1) == [1, 2]  # not 1.5: the first query sees the first key alone
    assert q([[0, 0]], unidirectional=1) == [1, 1.5]
    assert q([[0, 0]]) == [1.5, 1.5]
    assert q([1]) == [1, 1] and q([2]) == [1.5, 1.5] and q([0]) == [1.5, 1.5] and q([5]) == [1.5, 1.5]
    assert q([2, 1]) == [2, 2]  # an end, then a start: padded on the left
    assert q([2, 7]) == [1.5, 1.5]
    assert q([[[1, 0], [0, 1]]]) == [1, 2]
    assert q([[0, 1]], unidirectional=1, mask_filter_value=-np.inf) == [0, 2]  # nothing is left to the first query
    x = dict(zip(INPUTS, values(2), strict=False))
    runtime = onnxruntime_node("com.microsoft", "QAttention", [*x.values(), np.int32([[0, 1]])], num_heads=1, unidirectional=1)[0]
    assert runtime.ravel().tolist() == [1, 2]


def test_B38_scales_by_column(tier):
    x, w = np.uint8([[[3]]]), np.uint8([[2, 2, 2]])
    call = lambda scale, zero=None: qkernels.qattention(x, w, np.zeros(3, np.float32), np.float32(0.5), np.float32(scale), None, np.uint8(1), zero, num_heads=1)
    assert call([1, 1, 10]).tolist() == [[[20]]]
    assert call([1, 1, -10]).tolist() == [[[-20]]]
    assert call(10, np.uint8([0, 0, 1])).tolist() == [[[10]]]
    with pytest.raises(ValueError, match=r"qattention: weight_scale: expected a scalar or shape \(1,\) or \(3,\), got \(2,\)"):
        call([1, 1])
    with pytest.raises(ValueError, match=r"qattention: weight_zero_point: expected a scalar or shape \(1,\) or \(3,\), got \(2,\)"):
        call(1, np.uint8([0, 1]))


def test_no_sum_saturates(tier):
    """Pairs of 255 · 127 and of 255 · 255 do not fit 16 bits, nor does any sum of 1,000 of them float32."""
    for weight, dtype in ((127, np.int8), (-128, np.int8), (255, np.uint8)):
        n = 1001
        y = qkernels.qattention(np.full((1, 1, n), 255, np.uint8), np.full((n, 3), weight, dtype), np.zeros(3, np.float32), ONE, ONE, num_heads=1)
        assert y.item() == np.float32(255 * weight * n)


def test_one_row_is_not_restricted_and_pruned_heads(tier):
    x, attributes = problem(3, rows=1, inputs=64, heads=3, size=4, past=6)
    assert_equal_bits(call(x, attributes)[0], call(x, attributes | {"unidirectional": 1})[0])
    assert call(x, attributes)[0].shape == (2, 1, 12)


def test_a_past_continues_a_prompt(tier):
    x, attributes = problem(4, rows=9, mask="keys")
    attributes["unidirectional"] = 1
    y, present = call(x, attributes)
    for cut in (1, 4, 8):
        first = x | dict(input=x["input"][:, :cut], mask_index=x["mask_index"][:, :cut])
        _, kept = call(first, attributes)
        rest, both = call(x | dict(input=x["input"][:, cut:], past=kept), attributes)
        assert_equal_bits(both, present)
        assert_equal_bits(rest, y[:, cut:])


def test_any_layout_and_out(tier):
    x, attributes = problem(6, past=2, mask="queries and keys")
    expected = call(x, attributes)
    for name in ("input", "weight", "bias", "weight_scale", "mask_index", "weight_zero_point", "past"):
        for kind, v in layouts(x[name]):
            for a, b in zip(call(x | {name: v}, attributes), expected, strict=True):
                assert_equal_bits(a, b, f"{name}: {kind}")
    out = np.empty((2, 3, 16), np.float32)
    assert call(x, attributes | dict(out=out))[0] is out
    assert_equal_bits(out, expected[0])
    assert_equal_bits(call(x, attributes, (1,))[0] if isinstance(call(x, attributes, (1,)), tuple) else call(x, attributes, (1,)), expected[1])


def test_empty_shapes(tier):
    for batch, inputs, past in itertools.product([0, 2], [0, 5], [None, 0, 3]):
        for rows in (0, 2):
            x, attributes = problem(1, batch, rows, inputs, past=past)
            y, present = call(x, attributes)
            assert y.shape == (batch, rows, 16) and present.shape == (2, batch, 2, rows + (past or 0), 8)
            if past:
                assert_equal_bits(present[:, :, :, :past], x["past"])


def test_packed_attributes():
    x, attributes = problem(1)
    layer = layer_of(x, attributes)
    assert layer.shape == (20, 48) and layer.num_heads == 2 and layer.nbytes >= 20 * 48
    assert repr(layer) == f"PackedQAttention(inputs=20, hidden=16, num_heads=2, nbytes={layer.nbytes})"
    before = layer(x["input"], x["input_scale"])
    for name in ("weight", "bias", "weight_scale", "weight_zero_point"):
        x[name][...] = 1  # the layer has its own
    assert_equal_bits(layer(x["input"], x["input_scale"]), before)
    assert qkernels.PackedQAttention.__new__(qkernels.PackedQAttention).shape == (0, 3)


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(input=np.zeros((2, 3, 20), np.int8)), TypeError, "input: expected dtype uint8, got int8"),
    (dict(input=np.zeros((3, 20), np.uint8)), ValueError, r"input: expected 3 dimensions, got shape \(3, 20\)"),
    (dict(input=np.zeros((2, 3, 19), np.uint8)), ValueError, r"input: expected shape \(batch, sequence, 20\) for this weight, got \(2, 3, 19\)"),
    (dict(weight=np.zeros((20, 48), np.int16)), TypeError, "weight: expected dtype uint8 or int8, got int16"),
    (dict(weight=np.zeros((20, 47), np.int8)), ValueError, r"weight: expected 3 \* hidden_size columns .* num_heads 2, got shape \(20, 47\)"),
    (dict(weight=np.zeros((20, 0), np.int8)), ValueError, r"weight: expected 3 \* hidden_size columns"),
    (dict(bias=np.zeros(47, np.float32)), ValueError, r"bias: expected shape \(48,\), got \(47,\)"),
    (dict(bias=np.zeros(48)), TypeError, "bias: expected dtype float32, got float64"),
    (dict(input_scale=np.float32([1, 1])), ValueError, r"input_scale: expected a scalar or shape \(1,\), got \(2,\)"),
    (dict(input_scale=1.0), TypeError, "input_scale: expected dtype float32, got float64"),
    (dict(weight_scale=np.ones((1, 48), np.float32)), ValueError, r"weight_scale: expected a scalar or shape \(1,\) or \(48,\), got \(1, 48\)"),
    (dict(input_zero_point=np.int8(1)), TypeError, "input_zero_point: expected dtype uint8, got int8"),
    (dict(weight_zero_point=np.uint8(1)), TypeError, "weight_zero_point: expected dtype int8, got uint8"),
    (dict(mask_index=np.ones((2, 1), np.int32)), ValueError, r"mask_index: expected shape \(2,\), \(4,\), \(2, 3\) or \(2, 3, 3\), got \(2, 1\)"),
    (dict(mask_index=np.ones((1, 1), np.int32)), ValueError, "mask_index: expected shape"),
    (dict(mask_index=np.ones((2, 1, 3, 3), np.int32)), ValueError, "mask_index: expected shape"),
    (dict(mask_index=np.int32([1, -1])), ValueError, "mask_index: expected end positions >= 0, got -1"),
    (dict(mask_index=np.ones((2, 3), np.float32)), TypeError, "mask_index: expected an integer dtype, got float32"),
    (dict(past=np.zeros((2, 2, 2, 1, 7), np.float32)), ValueError, r"past: expected shape \(2, 2, 2, past, 8\), got \(2, 2, 2, 1, 7\)"),
    (dict(past=np.zeros((2, 2, 2, 1, 8), np.float16)), TypeError, "past: expected dtype float32, got float16"),
])
def test_errors_of_inputs(change, error, match):
    x, attributes = problem(0)
    with pytest.raises(error, match=f"qattention: {match}"):
        call(x | change, attributes)


@pytest.mark.parametrize(("change", "error", "match"), [
    (dict(num_heads=0), ValueError, "num_heads: expected a number > 0, got 0"),
    (dict(num_heads=2.0), TypeError, "num_heads: expected an int, got float"),
    (dict(num_heads=5), ValueError, "weight: expected 3"),
    (dict(do_rotary=1), ValueError, "do_rotary: expected 0, since no reference defines the rotation, got 1"),
    (dict(past_present_share_buffer=1), ValueError, "past_present_share_buffer: expected 0, since past and present are two arrays, got 1"),
    (dict(unidirectional=2), ValueError, "unidirectional: expected 0 or 1, got 2"),
    (dict(scale=np.inf), ValueError, "scale: expected a finite number, got inf"),
    (dict(mask_filter_value=np.nan), ValueError, "mask_filter_value: expected a number, got nan"),
    (dict(mask_filter_value="x"), TypeError, "mask_filter_value: expected a number, got str"),
    (dict(out=np.empty((2, 3, 15), np.float32)), ValueError, r"out: expected shape \(2, 3, 16\), got \(2, 3, 15\)"),
])
def test_errors_of_attributes(change, error, match):
    x, attributes = problem(0)
    with pytest.raises(error, match=f"qattention: {match}"):
        call(x, attributes | change)


def test_errors_of_outputs():
    x, attributes = problem(0, past=2)
    with pytest.raises(ValueError, match=r"qattention: outputs: expected present \(1\) among them with a past, got \(0,\)"):
        call(x, attributes, (0,))
    with pytest.raises(ValueError, match=r"qattention: out: output 0 is not among outputs=\(1,\)"):
        call(x, attributes | dict(out=np.empty((2, 3, 16), np.float32)), (1,))
    out = np.empty((2, 3, 16), np.float32)
    with pytest.raises(ValueError, match="qattention: out: overlaps bias"):
        call(x | dict(bias=out.reshape(-1)[:48]), attributes | dict(out=out))


def test_where_onnx_runtime_differs():
    """It takes (batch, 1) and (1, 1) as no mask at all; the card, and we, refuse them."""
    x, attributes = problem(0)
    runtime = onnxruntime_node("com.microsoft", "QAttention", [(x | dict(mask_index=np.zeros((2, 1), np.int32))).get(name) for name in INPUTS], **attributes)[0]
    assert_close(call(x, attributes, (0,)), runtime, x)
    with pytest.raises(ValueError, match="mask_index: expected shape"):
        call(x | dict(mask_index=np.zeros((2, 1), np.int32)), attributes)
    # of a single key it is a true key mask
    single, attributes = problem(0, rows=1)
    assert_equal_bits(call(single | dict(mask_index=np.ones((2, 1), np.int32)), attributes, (0,)), call(single, attributes, (0,)))
