"""The self-check of ``python -m qkernels``: every kernel's documented example on every tier, and results that threads and tiers must share.

A kernel takes part by being registered. A function in CHECKS adds an input large enough for several threads and the formula in NumPy.
"""
import doctest
import io
import sys

import ml_dtypes
import numpy as np

from qkernels import _runtime, registry

CHECKS = {}


def check(name):
    """Register a function of a random generator that returns (call, expected, tolerance): call(threads) must give the same bits on every tier
    and thread count, and be within `tolerance` times the largest expected value of `expected`."""
    def register(function):
        assert name not in CHECKS, name
        CHECKS[name] = function
        return function
    return register


@check("gather")
def _(rng):
    data, indices = rng.standard_normal((3000, 129)).astype(np.float32), rng.integers(-3000, 3000, 2500)
    return lambda t: _kernel("gather")(data, indices, threads=t), data[indices], 0


@check("cast")
def _(rng):
    x = rng.standard_normal((400, 1031)).astype(np.float32)
    return lambda t: _kernel("cast")(x, ml_dtypes.bfloat16, threads=t), x.astype(ml_dtypes.bfloat16).astype(np.float64), 0


@check("silu_mul")
def _(rng):
    gate, up = rng.standard_normal((2, 200, 3001)).astype(np.float32)
    return lambda t: _kernel("silu_mul")(gate, up, threads=t), gate / (1 + np.exp(-np.float64(gate))) * up, 1e-6


@check("matmul")
def _(rng):
    a, b = rng.standard_normal((130, 517)).astype(np.float32), rng.standard_normal((517, 301)).astype(np.float32)
    return lambda t: _kernel("matmul")(a, b, threads=t), np.float64(a) @ np.float64(b), 1e-5


@check("PackedMatrix")
def _(rng):
    x, w = rng.standard_normal((5, 517)).astype(np.float32), rng.standard_normal((517, 1301)).astype(ml_dtypes.bfloat16)
    return lambda t: _kernel("PackedMatrix")(w, threads=t)(x, threads=t), np.float64(x) @ np.float64(w), 1e-5


@check("matmul_nbits")
def _(rng):
    a, w = rng.standard_normal((3, 512)).astype(np.float32), rng.standard_normal((1301, 512)).astype(np.float32)
    b, scales, _ = _kernel("quantize_nbits")(w)
    codes = np.stack([b & 15, b >> 4], -1).reshape(1301, 16, 32) - np.float64(8)
    return (lambda t: _kernel("matmul_nbits")(a, b, scales, K=512, N=1301, block_size=32, activations="int16", threads=t),
            np.float64(a) @ (codes * np.float64(scales)[..., None]).reshape(1301, 512).T, 2e-4)


@check("PackedInt8Rows")
def _(rng):
    x, w = rng.standard_normal((3, 512)).astype(np.float32), rng.standard_normal((1301, 512)).astype(np.float32)
    return lambda t: _kernel("PackedInt8Rows")(w, threads=t)(x, threads=t), np.float64(x) @ np.float64(w).T, 2e-2


@check("dequantize_linear")
def _(rng):
    x, scale, zero = rng.integers(0, 256, (300, 1031), np.uint8), rng.standard_normal((300, 65)).astype(np.float32), rng.integers(0, 256, (300, 65), np.uint8)
    spread = lambda v: np.repeat(np.float64(v), 16, 1)[:, :1031]
    return lambda t: _kernel("dequantize_linear")(x, scale, zero, block_size=16, threads=t), (x - spread(zero)) * spread(scale), 1e-7


@check("matmul_integer")
def _(rng):
    a, b = rng.integers(0, 256, (130, 517), np.uint8), rng.integers(-128, 128, (517, 301)).astype(np.int8)
    return lambda t: _kernel("matmul_integer")(a, b, np.uint8(128), np.int8(-3), threads=t), (np.int64(a) - 128) @ (np.int64(b) + 3), 0


@check("PackedInt8Matrix")
def _(rng):
    a, b = rng.integers(0, 256, (130, 517), np.uint8), rng.integers(-128, 128, (517, 301)).astype(np.int8)
    return lambda t: _kernel("PackedInt8Matrix")(b, threads=t)(a, np.uint8(128), np.int8(-3), threads=t), (np.int64(a) - 128) @ (np.int64(b) + 3), 0


