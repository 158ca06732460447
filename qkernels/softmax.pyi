"""Made by tools/make_stubs.py; do not edit."""
from typing import Any

from numpy.typing import ArrayLike

def log_softmax(x: ArrayLike, *, axis: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...

def softmax(x: ArrayLike, *, axis: int = ..., out: Any = ..., threads: int | None = ...) -> Any: ...
