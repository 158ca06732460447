"""What a checkpoint holds and how it would be packed, from its configuration and its headers alone."""
import math
from collections import Counter

from qwen3.checkpoint import EMBEDDING, HEAD, Checkpoint, resolve, tensor_shapes
from qwen3.config import Qwen3Config

__all__ = ["describe", "packed_nbytes"]

PACKED_AS = {"int4": "int4, block 32", "int8": "int8, per row", "bf16": "bf16", "f32": "f32"}


def packed_nbytes(shape, weights, dtype="bfloat16"):
    """Bytes of a matrix once it is packed, as `qkernels` lays it out: tiles of 16 rows and, where quantized, 32 columns.

    Parameters
    ----------
    shape : tuple of int
        Rows (outputs) and columns (inputs).
    weights : {"int4", "int8", "bf16", "f32"}
    dtype : str
        What the matrix is stored in: int4 scales of bfloat16 weights fit 16 bits.

    Returns
    -------
    int

    Examples
    --------
    >>> from qwen3.inspection import packed_nbytes
    >>> packed_nbytes((16, 32), "int4")
    288
    """
    rows, blocks = -(-shape[0] // 16) * 16, -(-shape[1] // 32)
    if weights == "int4":
        return rows * blocks * (16 + (2 if dtype == "bfloat16" else 4))
    if weights == "int8":
        return rows * (blocks * 32 + 4)
    return rows * shape[1] * {"bf16": 2, "f32": 4}[weights]


def describe(path=None, weights="int4"):
    """A description of a model, as text.

    Parameters
    ----------
    path : str, os.PathLike or None
        As for `load`.
    weights : {"int4", "int8", "bf16", "f32"}
        How the matrices would be packed.

    Returns
    -------
    str

    Examples
    --------
    >>> from qwen3.inspection import describe
    >>> print(describe().splitlines()[1])  # doctest: +ELLIPSIS
    architecture  Qwen3ForCausalLM: ... layers, hidden size ..., inner size ...
    """
    directory = resolve(path)
    config, checkpoint = Qwen3Config.from_directory(directory), Checkpoint(directory)
    head = checkpoint.check(config)
    shapes = tensor_shapes(config)
    tied = head == EMBEDDING
    facts = {
        "directory": directory,
        "architecture": f"Qwen3ForCausalLM: {config.num_hidden_layers} layers, hidden size {config.hidden_size}, "
                        f"inner size {config.intermediate_size}",
        "attention": f"{config.num_attention_heads} query heads, {config.num_key_value_heads} key and value heads of size {config.head_dim}",
        "rotary": f"theta {config.rope_theta:,.0f}" + _yarn(config.rope_scaling),
        "positions": f"{config.max_position_embeddings:,}",
        "vocabulary": f"{config.vocab_size:,} rows, head {'tied to the embedding' if tied else 'of its own'}",
        "end tokens": ", ".join(map(str, config.eos_token_ids)) or "none",
        "sampling": _sampling(config),
        "parameters": f"{sum(math.prod(s) for s in shapes.values()):,}",
    }
    lines = [f"{name:14}{value}" for name, value in facts.items()]
    lines += ["", *table(_packing(checkpoint, shapes, tied, weights), (False, True) * 3)]
    vectors = 2 * config.num_hidden_layers * config.num_key_value_heads * 1000
    values = vectors * config.head_dim
    lines += ["", f"keys and values per 1,000 tokens: {_size(4 * values)} in f32, {_size(2 * values)} in f16 or bf16, {_size(values + 4 * vectors)} in int8"]
    return "\n".join(lines)


def _packing(checkpoint, shapes, tied, weights):
    """Rows of the table: what, how many tensors, as stored, bytes, as packed, bytes."""
    kinds = {"embedding": [EMBEDDING], "attention": [], "MLP": [], "norms": []}
    for name, shape in shapes.items():
        if name not in (EMBEDDING, HEAD):
            kinds["norms" if len(shape) == 1 else "MLP" if ".mlp." in name else "attention"].append(name)
    kinds["head"] = [EMBEDDING if tied else HEAD]
    rows = [("", "tensors", "stored as", "bytes", "packed as", "bytes")]
    stored_total = packed_total = 0
    for kind, names in kinds.items():
        types = " ".join(t for t, _ in Counter(checkpoint.dtype(n).name for n in names).most_common())
        stored = sum(checkpoint.nbytes(n) for n in names)
        if kind == "embedding":
            packed_as, packed = "rows read from the file", 0
        elif kind == "norms":
            packed_as, packed = "f32", 4 * sum(math.prod(shapes[n]) for n in names)
        else:
            packed_as, packed = PACKED_AS[weights], sum(packed_nbytes(shapes[n], weights, checkpoint.dtype(n).name) for n in names)
        if kind == "head" and tied:
            types, stored = "the embedding", 0
        stored_total, packed_total = stored_total + stored, packed_total + packed
        rows.append((kind, f"{len(names)}", types, f"{stored:,}", packed_as, f"{packed:,}"))
    rows.append(("total", "", "", f"{stored_total:,}", "", f"{packed_total:,}"))
    return rows


def table(rows, right):
    """Lines of columns as wide as they must be, the first row their names; `right` says which stand on the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)).rstrip()


def _yarn(yarn):
    return f", YaRN {yarn.factor:g} times {yarn.original_max_position_embeddings:,} positions" if yarn else ""


def _sampling(config):
    if not config.do_sample:
        return "greedy"
    return f"temperature {config.temperature:g}, top-k {config.top_k or 'off'}, top-p {config.top_p:g}, min-p {config.min_p:g}"


def _size(nbytes):
    return f"{nbytes / 2**20:.1f} MiB"
