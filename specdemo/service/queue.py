"""The queue of jobs: visitors wait in order of arrival, and each device has one thread that does the jobs."""

import heapq
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeVar

from specdemo.records.events import STOPPED, Event
from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor, making_room, refusal
from specdemo.service.progress import Paces, Progress

T = TypeVar("T")
Stop = Callable[[], bool]
"""Returns True if the job must end; a job calls it once a round."""
Events = Generator[Event, None, None]
"""The events of one job. Reading the next one may raise ``UserError``; closing the generator ends the job."""
Job = Callable[[Stop], Events]
"""A job as a function, called on the thread of a device."""

ONLY = ""
"""The name of the only group if the models run on one device in this process."""
KIND_NAMES = {
    "measure": "measurement",
    "prove": "proof",
    "play": "game",
    "class": "class game",
    "quiz": "quiz question",
    "calibrate": "calibration",
}
"""The names of kinds of jobs for visitors, unless it is the kind itself."""
OWN_WORK = "own work"
"""The kind of jobs that the program itself queues, such as measuring pass costs."""
POLL_S = 1.0
"""The seconds between two updates for a waiting visitor; each update slows the running job a little."""
CUT_S = 5.0
"""The time that a job has to end after ``close`` has cut it short."""
ABANDONED_S = 60.0
"""A job is ended if its visitor's thread does not ask for the next event for this long."""
STEP_S = 5
"""Waits are shown in multiples of this: a finer value would be false precision and change too often."""


class CutShortError(UserError):
    """The queue ended a job before it was done. The visitor keeps the events sent so far."""


@dataclass(frozen=True)
class Bounds:
    """The maximum number of jobs that wait for models or the device, and the maximum seconds of one job."""

    max_waiting: int = 20
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_waiting <= 1_000:
            raise UserError(f"--max-waiting must be between 0 and 1,000, got {self.max_waiting}.")
        if not 0 < self.max_seconds < float("inf"):
            raise UserError(f"--max-seconds must be more than 0, got {self.max_seconds}.")


@dataclass(eq=False)
class QueuedJob:
    """One job in the queue, with the channel that carries its events to the visitor's thread."""

    kind: str
    # None for a job of the program itself.
    visitor: Visitor | None = None
    # The group of devices that can do the job.
    group: str = ONLY
    progress: Progress = field(default_factory=lambda: Progress(OWN_WORK))
    # None while the visitor waits for models.
    job: Job | None = None
    stop: Stop = lambda: False
    # The context variables of the visitor's request.
    context: Context = field(default_factory=copy_context)
    # The job's events in order, then None, or the exception that ended the job.
    events: SimpleQueue[Event | BaseException | None] = field(default_factory=SimpleQueue)
    # Released once for each event that the visitor's thread asks for.
    next_wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    # True after the thread of a device has taken the job; no other device can take it then.
    taken_up: bool = False
    # The time on the queue's clock at which the device began the job.
    begun: float | None = None
    # True after the visitor has left.
    left: bool = False
    # Why the job was removed from the queue before it began.
    refused: str | None = None
    # Why the job was ended before it was done.
    cut: str | None = None

    def require_kept(self) -> None:
        """Raise ``UserError`` if the job was removed from the queue."""
        if self.refused is not None:
            raise UserError(self.refused)


