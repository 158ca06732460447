"""A checkpoint as an ONNX decoder graph, under one of three contracts.

ort-int4
    ai.onnx 26 and com.microsoft 1: MatMulNBits (4 bits, blocks of 32), GroupQueryAttention and SkipSimplifiedLayerNormalization, float32
    elsewhere, the embedding as it is. What ONNX Runtime runs, node for node as its generative model builder writes it.
float
    ai.onnx 23 alone: RMSNormalization, RotaryEmbedding, Attention and MatMul in bfloat16; float32 for diagnosis.
int4-qdq
    The same with each projection a DequantizeLinear (uint4, blocks of 32 along K, bfloat16 scales, explicit zero points) and a MatMul.

The codes are those of `qwen3.load(weights="int4")`, so that a loaded ort-int4 graph gives the bits of the checkpoint.
"""
import hashlib
import json
import pathlib
import re
import shutil

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

import qkernels
from qwen3.checkpoint import EMBEDDING, Checkpoint, is_onnx, resolve, tensor_shapes
from qwen3.config import Qwen3Config, rotary_tables

__all__ = ["CONTRACTS", "export"]

CONTRACTS = ("ort-int4", "float", "int4-qdq")
BLOCK = 32
ALIGN = 64
BF16 = np.dtype(ml_dtypes.bfloat16)
COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "vocab.json",
          "merges.txt", "special_tokens_map.json")


