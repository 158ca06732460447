"""What a call costs beside its work: kernels on 8 elements with ``out=``, beside numpy.add on as many."""
import numpy as np

import qkernels

from .common import assert_tier

X, W = np.ones((1, 8), np.float32), np.ones(8, np.float32)
TOKEN, ANGLES, POSITION = np.ones((1, 1, 8), np.float32), np.ones((4, 4), np.float32), np.zeros((1, 1), np.int64)
UNARY = ("sigmoid", "silu", "swish", "exp", "log", "tanh", "erf", "gelu", "sqrt", "neg", "reciprocal", "softplus", "sin", "cos")
BINARY = ("add", "sub", "mul", "div", "pow", "silu_mul", "swiglu")


def on(name, *arrays):
    run = getattr(qkernels, name)
    return lambda out: run(*arrays, out=out)


CALLS = {name: ("elementwise", on(name, X)) for name in UNARY} | {name: ("elementwise", on(name, X, X)) for name in BINARY}
CALLS |= {name: ("softmax", on(name, X)) for name in ("softmax", "log_softmax")}
CALLS |= {
    "contrib.gelu": ("elementwise", lambda out: qkernels.contrib.gelu(X, out=out)),
    "quick_gelu": ("elementwise", lambda out: qkernels.contrib.quick_gelu(X, out=out)),
    "bias_gelu": ("elementwise", lambda out: qkernels.contrib.bias_gelu(X, W, out=out)),
    "fast_gelu": ("elementwise", lambda out: qkernels.contrib.fast_gelu(X, out=out)),
    "rms_normalization": ("normalization", on("rms_normalization", X, W)),
    "simplified_layer_normalization": ("normalization", on("simplified_layer_normalization", X, W)),
    "skip_simplified_layer_normalization": ("normalization", on("skip_simplified_layer_normalization", X, X, W)),
    "layer_normalization": ("normalization", on("layer_normalization", X, W, W)),
    "rotary_embedding": ("rotary", lambda out: qkernels.rotary_embedding(TOKEN, ANGLES, ANGLES, POSITION, num_heads=1, out=out.reshape(1, 1, 8))),
    "reduce_sum": ("reduction", lambda out: qkernels.reduce_sum(X, (1,), out=out[:, :1])),
    "reduce_max": ("reduction", lambda out: qkernels.reduce_max(X, (1,), out=out[:, :1])),
    "gather": ("layout", lambda out: qkernels.gather(X, POSITION[0], out=out)),
}


class TinyCall:
    kernels = ("rms_normalization", "rotary_embedding", "softmax", "silu_mul", "add", "reduce_sum", "gather")  # and all others in CALLS
    params = [list(CALLS), ["qkernels", "numpy"]]
    param_names = ["function", "who"]

    def setup(self, function, who):
        out = np.empty_like(X)
        if who == "numpy":
            self.call = lambda: np.add(X, X, out=out)
        else:
            family, run = CALLS[function]
            assert_tier(family)
            self.call = lambda: run(out)
        self.call()

    def time_call(self, function, who):
        self.call()
