"""SimplifiedLayerNormalization and com.microsoft SkipSimplifiedLayerNormalization, version 1."""
import numpy as np
from onnx.reference.op_run import OpRun


def _normalize(v, scale, axis, epsilon, dtype):
    axes = tuple(range(axis % v.ndim, v.ndim))
    inv = np.float32(1) / np.sqrt(np.mean(v * v, axis=axes, keepdims=True, dtype=np.float32) + np.float32(epsilon))
    return (v * inv * scale.astype(np.float32)).astype(dtype), inv.astype(np.float32)


class SimplifiedLayerNormalization(OpRun):
    op_domain = ""

    def _run(self, x, scale, axis=None, epsilon=None, stash_type=None):
        axis, epsilon = -1 if axis is None else axis, 1e-5 if epsilon is None else epsilon
        return _normalize(x.astype(np.float32), scale, axis, epsilon, scale.dtype)[:len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, skip, gamma, bias=None, epsilon=None):
        total = x.astype(np.float32) + skip.astype(np.float32)
        if bias is not None:
            total = total + bias.astype(np.float32)
        y, inv = _normalize(total, gamma, -1, 1e-12 if epsilon is None else epsilon, x.dtype)
        return (y, total.mean(-1, keepdims=True, dtype=np.float64).astype(np.float32), inv, total.astype(x.dtype))[:len(self.onnx_node.output)]
