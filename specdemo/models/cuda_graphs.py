"""Passes recorded once and replayed: CUDA graphs behind the interface of any other execution.

A small model's pass is some hundred short kernels, and starting them one by one takes longer than
they run. A recorded pass starts them all at once. What is recorded are fixed addresses, so a cache
and its recordings stay together and go from run to run: opening a cache takes one that no run holds.

Recording costs time and happens in :meth:`GraphedExecution.prepare`, outside every clock. Where it
fails, passes run one kernel after the other and ``failure`` says why.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdemo.models.fused_llama import FusedLlama, KeysAndValues, LlamaCache

MOST_FREE = 6
"""Caches kept for later runs; the one that was free longest goes first."""
WARM_UP_PASSES = 3
"""Passes before a recording, as torch's notes on CUDA graphs ask: kernels choose their plans then."""

Outputs = tuple[Tensor, Tensor | None]
Run = Callable[[], Outputs]
Recorder = Callable[[Run], Run]
"""From a computation over tensors that stay in place to its replay."""


@dataclass
class _Recording:
    """One shape of pass: where its inputs are put, and how it is replayed."""

    ids: Tensor
    places: Tensor
    replay: Run


@dataclass(eq=False)
class _RecordedCache:
    """A cache and everything recorded on it, by tokens, scored rows and taps."""

    cache: LlamaCache
    recordings: dict[tuple[int, int, tuple[int, ...]], _Recording] = field(default_factory=dict)


class Lease:
    """A recorded cache for as long as somebody holds this."""

    def __init__(self, recorded: _RecordedCache):
        self.recorded = recorded


class GraphedExecution:
    """A Llama-type model with its passes recorded. One object per model; runs share it in turn.

    Args:
        model: On a device that can record.
        record: How; replaced in tests.
    """

    def __init__(self, model: FusedLlama, record: Recorder | None = None):
        self._model = model
        self.record = record or CudaRecorder(model.embedding.weight.device)
        self._free: list[_RecordedCache] = []
        self.failure: str | None = None

    def open(self, capacity: int) -> Lease:
        """A cache that no other run holds, with the recordings made on it earlier."""
        fitting = [recorded for recorded in self._free if len(recorded.cache.places) == capacity]
        recorded = fitting[-1] if fitting else _RecordedCache(self._model.open(capacity))
        if fitting:
            self._free.remove(recorded)
            # A masked number is no number if what it is added to is none.
            recorded.cache.keys.zero_()
            recorded.cache.values.zero_()
        lease = Lease(recorded)
        weakref.finalize(lease, self._take_back, recorded)
        return lease

    def prepare(self, cache: Lease, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Record passes over these numbers of tokens, with every row scored."""
        recorded = cache.recorded
        for size in sizes:
            key = (size, size, tuple(taps))
            if self.failure is not None or key in recorded.recordings:
                continue
            ids = torch.zeros(size, dtype=torch.long, device=recorded.cache.places.device)
            places = recorded.cache.places[:size].clone()

            def run(ids: Tensor = ids, places: Tensor = places, size: int = size) -> Outputs:
                return self._model(ids, places, recorded.cache, size, taps)

            try:
                recorded.recordings[key] = _Recording(ids, places, self.record(run))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # what torch raises for whatever cannot be recorded
                self.failure = (str(error).splitlines() or [type(error).__name__])[0][:200]

    def run(self, ids: Tensor, start: int, cache: Lease, rows: int, taps: Sequence[int]) -> Outputs:
        """Replay the pass if it was recorded; results are copies, which the next replay leaves alone."""
        inner = cache.recorded.cache
        places = inner.places[start : start + len(ids)]
        recording = cache.recorded.recordings.get((len(ids), rows, tuple(taps)))
        if recording is None:
            return self._model(ids, places, inner, rows, taps)
        recording.ids.copy_(ids)
        recording.places.copy_(places)
        logits, states = recording.replay()
        return logits.clone(), None if states is None else states.clone()

    def pass_at(self, ids: Tensor, places: Tensor, cache: Lease) -> Tensor:
        """A pass as a recording may contain it, every row scored."""
        return self._model(ids, places, cache.recorded.cache, len(ids))[0]

    def layers(self, cache: Lease) -> list[KeysAndValues]:
        """The recorded cache's."""
        return cache.recorded.cache.layers

    def first(self, depth: int) -> "_FirstLayers":
        """The first layers over caches of the whole model, not recorded."""
        return _FirstLayers(self._model.first(depth), self.record)

    def _take_back(self, recorded: _RecordedCache) -> None:
        self._free.append(recorded)
        del self._free[:-MOST_FREE]


class _FirstLayers(GraphedExecution):
    """Some first layers, which read the cache of a whole model's run."""

    def prepare(self, cache: Lease, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Nothing: what is recorded on a cache is the whole model's."""

    def run(self, ids: Tensor, start: int, cache: Lease, rows: int, taps: Sequence[int]) -> Outputs:
        """One pass, kernel by kernel."""
        inner = cache.recorded.cache
        return self._model(ids, inner.places[start : start + len(ids)], inner, rows, taps)


class CudaRecorder:
    """Records CUDA graphs on one device.

    All of a model's graphs share a pool of memory: one may overwrite what another left behind, which is
    why results are copied right after a replay.

    Args:
        device: Where; not always the current one.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        """Record ``run`` and return its replay.

        Raises:
            RuntimeError: Something in it cannot be recorded.
        """
        with torch.cuda.device(self._device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP_PASSES):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outputs = run()

        def replay() -> Outputs:
            with torch.cuda.device(self._device):
                graph.replay()
            return outputs

        return replay
