"""The com.microsoft operators specified in NumPy: OpRun classes for `onnx.reference.ReferenceEvaluator(new_ops=...)`.

Plain and slow on purpose; differential tests hold the kernels against them. Needs the ``onnx`` extra.
"""
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from qkernels.reference.op_attention import Attention
from qkernels.reference.op_gather_block_quantized import GatherBlockQuantized
from qkernels.reference.op_group_query_attention import GroupQueryAttention
from qkernels.reference.op_matmul_nbits import MatMulNBits
from qkernels.reference.op_multi_head_attention import MultiHeadAttention
from qkernels.reference.op_paged_attention import PagedAttention
from qkernels.reference.op_qattention import QAttention
from qkernels.reference.op_rotary_embedding import RotaryEmbedding
from qkernels.reference.op_simplified_layer_normalization import SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization
from qkernels.reference.op_sparse_attention import SparseAttention

OPERATORS = [Attention, GatherBlockQuantized, GroupQueryAttention, MatMulNBits, MultiHeadAttention, PagedAttention, QAttention, RotaryEmbedding,
             SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization, SparseAttention]


def evaluate(domain, op_type, inputs, *, outputs=1, opset=23, **attributes):
    """Run one node on the reference: `inputs` in order, None for an absent one; the first `outputs` outputs as a list.

    Parameters
    ----------
    domain, op_type : str
    inputs : list of ndarray or None
    outputs : int, default 1
    opset : int, default 23
        Version of ai.onnx.
    **attributes
        The node's.

    Examples
    --------
    >>> import numpy as np
    >>> from qkernels.reference import evaluate
    >>> evaluate("", "Add", [np.float32([1, 2]), np.float32([3, 4])])
    [array([4., 6.], dtype=float32)]
    """
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain,
                            **{k: v for k, v in attributes.items() if v is not None})
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, inputs, strict=True) if n]
    graph = helper.make_graph([node], "node", infos, [helper.make_tensor_value_info(o, onnx.TensorProto.UNDEFINED, None) for o in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    return ReferenceEvaluator(model, new_ops=OPERATORS).run(None, {n: x for n, x in zip(names, inputs, strict=True) if n})


__all__ = ["OPERATORS", "evaluate"]
