"""The whole decoder: loading, prefill, decode. The demo model, and the checkpoint that QWEN3_BENCH_MODEL names (a directory)."""
import os
import subprocess
import sys

import numpy as np

import qwen3

from .common import assert_tier, giga_macs_per_second, gigabytes_per_second, seconds

MODELS = ["demo"] + [m for m in [os.environ.get("QWEN3_BENCH_MODEL")] if m]
FAMILIES = ("normalization", "matmul_nbits", "attention", "elementwise")


PRECISIONS = {"int4, int16": {}, "int4, int8": {"activations": "int8"}, "bf16": {"weights": "bf16"}}  # of weights and activations


class _Steps:
    """A model, and `step`, which is timed."""

    timeout = 600

    def load(self, model, precision, kv, context, rows):
        for family in FAMILIES:
            assert_tier("matmul" if precision == "bf16" and family == "matmul_nbits" else family)
        self.model = qwen3.load(None if model == "demo" else model, max_context=max(context + rows, 4096), kv=kv, **PRECISIONS[precision])
        if context + rows > self.model.max_context:
            raise NotImplementedError(f"the model has {self.model.max_context} positions")
        self.ids, self.cache = np.random.default_rng(0).integers(0, self.model.config.vocab_size, context + rows), self.model.new_cache()
        for start in range(0, context, 512):
            self.model.forward(self.ids[start:min(context, start + 512)], self.cache)

    def step(self):
        raise NotImplementedError


class Decode(_Steps):
    """One token after `context` tokens."""

    params = [MODELS, list(PRECISIONS), ["f16", "int8"], [16, 128, 1024, 4096]]
    param_names = ["model", "precision", "kv", "context"]

    def setup(self, model, precision, kv, context):
        self.load(model, precision, kv, context, 1)
        self.context, self.out = context, np.empty((1, self.model.config.vocab_size), np.float32)
        self.step()
        one = self.model.new_cache()
        self.model.forward([1], one)
        self.nbytes = self.model.nbytes + one.nbytes // one.capacity * (context + 1)

    def step(self):
        self.cache.truncate(self.context)
        self.model.forward([1], self.cache, out=self.out)

    def time_step(self, model, precision, kv, context):
        self.step()

    def peakmem_step(self, model, precision, kv, context):
        self.step()

    def track_tokens_per_second(self, model, precision, kv, context):
        return 1 / seconds(self.step)
    track_tokens_per_second.unit = "tok/s"

    def track_gigabytes_per_second(self, model, precision, kv, context):
        return gigabytes_per_second(self.step, self.nbytes)
    track_gigabytes_per_second.unit = "GB/s"


class Prefill(_Steps):
    """A prompt of that many tokens, in pieces of 512 as `generate` feeds them."""

    params = [MODELS, list(PRECISIONS), [32, 512, 4096]]
    param_names = ["model", "precision", "tokens"]

    def setup(self, model, precision, tokens):
        self.load(model, precision, "f16", 0, tokens)
        c = self.model.config
        per_layer = c.hidden_size * ((2 * c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim + 3 * c.intermediate_size)
        # the projections, the causal half of the attention, one row of logits
        self.macs = c.num_hidden_layers * tokens * (per_layer + (tokens + 1) * c.num_attention_heads * c.head_dim) + c.vocab_size * c.hidden_size

    def step(self):
        self.cache.reset()
        for start in range(0, len(self.ids), 512):
            self.model.forward(self.ids[start:start + 512], self.cache)

    def time_prompt(self, model, precision, tokens):
        self.step()

    def peakmem_prompt(self, model, precision, tokens):
        self.step()

    def track_tokens_per_second(self, model, precision, tokens):
        return len(self.ids) / seconds(self.step)
    track_tokens_per_second.unit = "tok/s"

    def track_giga_macs_per_second(self, model, precision, tokens):
        return giga_macs_per_second(self.step, self.macs, 1, 1)
    track_giga_macs_per_second.unit = "GMAC/s"


class Load:
    params = [MODELS, ["int4", "int8", "bf16"]]
    param_names = ["model", "weights"]
    timeout = 300

    def setup(self, model, weights):
        assert_tier("matmul_nbits" if weights.startswith("int") else "matmul")

    def time_load(self, model, weights):
        qwen3.load(None if model == "demo" else model, weights=weights)

    def peakmem_load(self, model, weights):
        qwen3.load(None if model == "demo" else model, weights=weights)


class Import:
    """In a process of its own; NumPy's is a part of ours."""

    def timeraw_qkernels(self):
        return "import qkernels"

    def timeraw_numpy(self):
        return "import numpy"

    def track_qkernels_itself(self):
        """Without NumPy and ml_dtypes."""
        code = "import time, numpy, ml_dtypes; start = time.perf_counter(); import qkernels; print(time.perf_counter() - start)"
        return min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(5))
    track_qkernels_itself.unit = "s"
