"""Attention nodes on the persistent cache: one call for the norms of q and k, the rotation, the append and the attention itself."""
import numpy as np
from onnx import TensorProto

import qkernels
from qwen3.onnx_patterns import Step

__all__ = ["lower"]


def lower(low, node):
    """Turn an attention node with past inputs and present outputs into a step on the cache, or leave it, with the reason in its status."""
    reason = (_group_query if node.op.startswith("com") else _standard)(low, node)
    if reason:
        low.uncached = [*getattr(low, "uncached", []), f"{node.name}: {reason}"]


def _leaves(low, name):
    """Graph inputs that a value depends on."""
    found, seen, stack = set(), set(), [name]
    while stack:
        name = stack.pop()
        if name is None or name in seen or name in low.constants:
            continue
        seen.add(name)
        if name in low.graph.inputs:
            found.add(name)
        elif name in low.producer:
            stack += low.producer[name][0].inputs
    return found


def _cache_pair(low, node, past, present):
    """Whether these are the past and the present of a layer and nobody else's business."""
    return (all(n is not None and n in low.graph.inputs and low.readers.get(n) == [node] for n in past)
            and all(n is not None and n in low.graph.outputs and n not in low.readers and n not in low.outputs for n in present))


def _group_query(low, node):
    a = node.attributes
    names = node.inputs + [None] * (17 - len(node.inputs))
    q, k, v, past_k, past_v, seqlens, total, cos, sin, positions, bias, sink = names[:12]
    outputs = node.outputs + [None] * (4 - len(node.outputs))
    if not _cache_pair(low, node, (past_k, past_v), outputs[1:3]) or outputs[3] is not None:
        return "its past and present are not an input and an output of the graph"
    for what, wrong in (("softcap", a.get("softcap", 0.0)), ("local_window_size", a.get("local_window_size", -1) != -1), ("smooth_softmax", a.get("smooth_softmax", 0)),
                        ("rotary_interleaved", a.get("rotary_interleaved", 0)), ("causal = 0", a.get("causal", 1) != 1), ("attention_bias", bias),
                        ("head_sink", sink), ("a quantized cache", a.get("k_quant_type", "NONE") != "NONE" or names[12] or names[13]), ("query_seqlens", names[16]),
                        ("sliding_window_cache", a.get("sliding_window_cache", 0))):
        if wrong:
            return f"{what} has no cached form here"
    lengths = _leaves(low, seqlens) | _leaves(low, total)
    if not lengths <= {"attention_mask"}:
        return f"its lengths come from {', '.join(sorted(lengths))}, not from attention_mask"
    if positions is not None and _leaves(low, positions) - {"position_ids"}:
        return "its positions are computed in the graph"
    heads, kv_heads = a["num_heads"], a["kv_num_heads"]
    shape = low.graph.inputs[past_k][1]
    d = shape[3] if shape is not None and len(shape) == 4 and isinstance(shape[3], int) else None
    tables = {}
    if a.get("do_rotary", 0):
        for name, key in ((cos, "cos"), (sin, "sin")):
            t = low.constants.get(name)
            if t is None or len(t.shape) != 2 or t.kind != TensorProto.FLOAT:
                return "its rotary tables are no float32 constants"
            if d is not None and t.shape[1] != d // 2:
                return f"its rotary tables have {t.shape[1]} columns for a head size of {d}: a partial rotation has no cached form here"
            d, tables[key] = 2 * t.shape[1], name
    norms, nodes, epsilon = {}, [node], 1e-6
    if names[14] is not None or names[15] is not None:
        if names[14] not in low.constants or names[15] not in low.constants:
            return "its norm weights are no constants"
        norms = {"q_norm": names[14], "k_norm": names[15]}
        epsilon = a.get("q_norm_epsilon", a.get("qk_norm_epsilon", 1e-6))
        if a.get("k_norm_epsilon", a.get("qk_norm_epsilon", 1e-6)) != epsilon:
            return "q and k have norms with different epsilons"
    elif k is not None and d is not None:
        peeled = [_peel(low, q, node, heads * d, d), _peel(low, k, node, kv_heads * d, d)]
        if all(p is not None for p in peeled) and peeled[0][2] == peeled[1][2]:
            (q, q_norm, epsilon, q_nodes), (k, k_norm, _, k_nodes) = peeled
            norms, nodes = {"q_norm": q_norm, "k_norm": k_norm}, [*q_nodes, *k_nodes, node]
    return _emit(low, node, nodes, (q, k, v), norms, epsilon, tables, heads, kv_heads, d, a.get("scale") or None, outputs[0])


