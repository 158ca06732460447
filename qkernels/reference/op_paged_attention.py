"""com.microsoft PagedAttention, version 1: each sequence gathered out of its pages, its tokens one at a time, in float64."""
import numpy as np
from onnx.reference.op_run import OpRun

from qkernels.reference.op_group_query_attention import _encode, _rms, _turn


class PagedAttention(OpRun):
    op_domain = "com.microsoft"

    def _run(self, query, key=None, value=None, key_cache=None, value_cache=None, cumulative_sequence_length=None, past_seqlens=None, block_table=None,
             cos_cache=None, sin_cache=None, slot_mapping=None, head_sink=None, q_norm_weight=None, k_norm_weight=None, k_scale=None, v_scale=None,
             attention_metadata=None, num_heads=None, kv_num_heads=None, scale=None, softcap=None, do_rotary=None, rotary_interleaved=None, rotary_offset=None,
             local_window_size=None, is_causal=None, qk_norm_epsilon=None, k_quant_type=None, v_quant_type=None, k_cache_dtype=None, v_cache_dtype=None,
             kv_cache_layout=None, v_head_size=None):
        heads, groups, latent = num_heads, kv_num_heads, kv_cache_layout == "LATENT"
        tokens, dtype, block = len(query), query.dtype, key_cache.shape[1]
        if key is None:
            size = query.shape[1] // (heads + 2 * groups)
            query, key, value = np.split(query, [heads * size, (heads + groups) * size], -1)
        size = query.shape[1] // heads
        wide, first = (v_head_size or size) if latent else size, rotary_offset or 0
        caches = [key_cache.copy()] + ([] if latent else [value_cache.copy()])
        factors = [None if s is None else np.broadcast_to(np.ravel(s), groups * size).reshape(groups, 1, size) for s in (k_scale, v_scale)]

        def prepared(x, weight, position):
            x = x.astype(np.float64)
            if weight is not None:
                x = _rms(x, weight.astype(np.float64), qk_norm_epsilon or 1e-6)
            if do_rotary:
                x = np.concatenate([x[:, :first], _turn(x[:, first:], cos_cache[position].astype(np.float64), sin_cache[position].astype(np.float64),
                                                        rotary_interleaved)], 1)
            return x

        owners = [(b, int(past_seqlens[b]) + i) for b in range(len(past_seqlens))
                  for i in range(cumulative_sequence_length[b + 1] - cumulative_sequence_length[b])]
        for t, (b, position) in enumerate(owners):
            slot = block_table[b, position // block] * block + position % block if slot_mapping is None else slot_mapping[t]
            if slot < 0:
                continue
            new = [prepared(key[t].reshape(groups, size), k_norm_weight, position), None if latent else value[t].reshape(groups, size).astype(np.float64)]
            for cache, x, factor in zip(caches, new, factors, strict=False):
                cache[slot // block, slot % block] = _encode(x[:, None], factor, cache.dtype)[:, 0]
        y = np.zeros((tokens, heads, wide))
        for t, (b, position) in enumerate(owners):
            end = int(past_seqlens[b]) + cumulative_sequence_length[b + 1] - cumulative_sequence_length[b]
            high = position + 1 if is_causal != 0 else end
            low = max(0, position + 1 - local_window_size) if (local_window_size or -1) > 0 else 0
            at = np.arange(low, high)
            k, v = [c[block_table[b, at // block], at % block].astype(np.float64).transpose(1, 0, 2) * (1 if f is None else f)
                    for c, f in zip(caches * 2 if latent else caches, factors[:1] * 2 if latent else factors, strict=False)][:2]
            q = prepared(query[t].reshape(heads, size), q_norm_weight, position)
            for h in range(heads):
                g = h // (heads // groups)
                s = k[g] @ q[h] * (scale or 1 / np.sqrt(size))
                s = softcap * np.tanh(s / softcap) if softcap else s
                sink = -np.inf if head_sink is None else float(head_sink[h])
                top = max(s.max(), sink)
                p = np.exp(s - top)
                y[t, h] = p @ v[g][:, :wide] / (p.sum() + np.exp(sink - top))
        return y.reshape(tokens, heads * wide).astype(dtype), *caches, *([np.zeros(0, key_cache.dtype)] if latent else [])
