"""One node in ONNX Runtime, the second opinion on the com.microsoft operators."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper


def onnxruntime_node(op_type, inputs, *, constants=(), outputs=1, domain="com.microsoft", opset=23, **attributes):
    """The results of a node in ONNX Runtime on one CPU thread, as a list.

    Parameters
    ----------
    op_type : str
    inputs : dict of str to (ndarray or None)
        In the operator's order; None is absent.
    constants : sequence of str
        Which of them the model holds, as weights are.
    outputs : int or tuple of bool
        How many outputs, or which of them, are asked for.
    domain, opset
        opset is ai.onnx's.
    **attributes
        The node's.

    Raises
    ------
    onnxruntime's exceptions
        Where it refuses the node. The test is skipped where ONNX Runtime is not installed.
    """
    ort = pytest.importorskip("onnxruntime")
    names = [name if value is not None else "" for name, value in inputs.items()]
    while names and not names[-1]:
        names.pop()
    given = {name: np.ascontiguousarray(value).reshape(np.shape(value)) for name, value in inputs.items() if value is not None}
    wanted = (True,) * outputs if isinstance(outputs, int) else outputs
    results = [f"y{i}" if asked else "" for i, asked in enumerate(wanted)]
    feeds = {name: value for name, value in given.items() if name not in constants}
    kind = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
    graph = helper.make_graph([helper.make_node(op_type, names, results, domain=domain, **attributes)], "node",
                              [helper.make_tensor_value_info(name, kind(value), value.shape) for name, value in feeds.items()],
                              [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results if name],
                              [numpy_helper.from_array(given[name], name) for name in constants if name in given])
    for output in graph.output:
        output.ClearField("type")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
