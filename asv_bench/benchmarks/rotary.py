"""Rotary embedding of the queries of Qwen3-0.6B."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, onnxruntime_node, peer

SHAPE = QWEN3["0.6B"]


class RotaryEmbedding:
    kernels = ("rotary_embedding", "contrib.rotary_embedding")
    params = [[1, 512], list(DTYPES), ["qkernels", "numpy", "torch", "onnxruntime"]]
    param_names = ["rows", "dtype", "who"]

    def setup(self, rows, dtype, who):
        d = SHAPE.head_size
        x, positions = normal(1, rows, SHAPE.heads * d, dtype=dtype), np.arange(rows, dtype=np.int64)[None]
        angles = np.arange(4096)[:, None] * 1e6 ** (-np.arange(d // 2) / (d // 2))
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.nbytes = 2 * x.nbytes
        if who == "qkernels":
            assert_tier("rotary")
            out = np.empty_like(x)
            self.call = lambda: qkernels.rotary_embedding(x, cos, sin, positions, num_heads=SHAPE.heads, out=out)
        elif who == "onnxruntime":
            if dtype != "f32":
                raise NotImplementedError("float32 only")
            node = {"x": x, "positions": positions, "cos": cos, "sin": sin}
            self.call = onnxruntime_node("com.microsoft", "RotaryEmbedding", node, constants=["cos", "sin"], num_heads=SHAPE.heads)
        else:
            heads = x.astype(np.float32).reshape(1, rows, SHAPE.heads, d)
            c, s = np.tile(cos[positions][:, :, None], 2), np.tile(sin[positions][:, :, None], 2)
            join, half = np.concatenate, d // 2
            if who == "torch":
                torch = peer("torch")
                types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
                heads, c, s = (torch.from_numpy(a).to(types[dtype]) for a in (heads, c, s))
                join = torch.cat
            self.call = lambda: heads * c + join((-heads[..., half:], heads[..., :half]), -1) * s
        self.call()

    def time_rotary(self, rows, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, rows, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"
