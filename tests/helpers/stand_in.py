"""A service that stands in for the real one.

Runs and proofs are replayed; games, quizzes and the points of the lab are made up.
"""

import base64
import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from itertools import islice
from threading import Lock
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from helpers.replay import Event, proved, recorded
from helpers.tiny import tiny_pair
from helpers.waiting import PATIENCE_S, until

from specdemo.lab.experiments import Experiment
from specdemo.lab.lab_events import lab_events
from specdemo.lab.lab_request import LabRequest
from specdemo.lab.points import ContrastPoint, Point, SweepPoint, ThroughputPoint
from specdemo.lab.throughput import ROWS
from specdemo.pairs.pair import Pair
from specdemo.pairs.traced_run import calibration_events
from specdemo.play.class_drafts import ClassRequest, class_judged
from specdemo.play.game import MODEL, ONE, TurnEvents, TurnRequest
from specdemo.proof.proof_request import Proof, ProofRequest
from specdemo.quiz.judging import SideResult
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import side_event, start_event, verdict_event
from specdemo.records.figures import Totals
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import (
    BASELINE,
    DRAFT,
    SPECULATIVE,
    Alternative,
    Finish,
    Round,
    RunConfig,
    Status,
    TargetToken,
    Token,
)
from specdemo.service.jobs import JobKind, checked
from specdemo.ui.controls import DEFAULTS

Stop = Callable[[], bool]
PREPARING = {"type": "progress", "text": "Preparing the run", "fraction": 1.0}
GAME_TEXT = " as soon as possible.\x04"
"""The text of a game's target; its last letter ends the text."""
GAME_GUESS = " as so long as it takes"
"""The draft of a game's draft model at any position."""


def letters(ids: Iterable[int]) -> dict[int, str]:
    """Return the pieces of tokens that are ASCII letters."""
    return {token: base64.b64encode(bytes([token])).decode() for token in sorted(ids)}


def text_of(ids: Iterable[int]) -> str:
    """Return the text of such tokens."""
    return bytes(ids).decode()


def edited_by_target(draft: str, written: int) -> Round:
    """Return a round of a game; every letter is a token with the same probability."""
    ahead = GAME_TEXT[written:]
    kept = next(
        (i for i, (a, b) in enumerate(zip(draft, ahead, strict=False)) if a != b), min(len(draft), len(ahead))
    )
    ended = ahead[:kept].endswith("\x04")
    drafted = tuple(
        Token(
            id=ord(letter),
            q=1.0,
            p=float(place < kept),
            status=Status.ACCEPTED if place < kept else Status.DISCARDED,
            compared=place < kept or (place == kept and not ended),
            rejected=place == kept and not ended,
            raw_p=0.75 if place < kept else 0.125,
            target_top=(Alternative(ord(ahead[place]), 0.75),) if place < len(ahead) else (),
        )
        for place, letter in enumerate(draft)
    )
    status = Status.BONUS if kept == len(draft) else Status.CORRECTED
    own = None if ended else TargetToken(ord(ahead[kept]), status, prob=1.0, raw_prob=0.75)
    finish = Finish.EOS if ended or (own and ahead[kept] == "\x04") else Finish.STOPPED
    return Round(0, written, drafted, own, 0.0, 0.0, 0.0, finish=finish, drafted_by="scripted")


def planted(same: bool = True, **figures: Any) -> SideResult:
    """Return a quiz outcome with these totals; ``same`` is whether all lanes agree."""
    totals = recorded("greedy")[-1]["totals"] | {"alpha_compared": 0.5, "speedup": 1.5} | figures
    other = [1, 2, 3, 4] if same else [1, 2, 9, 9]
    ids = {BASELINE: [1, 2, 3, 4], SPECULATIVE: other, DRAFT: other}
    return SideResult(Totals(**totals), ids, totals["speedup"])


@cache
def _tiny_pair() -> Pair:
    return tiny_pair()


def planted_points(experiment: Experiment) -> Iterator[Point]:
    """Yield the points of an experiment with made-up figures; the speedup falls from 1.9 by 12 % a point."""
    if not experiment.settings:
        yield from (
            ThroughputPoint(rows, experiment.k, 0.6, 1.0, 1.5, 1.5, 0.1, 2 / rows, 50.0, 60.0)
            for rows in ROWS
        )
    for place, setting in enumerate(experiment.settings):
        speedup = 1.9 * 0.88**place
        spread = (1, speedup, speedup - 0.1, speedup + 0.1, 50 * speedup, 50.0)
        point = SweepPoint(setting.x, setting.label, *spread, 0.6, 2.2, 0.1, 1.1, speedup, speedup, True)
        contrast = setting.contrast
        yield ContrastPoint(contrast.name, contrast.title, setting.side, point) if contrast else point


_PATCHING = Lock()


def lab_events_of(request: LabRequest, count: int | None = None) -> list[Event]:
    """Return the events of an experiment that ended after ``count`` made-up points; None measures all."""
    measure = "specdemo.lab.lab_events.measure_experiment"
    with _PATCHING, patch(measure, lambda _, experiment, stop: islice(planted_points(experiment), count)):
        return list(lab_events(_tiny_pair(), request, lambda: False))


_LETTERS: Any = SimpleNamespace(encoded=letters, text=text_of, specials=frozenset())
"""A piece table of ASCII letters."""


