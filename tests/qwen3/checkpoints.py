"""Small tokenizers and checkpoints, made on the spot; for the tests, and for the scripts in tools/ that store expected values."""
import json
import pathlib
import struct

import ml_dtypes
import numpy as np

DATA = pathlib.Path(__file__).parent / "data"

DTYPE_NAMES = {np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype("f2"): "F16", np.dtype("f4"): "F32", np.dtype("i8"): "I64"}
CONTROL_TOKENS = {"<|endoftext|>": True, "<|im_start|>": True, "<|im_end|>": True, "<tool_call>": False, "</tool_call>": False,
                  "<tool_response>": False, "</tool_response>": False, "<think>": False, "</think>": False}
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he", "ä ½", "Ċ Ċ"]


def write_safetensors(path, tensors, header=None, pad=True):
    """Write a safetensors file; `header` replaces the true one to make a wrong file, `pad=False` leaves its length odd."""
    offset, entries, blobs = 0, {}, []
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        entries[name] = {"dtype": DTYPE_NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps({"__metadata__": {"format": "pt"}} | entries).encode() if header is None else header
    text += b" " * (-len(text) % 8 if pad else (1 - len(text)) % 2)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def byte_characters():
    """The 256 characters of byte-level BPE in the order of their bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(moved)) for b in range(256)]


def make_tokenizer(directory, eos_token="<|im_end|>", template=True):
    """A byte-level BPE of 273 tokens (256 bytes, 8 merges, 9 control tokens) with Qwen3's splitting rule and chat template."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    vocab = {c: i for i, c in enumerate(byte_characters())}
    for merge in MERGES:
        vocab[merge.replace(" ", "")] = len(vocab)
    added = [{"id": len(vocab) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": special} for i, (content, special) in enumerate(CONTROL_TOKENS.items())]
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "byte_fallback": False, "vocab": vocab, "merges": MERGES}}))
    settings = {"eos_token": eos_token, "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer",
                "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added}}
    if template:
        settings["chat_template"] = json.loads((DATA / "qwen3_tokenizer_config.json").read_text())["chat_template"]
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def config_fields(**changes):
    """The fields of a small config.json; `changes` replace them, and a change to `...` removes one."""
    fields = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "attention_bias": False, "hidden_act": "silu",
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
        "vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_scaling": None,
        "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": None, "max_window_layers": 2,
        "eos_token_id": 266, "bos_token_id": 264}
    return {k: v for k, v in (fields | changes).items() if v is not ...}


def make_checkpoint(directory, *, layers=2, hidden=64, intermediate=96, heads=2, kv_heads=1, head_dim=128, vocab=320, tied=True, shards=1,
                    rope_scaling=None, seed=0, head=None, dtype="bfloat16", max_position_embeddings=512, generation=None, outliers=False):
    """A random Qwen3 in Hugging Face's layout, with the tokenizer of `make_tokenizer`.

    `outliers` plants what trained checkpoints have: three residual channels far above the rest, and MLP channels whose gated product is larger still.

    `head` stores an `lm_head.weight` that is not what `tied` says: "copy" or "double" of the embedding, or "missing".
    Returns the tensors by name.
    """
    directory = pathlib.Path(directory)
    make_tokenizer(directory)
    rng = np.random.default_rng(seed)
    to = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    normal = lambda *shape: (rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)).astype(to)
    gain = lambda n: (1 + 0.3 * rng.standard_normal(n, np.float32)).astype(to)
    tensors = {"model.embed_tokens.weight": normal(vocab, hidden)}
    for i in range(layers):
        tensors |= {f"model.layers.{i}.{name}.weight": value for name, value in {
            "input_layernorm": gain(hidden), "post_attention_layernorm": gain(hidden),
            "self_attn.q_norm": gain(head_dim), "self_attn.k_norm": gain(head_dim),
            "self_attn.q_proj": normal(heads * head_dim, hidden), "self_attn.k_proj": normal(kv_heads * head_dim, hidden),
            "self_attn.v_proj": normal(kv_heads * head_dim, hidden), "self_attn.o_proj": normal(hidden, heads * head_dim),
            "mlp.gate_proj": normal(intermediate, hidden), "mlp.up_proj": normal(intermediate, hidden), "mlp.down_proj": normal(hidden, intermediate),
        }.items()}
        if outliers:
            channels = rng.choice(intermediate, 4, replace=False)
            for name in ("gate", "up"):
                tensors[f"model.layers.{i}.mlp.{name}_proj.weight"][channels] *= to.type(6)
    if outliers:
        channels = rng.choice(hidden, 3, replace=False)
        embedding = tensors["model.embed_tokens.weight"]
        embedding[:, channels] = (np.sign(embedding[:, channels].astype(np.float32)) * 10).astype(to)
    tensors["model.norm.weight"] = gain(hidden)
    embedding = tensors["model.embed_tokens.weight"]
    if head in ("copy", "double"):
        tensors["lm_head.weight"] = (embedding.astype(np.float32) * (2 if head == "double" else 1)).astype(to)
    elif not tied and head != "missing":
        tensors["lm_head.weight"] = normal(vocab, hidden)
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors)
    else:
        where = {}
        for s in range(shards):
            file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
            part = dict(list(tensors.items())[s::shards])
            write_safetensors(directory / file, part)
            where |= dict.fromkeys(part, file)
        (directory / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}))
    (directory / "config.json").write_text(json.dumps(config_fields(
        num_hidden_layers=layers, hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=heads, num_key_value_heads=kv_heads,
        head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=tied, rope_scaling=rope_scaling, max_position_embeddings=max_position_embeddings,
        max_window_layers=layers, torch_dtype=dtype)))
    (directory / "generation_config.json").write_text(json.dumps(
        generation or {"do_sample": True, "eos_token_id": [266, 264], "temperature": 0.6, "top_k": 20, "top_p": 0.95}))
    return tensors


_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

# what transformers' float32 logits are stored for (tools/make_logit_cases.py): options of make_checkpoint
CASES = {
    "tied": dict(seed=1),
    "untied": dict(seed=2, tied=False, heads=4, kv_heads=2, hidden=96, layers=3),
    "sharded": dict(seed=3, shards=3, tied=False),
    "yarn": dict(seed=4, rope_scaling=_YARN, max_position_embeddings=256),
    "float16": dict(seed=5, dtype="float16", head_dim=64),
    "untied double head": dict(seed=6, head="double", tied=False),
}
