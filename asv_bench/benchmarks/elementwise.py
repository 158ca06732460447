"""Arithmetic and functions of single elements, at the inner sizes of Qwen3-0.6B and 4B."""
import numpy as np

import qkernels

from . import common
from .common import DTYPES, QWEN3, normal, onnxruntime_node, peer, torch_tensors

ROWS = [1, 128, 512]
TWO = {"add", "sub", "mul", "silu_mul", "div", "pow", "swiglu"}
LOGISTIC = lambda x: 1 / (1 + np.exp(-x))
NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "sigmoid": LOGISTIC, "silu": lambda x: x * LOGISTIC(x),
         "silu_mul": lambda x, y: x * LOGISTIC(x) * y}


def arrays_for(function, rows, model, dtype, positive=False):
    arrays = [normal(rows, QWEN3[model].intermediate, dtype=dtype, seed=seed) for seed in range(2 if function in TWO else 1)]
    return [np.abs(a) for a in arrays] if positive else arrays


def bytes_of(function, rows, model, dtype):
    return (3 if function in TWO else 2) * rows * QWEN3[model].intermediate * np.dtype(DTYPES[dtype]).itemsize


class Elementwise(common.Compared):
    """Sums, products and SiLU."""

    kernels = ("add", "sub", "mul", "sigmoid", "silu", "silu_mul")
    family = "elementwise"
    params = [list(kernels), ROWS, list(QWEN3), list(DTYPES), common.Compared.THREADS, ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["function", "rows", "model", "dtype", "threads", "who"]
    nbytes = staticmethod(bytes_of)

    def qkernels(self, function, *parameters):
        arrays, run = arrays_for(function, *parameters), getattr(qkernels, function)
        out = np.empty_like(arrays[0])
        return lambda: run(*arrays, out=out)

    def numpy(self, function, *parameters):
        arrays, run = arrays_for(function, *parameters), NUMPY[function]
        return lambda: run(*arrays)

    def torch(self, function, *parameters):
        tensors, torch = torch_tensors(*arrays_for(function, *parameters)), peer("torch")
        silu = torch.nn.functional.silu
        run = {"silu": silu, "silu_mul": lambda a, b: silu(a) * b}.get(function) or getattr(torch, function)
        return lambda: run(*tensors)

    def onnxruntime(self, function, *parameters):
        arrays = arrays_for(function, *parameters)
        if function in ("silu", "silu_mul"):  # QuickGelu is its fastest form; the product is a node of its own there
            then = {"then": ("Mul", "b")} if function == "silu_mul" else {}
            return onnxruntime_node("com.microsoft", "QuickGelu", dict(zip("ab", arrays, strict=False)), bound=True, alpha=1.0, **then)
        return onnxruntime_node("", function.capitalize(), dict(zip("ab", arrays, strict=False)), opset=20, bound=True)


class Functions(common.Compared):
    """Functions of single elements; SiLU's product under its ONNX name."""

    kernels = ("div", "pow", "neg", "sqrt", "exp", "log", "sin", "cos", "tanh", "erf", "reciprocal", "softplus", "gelu", "swish", "swiglu")
    family = "elementwise"
    params = [list(kernels), ROWS, list(DTYPES), common.Compared.THREADS, ["qkernels", "torch", "onnxruntime"]]
    param_names = ["function", "rows", "dtype", "threads", "who"]

    def arrays(self, function, rows, dtype):
        return arrays_for(function, rows, "0.6B", dtype, positive=function in ("pow", "sqrt", "log"))

    def nbytes(self, function, rows, dtype):
        return bytes_of(function, rows, "0.6B", dtype)

    def qkernels(self, function, rows, dtype):
        arrays, run = self.arrays(function, rows, dtype), getattr(qkernels, function)
        out = np.empty_like(arrays[0])
        return lambda: run(*arrays, out=out)

    def torch(self, function, rows, dtype):
        tensors, torch = torch_tensors(*self.arrays(function, rows, dtype)), peer("torch")
        f = torch.nn.functional
        run = {"softplus": f.softplus, "gelu": f.gelu, "swish": f.silu, "swiglu": lambda a, b: f.silu(a) * b}.get(function) or getattr(torch, function)
        return lambda: run(*tensors)

    def onnxruntime(self, function, rows, dtype):
        if function in ("swish", "swiglu"):
            raise NotImplementedError("no kernel of its own in ONNX Runtime")
        return onnxruntime_node("", function.capitalize(), dict(zip("ab", self.arrays(function, rows, dtype), strict=False)), opset=20, bound=True)


class Gelu(common.Compared):
    """The GELU family of com.microsoft."""

    kernels = ("contrib.gelu", "quick_gelu", "bias_gelu", "fast_gelu")
    OPERATORS = {"contrib.gelu": "Gelu", "quick_gelu": "QuickGelu", "bias_gelu": "BiasGelu", "fast_gelu": "FastGelu"}
    family = "elementwise"
    params = [list(kernels), ROWS, list(DTYPES), common.Compared.THREADS, ["qkernels", "onnxruntime"]]
    param_names = ["function", "rows", "dtype", "threads", "who"]

    def arrays(self, function, rows, dtype):
        x = normal(rows, QWEN3["0.6B"].intermediate, dtype=dtype)
        return [x, normal(x.shape[1], dtype=dtype, seed=1)] if function in ("bias_gelu", "fast_gelu") else [x]

    def nbytes(self, function, rows, dtype):
        return bytes_of(function, rows, "0.6B", dtype)

    def qkernels(self, function, rows, dtype):
        arrays, run = self.arrays(function, rows, dtype), getattr(qkernels.contrib, function.split(".")[-1])
        out = np.empty_like(arrays[0])
        return lambda: run(*arrays, out=out)

    def onnxruntime(self, function, rows, dtype):
        inputs = dict(zip("xb", self.arrays(function, rows, dtype), strict=False))
        return onnxruntime_node("com.microsoft", self.OPERATORS[function], inputs, bound=True, constants=["b"] if "b" in inputs else ())
