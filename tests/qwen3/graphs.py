"""What the tests of ONNX graphs share: ONNX Runtime's sessions, feeds for decoders, small graphs written on the spot."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

IDS = [5, 17, 200, 3, 3, 99, 310, 1, 42, 7, 250, 64]


def session(path, level=None):
    """An ONNX Runtime session; with `level` all MatMulNBits nodes at that accuracy level."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # its own fusion of DequantizeLinear and MatMul is at 4 otherwise
    if level is None:
        return ort.InferenceSession(str(path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    model = onnx.load(path / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level":
                attribute.i = level
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds(run, ids, past=None):
    """Inputs for a session or model: {name: array}."""
    inputs = {i.name: i.shape for i in run.get_inputs()} if hasattr(run, "get_inputs") else {n: s for n, (_, s) in run.inputs.items()}
    past = past or {n: np.zeros((1, s[1], 0, 128), np.float32) for n, s in inputs.items() if "past" in n}
    length = next(iter(past.values())).shape[2] if past else 0
    made = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, length + len(ids)), np.int64), **past}
    return {n: a for n, a in made.items() if n in inputs}


def spread_error(logits, expected):
    """Root mean square error, in standard deviations of what is expected."""
    return np.sqrt(((np.float64(logits) - expected) ** 2).mean()) / np.float64(expected).std()


def normal(*shape, seed=0):
    """Reproducible normally distributed float32."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def save(path, graph, *, opset=23, **options):
    """Write a model of a graph, unchecked, and return the path."""
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10, **options).SerializeToString())
    return path


def vector(name, size="n"):
    """The declaration of a float32 vector."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
