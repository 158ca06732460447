"""ONNX files that are damaged, contradictory or hostile: each a named error, and nothing read outside of the model's directory."""
import contextlib
import os
import tracemalloc
import warnings

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qwen3.config import ConfigError
from qwen3.onnx_decoder import OnnxDecoder
from qwen3.onnx_export import export
from qwen3.onnx_file import OnnxError, read_graph
from qwen3.onnx_graph import OnnxModel, Plan, Weights
from qwen3.onnx_inspection import describe_graph
from tests.qwen3.checkpoints import make_checkpoint
from tests.qwen3.graphs import save, vector


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


def test_elements_are_in_one_place_and_in_range(tmp_path):
    two = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], raw_data=b"1234", float_data=[1.0])
    both = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], float_data=[1.0], data_location=TensorProto.EXTERNAL)
    twice = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    for value in ("a.bin", "b.bin"):
        twice.external_data.add(key="location", value=value)
    deep = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1] * 33, float_data=[1.0])
    empty = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[0, 2**62, 2**62])
    parts = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], float_data=[1.0])
    parts.segment.begin = 0
    wide = TensorProto(name="w", data_type=TensorProto.INT8, dims=[1], int32_data=[300])
    nibbles = TensorProto(name="w", data_type=TensorProto.UINT4, dims=[2], int32_data=[-1])
    flag = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[1], int32_data=[2])
    for tensor, message in ((two, "expected its elements in one place, got raw_data and float_data"), (both, "got float_data and external data"),
                            (twice, "external data: location occurs twice"), (deep, "expected at most 32 dimensions, got 33"),
                            (empty, r"shape \(0, 4611686018427387904, 4611686018427387904\) claims 0 elements"), (parts, "a tensor in segments"),
                            (wide, "int32_data: expected -128 to 127, got 300"), (nibbles, "int32_data: expected 0 to 255, got -1"),
                            (flag, "int32_data: expected 0 to 1, got 2")):
        graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [vector("y")], [tensor])
        with pytest.raises(OnnxError, match=f"initializer w: .*{message}"):
            read_graph(save(tmp_path / "model.onnx", graph))


@pytest.mark.parametrize("kind, values, expected", [
    (TensorProto.FLOAT, [1.5, -2], np.float32([1.5, -2])), (TensorProto.DOUBLE, [1.5, -2], np.float64([1.5, -2])),
    (TensorProto.INT64, [-2**63, 2**63 - 1], np.int64([-2**63, 2**63 - 1])), (TensorProto.UINT64, [0, 2**64 - 1], np.uint64([0, 2**64 - 1])),
    (TensorProto.UINT32, [0, 2**32 - 1], np.uint32([0, 2**32 - 1])), (TensorProto.INT32, [-2**31, 5], np.int32([-2**31, 5])),
    (TensorProto.INT16, [-2**15, 5], np.int16([-2**15, 5])), (TensorProto.UINT8, [255, 0], np.uint8([255, 0])), (TensorProto.BOOL, [1, 0], np.array([True, False])),
    (TensorProto.FLOAT16, [0x3c00, 0xc000], np.float16([1, -2])), (TensorProto.BFLOAT16, [0x3f80, 0xc000], np.array([1, -2], ml_dtypes.bfloat16)),
    (TensorProto.UINT4, [0x21], np.array([1, 2], ml_dtypes.uint4)), (TensorProto.INT4, [0xf1], np.array([1, -1], ml_dtypes.int4))])
def test_typed_fields_of_every_type(kind, values, expected, tmp_path):
    tensor = TensorProto(name="w", data_type=kind, dims=[2])
    getattr(tensor, helper.tensor_dtype_to_field(kind)).extend(values)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", kind, [2])], [tensor])
    found = read_graph(save(tmp_path / "model.onnx", graph)).constants["w"].array()
    assert found.dtype == expected.dtype and found.tolist() == expected.tolist()


