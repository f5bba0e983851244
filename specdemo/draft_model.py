"""A small Llama that drafts for a larger one: few layers, the target's embedding, a reduced head.

The head scores only the target tokens that the target itself writes most often (FR-Spec, Zhao et
al. 2025; the same id map as EAGLE-3, Li et al. 2025). ``id_map[j]`` is the target id of draft id j;
a token outside the map has q = 0. The embedding is the target's own tensor, neither copied nor
stored again, which keeps the files small. This module knows nothing of caches or decoding.
"""

import json
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel
from transformers.modeling_outputs import CausalLMOutputWithPast

CONFIG_FILE = "config.json"
MAX_SHARD = "8MB"
"""Hugging Face Spaces accept files up to 10 MB in a plain push."""


class ReducedHeadLlama(nn.Module):
    """Llama layers and norm, a head over ``len(id_map)`` tokens, a borrowed embedding.

    Args:
        config: A Llama configuration with the draft's depth and the *target's* vocabulary size.
        id_map: Target ids of the draft's head rows, shape [H], int64, strictly increasing.
    """

    def __init__(self, config: LlamaConfig, id_map: Tensor):
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, len(id_map), bias=False)
        self.register_buffer("id_map", id_map)

    def borrow_embedding(self, embedding: nn.Embedding) -> None:
        """Use the target's embedding module in place of an own one."""
        self.model.embed_tokens = embedding

    def own_state(self) -> dict[str, Tensor]:
        """Every tensor but the borrowed embedding, as stored in the draft's files."""
        return {k: v for k, v in self.state_dict().items() if k != "model.embed_tokens.weight"}

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **kwargs) -> CausalLMOutputWithPast:
        """Logits over the draft's own vocabulary, shape [batch, kept positions, H]."""
        hidden = self.model(input_ids=input_ids, **kwargs).last_hidden_state
        return CausalLMOutputWithPast(logits=self.lm_head(hidden[:, -logits_to_keep:]))


def slice_of_target(target: nn.Module, layers: list[int], id_map: Tensor) -> ReducedHeadLlama:
    """A draft made of the target's own ``layers`` and head rows: where distillation starts.

    Args:
        target: A ``LlamaForCausalLM``.
        layers: Indices of the target's layers to copy, in the order they will run.
        id_map: Target ids that the draft's head keeps, shape [H].
    """
    config = LlamaConfig.from_dict({**target.config.to_dict(), "num_hidden_layers": len(layers)})
    config._attn_implementation = target.config._attn_implementation
    draft = ReducedHeadLlama(config, id_map)
    for index, layer in enumerate(layers):
        draft.model.layers[index].load_state_dict(target.model.layers[layer].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    draft.lm_head.weight.data.copy_(target.get_output_embeddings().weight.data[id_map])
    draft.borrow_embedding(target.get_input_embeddings())
    return draft


def save_draft(draft: ReducedHeadLlama, folder: Path) -> None:
    """Write configuration and bf16 weights (in shards) to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    state = {
        name: (tensor.to(torch.int32) if name == "id_map" else tensor.to(torch.bfloat16)).contiguous()
        for name, tensor in draft.own_state().items()
    }
    save_torch_state_dict(state, folder, max_shard_size=MAX_SHARD)
    draft.config.save_pretrained(folder)


def is_reduced_draft(folder: Path) -> bool:
    """Whether ``folder`` holds files written by :func:`save_draft`."""
    config = folder / CONFIG_FILE
    return config.is_file() and "id_map" in _weight_names(folder)


def load_draft(folder: Path, target: nn.Module, attention: str) -> ReducedHeadLlama:
    """Load a draft written by :func:`save_draft`, sharing the embedding, dtype and device of ``target``."""
    embedding = target.get_input_embeddings()
    config = LlamaConfig.from_pretrained(folder)
    config._attn_implementation = attention
    state: dict[str, Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        state |= load_file(shard)
    id_map = state.pop("id_map").long()
    with torch.device("meta"):
        draft = ReducedHeadLlama(config, id_map)
    draft.load_state_dict(state, strict=False, assign=True)
    draft.id_map = id_map
    draft.model.rotary_emb = type(draft.model.rotary_emb)(config=config)
    draft.borrow_embedding(embedding)
    return draft.to(device=embedding.weight.device, dtype=embedding.weight.dtype).eval()


def _weight_names(folder: Path) -> set[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return set(json.loads(index.read_text())["weight_map"])
    shard = folder / "model.safetensors"
    return set(load_file(shard)) if shard.is_file() else set()
