"""The drafter that runs a small language model."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specdemo.drafters.factory import DrafterSpec
from specdemo.drafters.recorded_steps import launch_steps
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, write_draft, write_most_likely
from specdemo.models.runtime import MAX_ROWS, ModelRuntime, Runtime
from specdemo.records.drafter_kinds import DRAFT_MODEL


class DraftModelDrafter(Drafter):
    """Drafts token by token with a small language model that has its own cache."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
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
    runtime.prepare(spec.target.capacity)
    return DraftModelDrafter(runtime if spec.wrap_draft is None else spec.wrap_draft(runtime))