def test_a_model_that_is_linked_like_the_hubs_cache(external, tmp_path_factory):
    """model.onnx and its data are links into one other directory: that one is the model's as well, and no third."""
    path, hub = external(), tmp_path_factory.mktemp("hub")
    (hub / "snapshot").mkdir()
    (hub / "blobs").mkdir()
    for name, blob in (("model.onnx", "1234"), ("weights.bin", "5678")):
        (path.parent / name).rename(hub / "blobs" / blob)
        (hub / "snapshot" / name).symlink_to(f"../blobs/{blob}")
    assert OnnxModel(hub / "snapshot").run({"x": np.ones(4, np.float32)})[0].tolist() == [0, 1, 2, 3]
    (hub / "blobs" / "5678").rename(hub / "elsewhere")
    (hub / "snapshot" / "weights.bin").unlink()
    (hub / "snapshot" / "weights.bin").symlink_to("../elsewhere")
    with pytest.raises(OnnxError, match="leads out of the model's directory"):
        OnnxModel(hub / "snapshot")


def test_folders_that_lead_out_and_files_that_are_none(external, tmp_path_factory):
    path = external(location="inside/weights.bin")
    outside = tmp_path_factory.mktemp("outside")
    (path.parent / "weights.bin").rename(outside / "weights.bin")
    (path.parent / "inside").symlink_to(outside)
    with pytest.raises(OnnxError, match="leads out of the model's directory"):
        OnnxModel(path)
    path = external(location="loop.bin")
    (path.parent / "loop.bin").symlink_to("loop.bin")
    with pytest.raises(OnnxError, match="Too many levels of symbolic links|leads out"):
        OnnxModel(path)
    path = external(location="pipe.bin")
    os.mkfifo(path.parent / "pipe.bin")
    with pytest.raises(OnnxError, match="pipe.bin: not readable: not a regular file"):  # and does not wait for somebody to write into it
        OnnxModel(path)
    path = external(location="x" * 300)
    with pytest.raises(OnnxError, match="File name too long"):
        OnnxModel(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OnnxError, match="not a regular file|no .onnx file|found model.onnx"):
        OnnxModel(path)
    with pytest.raises(OnnxError, match="not readable: not a regular file"):
        read_graph(path)


def test_empty_external_data(external):
    path = external(dims=(0,), offset="0", length="0", data=np.zeros(0, np.float32))
    assert OnnxModel(path).run({"x": np.ones(1, np.float32)})[0].shape == (0,)


def test_claims_are_checked_before_memory_is(tmp_path):
    """A few bytes that ask for gigabytes: refused, and no memory taken for them."""
    path = tmp_path / "model.onnx"
    number = lambda name, *v: numpy_helper.from_array(np.array(v, np.int64), name)
    one = numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    scalar = lambda name, v: numpy_helper.from_array(np.array(v, np.int64), name)
    column, row = (numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in (("column", (1 << 16, 1)), ("row", (1, 1 << 16))))
    raw = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**29])
    typed = TensorProto(name="w", data_type=TensorProto.INT64, dims=[2**28], int64_data=[1])
    node = helper.make_node
    cases = [
        ([node("Mul", ["x", "w"], ["y"])], [raw], "has 536870912 elements, float_data has 0"),
        ([node("Mul", ["x", "w"], ["y"])], [typed], "has 268435456 elements, int64_data has 1"),
        ([node("ConstantOfShape", ["s"], ["y"])], [number("s", 2**33)], "expected at most 1073741824 elements, .* ask for 8589934592"),
        ([node("Expand", ["one", "s"], ["y"])], [one, number("s", 2**20, 2**20)], "ask for 1099511627776"),
        ([node("Tile", ["one", "s"], ["y"])], [one, number("s", 2**20, 2**20)], "ask for 1099511627776"),
        ([node("Pad", ["one", "s"], ["y"])], [one, number("s", 0, 0, 2**20, 2**20)], "ask for 109951"),
        ([node("Range", ["a", "b", "c"], ["y"])], [scalar("a", 0), scalar("b", 2**40), scalar("c", 1)], "ask for 1099511627776"),
        ([node("Add", ["column", "row"], ["y"])], [column, row], "ask for 4294967296"),
        ([node("MatMul", ["column", "row"], ["y"])], [column, row], "ask for 4294967296"),
        ([node("Identity", ["column"], ["c"]), node("Identity", ["row"], ["r"]), node("Less", ["c", "r"], ["y"])], [column, row], "ask for 4294967296"),
    ]
    for nodes, initializers, message in cases:
        save(path, helper.make_graph(nodes, "g", [vector("x")], [vector("y")], initializers))
        tracemalloc.start()
        try:
            with pytest.raises(OnnxError, match=message):
                OnnxModel(path).run({"x": np.ones(1, np.float32)})
            assert tracemalloc.get_traced_memory()[1] < 8 << 20, message
        finally:
            tracemalloc.stop()


