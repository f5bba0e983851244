"""Passes recorded once and replayed: CUDA graphs behind the interface of any other execution.

A small model's pass is some hundred short kernels, and starting them one by one takes longer than
they run. A recorded pass starts them all at once. What is recorded are fixed addresses, so a cache
and its recordings stay together and go from run to run: opening a cache takes one that no run holds.

Recording costs time and happens in :meth:`GraphedExecution.prepare`, outside every clock. Where it
fails, passes run one kernel after the other and ``failure`` says why.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdemo.llama import FusedLlama, LlamaCache

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


@dataclass
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
        self._record = record or record_on_cuda
        self._free: dict[int, list[_RecordedCache]] = defaultdict(list)
        self.failure: str | None = None

    def open(self, capacity: int) -> Lease:
        """A cache that no other run holds, with the recordings made on it earlier."""
        free = self._free[capacity]
        recorded = free.pop() if free else _RecordedCache(self._model.open(capacity))
        lease = Lease(recorded)
        weakref.finalize(lease, free.append, recorded)
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
                recorded.recordings[key] = _Recording(ids, places, self._record(run))
            except RuntimeError as error:  # what torch raises for whatever cannot be recorded
                self.fail(error)

    def fail(self, error: RuntimeError) -> None:
        """Record nothing from here on."""
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

    def first(self, depth: int) -> "_FirstLayers":
        """The first layers over caches of the whole model, not recorded."""
        return _FirstLayers(self._model.first(depth))


class _FirstLayers(GraphedExecution):
    """Some first layers, which read the cache of a whole model's run."""

    def prepare(self, cache: Lease, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Nothing: what is recorded on a cache is the whole model's."""

    def run(self, ids: Tensor, start: int, cache: Lease, rows: int, taps: Sequence[int]) -> Outputs:
        """One pass, kernel by kernel."""
        inner = cache.recorded.cache
        return self._model(ids, inner.places[start : start + len(ids)], inner, rows, taps)


def record_on_cuda(run: Run) -> Run:
    """Record ``run`` as a CUDA graph.

    Raises:
        RuntimeError: Something in it cannot be recorded.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_PASSES):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()

    def replay() -> Outputs:
        graph.replay()
        return outputs

    return replay
