"""A model that computes the logits after a text once and looks them up ever after.

Thousands of short draws from one prompt visit the same few prefixes again and again. This stands where
any runtime stands, so that what is drawn with is the decoder itself and only its passes are spared.
Knows nothing of drafting, sampling or text; what it keeps grows with the prefixes that it sees.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from specdemo.models.runtime import Runtime


class MemoRuntime:
    """The same logits as ``runtime``, each row computed when it is first asked for.

    The model's passes run on as many threads as this was made on, whatever those around them run on.

    Args:
        runtime: The model. Nobody else may move its cursor meanwhile.

    Attributes:
        asked: Passes that were asked for.
        passes: Passes that the model made for them; the prompt's prefill is in neither.
    """

    def __init__(self, runtime: Runtime):
        self.device = runtime.device
        self.id_map = runtime.id_map
        self.max_context = runtime.max_context
        self.asked = 0
        self.passes = 0
        self._runtime = runtime
        self._capacity = 0
        self._rows: dict[tuple[int, ...], Tensor] = {}
        self._text: list[int] = []
        self._held: list[int] = []
        self._threads = torch.get_num_threads()

    @property
    def length(self) -> int:
        """Positions of the text, whether the model's own cache holds them or not."""
        return len(self._text)

    def begin(self, capacity: int) -> None:
        """Start an empty text; another capacity than before forgets every row."""
        self._text = []
        if capacity != self._capacity:
            # The bits of a pass may depend on the length of the cache it reads.
            self._runtime.begin(capacity)
            self._capacity, self._held = capacity, []
            self._rows.clear()

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n]; the model takes in what its cache lacks of the text."""
        self._text += ids.tolist()
        agreed = _agreement(self._held, self._text)
        if agreed < len(self._text):
            self._runtime.rollback(agreed)
            with threads(self._threads):
                self._runtime.prefill(self._tensor(self._text[agreed:]))
            self._held = list(self._text)

    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n], return logits [n, V], with at most one pass of the model."""
        self.asked += 1
        start = len(self._text)
        self._text += ids.tolist()
        keys = [tuple(self._text[:end]) for end in range(start + 1, len(self._text) + 1)]
        known = next((index for index, key in enumerate(keys) if key not in self._rows), None)
        if known is not None:
            self._compute(start + known)
        return torch.stack([self._rows[key] for key in keys])

    def rollback(self, length: int) -> None:
        """Forget the text from ``length`` on; its rows stay."""
        if not 0 <= length <= len(self._text):
            raise ValueError(f"cannot roll back from {len(self._text)} to {length} positions")
        del self._text[length:]

    def _compute(self, known: int) -> None:
        """One pass over the text from its first token after ``known`` or from where the cache departs."""
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
    """Give what torch computes in this thread ``count`` threads of the CPU.

    One is best for many operations on single rows: with two, waiting for each other takes longer than
    the work, and on a busy machine a hundred times as long. torch's own setting would hold for every thread
    that begins meanwhile too, such as one that loads and measures other models.
    """
    with _pools().limit(limits=count, user_api="openmp"):
        yield


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


def _agreement(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of what two sequences begin with alike."""
    reach = min(len(left), len(right))
    return next((index for index in range(reach) if left[index] != right[index]), reach)