def test_nodes_that_contradict_their_operator(tmp_path):
    path, node = tmp_path / "model.onnx", helper.make_node
    w = numpy_helper.from_array(np.ones(4, np.float32), "w")
    b = numpy_helper.from_array(np.zeros((16, 1, 16), np.uint8), "b")
    s = numpy_helper.from_array(np.ones((16, 1), np.float32), "s")
    nbits = lambda inputs, **a: node("MatMulNBits", inputs, ["y"], name="n", domain="com.microsoft", **(dict(K=32, N=16, bits=4, block_size=32) | a))
    query = lambda **a: node("GroupQueryAttention", ["x", "x", "x", "", "", "i", "i"], ["y"], name="n", domain="com.microsoft", **a)
    twice = node("Softmax", ["x"], ["y"], name="n", axis=0)
    twice.attribute.add().CopyFrom(twice.attribute[0])
    refers = node("Softmax", ["x"], ["y"], name="n")
    refers.attribute.add(name="axis", ref_attr_name="a", type=onnx.AttributeProto.INT)
    for bad, message in (
            (node("Softmax", ["x"], ["y"], name="n", axis=1.5), "attribute axis: expected type INT, got FLOAT"),
            (node("Softmax", ["x"], ["y"], name="n", axis="last"), "attribute axis: expected type INT, got STRING"),
            (twice, "attribute 'axis' occurs twice"), (refers, "attribute axis: refers to 'a' of a function"),
            (node("Softmax", ["x", "w"], ["y"], name="n"), "expected 1 to 1 inputs, got 2"),
            (node("Add", ["x"], ["y"], name="n"), "expected 2 to 2 inputs, got 1"),
            (node("Add", ["x", ""], ["y"], name="n"), "input 1 is absent, but not optional"),
            (node("Add", ["x", "w"], ["y", "z"], name="n"), "expected 1 to 1 outputs, got 2"),
            (node("Cast", ["x"], ["y"], name="n"), "attribute to is missing"),
            (node("Softmax", ["x"], ["y"], name="n", colour=1), "attribute colour = 1 is not offered"),
            (nbits(["x", "b", "s"], K=1.5), "attribute K: expected type INT, got FLOAT"), (nbits(["x", "b", "s"], bits="4"), "attribute bits: expected type INT, got STRING"),
            (nbits(["x", "b", "s"], threads=7), "attribute threads = 7 is not offered"), (nbits(["x", "b", "s"], activations="int8"), "activations = 'int8' is not"),
            (node("Softmax", ["x"], ["y"], name="n", out=1), "attribute out = 1 is not offered"),
            (nbits(["x", "b", "s"], colour=1), "attribute colour = 1 is not offered"), (nbits(["x", "b"]), "expected 3 to 6 inputs, got 2"),
            (nbits(["x", "b", ""]), "input 2 is absent, but not optional"), (query(num_heads=1), "attribute kv_num_heads is missing"),
            (node("MatMulNBits", ["x", "b", "s"], ["y"], name="n", domain="com.microsoft", K=32), "attribute N is missing")):
        save(path, helper.make_graph([bad], "g", [vector("x"), vector("i")], [vector("y")], [w, b, s]))
        with pytest.raises(OnnxError, match=f"{message}") as caught:
            OnnxModel(path).run({"x": np.ones(32, np.float32), "i": np.ones(1, np.float32)})
        assert "(n)" in str(caught.value) or "'n'" in str(caught.value) or "n: " in str(caught.value)


