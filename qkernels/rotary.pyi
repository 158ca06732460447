"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def rotary_embedding(x: ArrayLike, cos_cache: ArrayLike, sin_cache: ArrayLike, position_ids: ArrayLike | None = ..., *, interleaved: int = ..., num_heads: int = ..., rotary_embedding_dim: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...
