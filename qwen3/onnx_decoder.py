"""A decoder graph with the interface of `qwen3.model`: forward, new_cache, generate, config, tokenizer."""
import math
import pathlib

import ml_dtypes
import numpy as np

import qkernels
from qwen3.config import ConfigError, Fields, Qwen3Config, tokenizer_eos
from qwen3.model import CACHE_DTYPES, DEFAULT_CONTEXT, Qwen3Model
from qwen3.onnx_file import MISTAKES, OnnxError, named
from qwen3.onnx_graph import Context, OnnxModel, Plan, find_model
from qwen3.tokenizer import Tokenizer

__all__ = ["OnnxDecoder"]

FLOATS = tuple(np.dtype(getattr(ml_dtypes, name, name)) for name in ("float32", "float16", "bfloat16"))
POSITIONS = ("position_ids", "cache_position")
TOKENWISE = {"take_rows", "gather", "rms_normalization", "skip_simplified_layer_normalization", "PackedNBits", "PackedMatrix", "silu_mul", "silu", "add", "mul",
             "sigmoid", "cached_attention", "cast"}


class GraphCache(qkernels.KVCache):
    """Keys and values of one sequence in place, and arrays that the steps of a graph use again."""

    def __new__(cls, layers, kv_heads, head_size, max_length, dtype):
        return super().__new__(cls, layers, kv_heads, head_size, max_length=max_length, dtype=dtype)

    def __init__(self, *_):
        self._rows, self._context = 0, None

    def context(self, rows):
        """The context of a step of so many tokens."""
        if rows != self._rows:
            self._rows, self._context = rows, Context(self)
        return self._context


class TensorCache:
    """Keys and values as the tensors that a graph takes and returns, copied whole at every step; or, for a graph without them, the tokens."""

    def __init__(self, empty, max_length):
        self._empty, self.max_length = empty, max_length
        self.reset()

    def reset(self):
        """Forget everything."""
        self.length, self.arrays, self.ids = 0, dict(self._empty), []

    def truncate(self, n):
        """Forget all but the first n tokens."""
        if not 0 <= n <= self.length:
            raise ValueError(f"truncate: n: expected 0 to length {self.length}, got {n}")
        self.length, self.ids = n, self.ids[:n]
        self.arrays = {name: a[:, :, :n] for name, a in self.arrays.items()}

    @property
    def nbytes(self):
        """Bytes of keys and values."""
        return sum(a.nbytes for a in self.arrays.values())


def _joins(graph):
    """Past input → what a Concat makes of it and the new keys or values, or an attention node's present."""
    places = {"Concat": ((0, 0),), "Attention": ((4, 1), (5, 2)), "com.microsoft::GroupQueryAttention": ((3, 1), (4, 2))}
    return {node.inputs[i]: node.outputs[o] for node in graph.nodes for i, o in places.get(node.op, ())
            if i < len(node.inputs) and o < len(node.outputs) and node.inputs[i] in graph.inputs}


