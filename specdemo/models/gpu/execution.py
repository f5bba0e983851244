"""Llama-type models and feature drafts on a GPU, with passes as recorded Triton kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_execution import FusedExecution
from specdemo.models.fused_llama import FusedLlama, KeysAndValues
from specdemo.models.gpu.kernels import Weights
from specdemo.models.gpu.recording import Recorder, cuda_recorder
from specdemo.models.gpu.stack import IDS, MAX_TAPS, ROWS, GpuCache, GpuStack, shape_for, starts_early


class GpuExecution(FusedExecution):
    """Runs passes of a :class:`FusedLlama` as Triton kernels, over at most ``ROWS`` tokens at once.

    One recorded CUDA graph serves passes over any number of tokens, because the kernels read this number, the
    position and the ids on the device. Batches of several texts still run in torch.
    """

    records_rounds = is_batch_invariant = True

    def __init__(
        self, model: FusedLlama, stack: GpuStack, record: Recorder | None = None, depth: int | None = None
    ):
        super().__init__(model, "Triton kernels in CUDA graphs")
        self.stack, self._depth = stack, depth
        self.record = record or cuda_recorder(stack.device)

    def open(self, capacity: int) -> GpuCache:
        return self.stack.borrow(capacity)

    def prepare(self, cache: GpuCache, taps: Sequence[int]) -> None:
        """Record passes with and without logits, before any timing starts."""
        assert len(taps) <= MAX_TAPS
        for scores in (True, False):
            self.stack.prepare(cache, self.record, self._depth, taps, scores)

    def run(
        self, ids: Tensor, start: int, cache: GpuCache, rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        logits, states = [], []
        for first in range(0, len(ids), ROWS):
            part = ids[first : first + ROWS]
            scored = max(0, min(len(part), rows - (len(ids) - first - len(part))))
            self.stack.place(cache, start + first, (), len(part))
            cache.buffers.control[IDS : IDS + len(part)].copy_(part)
            self.stack.run(cache, self._depth, taps, scored > 0)
            # Copy the results, because the next pass overwrites them.
            logits.append(cache.buffers.logits[len(part) - scored : len(part)].clone())
            if taps:
                states.append(self.tapped(cache, len(part), taps).clone())
        return torch.cat(logits), torch.cat(states) if states else None

    def start(self, cache: GpuCache, rows: int, taps: Sequence[int]) -> Tensor:
        """Start a pass over the ids in ``cache``; return where its logits will be. It can be recorded."""
        self.stack.launch(cache, depth=self._depth, taps=taps)
        return cache.buffers.logits[:rows]

    @staticmethod
    def tapped(cache: GpuCache, rows: int, taps: Sequence[int]) -> Tensor:
        """Return the outputs of the tapped layers side by side, shape [rows, taps · hidden]."""
        return cache.buffers.tapped[: len(taps), :rows].transpose(0, 1).flatten(1)

    def layers(self, cache: GpuCache) -> list[KeysAndValues]:
        return [(keys[None], values[None]) for keys, values in zip(cache.keys, cache.values, strict=True)]

    def first(self, depth: int) -> "GpuExecution":
        return GpuExecution(self.model, self.stack, self.record, depth)


def unsupported(model: FusedLlama) -> str | None:
    """Return why the kernels cannot compute ``model``; None if they can."""
    first: Any = model.layers[0]
    sizes = model.config.hidden_size, first.width, first.gate_up.weight.shape[0] // 2
    if fault := weights_fault(model.norm.weight, sizes):
        return fault
    biased = [name for name in ("o", "gate_up", "down") if getattr(first, name).bias is not None]
    if biased or model.head.bias is not None:
        return f"layers other than queries, keys and values have biases ({', '.join(biased) or 'head'})"
    return None


def weights_fault(weight: Tensor, sizes: Sequence[int]) -> str | None:
    if weight.dtype is not torch.bfloat16:
        return f"its weights are in {str(weight.dtype).removeprefix('torch.')}, not in bfloat16"
    if any(size % ROWS for size in sizes):
        return f"its sizes {', '.join(map(str, sizes))} are not multiples of {ROWS}"
    return None


@torch.inference_mode()
def stack_of(model: FusedLlama, id_map: Tensor | None = None, **changes: Any) -> GpuStack:
    """Return the stack of a model. The model's own matrices become views of the stack's weights."""
    layers: list[Any] = list(model.layers)

    def stacked(name: str) -> Tensor:
        own = [getattr(layer, name) for layer in layers]
        whole = torch.stack([linear.weight for linear in own])
        for linear, part in zip(own, whole, strict=True):
            linear.weight = nn.Parameter(part, requires_grad=False)
        return whole

    first, head = layers[0], model.head.weight
    norms = [norm for layer in layers for norm in (layer.attention_norm, layer.mlp_norm)] + [model.norm]
    qkv = stacked("qkv")
    biases = [
        layer.qkv.bias if layer.qkv.bias is not None else qkv.new_zeros(qkv.shape[1]) for layer in layers
    ]
    gains = torch.stack([norm.weight for norm in norms])
    weights = Weights(
        embedding=model.embedding.weight,
        gains=gains,
        pair_gains=gains,
        qkv=qkv,
        bias=torch.stack(biases),
        out=stacked("o"),
        gate_up=stacked("gate_up"),
        down=stacked("down"),
        head=head,
        id_map=_id_map(head, id_map),
    )
    shape = shape_for(
        model.config.hidden_size,
        first.heads,
        first.kv_heads,
        first.width,
        weights.down.shape[2],
        len(head),
        model.norm.eps,
        first.scaling,
        early=starts_early(qkv.device),
        **changes,
    )
    return GpuStack(weights, shape, _rotations(model.rotary, model.config.max_position_embeddings))


@torch.inference_mode()
def feature_stack_of(draft: FeatureDraft, **changes: Any) -> GpuStack:
    """Return the stack of a feature draft's layer."""
    c, head = draft.config, draft.lm_head.weight
    qkv = torch.cat([draft.q.weight, draft.k.weight, draft.v.weight])[None]
    weights = Weights(
        embedding=draft.embedding.weight,
        gains=torch.stack([norm.weight for norm in (draft.state_norm, draft.mlp_norm, draft.norm)]),
        pair_gains=draft.embedding_norm.weight,
        qkv=qkv,
        bias=qkv.new_zeros(qkv.shape[:2]),
        out=draft.o.weight[None],
        gate_up=torch.cat([draft.mlp.gate_proj.weight, draft.mlp.up_proj.weight])[None],
        down=draft.mlp.down_proj.weight[None],
        head=head,
        id_map=_id_map(head, draft.id_map),
    )
    shape = shape_for(
        c.hidden_size,
        c.heads,
        c.kv_heads,
        c.head_dim,
        c.intermediate_size,
        len(head),
        c.norm_eps,
        c.head_dim**-0.5,
        early=starts_early(qkv.device),
        paired=True,
        **changes,
    )
    return GpuStack(weights, shape, _rotations(draft.rotary, c.positions))


def _id_map(head: Tensor, id_map: Tensor | None) -> Tensor:
    return (torch.arange(len(head)) if id_map is None else id_map).to(head.device, torch.int32)


def _rotations(rotary: nn.Module, most: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def rotations(positions: int) -> tuple[Tensor, Tensor]:
        device = next(rotary.buffers()).device
        places = torch.arange(positions, device=device).clamp_max(most - 1)
        cos, sin = rotary(torch.zeros(1, device=device), places[None])
        half = cos.shape[-1] // 2
        return cos[0, :, :half], sin[0, :, :half]

    return rotations
