"""Two ways to run a ``FusedLlama``: kernel by kernel, or from CUDA graphs."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specdemo.models.fused_llama import FusedLlama, KeysAndValues, LlamaCache
from specdemo.records.limits import reason_of

MAX_FREE_CACHES = 6  # maximum number of unused caches that are kept for later runs
WARM_UP_PASSES = 3  # before a recording; torch's notes on CUDA graphs require them

Outputs = tuple[Tensor, Tensor | None]  # the logits of a pass, and the outputs of its tapped layers, if any
Run = Callable[[], Outputs]
Recorder = Callable[..., Callable[[], Any]]
"""Records a computation that always uses the same tensors, and returns a function that replays it. A second
argument is the random generator that it draws from, if any."""


class FusedExecution:
    """Runs a Llama-type model kernel by kernel. It has the methods of ``execution.PlainExecution``."""

    records_rounds = False  # whether a whole round can be recorded (``engine.recorded_round``)
    label = ""  # the way passes run, for the page

    def __init__(self, model: FusedLlama):
        self.model = model

    def open(self, capacity: int) -> LlamaCache:
        return self.model.open(capacity)

    def prepare(self, cache: LlamaCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        pass

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


class IdleCaches:
    """Caches with recordings that no run uses at the moment; the one unused for longest is dropped first."""

    def __init__(self) -> None:
        self._caches: list[Any] = []

    def take(self, capacity: int) -> Any | None:
        """Take and clear the last cache with ``capacity`` positions; return None if there is none."""
        fitting = [cache for cache in self._caches if cache.keys.shape[-2] == capacity]
        if not fitting:
            return None
        self._caches.remove(fitting[-1])
        # Clear old NaN values: the mask adds −inf to hide positions, but NaN − inf is still NaN.
        fitting[-1].keys.zero_()
        fitting[-1].values.zero_()
        return fitting[-1]

    def lend(self, cache: Any, borrower: object) -> None:
        """Keep ``cache`` again as soon as ``borrower`` is deleted."""
        weakref.finalize(borrower, self._keep, cache)

    def _keep(self, cache: Any) -> None:
        self._caches.append(cache)
        del self._caches[:-MAX_FREE_CACHES]


class GraphedExecution(FusedExecution):
    """Runs a Llama-type model on a GPU, with passes recorded as CUDA graphs. Each model has one.

    A pass of a small model consists of several hundred short kernels, and starting them one by one takes
    longer than running them. A recorded pass starts all of them at once. A recording contains the addresses
    of its tensors, so it works only with the cache that it was made for. :meth:`open` therefore reuses caches
    that no run uses any more. :meth:`prepare` makes the recordings, before any timing starts.
    """

    def __init__(self, model: FusedLlama, record: Recorder | None = None, note: str | None = None):
        super().__init__(model)
        self.note = note  # why passes are not Triton kernels, if the host wants them
        self.record = record or cuda_recorder(model.embedding.weight.device)
        self.failure: str | None = None  # why passes cannot be recorded and run kernel by kernel
        self._idle = IdleCaches()

    @property
    def label(self) -> str:
        graphs = "CUDA graphs" if self.failure is None else f"no CUDA graphs: {self.failure}"
        return graphs if self.note is None else f"{graphs}; no Triton kernels: {self.note}"

    def open(self, capacity: int) -> LlamaCache:
        """Return a cache that no other run uses, if possible one with recordings from earlier runs."""
        owner = self._idle.take(capacity) or self.model.open(capacity)
        lent = replace(owner)  # shares the tensors; when a run deletes it, the owner is free again
        self._idle.lend(owner, lent)
        return lent

    def prepare(self, cache: LlamaCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Record a pass with logits for every row, for each number of tokens in ``sizes``."""
        tensors = replace(cache)  # recordings must not refer to ``cache``, or it would never be deleted
        for size in sizes:
            key = (size, size, tuple(taps))
            if self.failure is not None or key in cache.recordings:
                continue
            ids = torch.zeros(size, dtype=torch.long, device=cache.positions.device)
            positions = cache.positions[:size].clone()

            def run(ids: Tensor = ids, positions: Tensor = positions, size: int = size) -> Outputs:
                return self.model(ids, positions, tensors, size, taps)

            try:
                cache.recordings[key] = ids, positions, self.record(run)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # torch's error if the pass cannot be recorded
                self.failure = reason_of(error)

    def run(self, ids: Tensor, start: int, cache: LlamaCache, rows: int, taps: Sequence[int]) -> Outputs:
        if (len(ids), rows, tuple(taps)) not in cache.recordings:
            return super().run(ids, start, cache, rows, taps)
        own_ids, own_positions, replay = cache.recordings[len(ids), rows, tuple(taps)]
        own_ids.copy_(ids)
        own_positions.copy_(cache.positions[start : start + len(ids)])
        logits, states = replay()
        # Copy the results, because replays reuse their memory.
        return logits.clone(), None if states is None else states.clone()


def cuda_recorder(device: torch.device) -> Recorder:
    """Return a function that records computations as CUDA graphs, or raises ``RuntimeError`` if it cannot.

    All graphs of the recorder share a memory pool, so a graph may overwrite the results of another graph.
    Copy the results right after a replay.
    """
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], Any], generator: torch.Generator | None = None) -> Callable[[], Any]:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP_PASSES):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            if generator is not None:
                graph.register_generator_state(generator)
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                outputs = run()

        def replay() -> Any:
            with torch.cuda.device(device):
                graph.replay()
            return outputs

        return replay

    return record
