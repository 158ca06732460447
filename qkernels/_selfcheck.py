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
        CHECKS[name] = function
        return function
    return register


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
