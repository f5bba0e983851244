"""A table of n-grams as the drafter: the tokens that usually follow in the target's own text."""

from collections.abc import Iterator, Sequence

import torch

from specdemo.drafters.factory import DrafterSpec
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, table_draft
from specdemo.models.n_gram import LONGEST, LearningTable, NextToken, NGramTable
from specdemo.records.drafter_kinds import N_GRAM


class NGramDrafter(Drafter):
    """Proposes the token that most often followed, then the one after that, and so on.

    N-gram models as drafts go back to Leviathan et al. 2023, section 4.1. A table of the *target's* own text
    is right far more often than one of other people's.

    Args:
        table: Next tokens by context.
        device: Device of the target.
    """

    def __init__(self, table: NGramTable | LearningTable, device: torch.device):
        self._table = table
        self._device = device

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        return table_draft(self._next_tokens(text), length, self._device, N_GRAM)

    def _next_tokens(self, text: Sequence[int]) -> Iterator[NextToken]:
        context = list(text[-LONGEST:])
        while (found := self._table.after(context)) is not None:
            yield found
            context = [*context[1 - LONGEST :], found.token]


def make(spec: DrafterSpec) -> NGramDrafter:
    """Return a drafter with the pair's own table."""
    assert spec.n_gram is not None
    return NGramDrafter(spec.n_gram, spec.target.device)
