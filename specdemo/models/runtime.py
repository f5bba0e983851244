"""One model and its key/value cache, behind ``forward(ids)`` and ``rollback(length)``.

Same tokens by construction: a target pass over k+1 positions must give, bit for bit, the logits
that k+1 single passes give, or greedy speculation would now and then leave the baseline. Two things
change a row's bits on CPU and both are removed here:

* attention over a growing key length, or over few query rows. The cache is therefore one static
  padded length for the whole run (rollback moves a cursor, it copies nothing), and
  ``attention.grouped_attention`` folds the query heads of a key/value head into rows;
* matrix products of one number of rows may take another kernel than those of another. Every pass is
  padded to one of the *good* numbers of rows, which ``calibrate.find_good_rows`` finds.

This module knows nothing of drafting, sampling or text.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.models.cuda_graphs import GraphedExecution
from specdemo.models.execution import CausalLM, execution_of, readable_positions

CAPACITY_STEP = 256
"""Cache lengths are multiples of this, so that few distinct shapes are ever in use."""
MOST_ROWS = 16
"""Rows of the longest padded pass; every cache has as many positions behind its text to write them to."""


class Runtime(Protocol):
    """What the engine needs of a model."""

    @property
    def length(self) -> int:
        """Positions held in the cache."""
        ...

    @property
    def device(self) -> torch.device:
        """Where ids are read and logits given."""
        ...

    @property
    def id_map(self) -> Tensor | None:
        """Target id of each output row, shape [H]; None where they are the target's own."""
        ...

    @property
    def max_context(self) -> int:
        """Most positions that it can read."""
        ...

    def begin(self, capacity: int) -> None:
        """Empty the cache and make room for ``capacity`` positions."""
        ...

    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] and return the logits after each, shape [n, V]."""
        ...

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] without computing logits."""
        ...

    def rollback(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        ...


class ModelRuntime:
    """A causal language model run over a static cache.

    Args:
        model: On its device: a ``FusedLlama``, or any model of transformers loaded with
            ``attn_implementation=attention.ATTENTION``.
        rows: How many rows a pass over 1, 2, … tokens is given (see the module docstring); passes over
            more tokens than there are entries are not padded.
        id_map: Target id of each output row, shape [H], for a draft whose head is reduced.
        taps: Indices of layers whose output is kept for a draft to read.

    Attributes:
        execution: How its passes are run.
        cache: What ``execution`` opened, of ``capacity`` positions; None before :meth:`begin`.
    """

    def __init__(
        self,
        model: CausalLM,
        rows: Sequence[int] = (),
        id_map: Tensor | None = None,
        taps: Sequence[int] = (),
    ):
        self.model = model
        self.rows = tuple(rows)
        self.id_map = id_map
        self.device = next(model.parameters()).device
        # Rows added as padding need positions of their own behind the text.
        slack = max((padded - count for count, padded in enumerate(self.rows, 1)), default=0)
        self.max_context = readable_positions(model.config) - slack
        self.length = 0
        self.taps = tuple(taps)
        self._features: Tensor | None = None
        self.execution = execution_of(model)
        self.cache: Any = None
        self.capacity = 0

    def prepare(self, capacity: int, most: int, unpadded: bool = False) -> None:
        """Do, before any clock runs, what passes over up to ``most`` tokens would do on first use.

        Args:
            unpadded: Whether passes without padding (``run_unpadded``) are made as well.
        """
        self.begin(capacity)
        counts = range(1, most + 1)
        sizes = {*map(self.padded, counts), *(counts if unpadded else ())}
        with torch.inference_mode():
            self.execution.prepare(self.cache, sorted(sizes), self.taps)

    def padded(self, count: int) -> int:
        """How many rows a pass over ``count`` tokens has."""
        return self.rows[count - 1] if count <= len(self.rows) else count

    @torch.inference_mode()
    def begin(self, capacity: int) -> None:
        """Empty the cache; buffers are kept until another capacity is asked for."""
        self.length = 0
        if capacity == self.capacity:
            return
        self.cache, self.capacity = self.execution.open(capacity), capacity
        if self.taps:
            width = len(self.taps) * self.model.config.get_text_config().hidden_size
            self._features = next(self.model.parameters()).new_empty(capacity, width)

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n], return logits [n, V]. Rows added as padding are not kept."""
        count = len(ids)
        rows = self.padded(count)
        logits = self._run(F.pad(ids, (0, rows - count)) if rows > count else ids, rows)
        self.length += count
        return logits[:count]

    @torch.inference_mode()
    def run_unpadded(self, ids: Tensor) -> None:
        """Run the pass over ``ids`` [n] as a decoder without padding would, and keep nothing of it.

        It writes the cache positions that the next ``forward`` overwrites.
        """
        self._run(ids, len(ids))

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] for the cache's sake."""
        if len(ids):
            self._run(ids, 0)
            self.length += len(ids)

    def pass_at(self, ids: Tensor, places: Tensor) -> Tensor:
        """A pass over ``ids`` [n] at positions given as a tensor [n], for a device to record: logits [n, V].

        Only of models that are recorded; the cursor stays where it is.
        """
        assert isinstance(self.execution, GraphedExecution), "this model is not recorded"
        return self.execution.pass_at(ids, places, self.cache)

    def rollback(self, length: int) -> None:
        """Move the cursor back; the positions behind it are overwritten by the next pass."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} positions")
        self.length = length

    def features(self, start: int, end: int) -> Tensor:
        """Hidden states of positions ``start`` to ``end``, layers side by side: [end - start, taps · d]."""
        assert self._features is not None, "this runtime has no taps"
        return self._features[start:end]

    def _run(self, ids: Tensor, rows: int) -> Tensor:
        logits, states = self.execution.run(ids, self.length, self.cache, rows, self.taps)
        if states is not None:
            self.features(self.length, self.length + len(ids)).copy_(states)
        return logits


class WholeVocabularyRuntime(ModelRuntime):
    """A draft with a reduced head as a decoder of its own: it scores every id of the target's.

    What it cannot say gets −inf, so that whatever reads the scores needs no id map.

    Args:
        model: The draft.
        ids: Target id of each of its output rows, shape [H].
        vocab: How many ids the target has, V.
    """

    def __init__(self, model: CausalLM, ids: Tensor, vocab: int):
        super().__init__(model)
        self._ids, self._vocab = ids, vocab

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n], return logits [n, V]."""
        scores = super().forward(ids)
        whole = scores.new_full((len(scores), self._vocab), float("-inf"))
        return whole.index_copy_(1, self._ids, scores)


