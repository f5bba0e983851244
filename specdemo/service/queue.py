"""The queue of jobs: visitors wait in order of arrival, and one thread for each device does their jobs."""

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeVar

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.shares import Visitor, making_room, refusal

T = TypeVar("T")
Stop = Callable[[], bool]
"""Returns True once the job is to end; a job calls it once a round."""
Events = Generator[Event, None, None]
"""The events of one job; reading them may raise ``UserError``, closing them ends the job."""
Job = Callable[[Stop], Events]
"""The work on a device's thread."""

ONLY = ""
"""The group of the one device of a program that has no others."""
OWN_WORK = "own work"
"""The kind of the program's own jobs."""
POLL_S = 1.0
"""The time between two updates for a waiting visitor; each update slows the running decoder a little."""
CUT_S = 5.0
"""The time that a job has to end after a closing queue has cut it short."""
ABANDONED_S = 60.0
"""A job ends if its visitor's thread takes no event for this long."""
USUAL_S = 15.0
"""The expected time of a job of a kind that has not been seen yet."""
NEWEST = 0.3
"""The weight of the newest job in the expected time of its kind."""


class CutShortError(UserError):
    """The queue ended a job before it was done; its events until then remain."""


@dataclass(frozen=True)
class Bounds:
    """The limits of the queue and of each job.

    Attributes:
        max_waiting: The maximum number of jobs that wait, for models or for the device.
        max_seconds: The maximum number of seconds that one job may hold the device.

    Raises:
        UserError: A limit is out of bounds.
    """

    max_waiting: int = 20
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not (0 <= self.max_waiting <= 1_000 and 0 < self.max_seconds < float("inf")):
            raise UserError(
                "--max-waiting must be between 0 and 1,000 and --max-seconds above 0, "
                f"got {self.max_waiting} and {self.max_seconds}."
            )


@dataclass(eq=False)
class Place:
    """One visitor's place in the queue, and the hand-over of events from the device's thread to theirs.

    Attributes:
        kind: The kind of job.
        visitor: The visitor whose share it counts towards; None for the program itself.
        group: The devices that can do the job.
        job: The work; None while the visitor waits for models.
        stop: The visitor's request to end it.
        context: The context variables of the visitor's request.
        events: The job's events as they come, then None or the exception that ended it.
        next_wanted: Released once for each event that the visitor's thread asks for.
        taken_up: Whether a device's thread has taken the job; from then on it waits for that device alone.
        begun: When the device began the job by the queue's clock; None before.
        left: Whether the visitor has left.
        refused: Why the place was taken away before the job began; None otherwise.
        cut: Why the job was ended before it was done; None otherwise.
    """

    kind: str
    visitor: Visitor | None = None
    group: str = ONLY
    job: Job | None = None
    stop: Stop = lambda: False
    context: Context = field(default_factory=copy_context)
    events: SimpleQueue[Event | BaseException | None] = field(default_factory=SimpleQueue)
    next_wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    taken_up: bool = False
    begun: float | None = None
    left: bool = False
    refused: str | None = None
    cut: str | None = None

    def require_kept(self) -> None:
        """Raise ``UserError`` if the place was taken away."""
        if self.refused is not None:
            raise UserError(self.refused)


