"""Speculative decoding you can watch. The names in ``__all__`` are the public API. Each is imported on first
use, so that importing the package does not load torch."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdemo.api import compare, speculate
    from specdemo.pairs.load import load_pair
    from specdemo.records.limits import UserError
    from specdemo.records.pieces import StreamDecoder

# OpenMP threads spin while they wait for work. On a busy machine, long spins make passes a hundred times
# slower. Short spins cost nothing on a quiet machine. OpenMP reads this variable when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

__version__ = "0.2.0"
__all__ = ["StreamDecoder", "UserError", "compare", "load_pair", "speculate"]

_HOMES = {
    "StreamDecoder": "specdemo.records.pieces",
    "UserError": "specdemo.records.limits",
    "compare": "specdemo.api",
    "load_pair": "specdemo.pairs.load",
    "speculate": "specdemo.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
