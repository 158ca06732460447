"""Linear attention and its convolution, at the sizes of Qwen3-Next's layers."""
import numpy as np

import qkernels

from . import common
from .common import DTYPES, normal, peer, torch_tensors

HEADS, GROUP, SIZE, CHANNELS, TAPS = 16, 2, 128, 8192, 4


class LinearAttention(common.Compared):
    kernels = ("linear_attention",)
    family = "recurrent"
    params = [["linear", "gated_delta"], [1, 128], list(DTYPES), common.Compared.THREADS, ["qkernels"]]
    param_names = ["rule", "rows", "dtype", "threads", "who"]

    def nbytes(self, rule, rows, dtype):
        return 2 * 4 * HEADS * SIZE * SIZE

    def qkernels(self, rule, rows, dtype):
        k = normal(1, rows, HEADS * SIZE, dtype=dtype, scale=SIZE**-0.5)
        q, v, state = normal(1, rows, HEADS * GROUP * SIZE, dtype=dtype), normal(1, rows, HEADS * SIZE, dtype=dtype), normal(1, HEADS, SIZE, SIZE)
        gates = [-np.abs(normal(1, rows, HEADS, dtype=dtype)), np.full((1, rows, HEADS), 0.5, DTYPES[dtype])] if rule == "gated_delta" else []
        return lambda: qkernels.linear_attention(q, k, v, state, *gates, q_num_heads=HEADS * GROUP, kv_num_heads=HEADS, update_rule=rule)


class CausalConv(common.Compared):
    kernels = ("causal_conv_with_state",)
    family = "recurrent"
    params = [[1, 512], list(DTYPES), common.Compared.THREADS, ["qkernels", "torch"]]
    param_names = ["length", "dtype", "threads", "who"]

    def arrays(self, length, dtype):
        return normal(1, CHANNELS, length, dtype=dtype), normal(CHANNELS, 1, TAPS, dtype=dtype), normal(1, CHANNELS, TAPS - 1, dtype=dtype)

    def nbytes(self, length, dtype):
        return 2 * CHANNELS * length * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, length, dtype):
        x, w, past = self.arrays(length, dtype)
        return lambda: qkernels.causal_conv_with_state(x, w, None, past, activation="silu")

    def torch(self, length, dtype):
        torch = peer("torch")
        x, w, past = torch_tensors(*self.arrays(length, dtype))

        def run():
            padded = torch.cat([past, x], 2)
            return torch.nn.functional.silu(torch.nn.functional.conv1d(padded, w, groups=CHANNELS)), padded[..., -(TAPS - 1):]

        return run
