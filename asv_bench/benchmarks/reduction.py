"""Sums, means and maxima of a prompt's hidden states, along rows and along columns."""
import numpy as np

import qkernels

from . import common
from .common import DTYPES, QWEN3, normal, onnxruntime_node, peer, torch_tensors


class Reduction(common.Compared):
    kernels = ("reduce_sum", "reduce_mean", "reduce_max")
    family = "reduction"
    params = [list(kernels), [0, 1], [1, 128, 512], list(DTYPES), common.Compared.THREADS, ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["function", "axis", "rows", "dtype", "threads", "who"]

    def array(self, rows, dtype):
        return normal(rows, QWEN3["0.6B"].hidden, dtype=dtype)

    def nbytes(self, function, axis, rows, dtype):
        return self.array(rows, dtype).nbytes

    def qkernels(self, function, axis, rows, dtype):
        x, run = self.array(rows, dtype), getattr(qkernels, function)
        out = run(x, (axis,))
        return lambda: run(x, (axis,), out=out)

    def numpy(self, function, axis, rows, dtype):
        x, run = self.array(rows, dtype), getattr(np, function.removeprefix("reduce_"))
        return lambda: run(x, axis=axis, keepdims=True)

    def torch(self, function, axis, rows, dtype):
        (x,) = torch_tensors(self.array(rows, dtype))
        run = getattr(peer("torch"), {"reduce_max": "amax"}.get(function) or function.removeprefix("reduce_"))
        return lambda: run(x, axis, keepdim=True)

    def onnxruntime(self, function, axis, rows, dtype):
        operator = f"Reduce{function.removeprefix('reduce_').capitalize()}"
        return onnxruntime_node("", operator, {"x": self.array(rows, dtype), "axes": np.array([axis])}, opset=20, bound=True, constants=["axes"])
