"""What was measured on this machine, kept in the cache folder so that a second start need not repeat it.

An entry holds for the processor, its instruction sets as the libraries see them, the number of threads and
the version of torch: anything else is another machine. Knows no models.
"""

import hashlib
import json
import os
import platform
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

FILE = "measured.json"
LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "FBGEMM_ENABLE_INSTRUCTIONS",
)
"""Environment variables by which a processor is made to play a lesser one."""
X86_FLAGS = ("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16")
X86_FLAGS += ("amx_bf16", "amx_int8")
ARM_FLAGS = ("asimd", "asimddp", "bf16", "i8mm", "sve")
TELLING_FLAGS = frozenset(X86_FLAGS + ARM_FLAGS)
"""Processor flags that decide which kernels there are."""
EDITION = 2
"""Of what entries hold and how it is measured: those of another edition are not found."""
MOST_ENTRIES = 500
_ONE_AT_A_TIME = threading.Lock()


class Measurements:
    """The entries of this machine.

    Args:
        folder: Where the file is, or None to keep them in memory only.
        fresh: Ignore what earlier processes wrote.
    """

    def __init__(self, folder: Path | None, fresh: bool = False):
        self._path = None if folder is None else folder / FILE
        self._found = {} if fresh or self._path is None else _read(self._path)

    def get(self, *what: Any) -> Any:
        """The value under a name made of strings and numbers; None where there is none.

        Another version of the program may have kept it, so whoever asks looks at its shape.
        """
        entry = self._found.get(_key(what))
        return entry and entry.get("value")

    def put(self, value: Any, *what: Any) -> None:
        """Keep a value that JSON can hold. A folder that cannot be written is no reason to stop."""
        # As another process will read it, whoever asks.
        entry = json.loads(json.dumps({"what": list(what), "machine": machine(), "value": value}))
        self._found[_key(what)] = entry
        if self._path is None:
            return
        with _ONE_AT_A_TIME, suppress(OSError):
            entries = {**_read(self._path), _key(what): entry}
            newest = dict(list(entries.items())[-MOST_ENTRIES:])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(newest, indent=1), encoding="utf-8")
            partial.replace(self._path)


def fingerprint(folder: Path) -> str:
    """Name, size and age of a model's files: another model in the same place is another model."""
    files = [path.stat() for path in sorted(folder.glob("*.safetensors"))]
    newest = max((file.st_mtime_ns for file in files), default=0)
    return f"{folder.name} {sum(file.st_size for file in files)} {newest}"


def machine() -> dict[str, Any]:
    """What a measurement depends on besides what is measured."""
    return {
        "processor": processor(),
        "flags": list(processor_flags()),
        "limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


@cache
def processor() -> str:
    """Name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def processor_flags() -> tuple[str, ...]:
    """Those of the processor's flags that decide how fast a model runs, sorted; none where unknown."""
    found = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return tuple(sorted(TELLING_FLAGS.intersection(found)))


def _cpuinfo(field: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


def _key(what: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([EDITION, machine(), what]).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    """Everything in the file; nothing where there is none or it is not whole."""
    with suppress(OSError, ValueError):
        entries = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values()):
            return entries
    return {}
