"""The devices that models run on: their choice, names, free memory, and the fastest precision for each."""

import ctypes
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import transformers
from torch import nn

from specdemo import __version__
from specdemo.models.compiled.openmp import missing
from specdemo.models.threads import thread_count
from specdemo.records.limits import UserError

CGROUP = Path("sys/fs/cgroup")
CGROUP_V1 = CGROUP / "memory"
GB = 1e9
# Environment variables that restrict libraries to the instructions of an older processor.
PLAYED = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
)
X86_FLAGS = ("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16")
X86_FLAGS += ("amx_bf16", "amx_int8")
ARM_FLAGS = ("asimd", "asimddp", "bf16", "i8mm", "sve")


def return_freed_memory() -> None:
    """Return freed CPU memory to the system. The C library keeps hundreds of MB after a load."""
    with suppress(OSError, TypeError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def best_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen_device(name: str | None) -> torch.device:
    """Return the device called ``name``, or for None that of :func:`best_device`, if it can be used."""
    best = best_device()
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} is not available on this machine; choose {best}.") from error
    return place


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {thread_count()} threads"


def place_of(models: Iterable[nn.Module | None], device: torch.device) -> str:
    """Return the name of ``device`` for the page, with the number of GPUs and the way passes run on them."""
    models = [model for model in models if model is not None]
    name = device_name(device)
    devices = {weight.device for model in models for weight in model.parameters()}
    if device.type == "cuda" and len(devices) > 1:
        name = f"{len(devices)} × {name}"
    labels = {getattr(getattr(model, "execution", None), "label", "") for model in models} - {""}
    # The longest label has the reason why something is not used.
    return f"{name} ({max(labels, key=len)})" if labels else name


def versions() -> Mapping[str, str]:
    return {
        "specdemo": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


@cache
def processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def processor_flags() -> tuple[str, ...]:
    """Return the processor's flags that affect a model's speed, sorted; none if unknown."""
    found = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return tuple(sorted({*X86_FLAGS, *ARM_FLAGS}.intersection(found)))


def played() -> dict[str, str]:
    return {name: os.environ[name] for name in PLAYED if name in os.environ}


def _cpuinfo(field: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


def precision_for(device: torch.device) -> str:
    """Return the fastest precision of a target on a GPU that does not change the target's weights."""
    try:
        before_ampere = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    except (RuntimeError, AssertionError):  # on a host that lends GPUs per call, there is no GPU yet
        before_ampere = False
    return "fp32" if before_ampere else "bf16"


def arithmetic_of(device: torch.device, precision: str, drafts: str) -> str:
    """Return sentences for the page on the precision of the weights, trained drafts and arithmetic."""
    if device.type != "cpu":
        return f"Weights and arithmetic in {precision}."
    weights = precision if drafts == precision else f"{precision}, drafts in {drafts}"
    uncompiled = missing()
    note = "" if uncompiled is None else f" Passes are not compiled, because {uncompiled}."
    return f"Weights in {weights}; all arithmetic in fp32.{note}"


@dataclass(frozen=True)
class Placement:
    """Devices of a pair."""

    target: str  # or of its first shard
    draft: str
    # Maximum bytes of the target on each device; None if it is in one piece.
    shards: Mapping[str, int] | None = None


def plan(free: Mapping[str, int], target_bytes: int, draft_bytes: int) -> Placement:
    """Choose the devices of a pair from the ``free`` bytes of each device; needed bytes include caches.

    The device with the most free memory gets the target and another device the draft, or both get the same if
    no other has room. If they do not fit there, the target is spread over all devices, and the draft goes to
    the device with the most free memory.
    """
    if len(free) == 1:
        (only,) = free
        return Placement(only, only)
    freest, *others = sorted(free, key=lambda device: -free[device])
    if target_bytes <= free[freest]:
        for device in others:
            if draft_bytes <= free[device]:
                return Placement(freest, device)
        if target_bytes + draft_bytes <= free[freest]:
            return Placement(freest, freest)
    left = {**free, freest: free[freest] - draft_bytes}
    if left[freest] < 0 or target_bytes > sum(left.values()):
        raise UserError(
            f"These models need {(target_bytes + draft_bytes) / GB:.0f} GB of memory, but the {len(free)} "
            f"devices of this machine have only {sum(free.values()) / GB:.0f} GB free; choose smaller "
            "models."
        )
    return Placement(next(iter(free)), freest, left)


def free_memory(device: str) -> int:
    """Return the free bytes of a device of torch: what CUDA reports, or the RAM left to this process."""
    if not device.startswith("cuda"):
        return free_ram()
    return torch.cuda.mem_get_info(torch.device(device))[0]


def free_ram(root: Path = Path("/")) -> int:
    """Return the free bytes of RAM: the machine's or the container's, whichever are fewer.

    ``root`` is the folder with ``proc`` and ``sys``.
    """
    machine = _numbers(root / "proc/meminfo").get("MemAvailable:", 0) * 1024
    return max(0, min([machine, *_container_limits(root)]))


def _container_limits(root: Path) -> Iterator[int]:
    """Yield the free bytes under each memory limit of this process's control groups."""
    for folder in _cgroups(root):
        statistics = _numbers(folder / "memory.stat")
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, now = _number(folder / limit), _number(folder / used)
            if most is not None and now is not None:
                yield most - now + statistics.get(cached, 0)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups of this process, outermost included, of both versions."""
    own = root / "proc/self/cgroup"
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            top = root / (CGROUP_V1 if controllers else CGROUP)
            inner = top / path.lstrip("/")
            # Inside a container the path may be the host's, and only the top of it is mounted.
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    """Return the number in a file; None if it contains a word (``max``) or does not exist."""
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None


def _numbers(path: Path) -> dict[str, int]:
    """Return the first number of each line by its first word."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.is_file() else []
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
