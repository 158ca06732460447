"""The Qwen3 decoder: how a checkpoint becomes packed weights, and how tokens become logits. The numerics are qkernels'."""
import dataclasses
import warnings

import numpy as np

import qkernels
from qwen3.checkpoint import EMBEDDING, Checkpoint, is_onnx, resolve, tensor_shapes
from qwen3.config import Qwen3Config, is_integer, rotary_tables
from qwen3.generate import generate
from qwen3.tokenizer import Tokenizer

__all__ = ["Cache", "Qwen3Model", "load"]

WEIGHTS = ("int4", "int8", "bf16", "f32")
ACTIVATIONS = ("int16", "int8", "f32")
CACHE_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "int8": "int8"}
BLOCK_SIZE = 32
DEFAULT_CONTEXT = 4096


def load(path=None, *, weights=None, activations="int16", threads=None, max_context=DEFAULT_CONTEXT, kv="f16", progress=None):
    """Load a dense Qwen3 from a Hugging Face directory, or a decoder graph from an ONNX directory or file.

    Parameters
    ----------
    path : str or os.PathLike, optional
        A directory, or a hub id that is in the local cache; by default the demo model of this package.
    weights : {"int4", "int8", "bf16", "f32"}, default "int4"
        How the projections and the head are kept: 4 bits in blocks of 32 (rounded to nearest, symmetric), 8 bits with a scale per row, or floats.
        The embedding is read from the mapped file as it is. An ONNX graph has weights of its own: only None.
    activations : {"int16", "int8", "f32"}
        How activations enter products with integer weights. Products with float weights take float32 whatever this says, except that
        "int8" is then refused.
    threads : int, optional
        For loading and running; by default `qkernels.get_num_threads()`.
    max_context : int
        Most tokens of prompt and answer together.
    kv : {"f16", "bf16", "f32", "int8"}
        Type of the key-value cache; int8 has a scale for each token's head.
    progress : callable, optional
        ``progress(done, total)`` in bytes of the checkpoint.

    Returns
    -------
    Qwen3Model
        Of an ONNX graph a `qwen3.onnx_decoder.OnnxDecoder`, which is one.

    Raises
    ------
    ConfigError, CheckpointError, OnnxError
        Naming the file, what was expected and what it holds; before any weight is packed.
    ValueError
        For an argument.

    Examples
    --------
    >>> import qwen3
    >>> model = qwen3.load(weights="int8")
    >>> model.forward([1, 2, 3], model.new_cache()).shape == (1, model.config.vocab_size)
    True
    """
    graph = is_onnx(path)
    if graph and weights is not None:
        raise ValueError(f"load: weights: expected None for an ONNX graph, which has its own, got {weights!r}")
    weights = weights or "int4"
    check_precision("load", weights, activations, kv)
    if not is_integer(max_context) or max_context < 1:
        raise ValueError(f"load: max_context: expected an integer >= 1, got {max_context!r}")
    if graph:
        from qwen3.onnx_decoder import OnnxDecoder

        return OnnxDecoder(path, activations=activations, threads=threads, max_context=max_context, kv=kv, progress=progress)
    directory = resolve(path)
    config = Qwen3Config.from_directory(directory)
    if max_context > config.max_position_embeddings:
        if max_context != DEFAULT_CONTEXT:
            warnings.warn(f"load: max_context: {max_context} is beyond the model's {config.max_position_embeddings} positions, which are used", stacklevel=2)
        max_context = config.max_position_embeddings
    checkpoint = Checkpoint(directory)
    head = checkpoint.check(config)
    tokenizer = Tokenizer(directory)
    total = sum(checkpoint.nbytes(name) for name in tensor_shapes(config) if name != EMBEDDING or name == head)
    packing = Packing(checkpoint, weights, threads, progress, total)
    layers = [Layer.pack(packing, f"model.layers.{i}.") for i in range(config.num_hidden_layers)]
    return Qwen3Model(config, tokenizer, layers, packing.vector("model.norm.weight"), packing.linear(head), checkpoint.tensor(EMBEDDING),
                      weights=weights, activations=activations if weights in ("int4", "int8") else "f32", threads=threads,
                      max_context=max_context, kv=kv)


