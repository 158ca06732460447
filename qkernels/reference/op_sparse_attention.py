"""com.microsoft SparseAttention, version 1: GroupQueryAttention of which each head sees what its layout of blocks shows, in float64."""
import numpy as np
from onnx.reference.op_run import OpRun

from qkernels.reference.attention import attend
from qkernels.reference.op_group_query_attention import _turn


class SparseAttention(OpRun):
    op_domain = "com.microsoft"

    def _run(self, query, key=None, value=None, past_key=None, past_value=None, block_row_indices=None, block_col_indices=None, total_sequence_length=None,
             key_total_sequence_lengths=None, cos_cache=None, sin_cache=None, num_heads=None, kv_num_heads=None, sparse_block_size=None, scale=None,
             do_rotary=None, rotary_interleaved=None):
        batch, rows, groups, block = *query.shape[:2], kv_num_heads, sparse_block_size
        if key is None:
            size = query.shape[2] // (num_heads + 2 * groups)
            query, key, value = np.split(query, [num_heads * size, (num_heads + groups) * size], -1)
        size, dtype = query.shape[2] // num_heads, query.dtype
        prompt = int(np.ravel(total_sequence_length)[0]) == rows
        y, presents = np.zeros((batch, rows, num_heads, size)), [past_key.copy(), past_value.copy()]
        for b in range(batch):
            total = int(key_total_sequence_lengths[b])
            count = min(rows, total) if prompt else rows
            past = total - count
            turned = []
            for x, n in ((query, num_heads), (key, groups)):
                x = x[b].reshape(rows, n, size)
                if do_rotary:
                    cos, sin = (t[past:total].astype(np.float64) for t in (cos_cache, sin_cache))
                    x = np.stack([_turn(x[i].astype(np.float64), cos[i], sin[i], rotary_interleaved) for i in range(count)])
                turned.append(x)
            presents[0][b, :, past:total] = turned[1][:count].transpose(1, 0, 2).astype(dtype)
            presents[1][b, :, past:total] = value[b].reshape(rows, groups, size)[:count].transpose(1, 0, 2)
            for h in range(num_heads):
                layout, g = h % len(block_row_indices), h // (num_heads // groups)
                seen = np.zeros((1, count, total), bool)
                for i in range(count):
                    row = (past + i) // block
                    for column in block_col_indices[layout, block_row_indices[layout, row]:block_row_indices[layout, row + 1]]:
                        seen[0, i, column * block:min((column + 1) * block, past + i + 1)] = True
                result, _ = attend(turned[0][None, :count, h][:, None], *(p[b:b + 1, g:g + 1, :total] for p in presents), None, scale, seen)
                y[b, :count, h] = result[0, 0]
        return y.reshape(batch, rows, -1).astype(dtype), *presents
