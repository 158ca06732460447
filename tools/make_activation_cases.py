#!/usr/bin/env python3
"""Store digests of the correctly rounded results of all functions of single elements for all 65,536 float16 and bfloat16 inputs.

    python tools/make_activation_cases.py [name ...]

writes tests/data/activation_cases.json: for a type and a function the SHA-256 of the 131,072 bytes of results (little-endian, every NaN the type's
default one). Functions of two operands (a bias, a slope) are digested over `plane`. Rational functions are computed in fractions, the others by mpmath with 300
bits or more, and a value that this leaves next to a tie is an error. Needs mpmath. Some minutes.
"""
import fractions
import hashlib
import itertools
import json
import multiprocessing
import pathlib
import sys

import ml_dtypes
import mpmath
import numpy as np

OUT = pathlib.Path(__file__).parents[1] / "tests/data/activation_cases.json"
DTYPES = {"float16": (np.float16, 11, -14), "bfloat16": (ml_dtypes.bfloat16, 8, -126)}  # bits, least exponent
F = fractions.Fraction
PRECISION = 300
NAN, INF = float("nan"), float("inf")
TINY = F(1, 2**400)  # stands for a value too small for any type


def f32(x):
    return F(float(np.float32(x)))


def mp(q):
    return mpmath.mpf(q.numerator) / q.denominator if isinstance(q, F) else mpmath.mpf(q)


def beyond(x, positive, negative):
    """What a function is for an argument so large that its limit is all that counts."""
    return positive if x > 0 else negative


def exp(x):
    return mpmath.exp(x) if abs(x) < 1000 else beyond(x, F(2)**400, TINY)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x)) if abs(x) < 1000 else beyond(x, F(1), TINY)


def fraction(x):
    sign, man, power, _ = x._mpf_
    return F(-int(man) if sign else int(man)) * F(2)**power


def gelu(x):
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2 if -100 < x < 10 else beyond(x, fraction(x) - TINY, -TINY)


def gelu_tanh(x):
    return x * sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)) if -100 < x < 10 else beyond(x, fraction(x) - TINY, -TINY)


def swish(x, alpha):
    return x * sigmoid(alpha * x) if abs(alpha * x) < 1000 else beyond(alpha * x, x, -TINY if x < 0 else TINY)


def softplus(x):
    return max(x, 0) + mpmath.log1p(mpmath.exp(-abs(x))) if abs(x) < 1000 else beyond(x, x, TINY)


def mish(x):
    return x * mpmath.tanh(softplus(x)) if abs(x) < 1000 else beyond(x, x, -TINY)


def elu(x, alpha=1, gamma=1):
    if x >= 0:
        return F(float(x)) * gamma
    return mp(gamma * alpha) * (mpmath.expm1(x) if x > -100 else mpmath.mpf(-1) + mpmath.mpf(2)**-140)


def rational(f):
    """A function of a fraction."""
    return lambda x: f(F(float(x)))


def clamp(x, low, high):
    return min(max(x, low), high)


# name → a function of a finite float other than 0, and its values at 0, -0, infinity and minus infinity ("x": the argument itself)
ONE = {
    "sigmoid": (sigmoid, 0.5, 0.5, 1.0, 0.0),
    "silu": (lambda x: swish(x, 1), "x", "x", "x", -0.0),
    "quick_gelu": (lambda x: swish(x, mp(f32(1.702))), "x", "x", "x", -0.0),
    "gelu": (gelu, "x", "x", "x", -0.0),
    "gelu_tanh": (gelu_tanh, "x", "x", "x", -0.0),
    "tanh": (lambda x: mpmath.tanh(x) if abs(x) < 1000 else beyond(x, F(1), F(-1)), "x", "x", 1.0, -1.0),
    "erf": (lambda x: mpmath.erf(x) if abs(x) < 30 else beyond(x, F(1), F(-1)), "x", "x", 1.0, -1.0),
    "exp": (exp, 1.0, 1.0, INF, 0.0),
    "log": (lambda x: mpmath.log(x) if x > 0 else None, -INF, -INF, INF, NAN),
    "sqrt": (lambda x: mpmath.sqrt(x) if x > 0 else None, "x", "x", INF, NAN),
    "reciprocal": (rational(lambda x: 1 / x), INF, -INF, 0.0, -0.0),
    "sin": (mpmath.sin, "x", "x", NAN, NAN),
    "cos": (mpmath.cos, 1.0, 1.0, NAN, NAN),
    "softplus": (softplus, "ln 2", "ln 2", INF, 0.0),
    "mish": (mish, "x", "x", "x", -0.0),
    "softsign": (rational(lambda x: x / (1 + abs(x))), "x", "x", 1.0, -1.0),
    "elu": (elu, "x", "x", "x", -1.0),
    "celu": (elu, "x", "x", "x", -1.0),
    "selu": (lambda x: elu(x, f32(1.6732632), f32(1.050701)), "x", "x", "x", -1.7580993),  # the product, next to no tie of either type
    "hard_sigmoid": (rational(lambda x: clamp(f32(0.2) * x + F(1, 2), F(0), F(1))), 0.5, 0.5, 1.0, 0.0),
    "hard_swish": (rational(lambda x: x * clamp(x + 3, 0, 6) / 6), "x", "x", "x", -0.0),
    "leaky_relu": (rational(lambda x: f32(0.01) * x if x < 0 else x), "x", "x", "x", "x"),
    "thresholded_relu": (rational(lambda x: x if x > 1 else F(0)), 0.0, 0.0, "x", 0.0),
    "relu": (rational(lambda x: max(x, F(0))), 0.0, 0.0, "x", 0.0),
    "clip": (rational(lambda x: clamp(x, F(-1), F(6))), "x", "x", 6.0, -1.0),
    "neg": (rational(lambda x: -x), -0.0, 0.0, -INF, INF),
    "abs": (rational(abs), 0.0, 0.0, INF, INF),
    "sign": (rational(lambda x: F(1) if x > 0 else F(-1)), 0.0, 0.0, 1.0, -1.0),
    "floor": (rational(lambda x: F(x.__floor__())), "x", "x", "x", "x"),
    "ceil": (rational(lambda x: F(x.__ceil__())), "x", "x", "x", "x"),
    "round": (rational(lambda x: F(round(x))), "x", "x", "x", "x"),
}
KEEPS_SIGN = {"floor", "ceil", "round", "hard_swish"}  # a result of 0 has the sign of the argument
# of x and a second operand, both finite
TWO = {
    "bias_gelu": lambda x, b: gelu(mp(F(x) + F(b))) if x + b else F(0),
    "fast_gelu": lambda x, b: gelu_tanh(mp(F(x) + F(b))) if x + b else F(0),
    "prelu": lambda x, slope: F(x) * F(slope) if x < 0 else F(x),
}


