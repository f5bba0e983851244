"""The results of a pass besides logits: what rules and draft lengths need to know about each row."""

from typing import NamedTuple

import torch
from torch import Tensor


class Decisions(NamedTuple):
    """Facts about logits [n, V], which a pass can find while it computes them; each has shape [n]."""

    best: Tensor  # id of the largest logit, the first of equals, int64; any id if the row has NaN
    largest: Tensor  # the largest logit; NaN if the row has NaN
    total: Tensor  # Σ exp(logit − largest); the highest probability is 1 / total


def with_decisions(logits: Tensor, decisions: Decisions) -> Tensor:
    """Attach decisions to logits. A tensor that is computed from them, even a part, does not have them."""
    setattr(logits, _NAME, decisions)
    return logits


def decisions_of(logits: Tensor) -> Decisions | None:
    """Return the decisions of the pass that computed ``logits``; None if it made none."""
    return getattr(logits, _NAME, None)


def part_of(logits: Tensor, first: int, last: int) -> Tensor:
    """Return rows of logits, with their decisions if there are any."""
    part, found = logits[first:last], decisions_of(logits)
    return part if found is None else with_decisions(part, Decisions(*(one[first:last] for one in found)))


def best_and_largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the id of the largest of each row of logits [..., V], the first of equals, and that logit."""
    if (found := decisions_of(logits)) is not None:
        return found.best, found.largest
    # max returns the best token and reveals NaN. In bf16 on CPU it is four times as fast as argmax.
    largest, best = logits.max(-1)
    return best, largest


def highest_probability(logits: Tensor) -> float:
    """Return the highest probability of one row of logits, [V] or [1, V]; NaN if they define none."""
    if (found := decisions_of(logits)) is None:
        return (logits if logits.dtype == torch.float64 else logits.float()).softmax(-1).amax().item()
    return (found.largest.isfinite() / found.total).item() or float("nan")


_NAME = "decisions"
