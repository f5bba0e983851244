"""The drafter that runs the target's own first layers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.drafters.factory import DrafterSpec
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, write_draft
from specdemo.models.runtime import ExitRuntime
from specdemo.records.drafter_kinds import EARLY_EXIT

EXIT_SHARE = 0.2  # share of the target's layers that the drafter runs


class EarlyExitDrafter(Drafter):
    """Drafts with the target's first layers and head, in the target's cache.

    Verification overwrites the cache entries that drafting wrote. This is self-speculation (Elhoushi et al.
    2024, "LayerSkip"; Zhang et al. 2024, "Draft & Verify").
    """

    def __init__(self, runtime: ExitRuntime):
        self._runtime = runtime

    def begin(self, capacity: int) -> None:
        self._runtime.begin(capacity)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        runtime = self._runtime
        runtime.follow()
        last = torch.tensor(text[-1:], dtype=torch.long, device=runtime.device)

        def step(previous: Tensor | None) -> Tensor:
            return runtime.forward(last if previous is None else previous)[-1]

        return write_draft(step, len(text), length, rule, None, runtime.device, EARLY_EXIT)


def make(spec: DrafterSpec) -> EarlyExitDrafter:
    layers = spec.target.model.config.get_text_config().num_hidden_layers
    runtime = ExitRuntime(spec.target, max(1, round(EXIT_SHARE * layers)))
    runtime.prepare(spec.target.capacity)
    return EarlyExitDrafter(runtime)
