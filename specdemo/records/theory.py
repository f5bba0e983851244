"""The theory of speculative decoding. The unit of all costs is one target pass over a single token.

Symbols follow Leviathan, Kalman & Matias 2023, "Fast Inference from Transformers via Speculative Decoding",
with k for their γ. This module adds v(n), the cost of a target pass over n tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from specdemo.records.trace import Calibration, Round


class RoundShape(NamedTuple):
    """The cost of one round."""

    k: float  # draft tokens; for several rounds, their mean
    draft_cost: float  # k·c if every draft token takes one draft step
    verify_cost: float  # v(k + 1)


def expected_tokens(alpha: float, k: float) -> float:
    """Return E[τ] = (1 − α^(k+1)) / (1 − α), the expected tokens of a round (eq. 1); k may be fractional."""
    return k + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def tokens_by_length(acceptance: Iterable[float]) -> list[float]:
    """Return the expected tokens of a round with 0, 1, 2, … draft tokens: 1 + a₁ + a₁a₂ + a₁a₂a₃ + …

    aᵢ is the probability that draft token i is accepted if all draft tokens before it were accepted.
    """
    survival = accumulate(acceptance, mul)
    return list(accumulate(survival, initial=1.0))


def theoretical_speedup(alpha: float, shape: RoundShape) -> float:
    """Return S = E[τ] / (k·c + v(k+1)), theorem 3.8 with v added."""
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
    """Return the k up to len(v) − 1 with the highest ``theoretical_speedup``, the smallest of several."""
    return best_round(tokens_by_length([alpha] * (len(v) - 1)), c, v)


def best_round(tokens: Sequence[float], c: float, v: Sequence[float]) -> int:
    """Return the k with the most expected tokens per cost, tokens[k] / (k·c + v[k]), the smallest of several.

    ``tokens`` are as from :func:`tokens_by_length`, and not longer than ``v``.
    """
    return max(range(len(tokens)), key=lambda k: tokens[k] / (k * c + v[k]))


@dataclass(frozen=True)
class OracleLength:
    """The predicted speedup if every draft had ended after its last accepted token."""

    lengths: tuple[int, ...]  # of each round
    # For each round, whether the whole draft was accepted. A longer draft might have been better, but a run
    # cannot show that, so the oracle keeps the length, and ``s_oracle`` is a lower bound.
    whole: tuple[bool, ...]
    s_cost: float | None  # as in ``Totals``, with the actual lengths
    s_oracle: float | None

    @property
    def open_ended(self) -> int:
        return sum(self.whole)


def oracle_length(rounds: Iterable[Round], calibration: Calibration) -> OracleLength:
    """Return the predicted speedup if each draft had ended after its last accepted token.

    A round that emitted m tokens needed only m − 1 draft tokens, because the target adds one token itself.
    With m − 1 draft tokens, it costs (m − 1)·c + v(m) instead of k·c + v(k + 1), and no other round changes.
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


def perfect_speedups(c: float, v: Sequence[float]) -> list[float]:
    """Return the speedup of each k from 0 to len(v) − 1 if the target accepted all draft tokens."""
    return [theoretical_speedup(1.0, RoundShape(k, k * c, cost)) for k, cost in enumerate(v)]


def pass_cost(v: Sequence[float], k: float) -> float:
    """Return v(k + 1) for a fractional k, interpolated linearly between whole numbers."""
    below = int(k)
    above = min(below + 1, len(v) - 1)
    return v[below] + (k - below) * (v[above] - v[below])


def is_slower(speedup: float | None) -> bool:
    """Return whether a speedup is below 1.00 when it is rounded as it is shown."""
    return speedup is not None and round(speedup, 2) < 1


def ratio(top: float | None, bottom: float | None) -> float | None:
    """Return top ÷ bottom; None if a value is missing or ``bottom`` is 0."""
    return top / bottom if top is not None and bottom else None
