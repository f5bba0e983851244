"""Drafting from a table of what usually follows in the target's own text. No model.

N-gram models as drafts go back to Leviathan et al. 2023, section 4.1. A table of the *target's* own text is
right far more often than one of somebody else's.
"""

from collections.abc import Iterator, Sequence

import torch

from specdemo.drafters.order import Order
from specdemo.engine.draft import Draft
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import guessed_draft
from specdemo.engine.rules import PickingRule
from specdemo.models.learning_table import LearningTable
from specdemo.models.n_gram import LONGEST, Guess, NGramTable
from specdemo.records.drafter_kinds import N_GRAM


class NGramDrafter:
    """Puts forward what followed most often, token after token.

    Args:
        least: Probability below which nothing is put forward.
    """

    def __init__(self, table: NGramTable | LearningTable, device: torch.device, least: float = 0.0):
        self._table = table
        self._device = device
        self._least = least

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Nothing to take in: the table knows no text in particular."""

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """A chain of guesses, as long as the table has some and ``length`` wants them."""
        return guessed_draft(self._guesses(text), length, self._device, N_GRAM)

    def observe(self, accepted: int) -> None:
        """The table stays as it is."""

    def _guesses(self, text: Sequence[int]) -> Iterator[Guess]:
        context = list(text[-LONGEST:])
        while (guess := self._table.after(context)) is not None and guess.chance >= self._least:
            yield guess
            context = [*context[1 - LONGEST :], guess.token]


def make(order: Order) -> NGramDrafter:
    """From the pair's own table."""
    return NGramDrafter(order.parts.n_gram, order.target.device)
