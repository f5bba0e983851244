"""The outcome of a run, and a function for each question that chooses the option that two outcomes support.

The results of the built-in pair are far from the limits between options."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specdemo.records.figures import Totals
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE

MARGIN = 0.1  # relative difference in speed of two identical runs on a busy machine
UNEVEN = 0.2  # relative difference from ``SideResult.typical`` above which other work disturbed the run
STEADY = 0.02  # maximum change of α that counts as unchanged; α does not depend on timing
# The change of α that counts as a rise or fall, and the margin around it in which no option is chosen.
ALPHA_SHIFT, ALPHA_MARGIN = 0.08, 0.03
LOST = 0.8  # ratio of the speedups above which S stays within a fifth


@dataclass(frozen=True)
class SideResult:
    totals: Totals
    ids: Mapping[str, Sequence[int]]
    """Lane -> its output token ids."""
    typical: float | None
    """``Spread.typical`` of the run; None if it is not known, or not to be compared."""

    @property
    def speedup(self) -> float | None:
        """The speedup; None if unknown or disturbed by other work."""
        return None if self.disturbed else self.totals.speedup

    @property
    def disturbed(self) -> bool:
        """Whether other work has changed the speedup: it is far from the typical one, or above τ."""
        measured, typical, tau = self.totals.speedup, self.typical, self.totals.tau
        if measured is None or typical is None:
            return False
        even = 1 / (1 + UNEVEN) <= measured / typical <= 1 + UNEVEN
        return not even or (tau is not None and measured > tau * (1 + MARGIN))

    @property
    def undisturbed(self) -> "SideResult":
        """The same outcome, with its speedup taken at face value."""
        return replace(self, typical=None)

    def same(self, lane: str) -> bool:
        return list(self.ids[lane]) == list(self.ids[BASELINE])

    def share_same(self, lane: str) -> float:
        """Return the share of positions, 0 to 1, at which ``lane`` has the same token as the baseline."""
        ours, alone = self.ids[lane], self.ids[BASELINE]
        equal = sum(one == other for one, other in zip(ours, alone, strict=False))
        return equal / max(len(ours), len(alone))


def band(value: float | None, edges: Sequence[float], margin: float = MARGIN) -> int | None:
    """Return the number of ``edges`` below ``value``; None within a factor of 1 + ``margin`` of an edge."""
    if value is None or any(edge / (1 + margin) <= value <= edge * (1 + margin) for edge in edges):
        return None
    return bisect_left(edges, value)


def five(_alone: SideResult, drafted: SideResult) -> int | None:
    if drafted.totals.alpha_compared != 1.0:
        return None
    return {1: 0, 2: 1, 4: 2, 5: 3}.get(drafted.totals.passes)


def noise(_plain: SideResult, noisy: SideResult) -> int | None:
    faster = band(noisy.speedup, (1.0,))
    return None if faster is None else (2 if noisy.same(SPECULATIVE) else 0) + (1 - faster)


def cost(plain: SideResult, slow: SideResult) -> int | None:
    shift = _difference(plain.totals.alpha_compared, slow.totals.alpha_compared)
    kept = band(_ratio(plain.speedup, slow.speedup), (LOST,))
    if shift is None or kept is None or shift > STEADY:
        return None
    return (1 if shift < -STEADY else 0) + (0 if kept else 2)


def length(short: SideResult, long: SideResult) -> int | None:
    found = band(_ratio(short.speedup, long.speedup), (1.0, 2.0))
    return None if found is None else 2 - found


def temperature(greedy: SideResult, sampled: SideResult) -> int | None:
    shift = _difference(greedy.totals.alpha_compared, sampled.totals.alpha_compared)
    if shift is None or abs(abs(shift) - ALPHA_SHIFT) <= ALPHA_MARGIN:
        return None
    if abs(shift) < ALPHA_SHIFT:
        return 1
    return 0 if shift > 0 else 2


def alone(_target: SideResult, draft: SideResult) -> int | None:
    totals = draft.totals
    faster = band(_ratio(totals.baseline_tokens_per_s, totals.draft_alone_tokens_per_s), (1.0,))
    return None if faster is None else (0 if draft.same(DRAFT) else 2) + (1 - faster)


def chance(rejection: SideResult, shared: SideResult) -> int:
    same = rejection.same(SPECULATIVE), shared.same(SPECULATIVE)
    return [(False, False), (True, True), (False, True), (True, False)].index(same)


def copies(edited: SideResult, invented: SideResult) -> int | None:
    # The margin is small because τ does not depend on timing.
    found = band(_ratio(edited.totals.tau, invented.totals.tau), (0.9, 1.1), margin=0.02)
    return None if found is None else (0, 2, 1)[found]


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second is not None else None


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second - first
