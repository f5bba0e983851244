"""The drafter that proposes a given text, for tests, lessons and visitors who play the draft model."""

from collections.abc import Sequence

import torch

from specdemo.drafters.factory import DrafterSpec
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, copied_draft
from specdemo.records.drafter_kinds import SCRIPTED


class ScriptedDrafter(Drafter):
    """Drafts from a script: a list of ids. Id i is proposed as output token i."""

    def __init__(self, script: Sequence[int], device: torch.device):
        self._script = list(script)
        self._device = device
        self._prompt_length: int | None = None

    def begin(self, capacity: int) -> None:
        self._prompt_length = None

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        if self._prompt_length is None:
            self._prompt_length = len(text)
        start = len(text) - self._prompt_length
        return copied_draft(self._script[start:], 3, length, self._device, SCRIPTED)


def make(spec: DrafterSpec) -> ScriptedDrafter:
    return ScriptedDrafter(spec.script, spec.target.device)
