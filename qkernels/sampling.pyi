"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def argmax(x: ArrayLike, *, axis: int = ..., keepdims: int = ..., select_last_index: int = ..., threads: int | None = ...) -> Any: ...

def candidates(logits: ArrayLike, *, temperature: float = ..., top_k: int = ..., top_p: float = ..., min_p: float = ..., repetition_penalty: float = ..., previous: Any = ..., threads: int | None = ...) -> Any: ...

def sample(logits: ArrayLike, *, temperature: float = ..., top_k: int = ..., top_p: float = ..., min_p: float = ..., repetition_penalty: float = ..., previous: Any = ..., seed: int = ..., step: int = ..., threads: int | None = ...) -> Any: ...
