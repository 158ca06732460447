"""Softmax of attention's scores, of logits, and of experts."""
import numpy as np

import qkernels

from . import common
from .common import DTYPES, QWEN3, normal, onnxruntime_node, peer, torch_tensors

SHAPES = {"decode 16 x 4096": (16, 4096), "prefill 8192 x 512": (8192, 512), "prefill 32 x 128 x 128": (4096, 128), "decode 16 x 129": (16, 129),
          "logits": (1, QWEN3["0.6B"].vocabulary), "logits of 8": (8, QWEN3["0.6B"].vocabulary), "experts 512 x 128": (512, 128)}


class Softmax(common.Compared):
    kernels = ("softmax", "log_softmax")
    family = "softmax"
    params = [list(kernels), list(SHAPES), list(DTYPES), common.Compared.THREADS, ["qkernels", "torch", "onnxruntime"]]
    param_names = ["function", "shape", "dtype", "threads", "who"]

    def nbytes(self, function, shape, dtype):
        return 2 * int(np.prod(SHAPES[shape])) * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, function, shape, dtype):
        x = normal(*SHAPES[shape], dtype=dtype, scale=3)
        run, out = getattr(qkernels, function), np.empty_like(x)
        return lambda: run(x, out=out)

    def torch(self, function, shape, dtype):
        (x,) = torch_tensors(normal(*SHAPES[shape], dtype=dtype, scale=3))
        run = getattr(peer("torch"), function)
        return lambda: run(x, -1)

    def onnxruntime(self, function, shape, dtype):
        operator = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[function]
        return onnxruntime_node("", operator, {"x": normal(*SHAPES[shape], dtype=dtype, scale=3)}, bound=True, axis=-1)