class ExitRuntime(ModelRuntime):
    """The first layers of another runtime's model with its head, over that runtime's own cache.

    What it appends is a draft's, and the host's next pass writes it again.
    """

    def __init__(self, host: ModelRuntime, depth: int):
        super().__init__(host.model)
        self._host = host
        self.execution = host.execution.first(depth)

    def begin(self, capacity: int) -> None:
        """Use the host's cache as it is now."""
        self.cache = self._host.cache
        self.follow()

    def follow(self) -> None:
        """Stand where the host stands."""
        self.length = self._host.length


def capacity_for(positions: int) -> int:
    """The cache length for a run of ``positions`` tokens: the next multiple of ``CAPACITY_STEP``."""
    return -(-positions // CAPACITY_STEP) * CAPACITY_STEP


class Stopwatch:
    """Splits a round into laps. On CUDA it records events, so that timing synchronises nothing."""

    def __init__(self, device: torch.device):
        self._device = device
        self._cuda = device.type == "cuda"
        self._laps: list[tuple[Any, Any]] = []  # start and end: events on CUDA, else seconds
        self._start = self._now()

    def lap(self) -> None:
        """End one lap and start the next."""
        end = self._now()
        self._laps.append((self._start, end))
        self._start = end

    def skip(self) -> None:
        """Count the time since the last lap in no lap, and start the next one."""
        self._start = self._now()

    def laps(self) -> list[float]:
        """Return the seconds of each finished lap; call it after the round's transfer."""
        if self._cuda:
            self._laps[-1][1].synchronize()
            return [start.elapsed_time(end) / 1000 for start, end in self._laps]
        return [end - start for start, end in self._laps]

    def _now(self):
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
