"""Llama-type models (Touvron et al. 2023), rearranged so that passes over few tokens are fast."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer, MistralModel, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2Model, Qwen2RMSNorm

from specdemo.models.attention import attend, group_mask, mask_from
from specdemo.models.layer_views import is_dispatched
from specdemo.models.reduced_draft import ReducedHeadDraft

STACKS = (LlamaModel, MistralModel, Qwen2Model)
LAYERS = (LlamaDecoderLayer, MistralDecoderLayer, Qwen2DecoderLayer)
STEADY_ROTATIONS = ("default", "linear", "llama3", "yarn")  # do not depend on the length of the text
KeysAndValues = tuple[Tensor, Tensor]  # of one layer, each [texts, kv_heads, positions, d]


@dataclass(eq=False)
class LlamaCache:
    """A cache of fixed length with the keys and values of all layers, and the rotations of all positions."""

    keys: Tensor  # shape [layers, texts, kv_heads, capacity, d]
    values: Tensor  # same shape
    cos: Tensor  # shape [capacity, 1, d]
    sin: Tensor  # same shape; the first half includes the minus sign of the rotation
    positions: Tensor  # 0, 1, …, capacity − 1

    @property
    def layers(self) -> list[KeysAndValues]:
        return list(zip(self.keys, self.values, strict=True))


class FusedLlama(nn.Module):
    """A Llama-type model converted from transformers and rearranged for decoding.

    It computes the same function with fewer kernels. One matrix product computes queries, keys and values,
    and another one computes gate and up. All layers share one table of rotations and one mask per pass.

    Args:
        model: A model that :func:`can_fuse` accepts. It cannot be used afterwards, because its layers are
            converted one by one, so that at most one of them is in memory twice.
    """

    id_map: Tensor | None

    def __init__(self, model: PreTrainedModel | ReducedHeadDraft):
        super().__init__()
        stack, head = model.get_submodule("model"), model.get_submodule("lm_head")
        assert isinstance(stack, STACKS) and isinstance(head, nn.Linear)
        self.config: PretrainedConfig = model.config
        self.generation_config = getattr(model, "generation_config", None)
        self.execution: Any = None  # shared by all runs of the model
        self.embedding = stack.embed_tokens
        self.rotary = stack.rotary_emb
        self.norm = _RmsNorm(stack.norm)
        self.layers = nn.ModuleList()
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer, LAYERS)
            self.layers.append(_FusedLayer(layer))
            stack.layers[index] = nn.Identity()
        self.head = head
        # Target id of each logit of a draft with a reduced head; a buffer, so that it moves with the model
        self.register_buffer("id_map", getattr(model, "id_map", None), persistent=False)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding  # models of transformers have the same method

    def open(self, capacity: int, texts: int = 1) -> LlamaCache:
        """Return an empty cache for ``texts`` texts of equal length, with ``capacity`` positions each."""
        like = self.norm.weight
        first = self.layers[0]
        assert isinstance(first, _FusedLayer)
        width = first.width
        keys = like.new_zeros(len(self.layers), texts, first.kv_heads, capacity, width)
        positions = torch.arange(capacity, device=like.device)
        cos, sin = self.rotary(like, positions.clamp_max(self.config.max_position_embeddings - 1)[None])
        sin = torch.cat([-sin[..., : width // 2], sin[..., width // 2 :]], -1)
        return LlamaCache(keys, torch.zeros_like(keys), cos[0, :, None], sin[0, :, None], positions)

    def forward(
        self, ids: Tensor, positions: Tensor, cache: LlamaCache, rows: int, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Append n tokens to each text of the cache. The results are those of ``PlainExecution.run``.

        Args:
            ids: The new ids of the first text, then those of the next text, and so on, shape [texts · n].
            positions: Positions of the n new tokens, consecutive and the same in every text, shape [n].
        """
        states = self.embedding(ids)
        seen = cache.positions <= positions[:, None]
        # An isinstance check would satisfy pyright, but would take time in every pass.
        first: _FusedLayer = self.layers[0]  # pyright: ignore[reportAssignmentType]
        mask = mask_from(~seen, states.dtype).expand(cache.keys.shape[1], 1, -1, -1)
        mask = group_mask(mask, first.heads // first.kv_heads)
        cos, sin = cache.cos[positions], cache.sin[positions]
        kept = []
        for index, layer in enumerate(self.layers):
            states = layer(states, cos, sin, mask, positions, cache.keys[index], cache.values[index])
            if index in taps:
                kept.append(states)
        # The head has a fifth of the weights. A prompt's pass scores no rows, so it skips the head.
        logits = self.head(self.norm(states[ids.shape[0] - rows :])) if rows else states.new_empty(0)
        return logits, torch.cat(kept, -1) if kept else None

    def first(self, depth: int) -> "FusedLlama":
        """Return a model of the first ``depth`` layers, the norm and the head, for caches of this model."""
        view = copy.copy(self)
        view._modules = dict(self._modules)
        view.execution = None
        view.layers = self.layers[:depth]
        return view


class _FusedLayer(nn.Module):
    def __init__(self, layer: LlamaDecoderLayer | MistralDecoderLayer | Qwen2DecoderLayer):
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.width = attention.head_dim
        self.heads = attention.q_proj.weight.shape[0] // self.width
        self.kv_heads = attention.k_proj.weight.shape[0] // self.width
        self.scaling = attention.scaling
        self.attention_norm = _RmsNorm(layer.input_layernorm)
        self.mlp_norm = _RmsNorm(layer.post_attention_layernorm)
        self.qkv, self.o, self.gate_up, self.down = (
            _joined(linears)
            for linears in (
                [attention.q_proj, attention.k_proj, attention.v_proj],
                [attention.o_proj],
                [mlp.gate_proj, mlp.up_proj],
                [mlp.down_proj],
            )
        )

    def forward(
        self,
        states: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """Map states [texts · n, d] to new states of this shape, and write to the layer's cache."""
        turning = self.heads + self.kv_heads
        parts = self.qkv(self.attention_norm(states))
        parts = parts.view(keys.shape[0], -1, turning + self.kv_heads, self.width)
        plain, value = parts.split([turning, self.kv_heads], 2)
        # A rotation is x · cos + cat(−second half, first half) · sin. The minus sign is part of ``sin`` here.
        turned = torch.addcmul(plain * cos, plain.roll(self.width // 2, -1), sin).transpose(1, 2)
        query, key = turned.split([self.heads, self.kv_heads], 1)
        keys.index_copy_(2, positions, key)
        values.index_copy_(2, positions, value.transpose(1, 2))
        context = attend(query, keys, values, mask, self.scaling)
        states = states + self.o(context.transpose(1, 2).reshape(states.shape[0], -1))
        gate, up = self.gate_up(self.mlp_norm(states)).chunk(2, -1)
        return states + self.down(F.silu(gate) * up)


class _RmsNorm(nn.Module):
    """Root-mean-square norm (Zhang & Sennrich 2019) as one kernel."""

    def __init__(self, norm: LlamaRMSNorm | MistralRMSNorm | Qwen2RMSNorm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, states: Tensor) -> Tensor:
        return F.rms_norm(states, (states.shape[-1],), self.weight, self.eps)


def can_fuse(model: PreTrainedModel | ReducedHeadDraft) -> bool:
    """Return whether :class:`FusedLlama` computes the same function as ``model``."""
    stack, config = getattr(model, "model", None), model.config
    if (
        is_dispatched(model)
        or type(stack) not in STACKS
        or not isinstance(getattr(model, "lm_head", None), nn.Linear)
    ):
        return False
    full = getattr(config, "layer_types", None) or ["full_attention"]
    if set(full) != {"full_attention"} or (type(stack) is MistralModel and config.sliding_window):
        return False
    rope = getattr(config, "rope_parameters", None) or {}
    if not all(map(_is_plain, model.get_submodule("model.layers").children())):
        return False
    steady = rope.get("rope_type", "default") in STEADY_ROTATIONS
    return steady and config.hidden_act == "silu" and rope.get("partial_rotary_factor", 1.0) == 1.0


def _is_plain(layer: nn.Module) -> bool:
    """Return whether all linear layers are plain ``nn.Linear``, without adapters or quantization."""
    children = (*layer.get_submodule("self_attn").children(), *layer.get_submodule("mlp").children())
    return all(type(child) is nn.Linear for child in children if hasattr(child, "weight"))


def _joined(linears: Sequence[nn.Linear]) -> nn.Linear:
    """Return one linear layer that computes several ``linears`` of the same input."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biased = linears[0].bias is not None
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=biased, device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if biased:
        bias = torch.cat([linear.bias.detach() for linear in linears])
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined
