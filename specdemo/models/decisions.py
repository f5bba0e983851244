"""What a pass finds besides logits while it computes them."""

from typing import NamedTuple

from torch import Tensor

_NAME = "decisions"  # the attribute of a tensor of logits


class Decisions(NamedTuple):
    """Facts about n rows of logits, so that nothing needs to read the logits again during a run's clock.

    They are Python's numbers: a pass empties the processor's caches, and after it the first call of each of
    torch's operations takes 20 µs.
    """

    best: list[int]  # index of the largest logit, the first of equals; any index if the row has NaN
    largest: list[float]  # the largest logit; NaN if the row has NaN
    total: list[float]  # Σ exp(logit − largest), so that the highest probability is 1 / total


def with_decisions(logits: Tensor, decisions: Decisions) -> Tensor:
    """Attach decisions to logits [n, V]. Tensors that are computed from them, such as parts, have none."""
    setattr(logits, _NAME, decisions)
    return logits


def decisions_of(logits: Tensor) -> Decisions | None:
    """Return the decisions of the pass that computed ``logits``; None if it made none."""
    return getattr(logits, _NAME, None)


def first_rows(logits: Tensor, count: int) -> Tensor:
    """Return the first rows of logits, with their decisions if there are any."""
    part, found = logits[:count], decisions_of(logits)
    if found is None:
        return part
    best, largest, total = found
    return with_decisions(part, Decisions(best[:count], largest[:count], total[:count]))
