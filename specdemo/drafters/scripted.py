"""A given text as a draft: a visitor who guesses, or a lesson that shows a case."""

from collections.abc import Sequence

import torch

from specdemo.drafters.order import Order
from specdemo.engine.draft import Draft
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import copied_draft
from specdemo.engine.rules import PickingRule
from specdemo.records.drafter_kinds import SCRIPTED


class ScriptedDrafter:
    """Drafts a given token list, position by position: for tests, and for people who play the draft."""

    def __init__(self, script: Sequence[int], device: torch.device):
        self._script = list(script)
        self._device = device
        self._prompt_length = 0

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Line the script up with the end of the prompt."""
        self._prompt_length = len(prompt_ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """The script's tokens at this position, as far as it reaches."""
        start = len(text) - self._prompt_length
        return copied_draft(self._script[start:], 3, length, self._device, SCRIPTED)

    def observe(self, accepted: int) -> None:
        """The script does not change."""


def make(order: Order) -> ScriptedDrafter:
    """The run's script."""
    return ScriptedDrafter(order.parts.script_ids(order.config.script), order.target.device)
