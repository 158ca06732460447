"""com.microsoft MultiHeadAttention, version 1, in float64."""
import numpy as np
from onnx.reference.op_run import OpRun

from qkernels.reference.attention import attend, sum_of, up_to_itself


class MultiHeadAttention(OpRun):
    op_domain = "com.microsoft"

    def _run(self, query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None, past_key=None, past_value=None,
             past_sequence_length=None, cache_indirection=None, num_heads=None, mask_filter_value=None, scale=None, unidirectional=None):
        dtype, batch, rows = query.dtype, query.shape[0], query.shape[1]
        heads = lambda a: a.reshape(*a.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)
        cached = key is not None and key.ndim == 4
        if key is None:
            q, k, v = query.transpose(3, 0, 2, 1, 4)
        elif key.ndim == 5:
            q, (k, v) = heads(query), key.transpose(3, 0, 2, 1, 4)
        else:
            q, k, v = heads(query), key if cached else heads(key), value if cached else heads(value)
        if bias is not None:
            parts = np.split(bias.astype(np.float64), [num_heads * q.shape[3], 2 * num_heads * q.shape[3]])
            plus = lambda a, b: (a.astype(np.float64) + b.reshape(num_heads, 1, -1)).astype(dtype)
            q = plus(q, parts[0])
            if not cached:
                k, v = plus(k, parts[1]), plus(v, parts[2])
        old = 0
        if past_key is not None:
            old = past_key.shape[2] if past_sequence_length is None else int(np.ravel(past_sequence_length)[0])
        presents, seen_by = [], []
        for past, new in ((past_key, k), (past_value, v)):
            if past is None:
                both = own = new
            else:
                both = np.concatenate([past[:, :, :old], new], 2)
                own = both.copy()
                if cache_indirection is not None:
                    beams = cache_indirection.shape[1]
                    for b in range(batch):
                        for t in range(old):
                            own[b, :, t] = both[b // beams * beams + cache_indirection[b // beams, b % beams, t], :, t]
                if past_sequence_length is not None:
                    buffer = past.copy()
                    buffer[:, :, :both.shape[2]] = both
                    both = buffer
            presents.append(both)
            seen_by.append(own)
        keys = seen_by[0].shape[2]
        additions = sum_of(key_padding_mask, attention_bias, (batch, num_heads, rows, keys), mask_filter_value)
        y, scores = attend(q, *seen_by, additions, scale, up_to_itself(batch, rows, keys, old, unidirectional))
        with np.errstate(over="ignore"):
            scores = np.where(scores == -np.inf, np.finfo(np.float32).min, scores).astype(dtype)
        return y.transpose(0, 2, 1, 3).reshape(batch, rows, -1).astype(dtype), *presents, scores
