"""One model and its key/value cache, behind ``forward(ids)`` and ``rollback(length)``."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.models.execution import CausalLM, execution_of, readable_positions
from specdemo.models.fused_execution import FusedExecution

CAPACITY_STEP = 256
"""Cache lengths are multiples of this, so that few different shapes are in use."""
MAX_ROWS = 16
"""Rows of the longest padded pass; every cache has as many positions after its text to write them to."""


class Runtime(Protocol):
    """The interface of a model to the engine."""

    @property
    def length(self) -> int:
        """Number of positions in the cache."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of the ids and of the logits."""
        ...

    @property
    def id_map(self) -> Tensor | None:
        """Target id of each output row, shape [H]; None if they are the target's own."""
        ...

    @property
    def max_context(self) -> int:
        """Maximum number of positions that the model can read."""
        ...

    def begin(self, capacity: int) -> None:
        """Empty the cache and make room for ``capacity`` positions."""
        ...

    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] and return the logits after each of them, shape [n, V]."""
        ...

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] without computing logits."""
        ...

    def rollback(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        ...


class ModelRuntime:
    """A causal language model over a static cache.

    A target pass over k + 1 positions must give, bit for bit, the logits of k + 1 single passes, or greedy
    speculation would sometimes leave the baseline. Two things change a row's bits on CPU, and both are
    removed:

    * Attention over a growing key length, or over few query rows. The cache has one static length for the
      whole run (a rollback moves a cursor and copies nothing), and ``attention.grouped_attention`` folds the
      query heads of a key/value head into rows.
    * Matrix products may use different kernels for different numbers of rows. Every pass is padded to one
      of the batch-invariant row counts of ``batch_invariance.find_batch_invariant_rows``.

    Args:
        model: On its device: a ``FusedLlama``, or a model of transformers loaded with
            ``attn_implementation=attention.ATTENTION``.
        rows: Number of rows of a pass over 1, 2, … tokens; longer passes are not padded.
        id_map: Target id of each output row, shape [H], for a draft whose head is reduced.
        taps: Indices of layers whose output is kept for a feature draft.

    Attributes:
        execution: The way its passes are run.
        cache: Opened by ``execution``, of ``capacity`` positions; None before :meth:`begin`.
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
        # Padding rows need positions of their own after the text.
        slack = max((padded - count for count, padded in enumerate(self.rows, 1)), default=0)
        self.max_context = readable_positions(model.config) - slack
        self.length = 0
        self.taps = tuple(taps)
        self._features: Tensor | None = None
        self.execution = execution_of(model)
        self.cache: Any = None
        self.capacity = 0

    def prepare(self, capacity: int, most: int, unpadded: bool = False) -> None:
        """Do before the clocks start what passes over up to ``most`` tokens would do on first use.

        Args:
            capacity: Cache length of the run.
            most: Tokens of the longest pass.
            unpadded: Whether the run makes passes without padding (``run_unpadded``) as well.
        """
        self.begin(capacity)
        counts = range(1, most + 1)
        sizes = {*map(self.padded, counts), *(counts if unpadded else ())}
        with torch.inference_mode():
            self.execution.prepare(self.cache, sorted(sizes), self.taps)

    def padded(self, count: int) -> int:
        """Return the number of rows of a pass over ``count`` tokens."""
        return self.rows[count - 1] if count <= len(self.rows) else count

    @torch.inference_mode()
    def begin(self, capacity: int) -> None:
        """Empty the cache; the buffers are kept until another capacity is needed."""
        self.length = 0
        if capacity == self.capacity:
            return
        self.cache, self.capacity = self.execution.open(capacity), capacity
        if self.taps:
            width = len(self.taps) * self.model.config.get_text_config().hidden_size
            self._features = next(self.model.parameters()).new_empty(capacity, width)

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] and return logits [n, V], without those of padding rows."""
        count = len(ids)
        rows = self.padded(count)
        logits = self._run(F.pad(ids, (0, rows - count)) if rows > count else ids, rows)
        self.length += count
        return logits[:count]

    @torch.inference_mode()
    def run_unpadded(self, ids: Tensor) -> None:
        """Run the pass over ``ids`` [n] that a decoder without padding would run, and discard its results.

        The cache positions it writes are overwritten by the next ``forward``.
        """
        self._run(ids, len(ids))

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] to the cache without computing logits."""
        if len(ids):
            self._run(ids, 0)
            self.length += len(ids)

    def pass_at(self, ids: Tensor, places: Tensor) -> Tensor:
        """Run a pass at positions given as a tensor, so that it can be recorded; the cursor stays.

        Args:
            ids: Token ids, shape [n].
            places: Their positions, shape [n].

        Returns:
            Logits [n, V].
        """
        assert isinstance(self.execution, FusedExecution), "only Llama-type models can be recorded"
        return self.execution.model(ids, places, self.cache, len(ids))[0]

    def rollback(self, length: int) -> None:
        """Move the cursor back to ``length``; the next pass overwrites the positions after it."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} positions")
        self.length = length

    def features(self, start: int, end: int) -> Tensor:
        """Return the tapped layers' outputs at positions ``start`` to ``end``, [end - start, taps · d]."""
        assert self._features is not None, "this runtime has no taps"
        return self._features[start:end]

    def _run(self, ids: Tensor, rows: int) -> Tensor:
        logits, states = self.execution.run(ids, self.length, self.cache, rows, self.taps)
        if states is not None:
            self.features(self.length, self.length + len(ids)).copy_(states)
        return logits


class WholeVocabularyRuntime(ModelRuntime):
    """A draft with a reduced head as a decoder of its own, with logits for all of the target's ids.

    Ids outside the head get −inf, so that no reader of the logits needs an id map.

    Args:
        model: The draft.
        ids: Target id of each of its output rows, shape [H].
        vocab: Number of ids of the target, V.
    """

    def __init__(self, model: CausalLM, ids: Tensor, vocab: int):
        super().__init__(model)
        self._ids, self._vocab = ids, vocab

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] and return logits [n, V]."""
        scores = super().forward(ids)
        whole = scores.new_full((len(scores), self._vocab), float("-inf"))
        return whole.index_copy_(1, self._ids, scores)


class ExitRuntime(ModelRuntime):
    """The first ``depth`` layers of a host runtime's model with its head, over the host's own cache.

    The host's next pass overwrites the entries that it appends.
    """

    def __init__(self, host: ModelRuntime, depth: int):
        super().__init__(host.model)
        self._host = host
        self.execution = host.execution.first(depth)

    def begin(self, capacity: int) -> None:
        """Use the host's current cache."""
        self.cache = self._host.cache
        self.follow()

    def follow(self) -> None:
        """Move the cursor to the host's."""
        self.length = self._host.length


def capacity_for(positions: int) -> int:
    """Return the cache length for ``positions`` tokens: the next multiple of ``CAPACITY_STEP``."""
    return -(-positions // CAPACITY_STEP) * CAPACITY_STEP


class Stopwatch:
    """Splits a round into laps. On CUDA it records events, so that timing does not synchronize."""

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
        """Start the next lap, and count the time since the last one in no lap."""
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
