"""Arithmetic with broadcasting; sigmoid, SiLU and their accuracy."""
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_STEP, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, normal, seeds

BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
UNARY = ("sigmoid", "silu")
EVERY = np.arange(65536, dtype=np.uint16)


def in_float32(ufunc, a, b):
    return ufunc(np.float32(a), np.float32(b)).astype(np.asarray(a).dtype)


def exact_sigmoid(x, alpha=1.0):
    """float64 inputs (or wider) in the widest type that NumPy has."""
    z = np.longdouble(x) * np.longdouble(alpha)
    t = np.exp(-np.abs(z))
    return np.where(z >= 0, 1 / (1 + t), t / (1 + t))


def exact(name, x, alpha=1.0):
    s = exact_sigmoid(x, alpha)
    return s if name == "sigmoid" else np.longdouble(x) * s


def error_in_ulp(y, v):
    """Distance of float32 y from the exact v in units of the last place of v's binade."""
    _, exponent = np.frexp(v)
    return np.abs(np.longdouble(y) - v) / np.maximum(np.ldexp(np.longdouble(1), exponent - 24), np.longdouble(2) ** -149)


@st.composite
def broadcast_shapes(draw):
    shape = draw(st.lists(st.one_of(st.integers(1, 5), st.integers(15, 35)), max_size=3))
    thin = lambda: tuple(1 if draw(st.booleans()) else n for n in shape)
    drop = lambda s: s[draw(st.integers(0, len(s))):]
    return drop(thin()), thin()


@pytest.mark.differential("add", "sub", "mul")
@given(seed=seeds, name=st.sampled_from(list(BINARY)), dtype=float_dtypes, shapes=broadcast_shapes(), swap=st.booleans())
def test_arithmetic_against_numpy_and_onnx_reference(seed, name, dtype, shapes, swap):
    a, b = (normal(seed + i, s, dtype, 3) for i, s in enumerate(shapes[::-1] if swap else shapes))
    y = one_result(lambda t: getattr(qkernels, name)(a, b, threads=t))
    assert_equal_bits(y, in_float32(BINARY[name], a, b))
    if dtype != BF16:
        expected, = evaluate("", name.capitalize(), [a, b])
        assert_equal_bits(y, np.asarray(expected))


@pytest.mark.differential("sigmoid", "silu")
@given(seed=seeds, dtype=float_dtypes, shape=st.lists(st.integers(0, 40), max_size=2), alpha=st.sampled_from([1.0, 1.702, -0.5]))
def test_sigmoid_and_silu_against_onnx_reference(seed, dtype, shape, alpha):
    x = normal(seed, shape, dtype, 4)
    wide = x.astype(np.float32)
    # the reference's exp and its three other float32 operations err by at most 3e-7 together, and |alpha x| of up to 40 times 2^-24 in the argument
    for y, expected in ((one_result(lambda t: qkernels.sigmoid(x, threads=t)), evaluate("", "Sigmoid", [wide])[0]),
                        (one_result(lambda t: qkernels.silu(x, alpha=alpha, threads=t)), evaluate("", "Swish", [wide], opset=24, alpha=alpha)[0])):
        assert y.dtype == x.dtype and y.shape == x.shape
        smallest = HALF_STEP[dtype] * (4 if dtype == np.float32 else 1)  # float32: both round more than once
        np.testing.assert_allclose(np.float64(y), np.float64(expected), rtol=3e-6 + HALF_ULP[dtype], atol=smallest)


@pytest.mark.differential("silu_mul")
@given(seed=seeds, dtype=float_dtypes, shape=st.lists(st.integers(1, 40), min_size=1, max_size=3), packed=st.booleans())
def test_silu_mul_is_silu_then_mul(seed, dtype, shape, packed):
    both = normal(seed, (*shape[:-1], 2 * shape[-1]), dtype, 4)
    gate, up = both[..., :shape[-1]], both[..., shape[-1]:]
    y = one_result(lambda t: qkernels.silu_mul(*((both,) if packed else (gate, up)), threads=t))
    # in float32 with one rounding to the type
    assert_equal_bits(y, (qkernels.silu(np.float32(gate)) * np.float32(up)).astype(dtype))
    assert_equal_bits(y, one_result(lambda t: qkernels.mul(qkernels.silu(np.float32(gate)), np.float32(up), threads=t)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BF16])
