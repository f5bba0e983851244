"""The questions of one class, one on the page at a time, and who is told what of it. Knows no HTTP."""

from collections.abc import Callable, Mapping
from typing import Any

from specdemo.classroom.log import Log
from specdemo.classroom.question import Question, parse_question
from specdemo.records.limits import UserError

MOST_QUESTIONS = 200


class Questions:
    """Asks one after the other.

    Args:
        log: Where everybody is told.
        tell: Wakes who reads it.
    """

    def __init__(self, log: Log, tell: Callable[[], None]) -> None:
        self._log = log
        self._tell = tell
        self._asked: list[Question] = []
        self._shown: Question | None = None

    @property
    def at_hand(self) -> Question | None:
        """The one that is on the page."""
        return self._shown

    def ask(self, raw: Mapping[str, Any]) -> None:
        """Put the next question on the page.

        Raises:
            UserError: It cannot be asked.
        """
        if len(self._asked) >= MOST_QUESTIONS:
            raise UserError(f"A class has {MOST_QUESTIONS} questions at most; start another class.")
        self._shown = parse_question(raw, len(self._asked) + 1)
        self._asked.append(self._shown)
        self._show()

    def close(self) -> None:
        """Take no more answers to it; raises ``UserError`` where there is none."""
        self._require().close()
        self._show()

    def tell_right(self, raw: Mapping[str, Any]) -> None:
        """What was measured, as ``Question.tell`` has it; raises ``UserError``."""
        self._require().tell(raw)
        self._show()

    def put_away(self) -> None:
        """Take it off the page; raises ``UserError`` where there is none."""
        self._require().close()
        self._shown = None
        self._log.put("question", {"type": "question", "question": None})

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        """Take a student's answer.

        Raises:
            UserError: It is refused.
        """
        if self._shown is None:
            raise UserError("No question is asked now; wait for the next.")
        self._shown.answer(student, raw)
        if not self._shown.hidden:
            self._show()

    def given(self, student: str) -> dict[str, Any] | None:
        """What a student has answered to the ``question`` on the page, by its number: the ``answer``."""
        if self._shown is None or student not in self._shown.answers:
            return None
        return {"question": self._shown.number, "answer": self._shown.answers[student]}

    def summed_up(self) -> list[dict[str, Any]]:
        """All of them with their answers, for the page at the end of a lesson."""
        return [question.summed_up() for question in self._asked]

    def _require(self) -> Question:
        if self._shown is None:
            raise UserError("No question is asked now.")
        return self._shown

    def _show(self) -> None:
        assert self._shown is not None
        self._log.put("question", {"type": "question", "question": self._shown.asked()})
        self._tell()
