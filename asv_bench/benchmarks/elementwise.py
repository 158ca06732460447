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


class Activations(common.Compared):
    """Activations of one operand, at a size for caches and one for memory."""

    OPERATORS = {"abs": "Abs", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign", "relu": "Relu", "clip": "Clip", "leaky_relu": "LeakyRelu",
                 "thresholded_relu": "ThresholdedRelu", "prelu": "PRelu", "elu": "Elu", "celu": "Celu", "selu": "Selu", "softsign": "Softsign", "mish": "Mish",
                 "hard_sigmoid": "HardSigmoid", "hard_swish": "HardSwish", "sigmoid": "Sigmoid", "swish": None, "exp": "Exp", "log": "Log", "tanh": "Tanh",
                 "erf": "Erf", "gelu": "Gelu", "softplus": "Softplus", "sin": "Sin", "cos": "Cos", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "neg": "Neg"}
    TORCH = {"hard_sigmoid": "hardsigmoid", "hard_swish": "hardswish", "swish": "silu"}
    kernels = ("abs", "floor", "ceil", "round", "sign", "relu", "clip", "leaky_relu", "thresholded_relu", "prelu", "elu", "celu", "selu", "softsign", "mish",
               "hard_sigmoid", "hard_swish", "sigmoid", "swish", "exp", "log", "tanh", "erf", "gelu", "softplus", "sin", "cos", "sqrt", "reciprocal", "neg")
    family = "elementwise"
    params = [list(kernels), [1 << 10, 1 << 20, 1 << 26], list(DTYPES), common.Compared.THREADS, ["qkernels", "torch", "onnxruntime"]]
    param_names = ["function", "elements", "dtype", "threads", "who"]

    def arrays(self, function, elements, dtype):
        x = normal(elements, dtype=dtype)
        x = np.abs(x) if function in ("log", "sqrt") else x
        ends = [np.asarray(v, x.dtype) for v in (-1, 1)]
        return [x, *(ends if function == "clip" else [normal(1, dtype=dtype)] if function == "prelu" else [])]

    def nbytes(self, function, elements, dtype):
        return 2 * elements * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, function, elements, dtype):
        arrays, run = self.arrays(function, elements, dtype), getattr(qkernels, function)
        out = np.empty_like(arrays[0])
        return lambda: run(*arrays, out=out)

    def torch(self, function, elements, dtype):
        torch = peer("torch")
        x, *more = torch_tensors(*self.arrays(function, elements, dtype))
        f = torch.nn.functional
        own = {"clip": lambda x: torch.clamp(x, -1, 1), "thresholded_relu": lambda x: f.threshold(x, 1.0, 0.0), "prelu": lambda x: f.prelu(x, *more)}
        name = self.TORCH.get(function, function)
        run = own.get(function) or getattr(f, name, None) or getattr(torch, name)
        return lambda: run(x)

    def onnxruntime(self, function, elements, dtype):
        if self.OPERATORS[function] is None:
            raise NotImplementedError("no kernel of its own in ONNX Runtime")
        inputs = dict(zip("xab", self.arrays(function, elements, dtype), strict=False))
        return onnxruntime_node("", self.OPERATORS[function], inputs, opset=20, bound=True)


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
