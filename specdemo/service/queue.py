"""One device, many visitors: jobs wait in one bounded line, and one thread does them in turn.

One thread, because the libraries below keep a team of workers for every thread that ever computed. It
goes on only when the visitor's side has taken the last event: what is done with an event between two
rounds stays outside the decoders' clocks, and nothing is computed for somebody who has left. A place is
held from the request on, whatever is waited for before the device. Knows no models.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, TypeVar

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.shares import Visitor, making_room, refusal

Stop = Callable[[], bool]
Job = Callable[[Stop], Iterator[Event]]
T = TypeVar("T")

POLL_S = 1.0
"""How often those who wait are told so; each time costs a little of the running decoder's processor."""
ABANDONED_S = 60.0
"""A job whose events nobody takes for so long is ended: its visitor's side was lost without a word."""
CUT_S = 5.0
"""How long a job that is told to end is waited for when the line closes."""
USUAL_S = 15.0
"""What a kind of job is taken to need until one of them has been seen."""
NEWEST = 0.3
"""Weight of the newest job in what its kind usually needs."""


@dataclass(frozen=True)
class Bounds:
    """How much of the device visitors can have.

    Attributes:
        most_waiting: Jobs that wait at most, for models or for the device; who comes after them is asked to
            come back later.
        most_seconds: How long one job may hold the device.
    """

    most_waiting: int = 20
    most_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not (0 <= self.most_waiting <= 1_000 and 0 < self.most_seconds < float("inf")):
            raise UserError("Up to 1,000 jobs may wait, and one may take any number of seconds above 0.")


class _Over:
    """Behind the last event of a job."""


_OVER: Final = _Over()


@dataclass(eq=False)
class Place:
    """One visitor's place in the line, and the job it is for once that can be done.

    Attributes:
        refused: Why it was taken away before it began.
        told: The job's events as they come, then what ended it.
        wanted: Released when the visitor's side asks for another event.
        context: Of the visitor's request, which libraries below may want to read.
        begun: When the device began it; None before.
        left: Nobody will take its events any more.
        cut: Why it was ended before it was done.
    """

    kind: str
    visitor: Visitor | None = None
    refused: str | None = None
    job: Job | None = None
    stop: Stop = lambda: False
    context: Context = field(default_factory=copy_context)
    told: SimpleQueue[Event | BaseException | _Over] = field(default_factory=SimpleQueue)
    wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: float | None = None
    left: bool = False
    cut: str | None = None

    def require(self) -> None:
        """Say so where it was taken away.

        Raises:
            UserError: It was.
        """
        if self.refused is not None:
            raise UserError(self.refused)


