"""CPU kernels for language models: NumPy-facing functions with ONNX operator semantics, one result on every machine."""
from qkernels._config import show_config
from qkernels._runtime import available_isa, get_isa, get_num_threads, set_num_threads, use_isa
from qkernels.attention import attention, cached_attention
from qkernels.elementwise import add, mul, sigmoid, silu, silu_mul, sub
from qkernels.kv_cache import KVCache
from qkernels.layout import cast, gather
from qkernels.matmul import PackedMatrix, matmul
from qkernels.matmul_nbits import PackedInt8Rows, PackedNBits, matmul_nbits, quantize_nbits
from qkernels.normalization import rms_normalization, simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.quantization import dequantize_linear, pack_int4, quantize_linear, unpack_int4
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
from qkernels.rotary import rotary_embedding
from qkernels.sampling import argmax, sample

from qkernels import contrib  # noqa: I001  (after the families that it re-exports)

__version__ = "0.1.0"

__all__ = ["available_isa", "get_isa", "get_num_threads", "set_num_threads", "show_config", "use_isa",
           "KVCache", "attention", "cached_attention",
           "add", "mul", "sigmoid", "silu", "silu_mul", "sub",
           "cast", "gather",
           "PackedMatrix", "matmul",
           "PackedInt8Rows", "PackedNBits", "matmul_nbits", "quantize_nbits",
           "rms_normalization", "simplified_layer_normalization", "skip_simplified_layer_normalization",
           "dequantize_linear", "pack_int4", "quantize_linear", "unpack_int4",
           "rotary_embedding",
           "argmax", "sample",
           # without range and slice, so that a star import leaves Python's own alone
           "cast_like", "concat", "constant", "constant_of_shape", "expand", "flatten", "gather_elements", "gather_nd", "identity", "pad",
           "reshape", "scatter_elements", "scatter_nd", "shape", "size", "split", "squeeze", "tensor_scatter", "tile", "transpose", "trilu",
           "unsqueeze",
           "contrib"]
