"""The com.microsoft operators. Those whose name ai.onnx has too are found only here; the others also at the top level."""
from qkernels.elementwise import bias_gelu, fast_gelu, quick_gelu
from qkernels.elementwise import ms_gelu as gelu
from qkernels.normalization import simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.rotary import ms_rotary_embedding as rotary_embedding

__all__ = ["bias_gelu", "fast_gelu", "gelu", "quick_gelu", "rotary_embedding", "simplified_layer_normalization", "skip_simplified_layer_normalization"]