def test_types_and_shapes_that_do_not_fit_are_errors_of_the_node(tmp_path):
    path, node = tmp_path / "model.onnx", helper.make_node
    long = numpy_helper.from_array(np.ones(4, np.int64), "long")
    matrix = numpy_helper.from_array(np.ones((4, 3), np.float32), "matrix")
    x = np.ones((2, 5), np.float32)
    for bad, kind, message in ((node("Add", ["x", "long"], ["y"], name="sum"), TypeError, "sum: add: "),
                               (node("MatMul", ["x", "matrix"], ["y"], name="product"), ValueError, "product: .*"),
                               (node("Reshape", ["x", "long"], ["y"], name="shape"), ValueError, "shape: reshape: shape: "),
                               (node("Gather", ["x", "long"], ["y"], name="row", axis=3), ValueError, "row: gather: axis"),
                               (node("Transpose", ["x"], ["y"], name="turn", perm=[0, 1, 2]), ValueError, "turn: transpose: perm")):
        save(path, helper.make_graph([bad], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])], [vector("y")], [long, matrix]))
        with pytest.raises(OnnxError, match=message) as caught:
            OnnxModel(path).run({"x": x})
        assert isinstance(caught.value, kind)


def test_names_and_opsets_that_occur_twice(tmp_path):
    path, node = tmp_path / "model.onnx", helper.make_node("Identity", ["x"], ["y"])
    opset = helper.make_opsetid
    for inputs, outputs, message in (([vector("x"), vector("x")], [vector("y")], "input 'x' occurs twice"),
                                     ([vector("x")], [vector("y"), vector("y")], "output 'y' occurs twice"),
                                     ([vector("")], [vector("y")], "an input has no name"), ([vector("x")], [vector("")], "an output has no name"),
                                     ([vector("x", -3)], [vector("y")], r"x: expected sizes >= 0, got shape \[-3\]"),
                                     ([helper.make_tensor_value_info("x", TensorProto.STRING, [1])], [vector("y")], "input x: element type STRING"),
                                     ([helper.make_tensor_value_info("x", 77, [1])], [vector("y")], "input x: element type 77"),
                                     ([helper.make_tensor_sequence_value_info("x", 1, [1])], [vector("y")], "x: expected a tensor, got sequence_type")):
        with pytest.raises(OnnxError, match=message):
            read_graph(save(path, helper.make_graph([node], "g", inputs, outputs)))
    graph = helper.make_graph([node], "g", [vector("x")], [vector("y")])
    for opsets, message in (([opset("", 23), opset("", 22)], "two opsets of one domain"), ([opset("", 23), opset("ai.onnx", 23)], "two opsets of one domain"),
                            ([opset("", -1)], "opset of ai.onnx: expected a version >= 1, got -1"), ([opset("", 2**40)], "got 1099511627776"),
                            ([opset("", 1000)], "opset 1000 is newer than"), ([opset("org.example", 1)], "names no opset of ai.onnx")):
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
        with pytest.raises(OnnxError, match=message):
            OnnxModel(path)
    path.write_bytes(helper.make_model(graph, opset_imports=[opset("", 23)], ir_version=10).SerializeToString().replace(b"Identity", b"Ident\xfft\xfe"))
    with pytest.raises(OnnxError, match="is not UTF-8|not an ONNX model"):
        OnnxModel(path)


