"""A small language model that writes tokens one by one over its own cache."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specdemo.drafters.order import Order
from specdemo.drafters.recorded import recorded_loop
from specdemo.engine.draft import Draft
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import write_draft
from specdemo.engine.rules import PickingRule
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.records.drafter_kinds import DRAFT_MODEL

DRAFT_ROWS = 2
"""Most tokens a draft model takes at once after the prompt: the target's last and one of its own."""


class DraftLoop(Protocol):
    """All steps of a draft without a look in between."""

    def draft(self, missing: Tensor, length: DraftLength) -> Draft:
        """Take the tokens the cache lacks, at least one, and draft as many as ``length`` wants."""
        ...


class DraftModelDrafter:
    """A small language model that writes tokens one by one over its own cache.

    Args:
        runtime: The model.
        loop: The same model with pass and choice recorded, where the device can replay.
    """

    def __init__(self, runtime: Runtime, loop: DraftLoop | None = None):
        self._runtime = runtime
        self._loop = loop
        self._base = 0

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Process the prompt but its last token, which the first draft step takes."""
        self._runtime.begin(capacity)
        self._runtime.prefill(torch.tensor(prompt_ids[:-1], dtype=torch.long, device=self._runtime.device))

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """Draft token by token.

        The first pass takes whatever the cache lacks: the target's last token and, after a fully
        accepted draft, the last drafted one, which was never fed back.
        """
        runtime = self._runtime
        self._base = len(text)
        missing = torch.tensor(text[runtime.length :], dtype=torch.long, device=runtime.device)
        if self._loop is not None:
            return self._loop.draft(missing, length)

        def step(previous: Tensor | None) -> Tensor:
            return runtime.forward(missing if previous is None else previous)[-1]

        return write_draft(step, len(text), length, rule, runtime.id_map, runtime.device, DRAFT_MODEL)

    def observe(self, accepted: int) -> None:
        """Forget the cache entries of tokens that were thrown away."""
        self._runtime.rollback(min(self._runtime.length, self._base + accepted))


def make(order: Order) -> DraftModelDrafter:
    """The pair's draft model; where its steps can be recorded they are, unless something stands before it."""
    runtime = ModelRuntime(order.parts.draft, id_map=order.parts.id_map)
    runtime.prepare(order.target.capacity, DRAFT_ROWS)
    if order.wrap_draft is not None:
        return DraftModelDrafter(order.wrap_draft(runtime))
    return DraftModelDrafter(runtime, recorded_loop(runtime, order.rule))
