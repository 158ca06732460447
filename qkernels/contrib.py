"""The com.microsoft operators. Those whose name ai.onnx has too are found only here; the others also at the top level."""
from qkernels.attention import group_query_attention
from qkernels.elementwise import bias_gelu, fast_gelu, quick_gelu
from qkernels.elementwise import ms_gelu as gelu
from qkernels.matmul_nbits import matmul_nbits
from qkernels.normalization import simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.quantization import gather_block_quantized
from qkernels.rotary import ms_rotary_embedding as rotary_embedding

__all__ = ["bias_gelu", "fast_gelu", "gather_block_quantized", "gelu", "group_query_attention", "matmul_nbits", "quick_gelu", "rotary_embedding",
           "simplified_layer_normalization", "skip_simplified_layer_normalization"]
