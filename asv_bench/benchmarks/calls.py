"""What a call costs beside its work: kernels on 8 elements with ``out=``, beside numpy.add on as many."""
import operator

import numpy as np

import qkernels

from .common import assert_tier

X, W, SQUARE = np.ones((1, 8), np.float32), np.ones(8, np.float32), np.ones((8, 8), np.float32)
TOKEN, ROTATED, ANGLES, POSITION, POSITIONS = (np.ones((1, 1, 8), np.float32), np.empty((1, 1, 8), np.float32), np.ones((4, 4), np.float32),
                                               np.zeros(1, np.int64), np.zeros((1, 1), np.int64))
CODES, SCALE, ZERO = np.ones((1, 8), np.int8), np.array(0.5, np.float32), np.array(0, np.int8)
UNARY = ("sigmoid", "silu", "swish", "exp", "log", "tanh", "erf", "gelu", "sqrt", "neg", "reciprocal", "softplus", "sin", "cos")
BINARY = ("add", "sub", "mul", "div", "pow", "silu_mul", "swiglu")


def on(name, a, b=None, c=None, like=X):
    """A call, written as a user would, into an array like `like`; name is that of a function of qkernels or of its contrib."""
    run, out = operator.attrgetter(name)(qkernels), np.empty_like(like)
    if c is not None:
        return lambda: run(a, b, c, out=out)
    return (lambda: run(a, out=out)) if b is None else (lambda: run(a, b, out=out))


OUT, SUM = np.empty_like(X), np.empty_like(X)
MATRIX, BLOCKS = qkernels.PackedMatrix(SQUARE, trans_b=True), qkernels.PackedNBits.quantize(SQUARE)
ONE, HALF = X[:, :1], X.astype(np.float16)
CALLS = {name: ("elementwise", on(name, X)) for name in UNARY} | {name: ("elementwise", on(name, X, X)) for name in BINARY}
CALLS |= {name: ("elementwise", on(name, X)) for name in ("contrib.gelu", "contrib.quick_gelu", "contrib.fast_gelu")}
CALLS |= {name: ("softmax", on(name, X)) for name in ("softmax", "log_softmax")}
CALLS |= {name: ("reduction", on(name, X, (1,), like=ONE)) for name in ("reduce_sum", "reduce_mean", "reduce_max")}
CALLS |= {
    "contrib.bias_gelu": ("elementwise", on("contrib.bias_gelu", X, W)),
    "rms_normalization": ("normalization", on("rms_normalization", X, W)),
    "simplified_layer_normalization": ("normalization", on("simplified_layer_normalization", X, W)),
    "skip_simplified_layer_normalization": ("normalization", on("skip_simplified_layer_normalization", X, X, W)),
    "skip_simplified_layer_normalization, sum": ("normalization",
        lambda: qkernels.skip_simplified_layer_normalization(X, X, W, outputs=(0, 3), out=OUT, sum_out=SUM)),
    "layer_normalization": ("normalization", on("layer_normalization", X, W, W)),
    "rotary_embedding": ("rotary", lambda: qkernels.rotary_embedding(TOKEN, ANGLES, ANGLES, POSITIONS, num_heads=1, out=ROTATED)),
    "gather": ("layout", on("gather", X, POSITION)),
    "cast": ("layout", on("cast", X, np.float16, like=HALF)),
    "quantize_linear": ("quantization", on("quantize_linear", X, SCALE, ZERO, like=CODES)),
    "dequantize_linear": ("quantization", on("dequantize_linear", CODES, SCALE, ZERO)),
    "argmax": ("sampling", lambda: qkernels.argmax(X, axis=-1)),
    "matmul": ("matmul", on("matmul", X, SQUARE)),
    "gemm": ("matmul", on("gemm", X, SQUARE)),
    "PackedMatrix": ("matmul", lambda: MATRIX(X, out=OUT)),
    "PackedNBits": ("matmul_nbits", lambda: BLOCKS(X, out=OUT)),
    "PackedNBits, int16": ("matmul_nbits", lambda: BLOCKS(X, out=OUT, activations="int16")),
}


class TinyCall:
    kernels = ("rms_normalization", "rotary_embedding", "softmax", "silu_mul", "add", "reduce_sum", "gather")  # and all others in CALLS
    params = [list(CALLS), ["qkernels", "numpy"]]
    param_names = ["function", "who"]

    def setup(self, function, who):
        if who == "numpy":
            self.call = lambda: np.add(X, X, out=OUT)
        else:
            family, self.call = CALLS[function]
            assert_tier(family)
        self.call()

    def time_call(self, function, who):
        self.call()
