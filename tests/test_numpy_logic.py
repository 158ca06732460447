"""Comparisons, logic, bounds, running sums and the largest elements."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, layouts
from tests.strategies import normal, seeds

COMPARISONS = {"equal": "Equal", "greater": "Greater", "greater_or_equal": "GreaterOrEqual", "less": "Less", "less_or_equal": "LessOrEqual"}
BITWISE = {"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor"}
LOGIC = {"and_": "And", "or_": "Or", "xor": "Xor"}
FLOAT_UNARY = {"floor": "Floor", "ceil": "Ceil", "round": "Round", "is_nan": "IsNaN", "is_inf": "IsInf"}
UNARY = {"sign": "Sign", "abs": "Abs"}
INTEGERS = tuple(np.dtype(t) for t in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64))  # the reference has no bfloat16
NUMBERS = FLOATS + INTEGERS


def values(seed, shape, dtype):
    """Few different values, NaN and infinities among floats."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "f" or dtype == BF16:
        x = rng.integers(-6, 7, shape) / 2
        return np.where(rng.random(shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), x).astype(dtype)
    return rng.integers(0 if dtype.kind == "u" else -5, 6, shape).astype(dtype)


def reference(op, *inputs, **attributes):
    return np.asarray(evaluate("", op, list(inputs), opset=24, **attributes)[0])


@pytest.mark.differential("equal", "greater", "greater_or_equal", "less", "less_or_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "min", "max", "sign", "abs", "floor",
                          "ceil", "round", "is_nan", "is_inf", "relu", "bitwise_not")
@given(seed=seeds, dtype=st.sampled_from(NUMBERS), m=st.integers(1, 4), n=st.integers(0, 20))
def test_numbers_against_onnx_reference(seed, dtype, m, n):
    a, b = values(seed, (m, n), dtype), values(seed + 1, (1, n), dtype)
    integer = dtype.kind in "iu"
    for name, op in {**COMPARISONS, "min": "Min", "max": "Max", **(BITWISE if integer else {})}.items():
        assert_equal_bits(getattr(qkernels, name)(a, b), reference(op, a, b), name)
    for name, op in {**UNARY, **({"bitwise_not": "BitwiseNot"} if integer else FLOAT_UNARY), **({} if dtype.kind == "u" else {"relu": "Relu"})}.items():
        if dtype == np.float16 and name == "is_inf":
            continue
        y, expected = getattr(qkernels, name)(a), reference(op, a)
        if name == "relu":  # NumPy's maximum of -0 and 0 is either; ours is 0
            assert not (np.signbit(np.float64(y)) & (y == 0)).any()
            expected = np.where(expected == 0, np.zeros((), dtype), expected)
        assert_equal_bits(y, expected, name)


@pytest.mark.differential("is_nan", "is_inf")
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_nan_and_infinity_of_float8(dtype):
    every = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, dtype))
    wide = every.astype(np.float32)
    assert_equal_bits(qkernels.is_nan(every), np.isnan(wide))
    assert_equal_bits(qkernels.is_inf(every), np.isinf(wide))
    assert_equal_bits(qkernels.is_inf(every, detect_negative=0), np.isposinf(wide))
    assert_equal_bits(qkernels.is_inf(every[::-1], detect_positive=0), np.isneginf(wide[::-1]))
    assert qkernels.is_inf(every).sum() == (2 if dtype == "float8_e5m2" else 0)


@pytest.mark.differential("and_", "or_", "xor", "not_", "where")
@given(seed=seeds, m=st.integers(1, 4), n=st.integers(0, 20), dtype=st.sampled_from(NUMBERS))
def test_logic_against_onnx_reference(seed, m, n, dtype):
    rng = np.random.default_rng(seed)
    a, b = rng.random((m, n)) < 0.5, rng.random((1, n)) < 0.5
    for name, op in LOGIC.items():
        assert_equal_bits(getattr(qkernels, name)(a, b), reference(op, a, b))
    assert_equal_bits(qkernels.not_(a), reference("Not", a))
    x, y = values(seed, (m, n), dtype), values(seed, (), dtype)
    assert_equal_bits(qkernels.where(b, x, y), reference("Where", b, x, y))


