"""The theory of speculative decoding: expected tokens per pass, speedup, break-even α and best draft lengths.

Symbols follow Leviathan, Kalman & Matias 2023, "Fast Inference from Transformers via Speculative
Decoding" (α, c, and k for their γ), with v(n) added: the cost of a target pass over n tokens in single-token
passes.
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
        k: Number of draft tokens; a mean if rounds differ.
        draft_cost: Cost of drafting; k·c if every token takes a step.
        verify_cost: v(k + 1).
    """

    k: float
    draft_cost: float
    verify_cost: float

    @classmethod
    def of(cls, k: int, calibration: Calibration) -> "RoundShape":
        """Return the cost of a round with a fixed k."""
        return cls(k, k * calibration.c, calibration.v[k])


def expected_tokens(alpha: float, k: float) -> float:
    """Return E[τ] = (1 − α^(k+1)) / (1 − α), the expected tokens of a round (Leviathan et al. 2023, eq. 1).

    This is :func:`tokens_by_length` for the same α everywhere, in a closed form that also takes a mean k.
    """
    return k + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def tokens_by_length(acceptance: Iterable[float]) -> list[float]:
    """Return the expected tokens of a round with 0, 1, 2, … draft tokens: 1 + a₁ + a₁a₂ + a₁a₂a₃ + …

    Args:
        acceptance: For each place of the draft, the probability that its token is accepted if all tokens
            before it are.
    """
    survival = accumulate(acceptance, mul)
    return list(accumulate(survival, initial=1.0))


def theoretical_speedup(alpha: float, shape: RoundShape) -> float:
    """Return S = E[τ] / (k·c + v(k+1)), theorem 3.8 of Leviathan et al. 2023 with v added."""
    return expected_tokens(alpha, shape.k) / (shape.draft_cost + shape.verify_cost)


def break_even_alpha(shape: RoundShape) -> float | None:
    """Return the α at which ``theoretical_speedup`` is 1; None if it is below 1 even for α = 1."""
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
    """Return the k with the best ``theoretical_speedup``, 0 (no draft) to len(v) − 1; the smallest on a tie.

    Args:
        alpha: Acceptance rate per compared token, from 0 to 1.
        c: Cost of a draft step in single-token target passes.
        v: As in ``Calibration``: ``v[k]`` is the cost of verifying k tokens.
    """
    return best_round(tokens_by_length([alpha] * (len(v) - 1)), c, v)


def best_round(tokens: Sequence[float], c: float, v: Sequence[float]) -> int:
    """Return the k with the most tokens per time, tokens[k] / (k·c + v[k]); the smallest on a tie.

    Args:
        tokens: Expected tokens of a round with 0, 1, 2, … draft tokens; no longer than ``v``.
        c, v: As for :func:`best_length`.
    """
    return max(range(len(tokens)), key=lambda k: tokens[k] / (k * c + v[k]))


def linear_costs(growth: float, k: int) -> tuple[float, ...]:
    """Return v(n) = 1 + growth·(n − 1) for verifying 0 to ``k`` draft tokens, as in ``Calibration``.

    Args:
        growth: Cost that each further token adds to a pass: 0 if verification is free, 1 if every token costs
            as much as a pass of its own.
    """
    return tuple(1.0 + growth * drafted for drafted in range(k + 1))


@dataclass(frozen=True)
class TheorySurface:
    """The theory over a grid of acceptance rates and draft lengths.

    Attributes:
        alphas, ks: The grid's axes, both rising.
        speedups: ``speedups[i][j]`` is S at ``ks[i]`` and ``alphas[j]``.
        break_even: For each k, the α at which S is 1; None if S is below 1 for every α.
        best: For each α, the k with the highest S; 0 if no draft pays (:func:`best_length`).
    """

    alphas: tuple[float, ...]
    ks: tuple[int, ...]
    speedups: tuple[tuple[float, ...], ...]
    break_even: tuple[float | None, ...]
    best: tuple[int, ...]


ALPHA_STEPS = 50


def theory_surface(c: float, v: Sequence[float], alphas: Sequence[float] | None = None) -> TheorySurface:
    """Return S for every k from 1 to len(v) − 1 over ``alphas`` (default: 0 to 1)."""
    if alphas is None:
        alphas = [step / ALPHA_STEPS for step in range(ALPHA_STEPS + 1)]
    ks = range(1, len(v))
    shapes = [RoundShape(k, k * c, v[k]) for k in ks]
    return TheorySurface(
        alphas=tuple(alphas),
        ks=tuple(ks),
        speedups=tuple(tuple(theoretical_speedup(alpha, shape) for alpha in alphas) for shape in shapes),
        break_even=tuple(break_even_alpha(shape) for shape in shapes),
        best=tuple(best_length(alpha, c, v) for alpha in alphas),
    )


@dataclass(frozen=True)
class OracleLength:
    """The result of ending every draft exactly where the target stopped agreeing, compared with the run.

    Attributes:
        lengths: For each round, the length that an oracle would have drafted.
        whole: For each round, whether its draft was accepted whole. How much further the target would have
            agreed is then unknown, and the drafted length counts as the best.
        s_cost: Predicted speedup of the rounds as they fell (``Totals.s_cost``).
        s_oracle: The same with the oracle's lengths; a lower bound if any draft was accepted whole.
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
    """Cut each round's draft at the token where the target stopped agreeing, and add up the costs.

    A round that emitted m tokens needed m − 1 draft tokens, because the target adds one itself. With just
    these it emits the same m tokens and the next round begins at the same place. So the round costs
    (m − 1)·c + v(m) instead of k·c + v(k + 1), and no other round changes. The effect of longer drafts cannot
    be read from a run, so it is not estimated.
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
        # Copied tokens take no step; a drafted one takes one.
        oracle_cost += min(round_.draft_steps, needed) * calibration.c + calibration.v[needed]
    return OracleLength(tuple(lengths), tuple(whole), ratio(tokens, cost), ratio(tokens, oracle_cost))


def pass_cost(v: Sequence[float], k: float) -> float:
    """Return v(k + 1) for a mean k, interpolated between whole numbers."""
    below = int(k)
    above = min(below + 1, len(v) - 1)
    return v[below] + (k - below) * (v[above] - v[below])


def ratio(top: float | None, bottom: float | None) -> float | None:
    """Return top ÷ bottom; None if a value is missing or ``bottom`` is 0."""
    return top / bottom if top is not None and bottom else None
