"""What theory expects of speculation: tokens per pass, speedup, break-even, best lengths, and hindsight.

No torch, no text, no UI. Symbols follow Leviathan, Kalman & Matias 2023, "Fast Inference from Transformers
via Speculative Decoding" (α, k for their γ, c), with v(n) added: the cost of a target pass over n tokens in
units of a single-token pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from specdemo.records.trace import Calibration, Round


class RoundShape(NamedTuple):
    """What one round costs, in single-token target passes.

    Attributes:
        k: Drafted tokens; a mean where rounds differ.
        draft_cost: Drafting them: k·c for a model that makes one step per token.
        verify_cost: v(k + 1).
    """

    k: float
    draft_cost: float
    verify_cost: float

    @classmethod
    def of(cls, k: int, calibration: Calibration) -> "RoundShape":
        """A round of a fixed k."""
        return cls(k, k * calibration.c, calibration.v[k])


def expected_tokens(alpha: float, k: float) -> float:
    """E[τ] = (1 − α^(k+1)) / (1 − α): tokens a round is expected to emit (Leviathan et al. 2023, eq. 1).

    The sum of :func:`tokens_by_length` for one α everywhere, in closed form, so that a mean k has a value.
    """
    return k + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def tokens_by_length(acceptance: Iterable[float]) -> list[float]:
    """Tokens a round is expected to emit if 0, 1, 2, … tokens are drafted: 1 + a₁ + a₁a₂ + a₁a₂a₃ + …

    Args:
        acceptance: Of each place of the draft the probability that its token is accepted if all before it
            are.
    """
    survival = accumulate(acceptance, mul)
    return list(accumulate(survival, initial=1.0))


def theoretical_speedup(alpha: float, shape: RoundShape) -> float:
    """S = E[τ] / (k·c + v(k+1)): theorem 3.8 of Leviathan et al. 2023 with the verification cost v added."""
    return expected_tokens(alpha, shape.k) / (shape.draft_cost + shape.verify_cost)


def break_even_alpha(shape: RoundShape) -> float | None:
    """The α at which ``theoretical_speedup`` is 1, by bisection: it rises with α. None if α = 1 is slower."""
    if theoretical_speedup(1.0, shape) < 1.0:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if theoretical_speedup(middle, shape) < 1.0:
            low = middle
        else:
            high = middle
    return high


def best_length(alpha: float, c: float, v: Sequence[float]) -> int:
    """The k with the best ``theoretical_speedup``, 0 (do not draft) to len(v) − 1; of equals the smallest.

    Args:
        alpha: Acceptance rate per compared token, from 0 to 1.
        c: Draft step in single-token target passes.
        v: As in ``Calibration``: ``v[k]`` is the pass that verifies k tokens.
    """
    return best_round(tokens_by_length([alpha] * (len(v) - 1)), c, v)


def best_round(tokens: Sequence[float], c: float, v: Sequence[float]) -> int:
    """The k whose round emits the most per time, tokens[k] / (k·c + v[k]); of equals the smallest.

    Args:
        tokens: What a round is expected to emit if 0, 1, 2, … tokens are drafted; no longer than ``v``.
        c, v: As for :func:`best_length`.
    """
    return max(range(len(tokens)), key=lambda k: tokens[k] / (k * c + v[k]))


def linear_costs(growth: float, k: int) -> tuple[float, ...]:
    """v(n) = 1 + growth·(n − 1) for the verification of 0 to ``k`` drafted tokens, as in ``Calibration``.

    Args:
        growth: What each further token adds to a pass: 0 if verification is free, 1 if every token costs as
            much as a pass of its own.
    """
    return tuple(1.0 + growth * drafted for drafted in range(k + 1))


@dataclass(frozen=True)
class TheorySurface:
    """The theory over a grid of acceptance rates and draft lengths.

    Attributes:
        alphas, ks: The grid's axes, both rising.
        speedups: ``speedups[i][j]`` is S at ``ks[i]`` and ``alphas[j]``.
        break_even: Of each k the α at which S is 1; None where no α reaches it.
        best: Of each α the k with the highest S, 0 where no draft pays (:func:`best_length`).
    """

    alphas: tuple[float, ...]
    ks: tuple[int, ...]
    speedups: tuple[tuple[float, ...], ...]
    break_even: tuple[float | None, ...]
    best: tuple[int, ...]


ALPHA_STEPS = 50


def theory_surface(c: float, v: Sequence[float], alphas: Sequence[float] | None = None) -> TheorySurface:
    """S for every k that ``v`` covers, 1 to len(v) − 1, over ``alphas`` (default: 0 to 1)."""
    if alphas is None:
        alphas = [step / ALPHA_STEPS for step in range(ALPHA_STEPS + 1)]
    shapes = [RoundShape(k, k * c, v[k]) for k in range(1, len(v))]
    return TheorySurface(
        alphas=tuple(alphas),
        ks=tuple(range(1, len(v))),
        speedups=tuple(tuple(theoretical_speedup(alpha, shape) for alpha in alphas) for shape in shapes),
        break_even=tuple(break_even_alpha(shape) for shape in shapes),
        best=tuple(best_length(alpha, c, v) for alpha in alphas),
    )


@dataclass(frozen=True)
class OracleLength:
    """What drafting exactly as far as the target agreed would have given, beside what was drafted.

    Attributes:
        lengths: Of each round the tokens an all-knowing drafter would have drafted.
        whole: Of each round whether its draft was accepted whole: how much further the target would have
            agreed is not known, so there the drafted length counts as the best.
        s_cost: Predicted speedup of the rounds as they fell (``Totals.s_cost``).
        s_oracle: The same with the oracle's lengths. A lower bound while any round is open-ended.
    """

    lengths: tuple[int, ...]
    whole: tuple[bool, ...]
    s_cost: float | None
    s_oracle: float | None

    @property
    def open_ended(self) -> int:
        """How many rounds could have gone on."""
        return sum(self.whole)


def oracle_length(rounds: Iterable[Round], calibration: Calibration) -> OracleLength:
    """Cut each round's draft where the target stopped agreeing, and cost what is left.

    A round that emitted m tokens needed m − 1 drafted ones, because the target adds one itself. With just
    these drafted it emits the same m tokens and the next round begins at the same place, so the round
    costs (m − 1)·c + v(m) instead of k·c + v(k + 1), and no other round changes. That much the record
    proves. What it cannot tell is how far agreement would have gone behind a draft accepted whole
    (``whole``), nor what other rounds longer drafts would have led to; neither is guessed.
    """
    lengths: list[int] = []
    whole: list[bool] = []
    tokens, cost, least = 0, 0.0, 0.0
    for round_ in rounds:
        drafted, needed = len(round_.drafted), len(round_.emitted) - 1
        lengths.append(needed)
        tokens += needed + 1
        whole.append(0 < drafted == needed)
        cost += round_.draft_steps * calibration.c + calibration.v[drafted]
        # Copied tokens take no step; a drafted one takes one.
        least += min(round_.draft_steps, needed) * calibration.c + calibration.v[needed]
    return OracleLength(tuple(lengths), tuple(whole), ratio(tokens, cost), ratio(tokens, least))


def pass_cost(v: Sequence[float], k: float) -> float:
    """v(k + 1) for a mean k, between the measured neighbours."""
    below = int(k)
    above = min(below + 1, len(v) - 1)
    return v[below] + (k - below) * (v[above] - v[below])


def ratio(top: float | None, bottom: float | None) -> float | None:
    """A quotient; None where there is none."""
    return top / bottom if top is not None and bottom else None
