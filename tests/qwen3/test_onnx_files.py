"""ONNX files that are damaged, contradictory or hostile: each a named error, and nothing read outside of the model's directory."""
import contextlib
import os
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qwen3.onnx_file import OnnxError, read_graph
from qwen3.onnx_graph import OnnxModel, Plan, Weights
from tests.qwen3.graphs import save


@pytest.fixture
def external(tmp_path):
    """``external(**changes)`` writes y = x · w with w in external data, its entries changed, and returns the path."""
    def write(dims=(4,), kind=TensorProto.FLOAT, data=None, **entries):
        data = np.arange(4, dtype=np.float32) if data is None else data
        (tmp_path / "weights.bin").write_bytes(data.tobytes())
        tensor = TensorProto(name="w", data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in ({"location": "weights.bin", "offset": "0", "length": "16"} | entries).items():
            if value is not None:
                tensor.external_data.add(key=key, value=value)
        value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"])
        graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"], name="product")], "g", [value("x")], [value("y")], [tensor])
        (tmp_path / "model.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString())
        return tmp_path / "model.onnx"

    return write


def test_external_data_is_mapped(external):
    for entries in ({}, {"length": None}, {"offset": None}):
        model = OnnxModel(external(**entries))
        assert model.run({"x": np.ones(4, np.float32)})[0].tolist() == [0, 1, 2, 3]
        assert not model.graph.constants["w"].raw.flags.writeable
    shifted = OnnxModel(external(dims=(3,), offset="2", length="12", data=np.arange(14, dtype=np.uint8)))  # not aligned
    assert shifted.run({"x": np.ones(3, np.float32)})[0].shape == (3,)


@pytest.mark.parametrize("entries, message", [
    ({"offset": "8"}, "bytes 8 to 24 are outside of 'weights.bin', which has 16: truncated?"),
    ({"offset": "-4"}, "offset: expected a number of bytes, got '-4'"),
    ({"offset": "1e3"}, "offset: expected a number of bytes, got '1e3'"),
    ({"offset": "9" * 40}, "offset: expected a number of bytes"),
    ({"offset": str(2**50)}, "are outside of 'weights.bin'"),
    ({"length": "17"}, r"shape \(4,\) is 16 bytes, length says 17"),
    ({"length": str(2**31)}, "length says 2147483648"),
    ({"location": "../weights.bin"}, "expected a relative path inside the model's directory, got '../weights.bin'"),
    ({"location": "a/../../weights.bin"}, "expected a relative path"),
    ({"location": "/etc/passwd"}, "expected a relative path inside the model's directory, got '/etc/passwd'"),
    ({"location": "..\\weights.bin"}, "expected a relative path"),
    ({"location": "C:\\weights.bin"}, "expected a relative path"),
    ({"location": ""}, "expected a relative path"),
    ({"location": None}, "expected a relative path"),
    ({"location": "nowhere.bin"}, "no such file"),
    ({"location": "."}, "not readable: Is a directory"),
    ({"dims": (5,)}, r"shape \(5,\) is 20 bytes, length says 16"),
    ({"dims": (-1,)}, r"expected sizes >= 0, got shape \(-1,\)"),
    ({"dims": (2**40, 2**40)}, "claims .* elements"),
    ({"kind": TensorProto.STRING}, "element type STRING is not supported"),
    ({"kind": 999}, "element type 999 is not supported"),
])
def test_external_data_is_checked(entries, message, external):
    with pytest.raises(OnnxError, match=message):
        OnnxModel(external(**entries))


def test_links_out_of_the_directory(external, tmp_path_factory):
    path, outside = external(), tmp_path_factory.mktemp("outside")
    (path.parent / "weights.bin").rename(outside / "secret.bin")
    (path.parent / "weights.bin").symlink_to(outside / "secret.bin")
    with pytest.raises(OnnxError, match="leads out of the model's directory"):
        OnnxModel(path)
    (path.parent / "weights.bin").unlink()
    os.link(outside / "secret.bin", path.parent / "inside.bin")
    (path.parent / "weights.bin").symlink_to("inside.bin")
    OnnxModel(path)


def test_damaged_graphs(tmp_path):
    path = tmp_path / "model.onnx"
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"])
    make = lambda nodes, outputs=("y",), initializers=(): save(path, helper.make_graph(nodes, "g", [value("x")], [value(o) for o in outputs], initializers))
    add = lambda a, b, y, **k: helper.make_node("Add", [a, b], [y], **k)
    raw = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=b"123")
    typed = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**30], float_data=[1.0])
    for nodes, outputs, initializers, message in (
            ([add("x", "b", "a", name="one"), add("a", "x", "b", name="two")], ("b",), (),
             "the graph has a cycle: 2 nodes wait for each other, among them Add 'one'"),
            ([add("x", "nowhere", "y", name="n")], ("y",), (), "node Add 'n': input 'nowhere' is made by no node and is no input of the graph"),
            ([add("x", "x", "y"), add("x", "x", "y")], ("y",), (), "output 'y' is already made by node"),
            ([add("x", "x", "x")], ("x",), (), "output 'x' is already made by an input"),
            ([add("x", "x", "y")], ("z",), (), "output 'z' is made by no node"),
            ([add("x", "w", "y")], ("y",), (raw,), r"initializer w: shape \(4,\) is 16 bytes, raw_data has 3"),
            ([add("x", "w", "y")], ("y",), (typed,), "has 1073741824 elements, float_data has 1"),
            ([add("x", "w", "y")], ("y",), (typed, typed), "initializer 'w': occurs twice|has 1073741824 elements")):
        with pytest.raises(OnnxError, match=message):
            OnnxModel(make(nodes, outputs, initializers))
    # not sorted, but without a cycle: sorted here
    unsorted = OnnxModel(make([add("a", "x", "y"), add("x", "x", "a")]))
    assert unsorted.run({"x": np.ones(1, np.float32)})[0].tolist() == [3]
    for content in (b"", b"\0" * 100, b"not a model", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(OnnxError, match="not an ONNX model|malformed|no outputs|is made by no node"):
            OnnxModel(path)


def test_wrong_shapes_of_weights_are_named(tmp_path):
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 32])
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], name="product", domain="com.microsoft", K=32, N=16, bits=4, block_size=32)
    for b, s, message in ((np.zeros((16, 1, 15), np.uint8), np.zeros(16, np.float32), "node com.microsoft::MatMulNBits 'product': B b: expected 256 elements"),
                          (np.zeros((16, 1, 16), np.uint8), np.zeros(15, np.float32), "scales s: expected 16 elements")):
        graph = helper.make_graph([node], "g", [value("x")], [value("y")], [numpy_helper.from_array(b, "b"), numpy_helper.from_array(s, "s")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        onnx.save(model, tmp_path / "model.onnx")
        with pytest.raises(OnnxError, match=message):
            OnnxModel(tmp_path)


def test_every_truncation_of_a_graph_is_refused_or_runs(exported, tmp_path):
    _, graph = exported()
    content = (graph / "model.onnx").read_bytes()
    (tmp_path / "model.onnx.data").symlink_to(graph / "model.onnx.data")
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content[:rng.integers(0, len(content))] if rng.random() < 0.5 else content)
        for position in rng.integers(0, max(1, len(damaged)), 3):
            if damaged:
                damaged[position] = rng.integers(0, 256)
        (tmp_path / "model.onnx").write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(OnnxError):
                Plan(read_graph(tmp_path / "model.onnx"), ["logits"], Weights(), cached=True)
