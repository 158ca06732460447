"""What goes before and after a product inside of it: the same bits as single steps, on every kind of packed weights."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from tests.oracle import BF16, FLOAT_DTYPES, assert_equal_bits, one_result
from tests.strategies import float_dtypes, normal, seeds

KINDS = {
    "PackedNBits": (lambda w: qkernels.PackedNBits.quantize(w, bits=4, block_size=32), ("f32", "int16", "int8")),
    "PackedNBits, blocks of 16": (lambda w: qkernels.PackedNBits.quantize(w, bits=8, block_size=16, symmetric=False), ("f32", "int16", "int8")),
    "PackedInt8Rows": (qkernels.PackedInt8Rows, ("f32", "int16", "int8")),
    "PackedMatrix": (lambda w: qkernels.PackedMatrix(w, trans_b=True, dtype=BF16), ("f32",)),
}


@pytest.mark.differential("PackedNBits", "PackedInt8Rows", "PackedMatrix")
@given(kind=st.sampled_from(list(KINDS)), before=st.sampled_from([None, "norm", "swiglu"]), dtype=float_dtypes, norm_dtype=float_dtypes, m=st.integers(0, 30),
       n=st.integers(1, 70), k=st.integers(1, 150), with_bias=st.booleans(), with_residual=st.sampled_from([None, "new", "out"]), data=st.data(), seed=seeds)
def test_before_and_after(kind, before, dtype, norm_dtype, m, n, k, with_bias, with_residual, data, seed):
    make, choices = KINDS[kind]
    activations = data.draw(st.sampled_from(choices))
    packed = make(normal(seed, (n, k)))
    x, weight, bias, residual = (normal(seed + 1, (m, 2 * k if before == "swiglu" else k), dtype, 3), normal(seed + 2, (k,), norm_dtype),
                                 normal(seed + 3, (n,), dtype), normal(seed + 4, (m, n), dtype, 5))
    options = {"norm": weight, "epsilon": 1e-3} if before == "norm" else {"swiglu": True} if before == "swiglu" else {}
    wide = np.float32(x)
    prepared = {None: lambda: wide, "norm": lambda: qkernels.rms_normalization(wide, np.float32(weight), epsilon=1e-3), "swiglu": lambda: qkernels.silu_mul(wide)}
    expected = packed(prepared[before](), activations=activations)
    for part, given_ in ((bias, with_bias), (residual, with_residual)):
        expected = expected + np.float32(part) if given_ else expected

    def call(threads):
        out = residual.copy() if with_residual == "out" else None
        r = None if with_residual is None else residual if out is None else out
        y = packed(x, bias=bias if with_bias else None, activations=activations, residual=r, out=out, threads=threads, **options)
        assert out is None or y is out
        return y

    with np.errstate(over="ignore"):
        assert_equal_bits(one_result(call), expected.astype(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_errors(kind):
    packed = KINDS[kind][0](normal(0, (20, 32)))
    x, y, name = normal(1, (3, 32)), normal(2, (3, 20)), kind.split(",")[0]
    gated, weight = normal(3, (3, 64)), np.ones(32, np.float32)
    for options, error, match in (
        (dict(norm=np.ones(31, np.float32)), ValueError, r"norm: expected shape \(32,\), got \(31,\)"),
        (dict(norm=np.ones(32)), TypeError, "norm: expected dtype float32 or float16 or bfloat16, got float64"),
        (dict(norm=weight, epsilon="1"), TypeError, "epsilon: expected a number, got str"),
        (dict(swiglu=1), TypeError, "swiglu: expected a bool, got int"),
        (dict(swiglu=True), ValueError, r"x: expected shape \(..., 64\), got \(3, 32\)"),
        (dict(residual=y[:2]), ValueError, r"residual: expected shape \(3, 20\), got \(2, 20\)"),
        (dict(residual=y.astype(np.float16)), TypeError, "residual: expected dtype float32, got float16"),
        (dict(residual=np.zeros(61, np.float32)[1:].reshape(3, 20), activations="int4"), ValueError, "activations: expected .*f32.*, got 'int4'"),
    ):
        with pytest.raises(error, match=f"{name}: {match}"):
            packed(x, **options)
    with pytest.raises(ValueError, match=f"{name}: norm: expected None with swiglu=True"):
        packed(gated, norm=weight, swiglu=True)
    with pytest.raises(ValueError, match=rf"{name}: x: expected shape \(..., 32\), got \(3, 64\)"):
        packed(gated, norm=weight)
    memory = np.zeros(80, np.float32)
    with pytest.raises(ValueError, match=f"{name}: out: overlaps residual without being the same array"):
        packed(x, residual=memory[:60].reshape(3, 20), out=memory[20:].reshape(3, 20))
    with pytest.raises(ValueError, match=f"{name}: out: overlaps norm"):
        packed(x, norm=memory[40:72], out=memory[:60].reshape(3, 20))


def test_not_for_reordered_weights():
    b, scales, _ = qkernels.quantize_nbits(normal(0, (4, 64)), block_size=32)
    packed = qkernels.PackedNBits(b, scales, K=64, N=4, block_size=32, g_idx=np.arange(64) % 2)
    x = normal(1, (1, 64))
    for options, name in ((dict(norm=np.ones(64, np.float32)), "norm"), (dict(swiglu=True), "swiglu")):
        with pytest.raises(ValueError, match=f"PackedNBits: {name}: not for weights with g_idx"):
            packed(x, **options)
    assert_equal_bits(packed(x, residual=np.ones((1, 4), np.float32)), packed(x) + np.float32(1))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_norm_is_not_rounded_before_the_product(dtype, tier):
    """Of the 16-bit types the normalized row would lose bits; a witness shows that it keeps them."""
    packed = qkernels.PackedMatrix(256 * (np.eye(64, dtype=np.float32) - np.roll(np.eye(64, dtype=np.float32), 1, 1)), trans_b=True)
    x, weight = normal(3, (4, 64), dtype), normal(4, (64,))
    fused = packed(x, norm=weight)
    rounded = packed(qkernels.rms_normalization(x, weight.astype(dtype) if dtype != np.float32 else weight))
    assert_equal_bits(fused, packed(qkernels.rms_normalization(np.float32(x), weight)).astype(dtype))
    assert dtype == np.float32 or (fused != rounded).any()
