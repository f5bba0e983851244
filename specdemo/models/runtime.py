"""One model and its key/value cache, behind ``forward(ids)`` and ``rollback(length)``."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.models.execution import CausalLM, execution_of, readable_positions

CAPACITY_STEP = 256  # cache lengths are multiples of this, so that runs share few different shapes
MAX_ROWS = 16  # maximum number of rows of a padded pass; every cache has room for them after its text


class Runtime(Protocol):
    """The interface through which the engine uses a model."""

    @property
    def length(self) -> int: ...  # number of positions in the cache

    @property
    def device(self) -> torch.device: ...  # of the ids and of the logits

    @property
    def id_map(self) -> Tensor | None:
        """Target id of each logit, shape [H]; None if the model scores all of the target's ids."""
        ...

    @property
    def max_context(self) -> int: ...  # maximum number of positions that the model can read

    def begin(self, capacity: int) -> None:
        """Empty the cache and make room for ``capacity`` positions."""
        ...

    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] to the cache and return the logits after each of them, shape [n, V]."""
        ...

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] without computing logits."""
        ...

    def rollback(self, length: int) -> None:
        """Remove the positions from ``length`` on."""
        ...


class ModelRuntime:
    """A causal language model and its cache of fixed length.

    A target pass over k + 1 tokens must give bitwise the same logits as k + 1 single-token passes. Otherwise
    greedy speculative decoding could diverge from the baseline. Compiled passes do so by construction. In
    torch's passes, two things change the bits of a row without countermeasures:

    * Attention rounds differently if the number of keys grows or if there are few query rows. Therefore the
      cache has the same length for the whole run (a rollback only moves a cursor), and
      ``attention.grouped_attention`` computes the query heads of a key/value head as rows of one head.
    * Matrix products may use different kernels for different numbers of rows. Therefore every pass is padded
      to a row count from ``batch_invariance.find_batch_invariant_rows``.

    Args:
        model: A model of transformers must be loaded with ``attn_implementation=attention.ATTENTION``.
        rows: Numbers of rows to which passes over 1, 2, … tokens are padded. Longer passes are not padded.
        id_map: Target id of each logit, shape [H], for a draft with a reduced head.
        taps: Indices of layers whose outputs are kept for a feature draft.
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
        self.cache: Any = None  # from execution.open, with ``capacity`` positions; None before begin
        self.capacity = 0

    def prepare(self, capacity: int) -> None:
        """Open the cache, and on a GPU record the passes, before a run's timing starts."""
        self.begin(capacity)
        record: Any = getattr(self.execution, "prepare", None)
        if record is not None:
            with torch.inference_mode():
                record(self.cache, self.taps)

    def padded(self, count: int) -> int:
        return self.rows[count - 1] if count <= len(self.rows) else count

    @torch.inference_mode()
    def begin(self, capacity: int) -> None:
        # The buffers are reused if ``capacity`` is the same as before.
        self.length = 0
        if capacity == self.capacity:
            return
        self.cache, self.capacity = self.execution.open(capacity), capacity
        if self.taps:
            width = len(self.taps) * self.model.config.get_text_config().hidden_size
            self._features = next(self.model.parameters()).new_empty(capacity, width)

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        count = len(ids)
        rows = self.padded(count)
        logits = self._run(F.pad(ids, (0, rows - count)) if rows > count else ids, rows)
        self.length += count
        return logits[:count] if rows > count else logits  # a part of the logits would have no decisions

    @property
    def is_compiled(self) -> bool:
        """Return whether passes are compiled; then :meth:`write` is possible, and logits have decisions."""
        return hasattr(self.execution, "write")

    @torch.inference_mode()
    def write(self, ids: Tensor, first: int, steps: int) -> tuple[Tensor, Tensor]:
        """Make ``steps`` steps of a draft, each over the most likely token of the step before it.

        ``first`` is the number of this draft's steps so far. If it is 0, the first step appends ``ids`` [n].
        Returns the tokens and logits of all steps of the draft, [first + steps] and [first + steps, V], with
        decisions. The next draft overwrites them.
        """
        execution: Any = self.execution
        if first == 0 and len(ids) > MAX_ROWS:  # after many rounds without a draft
            self.prefill(ids[:-1])
            ids = ids[-1:]
        written = execution.write(ids, self.length, self.cache, first, steps, self.id_map)
        self.length += steps if first else len(ids) + steps - 1
        return written

    @torch.inference_mode()
    def run_unpadded(self, ids: Tensor) -> None:
        """Run a pass without padding, to time it. The next :meth:`forward` overwrites its cache entries."""
        self._run(ids, len(ids))

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> None:
        if len(ids):
            self._run(ids, 0)
            self.length += len(ids)

    def rollback(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} positions")
        self.length = length

    def features(self, start: int, end: int) -> Tensor:
        """Return the tapped layers' outputs from ``start`` to ``end`` − 1, [end − start, taps · d]."""
        assert self._features is not None, "this runtime has no taps"
        return self._features[start:end]

    def keep_features(self, where: Tensor, states: Tensor) -> None:
        """Keep tapped outputs [n, taps · d] of the positions ``where`` [n]; can be recorded."""
        assert self._features is not None, "this runtime has no taps"
        self._features.index_copy_(0, where, states.to(self._features.dtype))

    def features_at(self, where: Tensor) -> Tensor:
        """Return the tapped outputs of the positions ``where`` [n], [n, taps · d]; can be recorded."""
        assert self._features is not None, "this runtime has no taps"
        return self._features.index_select(0, where)

    def _run(self, ids: Tensor, rows: int) -> Tensor:
        logits, states = self.execution.run(ids, self.length, self.cache, rows, self.taps)
        if states is not None:
            self.features(self.length, self.length + len(ids)).copy_(states)
        return logits


