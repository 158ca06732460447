"""The backend: ONNX's own node tests for every registered operator, and what is not supported said by name."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from qkernels import backend
from tests import node_tests


@pytest.mark.parametrize("name", [name for name in node_tests.included() if not node_tests.reason(name)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_onnx_node(name):
    node_tests.run(node_tests.included()[name])


def test_exclusions_name_tests():
    names = node_tests.included()
    for pattern in node_tests.EXCLUDED:
        assert any(node_tests.re.fullmatch(pattern, name) for name in names), f"no test is called {pattern}"


def model(nodes, inputs, outputs, opset=23, **options):
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "g", [value(n) for n in inputs], [value(n) for n in outputs], options.pop("initializer", ()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10, **options)


def test_unsupported_operators_are_named_before_any_work():
    m = model([helper.make_node("Det", ["x"], ["y"], name="first"), helper.make_node("LRN", ["y"], ["z"], size=3, name="second")], ["x"], ["z"])
    with pytest.raises(backend.UnsupportedError, match=r"2 unsupported: ai.onnx Det \(first\): no such operator here; ai.onnx LRN \(second\)"):
        backend.prepare(m)
    assert not backend.QKernelsBackend.is_compatible(m)


def test_versions_and_attributes_are_checked():
    old = model([helper.make_node("Reshape", ["x", "s"], ["y"])], ["x", "s"], ["y"], opset=5)
    with pytest.raises(backend.UnsupportedError, match="Reshape: version 5, in force at opset 5, is not among those implemented: .13"):
        backend.prepare(old, check=False)
    future = model([helper.make_node("Identity", ["x"], ["y"])], ["x"], ["y"], opset=99)
    with pytest.raises(backend.UnsupportedError, match="opset 99 is newer than 28"):
        backend.prepare(future, check=False)
    other = model([helper.make_node("Identity", ["x"], ["y"], colour="red")], ["x"], ["y"])
    with pytest.raises(backend.UnsupportedError, match="attribute colour = 'red' is not offered"):
        backend.prepare(other, check=False)
    body = helper.make_graph([], "b", [], [])
    branch = model([helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)], ["x"], ["y"])
    with pytest.raises(backend.UnsupportedError, match="ai.onnx If: no such operator here"):
        backend.prepare(branch, check=False)


def test_function_bodies_only_on_request():
    m = model([helper.make_node("MeanVarianceNormalization", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(backend.UnsupportedError, match="MeanVarianceNormalization"):
        backend.prepare(m)
    m = model([helper.make_node("Swish", ["x"], ["y"])], ["x"], ["y"], opset=24)
    x = np.float32([[1, -2]])
    np.testing.assert_array_equal(backend.run_model(m, [x])[0], backend.run_model(m, {"x": x}, expand_functions=True)[0])


def test_functions_of_the_model_are_inlined():
    twice = helper.make_function("local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 23)])
    m = model([helper.make_node("Twice", ["x"], ["y"], domain="local")], ["x"], ["y"], functions=[twice])
    m.opset_import.append(helper.make_opsetid("local", 1))
    assert backend.run_model(m, [np.float32([1])])[0].tolist() == [2]


def test_absent_inputs_and_outputs():
    rng = np.random.default_rng(0)
    x, skip, gamma = (rng.standard_normal(s, np.float32) for s in ((2, 4), (2, 4), (4,)))
    node = helper.make_node("SkipSimplifiedLayerNormalization", ["x", "skip", "gamma", ""], ["y", "", "", "s"], domain="com.microsoft", epsilon=1e-6)
    y, total = backend.run_node(node, [x, skip, gamma])
    np.testing.assert_array_equal(total, x + skip)
    only = helper.make_node("SkipSimplifiedLayerNormalization", ["x", "skip", "gamma"], ["", "", "", "s"], domain="com.microsoft")
    (alone,) = backend.run_node(only, {"x": x, "skip": skip, "gamma": gamma})
    np.testing.assert_array_equal(alone, total)


def test_wrong_graphs_and_inputs():
    cycle = model([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])], ["x"], ["b"])
    with pytest.raises(ValueError, match="Add: input 'b' is made by no earlier node"):
        backend.prepare(cycle, check=False)
    with pytest.raises(onnx.checker.ValidationError):
        backend.prepare(cycle)
    good = backend.prepare(model([helper.make_node("Add", ["x", "y"], ["z"])], ["x", "y"], ["z"]))
    with pytest.raises(ValueError, match="run: inputs: y is missing"):
        good.run({"x": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match="run: inputs: expected 2 arrays, got 3"):
        good.run([1, 2, 3])
    with pytest.raises(ValueError, match="device: expected CPU, got 'CUDA'"):
        backend.prepare(cycle, "CUDA")
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")


def test_initializers_need_no_input():
    w = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    assert backend.run_model(model([helper.make_node("Mul", ["x", "w"], ["y"])], ["x"], ["y"], initializer=[w]), [np.float32([3])])[0].tolist() == [6]
