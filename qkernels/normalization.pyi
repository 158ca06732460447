"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def rms_normalization(x: ArrayLike, scale: ArrayLike, *, axis: int = ..., epsilon: float = ..., stash_type: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def simplified_layer_normalization(x: ArrayLike, scale: ArrayLike, *, axis: int = ..., epsilon: float = ..., stash_type: int = ..., outputs: tuple[int, ...] | int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def skip_simplified_layer_normalization(x: ArrayLike, skip: ArrayLike, gamma: ArrayLike, bias: ArrayLike | None = ..., *, epsilon: float = ..., outputs: tuple[int, ...] | int = ..., out: Any = ..., sum_out: Any = ..., threads: int | None = ...) -> Any: ...
