"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def causal_conv_with_state(input: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = ..., past_state: ArrayLike | None = ..., *, activation: str = ..., threads: int | None = ...) -> Any: ...

def linear_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, past_state: ArrayLike | None = ..., decay: ArrayLike | None = ..., beta: ArrayLike | None = ..., *, q_num_heads: Any, kv_num_heads: Any, chunk_size: int = ..., scale: float = ..., update_rule: str = ..., threads: int | None = ...) -> Any: ...
