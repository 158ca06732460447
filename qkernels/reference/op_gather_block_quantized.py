"""com.microsoft GatherBlockQuantized, version 1."""
import numpy as np
from onnx.reference.op_run import OpRun

from qkernels.reference.op_matmul_nbits import unpack_codes


class GatherBlockQuantized(OpRun):
    op_domain = "com.microsoft"

    def _run(self, data, indices, scales, zero_points=None, bits=None, block_size=None, gather_axis=None, quantize_axis=None):
        bits, block_size, gather_axis = 4 if bits is None else bits, 128 if block_size is None else block_size, gather_axis or 0
        axis = (1 if quantize_axis is None else quantize_axis) % data.ndim
        if data.dtype == np.uint8:
            data, zero = unpack_codes(data, bits, data.shape[-1] * 8 // bits), 1 << (bits - 1)
            if zero_points is not None:
                zero_points = unpack_codes(zero_points, bits, scales.shape[-1])
        else:
            zero = 0
        zeros = np.full(scales.shape, zero, np.float32) if zero_points is None else zero_points.astype(np.float32)
        spread = lambda v: np.repeat(v, block_size or data.shape[axis], axis).take(np.arange(data.shape[axis]), axis)
        dense = ((data.astype(np.float32) - spread(zeros)) * spread(scales.astype(np.float32))).astype(scales.dtype)
        size = dense.shape[gather_axis]
        outside = (indices < -size) | (indices >= size)
        y = np.take(dense, np.where(outside, 0, indices), gather_axis)
        y[(slice(None),) * (gather_axis % data.ndim) + (outside,)] = 0
        return (y,)
