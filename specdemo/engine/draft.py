"""What a drafter hands over: the tokens of one round, and where they came from."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pick:
    """One token chosen by a draft: its row in the draft's own vocabulary, and what it came from.

    Attributes:
        row: Index into the draft's vocabulary, shape [1].
        probs: The draft distribution q the token was drawn from, shape [H]; None where the rule
            treats the choice as certain (greedy).
    """

    row: Tensor
    probs: Tensor | None


@dataclass(frozen=True)
class Draft:
    """Tokens proposed for one round.

    Attributes:
        ids: Target ids, int64, shape [k]; k may be 0.
        probs: q over the draft's vocabulary, shape [k, H]; None for point masses (q = 1).
        rows: Index of each token in the draft's vocabulary, shape [k]; None for point masses.
        logits: Raw draft logits, shape [k, H], kept to be shown; None where no model drafted.
        id_map: Target id of each draft row, shape [H]; None where both vocabularies are the same.
        steps: Passes of a draft made for it.
        by: Kind of the drafter that wrote it.
    """

    ids: Tensor
    probs: Tensor | None = None
    rows: Tensor | None = None
    logits: Tensor | None = None
    id_map: Tensor | None = None
    steps: int = 0
    by: str = ""

    def __len__(self) -> int:
        return len(self.ids)


def empty_draft(device: torch.device, steps: int = 0) -> Draft:
    """A draft of no tokens."""
    return Draft(torch.empty(0, dtype=torch.long, device=device), steps=steps)
