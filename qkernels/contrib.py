"""The com.microsoft operators. Those whose name ai.onnx has too are found only here; the others also at the top level."""
from qkernels.matmul_nbits import matmul_nbits
from qkernels.normalization import simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.quantization import gather_block_quantized
from qkernels.rotary import ms_rotary_embedding as rotary_embedding

__all__ = ["gather_block_quantized", "matmul_nbits", "rotary_embedding", "simplified_layer_normalization", "skip_simplified_layer_normalization"]