class WholeVocabularyRuntime(ModelRuntime):
    """A runtime for a draft with a reduced head that decodes alone.

    It returns logits for all ``vocab`` target ids. Those that the head does not score, because they are not
    in ``ids`` [H], get −inf.
    """

    def __init__(self, model: CausalLM, ids: Tensor, vocab: int):
        super().__init__(model)
        self._ids, self._vocab = ids, vocab

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        scores = super().forward(ids)
        whole = scores.new_full((len(scores), self._vocab), float("-inf"))
        return whole.index_copy_(1, self._ids, scores)


class ExitRuntime(ModelRuntime):
    """A runtime for the first ``depth`` layers and the head of another runtime's model, for early exit.

    It writes to the cache of that runtime, the host. The host's next pass overwrites these entries.
    """

    def __init__(self, host: ModelRuntime, depth: int):
        super().__init__(host.model)
        self._host = host
        self.execution = host.execution.first(depth)

    def begin(self, capacity: int) -> None:
        self.cache = self._host.cache
        self.follow()

    def follow(self) -> None:
        self.length = self._host.length


def capacity_for(positions: int) -> int:
    return -(-positions // CAPACITY_STEP) * CAPACITY_STEP


class Mark:
    """A moment inside a recorded launch. Each replay sets it again."""

    def __init__(self, device: torch.device):
        self._device = device
        self.seconds = 0.0
        cuda = device.type == "cuda"
        self.event = torch.cuda.Event(enable_timing=True, external=True) if cuda else None

    def set(self) -> None:
        if self.event is None:
            self.seconds = time.perf_counter()
        else:
            self.event.record(torch.cuda.current_stream(self._device))


class Stopwatch:
    """Measures the parts of a round ("laps"). On CUDA it uses events, so that the CPU need not wait."""

    def __init__(self, device: torch.device):
        self._device = device
        self._cuda = device.type == "cuda"
        self._laps: list[tuple[Any, Any]] = []  # start and end: events on CUDA, else seconds
        self._start = self._now()

    def lap(self) -> None:
        end = self._now()
        self._laps.append((self._start, end))
        self._start = end

    def lap_at(self, mark: "Mark") -> None:
        """End a lap at a moment inside a recorded launch."""
        end = mark.event or mark.seconds
        self._laps.append((self._start, end))
        self._start = end

    def skip(self) -> None:
        """Start the next lap now. The time since the end of the last lap belongs to no lap."""
        self._start = self._now()

    def laps(self) -> list[float]:
        """Return the seconds of each finished lap. On CUDA, this waits until the last lap has ended."""
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
