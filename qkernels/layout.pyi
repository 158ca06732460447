"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def cast(x: ArrayLike, to: ArrayLike, *, saturate: int = ..., round_mode: str = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def gather(data: ArrayLike, indices: ArrayLike, *, axis: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...
