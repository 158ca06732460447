"""What the com.microsoft operators of attention have in common: masks as additions to scores, and attention itself, one head and one query at a time."""
import numpy as np


def added(mask, batch, rows, keys, value):
    """What a mask of any shape adds to (batch, rows, keys)."""
    result = np.zeros((batch, rows, keys))
    for b in range(batch):
        for i in range(rows):
            for j in range(keys):
                if mask.shape == (2 * batch,):
                    keep = min(mask[batch + b], keys) <= j < mask[b]
                elif mask.ndim == 1:  # lengths, or these with the beginnings of sequences, which say nothing else
                    keep = j < mask[b]
                elif mask.ndim == 2:
                    keep = mask[b, j] > 0
                elif mask.ndim == 3:
                    keep = mask[b, i, j] > 0
                else:
                    keep = mask[b, 0, keys - rows + i, j] > 0
                result[b, i, j] = 0 if keep else value
    return result


def attend(q, k, v, additions, scale, seen):
    """(y, scores) of q (batch, heads, rows, size), k and v, additions (batch, heads, rows, keys) or None; `seen[b][i]` says which keys a query sees."""
    batch, heads, rows, size = q.shape
    y, all_scores = np.zeros((batch, heads, rows, v.shape[3])), np.full((batch, heads, rows, k.shape[2]), -np.inf)
    for b in range(batch):
        for h in range(heads):
            for i in range(rows):
                at = np.flatnonzero(seen[b][i])
                scores = k[b, h, at].astype(np.float64) @ q[b, h, i].astype(np.float64) * (scale or 1 / np.sqrt(size))
                if additions is not None:
                    scores = scores + additions[b, h, i, at]
                all_scores[b, h, i, at] = scores
                at, scores = at[scores > -np.inf], scores[scores > -np.inf]
                if len(at):
                    p = np.exp(scores - scores.max())
                    y[b, h, i] = p @ v[b, h, at].astype(np.float64) / p.sum()
    return y, all_scores


def up_to_itself(batch, rows, keys, past, causal):
    """Which keys each query sees: all, or those up to position past + i."""
    return np.broadcast_to(np.arange(keys) <= past + np.arange(rows)[:, None] if causal else np.ones((rows, keys), bool), (batch, rows, keys))


def sum_of(mask, bias, shape, value):
    """Padding mask and bias as one addition to (batch, heads, rows, keys)."""
    batch, _, rows, keys = shape
    total = np.zeros(shape)
    if mask is not None:
        total = total + added(mask, batch, rows, keys, -10000.0 if value is None else value)[:, None]
    return total if bias is None else total + bias.astype(np.float64)
