"""A question that a class answers before it sees: what may be asked and answered, and how it is counted.

Counts are by student: who answers again before the close has changed their mind. Knows no rooms.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from specdemo.records.limits import UserError, choice, flag, integer, number, require_known, require_readable

MOST_TEXT_CHARS = 600
MOST_OPTION_CHARS = 160
MOST_OPTIONS = 6
MOST_NUMBER = 1e9
NEAR = 0.1
"""A number counts as right within this share of the one that was measured."""
ROUNDING = 1e-9
BARS = 8
OUTER = 0.05
"""Share of the answers at either end that the outer bars are for."""
"""Of numbers; a choice has one for each option."""


class Kind(StrEnum):
    """What an answer is."""

    CHOICE = "choice"
    NUMBER = "number"


class Phase(StrEnum):
    """How far a question has come."""

    OPEN = "open"
    CLOSED = "closed"
    TOLD = "told"
    """What is right has been shown."""


@dataclass
class Question:
    """One question and its answers. Built by :func:`parse_question` only.

    Attributes:
        number: Of the question, from 1, in its room.
        options: Of a choice.
        hidden: Whether answers are shown to nobody before the close.
        answers: Student -> index of an option, or a number.
        right: The option or number that was measured; None where none was, or it was too close to call.
        why: What there is to say about it.
    """

    number: int
    text: str
    kind: Kind
    options: tuple[str, ...] = ()
    hidden: bool = True
    phase: Phase = Phase.OPEN
    answers: dict[str, float] = field(default_factory=dict)
    right: float | None = None
    why: str = ""

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        """Take a student's answer in place of the one before.

        Raises:
            UserError: It is none to this question, or comes too late.
        """
        require_known(raw, ("question", "answer"))
        if raw.get("question") != self.number:
            raise UserError("Another question is asked now; answer that one.")
        if self.phase is not Phase.OPEN:
            raise UserError("The answers are closed; wait for the result.")
        self.answers[student] = self._value(raw)

    def close(self) -> None:
        """Take no more answers."""
        if self.phase is Phase.OPEN:
            self.phase = Phase.CLOSED

    def tell(self, raw: Mapping[str, Any]) -> None:
        """What was measured: ``right`` (null: no verdict) and ``why``. Closes the answers.

        Raises:
            UserError: It is no answer to this question.
        """
        why = raw.get("why", "")
        if not isinstance(why, str) or len(why) > MOST_TEXT_CHARS:
            raise UserError(f"why must be text of at most {MOST_TEXT_CHARS} characters.")
        require_readable("explanation", why)
        self.right = None if raw.get("right") is None else self._value({"answer": raw["right"]})
        self.why, self.phase = why, Phase.TOLD

    def is_right(self, answer: float) -> bool:
        """Whether an answer agrees with what was measured."""
        if self.right is None:
            return False
        return math.isclose(answer, self.right, rel_tol=0, abs_tol=self.near * abs(self.right) + ROUNDING)

    @property
    def near(self) -> float:
        """The share of what was measured within which an answer is right."""
        return NEAR if self.kind is Kind.NUMBER else 0.0

    @property
    def right_answers(self) -> int:
        """How many agree with what was measured."""
        return sum(map(self.is_right, self.answers.values()))

    def bars(self) -> list[dict[str, Any]]:
        """The answers as bars: ``label`` and ``count``, in the order of options or numbers."""
        if self.kind is Kind.CHOICE:
            counts = Counter(self.answers.values())
            return [{"label": text, "count": counts[index]} for index, text in enumerate(self.options)]
        return _histogram(sorted(self.answers.values()))

    def asked(self) -> dict[str, Any]:
        """What every student may see of it now."""
        told: dict[str, Any] = {
            "number": self.number,
            "text": self.text,
            "kind": self.kind,
            "options": list(self.options),
            "phase": self.phase,
            "near": self.near,
        }
        if self.phase is Phase.TOLD:
            told |= {"right": self.right, "why": self.why, "right_answers": self.right_answers}
        if self.phase is not Phase.OPEN or not self.hidden:
            told |= {"bars": self.bars(), "answered": len(self.answers)}
        return told

    def counted(self) -> dict[str, Any]:
        """What the teacher sees: bars only where they may be on the projector."""
        return {**self.asked(), "answered": len(self.answers), "hidden": self.hidden}

    def summed_up(self) -> dict[str, Any]:
        """For the page at the end of a lesson, and its table."""
        return {
            **self.counted(),
            "bars": self.bars(),
            "right": self.right,
            "right_answers": self.right_answers,
        }

    def _value(self, raw: Mapping[str, Any]) -> float:
        if raw.get("answer") is None:
            raise UserError("There is no answer; choose one first.")
        if self.kind is Kind.NUMBER:
            return number(raw, "answer", 0, -MOST_NUMBER, MOST_NUMBER)
        return integer(raw, "answer", 0, 0, len(self.options) - 1)


def parse_question(raw: Mapping[str, Any], number: int) -> Question:
    """A question as the teacher asks it: ``text``, ``kind``, ``options``, ``hidden``.

    Raises:
        UserError: It cannot be asked.
    """
    require_known(raw, ("text", "kind", "options", "hidden"))
    kind = choice(raw, "kind", Kind, Kind.CHOICE)
    options = raw.get("options", [])
    if not isinstance(options, list) or (kind is Kind.NUMBER and options):
        raise UserError("options must be the list of answers to choose from, and empty for a number.")
    if kind is Kind.CHOICE and not 2 <= len(options) <= MOST_OPTIONS:
        raise UserError(f"A choice needs 2 to {MOST_OPTIONS} answers; it has {len(options)}.")
    texts = tuple(_text("answer", option, MOST_OPTION_CHARS) for option in options)
    if len(set(texts)) < len(texts):
        raise UserError("Two of the answers are the same; change one.")
    text = _text("question", raw.get("text"), MOST_TEXT_CHARS)
    return Question(number, text, kind, texts, flag(raw, "hidden", True))


def _text(name: str, value: object, most: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"The {name} is empty; write it first.")
    if len(value) > most:
        raise UserError(f"The {name} has {len(value):,} characters; shorten it to {most}.")
    require_readable(name, value)
    return value.strip()


def _histogram(values: list[float]) -> list[dict[str, Any]]:
    """At most ``BARS`` bars; ``values`` are sorted.

    Where there are more different ones, the bars between the outer two are of equal width and hold the middle
    of the answers: one that is a slip, or a joke, would else press all others into one bar.
    """
    distinct = Counter(values)
    if len(distinct) <= BARS:
        return [{"label": f"{value:g}", "count": distinct[value]} for value in sorted(distinct)]
    low, high = (values[round(share * (len(values) - 1))] for share in (OUTER, 1 - OUTER))
    inner = BARS - 2
    width = (high - low) / inner or 1.0
    edges = [low + place * width for place in range(inner + 1)]

    def place_of(value: float) -> int:
        if not low <= value <= high:
            return 0 if value < low else BARS - 1
        return 1 + min(inner - 1, int((value - low) / width))

    places = Counter(map(place_of, values))
    middle = [f"{edges[place]:.3g} to {edges[place + 1]:.3g}" for place in range(inner)]
    labels = [f"less than {low:.3g}", *middle, f"more than {high:.3g}"]
    return [{"label": label, "count": places[place]} for place, label in enumerate(labels)]