def check_precision(function, weights, activations, kv):
    """ValueError for a precision that there is not, or that does not go with another."""
    for name, value, choices in (("weights", weights, WEIGHTS), ("activations", activations, ACTIVATIONS), ("kv", kv, tuple(CACHE_DTYPES))):
        if value not in choices:
            raise ValueError(f"{function}: {name}: expected one of {', '.join(choices)}, got {value!r}")
    if activations == "int8" and weights in ("bf16", "f32"):
        raise ValueError(f"{function}: activations: int8 needs integer weights, got weights={weights!r}")


class Packing:
    """Turns tensors of a checkpoint into what the kernels read, one product at a time; quantizing reads the mapped file directly."""
    def __init__(self, checkpoint, weights, threads, progress, total):
        self.checkpoint, self.weights, self.threads, self.progress = checkpoint, weights, threads, progress
        self.done, self.total = 0, total

    def linear(self, *names):
        """One product for the weights of `names`, stacked along the outputs."""
        tensors = [self.checkpoint.tensor(name) for name in names]
        if len({t.dtype for t in tensors}) > 1:
            tensors = [t.astype(np.float32) for t in tensors]
        if self.weights == "int4":
            packed = qkernels.PackedNBits.quantize(tensors, bits=4, block_size=BLOCK_SIZE, threads=self.threads)
        elif self.weights == "int8":
            packed = qkernels.PackedInt8Rows(tensors, threads=self.threads)
        else:
            dtype = np.float32 if self.weights == "f32" else np.dtype("bfloat16")
            packed = qkernels.PackedMatrix(tensors, trans_b=True, dtype=dtype, threads=self.threads)
        self._advance(names)
        return packed

    def vector(self, name):
        self._advance([name])
        return np.float32(self.checkpoint.tensor(name))

    def _advance(self, names):
        self.done += sum(self.checkpoint.nbytes(name) for name in names)
        for name in names:
            self.checkpoint.release(name)
        if self.progress:
            self.progress(self.done, self.total)


