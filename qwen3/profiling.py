"""Where the time of a prefill and of decoding goes, call by call."""
import dataclasses
import time
from dataclasses import dataclass, field

import numpy as np

import qkernels
from qwen3.generate import PREFILL_CHUNK
from qwen3.inspection import table

__all__ = ["Profile", "profile"]


@dataclass
class Profile:
    """Time, bytes and calls of each kernel and what it is called for, by phase."""

    rows: dict = field(default_factory=dict)  # (phase, operators, kernel) → [calls, seconds, bytes]
    phase: str = ""
    accounting: float = 0.0  # seconds that this took itself

    def add(self, operators, kernel, seconds, nbytes):
        row = self.rows.setdefault((self.phase, operators, kernel), [0, 0.0, 0])
        row[0] += 1
        row[1] += seconds
        row[2] += nbytes

    def watch(self, model):
        """Kernels, layers and head for `Qwen3Model.forward` that report each of their calls here."""
        begin = time.perf_counter()
        kind = f"{type(model.head).__name__}, {model.activations} activations"
        layers = [dataclasses.replace(layer, **{name: self._product(getattr(layer, name), operators, kind) for name, operators in PRODUCTS.items()})
                  for layer in model.layers]
        watched = _Kernels(self), layers, self._product(model.head, "norm; head", kind)
        self.accounting += time.perf_counter() - begin
        return watched

    def _product(self, product, operators, kind):
        return self.timed(product, operators, kind, lambda args, results: product.nbytes + _nbytes(args) + _nbytes(results))

    def timed(self, function, operators, kernel, nbytes):
        """`function`, reporting its calls; ``nbytes(args, results)`` of arguments and results says what a call reads and writes."""
        def call(*args, **options):
            begin = time.perf_counter()
            result = function(*args, **options)
            end = time.perf_counter()
            self.add(operators, kernel, end - begin, nbytes([*args, *(v for k, v in options.items() if k != "out")], [result]))
            self.accounting += time.perf_counter() - end
            return result

        return call


PRODUCTS = {"qkv": "norm; query, key and value", "out": "attention's output and sum", "gate_up": "norm; gate and up", "down": "SwiGLU; down and sum"}


class _Kernels:
    """The functions of `qkernels` that a decoder calls, watched."""

    def __init__(self, profile):
        attended = lambda args, results: args[2].nbytes + _nbytes(results) + attended_nbytes(args[0], args[2].shape[0])
        self.cached_attention = profile.timed(qkernels.cached_attention, "norm, rotation, attention", "cached_attention", attended)


def _nbytes(arrays):
    return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))


def attended_nbytes(cache, new):
    """Bytes of a layer's keys and values that a pass of `new` tokens attends to, each once."""
    return cache.nbytes // cache.capacity // cache.layers * (cache.length + new)


def profile(path=None, *, prompt=128, tokens=16, **options):
    """Time, bytes and calls of every kernel in a prefill and in the decoding of some tokens, as text.

    Parameters
    ----------
    path : str, os.PathLike or None
        A checkpoint or an ONNX directory, as for `qwen3.load`.
    prompt, tokens : int
        Lengths of the prefill and of the decoding after it.
    **options
        As for `qwen3.load`.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the context has no room for them.

    Examples
    --------
    >>> from qwen3.profiling import profile
    >>> print(profile(prompt=8, tokens=2).splitlines()[2])  # doctest: +ELLIPSIS
    prefill: 8 tokens in ... ms, ... tokens/s; between the calls ... ms
    """
    from qwen3.model import DEFAULT_CONTEXT, load

    begin = time.perf_counter()
    model = load(path, **{"max_context": max(prompt + tokens, DEFAULT_CONTEXT)} | options)
    if prompt + tokens > model.max_context:
        raise ValueError(f"profile: a prompt of {prompt} tokens and {tokens} after it exceed the context of {model.max_context}")
    loading = time.perf_counter() - begin
    rng = np.random.default_rng(0)
    ids = rng.integers(0, model.config.vocab_size, prompt + tokens).tolist()
    model.forward(ids[:1], model.new_cache())  # first use
    watch, cache, seconds = Profile(), model.new_cache(), {}
    chunks = [ids[start:min(start + PREFILL_CHUNK, prompt)] for start in range(0, prompt, PREFILL_CHUNK)]
    for phase, parts in (("prefill", chunks), ("decode", [[token] for token in ids[prompt:]])):
        watch.phase, watch.accounting, begin = phase, 0.0, time.perf_counter()
        for part in parts:
            model.forward(part, cache, profile=watch)
        seconds[phase] = time.perf_counter() - begin - watch.accounting
    lines = [f"loading and packing {loading:.2f} s, packed weights {model.nbytes:,} bytes, keys and values {cache.nbytes:,} bytes"]
    for phase, count in (("prefill", prompt), ("decode", tokens)):
        rows = sorted(((operators, kernel, *row) for (p, operators, kernel), row in watch.rows.items() if p == phase), key=lambda row: -row[3])
        inside = sum(row[3] for row in rows)
        rate = count / seconds[phase] if seconds[phase] else 0
        lines += ["", f"{phase}: {count} tokens in {1000 * seconds[phase]:.1f} ms, {rate:.1f} tokens/s; "
                      f"between the calls {1000 * (seconds[phase] - inside):.2f} ms"]
        lines += table([("operators", "kernel", "calls", "ms", "share", "MB", "GB/s"),
                        *((operators, kernel, f"{calls:,}", f"{1000 * s:.2f}", f"{100 * s / seconds[phase]:.1f} %", f"{nbytes / 1e6:.1f}",
                           f"{nbytes / s / 1e9 if s else 0:.1f}") for operators, kernel, calls, s, nbytes in rows)],
                       (False, False, True, True, True, True, True))
    return "\n".join(lines)

