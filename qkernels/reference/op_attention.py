"""com.microsoft Attention, version 1: the projection in float64 and rounded once, the attention in float64."""
import numpy as np
from onnx.reference.op_run import OpRun

from qkernels.reference.attention import attend, sum_of, up_to_itself


class Attention(OpRun):
    op_domain = "com.microsoft"
    op_schema = None  # or the evaluator would take that of ai.onnx's operator of this name

    def _run(self, x, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, num_heads=None, qkv_hidden_sizes=None,
             do_rotary=None, mask_filter_value=None, past_present_share_buffer=None, rotary_embedding_dim=None, scale=None, unidirectional=None):
        batch, rows = x.shape[:2]
        hidden, _, v_hidden = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
        projected = x.astype(np.float64) @ weights.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))
        heads = lambda a: a.reshape(batch, rows, num_heads, -1).transpose(0, 2, 1, 3)
        q, k, v = map(heads, np.split(projected.astype(x.dtype), [hidden, 2 * hidden], -1))
        old, present = 0, None
        if past is not None:
            old = int(np.ravel(past_sequence_length)[0]) if past_present_share_buffer else past.shape[3]
            k, v = np.concatenate([past[0][:, :, :old], k], 2), np.concatenate([past[1][:, :, :old], v], 2)
        if hidden == v_hidden:
            present = np.stack([k, v])
            if past_present_share_buffer:
                buffer = past.copy()
                buffer[:, :, :, :old + rows] = present
                present = buffer
        keys = k.shape[2]
        additions = sum_of(mask_index, attention_bias, (batch, num_heads, rows, keys), mask_filter_value)
        y, _ = attend(q, k, v, additions, scale, up_to_itself(batch, rows, keys, old, unidirectional))
        return y.transpose(0, 2, 1, 3).reshape(batch, rows, v_hidden).astype(x.dtype), np.zeros(0, x.dtype) if present is None else present
