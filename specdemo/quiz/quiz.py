"""The measurement that answers a quiz question: two runs, and the option that their figures support."""

from collections.abc import Iterator, Mapping
from typing import Any

from specdemo.bench.measuring import PairedRun, paired_run
from specdemo.engine.race import race
from specdemo.engine.speculate import never
from specdemo.lab.ablated_lanes import ablated_lanes, require_draft_model
from specdemo.lab.conditions import NONE
from specdemo.lab.experiments import Setting, configs_for
from specdemo.pairs.pair import Pair, Stop
from specdemo.quiz.judging import SideResult
from specdemo.quiz.questions import DISTURBED, SPEEDUP, Question
from specdemo.records.events import Event
from specdemo.records.limits import UserError, show
from specdemo.records.spread import spread
from specdemo.records.trace import Lane, Round

# With these settings, a question takes about 10 s on two CPU cores.
K = 3
NEW_TOKENS = 48


def number_in(raw: Mapping[str, Any], count: int) -> int:
    """Check an untrusted request, and return its question number, from 1 to ``count``."""
    number = raw.get("question")
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= count:
        raise UserError(f"Unknown question {show(number)}; choose a whole number from 1 to {count}.")
    return number


def settings_of(pair: Pair, question: Question) -> list[Setting]:
    common = {"drafter": pair.default_drafter, "k": K, "max_new_tokens": NEW_TOKENS, "temperature": 0.0}
    settings = []
    for side in question.sides:
        configs = configs_for(pair, [side.prompt], common, side.change)
        if side.ablation != NONE or configs[0].draft_alone:
            require_draft_model(pair, configs[0].drafter)
        settings.append(Setting(None, side.label, configs, side.ablation))
    return settings


def quiz_events(pair: Pair, number: int, question: Question, stop: Stop = never) -> Iterator[Event]:
    """Yield a ``question`` event, ``progress`` events and a ``side`` event for each run, then a ``verdict``.

    ``stop`` is called once per round; True ends the measurement without a verdict.
    """
    settings = settings_of(pair, question)
    yield start_event(number, question, f"{pair.place}, {pair.precision}")
    outcomes: list[SideResult] = []
    for index, setting in enumerate(settings):
        first, (config,) = settings[0], setting.configs
        if index and (setting.configs, setting.ablation) == (first.configs, first.ablation):
            outcomes.append(outcomes[0])  # both sides have the same settings, so one run is enough
        else:
            lanes = ablated_lanes(pair, setting.ablation)
            raced = lanes.requested(config, pair.prompt_ids(config), stop)
            rounds: dict[str, list[Round]] = {lane: [] for lane in raced}
            written, expected = 0, config.max_new_tokens * (2 + config.draft_alone)
            progress = {"type": "progress", "text": f"Measuring: {setting.label}"}
            yield {**progress, "fraction": index / 2}
            for lane, round_ in race(raced):
                rounds[lane].append(round_)
                written += len(round_.emitted)
                yield {**progress, "fraction": (index + written / expected) / 2}
            run = paired_run(lanes, config, rounds)
            if run is None:
                return
            outcomes.append(_outcome(run))
        yield side_event(number, question, index, outcomes[-1])
    yield verdict_event(number, question, *outcomes)


def start_event(number: int, question: Question, place: str) -> Event:
    return {"type": "question", "question": number, "name": question.name, "place": place}


def side_event(number: int, question: Question, index: int, outcome: SideResult) -> Event:
    side, figures = question.sides[index], []
    for label, read, pattern in side.figures:
        value = read(outcome)
        text = "–" if value is None else pattern.format(value)
        if label == SPEEDUP.label and outcome.disturbed:
            text += " (disturbed)"
        figures.append({"label": label, "value": value, "text": text})
    return {"type": "side", "question": number, "index": index, "label": side.label, "figures": figures}


def verdict_event(number: int, question: Question, first: SideResult, second: SideResult) -> Event:
    chosen = question.decide(first, second)
    if chosen is not None:
        why = question.options[chosen].why
    elif question.decide(first.undisturbed, second.undisturbed) is not None:
        why = DISTURBED
    else:
        why = question.undecided
    return {"type": "verdict", "question": number, "option": chosen, "why": why}


def _outcome(run: PairedRun) -> SideResult:
    trusted = spread(run.rounds)
    ids = {lane: Lane(tuple(rounds)).ids for lane, rounds in run.rounds.items()}
    return SideResult(run.totals, ids, trusted and trusted.typical)
