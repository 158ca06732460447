"""Attention nodes on the persistent cache: one call for the norms of q and k, the rotation, the append and the attention itself."""
import numpy as np
from onnx import TensorProto, helper

import qkernels
from qwen3.onnx_file import MISTAKES, OnnxError, Tensor
from qwen3.onnx_patterns import Step

__all__ = ["lower"]


def lower(low, node):
    """Turn an attention node with past inputs and present outputs into a step on the cache, or leave it, with the reason in its status."""
    reason = (_group_query if node.op.startswith("com") else _standard)(low, node)
    if reason:
        low.uncached.append(f"{node.name}: {reason}")


def _leaves(low, name, of_shapes=True):
    """Graph inputs that a value depends on, with those of which only the shape matters or without."""
    found, seen, stack = set(), set(), [name]
    while stack:
        name = stack.pop()
        if name is None or name in seen or name in low.constants:
            continue
        seen.add(name)
        if name in low.graph.inputs:
            found.add(name)
        elif name in low.producer and (of_shapes or low.producer[name][0].op not in ("Shape", "Size")):
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
    quantized = a.get("k_quant_type", "NONE") != "NONE" or names[12] or names[13]
    for what, wrong in (("causal = 0", a.get("causal", 1) != 1), ("attention_bias", bias), ("a quantized cache", quantized),
                        ("query_seqlens", names[16])):
        if wrong:
            return f"{what} has no cached form here"
    if a.get("sliding_window_cache", 0) and a.get("local_window_size", -1) <= 0:  # with a window the whole cache is seen through it
        return "sliding_window_cache has no window"
    for value, first in ((seqlens, 0), (total, 1)):
        if problem := _counts(low, value, first, False):
            return problem
    if positions is not None and (problem := _counts(low, positions)):
        return problem
    heads, kv_heads = a["num_heads"], a["kv_num_heads"]
    shape = low.graph.inputs[past_k][1]
    d = shape[3] if shape is not None and len(shape) == 4 and isinstance(shape[3], int) else None
    d = d or _size_of_heads(low, q, heads + (2 * kv_heads if k is None else 0))
    tables = {}
    if a.get("do_rotary", 0):
        for name, key in ((cos, "cos"), (sin, "sin")):
            t = low.constants.get(name)
            if t is None or len(t.shape) != 2 or t.kind != TensorProto.FLOAT:
                return "its rotary tables are no float32 constants"
            if d is None:
                return f"neither the shape of {past_k} nor what makes {q} says how large a head is"
            tables[key] = name
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
    extra = dict(softcap=a.get("softcap", 0.0), local_window_size=a.get("local_window_size", -1), interleaved=a.get("rotary_interleaved", 0))
    if sink is not None:
        t = low.constants.get(sink)
        if t is None or t.shape != (heads,) or t.kind != TensorProto.FLOAT:
            return "its head_sink is no float32 constant"
        tables["sink"] = sink
    elif a.get("smooth_softmax", 0) == 1:
        extra["sink"] = np.zeros(heads, np.float32)
    return _emit(low, node, nodes, (q, k, v), norms, epsilon, tables, heads, kv_heads, d, a.get("scale") or None, outputs[0], extra=extra)


def _size_of_heads(low, name, heads):
    """The size of each of the heads that a value has side by side, from the Reshape, Split or product that makes it; or None."""
    node, place = low.producer.get(name, (None, 0))
    width = None
    if name in low.linears:
        width = sum(s.n for s in low.linears[name].specs)
    elif node is not None and node.op in ("Reshape", "Split") and len(node.inputs) > 1 and (sizes := low.small(node.inputs[1])):
        width = sizes[-1] if node.op == "Reshape" else sizes[place] if place < len(sizes) else None
    return width // heads if width and width > 0 and width % heads == 0 else None


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


