"""The demo model as an ONNX graph under the ort-int4 contract: loading, a prompt, and single tokens, beside ONNX Runtime's session of the same file."""
import pathlib
import shutil
import tempfile

import numpy as np

import qkernels
import qwen3

from .common import assert_tier, peer, seconds

PROMPT, DEPTH = 64, 64


class Graph:
    """Both sides with the cache that they have: ours in place, ONNX Runtime's past and present as tensors."""

    params = [["qkernels", "onnxruntime"]]
    param_names = ["who"]

    def setup(self, who):
        peer("onnx")
        from qwen3.onnx_export import export

        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="qwen3-graph-"))
        export(pathlib.Path(qwen3.__file__).parent / "demo", self.directory / "graph")
        ids = (np.arange(PROMPT) * 37 % 1000).tolist()
        if who == "qkernels":
            assert_tier("matmul_nbits")
            self.load = lambda: qwen3.load(self.directory / "graph")
            model = self.load()
            assert model.cache_kind == "persistent" and not model.uncached, model.uncached
            cache = model.new_cache()
            model.forward(ids[:DEPTH], cache)

            def step():
                model.forward([5], cache)
                cache.truncate(DEPTH)

            self.prefill, self.step = lambda: model.forward(ids, model.new_cache()), step
            return
        ort = peer("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = qkernels.get_num_threads()
        self.load = lambda: ort.InferenceSession(str(self.directory / "graph/model.onnx"), options, providers=["CPUExecutionProvider"])
        session = self.load()
        shapes = {i.name: i.shape for i in session.get_inputs() if "past" in i.name}
        feeds = lambda new, length, past: {"input_ids": np.array([new]), "attention_mask": np.ones((1, length + len(new)), np.int64), **past}
        empty = {name: np.zeros((1, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items()}
        _, *present = session.run(None, feeds(ids[:DEPTH], 0, empty))
        past = dict(zip(shapes, present, strict=True))
        self.prefill, self.step = lambda: session.run(None, feeds(ids, 0, empty)), lambda: session.run(None, feeds([5], DEPTH, past))

    def teardown(self, who):
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def time_load(self, who):
        self.load()

    def time_prefill(self, who):
        self.prefill()

    def time_decode(self, who):
        self.step()

    def track_decode_tokens_per_second(self, who):
        return 1 / seconds(self.step)
    track_decode_tokens_per_second.unit = "tokens/s"