@dataclasses.dataclass(frozen=True)
class Layer:
    """The weights of one decoder layer; query, key and value share a product, as do gate and up."""
    input_norm: np.ndarray
    qkv: object
    q_norm: np.ndarray
    k_norm: np.ndarray
    out: object
    post_norm: np.ndarray
    gate_up: object
    down: object

    @classmethod
    def pack(cls, packing, prefix):
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return cls(
            input_norm=packing.vector(prefix + "input_layernorm.weight"),
            qkv=packing.linear(attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"),
            q_norm=packing.vector(attention + "q_norm.weight"), k_norm=packing.vector(attention + "k_norm.weight"),
            out=packing.linear(attention + "o_proj.weight"),
            post_norm=packing.vector(prefix + "post_attention_layernorm.weight"),
            gate_up=packing.linear(mlp + "gate_proj.weight", mlp + "up_proj.weight"), down=packing.linear(mlp + "down_proj.weight"))


class Cache(qkernels.KVCache):
    """Keys and values of one sequence, and the working memory of its steps. One thread at a time may use it."""

    def __new__(cls, config, max_context, dtype):
        return super().__new__(cls, config.num_hidden_layers, config.num_key_value_heads, config.head_dim, max_length=max_context, dtype=dtype)

    def __init__(self, config, max_context, dtype):
        self._config, self._rows, self._working = config, 0, None

    def working(self, rows):
        """Uninitialized float32 arrays of `rows` rows: residual, qkv, attended, gate and up."""
        if rows != self._rows:
            c, d = self._config, self._config.head_dim
            widths = (c.hidden_size, (c.num_attention_heads + 2 * c.num_key_value_heads) * d, c.num_attention_heads * d, 2 * c.intermediate_size)
            self._rows, self._working = rows, tuple(np.empty((rows, width), np.float32) for width in widths)
        return self._working


class Qwen3Model:
    """A dense Qwen3 decoder; `load` makes it.

    The logits of a token are the same bits for any chunking of the prompt, any number of threads and any instruction set.

    Attributes
    ----------
    config : Qwen3Config
    tokenizer : Tokenizer
    layers : list of Layer
    max_context : int
    weights, activations, kv : str
    """

    def __init__(self, config, tokenizer, layers, norm, head, embedding, *, weights, activations, threads, max_context, kv):
        self.config, self.tokenizer, self.layers, self.norm, self.head, self.embedding = config, tokenizer, layers, norm, head, embedding
        self.weights, self.activations, self.threads, self.max_context, self.kv = weights, activations, threads, max_context, kv
        self._cos, self._sin = rotary_tables(config, max_context)

    @property
    def nbytes(self):
        """Bytes of the packed weights: projections and head, without the mapped embedding."""
        return self.head.nbytes + sum(w.nbytes for layer in self.layers for w in (layer.qkv, layer.out, layer.gate_up, layer.down))

    def new_cache(self):
        """An empty cache for one sequence of at most `max_context` tokens."""
        return Cache(self.config, self.max_context, CACHE_DTYPES[self.kv])

    def generate(self, ids, **options):
        """Iterate over generated tokens; arguments as in `qwen3.generate.generate`."""
        return generate(self, ids, **options)

    def forward(self, ids, cache, last_only=True, *, out=None, profile=None):
        """Run tokens through the decoder and append them to the cache.

        Parameters
        ----------
        ids : sequence of int
            The next tokens of the sequence; at least one.
        cache : Cache
            Made by `new_cache`; may hold tokens already.
        last_only : bool, default True
            Logits of the last token only.
        out : ndarray, optional
            float32, receives the logits.
        profile : qwen3.profiling.Profile, optional
            Receives what each call took.

        Returns
        -------
        ndarray
            float32 (n, vocabulary); n is 1 with `last_only`.

        Raises
        ------
        ValueError
            For no tokens, or more than the context has room for.
        IndexError
            For an id outside the vocabulary.
        """
        c, threads, activations, epsilon = self.config, self.threads, self.activations, self.config.rms_norm_eps
        ids = np.asarray(ids)
        n = self._check(ids, cache)
        kernels, layers, head = (qkernels, self.layers, self.head) if profile is None else profile.watch(self)
        x, qkv, attended, gate_up = cache.working(n)
        x[...] = self.embedding[ids]
        for i, layer in enumerate(layers):
            # each keyword by name: unpacked from a dictionary they would cost a percent of a step
            layer.qkv(x, norm=layer.input_norm, epsilon=epsilon, activations=activations, out=qkv, threads=threads)
            kernels.cached_attention(cache, i, qkv, q_norm=layer.q_norm, k_norm=layer.k_norm, epsilon=epsilon, cos=self._cos, sin=self._sin,
                                     num_heads=c.num_attention_heads, out=attended, threads=threads)
            layer.out(attended, residual=x, activations=activations, out=x, threads=threads)
            layer.gate_up(x, norm=layer.post_norm, epsilon=epsilon, activations=activations, out=gate_up, threads=threads)
            layer.down(gate_up, swiglu=True, residual=x, activations=activations, out=x, threads=threads)
        cache.advance(n)
        return head(x[-1:] if last_only else x, norm=self.norm, epsilon=epsilon, activations=activations, out=out, threads=threads)

    def _check(self, ids, cache):
        if ids.ndim != 1 or ids.dtype.kind not in "iu" and ids.size:
            raise TypeError(f"forward: ids: expected a flat sequence of integers, got {ids.dtype} of shape {ids.shape}")
        if not ids.size:
            raise ValueError("forward: ids: expected at least one token")
        if (wrong := ids[(ids < 0) | (ids >= self.config.vocab_size)]).size:
            raise IndexError(f"forward: ids: expected 0 <= id < {self.config.vocab_size}, got {wrong[0]}")
        if cache.length + ids.size > self.max_context:
            raise ValueError(f"forward: ids: {ids.size} tokens after {cache.length} exceed the context of {self.max_context}")
        return ids.size