def _emit(low, node, nodes, parts, norms, epsilon, tables, heads, kv_heads, d, scale, out, three=True, unflatten=False, extra=None):
    """The step; `parts` are q, k and v, or q alone with all three in it."""
    if low.attentions and low.cache_shape != (kv_heads, d):
        return f"its {kv_heads} key heads of size {d} are not like those of the layers before, {low.cache_shape[0]} of size {low.cache_shape[1]}"
    inputs, why = list(parts), []
    if parts[1] is None:
        inputs = [parts[0]]
    elif d is not None and three:
        source, split = _source(low, nodes, parts, [heads * d, kv_heads * d, kv_heads * d])
        if source is not None:
            inputs, nodes = [source], [*split, *nodes]
    why.append("append to the persistent cache and causal attention over it")
    if "cos" in tables:
        why.insert(0, "rotation")
    if norms:
        why.insert(0, "norms of q and k")
    if len(inputs) > 1:
        why.insert(0, "q, k and v put side by side")

    def make():
        layer = low.attentions.index(step)
        options = {key: np.ascontiguousarray(low.array(name)) for key, name in (norms | tables).items()}
        options |= dict(num_heads=heads, epsilon=epsilon, scale=scale, threads=low.threads) | (extra or {})

        def run(arrays, context):
            if not three:
                arrays = [a.transpose(0, 2, 1, 3).reshape(a.shape[0], a.shape[2], -1) for a in arrays]
            qkv = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1)
            dtype = qkv.dtype
            if dtype != np.float32:
                qkv = qkernels.cast(qkv, np.float32)
            width = qkv.shape[-1] * heads // (heads + 2 * kv_heads)
            y = context.new((*qkv.shape[:-1], width))
            y = qkernels.cached_attention(context.cache, layer, qkv, out=y, **options)
            y = y if dtype == np.float32 else qkernels.cast(y, dtype)
            return (y if three and not unflatten else y.reshape(*y.shape[:-1], heads, -1).transpose(0, 2, 1, 3),)

        return run

    low.cache_shape = (kv_heads, d)
    if "cos" in tables:
        low.rotary = tables["cos"], tables["sin"]
        low.cache_positions = min(low.cache_positions, *(low.constants[n].shape[0] for n in low.rotary))
    step = Step("cached_attention", ", ".join(why) + ", in one call", nodes, inputs, [out], make, fresh=three and not unflatten, aliases=False)
    low.attentions.append(step)
    low.claim(step)
    return None


