"""One device, many visitors: jobs wait in one bounded queue, and one thread does them in turn.

One thread, because the libraries below keep a team of workers for every thread that ever computed. It is
called the device's thread here; every visitor comes on a thread of their own. A job goes on only when its
visitor's thread has taken the last event: what is done with an event between two rounds stays outside the
decoders' clocks, and nothing is computed for somebody who has left. A place is held from the request on,
whatever is waited for before the device. Knows no models.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.queue_place import END_OF_JOB, Job, Place, Stop
from specdemo.service.shares import Visitor, making_room, refusal
from specdemo.service.waits import UsualSeconds, rounded_seconds, waiting_event

T = TypeVar("T")

POLL_S = 1.0
"""How often those who wait are told so; each time costs a little of the running decoder's processor."""
CUT_S = 5.0
"""How long a job that is told to end is waited for when the queue closes."""


@dataclass(frozen=True)
class Bounds:
    """How much of the device visitors can have.

    Attributes:
        most_waiting: Jobs that wait at most, for models or for the device; who comes after them is asked to
            come back later.
        most_seconds: How long one job may hold the device, in seconds.

    Raises:
        UserError: They are out of bounds themselves.
    """

    most_waiting: int = 20
    most_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not (0 <= self.most_waiting <= 1_000 and 0 < self.most_seconds < float("inf")):
            raise UserError("Up to 1,000 jobs may wait, and one may take any number of seconds above 0.")


class JobQueue:
    """The jobs of one device, in order of arrival.

    Args:
        bounds: How long it may grow, and a job may last.
        clock: Gives seconds.
    """

    def __init__(self, bounds: Bounds | None = None, clock: Callable[[], float] = time.monotonic):
        self.bounds = bounds or Bounds()
        self._clock = clock
        self._changed = threading.Condition()
        self._taken: list[Place] = []
        """All places that visitors hold, of those who wait for models and of the job under way as well."""
        self._waiting: list[Place] = []
        """Those whose job could begin."""
        self._running: Place | None = None
        self._closed: str | None = None
        self._thread: threading.Thread | None = None
        self._usual = UsualSeconds()

    @contextmanager
    def place(self, kind: str, visitor: Visitor | None = None) -> Iterator[Place]:
        """A place for one job, held until its visitor leaves.

        Args:
            kind: What the job is called; the expected wait is learned for each kind.
            visitor: Whose share it counts to; None for the program's own.

        Raises:
            UserError: The queue is full or closed, or the visitor has their share already.
        """
        place = Place(kind, visitor)
        self._enter(place)
        try:
            yield place
        finally:
            self._leave(place)

    def turn(self, place: Place, job: Job, stop: Stop) -> Generator[Event, None, None]:
        """Wait for the device, then have ``job`` done on it; to be read on the visitor's thread.

        Args:
            place: Held by the caller.
            job: Called on the device's thread with the ``stop`` it has to ask once a round.
            stop: The visitor's wish to end it, asked on either thread.

        Yields:
            ``progress`` events with ``ahead`` (jobs before this one) and ``wait_s`` while waiting, then the
            job's own.

        Raises:
            UserError: The place was taken away, or the job was ended before it was done.
            Exception: Whatever the job raised.
        """
        place.job, place.stop, place.context = job, stop, copy_context()
        with self._changed:
            place.require_kept()
            self._insert(place, len(self._waiting))
        yield from self._until_begun(place)
        yield from place.events()

    def first(self, kind: str, work: Callable[[], T]) -> T:
        """Have the program's own ``work`` done on the device's thread before all who wait; blocks until then.

        Returns:
            What ``work`` returned.

        Raises:
            UserError: The queue is closed.
            Exception: Whatever ``work`` raised.
        """
        results: list[T] = []

        def job(_stop: Stop) -> Generator[Event, None, None]:
            results.append(work())
            yield from ()

        place = Place(kind, job=job)
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            self._insert(place, 0)
        if isinstance(told := place.told.get(), BaseException):
            raise told
        return results[0]

    def close(self, sentence: str, within_s: float) -> None:
        """Take nobody any more, and wait until the job under way is done and its events are taken.

        Args:
            sentence: What everybody else is refused with.
            within_s: The job is ended after so many seconds; what it did until then is kept.
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
                again = f"please try again in about {rounded_seconds(self._wait_s(waiting))} s."
                if (out := making_room(place.visitor, waiting)) is None:
                    raise UserError(f"The queue is full: {len(waiting)} are waiting already; {again}")
                self._dismiss(
                    out, f"The queue is full, and your address had more than half of its places; {again}"
                )
            self._taken.append(place)

    def _insert(self, place: Place, index: int) -> None:
        """Have a place wait at ``index``; to be called with the lock held."""
        self._waiting.insert(index, place)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="device", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _dismiss(self, place: Place, sentence: str) -> None:
        """Take a place away that has not begun; the visitor's thread finds out when it looks next."""
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
        place.next_wanted.release()

    def _until_begun(self, place: Place) -> Generator[Event, None, None]:
        """Yields the place in the queue every ``POLL_S``; ends when the job has begun or was stopped.

        Also where it has not changed: only between two events can a visitor be found to have left.

        Raises:
            UserError: The place was taken away.
        """
        while True:
            with self._changed:
                place.require_kept()
                if place.begun is not None:
                    return
                before = self._waiting[: self._waiting.index(place)]
                ahead = len(before) + (self._running is not None)
                wait_s = rounded_seconds(self._wait_s(before))
            if place.stop():
                self._leave(place)
                place.told.put(END_OF_JOB)
                yield {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
                return
            if ahead:
                yield waiting_event(ahead, wait_s)
            with self._changed:
                self._changed.wait_for(lambda: place.begun is not None or place.refused is not None, POLL_S)

    def _wait_s(self, before: list[Place]) -> float:
        """Seconds until whoever comes after these will begin, as far as one can tell."""
        waits = sum(self._usual.of(place.kind) for place in before)
        running = self._running
        if running is None or running.begun is None:
            return waits
        return waits + max(0.0, self._usual.of(running.kind) - (self._clock() - running.begun))

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
                whole = place.context.run(place.do_job, self._clock, self.bounds.most_seconds)
                place.told.put(END_OF_JOB)
            except BaseException as error:  # it is for the visitor's thread to say
                place.told.put(error)
            with self._changed:
                self._usual.learn(place.kind, self._clock() - begun, whole)
                self._running = None
                self._changed.notify_all()
            # Nothing of a finished job, the traceback of its failure included, outlives it here.
            del place
