"""Passes of a ``FusedLlama`` by torch's kernels, one by one."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdemo.models.fused_llama import FusedLlama, KeysAndValues, LlamaCache

Outputs = tuple[Tensor, Tensor | None]  # the logits of a pass, and the outputs of its tapped layers, if any


class FusedExecution:
    """Runs a Llama-type model kernel by kernel. It has the methods of ``execution.PlainExecution``."""

    def __init__(self, model: FusedLlama, label: str = ""):
        self.model = model
        self.label = label  # the way passes run, for the page

    def open(self, capacity: int) -> LlamaCache:
        return self.model.open(capacity)

    def run(self, ids: Tensor, start: int, cache: LlamaCache, rows: int, taps: Sequence[int]) -> Outputs:
        return self.model(ids, cache.positions[start : start + len(ids)], cache, rows, taps)

    def batch(self, texts: int, capacity: int) -> Callable[[Tensor, int], Tensor]:
        cache = self.model.open(capacity, texts)

        def run(ids: Tensor, start: int) -> Tensor:
            positions = cache.positions[start : start + ids.shape[1]]
            # Matrix products process all texts at once; attention processes each text separately.
            logits, _ = self.model(ids.flatten(), positions, cache, ids.numel())
            return logits.unflatten(0, ids.shape)

        return torch.inference_mode()(run)

    def cut(self, cache: LlamaCache, end: int) -> LlamaCache:
        """Return a view of the first ``end`` positions of ``cache``. Passes over it run kernel by kernel."""
        keys, values = cache.keys[..., :end, :], cache.values[..., :end, :]
        return LlamaCache(keys, values, cache.cos[:end], cache.sin[:end], cache.positions[:end])

    def layers(self, cache: LlamaCache) -> list[KeysAndValues]:
        return cache.layers

    def first(self, depth: int) -> "FusedExecution":
        return FusedExecution(self.model.first(depth))
