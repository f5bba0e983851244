"""How figures decide: for each question, which option two outcomes support, or None where that is open.

Edges between options are chosen where the embedded pair is far from them.
"""

from bisect import bisect_left
from collections.abc import Sequence

from specdemo.quiz.question import MARGIN, Outcome
from specdemo.records.trace import DRAFT, SPECULATIVE

STEADY = 0.02
"""α counts as unchanged within this. It does not depend on the clock."""
ALPHA_SHIFT, ALPHA_MARGIN = 0.08, 0.03
"""A sampled text of a hundred tokens has its luck: a smaller shift of α, or one this near, says nothing."""
LOST = 0.8
"""Ratio of speedups from which on speed counts as kept."""


def band(value: float | None, edges: Sequence[float], margin: float = MARGIN) -> int | None:
    """Between which rising ``edges`` a value lies: 0 below the first, and so on.

    None where it is not defined or, by a factor of 1 + ``margin``, no farther than that from an edge.
    """
    if value is None or any(edge / (1 + margin) <= value <= edge * (1 + margin) for edge in edges):
        return None
    return bisect_left(edges, value)


def five(_alone: Outcome, drafted: Outcome) -> int | None:
    """By the passes, where all four guesses stood."""
    if drafted.totals.alpha_compared != 1.0:
        return None
    return {1: 0, 2: 1, 4: 2, 5: 3}.get(drafted.totals.passes)


def noise(_plain: Outcome, noisy: Outcome) -> int | None:
    """By the text (same or not) and the noisy speedup (below or above 1)."""
    faster = band(noisy.speedup, (1.0,))
    if faster is None:
        return None
    return (2 if noisy.same(SPECULATIVE) else 0) + (1 - faster)


def cost(plain: Outcome, dear: Outcome) -> int | None:
    """By the change of α and the ratio of the speedups."""
    shift = _difference(plain.totals.alpha_compared, dear.totals.alpha_compared)
    kept = band(_ratio(plain.speedup, dear.speedup), (LOST,))
    if shift is None or kept is None or shift > STEADY:
        return None
    return (1 if shift < -STEADY else 0) + (0 if kept else 2)


def length(short: Outcome, long: Outcome) -> int | None:
    """By the ratio of the speedups: more than doubled, risen, fallen."""
    found = band(_ratio(short.speedup, long.speedup), (1.0, 2.0))
    return None if found is None else 2 - found


def temperature(likeliest: Outcome, drawn: Outcome) -> int | None:
    """By the shift of α: risen, about the same, fallen."""
    shift = _difference(likeliest.totals.alpha_compared, drawn.totals.alpha_compared)
    if shift is None or abs(abs(shift) - ALPHA_SHIFT) <= ALPHA_MARGIN:
        return None
    if abs(shift) < ALPHA_SHIFT:
        return 1
    return 0 if shift > 0 else 2


def alone(_target: Outcome, draft: Outcome) -> int | None:
    """By the draft's text (the target's or not) and its rate (below or above the target's)."""
    totals = draft.totals
    sooner = band(_ratio(totals.baseline_tokens_per_s, totals.draft_alone_tokens_per_s), (1.0,))
    if sooner is None:
        return None
    return (0 if draft.same(DRAFT) else 2) + (1 - sooner)


def chance(drawn: Outcome, shared: Outcome) -> int:
    """By the tokens alone."""
    under_rejection, under_noise = drawn.same(SPECULATIVE), shared.same(SPECULATIVE)
    return {(False, False): 0, (True, True): 1, (False, True): 2, (True, False): 3}[
        under_rejection, under_noise
    ]


def copies(edited: Outcome, invented: Outcome) -> int | None:
    """By the ratio of τ, which does not depend on the clock."""
    found = band(_ratio(edited.totals.tau, invented.totals.tau), (0.9, 1.1), margin=0.02)
    return None if found is None else (0, 2, 1)[found]


def _ratio(first: float | None, second: float | None) -> float | None:
    """``second`` in units of ``first``."""
    return second / first if first and second is not None else None


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second - first