def _standard(low, node):
    a = node.attributes
    q, k, v, mask, past_k, past_v, padding = (node.inputs + [None] * 7)[:7]
    outputs = node.outputs + [None] * (4 - len(node.outputs))
    if outputs[3] is not None or padding is not None:
        return "its scores are asked for" if outputs[3] is not None else "nonpad_kv_seqlen has no cached form here"
    left = a.get("left_window_size", -1)
    extra = dict(softcap=a.get("softcap", 0.0), local_window_size=left + 1 if left >= 0 else -1)
    if a.get("right_window_size", -1) > 0 and not a.get("is_causal", 0):
        return "it looks ahead"
    three = a.get("q_num_heads") is not None
    heads = a.get("q_num_heads") or _heads_before(low, q)
    if heads is None:
        return "the number of its heads is not to be seen"
    nodes, kv_heads, d, kind = [node], a.get("kv_num_heads"), None, TensorProto.FLOAT
    if past_k is not None:
        if not _cache_pair(low, node, (past_k, past_v), outputs[1:3]):
            return "its past and present are not an input and an output of the graph"
    else:
        # keys and values may be repeated for their query heads, and the past may be joined outside of the node
        (k, k_nodes), (v, v_nodes) = _unrepeated(low, k, node, heads), _unrepeated(low, v, node, heads)
        readers = [(k_nodes or nodes)[0], (v_nodes or nodes)[0]]
        repeats = [*k_nodes, *v_nodes]
        nodes = [*repeats, node]
        joined = [_joined(low, name, reader) for name, reader in zip((k, v), readers, strict=True)]
        if all(j is not None for j in joined):
            if a.get("is_causal", 0):
                return "its past is joined outside of it, but is_causal counts from the first key"
            (past_k, k, _, first), (past_v, v, _, second) = joined
            nodes = [*first, *second, *nodes]
        elif any("past" in n for n in low.graph.inputs) or any(o is not None for o in outputs[1:3]):
            return "its keys and values are not joined with an input of the graph"
        elif repeats:
            kv_heads = _heads_before(low, k)
    if past_k is not None:
        kind, shape = low.graph.inputs[past_k]
        if shape is None or len(shape) != 4:
            return f"{past_k} has not four dimensions"
        kv_heads, d = shape[1] if isinstance(shape[1], int) else kv_heads, shape[3] if isinstance(shape[3], int) else None
    kv_heads = kv_heads or _heads_before(low, k)
    if kv_heads is None or heads % kv_heads:
        return "the number of its key heads is not to be seen"
    frontier = bool(a.get("is_causal", 0)) or a.get("right_window_size", -1) == 0
    if (mask is not None or not frontier) and (problem := _causal(low, mask, frontier)):
        return problem
    d = d or _head_size(low, q)
    if d is None:
        return "the size of its heads is not to be seen"
    out, after = _never_masked(low, outputs[0])
    nodes = [*nodes, *after]
    fused = _fused(low, node, (q, k, v), heads, kv_heads, d, three) if kind == TensorProto.FLOAT and _is_float32(low) else None
    if fused is None:
        return _emit(low, node, nodes, (q, k, v), {}, 1e-6, {}, heads, kv_heads, d, a.get("scale"), out, three, extra=extra)
    parts, norms, epsilon, tables, before = fused
    emit = _emit if three else _emit_flat
    return emit(low, node, [*before, *nodes], parts, norms, epsilon, tables, heads, kv_heads, d, a.get("scale"), out, extra=extra)


def _never_masked(low, out):
    """(result, nodes): past a Where that clears queries to which the mask shows nothing, if there is none in an unpadded sequence."""
    where = low.reader(out, "Where")
    if where is None or where.inputs[2] != out:
        return out, []
    try:
        if any(np.asarray(_evaluate(low, where.inputs[0], past, new)).any() for past, new in _samples(low)):
            return out, []
    except MISTAKES:
        return out, []
    return where.outputs[0], [where]


def _fused(low, node, parts, heads, kv_heads, d, three):
    """(parts, norms, epsilon, tables, nodes): q, k and v before their norms, rotation and the split into heads; None where that is another form."""
    peel = _peel_three if three else _peel_four
    found = []
    for name, n in zip(parts, (heads, kv_heads, kv_heads), strict=True):
        readers = low.readers[name]
        peeled = peel(low, name, readers[0], n, d) if len(readers) == 1 else None
        if peeled is None:
            return None
        found.append(peeled)
    q, k, v = found
    if v["scale"] or v["turn"] or bool(q["scale"]) != bool(k["scale"]) or bool(q["turn"]) != bool(k["turn"]) or q["scale"] and q["epsilon"] != k["epsilon"]:
        return None
    tables = {}
    if q["turn"]:
        tables = _tables(low, q["turn"]) if _same_turn(low, q["turn"], k["turn"]) else None
        if tables is None:
            return None
    norms = {"q_norm": q["scale"], "k_norm": k["scale"]} if q["scale"] else {}
    return tuple(f["source"] for f in found), norms, q["epsilon"], tables, [n for f in found for n in f["nodes"]]


def _emit_flat(low, node, nodes, parts, norms, epsilon, tables, heads, kv_heads, d, scale, out, extra):
    """The step for q, k and v with their heads side by side, where the result goes back to that form: the Transpose and Reshape after it go with it."""
    turn = low.reader(out, "Transpose")
    if turn is not None and turn.attributes.get("perm") == [0, 2, 1, 3] and (flat := low.reader(turn.outputs[0], "Reshape")) is not None:
        target = low.small(flat.inputs[1])
        if target and len(target) == 3 and target[-1] in (heads * d, -1):
            return _emit(low, node, [*nodes, turn, flat], parts, norms, epsilon, tables, heads, kv_heads, d, scale, flat.outputs[0], True, extra=extra)
    return _emit(low, node, nodes, parts, norms, epsilon, tables, heads, kv_heads, d, scale, out, True, unflatten=True, extra=extra)


