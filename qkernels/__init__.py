"""CPU kernels for language models: NumPy-facing functions with ONNX operator semantics, one result on every machine."""
from qkernels._config import show_config
from qkernels._runtime import available_isa, get_isa, get_num_threads, set_num_threads, use_isa
from qkernels.attention import attention, cached_attention, group_query_attention
from qkernels.contrib_attention import PackedQAttention, multi_head_attention, paged_attention, qattention, sparse_attention
from qkernels.elementwise import (
    abs,
    add,
    bias_gelu,
    ceil,
    celu,
    clip,
    cos,
    div,
    elu,
    erf,
    exp,
    fast_gelu,
    floor,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log,
    mish,
    mul,
    neg,
    pow,
    prelu,
    quick_gelu,
    reciprocal,
    relu,
    round,
    selu,
    sigmoid,
    sign,
    silu,
    silu_mul,
    sin,
    softplus,
    softsign,
    sqrt,
    sub,
    swiglu,
    swish,
    tanh,
    thresholded_relu,
)
from qkernels.kv_cache import KVCache
from qkernels.layout import cast, gather
from qkernels.matmul import PackedMatrix, gemm, matmul
from qkernels.matmul_nbits import PackedInt8Rows, PackedNBits, matmul_nbits, quantize_nbits
from qkernels.normalization import layer_normalization, rms_normalization, simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.numpy_logic import (
    and_,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cumsum,
    equal,
    greater,
    greater_or_equal,
    is_inf,
    is_nan,
    less,
    less_or_equal,
    max,
    min,
    mod,
    not_,
    or_,
    topk,
    where,
    xor,
)
from qkernels.numpy_ops import (
    cast_like,
    concat,
    constant,
    constant_of_shape,
    expand,
    flatten,
    gather_elements,
    gather_nd,
    identity,
    pad,
    range,
    reshape,
    scatter_elements,
    scatter_nd,
    shape,
    size,
    slice,
    split,
    squeeze,
    tensor_scatter,
    tile,
    transpose,
    trilu,
    unsqueeze,
)
from qkernels.quantization import (PackedInt8Matrix, dequantize_linear, dynamic_quantize_linear, gather_block_quantized, matmul_integer, pack_int4,
                                   qlinear_matmul, quantize_linear, unpack_int4)
from qkernels.recurrent import causal_conv_with_state, linear_attention
from qkernels.reduction import reduce_max, reduce_mean, reduce_sum
from qkernels.rotary import rotary_embedding
from qkernels.sampling import argmax, sample
from qkernels.softmax import log_softmax, softmax

from qkernels import contrib  # noqa: I001  (after the families that it re-exports)

__version__ = "0.1.0"

__all__ = ["available_isa", "get_isa", "get_num_threads", "set_num_threads", "show_config", "use_isa",
           "KVCache", "PackedQAttention", "attention", "cached_attention", "group_query_attention", "multi_head_attention", "paged_attention", "qattention",
           "sparse_attention",
           # here and below without abs, max, min, pow, range, round and slice, so that a star import leaves Python's own alone
           "add", "bias_gelu", "ceil", "celu", "clip", "cos", "div", "elu", "erf", "exp", "fast_gelu", "floor", "gelu", "hard_sigmoid", "hard_swish",
           "leaky_relu", "log", "mish", "mul", "neg", "prelu", "quick_gelu", "reciprocal", "relu", "selu", "sigmoid", "sign", "silu", "silu_mul", "sin",
           "softplus", "softsign", "sqrt", "sub", "swiglu", "swish", "tanh", "thresholded_relu",
           "cast", "gather",
           "PackedMatrix", "gemm", "matmul",
           "PackedInt8Rows", "PackedNBits", "matmul_nbits", "quantize_nbits",
           "PackedInt8Matrix", "dequantize_linear", "dynamic_quantize_linear", "gather_block_quantized", "matmul_integer", "pack_int4", "qlinear_matmul",
           "quantize_linear", "unpack_int4",
           "layer_normalization", "rms_normalization", "simplified_layer_normalization", "skip_simplified_layer_normalization",
           "rotary_embedding",
           "causal_conv_with_state", "linear_attention",
           "reduce_max", "reduce_mean", "reduce_sum",
           "argmax", "sample",
           "log_softmax", "softmax",
           "and_", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cumsum", "equal", "greater",
           "greater_or_equal", "is_inf", "is_nan", "less", "less_or_equal", "mod", "not_", "or_", "topk", "where", "xor",
           "cast_like", "concat", "constant", "constant_of_shape", "expand", "flatten", "gather_elements", "gather_nd", "identity", "pad",
           "reshape", "scatter_elements", "scatter_nd", "shape", "size", "split", "squeeze", "tensor_scatter", "tile", "transpose", "trilu",
           "unsqueeze",
           "contrib"]
