"""The outcomes of a question's two runs, and the rules that choose the option they support, if any.

The edges between options lie where the embedded pair is far from them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdemo.records.figures import Totals
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE

MARGIN = 0.1
"""Relative difference in speed that two equal runs may have on a busy machine."""
UNEVEN = 0.2
"""A speedup that differs by more from that of the median round was measured on too busy a machine."""
STEADY = 0.02
"""α counts as unchanged within this. It does not depend on the clock."""
ALPHA_SHIFT, ALPHA_MARGIN = 0.08, 0.03
"""A sampled text of a hundred tokens varies by chance: a shift this close to the edge decides nothing."""
LOST = 0.8
"""Ratio of speedups above which the speed counts as kept."""


@dataclass(frozen=True)
class Outcome:
    """One finished run.

    Attributes:
        totals: Its figures.
        ids: Token ids of each lane, by its name.
        typical: The speedup if every round had taken its lane's median time.
    """

    totals: Totals
    ids: Mapping[str, Sequence[int]]
    typical: float | None

    @property
    def speedup(self) -> float | None:
        """The speedup, or None if uneven rounds show that other work disturbed it."""
        measured, typical = self.totals.speedup, self.typical
        if measured is None or typical is None:
            return None
        return measured if 1 / (1 + UNEVEN) <= measured / typical <= 1 + UNEVEN else None

    def same(self, lane: str) -> bool:
        """Return whether ``lane`` has exactly the tokens of the target alone."""
        return list(self.ids[lane]) == list(self.ids[BASELINE])

    def share_same(self, lane: str) -> float:
        """Return the share of positions at which ``lane`` has the token of the target alone."""
        ours, alone = self.ids[lane], self.ids[BASELINE]
        equal = sum(one == other for one, other in zip(ours, alone, strict=False))
        return equal / max(len(ours), len(alone))


def band(value: float | None, edges: Sequence[float], margin: float = MARGIN) -> int | None:
    """Return the number of rising ``edges`` below a value.

    None if the value is undefined or within a factor of 1 + ``margin`` of an edge.
    """
    if value is None or any(edge / (1 + margin) <= value <= edge * (1 + margin) for edge in edges):
        return None
    return bisect_left(edges, value)


def five(_alone: Outcome, drafted: Outcome) -> int | None:
    """Choose by the number of target passes, if all four draft tokens were accepted."""
    if drafted.totals.alpha_compared != 1.0:
        return None
    return {1: 0, 2: 1, 4: 2, 5: 3}.get(drafted.totals.passes)


def noise(_plain: Outcome, noisy: Outcome) -> int | None:
    """Choose by the text (same or not) and the noisy speedup (below or above 1)."""
    faster = band(noisy.speedup, (1.0,))
    return None if faster is None else (2 if noisy.same(SPECULATIVE) else 0) + (1 - faster)


def cost(plain: Outcome, slow: Outcome) -> int | None:
    """Choose by the change of α and the ratio of the speedups."""
    shift = _difference(plain.totals.alpha_compared, slow.totals.alpha_compared)
    kept = band(_ratio(plain.speedup, slow.speedup), (LOST,))
    if shift is None or kept is None or shift > STEADY:
        return None
    return (1 if shift < -STEADY else 0) + (0 if kept else 2)


def length(short: Outcome, long: Outcome) -> int | None:
    """Choose by the ratio of the speedups: more than doubled, risen, fallen."""
    found = band(_ratio(short.speedup, long.speedup), (1.0, 2.0))
    return None if found is None else 2 - found


def temperature(likeliest: Outcome, sampled: Outcome) -> int | None:
    """Choose by the shift of α: risen, about the same, fallen."""
    shift = _difference(likeliest.totals.alpha_compared, sampled.totals.alpha_compared)
    if shift is None or abs(abs(shift) - ALPHA_SHIFT) <= ALPHA_MARGIN:
        return None
    if abs(shift) < ALPHA_SHIFT:
        return 1
    return 0 if shift > 0 else 2


def alone(_target: Outcome, draft: Outcome) -> int | None:
    """Choose by the draft's text (the target's or not) and its rate (below or above the target's)."""
    totals = draft.totals
    faster = band(_ratio(totals.baseline_tokens_per_s, totals.draft_alone_tokens_per_s), (1.0,))
    return None if faster is None else (0 if draft.same(DRAFT) else 2) + (1 - faster)


def chance(rejection: Outcome, shared: Outcome) -> int:
    """Choose by the rules under which both lanes have the same tokens."""
    same = rejection.same(SPECULATIVE), shared.same(SPECULATIVE)
    return [(False, False), (True, True), (False, True), (True, False)].index(same)


def copies(edited: Outcome, invented: Outcome) -> int | None:
    """Choose by the ratio of τ, which does not depend on the clock."""
    found = band(_ratio(edited.totals.tau, invented.totals.tau), (0.9, 1.1), margin=0.02)
    return None if found is None else (0, 2, 1)[found]


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second is not None else None


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second - first
