"""RMS normalization of rows of Qwen3-0.6B's and 4B's hidden size."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, onnxruntime_node, peer


class RMSNormalization:
    kernels = ("rms_normalization", "simplified_layer_normalization")
    params = [[1, 512], list(QWEN3), list(DTYPES), ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["rows", "model", "dtype", "who"]

    def setup(self, rows, model, dtype, who):
        n = QWEN3[model].hidden
        x, scale = normal(rows, n, dtype=dtype), normal(n, dtype=dtype, seed=1)
        self.nbytes = 2 * x.nbytes
        if who == "qkernels":
            assert_tier("normalization")
            out = np.empty_like(x)
            self.call = lambda: qkernels.rms_normalization(x, scale, out=out)
        elif who == "numpy":
            wide, g = x.astype(np.float32), scale.astype(np.float32)
            self.call = lambda: wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-5)) * g
        elif who == "torch":
            torch = peer("torch")
            convert = lambda a: torch.from_numpy(a.astype(np.float32)).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype])
            a, g = convert(x), convert(scale)
            self.call = lambda: torch.nn.functional.rms_norm(a, (n,), g, 1e-5)
        elif dtype == "f32":
            self.call = onnxruntime_node("", "SimplifiedLayerNormalization", {"x": x, "scale": scale}, constants=["scale"], axis=-1, epsilon=1e-5)
        else:
            raise NotImplementedError("float32 only")
        self.call()

    def time_normalization(self, rows, model, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, rows, model, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"


class SkipNormalization:
    kernels = ("skip_simplified_layer_normalization",)
    params = [[1, 512], list(QWEN3), ["qkernels", "onnxruntime"]]
    param_names = ["rows", "model", "who"]

    def setup(self, rows, model, who):
        n = QWEN3[model].hidden
        x, skip, gamma = normal(1, rows, n), normal(1, rows, n, seed=1), normal(n, seed=2)
        if who == "qkernels":
            assert_tier("normalization")
            y, total = np.empty_like(x), np.empty_like(x)
            self.call = lambda: qkernels.skip_simplified_layer_normalization(x, skip, gamma, epsilon=1e-6, outputs=(0, 3), out=y, sum_out=total)
        else:
            node = {"x": x, "skip": skip, "gamma": gamma}
            self.call = onnxruntime_node("com.microsoft", "SkipSimplifiedLayerNormalization", node, outputs=4, constants=["gamma"], epsilon=1e-5)
        self.call()

    def time_normalization(self, rows, model, who):
        self.call()


class LayerNormalization:
    kernels = ("layer_normalization",)
    params = [[1, 512], list(QWEN3), list(DTYPES), ["qkernels", "torch", "onnxruntime"]]
    param_names = ["rows", "model", "dtype", "who"]

    def setup(self, rows, model, dtype, who):
        n = QWEN3[model].hidden
        x, scale, bias = normal(rows, n, dtype=dtype), normal(n, dtype=dtype, seed=1), normal(n, dtype=dtype, seed=2)
        self.nbytes = 2 * x.nbytes
        if who == "qkernels":
            assert_tier("normalization")
            out = np.empty_like(x)
            self.call = lambda: qkernels.layer_normalization(x, scale, bias, out=out)
        elif who == "torch":
            torch = peer("torch")
            convert = lambda a: torch.from_numpy(a.astype(np.float32)).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype])
            a, g, b = convert(x), convert(scale), convert(bias)
            self.call = lambda: torch.nn.functional.layer_norm(a, (n,), g, b, 1e-5)
        elif dtype == "f32":
            self.call = onnxruntime_node("", "LayerNormalization", {"x": x, "scale": scale, "bias": bias}, constants=["scale", "bias"], axis=-1)
        else:
            raise NotImplementedError("float32 only")
        self.call()

    def time_normalization(self, rows, model, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, rows, model, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"
