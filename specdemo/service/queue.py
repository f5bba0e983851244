"""The queue of jobs: visitors wait in order of arrival, and one thread for each device does their jobs."""

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, TypeVar

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.shares import Visitor, making_room, refusal

T = TypeVar("T")
Stop = Callable[[], bool]
"""Returns True once the job is to end; jobs call it once a round."""
Tell = Callable[[Event], None]
"""Hands an event to the visitor, and returns when the visitor's thread asks for the next one."""
Job = Callable[[Tell, Stop], None]
"""The work on a device's thread."""

ONLY = ""
"""The group of the one device of a program that has no others."""
POLL_S = 1.0
"""Seconds between two updates to those who wait; each costs the running decoder a little."""
CUT_S = 5.0
"""Seconds that a job has to end after it was told to, when the queue closes."""
ABANDONED_S = 60.0
"""A job ends if its visitor's thread takes no event for so many seconds."""
USUAL_S = 15.0
"""Expected seconds of a job of a kind that has not been seen yet."""
NEWEST = 0.3
"""Weight of the newest job in the expected seconds of its kind."""


class CutShortError(UserError):
    """A job was ended before it was done; its events until then remain."""


class _LeftError(Exception):
    """The visitor of a job has left."""


class _EndOfJob:
    """The sentinel after a job's last event."""


_END: Final = _EndOfJob()


@dataclass(frozen=True)
class Bounds:
    """The limits of the queue and of each job.

    Attributes:
        most_waiting: The maximum number of jobs that wait, for models or for the device.
        most_seconds: The maximum number of seconds that one job may hold the device.

    Raises:
        UserError: A limit is out of bounds.
    """

    most_waiting: int = 20
    most_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not (0 <= self.most_waiting <= 1_000 and 0 < self.most_seconds < float("inf")):
            raise UserError("Up to 1,000 jobs may wait, and one may take any number of seconds above 0.")


@dataclass(eq=False)
class Place:
    """One visitor's place in the queue, and the hand-over of events from the device's thread to theirs.

    Attributes:
        kind: The name of the kind of job.
        visitor: The visitor whose share it counts to; None for the program itself.
        group: The devices that can do the job.
        refused: Why the place was taken away before the job began; None while it is kept.
        job: The work; None while the visitor waits for models.
        stop: The visitor's request to end it.
        context: The context variables of the visitor's request.
        told: The job's events as they come, then ``_END`` or the exception that ended it.
        next_wanted: Released for each event that the visitor's thread has taken.
        taken_up: Whether a device's thread has it; from then on it waits for that device alone.
        begun: When the device began the job, in seconds of the queue's clock; None before.
        left: Whether the visitor has left.
        cut: Why the job was ended before it was done; None otherwise.
    """

    kind: str
    visitor: Visitor | None = None
    group: str = ONLY
    refused: str | None = None
    job: Job = lambda _tell, _stop: None
    stop: Stop = lambda: False
    context: Context = field(default_factory=copy_context)
    told: SimpleQueue[Event | BaseException | _EndOfJob] = field(default_factory=SimpleQueue)
    next_wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    taken_up: bool = False
    begun: float | None = None
    left: bool = False
    cut: str | None = None

    def require_kept(self) -> None:
        """Raise ``UserError`` if the place was taken away."""
        if self.refused is not None:
            raise UserError(self.refused)


