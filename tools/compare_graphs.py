"""Logits of ONNX decoder graphs against ONNX Runtime, for a table in docs/graphs.md.

    python tools/compare_graphs.py DIR [DIR ...] [--prompt 64] [--steps 16] [--activations f32 int16 int8] [--report]

The oracle is ONNX Runtime on the graph with every accuracy_level set to 0: float32 activations. Both sides get a prompt of random tokens and then more
random tokens one by one, with the cache; then both continue the prompt greedily. For each mode of activations:

    rms     root mean square error of the logits, in standard deviations of the oracle's
    max     the largest error, in the same unit
    bound   what the largest error must stay below, see `bound`
    top 1   positions with the oracle's arg max, among those where its margin exceeds twice the bound; all of them must
    greedy  steps with the oracle's token, up to the first whose margin does not exceed that; and whether ours with its tensors,
            `OnnxModel.run`, are the same tokens as ours with the persistent cache

Exits with 1 if a bound is broken or a graph runs on neither side. A graph that is refused shows why.
"""
import argparse
import collections
import math
import pathlib
import sys
import time

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

import qwen3
from qwen3.config import ConfigError
from qwen3.onnx_file import OnnxError
from qwen3.onnx_graph import OnnxModel, find_model

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bfloat16)": ml_dtypes.bfloat16}
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# One rounding of an activation, as a share of the row's root mean square: half a step is uniform, its deviation step / sqrt(12); a step is
# max|a| / 32512 or / 127 of a block of 32, in which the largest of normally distributed values is 2.1 times the root mean square, 2.5 with a margin.
CREST = 2.5
ROUNDING = {"f32": 0.0, "int16": CREST / (32512 * 12**0.5), "int8": CREST / (127 * 12**0.5)}


def bound(mode, layers, floats="float32", codes=False):
    """What the largest error of a logit must stay below, in standard deviations of the logits.

    A layer makes four products of rounded activations in a row (q/k/v; o; gate and up; down), and gate and up meet in one more: what it adds to
    the residual has a relative error of sqrt(5) roundings. The n-th layer's share of the residual is 1/n where all add the same, so that the
    squares sum up to 5 (1 + ln layers), and the head makes one more. Floats count like a rounding of 8 units: sums of some hundred terms in another
    order; 16-bit floats, which are rounded at each of some 20 nodes of a layer, of 2. The largest of 10 million normally distributed errors
    is 5.3 times their deviation: 6. In a cache of codes a rounding that ends on the other side of a half moves an element by a whole step; few do,
    and together they stay below what rounding every activation to 8 bits does: with codes that is the bound.
    """
    if codes:
        mode = "int8"
    float_error = 8 * UNIT["float32"] if floats == "float32" else 2 * UNIT[floats]
    return 6 * (1 + 5 * (1 + math.log(layers)))**0.5 * math.hypot(ROUNDING[mode], float_error)


def sliding_rows(nodes, attributes):
    """Rows of the keys and values before the first token: none, or those of a window where the graph keeps no more."""
    return max((a.get("local_window_size", 0) for a in map(attributes, nodes) if a.get("sliding_window_cache")), default=0)


class Oracle:
    """ONNX Runtime on a graph at accuracy level 0."""

    def __init__(self, path):
        import onnxruntime as ort

        model = onnx.load(path, load_external_data=False)
        self.rows = sliding_rows(model.graph.node, lambda node: {a.name: a.i for a in node.attribute})
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 0
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # of its own fusion of DequantizeLinear and MatMul
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.inputs, self.outputs = self.session.get_inputs(), [o.name for o in self.session.get_outputs()]
        self.reset()

    def reset(self):
        self.length = 0
        size = lambda d, i: d if isinstance(d, int) else (1, 0, self.rows, 128)[i]
        self.past = {i.name: np.zeros([size(d, n) for n, d in enumerate(i.shape)], TYPES.get(i.type, np.uint8 if "uint8" in i.type else np.int8))
                     for i in self.inputs if "past" in i.name}

    def __call__(self, ids):
        feeds = feeds_for(ids, self.length, [i.name for i in self.inputs]) | self.past
        names = ["logits", *(n for n in self.outputs if "present" in n)]
        logits, *present = self.session.run(names, feeds)
        by_name = dict(zip(names[1:], present, strict=True))
        self.past = {n: by_name[n.replace("past_key_values", "present")] for n in self.past}
        self.length += len(ids)
        return np.asarray(logits, np.float32)[0]


def feeds_for(ids, length, names):
    feeds = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, length + len(ids)), np.int64),
             "position_ids": np.arange(length, length + len(ids))[None]}
    return {n: a for n, a in feeds.items() if n in names}


class Tensors:
    """Ours, with past and present as tensors."""

    def __init__(self, path, activations):
        self.model = OnnxModel(path, activations=activations)
        self.names = [n for n in self.model.inputs if "past" in n]
        self.length, self.past = 0, {}
        rows = sliding_rows(self.model.graph.nodes, lambda node: node.attributes)
        for name in self.names:
            kind, shape = self.model.inputs[name]
            sizes = [d if isinstance(d, int) else (1, 0, rows, 128)[i] for i, d in enumerate(shape)]
            self.past[name] = np.zeros(sizes, onnx.helper.tensor_dtype_to_np_dtype(kind))

    def __call__(self, ids):
        logits, *present = self.model.run(feeds_for(ids, self.length, self.model.inputs) | self.past,
                                          ["logits", *(n.replace("past_key_values", "present") for n in self.names)])
        self.past = dict(zip(self.names, present, strict=True))
        self.length += len(ids)
        return np.float32(logits[0])


