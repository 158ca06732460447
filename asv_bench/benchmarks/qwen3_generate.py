"""The whole decoder: loading, prefill, decode. The demo model, and the checkpoint that QWEN3_BENCH_MODEL names (a directory)."""
import os

import numpy as np

import qwen3

from .common import assert_tier, seconds

MODELS = ["demo"] + [m for m in [os.environ.get("QWEN3_BENCH_MODEL")] if m]
FAMILIES = ("normalization", "matmul_nbits", "attention", "elementwise")


def load(model, **options):
    for family in FAMILIES:
        assert_tier(family)
    return qwen3.load(None if model == "demo" else model, **options)


class Decode:
    """One token after `context` tokens; INT4 weights."""

    params = [MODELS, ["int16", "int8"], [16, 1024]]
    param_names = ["model", "activations", "context"]
    timeout = 300

    def setup(self, model, activations, context):
        self.model = load(model, activations=activations)
        self.cache = self.model.new_cache()
        self.context = context
        self.model.forward(np.random.default_rng(0).integers(0, self.model.config.vocab_size, context), self.cache)
        self.out = np.empty((1, self.model.config.vocab_size), np.float32)

    def step(self):
        self.cache.truncate(self.context)
        self.model.forward([1], self.cache, out=self.out)

    def time_step(self, model, activations, context):
        self.step()

    def track_tokens_per_second(self, model, activations, context):
        return 1 / seconds(self.step)
    track_tokens_per_second.unit = "tok/s"


class Prefill:
    params = [MODELS, ["int16", "int8"], [32, 512]]
    param_names = ["model", "activations", "tokens"]
    timeout = 300

    def setup(self, model, activations, tokens):
        self.model = load(model, activations=activations)
        self.ids = np.random.default_rng(0).integers(0, self.model.config.vocab_size, tokens)
        self.cache = self.model.new_cache()

    def prompt(self):
        self.cache.reset()
        self.model.forward(self.ids, self.cache)

    def time_prompt(self, model, activations, tokens):
        self.prompt()

    def track_tokens_per_second(self, model, activations, tokens):
        return len(self.ids) / seconds(self.prompt)
    track_tokens_per_second.unit = "tok/s"


class Load:
    params = [MODELS, ["int4", "int8", "bf16"]]
    param_names = ["model", "weights"]
    timeout = 300

    def time_load(self, model, weights):
        qwen3.load(None if model == "demo" else model, weights=weights)

    def peakmem_load(self, model, weights):
        qwen3.load(None if model == "demo" else model, weights=weights)
