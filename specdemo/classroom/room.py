"""One class: what its teacher shows, and its students' answers.

The teacher's messages are taken one by one; what may be in each is checked, since a room may be anybody's.
Everything happens on one event loop. Knows no HTTP.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from specdemo.classroom.games import Games, Judge
from specdemo.classroom.log import Log
from specdemo.classroom.question import Phase, Question, parse_question
from specdemo.classroom.rates import Rates, TooOftenError
from specdemo.classroom.shown_run import ShownRun
from specdemo.classroom.signal import Signal
from specdemo.classroom.view import parse_view
from specdemo.records.limits import UserError, integer

MOST_STUDENTS = 300
"""Who are there at the same time."""
MOST_KNOWN = 2_000
"""Who were ever there: a browser that has forgotten who it was counts anew."""
BETWEEN_S = 3.0
"""How long who polls may be away between two questions for news."""
MOST_QUESTIONS = 200
ANSWERS_PER_S = 1.0
ANSWERS_AT_ONCE = 5
READS_PER_S, READS_AT_ONCE = 4.0, 20
"""Of one student: streams that are opened, and questions for news."""
MOST_STREAMS = 3
"""Of one student: a tab that was duplicated is the same student."""
IDLE_S = 600.0
"""How long a teacher's page may not be heard of before its class ends."""
MOST_NUMBER = 2**53
FULL = f"This class is full; {MOST_STUDENTS} can take part."
OVER = "The class is over."
OTHER_WINDOW = "Another window of yours shows this class now; reload this one to take it back."
NOT_THE_TEACHER = "Only who has opened this class can do that."
TOO_FAST = "That is too fast; wait a second."
UNKNOWN = "This class does not know you any more; reload the page to join again."


class OtherWindowError(UserError):
    """Another window of the teacher's shows the class now."""


@dataclass
class Student:
    """One of those who watch, known by a token.

    Attributes:
        streams: How many are open.
        left: When the last one ended, in seconds of the room's clock.
    """

    streams: int = 0
    left: float = float("-inf")


