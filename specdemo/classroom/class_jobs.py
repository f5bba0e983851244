"""The jobs of a class on the server's device, and the measured answers to prepared questions."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from specdemo.quiz.questions import QUESTIONS
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.records.sentences import Doubt
from specdemo.records.theory import is_slower
from specdemo.records.trace import Finish

RUN, QUIZ, GAME = "run", "quiz", "class"
"""The kinds of a class's jobs, as the service names them."""
K = 4
"""The draft length of a measured run, which the questions about it name."""
SPEED, SURVIVORS = "run-speed", "run-survivors"
QUIZ_NUMBERS = {question.name: number for number, question in enumerate(QUESTIONS, 1)}
OPTIONS = {question.name: len(question.options) for question in QUESTIONS} | {SPEED: 2, SURVIVORS: K + 1}
"""The names of the prepared questions, with the number of their options."""
DISTURBED = "Other work disturbed this run, so it gives no verdict."
UNFINISHED = "The measurement was stopped."
FAULT = "The job failed because of an internal error."
_log = logging.getLogger(__name__)


class ClassRequest(NamedTuple):
    """A job to be done. ``settings`` and ``pair`` are untrusted; the pair None is the default one."""

    kind: str
    settings: Mapping[str, Any]
    pair: Any = None


Submit = Callable[[ClassRequest, Callable[[], bool]], AsyncGenerator[Event, None]]
"""Has the service do a job and yields its events; the function is called while waiting and once a round, and
True ends the job."""


class ClassJob:
    """One job, with its events so far. It does not depend on any page."""

    def __init__(self, request: ClassRequest) -> None:
        self.request = request
        self.events: list[Event] = []
        # True if nobody wants the result any more.
        self.stopped = False
        # True if all events have arrived.
        self.ended = False


class Jobs:
    """The jobs of one class, one at a time. All methods must be called on one event loop."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._turn = asyncio.Lock()

    async def do(self, job: ClassJob, take: Callable[[Event], None] = lambda _event: None) -> str | None:
        """Do a job and call ``take`` with each event; return the error message, or None after success."""
        error = None
        try:
            async with self._turn, aclosing(self._submit(job.request, lambda: job.stopped)) as events:
                async for event in events:
                    job.events.append(event)
                    take(event)
        except UserError as refusal:
            error = str(refusal)
        except Exception:
            _log.exception("A job of a class failed")
            error = FAULT
        if error is not None:
            job.events.append({"type": "error", "message": error})
        job.ended = True
        return error


def request_of(name: str, settings: Mapping[str, Any]) -> ClassRequest:
    """Return the job that answers the prepared question ``name``, with the settings of the teacher's page."""
    own = dict(settings)
    pair = own.pop("pair", None)
    if name in QUIZ_NUMBERS:
        return ClassRequest(QUIZ, {"question": QUIZ_NUMBERS[name]}, pair)
    return ClassRequest(RUN, {**own, "k": K, "repeats": 1}, pair)


class Answer(NamedTuple):
    # The index of an option; None if the figures support none.
    right: int | None
    why: str
    # The measured values in words.
    figures: str
    # True if ``right`` was recorded earlier on another machine, because the measurement supports no option.
    recorded: bool = False


def answer_in(name: str, events: Sequence[Event]) -> Answer:
    """Return the answer to a question in the events of its job; raise ``UserError`` if there is none."""
    latest = {event["type"]: event for event in events}
    if (end := latest.get("end")) and end["finish"] != Finish.STOPPED:
        return _answer_of_run(name, end)
    if not (verdict := latest.get("verdict")):
        raise UserError(UNFINISHED)
    sides = []
    for event in (event for event in events if event["type"] == "side"):
        figures = ", ".join(f"{figure['label']} {figure['text']}" for figure in event["figures"])
        sides.append(f"{event['label']}: {figures}")
    answer = Answer(verdict["option"], verdict["why"], f"{'; '.join(sides)}.")
    if not (recorded := latest.get("recorded")):
        return answer
    why = f"{answer.why} Recorded on {recorded['place']}: {recorded['why']}"
    return answer._replace(right=recorded["option"], why=why, recorded=True)


def _answer_of_run(name: str, end: Event) -> Answer:
    totals, doubt = end["totals"], end["doubt"]
    speedup, passes = totals["speedup"], totals["passes"]
    if name == SPEED and doubt not in (None, Doubt.UNDECIDED):
        raise UserError(DISTURBED)
    accepted = sum(totals["accepted_by_position"]) / passes if passes else None
    words = []
    if accepted is not None:
        words.append(f"{accepted:.1f} of {K} draft tokens accepted per round")
    if speedup is not None:
        doubted = f" ({doubt})" if doubt else ""
        words.append(f"at {speedup:.2f}×{doubted} the speed of the target alone")
    if name == SPEED:
        right = None if speedup is None or doubt else int(is_slower(speedup))
    else:
        right = None if accepted is None else math.floor(accepted + 0.5)
    measured = f"Measured: {', '.join(words)}."
    return Answer(right, measured, measured)