def _is_float32(low):
    """Whether no tensor of the graph that could be an activation has another float type."""
    return not any(t.kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16) and len(t.shape) == 1 for t in low.constants.values())


def _head_size(low, name):
    """The head size of a four-dimensional query, from the Reshape before it."""
    for _ in range(12):
        node = low.producer.get(name, (None,))[0]
        if node is None or not node.inputs or node.inputs[0] is None:
            return None
        if node.op == "Reshape":
            target = low.small(node.inputs[1])
            return target[3] if target and len(target) == 4 and target[3] > 0 else None
        name = node.inputs[0]
    return None


def _unrepeated(low, name, reader, heads):
    """(value, nodes): keys or values before Unsqueeze, Expand and Reshape made one for each query head of them."""
    reshape = low.made_by(name, "Reshape")
    expand = reshape and low.made_by(reshape.inputs[0], "Expand")
    unsqueeze = expand and low.made_by(expand.inputs[0], "Unsqueeze")
    if not unsqueeze or not (low.only_reader(name, reader) and low.only_reader(reshape.inputs[0], reshape) and low.only_reader(expand.inputs[0], expand)):
        return name, []
    target = low.small(reshape.inputs[1])
    if low.small(unsqueeze.inputs[1]) != [2] or not target or len(target) != 4 or target[1] != heads:
        return name, []
    return unsqueeze.inputs[0], [unsqueeze, expand, reshape]


def _joined(low, name, reader):
    """(past, new value, present, nodes) of keys or values that are Concat(past, new) and go nowhere but here and out of the graph."""
    concat = low.made_by(name, "Concat")
    if concat is None or len(concat.inputs) != 2 or concat.attributes.get("axis") not in (2, -2) or low.readers.get(name) != [reader] or name in low.outputs:
        return None
    past, new = concat.inputs
    if past not in low.graph.inputs or name not in low.graph.outputs:
        return None
    # what else reads the past may only ask for its shape
    if any(r is not concat and r.op != "Shape" for r in low.readers[past]):
        return None
    return past, new, name, [concat]


def _peel_three(low, name, reader, heads, d):
    """What made q, k or v of three dimensions: a rotation of a norm of the source, both optional."""
    found = {"source": name, "scale": None, "epsilon": 1e-6, "turn": None, "nodes": []}
    node = low.made_by(name, "RotaryEmbedding")
    if node is not None and low.only_reader(name, reader):
        found |= {"turn": node, "nodes": [node], "source": node.inputs[0]}
        reader, name = node, node.inputs[0]
    peeled = _peel(low, name, reader, heads * d, d)
    if peeled is not None:
        found |= {"source": peeled[0], "scale": peeled[1], "epsilon": peeled[2], "nodes": [*peeled[3], *found["nodes"]]}
    return found


def _peel_four(low, name, reader, heads, d):
    """What made q, k or v of four dimensions: rotation, Transpose and norm in any order after a Reshape to heads; None without the Reshape."""
    found = {"source": None, "scale": None, "epsilon": 1e-6, "turn": None, "nodes": []}
    turned = False
    for _ in range(4):
        node = low.producer.get(name, (None,))[0]
        if node is None or node in low.claimed or not low.only_reader(name, reader):
            return None
        found["nodes"].insert(0, node)
        if node.op == "Reshape":
            target = low.small(node.inputs[1])
            if not turned or not target or len(target) != 4 or target[2:] != [heads, d]:
                return None
            return found | {"source": node.inputs[0]}
        if node.op == "Transpose" and node.attributes.get("perm") == [0, 2, 1, 3] and not turned:
            turned = True
        elif node.op == "RotaryEmbedding" and found["turn"] is None and found["scale"] is None:
            if not turned and node.inputs[0] in low.producer and node.attributes.get("num_heads", heads) not in (0, heads):
                return None
            found["turn"] = node
        elif (norm := low._rms_of(node)) is not None and found["scale"] is None:
            t = low.constants.get(norm[1])
            if t is None or t.shape != (d,) or t.kind != TensorProto.FLOAT or norm[3] not in (-1, 3):
                return None
            found |= {"scale": norm[1], "epsilon": norm[2]}
        else:
            return None
        reader, name = node, node.inputs[0]
    return None