class StandIn:
    """Stands in for ``service.Service``: checks requests the same way, then replays ``replayed``."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset to a fast replay of the greedy run without requests."""
        self.replayed = recorded("greedy")
        self.gap_s = 0.0
        self.hold_at = math.inf
        """After so many rounds, points, sides or events of a proof the next waits for Stop or for more."""
        self.ahead = 0
        """The number of jobs before a run in the queue, which ``go_on`` ends."""
        self.fault: str | None = None
        self.served = 0
        self.ended = False
        self.requests: list[Mapping[str, Any]] = []
        self.proof: list[Event] | None = None
        self.outcomes: dict[str, tuple[SideResult, SideResult]] = {}

    def events(
        self, kind: JobKind, raw: Mapping[str, Any], stop: Stop, pair: Any = None, visitor: Any = None
    ) -> Iterator[Event]:
        """Yield the events of one job, checked as the service checks it, then made up or replayed."""
        request = checked(kind, raw).parsed
        self.requests.append(raw)
        self.served, self.ended = 0, False
        of_kind = {
            JobKind.RUN: self._run,
            JobKind.PROVE: self._prove,
            JobKind.PLAY: self._play,
            JobKind.CLASS: self._class,
            JobKind.QUIZ: self._quiz,
            JobKind.MEASURE: self._measure,
            JobKind.CALIBRATE: lambda *_: calibration_events(_tiny_pair()),
        }
        try:
            yield from of_kind[kind](request, stop)
        finally:
            self.ended = True

    def _run(self, config: RunConfig, stop: Stop) -> Iterator[Event]:
        """Yield the recording as if it had run with ``config``; end it on request."""
        if self.ahead:
            yield {"type": "progress", "text": "In the queue", "fraction": 0.0, "ahead": self.ahead}
            until(lambda: not self.ahead or stop(), 2 * PATIENCE_S)
        yield PREPARING
        for event in copy.deepcopy(self.replayed):
            if event["type"] == "start":
                event["run"]["config"] = self._configured(asdict(config))
            if event["type"] == "round" and self._stopped(stop, fault_after=3):
                yield {**self.replayed[-1], "finish": "stopped", "sentence": "Stopped early."}
                return
            yield event

    def _prove(self, request: ProofRequest, stop: Stop) -> Iterator[Event]:
        """Yield ``proof``, or the recording of the requested proof; skip to its end on request."""
        yield PREPARING
        distribution = request.proof is Proof.DISTRIBUTION
        events = self.proof or proved(str(request.rule if distribution else request.proof).replace("-", "_"))
        for event in events[:-1]:
            if self._stopped(stop):
                break
            yield event
        yield events[-1]

    def _play(self, request: TurnRequest, stop: Stop) -> Iterator[Event]:
        """Yield one turn, judged by a target whose text is ``GAME_TEXT``, letter by letter."""
        yield PREPARING
        turn = TurnEvents(request, "draft-model", _LETTERS)
        drafts = {**request.drafts, MODEL: GAME_GUESS[: len(request.drafts[ONE])]}
        for player, draft in drafts.items():
            if self._stopped(stop):
                return
            round_ = edited_by_target(draft[:MAX_K], len(request.written))
            yield turn.judged(player, round_, cut="" if player == MODEL else draft[MAX_K:])
        yield turn.end()

    def _class(self, request: ClassRequest, stop: Stop) -> Iterator[Event]:
        """Yield the drafts of a class, judged by the target of a game."""
        self._stopped(stop)
        distinct = list(dict.fromkeys(request.drafts))
        yield class_judged(
            [distinct.index(draft) for draft in request.drafts],
            [edited_by_target(draft[:MAX_K], 0) for draft in distinct],
            [draft[MAX_K:] for draft in distinct],
            edited_by_target(GAME_GUESS[:MAX_K], 0),
            "draft-model",
            _LETTERS,
        )

    def _quiz(self, number: int, stop: Stop) -> Iterator[Event]:
        """Yield the events of a question with the results in ``outcomes``."""
        question = QUESTIONS[number - 1]
        yield PREPARING
        yield start_event(number, question, "a planted machine")
        both = self.outcomes.get(question.name, (planted(), planted()))
        for index, outcome in enumerate(both):
            yield {"type": "progress", "text": "Measuring", "fraction": index / 2}
            if self._stopped(stop):
                return
            yield side_event(number, question, index, outcome)
        yield verdict_event(number, question, *both)

    def _measure(self, asked: LabRequest, stop: Stop) -> Iterator[Event]:
        for event in lab_events_of(asked):
            if event["type"] == "point" and self._stopped(stop, fault_after=1):
                yield lab_events_of(asked, self.served)[-1]
                return
            yield event

    def go_on(self) -> None:
        """Release a held job and stop slowing it."""
        self.gap_s, self.hold_at, self.ahead = 0.0, math.inf, 0

    def _stopped(self, stop: Stop, fault_after: int = 0) -> bool:
        """Wait as the test requested, longer than the test itself waits; return whether to end the job."""
        time.sleep(self.gap_s)
        until(lambda: self.served < self.hold_at or stop(), 2 * PATIENCE_S)
        if self.fault and self.served >= fault_after:
            raise UserError(self.fault)
        if stop():
            return True
        self.served += 1
        return False

    def _configured(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return ``config`` with the values that the recording's rounds and lanes depend on."""
        recording = self.replayed[0]["run"]["config"]
        fixed = {key: recording[key] for key in ("rule", "temperature", "baseline", "draft_alone")}
        if config["max_new_tokens"] == DEFAULTS.max_new_tokens:
            fixed["max_new_tokens"] = recording["max_new_tokens"]  # nobody asked for fewer
        return config | fixed
