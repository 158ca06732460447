"""CPU kernels for language models: NumPy-facing functions with ONNX operator semantics, one result on every machine."""
from qkernels._runtime import available_isa, get_isa, get_num_threads, set_num_threads, use_isa
from qkernels.matmul import PackedMatrix, matmul
from qkernels.matmul_nbits import PackedInt8Rows, PackedNBits, matmul_nbits, quantize_nbits
from qkernels.attention import attention, cached_attention
from qkernels.kv_cache import KVCache
from qkernels.normalization import rms_normalization, simplified_layer_normalization, skip_simplified_layer_normalization

__version__ = "0.1.0"

__all__ = ["available_isa", "get_isa", "get_num_threads", "set_num_threads", "use_isa",
           "PackedMatrix", "matmul",
           "PackedInt8Rows", "PackedNBits", "matmul_nbits", "quantize_nbits",
           "KVCache", "attention", "cached_attention",
           "rms_normalization", "simplified_layer_normalization", "skip_simplified_layer_normalization"]
