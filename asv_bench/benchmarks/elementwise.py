"""Sums, products and SiLU at the sizes of Qwen3-0.6B."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, onnxruntime_node, peer

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


TORCH_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class Functions:
    """Functions of single elements; SiLU's product under its ONNX name."""

    kernels = ("div", "pow", "neg", "sqrt", "exp", "log", "sin", "cos", "tanh", "erf", "reciprocal", "softplus", "gelu", "swish", "swiglu")
    params = [list(kernels), [1, 512], list(DTYPES), ["qkernels", "torch", "onnxruntime"]]
    param_names = ["function", "rows", "dtype", "who"]
    timeout = 120

    def setup(self, function, rows, dtype, who):
        two = function in ("div", "pow", "swiglu")
        arrays = [np.abs(normal(rows, QWEN3["0.6B"].intermediate, dtype=dtype, seed=seed)) for seed in range(2 if two else 1)]
        self.nbytes = (len(arrays) + 1) * arrays[0].nbytes
        if who == "qkernels":
            assert_tier("elementwise")
            run, out = getattr(qkernels, function), np.empty_like(arrays[0])
            self.call = lambda: run(*arrays, out=out)
        elif who == "torch":
            torch = peer("torch")
            tensors = [torch.from_numpy(a.astype(np.float32)).to(getattr(torch, TORCH_TYPES[dtype])) for a in arrays]
            f = torch.nn.functional
            run = {"softplus": f.softplus, "gelu": f.gelu, "swish": f.silu, "swiglu": lambda a, b: f.silu(a) * b}.get(function) or getattr(torch, function)
            self.call = lambda: run(*tensors)
        elif dtype != "f32" or function in ("swish", "swiglu"):
            raise NotImplementedError("float32 operators of opset 20 only")
        else:
            self.call = onnxruntime_node("", function.capitalize(), dict(zip("ab", arrays, strict=False)), opset=20)
        self.call()

    def time_functions(self, function, rows, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, function, rows, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"


class Gelu:
    """The GELU family of com.microsoft."""

    kernels = ("contrib.gelu", "quick_gelu", "bias_gelu", "fast_gelu")
    OPERATORS = {"contrib.gelu": "Gelu", "quick_gelu": "QuickGelu", "bias_gelu": "BiasGelu", "fast_gelu": "FastGelu"}
    params = [list(kernels), [1, 512], ["qkernels", "onnxruntime"]]
    param_names = ["function", "rows", "who"]

    def setup(self, function, rows, who):
        x = normal(rows, QWEN3["0.6B"].intermediate)
        bias = [normal(x.shape[1], seed=1)] if function in ("bias_gelu", "fast_gelu") else []
        if who == "qkernels":
            assert_tier("elementwise")
            run, out = getattr(qkernels.contrib, function.split(".")[-1]), np.empty_like(x)
            self.call = lambda: run(x, *bias, out=out)
        else:
            self.call = onnxruntime_node("com.microsoft", self.OPERATORS[function], dict(zip("xb", [x, *bias], strict=False)), constants=["b"] if bias else ())
        self.call()

    def time_gelu(self, function, rows, who):
        self.call()
