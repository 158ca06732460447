"""The specification of `qkernels.sample`: Hugging Face's logits processors in NumPy, in float64, and the draw in whole numbers.

Each processor takes and returns a row of logits; what it removes becomes -inf. One thing is more definite than in Hugging Face: where
top-p's edge falls among equal logits, the lowest ids stay.
"""
import numpy as np


def softmax(logits):
    """Probabilities; logits of +inf share everything."""
    top = logits.max()
    e = np.where(logits == top, 1.0, np.exp(np.minimum(logits - top, 0.0), where=logits != top, out=np.zeros_like(logits)))
    return e / e.sum()


def repetition_penalty(logits, previous, penalty):
    """Each distinct previous id once: negative logits times the penalty, others divided by it."""
    logits = logits.copy()
    ids = np.unique(np.asarray(previous, np.int64))
    logits[ids] = np.where(logits[ids] < 0, logits[ids] * penalty, logits[ids] / penalty)
    return logits


def top_k(logits, k):
    """Keep the k largest, and those equal to the last of them."""
    kth = np.sort(logits)[-min(k, logits.size)]
    return np.where(logits < kth, -np.inf, logits)


def top_p(logits, p):
    """Keep the fewest, most probable first, whose probabilities sum to p or more; at least one."""
    order = np.argsort(-logits, kind="stable")
    probabilities = softmax(logits)[order]
    before = np.cumsum(probabilities) - probabilities
    kept = order[(before < p) | (np.arange(order.size) == 0)]
    result = np.full_like(logits, -np.inf)
    result[kept] = logits[kept]
    return result


def min_p(logits, p):
    """Keep those at least p times as probable as the most probable."""
    probabilities = softmax(logits)
    return np.where(probabilities < p * probabilities.max(), -np.inf, logits)


def candidates(logits, *, temperature=1.0, k=0, p=1.0, least=0.0, penalty=1.0, previous=()):
    """ids and probabilities of what remains; `k`, `p`, `least` are top-k, top-p and min-p."""
    x = np.asarray(logits).astype(np.float64)
    if penalty != 1.0 and len(previous):
        x = repetition_penalty(x, previous, penalty)
    if temperature == 0 or k == 1 or p == 0 or least == 1:
        return np.array([x.argmax()]), np.array([1.0])
    with np.errstate(over="ignore"):
        x = x / temperature
    if k:
        x = top_k(x, k)
    if p < 1:
        x = top_p(x, p)
    if least > 0:
        x = min_p(x, least)
    ids = np.flatnonzero(x > -np.inf)
    return ids, softmax(x)[ids]


def philox(seed, step):
    """The 64 random bits of a draw: Philox4x32-10 with key `seed` and counter `step`, its first two words."""
    low, high = (lambda v: v & 0xFFFFFFFF), (lambda v: v >> 32)
    key, c = [low(seed), high(seed)], [low(step), high(step), 0, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [high(b) ^ c[1] ^ key[0], low(b), high(a) ^ c[3] ^ key[1], low(a)]
        key = [low(key[0] + 0x9E3779B9), low(key[1] + 0xBB67AE85)]
    return c[1] << 32 | c[0]


def draw(ids, weights, random):
    """The inverse of the cumulative weights at floor(random / 2**64 * total), in whole numbers."""
    target = random * sum(int(w) for w in weights) >> 64
    return int(ids[np.searchsorted(np.cumsum(weights), np.uint64(target), side="right")])
