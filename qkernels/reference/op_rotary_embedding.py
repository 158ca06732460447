"""com.microsoft RotaryEmbedding, version 1."""
import numpy as np
from onnx.reference.op_run import OpRun


class RotaryEmbedding(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, position_ids, cos_cache, sin_cache, interleaved=None, is_packed_batching=None, num_heads=None, rotary_embedding_dim=None,
             scale=None):
        width = cos_cache.shape[1]
        if x.ndim == 4:
            heads = x.transpose(0, 2, 1, 3)
        else:
            heads = x.reshape(*x.shape[:2], num_heads or x.shape[2] // (2 * width), -1)
        batch, sequence = heads.shape[:2]
        if position_ids.size == 1 and position_ids.ndim < 2:
            position_ids = np.broadcast_to(position_ids.reshape(()) + np.arange(sequence), (batch, sequence))
        cos, sin = (c[position_ids][:, :, None].astype(np.float32) for c in (cos_cache, sin_cache))
        y = heads.astype(np.float32)
        planes = (slice(0, 2 * width, 2), slice(1, 2 * width, 2)) if interleaved else (slice(0, width), slice(width, 2 * width))
        a, b = (y[..., p].copy() for p in planes)
        y[..., planes[0]] = a * cos - b * sin
        y[..., planes[1]] = b * cos + a * sin
        y = y.astype(x.dtype)
        return (y.transpose(0, 2, 1, 3) if x.ndim == 4 else y.reshape(x.shape),)