class Room:
    """One class.

    Args:
        code: What students type.
        clock: Gives seconds.
        judge: Judges what the class drafts; None where nothing can.
    """

    def __init__(
        self, code: str, clock: Callable[[], float] = time.monotonic, judge: Judge | None = None
    ) -> None:
        self.code = code
        self.secret = secrets.token_urlsafe(24)
        self.log = Log()
        self.changed = Signal()
        self._ended = False
        self._run = ShownRun(self.log)
        self._window: object = None
        self._done = 0
        self.games = Games(self.log, self.changed.tell, judge)
        self.questions: list[Question] = []
        self._asking = False
        self._clock = clock
        self._heard = clock()
        self._students: dict[str, Student] = {}
        self._most_here = 0
        self._answers = Rates(ANSWERS_PER_S, ANSWERS_AT_ONCE, clock)
        self._reads = Rates(READS_PER_S, READS_AT_ONCE, clock)
        self._kinds: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "begin": self._run.begin,
            "events": self._run.extend,
            "view": self._view,
            "ask": self._ask,
            "close": self._close_answers,
            "tell": self._tell,
            "away": self._put_away,
            "play": self.games.begin,
            "played": lambda _message: self.games.put_away(),
        }

    @property
    def over(self) -> bool:
        """Whether it was ended, or its teacher's page was not heard of for ``IDLE_S``."""
        return self._ended or self._clock() - self._heard > IDLE_S

    @property
    def here(self) -> int:
        """How many students are there; who asks for news from time to time is, in between."""
        return sum(map(self._is_here, self._students.values()))

    @property
    def question(self) -> Question | None:
        """The one that is on the page."""
        return self.questions[-1] if self.questions and self._asking else None

    def require_teacher(self, secret: str) -> None:
        """Raise ``UserError`` unless this is the room's secret."""
        if not hmac.compare_digest(secret.encode(), self.secret.encode()):
            raise UserError(NOT_THE_TEACHER)

    def take(self, post: Mapping[str, Any]) -> dict[str, Any]:
        """The teacher's messages in their order; those before a refused one have been taken.

        Args:
            post: ``messages``, and by which ``window`` of the teacher's they are sent; the latest that came
                with ``first`` is heard. A message with a ``number`` is taken once, however often it comes.

        Returns:
            How the class is: see :meth:`state`.

        Raises:
            UserError: One is refused.
            OtherWindowError: Another window is heard.
        """
        self._require_open()
        self._hear(post.get("window"), post.get("first") is True)
        messages = post.get("messages")
        if not isinstance(messages, list):
            raise UserError("messages must be a list.")
        try:
            for message in messages:
                self._take(message)
        finally:
            if messages:
                self.changed.tell()
        return self.state()

    def state(self) -> dict[str, Any]:
        """For the teacher's page: ``students`` who are there, the ``question`` with what was answered, and
        how the ``game`` stands."""
        game = self.games.at_hand
        return {
            "students": self.here,
            "question": self.question.counted() if self.question else None,
            "game": game.counted() if game else None,
        }

    def summary(self) -> dict[str, Any]:
        """The lesson at its end: most ``students`` at a time, every question with its answers, every game."""
        return {
            "students": self._most_here,
            "questions": [one.summed_up() for one in self.questions],
            "games": self.games.summed_up(),
        }

    def join(self) -> str:
        """A new student's token.

        Raises:
            UserError: The class is full.
        """
        if self.here >= MOST_STUDENTS:
            raise UserError(FULL)
        if len(self._students) >= MOST_KNOWN:
            self._forget_one()
        token = secrets.token_urlsafe(12)
        self._students[token] = Student()
        return token

    @contextmanager
    def watched_by(self, token: str) -> Iterator[None]:
        """A stream of this student's, open for as long as this lasts.

        Raises:
            UserError: The class does not know them, is full, or they have opened too many.
        """
        student = self._student(token)
        if not self._reads.take(token) or student.streams >= MOST_STREAMS:
            raise TooOftenError(TOO_FAST)
        if not self._is_here(student) and self.here >= MOST_STUDENTS:
            raise UserError(FULL)
        student.streams += 1
        self._most_here = max(self._most_here, self.here)
        try:
            yield
        finally:
            student.streams -= 1
            student.left = self._clock()

    def answer(self, token: str, raw: Mapping[str, Any]) -> None:
        """Take a student's answer.

        Raises:
            UserError: It is refused.
        """
        self._require_open()
        self._student(token)
        if not self._answers.take(token):
            raise TooOftenError(TOO_FAST)
        if self.question is None:
            raise UserError("No question is asked now; wait for the next.")
        self.question.answer(token, raw)
        if not self.question.hidden:
            self._show_question()

    def draft(self, token: str, raw: Mapping[str, Any]) -> int:
        """Take a student's draft; its number in the game.

        Raises:
            UserError: It is refused.
        """
        self._require_open()
        self._student(token)
        if not self._answers.take(token):
            raise TooOftenError(TOO_FAST)
        return self.games.take(token, raw)

    def given(self, token: str) -> dict[str, Any] | None:
        """What a student has answered to the question on the page: its number and the ``answer``."""
        question = self.question
        if question is None or token not in question.answers:
            return None
        return {"question": question.number, "answer": question.answers[token]}

    def writing(self) -> dict[str, Any] | None:
        """The ``game`` that students write for, by its number, and the seconds ``left``; or None."""
        return self.games.writing()

    def own_verdict(self, token: str) -> dict[str, Any] | None:
        """What the target made of this student's draft in the game on the page.

        Raises:
            UserError: The class does not know them.
        """
        self._student(token)
        game = self.games.at_hand
        return game.verdict_on(token) if game else None

    def drafted(self, token: str) -> dict[str, Any] | None:
        """What a student has written in the game on the page: the ``game``, the ``draft``, its ``number``."""
        game = self.games.at_hand
        if game is None or token not in game.drafts:
            return None
        number = game.number_of(token)
        return {"game": game.number, "number": number, "draft": game.drafts[token].text}

    def knows(self, token: str) -> bool:
        """Whether a student of this class has this token."""
        return token in self._students

    def require_known(self, token: str) -> None:
        """Raise ``UserError`` unless a student has this token."""
        self._student(token)

    def end(self) -> None:
        """Tell everybody that the class is over."""
        self._ended = True
        self.games.end()
        self.changed.tell()

    def _hear(self, window: object, first: bool) -> None:
        if first and window != self._window:
            self._window, self._done = window, 0
        if window != self._window:
            raise OtherWindowError(OTHER_WINDOW)
        self._heard = self._clock()

    def _take(self, message: object) -> None:
        kind = message.get("type") if isinstance(message, dict) else None
        take = self._kinds.get(kind) if isinstance(kind, str) else None
        if take is None or not isinstance(message, dict):
            raise UserError(f"A message must be one of: {', '.join(self._kinds)}.")
        number = integer(message, "number", 0, 0, MOST_NUMBER)
        if number and number <= self._done:
            return
        take({key: value for key, value in message.items() if key not in ("type", "number")})
        self._done = max(self._done, number)

    def _view(self, message: Mapping[str, Any]) -> None:
        self.log.put("view", {"type": "view", **parse_view(message)})

    def _ask(self, message: Mapping[str, Any]) -> None:
        if len(self.questions) >= MOST_QUESTIONS:
            raise UserError(f"A class has {MOST_QUESTIONS} questions at most; start another class.")
        self.questions.append(parse_question(message, len(self.questions) + 1))
        self._asking = True
        self._show_question()

    def _close_answers(self, _message: Mapping[str, Any]) -> None:
        self._asked().close()
        self._show_question()

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._asked().tell(message)
        self._show_question()

    def _put_away(self, _message: Mapping[str, Any]) -> None:
        question = self._asked()
        if question.phase is Phase.OPEN:
            question.close()
        self._asking = False
        self.log.put("question", {"type": "question", "question": None})

    def _asked(self) -> Question:
        if self.question is None:
            raise UserError("No question is asked now.")
        return self.question

    def _show_question(self) -> None:
        assert self.question is not None
        self.log.put("question", {"type": "question", "question": self.question.asked()})
        self.changed.tell()

    def _require_open(self) -> None:
        if self.over:
            raise UserError(OVER)

    def _is_here(self, student: Student) -> bool:
        return student.streams > 0 or student.left > self._clock() - BETWEEN_S

    def _student(self, token: str) -> Student:
        student = self._students.get(token)
        if student is None:
            raise UserError(UNKNOWN)
        return student

    def _forget_one(self) -> None:
        """Of those who are not there, who came first."""
        for token, student in self._students.items():
            if not student.streams:
                del self._students[token]
                return
