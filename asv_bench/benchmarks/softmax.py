"""Softmax of attention's scores, of logits, and of experts."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, onnxruntime_node, peer

SHAPES = {"decode 16 x 4096": (16, 4096), "prefill 8192 x 512": (8192, 512), "logits": (1, QWEN3["0.6B"].vocabulary), "experts 512 x 128": (512, 128)}


class Softmax:
    kernels = ("softmax", "log_softmax")
    params = [list(kernels), list(SHAPES), list(DTYPES), ["qkernels", "torch", "onnxruntime"]]
    param_names = ["function", "shape", "dtype", "who"]

    def setup(self, function, shape, dtype, who):
        x = normal(*SHAPES[shape], dtype=dtype, scale=3)
        self.nbytes = 2 * x.nbytes
        if who == "qkernels":
            assert_tier("softmax")
            run, out = getattr(qkernels, function), np.empty_like(x)
            self.call = lambda: run(x, out=out)
        elif who == "torch":
            torch = peer("torch")
            t = torch.from_numpy(x.astype(np.float32)).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype])
            run = getattr(torch, function)
            self.call = lambda: run(t, -1)
        elif dtype == "f32":
            self.call = onnxruntime_node("", {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[function], {"x": x}, axis=-1)
        else:
            raise NotImplementedError("float32 only")
        self.call()

    def time_softmax(self, function, shape, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, function, shape, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"
