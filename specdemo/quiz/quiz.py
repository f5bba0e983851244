"""Put a question of the quiz to the loaded models: two runs, and the option their figures support.

Nothing here knows an answer: which option is right is read off what the loaded models just did, and where
a figure lies too near to the line between two options, none is. The questions are in ``questions``. Knows
no page.
"""

import statistics
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from specdemo.engine.speculate import never
from specdemo.lab.handicap import NONE
from specdemo.lab.perturbed import perturbed, require_draft_model
from specdemo.lab.plans import configs_for
from specdemo.lab.sweeps import Setting
from specdemo.pairs.pair import Pair, Stop
from specdemo.quiz.question import Outcome, Question
from specdemo.records.events import Event
from specdemo.records.figures import Totals, fold
from specdemo.records.limits import UserError
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Lane, Round

K = 3
NEW_TOKENS = 48
"""Of each run where a question asks for nothing else; a question then takes about 10 s on two CPU cores."""


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
    totals = fold(rounds, config.rule, lanes.calibrate(config))
    ids = {lane: Lane(tuple(found)).ids for lane, found in rounds.items()}
    return Outcome(totals, ids, _typical_speedup(totals, rounds))


def _typical_speedup(totals: Totals, rounds: Mapping[str, Sequence[Round]]) -> float | None:
    """As ``totals.speedup``, of median rounds instead of all of them."""
    own, alone = (statistics.median(one.seconds for one in rounds[lane]) for lane in (SPECULATIVE, BASELINE))
    return totals.tau * alone / own if own and totals.tau and totals.speedup else None
