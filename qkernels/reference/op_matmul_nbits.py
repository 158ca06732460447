"""com.microsoft MatMulNBits, version 1."""
import numpy as np
from onnx.reference.op_run import OpRun


def unpack_codes(packed, bits, count):
    """The last axis of bytes as codes of 2, 4 or 8 bits, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)[..., :count]


def dequantize(b, scales, zero_points, g_idx, k, n, bits, block_size):
    """Float32 weights (N, K)."""
    blocks = -(-k // block_size)
    codes = unpack_codes(b.reshape(n, -1), bits, k).astype(np.float32)
    if zero_points is None:
        zeros = np.full((n, blocks), 1 << (bits - 1), np.float32)
    elif zero_points.dtype == np.uint8:
        zeros = unpack_codes(zero_points.reshape(n, -1), bits, blocks).astype(np.float32)
    else:
        zeros = zero_points.reshape(n, blocks).astype(np.float32)
    group = np.arange(k) // block_size if g_idx is None else g_idx[:k]
    return (codes - zeros[:, group]) * scales.reshape(n, blocks).astype(np.float32)[:, group]


class MatMulNBits(OpRun):
    op_domain = "com.microsoft"

    def _run(self, a, b, scales, zero_points=None, g_idx=None, bias=None, K=None, N=None, bits=None, block_size=None, accuracy_level=None,
             weight_prepacked=None):
        if b.size == 0:
            y = np.zeros((*a.shape[:-1], N), np.float32)
        else:
            y = a.astype(np.float32) @ dequantize(b, scales, zero_points, g_idx, K, N, 4 if bits is None else bits, block_size).T
        if bias is not None:
            y = y + bias.astype(np.float32)
        return (y.astype(a.dtype),)
