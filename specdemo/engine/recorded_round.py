"""A round as one launch on a GPU: the draft steps, the target's pass and the decision of the rule."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, RecordedDraft, empty_draft
from specdemo.engine.rules import VerificationRule
from specdemo.engine.verdicts import Verdict, packed
from specdemo.models.gpu.execution import GpuExecution
from specdemo.models.gpu.stack import IDS
from specdemo.models.runtime import Mark, ModelRuntime, Stopwatch


class Decision(NamedTuple):
    """The device's results of a round. The next launch overwrites them."""

    draft: Draft
    logits: Tensor  # the target's, shape [k + 1, V]
    verdict: Verdict
    results: Tensor  # :func:`verdicts.packed`, the only tensor that the engine reads


class RecordedRounds:
    """The rounds of one lane, each recorded for its number of draft tokens and started by one launch.

    The number must be known before the first draft step, so ``k = auto`` needs a ``PlannedLength``. Between
    the launch and its end nothing runs on the CPU, and nothing is read from the device. Recording takes a
    moment before each run, outside of its clocks.

    Args:
        target: A prepared runtime whose execution is a ``GpuExecution``.
        draft: The drafter's part of a round; None for a lane without drafts.
        longest: Maximum number of draft tokens in a round.
    """

    def __init__(
        self, target: ModelRuntime, rule: VerificationRule, draft: RecordedDraft | None, longest: int
    ):
        execution = target.execution
        assert isinstance(execution, GpuExecution)
        self._target, self._rule, self._draft, self._execution = target, rule, draft, execution
        self._empty = empty_draft(target.device)
        self._drafted, self._verified = Mark(target.device), Mark(target.device)
        generator = rule.generator
        before = None if generator is None else generator.get_state()
        self._replays: list[Callable[[], Decision]] = []
        try:
            with torch.inference_mode():
                for k in range(longest + 1):
                    target.rollback(0)
                    self._place([0], k)
                    if draft is not None and k:
                        draft.begin(target.capacity)
                        draft.place([0, 0], k)
                    self._replays.append(execution.record(partial(self._launch, k), generator))
        finally:
            target.rollback(0)
            if generator is not None and before is not None:
                generator.set_state(before)  # recording has drawn numbers

    def run(self, text: Sequence[int], length: DraftLength, watch: Stopwatch) -> Decision:
        k = 0
        while length.wants_step() and length.wants_token(torch.empty(0)):
            k += 1
        if k and not (self._draft and self._draft.place(text, k)):
            k = 0
        self._place(text, k)
        decision = self._replays[k]()
        watch.lap_at(self._drafted)
        watch.lap_at(self._verified)
        return decision

    def _place(self, text: Sequence[int], k: int) -> None:
        target = self._target
        self._execution.stack.place(target.cache, target.length, text[-1:], k + 1)
        target.length += k + 1

    def _launch(self, k: int) -> Decision:
        target, cache = self._target, self._target.cache
        control = cache.buffers.control
        position = control[:1].long() + 1
        # 1. Draft
        draft = self._draft.launch(k, self._rule, position) if self._draft and k else self._empty
        self._drafted.set()
        # 2. Verify
        control[IDS + 1 : IDS + 1 + k].copy_(draft.ids)
        logits = self._execution.start(cache, k + 1, target.taps)
        if target.taps:
            where = position - 1 + torch.arange(k + 1, device=target.device)
            target.keep_features(where, self._execution.tapped(cache, k + 1, target.taps))
        self._verified.set()
        # 3. Accept
        verdict = self._rule.verify(draft, logits, position)
        return Decision(draft, logits, verdict, packed(draft, verdict))