def _peel(low, name, reader, width, d):
    """(source, scale, epsilon, nodes) where a value is Reshape(norm over the head size(Reshape(source))), else None."""
    outer = low.made_by(name, "Reshape")
    if outer is None or not low.only_reader(name, reader):
        return None
    norm = low.producer.get(outer.inputs[0], (None,))[0]
    found = low._rms_of(norm) if norm is not None and norm not in low.claimed else None
    if found is None or not low.only_reader(outer.inputs[0], outer):
        return None
    x, scale, epsilon, axis = found
    t, inner = low.constants.get(scale), low.made_by(x, "Reshape")
    if t is None or t.shape != (d,) or t.kind != TensorProto.FLOAT or axis != -1 or inner is None or not low.only_reader(x, norm):
        return None
    to_heads, back = low.small(inner.inputs[1]), low.small(outer.inputs[1])
    if not to_heads or not back or to_heads[-1] != d or back[-1] != width:
        return None
    return inner.inputs[0], scale, epsilon, [inner, norm, outer]


def _source(low, nodes, parts, widths):
    """The one value that q, k and v are side by side in, if there is one: the input of their Split, or a product made for it."""
    readers = set(nodes)
    split = low.producer.get(parts[0], (None,))[0]
    if split is not None and split.op == "Split" and split not in low.claimed and split.outputs == list(parts):
        sizes = low.small(split.inputs[1]) if len(split.inputs) > 1 else None
        if sizes == widths and split.attributes.get("axis", 0) in (-1, 2) and all(low.only_reader(p, *readers) for p in parts):
            return split.inputs[0], [split]
    found = low._take_linears(*parts)
    if found and [sum(s.n for s in f.specs) for f in found] == widths and all(low.only_reader(p, *readers) for p in parts):
        name = " | ".join(parts)
        low._merge(found, name)
        return name, []
    return None, []


def _emit(low, node, nodes, parts, norms, epsilon, tables, heads, kv_heads, d, scale, out):
    """The step; `parts` are q, k and v, or q alone with all three in it."""
    layer = low.cache_layers
    inputs, why = list(parts), []
    if parts[1] is None:
        inputs = [parts[0]]
    elif d is not None:
        source, extra = _source(low, nodes, parts, [heads * d, kv_heads * d, kv_heads * d])
        if source is not None:
            inputs, nodes = [source], [*extra, *nodes]
    why.append("append to the persistent cache and causal attention over it")
    if tables:
        why.insert(0, "rotation")
    if norms:
        why.insert(0, "norms of q and k")
    if len(inputs) > 1:
        why.insert(0, "q, k and v put side by side")

    def make():
        options = {key: np.ascontiguousarray(low.array(name)) for key, name in (norms | tables).items()}
        options |= dict(num_heads=heads, epsilon=epsilon, scale=scale, threads=low.threads)

        def run(arrays, context):
            qkv = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1)
            width = qkv.shape[-1] * heads // (heads + 2 * kv_heads)
            y = context.new((*qkv.shape[:-1], width))
            return (qkernels.cached_attention(context.cache, layer, qkv, out=y, **options),)

        return run

    low.cache_layers += 1
    low.cache_shape = (kv_heads, d)
    low.cache_positions = min([getattr(low, "cache_positions", 2**31 - 1), *(low.constants[n].shape[0] for n in tables.values())])
    low.claim(Step("cached_attention", ", ".join(why) + ", in one call", nodes, inputs, [out], make, fresh=True, aliases=False))
    return None


def _standard(low, node):
    return "ai.onnx Attention has no cached form here yet"