class Line:
    """The line of one device.

    Args:
        bounds: How long it may grow, and a job may last.
        clock: Seconds.
    """

    def __init__(self, bounds: Bounds | None = None, clock: Callable[[], float] = time.monotonic):
        self.bounds = bounds or Bounds()
        self._clock = clock
        self._changed = threading.Condition()
        self._taken: list[Place] = []
        self._waiting: list[Place] = []
        """Those whose job could begin."""
        self._running: Place | None = None
        self._closed: str | None = None
        self._thread: threading.Thread | None = None
        self._usual: dict[str, float] = {}

    @contextmanager
    def place(self, kind: str, visitor: Visitor | None = None) -> Iterator[Place]:
        """A place for one job, held until its visitor leaves.

        Args:
            kind: What the job is called; the expected wait is learned for each kind.
            visitor: Whose share it counts to; None for the program's own.

        Raises:
            UserError: The line is full or closed, or the visitor has their share already.
        """
        place = Place(kind, visitor)
        self._enter(place)
        try:
            yield place
        finally:
            self._leave(place)

    def turn(self, place: Place, job: Job, stop: Stop) -> Iterator[Event]:
        """Wait for the device, then do ``job`` on it.

        Args:
            place: Held by the caller.
            job: Called on the device's thread with the ``stop`` it has to ask once a round.
            stop: The visitor's wish to end it.

        Yields:
            ``progress`` events with ``ahead`` (jobs before this one) and ``wait_s`` while waiting, then the
            job's own.

        Raises:
            UserError: The place was taken away, or the job ended before it was done.
        """
        place.job, place.stop, place.context = job, stop, copy_context()
        with self._changed:
            place.require()
            self._queue(place, len(self._waiting))
        yield from self._until_begun(place)
        while (event := place.told.get()) is not _OVER:
            if isinstance(event, BaseException):
                raise event
            yield event
            place.wanted.release()
        if place.cut is not None:
            raise UserError(place.cut)

    def first(self, kind: str, work: Callable[[], T]) -> T:
        """Do the program's own ``work`` on the device's thread, before all who wait, and give its result.

        Raises:
            UserError: The line is closed.
        """
        results: list[T] = []

        def job(_stop: Stop) -> Iterator[Event]:
            results.append(work())
            yield from ()

        place = Place(kind, job=job)
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            self._queue(place, 0)
        if isinstance(told := place.told.get(), BaseException):
            raise told
        return results[0]

    def close(self, sentence: str, within_s: float) -> None:
        """Take nobody any more, and wait until the job under way is done and told.

        Args:
            sentence: What everybody else is refused with.
            within_s: The job is ended after so long; what it did until then is kept.
        """
        with self._changed:
            self._closed = sentence
            for place in [one for one in self._taken if one.begun is None]:
                self._dismiss(place, sentence)
            for place in self._waiting:
                place.told.put(UserError(sentence))
            self._waiting.clear()
            if not self._changed.wait_for(lambda: not self._taken, within_s) and self._running is not None:
                self._running.cut = f"This was ended, what was done until then is kept. {sentence}"
            self._changed.wait_for(lambda: not self._taken, CUT_S)

    def _enter(self, place: Place) -> None:
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            if told := refusal(place.kind, place.visitor, self._taken):
                raise UserError(told)
            waiting = [one for one in self._taken if one.begun is None]
            busy = self._running is not None or waiting
            if busy and len(waiting) >= self.bounds.most_waiting:
                again = f"please try again in about {_rounded(self._wait_s(waiting))} s."
                if (out := making_room(place.visitor, waiting)) is None:
                    raise UserError(f"The queue is full: {len(waiting)} are waiting already; {again}")
                self._dismiss(
                    out, f"The queue is full, and your address had more than half of its places; {again}"
                )
            self._taken.append(place)

    def _queue(self, place: Place, index: int) -> None:
        self._waiting.insert(index, place)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="device", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _dismiss(self, place: Place, sentence: str) -> None:
        """Take a place away that has not begun; its visitor's side finds out when it looks next."""
        place.refused = sentence
        self._forget(place)

    def _forget(self, place: Place) -> None:
        for places in (self._taken, self._waiting):
            with suppress(ValueError):  # it is not there any more
                places.remove(place)
        self._changed.notify_all()

    def _leave(self, place: Place) -> None:
        with self._changed:
            place.left = True
            self._forget(place)
        place.wanted.release()

    def _until_begun(self, place: Place) -> Iterator[Event]:
        """The place in the line every now and then; ends when the job has begun.

        Also where it has not changed: only between two events can a visitor be found to have left.
        """
        while True:
            with self._changed:
                place.require()
                if place.begun is not None:
                    return
                before = self._waiting[: self._waiting.index(place)]
                ahead = len(before) + (self._running is not None)
                wait_s = _rounded(self._wait_s(before))
            if place.stop():
                self._leave(place)
                place.told.put(_OVER)
                yield {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
                return
            if ahead:
                yield _waiting_event(ahead, wait_s)
            with self._changed:
                self._changed.wait_for(lambda: place.begun is not None or place.refused is not None, POLL_S)

    def _wait_s(self, before: list[Place]) -> float:
        """Seconds until whoever comes after these will begin, as far as one can tell."""
        waits = sum(self._usually(place.kind) for place in before)
        running = self._running
        if running is None or running.begun is None:
            return waits
        return waits + max(0.0, self._usually(running.kind) - (self._clock() - running.begun))

    def _usually(self, kind: str) -> float:
        return self._usual.get(kind, USUAL_S)

    def _work(self) -> None:
        """The device's thread: one job after the other, for as long as the program runs."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                place = self._running = self._waiting.pop(0)
                begun = place.begun = self._clock()
                self._changed.notify_all()
            whole = False
            try:
                whole = place.context.run(self._do, place, begun)
                place.told.put(_OVER)
            except BaseException as error:  # it is the visitor's side that has to say it
                place.told.put(error)
            with self._changed:
                self._learn(place.kind, self._clock() - begun, whole)
                self._running = None
                self._changed.notify_all()
            # Nothing of a finished job, the traceback of its failure included, outlives it here.
            del place

    def _learn(self, kind: str, took: float, whole: bool) -> None:
        """Of a job that was ended early only this is known: that it needs at least so long."""
        if whole or took > self._usually(kind):
            self._usual[kind] = took + (1 - NEWEST) * (self._usual.get(kind, took) - took)

    def _do(self, place: Place, begun: float) -> bool:
        """Do the job of a place; whether it was done to its end."""
        asked = False

        def ended() -> bool:
            nonlocal asked
            if place.cut is None and self._clock() - begun > self.bounds.most_seconds:
                place.cut = (
                    f"The time limit of {self.bounds.most_seconds:g} s ended this, what was done until then "
                    "is kept; ask for less at once."
                )
            asked = asked or place.left or place.cut is not None or place.stop()
            return asked

        # ``closing`` wants generators, which all jobs are.
        with closing(place.job(ended)) as events:  # type: ignore[misc, type-var]
            for event in events:
                place.told.put(event)
                if not place.wanted.acquire(timeout=ABANDONED_S):
                    raise UserError("Nobody took what this told for a minute, so it was ended; run it again.")
                if place.left:
                    return False
        return not asked


def _waiting_event(ahead: int, wait_s: int) -> Event:
    others = "one visitor is" if ahead == 1 else f"{ahead} visitors are"
    return {
        "type": "progress",
        "text": f"In the queue: {others} before you, about {wait_s} s to wait",
        "fraction": 0.0,
        "ahead": ahead,
        "wait_s": wait_s,
    }


def _rounded(seconds: float) -> int:
    """To five seconds, upwards: more would be false precision, and an update to send every moment."""
    return max(5, int(-(-seconds // 5) * 5))
