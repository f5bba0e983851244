"""Few devices, many visitors: jobs wait in one bounded queue, and a thread for each device does them in turn.

One thread, because the libraries below keep a team of workers for every thread that ever computed. It is
called the device's thread here, also where the device is elsewhere and the thread only hands on what is told
from there; every visitor comes on a thread of their own. A job goes on only when its visitor's thread has
taken the last event: what is done with an event between two rounds stays outside the decoders' clocks, and
nothing is computed for somebody who has left. A place is held from the request on, whatever is waited for
before the device. Devices that hold the same models are a group, and each job is for one of a group. Knows no
models.
"""

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.job_kinds import CutShortError
from specdemo.service.queue_place import END_OF_JOB, ONLY, Job, Place, Stop
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
    """The jobs of all devices, in order of arrival.

    Args:
        bounds: How long it may grow, and a job may last.
        clock: Gives seconds.
        devices: How many devices each group has at most, which are elsewhere: a job has begun when the first
            is told of it. By default there is one, here, in a group without a name.
    """

    def __init__(
        self,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.monotonic,
        devices: Mapping[str, int] | None = None,
    ):
        self.bounds = bounds or Bounds()
        self._clock = clock
        self._devices = dict(devices or {ONLY: 1})
        self._present = dict(self._devices)
        self._changed = threading.Condition()
        self._taken: list[Place] = []
        """All places that visitors hold, of those who wait for models and of the job under way as well."""
        self._waiting: list[Place] = []
        """Those whose job has not begun; a device's thread may have taken it up already."""
        self._running: list[Place] = []
        self._closed: str | None = None
        self._threads: Counter[str] = Counter()
        self._usual = UsualSeconds()

    @contextmanager
    def place(self, kind: str, visitor: Visitor | None = None, group: str = ONLY) -> Iterator[Place]:
        """A place for one job, held until its visitor leaves.

        Args:
            kind: What the job is called; the expected wait is learned for each kind.
            visitor: Whose share it counts to; None for the program's own.
            group: Which devices can do it.

        Raises:
            UserError: The queue is full or closed, or the visitor has their share already.
        """
        place = Place(kind, visitor, group)
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

    def group_of(self, name: str) -> str:
        """The group of that name, or the one that does everything where there is no such group."""
        return name if name in self._devices else ONLY

    def set_present(self, group: str, devices: int) -> None:
        """Say how many devices of a group there are now; expected waits count with them."""
        with self._changed:
            self._present[group] = devices

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

        place = Place(kind, job=job)  # in the group of the one device here
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
            if not self._changed.wait_for(lambda: not self._taken, within_s):
                for place in self._running:
                    place.cut = f"This was ended, what was done until then is kept. {sentence}"
            if not self._changed.wait_for(lambda: not self._taken, CUT_S):
                # A job that does not ask whether to end keeps the device, but its visitor gets the reason.
                for place in self._running:
                    place.told.put(CutShortError(place.cut or sentence))
                self._changed.wait_for(lambda: not self._taken, POLL_S)

    def _enter(self, place: Place) -> None:
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            if told := refusal(place.kind, place.visitor, self._taken):
                raise UserError(told)
            waiting = [one for one in self._taken if one.begun is None]
            ahead = [one for one in waiting if one.group == place.group]
            busy = ahead or len(self._at_devices(place.group)) >= self._devices[place.group]
            if busy and len(waiting) >= self.bounds.most_waiting:
                again = f"please try again in about {rounded_seconds(self._wait_s(place.group, ahead))} s."
                if (out := making_room(place.visitor, waiting)) is None:
                    raise UserError(f"The queue is full: {len(waiting)} are waiting already; {again}")
                self._dismiss(
                    out, f"The queue is full, and your address had more than half of its places; {again}"
                )
            self._taken.append(place)

    def _insert(self, place: Place, index: int) -> None:
        """Have a place wait at ``index``; to be called with the lock held."""
        self._waiting.insert(index, place)
        while self._threads[place.group] < self._devices[place.group]:
            self._threads[place.group] += 1
            threading.Thread(target=self._work, args=[place.group], name="device", daemon=True).start()
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
        told = False
        while True:
            with self._changed:
                place.require_kept()
                if place.begun is not None:
                    return
                before = self._waiting[: self._waiting.index(place)]
                before = [one for one in before if one.group == place.group]
                ahead = len(before) + len(self._at_devices(place.group))
                wait_s = rounded_seconds(self._wait_s(place.group, before))
            if place.stop():
                self._leave(place)
                place.told.put(END_OF_JOB)
                yield {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
                return
            if ahead:
                yield waiting_event(ahead, wait_s)
            elif told and place.group != ONLY:
                yield {"type": "progress", "text": "Waiting for a replica", "fraction": 0.0}
            told = True
            with self._changed:
                self._changed.wait_for(lambda: place.begun is not None or place.refused is not None, POLL_S)

    def _at_devices(self, group: str) -> list[Place]:
        return [one for one in self._running if one.group == group]

    def _wait_s(self, group: str, before: list[Place]) -> float:
        """Seconds until whoever comes after these will begin, as far as one can tell."""
        now, running = self._clock(), self._at_devices(group)
        free_in = [max(0.0, self._usual.of(one.kind) - (now - (one.begun or now))) for one in running]
        free_in += [0.0] * max(self._present[group] - len(running), not running)
        heapq.heapify(free_in)
        for place in before:
            heapq.heapreplace(free_in, free_in[0] + self._usual.of(place.kind))
        return free_in[0]

    def _work(self, group: str) -> None:
        """A device's thread: one job after the other, for as long as the program runs."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next_of(group))
                place = self._next_of(group)
                assert place is not None
                place.taken_up = True
            if group == ONLY:
                self._begin(place)
            whole = False
            try:
                begin = partial(self._begin, place)
                whole = place.context.run(place.do_job, self._clock, self.bounds.most_seconds, begin)
                self._begin(place)  # one that told nothing
                place.told.put(END_OF_JOB)
            except BaseException as error:  # it is for the visitor's thread to say
                self._begin(place)
                place.told.put(error)
            with self._changed:
                assert place.begun is not None
                self._usual.learn(place.kind, self._clock() - place.begun, whole)
                self._running.remove(place)
                self._changed.notify_all()
            # Nothing of a finished job, the traceback of its failure included, outlives it here.
            del place

    def _next_of(self, group: str) -> Place | None:
        """The first that waits for a device of this group."""
        return next((one for one in self._waiting if one.group == group and not one.taken_up), None)

    def _begin(self, place: Place) -> None:
        """A device has begun this job, unless it had before."""
        with self._changed:
            if place.begun is None:
                place.begun = self._clock()
                self._running.append(place)
                with suppress(ValueError):  # its visitor has left meanwhile
                    self._waiting.remove(place)
                self._changed.notify_all()
