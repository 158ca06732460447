"""Float matrix products: matmul and PackedMatrix."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from tests.oracle import BF16, FLOAT_DTYPES, HALF_ULP, assert_equal_bits, layouts, one_result
from tests.strategies import float_dtypes, normal, seeds

SIZES = st.one_of(st.integers(0, 20), st.sampled_from([31, 32, 33, 127, 129, 255, 256, 257, 600]))


def assert_near(actual, a, b, dtype, bias=0):
    # a chain of at most 256 fma and a sum of ceil(K / 256) blocks, each rounding at most 2^-24 of the sum of magnitudes
    exact = np.matmul(np.float64(a), np.float64(b)) + bias
    magnitude = np.matmul(np.abs(np.float64(a)), np.abs(np.float64(b))) + np.abs(bias)
    k = a.shape[-1]
    bound = magnitude * (min(k, 256) + k / 256 + 2) * 2.0**-24 + np.abs(exact) * HALF_ULP[np.dtype(dtype)] * 1.01
    assert (np.abs(np.float64(actual) - exact) <= bound + 2.0**-25).all()


@st.composite
def operands(draw):
    """Shapes that broadcast as NumPy's matmul does, vectors and empty dimensions included."""
    m, k, n = draw(SIZES), draw(SIZES), draw(SIZES)
    lead = draw(st.lists(st.integers(0, 3), max_size=2))
    keep = lambda: [size if draw(st.booleans()) else 1 for size in lead][draw(st.integers(0, len(lead))):]
    a = (k,) if draw(st.integers(0, 5)) == 0 else (*keep(), m, k)
    b = (k,) if draw(st.integers(0, 5)) == 0 else (*keep(), k, n)
    return a, b


@pytest.mark.differential("matmul")
@given(shapes=operands(), dtype=float_dtypes, seed=seeds, transposed=st.booleans())
def test_matmul_against_exact_numpy_and_tiers(shapes, dtype, seed, transposed):
    a, b = (normal(seed + i, shape, dtype) for i, shape in enumerate(shapes))
    if transposed and b.ndim > 1:
        b = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    y = one_result(lambda t: np.asarray(qkernels.matmul(a, b, threads=t)))
    assert y.shape == np.matmul(a.astype(np.float32), b.astype(np.float32)).shape and y.dtype == dtype
    assert_near(y, a, b, dtype)


@pytest.mark.differential("matmul")
@given(shapes=operands(), seed=seeds)
def test_matmul_against_onnx_reference(shapes, seed):
    a, b = (normal(seed + i, shape) for i, shape in enumerate(shapes))
    expected, = evaluate("", "MatMul", [a, b])
    # both are within K roundings of the exact sum
    bound = np.matmul(np.abs(a), np.abs(b)) * (2 * a.shape[-1] + 4) * 2.0**-24
    assert (np.abs(qkernels.matmul(a, b) - expected) <= bound).all()