def _same_turn(low, a, b):
    """Whether q and k are turned by the same angles."""
    if a is None or b is None or len(a.inputs) != len(b.inputs):
        return False
    keys = ("interleaved", "rotary_embedding_dim")
    if any(a.attributes.get(key, 0) != b.attributes.get(key, 0) for key in keys):
        return False
    return all(x == y or _same_value(low, x, y) for x, y in zip(a.inputs[1:], b.inputs[1:], strict=True))


def _same_value(low, x, y):
    """Whether two values are made by the same operators from the same inputs."""
    seen, stack = set(), [(x, y)]
    while stack:
        pair = stack.pop()
        if pair[0] == pair[1] or pair in seen:
            continue
        seen.add(pair)
        (a, i), (b, j) = (low.producer.get(n, (None, 0)) for n in pair)
        if a is None or b is None or i != j or a.op != b.op or a.attributes != b.attributes or len(a.inputs) != len(b.inputs):
            return False
        stack += zip(a.inputs, b.inputs, strict=True)
    return True


def _tables(low, node):
    """{"cos": name, "sin": name} of constants with a row for each position, for a rotation of whole heads by halves; else None."""
    if node.attributes.get("interleaved", 0):
        return None
    cos, sin = node.inputs[1:3]
    if node.attributes.get("whole"):
        tables = {"cos": _table_of(low, cos, node.attributes["half"]), "sin": _table_of(low, sin, node.attributes["half"])}
        return tables if all(tables.values()) else None
    positions = node.inputs[3] if len(node.inputs) > 3 else None
    partial = node.attributes.get("rotary_embedding_dim", 0)
    if positions is not None:
        tables = [low.constants.get(n) for n in (cos, sin)]
        if any(t is None or len(t.shape) != 2 or t.kind != TensorProto.FLOAT for t in tables) or partial not in (0, 2 * tables[0].shape[1]):
            return None
        return None if _counts(low, positions) else {"cos": cos, "sin": sin}
    if partial:
        return None
    tables = {"cos": _table_of(low, cos), "sin": _table_of(low, sin)}
    return tables if all(tables.values()) else None


def _table_of(low, name, half=None):
    """A constant with the rows that a value of shape (1, tokens, n) has at each position, if it depends on nothing else; its name, or None.

    With `half` the value is (1, 1, tokens, 2 · half), the same twice.
    """
    key = f"{name} at every position"
    if key in low.constants:
        return key
    try:
        whole = _evaluate(low, name, 0, low.positions)
        if half is not None:
            if whole.ndim != 4 or whole.shape[1] != 1 or whole.shape[3] != 2 * half or not np.array_equal(whole[..., :half], whole[..., half:]):
                return None
            whole = whole[:, 0]
        if whole.ndim != 3 or whole.shape[:2] != (1, low.positions) or whole.dtype != np.float32:
            return None
        for past, new in _samples(low):
            if not np.array_equal(_evaluate(low, name, past, new).reshape(new, -1), whole[0, past:past + new]):
                return None
    except MISTAKES:
        return None
    table = np.ascontiguousarray(whole[0, :, :half])
    low.constants[key] = Tensor(key, TensorProto.FLOAT, table.shape, table)
    return key


def _heads_before(low, name):
    """Heads of a four-dimensional query, from the Reshape before it."""
    for _ in range(12):
        node = low.producer.get(name, (None,))[0]
        if node is None:
            return None
        if node.op == "Reshape":
            target = low.small(node.inputs[1])
            return target[2] if target and len(target) == 4 and target[2] > 0 else None
        name = node.inputs[0]
    return None


