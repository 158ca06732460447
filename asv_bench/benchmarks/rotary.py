"""Rotary embedding of queries and keys: heads of 128 elements, as many as the models have."""
import numpy as np

import qkernels

from . import common
from .common import DTYPES, QWEN3, normal, onnxruntime_node, peer, torch_tensors

HEADS = sorted({h for shape in QWEN3.values() for h in (shape.heads, shape.kv_heads)})
D = QWEN3["0.6B"].head_size


class RotaryEmbedding(common.Compared):
    kernels = ("rotary_embedding", "contrib.rotary_embedding")
    family = "rotary"
    params = [[1, 128, 512], HEADS, list(DTYPES), common.Compared.THREADS, ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["rows", "heads", "dtype", "threads", "who"]

    def arrays(self, rows, heads, dtype):
        angles = np.arange(4096)[:, None] * 1e6 ** (-np.arange(D // 2) / (D // 2))
        cos, sin = (f(angles).astype(DTYPES[dtype]) for f in (np.cos, np.sin))
        return normal(1, rows, heads * D, dtype=dtype), np.arange(rows, dtype=np.int64)[None], cos, sin

    def nbytes(self, rows, heads, dtype):
        return 2 * rows * heads * D * np.dtype(DTYPES[dtype]).itemsize

    def qkernels(self, rows, heads, dtype):
        x, positions, cos, sin = self.arrays(rows, heads, dtype)
        out = np.empty_like(x)
        return lambda: qkernels.rotary_embedding(x, cos, sin, positions, num_heads=heads, out=out)

    def numpy(self, rows, heads, dtype):
        x, positions, cos, sin = self.arrays(rows, heads, "f32")
        return self.by_hand(x.reshape(1, rows, heads, D), *(np.tile(c[positions][:, :, None], 2) for c in (cos, sin)), np.concatenate)

    def torch(self, rows, heads, dtype):
        x, positions, cos, sin = self.arrays(rows, heads, dtype)
        x, cos, sin = torch_tensors(x.reshape(1, rows, heads, D), *(np.tile(c[positions][:, :, None], 2) for c in (cos, sin)))
        return self.by_hand(x, cos, sin, peer("torch").cat)

    @staticmethod
    def by_hand(x, cos, sin, join):
        return lambda: x * cos + join((-x[..., D // 2:], x[..., :D // 2]), -1) * sin

    def onnxruntime(self, rows, heads, dtype):
        node = dict(zip(("x", "positions", "cos", "sin"), self.arrays(rows, heads, dtype), strict=True))
        return onnxruntime_node("com.microsoft", "RotaryEmbedding", node, bound=True, constants=["cos", "sin"], num_heads=heads)
