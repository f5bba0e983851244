"""A runtime that computes the logits after each text once, and then looks them up.

Thousands of short draws from one prompt have few distinct prefixes, so most passes become look-ups.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from specdemo.models.runtime import Runtime


class MemoRuntime:
    """A runtime that computes each row of logits once; nothing else may use ``runtime`` at the same time.

    The model's passes use the number of CPU threads that torch used when this object was created.
    """

    def __init__(self, runtime: Runtime):
        self.device = runtime.device
        self.id_map = runtime.id_map
        self.max_context = runtime.max_context
        self.asked = 0  # passes that were requested, without prefills
        self.passes = 0  # passes that the model ran, without prefills
        self._runtime = runtime
        self._capacity = 0
        self._rows: dict[tuple[int, ...], Tensor] = {}
        self._text: list[int] = []
        self._held: list[int] = []
        self._threads = torch.get_num_threads()

    @property
    def length(self) -> int:
        """The number of tokens of the text, which may be longer than the model's cache."""
        return len(self._text)

    def begin(self, capacity: int) -> None:
        self._text = []
        if capacity != self._capacity:
            # The logits may differ in their last bits if the capacity of the cache differs.
            self._runtime.begin(capacity)
            self._capacity, self._held = capacity, []
            self._rows.clear()

    def prefill(self, ids: Tensor) -> None:
        self._text += ids.tolist()
        agreed = _agreement(self._held, self._text)
        if agreed < len(self._text):
            self._runtime.rollback(agreed)
            with threads(self._threads):
                self._runtime.prefill(self._tensor(self._text[agreed:]))
            self._held = list(self._text)

    def forward(self, ids: Tensor) -> Tensor:
        self.asked += 1
        start = len(self._text)
        self._text += ids.tolist()
        keys = [tuple(self._text[:end]) for end in range(start + 1, len(self._text) + 1)]
        known = next((index for index, key in enumerate(keys) if key not in self._rows), None)
        if known is not None:
            self._compute(start + known)
        return torch.stack([self._rows[key] for key in keys])

    def rollback(self, length: int) -> None:
        if not 0 <= length <= len(self._text):
            raise ValueError(f"cannot roll back from {len(self._text)} to {length} positions")
        del self._text[length:]

    def _compute(self, known: int) -> None:
        """Run one pass over the text from index ``known``, or from earlier if the cache ends before that."""
        start = min(_agreement(self._held, self._text), known)
        self._runtime.rollback(start)
        with threads(self._threads):
            logits = self._runtime.forward(self._tensor(self._text[start:]))
        self.passes += 1
        self._held = list(self._text)
        for end, row in enumerate(logits, start + 1):
            self._rows.setdefault(tuple(self._text[:end]), row.clone())

    def _tensor(self, ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit torch to ``count`` CPU threads for operations in this Python thread.

    One CPU thread is best for many operations on single rows: with two, synchronization takes longer than the
    work, and on a busy machine a hundred times as long. ``torch.set_num_threads`` would also affect Python
    threads that start in the meantime, such as one that loads and measures other models.
    """
    with _pools().limit(limits=count, user_api="openmp"):
        yield


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


def _agreement(left: Sequence[int], right: Sequence[int]) -> int:
    reach = min(len(left), len(right))
    return next((index for index in range(reach) if left[index] != right[index]), reach)