@pytest.mark.parametrize("name", UNARY)
def test_every_16_bit_input_is_correctly_rounded(name, dtype, tier):
    x = EVERY.view(dtype)
    x = x[np.isfinite(np.float32(x))]
    y = getattr(qkernels, name)(x)
    v = exact(name, np.float64(x))
    code = y.view(np.uint16)
    # the middles between the result and its neighbours, which bound where it is right; magnitudes, of the sign of x
    assert (np.signbit(np.float32(y)) == (np.signbit(np.float32(x)) if name == "silu" else False)).all()
    magnitude = (code & 0x7FFF).astype(np.int64)
    value = lambda c: np.longdouble(np.maximum(c, 0).astype(np.uint16).view(dtype).astype(np.float64))
    with np.errstate(invalid="ignore"):
        lower = np.where(magnitude == 0, -1, (value(magnitude - 1) + value(magnitude)) / 2)
        upper = (value(magnitude) + value(magnitude + 1)) / 2
    v = np.abs(v)
    assert ((lower <= v) & (v <= upper)).all()
    # where the oracle's own precision leaves the side of a middle open: with 300 bits
    close = np.flatnonzero(((v - lower < v * 2.0**-45) & (magnitude > 0)) | (upper - v < v * 2.0**-45))
    assert close.size < 1500
    with mpmath.workprec(300):
        for i in close:
            z = mpmath.mpf(float(x[i]))
            w = 1 / (1 + mpmath.exp(-z))
            w = abs(w if name == "sigmoid" else z * w)
            low, high = (mpmath.mpf(float(m)) for m in (lower[i], upper[i]))
            even = magnitude[i] % 2 == 0
            assert (low <= w <= high) if even else (low < w < high), (x[i], y[i])


# published in docs/accuracy.md
MAX_ULP = {"sigmoid": 0.78, "silu": 0.78}
MAX_ULP_NORMAL = {"sigmoid": 0.58, "silu": 0.58}  # where the result is a normal number


def sweep():
    """Every 4096th float32, and densely where the functions bend."""
    every = np.arange(0, 2**32, 2**12, dtype=np.uint32) + np.uint32(1234)
    x = np.concatenate([every.view(np.float32), np.linspace(-110, 20, 500_001, dtype=np.float32), np.linspace(-1, 1, 100_001, dtype=np.float32)])
    return x[np.isfinite(x)]


@pytest.mark.parametrize("name", UNARY)
def test_float32_error_in_ulp(name):
    x = sweep()
    v, y = exact(name, np.float64(x)), getattr(qkernels, name)(x)
    error = error_in_ulp(y, v)
    assert error.max() <= MAX_ULP[name], (error.max(), x[error.argmax()])
    usual = np.abs(v) >= 2.0**-126
    assert error[usual].max() <= MAX_ULP_NORMAL[name], (error[usual].max(), x[usual][error[usual].argmax()])


@pytest.mark.parametrize("alpha", [1.702, -0.3, 0.5, 1e-30, 1e30, 1e-38, 0.0])
def test_silu_of_any_alpha_in_ulp(alpha):
    alpha, x = np.float32(alpha), sweep()
    v, y = exact("silu", np.float64(x), alpha), qkernels.silu(x, alpha=alpha)
    assert np.isfinite(y).all()
    error = error_in_ulp(y, v)
    assert error.max() <= 1, (error.max(), x[error.argmax()])
    half = EVERY.view(np.float16)
    half = half[np.isfinite(half)]
    v = exact("silu", np.float64(half), alpha)
    if alpha > 1e-30 or alpha <= 0:  # which is less than the oracle has bits for next to a tie
        assert_equal_bits(qkernels.silu(half, alpha=alpha), v.astype(np.float64).astype(np.float16))


def test_tiers_agree_over_the_sweep():
    x = np.concatenate([sweep()[::7], np.float32([np.inf, -np.inf, np.nan])])
    for call in (qkernels.sigmoid, qkernels.silu, lambda x, threads: qkernels.silu(x, alpha=1.702, threads=threads)):
        one_result(lambda t, call=call: call(x, threads=t), (1, 3))
    for dtype in (np.float16, BF16):
        x = EVERY.view(dtype)
        for call in (qkernels.sigmoid, qkernels.silu, lambda x, threads: qkernels.silu(x, alpha=1.702, threads=threads),
                     lambda x, threads: qkernels.silu_mul(x, x[::-1], threads=threads)):
            one_result(lambda t, call=call, x=x: call(x, threads=t), (1,))


