"""Weights of drafts on disk: bf16 safetensors in shards small enough for a plain push."""

import json
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from specdemo.limits import UserError

MAX_SHARD = "8MB"
"""Hugging Face Spaces accept files up to 10 MB in a plain push."""
INDEX = "model.safetensors.index.json"


def save_weights(state: dict[str, Tensor], folder: Path) -> None:
    """Write ``state`` to ``folder`` in place of what was there: floats in bf16, ids in int32.

    Raises:
        UserError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("model*.safetensors*"):
            old.unlink()
        narrow = {name: _narrow(tensor.detach()).contiguous().cpu() for name, tensor in state.items()}
        save_torch_state_dict(narrow, folder, max_shard_size=MAX_SHARD)
    except OSError as error:
        raise UserError(f"Cannot write {folder}: {error.strerror or error}; choose another place.") from error


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor under ``folder``, ids as int64."""
    state: dict[str, Tensor] = {}
    for shard in sorted(folder.glob("model*.safetensors")):
        state |= load_file(shard)
    return {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in state.items()}


def weight_names(folder: Path) -> set[str]:
    """Names of the tensors under ``folder``, without reading them; empty where there are none."""
    if (folder / INDEX).is_file():
        return set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"])
    shard = folder / "model.safetensors"
    if not shard.is_file():
        return set()
    with safe_open(shard, "pt") as file:
        return set(file.keys())


def _narrow(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16 if tensor.is_floating_point() else torch.int32)


def place_like(module: nn.Module, weight: Tensor) -> nn.Module:
    """Move ``module`` to the device of ``weight`` and its parameters to its dtype.

    Buffers keep theirs: rotary frequencies in bf16 would blur positions.
    """
    module.to(weight.device)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(weight.dtype)
    return module.eval()
