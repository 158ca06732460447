"""com.microsoft QAttention, version 1, one head and one query at a time: the projection in integers, the attention in float64."""
import numpy as np
from onnx.reference.op_run import OpRun


def _added(mask, batch, rows, keys, value):
    """What the mask adds to (batch, rows, keys)."""
    added = np.zeros((batch, rows, keys))
    for b in range(batch):
        for i in range(rows):
            for j in range(keys):
                if mask.shape == (batch,):
                    keep = j < mask[b]
                elif mask.shape == (2 * batch,):
                    keep = min(mask[batch + b], keys) <= j < mask[b]
                elif mask.ndim == 2:
                    keep = mask[b, j] > 0
                else:
                    keep = mask[b, i, j] > 0
                added[b, i, j] = 0 if keep else value
    return added


class QAttention(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, weight, bias, input_scale, weight_scale, mask_index=None, input_zero_point=None, weight_zero_point=None, past=None, num_heads=None,
             do_rotary=None, mask_filter_value=None, past_present_share_buffer=None, scale=None, unidirectional=None):
        batch, rows, hidden = x.shape[0], x.shape[1], weight.shape[1] // 3
        size = hidden // num_heads
        zero = 0 if input_zero_point is None else int(np.ravel(input_zero_point)[0])
        column_zero = 0 if weight_zero_point is None else np.ravel(weight_zero_point).astype(np.int64)
        total = (x.astype(np.int64) - zero) @ (weight.astype(np.int64) - column_zero)
        projected = total.astype(np.float32) * (np.ravel(input_scale)[0] * np.ravel(weight_scale)) + bias
        q, k, v = projected.reshape(batch, rows, 3, num_heads, size).transpose(2, 0, 3, 1, 4)
        if past is not None:
            k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
        keys = k.shape[2]
        value = -10000.0 if mask_filter_value is None else mask_filter_value
        added = np.zeros((batch, rows, keys)) if mask_index is None else _added(mask_index, batch, rows, keys, value)
        y = np.zeros((batch, rows, num_heads, size), np.float32)
        for b in range(batch):
            for i in range(rows):
                seen = keys - rows + i + 1 if unidirectional and rows > 1 else keys
                for h in range(num_heads):
                    scores = k[b, h, :seen].astype(np.float64) @ q[b, h, i] * (scale or 1 / np.sqrt(size)) + added[b, i, :seen]
                    p = np.exp(scores - scores.max())
                    y[b, i, h] = p @ v[b, h, :seen].astype(np.float64) / p.sum()
        return y.reshape(batch, rows, hidden), np.stack([k, v])
