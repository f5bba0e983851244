"""Three ways to run a ``FusedLlama``: kernel by kernel, traced once (CPU), recorded as CUDA graphs (GPU)."""

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from specdemo.models.fused_llama import FusedLlama, KeysAndValues, LlamaCache

EXAMPLE_ROWS = 2
"""Number of tokens in the pass that is traced."""
MAX_FREE_CACHES = 6
"""Number of recorded caches kept for later runs; the one that was free longest goes first."""
WARM_UP_PASSES = 3
"""Passes before a recording, as torch's notes on CUDA graphs ask: kernels choose their plans then."""

Outputs = tuple[Tensor, Tensor | None]
"""Logits of a pass, and the outputs of its tapped layers."""
Run = Callable[[], Outputs]
Recorder = Callable[[Run], Run]
"""Maps a computation over tensors that stay in place to its replay."""


class FusedExecution:
    """A Llama-type model, run kernel by kernel; methods as in ``execution.PlainExecution``."""

    def __init__(self, model: FusedLlama):
        self.model = model

    def open(self, capacity: int) -> LlamaCache:
        return self.model.open(capacity)

    def prepare(self, cache: LlamaCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        pass

    def run(self, ids: Tensor, start: int, cache: LlamaCache, rows: int, taps: Sequence[int]) -> Outputs:
        return self.model(ids, cache.places[start : start + len(ids)], cache, rows, taps)

    def layers(self, cache: LlamaCache) -> list[KeysAndValues]:
        return cache.layers

    def first(self, depth: int) -> "FusedExecution":
        return FusedExecution(self.model.first(depth))


class TracedExecution(FusedExecution):
    """A Llama-type model on the CPU, traced once and run without Python between its kernels.

    A pass of a small model is about seven hundred short kernels, and Python takes a fifth of its time to
    start them one by one. A trace (TorchScript) starts the same kernels on the same tensors, so the results
    are the same bit for bit. One trace serves any number of tokens and any capacity, because sizes are read
    from the tensors. There is one object per model; its traces serve all runs.
    """

    def __init__(self, model: FusedLlama):
        super().__init__(model)
        self.passes: dict[tuple[int, ...], Callable[..., tuple[Tensor, ...]]] = {}

    def prepare(self, cache: LlamaCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Trace the pass that scores all rows, for any of ``sizes``, unless that was done."""
        key = tuple(taps)
        if key not in self.passes:
            ids = torch.zeros(EXAMPLE_ROWS, dtype=torch.long, device=cache.places.device)
            example = (ids, cache.places[:EXAMPLE_ROWS], *cache.tensors)
            self.passes[key] = traced(_TensorPass(self.model, key), example)

    def run(self, ids: Tensor, start: int, cache: LlamaCache, rows: int, taps: Sequence[int]) -> Outputs:
        """Run a pass; one that scores only some rows, such as a prompt's, is not traced."""
        whole = self.passes.get(tuple(taps)) if rows == len(ids) else None
        if whole is None:
            return super().run(ids, start, cache, rows, taps)
        logits, *states = whole(ids, cache.places[start : start + len(ids)], *cache.tensors)
        return logits, states[0] if states else None


class _TensorPass(nn.Module):
    """A pass as a function of tensors alone."""

    def __init__(self, model: FusedLlama, taps: tuple[int, ...]):
        super().__init__()
        self.model = model
        self.taps = taps

    def forward(
        self,
        ids: Tensor,
        places: Tensor,
        keys: Tensor,
        values: Tensor,
        cos: Tensor,
        sin: Tensor,
        all_places: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the logits of every row [n, V] and, with taps, their states."""
        cache = LlamaCache(keys, values, cos, sin, all_places)
        logits, states = self.model(ids, places, cache, ids.shape[0], self.taps)
        return (logits,) if states is None else (logits, states)


def traced(module: nn.Module, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Return ``module`` traced on ``example``, or as it is if torch cannot trace it."""
    with warnings.catch_warnings(), torch.inference_mode():
        # TorchScript is deprecated in favour of compilers, which a fresh machine lacks.
        warnings.simplefilter("ignore")
        try:
            return cast(Callable[..., Any], torch.jit.trace(module, example, check_trace=False))
        except RuntimeError:  # torch's error for anything that cannot be traced
            return module


class GraphedExecution(FusedExecution):
    """A Llama-type model with its passes recorded as CUDA graphs.

    A small model's pass is several hundred short kernels, and starting them one by one takes longer than
    running them. A recorded pass starts them all at once. A recording holds fixed addresses, so a cache and
    its recordings stay together: :meth:`open` reuses the tensors of a cache that no run holds any more.
    Recording takes time and happens in :meth:`prepare`, before every clock. There is one object per model.

    Args:
        model: On a device that can record.
        record: Records a computation; replaced in tests.

    Attributes:
        failure: The reason why passes could not be recorded and run kernel by kernel; None if they could.
    """

    def __init__(self, model: FusedLlama, record: Recorder | None = None):
        super().__init__(model)
        self.record = record or cuda_recorder(model.embedding.weight.device)
        self.failure: str | None = None
        self._free: list[LlamaCache] = []

    def open(self, capacity: int) -> LlamaCache:
        """Return a cache that no other run holds, with the recordings made on its tensors earlier."""
        fitting = [cache for cache in self._free if len(cache.places) == capacity]
        owner = fitting[-1] if fitting else self.model.open(capacity)
        if fitting:
            self._free.remove(owner)
            # The mask adds −inf to hidden scores, but NaN − inf is NaN: nothing may be left in the buffers.
            owner.keys.zero_()
            owner.values.zero_()
        lent = replace(owner)  # shares tensors and recordings; they are free again when the run drops it
        weakref.finalize(lent, self._take_back, owner)
        return lent

    def prepare(self, cache: LlamaCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Record passes over these numbers of tokens, with every row scored."""
        tensors = replace(cache)  # a recording must not keep the cache itself from being freed
        for size in sizes:
            key = (size, size, tuple(taps))
            if self.failure is not None or key in cache.recordings:
                continue
            ids = torch.zeros(size, dtype=torch.long, device=cache.places.device)
            places = cache.places[:size].clone()

            def run(ids: Tensor = ids, places: Tensor = places, size: int = size) -> Outputs:
                return self.model(ids, places, tensors, size, taps)

            try:
                cache.recordings[key] = ids, places, self.record(run)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # torch's error for anything that cannot be recorded
                self.failure = (str(error).splitlines() or [type(error).__name__])[0][:200]

    def run(self, ids: Tensor, start: int, cache: LlamaCache, rows: int, taps: Sequence[int]) -> Outputs:
        """Replay the pass if it was recorded; the results are copies that the next replay leaves alone."""
        if (len(ids), rows, tuple(taps)) not in cache.recordings:
            return super().run(ids, start, cache, rows, taps)
        own_ids, own_places, replay = cache.recordings[len(ids), rows, tuple(taps)]
        own_ids.copy_(ids)
        own_places.copy_(cache.places[start : start + len(ids)])
        logits, states = replay()
        return logits.clone(), None if states is None else states.clone()

    def _take_back(self, owner: LlamaCache) -> None:
        self._free.append(owner)
        del self._free[:-MAX_FREE_CACHES]


def cuda_recorder(device: torch.device) -> Recorder:
    """Return a recorder of CUDA graphs on ``device``, which need not be the current device.

    All its graphs share a pool of memory: one may overwrite the results of another, so results are copied
    right after a replay. The recorder raises ``RuntimeError`` if something cannot be recorded.
    """
    pool = torch.cuda.graph_pool_handle()

    def record(run: Run) -> Run:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP_PASSES):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                outputs = run()

        def replay() -> Outputs:
            with torch.cuda.device(device):
                graph.replay()
            return outputs

        return replay

    return record
