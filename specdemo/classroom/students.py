"""Who watches a class: tokens, the streams they have open, and how often each may do something.

Knows neither what they read nor what they say.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specdemo.classroom.rates import Rates, TooOftenError
from specdemo.records.limits import UserError

MOST_STUDENTS = 300
"""Who are there at the same time."""
MOST_KNOWN = 2_000
"""Who were ever there: a browser that has forgotten who it was counts anew."""
MOST_STREAMS = 3
"""Of one student: a tab that was duplicated is the same student."""
BETWEEN_S = 3.0
"""How long who polls may be away between two questions for news."""
SAID_PER_S, SAID_AT_ONCE = 1.0, 5
"""Answers and drafts of one student."""
READS_PER_S, READS_AT_ONCE = 4.0, 20
"""Of one student: streams that are opened, and questions for news."""
FULL = f"This class is full; {MOST_STUDENTS} can take part."
TOO_FAST = "That is too fast; wait a second."
UNKNOWN = "This class does not know you any more; reload the page to join again."


@dataclass
class _Student:
    """One of them.

    Attributes:
        streams: How many are open.
        left: When the last one ended, in seconds of the clock.
    """

    streams: int = 0
    left: float = float("-inf")


class Students:
    """Those of one class.

    Args:
        clock: Gives seconds.

    Attributes:
        most_here: How many were there at most, at a time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Student] = {}
        self._said = Rates(SAID_PER_S, SAID_AT_ONCE, clock)
        self._reads = Rates(READS_PER_S, READS_AT_ONCE, clock)
        self.most_here = 0

    @property
    def here(self) -> int:
        """How many are there; who asks for news from time to time is, in between."""
        return sum(map(self._is_here, self._known.values()))

    def join(self) -> str:
        """A new student's token.

        Raises:
            UserError: The class is full.
        """
        if self.here >= MOST_STUDENTS:
            raise UserError(FULL)
        if len(self._known) >= MOST_KNOWN:
            self._forget_one()
        token = secrets.token_urlsafe(12)
        self._known[token] = _Student()
        return token

    def knows(self, token: str) -> bool:
        """Whether a student has this token."""
        return token in self._known

    def require_known(self, token: str) -> None:
        """Raise ``UserError`` unless a student has this token."""
        if token not in self._known:
            raise UserError(UNKNOWN)

    def let_speak(self, token: str) -> None:
        """Somebody says something.

        Raises:
            UserError: Nobody known, or too soon after the last time.
        """
        self.require_known(token)
        if not self._said.take(token):
            raise TooOftenError(TOO_FAST)

    @contextmanager
    def watching(self, token: str) -> Iterator[None]:
        """A stream of this student's, open for as long as this lasts.

        Raises:
            UserError: The class does not know them, is full, or they have opened too many.
        """
        self.require_known(token)
        student = self._known[token]
        if not self._reads.take(token) or student.streams >= MOST_STREAMS:
            raise TooOftenError(TOO_FAST)
        if not self._is_here(student) and self.here >= MOST_STUDENTS:
            raise UserError(FULL)
        student.streams += 1
        self.most_here = max(self.most_here, self.here)
        try:
            yield
        finally:
            student.streams -= 1
            student.left = self._clock()

    def _is_here(self, student: _Student) -> bool:
        return student.streams > 0 or student.left > self._clock() - BETWEEN_S

    def _forget_one(self) -> None:
        """Of those who are not there, who came first."""
        for token, student in self._known.items():
            if not student.streams:
                del self._known[token]
                return
