"""com.microsoft QAttention, version 1, one head and one query at a time: the projection in integers, the attention in float64."""
import numpy as np
from onnx.reference.op_run import OpRun

from qkernels.reference.attention import attend, sum_of, up_to_itself


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
        additions = sum_of(mask_index, None, (batch, num_heads, rows, keys), mask_filter_value)
        y, _ = attend(q, k, v, additions, scale, up_to_itself(batch, rows, keys, keys - rows, unidirectional))
        return y.transpose(0, 2, 1, 3).reshape(batch, rows, hidden).astype(np.float32), np.stack([k, v])
