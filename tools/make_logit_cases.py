"""Store what Hugging Face transformers computes in float32, for tests/qwen3/test_model.py.

    python tools/make_logit_cases.py            # needs torch and transformers

Writes tests/qwen3/data/logits.npz: for each case of `CASES` the logits of fixed prompt ids, and 128 greedy tokens. The checkpoints themselves are
not stored: tests.qwen3.checkpoints.make_checkpoint makes them again from their seeds (their digest is stored, so that a change is noticed).
"""
import hashlib
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.qwen3.checkpoints import CASES, make_checkpoint  # noqa: E402

PROMPT, GREEDY = 40, 128


def digest(directory):
    """SHA-256 over the safetensors files, in the order of their names."""
    total = hashlib.sha256()
    for file in sorted(directory.glob("*.safetensors")):
        total.update(file.read_bytes())
    return total.hexdigest()


def expected(directory):
    """Prompt ids, their logits (rows of every position), and greedy tokens."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, PROMPT)
    with torch.no_grad():
        logits = model(torch.tensor(ids[None])).logits[0].numpy()
        past, tokens, row = None, [], torch.tensor(ids[None])
        for _ in range(GREEDY):
            out = model(row, past_key_values=past, use_cache=True)
            past, row = out.past_key_values, out.logits[:, -1:].argmax(-1)
            tokens.append(int(row))
    return ids, logits, np.array(tokens)


def main():
    stored = {"transformers": np.array(transformers.__version__), "torch": np.array(torch.__version__)}
    for name, options in CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            make_checkpoint(directory, **options)
            print(name, flush=True)
            stored |= {f"{name}/digest": np.array(digest(directory))}
            stored |= dict(zip((f"{name}/ids", f"{name}/logits", f"{name}/greedy"), expected(directory), strict=True))
    demo = ROOT / "qwen3/demo"
    stored |= {"demo/digest": np.array(digest(demo))}
    stored |= dict(zip(("demo/ids", "demo/logits", "demo/greedy"), expected(demo), strict=True))
    np.savez_compressed(ROOT / "tests/qwen3/data/logits.npz", **stored)


if __name__ == "__main__":
    main()
