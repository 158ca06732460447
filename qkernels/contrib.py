"""The com.microsoft operators. Those whose name ai.onnx has too are found only here; the others also at the top level."""
from qkernels import elementwise, rotary
from qkernels.attention import group_query_attention
from qkernels.contrib_attention import attention, multi_head_attention, paged_attention, qattention, sparse_attention
from qkernels.elementwise import bias_gelu, fast_gelu, quick_gelu
from qkernels.matmul_nbits import matmul_nbits
from qkernels.normalization import simplified_layer_normalization, skip_simplified_layer_normalization
from qkernels.quantization import gather_block_quantized

__all__ = ["attention", "bias_gelu", "fast_gelu", "gather_block_quantized", "gelu", "group_query_attention", "matmul_nbits", "multi_head_attention",
           "paged_attention", "qattention", "quick_gelu", "rotary_embedding", "simplified_layer_normalization", "skip_simplified_layer_normalization",
           "sparse_attention"]


def gelu(x, *, out=None, threads=None):
    """The Gaussian error linear unit of com.microsoft: `qkernels.gelu` without an attribute.

    com.microsoft Gelu, since version 1.

    Parameters
    ----------
    x, out, threads
        As in `qkernels.gelu`.

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError
        For a dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from qkernels import contrib
    >>> contrib.gelu(np.float32([-6, 1]))
    array([-5.9195258e-09,  8.4134471e-01], dtype=float32)
    """
    return elementwise.gelu(x, out=out, threads=threads)


def rotary_embedding(x, position_ids, cos_cache, sin_cache, *, interleaved=0, num_heads=0, rotary_embedding_dim=0, scale=1.0, is_packed_batching=0,
                     out=None, threads=None):
    """Turn pairs of each head's elements by the angles of the token's position, in com.microsoft's argument order.

    com.microsoft RotaryEmbedding, since version 1. Computes as `qkernels.rotary_embedding` does.

    Parameters
    ----------
    x : array, float32, float16 or bfloat16
        (batch, heads, sequence, head_size) or (batch, sequence, heads * head_size).
    position_ids : array of integers, (1,) or (batch, sequence)
        The position of each sequence's first token, or every token's.
    cos_cache, sin_cache : array, (rows, r / 2), x's dtype or float32
    interleaved, out, threads
        As in `qkernels.rotary_embedding`.
    num_heads : int, default 0
        For x with 3 dimensions; may be 0 if whole heads are turned, which then are twice as wide as the caches.
    rotary_embedding_dim : int, default 0
    scale : float, default 1.0
        1 only: the operator does not say what it scales, and no runtime applies it.
    is_packed_batching : {0, 1}, default 0
        1 says that the tokens of a batch row belong to several sequences. Each token has its own position anyway, so nothing changes; only (1,)
        positions are refused.

    Returns
    -------
    ndarray
        x's shape and dtype.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For a shape or an attribute.
    IndexError
        For a position without a row in the caches.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> x = np.float32([[[1, 2, 3, 4]]])
    >>> qkernels.contrib.rotary_embedding(x, np.int64([0]), np.float32([[0, 1]]), np.float32([[1, 0]]))
    array([[[-3.,  2.,  1.,  4.]]], dtype=float32)
    """
    return rotary._in_microsoft_order(x, position_ids, cos_cache, sin_cache, interleaved, num_heads, rotary_embedding_dim, scale, is_packed_batching,
                                      out, threads)
