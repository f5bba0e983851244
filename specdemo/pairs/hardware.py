"""The devices that models run on: their choice, their names, and the fastest precision for each."""

import ctypes
import os
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
import transformers
from torch import nn

from specdemo import __version__
from specdemo.models.compiled.openmp import missing
from specdemo.models.fused_execution import GraphedExecution
from specdemo.models.threads import thread_count
from specdemo.records.limits import UserError

PLAYED = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
)
"""Environment variables that restrict libraries to the instructions of an older processor."""
X86_FLAGS = ("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16")
X86_FLAGS += ("amx_bf16", "amx_int8")
ARM_FLAGS = ("asimd", "asimddp", "bf16", "i8mm", "sve")


def return_freed_memory() -> None:
    """Return freed memory of the CPU to the system. The C library keeps hundreds of MB after a load."""
    with suppress(OSError, TypeError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def best_device() -> str:
    """Return ``cuda`` if there is a GPU, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen_device(name: str | None) -> torch.device:
    """Return the device called ``name``; for None, the one of :func:`best_device`.

    Raises:
        UserError: The device cannot be used.
    """
    best = best_device()
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here; choose {best}.") from error
    return place


def device_name(device: torch.device) -> str:
    """Return the name of the device for the page."""
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
    executions = [getattr(model, "execution", None) for model in models]
    recorded = [found for found in executions if isinstance(found, GraphedExecution)]
    if not recorded:
        return name
    failures = [found.failure for found in recorded if found.failure is not None]
    return f"{name} (not recorded: {failures[0]})" if failures else f"{name} (recorded passes)"


def versions() -> Mapping[str, str]:
    """Return the program's and the libraries' versions, for a run's record."""
    return {
        "specdemo": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


@cache
def processor() -> str:
    """Return the name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def processor_flags() -> tuple[str, ...]:
    """Return the processor's flags that affect a model's speed, sorted; none if unknown."""
    found = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return tuple(sorted({*X86_FLAGS, *ARM_FLAGS}.intersection(found)))


def played() -> dict[str, str]:
    """Return those variables of ``PLAYED`` that are set, with their values."""
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
    return "fp32" if _is_before_ampere(device) else "bf16"


def arithmetic_of(device: torch.device, precision: str, drafts: str) -> str:
    """Return sentences for the page: the precision of the weights, of the arithmetic, and of trained drafts.

    Args:
        device: The target's device.
        precision: Precision of its weights.
        drafts: Precision of the weights of drafts made by ``specdemo train``; on a GPU the target's.
    """
    if device.type != "cpu":
        return f"Weights and arithmetic in {precision}."
    weights = precision if drafts == precision else f"{precision}, drafts in {drafts}"
    uncompiled = missing()
    note = "" if uncompiled is None else f" Passes are not compiled, because {uncompiled}."
    return f"Weights in {weights}; all arithmetic in fp32.{note}"


def _is_before_ampere(device: torch.device) -> bool:
    try:
        return device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    except (RuntimeError, AssertionError):  # on a host that lends GPUs per call, there is no GPU yet
        return False
