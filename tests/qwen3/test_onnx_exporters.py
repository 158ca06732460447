"""Graphs that others write: onnxruntime-genai's model builder and torch.onnx run unchanged."""
import os
import warnings

import numpy as np
import pytest

import qwen3
from tests.oracle import assert_equal_bits
from tests.qwen3.checkpoints import make_checkpoint
from tests.qwen3.graphs import IDS, feeds, session, spread_error


@pytest.mark.parametrize("precision, options", [("int4", "accuracy_level=4 block_size=32"), ("int4", "accuracy_level=0 block_size=16 shared_embeddings=false"),
                                                ("fp32", "prune_lm_head=false")])
def test_model_builder_of_onnxruntime_genai(precision, options, tmp_path):
    pytest.importorskip("onnxruntime_genai")
    pytest.importorskip("transformers")
    import subprocess
    import sys

    make_checkpoint(tmp_path / "checkpoint", hidden=128, heads=4, kv_heads=2)
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", tmp_path / "checkpoint", "-o", tmp_path / "graph", "-p", precision, "-e", "cpu",
               "-c", tmp_path / "cache", "--extra_options", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    model = qwen3.load(tmp_path / "graph", activations="f32", kv="f32")
    assert model.cache_kind == "persistent" and not model.uncached
    reference = session(tmp_path / "graph", 0)
    (logits,) = reference.run(["logits"], feeds(reference, IDS))
    ours = model.forward(IDS, model.new_cache(), last_only=False)
    assert spread_error(ours, logits[0]) <= 1e-5
    assert (ours.argmax(-1) == logits[0].argmax(-1)).all()


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("past", [False, True])
def test_torch_export(past, opset, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    from transformers.cache_utils import DynamicCache

    make_checkpoint(tmp_path / "checkpoint", heads=4, kv_heads=2)
    hf = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32).eval()
    layers, dynamic = range(2), torch.export.Dim.DYNAMIC

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = hf

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False).logits

    class Step(Whole):
        def forward(self, input_ids, attention_mask, position_ids, pairs):
            cache = DynamicCache()
            for i, (k, v) in enumerate(pairs):
                cache.update(k, v, i)
            done = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
            return done.logits, [(layer.keys, layer.values) for layer in done.past_key_values.layers]

    if past:
        pairs = [(torch.randn(1, 2, 4, 128), torch.randn(1, 2, 4, 128)) for _ in layers]
        arguments = (torch.tensor([[1, 2, 3]]), torch.ones(1, 7, dtype=torch.long), torch.arange(4, 7)[None], pairs)
        shapes = {"input_ids": {1: dynamic}, "attention_mask": {1: dynamic}, "position_ids": {1: dynamic},
                  "pairs": [({2: dynamic}, {2: dynamic}) for _ in layers]}
        inputs = ["input_ids", "attention_mask", "position_ids"] + [f"past_key_values.{i}.{t}" for i in layers for t in ("key", "value")]
        outputs = ["logits"] + [f"present.{i}.{t}" for i in layers for t in ("key", "value")]
    else:
        arguments, shapes, inputs, outputs = (torch.tensor([[1, 2, 3, 4, 5]]),), {"input_ids": {1: dynamic}}, ["input_ids"], ["logits"]
    (tmp_path / "graph").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Step() if past else Whole(), arguments, dynamo=True, opset_version=opset, dynamic_shapes=shapes, input_names=inputs,
                          output_names=outputs, verbose=False).save(tmp_path / "graph/model.onnx", external_data=True)
    model = qwen3.load(tmp_path / "graph", activations="f32", kv="f32")
    assert model.cache_kind == "persistent" and not model.uncached
    with torch.no_grad():
        expected = hf(torch.tensor([IDS])).logits[0].numpy()
    logits = model.forward(IDS, model.new_cache(), last_only=False)
    assert spread_error(logits, expected) <= 1e-5
    cache = model.new_cache()
    assert_equal_bits(np.concatenate([model.forward([i], cache) for i in IDS]), logits)
