"""The com.microsoft operators. Those whose name ai.onnx has too are found only here; the others also at the top level."""
from qkernels.normalization import simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.rotary import ms_rotary_embedding as rotary_embedding

__all__ = ["rotary_embedding", "simplified_layer_normalization", "skip_simplified_layer_normalization"]
