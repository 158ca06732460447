"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def reduce_max(x: ArrayLike, axes: ArrayLike | None = ..., *, keepdims: int = ..., noop_with_empty_axes: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def reduce_mean(x: ArrayLike, axes: ArrayLike | None = ..., *, keepdims: int = ..., noop_with_empty_axes: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def reduce_sum(x: ArrayLike, axes: ArrayLike | None = ..., *, keepdims: int = ..., noop_with_empty_axes: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...
