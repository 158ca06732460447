"""Normalization of rows of Qwen3-0.6B's and 4B's hidden size."""
import numpy as np

import qkernels

from . import common
from .common import DTYPES, QWEN3, normal, onnxruntime_node, peer, torch_tensors

ROWS = [1, 128, 512]


class RMSNormalization(common.Compared):
    kernels = ("rms_normalization", "simplified_layer_normalization")
    family = "normalization"
    params = [ROWS, list(QWEN3), list(DTYPES), common.Compared.THREADS, ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["rows", "model", "dtype", "threads", "who"]

    def arrays(self, rows, model, dtype):
        n = QWEN3[model].hidden
        return normal(rows, n, dtype=dtype), normal(n, dtype=dtype, seed=1)

    def nbytes(self, rows, model, dtype):
        return 2 * rows * QWEN3[model].hidden * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, *parameters):
        x, scale = self.arrays(*parameters)
        out = np.empty_like(x)
        return lambda: qkernels.rms_normalization(x, scale, out=out)

    def numpy(self, *parameters):
        x, scale = (a.astype(np.float32) for a in self.arrays(*parameters))
        return lambda: x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * scale

    def torch(self, *parameters):
        x, scale = torch_tensors(*self.arrays(*parameters))
        run, shape = peer("torch").nn.functional.rms_norm, tuple(scale.shape)
        return lambda: run(x, shape, scale, 1e-5)

    def onnxruntime(self, *parameters):
        x, scale = self.arrays(*parameters)
        return onnxruntime_node("", "SimplifiedLayerNormalization", {"x": x, "scale": scale}, bound=True, constants=["scale"], axis=-1, epsilon=1e-5)


class SkipNormalization(common.Compared):
    kernels = ("skip_simplified_layer_normalization",)
    family = "normalization"
    params = [ROWS, list(QWEN3), list(DTYPES), common.Compared.THREADS, ["qkernels", "torch", "onnxruntime"]]
    param_names = ["rows", "model", "dtype", "threads", "who"]

    def arrays(self, rows, model, dtype):
        n = QWEN3[model].hidden
        return normal(1, rows, n, dtype=dtype), normal(1, rows, n, dtype=dtype, seed=1), normal(n, dtype=dtype, seed=2)

    def nbytes(self, rows, model, dtype):
        return 4 * rows * QWEN3[model].hidden * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, *parameters):
        x, skip, gamma = self.arrays(*parameters)
        y, total = np.empty_like(x), np.empty_like(x)
        return lambda: qkernels.skip_simplified_layer_normalization(x, skip, gamma, epsilon=1e-6, outputs=(0, 3), out=y, sum_out=total)

    def torch(self, *parameters):
        x, skip, gamma = torch_tensors(*self.arrays(*parameters))
        torch, shape = peer("torch"), tuple(gamma.shape)

        def run():
            total = x + skip
            return torch.nn.functional.rms_norm(total, shape, gamma, 1e-6), total
        return run

    def onnxruntime(self, *parameters):
        node = dict(zip(("x", "skip", "gamma"), self.arrays(*parameters), strict=True))
        return onnxruntime_node("com.microsoft", "SkipSimplifiedLayerNormalization", node, ["y", "", "", "sum"], bound=True, constants=["gamma"], epsilon=1e-6)


class LayerNormalization(common.Compared):
    kernels = ("layer_normalization",)
    family = "normalization"
    params = [ROWS, list(QWEN3), list(DTYPES), common.Compared.THREADS, ["qkernels", "torch", "onnxruntime"]]
    param_names = ["rows", "model", "dtype", "threads", "who"]

    def arrays(self, rows, model, dtype):
        n = QWEN3[model].hidden
        return normal(rows, n, dtype=dtype), normal(n, dtype=dtype, seed=1), normal(n, dtype=dtype, seed=2)

    def nbytes(self, rows, model, dtype):
        return 2 * rows * QWEN3[model].hidden * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, *parameters):
        x, scale, bias = self.arrays(*parameters)
        out = np.empty_like(x)
        return lambda: qkernels.layer_normalization(x, scale, bias, out=out)

    def torch(self, *parameters):
        x, scale, bias = torch_tensors(*self.arrays(*parameters))
        run, shape = peer("torch").nn.functional.layer_norm, tuple(scale.shape)
        return lambda: run(x, shape, scale, bias, 1e-5)

    def onnxruntime(self, *parameters):
        node = dict(zip(("x", "scale", "bias"), self.arrays(*parameters), strict=True))
        return onnxruntime_node("", "LayerNormalization", node, bound=True, constants=["scale", "bias"], axis=-1)
