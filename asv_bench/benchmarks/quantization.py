"""Values to codes and back, at the size of a Qwen3-0.6B projection."""
import ml_dtypes
import numpy as np

import qkernels

from .common import QWEN3, assert_tier, gigabytes_per_second, normal, onnxruntime_node

S = QWEN3["0.6B"]
CODES = {"int8": np.int8, "uint8": np.uint8, "float8": ml_dtypes.float8_e4m3fn}


class _Codes:
    params = [list(CODES), ["per tensor", "per row"], ["qkernels", "numpy", "onnxruntime"]]
    param_names = ["codes", "scales", "who"]

    def prepare(self, codes, scales, who):
        if who == "qkernels":
            assert_tier("quantization")
        elif codes == "float8":
            raise NotImplementedError("integers only")
        self.x = normal(S.hidden, S.intermediate)
        self.scale = np.full(S.hidden, 0.03, np.float32) if scales == "per row" else np.float32(0.03)
        self.scale = np.asarray(self.scale)
        self.zero = np.zeros(self.scale.shape, CODES[codes])
        self.wide = self.scale[:, None] if self.scale.ndim else self.scale


class QuantizeLinear(_Codes):
    kernels = ("quantize_linear",)

    def setup(self, codes, scales, who):
        self.prepare(codes, scales, who)
        x, scale, zero, wide = self.x, self.scale, self.zero, self.wide
        if who == "qkernels":
            self.call = lambda: qkernels.quantize_linear(x, scale, zero, axis=0)
        elif who == "numpy":
            info = np.iinfo(zero.dtype)
            self.call = lambda: np.clip(np.rint(x / wide), info.min, info.max).astype(zero.dtype)
        else:
            self.call = onnxruntime_node("", "QuantizeLinear", {"x": x, "scale": scale, "zero": zero}, result=zero.dtype, axis=0)
        self.call()

    def time_quantize(self, codes, scales, who):
        self.call()

    def track_gigabytes_per_second(self, codes, scales, who):
        return gigabytes_per_second(self.call, self.x.nbytes + self.x.size)
    track_gigabytes_per_second.unit = "GB/s"


class DequantizeLinear(_Codes):
    kernels = ("dequantize_linear",)

    def setup(self, codes, scales, who):
        self.prepare(codes, scales, who)
        scale, zero, wide = self.scale, self.zero, self.wide
        x = qkernels.quantize_linear(self.x, scale, zero, axis=0)
        if who == "qkernels":
            self.call = lambda: qkernels.dequantize_linear(x, scale, zero, axis=0)
        elif who == "numpy":
            self.call = lambda: x.astype(np.float32) * wide
        else:
            self.call = onnxruntime_node("", "DequantizeLinear", {"x": x, "scale": scale, "zero": zero}, result=np.float32, axis=0)
        self.call()

    def time_dequantize(self, codes, scales, who):
        self.call()

    def track_gigabytes_per_second(self, codes, scales, who):
        return gigabytes_per_second(self.call, self.x.nbytes + self.x.size)
    track_gigabytes_per_second.unit = "GB/s"