def test_subgraphs_are_refused_however_deep(tmp_path):
    path = tmp_path / "model.onnx"
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])

    def nested(depth):
        inner = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "leaf", [], [vector("y")])
        for _ in range(depth):
            inner = helper.make_graph([helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner, else_branch=inner)] if depth < 5 else
                                      [helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner)], "g", [], [vector("y")])
        inner.input.extend([vector("x"), condition])
        return inner

    with pytest.raises(OnnxError, match="If 'choice': attribute (then|else)_branch: of type GRAPH"):
        OnnxModel(save(path, nested(1)))
    # each level is some 20 bytes; protobuf refuses to go down a hundred of them
    save(path, nested(20))
    with pytest.raises(OnnxError, match="of type GRAPH"):
        OnnxModel(path)
    deep = b""
    for _ in range(2000):  # GraphProto.node (1) .attribute (5) .g (6), one in the other
        deep = b"".join((b"\x32", varint(len(deep)), deep))
        deep = b"".join((b"\x2a", varint(len(deep)), deep))
        deep = b"".join((b"\x0a", varint(len(deep)), deep))
    path.write_bytes(b"\x08\x0a" + b"\x3a" + varint(len(deep)) + deep)
    with pytest.raises(OnnxError, match="not an ONNX model, or truncated"):
        OnnxModel(path)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def test_functions_are_inlined_only_where_that_ends(tmp_path):
    path, node, opsets = tmp_path / "model.onnx", helper.make_node, [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    function = lambda name, nodes: helper.make_function("own", name, ["a"], ["b"], nodes, opsets)
    call = lambda name, x, y: node(name, [x], [y], domain="own")

    def load(functions, first):
        graph = helper.make_graph([call(first, "x", "y")], "g", [vector("x")], [vector("y")])
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10).SerializeToString())
        return OnnxModel(path)

    double = function("double", [node("Add", ["a", "a"], ["b"])])
    four = function("four", [call("double", "a", "c"), call("double", "c", "b")])
    assert load([four, double], "four").run({"x": np.ones(1, np.float32)})[0].tolist() == [4]
    with pytest.raises(OnnxError, match="function one calls itself"):
        load([function("one", [call("one", "a", "b")])], "one")
    with pytest.raises(OnnxError, match="function (one|two) calls itself"):
        load([function("one", [call("two", "a", "b")]), function("two", [call("one", "a", "b")])], "one")
    with pytest.raises(OnnxError, match="function double is defined twice"):
        load([double, double], "double")
    # a thousand million nodes from thirty lines
    bomb = [function("f0", [node("Add", ["a", "a"], ["b"])])]
    bomb += [function(f"f{i}", [call(f"f{i - 1}", "a", "c"), call(f"f{i - 1}", "c", "b")]) for i in range(1, 31)]
    with pytest.raises(OnnxError, match="with its functions inlined the graph would have .* nodes, expected at most 1000000"):
        load(bomb, "f30")
    with pytest.raises(OnnxError, match="attribute (then|else)_branch: of type GRAPH"):
        inner = helper.make_graph([call("f", "a", "b")], "g", [], [vector("b")])
        load([function("f", [node("If", ["a"], ["b"], then_branch=inner, else_branch=inner)])], "f")


def test_long_chains_do_not_take_forever(tmp_path):
    """Two equal towers in which each node reads the one below twice: compared along every path they would take 2^60 steps."""
    node = helper.make_node
    nodes = [node("Add", [f"{t}{i}", f"{t}{i}"], [f"{t}{i + 1}"]) for t in "cs" for i in range(60)]
    nodes = [node("Cos", ["p"], ["c0"]), node("Cos", ["p"], ["s0"]), *nodes]
    q, k = ([node("RotaryEmbedding", [x, c, c], [f"{x}r"], num_heads=2)] for x, c in (("q", "c60"), ("k", "s60")))
    nodes += [*q, *k, node("Attention", ["qr", "kr", "v"], ["y"], q_num_heads=2, kv_num_heads=2, is_causal=1)]
    value = lambda n, *s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
    graph = helper.make_graph(nodes, "g", [*(value(n, 1, 3, 32) for n in "qkv"), value("p", 1, 3, 8)], [value("y", 1, 3, 32)])
    path = save(tmp_path / "model.onnx", graph)
    plan = Plan(read_graph(path), ["y"], Weights(), cached=True)
    assert len(plan.status) == len(nodes)


# --- a fuzz ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    """``victim(contract)``: (a directory that holds all but model.onnx, the bytes of that)."""
    made = {}

    def get(contract):
        if contract not in made:
            base = tmp_path_factory.mktemp("victim")
            make_checkpoint(base / "checkpoint", layers=1, intermediate=32, heads=4, kv_heads=2)
            export(base / "checkpoint", base / "graph", contract=contract, dtype=None if contract == "ort-int4" else "f32")
            made[contract] = base / "graph", (base / "graph" / "model.onnx").read_bytes()
        return made[contract]

    return get


def survives(directory, content):
    """A damaged graph gives a result or a named error, and nothing else, whichever way it is used."""
    (directory / "model.onnx").write_bytes(content)
    sizes = {"batch_size": 1, "sequence_length": 2, "total_sequence_length": 2, "past_sequence_length": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(OnnxError, ConfigError):
            describe_graph(directory)
        with contextlib.suppress(OnnxError, ConfigError):
            decoder = OnnxDecoder(directory, max_context=64)
            cache = decoder.new_cache()
            for ids in ([1, 2, 3], [4]):
                logits = decoder.forward(ids, cache, last_only=False)
                assert logits.shape == (len(ids), decoder.config.vocab_size)
        with contextlib.suppress(OnnxError):
            model, inputs = OnnxModel(directory), {}
            for name, (kind, declared) in model.inputs.items():
                shape = [sizes.get(d, 1) if not isinstance(d, int) else d for d in declared or ()]
                if all(n <= 1000 for n in shape) and len(shape) <= 6:
                    inputs[name] = np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind))
            if len(inputs) == len(model.inputs):
                assert len(model.run(inputs)) == len(model.outputs)