@pytest.mark.differential("mod", "clip", "cumsum")
@given(seed=seeds, dtype=st.sampled_from(NUMBERS), m=st.integers(1, 4), n=st.integers(1, 20), axis=st.integers(-2, 1), exclusive=st.integers(0, 1), reverse=st.integers(0, 1))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mod_clip_and_cumsum_against_onnx_reference(seed, dtype, m, n, axis, exclusive, reverse):
    x = values(seed, (m, n), dtype)
    low, high = np.array(1, dtype), np.array(3, dtype)
    for bounds in ((low, high), (None, high), (low, None), (None, None), (high, low)):
        expected = x if bounds[0] is None else np.maximum(x, bounds[0])
        assert_equal_bits(qkernels.clip(x, *bounds), expected if bounds[1] is None else np.minimum(expected, bounds[1]))
    assert_equal_bits(qkernels.clip(x, low, high), reference("Clip", x, low, high))
    divisor = np.where(values(seed + 1, (1, n), dtype) == 0, dtype.type(2), values(seed + 1, (1, n), dtype))
    for fmod in (0, 1):
        y = qkernels.mod(x, divisor, fmod=fmod)
        assert_equal_bits(np.abs(y) if fmod and dtype.kind == "f" else y, np.abs(reference("Mod", x, divisor, fmod=fmod)) if fmod and dtype.kind == "f" else
                          reference("Mod", x, divisor, fmod=fmod))
    if dtype.itemsize >= 4 or dtype == np.float16:
        y = qkernels.cumsum(x, axis, exclusive=exclusive, reverse=reverse)
        assert_equal_bits(y, reference("CumSum", x, np.array(axis), exclusive=exclusive, reverse=reverse))  # halves, whose sums are exact


def test_cumsum_rounds_bfloat16_once():
    x = np.array([256, 1, 2.0**-30], BF16)  # 257 is the middle of two bfloat16, the last term lifts the sum above it
    assert qkernels.cumsum(x, 0).astype(float).tolist() == [256, 256, 258]


@pytest.mark.differential("topk")
@given(seed=seeds, dtype=st.sampled_from(NUMBERS), m=st.integers(1, 4), n=st.integers(1, 20), axis=st.integers(-2, 1), largest=st.integers(0, 1), data=st.data())
def test_topk_against_onnx_reference(seed, dtype, m, n, axis, largest, data):
    x = values(seed, (m, n), dtype)
    k = data.draw(st.integers(0, x.shape[axis]))
    y, i = qkernels.topk(x, np.array([k]), axis=axis, largest=largest)
    expected = evaluate("", "TopK", [x, np.array([k])], outputs=2, opset=24, axis=axis, largest=largest)
    assert_equal_bits(i, expected[1])
    assert_equal_bits(y, expected[0])


@pytest.mark.parametrize("dtype", [*FLOAT_DTYPES, np.dtype(np.int32), np.dtype(np.uint8)])
@pytest.mark.parametrize("largest", [0, 1])
def test_topk_of_long_rows(dtype, largest):
    for seed, n in ((0, 1024), (1, 5000)):
        x = values(seed, (3, n), dtype)
        order = np.argsort(-np.float64(x) if largest else np.float64(x), -1, kind="stable")
        if largest:  # NaN first
            order = np.stack([np.concatenate([np.flatnonzero(np.isnan(np.float64(r))), o[~np.isnan(np.float64(r[o]))]]) for r, o in zip(x, order, strict=True)])
        for k in (0, 1, 7, 100):
            y, i = qkernels.topk(x, k, largest=largest)
            assert_equal_bits(i, order[:, :k])
            assert_equal_bits(y, np.take_along_axis(x, i, -1))
    x = np.full((1, 2000), np.nan, np.float32)
    x[0, [5, 100]] = 1
    assert qkernels.topk(x, 3, largest=largest, outputs=(1,)).tolist() == [[0, 1, 2] if largest else [5, 100, 0]]


