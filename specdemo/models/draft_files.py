"""The weight files of drafts (safetensors in small shards), and embeddings shared with the target."""

import json
import math
from collections.abc import Container
from pathlib import Path
from typing import TypeVar

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from specdemo.models.layer_views import input_embedding
from specdemo.models.tensor_account import listed_faults
from specdemo.records.limits import UserError, reason_of
from specdemo.records.output import scratch_folder

M = TypeVar("M", bound=nn.Module)

MAX_SHARD = "8MB"
"""Maximum size of a file. Hugging Face Spaces accept files up to 10 MB without Git LFS."""
INDEX = "model.safetensors.index.json"
SCALE = ".scale"


def save_weights(state: dict[str, Tensor], folder: Path) -> None:
    """Write ``state`` to ``folder`` in place of the weights there; a full disk leaves those unchanged.

    Matrices are stored in int8 with one scale per row, integer tensors in int32, all other tensors in bf16.

    Raises:
        UserError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stored: dict[str, Tensor] = {}
        for name, tensor in state.items():
            stored |= _stored(name, tensor.detach().cpu())
        with scratch_folder(folder, ".weights-") as scratch:
            save_torch_state_dict(stored, scratch, max_shard_size=MAX_SHARD)
            for old in folder.glob("model*.safetensors*"):
                old.unlink()
            for new in scratch.iterdir():
                new.rename(folder / new.name)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise UserError(f"Cannot write {folder}: {reason}; choose another place.") from error


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors in ``folder`` by name: matrices in fp32, integers in int64, all others in bf16."""
    state: dict[str, Tensor] = {}
    for shard in sorted(folder.glob("model*.safetensors")):
        state |= load_file(shard)
    for name in [name for name in state if name.endswith(SCALE)]:
        rows = state.pop(name)
        key = name.removesuffix(SCALE)
        state[key] = state[key].float() * rows
    return {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in state.items()}


def weight_names(folder: Path) -> set[str]:
    """Return the names of the tensors in ``folder``, without loading them; empty without weight files."""
    if (folder / INDEX).is_file():
        return set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"])
    shard = folder / "model.safetensors"
    if not shard.is_file():
        return set()
    with safe_open(shard, "pt") as file:
        return set(file.keys())


def count_parameters(folder: Path) -> int:
    """Return the number of parameters in ``folder``. Only the headers of the weight files are read."""
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


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values [out, in] and one fp32 scale per row [out, 1]."""
    scale = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight.float() / scale).round().to(torch.int8), scale


class CastEmbedding(nn.Module):
    """A wrapper of another model's embedding that casts the embedding vectors.

    Args:
        embedding: The other model's embedding. It is shared and not changed.
        dtype: Type of the returned vectors.
    """

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype):
        super().__init__()
        self.inner = embedding
        self._dtype = dtype

    @property
    def weight(self) -> Tensor:
        """The weight of the other model's embedding, [V, d]."""
        return self.inner.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids [...] to vectors [..., d]."""
        return self.inner(ids).to(self._dtype)


def borrowed_embedding(
    owner: nn.Module, width: int, dtype: torch.dtype | None
) -> nn.Embedding | CastEmbedding:
    """Return the embedding of ``owner`` for use in a draft.

    Args:
        owner: The target.
        width: Size of the draft's hidden states.
        dtype: Type in which the draft computes; None for the type of the embedding.

    Raises:
        ValueError: The embedding has another width.
    """
    embedding = input_embedding(owner)
    if embedding.embedding_dim != width:
        raise ValueError(f"made for a target of width {width}, not {embedding.embedding_dim}")
    if dtype is None or dtype == embedding.weight.dtype:
        return embedding
    return CastEmbedding(embedding, dtype)


def filled(
    draft: M, state: dict[str, Tensor], embedding: nn.Embedding | CastEmbedding, dtype: torch.dtype | None
) -> M:
    """Load ``state`` into ``draft``, move it to the device of its ``embedding``, and return it.

    Args:
        draft: The draft to fill.
        state: Tensors from :func:`load_weights`.
        embedding: The target's embedding, which the draft shares. It is not changed.
        dtype: Type of the draft's own parameters; None for the type of the embedding.

    Raises:
        ValueError: The tensors of ``state`` are not exactly the draft's own; the message names the first.
    """
    borrowed = {id(tensor) for tensor in embedding.parameters()}
    own = {k: v for k, v in draft.state_dict(keep_vars=True).items() if id(v) not in borrowed}
    changed = {
        name
        for name in own.keys() & state.keys()
        if own[name].shape != state[name].shape
        or own[name].is_floating_point() != state[name].is_floating_point()
    }
    faults = {
        "missing": own.keys() - state.keys(),
        "unexpected": state.keys() - own.keys(),
        "of another shape or type": changed,
    }
    if listed := listed_faults(faults):
        raise ValueError(listed)
    draft.load_state_dict(state, strict=False)
    return place_like(draft, embedding.weight, dtype, borrowed)


def place_like(
    module: M, weight: Tensor, dtype: torch.dtype | None = None, untouched: Container[int] = ()
) -> M:
    """Move ``module`` to the device of ``weight``, cast its parameters, and set it to evaluation mode.

    Parameters are cast to ``dtype``, or to the type of ``weight`` if ``dtype`` is None. Parameters whose
    ``id()`` is in ``untouched`` are not cast. Buffers are not cast either, because rotary frequencies in bf16
    would make positions inexact.
    """
    module.to(weight.device)
    for parameter in module.parameters():
        if id(parameter) not in untouched:
            parameter.data = parameter.data.to(dtype or weight.dtype)
    return module.eval()
