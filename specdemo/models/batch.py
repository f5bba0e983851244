"""One model over the caches of several texts of equal length, which every pass extends together."""

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdemo.models.execution import CausalLM, CursorLayer, PlainExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.reduced_draft import ReducedHeadDraft


class Batch(Protocol):
    """One model over the caches of several texts of equal length.

    A pass over one text waits for the weights to be read; a batch reads them once for all texts. Its kernels
    are not those of a single text's pass, so results differ by rounding.
    """

    def run(self, ids: Tensor, start: int) -> Tensor:
        """Append ``ids`` [rows, n] at position ``start`` of every text and return logits [rows, n, V]."""
        ...


def batch_of(model: CausalLM, rows: int, capacity: int) -> Batch:
    """Return ``model`` over ``rows`` caches of ``capacity`` positions."""
    if isinstance(model, FusedLlama):
        return FusedBatch(model, rows, capacity)
    return PlainBatch(model, rows, capacity)


class PlainBatch:
    """Any causal language model of transformers."""

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel | ReducedHeadDraft, rows: int, capacity: int):
        self._model = model
        execution = PlainExecution(model)
        self._cache = execution.open(capacity)
        # The first pass makes the buffers for one text; every text gets a copy.
        first = torch.zeros(1, dtype=torch.long, device=next(model.parameters()).device)
        execution.run(first, 0, self._cache, 1, ())
        self._layers = [layer for layer in self._cache.layers if isinstance(layer, CursorLayer)]
        for layer in self._layers:
            assert layer.keys is not None and layer.values is not None, "made by that pass"
            layer.keys, layer.values = (buffer.repeat(rows, 1, 1, 1) for buffer in (layer.keys, layer.values))

    @torch.inference_mode()
    def run(self, ids: Tensor, start: int) -> Tensor:
        self._layers[0].cursor.length = start
        logits = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True).logits
        # The last parts of a model in shards may be on other devices than the first.
        return logits.to(ids.device)


class FusedBatch:
    """A ``FusedLlama``: products over all texts at once, attention text by text."""

    @torch.inference_mode()
    def __init__(self, model: FusedLlama, rows: int, capacity: int):
        self._model = model
        self._cache = model.open(capacity, rows)

    @torch.inference_mode()
    def run(self, ids: Tensor, start: int) -> Tensor:
        places = self._cache.places[start : start + ids.shape[1]]
        logits, _ = self._model(ids.flatten(), places, self._cache, ids.numel())
        return logits.unflatten(0, ids.shape)
