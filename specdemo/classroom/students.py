"""The students of a class: their tokens, their open streams, and rate limits."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specdemo.records.limits import UserError

MAX_STUDENTS = 300
"""The maximum number of students present at the same time."""
MAX_KNOWN = 2_000
"""The maximum number of tokens that a class remembers.

It is larger than ``MAX_STUDENTS``, because a browser that has lost its token joins as another student.
"""
MAX_STREAMS = 3
"""The maximum number of open streams of one student: all tabs of a browser are the same student."""
MAX_BUCKETS = 10_000
ABSENT_S = 3.0
"""A student counts as absent after this many seconds without a stream; pages that poll have short gaps."""
POSTS_PER_S, POST_BURST = 1.0, 5
"""The rate limit of answers and drafts from one student."""
READS_PER_S, READ_BURST = 4.0, 20
"""The rate limit of streams and polls that one student starts."""
FULL = f"This class is full; {MAX_STUDENTS} can take part."
TOO_FAST = "Too many requests; wait a second."
UNKNOWN = "This class does not know this page; reload it to join again."


class TooOftenError(UserError):
    """The request exceeds a rate limit; it may succeed later."""


class Rates:
    """A rate limiter with a token bucket for each key.

    Args:
        per_s: The number of tokens that each bucket gains per second.
        burst: The number of tokens in a full bucket; a new bucket is full.
        clock: Returns the current time in seconds.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def allow(self, key: Hashable) -> bool:
        """Return True if the bucket has a token; do not take it."""
        return self._left(key) >= 1

    def take(self, key: Hashable) -> bool:
        """Take a token if the bucket has one; return False if it is empty."""
        left = self._left(key)
        allowed = left >= 1
        self._buckets.pop(key, None)
        self._buckets[key] = (left - allowed, self._clock())
        if len(self._buckets) > MAX_BUCKETS:  # Forget the key that was not used for the longest time.
            self._buckets.popitem(last=False)
        return allowed

    def _left(self, key: Hashable) -> float:
        now = self._clock()
        left, then = self._buckets.get(key, (float(self._burst), now))
        return min(self._burst, left + (now - then) * self._per_s)


@dataclass
class _Student:
    streams: int = 0
    left_at: float = float("-inf")


class Students:
    """The students of one class.

    Args:
        clock: Returns the current time in seconds.

    Attributes:
        max_present: The highest number of students who were present at the same time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Student] = {}
        self._posts = Rates(POSTS_PER_S, POST_BURST, clock)
        self._reads = Rates(READS_PER_S, READ_BURST, clock)
        self.max_present = 0

    @property
    def present(self) -> int:
        """The number of students who have an open stream, or had one within the last ``ABSENT_S`` seconds."""
        return sum(map(self._is_present, self._known.values()))

    def absent(self, tokens: Iterable[str]) -> int:
        """Return how many of these students are not present."""
        known = (self._known.get(token) for token in tokens)
        return sum(student is None or not self._is_present(student) for student in known)

    def join(self) -> str:
        """Add a student and return their token.

        Raises:
            UserError: The class is full.
        """
        if self.present >= MAX_STUDENTS:
            raise UserError(FULL)
        if len(self._known) >= MAX_KNOWN:  # Forget the earliest student without an open stream.
            del self._known[next(token for token, student in self._known.items() if not student.streams)]
        token = secrets.token_urlsafe(12)
        self._known[token] = _Student()
        return token

    def knows(self, token: str) -> bool:
        """Return True if a student has this token."""
        return token in self._known

    def require_known(self, token: str) -> None:
        """Raise ``UserError`` unless a student has this token."""
        if token not in self._known:
            raise UserError(UNKNOWN)

    def require_post(self, token: str) -> None:
        """Count one answer or draft towards the student's rate limit.

        Raises:
            UserError: No student has this token.
            TooOftenError: The student posts too often.
        """
        self.require_known(token)
        if not self._posts.take(token):
            raise TooOftenError(TOO_FAST)

    @contextmanager
    def reading(self, token: str) -> Iterator[None]:
        """Count an open stream of this student while the ``with`` block runs.

        Raises:
            UserError: No student has this token, or the class is full.
            TooOftenError: The student reads too often or has too many streams.
        """
        self.require_known(token)
        student = self._known[token]
        if not self._reads.take(token) or student.streams >= MAX_STREAMS:
            raise TooOftenError(TOO_FAST)
        if not self._is_present(student) and self.present >= MAX_STUDENTS:
            raise UserError(FULL)
        student.streams += 1
        self.max_present = max(self.max_present, self.present)
        try:
            yield
        finally:
            student.streams -= 1
            student.left_at = self._clock()

    def _is_present(self, student: _Student) -> bool:
        return student.streams > 0 or student.left_at > self._clock() - ABSENT_S