@check("rotary_embedding")
def _(rng):
    x, positions = rng.standard_normal((1, 8, 500, 64)).astype(np.float32), rng.permutation(500)[None]
    angles = np.arange(500)[:, None] * 1e4 ** (-np.arange(32) / 32)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b, c, s = x[..., :32], x[..., 32:], np.float64(cos)[positions], np.float64(sin)[positions]
    return lambda t: _kernel("rotary_embedding")(x, cos, sin, positions, threads=t), np.concatenate([a * c - b * s, b * c + a * s], -1), 1e-6


@check("attention")
def _(rng):
    q, k, v = (rng.standard_normal((1, heads, n, 64)).astype(np.float32) for heads, n in ((4, 70), (2, 600), (2, 600)))
    scores = np.float64(q) @ np.float64(k).repeat(2, 1).swapaxes(2, 3) / 8
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return lambda t: _kernel("attention")(q, k, v, threads=t), e / e.sum(-1, keepdims=True) @ np.float64(v).repeat(2, 1), 1e-5


@check("paged_attention")
def _(rng):
    """Two sequences in pages of 16 tokens against their softmax."""
    counts, d = (300, 41), 64
    q, k, v = (rng.standard_normal((sum(counts), heads * d)).astype(np.float32) for heads in (4, 2, 2))
    table, expected, start = rng.permutation(38).reshape(2, 19), [], 0
    for n in counts:
        a, b, c = (np.float64(x[start:start + n]).reshape(n, -1, d).swapaxes(0, 1) for x in (q, k, v))
        scores = np.where(np.tri(n, dtype=bool), a @ b.repeat(2, 0).swapaxes(1, 2) / 8, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        expected.append((e / e.sum(-1, keepdims=True) @ c.repeat(2, 0)).swapaxes(0, 1).reshape(n, -1))
        start += n

    def call(threads):
        caches = [np.zeros((38, 16, 2, d), np.float32) for _ in range(2)]
        return _kernel("paged_attention")(q, k, v, *caches, np.int64([0, 300, 341]), np.int64([0, 0]), table, num_heads=4, kv_num_heads=2, threads=threads)
    return call, np.concatenate(expected), 1e-5


@check("quantize_linear")
def _(rng):
    x, scale = rng.standard_normal((700, 1031)).astype(np.float32), rng.uniform(0.01, 0.02, 1031).astype(np.float32)
    zero = rng.integers(0, 256, 1031).astype(np.uint8)
    return lambda t: _kernel("quantize_linear")(x, scale, zero, threads=t), np.clip(np.rint(x / scale) + zero, 0, 255), 0


@check("rms_normalization")
def _(rng):
    x, scale = rng.standard_normal((130, 1031)).astype(np.float32), rng.standard_normal(1031).astype(np.float32)
    return lambda t: _kernel("rms_normalization")(x, scale, threads=t), x / np.sqrt((np.float64(x)**2).mean(-1, keepdims=True) + 1e-5) * scale, 1e-5


@check("skip_simplified_layer_normalization")
def _(rng):
    x, skip = rng.standard_normal((2, 130, 1031)).astype(ml_dtypes.bfloat16)
    scale = np.ones(1031, ml_dtypes.bfloat16)
    s = np.float64(x) + np.float64(skip)
    return (lambda t: _kernel("skip_simplified_layer_normalization")(x, skip, scale, threads=t),
            s / np.sqrt((s**2).mean(-1, keepdims=True) + 1e-5), 2.0**-8)


@check("layer_normalization")
def _(rng):
    x, scale, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((130, 1031), (1031,), (1031,)))
    wide = np.float64(x) - np.float64(x).mean(-1, keepdims=True)
    return (lambda t: _kernel("layer_normalization")(x, scale, bias, threads=t),
            wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale + bias, 1e-5)


@check("gelu")
def _(rng):
    x = rng.standard_normal((200, 301)).astype(np.float32)
    return lambda t: _kernel("gelu")(x, approximate="tanh", threads=t), _kernel("gelu")(np.float64(x), approximate="tanh"), 1e-7


@check("pow")
def _(rng):
    a, b = rng.uniform(0.1, 9, (200, 301)).astype(np.float32), rng.standard_normal(301).astype(np.float32)
    return lambda t: _kernel("pow")(a, b, threads=t), np.float64(a) ** b, 1e-7


@check("reduce_sum")
def _(rng):
    x = rng.standard_normal((7, 30_011)).astype(np.float32)
    return lambda t: _kernel("reduce_sum")(x, [1], threads=t), np.float64(x).sum(-1, keepdims=True), 1e-7


@check("reduce_mean")
def _(rng):
    x = rng.standard_normal((300, 1031)).astype(ml_dtypes.bfloat16)
    return lambda t: _kernel("reduce_mean")(x, [0], threads=t), np.float64(x).mean(0, keepdims=True), 2.0**-8


