"""The drafter that looks up the most likely next tokens in a table of n-grams."""

from collections.abc import Iterator, Sequence

import torch

from specdemo.drafters.factory import DrafterSpec
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, table_draft
from specdemo.models.n_gram import LONGEST, NextToken, NGramTable
from specdemo.records.drafter_kinds import N_GRAM


class NGramDrafter(Drafter):
    """Drafts the table's next token for the text, then the next token after that, and so on.

    Leviathan et al. 2023, section 4.1, already draft with n-gram models. A table counted in the *target's*
    own text is right far more often than a table counted in text by other authors.
    """

    def __init__(self, table: NGramTable, device: torch.device):
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
    assert spec.n_gram is not None
    return NGramDrafter(spec.n_gram, spec.target.device)
