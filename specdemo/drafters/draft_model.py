"""The drafter that runs a small language model. On GPUs, its steps are replayed from a CUDA graph."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specdemo.drafters.factory import DrafterSpec
from specdemo.drafters.recorded_steps import launch_steps
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, empty_draft, write_draft, write_most_likely
from specdemo.models.fused_execution import GraphedExecution, Recorder
from specdemo.models.runtime import MAX_ROWS, ModelRuntime, Runtime
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_K

DRAFT_ROWS = 2  # maximum number of tokens in a draft pass after the prompt: a draft token, the target's last


class RecordedDraftLoop:
    """A recorded draft step for one run: a pass, and the choice of the next token.

    The step is replayed k times. Each replay takes its input token from the one before, so the CPU does not
    start kernels or read results in between. All uniform random numbers of a draft are drawn before the first
    replay. The number of steps must be known before the first one, so ``k = auto`` needs a ``PlannedLength``.
    If the step cannot be recorded, ``record`` raises ``RuntimeError``.
    """

    def __init__(self, runtime: ModelRuntime, rule: PickingRule, record: Recorder):
        self._runtime = runtime
        self._rule = rule
        self._map = runtime.id_map
        device = runtime.device
        uniforms = rule.uniforms(0)
        self._uniforms = None if uniforms is None else uniforms.new_zeros(MAX_K)
        self._id, self._position, self._step = (
            torch.zeros(1, dtype=torch.long, device=device) for _ in range(3)
        )
        self._ids = torch.zeros(MAX_K, dtype=torch.long, device=device)
        self._rows = torch.zeros(MAX_K, dtype=torch.long, device=device)
        self._logits = torch.empty(0)  # allocated in the first pass, which shows the width
        self._probs: Tensor | None = None
        with torch.inference_mode():
            self._replay = record(self._one_step)

    @torch.inference_mode()
    def draft(self, missing: Tensor, length: DraftLength) -> Draft:
        """Return a draft; ``missing`` has the ids of the text that are not in the cache yet, one or more."""
        runtime, count = self._runtime, 0
        while length.wants_step() and length.wants_token(torch.empty(0)):
            count += 1
        if count == 0:
            return empty_draft(runtime.device)
        if len(missing) > 1:
            runtime.forward(missing[:-1])
        self._id.copy_(missing[-1:])
        self._position.fill_(runtime.length)
        self._step.zero_()
        if self._uniforms is not None and (uniforms := self._rule.uniforms(count)) is not None:
            self._uniforms[:count] = uniforms
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
        """Run a pass, choose the next input token, and write the results to row ``self._step``."""
        logits = self._runtime.pass_at(self._id, self._position)
        uniform = None if self._uniforms is None else self._uniforms.index_select(0, self._step)
        pick = self._rule.pick(logits[-1], self._position + 1, uniform, self._map)
        chosen = pick.row if self._map is None else self._map[pick.row]
        if not len(self._logits):  # true only in the first warm-up pass
            self._logits = logits.new_zeros(MAX_K, logits.shape[-1])
            self._probs = None if pick.probs is None else pick.probs.new_zeros(MAX_K, len(pick.probs))
        self._logits.index_copy_(0, self._step, logits)
        if self._probs is not None and pick.probs is not None:
            self._probs.index_copy_(0, self._step, pick.probs[None])
        self._ids.index_copy_(0, self._step, chosen)
        self._rows.index_copy_(0, self._step, pick.row)
        self._id.copy_(chosen)
        self._position.add_(1)
        # Warm-up passes must not run past the last row.
        self._step.add_(1).clamp_max_(MAX_K - 1)
        return logits, None


class DraftModelDrafter(Drafter):
    """Drafts token by token with a small language model that has its own cache."""

    def __init__(self, runtime: Runtime, loop: RecordedDraftLoop | None = None):
        self._runtime = runtime
        self._loop = loop
        self._base = 0

    def begin(self, capacity: int) -> None:
        self._runtime.begin(capacity)

    def prefill(self, ids: Sequence[int]) -> None:
        self._runtime.prefill(torch.tensor(ids, dtype=torch.long, device=self._runtime.device))

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        runtime = self._runtime
        self._base = len(text)
        # The cache lacks the target's last token. If the whole last draft was accepted, the cache also lacks
        # that draft's last token, which was never an input. The first pass processes both.
        missing = torch.tensor(text[runtime.length :], dtype=torch.long, device=runtime.device)
        if self._loop is not None:
            return self._loop.draft(missing, length)

        if rule.picks_best and isinstance(runtime, ModelRuntime) and runtime.is_compiled:
            run = partial(runtime.write, missing)
            return write_most_likely(run, length, runtime.id_map, runtime.device, DRAFT_MODEL)

        def step(previous: Tensor | None) -> Tensor:
            return runtime.forward(missing if previous is None else previous)[-1]

        return write_draft(step, len(text), length, rule, runtime.id_map, runtime.device, DRAFT_MODEL)

    def observe(self, accepted: int) -> None:
        self._runtime.rollback(min(self._runtime.length, self._base + accepted))

    def recorded(self) -> "DraftModelDrafter | None":
        runtime = self._runtime
        fit = isinstance(runtime, ModelRuntime) and getattr(runtime.execution, "records_rounds", False)
        return self if fit else None

    def place(self, text: Sequence[int], k: int) -> bool:
        runtime: Any = self._runtime
        stack = runtime.execution.stack
        self._base = len(text)
        if len(text) - runtime.length > MAX_ROWS:  # after many rounds without a draft
            runtime.prefill(torch.tensor(text[runtime.length : -1], device=runtime.device))
        missing = text[runtime.length :]
        stack.place(runtime.cache, runtime.length, missing)
        runtime.length += len(missing) + k - 1
        return True

    def launch(self, k: int, rule: PickingRule, position: Tensor) -> Draft:
        runtime: Any = self._runtime
        stack, id_map = runtime.execution.stack, runtime.id_map
        return launch_steps(stack, runtime.cache, k, rule, position, id_map, DRAFT_MODEL)


def make(spec: DrafterSpec) -> DraftModelDrafter:
    assert spec.draft is not None
    runtime = ModelRuntime(spec.draft, id_map=spec.id_map)
    runtime.prepare(spec.target.capacity, DRAFT_ROWS)
    if spec.wrap_draft is not None:
        return DraftModelDrafter(spec.wrap_draft(runtime))
    execution = runtime.execution
    if not isinstance(execution, GraphedExecution) or execution.failure is not None:
        return DraftModelDrafter(runtime)
    try:
        return DraftModelDrafter(runtime, RecordedDraftLoop(runtime, spec.rule, execution.record))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # torch's error if the step cannot be recorded; its passes are still recorded
        return DraftModelDrafter(runtime)
