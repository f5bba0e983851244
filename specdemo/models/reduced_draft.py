"""A small draft model built from its target: some of the target's layers, its embedding, a reduced head."""

import copy
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from specdemo.models.draft_files import (
    borrowed_embedding,
    filled,
    load_weights,
    save_weights,
    weight_names,
)
from specdemo.models.layer_views import (
    config_with_layers,
    input_embedding,
    layers_path,
    output_layer,
)
from specdemo.models.screened_head import Screen, screen_in


class ReducedHeadDraft(nn.Module):
    """A draft model with few layers, the target's embedding, and a head over ``len(id_map)`` tokens.

    The head scores only the tokens that the target writes most often (FR-Spec, Zhao et al. 2025; EAGLE-3, Li
    et al. 2025, has the same kind of id map). ``id_map[j]`` is the target id of draft id j. Tokens outside
    the map have q = 0. The draft uses the target's embedding and does not store it, so its files are small.

    Args:
        config: A configuration of the target's family with the draft's depth.
        embedding: The target's input embedding.
        id_map: Target ids of the draft's head rows, shape [H], int64, strictly increasing.

    Attributes:
        screen: Approximates the head in compiled passes; None if none was fitted.
    """

    id_map: Tensor

    def __init__(self, config: PretrainedConfig, embedding: nn.Module, id_map: Tensor):
        super().__init__()
        self.config = config
        # Build the layers with an embedding of one row, then replace it with the target's embedding.
        seed = copy.deepcopy(config)
        seed.vocab_size, seed.pad_token_id = 1, None
        self.model = AutoModel.from_config(seed, attn_implementation=config._attn_implementation)
        self.model.set_input_embeddings(embedding)
        self.lm_head = nn.Linear(config.hidden_size, len(id_map), bias=False)
        self.register_buffer("id_map", id_map)
        self.screen: Screen | None = None

    @property
    def base_model(self) -> nn.Module:
        """The stack of layers, as in transformers' models."""
        return self.model

    def own_state(self) -> dict[str, Tensor]:
        """Return the draft's tensors by name, without the shared embedding."""
        borrowed = {id(tensor) for tensor in self.model.get_input_embeddings().parameters()}
        return {k: v for k, v in self.state_dict(keep_vars=True).items() if id(v) not in borrowed}

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **kwargs) -> CausalLMOutputWithPast:
        """Return logits over the draft's own vocabulary, shape [batch, kept positions, H]."""
        hidden = self.model(input_ids=input_ids, **kwargs).last_hidden_state
        return CausalLMOutputWithPast(logits=self.lm_head(hidden[:, -logits_to_keep:]))


def slice_of_target(target: PreTrainedModel, layers: list[int], id_map: Tensor) -> ReducedHeadDraft:
    """Return an untrained draft, the start of distillation: copies of target layers and of head rows.

    Args:
        target: A causal language model that is a plain stack of layers.
        layers: Indices of the target's layers to copy, in the order they will run.
        id_map: Target ids that the draft's head scores, shape [H].

    Raises:
        UserError: The target is not a plain stack of layers.
    """
    stack = layers_path(target) + "."
    config = config_with_layers(target.config.get_text_config(), layers)
    draft = ReducedHeadDraft(config, input_embedding(target), id_map)
    source = target.base_model.state_dict()
    own = dict(draft.model.named_parameters())
    with torch.no_grad():
        for key, tensor in own.items():
            if key.startswith(stack):
                index, rest = key.removeprefix(stack).split(".", 1)
                key = f"{stack}{layers[int(index)]}.{rest}"
            tensor.copy_(source[key])
        draft.lm_head.weight.copy_(output_layer(target).weight[id_map])
    return draft


def save_draft(draft: ReducedHeadDraft, folder: Path) -> None:
    """Write configuration and weights to ``folder``."""
    save_weights(draft.own_state(), folder)
    draft.config.save_pretrained(folder)


def is_reduced_draft(folder: Path) -> bool:
    """Return whether ``folder`` holds files written by :func:`save_draft`; False if they are damaged."""
    try:
        return "id_map" in weight_names(folder) and (folder / "config.json").is_file()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return False


def load_draft(
    folder: Path, target: nn.Module, attention: str, dtype: torch.dtype | None = None
) -> ReducedHeadDraft:
    """Load a draft written by :func:`save_draft`. It shares the embedding and the device of ``target``.

    Args:
        folder: Folder of the draft's files.
        target: The model that the draft was built from.
        attention: Name of the attention implementation in transformers.
        dtype: Type in which the draft computes; None for the target's type.
    """
    config = AutoConfig.from_pretrained(folder)
    embedding = borrowed_embedding(target, config.hidden_size, dtype)
    config._attn_implementation = attention
    state = load_weights(folder)
    draft = ReducedHeadDraft(config, embedding, state["id_map"])
    draft.screen = screen_in(state)
    return filled(draft, state, embedding, dtype)
