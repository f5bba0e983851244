"""Weights of drafts on disk (safetensors in small shards), and drafts that share their target's embedding."""

import json
import math
from collections.abc import Container
from pathlib import Path
from typing import TypeVar

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from specdemo.models.layer_views import input_embedding
from specdemo.models.packed_linear import quantize_rows
from specdemo.records.limits import UserError

M = TypeVar("M", bound=nn.Module)

MAX_SHARD = "8MB"
"""Hugging Face Spaces accept files up to 10 MB in a plain push."""
INDEX = "model.safetensors.index.json"
SCALE = ".scale"


def save_weights(state: dict[str, Tensor], folder: Path) -> None:
    """Write ``state`` to ``folder``, replacing weights that are there.

    Matrices are stored in int8 with one scale per row, ids in int32, everything else in bf16.

    Raises:
        UserError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("model*.safetensors*"):
            old.unlink()
        stored: dict[str, Tensor] = {}
        for name, tensor in state.items():
            stored |= _stored(name, tensor.detach().cpu())
        save_torch_state_dict(stored, folder, max_shard_size=MAX_SHARD)
    except OSError as error:
        raise UserError(f"Cannot write {folder}: {error.strerror or error}; choose another place.") from error


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Return every tensor in ``folder``, ids as int64."""
    state: dict[str, Tensor] = {}
    for shard in sorted(folder.glob("model*.safetensors")):
        state |= load_file(shard)
    for name in [name for name in state if name.endswith(SCALE)]:
        rows = state.pop(name)
        key = name.removesuffix(SCALE)
        state[key] = state[key].float() * rows
    return {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in state.items()}


def weight_names(folder: Path) -> set[str]:
    """Return the names of the tensors in ``folder`` without reading them; empty if there are none."""
    if (folder / INDEX).is_file():
        return set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"])
    shard = folder / "model.safetensors"
    if not shard.is_file():
        return set()
    with safe_open(shard, "pt") as file:
        return set(file.keys())


def count_parameters(folder: Path) -> int:
    """Return the number of parameters in ``folder`` from the headers of its files."""
    total = 0
    for shard in folder.glob("*.safetensors"):
        with safe_open(shard, "pt") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


def _stored(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if not tensor.is_floating_point():
        return {name: tensor.to(torch.int32)}
    if tensor.ndim != 2:
        return {name: tensor.to(torch.bfloat16).contiguous()}
    rows, scale = quantize_rows(tensor)
    return {name: rows, name + SCALE: scale}


class CastEmbedding(nn.Module):
    """Another model's embedding with its vectors cast to a dtype.

    Args:
        embedding: Shared with the other model and left as it is.
        dtype: Type of the vectors.
    """

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype):
        super().__init__()
        self.inner = embedding
        self._dtype = dtype

    @property
    def weight(self) -> Tensor:
        """The other model's tensor, [V, d]."""
        return self.inner.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids [...] to vectors [..., d]."""
        return self.inner(ids).to(self._dtype)


def borrowed_embedding(owner: nn.Module, dtype: torch.dtype | None) -> nn.Embedding | CastEmbedding:
    """Return the embedding of ``owner`` for a draft that computes in ``dtype``, by default the owner's."""
    embedding = input_embedding(owner)
    if dtype is None or dtype == embedding.weight.dtype:
        return embedding
    return CastEmbedding(embedding, dtype)


def filled(
    draft: M, state: dict[str, Tensor], embedding: nn.Embedding | CastEmbedding, dtype: torch.dtype | None
) -> M:
    """Return ``draft`` with the stored ``state``, on the device of the ``embedding`` that it shares.

    Its own parameters get ``dtype``, by default the embedding's.
    """
    draft.load_state_dict(state, strict=False)
    return place_like(draft, embedding.weight, dtype, {id(tensor) for tensor in embedding.parameters()})


def place_like(
    module: M, weight: Tensor, dtype: torch.dtype | None = None, untouched: Container[int] = ()
) -> M:
    """Move ``module`` to the device of ``weight`` and its parameters to its dtype, or to ``dtype``.

    Buffers keep their dtype, because rotary frequencies in bf16 would blur positions. Parameters whose
    ``id()`` is in ``untouched`` keep theirs too.
    """
    module.to(weight.device)
    for parameter in module.parameters():
        if id(parameter) not in untouched:
            parameter.data = parameter.data.to(dtype or weight.dtype)
    return module.eval()
