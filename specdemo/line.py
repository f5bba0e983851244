"""One device, many visitors: jobs wait in one bounded line, and one thread does them in turn.

One thread, because the libraries below keep a team of workers for every thread that ever computed. It
goes on only when the visitor's side has taken the last event: what is done with an event between two
rounds stays outside the decoders' clocks, and nothing is computed for somebody who has left. Knows no
models.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from specdemo.events import Event
from specdemo.limits import UserError

Stop = Callable[[], bool]
Job = Callable[[Stop], Iterator[Event]]

POLL_S = 1.0
"""How often those who wait are told so; each time costs a little of the running decoder's processor."""
ABANDONED_S = 60.0
"""A job whose events nobody takes for so long is ended: its visitor's side was lost without a word."""
USUAL_S = 15.0
"""What a kind of job is taken to need until one of them has been seen."""
NEWEST = 0.3
"""Weight of the newest job in what its kind usually needs."""


@dataclass(frozen=True)
class Bounds:
    """How much of the device visitors can have.

    Attributes:
        most_waiting: Jobs that wait at most; who comes after them is asked to come back later.
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
class _Place:
    """One visitor's job in the line.

    Attributes:
        told: Its events as they come, then what ended it.
        wanted: Released when the visitor's side asks for another event.
        context: Of the visitor's request, which libraries below may want to read.
        begun: When the device began it; None before.
        left: Nobody will take its events any more.
        overdue: It was ended because it had held the device for too long.
    """

    kind: str
    job: Job
    stop: Stop
    context: Context
    told: SimpleQueue[Event | BaseException | _Over] = field(default_factory=SimpleQueue)
    wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: float | None = None
    left: bool = False
    overdue: bool = False


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
        self._waiting: list[_Place] = []
        self._running: _Place | None = None
        self._thread: threading.Thread | None = None
        self._usual: dict[str, float] = {}

    def events(self, kind: str, job: Job, stop: Stop) -> Iterator[Event]:
        """Wait for the device, then do ``job`` on it.

        Args:
            kind: What the job is called; the expected wait is learned for each kind.
            job: Called on the device's thread with the ``stop`` it has to ask once a round.
            stop: The visitor's wish to end it.

        Yields:
            ``progress`` events with ``ahead`` (jobs before this one) and ``wait_s`` while waiting, then the
            job's own.

        Raises:
            UserError: The line is full, or the job took longer than it may.
        """
        place = self._join(kind, job, stop)
        try:
            yield from self._until_begun(place)
            while (event := place.told.get()) is not _OVER:
                if isinstance(event, BaseException):
                    raise event
                yield event
                place.wanted.release()
            if place.overdue:
                raise UserError(
                    f"The time limit of {self.bounds.most_seconds:g} s ended this, what was done until then "
                    "is kept; ask for less at once."
                )
        finally:
            self._leave(place)

    def _join(self, kind: str, job: Job, stop: Stop) -> _Place:
        place = _Place(kind, job, stop, copy_context())
        with self._changed:
            busy = self._running is not None or self._waiting
            if busy and len(self._waiting) >= self.bounds.most_waiting:
                raise UserError(
                    f"The queue is full: {len(self._waiting)} are waiting already; please try again in "
                    f"about {_rounded(self._wait_s(len(self._waiting)))} s."
                )
            self._waiting.append(place)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="device", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return place

    def _leave(self, place: _Place) -> None:
        with self._changed:
            place.left = True
            with suppress(ValueError):  # it has begun
                self._waiting.remove(place)
            self._changed.notify_all()
        place.wanted.release()

    def _until_begun(self, place: _Place) -> Iterator[Event]:
        """The place in the line every now and then; ends when the job has begun.

        Also where it has not changed: only between two events can a visitor be found to have left.
        """
        while True:
            with self._changed:
                if place.begun is not None:
                    return
                ahead = self._waiting.index(place) + (self._running is not None)
                wait_s = _rounded(self._wait_s(self._waiting.index(place)))
            if place.stop():
                self._leave(place)
                place.told.put(_OVER)
                yield {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
                return
            if ahead:
                yield _waiting_event(ahead, wait_s)
            with self._changed:
                self._changed.wait_for(lambda: place.begun is not None, POLL_S)

    def _wait_s(self, index: int) -> float:
        """Seconds until the place at ``index`` of those waiting will begin, as far as one can tell."""
        before = sum(self._usually(place.kind) for place in self._waiting[:index])
        running = self._running
        if running is None or running.begun is None:
            return before
        return before + max(0.0, self._usually(running.kind) - (self._clock() - running.begun))

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
            try:
                place.context.run(self._do, place, begun)
                place.told.put(_OVER)
            except BaseException as error:  # it is the visitor's side that has to say it
                place.told.put(error)
            with self._changed:
                took = self._clock() - begun
                self._usual[place.kind] = took + (1 - NEWEST) * (self._usual.get(place.kind, took) - took)
                self._running = None
                self._changed.notify_all()
            # Nothing of a finished job, the traceback of its failure included, outlives it here.
            del place

    def _do(self, place: _Place, begun: float) -> None:
        def ended() -> bool:
            place.overdue = place.overdue or self._clock() - begun > self.bounds.most_seconds
            return place.left or place.overdue or place.stop()

        # ``closing`` wants generators, which all jobs are.
        with closing(place.job(ended)) as events:  # type: ignore[type-var]
            for event in events:
                place.told.put(event)
                if not place.wanted.acquire(timeout=ABANDONED_S):
                    raise UserError("Nobody took what this told for a minute, so it was ended; run it again.")
                if place.left:
                    return


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