def test_B54_ties_and_nan():
    values_, indices = qkernels.topk(np.float32([5, 5, 3]), 2)
    assert values_.tolist() == [5, 5] and indices.tolist() == [0, 1]
    assert qkernels.topk(np.uint8([0, 255, 1]), 2, largest=0, outputs=(1,)).tolist() == [0, 2]
    for dtype in FLOAT_DTYPES:
        assert qkernels.topk(np.array([2, np.nan, 7, np.nan], dtype), 3, outputs=(1,)).tolist() == [1, 3, 2]
        assert qkernels.topk(np.array([0.0, -0.0], dtype), 1, outputs=(1,)).tolist() == [0]
    y, i = qkernels.topk(np.float32([[5, 5, 3]]), 0)
    assert y.shape == i.shape == (1, 0)
    with pytest.raises(ValueError, match="topk: k: expected 0 to 3, the size of axis 0, got 4"):
        qkernels.topk(np.float32([5, 5, 3]), 4)
    assert qkernels.topk(np.int64([-(2**63), 0]), 1, largest=0, outputs=(0,)).tolist() == [-(2**63)]


def test_bfloat16_and_strings():
    a, b = values(0, (5, 9), BF16), values(1, (9,), BF16)
    wide = lambda f, *x: np.asarray(f(*(np.float32(v) for v in x)))
    for name, ufunc in (("equal", np.equal), ("greater", np.greater), ("less", np.less), ("less_or_equal", np.less_equal), ("greater_or_equal", np.greater_equal)):
        assert_equal_bits(getattr(qkernels, name)(a, b), wide(ufunc, a, b))
    for name, ufunc in (("min", np.minimum), ("max", np.maximum)):
        assert_equal_bits(np.float32(getattr(qkernels, name)(a, b)) + 0, wide(ufunc, a, b) + 0)
    for name, ufunc in (("floor", np.floor), ("ceil", np.ceil), ("round", np.rint), ("sign", np.sign), ("abs", np.abs)):
        assert_equal_bits(np.float32(getattr(qkernels, name)(a)) + 0, wide(ufunc, a) + 0)
    assert_equal_bits(qkernels.is_nan(a), np.isnan(np.float32(a)))
    assert_equal_bits(qkernels.is_inf(a), np.isinf(np.float32(a)))
    with np.errstate(invalid="ignore"):
        assert_equal_bits(qkernels.mod(a, b), wide(np.mod, a, b).astype(BF16))
    assert_equal_bits(qkernels.where(a == a, a, b), np.where(a == a, a, b))
    assert_equal_bits(qkernels.cumsum(np.ones(600, BF16), 0), np.arange(1, 601, dtype=np.float32).astype(BF16))  # no sum drifts
    assert_equal_bits(qkernels.cumsum(np.ones(4000, np.float16), [0])[-1:], np.float16([4000]))
    assert qkernels.equal(np.array(["a", "bc"]), np.array(["a", "b"])).tolist() == [True, False]
    assert qkernels.where(np.array([True, False]), np.array(["a", "b"]), np.array("cde")).tolist() == ["a", "cde"]


def test_attributes_of_infinities():
    x = np.float32([1, np.inf, -np.inf, np.nan])
    assert qkernels.is_inf(x).tolist() == [False, True, True, False]
    assert qkernels.is_inf(x, detect_positive=0).tolist() == [False, False, True, False]
    assert qkernels.is_inf(x, detect_negative=0).tolist() == [False, True, False, False]
    assert not qkernels.is_inf(x, detect_negative=0, detect_positive=0).any()


