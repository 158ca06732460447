"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def attention(q: ArrayLike, k: ArrayLike, v: ArrayLike, attn_mask: ArrayLike | None = ..., past_key: ArrayLike | None = ..., past_value: ArrayLike | None = ..., *, is_causal: int = ..., q_num_heads: int = ..., kv_num_heads: int = ..., scale: Any = ..., softcap: float = ..., qk_matmul_output_mode: int = ..., softmax_precision: Any = ..., outputs: tuple[int, ...] | int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def cached_attention(cache: Any, layer: int, qkv: ArrayLike, *, q_norm: Any = ..., k_norm: Any = ..., epsilon: float = ..., cos: Any = ..., sin: Any = ..., num_heads: Any, scale: Any = ..., out: Any = ..., threads: int | None = ...) -> Any: ...
