"""Sums, products and SiLU at the sizes of Qwen3-0.6B."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, peer

FUNCTIONS = {"add": 2, "sub": 2, "mul": 2, "sigmoid": 1, "silu": 1, "silu_mul": 2}
EXP = lambda x: 1 / (1 + np.exp(-x))
NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "sigmoid": EXP, "silu": lambda x: x * EXP(x), "silu_mul": lambda x, y: x * EXP(x) * y}


class Elementwise:
    kernels = ("add", "sub", "mul", "sigmoid", "silu", "silu_mul")
    params = [list(kernels), [1, 512], list(DTYPES), ["qkernels", "numpy", "torch"]]
    param_names = ["function", "rows", "dtype", "who"]

    def setup(self, function, rows, dtype, who):
        arrays = [normal(rows, QWEN3["0.6B"].intermediate, dtype=dtype, seed=seed) for seed in range(FUNCTIONS[function])]
        self.nbytes = (len(arrays) + 1) * arrays[0].nbytes
        if who == "qkernels":
            assert_tier("elementwise")
            run, out = getattr(qkernels, function), np.empty_like(arrays[0])
            self.call = lambda: run(*arrays, out=out)
        elif who == "numpy":
            self.call = lambda: NUMPY[function](*arrays)
        else:
            torch = peer("torch")
            types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
            tensors = [torch.from_numpy(a.astype(np.float32)).to(types[dtype]) for a in arrays]
            silu_mul = lambda a, b: torch.nn.functional.silu(a) * b
            run = {"silu": torch.nn.functional.silu, "silu_mul": silu_mul}.get(function) or getattr(torch, function)
            self.call = lambda: run(*tensors)
        self.call()

    def time_elementwise(self, function, rows, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, function, rows, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"
