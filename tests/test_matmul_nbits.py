"""Products with block-quantized weights: matmul_nbits, PackedNBits, PackedInt8Rows, quantize_nbits."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qkernels
from qkernels.reference import evaluate
from qkernels.reference.op_matmul_nbits import dequantize, unpack_codes
from tests.oracle import BF16, FLOAT_DTYPES, HALF_ULP, assert_equal_bits, layouts, one_result, onnxruntime_node
from tests.strategies import float_dtypes, normal, seeds

KINDS = ("none", "packed", "packed 1-D", "float")
# the most that one activation may be moved, as a fraction of its block's largest: half a step
STEP = {"f32": 0, "int16": 0.5 / 32512, "int8": 0.5 / 127}


def weights(seed, n, k, bits, block_size, zeros="none", scale_dtype=np.float32):
    rng = np.random.default_rng(seed)
    blocks = -(-k // block_size)
    b = rng.integers(0, 256, (n, blocks, block_size * bits // 8), np.uint8)
    scales = (rng.standard_normal((n, blocks)) * 0.1).astype(scale_dtype)
    zero_points = None
    if zeros.startswith("packed"):
        zero_points = rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
        zero_points = zero_points.reshape(-1) if zeros == "packed 1-D" else zero_points
    elif zeros == "float":
        zero_points = (rng.standard_normal((n, blocks)) * 3 + 2 ** (bits - 1)).astype(np.float32)
    return b, scales, zero_points


@st.composite
def problems(draw):
    bits, block_size = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([16, 32, 64, 128, 256]))
    return dict(bits=bits, block_size=block_size, k=draw(st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 300, 512, 520]))),
                n=draw(st.integers(1, 50)), m=draw(st.integers(1, 18)), zeros=draw(st.sampled_from(KINDS)), seed=draw(seeds),
                dtype=draw(float_dtypes), with_bias=draw(st.booleans()))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("activations", ["int16", "int8"])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
def test_many_rows_are_the_single_rows(bits, block_size, activations, zeros):
    """More rows and more k than a tier works through at once: 128 rows and 1,024 k with tile registers, and every rest of 16 rows."""
    n, k, m = 35, 2100, 128 + 16 + 15
    b, scales, zero_points = weights(bits, n, k, bits, block_size, zeros)
    w = qkernels.PackedNBits(b, scales, zero_points, K=k, N=n, bits=bits, block_size=block_size)
    a, bias, residual = normal(1, (m, k)), normal(2, (n,)), normal(3, (m, n))
    a[5] *= 1e30
    single = np.concatenate([w(a[i:i + 1], bias=bias, residual=residual[i:i + 1], activations=activations) for i in range(m)])
    for rows in (m, 16, 24, 31, 144):
        y = one_result(lambda t: w(a[:rows], bias=bias, residual=residual[:rows], activations=activations, threads=t), threads=(1, 2))
        assert_equal_bits(y, single[:rows], f"{rows} rows")


@pytest.mark.differential("matmul_nbits", "PackedNBits")
@given(p=problems(), activations=st.sampled_from(["f32", "int16", "int8"]))
def test_against_specification_and_tiers(p, activations):
    b, scales, zeros = weights(p["seed"], p["n"], p["k"], p["bits"], p["block_size"], p["zeros"])
    a = normal(p["seed"] + 1, (p["m"], p["k"]), p["dtype"])
    bias = normal(p["seed"] + 2, (p["n"],), p["dtype"]) if p["with_bias"] else None
    form = dict(K=p["k"], N=p["n"], bits=p["bits"], block_size=p["block_size"])
    w = qkernels.PackedNBits(b, scales, zeros, **form)
    y = one_result(lambda t: w(a, bias=bias, activations=activations, threads=t))
    assert_equal_bits(y, np.concatenate([w(a[i:i + 1], bias=bias, activations=activations) for i in range(p["m"])]), "row by row")
    assert_equal_bits(y, qkernels.matmul_nbits(a, b, scales, zeros, None, bias, activations=activations, **form))
    dense = np.float64(dequantize(b, scales, zeros, None, p["k"], p["n"], p["bits"], p["block_size"]))
    exact = np.float64(a) @ dense.T + (0 if bias is None else np.float64(bias))
    # rounding of activations per block of at most 32, float32 roundings of K + blocks terms, one rounding of the result
    part = min(p["block_size"], 32)
    pad = -p["k"] % part
    largest = np.abs(np.pad(np.float64(a), ((0, 0), (0, pad)))).reshape(p["m"], -1, part).max(2)
    column = np.abs(np.pad(dense, ((0, 0), (0, pad)))).reshape(p["n"], -1, part).sum(2)
    codes = np.abs(np.float64(a)) @ np.abs(dense).T + largest @ column.T + (np.abs(np.float64(scales)) * 300).max() * np.abs(np.float64(a)).sum(1)[:, None]
    bound = largest @ column.T * STEP[activations] * 1.001 + codes * (40 + p["k"] / 16) * 2.0**-24 + np.abs(exact) * HALF_ULP[p["dtype"]] * 1.01 + 2.0**-25
    assert (np.abs(np.float64(y) - exact) <= bound).all()


@pytest.mark.differential("matmul_nbits")
@given(p=problems())
def test_against_op_run(p):
    b, scales, zeros = weights(p["seed"], p["n"], p["k"], p["bits"], p["block_size"], p["zeros"])
    a = normal(p["seed"] + 1, (p["m"], p["k"]))
    form = dict(K=p["k"], N=p["n"], bits=p["bits"], block_size=p["block_size"])
    expected, = evaluate("com.microsoft", "MatMulNBits", [a, b, scales, zeros], **form)
    magnitude = np.abs(a) @ np.abs(dequantize(b, scales, zeros, None, p["k"], p["n"], p["bits"], p["block_size"])).T
    assert (np.abs(qkernels.matmul_nbits(a, b, scales, zeros, **form) - expected) <= magnitude * (2 * p["k"] + 8) * 2.0**-24 + 1e-6).all()


@pytest.mark.differential("matmul_nbits", "PackedNBits")
@pytest.mark.parametrize("zeros", KINDS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@given(p=problems(), narrow=st.booleans(), level=st.sampled_from([0, 1]), with_order=st.booleans())
def test_against_onnx_runtime(bits, zeros, p, narrow, level, with_order):
    if bits == 8 and zeros == "float":
        pytest.skip("ONNX Runtime 1.32 refuses float zero points of 8 bits")
    dtype = np.dtype(np.float16 if narrow else np.float32)  # its CPU kernel has no bfloat16
    form = dict(K=p["k"], N=p["n"], bits=bits, block_size=p["block_size"])
    b, scales, points = weights(p["seed"], p["n"], p["k"], bits, p["block_size"], zeros, dtype)
    points = points.astype(dtype) if zeros == "float" else points
    a, bias = normal(p["seed"] + 1, (p["m"], p["k"]), dtype), normal(p["seed"] + 2, (p["n"],), dtype) if p["with_bias"] else None
    g_idx = None
    if with_order and bits == 4 and not zeros.startswith("packed"):  # of 2 bits it ignores g_idx, of 8 it refuses it; beside g_idx it ignores packed points
        g_idx = np.random.default_rng(p["seed"]).integers(0, scales.shape[1], p["k"]).astype(np.int32)
    inputs = [a, b, scales, points, g_idx, bias]
    expected, = onnxruntime_node("com.microsoft", "MatMulNBits", inputs, constants=range(1, 6), accuracy_level=level, **form)
    y = qkernels.matmul_nbits(*inputs, accuracy_level=level, **form)
    assert y.dtype == expected.dtype == dtype and y.shape == expected.shape
    exact = np.abs(np.float64(a)) @ np.abs(np.float64(dequantize(b, scales, points, g_idx, p["k"], p["n"], bits, p["block_size"]))).T
    magnitude = exact + (0 if bias is None else np.abs(np.float64(bias)))
    # either has at most K roundings of float32 and those of the weights and blocks; of float16 the result's, and in ONNX Runtime the weights' own
    allowed = magnitude * ((2 * p["k"] + 8) * 2.0**-24 + (3 * 2.0**-11 if narrow else 0)) + 1e-6
    assert (np.abs(np.float64(y) - np.float64(expected)) <= allowed).all()


@pytest.mark.differential("quantize_nbits", "PackedNBits")
@given(n=st.integers(1, 40), k=st.integers(1, 300), bits=st.sampled_from([2, 4, 8]), block_size=st.sampled_from([16, 32, 128]), seed=seeds,
       dtype=float_dtypes, symmetric=st.booleans())
def test_quantize_against_numpy(n, k, bits, block_size, seed, dtype, symmetric):
    w = normal(seed, (n, k), dtype)
    b, scales, zeros = one_result(lambda t: tuple(x for x in qkernels.quantize_nbits(w, bits=bits, block_size=block_size, symmetric=symmetric, threads=t)
                                                  if x is not None)) + ((None,) if symmetric else ())
    blocks, middle, top = -(-k // block_size), np.float32(1 << (bits - 1)), (1 << bits) - 1
    padded = np.pad(w.astype(np.float32), ((0, 0), (0, blocks * block_size - k))).reshape(n, blocks, block_size)
    low, high = padded.min(2), padded.max(2)
    if k % block_size:  # the padding is no weight
        last = w[:, (blocks - 1) * block_size:].astype(np.float32)
        low[:, -1], high[:, -1] = last.min(1), last.max(1)
    if symmetric:
        scale = np.where(high > -low, high, low) / -middle
        zero = np.full((n, blocks), middle)
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = high / np.float32(top) - low / np.float32(top)
        zero = np.clip(np.rint(-low / np.where(scale > 0, scale, 1)), 0, top)
        zero = np.where(scale > 0, zero, middle)
    codes = np.clip(np.rint(padded / np.where(scale == 0, 1, scale)[..., None]) + zero[..., None], 0, top)
    assert_equal_bits(scales.astype(np.float32), scale)
    assert_equal_bits(unpack_codes(b.reshape(n, -1), bits, k), codes.reshape(n, -1)[:, :k].astype(np.uint8))
    if not symmetric:
        assert_equal_bits(unpack_codes(zeros, bits, blocks), zero.astype(np.uint8))
    packed = qkernels.PackedNBits.quantize(w, bits=bits, block_size=block_size, symmetric=symmetric)
    again = qkernels.PackedNBits(b, scales, zeros, K=k, N=n, bits=bits, block_size=block_size)
    x = normal(seed + 1, (3, k))
    assert_equal_bits(packed(x), again(x))
    dense = dequantize(b, scales, zeros, None, k, n, bits, block_size)
    assert_equal_bits(packed.take_rows(np.arange(n)), dense)
    # symmetric codes end one step before the largest positive value; all others are within half a step
    within = np.abs(dense - w.astype(np.float32)) <= np.repeat(np.abs(scale), block_size, 1)[:, :k] * (1.001 if symmetric else 0.51) + 1e-12
    assert within.all()


@pytest.mark.differential("PackedInt8Rows")
@given(n=st.integers(1, 40), k=st.integers(1, 300), m=st.integers(1, 10), seed=seeds, dtype=float_dtypes, activations=st.sampled_from(["f32", "int16", "int8"]))
def test_int8_rows(n, k, m, seed, dtype, activations):
    w, x = normal(seed, (n, k), dtype), normal(seed + 1, (m, k))
    packed = qkernels.PackedInt8Rows(w)
    codes, scales = packed.unpack()
    scale = np.abs(w.astype(np.float32)).max(1) / np.float32(127)
    assert_equal_bits(scales.astype(np.float32), scale)
    assert_equal_bits(codes, np.rint(w.astype(np.float32) / np.where(scale == 0, 1, scale)[:, None]).astype(np.int8))
    y = one_result(lambda t: packed(x, activations=activations, threads=t))
    assert_equal_bits(y, qkernels.PackedInt8Rows([w[:n // 2], w[n // 2:]])(x, activations=activations))
    dense = np.float64(codes) * np.float64(scales)[:, None]
    pad = -k % 32
    largest = np.abs(np.pad(np.float64(x), ((0, 0), (0, pad)))).reshape(m, -1, 32).max(2)
    column = np.abs(np.pad(dense, ((0, 0), (0, pad)))).reshape(n, -1, 32).sum(2)
    bound = largest @ column.T * (STEP[activations] * 1.001 + (40 + k / 16) * 2.0**-24)
    assert (np.abs(y - np.float64(x) @ dense.T) <= bound + 1e-12).all()
    assert_equal_bits(packed.take_rows([0, -1]), (codes.astype(np.float32) * scales.astype(np.float32)[:, None])[[0, -1]])


def test_B01_every_block_size_gives_a_result_or_raises(tier):
    for bits, code, zero in ((2, 0xAA, 0xFF), (4, 0x22, 0x33), (8, 0x02, 0x03)):
        block_size = 16
        while block_size <= 512:
            blocks = 512 // block_size
            b = np.full((1, blocks, block_size * bits // 8), code, np.uint8)
            zeros = np.full((1, -(-blocks * bits // 8)), zero, np.uint8)
            for activations in ("f32", "int16", "int8"):
                y = qkernels.matmul_nbits(np.ones((1, 512), np.float32), b, np.full((1, blocks), 0.5, np.float32), zeros, K=512, N=1, bits=bits,
                                          block_size=block_size, activations=activations)
                np.testing.assert_allclose(y, [[-256]], rtol=1e-6)
            block_size *= 2


def test_B03_default_zero_point(tier):
    for bits, code in ((2, 0xFF), (4, 0x99), (8, 129)):
        b = np.full((1, 1, 2 * bits), code, np.uint8)
        assert qkernels.matmul_nbits(np.ones((1, 16), np.float32), b, np.ones((1, 1), np.float32), K=16, N=1, bits=bits, block_size=16).tolist() == [[16]]


def test_B04_zero_point_and_scale_layouts(tier):
    form = dict(K=48, N=2, bits=4, block_size=16)
    b, a = np.full((2, 3, 8), 0x88, np.uint8), np.ones((1, 48), np.float32)
    zeros = np.uint8([[0x21, 0x03], [0x54, 0x06]])
    for z in (zeros, zeros.reshape(-1)):
        for scales in (np.ones((2, 3), np.float32), np.ones(6, np.float32)):
            assert qkernels.matmul_nbits(a, b, scales, z, **form).tolist() == [[288, 144]]
    for wrong in (np.zeros((6, 1), np.uint8), np.zeros(3, np.uint8), np.zeros((2, 3), np.uint8), np.zeros((2, 2, 1), np.uint8)):
        with pytest.raises(ValueError, match=r"matmul_nbits: zero_points: expected shape \(2, 2\) or \(4,\)"):
            qkernels.matmul_nbits(a, b, np.ones((2, 3), np.float32), wrong, **form)
    with pytest.raises(ValueError, match=r"matmul_nbits: scales: expected shape \(2, 3\) or \(6,\), got \(3, 2\)"):
        qkernels.matmul_nbits(a, b, np.ones((3, 2), np.float32), **form)


def test_B06_g_idx_is_honoured(tier):
    a, b = np.float32([[1] * 16 + [0] * 16]), np.full((1, 2, 8), 0x99, np.uint8)
    for activations in ("f32", "int16", "int8"):
        call = lambda g_idx: qkernels.matmul_nbits(a, b, np.float32([[1, 10]]), None, g_idx, K=32, N=1, block_size=16, activations=activations)
        np.testing.assert_allclose(call(np.int32([1] * 16 + [0] * 16)), [[160]], rtol=1e-6)
        np.testing.assert_allclose(call(None), [[16]], rtol=1e-6)
    for wrong in ([0] * 31, [0] * 31 + [2], [-1] + [0] * 31):
        with pytest.raises(ValueError, match="matmul_nbits: g_idx: expected"):
            call(np.int32(wrong))


@pytest.mark.differential("matmul_nbits", "PackedNBits")
@given(p=problems(), shuffled=st.booleans())
def test_g_idx_against_specification(p, shuffled):
    blocks = -(-p["k"] // p["block_size"])
    rng = np.random.default_rng(p["seed"])
    g_idx = rng.permutation(np.arange(p["k"]) // p["block_size"]) if shuffled else rng.integers(0, blocks, p["k"])
    b, scales, zeros = weights(p["seed"], p["n"], p["k"], p["bits"], p["block_size"], p["zeros"])
    form = dict(K=p["k"], N=p["n"], bits=p["bits"], block_size=p["block_size"])
    w = qkernels.PackedNBits(b, scales, zeros, g_idx=g_idx.astype(np.int32), **form)
    dense = dequantize(b, scales, zeros, g_idx, p["k"], p["n"], p["bits"], p["block_size"])
    assert w.shape == dense.shape
    assert_equal_bits(w.take_rows(np.arange(p["n"])), dense)
    a = normal(p["seed"] + 1, (p["m"], p["k"]))
    y = one_result(lambda t: w(a, threads=t))
    assert (np.abs(y - np.float64(a) @ np.float64(dense).T) <= np.abs(a) @ np.abs(dense).T * (40 + p["k"] / 16) * 2.0**-24 + 1e-6).all()
    padded = np.concatenate([g_idx, np.zeros(blocks * p["block_size"] - p["k"], g_idx.dtype)])
    assert_equal_bits(y, qkernels.matmul_nbits(a, b, scales, zeros, padded, **form))
    assert_equal_bits(w.g_idx, g_idx.astype(np.int32))
    assert w.block_size == p["block_size"] and f"K={p['k']}, bits={p['bits']}, block_size={p['block_size']}" in repr(w)
    b_again, scales_again, zeros_again = w.unpack(threads=2)
    assert_equal_bits(unpack_codes(b_again.reshape(p["n"], -1), p["bits"], p["k"]), unpack_codes(b.reshape(p["n"], -1), p["bits"], p["k"]))
    used = np.isin(np.arange(blocks), g_idx)
    assert_equal_bits(scales_again.astype(np.float32)[:, used], scales[:, used])
    assert (zeros_again is None) == (zeros is None) and (zeros is None or zeros_again.shape == zeros.reshape(p["n"], -1).shape)
    assert_equal_bits(dequantize(b_again, scales_again.astype(np.float32), zeros_again, g_idx, p["k"], p["n"], p["bits"], p["block_size"]), dense)
    assert_equal_bits(qkernels.PackedNBits(b_again, scales_again, zeros_again, g_idx=w.g_idx, **form)(a), y)


CODE_TYPES = (ml_dtypes.uint4, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.int2, np.uint8, np.int8)


@pytest.mark.differential("PackedNBits", "dequantize_linear")
@given(n=st.integers(1, 40), k=st.integers(1, 150), block_size=st.sampled_from([0, 16, 32, 64, 200]), dtype=st.sampled_from(CODE_TYPES),
       scale_dtype=float_dtypes, axis=st.sampled_from([0, 1]), with_zeros=st.booleans(), seed=seeds)
def test_from_codes_is_dequantize_linear(n, k, block_size, dtype, scale_dtype, axis, with_zeros, seed):
    dtype = np.dtype(dtype)
    info = ml_dtypes.iinfo(dtype)
    rng = np.random.default_rng(seed)
    codes_of = lambda shape: rng.integers(int(info.min), int(info.max) + 1, shape).astype(np.int8 if info.min < 0 else np.uint8).astype(dtype)
    block_size = 0 if block_size == 200 and k > 200 else block_size
    blocks = 1 if block_size == 0 else -(-k // block_size)
    codes, shape = codes_of((n, k) if axis else (k, n)), (n, blocks) if axis else (blocks, n)
    shape = (n,) if block_size == 0 else shape
    scales, zeros = (rng.standard_normal(shape) * 0.1).astype(scale_dtype), codes_of(shape) if with_zeros else None
    w = qkernels.PackedNBits.from_codes(codes, scales, zeros, axis=axis, block_size=block_size)
    assert w.shape == (n, k) and w.bits == info.bits
    # one scale for each output is per-axis quantization along the other axis
    dense = qkernels.dequantize_linear(codes, scales, zeros, axis=axis if block_size else 1 - axis, block_size=block_size)
    dense = dense if axis else dense.T
    assert_equal_bits(w.take_rows(np.arange(n), dtype=scale_dtype), dense)
    exact = qkernels.dequantize_linear(codes, scales, zeros, axis=axis if block_size else 1 - axis, block_size=block_size, output_dtype=np.float32)
    exact = exact if axis else exact.T
    assert_equal_bits(w.take_rows(np.arange(n)), exact)
    x = normal(seed, (3, k))
    y = one_result(lambda t: w(x, threads=t))
    assert (np.abs(y - np.float64(x) @ np.float64(exact).T) <= np.abs(x) @ np.abs(exact).T * (40 + k / 16) * 2.0**-24 + 1e-6).all()
    for name, v in layouts(codes) if codes.dtype.kind != "V" else [("fortran", np.asfortranarray(codes))]:
        assert_equal_bits(qkernels.PackedNBits.from_codes(v, scales, zeros, axis=axis, block_size=block_size).buffers[0], w.buffers[0], name)
    if info.bits == 4 and info.min == 0:
        serialized = dict(axis=axis, block_size=block_size, bits=4, shape=codes.shape)
        again = qkernels.PackedNBits.from_codes(qkernels.pack_int4(codes), scales, None if zeros is None else qkernels.pack_int4(zeros), **serialized)
        for x, y in zip(again.buffers, w.buffers, strict=True):
            assert (x is None and y is None) or (np.asarray(x).view(np.uint8) == np.asarray(y).view(np.uint8)).all()
    if info.bits < 8 and info.min == 0:
        again = qkernels.PackedNBits.from_codes(codes.astype(np.uint8), scales, None if zeros is None else zeros.astype(np.uint8), axis=axis,
                                                block_size=block_size, bits=info.bits)
        assert_equal_bits(again.buffers[0], w.buffers[0])


def test_from_codes_errors_and_middle_zero_points():
    codes, scales = np.zeros((4, 32), ml_dtypes.uint4), np.ones((4, 1), np.float32)
    make = qkernels.PackedNBits.from_codes
    assert make(codes, scales, np.full((4, 1), 8, ml_dtypes.uint4), axis=1).buffers[2] is None
    assert make(codes.astype(np.int8).astype(ml_dtypes.int4), scales, axis=1).buffers[2] is None
    for call, error, message in (
            (lambda: make(codes, scales, axis=2), ValueError, "axis: expected 0 or 1, got 2"),
            (lambda: make(codes, scales, axis=0), ValueError, "scales: expected shape"),
            (lambda: make(codes, scales[:3], axis=1), ValueError, r"scales: expected shape \(4, 1\), got \(3, 1\)"),
            (lambda: make(codes, scales, axis=1, bits=8), ValueError, "bits: expected 4 for uint4, got 8"),
            (lambda: make(codes, scales, axis=1, block_size=24), ValueError, "block_size: expected a power of two, at least 16, got 24"),
            (lambda: make(codes, scales, scales, axis=1), TypeError, "zero_points: expected dtype uint4, got float32"),
            (lambda: make(codes[0], scales, axis=1), ValueError, "codes: expected 2 dimensions"),
            (lambda: make(np.full((4, 32), 16, np.uint8), scales, axis=1, bits=4), ValueError, "codes: expected codes of 4 bits, got 16"),
            (lambda: make(np.zeros(63, np.uint8), scales, axis=1, bits=4, shape=(4, 32)), ValueError, r"codes: expected shape \(4, 32\) or 64 uint8 bytes"),
            (lambda: make(codes.astype(np.float32), scales, axis=1), TypeError, "codes: expected dtype uint2")):
        with pytest.raises(error, match="PackedNBits.from_codes: " + message):
            call()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_B07_bias_on_every_path(bits, dtype, tier):
    bias = np.array([1, -2, 3], dtype)
    for zeros in KINDS:
        b, scales, z = weights(0, 3, 64, bits, 32, zeros)
        for rows in (1, 2, 5, 9):
            for level in (0, 4):
                y = qkernels.matmul_nbits(np.zeros((rows, 64), dtype), b, scales, z, None, bias, K=64, N=3, block_size=32, bits=bits, accuracy_level=level)
                assert y.dtype == dtype and (y == bias).all()


def test_B08_none_in_the_middle(tier):
    b, scales, _ = weights(0, 3, 64, 4, 32)
    a, bias = normal(1, (2, 64)), normal(2, (3,))
    assert_equal_bits(qkernels.matmul_nbits(a, b, scales, None, None, bias, K=64, N=3, block_size=32),
                      qkernels.matmul_nbits(a, b, scales, bias=bias, K=64, N=3, block_size=32))


def test_B09_int8_activations_only_on_request(tier):
    b = np.full((1, 1, 16), 0x99, np.uint8)
    b[0, 0, 0] = 0x98
    a = np.float32([[1000] + [3] * 31])
    call = lambda **options: float(qkernels.matmul_nbits(a, b, np.ones((1, 1), np.float32), K=32, N=1, block_size=32, **options)[0, 0])
    assert call() == call(accuracy_level=0) == call(accuracy_level=1) == call(accuracy_level=2) == call(accuracy_level=3) == 93
    # the stated tolerance: half a step of the block's largest, for each of the 31 activations that count
    assert abs(call(accuracy_level=4) - 93) <= 31 * 0.5 * 1000 / 127
    assert abs(call(activations="int16") - 93) <= 31 * 0.5 * 1000 / 32512


def test_B10_empty_shapes_and_omitted_projections(tier):
    b, scales, _ = weights(0, 5, 32, 4, 32)
    form = dict(K=32, N=5, block_size=32)
    for lead in ((0,), (2, 0), (0, 3)):
        assert qkernels.matmul_nbits(np.zeros((*lead, 32), np.float32), b, scales, **form).shape == (*lead, 5)
    a, bias = normal(0, (2, 3, 32)), normal(1, (5,))
    for shape in ((0, 1, 16), (5, 0, 16), (5, 1, 0), (0, 0, 0)):
        empty = np.zeros(shape, np.uint8)
        assert qkernels.matmul_nbits(a, empty, np.zeros(0, np.float32), **form).tolist() == np.zeros((2, 3, 5)).tolist()
        assert_equal_bits(qkernels.matmul_nbits(a, empty, np.zeros(0, np.float32), bias=bias, **form), np.broadcast_to(bias, (2, 3, 5)))
    with pytest.raises(ValueError, match=r"matmul_nbits: b: expected shape \(5, 1, 16\), or zeros"):
        qkernels.matmul_nbits(a, np.zeros((4, 0, 16), np.uint8), np.zeros(0, np.float32), **form)


@pytest.mark.parametrize("activations", ["f32", "int16", "int8"])
def test_B10_no_inputs_or_no_outputs(activations, tier):
    for n, k in ((4, 0), (0, 32), (0, 0)):
        w = np.ones((n, k), np.float32)
        for packed in (qkernels.PackedNBits.quantize(w), qkernels.PackedInt8Rows(w)):
            assert packed(np.ones((2, k), np.float32), activations=activations).tolist() == np.zeros((2, n)).tolist()
    assert qkernels.PackedNBits.__new__(qkernels.PackedNBits).unpack()[0].size == 0


def test_B12_no_pair_sum_saturates(tier):
    """Largest codes with largest digits, all of one sign: exact integers come out."""
    for bits, code in ((2, 0xFF), (4, 0xFF), (8, 0xFF), (2, 0x00), (4, 0x00), (8, 0x00)):
        value = (code & (1 << bits) - 1) - (1 << (bits - 1))
        b = np.full((1, 1, 32 * bits // 8), code, np.uint8)
        for a in (np.full((3, 32), 127, np.float32), np.full((3, 32), -127, np.float32)):
            y = qkernels.matmul_nbits(a, b, np.ones((1, 1), np.float32), K=32, N=1, block_size=32, bits=bits, activations="int8")
            assert y.tolist() == [[float(a[0, 0]) * value * 32]] * 3
        for digit in (32512, -32512, 127 * 256 + 127, -128):
            a = np.full((3, 32), digit, np.float32)
            a[:, 0] = 32512
            y = qkernels.matmul_nbits(a, b, np.ones((1, 1), np.float32), K=32, N=1, block_size=32, bits=bits, activations="int16")
            assert y.tolist() == [[float(np.float32(a[0].clip(-32512, 32512).sum() * value))]] * 3 if abs(digit) <= 32512 else True


@pytest.mark.parametrize("activations", ["f32", "int16", "int8"])
def test_not_finite_activations_stay_in_their_row(activations, tier):
    w = qkernels.PackedNBits.quantize(normal(0, (20, 64)))
    x = normal(1, (3, 64))
    clean = w(x, activations=activations)
    for value in (np.nan, np.inf, -np.inf):
        x[1, 40] = value
        y = w(x, activations=activations)
        assert not np.isfinite(y[1]).any()
        assert_equal_bits(y[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("activations", ["int16", "int8"])
def test_tiny_and_huge_activations(activations, tier):
    w = qkernels.PackedNBits.quantize(np.ones((1, 32), np.float32))
    for value in (1e-38, 1e-30, 1e30, 1e36):
        y = float(w(np.full((1, 32), value, np.float32), activations=activations)[0, 0])
        assert abs(y - 32 * value) <= 32 * value * 2e-2 + 32 * 2.0**-127, (value, y)
    assert w(np.full((1, 32), 1e-45, np.float32), activations=activations).tolist() == [[0]]
    assert w(np.zeros((1, 32), np.float32), activations=activations).tolist() == [[0]]


def test_memory_stays_compressed():
    for bits in (2, 4, 8):
        for block_size in (16, 32, 128):
            for zeros in ("none", "packed", "float"):
                for dtype in FLOAT_DTYPES:
                    b, scales, z = weights(0, 512, 1024, bits, block_size, zeros, dtype)
                    serialized = b.nbytes + scales.nbytes + (0 if z is None else z.nbytes)
                    packed = qkernels.PackedNBits(b, scales, z, K=1024, N=512, bits=bits, block_size=block_size)
                    assert packed.nbytes <= 1.25 * serialized
                    again = packed.unpack()
                    assert_equal_bits(again[0], b)
                    assert_equal_bits(again[1].astype(dtype), scales)
                    if z is not None:
                        assert_equal_bits(again[2], z)


def test_scales_born_in_bfloat16_take_16_bits():
    w = normal(0, (32, 64), BF16)
    packed = qkernels.PackedNBits.quantize(w)
    assert packed.unpack()[1].dtype == BF16 and packed.nbytes == 32 * 64 // 2 + 32 * 2 * 2
    assert qkernels.PackedNBits.quantize(normal(0, (32, 64))).unpack()[1].dtype == np.float32


@pytest.mark.parametrize("activations", ["f32", "int16", "int8"])
def test_any_layout(activations, tier):
    b, scales, zeros = weights(0, 24, 64, 4, 32, "packed")
    a = normal(1, (6, 64))
    form = dict(K=64, N=24, block_size=32, activations=activations)
    expected = qkernels.matmul_nbits(a, b, scales, zeros, **form)
    for name, v in layouts(a):
        assert_equal_bits(qkernels.matmul_nbits(v, b, scales, zeros, **form), expected, name)
    for name, v in layouts(b):
        assert_equal_bits(qkernels.matmul_nbits(a, v, scales, zeros, **form), expected, name)
    for name, v in layouts(scales):
        assert_equal_bits(qkernels.matmul_nbits(a, b, v, zeros, **form), expected, name)
    for name, v in layouts(zeros):
        assert_equal_bits(qkernels.matmul_nbits(a, b, scales, v, **form), expected, name)
    for name, v in layouts(normal(2, (24, 64))):
        assert_equal_bits(qkernels.quantize_nbits(v)[0], qkernels.quantize_nbits(normal(2, (24, 64)))[0], name)
    out = np.empty((6, 24), np.float32)
    assert qkernels.matmul_nbits(a, b, scales, zeros, out=out, **form) is out
    assert_equal_bits(out, expected)


def test_packed_is_one_layout_for_all_tiers():
    w = normal(0, (40, 100))
    reference = None
    for isa in qkernels.available_isa():
        with qkernels.use_isa(isa):
            tiles, scales, zeros = qkernels.PackedNBits.quantize(w, symmetric=False).buffers
            assert not tiles.flags.writeable and not scales.flags.writeable
            reference = reference or (tiles, scales, zeros)
            for x, y in zip((tiles, scales, zeros), reference, strict=True):
                assert_equal_bits(x, y)


A, B, S = np.ones((1, 32), np.float32), np.zeros((2, 1, 16), np.uint8), np.ones((2, 1), np.float32)


@pytest.mark.parametrize("call, error, message", [
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=32, bits=3), ValueError, "matmul_nbits: bits: expected 2, 4 or 8, got 3"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=24), ValueError, "block_size: expected a power of two, at least 16, got 24"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=8), ValueError, "block_size: expected a power of two, at least 16, got 8"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=32, accuracy_level=5), ValueError, "accuracy_level: expected 0 to 4, got 5"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=32, weight_prepacked=1), ValueError, "weight_prepacked: expected 0, got 1"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=32, activations="int4"), ValueError,
     "activations: expected one of f32, int8, int16, got 'int4'"),
    (lambda: qkernels.matmul_nbits(A[:, :31], B, S, K=32, N=2, block_size=32), ValueError, r"matmul_nbits: a: expected shape \(..., 32\), got \(1, 31\)"),
    (lambda: qkernels.matmul_nbits(A, B[:1], S, K=32, N=2, block_size=32), ValueError, r"matmul_nbits: b: expected shape \(2, 1, 16\), got \(1, 1, 16\)"),
    (lambda: qkernels.matmul_nbits(A, B.astype(np.int8), S, K=32, N=2, block_size=32), TypeError, "matmul_nbits: b: expected dtype uint8, got int8"),
    (lambda: qkernels.matmul_nbits(A.astype(int), B, S, K=32, N=2, block_size=32), TypeError, "matmul_nbits: a: expected dtype float32 or"),
    (lambda: qkernels.matmul_nbits(A, B, S, np.zeros((2, 1), np.int32), K=32, N=2, block_size=32), TypeError, "zero_points: expected dtype uint8, float32"),
    (lambda: qkernels.matmul_nbits(A, B, S, bias=np.ones(3, np.float32), K=32, N=2, block_size=32), ValueError, r"bias: expected shape \(2,\), got \(3,\)"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=0, N=2, block_size=32), ValueError, "K: expected at least 1, got 0"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32.0, N=2, block_size=32), TypeError, "K: expected an int, got float"),
    (lambda: qkernels.matmul_nbits(A, B, S, K=32, N=2, block_size=32, out=np.empty((1, 2), np.float64)), TypeError, "out: expected dtype float32, got float64"),
    (lambda: qkernels.matmul_nbits(A, B, None, K=32, N=2, block_size=32), TypeError, "scales: expected an array, got None"),
    (lambda: qkernels.quantize_nbits(np.float32([[np.nan] * 32])), ValueError, "quantize_nbits: w: expected finite weights"),
    (lambda: qkernels.quantize_nbits(np.float32([[np.inf] * 32]), symmetric=False), ValueError, "quantize_nbits: w: expected finite weights"),
    (lambda: qkernels.quantize_nbits(np.ones(32, np.float32)), ValueError, r"quantize_nbits: w: expected 2 dimensions \(N, K\), got shape \(32,\)"),
    (lambda: qkernels.quantize_nbits([A, A]), TypeError, "quantize_nbits: w: expected an array, got a sequence"),
    (lambda: qkernels.PackedNBits.quantize([A, A[:, :16]]), ValueError, "w: expected arrays of one dtype and K to stack"),
    (lambda: qkernels.PackedInt8Rows(np.float32([[1, np.inf]])), ValueError, "PackedInt8Rows: w: expected finite weights"),
    (lambda: qkernels.PackedInt8Rows(A)(A.T), ValueError, r"PackedInt8Rows: x: expected shape \(..., 32\), got \(32, 1\)"),
    (lambda: qkernels.PackedNBits.quantize(A).take_rows([1]), IndexError, "PackedNBits.take_rows: indices: expected -1 to 0, got 1"),
    (lambda: qkernels.PackedNBits.quantize(A).take_rows([0.5]), TypeError, "PackedNBits.take_rows: indices: expected an integer dtype, got float64"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_scales_and_zero_points_of_any_float_type(bits, dtype, tier):
    """float zero points of a's type as in the schema; scales in float32 beside activations of 16 bits."""
    b, scales, zeros = weights(0, 20, 100, bits, 32, "float")
    a = normal(1, (3, 100), dtype)
    form = dict(K=100, N=20, block_size=32, bits=bits)
    for scale_dtype in FLOAT_DTYPES:
        for zero_dtype in FLOAT_DTYPES:
            s, z = scales.astype(scale_dtype), zeros.astype(zero_dtype)
            y = qkernels.matmul_nbits(a, b, s, z, **form)
            assert y.dtype == dtype
            assert_equal_bits(y, qkernels.matmul_nbits(a, b, s.astype(np.float32), z.astype(np.float32), **form))
            dense = np.float64(dequantize(b, s, z, None, 100, 20, bits, 32))
            exact = np.float64(a) @ dense.T
            bound = np.abs(np.float64(a)) @ np.abs(dense).T * 50 * 2.0**-24 + np.abs(exact) * HALF_ULP[np.dtype(dtype)] * 1.01
            assert (np.abs(np.float64(y) - exact) <= bound).all()