def rounded(v, bits, least):
    """A fraction or mpf that is not 0, to nearest even, as a float of so many bits; its sign also where it becomes 0."""
    if isinstance(v, F):
        exact, exponent = v, v.numerator.bit_length() - v.denominator.bit_length()
    else:
        exact, exponent = fraction(v), v._mpf_[2] + v._mpf_[3]
    for step in itertools.count(max(exponent - bits - 1, least - bits + 1)):
        scaled = exact / F(2)**step
        if abs(scaled) < 2**bits:
            break
    whole = scaled.__floor__()
    rest = scaled - whole - F(1, 2)
    if not isinstance(v, F) and abs(rest) < F(1, 2**(mpmath.mp.prec - 100)):
        raise ArithmeticError(f"{v} is too near to a tie")
    n = whole + (rest > 0 or (rest == 0 and whole % 2 == 1))
    if n == 0:
        return -0.0 if v < 0 else 0.0
    return float(n) * 2.0**step if abs(n).bit_length() + step < 1000 else (INF if n > 0 else -INF)


def one_value(name, x, form):
    """The result for a float, as a float."""
    function, at_zero, at_minus_zero, at_infinity, at_minus_infinity = ONE[name]
    if x != x:
        return x
    if x == 0 or np.isinf(x):
        special = (at_minus_zero if np.signbit(x) else at_zero) if x == 0 else at_infinity if x > 0 else at_minus_infinity
        return x if special == "x" else float(np.log(2.0)) if special == "ln 2" else special
    v = function(mpmath.mpf(x))
    if v is None:
        return NAN
    if v == 0:
        return np.copysign(0.0, x) if name in KEEPS_SIGN else 0.0
    return rounded(v, *form)


def every(dtype):
    return np.arange(65536, dtype=np.uint16).view(DTYPES[dtype][0])


def plane(dtype):
    """Operands of TWO, x as a column and the second as a row: of all sizes, and usual ones, among which sums cancel."""
    rng, kind = np.random.default_rng(1), DTYPES[dtype][0]
    usual = lambda n: rng.standard_normal(n).astype(np.float32).astype(kind)

    def of_all_sizes(n):
        a = rng.integers(0, 65536, 8 * n).astype(np.uint16).view(kind)
        wide = a.astype(np.float32)
        return a[np.isfinite(wide) & (np.abs(wide) < 1e4)][:n]
    x = np.concatenate([of_all_sizes(60), (4 * usual(180)).astype(kind), np.zeros(1, kind)])
    return x[:, None], np.concatenate([of_all_sizes(20), usual(60)])


def narrow(values, dtype):
    """Floats that have the type's precision, so that only infinity is left to say."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float64).astype(np.float32).astype(DTYPES[dtype][0])


def results(task):
    """The array of a function's results."""
    name, dtype = task
    form = DTYPES[dtype][1:]
    mpmath.mp.prec = PRECISION + (200 if dtype == "bfloat16" else 0)
    if name in TWO:
        x, b = plane(dtype)
        value = lambda p, q: rounded(v, *form) if (v := TWO[name](p, q)) else 0.0
        return narrow([[value(float(p), float(q)) for q in b] for p in x[:, 0]], dtype)
    return narrow([one_value(name, float(v), form) for v in every(dtype)], dtype)


def digest(y):
    """SHA-256 of an array of a 16-bit type; every NaN as the default one, and a 0 of two operands without its sign."""
    code = np.where(np.isnan(y.astype(np.float32)), np.array(np.nan, y.dtype), y).view(np.uint16)
    if y.ndim == 2:
        code = np.where(code == 0x8000, 0, code)
    return hashlib.sha256(np.ascontiguousarray(code.astype("<u2")).tobytes()).hexdigest()


def case(task):
    return task, digest(results(task))


def main(names):
    stored = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    tasks = [(name, dtype) for name in names or (*ONE, *TWO) for dtype in DTYPES]
    with multiprocessing.Pool() as pool:
        for (name, dtype), value in pool.imap_unordered(case, tasks):
            print(name, dtype, value, flush=True)
            stored.setdefault(dtype, {})[name] = value
    OUT.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
