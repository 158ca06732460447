"""CPU kernels for language models: NumPy-facing functions with ONNX operator semantics, one result on every machine."""
from qkernels._runtime import available_isa, get_isa, get_num_threads, set_num_threads, use_isa
from qkernels.elementwise import add, mul, sigmoid, silu, silu_mul, sub
from qkernels.layout import cast, gather
from qkernels.normalization import rms_normalization, simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.rotary import rotary_embedding

from qkernels import contrib  # noqa: I001  (after the families that it re-exports)

__version__ = "0.1.0"

__all__ = ["available_isa", "get_isa", "get_num_threads", "set_num_threads", "use_isa",
           "add", "mul", "sigmoid", "silu", "silu_mul", "sub", "cast", "gather",
           "rms_normalization", "simplified_layer_normalization", "skip_simplified_layer_normalization",
           "rotary_embedding", "contrib"]
