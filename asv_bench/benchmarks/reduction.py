"""Sums, means and maxima of a prompt's hidden states, along rows and along columns."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, onnxruntime_node, peer


class Reduction:
    kernels = ("reduce_sum", "reduce_mean", "reduce_max")
    params = [list(kernels), [0, 1], [1, 512], list(DTYPES), ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["function", "axis", "rows", "dtype", "who"]

    def setup(self, function, axis, rows, dtype, who):
        x, axes = normal(rows, QWEN3["0.6B"].hidden, dtype=dtype), np.array([axis])
        self.nbytes = x.nbytes
        short = function.removeprefix("reduce_")
        if who == "qkernels":
            assert_tier("reduction")
            run = getattr(qkernels, function)
            self.call = lambda: run(x, axes)
        elif who == "numpy":
            run = getattr(np, short)
            self.call = lambda: run(x, axis=axis, keepdims=True)
        elif who == "torch":
            torch = peer("torch")
            t = torch.from_numpy(x.astype(np.float32)).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype])
            run = torch.amax if short == "max" else getattr(torch, short)
            self.call = lambda: run(t, axis, keepdim=True)
        elif dtype == "f32":
            self.call = onnxruntime_node("", f"Reduce{short.capitalize()}", {"x": x, "axes": axes}, constants=["axes"], opset=20)
        else:
            raise NotImplementedError("float32 only")
        self.call()

    def time_reduction(self, function, axis, rows, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, function, axis, rows, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"