def export(model, out, *, contract="ort-int4", dtype=None, accuracy_level=None, threads=None, progress=None):
    """Write a checkpoint as ``model.onnx`` with external data, the tokenizer's files, genai_config.json and metadata.json.

    Parameters
    ----------
    model : str, os.PathLike or None
        As for `qwen3.load`.
    out : str or os.PathLike
        A directory; it is made, and must not hold a model.onnx yet.
    contract : {"ort-int4", "float", "int4-qdq"}
    dtype : {"bf16", "f32"}, optional
        Of the activations of the float and int4-qdq contracts, and of the float contract's weights; default bf16. ort-int4 is float32.
    accuracy_level : int, optional
        What MatMulNBits nodes permit: 4 lets activations enter as integers. Only ort-int4.
    threads : int, optional
        For quantizing.
    progress : callable, optional
        ``progress(done, total)`` in bytes of the checkpoint.

    Returns
    -------
    dict
        What metadata.json says.

    Raises
    ------
    ConfigError, CheckpointError, ValueError
    """
    if contract not in CONTRACTS:
        raise ValueError(f"export: contract: expected one of {', '.join(CONTRACTS)}, got {contract!r}")
    if dtype is not None and (dtype not in ("bf16", "f32") or contract == "ort-int4" and dtype != "f32"):
        raise ValueError(f"export: dtype: expected {'f32' if contract == 'ort-int4' else 'bf16 or f32'}, got {dtype!r}")
    if accuracy_level is not None and contract != "ort-int4":
        raise ValueError(f"export: accuracy_level: expected None for contract {contract}, whose nodes have none, got {accuracy_level!r}")
    accuracy_level = 4 if accuracy_level is None else accuracy_level
    if accuracy_level not in (0, 1, 2, 3, 4):
        raise ValueError(f"export: accuracy_level: expected 0 to 4, got {accuracy_level!r}")
    if is_onnx(model):
        raise ValueError(f"export: model: expected a checkpoint, got the ONNX graph {model}")
    source, out = resolve(model), pathlib.Path(out)
    config, checkpoint = Qwen3Config.from_directory(source), Checkpoint(source)
    head = checkpoint.check(config)
    if out.exists() and not out.is_dir():
        raise ValueError(f"export: out: expected a directory, got the file {out}")
    if (out / "model.onnx").exists():
        raise ValueError(f"export: out: {out / 'model.onnx'} is there already")
    out.mkdir(parents=True, exist_ok=True)
    total = sum(checkpoint.nbytes(n) for n in tensor_shapes(config))
    with Writer(out, checkpoint, total, threads, progress) as w:
        if contract == "ort-int4":
            graph, opsets, ir = _ort_int4(w, config, head, accuracy_level), {"": 26, "com.microsoft": 1}, 10
        else:
            kind = np.dtype(np.float32) if dtype == "f32" else BF16
            graph, opsets, ir = _standard(w, config, head, kind, contract == "int4-qdq"), {"": 23}, 10
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()], ir_version=ir, producer_name="qkernels",
                              producer_version=qkernels.__version__)
    (out / "model.onnx").write_bytes(proto.SerializeToString())
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    (out / "genai_config.json").write_text(json.dumps(_genai_config(config), indent=2) + "\n", encoding="utf-8")
    metadata = {
        "contract": contract, "exporter": f"qkernels {qkernels.__version__}",
        "source": {"model": str(model) if model is not None else "demo", "revision": _revision(source),
                   "files": {p.name: _digest(p) for p in sorted(source.iterdir()) if p.suffix in (".safetensors", ".json") and p.is_file()}},
        "graph": {"files": {name: _digest(out / name) for name in ("model.onnx", "model.onnx.data")}, "ir_version": ir,
                  "opsets": {d or "ai.onnx": v for d, v in opsets.items()}, "nodes": len(graph.node), "initializers": len(graph.initializer)},
        "activations": "float32" if contract == "ort-int4" or dtype == "f32" else "bfloat16",
        "quantization": None if contract == "float" else {
            "bits": 4, "block_size": BLOCK, "symmetric": True, "rounding": "nearest, the block's value of largest magnitude at code 0",
            "storage": "MatMulNBits, (N, blocks, 16) bytes, low nibble first" if contract == "ort-int4" else
                       "UINT4 row-major, low nibble first, blocks along K",
            "scales": "float32" if contract == "ort-int4" or dtype == "f32" else "bfloat16",
            "zero_points": "implicit 8" if contract == "ort-int4" else "explicit 8"}
        | ({"accuracy_level": accuracy_level} if contract == "ort-int4" else {}),
        "tied_embedding": config.tie_word_embeddings,
        "embedding_and_head": "one initializer" if head == EMBEDDING and contract != "ort-int4" else "two initializers",
    }
    (out / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    return metadata


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _revision(directory):
    """The commit that a directory of the hub's cache belongs to, or None."""
    path = directory.absolute()
    return path.name if path.parent.name == "snapshots" and re.fullmatch(r"[0-9a-f]{40}", path.name) else None


class Writer:
    """Nodes and initializers of a graph; the initializers go to the external data file as they come."""

    def __init__(self, out, checkpoint, total, threads, progress):
        self.checkpoint, self.total, self.threads, self.progress, self.done = checkpoint, total, threads, progress, 0
        self.nodes, self.initializers, self.names = [], [], set()
        self._file = open(out / "model.onnx.data", "wb")  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def tensor(self, name):
        """A tensor of the checkpoint, counted."""
        self.done += self.checkpoint.nbytes(name)
        if self.progress:
            self.progress(self.done, self.total)
        return self.checkpoint.tensor(name)

    def constant(self, name, array, kind=None, shape=None):
        """An initializer from an array, or from packed bytes of a type and shape."""
        if name in self.names:
            return name
        self.names.add(name)
        proto = TensorProto(name=name, data_type=kind or helper.np_dtype_to_tensor_dtype(array.dtype), dims=shape or array.shape,
                            data_location=TensorProto.EXTERNAL)
        self._file.write(b"\0" * (-self._file.tell() % ALIGN))
        entries = {"location": "model.onnx.data", "offset": self._file.tell(), "length": array.nbytes}
        for key, value in entries.items():
            proto.external_data.add(key=key, value=str(value))
        self._write(array)
        self.initializers.append(proto)
        return name

    def _write(self, array):
        if isinstance(array, _Pieces):
            for piece in array:
                self._write(piece)
            return
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(self._file)

    def converted(self, name, array, dtype):
        """An initializer of another float type, converted and written piece by piece."""
        if array.dtype == dtype:
            return self.constant(name, array)
        if name not in self.names:
            self.constant(name, _Pieces(array, dtype))
        return name

    def node(self, op_type, inputs, outputs, name, domain="", **attributes):
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def ints(self, name, values):
        """An int64 constant node."""
        if name not in self.names:
            self.names.add(name)
            array = np.array(values, np.int64)
            value = helper.make_tensor(name, TensorProto.INT64, array.shape, array.reshape(-1))
            self.node("Constant", [], [name], name.replace("/constants/", "/constant_nodes/"), value=value)
        return name

    def quantized(self, names):
        """Codes and scales of matrices stacked along their outputs, as `qwen3.load` packs them."""
        packed = qkernels.PackedNBits.quantize([self.tensor(n) for n in names], bits=4, block_size=BLOCK, threads=self.threads)
        for n in names:
            self.checkpoint.release(n)
        return packed.unpack()[:2]


class _Pieces:
    """An array in another type that is never held whole."""

    def __init__(self, array, dtype):
        self.array, self.dtype, self.shape, self.nbytes = array, np.dtype(dtype), array.shape, array.size * np.dtype(dtype).itemsize

    def __iter__(self):
        rows = max(1, 2**22 // max(1, self.array[:1].size))
        return (self.array[i:i + rows].astype(self.dtype) for i in range(0, len(self.array), rows))


def _value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def _interface(w, c, kind, name):
    """The graph with the inputs and outputs that all contracts share."""
    past = ["batch_size", c.num_key_value_heads, "past_sequence_length", c.head_dim]
    present = ["batch_size", c.num_key_value_heads, "total_sequence_length", c.head_dim]
    layers = range(c.num_hidden_layers)
    inputs = [_value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
              _value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])]
    inputs += [_value(f"past_key_values.{i}.{part}", kind, past) for i in layers for part in ("key", "value")]
    outputs = [_value("logits", kind, ["batch_size", "sequence_length", c.vocab_size])]
    outputs += [_value(f"present.{i}.{part}", kind, present) for i in layers for part in ("key", "value")]
    return helper.make_graph(w.nodes, name, inputs, outputs, w.initializers)


