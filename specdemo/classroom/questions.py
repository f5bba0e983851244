"""The questions of a class: the teacher asks, students answer, and the page shows the counts."""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from specdemo.classroom.class_jobs import (
    OPTIONS,
    RUN,
    UNFINISHED,
    Answer,
    ClassJob,
    Jobs,
    answer_in,
    request_of,
)
from specdemo.classroom.log import Log
from specdemo.records.events import Event
from specdemo.records.limits import (
    UserError,
    choice,
    flag,
    integer,
    number,
    parse_config,
    require_known,
    require_readable,
    show,
    without_direction_marks,
)

MAX_QUESTIONS = 200
MAX_TEXT_CHARS = 600
MAX_OPTION_CHARS = 160
MAX_OPTIONS = 6
MAX_NUMBER = 1e9
# The maximum relative error of a number that counts as right.
TOLERANCE = 0.1
ROUNDING = 1e-9
# The maximum number of bars if answers are numbers. For a choice, each option has a bar.
BARS = 8
# The share of the answers in each of the two outer bars, those of the lowest and the highest numbers.
OUTER_SHARE = 0.05
LOOK_S = 0.1
"""The time between two looks whether the teacher's page has shown the measured run."""
_NAME = re.compile(r"[a-z0-9_-]{1,40}")


class QuestionKind(StrEnum):
    CHOICE = "choice"
    NUMBER = "number"


