"""Checkpoints in Hugging Face's layout: where they are, what is in them, and their tensors as views of the mapped files.

The safetensors headers are parsed here, because the library's NumPy reader copies every tensor and knows no BF16; a loader that
quantizes tensor by tensor wants the mapping itself.
"""
import json
import math
import mmap
import os
import pathlib
import re
import struct
import warnings
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from qwen3._extras import require
from qwen3.config import is_integer, read_json

__all__ = ["Checkpoint", "CheckpointError", "is_onnx", "resolve", "tensor_shapes"]

DEMO = pathlib.Path(__file__).parent / "demo"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
MAX_HEADER = 100_000_000  # bytes; the limit of the format's reference implementation

# dtypes that a model may be stored in; the others of the format only have a size, to check the file
DTYPES = {"BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
ITEM_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
             "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


class CheckpointError(ValueError):
    """A checkpoint that is absent, incomplete or damaged, or that does not belong to its configuration."""


def resolve(path=None):
    """The directory of a model: nothing is ever downloaded.

    Parameters
    ----------
    path : str, os.PathLike or None
        A directory; a hub id such as ``"Qwen/Qwen3-0.6B"``, looked up in the local cache (`HF_HOME`, `HF_HUB_CACHE`); None is
        the demo model of this package.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    CheckpointError
        Naming the places that were looked at.

    Examples
    --------
    >>> import qwen3
    >>> qwen3.resolve().name
    'demo'
    """
    directory = DEMO if path is None else pathlib.Path(path).expanduser()
    if directory.is_dir():
        return directory
    if path is None:
        raise CheckpointError(f"{directory}: the demo model is not part of this installation")
    if directory.exists():
        raise CheckpointError(f"{directory}: expected a model directory or a hub id, got a file")
    # Only a string of one or two plain parts can be a hub id; `./name`, `a/b/c` and Path objects are meant as paths.
    if not isinstance(path, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", path):
        raise CheckpointError(f"{directory}: no such directory")
    hub = require("huggingface_hub")
    config = hub.try_to_load_from_cache(path, "config.json")
    if not isinstance(config, str):
        cache = hub.constants.HF_HUB_CACHE
        raise CheckpointError(f"{path}: expected a model directory or the id of a model in the local cache; there is no directory "
                              f"{directory.absolute()} and no config.json of {path} in {cache} (HF_HOME, HF_HUB_CACHE; nothing is downloaded)")
    return pathlib.Path(config).parent


def is_onnx(path):
    """Whether a path is an ONNX model: a .onnx file, or a directory with one and without safetensors."""
    if path is None:
        return False
    path = pathlib.Path(path).expanduser()
    if path.is_file():
        return path.suffix == ".onnx"
    return path.is_dir() and any(path.glob("*.onnx")) and not any(path.glob("*.safetensors"))


def tensor_shapes(config):
    """The tensors of a dense Qwen3 and their shapes, in the order of the forward pass.

    Parameters
    ----------
    config : Qwen3Config

    Returns
    -------
    dict of str to tuple of int
        Includes ``lm_head.weight`` only where the head is not tied to the embedding.

    Examples
    --------
    >>> import qwen3
    >>> from qwen3.checkpoint import tensor_shapes
    >>> config = qwen3.Qwen3Config.from_directory(qwen3.resolve())
    >>> tensor_shapes(config)["model.norm.weight"] == (config.hidden_size,)
    True
    """
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    query, key = config.num_attention_heads * head, config.num_key_value_heads * head
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden), "self_attn.k_proj": (key, hidden), "self_attn.v_proj": (key, hidden),
        "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }
    shapes = {EMBEDDING: (config.vocab_size, hidden)}
    shapes |= {f"model.layers.{i}.{name}.weight": shape for i in range(config.num_hidden_layers) for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


@dataclass(frozen=True)
class Entry:
    """One tensor of a safetensors file: its dtype by the format's name, its shape, and its place in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """A mapped safetensors file whose header has been checked against the file."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.entries = self._parse(file, size)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path}: not readable: {error.strerror or error}") from error

    def fail(self, message):
        raise CheckpointError(f"{self.path}: {message}")

    def _parse(self, file, size):
        if size < 8:
            self.fail(f"truncated: expected the 8 bytes of a safetensors header's length, got {size} bytes")
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size - 8, MAX_HEADER):
            self.fail(f"truncated, or not a safetensors file: header of {length} bytes, file of {size}")
        try:
            header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=self._unique)
        except CheckpointError:
            raise
        except (ValueError, RecursionError) as error:
            self.fail(f"header is not JSON: {error}")
        if not isinstance(header, dict):
            self.fail(f"header: expected a JSON object, got {type(header).__name__}")
        header.pop("__metadata__", None)
        entries = {name: self._entry(name, value, 8 + length) for name, value in header.items()}
        end = 8 + length
        for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            if entry.start != end:
                self.fail(f"{name}: data_offsets leave a gap or overlap: expected to start at {end - 8 - length}, got {entry.start - 8 - length}")
            end = entry.stop
        if end != size:
            self.fail(f"{'truncated' if size < end else 'longer than its header says'}: expected {end} bytes, got {size}")
        return entries

    def _unique(self, pairs):
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            self.fail(f"header: {next(n for i, n in enumerate(names) if n in names[:i])!r} occurs twice")
        return dict(pairs)

    def _entry(self, name, value, base):
        natural = lambda v: isinstance(v, list) and all(is_integer(i) and 0 <= i < 2**63 for i in v)
        if not isinstance(value, dict) or not isinstance(value.get("dtype"), str) or not natural(value.get("shape")):
            self.fail(f"{name}: expected dtype, shape and data_offsets, got {str(value)[:200]}")
        dtype, shape, offsets = value["dtype"], tuple(value["shape"]), value.get("data_offsets")
        if not natural(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            self.fail(f"{name}: data_offsets: expected [start, stop], got {offsets!r}")
        bits = ITEM_BITS.get(dtype)
        if bits is not None and -(-math.prod(shape) * bits // 8) != offsets[1] - offsets[0]:
            self.fail(f"{name}: {dtype} of shape {shape} is {-(-math.prod(shape) * bits // 8)} bytes, data_offsets give {offsets[1] - offsets[0]}")
        return Entry(dtype, shape, base + offsets[0], base + offsets[1])

    def tensor(self, name):
        entry = self.entries[name]
        dtype = DTYPES[entry.dtype]
        count = math.prod(entry.shape)
        flat = np.frombuffer(self._map, dtype, count, entry.start) if count else np.empty(0, dtype)
        # Old writers did not pad their headers; kernels may rely on alignment.
        flat = flat if flat.flags.aligned else flat.copy()
        flat.flags.writeable = False
        return flat.reshape(entry.shape)

    def release(self, name):
        entry = self.entries[name]
        start = entry.start // mmap.PAGESIZE * mmap.PAGESIZE
        if entry.stop > entry.start and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED, start, entry.stop - start)


class Checkpoint:
    """The tensors of a checkpoint directory, from one `model.safetensors` or from the shards of an index.

    Opening it reads and checks the headers of all files; no weight is read before `tensor` gives a view of it. Where there is an
    index, it alone says which files belong to the checkpoint.

    Parameters
    ----------
    directory : str or os.PathLike

    Attributes
    ----------
    names : tuple of str
        Tensors in the order of the index or the header.

    Raises
    ------
    CheckpointError
        Naming the file, what was expected and what it holds.

    Examples
    --------
    >>> import qwen3
    >>> checkpoint = qwen3.Checkpoint(qwen3.resolve())
    >>> checkpoint.shape("model.layers.0.self_attn.q_norm.weight")
    (128,)
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        if not self.directory.is_dir():
            raise CheckpointError(f"{self.directory}: no such directory")
        if (self.directory / INDEX).is_file():
            self._files = self._open_shards(self.directory / INDEX)
        elif (self.directory / SINGLE).is_file():
            file = SafetensorsFile(self.directory / SINGLE)
            self._files = dict.fromkeys(file.entries, file)
        else:
            other = next(iter(sorted(p.name for pattern in ("*.bin", "*.pth", "*.gguf") for p in self.directory.glob(pattern))), None)
            hint = f"; it holds {other}, but only safetensors files are read" if other else ""
            raise CheckpointError(f"{self.directory}: expected {SINGLE} or {INDEX} with its shards, found neither{hint}")
        self.names = tuple(self._files)

    @staticmethod
    def _open_shards(index):
        weight_map = read_json(index, error=CheckpointError).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
            raise CheckpointError(f"{index}: weight_map: expected an object from tensor names to file names")
        shards = list(dict.fromkeys(weight_map.values()))
        # The names are judged as written, so that a file may still be a symbolic link into the hub cache.
        for shard in shards:
            if shard in ("", ".", "..") or "/" in shard or "\\" in shard or "\0" in shard:
                raise CheckpointError(f"{index}: weight_map: expected names of files in this directory, got {shard!r}")
        if missing := [s for s in shards if not (index.parent / s).is_file()]:
            raise CheckpointError(f"{index.parent}: {len(missing)} of {len(shards)} files of the index are missing: {', '.join(missing)}")
        files = {shard: SafetensorsFile(index.parent / shard) for shard in shards}
        for name, shard in weight_map.items():
            if name not in files[shard].entries:
                raise CheckpointError(f"{index.parent / shard}: {name}: the index puts it in this file, but it is not there")
        return {name: files[shard] for name, shard in weight_map.items()}

    def _entry(self, name):
        if name not in self._files:
            raise CheckpointError(f"{self.directory}: {name}: no such tensor")
        return self._files[name].entries[name]

    def shape(self, name):
        """Shape of a tensor, from the header."""
        return self._entry(name).shape

    def dtype(self, name):
        """NumPy dtype of a tensor, from the header: bfloat16, float16 or float32.

        Raises
        ------
        CheckpointError
            Where it is stored in another type.
        """
        stored = self._entry(name).dtype
        if stored not in DTYPES:
            raise CheckpointError(f"{self._files[name].path}: {name}: expected BF16, F16 or F32, got {stored}")
        return DTYPES[stored]

    def tensor(self, name):
        """A tensor as a read-only view of the mapped file; no byte is read before it is used.

        Parameters
        ----------
        name : str

        Returns
        -------
        ndarray of bfloat16, float16 or float32
        """
        self.dtype(name)
        return self._files[name].tensor(name)

    def release(self, name):
        """Give back the memory of a tensor that has been read; views of it stay valid and read the file again."""
        self._entry(name)
        self._files[name].release(name)

    def nbytes(self, name):
        """Bytes of a tensor as it is stored."""
        entry = self._entry(name)
        return entry.stop - entry.start

    def check(self, config):
        """Check that the tensors are those of `config`, each with its shape and a float dtype, before any work is done.

        Warns of tensors that a Qwen3 of this configuration has no use for.

        Parameters
        ----------
        config : Qwen3Config

        Returns
        -------
        str
            Name of the tensor that is the language model head: the embedding's where the configuration ties them.

        Raises
        ------
        CheckpointError
            Naming up to 5 tensors that are missing or wrong, with the expected and the given shape.
        """
        expected = tensor_shapes(config)
        wrong = []
        for name, shape in expected.items():
            if name not in self._files:
                wrong.append(f"{name}: expected shape {shape}, it is missing" + " (tie_word_embeddings is false)" * (name == HEAD))
            elif self.shape(name) != shape:
                wrong.append(f"{name}: expected shape {shape}, got {self.shape(name)}")
            else:
                self.dtype(name)
        if wrong:
            rest = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise CheckpointError(f"{self.directory}: {'; '.join(wrong[:5])}{rest}")
        unexpected = [name for name in self.names if name not in expected]
        if config.tie_word_embeddings and HEAD in unexpected:
            unexpected.remove(HEAD)
            if not self._same(HEAD, EMBEDDING):
                warnings.warn(f"{self.directory}: {HEAD} differs from {EMBEDDING}, but tie_word_embeddings is true: the embedding is used",
                              stacklevel=2)
        if unexpected:
            rest = f" and {len(unexpected) - 5} more" if len(unexpected) > 5 else ""
            warnings.warn(f"{self.directory}: tensors that are not used: {', '.join(unexpected[:5])}{rest}", stacklevel=2)
        return EMBEDDING if config.tie_word_embeddings else HEAD

    def _same(self, a, b):
        """Equal values, compared piece by piece, so that two large matrices are not held as float32."""
        a, b = self.tensor(a), self.tensor(b)
        rows = max(1, 2**20 // max(1, a[:1].size))
        return a.shape == b.shape and all(np.array_equal(a[i:i + rows], b[i:i + rows]) for i in range(0, len(a), rows))