EDITS = st.lists(st.tuples(st.sampled_from(["set", "flip", "drop", "insert", "copy", "end"]), st.floats(0, 1, exclude_max=True), st.integers(0, 255)),
                 min_size=1, max_size=4)


@pytest.mark.parametrize("contract", ["ort-int4", "int4-qdq"])
@hypothesis.given(edits=EDITS)
@hypothesis.settings(max_examples=100)
def test_bytes_of_a_graph_changed(contract, edits, victim):
    directory, content = victim(contract)
    damaged = bytearray(content)
    for kind, where, value in edits:
        i = int(where * len(damaged))
        if kind == "end":
            del damaged[i:]
        elif kind == "drop":
            del damaged[i:i + 1 + value % 40]
        elif kind == "insert":
            damaged[i:i] = bytes([value])
        elif kind == "copy":
            damaged[i:i + value] = damaged[-value:]
        elif damaged:
            damaged[i] = value if kind == "set" else damaged[i] ^ 1 << value % 8
    survives(directory, bytes(damaged))


@pytest.mark.parametrize("contract", ["ort-int4", "float", "int4-qdq"])
@hypothesis.given(random=st.randoms(use_true_random=False))
@hypothesis.settings(max_examples=70)
def test_fields_of_a_graph_changed(contract, random, victim):
    """Well-formed protobuf that says something else: numbers, names, operators and parts changed, dropped, doubled, swapped."""
    directory, content = victim(contract)
    model = onnx.load_model_from_string(content)
    for _ in range(random.choice([1, 1, 2, 3])):
        parts = fields(model)
        message, field = random.choice(parts)
        same = [getattr(m, f.name) for m, f in parts if f.name == field.name and not f.is_repeated]
        if field.is_repeated:
            values, i = getattr(message, field.name), random.randrange(len(getattr(message, field.name)))
            if random.random() < 0.3:
                del values[i]
            elif field.type == field.TYPE_MESSAGE:
                values.add().CopyFrom(values[i])
            elif field.type == field.TYPE_STRING:
                values[i] = random.choice(["", *values])
            else:
                values[i] = random.choice([0, 1, 2, 3, 31, 32, 64, 128, 2**31 - 1])
        elif field.type == field.TYPE_ENUM:  # protobuf sets no other
            setattr(message, field.name, random.choice(list(field.enum_type.values_by_number)))
        elif field.type in (field.TYPE_INT32, field.TYPE_INT64):
            value = getattr(message, field.name)
            setattr(message, field.name, random.choice([-1, 0, 1, 2, 3, 6, 7, 9, 16, 21, value + 1, value - 1, 2**31 - 1, -2**31]))
        elif field.type == field.TYPE_FLOAT:
            setattr(message, field.name, random.choice([0.0, -1.0, float("nan"), float("inf")]))
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, random.choice(["", *same, *(OPERATORS if field.name == "op_type" else ())]))
        elif field.type == field.TYPE_BYTES:
            setattr(message, field.name, getattr(message, field.name)[:-1])
        else:
            message.ClearField(field.name)
    survives(directory, model.SerializeToString())


OPERATORS = ("Add", "MatMul", "Reshape", "Transpose", "Cast", "Shape", "Gather", "Concat", "Slice", "Expand", "Attention", "Softmax", "Identity", "Range",
             "ConstantOfShape", "Where", "Split", "Squeeze", "Unsqueeze", "DequantizeLinear", "GroupQueryAttention", "RMSNormalization", "RotaryEmbedding")


def fields(message):
    """Every (message, field) that is set, messages within messages."""
    found = []
    for field, value in message.ListFields():
        found.append((message, field))
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                found += fields(part)
    return found
