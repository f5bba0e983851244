"""The students of a class: their tokens, their open streams, and rate limits."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specdemo.records.limits import UserError

# At the same time.
MAX_STUDENTS = 300
# The maximum number of tokens that a class remembers; a browser that has lost its token gets a new one.
MAX_KNOWN = 2_000
# The maximum number of open streams of one student: all tabs of a browser are the same student.
MAX_STREAMS = 3
MAX_BUCKETS = 10_000
# A student counts as absent after this time without a stream; pages that poll have short gaps.
ABSENT_S = 2.0
# The rate limits of one student: of answers and drafts, and of streams and polls.
POSTS_PER_S, POST_BURST = 1.0, 5
READS_PER_S, READ_BURST = 4.0, 20
FULL = f"This class is full: it has {MAX_STUDENTS} students, the maximum."
TOO_FAST = "Too many requests; wait a second."
UNKNOWN = "Your page is not in this class any more; reload the page to join again."


class TooOftenError(UserError):
    """The request exceeds a rate limit; it may succeed later."""


class Rates:
    """A rate limiter with a bucket for each key. A full bucket, and a new one, has ``burst`` tokens."""

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
    """The students of one class; ``max_present`` is the highest number of those present at the same time."""

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
        """Add a student and return their token."""
        if self.present >= MAX_STUDENTS:
            raise UserError(FULL)
        if len(self._known) >= MAX_KNOWN:  # Forget the earliest student without an open stream.
            del self._known[next(token for token, student in self._known.items() if not student.streams)]
        token = secrets.token_urlsafe(12)
        self._known[token] = _Student()
        return token

    def knows(self, token: str) -> bool:
        return token in self._known

    def require_known(self, token: str) -> None:
        if token not in self._known:
            raise UserError(UNKNOWN)

    def require_post(self, token: str) -> None:
        """Count one answer or draft towards the student's rate limit."""
        self.require_known(token)
        if not self._posts.take(token):
            raise TooOftenError(TOO_FAST)

    @contextmanager
    def reading(self, token: str) -> Iterator[None]:
        """Count an open stream of this student while the ``with`` block runs."""
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
