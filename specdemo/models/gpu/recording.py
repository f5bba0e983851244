"""Recorded computations, and the caches that they work with."""

import weakref
from collections.abc import Callable
from typing import Any

import torch

MAX_FREE_CACHES = 6  # maximum number of unused caches that are kept for later runs
WARM_UP_PASSES = 3  # before a recording; torch's notes on CUDA graphs require them

Recorder = Callable[..., Callable[[], Any]]
"""Records a computation that always uses the same tensors, and returns a function that replays it. A second
argument is the random generator that it draws from, if any."""


class IdleCaches:
    """Caches with recordings that no run uses at the moment; the one unused for longest is dropped first."""

    def __init__(self) -> None:
        self._caches: list[Any] = []

    def take(self, capacity: int) -> Any | None:
        """Take the last cache with ``capacity`` positions; return None if there is none."""
        fitting = [cache for cache in self._caches if cache.keys.shape[-2] == capacity]
        if not fitting:
            return None
        self._caches.remove(fitting[-1])
        return fitting[-1]

    def lend(self, cache: Any, borrower: object) -> None:
        """Keep ``cache`` again as soon as ``borrower`` is deleted."""
        weakref.finalize(borrower, self._keep, cache)

    def _keep(self, cache: Any) -> None:
        self._caches.append(cache)
        del self._caches[:-MAX_FREE_CACHES]


def cuda_recorder(device: torch.device) -> Recorder:
    """Return a function that records computations as CUDA graphs, or raises ``RuntimeError`` if it cannot.

    All graphs of the recorder share a memory pool, so a graph may overwrite the results of another graph.
    Copy the results right after a replay.
    """
    with torch.cuda.device(device):
        pool = torch.cuda.MemPool()  # outlives its graphs; a handle alone ends with the last of them

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
            shared: Any = pool.id  # torch has two types for it
            with torch.cuda.graph(graph, pool=shared, capture_error_mode="thread_local"):
                outputs = run()

        def replay() -> Any:
            with torch.cuda.device(device):
                graph.replay()
            return outputs

        return replay

    return record
