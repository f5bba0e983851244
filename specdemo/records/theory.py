"""The theory of speculative decoding: expected tokens per pass, speedup, break-even α and best draft lengths.

Symbols follow Leviathan, Kalman & Matias 2023, "Fast Inference from Transformers via Speculative Decoding",
with k for their γ. This module adds v(n), the cost of a target pass over n tokens. The unit of all costs is
one target pass over a single token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from specdemo.records.trace import Calibration, Round


class RoundShape(NamedTuple):
    """The cost of one round, in single-token target passes.

    Attributes:
        k: Number of draft tokens; for several rounds, their mean.
        draft_cost: Cost of drafting; k·c if every draft token takes one draft step.
        verify_cost: v(k + 1).
    """

    k: float
    draft_cost: float
    verify_cost: float


def expected_tokens(alpha: float, k: float) -> float:
    """Return E[τ] = (1 − α^(k+1)) / (1 − α), the expected tokens of a round (Leviathan et al. 2023, eq. 1).

    For a whole k, :func:`tokens_by_length` gives the same value if every acceptance probability is α. This
    closed form also accepts a fractional k.
    """
    return k + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def tokens_by_length(acceptance: Iterable[float]) -> list[float]:
    """Return the expected tokens of a round with 0, 1, 2, … draft tokens: 1 + a₁ + a₁a₂ + a₁a₂a₃ + …

    Args:
        acceptance: a₁, a₂, …, where aᵢ is the probability that draft token i is accepted, given that all
            draft tokens before it were accepted.
    """
    survival = accumulate(acceptance, mul)
    return list(accumulate(survival, initial=1.0))


def theoretical_speedup(alpha: float, shape: RoundShape) -> float:
    """Return S = E[τ] / (k·c + v(k+1)), theorem 3.8 of Leviathan et al. 2023 with v added."""
    return expected_tokens(alpha, shape.k) / (shape.draft_cost + shape.verify_cost)


def break_even_alpha(shape: RoundShape) -> float | None:
    """Return the α at which ``theoretical_speedup`` is 1; None if the speedup is below 1 even for α = 1."""
    if theoretical_speedup(1.0, shape) < 1.0:
        return None
    low, high = 0.0, 1.0  # bisection: the speedup rises with α
    for _ in range(50):
        middle = (low + high) / 2
        if theoretical_speedup(middle, shape) < 1.0:
            low = middle
        else:
            high = middle
    return high


def best_length(alpha: float, c: float, v: Sequence[float]) -> int:
    """Return the k from 0 (no draft) to len(v) − 1 with the highest ``theoretical_speedup``.

    If several k have the same speedup, the smallest of them is returned.

    Args:
        alpha: Acceptance rate per compared token, from 0 to 1.
        c: Cost of a draft step in single-token target passes.
        v: As in ``Calibration``: ``v[k]`` is the cost of verifying k draft tokens.
    """
    return best_round(tokens_by_length([alpha] * (len(v) - 1)), c, v)


def best_round(tokens: Sequence[float], c: float, v: Sequence[float]) -> int:
    """Return the k with the most expected tokens per unit of time, tokens[k] / (k·c + v[k]).

    If several k are equally good, the smallest of them is returned.

    Args:
        tokens: Expected tokens of a round with 0, 1, 2, … draft tokens. It must not be longer than ``v``.
        c: As for :func:`best_length`.
        v: As for :func:`best_length`.
    """
    return max(range(len(tokens)), key=lambda k: tokens[k] / (k * c + v[k]))


@dataclass(frozen=True)
class OracleLength:
    """The predicted speedup if an oracle had ended every draft after its last accepted token.

    Attributes:
        lengths: For each round, the draft length that the oracle chooses.
        whole: For each round, whether all of its draft tokens were accepted. A longer draft might then have
            been better, but a run cannot show that, so the oracle chooses the drafted length.
        s_cost: Predicted speedup of the actual rounds (``Totals.s_cost``).
        s_oracle: Predicted speedup with the oracle's draft lengths. It is a lower bound if any draft was
            accepted whole.
    """

    lengths: tuple[int, ...]
    whole: tuple[bool, ...]
    s_cost: float | None
    s_oracle: float | None

    @property
    def open_ended(self) -> int:
        """Number of rounds whose draft was accepted whole."""
        return sum(self.whole)


def oracle_length(rounds: Iterable[Round], calibration: Calibration) -> OracleLength:
    """Return the predicted speedup if each draft had ended after its last accepted token.

    A round that emitted m tokens needed only m − 1 draft tokens, because the target adds one token itself.
    With exactly m − 1 draft tokens, the round emits the same m tokens and the next round starts at the same
    position. So this round costs (m − 1)·c + v(m) instead of k·c + v(k + 1), and no other round changes. A
    run does not show the effect of longer drafts, so that effect is not estimated.
    """
    lengths: list[int] = []
    whole: list[bool] = []
    tokens, cost, oracle_cost = 0, 0.0, 0.0
    for round_ in rounds:
        drafted, needed = len(round_.drafted), len(round_.emitted) - 1
        lengths.append(needed)
        tokens += needed + 1
        whole.append(0 < drafted == needed)
        cost += round_.draft_steps * calibration.c + calibration.v[drafted]
        # A copied draft token takes no draft step; any other draft token takes one.
        oracle_cost += min(round_.draft_steps, needed) * calibration.c + calibration.v[needed]
    return OracleLength(tuple(lengths), tuple(whole), ratio(tokens, cost), ratio(tokens, oracle_cost))


def pass_cost(v: Sequence[float], k: float) -> float:
    """Return v(k + 1) for a fractional k, interpolated linearly between whole numbers."""
    below = int(k)
    above = min(below + 1, len(v) - 1)
    return v[below] + (k - below) * (v[above] - v[below])


def ratio(top: float | None, bottom: float | None) -> float | None:
    """Return top ÷ bottom; None if a value is missing or ``bottom`` is 0."""
    return top / bottom if top is not None and bottom else None
