"""The threads of compiled code: those of torch's own OpenMP library, libgomp. Works without numba."""

import ctypes
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

MAPS = Path("/proc/self/maps")
NO_NUMBA = "numba is not installed"
NO_LIBRARY = "torch does not use libgomp here"


@cache
def library() -> ctypes.CDLL | None:
    """Return torch's libgomp, because a second OpenMP library would have its own threads."""
    try:
        lines = MAPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    paths = [line.split()[-1] for line in lines if "libgomp" in line]
    own = [path for path in paths if path.startswith(str(Path(torch.__file__).resolve().parent))]
    return ctypes.CDLL((own or paths)[0]) if paths else None


def missing() -> str | None:
    """Return the reason why passes cannot be compiled here; None if they can."""
    if importlib.util.find_spec("numba") is None:
        return NO_NUMBA
    if library() is None:
        return NO_LIBRARY
    from specdemo.models.compiled.vectors import lacking

    return lacking()


@cache
def _region() -> Callable[..., None]:
    found = library()
    assert found is not None, NO_LIBRARY
    region = found.GOMP_parallel
    region.argtypes, region.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return region


def parallel(function: int, arguments: int, threads: int) -> None:
    """Call the function at an address on ``threads`` threads at once, and wait for all of them."""
    _region()(function, arguments, threads, 0)