class JobQueue:
    """The jobs of all devices, in order of arrival.

    A device has one thread, because the libraries below keep a team of workers for every thread that ever
    computed; it only hands on events if the device is elsewhere. Each visitor waits on a thread of their own.
    A job goes on when its visitor's thread has taken the last event, so nothing is computed for somebody who
    has left, and what is done with an event stays outside the decoders' clocks.

    Args:
        bounds: Limits of the queue and of each job.
        clock: Returns seconds.
        devices: The number of devices in each group, which are elsewhere: a job begins with its first event.
            By default there is one, here, in the group ``ONLY``.
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
        # Every place that a visitor holds, whether they wait for models, for the device, or have it.
        self._taken: list[Place] = []
        # Those whose job has not begun; a device's thread may have taken it up already.
        self._waiting: list[Place] = []
        self._running: list[Place] = []
        self._closed: str | None = None
        self._threads: Counter[str] = Counter()
        self._usual_s: dict[str, float] = {}

    @contextmanager
    def place(self, kind: str, visitor: Visitor | None = None, group: str = ONLY) -> Iterator[Place]:
        """Hold a place for one job until its visitor leaves.

        Args:
            kind: The name of the kind of job; the expected wait is learned for each kind.
            visitor: The visitor whose share it counts to; None for the program itself.
            group: The devices that can do it.

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
        """Wait for a device, then have ``job`` done on it; runs on the visitor's thread.

        Args:
            place: A place that the caller holds.
            job: The work, on the device's thread.
            stop: The visitor's request to end it, called on either thread.

        Yields:
            ``progress`` events with ``ahead`` (jobs before this one) and ``wait_s`` while waiting, then the
            job's own.

        Raises:
            CutShortError: The job was ended before it was done.
            UserError: The place was taken away.
            Exception: Whatever the job raised.
        """
        place.job, place.stop, place.context = job, stop, copy_context()
        with self._changed:
            place.require_kept()
            self._insert(place, len(self._waiting))
        yield from self._until_begun(place)
        while not isinstance(event := place.told.get(), _EndOfJob):
            if isinstance(event, BaseException):
                raise event
            yield event
            place.next_wanted.release()
        if place.cut is not None:
            raise CutShortError(place.cut)

    def group_of(self, name: str) -> str:
        """Return the group of that name, or ``ONLY`` if there is no such group."""
        return name if name in self._devices else ONLY

    def set_present(self, group: str, devices: int) -> None:
        """Set the number of devices that a group has now; expected waits follow from it."""
        with self._changed:
            self._present[group] = devices

    def first(self, kind: str, work: Callable[[], T]) -> T:
        """Do the program's own ``work`` on the device's thread before everybody who waits.

        Returns:
            What ``work`` returned; blocks until then.

        Raises:
            UserError: The queue is closed.
            Exception: Whatever ``work`` raised.
        """
        results: list[T] = []
        place = Place(kind, job=lambda _tell, _stop: results.append(work()))
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            self._insert(place, 0)
        if isinstance(told := place.told.get(), BaseException):
            raise told
        return results[0]

    def close(self, sentence: str, within_s: float) -> None:
        """Accept no more jobs, and wait until the current one is done and its events are taken.

        Args:
            sentence: The refusal that everybody else gets.
            within_s: Seconds until the job is ended; its events until then remain.
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
                # A job that never calls ``stop`` keeps the device, but its visitor gets the reason.
                for place in self._running:
                    place.told.put(CutShortError(place.cut or sentence))
                self._changed.wait_for(lambda: not self._taken, POLL_S)

    def _enter(self, place: Place) -> None:
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            if sentence := refusal(place.kind, place.visitor, self._taken):
                raise UserError(sentence)
            waiting = [one for one in self._taken if one.begun is None]
            ahead = [one for one in waiting if one.group == place.group]
            busy = ahead or len(self._at_devices(place.group)) >= self._devices[place.group]
            if busy and len(waiting) >= self.bounds.most_waiting:
                again = f"please try again in about {_rounded(self._wait_s(place.group, ahead))} s."
                if (out := making_room(place.visitor, waiting)) is None:
                    raise UserError(f"The queue is full: {len(waiting)} are waiting already; {again}")
                self._dismiss(
                    out, f"The queue is full, and your address had more than half of its places; {again}"
                )
            self._taken.append(place)

    def _insert(self, place: Place, index: int) -> None:
        """Have a place wait at ``index``; call it with the lock held."""
        self._waiting.insert(index, place)
        while self._threads[place.group] < self._devices[place.group]:
            self._threads[place.group] += 1
            threading.Thread(target=self._work, args=[place.group], name="device", daemon=True).start()
        self._changed.notify_all()

    def _dismiss(self, place: Place, sentence: str) -> None:
        """Take a place away that has not begun; the visitor's thread notices when it looks next."""
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
        """Yield the queue position every ``POLL_S`` until the job has begun or was stopped.

        It is repeated if it has not changed: Gradio notices only between two events that a visitor has left.

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
                wait_s = _rounded(self._wait_s(place.group, before))
            if place.stop():
                self._leave(place)
                place.told.put(_END)
                yield {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
                return
            if ahead:
                others = "one visitor is" if ahead == 1 else f"{ahead} visitors are"
                text = f"In the queue: {others} before you, about {wait_s} s to wait"
                yield {"type": "progress", "text": text, "fraction": 0.0, "ahead": ahead, "wait_s": wait_s}
            elif told and place.group != ONLY:
                yield {"type": "progress", "text": "Waiting for a replica", "fraction": 0.0}
            told = True
            with self._changed:
                self._changed.wait_for(lambda: place.begun is not None or place.refused is not None, POLL_S)

    def _at_devices(self, group: str) -> list[Place]:
        return [one for one in self._running if one.group == group]

    def _usual(self, kind: str) -> float:
        return self._usual_s.get(kind, USUAL_S)

    def _wait_s(self, group: str, before: list[Place]) -> float:
        """Return the expected seconds until a job that comes after these begins."""
        now, running = self._clock(), self._at_devices(group)
        free_in = [max(0.0, self._usual(one.kind) - (now - (one.begun or now))) for one in running]
        free_in += [0.0] * max(self._present[group] - len(running), not running)
        heapq.heapify(free_in)
        for place in before:
            heapq.heapreplace(free_in, free_in[0] + self._usual(place.kind))
        return free_in[0]

    def _learn(self, kind: str, took_s: float, whole: bool) -> None:
        """Take in how long a job took; for one that was ended early this is only the least it needs."""
        if whole or took_s > self._usual(kind):
            self._usual_s[kind] = took_s + (1 - NEWEST) * (self._usual_s.get(kind, took_s) - took_s)

    def _work(self, group: str) -> None:
        """Do one job after the other, on the device's thread, as long as the program runs."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next_of(group))
                place = self._next_of(group)
                assert place is not None
                place.taken_up = True
            if group == ONLY:
                self._begin(place)
            whole, end = False, _END
            try:
                whole = self._do(place)
            except BaseException as error:  # the visitor's thread raises it
                end = error
            self._begin(place)  # for a job without events
            place.told.put(end)
            with self._changed:
                assert place.begun is not None
                self._learn(place.kind, self._clock() - place.begun, whole)
                self._running.remove(place)
                self._changed.notify_all()
            # Nothing of a finished job, the traceback of its failure included, outlives it here.
            del place, end

    def _do(self, place: Place) -> bool:
        """Do a job; returns whether it came to its end: nobody asked it to stop, and its visitor stayed."""
        asked = False

        def ended() -> bool:
            nonlocal asked
            limit = self.bounds.most_seconds
            if place.cut is None and place.begun is not None and self._clock() - place.begun > limit:
                place.cut = (
                    f"The time limit of {limit:g} s ended this, what was done until then is kept; "
                    "ask for less at once."
                )
            gone = place.left or place.refused is not None
            asked = asked or gone or place.cut is not None or place.stop()
            return asked

        def tell(event: Event) -> None:
            self._begin(place)
            place.told.put(event)
            if not place.next_wanted.acquire(timeout=ABANDONED_S):
                raise UserError("Nobody read this for a minute, so it was ended; run it again.")
            if place.left:
                raise _LeftError

        place.context.run(place.job, tell, ended)
        return not asked

    def _next_of(self, group: str) -> Place | None:
        return next((one for one in self._waiting if one.group == group and not one.taken_up), None)

    def _begin(self, place: Place) -> None:
        """Note that a device has begun this job, unless it had before."""
        with self._changed:
            if place.begun is None:
                place.begun = self._clock()
                self._running.append(place)
                with suppress(ValueError):  # its visitor has left meanwhile
                    self._waiting.remove(place)
                self._changed.notify_all()


def _rounded(seconds: float) -> int:
    """Round up to five seconds: more would be false precision, and an update to send every moment."""
    return max(5, int(-(-seconds // 5) * 5))