@pytest.mark.differential("PackedMatrix")
@given(m=st.integers(0, 30), k=SIZES, n=SIZES, dtype=float_dtypes, x_dtype=float_dtypes, seed=seeds, with_bias=st.booleans())
def test_packed_matrix(m, k, n, dtype, x_dtype, seed, with_bias):
    b, x = normal(seed, (k, n), dtype), normal(seed + 1, (m, k), x_dtype)
    bias = normal(seed + 2, (n,), x_dtype) if with_bias else None
    w = qkernels.PackedMatrix(b)
    y = one_result(lambda t: w(x, bias=bias, threads=t))
    assert w.shape == (n, k) and w.dtype == dtype and y.dtype == x_dtype
    assert_near(y, x, b, x_dtype, 0 if bias is None else np.float64(bias))
    assert_equal_bits(qkernels.PackedMatrix(b.T, trans_b=True)(x, bias=bias), y)
    assert_equal_bits(qkernels.PackedMatrix([b.T[:n // 3], b.T[n // 3:]], trans_b=True)(x, bias=bias), y)
    if dtype == x_dtype and not with_bias:
        assert_equal_bits(qkernels.matmul(x, b), y)
    if n:
        assert_equal_bits(w.take_rows([[0, -1]]), np.float32(b.T[[[0, -1]]]))


@pytest.mark.parametrize("rows", [1, 2, 5, 13, 130])
def test_a_row_alone_or_among_others(rows, tier):
    x, b = normal(0, (rows, 300)), normal(1, (300, 40), BF16)
    w = qkernels.PackedMatrix(b)
    assert_equal_bits(np.concatenate([w(x[i:i + 1]) for i in range(rows)]), w(x))
    assert_equal_bits(np.concatenate([qkernels.matmul(x[i:i + 1], b.astype(np.float32)) for i in range(rows)]), qkernels.matmul(x, b.astype(np.float32)))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_any_layout(dtype, tier):
    a, b = normal(0, (6, 40), dtype), normal(1, (40, 24), dtype)
    expected = qkernels.matmul(a, b)
    for name, v in layouts(a):
        assert_equal_bits(qkernels.matmul(v, b), expected, name)
        assert_equal_bits(qkernels.PackedMatrix(b)(v), expected, name)
    for name, v in layouts(b):
        assert_equal_bits(qkernels.matmul(a, v), expected, name)
        assert_equal_bits(qkernels.PackedMatrix(v)(a), expected, name)
    assert_equal_bits(qkernels.matmul(a, np.broadcast_to(b[:, :1], (40, 24))), qkernels.matmul(a, np.repeat(b[:, :1], 24, 1)))
    out = np.empty((6, 24), dtype)
    assert qkernels.matmul(a, b, out=out) is out
    assert_equal_bits(out, expected)


@pytest.mark.differential("gemm")
@given(m=st.integers(0, 20), k=st.integers(0, 40), n=st.integers(1, 40), ta=st.booleans(), tb=st.booleans(), alpha=st.sampled_from([1, 0.5, -3.3]),
       beta=st.sampled_from([1, 0, 0.25]), c=st.sampled_from([None, "", "1", "n", "1n", "m1", "mn"]), dtype=float_dtypes, seed=seeds)
def test_gemm_against_exact_and_tiers(m, k, n, ta, tb, alpha, beta, c, dtype, seed):
    a, b = normal(seed, (k, m) if ta else (m, k), dtype), normal(seed + 1, (n, k) if tb else (k, n), dtype)
    shape = {None: None, "": (), "1": (1,), "n": (n,), "1n": (1, n), "m1": (m, 1), "mn": (m, n)}[c]
    z = None if shape is None else normal(seed + 2, shape, dtype)
    form = dict(alpha=alpha, beta=beta, transA=int(ta), transB=int(tb))
    y = one_result(lambda t: qkernels.gemm(a, b, z, threads=t, **form))
    assert y.dtype == dtype and y.shape == (m, n)
    p, q = np.float64(a.T if ta else a), np.float64(b.T if tb else b)
    added = 0 if z is None else beta * np.float64(z)
    exact = alpha * (p @ q) + added
    # k + 3 float32 roundings at the size of the sum of magnitudes, one to the type
    bound = (abs(alpha) * (np.abs(p) @ np.abs(q)) + np.abs(added)) * (k + 4) * 2.0**-24 + np.abs(exact) * HALF_ULP[dtype] * 1.01 + 2.0**-25
    assert (np.abs(np.float64(y) - exact) <= bound).all()
    assert_equal_bits(y, np.concatenate([qkernels.gemm(a[:, i:i + 1] if ta else a[i:i + 1], b, z[i:i + 1] if c in ("m1", "mn") else z, **form)
                                         for i in range(m)]) if m else y, "row by row")
    if z is not None and not beta:
        assert_equal_bits(y, qkernels.gemm(a, b, **form))
    out = np.empty((m, n), dtype)
    assert qkernels.gemm(a, b, z, out=out, **form) is out
    assert_equal_bits(out, y)
    if dtype == np.float32 and m and k:
        expected, = evaluate("", "Gemm", [a, b, z], **{key: v if key.startswith("trans") else float(v) for key, v in form.items()})
        assert (np.abs(np.float64(y) - np.float64(expected)) <= 2 * bound).all()


WIDE = (np.float64, np.int32, np.int64, np.uint32, np.uint64)


@pytest.mark.differential("matmul", "gemm")
@given(shapes=operands(), dtype=st.sampled_from(WIDE), seed=seeds, layout=st.integers(0, 5))
def test_wide_products_against_onnx_reference(shapes, dtype, seed, layout):
    a, b = (normal(seed + i, shape, np.float32, 9).astype(np.int64).astype(dtype) for i, shape in enumerate(shapes))  # whole numbers: sums are exact
    expected, = evaluate("", "MatMul", [a, b])
    assert_equal_bits(qkernels.matmul(a, b), np.asarray(expected))
    for of, x in (("a", a), ("b", b)):
        if x.size and x.ndim > 1:
            name, v = list(layouts(x))[layout]
            assert_equal_bits(qkernels.matmul(v, b) if of == "a" else qkernels.matmul(a, v), np.asarray(expected), f"{of} {name}")
    out = np.empty(np.shape(expected), dtype)
    assert qkernels.matmul(a, b, out=out) is out
    assert_equal_bits(out, np.asarray(expected))
    if a.ndim == b.ndim == 2:
        for c in (None, out, out[:1], np.array(3, dtype)):
            for alpha, beta in ((1.0, 1.0), (-2.0, 3.0), (2.0, 0.0)):
                scalar = lambda v: np.int64(v).astype(dtype)
                wanted = scalar(alpha) * (a @ b)
                wanted = wanted if c is None else wanted + scalar(beta) * c  # adding a 0 of its own would lose the sign of -2 * 0
                assert_equal_bits(qkernels.gemm(a, b, c, alpha=alpha, beta=beta), wanted.astype(dtype))
                assert_equal_bits(qkernels.gemm(a.T, b.T, c, alpha=alpha, beta=beta, transA=1, transB=1), wanted.astype(dtype))


def test_products_of_float64_are_not_rounded_to_float32():
    a, b = np.random.default_rng(0).standard_normal((2, 30, 30))
    np.testing.assert_allclose(qkernels.matmul(a, b), np.einsum("ij,jk", a, b), rtol=0, atol=1e-13)
    np.testing.assert_allclose(qkernels.gemm(a, b, a, alpha=0.1, beta=1 / 3), 0.1 * np.einsum("ij,jk", a, b) + a / 3, rtol=0, atol=1e-13)
    assert np.isnan(qkernels.matmul(np.array([[np.inf]]), np.array([[0.0]]))).all()


def test_gemm_layouts(tier):
    a, b, c = normal(0, (6, 40)), normal(1, (40, 24)), normal(2, (6, 24))
    expected = qkernels.gemm(a, b, c, alpha=0.5)
    for name, v in layouts(a):
        assert_equal_bits(qkernels.gemm(v, b, c, alpha=0.5), expected, name)
    for name, v in layouts(b):
        assert_equal_bits(qkernels.gemm(a, v, c, alpha=0.5), expected, name)
    for name, v in layouts(c):
        assert_equal_bits(qkernels.gemm(a, b, v, alpha=0.5), expected, name)


def test_memory_is_the_weights(tier):
    w = qkernels.PackedMatrix(np.zeros((64, 100), BF16))
    assert w.nbytes == 64 * 112 * 2
    assert qkernels.PackedMatrix(np.zeros((64, 96), BF16), trans_b=True, dtype=np.float32).nbytes == 64 * 96 * 4


def test_special_values(tier):
    a = np.float32([[1, np.nan], [np.inf, 1], [1, 2]])
    y = qkernels.matmul(a, np.float32([[1, 0], [0, 1]]))
    assert np.isnan(y[0]).all() and y[1, 0] == np.inf and np.isnan(y[1, 1]) and y[2].tolist() == [1, 2]
    assert qkernels.matmul(np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)).tolist() == [[0] * 3] * 2
    assert qkernels.PackedMatrix(np.zeros((0, 3), np.float32))(np.zeros((2, 0), np.float32)).tolist() == [[0] * 3] * 2


def test_B10_empty_dimensions(tier):
    assert qkernels.matmul(np.zeros((0, 32), np.float32), np.zeros((32, 5), np.float32)).shape == (0, 5)
    assert qkernels.matmul(np.zeros((2, 0, 32), np.float32), np.zeros((32, 5), np.float32)).shape == (2, 0, 5)
    assert qkernels.PackedMatrix(np.zeros((32, 0), np.float32))(np.zeros((2, 32), np.float32)).shape == (2, 0)


@pytest.mark.parametrize("call, error, message", [
    (lambda a, b: qkernels.matmul(a, b[:3]), ValueError, r"matmul: b: expected shape \(5, N\) for a of shape \(4, 5\), got \(3, 6\)"),
    (lambda a, b: qkernels.matmul(a, b.astype(np.float16)), TypeError, "matmul: b: expected dtype float32, got float16"),
    (lambda a, b: qkernels.matmul(a.astype(np.int16), b), TypeError, "matmul: a: expected dtype float32, float16, bfloat16, float64, .* or uint64, got int16"),
    (lambda a, b: qkernels.matmul(a.astype(np.float64), b), TypeError, "matmul: b: expected dtype float64, got float32"),
    (lambda a, b: qkernels.matmul(np.float64(a), np.float64(b[:3])), ValueError, r"matmul: b: expected shape \(5, N\) for a of shape \(4, 5\), got \(3, 6\)"),
    (lambda a, b: qkernels.matmul(np.int32(a), np.int32(b), out=np.empty((4, 6))), TypeError, "matmul: out: expected dtype int32, got float64"),
    (lambda a, b: qkernels.gemm(np.float64(a), b), TypeError, "gemm: b: expected dtype float64, got float32"),
    (lambda a, b: qkernels.gemm(np.float64(a), np.float64(b), a), TypeError, "gemm: c: expected dtype float64, got float32"),
    (lambda a, b: qkernels.gemm(np.int64(a), np.int64(b), alpha=0.5), ValueError, "gemm: alpha: expected a whole number for int64, got 0.5"),
    (lambda a, b: qkernels.gemm(a.astype(np.int8), b), TypeError, "gemm: a: expected dtype float32, float16, bfloat16, float64, .*, got int8"),
    (lambda a, b: qkernels.matmul(np.float32(1), b), ValueError, "matmul: a: expected at least 1 dimension"),
    (lambda a, b: qkernels.matmul(np.stack([a] * 2), np.stack([b] * 3)), ValueError, r"matmul: b: leading dimensions \(3,\) do not broadcast"),
    (lambda a, b: qkernels.matmul(a[:, :4], b[:4], out=a[:, :4]), ValueError, r"matmul: out: expected shape \(4, 6\), got \(4, 4\)"),
    (lambda a, b: qkernels.matmul(square := b[:, :5].copy(), square.T, out=square), ValueError, "matmul: out: overlaps a"),
    (lambda a, b: qkernels.matmul(b[:, :5].copy(), square := b[:, :5].copy(), out=square), ValueError, "matmul: out: overlaps b"),
    (lambda a, b: qkernels.matmul(a, b, threads=1.5), TypeError, "matmul: threads: expected an int or None, got float"),
    (lambda a, b: qkernels.gemm(a, b[:3]), ValueError, r"gemm: b: expected K = 5 as a of shape \(4, 5\) has, got shape \(3, 6\)"),
    (lambda a, b: qkernels.gemm(a, b, a), ValueError, r"gemm: c: expected a shape that broadcasts to \(4, 6\), got \(4, 5\)"),
    (lambda a, b: qkernels.gemm(a, b.astype(np.float16)), TypeError, "gemm: b: expected dtype float32, got float16"),
    (lambda a, b: qkernels.gemm(a[0], b), ValueError, "gemm: a: expected 2 dimensions"),
    (lambda a, b: qkernels.gemm(a, b, alpha="1"), TypeError, "gemm: alpha: expected a number, got str"),
    (lambda a, b: qkernels.gemm(a, b, out=np.empty((4, 5), np.float32)), ValueError, r"gemm: out: expected shape \(4, 6\)"),
    (lambda a, b: qkernels.PackedMatrix(b)(a.T), ValueError, r"PackedMatrix: x: expected shape \(..., 5\), got \(5, 4\)"),
    (lambda a, b: qkernels.PackedMatrix(b)(a, bias=a[0]), ValueError, r"PackedMatrix: bias: expected shape \(6,\), got \(5,\)"),
    (lambda a, b: qkernels.PackedMatrix([b, b]), ValueError, "PackedMatrix: b: expected one array, or with trans_b several"),
    (lambda a, b: qkernels.PackedMatrix([b, a], trans_b=True), ValueError, "PackedMatrix: b: expected arrays of one dtype and K"),
    (lambda a, b: qkernels.PackedMatrix(b[0]), ValueError, "PackedMatrix: b: expected 2 dimensions"),
    (lambda a, b: qkernels.PackedMatrix(b, dtype=np.int8), TypeError, "PackedMatrix: dtype: expected float32 or float16 or bfloat16, got int8"),
    (lambda a, b: qkernels.PackedMatrix(b).take_rows([6]), IndexError, "PackedMatrix.take_rows: indices: expected -6 to 5, got 6"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(0, (4, 5)), normal(1, (5, 6)))
