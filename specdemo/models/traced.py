"""Passes of a Llama-type model on CPU, traced once and run without Python in between.

A pass of a small model is some seven hundred short kernels, and Python takes a fifth of its time to
start them one by one. A trace (TorchScript) starts the same kernels on the same tensors, so results
stay the same bit for bit. One trace serves any number of tokens and any capacity: sizes are read from
the tensors. Where a pass cannot be traced it is run as it is.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from specdemo.models.fused_llama import FusedLlama, KeysAndValues, LlamaCache

EXAMPLE_ROWS = 2
"""Tokens of the pass that is traced."""
Pass = Callable[..., tuple[Tensor, ...]]


class TracedExecution:
    """A Llama-type model on CPU. One object per model; its traces go from run to run.

    Args:
        model: With its layers on the CPU.
    """

    def __init__(self, model: FusedLlama):
        self._model = model
        self._passes: dict[tuple[int, ...], Pass] = {}
        self._views: dict[int, TracedExecution] = {}

    def open(self, capacity: int) -> LlamaCache:
        """The model's own kind of cache."""
        return self._model.open(capacity)

    def prepare(self, cache: LlamaCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Trace the pass, all rows scored, unless that was done."""
        key = tuple(taps)
        if key not in self._passes:
            ids = torch.zeros(EXAMPLE_ROWS, dtype=torch.long, device=cache.places.device)
            tensors = (cache.keys, cache.values, cache.cos, cache.sin, cache.places)
            example = (ids, cache.places[:EXAMPLE_ROWS], *tensors)
            self._passes[key] = traced(_WholePass(self._model, key), example)

    def run(
        self, ids: Tensor, start: int, cache: LlamaCache, rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """One pass; one that scores only some rows, such as a prompt's, is not traced."""
        places = cache.places[start : start + len(ids)]
        whole = self._passes.get(tuple(taps)) if rows == len(ids) else None
        if whole is None:
            return self._model(ids, places, cache, rows, taps)
        logits, *states = whole(ids, places, cache.keys, cache.values, cache.cos, cache.sin, cache.places)
        return logits, states[0] if states else None

    def layers(self, cache: LlamaCache) -> list[KeysAndValues]:
        """The cache's own."""
        return cache.layers

    def first(self, depth: int) -> "TracedExecution":
        """The first layers, by a view of the model that shares them."""
        if depth not in self._views:
            self._views[depth] = TracedExecution(self._model.first(depth))
        return self._views[depth]


class _WholePass(nn.Module):
    """A pass as a function of tensors alone."""

    def __init__(self, model: FusedLlama, taps: tuple[int, ...]):
        super().__init__()
        self.model = model
        self.taps = taps

    def forward(self, ids: Tensor, places: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """Logits of every row [n, V] and, with taps, their states."""
        logits, states = self.model(ids, places, LlamaCache(*cache), ids.shape[0], self.taps)
        return (logits,) if states is None else (logits, states)


def traced(module: nn.Module, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """``module`` traced on ``example``, or as it is where torch cannot trace it."""
    with warnings.catch_warnings(), torch.inference_mode():
        # Deprecated in favour of compilers, which a fresh machine lacks.
        warnings.simplefilter("ignore")
        try:
            return cast(Callable[..., Any], torch.jit.trace(module, example, check_trace=False))
        except RuntimeError:  # what torch raises for whatever cannot be traced
            return module
