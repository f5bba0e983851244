"""The devices that models run on: which one is used, and what it and the processor are called."""

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
from specdemo.records.limits import UserError

PLAYED = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "FBGEMM_ENABLE_INSTRUCTIONS",
)
"""Environment variables that make a processor play a lesser one."""
X86_FLAGS = ("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16")
X86_FLAGS += ("amx_bf16", "amx_int8")
ARM_FLAGS = ("asimd", "asimddp", "bf16", "i8mm", "sve")


def best_device() -> str:
    """CUDA where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen_device(name: str | None) -> torch.device:
    """The device asked for, or the best one here, once a tensor could be put on it."""
    best = best_device()
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here; choose {best}.") from error
    return place


def device_name(device: torch.device) -> str:
    """What the page calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {torch.get_num_threads()} threads"


def hardware_of(models: Iterable[nn.Module | None], device: torch.device) -> str:
    """Name of ``device``, or of the first of several GPUs that hold the models, and their number."""
    name = device_name(device)
    if device.type != "cuda":
        return name
    devices = {weight.device for model in models if model is not None for weight in model.parameters()}
    return f"{len(devices)} × {name}" if len(devices) > 1 else name


def passes_of(models: Iterable[nn.Module | None]) -> str:
    """How passes are run, in parentheses, where models can be recorded; empty elsewhere."""
    recorded = [found for model in models if (found := getattr(model, "recorded", None)) is not None]
    if not recorded:
        return ""
    failure = next((found.failure for found in recorded if found.failure is not None), None)
    return " (recorded passes)" if failure is None else f" (not recorded: {failure})"


def versions() -> Mapping[str, str]:
    """Program and library versions, for a run's record."""
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
    """Return the processor's flags that decide how fast a model runs, sorted; none if unknown."""
    found = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return tuple(sorted({*X86_FLAGS, *ARM_FLAGS}.intersection(found)))


def played() -> dict[str, str]:
    """Return the environment variables by which the processor plays a lesser one."""
    return {name: os.environ[name] for name in PLAYED if name in os.environ}


def _cpuinfo(field: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""
