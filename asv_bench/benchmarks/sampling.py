"""The choice of a token from 151,936 logits."""
import numpy as np

import qkernels

from .common import DTYPES, QWEN3, assert_tier, gigabytes_per_second, normal, peer

VOCABULARY = QWEN3["0.6B"].vocabulary
SETTINGS = {
    "greedy": dict(temperature=0),
    "top-k 20, top-p 0.95": dict(temperature=0.6, top_k=20, top_p=0.95),
    "top-p 0.95": dict(temperature=0.6, top_p=0.95),
    "min-p 0.05": dict(min_p=0.05),
    "all": dict(),
    "penalty": dict(temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.1, previous=np.arange(0, 40_000, 10)),
}
SCALES = {"peaked": 2.5, "flat": 0.01}


def hugging_face(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, previous=()):
    """The same choice with transformers' processors and torch."""
    torch, hf = peer("torch"), peer("transformers.generation.logits_process")
    scores, ids = torch.from_numpy(logits)[None], torch.from_numpy(np.asarray(previous, np.int64))[None]
    if temperature == 0:
        return lambda: int(scores.argmax())
    steps = [hf.RepetitionPenaltyLogitsProcessor(repetition_penalty)] if repetition_penalty != 1 else []
    steps += [hf.TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    steps += [hf.TopKLogitsWarper(top_k)] if top_k else []
    steps += [hf.TopPLogitsWarper(top_p)] if top_p < 1 else []
    steps += [hf.MinPLogitsWarper(min_p)] if min_p else []

    def run():
        x = scores
        for step in steps:
            x = step(ids, x)
        return int(torch.multinomial(x.softmax(-1), 1))
    return run


class ArgMax:
    kernels = ("argmax",)
    params = [list(DTYPES), ["qkernels", "numpy", "torch"]]
    param_names = ["dtype", "who"]

    def setup(self, dtype, who):
        x = normal(VOCABULARY, dtype=dtype)
        if who == "qkernels":
            assert_tier("sampling")
            self.call = lambda: qkernels.argmax(x, axis=-1)
        elif who == "numpy":
            self.call = lambda: x.argmax(-1)
        else:
            torch = peer("torch")
            t = torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(x)
            self.call = lambda: t.argmax(-1)
        self.nbytes = x.nbytes

    def time_argmax(self, dtype, who):
        self.call()

    def track_gigabytes_per_second(self, dtype, who):
        return gigabytes_per_second(self.call, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"


class Sample:
    kernels = ("sample",)
    params = [list(SETTINGS), list(SCALES), ["qkernels", "transformers"]]
    param_names = ["settings", "logits", "who"]

    def setup(self, settings, logits, who):
        x = normal(VOCABULARY, scale=SCALES[logits])
        if who == "qkernels":
            assert_tier("sampling")
            self.call = lambda: qkernels.sample(x, **SETTINGS[settings])
        else:
            self.call = hugging_face(x, **SETTINGS[settings])

    def time_sample(self, settings, logits, who):
        self.call()
