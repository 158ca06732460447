"""What an ONNX decoder graph holds, which kernel runs each node and why, and where the time goes."""
import time
from collections import Counter

import numpy as np

from qwen3.onnx_decoder import OnnxDecoder
from qwen3.onnx_file import OnnxError
from qwen3.onnx_graph import Profile, Weights, find_model
from qwen3.onnx_patterns import Lowering

__all__ = ["describe_graph", "profile_graph"]

CACHES = {"persistent": "in place, appended to", "tensors": "the graph's tensors, copied at every step",
          "none": "none: the sequence is run again at every step"}


def describe_graph(path):
    """The operators of a graph, and per node the kernel and why, as text; no weight is read.

    Parameters
    ----------
    path : str or os.PathLike
        A .onnx file or its directory.

    Returns
    -------
    str
        Begins with what is unsupported, if anything is.
    """
    try:
        decoder = OnnxDecoder(path, prepare=False)
        graph, status, unsupported = decoder.model.graph, decoder.plan.status, []
    except OnnxError as error:
        # the graph itself may be whole: then it is shown with what it lacks
        from qwen3.onnx_file import read_graph

        decoder, graph = None, read_graph(find_model(path))
        lowering = Lowering(graph, tuple(graph.outputs), Weights(), cached=False, activations=None, threads=None)
        status, unsupported = lowering.status, lowering.unsupported or [str(error)]
    lines = [f"unsupported   {reason}" for reason in unsupported] + [""] * bool(unsupported)
    stored = sum(t.nbytes for t in graph.constants.values())
    facts = {
        "graph": graph.path, "made by": graph.producer or "unknown", "IR version": graph.ir_version,
        "opsets": ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in sorted(graph.opsets.items())),
        "nodes": f"{len(graph.nodes):,}", "initializers": f"{len(graph.constants):,}, {stored:,} bytes",
    }
    if decoder is not None:
        c, steps = decoder.config, decoder.plan.steps
        specs = {s.key: s for step in steps for _, group in step.packed for s in group}
        facts |= {
            "architecture":
                f"{c.num_hidden_layers} layers, hidden size {c.hidden_size}, inner size {c.intermediate_size}, "
                f"{c.num_attention_heads} query heads, {c.num_key_value_heads} key and value heads of size {c.head_dim}, vocabulary {c.vocab_size:,}",
            "cache": CACHES[decoder.cache_kind], "steps": f"{len(steps):,} calls for a token",
            "weights": f"{len(specs):,} matrices to pack, {sum(s.stored for s in specs.values()):,} bytes as stored",
        }
        facts |= {f"not cached {i}": reason for i, reason in enumerate(decoder.uncached[:3])}
    lines += [f"{name:14}{value}" for name, value in facts.items()]
    kernels = {}
    for node in graph.nodes:
        kernels.setdefault(node.op, Counter())[status[node][0]] += 1
    rows = [(op, f"{sum(found.values()):,}", ", ".join(f"{k} ({n})" if len(found) > 1 else k for k, n in found.most_common()))
            for op, found in sorted(kernels.items(), key=lambda item: -sum(item[1].values()))]
    lines += ["", *_table([("operator", "nodes", "kernels"), *rows], (False, True, False))]
    lines += ["", *_table([("node", "operator", "kernel", "why"), *((n.name, n.op, *status[n]) for n in graph.nodes)], (False,) * 4)]
    return "\n".join(lines)


def profile_graph(path, *, prompt=128, tokens=16, **options):
    """Time, bytes and calls of every operator in a prefill and in the decoding of some tokens, as text.

    Parameters
    ----------
    path : str or os.PathLike
    prompt, tokens : int
        Lengths of the prefill and of the decoding after it.
    **options
        As for `qwen3.load`.

    Returns
    -------
    str
    """
    begin = time.perf_counter()
    decoder = OnnxDecoder(path, prepare=False, **options)
    if prompt + tokens > decoder.max_context:
        raise ValueError(f"profile: a prompt of {prompt} tokens and {tokens} after it exceed the context of {decoder.max_context}")
    decoder.plan.prepare()
    loading = time.perf_counter() - begin
    rng = np.random.default_rng(0)
    ids = rng.integers(0, decoder.config.vocab_size, prompt + tokens).tolist()
    decoder.forward(ids[:1], decoder.new_cache())  # first use
    profile, cache, seconds = Profile(), decoder.new_cache(), {}
    for phase, parts in (("prefill", [ids[:prompt]]), ("decode", [[token] for token in ids[prompt:]])):
        profile.phase, profile.accounting, begin = phase, 0.0, time.perf_counter()
        for part in parts:
            decoder.forward(part, cache, profile=profile)
        seconds[phase] = time.perf_counter() - begin - profile.accounting
    lines = [f"loading and packing {loading:.2f} s, packed weights {decoder.nbytes:,} bytes, keys and values {cache.nbytes:,} bytes"]
    for phase, count in (("prefill", prompt), ("decode", tokens)):
        rows = sorted(((label, kernel, *row) for (p, label, kernel), row in profile.rows.items() if p == phase), key=lambda row: -row[3])
        inside = sum(row[3] for row in rows)
        rate = count / seconds[phase] if seconds[phase] else 0
        lines += ["", f"{phase}: {count} tokens in {1000 * seconds[phase]:.1f} ms, {rate:.1f} tokens/s; "
                      f"between the calls {1000 * (seconds[phase] - inside):.2f} ms"]
        table = [("operators", "kernel", "calls", "ms", "share", "MB", "GB/s")]
        table += [(label, kernel, f"{calls:,}", f"{1000 * s:.2f}", f"{100 * s / seconds[phase]:.1f} %", f"{nbytes / 1e6:.1f}",
                   f"{nbytes / s / 1e9 if s else 0:.1f}")
                  for label, kernel, calls, s, nbytes in rows]
        lines += _table(table, (False, False, True, True, True, True, True))
    return "\n".join(lines)


def _table(rows, right):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)).rstrip()

