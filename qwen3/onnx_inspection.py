"""What an ONNX decoder graph holds, which kernel runs each node and why."""
from collections import Counter

from qwen3.inspection import table
from qwen3.onnx_decoder import OnnxDecoder
from qwen3.onnx_file import OnnxError
from qwen3.onnx_graph import Weights, find_model
from qwen3.onnx_patterns import Lowering

__all__ = ["describe_graph"]

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
    lines += ["", *table([("operator", "nodes", "kernels"), *rows], (False, True, False))]
    lines += ["", *table([("node", "operator", "kernel", "why"), *((n.name, n.op, *status[n]) for n in graph.nodes)], (False,) * 4)]
    return "\n".join(lines)
