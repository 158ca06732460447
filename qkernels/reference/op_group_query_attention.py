"""com.microsoft GroupQueryAttention, version 1, one head and one query at a time, in float64."""
import numpy as np
from onnx.reference.op_run import OpRun


def _rms(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon) * weight


def _turn(x, cos, sin, interleaved):
    """(heads, size) at one position."""
    half = len(cos)
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    y = x.copy()
    y[:, first], y[:, second] = x[:, first] * cos - x[:, second] * sin, x[:, second] * cos + x[:, first] * sin
    return y


def _resident(tokens, capacity, window):
    """How many of so many tokens a sliding cache of a capacity holds."""
    step = capacity - window + 1
    return tokens if tokens <= capacity else tokens - step * -(-(tokens - capacity) // step)


def _decode(codes, scale):
    if codes.dtype == np.uint8:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1).astype(np.int64) - 8
    return codes.astype(np.float64) if scale is None else codes * np.float64(scale)


def _encode(x, scale, dtype):
    if scale is None:
        return x.astype(dtype)
    low = -128 if dtype == np.int8 else -8
    codes = np.clip(np.rint(x.astype(np.float32) / scale), low, -low - 1).astype(np.int64)
    return codes.astype(np.int8) if dtype == np.int8 else ((codes[..., ::2] + 8) | (codes[..., 1::2] + 8) << 4).astype(np.uint8)


class GroupQueryAttention(OpRun):
    op_domain = "com.microsoft"

    def _run(self, query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None, total_sequence_length=None, cos_cache=None, sin_cache=None,
             position_ids=None, attention_bias=None, head_sink=None, k_scale=None, v_scale=None, q_norm_weight=None, k_norm_weight=None, query_seqlens=None,
             num_heads=None, kv_num_heads=None, scale=None, softcap=None, do_rotary=None, rotary_interleaved=None, local_window_size=None,
             smooth_softmax=None, causal=None, qk_output=None, qk_norm_epsilon=None, q_norm_epsilon=None, k_norm_epsilon=None, k_quant_type=None,
             v_quant_type=None, kv_cache_bit_width=None, sliding_window_cache=None):
        batch, rows = query.shape[:2]
        heads, groups = num_heads, kv_num_heads
        if key is None:
            size = query.shape[2] // (heads + 2 * groups)
            query, key, value = np.split(query, [heads * size, (heads + groups) * size], -1)
        size = query.shape[2] // heads
        total, window = int(np.ravel(total_sequence_length)[0]), -1 if local_window_size is None else local_window_size
        scale = scale or 1 / np.sqrt(size)
        shared = qk_norm_epsilon or 1e-6
        dtype = query.dtype if past_key is None else past_key.dtype
        past_rows = 0 if past_key is None else past_key.shape[2]
        room = past_rows if sliding_window_cache else max(past_rows, total)
        y = np.zeros((batch, rows, heads, size))
        scores_out = np.zeros((batch, heads, rows, total))
        shape = (batch, groups, room, past_key.shape[3] if past_key is not None else size)
        present = [np.zeros(shape, dtype), np.zeros(shape, dtype)]
        split = lambda x, n: x.reshape(batch, x.shape[1], n, size).astype(np.float64)
        q, k, v = split(query, heads), split(key, groups), split(value, groups)
        first_prompt = rows == total and query_seqlens is None
        for b in range(batch):
            end = int(np.ravel(seqlens_k)[b]) + 1
            count = min(rows, end) if query_seqlens is None else int(query_seqlens[b])
            past = end - count
            held = 0
            if past_key is not None:
                held = _resident(past, past_rows, window) if sliding_window_cache else min(past_rows, past if key.shape[1] else end)
            caches = []
            for which, (old, new, weight, epsilon) in enumerate(((past_key, k, k_norm_weight, k_norm_epsilon), (past_value, v, None, None))):
                factor = (k_scale, v_scale)[which]
                factor = None if factor is None else np.broadcast_to(factor, (1, groups, 1, size))[0]
                codes = np.zeros((groups, end, *present[0].shape[3:]), dtype)
                if held:
                    start = past - held if key.shape[1] else 0
                    codes[:, start:start + held] = old[b, :, :held]
                for i in range(count if key.shape[1] else 0):
                    x = new[b, i]
                    if which == 0:
                        x = x if weight is None else _rms(x, weight.astype(np.float64), epsilon or shared)
                        x = self._rotated(x, b, i, past, do_rotary, cos_cache, sin_cache, position_ids, rotary_interleaved, first_prompt)
                    codes[:, past + i] = _encode(x[:, None], factor, dtype)[:, 0]
                caches.append(_decode(codes, factor))
                kept = _resident(end, past_rows, window) if sliding_window_cache else end
                present[which][b, :, :kept] = codes[:, end - kept:]
                if not sliding_window_cache and past_key is not None:
                    present[which][b, :, end:past_rows] = old[b, :, end:]
            for i in range(count):
                x = q[b, i] if q_norm_weight is None else _rms(q[b, i], q_norm_weight.astype(np.float64), q_norm_epsilon or shared)
                x = self._rotated(x, b, i, past, do_rotary, cos_cache, sin_cache, position_ids, rotary_interleaved, first_prompt)
                high = end if causal == 0 else past + i + 1
                low = max(0, high - window) if window > 0 else 0
                for h in range(heads):
                    g = h // (heads // groups)
                    s = caches[0][g, low:high] @ x[h] * scale
                    s = softcap * np.tanh(s / softcap) if softcap else s
                    if attention_bias is not None:
                        s = s + np.broadcast_to(attention_bias, (batch, heads, rows, total))[b, h, i, low:high].astype(np.float64)
                    sink = head_sink[h] if head_sink is not None else 0 if smooth_softmax == 1 else -np.inf
                    top = max(s.max(initial=-np.inf), float(sink))
                    p = np.exp(s - top) if np.isfinite(top) else np.zeros_like(s)
                    p = p / max(p.sum() + np.exp(float(sink) - top), 1e-300) if np.isfinite(top) else p
                    if (s > -np.inf).any():
                        y[b, i, h] = p @ caches[1][g, low:high]
                    scores_out[b, h, i, low:high] = s if qk_output == 1 else p
        return y.reshape(batch, rows, -1).astype(query.dtype), *present, scores_out.astype(query.dtype)

    @staticmethod
    def _rotated(x, b, i, past, do_rotary, cos, sin, position_ids, interleaved, first_prompt):
        if not do_rotary:
            return x
        # a first prompt looks at the first position only
        position = past + i if position_ids is None else position_ids[0, 0] + i if first_prompt else position_ids[b, i]
        return _turn(x, cos[position].astype(np.float64), sin[position].astype(np.float64), interleaved)