class Phase(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    MEASURING = "measuring"
    REVEALED = "revealed"


@dataclass
class Question:
    """One question and its answers; :func:`parse_question` creates it."""

    # Counts the questions of the class from 1.
    number: int
    text: str
    kind: QuestionKind
    # Empty if the answer is a number.
    options: tuple[str, ...] = ()
    # True if students see the counts of the answers only after voting has closed.
    hidden: bool = True
    # The name of a question that the server can measure; None if the teacher enters the result.
    prepared: str | None = None
    # The settings of the teacher's page, with which a prepared question is measured.
    settings: Mapping[str, Any] = field(default_factory=dict)
    phase: Phase = Phase.OPEN
    # The students' tokens and latest answers: the index of an option, or a number.
    answers: dict[str, float] = field(default_factory=dict)
    # An answer; None before it is revealed, or if the question has no right answer.
    right: float | None = None
    # The explanation of the right answer.
    why: str = ""
    # The measured values in words, for the lesson summary.
    figures: str = ""
    # True if a measurement has given the right answer, False if the teacher has entered it.
    measured: bool = False
    # True if the measurement gave no answer, and ``right`` was recorded earlier on another machine. Students'
    # answers are not compared with it.
    recorded: bool = False
    # The number of jobs in the queue before the measurement.
    ahead: int = 0
    # The message if the latest measurement has ended without a result.
    error: str | None = None

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        """Store a student's answer; it replaces the student's earlier answer."""
        require_known(raw, ("question", "answer"))
        if raw.get("question") != self.number:
            raise UserError("This answer is for a different question; answer the current question.")
        if self.phase is not Phase.OPEN:
            raise UserError("Voting is closed; wait for the result.")
        self.answers[student] = self._value(raw)

    def close(self, error: str | None = None) -> None:
        """Accept no more answers; ``error`` is the message if a measurement has ended without a result."""
        if self.phase is not Phase.REVEALED:
            self.phase, self.error = Phase.CLOSED, error or self.error

    def measure(self) -> None:
        self.phase, self.error, self.ahead = Phase.MEASURING, None, 0

    def reveal(self, raw: Mapping[str, Any]) -> None:
        """Close voting; show the ``right`` answer that the teacher has entered (untrusted; may be null)."""
        require_known(raw, ("right",))
        right = None if raw.get("right") is None else self._value({"answer": raw["right"]})
        self.right, self.phase = right, Phase.REVEALED

    def reveal_measured(self, answer: Answer) -> None:
        self.right, self.why, self.figures, self.recorded = answer
        self.measured, self.phase = not self.recorded, Phase.REVEALED

    def for_students(self) -> dict[str, Any]:
        """Return the part of the question's state that every student may see now."""
        shown: dict[str, Any] = {
            "number": self.number,
            "text": self.text,
            "kind": self.kind,
            "options": list(self.options),
            "phase": self.phase,
            "error": self.error,
            "ahead": self.ahead,
            "tolerance": self._tolerance,
        }
        if self.phase is Phase.REVEALED:
            shown |= self._outcome() | {"why": self.why}
        if self.phase is not Phase.OPEN or not self.hidden:
            shown |= {"bars": self._bars(), "answered": len(self.answers)}
        return shown

    def for_teacher(self) -> dict[str, Any]:
        # The teacher's page may be on a projector, so hidden counts stay hidden there too.
        own = {"answered": len(self.answers), "hidden": self.hidden, "prepared": self.prepared}
        return {**self.for_students(), **own}

    def summary(self) -> dict[str, Any]:
        return {**self.for_teacher(), "bars": self._bars(), **self._outcome(), "figures": self.figures}

    def _outcome(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("right", "measured", "recorded")}
        return own | {"right_answers": self._right_answers}

    @property
    def _tolerance(self) -> float:
        return TOLERANCE if self.kind is QuestionKind.NUMBER else 0.0

    @property
    def _right_answers(self) -> int:
        if self.right is None or self.recorded:
            return 0
        margin = self._tolerance * abs(self.right) + ROUNDING
        return sum(math.isclose(one, self.right, rel_tol=0, abs_tol=margin) for one in self.answers.values())

    def _bars(self) -> list[dict[str, Any]]:
        if self.kind is QuestionKind.NUMBER:
            return _histogram(sorted(self.answers.values()))
        counts = Counter(self.answers.values())
        return [{"label": text, "count": counts[index]} for index, text in enumerate(self.options)]

    def _value(self, raw: Mapping[str, Any]) -> float:
        if raw.get("answer") is None:
            raise UserError("The answer is missing; choose or enter an answer.")
        if self.kind is QuestionKind.NUMBER:
            return number(raw, "answer", 0, -MAX_NUMBER, MAX_NUMBER)
        return integer(raw, "answer", 0, 0, len(self.options) - 1)


def optional_name(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    if value is not None and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise UserError(
            f"{key} must be 1 to 40 lowercase letters, digits, dashes or underscores, got {show(value)}."
        )
    return value


def parse_question(raw: Mapping[str, Any], number: int) -> Question:
    """Return the teacher's question with the fields of ``raw``, all untrusted."""
    require_known(raw, ("text", "kind", "options", "hidden", "prepared", "settings"))
    kind = choice(raw, "kind", QuestionKind, QuestionKind.CHOICE)
    options = raw.get("options", [])
    if not isinstance(options, list) or (kind is QuestionKind.NUMBER and options):
        raise UserError('options must be a list of texts; if kind is "number", leave options out.')
    if kind is QuestionKind.CHOICE and not 2 <= len(options) <= MAX_OPTIONS:
        raise UserError(
            f"A multiple-choice question must have 2 to {MAX_OPTIONS} answers, got {len(options)}."
        )
    texts = tuple(_text("answer", option, MAX_OPTION_CHARS) for option in options)
    if len(set(texts)) < len(texts):
        raise UserError("Two answers are the same; change one answer.")
    text = _text("question", raw.get("text"), MAX_TEXT_CHARS)
    hidden, prepared, settings = flag(raw, "hidden", True), raw.get("prepared"), raw.get("settings", {})
    if prepared is not None:
        if not isinstance(prepared, str) or len(texts) != OPTIONS.get(prepared):
            raise UserError(f"prepared must be a question with these options, got {show(prepared)}.")
        if not isinstance(settings, dict):
            raise UserError("settings must be an object.")
        if (request := request_of(prepared, settings)).kind == RUN:
            parse_config(request.settings)
    return Question(number, text, kind, texts, hidden, prepared, settings)


class Measurement(NamedTuple):
    # Counts the measurements of the class from 1.
    number: int
    question: Question
    job: ClassJob


class Questions:
    """The questions of one class. The page shows one at a time, ``current``.

    All methods must be called on one event loop. ``jobs`` is None if this server cannot measure questions.
    ``has_teacher`` returns False if the teacher's page has been silent for a while.
    """

    def __init__(
        self, log: Log, jobs: Jobs | None = None, has_teacher: Callable[[], bool] = lambda: False
    ) -> None:
        self._log = log
        self._jobs = jobs
        self._has_teacher = has_teacher
        self._asked: list[Question] = []
        self.current: Question | None = None
        self._latest: Measurement | None = None
        self._played: object = None  # the number of the measurement whose run the teacher's page has shown
        self._measuring: asyncio.Task[None] | None = None  # the reference keeps the task alive

    def ask(self, raw: Mapping[str, Any]) -> None:
        """Put the next question on the page."""
        if len(self._asked) >= MAX_QUESTIONS:
            raise UserError(f"A class can have at most {MAX_QUESTIONS} questions; start another class.")
        self.current = parse_question(raw, len(self._asked) + 1)
        if self._jobs is None:
            self.current.prepared = None
        self._asked.append(self.current)
        self._publish()

    def close(self) -> None:
        question = self._require_current()
        question.close(UNFINISHED if question.phase is Phase.MEASURING else None)
        self.stop()
        self._publish()

    def measure(self) -> None:
        """Close voting and start to measure the answer, which goes on without any page."""
        question = self._require_current()
        if self._jobs is None or question.prepared is None:
            raise UserError("This question cannot be measured; enter the result.")
        if question.phase in (Phase.MEASURING, Phase.REVEALED):
            raise UserError("This question is measured already; its result is shown, or will be.")
        number = self._latest.number + 1 if self._latest else 1
        job = ClassJob(request_of(question.prepared, question.settings))
        self._latest = Measurement(number, question, job)
        question.measure()
        self._measuring = asyncio.get_running_loop().create_task(self._measure(self._latest))
        self._publish()

    def note_shown(self, raw: Mapping[str, Any]) -> None:
        """Note that the teacher's page no longer plays the run of a ``measurement``."""
        require_known(raw, ("measurement",))
        self._played = raw.get("measurement")

    def news(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the events of the latest measurement after the first ``events`` of the ``measurement``.

        Both are untrusted. Returns None for a page that has not seen the beginning of a finished run, or of
        the measurement of an earlier question.
        """
        if self._latest is None or self._measuring is None:
            return None
        number, question, job = self._latest
        is_known = raw.get("measurement") == number
        # A page that joins late needs the figures of a question that is still shown, but not its run.
        is_useful = question is self.current and job.request.kind != RUN
        if self._measuring.done() and not is_known and not is_useful:
            return None
        first = integer(raw, "events", 0, 0, len(job.events)) if is_known else 0
        return {
            "number": number,
            "question": question.number,
            "kind": job.request.kind,
            "events": job.events[first:],
            "ended": job.ended,
        }

    def stop(self) -> None:
        """Stop the measurement in progress, if there is one."""
        if self._latest is not None:
            self._latest.job.stopped = True

    def reveal(self, raw: Mapping[str, Any]) -> None:
        self._require_current().reveal(raw)
        self.stop()
        self._publish()

    def dismiss(self) -> None:
        self._require_current()
        self.stop()
        self.current = None
        self._publish()

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        question = self._require_current()
        question.answer(student, raw)
        if not question.hidden:
            self._publish()

    def answer_of(self, student: str) -> dict[str, Any] | None:
        if self.current is None or student not in self.current.answers:
            return None
        return {"question": self.current.number, "answer": self.current.answers[student]}

    def summary(self) -> list[dict[str, Any]]:
        return [question.summary() for question in self._asked if question.phase is not Phase.OPEN]

    async def _measure(self, measurement: Measurement) -> None:
        number, question, job = measurement
        assert self._jobs is not None and question.prepared is not None

        def take(event: Event) -> None:
            ahead = event.get("ahead", 0)
            if ahead != question.ahead:
                question.ahead = ahead
                self._publish()

        error = await self._jobs.do(job, take)
        is_run = error is None and job.request.kind == RUN
        # Students must not read the result before the projector shows it.
        while is_run and self._played != number and self._has_teacher() and not job.stopped:
            await asyncio.sleep(LOOK_S)
        if job.stopped:
            return
        try:
            if error is not None:
                raise UserError(error)
            question.reveal_measured(answer_in(question.prepared, job.events))
        except UserError as refusal:
            question.close(str(refusal))
        self._publish()

    def _require_current(self) -> Question:
        if self.current is None:
            raise UserError("No question is open; wait for the next question.")
        return self.current

    def _publish(self) -> None:
        shown = self.current.for_students() if self.current else None
        self._log.put("question", {"type": "question", "question": shown})


def _text(name: str, value: object, max_chars: int) -> str:
    value = without_direction_marks(value)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"The {name} is empty; enter some text.")
    if len(value) > max_chars:
        raise UserError(f"The {name} has {len(value):,} characters; shorten the text to {max_chars}.")
    require_readable(name, value)
    return value.strip()


def _histogram(values: list[float]) -> list[dict[str, Any]]:
    """Return at most ``BARS`` bars (``label``, ``count``) for sorted ``values``.

    If there are at most ``BARS`` different values, each one has a bar. Otherwise, the inner bars have equal
    widths, and the two outer bars have the smallest and largest values. Without the outer bars, a single
    extreme answer would put all other answers into one bar.
    """
    distinct = Counter(values)
    if len(distinct) <= BARS:
        return [{"label": f"{value:g}", "count": distinct[value]} for value in sorted(distinct)]
    low, high = (values[round(share * (len(values) - 1))] for share in (OUTER_SHARE, 1 - OUTER_SHARE))
    inner = BARS - 2
    width = (high - low) / inner or 1.0
    edges = [low + bar * width for bar in range(inner + 1)]

    def bar_of(value: float) -> int:
        if not low <= value <= high:
            return 0 if value < low else BARS - 1
        return 1 + min(inner - 1, int((value - low) / width))

    counts = Counter(map(bar_of, values))
    middle = [f"{edges[bar]:.3g} to {edges[bar + 1]:.3g}" for bar in range(inner)]
    labels = [f"less than {low:.3g}", *middle, f"more than {high:.3g}"]
    return [{"label": label, "count": counts[bar]} for bar, label in enumerate(labels)]
