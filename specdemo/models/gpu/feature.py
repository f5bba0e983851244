"""A feature draft on a GPU, with a step as recorded Triton kernels."""

import torch
from torch import Tensor

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.gpu.recording import Recorder, cuda_recorder
from specdemo.models.gpu.stack import IDS, ROWS, GpuCache, GpuStack


class GpuFeatureRuntime:
    """A feature draft and its cache of pairs, like ``feature_draft.FeatureRuntime``.

    ``record`` records steps that are not parts of recorded rounds; by default as CUDA graphs.
    """

    def __init__(self, draft: FeatureDraft, stack: GpuStack, record: Recorder | None = None):
        self._draft, self.stack, self._record = draft, stack, record
        self.id_map = draft.id_map
        self.device = stack.device
        self.length = 0
        self._cache: GpuCache | None = None

    @property
    def cache(self) -> GpuCache:
        assert self._cache is not None, "begin was not called"
        return self._cache

    @torch.inference_mode()
    def begin(self, capacity: int) -> None:
        self.length = 0
        if self._cache is None or self._cache.capacity != capacity:
            self._cache = self.stack.borrow(capacity)

    @torch.inference_mode()
    def prepare(self, capacity: int) -> None:
        """Open the cache and record a step, before a run's timing starts."""
        self.begin(capacity)
        if not self.cache.recordings:
            self.stack.prepare(self.cache, self._record or cuda_recorder(self.device))

    @torch.inference_mode()
    def read(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Append pairs with states fused from target ``features`` [n, taps · d]; see :meth:`append`."""
        parts = zip(features.split(ROWS), ids.split(ROWS), strict=True)
        return [self.append(self._draft.fuse(part), own) for part, own in parts][-1]

    @torch.inference_mode()
    def append(self, states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Append pairs of states [n, d] and ids [n]; return the last pair's output [1, d] and logits [H]."""
        count, buffers = len(ids), self.cache.buffers
        self.stack.place(self.cache, self.length, (), count)
        buffers.control[IDS : IDS + count].copy_(ids)
        buffers.given[:count].copy_(states)
        self.stack.run(self.cache)
        self.length += count
        # Copy the results, because the next step overwrites them.
        return buffers.states[count - 1 : count].clone(), buffers.logits[count - 1].clone()

    def fuse(self, features: Tensor) -> None:
        """Write the states of up to ``ROWS`` pairs for the next launch; can be recorded."""
        self.cache.buffers.given[: len(features)].copy_(self._draft.fuse(features))

    def rollback(self, length: int) -> None:
        self.length = length
