"""The questions of a class: the teacher asks, students answer, and the page shows the counts."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from specdemo.classroom.log import Log
from specdemo.records.limits import (
    UserError,
    choice,
    flag,
    integer,
    number,
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
    # The name of a question that the teacher's page can measure; None for the teacher's own.
    prepared: str | None = None
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
    # True if the latest measurement has ended without a result.
    failed: bool = False

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        """Store a student's answer; it replaces the student's earlier answer."""
        require_known(raw, ("question", "answer"))
        if raw.get("question") != self.number:
            raise UserError("This answer is for a different question; answer the current question.")
        if self.phase is not Phase.OPEN:
            raise UserError("Voting is closed; wait for the result.")
        self.answers[student] = self._value(raw)

    def close(self) -> None:
        """Accept no more answers; a measurement in progress has ended without a result."""
        if self.phase is not Phase.REVEALED:
            self.failed = self.phase is Phase.MEASURING or self.failed
            self.phase = Phase.CLOSED

    def measure(self) -> None:
        self.phase, self.failed = Phase.MEASURING, False

    def reveal(self, raw: Mapping[str, Any]) -> None:
        """Close voting; show the ``right`` answer (may be null), ``why`` and ``figures``, all untrusted.

        ``recorded`` says that the answer was recorded earlier, because the measurement gave none.
        """
        texts = {key: raw.get(key, "") for key in ("why", "figures")}
        for key, text in texts.items():
            if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
                raise UserError(f"{key} must be text of at most {MAX_TEXT_CHARS} characters.")
            require_readable(key, text)
            texts[key] = without_direction_marks(text)
        self.right = None if raw.get("right") is None else self._value({"answer": raw["right"]})
        self.recorded = flag(raw, "recorded", False)
        self.measured = self.phase is Phase.MEASURING and not self.recorded
        self.why, self.figures = texts["why"], texts["figures"]
        self.phase = Phase.REVEALED

    def for_students(self) -> dict[str, Any]:
        """Return the part of the question's state that every student may see now."""
        shown: dict[str, Any] = {
            "number": self.number,
            "text": self.text,
            "kind": self.kind,
            "options": list(self.options),
            "phase": self.phase,
            "failed": self.failed,
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
    require_known(raw, ("text", "kind", "options", "hidden", "prepared"))
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
    return Question(number, text, kind, texts, flag(raw, "hidden", True), optional_name(raw, "prepared"))


class Questions:
    """The questions of one class. The page shows one at a time, ``current``."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._asked: list[Question] = []
        self.current: Question | None = None

    def ask(self, raw: Mapping[str, Any]) -> None:
        """Put the next question on the page."""
        if len(self._asked) >= MAX_QUESTIONS:
            raise UserError(f"A class can have at most {MAX_QUESTIONS} questions; start another class.")
        self.current = parse_question(raw, len(self._asked) + 1)
        self._asked.append(self.current)
        self._show()

    def close(self) -> None:
        self._require_current().close()
        self._show()

    def measure(self) -> None:
        self._require_current().measure()
        self._show()

    def reveal(self, raw: Mapping[str, Any]) -> None:
        self._require_current().reveal(raw)
        self._show()

    def dismiss(self) -> None:
        self._require_current()
        self.current = None
        self._show()

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        question = self._require_current()
        question.answer(student, raw)
        if not question.hidden:
            self._show()

    def answer_of(self, student: str) -> dict[str, Any] | None:
        if self.current is None or student not in self.current.answers:
            return None
        return {"question": self.current.number, "answer": self.current.answers[student]}

    def summary(self) -> list[dict[str, Any]]:
        return [question.summary() for question in self._asked if question.phase is not Phase.OPEN]

    def _require_current(self) -> Question:
        if self.current is None:
            raise UserError("No question is open; wait for the next question.")
        return self.current

    def _show(self) -> None:
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