@check("linear_attention")
def _(rng):
    q, k, v = rng.standard_normal((3, 1, 9, 4 * 40)).astype(np.float32)
    scores = np.tril(np.einsum("thd,shd->hts", *(np.float64(x).reshape(9, 4, 40) for x in (q, k))))
    expected = np.einsum("hts,shd->thd", scores, np.float64(v).reshape(9, 4, 40)).reshape(1, 9, 160)
    return lambda t: _kernel("linear_attention")(q, k, v, q_num_heads=4, kv_num_heads=4, update_rule="linear", scale=1.0, threads=t)[0], expected, 1e-5


@check("softmax")
def _(rng):
    x = (rng.standard_normal((130, 1031)) * 4).astype(np.float32)
    e = np.exp(np.float64(x) - x.max(-1, keepdims=True))
    return lambda t: _kernel("softmax")(x, threads=t), e / e.sum(-1, keepdims=True), 1e-5


@check("argmax")
def _(rng):
    x = rng.standard_normal((3, 100_003)).astype(np.float16)
    return lambda t: _kernel("argmax")(x, axis=-1, threads=t), x.argmax(-1, keepdims=True), 0


@check("sample")
def _(rng):
    x = rng.standard_normal(300_007).astype(np.float32)
    settings = dict(temperature=0.8, top_k=50, top_p=0.9)
    e = np.sort(np.exp((np.float64(x) - x.max()) / 0.8))[-50:]  # the candidates' number: probabilities from the largest on until 0.9
    kept = 1 + (np.cumsum(e[::-1]) < 0.9 * e.sum()).sum()

    def call(threads):
        from qkernels.sampling import candidates
        ids, _ = candidates(x, threads=threads, **settings)
        drawn = [_kernel("sample")(x, threads=threads, step=step, **settings) for step in range(4)]
        return np.array([ids.size, np.isin(drawn, ids).sum()])
    return call, np.array([kept, 4]), 0


def _kernel(name):
    return next(k for k in registry.KERNELS if k.name == name).function


def _bytes(result):
    return [(a.dtype, a.shape, a.tobytes()) for a in map(np.asarray, result if isinstance(result, tuple) else (result,))]


def _formula(kernel, threads):
    """What is wrong with the kernel's check, or None."""
    call, expected, tolerance = CHECKS[kernel.name](np.random.default_rng(0))
    first = None
    for tier in _runtime.available_isa():
        with _runtime.use_isa(tier):
            for t in threads:
                result = call(t)
                if first is None:
                    first = _bytes(result)
                    main = result[0] if isinstance(result, tuple) else result
                    error = np.abs(np.float64(main) - expected).max() / max(np.abs(expected).max(), 1e-300)
                    if not error <= tolerance:
                        return f"{tier}: {error:.1e} from the formula, {tolerance:.1e} expected"
                elif _bytes(result) != first:
                    return f"{tier}, {t} threads: other bits than scalar, {threads[0]} thread"
    return None


def _example(kernel):
    """What is wrong with the docstring's example, or None; also where the interpreter dropped docstrings."""
    function, out = kernel.function, io.StringIO()
    if not function.__doc__:
        return None
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for tier in _runtime.available_isa():
        test = doctest.DocTestParser().get_doctest(function.__doc__, {}, f"{kernel.name} on {tier}", None, None)
        with _runtime.use_isa(tier):
            runner.run(test, out=out.write)
    return f"documented example: {out.getvalue()}" if runner.failures else None


def run(file=None):
    """Check every registered kernel; one line for each family. Returns the number of kernels that failed."""
    file = file or sys.stdout
    threads = range(1, max(2, min(_runtime.describe()["threads_available"], 8)) + 1)
    failed = 0
    for family in dict.fromkeys(k.family for k in registry.KERNELS):
        kernels = [k for k in registry.KERNELS if k.family == family]
        complaints = []
        for kernel in kernels:
            try:
                wrong = _example(kernel) or (_formula(kernel, threads) if kernel.name in CHECKS else None)
            except Exception as error:  # a kernel that raises is as broken as one that is wrong
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                complaints.append(f"    {kernel.name}: {wrong}")
        failed += len(complaints)
        checked = sum(k.name in CHECKS for k in kernels)
        print(f"  {family:<16} {'FAILED' if complaints else 'ok':<7} {len(kernels)} kernels, {checked} of them on 1 to {threads[-1]} threads",
              *complaints, sep="\n", file=file)
    return failed