def _ort_int4(w, c, head, accuracy_level):
    """519 nodes for 28 layers."""
    q, kv, d, eps = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim, c.head_dim, c.rms_norm_eps
    prefix, mask = "/model/constants/INT64/", "/model/attn_mask_reformat/attn_mask_subgraph/"
    one, zero_d = w.ints(prefix + "[1]", [1]), w.ints(prefix + "1", 1)
    w.node("ReduceSum", ["attention_mask", one], [mask + "ReduceSum/output_0"], mask + "ReduceSum", keepdims=0)
    w.node("Sub", [mask + "ReduceSum/output_0", one], [mask + "Sub/output_0"], mask + "Sub")
    lengths = w.node("Cast", [mask + "Sub/output_0"], [mask + "Sub/Cast/output_0"], mask + "Sub/Cast", to=TensorProto.INT32)
    w.node("Shape", ["attention_mask"], [mask + "Shape/output_0"], mask + "Shape")
    w.node("Gather", [mask + "Shape/output_0", zero_d], [mask + "Gather/output_0"], mask + "Gather", axis=0)
    total = w.node("Cast", [mask + "Gather/output_0"], [mask + "Gather/Cast/output_0"], mask + "Gather/Cast", to=TensorProto.INT32)
    table = w.converted("model.embed_tokens.weight", w.tensor(EMBEDDING), np.float32)
    x = w.node("Gather", [table, "input_ids"], ["/model/embed_tokens/Gather/output_0"], "/model/embed_tokens/Gather")
    for name, array in zip(("cos_cache", "sin_cache"), rotary_tables(c, c.max_position_embeddings), strict=True):
        w.constant(name, array.astype(np.float32))
    norm = lambda name: w.converted(name, w.tensor(name), np.float32)

    def linear(x, label, names):
        b, scales = w.quantized(names)
        n, blocks, _ = b.shape
        base = label.strip("/").replace("/", ".").removesuffix(".MatMul")
        inputs = [x, w.constant(f"{base}.MatMul.weight_Q4", b), w.constant(f"{base}.MatMul.weight_scales", scales.astype(np.float32))]
        k = w.checkpoint.shape(names[0])[1]
        level = {"accuracy_level": accuracy_level} if accuracy_level else {}
        return w.node("MatMulNBits", inputs, ["logits" if label == "/lm_head/MatMul" else f"{label}/output_0"], f"{label}_Q4", "com.microsoft", K=k, N=n,
                      bits=4, block_size=BLOCK, **level)

    h = "/model/layers.0/input_layernorm/output_0"
    w.node("SimplifiedLayerNormalization", [x, norm("model.layers.0.input_layernorm.weight")], [h], "/model/layers.0/input_layernorm/LayerNorm",
           axis=-1, epsilon=eps, stash_type=1)
    residual = x
    for i in range(c.num_hidden_layers):
        tensors, path = f"model.layers.{i}.", f"/model/layers.{i}"
        attention = f"{path}/attn"
        qkv = linear(h, f"{attention}/qkv_proj/MatMul", [f"{tensors}self_attn.{n}_proj.weight" for n in "qkv"])
        parts = [f"{attention}/qkv_proj/Split/output_{j}" for j in range(3)]
        w.node("Split", [qkv, w.ints(f"{prefix}[{q}, {kv}, {kv}]", [q, kv, kv])], parts, f"{attention}/qkv_proj/Split", axis=-1)
        normed = []
        for which, part, width, role in (("q", parts[0], q, ""), ("k", parts[1], kv, "#k" if q == kv else "")):
            label = f"{attention}/{which}_norm"
            y = w.node("Reshape", [part, w.ints(f"{prefix}[0, -1, {d}]", [0, -1, d])], [f"{label}/Reshape_1/output_0"], f"{label}/Reshape_1")
            y = w.node("SimplifiedLayerNormalization", [y, norm(f"{tensors}self_attn.{which}_norm.weight")],
                       [f"{label}/SimplifiedLayerNormalization/output_0"], f"{label}/SimplifiedLayerNormalization", axis=-1, epsilon=eps, stash_type=1)
            normed.append(w.node("Reshape", [y, w.ints(f"{prefix}[0, -1, {width}]{role}", [0, -1, width])], [f"{label}/Reshape_2/output_0"],
                                 f"{label}/Reshape_2"))
        inputs = [*normed, parts[2], f"past_key_values.{i}.key", f"past_key_values.{i}.value", lengths, total, "cos_cache", "sin_cache"]
        y = w.node("GroupQueryAttention", inputs, [f"{attention}/GroupQueryAttention/output_0", f"present.{i}.key", f"present.{i}.value"],
                   f"{attention}/GroupQueryAttention", "com.microsoft", num_heads=c.num_attention_heads, kv_num_heads=c.num_key_value_heads,
                   scale=float(np.float32(1 / d**0.5)), do_rotary=1, rotary_interleaved=0, local_window_size=-1, softcap=0.0)
        y = linear(y, f"{attention}/o_proj/MatMul", [f"{tensors}self_attn.o_proj.weight"])
        residual, h = _skip(w, residual, y, norm(f"{tensors}post_attention_layernorm.weight"), f"{path}/post_attention_layernorm", eps)
        gate, up = (linear(h, f"{path}/mlp/{n}_proj/MatMul", [f"{tensors}mlp.{n}_proj.weight"]) for n in ("gate", "up"))
        y = w.node("Sigmoid", [gate], [f"{path}/mlp/act_fn/Sigmoid/output_0"], f"{path}/mlp/act_fn/Sigmoid")
        y = w.node("Mul", [gate, y], [f"{path}/mlp/act_fn/Mul/output_0"], f"{path}/mlp/act_fn/Mul")
        y = w.node("Mul", [y, up], [f"{path}/mlp/Mul/output_0"], f"{path}/mlp/Mul")
        y = linear(y, f"{path}/mlp/down_proj/MatMul", [f"{tensors}mlp.down_proj.weight"])
        last = i + 1 == c.num_hidden_layers
        label = f"/model/layers.{i + 1}/" + ("final_norm_layernorm" if last else "input_layernorm")
        residual, h = _skip(w, residual, y, norm("model.norm.weight" if last else f"model.layers.{i + 1}.input_layernorm.weight"), label, eps, last)
    linear(h, "/lm_head/MatMul", [head])
    return _interface(w, c, TensorProto.FLOAT, "qwen3-ort-int4")


