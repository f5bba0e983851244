"""Compiled functions: their compilation, their cache on disk, and how they run on torch's threads."""

import ctypes
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba import cfunc, types
from numba.core import config

from specdemo.models.compiled import openmp, vectors

UNUSED_DAYS = 30
_LOCK = threading.Lock()
_folder: list[Path] = []

# Symbols of torch's OpenMP library: numba caches code that calls symbols, but not code with addresses.
for _name in ("omp_get_thread_num", "GOMP_barrier"):
    _symbol = getattr(openmp.library(), _name, None)
    if _symbol is not None:
        binding.add_symbol(_name, ctypes.cast(_symbol, ctypes.c_void_p).value)
thread_number = types.ExternalFunction("omp_get_thread_num", types.int32())
barrier = types.ExternalFunction("GOMP_barrier", types.void())


class Compiled:
    """A function that is called at its address: by compiled code, or by :meth:`run`."""

    def __init__(self, signature: Any, function: Callable[..., None]):
        self._signature, self._function = signature, function
        self._code: Any = None

    def compile(self) -> int:
        """Return the function's address. The first call compiles it or loads it from the cache."""
        if self._code is None:
            with _LOCK:
                if self._code is None:
                    self._code = self._compiled()
        return self._code.address

    def portable_code(self) -> tuple[str, str]:
        """Return LLVM's code of the function and of all that it calls, and the function's name in it."""
        code = self._cfunc(self._function)
        return code.inspect_llvm(), code.native_name.removeprefix("cfunc.")

    def run(self, arguments: int, count: int) -> None:
        """Call the function on ``count`` threads, with the address of its arguments."""
        openmp.parallel(self.compile(), arguments, count)

    def _compiled(self) -> Any:
        folder = _private(_folder[0] / _version()) if _folder else None
        if folder is None:
            return self._cfunc(self._function)
        numba_config: Any = config
        before, numba_config.CACHE_DIR = numba_config.CACHE_DIR, str(folder)
        try:
            return self._cfunc(self._function, cache=True)
        except Exception:  # a damaged file can raise any error, and a full disk cannot store code
            shutil.rmtree(folder, ignore_errors=True)
            return self._cfunc(self._function)
        finally:
            numba_config.CACHE_DIR = before

    def _cfunc(self, function: Callable[..., None], **options: Any) -> Any:
        # With numba's default error model, a division by 0 would end the function early.
        return cfunc(self._signature, error_model="numpy", **options)(function)


def keep_in(folder: Path) -> None:
    """Keep compiled code in ``folder``, and delete code of other versions after ``UNUSED_DAYS`` without use.

    The folder must belong to this user alone, because numba reads pickles from it.
    """
    _folder[:] = [folder]
    used = folder / _version()
    with suppress(OSError):
        os.utime(used)
    with suppress(OSError):  # there is no code yet, or it belongs to another user
        for other in folder.iterdir():
            if other != used and time.time() - other.stat().st_mtime > UNUSED_DAYS * 86_400:
                shutil.rmtree(other, ignore_errors=True)


def _version() -> str:
    """Return a hash of the source code and the processor.

    numba's cache does not notice changes in other modules. In one folder, two different processors that
    compile at the same time could each load the other's code.
    """
    digest = hashlib.sha256(repr((numba.__version__, vectors.processor_and_features())).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _private(folder: Path) -> Path | None:
    """Create a folder that only this user can write to; return None if that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except OSError:
        return None
    owned = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return folder if owned and not status.st_mode & 0o022 and os.access(folder, os.W_OK) else None