def _samples(low):
    """(past, new) for which masks and positions are looked at, the last token of the longest context among them: a window shows there.

    Where the graph takes no past, sequences from their beginning.
    """
    if any("past" in n for n in low.graph.inputs):
        return (0, 3), (2, 1), (3, 2), (0, 1), (low.positions - 1, 1)
    return [(0, new) for new in (1, 2, 3, 5, low.positions)]


def _evaluate(low, name, past, new):
    """A value of the graph for one unpadded sequence, from a plan of its own; OnnxError where it cannot be run or depends on which tokens these are."""
    key = name, past, new
    if key not in low.evaluated:
        if tokens := _leaves(low, name, of_shapes=False) - {"attention_mask", "position_ids", "cache_position"}:
            raise OnnxError(f"it depends on the elements of {', '.join(sorted(tokens))}")
        from qwen3.onnx_graph import Plan

        if name not in low.samples:
            low.samples[name] = Plan(low.graph, [name], low.weights, threads=1)
        plan, feeds = low.samples[name], {}
        for feed in plan.inputs:
            kind, shape = low.graph.inputs[feed]
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            if feed == "input_ids":
                feeds[feed] = np.zeros((1, new), dtype)
            elif feed == "attention_mask":
                feeds[feed] = np.ones((1, past + new), dtype)
            elif feed == "position_ids":
                feeds[feed] = np.arange(past, past + new, dtype=dtype)[None]
            elif feed == "cache_position":
                feeds[feed] = np.arange(past, past + new, dtype=dtype)
            elif shape is not None and len(shape) == 4 and "past" in feed:
                feeds[feed] = np.zeros([1, shape[1] if isinstance(shape[1], int) else 1, past, shape[3] if isinstance(shape[3], int) else 1], dtype)
            else:
                raise OnnxError(f"input {feed} is none that a decoder is fed")
        result = plan.run(feeds)[0]
        if result.size > 1 << 16:
            return result
        low.evaluated[key] = result
    return low.evaluated[key]


def _judged(judge):
    """Remember a verdict: layers share their masks and positions."""
    def remembered(low, *arguments):
        key = judge.__name__, *arguments
        if key not in low.judged:
            try:
                low.judged[key] = judge(low, *arguments)
            except MISTAKES as error:
                low.judged[key] = f"its {'mask' if judge.__name__ == '_causal' else 'positions'} could not be looked at: {error}"
        if low.judged[key] is None:
            low.cache_positions = min(low.cache_positions, low.positions)  # as far as it has been looked at
        return low.judged[key]

    return remembered


@_judged
def _counts(low, positions, first=0, every=True):
    """None where a value is past + `first`, past + `first` + 1, … for an unpadded sequence, or with every=False only the last of these; else why not."""
    for past, new in _samples(low):
        expected = np.arange(past, past + new) + first
        if not np.array_equal(_evaluate(low, positions, past, new).reshape(-1), expected if every else expected[-1:]):
            return "its positions are not those of the tokens" if every else "its lengths are not those of the sequence"
    return None


@_judged
def _causal(low, mask, causal):
    """None where mask and is_causal together show each token exactly itself and all before it, for an unpadded sequence; else why not."""
    if mask is None:
        return "it is not causal"
    for past, new in _samples(low):
        m = np.asarray(_evaluate(low, mask, past, new))
        seen = np.tri(new, past + new, past, dtype=bool)
        if m.ndim == 0 or m.shape[-1] != past + new:
            return f"its mask has shape {m.shape} for {new} tokens after {past}"
        m = np.broadcast_to(m, np.broadcast_shapes(m.shape, seen.shape))
        visible = m if m.dtype == bool else m == 0
        hidden = ~m if m.dtype == bool else m <= -1e4
        if not (visible | ~seen).all() or not (causal or (hidden | seen).all()):
            return "its mask is not the causal one"
    return None
