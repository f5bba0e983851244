"""The outcomes of a question's two runs, and a function per question that chooses the option they support.

The limits between options are chosen so that the results of the built-in pair are far from them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdemo.records.figures import Totals
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE

MARGIN = 0.1
"""Relative difference in speed that two identical runs may show on a busy machine."""
UNEVEN = 0.2
"""A speedup that differs more than this from ``Outcome.typical`` was disturbed by other work."""
STEADY = 0.02
"""Maximum change of α that counts as unchanged. It is small because α does not depend on timing."""
ALPHA_SHIFT, ALPHA_MARGIN = 0.08, 0.03
"""The change of α that counts as risen or fallen, and the margin around it in which no option is chosen.

The α of a sampled text of a hundred tokens varies by chance.
"""
LOST = 0.8
"""Ratio of the two speedups above which S counts as within a fifth."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one finished run.

    Attributes:
        totals: The figures of the run.
        ids: The output token ids of each lane, by the lane's name.
        typical: The speedup that the run would have if each round took the median time of its lane; None if
            it cannot be computed.
    """

    totals: Totals
    ids: Mapping[str, Sequence[int]]
    typical: float | None

    @property
    def speedup(self) -> float | None:
        """The speedup; None if unknown, or so far from ``typical`` that other work disturbed the run."""
        measured, typical = self.totals.speedup, self.typical
        if measured is None or typical is None:
            return None
        return measured if 1 / (1 + UNEVEN) <= measured / typical <= 1 + UNEVEN else None

    def same(self, lane: str) -> bool:
        """Return True if ``lane`` wrote exactly the same tokens as the target alone."""
        return list(self.ids[lane]) == list(self.ids[BASELINE])

    def share_same(self, lane: str) -> float:
        """Return the share of positions, 0 to 1, at which ``lane`` agrees with the target alone."""
        ours, alone = self.ids[lane], self.ids[BASELINE]
        equal = sum(one == other for one, other in zip(ours, alone, strict=False))
        return equal / max(len(ours), len(alone))


def band(value: float | None, edges: Sequence[float], margin: float = MARGIN) -> int | None:
    """Return the index of the interval that contains ``value``: the number of ``edges`` below it.

    Return None if the value is None or within a factor of 1 + ``margin`` of an edge. ``edges`` are in
    ascending order.
    """
    if value is None or any(edge / (1 + margin) <= value <= edge * (1 + margin) for edge in edges):
        return None
    return bisect_left(edges, value)


def five(_alone: Outcome, drafted: Outcome) -> int | None:
    """Choose the option by the number of target passes (1, 2, 4 or 5); None if a draft token was rejected."""
    if drafted.totals.alpha_compared != 1.0:
        return None
    return {1: 0, 2: 1, 4: 2, 5: 3}.get(drafted.totals.passes)


def noise(_plain: Outcome, noisy: Outcome) -> int | None:
    """Choose the option by the noisy text (the target's or not) and its speedup (below or above 1)."""
    faster = band(noisy.speedup, (1.0,))
    return None if faster is None else (2 if noisy.same(SPECULATIVE) else 0) + (1 - faster)


def cost(plain: Outcome, slow: Outcome) -> int | None:
    """Choose the option by α (unchanged or fallen) and the ratio of the speedups; None if α rose."""
    shift = _difference(plain.totals.alpha_compared, slow.totals.alpha_compared)
    kept = band(_ratio(plain.speedup, slow.speedup), (LOST,))
    if shift is None or kept is None or shift > STEADY:
        return None
    return (1 if shift < -STEADY else 0) + (0 if kept else 2)


def length(short: Outcome, long: Outcome) -> int | None:
    """Choose the option by the ratio of the speedups: more than doubled, risen or fallen."""
    found = band(_ratio(short.speedup, long.speedup), (1.0, 2.0))
    return None if found is None else 2 - found


def temperature(likeliest: Outcome, sampled: Outcome) -> int | None:
    """Choose the option by the change of α: risen, about the same or fallen."""
    shift = _difference(likeliest.totals.alpha_compared, sampled.totals.alpha_compared)
    if shift is None or abs(abs(shift) - ALPHA_SHIFT) <= ALPHA_MARGIN:
        return None
    if abs(shift) < ALPHA_SHIFT:
        return 1
    return 0 if shift > 0 else 2


def alone(_target: Outcome, draft: Outcome) -> int | None:
    """Choose the option by the draft's text (the target's or not) and its tokens/s (above or below)."""
    totals = draft.totals
    faster = band(_ratio(totals.baseline_tokens_per_s, totals.draft_alone_tokens_per_s), (1.0,))
    return None if faster is None else (0 if draft.same(DRAFT) else 2) + (1 - faster)


def chance(rejection: Outcome, shared: Outcome) -> int:
    """Choose the option by the rules under which both lanes wrote the same tokens."""
    same = rejection.same(SPECULATIVE), shared.same(SPECULATIVE)
    return [(False, False), (True, True), (False, True), (True, False)].index(same)


def copies(edited: Outcome, invented: Outcome) -> int | None:
    """Choose the option by the ratio of both τ. The margin is small: τ does not depend on timing."""
    found = band(_ratio(edited.totals.tau, invented.totals.tau), (0.9, 1.1), margin=0.02)
    return None if found is None else (0, 2, 1)[found]


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second is not None else None


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second - first