def greedy(run, prompt, steps):
    """(tokens, margins between the first and the second)."""
    ids, margins, logits = [], [], run(prompt)[-1]
    for _ in range(steps):
        first, second = np.partition(logits, -2)[:-3:-1]
        ids.append(int(logits.argmax()))
        margins.append(first - second)
        logits = run([ids[-1]])[-1]
    return ids, np.array(margins)


def compare(directory, modes, prompt, steps, report, max_context):
    """Rows of the table for one graph, and whether all is as it must be."""
    name = directory.name
    try:
        path = find_model(directory)
    except OnnxError as error:
        return [(name, "", f"refused: {error}")], True
    try:
        oracle, failure = Oracle(path), None
    except Exception as error:  # noqa: BLE001  whatever ONNX Runtime says
        oracle, failure = None, str(error).split("\n")[0]
    rows, good = [], True
    for mode in modes:
        begin = time.perf_counter()
        try:
            model = qwen3.load(directory, activations=mode, kv="f32", max_context=max_context)
        except (OnnxError, ConfigError) as error:
            return [(name, "", f"refused: {str(error).removeprefix(str(path)).lstrip(': ')}")], True
        kernels = collections.Counter(kernel for _, _, kernel, _ in model.report())
        quantized = any(k.startswith("PackedNBits") for k in kernels)
        if mode != "f32" and not quantized:
            continue
        if report and mode == modes[0]:
            print(f"{name}: cache {model.cache_kind}, {len(model.plan.steps)} calls; {dict(kernels.most_common())}", *model.uncached[:2], sep="\n  ",
                  file=sys.stderr)
        rng = np.random.default_rng(0)
        vocabulary = model.config.vocab_size
        ids = rng.integers(0, vocabulary, prompt + steps).tolist()
        cache = model.new_cache()
        ours = np.concatenate([model.forward(ids[:prompt], cache, last_only=False), *(model.forward([i], cache) for i in ids[prompt:])])
        cache.reset()
        mine, _ = greedy(lambda new, model=model, cache=cache: model.forward(new, cache), ids[:prompt], steps)
        same = "not run"
        if model.cache_kind == "persistent" and any("past" in n for n in model.model.graph.inputs):
            same = "same ids" if greedy(Tensors(path, mode), ids[:prompt], steps)[0] == mine else "OTHER ids"
        good &= same != "OTHER ids"
        if oracle is None:
            rows.append((name, mode, f"ONNX Runtime does not run it ({failure})", "", "", "", "", same))
            continue
        oracle.reset()
        parts = [oracle(ids[:prompt]), *(oracle([i]) for i in ids[prompt:])]
        if len(parts[0]) == 1 and prompt > 1:  # the head is pruned to the last token
            ours = ours[prompt - 1:]
        theirs = np.concatenate(parts).astype(np.float64)
        spread = theirs.std()
        error = np.abs(ours - theirs) / spread
        types = {str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))) for kind, _ in model.model.graph.outputs.values()}
        most = bound(mode, model.config.num_hidden_layers, next((t for t in ("bfloat16", "float16") if t in types), "float32"),
                     any(np.dtype(helper.tensor_dtype_to_np_dtype(k)).itemsize == 1 for n, (k, _) in model.model.graph.inputs.items() if "past" in n))
        top = np.sort(theirs, -1)[:, -2:]
        clear = (top[:, 1] - top[:, 0]) / spread > 2 * most
        agree = ours.argmax(-1) == theirs.argmax(-1)
        oracle.reset()
        reference, margins = greedy(oracle, ids[:prompt], steps)
        stable = int(np.argmin(margins / spread > 2 * most)) if (margins / spread <= 2 * most).any() else steps
        common = next((i for i, (a, b) in enumerate(zip(mine, reference, strict=True)) if a != b), steps)
        ok = error.max() <= most and agree[clear].all() and common >= stable
        good &= bool(ok)
        rows.append((name, mode, f"{np.sqrt((error**2).mean()):.1e}", f"{error.max():.1e}", f"{most:.1e}{'' if ok else ' BROKEN'}",
                     f"{int(agree[clear].sum())} of {int(clear.sum())} clear, {int(agree.sum())} of {len(agree)}", f"{common} of {steps}", same))
        if report:
            print(f"  {mode}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    return rows, good


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=pathlib.Path)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--activations", nargs="+", default=["f32", "int16", "int8"], choices=["f32", "int16", "int8"])
    parser.add_argument("--max-context", type=int, default=4096)
    parser.add_argument("--report", action="store_true", help="which kernels run the nodes, on standard error")
    arguments = parser.parse_args()
    print("| graph | activations | rms | max | bound | top 1 | greedy, as the oracle | greedy, tensors |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for directory in arguments.directories:
        rows, fine = compare(directory, arguments.activations, arguments.prompt, arguments.steps, arguments.report, arguments.max_context)
        good &= fine
        for row in rows:
            print("| " + " | ".join(row + ("",) * (8 - len(row))) + " |", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