class OnnxDecoder(Qwen3Model):
    """A Qwen3 decoder from an ONNX graph.

    Where every attention node's past and present are an input and an output of the graph, keys and values live in a `qkernels.KVCache`; else
    they are the graph's tensors, or the whole sequence is run again if it has none. `cache_kind` says which.

    Parameters
    ----------
    path : str or os.PathLike
        A .onnx file or its directory, with genai_config.json, config.json and the tokenizer's files where they are.
    activations, threads, max_context, kv
        As in `qwen3.load`; ``activations=None`` is what the nodes' accuracy_level permits.
    progress : callable, optional
        ``progress(done, total)`` in bytes of the file.
    prepare : bool, default True
        Pack the weights at once, not at the first run.

    Attributes
    ----------
    model : OnnxModel
    plan : Plan
    cache_kind : {"persistent", "tensors", "none"}
    """

    def __init__(self, path, *, activations="int16", threads=None, max_context=None, kv="f16", progress=None, prepare=True):
        self.directory = find_model(path).parent
        self.genai = Fields(self.directory / "genai_config.json", optional=True)
        self.model = OnnxModel(self._file(path), activations=activations, threads=threads, lazy=True)
        graph = self.model.graph
        self.activations, self.threads, self.kv, self.weights = activations or "as the graph says", threads, kv, "as the graph says"
        if "input_ids" not in graph.inputs:
            raise OnnxError(f"{graph.path}: inputs: expected input_ids, as a decoder has, got {', '.join(list(graph.inputs)[:5])}")
        self._logits = "logits" if "logits" in graph.outputs else next(iter(graph.outputs))
        self._past = self._pairs(graph)
        options = dict(activations=activations, threads=threads)
        positions = min(max_context or DEFAULT_CONTEXT, self._positions())
        self.plan = Plan(graph, [self._logits], self.model.weights, cached=True, positions=positions, **options)
        self.uncached = self.plan.uncached
        if not self._past:
            # a graph of whole sequences: each token by itself but for attention, which can then be continued
            alone = self.plan.cache_layers and self.plan.inputs == ["input_ids"] and all(step.kernel.partition(",")[0] in TOKENWISE for step in self.plan.steps)
            self.cache_kind = "persistent" if alone and not self.uncached else "none"
            if self.cache_kind == "none":
                self.plan = self.model.plan_for([self._logits])
        elif self.plan.cache_layers and not self._past.keys() & {*self.plan.inputs}:
            self.cache_kind = "persistent"
        else:
            self.cache_kind = "tensors"
            self.plan = self.model.plan_for([self._logits, *self._past.values()])
        known = {"input_ids", "attention_mask", *POSITIONS, *self._past}
        if unknown := [n for n in self.plan.inputs if n not in known]:
            raise OnnxError(f"{graph.path}: input {unknown[0]}: a decoder is fed {', '.join(sorted(known - {*self._past}))} and past keys and values only")
        self.config = self._configuration()
        declared = graph.outputs[self._logits][1]
        if declared is not None and (len(declared) != 3 or isinstance(declared[2], int) and declared[2] != self.config.vocab_size):
            raise OnnxError(f"{graph.path}: output {self._logits}: expected logits of a vocabulary of {self.config.vocab_size}, got shape {declared}")
        most = min(self.config.max_position_embeddings, self.plan.cache_positions)
        self.max_context = most if max_context is None else min(max_context, most)
        self.tokenizer = Tokenizer(self.directory) if (self.directory / "tokenizer.json").is_file() else None
        if prepare:
            self.plan.prepare(progress)

    def _file(self, path):
        """The graph's file: what genai_config.json names, in this directory."""
        path = pathlib.Path(path)
        model = self.genai.section("model")
        decoder = model.section("decoder") if model else None
        name = decoder.values.get("filename") if decoder else None
        if path.is_file() or name is None:
            return find_model(path)
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            decoder.fail("filename", "the name of a file in this directory")
        if not (path / name).is_file():
            raise OnnxError(f"{path / name}: no such file, but genai_config.json names it")
        return path / name

    def _positions(self):
        """The most positions that the files beside the graph speak of."""
        if (self.directory / "config.json").is_file():
            return Qwen3Config.from_directory(self.directory).max_position_embeddings
        model = self.genai.section("model")
        return model.integer("context_length") if model else 2**31 - 1

    @staticmethod
    def _pairs(graph):
        """Past input → present output."""
        past = [n for n in graph.inputs if "past" in n]
        present = [n for n in graph.outputs if n != "logits" and n != next(iter(graph.outputs))] if "logits" not in graph.outputs else \
            [n for n in graph.outputs if n != "logits"]
        by_name = {n: n.replace("past_key_values", "present").replace("past", "present") for n in past}
        if all(p in graph.outputs for p in by_name.values()):
            return by_name
        by_node = _joins(graph)
        if by_node.keys() == {*past} and all(p in graph.outputs for p in by_node.values()):
            return {name: by_node[name] for name in past}
        present = [n for n in present if graph.outputs[n][1] is None or len(graph.outputs[n][1]) == 4]
        if len(present) != len(past):
            raise OnnxError(f"{graph.path}: {len(past)} past inputs, but {len(present)} outputs that could be the present keys and values")
        return dict(zip(past, present, strict=True))

    def _configuration(self):
        if (self.directory / "config.json").is_file():
            return Qwen3Config.from_directory(self.directory)
        plan, graph = self.plan, self.model.graph
        vocab = graph.outputs[self._logits][1]
        epsilon = [n.attributes["epsilon"] for n in graph.nodes if "epsilon" in n.attributes]
        inner = [sum(s.n for s in specs) // 2 for step in plan.steps if "2 products of one input" in step.why for _, specs in step.packed]
        kv_heads, head_dim = plan.cache_shape
        fields = dict(vocab_size=vocab[-1] if vocab and isinstance(vocab[-1], int) else 0, max_position_embeddings=plan.cache_positions,
                      num_hidden_layers=len(self._past) // 2, num_key_value_heads=kv_heads or 0, head_dim=head_dim or 0)
        search, eos = Fields(self.genai.path, values={}), set()
        if model := self.genai.section("model"):
            decoder = model.section("decoder") or Fields(self.genai.path, values={}, prefix="model.decoder.")
            fields |= dict(hidden_size=decoder.integer("hidden_size"), num_hidden_layers=decoder.integer("num_hidden_layers"),
                           num_attention_heads=decoder.integer("num_attention_heads"), num_key_value_heads=decoder.integer("num_key_value_heads"),
                           head_dim=decoder.integer("head_size"), vocab_size=model.integer("vocab_size"),
                           max_position_embeddings=model.integer("context_length"))
            eos = {*model.token_ids("eos_token_id")}
            search = self.genai.section("search") or search
        else:
            attention = next((n for n in graph.nodes if "num_heads" in n.attributes or "q_num_heads" in n.attributes), None)
            heads = (attention.attributes.get("num_heads") or attention.attributes.get("q_num_heads")) if attention else 0
            fields |= dict(hidden_size=0, num_attention_heads=heads)
        if not fields["vocab_size"]:
            raise ConfigError(f"{self.directory}: neither config.json, genai_config.json nor the shape of {self._logits} says how large the vocabulary is")
        return Qwen3Config(
            **fields, intermediate_size=inner[0] if inner else 0, rms_norm_eps=epsilon[0] if epsilon else 0.0, rope_theta=self._theta(),
            eos_token_ids=tuple(sorted(eos | {*tokenizer_eos(self.directory)})), do_sample=search.boolean("do_sample", False),
            temperature=search.number("temperature", 1.0, minimum=0), top_k=search.integer("top_k", 0, minimum=0),
            top_p=search.number("top_p", 1.0, minimum=0, maximum=1), repetition_penalty=search.number("repetition_penalty", 1.0, above=0))

    def _theta(self):
        """The base of the rotary tables, from the angle of their last column; 0 where there are none."""
        tables = self.plan.rotary
        if tables is None or tables[0].shape[1] < 2 or tables[0].shape[0] < 2:
            return 0.0
        cos, sin = (np.float64(t[1, -1]) for t in tables)
        half = tables[0].shape[1]
        angle = math.atan2(sin, cos)
        return float(f"{angle ** (-half / (half - 1)):.6g}") if angle > 0 else 0.0

    @property
    def nbytes(self):
        """Bytes of the packed weights, each initializer counted once."""
        return self.plan.nbytes

    def new_cache(self):
        """An empty cache for one sequence of at most `max_context` tokens."""
        try:
            if self.cache_kind == "persistent":
                kv_heads, head_size = self.plan.cache_shape
                return GraphCache(self.plan.cache_layers, kv_heads, head_size or self.config.head_dim, self.max_context, CACHE_DTYPES[self.kv])
            return TensorCache({name: self._empty(name) for name in self._past}, self.max_context)
        except MISTAKES as error:
            raise named(error, f"{self.model.path}: keys and values") from error

    def _empty(self, name):
        from onnx import helper

        kind, shape = self.model.graph.inputs[name]
        sizes = [1, self.config.num_key_value_heads, 0, self.config.head_dim]
        if shape is None or len(shape) != 4:
            raise OnnxError(f"input {name}: expected 4 dimensions, got {shape}")
        sizes = [d if isinstance(d, int) and i in (1, 3) else s for i, (d, s) in enumerate(zip(shape, sizes, strict=True))]
        return np.zeros(sizes, helper.tensor_dtype_to_np_dtype(kind))

    def forward(self, ids, cache, last_only=True, *, out=None, profile=None):
        """Run tokens through the decoder and append them to the cache; as `qwen3.model.Qwen3Model.forward`.

        `profile` is a `qwen3.profiling.Profile` that receives what each step took.
        """
        ids = np.asarray(ids)
        n = self._check(ids, cache)
        if not last_only and self._prunes():
            # what the graph leaves out is had one token at a time
            return np.concatenate([self.forward([i], cache, profile=profile) for i in ids.tolist()], out=out)
        if self.cache_kind == "persistent":
            context = cache.context(n)
            context.last_only = last_only
            context.out = out if last_only else None
            (logits,) = self.plan.run(self._feeds(ids, cache.length), context, profile)
            cache.advance(n)
        elif self.cache_kind == "tensors":
            context = Context()
            logits, *presents = self.plan.run(self._feeds(ids, cache.length) | cache.arrays, context, profile)
            cache.arrays = dict(zip(self._past, presents, strict=True))
            cache.length += n
        else:
            whole = cache.ids + ids.tolist()
            (logits,) = self.plan.run(self._feeds(np.array(whole), 0), Context(), profile)
            logits, cache.ids = logits[:, -n:], whole
            cache.length += n
        rows = logits.shape[1] if logits.ndim == 3 else 0
        if logits.shape != (1, rows, self.config.vocab_size) or rows not in (1, n) or logits.dtype not in FLOATS:
            raise OnnxError(f"{self.model.path}: {self._logits}: expected floats of shape {1, n, self.config.vocab_size}, got {logits.dtype} {logits.shape}")
        logits = logits[0]
        logits = logits[-1:] if last_only else logits
        if out is not None:
            if not np.may_share_memory(out, logits):
                out[...] = logits
            return out
        return logits if logits.dtype == np.float32 else qkernels.cast(logits, np.float32)

    def _prunes(self):
        """Whether the graph makes logits of the last token only."""
        shape = self.model.graph.outputs[self._logits][1]
        return shape is not None and len(shape) == 3 and shape[1] == 1

    def _feeds(self, ids, past):
        n = len(ids)
        feeds = {"input_ids": ids.astype(np.int64)[None], "attention_mask": np.ones((1, past + n), np.int64) if "attention_mask" in self.plan.inputs else None,
                 "position_ids": np.arange(past, past + n)[None], "cache_position": np.arange(past, past + n)}
        return {name: a.astype(self._kind(name), copy=False) for name, a in feeds.items() if name in self.plan.inputs}

    def _kind(self, name):
        from onnx import helper

        return helper.tensor_dtype_to_np_dtype(self.model.graph.inputs[name][0])

    def report(self):
        """For every node: (name, operator, kernel, why)."""
        return [(node.name, node.op, *self.plan.status[node]) for node in self.model.graph.nodes]