def test_layouts_and_new_arrays():
    x = normal(0, (4, 6))
    calls = [qkernels.relu, qkernels.abs, qkernels.floor, qkernels.clip, qkernels.max, lambda v: qkernels.less(v, x), lambda v: qkernels.where(x > 0, v, x),
             lambda v: qkernels.cumsum(v, 1), lambda v: qkernels.topk(v, 2, outputs=(0,)), lambda v: qkernels.mod(v, x)]
    for call in calls:
        expected = call(x)
        assert not np.shares_memory(expected, x) and type(expected) is np.ndarray and type(call(x[0, :1].reshape(()) if call in calls[:5] else x)) is np.ndarray
        for name, a in layouts(x):
            assert_equal_bits(call(a), expected, name)


def test_empty_shapes():
    x = np.zeros((3, 0), np.float32)
    assert qkernels.max(x, x).shape == qkernels.cumsum(x, 1).shape == qkernels.cumsum(x, 1, exclusive=1).shape == qkernels.equal(x, x).shape == (3, 0)
    assert qkernels.topk(x, 0)[0].shape == (3, 0) and qkernels.mod(x, x).shape == qkernels.clip(x).shape == (3, 0)
    assert qkernels.topk(np.zeros((0, 5), np.float32), 2)[1].shape == (0, 2)


@pytest.mark.parametrize("call, error, message", [
    (lambda x: qkernels.less(x, x.astype(np.float16)), TypeError, "less: b: expected dtype float32, got float16"),
    (lambda x: qkernels.less(x, x[:3]), ValueError, r"less: b: expected a shape that broadcasts with \(4, 8\), got \(3, 8\)"),
    (lambda x: qkernels.and_(x, x), TypeError, "and_: a: expected dtype bool, got float32"),
    (lambda x: qkernels.not_(None), TypeError, "not_: x: expected an array, got None"),
    (lambda x: qkernels.floor(x.astype(np.int32)), TypeError, "floor: x: expected dtype float32 or float16 or bfloat16 or float64, got int32"),
    (lambda x: qkernels.max(), ValueError, "max: inputs: expected at least 1, got none"),
    (lambda x: qkernels.min(x, x, x[:, :3]), ValueError, r"min: inputs\[2\]: expected a shape that broadcasts with \(4, 8\), got \(4, 3\)"),
    (lambda x: qkernels.min(x, x.astype(np.float64)), TypeError, r"min: inputs\[1\]: expected dtype float32, got float64"),
    (lambda x: qkernels.clip(x, x), ValueError, r"clip: min: expected one element, got shape \(4, 8\)"),
    (lambda x: qkernels.clip(x, None, np.int32(1)), TypeError, "clip: max: expected dtype float32, got int32"),
    (lambda x: qkernels.mod(x, x, fmod=2), ValueError, "mod: fmod: expected 0 or 1, got 2"),
    (lambda x: qkernels.mod(np.int32([1]), np.int32([0])), ZeroDivisionError, "mod: b: expected integers other than 0"),
    (lambda x: qkernels.where(x, x, x), TypeError, "where: condition: expected dtype bool, got float32"),
    (lambda x: qkernels.where(x > 0, x, x[:3]), ValueError, "where: y: expected shapes that broadcast"),
    (lambda x: qkernels.where(x > 0, x, np.float64(1)), TypeError, "where: y: expected dtype float32, got float64"),
    (lambda x: qkernels.cumsum(x, 2), ValueError, "cumsum: axis: expected -2 to 1 for rank 2, got 2"),
    (lambda x: qkernels.cumsum(x, 1.0), TypeError, "cumsum: axis: expected an integer, got float64"),
    (lambda x: qkernels.topk(x, -1), ValueError, "topk: k: expected 0 to 8, the size of axis 1, got -1"),
    (lambda x: qkernels.topk(x, [1, 2]), ValueError, "topk: k: expected one element"),
    (lambda x: qkernels.topk(np.float32(1), 1), ValueError, "topk: x: expected at least 1 dimension"),
    (lambda x: qkernels.topk(x, 1, outputs=(2,)), ValueError, "topk: outputs: expected distinct indices"),
    (lambda x: qkernels.sign(x.astype(ml_dtypes.float8_e5m2)), TypeError, "sign: x: expected dtype"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)))
