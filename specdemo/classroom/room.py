"""One class: what its teacher shows, and its students' answers.

The teacher's messages are taken one by one; what may be in each is checked, since a room may be anybody's.
Everything happens on one event loop. Knows no HTTP.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from specdemo.classroom.games import Games, Judge
from specdemo.classroom.log import Log
from specdemo.classroom.questions import Questions
from specdemo.classroom.shown_run import ShownRun
from specdemo.classroom.signal import Signal
from specdemo.classroom.students import Students
from specdemo.classroom.view import parse_view
from specdemo.records.limits import UserError, integer

IDLE_S = 600.0
"""How long a teacher's page may not be heard of before its class ends."""
MOST_NUMBER = 2**53
OVER = "The class is over."
OTHER_WINDOW = "Another window of yours shows this class now; reload this one to take it back."
NOT_THE_TEACHER = "Only the page that has opened this class can do that."


class OtherWindowError(UserError):
    """Another window of the teacher's shows the class now."""


class Room:
    """One class.

    Args:
        code: What students type.
        clock: Gives seconds.
        judge: Judges what the class drafts; None where nothing can.

    Attributes:
        secret: By which the teacher's page is known.
        log: What is shown.
        changed: Wakes who reads it.
        students, questions, games: The parts of the class.
    """

    def __init__(
        self, code: str, clock: Callable[[], float] = time.monotonic, judge: Judge | None = None
    ) -> None:
        self.code = code
        self.secret = secrets.token_urlsafe(24)
        self.log = Log()
        self.changed = Signal()
        self.students = Students(clock)
        self.questions = Questions(self.log, self.changed.tell)
        self.games = Games(self.log, self.changed.tell, judge)
        self._clock = clock
        self._heard = clock()
        self._ended = False
        self._window: object = None
        self._done = 0
        run = ShownRun(self.log)
        self._kinds: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "begin": run.begin,
            "events": run.extend,
            "view": self._view,
            "ask": self.questions.ask,
            "close": lambda _message: self.questions.close(),
            "tell": self.questions.tell_right,
            "away": lambda _message: self.questions.put_away(),
            "play": self.games.begin,
            "played": lambda _message: self.games.put_away(),
        }

    @property
    def over(self) -> bool:
        """Whether it was ended, or its teacher's page was not heard of for ``IDLE_S``."""
        return self._ended or self._clock() - self._heard > IDLE_S

    def knows(self, token: str) -> bool:
        """Return whether this is a student's token or the teacher's secret."""
        return self.students.knows(token) or self._is_secret(token)

    def require_teacher(self, secret: str) -> None:
        """Raise ``UserError`` unless this is the room's secret."""
        if not self._is_secret(secret):
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
        question, game = self.questions.at_hand, self.games.at_hand
        return {
            "students": self.students.here,
            "question": question.counted() if question else None,
            "game": game.counted() if game else None,
        }

    def summary(self) -> dict[str, Any]:
        """The lesson at its end: most ``students`` at a time, every question with its answers, every game."""
        return {
            "students": self.students.most_here,
            "questions": self.questions.summed_up(),
            "games": self.games.summed_up(),
        }

    def known_of(self, student: str) -> dict[str, Any]:
        """What somebody who joins is told: what they have ``given`` and ``drafted`` before, if they were
        here, and the game there is still time ``writing`` for."""
        return {
            "given": self.questions.given(student),
            "drafted": self.games.drafted(student),
            "writing": self.games.writing(),
        }

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        """Take a student's answer; raises ``UserError`` where it is refused."""
        self._require_open()
        self.students.let_speak(student)
        self.questions.answer(student, raw)

    def draft(self, student: str, raw: Mapping[str, Any]) -> int:
        """Take a student's draft; its number in the game. Raises ``UserError`` where it is refused."""
        self._require_open()
        self.students.let_speak(student)
        return self.games.take(student, raw)

    def end(self) -> None:
        """Tell everybody that the class is over."""
        self._ended = True
        self.games.end()
        self.changed.tell()

    def _is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self.secret.encode())

    def _require_open(self) -> None:
        if self.over:
            raise UserError(OVER)

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
