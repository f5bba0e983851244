"""A draft model whose step is recorded together with the choice of its token.

Replayed k times in a row, each step reads the token the one before it chose: between them nothing is
started by hand and nothing is read back. Uniform numbers are drawn from the run's own generator before
the first step and read inside. The number of steps must be known before the round, so ``auto`` means
``draft_length.PlannedLength`` here.
"""

import torch
from torch import Tensor

from specdemo.engine.draft import Draft, empty_draft
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.rules import PickingRule
from specdemo.models.cuda_graphs import Recorder
from specdemo.models.runtime import ModelRuntime
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_K


class RecordedDraftLoop:
    """The draft steps of one run.

    Args:
        runtime: A prepared runtime of a recorded model; its cache is the one that is written.
        rule: The run's rule, which is recorded with its settings.
        record: How to record.

    Raises:
        RuntimeError: The step cannot be recorded.
    """

    def __init__(self, runtime: ModelRuntime, rule: PickingRule, record: Recorder):
        self._runtime = runtime
        self._rule = rule
        self._map = runtime.id_map
        device = runtime.device
        chances = rule.chances(0)
        self._chances = None if chances is None else chances.new_zeros(MAX_K)
        self._id, self._place, self._step = (
            torch.zeros(1, dtype=torch.long, device=device) for _ in range(3)
        )
        self._ids = torch.zeros(MAX_K, dtype=torch.long, device=device)
        self._rows = torch.zeros(MAX_K, dtype=torch.long, device=device)
        self._logits = torch.empty(0)  # of no rows until a pass has shown how wide they are
        self._probs: Tensor | None = None
        with torch.inference_mode():
            self._replay = record(self._one_step)

    @torch.inference_mode()
    def draft(self, missing: Tensor, length: DraftLength) -> Draft:
        """Take the tokens the cache lacks, at least one, and draft as many as ``length`` wants."""
        runtime, count = self._runtime, _planned(length)
        if count == 0:
            return empty_draft(runtime.device)
        if len(missing) > 1:
            runtime.forward(missing[:-1])
        self._id.copy_(missing[-1:])
        self._place.fill_(runtime.length)
        self._step.zero_()
        if self._chances is not None and (chances := self._rule.chances(count)) is not None:
            self._chances[:count] = chances
        for _ in range(count):
            self._replay()
        runtime.length += count
        probs = self._probs
        return Draft(
            ids=self._ids[:count].clone(),
            probs=None if probs is None else probs[:count].clone(),
            rows=None if probs is None else self._rows[:count].clone(),
            logits=self._logits[:count].clone(),
            id_map=self._map,
            steps=count,
            by=DRAFT_MODEL,
        )

    def _one_step(self) -> tuple[Tensor, None]:
        """Pass, choice, and the choice as the next pass's input; writes row ``step`` of every result."""
        logits = self._runtime.pass_at(self._id, self._place)
        chance = None if self._chances is None else self._chances.index_select(0, self._step)
        pick = self._rule.pick(logits[-1], self._place + 1, chance, self._map)
        chosen = pick.row if self._map is None else self._map[pick.row]
        if not len(self._logits):  # at the first of the passes before the recording
            self._logits = logits.new_zeros(MAX_K, logits.shape[-1])
            self._probs = None if pick.probs is None else pick.probs.new_zeros(MAX_K, len(pick.probs))
        self._logits.index_copy_(0, self._step, logits)
        if self._probs is not None and pick.probs is not None:
            self._probs.index_copy_(0, self._step, pick.probs[None])
        self._ids.index_copy_(0, self._step, chosen)
        self._rows.index_copy_(0, self._step, pick.row)
        self._id.copy_(chosen)
        self._place.add_(1)
        # Passes before the recording must not run past the last row.
        self._step.add_(1).clamp_max_(MAX_K - 1)
        return logits, None


def recorded_loop(runtime: ModelRuntime, rule: PickingRule) -> RecordedDraftLoop | None:
    """The draft steps of one run recorded, where that is possible."""
    recorded = getattr(runtime.model, "recorded", None)
    if recorded is None or recorded.failure is not None:
        return None
    try:
        return RecordedDraftLoop(runtime, rule, recorded.record)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # what torch raises for whatever cannot be recorded; the passes still are
        return None


def _planned(length: DraftLength) -> int:
    """How many tokens a length that looks at nothing wants."""
    nothing, count = torch.empty(0), 0
    while length.wants_step() and length.wants_token(nothing):
        count += 1
    return count
