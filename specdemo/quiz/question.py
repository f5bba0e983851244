"""What a question of the quiz is: two runs, predictions of how their figures compare, and which came true.

Knows no page, and no question in particular.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdemo.bench.prompts import Prompt
from specdemo.lab.handicap import NONE, Handicap
from specdemo.records.figures import Totals
from specdemo.records.trace import BASELINE, SPECULATIVE

MARGIN = 0.1
"""How far two runs of the same may lie apart in speed on a busy machine."""
UNEVEN = 0.2
"""A speedup that differs by more from that of the typical round was measured on too busy a machine."""
TOO_CLOSE = (
    f"Too close to call on this machine: a figure lies within {MARGIN:.0%} of the line between two answers, "
    "or other work made the runs too uneven to be compared."
)


@dataclass(frozen=True)
class Outcome:
    """One finished run.

    Attributes:
        totals: Its figures.
        ids: Token ids that each lane wrote, by its name.
        typical: The speedup if every round had taken its lane's median time.
    """

    totals: Totals
    ids: Mapping[str, Sequence[int]]
    typical: float | None

    @property
    def speedup(self) -> float | None:
        """The speedup where rounds took evenly long; None where it would depend on what else ran."""
        measured, typical = self.totals.speedup, self.typical
        if measured is None or typical is None:
            return None
        return measured if 1 / (1 + UNEVEN) <= measured / typical <= 1 + UNEVEN else None

    def same(self, lane: str) -> bool:
        """Whether ``lane`` wrote the tokens of the target alone, all of them."""
        return list(self.ids[lane]) == list(self.ids[BASELINE])

    def share_same(self, lane: str) -> float:
        """Share of positions at which ``lane`` has the token of the target alone."""
        ours, alone = self.ids[lane], self.ids[BASELINE]
        equal = sum(one == other for one, other in zip(ours, alone, strict=False))
        return equal / max(len(ours), len(alone))


class Figure(NamedTuple):
    """A figure of a run that is shown.

    Attributes:
        label: What it is, with its unit.
        read: Takes it from the outcome; None where it is not defined.
        pattern: How it is written.
    """

    label: str
    read: Callable[[Outcome], float | None]
    pattern: str


SPEEDUP = Figure("Speedup S over the target alone", lambda run: run.totals.speedup, "{:.2f}×")
ALPHA = Figure("Compared guesses accepted (α)", lambda run: run.totals.alpha_compared, "{:.0%}")
TAU = Figure("Tokens per target pass (τ)", lambda run: run.totals.tau, "{:.2f}")


def kept_by(lane: str) -> Figure:
    """How much of ``lane``'s text is that of the target alone."""
    return Figure("Tokens that are the target's own", lambda run: run.share_same(lane), "{:.0%}")


KEPT = kept_by(SPECULATIVE)


@dataclass(frozen=True)
class QuizSide:
    """One of the two runs that are compared.

    Attributes:
        label: What is special about it.
        prompt: What is written.
        figures: What is shown of it; both sides of a question have the same labels.
        change: Settings of the run in which it differs from all others (``quiz.settings_of``).
        handicap: What is done to the draft model.
    """

    label: str
    prompt: Prompt
    figures: tuple[Figure, ...]
    change: Mapping[str, Any] = field(default_factory=dict)
    handicap: Handicap = NONE


class Option(NamedTuple):
    """A prediction to choose, and two sentences that explain it where it is what was measured."""

    text: str
    why: str


Decide = Callable[[Outcome, Outcome], int | None]


@dataclass(frozen=True)
class Question:
    """One question of the quiz.

    Attributes:
        name: Short and lasting; what a browser remembers an answer by.
        text: The question.
        setup: What is run for it, in one line.
        options: Three or four, the first has index 0.
        sides: Measured in this order.
        decide: The index of the option that both outcomes support, or None.
        undecided: What is said in the latter case.
    """

    name: str
    text: str
    setup: str
    options: tuple[Option, ...]
    sides: tuple[QuizSide, QuizSide]
    decide: Decide
    undecided: str = TOO_CLOSE
