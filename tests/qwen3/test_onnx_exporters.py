"""Graphs that others write: onnxruntime-genai's model builder and torch.onnx run unchanged."""
import os
import warnings

import numpy as np
import onnx
import pytest

import qwen3
from qwen3.onnx_graph import OnnxModel
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


@pytest.fixture(scope="module")
def hf(tmp_path_factory):
    """transformers' Qwen3ForCausalLM in float32, of a small checkpoint."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    directory = tmp_path_factory.mktemp("hf")
    make_checkpoint(directory, heads=4, kv_heads=2)
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def torch_export(hf, directory, opset, form):
    """torch.onnx.export(dynamo=True) of the model with dynamic lengths: its tokens alone, with their mask, or with a cache."""
    import torch
    from transformers.cache_utils import DynamicCache

    layers, dynamic = range(2), torch.export.Dim.DYNAMIC

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = hf

        def forward(self, input_ids, attention_mask=None):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits

    class Step(Whole):
        def forward(self, input_ids, attention_mask, position_ids, pairs):
            cache = DynamicCache()
            for i, (k, v) in enumerate(pairs):
                cache.update(k, v, i)
            done = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
            return done.logits, [(layer.keys, layer.values) for layer in done.past_key_values.layers]

    inputs, outputs = ["input_ids"], ["logits"]
    if form == "cache":
        pairs = [(torch.randn(1, 2, 4, 128), torch.randn(1, 2, 4, 128)) for _ in layers]
        arguments = (torch.tensor([[1, 2, 3]]), torch.ones(1, 7, dtype=torch.long), torch.arange(4, 7)[None], pairs)
        shapes = {"input_ids": {1: dynamic}, "attention_mask": {1: dynamic}, "position_ids": {1: dynamic},
                  "pairs": [({2: dynamic}, {2: dynamic}) for _ in layers]}
        inputs += ["attention_mask", "position_ids"] + [f"past_key_values.{i}.{t}" for i in layers for t in ("key", "value")]
        outputs += [f"present.{i}.{t}" for i in layers for t in ("key", "value")]
    elif form == "mask":
        arguments, inputs = (torch.tensor([[1, 2, 3, 4, 5]]), torch.ones(1, 5, dtype=torch.long)), ["input_ids", "attention_mask"]
        shapes = {"input_ids": {1: dynamic}, "attention_mask": {1: dynamic}}
    else:
        arguments, shapes = (torch.tensor([[1, 2, 3, 4, 5]]),), {"input_ids": {1: dynamic}}
    directory.mkdir()
    torch.onnx.export(Step() if form == "cache" else Whole(), arguments, dynamo=True, opset_version=opset, dynamic_shapes=shapes, input_names=inputs,
                      output_names=outputs, verbose=False).save(directory / "model.onnx", external_data=True)


def transformers_export(hf, directory, opset, form):
    """The exporter that transformers has of its own, which names and declares things in other ways."""
    import torch
    from transformers.cache_utils import DynamicCache

    exporter = pytest.importorskip("transformers.exporters.exporter_onnx")
    inputs = {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 7 if form == "cache" else 3, dtype=torch.long)}
    if form == "cache":
        inputs["past_key_values"] = DynamicCache(config=hf.config)
        for i in range(2):
            inputs["past_key_values"].update(torch.randn(1, 2, 4, 128), torch.randn(1, 2, 4, 128), i)
    exporter.OnnxExporter().export(hf, inputs, config=exporter.OnnxConfig(dynamic=True, opset_version=opset)).save_pretrained(directory)


@pytest.mark.parametrize("export, opset, form", [
    (torch_export, 23, "tokens"), (torch_export, 24, "mask"), (torch_export, 23, "cache"), (torch_export, 24, "cache"), (torch_export, 25, "cache"),
    (transformers_export, 23, "cache"), (transformers_export, 24, "mask")])
def test_torch_export(export, opset, form, hf, tmp_path):
    import torch

    graph = tmp_path / "graph"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(hf, graph, opset, form)
    assert {o.domain: o.version for o in onnx.load(graph / "model.onnx", load_external_data=False).opset_import}[""] == opset
    model = qwen3.load(graph, activations="f32", kv="f32")
    assert model.cache_kind == "persistent" and not model.uncached
    # the embedding and the first norm are calls of their own; all else is fused, prepared, or not needed
    kernels = {kernel for _, _, kernel, _ in model.report()}
    assert kernels == {"gather", "rms_normalization", "PackedMatrix", "cached_attention", "skip_simplified_layer_normalization", "silu_mul", "not run",
                       "view of a constant"}
    assert len(model.plan.steps) == 2 + 2 * 8 + 1
    with torch.no_grad():
        expected = hf(torch.tensor([IDS])).logits[0].numpy()
    logits = model.forward(IDS, model.new_cache(), last_only=False)
    assert spread_error(logits, expected) <= 1e-5
    cache = model.new_cache()
    assert_equal_bits(np.concatenate([model.forward([i], cache) for i in IDS]), logits)
    # the same graph with its tensors
    tensors = OnnxModel(graph, activations="f32")
    names = [n for n in tensors.inputs if "past" in n]
    past, outputs = {n: np.zeros((1, 2, 0, 128), np.float32) for n in names}, list(tensors.outputs)
    for ids in (IDS[:7], IDS[7:]) if names else (IDS,):
        length = past[names[0]].shape[2] if names else 0
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, length + len(ids)), np.int64),
                 "position_ids": np.arange(length, length + len(ids))[None]}
        found, *present = tensors.run({n: a for n, a in feeds.items() if n in tensors.inputs} | past, outputs)
        past = dict(zip(names, present, strict=True)) if names else {}
        assert spread_error(found[0], expected[length:length + len(ids)]) <= 1e-5
