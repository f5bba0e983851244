"""The feature draft: one decoder layer over the target's hidden states (EAGLE-3, Li et al. 2025)."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotate

from specdemo.models.attention import grouped_attention, mask_from
from specdemo.models.layer_views import decoder_layers, input_embedding, output_layer
from specdemo.models.reduced_draft import Screen, screen_in
from specdemo.models.weight_files import borrowed_embedding, filled, load_weights, save_weights

if TYPE_CHECKING:  # need Triton
    from specdemo.models.gpu.feature import GpuFeatureRuntime
    from specdemo.models.gpu.stack import GpuStack

CONFIG_FILE = "feature_draft.json"

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function that maps the queries [batch, heads, n, d] of n new pairs, and their keys and values [batch,
kv_heads, n, d], to [batch, heads, n, d]. Decoding attends to a cache, training to its unrolled steps."""


@dataclass(frozen=True)
class FeatureConfig:
    """The sizes of a feature draft. All except ``taps`` are those of the target."""

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    positions: int
    taps: tuple[int, ...]  # indices of the target's layers whose outputs the draft reads

    def llama(self) -> LlamaConfig:
        return LlamaConfig(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            rms_norm_eps=self.norm_eps,
            max_position_embeddings=self.positions,
        )


class FeatureDraft(nn.Module):
    """A draft that predicts tokens from the target's hidden states with a single decoder layer.

    The outputs of several target layers are fused into one state vector per position. Pair j consists of the
    state at position j and the embedding of token j + 1. From pair j, the layer predicts token j + 2. For
    draft tokens there are no target states yet, so the layer's own output replaces the state. Training
    unrolls the same steps (``training.students``). The target shares its input embedding. The head scores
    only the target ids in ``id_map`` [H], as in ``reduced_draft``.
    """

    id_map: Tensor

    def __init__(self, config: FeatureConfig, embedding: nn.Module, id_map: Tensor):
        super().__init__()
        d, query, kv = config.hidden_size, config.heads * config.head_dim, config.kv_heads * config.head_dim
        llama = config.llama()
        self.config = config
        self.embedding = embedding
        self.fuse = nn.Linear(len(config.taps) * d, d, bias=False)
        self.state_norm, self.embedding_norm, self.mlp_norm, self.norm = (
            LlamaRMSNorm(d, config.norm_eps) for _ in range(4)
        )
        self.q, self.k, self.v = (nn.Linear(2 * d, width, bias=False) for width in (query, kv, kv))
        self.o = nn.Linear(query, d, bias=False)
        self.mlp = LlamaMLP(llama)
        self.lm_head = nn.Linear(d, len(id_map), bias=False)
        self.rotary = LlamaRotaryEmbedding(llama)
        self.register_buffer("id_map", id_map)
        self.screen: Screen | None = None  # approximates the head in compiled passes
        # Computes the steps as Triton kernels; False if it cannot, None before the first run.
        self.stack: GpuStack | Literal[False] | None = None

    def own_state(self) -> dict[str, Tensor]:
        """Return the draft's tensors by name, without the shared embedding."""
        borrowed = {id(tensor) for tensor in self.embedding.parameters()}
        return {k: v for k, v in self.state_dict(keep_vars=True).items() if id(v) not in borrowed}

    def runtime(self) -> "FeatureRuntime | GpuFeatureRuntime":
        if self.stack is None:
            from specdemo.models.gpu.choice import feature_kernels_for

            self.stack = feature_kernels_for(self) or False
        if not self.stack:
            return FeatureRuntime(self)
        from specdemo.models.gpu.feature import GpuFeatureRuntime

        return GpuFeatureRuntime(self, self.stack)

    def step(self, states: Tensor, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Run the layer over new pairs at positions [1, n], and return its output, [batch, n, d].

        ``states`` [batch, n, d] are fused target states, or earlier outputs of this layer; ``ids`` [batch, n]
        are the tokens after them. :meth:`logits` computes the next token's logits from the output.
        """
        batch, n, _ = states.shape
        pairs = torch.cat([self.embedding_norm(self.embedding(ids)), self.state_norm(states)], -1)
        heads = (-1, self.config.head_dim)
        query, key, value = (f(pairs).unflatten(-1, heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        query, key = rotate(query, key, *self.rotary(pairs, positions))
        context = attend(query, key, value).transpose(1, 2).reshape(batch, n, -1)
        states = states + self.o(context)
        return states + self.mlp(self.mlp_norm(states))

    def logits(self, states: Tensor) -> Tensor:
        """Map outputs of :meth:`step`, [..., d], to logits over the draft's own vocabulary, [..., H]."""
        return self.lm_head(self.norm(states))


class FeatureRuntime:
    """A feature draft and its cache of (state, token) pairs."""

    def __init__(self, draft: FeatureDraft):
        self.draft = draft
        self.id_map = draft.id_map
        self.device = draft.norm.weight.device
        self.length = 0  # number of pairs in the cache
        self._keys = self._values = torch.empty(0)

    @torch.inference_mode()
    def begin(self, capacity: int) -> None:
        self.length = 0
        config = self.draft.config
        shape = (1, config.kv_heads, capacity, config.head_dim)
        if self._keys.shape != shape:
            weight = self.draft.norm.weight
            self._keys, self._values = weight.new_zeros(shape), weight.new_zeros(shape)

    @torch.inference_mode()
    def read(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Append pairs as :meth:`append` does, with states fused from target ``features`` [n, taps · d]."""
        return self.append(self.draft.fuse(features.to(self._keys.dtype)), ids)

    @torch.inference_mode()
    def append(self, states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Append pairs of states [n, d] and ids [n]; return the last pair's output [1, d] and logits [H]."""
        keys, values, draft = self._keys, self._values, self.draft
        positions = torch.arange(self.length, self.length + len(ids), device=self.device)

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys.index_copy_(2, positions, key)
            values.index_copy_(2, positions, value)
            hidden = torch.arange(keys.shape[2], device=self.device) > positions[:, None]
            mask = mask_from(hidden, query.dtype)
            return grouped_attention(draft, query, keys, values, mask[None, None])[0].transpose(1, 2)

        output = draft.step(states[None], ids[None], positions[None], attend)[0, -1:]
        self.length += len(ids)
        return output, draft.logits(output)[0]

    def rollback(self, length: int) -> None:
        self.length = length


def default_taps(layers: int) -> tuple[int, ...]:
    """Return the indices of the second, the middle and the last layer, without duplicates."""
    return tuple(sorted({min(1, layers - 1), layers // 2, layers - 1}))


def feature_draft_for(target: PreTrainedModel, id_map: Tensor) -> FeatureDraft:
    """Return an untrained feature draft whose head scores the target ids in ``id_map`` [H].

    The fusion initially copies the output of the last tapped layer. The draft's layer starts as the target's
    last layer, with small random weights for the embedding half of its input, and its head as rows of the
    target's head. Training then needs little text, because the target's last layer and head already work with
    such states.
    """
    text = target.config.get_text_config()
    heads = text.num_attention_heads
    rope = getattr(text, "rope_parameters", None) or {}
    config = FeatureConfig(
        hidden_size=text.hidden_size,
        intermediate_size=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        rope_theta=float(rope.get("rope_theta") or getattr(text, "rope_theta", None) or 10_000.0),
        norm_eps=float(getattr(text, "rms_norm_eps", 1e-5)),
        positions=text.max_position_embeddings,
        taps=default_taps(text.num_hidden_layers),
    )
    draft = FeatureDraft(config, input_embedding(target), id_map)
    with torch.no_grad():
        draft.fuse.weight.zero_()
        draft.fuse.weight[:, -config.hidden_size :].copy_(torch.eye(config.hidden_size))
        draft.lm_head.weight.copy_(output_layer(target).weight[id_map])
        for output in (draft.o, draft.mlp.down_proj):
            output.weight.mul_(0.5)
        _take_parts(draft, target)
    return draft


def _take_parts(draft: FeatureDraft, target: PreTrainedModel) -> None:
    """Copy weights of the target's last layer and final norm, if they have Llama's names and shapes."""
    last = decoder_layers(target)[-1]
    weights, d = last.state_dict(), draft.config.hidden_size
    for name in ("q", "k", "v"):
        own = getattr(draft, name).weight
        own[:, :d] *= 0.3
        _copy(own[:, d:], weights.get(f"self_attn.{name}_proj.weight"))
    _copy(draft.o.weight, weights.get("self_attn.o_proj.weight"))
    for name, own in draft.mlp.named_parameters():
        _copy(own, weights.get(f"mlp.{name}"))
    _copy(draft.state_norm.weight, _gains(getattr(last, "input_layernorm", None)))
    _copy(draft.mlp_norm.weight, _gains(getattr(last, "post_attention_layernorm", None)))
    _copy(draft.norm.weight, _gains(getattr(target.base_model, "norm", None)))


def _copy(own: Tensor, source: Tensor | None) -> None:
    if source is not None and source.shape == own.shape:
        own.copy_(source)


def _gains(norm: nn.Module | None) -> Tensor | None:
    """Return the scale factors of an RMS norm; None for any other norm."""
    if norm is None or "RMSNorm" not in type(norm).__name__:
        return None
    # Model families store the factors in different ways.
    return norm(torch.ones_like(norm.get_parameter("weight")))


def save_feature_draft(draft: FeatureDraft, folder: Path) -> None:
    save_weights(draft.own_state(), folder)
    (folder / CONFIG_FILE).write_text(json.dumps(asdict(draft.config), indent=1) + "\n", encoding="utf-8")


def load_feature_draft(folder: Path, target: nn.Module, dtype: torch.dtype | None = None) -> FeatureDraft:
    """Load a draft that shares the target's embedding and device, and its type if ``dtype`` is None."""
    raw = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    config = FeatureConfig(**{**raw, "taps": tuple(raw["taps"])})
    if max(config.taps) >= (layers := len(decoder_layers(target))):
        raise ValueError(f"made for a target of more than {layers} layers")
    embedding = borrowed_embedding(target, config.hidden_size, dtype)
    state = load_weights(folder)
    draft = FeatureDraft(config, embedding, state["id_map"])
    draft.screen = screen_in(state)
    return filled(draft, state, embedding, dtype)