def test_B49_range_and_limits(tier):
    for dtype in FLOAT_DTYPES:
        x = np.array([-np.inf, -1e30 if dtype != np.float16 else -60000, np.inf, np.nan, -0.0, 0.0], dtype)
        y = np.float32(qkernels.sigmoid(x))
        assert y[:3].tolist() == [0, 0, 1] and np.isnan(y[3]) and y[4:].tolist() == [0.5, 0.5]
        y = np.float32(qkernels.silu(x))
        assert y[:3].tolist() == [0, 0, np.inf] and np.isnan(y[3]) and y[4:].tolist() == [0, 0] and np.signbit(y[4:]).tolist() == [True, False]
        y = np.float32(qkernels.silu(x, alpha=-2))
        assert y[:3].tolist() == [-np.inf, x[1], 0] and np.isnan(y[3]) and y[4:].tolist() == [0, 0]
    np.testing.assert_allclose(qkernels.sigmoid(np.float32([-18, -18.25])), [1.5229979512760347e-08, 1.1861120110657661e-08], rtol=2**-24)
    np.testing.assert_allclose(qkernels.silu(np.float32([-6])), [-0.014835738939808652], rtol=2**-24)
    assert qkernels.silu(np.array([-6], BF16)).astype(np.float32) == np.float32(-0.014835738939808652).astype(BF16).astype(np.float32) != 0
    tiny = np.float32([-87.5, -95, -100])  # results below the smallest normal number
    assert (qkernels.sigmoid(tiny) > 0).all() and (qkernels.silu(tiny) < 0).all()
    tiny = np.float32([2**-140, -2**-149 * 3])
    assert qkernels.silu(tiny).tolist() == [2.0**-141, -2.0**-149 * 2]
    x = np.linspace(-20, -16, 200_001, dtype=np.float32)
    y = qkernels.sigmoid(x)
    assert (np.diff(y) >= 0).all() and y.min() > 0 and y.max() < 1
    y = qkernels.sigmoid(np.sort(sweep()))
    assert (np.diff(y) >= 0).all() and y.min() >= 0 and y.max() <= 1


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_B58_any_layout(dtype, tier):
    a, b = normal(0, (6, 5, 40), dtype), normal(1, (6, 5, 40), dtype)
    calls = {**{n: (lambda x, n=n: getattr(qkernels, n)(x, b)) for n in (*BINARY, "silu_mul")}, **{n: getattr(qkernels, n) for n in UNARY}}
    calls |= {f"second of {n}": (lambda x, n=n: getattr(qkernels, n)(b, x)) for n in (*BINARY, "silu_mul")}
    calls["packed"] = qkernels.silu_mul
    for message, call in calls.items():
        expected = call(a)
        for name, x in (*layouts(a), ("transposed", np.ascontiguousarray(a.transpose(2, 0, 1)).transpose(1, 2, 0)), ("columns reversed", a[..., ::-1].copy()[..., ::-1])):
            assert_equal_bits(call(x), expected, f"{message}, {name}")
        broadcast = np.broadcast_to(a[:, :1], a.shape)
        assert_equal_bits(call(broadcast), call(broadcast.copy()), message)


def test_threads_share_a_broadcast():
    a, b = normal(0, (70, 3, 1000)), normal(1, (3, 1))
    assert_equal_bits(one_result(lambda t: qkernels.mul(a, b, threads=t), (1, 2, 3, 7)), a * b)
    assert_equal_bits(one_result(lambda t: qkernels.sub(b, a[:, :, 1:], threads=t), (1, 2, 3, 7)), b - a[:, :, 1:])
    one_result(lambda t: qkernels.silu_mul(a, threads=t), (1, 2, 7))


def test_out_may_be_an_operand():
    a, b = normal(0, (6, 40)), normal(1, (6, 40))
    for name in (*BINARY, "silu_mul"):
        call, p, q = getattr(qkernels, name), a.copy(), b.copy()
        expected = call(a, b)
        assert call(p, b, out=p) is p and call(a, q, out=q) is q
        assert_equal_bits(p, expected, name)
        assert_equal_bits(q, expected, name)
    for name in UNARY:
        call, p = getattr(qkernels, name), a.copy()
        assert_equal_bits(call(p, out=p), call(a))
        assert_equal_bits(p, call(a))
    p = a.copy()
    assert_equal_bits(qkernels.mul(p, p, out=p), a * a)
    assert_equal_bits(qkernels.add(a, b[0], out=p), a + b[0])


def test_B51_empty_shapes_and_scalars(tier):
    zero = lambda *shape: np.zeros(shape, np.float32)
    for a, b, shape in ((zero(3, 0), zero(0), (3, 0)), (zero(0, 4), zero(4), (0, 4)), (zero(0, 4), zero(1), (0, 4)), (zero(), zero(), ()), (zero(), zero(2, 3), (2, 3))):
        for name in BINARY:
            assert getattr(qkernels, name)(a, b).shape == shape
    for shape in ((3, 0), (0, 4), (0,), ()):
        for name in UNARY:
            assert getattr(qkernels, name)(zero(*shape)).shape == shape
        assert qkernels.silu_mul(zero(*shape), zero(*shape)).shape == shape
    assert qkernels.silu_mul(zero(3, 0)).shape == (3, 0) and qkernels.silu_mul(zero(0, 4)).shape == (0, 2)
    assert qkernels.sigmoid(np.float32(0)) == 0.5 and qkernels.add(np.float32(1), np.float32(2)) == 3
    with pytest.raises(ValueError, match=r"add: b: expected a shape that broadcasts with \(3, 4\), got \(3,\)"):
        qkernels.add(zero(3, 4), zero(3))


def test_B57_read_only_inputs_and_out(tmp_path):
    a = normal(0, (4, 8))
    (tmp_path / "a").write_bytes(a.tobytes())
    for frozen in (np.frombuffer(a.tobytes(), np.float32).reshape(4, 8), np.memmap(tmp_path / "a", np.float32, "r", shape=(4, 8))):
        for name in (*BINARY, "silu_mul"):
            assert_equal_bits(getattr(qkernels, name)(frozen, frozen), getattr(qkernels, name)(a, a))
        for name in UNARY:
            assert_equal_bits(getattr(qkernels, name)(frozen), getattr(qkernels, name)(a))
        assert_equal_bits(np.asarray(frozen), a)
        with pytest.raises(ValueError, match="sigmoid: out: expected a writeable array"):
            qkernels.sigmoid(a, out=frozen)


def test_many_axes():
    a = normal(0, (2,) * 12)
    b = a.transpose(11, *range(11))
    assert_equal_bits(qkernels.add(a, b), a + b)
    assert_equal_bits(qkernels.add(a.reshape((1, 2) * 12 + (1,)), np.float32(1)), (a + np.float32(1)).reshape((1, 2) * 12 + (1,)))


@pytest.mark.parametrize("call, error, message", [
    (lambda a: qkernels.add(a, 1.0), TypeError, "add: b: expected dtype float32, got float64"),
    (lambda a: qkernels.add(a, a.astype(np.float16)), TypeError, "add: b: expected dtype float32, got float16"),
    (lambda a: qkernels.mul(np.int32(1), a), TypeError, "mul: b: expected dtype int32, got float32"),
    (lambda a: qkernels.mul(a > 0, a), TypeError, "mul: a: expected dtype float32 or float16 or bfloat16, got bool"),
    (lambda a: qkernels.sub(None, a), TypeError, "sub: a: expected an array, got None"),
    (lambda a: qkernels.add(a, a[:3]), ValueError, r"add: b: expected a shape that broadcasts with \(4, 8\), got \(3, 8\)"),
    (lambda a: qkernels.add(a, a, out=np.empty((4, 8), np.float16)), TypeError, "add: out: expected dtype float32, got float16"),
    (lambda a: qkernels.add(a, a, out=np.empty((8, 8), np.float32)), ValueError, r"add: out: expected shape \(4, 8\), got \(8, 8\)"),
    (lambda a: qkernels.add(a, a, out=np.empty((4, 16), np.float32)[:, ::2]), ValueError, "add: out: expected an aligned C-contiguous array"),
    (lambda a: qkernels.add(a, a[0], out=a), ValueError, "add: out: overlaps b without being the same array"),
    (lambda a: qkernels.sigmoid(a[::-1], out=a), ValueError, "sigmoid: out: overlaps x without being the same array"),
    (lambda a: qkernels.silu(a.reshape(8, 4).T, out=a), ValueError, "silu: out: overlaps x without being the same array"),
    (lambda a: qkernels.sigmoid(a.astype(np.int32)), TypeError, "sigmoid: x: expected dtype float32 or float16 or bfloat16 or float64, got int32"),
    (lambda a: qkernels.silu(a, alpha=np.nan), ValueError, "silu: alpha: expected a finite number, got nan"),
    (lambda a: qkernels.silu(a, alpha="1"), TypeError, "alpha: expected a number, got"),
    (lambda a: qkernels.silu(a, threads=0), ValueError, "silu: threads: expected 1 to 1024, got 0"),
    (lambda a: qkernels.silu_mul(a, a[:1]), ValueError, r"silu_mul: up: expected shape \(4, 8\), got \(1, 8\)"),
    (lambda a: qkernels.silu_mul(a, a.astype(BF16)), TypeError, "silu_mul: up: expected dtype float32, got bfloat16"),
    (lambda a: qkernels.silu_mul(a[:, :3]), ValueError, r"silu_mul: gate: expected an even last dimension where up is None, got shape \(4, 3\)"),
    (lambda a: qkernels.silu_mul(np.float32(1)), ValueError, "silu_mul: gate: expected an even last dimension"),
    (lambda a: qkernels.silu_mul(a, out=a[:, :4]), ValueError, "silu_mul: out: expected an aligned C-contiguous array"),
    (lambda a: qkernels.silu_mul(a, out=a.reshape(-1)[:16].reshape(4, 4)), ValueError, "silu_mul: out: overlaps gate without being the same array"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 8)))