class JobQueue:
    """The jobs of all devices, in order of arrival.

    Each device has one thread, because libraries such as OpenMP keep a pool of workers for every thread that
    has ever computed. If the device belongs to another process, its thread only passes on events. Each
    visitor waits on a separate thread. A job computes its next event only when the visitor's thread asks for
    that event. So nothing is computed for a visitor who has left, and the time that the page needs for an
    event does not count as decoding time.

    ``devices`` has the number of devices of each group, all outside this process; a job on such a device
    counts as begun when its first event arrives. By default there is one device, in this process.
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
        # All jobs of visitors: waiting for models, waiting for a device, or running.
        self._taken: list[QueuedJob] = []
        # The jobs that wait for a device. A device's thread may have picked one of them already.
        self._waiting: list[QueuedJob] = []
        self._running: list[QueuedJob] = []
        self._closed: str | None = None
        self._threads: Counter[str] = Counter()
        self._paces = Paces()

    @contextmanager
    def enqueued(
        self,
        kind: str,
        visitor: Visitor | None = None,
        group: str = ONLY,
        progress: Progress | None = None,
    ) -> Iterator[QueuedJob]:
        """Keep a job in the queue while the ``with`` block runs. An unknown group means ``ONLY``."""
        group = group if group in self._devices else ONLY
        queued = QueuedJob(kind, visitor, group, progress or Progress(kind))
        with self._changed:
            self._admit(queued)
        try:
            yield queued
        finally:
            self._leave(queued)

    def turn(self, queued: QueuedJob, job: Job, stop: Stop) -> Events:
        """Wait for a device, have it do ``job``, and yield the job's events. Runs on the visitor's thread.

        While waiting, yields ``progress`` events with ``ahead`` (the number of jobs before this one) and
        ``wait_s`` (the expected wait in seconds, None if unknown). ``stop`` may be called on both threads.
        Raises ``CutShortError`` if the job was ended before it was done, and any exception of the job.
        """
        queued.job, queued.stop, queued.context = job, stop, copy_context()
        if queued.group != ONLY:
            queued.next_wanted.release()  # in another process, a job counts as begun with its first event
        with self._changed:
            queued.require_kept()
            self._insert(queued, len(self._waiting))
        # 1. Wait until a device begins the job. Send the position even if it has not changed, because Gradio
        # notices only between two events that a visitor has left.
        waited = False
        while (position := self._position(queued)) is not None:
            if stop():
                self._leave(queued)
                yield STOPPED
                return
            if "ahead" in position or (waited and queued.group != ONLY):
                yield position
            waited = True
            with self._changed:
                self._changed.wait_for(lambda: queued.begun is not None or queued.refused is not None, POLL_S)
        # 2. Pass on the job's events. A device in another process sends its own "Preparing" event.
        if queued.group == ONLY:
            yield {"type": "progress", "text": "Preparing the run", "fraction": 0.0}
            queued.next_wanted.release()
        while (event := queued.events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
            queued.next_wanted.release()
        if queued.cut is not None:
            raise CutShortError(queued.cut)

    def set_present(self, group: str, devices: int) -> None:
        """Set the number of devices that a group has now, from which expected waits are computed."""
        with self._changed:
            self._present[group] = devices

    def first(self, work: Callable[[], T]) -> T:
        """Call ``work`` on the device's thread before all waiting jobs, and return its result."""
        results: list[T] = []

        def job(_stop: Stop) -> Events:
            results.append(work())
            yield from ()

        queued = QueuedJob(OWN_WORK, job=job)
        queued.next_wanted.release()
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            self._insert(queued, 0)
        if isinstance(error := queued.events.get(), BaseException):
            raise error
        return results[0]

    def refuse(self, sentence: str) -> None:
        """Accept no more jobs, and remove all jobs that have not begun. ``sentence`` is the error message."""
        with self._changed:
            self._closed = sentence
            for queued in [one for one in self._taken if one.begun is None]:
                self._dismiss(queued, sentence)
            for queued in self._waiting:  # only jobs of the program itself are left
                queued.events.put(UserError(sentence))
            self._waiting.clear()

    def close(self, sentence: str, within_s: float) -> None:
        """Accept no more jobs, and wait until the running jobs are done and their visitors have all events.

        Running jobs are ended after ``within_s`` seconds. All other jobs are refused with ``sentence``.
        """
        self.refuse(sentence)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._taken, within_s):
                for queued in self._running:
                    queued.cut = f"This job was ended. {sentence}"
            if not self._changed.wait_for(lambda: not self._taken, CUT_S):
                # A job that does not call ``stop`` cannot be ended, but its visitor gets the error message.
                for queued in self._running:
                    queued.events.put(CutShortError(queued.cut or sentence))
                self._changed.wait_for(lambda: not self._taken, POLL_S)

    def _admit(self, queued: QueuedJob) -> None:
        """Add a job to the queue, or refuse it. The caller holds the lock."""
        if self._closed is not None:
            raise UserError(self._closed)
        taken = [(one.visitor, one.kind) for one in self._taken]
        if sentence := refusal(queued.kind, queued.visitor, taken):
            raise UserError(sentence)
        waiting = [one for one in self._taken if one.begun is None]
        ahead = [one for one in waiting if one.group == queued.group]
        busy = ahead or len(self._running_in(queued.group)) >= self._devices[queued.group]
        if busy and len(waiting) >= self.bounds.max_waiting:
            wait_s = self._wait_s(queued.group, ahead)
            again = "please try again later." if wait_s is None else f"please try again in about {wait_s} s."
            index = making_room(queued.visitor, [one.visitor for one in waiting])
            if index is None:
                raise UserError(f"The queue is full: {len(waiting)} jobs are waiting; {again}")
            sentence = f"The queue is full, and more than half of the jobs came from your address; {again}"
            self._dismiss(waiting[index], sentence)
        self._taken.append(queued)

    def _insert(self, queued: QueuedJob, index: int) -> None:
        """Insert a job into the waiting jobs, and start missing threads. The caller holds the lock."""
        self._waiting.insert(index, queued)
        while self._threads[queued.group] < self._devices[queued.group]:
            self._threads[queued.group] += 1
            threading.Thread(target=self._work, args=[queued.group], name="device", daemon=True).start()
        self._changed.notify_all()

    def _dismiss(self, queued: QueuedJob, sentence: str) -> None:
        """Remove a job that has not begun. Its visitor's thread raises ``UserError`` at its next check."""
        queued.refused = sentence
        self._remove(queued)

    def _leave(self, queued: QueuedJob) -> None:
        queued.left = True
        self._remove(queued)
        queued.next_wanted.release()

    def _remove(self, queued: QueuedJob) -> None:
        with self._changed:
            for jobs in (self._taken, self._waiting):
                with suppress(ValueError):  # already removed
                    jobs.remove(queued)
            self._changed.notify_all()

    def _position(self, queued: QueuedJob) -> Event | None:
        """Return a ``progress`` event with the queue position, or None if the job has begun."""
        with self._changed:
            queued.require_kept()
            if queued.begun is not None:
                return None
            before = self._waiting[: self._waiting.index(queued)]
            before = [one for one in before if one.group == queued.group]
            ahead = [*self._running_in(queued.group), *before]
            wait_s = self._wait_s(queued.group, before)
        if not ahead:
            return {"type": "progress", "text": "Waiting for a replica", "fraction": 0.0}
        wait = "" if wait_s is None else f", about {wait_s} s to wait"
        text = f"In the queue: {_named(ahead, queued.visitor)} before you{wait}"
        return {"type": "progress", "text": text, "fraction": 0.0, "ahead": len(ahead), "wait_s": wait_s}

    def _running_in(self, group: str) -> list[QueuedJob]:
        return [one for one in self._running if one.group == group]

    def _wait_s(self, group: str, before: list[QueuedJob]) -> int | None:
        """Return the expected wait of a job that comes after the waiting jobs ``before``; None if unknown."""
        running = self._running_in(group)
        free_in = [self._left_s(one) for one in running]
        free_in += [0.0] * max(self._present[group] - len(running), not running)
        heapq.heapify(free_in)
        for queued in before:
            heapq.heapreplace(free_in, free_in[0] + self._expected_s(queued))
        return None if math.isinf(free_in[0]) else max(STEP_S, math.ceil(free_in[0] / STEP_S) * STEP_S)

    def _left_s(self, queued: QueuedJob) -> float:
        """Return the expected rest of a running job in seconds; infinite if unknown."""
        assert queued.begun is not None
        now = self._clock()
        left_s = queued.progress.left_s(now)
        if left_s is None:
            left_s = queued.begun + self._expected_s(queued) - now
        if not -STEP_S < left_s < math.inf:  # unknown, or the job takes longer than expected
            return math.inf
        return min(max(0.0, left_s), queued.begun + self.bounds.max_seconds - now)

    def _expected_s(self, queued: QueuedJob) -> float:
        """Return the expected seconds of a whole job; infinite if unknown."""
        expected_s = self._paces.expected_s(queued.progress, (one.progress for one in self._running))
        return expected_s if math.isinf(expected_s) else min(expected_s, self.bounds.max_seconds)

    def _work(self, group: str) -> None:
        """Do the jobs of a group one after the other: the endless loop of a device's thread."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next_of(group))
                queued = self._next_of(group)
                assert queued is not None
                queued.taken_up = True
            if group == ONLY:
                self._begin(queued)
            whole, end = False, None
            try:
                whole = queued.context.run(self._do, queued)
            except BaseException as error:  # the visitor's thread raises it
                end = error
            self._begin(queued)  # in case the job ended before its first event
            queued.events.put(end)
            with self._changed:
                assert queued.begun is not None
                self._paces.learn(queued.progress, self._clock() - queued.begun, whole)
                self._running.remove(queued)
                self._changed.notify_all()
            # Drop all references to the finished job, and to the traceback of its failure, while waiting for
            # the next one: they keep its tensors in memory.
            del queued, end

    def _do(self, queued: QueuedJob) -> bool:
        """Pass on a job's events one by one; return False if the job was told to stop or its visitor left."""
        asked = False

        def ended() -> bool:
            nonlocal asked
            limit = self.bounds.max_seconds
            if queued.cut is None and queued.begun is not None and self._clock() - queued.begun > limit:
                queued.cut = f"The time limit of {limit:g} s ended this job; ask for less next time."
            gone = queued.left or queued.refused is not None
            asked = asked or gone or queued.cut is not None or queued.stop()
            return asked

        assert queued.job is not None
        with closing(queued.job(ended)) as events:
            while True:
                if not queued.next_wanted.acquire(timeout=ABANDONED_S):
                    raise UserError(
                        "This job was stopped because no page or program fetched its results for a minute; "
                        "run it again."
                    )
                if queued.left or (event := next(events, None)) is None:
                    return not (asked or queued.left)
                self._begin(queued)
                with self._changed:
                    queued.progress.add(event, self._clock())
                queued.events.put(event)

    def _next_of(self, group: str) -> QueuedJob | None:
        return next((one for one in self._waiting if one.group == group and not one.taken_up), None)

    def _begin(self, queued: QueuedJob) -> None:
        """Record that a device has begun this job, if this is not recorded yet."""
        with self._changed:
            if queued.begun is None:
                queued.begun = self._clock()
                queued.progress.begin(queued.begun)
                self._running.append(queued)
                with suppress(ValueError):  # the visitor has left in the meantime
                    self._waiting.remove(queued)
                self._changed.notify_all()


def _named(ahead: Sequence[QueuedJob], visitor: Visitor | None) -> str:
    """Return the subject and verb of the sentence that these jobs come before a job of ``visitor``."""
    own = [one for one in ahead if visitor and one.visitor and one.visitor.name == visitor.name]
    others = len(ahead) - len(own)
    parts = [f"your own {KIND_NAMES.get(one.kind, one.kind)}" for one in own]
    parts += [f"{others} visitors" if others > 1 else "one visitor"] if others else []
    return f"{' and '.join(parts)} {'are' if len(ahead) > 1 else 'is'}"
