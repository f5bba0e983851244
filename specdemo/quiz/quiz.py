"""The quiz: a question about speculation, two runs that answer it, and the option their figures support.

Nothing here knows an answer: which option is right is read off what the loaded models just did, and where
a figure lies too near to the line between two options, none is. The questions are in ``questions``. Knows
no page.
"""

import statistics
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdemo.bench.bench import Prompt
from specdemo.engine.speculate import never
from specdemo.lab.handicap import NONE, Handicap
from specdemo.lab.perturbed import perturbed, require_draft_model
from specdemo.lab.plans import configs_for
from specdemo.lab.sweeps import Setting
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.events import Event
from specdemo.records.figures import Totals, fold
from specdemo.records.limits import UserError
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Lane, Round

K = 3
NEW_TOKENS = 48
"""Of each run where a question asks for nothing else; a question then takes about 10 s on two CPU cores."""
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
        change: Settings of the run that are not ``COMMON``'s.
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


def band(value: float | None, edges: Sequence[float], margin: float = MARGIN) -> int | None:
    """Between which rising ``edges`` a value lies: 0 below the first, and so on.

    None where it is not defined or, by a factor of 1 + ``margin``, no farther than that from an edge.
    """
    if value is None or any(edge / (1 + margin) <= value <= edge * (1 + margin) for edge in edges):
        return None
    return bisect_left(edges, value)


def number_in(raw: Mapping[str, Any], count: int) -> int:
    """The number of the question that an untrusted request asks for, from 1.

    Raises:
        UserError: There is no such question.
    """
    number = raw.get("question")
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= count:
        raise UserError(f"There is no such question; choose a whole number from 1 to {count}.")
    return number


def settings_of(pair: Pair, question: Question) -> list[Setting]:
    """What is run for each side, checked before anything runs.

    Raises:
        UserError: The pair lacks what a side needs.
    """
    common = {"drafter": pair.default_drafter, "k": K, "max_new_tokens": NEW_TOKENS, "temperature": 0.0}
    settings = []
    for side in question.sides:
        configs = configs_for(pair, [side.prompt], common, side.change)
        if side.handicap != NONE or configs[0].draft_alone:
            require_draft_model(pair, configs[0].drafter)
        settings.append(Setting(None, side.label, configs, side.handicap))
    return settings


def quiz_events(pair: Pair, number: int, question: Question, stop: Stop = never) -> Iterator[Event]:
    """Run both sides and judge.

    Args:
        number: What the events call the question.
        stop: Asked once a round; True ends it without a verdict.

    Yields:
        ``question``, then while running ``progress``, a ``side`` as each is finished, and ``verdict``.

    Raises:
        UserError: The pair lacks what a side needs.
    """
    settings = settings_of(pair, question)
    yield start_event(number, question, f"{pair.place}, {pair.precision}")
    outcomes: list[Outcome] = []
    for index, setting in enumerate(settings):
        if index and (setting.configs, setting.handicap) == (settings[0].configs, settings[0].handicap):
            outcome: Outcome | None = outcomes[0]  # two readings of one run
        else:
            outcome = yield from _measured(pair, setting, index / len(settings), stop)
        if outcome is None:
            return
        outcomes.append(outcome)
        yield side_event(number, question, index, outcome)
    yield verdict_event(number, question, *outcomes)


def start_event(number: int, question: Question, place: str) -> Event:
    """The event before the first side: which question, and where it is measured."""
    return {"type": "question", "question": number, "name": question.name, "place": place}


def side_event(number: int, question: Question, index: int, outcome: Outcome) -> Event:
    """The figures of a finished side; ``index`` is 0 or 1."""
    side = question.sides[index]
    values = [(figure, figure.read(outcome)) for figure in side.figures]
    figures = [
        {"label": label, "value": value, "text": "–" if value is None else pattern.format(value)}
        for (label, _, pattern), value in values
    ]
    return {"type": "side", "question": number, "index": index, "label": side.label, "figures": figures}


def verdict_event(number: int, question: Question, first: Outcome, second: Outcome) -> Event:
    """Which option the figures support (``option``, from 0, or None) and ``why``."""
    chosen = question.decide(first, second)
    why = question.undecided if chosen is None else question.options[chosen].why
    return {"type": "verdict", "question": number, "option": chosen, "why": why}


def _measured(
    pair: Pair, setting: Setting, begun: float, stop: Stop
) -> Generator[Event, None, Outcome | None]:
    """Race one run; None if ``stop`` said True meanwhile. ``begun`` is the share of the quiz before it."""
    lanes = perturbed(pair, setting.handicap)
    (config,) = setting.configs
    prompt_ids = pair.prompt_ids(config)
    others = [name for name, runs in ((BASELINE, config.baseline), (DRAFT, config.draft_alone)) if runs]
    rounds: dict[str, list[Round]] = {name: [] for name in (SPECULATIVE, *others)}
    wanted = config.max_new_tokens * len(rounds)
    text = f"Measuring: {setting.label}"
    yield {"type": "progress", "text": text, "fraction": begun}
    written = 0
    for lane, round_ in lanes.race(config, prompt_ids, stop):
        rounds[lane].append(round_)
        written += len(round_.emitted)
        yield {"type": "progress", "text": text, "fraction": begun + written / wanted / 2}
    if stop():
        return None
    totals = fold(rounds, config.rule, lanes.calibrate(config, len(prompt_ids)))
    ids = {lane: Lane(tuple(found)).ids for lane, found in rounds.items()}
    return Outcome(totals, ids, _typical_speedup(totals, rounds))


def _typical_speedup(totals: Totals, rounds: Mapping[str, Sequence[Round]]) -> float | None:
    """As ``totals.speedup``, of median rounds instead of all of them."""
    own, alone = (statistics.median(one.seconds for one in rounds[lane]) for lane in (SPECULATIVE, BASELINE))
    if not own or not totals.tau or not totals.speedup or not totals.speedup_padded:
        return None
    return totals.tau * alone / own * totals.speedup / totals.speedup_padded
