"""What models run on: the device that is asked for, and what it is called."""

import platform
from collections.abc import Iterable, Mapping

import torch
import transformers
from torch import nn

from specdemo import __version__
from specdemo.pairs.measurements import processor
from specdemo.records.limits import UserError


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
