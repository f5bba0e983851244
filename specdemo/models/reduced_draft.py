"""Draft models built from their target: some of its layers, its embedding, a reduced head with a screen."""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from specdemo.models.layer_views import (
    config_with_layers,
    input_embedding,
    layers_path,
    output_layer,
)
from specdemo.models.weight_files import (
    borrowed_embedding,
    filled,
    load_weights,
    save_weights,
    weight_names,
)

RANK = 128
SMALLEST_VARIANCE = 1e-6


class Screen(nn.Module):
    """A low-rank approximation of a draft's head: logits up · (down · h) + bias at a quarter of the cost.

    Compiled passes then compute exact logits of the likely tokens.
    """

    down: Tensor  # shape [R, d]
    up: Tensor  # shape [H, R]
    bias: Tensor  # shape [H]

    def __init__(self, down: Tensor, up: Tensor, bias: Tensor):
        super().__init__()
        self.register_buffer("down", down)
        self.register_buffer("up", up)
        self.register_buffer("bias", bias)


def screen_in(state: Mapping[str, Tensor]) -> Screen | None:
    names = [f"screen.{part}" for part in ("down", "up", "bias")]
    return Screen(*(state[name].float() for name in names)) if all(name in state for name in names) else None


def fit_screen(weight: Tensor, states: Tensor, rank: int = RANK) -> Screen:
    """Return the screen of a head W [H, d] with the least mean squared error over ``states`` [n, d].

    These are states of typical text after the last norm. With their mean μ and covariance C, and W C^½ = U S
    Vᵀ, it is down = V_Rᵀ C^−½, up = U_R S_R and bias = W μ − up · down · μ, where R ≤ d is the rank. A plain
    decomposition of W would spend its rank on directions in which hidden states hardly vary.
    """
    weight, states = weight.double(), states.double()
    mean = states.mean(0)
    variances, axes = torch.linalg.eigh(torch.cov(states.T))
    deviations = variances.clamp_min(SMALLEST_VARIANCE).sqrt()
    # C^½ and C^−½ enter as (axes · deviations) and (axesᵀ / deviations): the rotation between is orthogonal.
    left, singular, right = torch.linalg.svd(weight @ (axes * deviations), full_matrices=False)
    down = right[:rank] @ (axes / deviations).T
    up = left[:, :rank] * singular[:rank]
    bias = weight @ mean - up @ (down @ mean)
    return Screen(down.float(), up.float(), bias.float())


class ReducedHeadDraft(nn.Module):
    """A draft model with few layers, the target's embedding, and a head over ``len(id_map)`` tokens.

    The head scores only the tokens that the target writes most often (FR-Spec, Zhao et al. 2025; EAGLE-3, Li
    et al. 2025, has the same kind of id map). ``id_map`` [H] has their target ids in increasing order. All
    other tokens have q = 0. The files are small, because they do not contain the target's embedding.
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
        self.screen: Screen | None = None  # approximates the head in compiled passes

    def get_decoder(self) -> nn.Module:
        return self.model  # as in transformers' models

    def own_state(self) -> dict[str, Tensor]:
        """Return the draft's tensors by name, without the shared embedding."""
        borrowed = {id(tensor) for tensor in self.model.get_input_embeddings().parameters()}
        return {k: v for k, v in self.state_dict(keep_vars=True).items() if id(v) not in borrowed}

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **kwargs) -> CausalLMOutputWithPast:
        hidden = self.model(input_ids=input_ids, **kwargs).last_hidden_state
        return CausalLMOutputWithPast(logits=self.lm_head(hidden[:, -logits_to_keep:]))


def slice_of_target(target: PreTrainedModel, layers: list[int], id_map: Tensor) -> ReducedHeadDraft:
    """Return an untrained draft: copies of the target's ``layers``, in this order, and of head rows."""
    config = config_with_layers(target.config.get_text_config(), layers)
    draft = ReducedHeadDraft(config, input_embedding(target), id_map)
    source, stack = target.state_dict(), layers_path(target) + "."
    own_stack = layers_path(draft).removeprefix("model.") + "."
    prefix = stack.removesuffix(own_stack)
    own = dict(draft.model.named_parameters())
    with torch.no_grad():
        for key, tensor in own.items():
            source_key = prefix + key
            if key.startswith(own_stack):
                index, rest = key.removeprefix(own_stack).split(".", 1)
                source_key = f"{stack}{layers[int(index)]}.{rest}"
            tensor.copy_(source[source_key])
        draft.lm_head.weight.copy_(output_layer(target).weight[id_map])
    return draft


def save_draft(draft: ReducedHeadDraft, folder: Path) -> None:
    save_weights(draft.own_state(), folder)
    draft.config.save_pretrained(folder)


def is_reduced_draft(folder: Path) -> bool:
    """Return whether ``folder`` has undamaged files of :func:`save_draft`."""
    try:
        return "id_map" in weight_names(folder) and (folder / "config.json").is_file()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return False


def load_draft(
    folder: Path, target: nn.Module, attention: str, dtype: torch.dtype | None = None
) -> ReducedHeadDraft:
    """Load a draft that shares the target's embedding and device, and its type if ``dtype`` is None."""
    config = AutoConfig.from_pretrained(folder)
    embedding = borrowed_embedding(target, config.hidden_size, dtype)
    config._attn_implementation = attention
    state = load_weights(folder)
    draft = ReducedHeadDraft(config, embedding, state["id_map"])
    draft.screen = screen_in(state)
    return filled(draft, state, embedding, dtype)