def test_block_larger_than_k(tier):
    for block_size in (32, 64, 1024):
        b, scales, zeros = weights(0, 5, 20, 2, block_size, "packed")
        y = qkernels.matmul_nbits(np.eye(20, dtype=np.float32), b, scales, zeros, K=20, N=5, bits=2, block_size=block_size)
        np.testing.assert_array_equal(y, dequantize(b, scales, zeros, None, 20, 5, 2, block_size).T)  # a zero's sign is lost in a sum


@pytest.mark.parametrize("isa", qkernels.available_isa())
def test_scales_that_bfloat16_does_not_hold_stay_in_float32(isa):
    w = np.zeros((3, 64), ml_dtypes.bfloat16)
    w[0, 3], w[1, 40] = 1.5, 3 * 2.0**-133  # an eighth of this subnormal number has no bfloat16
    with qkernels.use_isa(isa):
        packed = qkernels.PackedNBits.quantize(w)
    _, scales, _ = packed.unpack()
    assert scales.dtype == np.float32
    np.testing.assert_array_equal(scales, np.float32([[1.5 / -8, -0.0], [-0.0, 3 * 2.0**-133 / -8], [-0.0, -0.0]]))
    w[1, 40] = 0
    assert qkernels.PackedNBits.quantize(w).unpack()[1].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("k", [31, 32, 96, 109])
def test_packing_gives_back_every_code(bits, k):
    n, blocks = 21, -(-k // 32)
    codes = np.random.default_rng(k).integers(0, 1 << bits, (n, k), np.uint8)
    w = qkernels.PackedNBits.from_codes(codes, np.ones((n, blocks), np.float32), axis=1, bits=bits)
    same = qkernels.PackedNBits(*w.unpack(), K=k, N=n, bits=bits)
    np.testing.assert_array_equal(same.buffers[0], w.buffers[0])
    np.testing.assert_array_equal(same.take_rows(np.arange(n)), codes.astype(np.float32))
    signed = qkernels.PackedNBits.from_codes((codes.astype(np.int16) - (1 << bits >> 1)).astype({2: ml_dtypes.int2, 4: ml_dtypes.int4, 8: np.int8}[bits]),
                                             np.ones((n, blocks), np.float32), axis=1)
    np.testing.assert_array_equal(signed.take_rows(np.arange(n)), codes.astype(np.float32) - (1 << bits >> 1))
