"""Writes tests/data/sampling_cases.json: what Hugging Face's logits processors keep, with which probabilities.

    python tools/make_sampling_cases.py        (needs torch and transformers)
"""
import json
import pathlib

import torch
import transformers
from transformers.generation import logits_process as hf

SETTINGS = [
    dict(),
    dict(temperature=0.6, top_k=20, top_p=0.95),
    dict(temperature=0.7, top_k=20, top_p=0.8, min_p=0.05),
    dict(temperature=1.5),
    dict(temperature=0.05),
    dict(top_k=1),
    dict(top_k=5),
    dict(top_k=10**9),
    dict(top_p=0.1),
    dict(top_p=0.5),
    dict(top_p=0.999),
    dict(top_p=1e-9),
    dict(min_p=0.1),
    dict(min_p=0.9),
    dict(temperature=2.0, min_p=0.3, top_k=7),
    dict(repetition_penalty=1.3, previous=[0, 3, 3, 7, 0]),
    dict(repetition_penalty=0.8, previous=[1, 2, 5], temperature=0.6, top_k=20, top_p=0.95),
    dict(repetition_penalty=5.0, previous=list(range(30)), top_p=0.9, min_p=0.02),
]


def rows():
    generator = torch.Generator().manual_seed(0)
    normal = lambda scale: torch.randn(60, generator=generator) * scale
    yield "normal", normal(3)
    yield "flat", normal(0.01)
    yield "peaked", normal(12)
    yield "with -inf", normal(2).masked_fill(torch.rand(60, generator=generator) < 0.4, -torch.inf)
    yield "negative", -torch.rand(60, generator=generator) * 8 - 1
    yield "ties", torch.randint(-3, 4, (60,), generator=generator).float()


def keep(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, previous=()):
    """In the order of GenerationMixin._get_logits_processor."""
    ids, scores = torch.tensor([list(previous)], dtype=torch.long), logits[None].clone()
    if repetition_penalty != 1.0:
        scores = hf.RepetitionPenaltyLogitsProcessor(repetition_penalty)(ids, scores)
    if temperature != 1.0:
        scores = hf.TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k:
        scores = hf.TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1.0:
        scores = hf.TopPLogitsWarper(top_p)(ids, scores)
    if min_p:
        scores = hf.MinPLogitsWarper(min_p)(ids, scores)
    kept = torch.nonzero(scores[0] > -torch.inf).ravel()
    return kept.tolist(), [float(f"{p:.7g}") for p in scores[0].softmax(-1)[kept].tolist()]


def main():
    head = {"transformers": transformers.__version__, "torch": torch.__version__, "rows": {}}
    cases = []
    for name, logits in rows():
        head["rows"][name] = [None if v == -torch.inf else v for v in logits.tolist()]
        for settings in SETTINGS:
            ids, probabilities = keep(logits, **settings)
            cases.append(json.dumps({"row": name, "settings": settings, "ids": ids, "probabilities": probabilities}))
    path = pathlib.Path(__file__).parent.parent / "tests/data/sampling_cases.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(cases) + "\n]}\n")


if __name__ == "__main__":
    main()