class JobQueue:
    """The jobs of all devices, in order of arrival.

    A device has one thread, because the libraries below keep a team of workers for every thread that ever
    computed. If the device is elsewhere, the thread only passes on events. Each visitor waits on a thread of
    their own. A job goes on when its visitor's thread asks for the next event, so nothing is computed for a
    visitor who has left, and the use of an event stays outside the decoders' clocks.

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
            kind: The kind of job; the expected wait is learned for each kind.
            visitor: The visitor whose share it counts towards; None for the program itself.
            group: The devices that can do it; ``ONLY`` if there is no such group.

        Raises:
            UserError: The queue is full or closed, or the visitor has their share already.
        """
        place = Place(kind, visitor, group if group in self._devices else ONLY)
        with self._changed:
            self._admit(place)
        try:
            yield place
        finally:
            self._leave(place)

    def turn(self, place: Place, job: Job, stop: Stop) -> Events:
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
        if place.group != ONLY:
            place.next_wanted.release()  # it begins with its first event
        with self._changed:
            place.require_kept()
            self._insert(place, len(self._waiting))
        # 1. Wait until a device begins the job. A position that has not changed is repeated: only between
        # two events does Gradio notice that a visitor has left.
        waited = False
        while (position := self._position(place)) is not None:
            if stop():
                self._leave(place)
                yield {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
                return
            if "ahead" in position or (waited and place.group != ONLY):
                yield position
            waited = True
            with self._changed:
                self._changed.wait_for(lambda: place.begun is not None or place.refused is not None, POLL_S)
        # 2. Hand over its events. A device elsewhere reports on its own that it prepares.
        if place.group == ONLY:
            yield {"type": "progress", "text": "Preparing the run", "fraction": 0.0}
            place.next_wanted.release()
        while (event := place.events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
            place.next_wanted.release()
        if place.cut is not None:
            raise CutShortError(place.cut)

    def set_present(self, group: str, devices: int) -> None:
        """Set the number of devices that a group has now; expected waits follow from it."""
        with self._changed:
            self._present[group] = devices

    def first(self, work: Callable[[], T]) -> T:
        """Do the program's own ``work`` on the device's thread before all waiting jobs.

        Returns:
            The result of ``work``; blocks until then.

        Raises:
            UserError: The queue is closed.
            Exception: Whatever ``work`` raised.
        """
        results: list[T] = []

        def job(_stop: Stop) -> Events:
            results.append(work())
            yield from ()

        place = Place(OWN_WORK, job=job)
        place.next_wanted.release()
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            self._insert(place, 0)
        if isinstance(error := place.events.get(), BaseException):
            raise error
        return results[0]

    def refuse(self, sentence: str) -> None:
        """Accept no more jobs, and refuse with ``sentence`` those that have not begun."""
        with self._changed:
            self._closed = sentence
            for place in [one for one in self._taken if one.begun is None]:
                self._dismiss(place, sentence)
            for place in self._waiting:  # the program's own
                place.events.put(UserError(sentence))
            self._waiting.clear()

    def close(self, sentence: str, within_s: float) -> None:
        """Accept no more jobs, and wait until the current one is done and its events are taken.

        Args:
            sentence: The refusal of all other jobs.
            within_s: Seconds until the current job is ended; its events until then remain.
        """
        self.refuse(sentence)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._taken, within_s):
                for place in self._running:
                    place.cut = f"This job was ended; its results so far are kept. {sentence}"
            if not self._changed.wait_for(lambda: not self._taken, CUT_S):
                # A job that never calls ``stop`` keeps the device, but its visitor gets the reason.
                for place in self._running:
                    place.events.put(CutShortError(place.cut or sentence))
                self._changed.wait_for(lambda: not self._taken, POLL_S)

    def _admit(self, place: Place) -> None:
        """Take a place or raise ``UserError``; call it with the lock held."""
        if self._closed is not None:
            raise UserError(self._closed)
        taken = [(one.visitor, one.kind) for one in self._taken]
        if sentence := refusal(place.kind, place.visitor, taken):
            raise UserError(sentence)
        waiting = [one for one in self._taken if one.begun is None]
        ahead = [one for one in waiting if one.group == place.group]
        busy = ahead or len(self._running_in(place.group)) >= self._devices[place.group]
        if busy and len(waiting) >= self.bounds.max_waiting:
            again = f"please try again in about {_rounded(self._wait_s(place.group, ahead))} s."
            index = making_room(place.visitor, [one.visitor for one in waiting])
            if index is None:
                raise UserError(f"The queue is full: {len(waiting)} are waiting already; {again}")
            sentence = f"The queue is full, and your address had more than half of its places; {again}"
            self._dismiss(waiting[index], sentence)
        self._taken.append(place)

    def _insert(self, place: Place, index: int) -> None:
        """Have a place wait at ``index``; call it with the lock held."""
        self._waiting.insert(index, place)
        while self._threads[place.group] < self._devices[place.group]:
            self._threads[place.group] += 1
            threading.Thread(target=self._work, args=[place.group], name="device", daemon=True).start()
        self._changed.notify_all()

    def _dismiss(self, place: Place, sentence: str) -> None:
        """Take a place away whose job has not begun; the visitor's thread notices when it looks next."""
        place.refused = sentence
        self._remove(place)

    def _leave(self, place: Place) -> None:
        place.left = True
        self._remove(place)
        place.next_wanted.release()

    def _remove(self, place: Place) -> None:
        with self._changed:
            for places in (self._taken, self._waiting):
                with suppress(ValueError):  # it is not there any more
                    places.remove(place)
            self._changed.notify_all()

    def _position(self, place: Place) -> Event | None:
        """Return a ``progress`` event with the queue position, or None if the job has begun.

        Raises:
            UserError: The place was taken away.
        """
        with self._changed:
            place.require_kept()
            if place.begun is not None:
                return None
            before = self._waiting[: self._waiting.index(place)]
            before = [one for one in before if one.group == place.group]
            ahead = len(before) + len(self._running_in(place.group))
            wait_s = _rounded(self._wait_s(place.group, before))
        if not ahead:
            return {"type": "progress", "text": "Waiting for a replica", "fraction": 0.0}
        others = "one visitor is" if ahead == 1 else f"{ahead} visitors are"
        text = f"In the queue: {others} before you, about {wait_s} s to wait"
        return {"type": "progress", "text": text, "fraction": 0.0, "ahead": ahead, "wait_s": wait_s}

    def _running_in(self, group: str) -> list[Place]:
        return [one for one in self._running if one.group == group]

    def _wait_s(self, group: str, before: list[Place]) -> float:
        """Return the expected seconds until a job that comes after ``before`` begins."""
        now, running = self._clock(), self._running_in(group)
        free_in = [max(0.0, self._usual(one.kind) - (now - (one.begun or now))) for one in running]
        free_in += [0.0] * max(self._present[group] - len(running), not running)
        heapq.heapify(free_in)
        for place in before:
            heapq.heapreplace(free_in, free_in[0] + self._usual(place.kind))
        return free_in[0]

    def _usual(self, kind: str) -> float:
        return self._usual_s.get(kind, USUAL_S)

    def _work(self, group: str) -> None:
        """Do one job after the other on a device's thread, as long as the program runs."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next_of(group))
                place = self._next_of(group)
                assert place is not None
                place.taken_up = True
            if group == ONLY:
                self._begin(place)
            whole, end = False, None
            try:
                whole = place.context.run(self._do, place)
            except BaseException as error:  # the visitor's thread raises it
                end = error
            self._begin(place)  # for a job without events
            place.events.put(end)
            with self._changed:
                assert place.begun is not None
                took_s = self._clock() - place.begun
                # A job that was ended early only shows that its kind needs at least so long.
                if whole or took_s > self._usual(place.kind):
                    before_s = self._usual_s.get(place.kind, took_s)
                    self._usual_s[place.kind] = took_s + (1 - NEWEST) * (before_s - took_s)
                self._running.remove(place)
                self._changed.notify_all()
            # Nothing of a finished job, the traceback of its failure included, outlives it here.
            del place, end

    def _do(self, place: Place) -> bool:
        """Hand over a job's events one by one; return False if it was asked to stop or its visitor left."""
        asked = False

        def ended() -> bool:
            nonlocal asked
            limit = self.bounds.max_seconds
            if place.cut is None and place.begun is not None and self._clock() - place.begun > limit:
                place.cut = (
                    f"The time limit of {limit:g} s ended this job. Its results so far are kept; "
                    "ask for less at once."
                )
            gone = place.left or place.refused is not None
            asked = asked or gone or place.cut is not None or place.stop()
            return asked

        assert place.job is not None
        with closing(place.job(ended)) as events:
            while True:
                if not place.next_wanted.acquire(timeout=ABANDONED_S):
                    raise UserError("Nobody read this job for a minute, so it was ended; run it again.")
                if place.left or (event := next(events, None)) is None:
                    return not (asked or place.left)
                self._begin(place)
                place.events.put(event)

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