def _skip(w, residual, y, gamma, label, eps, last=False):
    outputs = [f"{label}/output_0"] + ([] if last else ["", "", f"{label}/output_3"])
    w.node("SkipSimplifiedLayerNormalization", [residual, y, gamma], outputs, f"{label}/SkipLayerNorm", "com.microsoft", epsilon=eps)
    return outputs[-1], outputs[0]


def _standard(w, c, head, dtype, quantized):
    """ai.onnx 23 alone; with `quantized` each product is a DequantizeLinear of uint4 and a MatMul."""
    q, kv, d, eps = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim, c.head_dim, c.rms_norm_eps
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    prefix = "/model/constants/INT64/"
    ids = lambda *v: w.ints(f"{prefix}{list(v)}", list(v))
    # positions count the tokens of the mask, so that padding on the left takes none
    w.node("CumSum", ["attention_mask", w.ints(prefix + "1", 1)], ["/model/positions/CumSum/output_0"], "/model/positions/CumSum")
    w.node("Sub", ["/model/positions/CumSum/output_0", ids(1)], ["/model/positions/Sub/output_0"], "/model/positions/Sub")
    w.node("Mul", ["/model/positions/Sub/output_0", "attention_mask"], ["/model/positions/Mul/output_0"], "/model/positions/Mul")
    w.node("Shape", ["input_ids"], ["/model/positions/Shape/output_0"], "/model/positions/Shape", start=1, end=2)
    w.node("Neg", ["/model/positions/Shape/output_0"], ["/model/positions/Neg/output_0"], "/model/positions/Neg")
    positions = w.node("Slice", ["/model/positions/Mul/output_0", "/model/positions/Neg/output_0", ids(2**63 - 1), ids(1)],
                       ["/model/positions/Slice/output_0"], "/model/positions/Slice")
    w.node("Cast", ["attention_mask"], ["/model/mask/Cast/output_0"], "/model/mask/Cast", to=TensorProto.BOOL)
    w.node("Unsqueeze", ["/model/mask/Cast/output_0", ids(1, 2)], ["/model/mask/Unsqueeze/output_0"], "/model/mask/Unsqueeze")
    w.node("Concat", [ids(1, 1), "/model/positions/Shape/output_0", ids(1)], ["/model/mask/Concat/output_0"], "/model/mask/Concat", axis=0)
    # for every query its own row, as ONNX Runtime wants it
    mask = w.node("Expand", ["/model/mask/Unsqueeze/output_0", "/model/mask/Concat/output_0"], ["/model/mask/Expand/output_0"], "/model/mask/Expand")
    for name, array in zip(("cos_cache", "sin_cache"), rotary_tables(c, c.max_position_embeddings), strict=True):
        w.converted(name, array, dtype)
    vector = lambda name: w.converted(name, w.tensor(name), dtype)

    def linear(x, label, name, out=None):
        out = out or f"{label}/output_0"
        if not quantized:
            weight = w.converted(name, w.tensor(name).T, dtype)
            return w.node("MatMul", [x, weight], [out], label)
        b, scales = w.quantized([name])
        n, k = w.checkpoint.shape(name)
        codes = _codes(b)[:, :k].T
        base = name.removesuffix(".weight")
        dequantized = _dequantize(w, base, _pack(codes), (k, n), scales.T, 0, dtype, label)
        return w.node("MatMul", [x, dequantized], [out], label)

    tied = None
    if quantized and c.tie_word_embeddings:
        b, scales = w.quantized([EMBEDDING])
        n, k = w.checkpoint.shape(EMBEDDING)
        tied = _dequantize(w, "model.embed_tokens", _pack(_codes(b)[:, :k]), (n, k), scales, 1, dtype, "/model/embed_tokens")
        x = w.node("Gather", [tied, "input_ids"], ["/model/embed_tokens/Gather/output_0"], "/model/embed_tokens/Gather", axis=0)
    else:
        table = vector(EMBEDDING)
        x = w.node("Gather", [table, "input_ids"], ["/model/embed_tokens/Gather/output_0"], "/model/embed_tokens/Gather", axis=0)
    rms = lambda x, weight, label: w.node("RMSNormalization", [x, vector(weight)], [f"{label}/output_0"], label, axis=-1, epsilon=eps)
    for i in range(c.num_hidden_layers):
        tensors, path = f"model.layers.{i}.", f"/model/layers.{i}"
        attention = f"{path}/attn"
        h = rms(x, f"{tensors}input_layernorm.weight", f"{path}/input_layernorm")
        parts = []
        for which, width in (("q", q), ("k", kv), ("v", kv)):
            y = linear(h, f"{attention}/{which}_proj/MatMul", f"{tensors}self_attn.{which}_proj.weight")
            if which != "v":
                y = w.node("Reshape", [y, ids(0, 0, -1, d)], [f"{attention}/{which}_norm/Reshape_1/output_0"], f"{attention}/{which}_norm/Reshape_1")
                y = rms(y, f"{tensors}self_attn.{which}_norm.weight", f"{attention}/{which}_norm")
                y = w.node("Reshape", [y, ids(0, 0, width)], [f"{attention}/{which}_norm/Reshape_2/output_0"], f"{attention}/{which}_norm/Reshape_2")
                y = w.node("RotaryEmbedding", [y, "cos_cache", "sin_cache", positions], [f"{attention}/{which}_rotary/output_0"],
                           f"{attention}/{which}_rotary", num_heads=width // d, interleaved=0, rotary_embedding_dim=d)
            parts.append(y)
        y = w.node("Attention", [*parts, mask, f"past_key_values.{i}.key", f"past_key_values.{i}.value"],
                   [f"{attention}/Attention/output_0", f"present.{i}.key", f"present.{i}.value"], f"{attention}/Attention", is_causal=1,
                   q_num_heads=c.num_attention_heads, kv_num_heads=c.num_key_value_heads, scale=float(np.float32(1 / d**0.5)))
        y = linear(y, f"{attention}/o_proj/MatMul", f"{tensors}self_attn.o_proj.weight")
        x = w.node("Add", [x, y], [f"{attention}/Add/output_0"], f"{attention}/Add")
        h = rms(x, f"{tensors}post_attention_layernorm.weight", f"{path}/post_attention_layernorm")
        gate, up = (linear(h, f"{path}/mlp/{n}_proj/MatMul", f"{tensors}mlp.{n}_proj.weight") for n in ("gate", "up"))
        y = w.node("Sigmoid", [gate], [f"{path}/mlp/act_fn/Sigmoid/output_0"], f"{path}/mlp/act_fn/Sigmoid")
        y = w.node("Mul", [gate, y], [f"{path}/mlp/act_fn/Mul/output_0"], f"{path}/mlp/act_fn/Mul")
        y = w.node("Mul", [y, up], [f"{path}/mlp/Mul/output_0"], f"{path}/mlp/Mul")
        y = linear(y, f"{path}/mlp/down_proj/MatMul", f"{tensors}mlp.down_proj.weight")
        x = w.node("Add", [x, y], [f"{path}/mlp/Add/output_0"], f"{path}/mlp/Add")
    h = rms(x, "model.norm.weight", "/model/norm")
    if head == EMBEDDING:
        if tied is None:
            tied = table
        weight = w.node("Transpose", [tied], ["/lm_head/Transpose/output_0"], "/lm_head/Transpose", perm=[1, 0])
        w.node("MatMul", [h, weight], ["logits"], "/lm_head/MatMul")
    else:
        linear(h, "/lm_head/MatMul", head, "logits")
    return _interface(w, c, kind, "qwen3-int4-qdq" if quantized else "qwen3-float")


def _dequantize(w, base, packed, shape, scales, axis, dtype, label):
    """A DequantizeLinear of uint4 with blocks along `axis`."""
    inputs = [w.constant(f"{base}.weight_Q4", packed, TensorProto.UINT4, shape), w.converted(f"{base}.weight_scales", np.ascontiguousarray(scales), dtype),
              w.constant(f"{base}.weight_zero_points", np.full(-(-scales.size // 2), 0x88, np.uint8), TensorProto.UINT4, scales.shape)]
    return w.node("DequantizeLinear", inputs, [f"{base}.weight_dequantized"], f"{label.removesuffix('/MatMul')}/DequantizeLinear", axis=axis, block_size=BLOCK)


def _codes(b):
    """(N, blocks, 16) bytes as one code for each element, (N, blocks · 32)."""
    codes = np.empty((*b.shape, 2), np.uint8)
    np.bitwise_and(b, 15, out=codes[..., 0])
    np.right_shift(b, 4, out=codes[..., 1])
    return codes.reshape(b.shape[0], -1)


def _pack(codes):
    """Codes in row-major order, two to a byte, the low nibble first."""
    flat = np.ascontiguousarray(codes).reshape(-1)
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return flat[::2] | flat[1::2] << np.uint8(4)


def _genai_config(c):
    return {
        "model": {
            "context_length": c.max_position_embeddings, "eos_token_id": list(c.eos_token_ids), "type": "qwen3", "vocab_size": c.vocab_size,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []}, "filename": "model.onnx", "head_size": c.head_dim,
                "hidden_size": c.hidden_size,
                "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", "past_key_names": "past_key_values.%d.key",
                           "past_value_names": "past_key_values.%d.value"},
                "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
                "num_attention_heads": c.num_attention_heads, "num_hidden_layers": c.num_hidden_layers, "num_key_value_heads": c.num_key_value_heads}},
        "search": {"do_sample": c.do_sample, "max_length": c.max_position_embeddings, "num_beams": 1, "past_present_share_buffer": False,
                   "repetition_penalty": c.repetition_penalty, "temperature": c.temperature, "top_k": c.top_k, "top_p": c.top_p}}
