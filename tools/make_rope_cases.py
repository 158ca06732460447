#!/usr/bin/env python3
"""Store the rotary frequencies and some cos and sin that Hugging Face transformers computes for Qwen3 configurations.

    python tools/make_rope_cases.py

writes tests/qwen3/data/rope_cases.json: float32 values as the integers of their bits, so that nothing is rounded on the way. Needs torch and
transformers.
"""
import json
import pathlib

import torch
import transformers
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

OUT = pathlib.Path(__file__).parents[1] / "tests/qwen3/data/rope_cases.json"
POSITIONS = [1, 100, 511]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

# name, head_dim, fields of config.json
CASES = [
    ("plain", 128, {"rope_theta": 1000000}),
    ("transformers 5", 128, {"rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0}}),
    ("small head", 8, {"rope_theta": 10000.0}),
    ("Qwen3's YaRN", 128, {"rope_theta": 1000000, "rope_scaling": YARN}),
    ("YaRN by its old name", 128, {"rope_theta": 1000000, "rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}}),
    ("YaRN in rope_parameters", 64, {"rope_parameters": YARN | {"rope_theta": 1000000.0}}),
    ("YaRN's factor null", 128, {"rope_theta": 1000000, "rope_scaling": YARN | {"factor": None}, "max_position_embeddings": 65536}),
    ("YaRN of the context", 128, {"rope_theta": 1000000, "rope_scaling": {"rope_type": "yarn", "factor": 8.0}, "max_position_embeddings": 1024}),
    ("YaRN with attention_factor", 128, {"rope_theta": 1000000, "rope_scaling": YARN | {"attention_factor": 0.75}}),
    ("YaRN with betas", 128, {"rope_theta": 1000000, "rope_scaling": YARN | {"beta_fast": 16, "beta_slow": 2}}),
    ("YaRN with mscale", 128, {"rope_theta": 1000000, "rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 0.5}}),
    ("YaRN not truncated", 128, {"rope_theta": 1000000, "rope_scaling": YARN | {"truncate": False}}),
    ("YaRN with an empty range", 8, {"rope_theta": 1e30, "rope_scaling": YARN | {"original_max_position_embeddings": 4}}),
]


def main():
    bits = lambda tensor: tensor.contiguous().view(torch.int32).tolist()
    cases = []
    for name, head_dim, fields in CASES:
        fields = {"max_position_embeddings": 131072, "head_dim": head_dim} | fields
        config = transformers.Qwen3Config(hidden_size=64, num_attention_heads=2, num_key_value_heads=1, **json.loads(json.dumps(fields)))
        rotary = Qwen3RotaryEmbedding(config)
        cos, sin = rotary(torch.zeros(1, dtype=torch.float32), torch.tensor([POSITIONS]))
        half = head_dim // 2
        cases.append({"name": name, "fields": fields, "attention_factor": rotary.attention_scaling, "inv_freq": bits(rotary.inv_freq),
                          "cos": bits(cos[0, :, :half]), "sin": bits(sin[0, :, :half])})
    with OUT.open("w") as file:
        file.write(f'{{"transformers": "{transformers.__version__}", "positions": {POSITIONS}, "cases": [\n')
        file.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    print(f"{len(cases)} configurations: {OUT}")


if __name__ == "__main__":
    main()
