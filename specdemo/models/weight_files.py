"""The weight files of drafts (safetensors in small shards), and the faults of loaded tensors."""

import json
import math
import re
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdemo.models.layer_views import input_embedding
from specdemo.records.limits import UserError, first_names, reason_of
from specdemo.records.output import scratch_folder

M = TypeVar("M", bound=nn.Module)

MAX_SHARD = "8MB"  # Hugging Face Spaces accept files up to 10 MB without Git LFS
INDEX = "model.safetensors.index.json"
SCALE = ".scale"
NAMED = 3  # maximum number of tensors that a message names for each kind of fault
# A constant in GPT-2 files of older versions of transformers, which the current one does not declare.
OLD_BUFFER = re.compile(r"attn\.masked_bias$")


def save_weights(state: dict[str, Tensor], folder: Path) -> None:
    """Write ``state`` to ``folder`` in place of the weights there; a full disk leaves those unchanged.

    Matrices are stored in int8 with one scale per row, integer tensors in int32, all other tensors in bf16.
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
        raise UserError(f"Cannot write {folder}: {reason}; choose another folder.") from error


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
    """Return the number of parameters in ``folder``, from the headers of its weight files.

    Damaged files are not counted, because loading them reports the fault.
    """
    total = 0
    for shard in folder.glob("*.safetensors"):
        with suppress(SafetensorError), safe_open(shard, "pt") as file:
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
    """A wrapper of another model's embedding that returns vectors of type ``dtype``."""

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype):
        super().__init__()
        self.inner = embedding
        self._dtype = dtype

    @property
    def weight(self) -> Tensor:
        return self.inner.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(ids).to(self._dtype)


def borrowed_embedding(
    owner: nn.Module, width: int, dtype: torch.dtype | None
) -> nn.Embedding | CastEmbedding:
    """Return the embedding of ``owner`` for use in a draft with states of size ``width``."""
    embedding = input_embedding(owner)
    if embedding.embedding_dim != width:
        raise ValueError(f"made for a target of width {width}, not {embedding.embedding_dim}")
    if dtype is None or dtype == embedding.weight.dtype:
        return embedding
    return CastEmbedding(embedding, dtype)


def filled(
    draft: M, state: dict[str, Tensor], embedding: nn.Embedding | CastEmbedding, dtype: torch.dtype | None
) -> M:
    """Load ``state`` into ``draft``, move it to the device of the target's ``embedding``, and return it.

    Raises:
        ValueError: The tensors of ``state`` are not exactly the draft's own.
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

    Parameters get the type ``dtype``, by default that of ``weight``, except those whose ``id()`` is in
    ``untouched``. Buffers are not cast, because rotary frequencies in bf16 would make positions inexact.
    """
    module.to(weight.device)
    for parameter in module.parameters():
        if id(parameter) not in untouched:
            parameter.data = parameter.data.to(dtype or weight.dtype)
    return module.eval()


def loading_faults(model: PreTrainedModel, found: Mapping[str, Any]) -> str:
    """Return what :func:`listed_faults` does about a model that was loaded with ``ignore_mismatched_sizes``.

    ``found`` is the second result of ``from_pretrained`` with ``output_loading_info``. A tensor that
    transformers declares optional or redundant for the architecture is no fault.
    """
    # transformers leaves weights untied that should be one matrix but are stored with different values.
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    return listed_faults(
        {
            "missing": found["missing_keys"],
            "unexpected": {name for name in found["unexpected_keys"] if not OLD_BUFFER.search(name)},
            "of another shape": {name for name, *_ in found["mismatched_keys"]},
            "stored twice with different values": tied.keys() - model.all_tied_weights_keys.keys(),
        }
    )


def listed_faults(faults: Mapping[str, Iterable[str]]) -> str:
    """Return a list such as "missing: a, b, c and 4 more; unexpected: d"; empty if there are no faults."""
    kinds = []
    for kind, names in faults.items():
        found = [name[:80] for name in sorted(names)]
        kinds += [f"{kind}: {first_names(found, NAMED)}"] if found else []
    return "; ".join(kinds)
