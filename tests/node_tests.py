"""ONNX's own node tests for the operators of the registry: which are included, and which are not and why.

``python -m tests.count_node_tests`` runs them and prints the count of each operator.
"""
import functools
import re
import warnings

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from qkernels import backend
from tests.oracle import SMALL_INTEGERS

# Tests of registered operators that must fail: pattern of the whole name → reason. Each is run, and one that passes is an error.
EXCLUDED = {
    "test_attention_4d_causal_fp16_expanded": "the body rounds to float16 at every node: it misses the test's tolerance of its own operator's result",
}


@functools.cache
def _cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def reason(name):
    """Why a test is excluded, or None."""
    return next((why for pattern, why in EXCLUDED.items() if re.fullmatch(pattern, name)), None)


def operator(case):
    """What a test is counted under: its operator; where it has several nodes, the operator whose body they are."""
    nodes = case.model.graph.node
    if len({n.op_type for n in nodes}) == 1:
        return nodes[0].op_type
    return "function bodies"


@functools.cache
def included():
    """name → case for every node test whose operators are all registered, at its opset."""
    return {name: case for name, case in sorted(_cases().items()) if not backend.unsupported(case.model)}


def other_versions():
    """name → reasons for tests that are not included although their operators are registered: another version, another attribute, sequences."""
    found = {}
    for name, case in sorted(_cases().items()):
        reasons = backend.unsupported(case.model)
        if reasons and not any("no such operator" in r for r in reasons):
            found[name] = reasons
    return found


def run(case):
    """Run one test; raises where a result differs."""
    prepared = backend.prepare(case.model, check=False)
    for inputs, expected in case.data_sets:
        inputs, expected = [_array(x) for x in inputs], [_array(x) for x in expected]
        outputs = prepared.run(inputs)
        if re.match("test_cast(like)?_", case.name):
            expected, outputs = ([_defined(inputs[0], y) for y in results] for results in (expected, outputs))
        Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=case.atol)


def _defined(x, y):
    """A cast's result, 0 where the value does not fit y's integers below 8 bits: undefined by Cast, and there the test expects whatever the installed
    ml_dtypes does, which 0.7 changed."""
    if y.dtype not in SMALL_INTEGERS or x.dtype in SMALL_INTEGERS:
        return y
    limits, value = ml_dtypes.iinfo(y.dtype), np.trunc(x.astype(np.float64))
    return np.where((value >= int(limits.min)) & (value <= int(limits.max)), y, np.zeros((), y.dtype))


def _array(x):
    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x
