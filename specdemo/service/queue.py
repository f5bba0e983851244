"""The queue of jobs: visitors wait in order of arrival, and each device has one thread that does the jobs."""

import heapq
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum, auto
from functools import partial
from itertools import chain, count
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
PREPARING: Event = {"type": "progress", "text": "Preparing the run", "fraction": 0.0}
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


class End(StrEnum):
    """The ends of a job, with their causes. A stopped job, or one cut short, still sends its last events."""

    # The job has no more events. Only `Service.events` records it, for the log.
    DONE = auto()
    # ``stop`` returned True: the visitor pressed Stop, closed the tab (`leave` in ui/page.py), or
    # disconnected during a tool call.
    STOPPED = auto()
    # The events were closed: by Gradio after a lost connection, by the page if nobody reads its updates
    # (`PageJob.due` in ui/streams.py), or because all of them have been read.
    LEFT = auto()
    # The time limit or the end of the program, or nobody asked for an event for ``ABANDONED_S``.
    CUT_SHORT = auto()
    # Before it began: the request was invalid, the visitor had too many jobs, the queue was full, another
    # address needed the room, the device was lost, or the program ends.
    REFUSED = auto()
    # The job, its models or its device raised an error.
    FAILED = auto()


class CutShortError(UserError):
    """The queue ended a job before it was done. The visitor keeps the events sent so far."""


class JobState(IntEnum):
    WAITING_FOR_MODELS = auto()
    WAITING = auto()
    # A device's thread has taken the job; no other can take it.
    PICKED = auto()
    # The job's first event has arrived.
    RUNNING = auto()
    # No device works on the job. Its visitor may still read events.
    OVER = auto()


@dataclass(frozen=True)
class Bounds:
    """The maximum number of jobs that wait for models or the device, and the maximum seconds of one job."""

    max_waiting: int = 20
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_waiting <= 1_000:
            raise UserError(f"--max-waiting must be between 0 and 1,000, got {self.max_waiting}.")
        if not 0 < self.max_seconds < float("inf"):
            raise UserError(f"--max-seconds must be more than 0 and finite, got {self.max_seconds}.")


@dataclass(eq=False)
class QueuedJob:
    """One job in the queue, with the channel that carries its events to the visitor's thread."""

    kind: str
    # None for a job of the program itself.
    visitor: Visitor | None = None
    # The group of devices that can do the job.
    group: str = ONLY
    progress: Progress = field(default_factory=lambda: Progress(OWN_WORK))
    state: JobState = JobState.WAITING_FOR_MODELS
    # Waiting jobs get a device in ascending order.
    turn: int = 0
    # None while the visitor waits for models.
    job: Job | None = None
    stop: Stop = lambda: False
    # The context variables of the visitor's request.
    context: Context = field(default_factory=copy_context)
    # The job's events in order, then None, or the exception that ended the job.
    events: SimpleQueue[Event | BaseException | None] = field(default_factory=SimpleQueue)
    # Released once for each event that the visitor's thread asks for; the first one is computed unasked.
    next_wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    # The time on the queue's clock at which the job began to run.
    begun: float = 0.0
    # How the job has to end; None until that is known. ``reason`` is the visitor's error message.
    end: End | None = None
    reason: str = ""

    @property
    def is_kept(self) -> bool:
        return self.end not in (End.LEFT, End.REFUSED)

    def require_kept(self) -> None:
        """Raise ``UserError`` if the job was refused."""
        if self.end is End.REFUSED:
            raise UserError(self.reason)

    def ask(self) -> None:
        """Let the device compute the next event."""
        self.next_wanted.release()

    def receive(self) -> Event | None:
        """Return the next event, None after the last one, or raise the error that ended the job."""
        event = self.events.get()
        if isinstance(event, BaseException):
            raise event
        if event is None and self.end is End.CUT_SHORT:
            raise CutShortError(self.reason)
        return event


class JobQueue:
    """The jobs of all devices, in order of arrival.

    Each device has one thread, because libraries such as OpenMP keep a pool of workers for every thread that
    has ever computed. If the device belongs to another process, its thread only passes on events. A job
    computes its next event only when the visitor's thread asks for that event. So nothing is computed for a
    visitor who has left, and the time that the page needs for an event does not count as decoding time.

    ``devices`` has the number of devices of each group, all outside this process; ``present`` returns how
    many of them can do jobs now. By default there is one device, in this process.
    """

    def __init__(
        self,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.monotonic,
        devices: Mapping[str, int] | None = None,
        present: Callable[[str], int] | None = None,
    ):
        self.bounds = bounds or Bounds()
        self._clock = clock
        self._devices = dict(devices or {ONLY: 1})
        self._present = present or self._devices.__getitem__
        # Devices in other processes send such an event of their own.
        self._first_events = () if devices else (PREPARING,)
        self._changed = threading.Condition()
        # In order of arrival. A job is removed when its visitor has left and no device works on it.
        self._jobs: list[QueuedJob] = []
        self._turns = count(1)
        self._closed: str | None = None
        self._paces = Paces()
        for group in chain.from_iterable([name] * number for name, number in self._devices.items()):
            threading.Thread(target=self._work, args=[group], name="device", daemon=True).start()

    @contextmanager
    def enqueued(
        self, kind: str, visitor: Visitor | None = None, group: str = ONLY, progress: Progress | None = None
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

    def wait_for_turn(self, queued: QueuedJob, job: Job, stop: Stop) -> Generator[Event, None, bool]:
        """Wait until a device begins ``job``; return False if ``stop`` ended the wait.

        Yields ``progress`` events with ``ahead`` (the number of jobs before this one) and ``wait_s`` (the
        expected wait in seconds, None if unknown). ``stop`` may be called on both threads.
        """
        queued.job, queued.stop, queued.context = job, stop, copy_context()
        with self._changed:
            queued.state, queued.turn = JobState.WAITING, next(self._turns)
            self._changed.notify_all()
        # Send the position even if it has not changed, because Gradio notices only between two events that a
        # visitor has left.
        waited = False
        while (position := self._position(queued)) is not None:
            if stop():
                self._leave(queued)
                yield STOPPED
                return False
            if "ahead" in position or (waited and queued.group != ONLY):
                yield position
            waited = True
            with self._changed:
                self._changed.wait_for(lambda: queued.state >= JobState.RUNNING or not queued.is_kept, POLL_S)
        return True

    def first(self, work: Callable[[], T]) -> T:
        """Call ``work`` on the device's thread before all waiting jobs, and return its result."""
        results: list[T] = []

        def job(_stop: Stop) -> Events:
            results.append(work())
            yield from ()

        queued = QueuedJob(OWN_WORK, state=JobState.WAITING, turn=-next(self._turns), job=job)
        with self._changed:
            if self._closed is not None:
                raise UserError(self._closed)
            self._jobs.append(queued)
            self._changed.notify_all()
        while queued.receive() is not None:
            queued.ask()
        return results[0]

    def refuse(self, sentence: str) -> None:
        """Accept no more jobs, and remove all jobs that have not begun. ``sentence`` is the error message."""
        with self._changed:
            self._closed = sentence
            for queued in [one for one in self._jobs if one.state < JobState.RUNNING]:
                self._end(queued, End.REFUSED, sentence)
                if queued.kind == OWN_WORK:
                    queued.events.put(UserError(sentence))

    def close(self, sentence: str, within_s: float) -> None:
        """Accept no more jobs, and wait until the running jobs are done and their visitors have all events.

        Running jobs are ended after ``within_s`` seconds. All other jobs are refused with ``sentence``.
        """
        self.refuse(sentence)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._of_visitors(), within_s):
                for queued in self._running():
                    self._end(queued, End.CUT_SHORT, f"This job was ended. {sentence}")
            if not self._changed.wait_for(lambda: not self._of_visitors(), CUT_S):
                # A job that does not call ``stop`` cannot be ended, but its visitor gets the error message.
                for queued in self._running():
                    queued.events.put(CutShortError(queued.reason or sentence))
                self._changed.wait_for(lambda: not self._of_visitors(), POLL_S)

    def _of_visitors(self) -> list[QueuedJob]:
        return [one for one in self._jobs if one.is_kept and one.kind != OWN_WORK]

    def _waiting(self, group: str, *states: JobState) -> list[QueuedJob]:
        """Return the jobs of a group that wait for a device, in the order of their turns."""
        waiting = [one for one in self._jobs if one.group == group and one.state in states and one.is_kept]
        return sorted(waiting, key=lambda one: one.turn)

    def _running(self, group: str | None = None) -> list[QueuedJob]:
        running = [one for one in self._jobs if one.state is JobState.RUNNING]
        return [one for one in running if group in (None, one.group)]

    def _admit(self, queued: QueuedJob) -> None:
        """Add a job to the queue, or refuse it. The caller holds the lock."""
        if self._closed is not None:
            raise UserError(self._closed)
        present = self._of_visitors()
        if sentence := refusal(queued.kind, queued.visitor, [(one.visitor, one.kind) for one in present]):
            raise UserError(sentence)
        waiting = [one for one in present if one.state < JobState.RUNNING]
        ahead = [one for one in waiting if one.group == queued.group]
        busy = ahead or len(self._running(queued.group)) >= self._devices[queued.group]
        if busy and len(waiting) >= self.bounds.max_waiting:
            wait_s = self._wait_s(queued.group, ahead)
            again = "please try again later." if wait_s is None else f"please try again in about {wait_s} s."
            index = making_room(queued.visitor, [one.visitor for one in waiting])
            if index is None:
                raise UserError(f"The queue is full: {len(waiting)} jobs are waiting; {again}")
            sentence = f"The queue is full, and more than half of the jobs came from your address; {again}"
            self._end(waiting[index], End.REFUSED, sentence)
        self._jobs.append(queued)

    def _leave(self, queued: QueuedJob) -> None:
        with self._changed:
            self._end(queued, End.LEFT)
        queued.ask()  # so that the device's thread notices

    def _end(self, queued: QueuedJob, end: End, reason: str = "") -> None:
        """Record how a job has to end. The caller holds the lock."""
        if queued.is_kept:
            queued.end, queued.reason = end, reason
        # The thread of a device removes the job that it works on.
        if queued.state not in (JobState.PICKED, JobState.RUNNING) and queued in self._jobs:
            self._jobs.remove(queued)
        self._changed.notify_all()

    def _position(self, queued: QueuedJob) -> Event | None:
        """Return a ``progress`` event with the queue position, or None if the job has begun."""
        with self._changed:
            queued.require_kept()
            if queued.state >= JobState.RUNNING:
                return None
            waiting = self._waiting(queued.group, JobState.WAITING, JobState.PICKED)
            before = waiting[: waiting.index(queued)]
            ahead = [*self._running(queued.group), *before]
            wait_s = self._wait_s(queued.group, before)
        if not ahead:
            return {"type": "progress", "text": "Waiting for a replica", "fraction": 0.0}
        wait = "" if wait_s is None else f", about {wait_s} s to wait"
        text = f"In the queue: {_named(ahead, queued.visitor)} before you{wait}"
        return {"type": "progress", "text": text, "fraction": 0.0, "ahead": len(ahead), "wait_s": wait_s}

    def _wait_s(self, group: str, before: list[QueuedJob]) -> int | None:
        """Return the expected wait of a job that comes after the waiting jobs ``before``; None if unknown."""
        running = self._running(group)
        free_in = [self._left_s(one) for one in running]
        free_in += [0.0] * max(self._present(group) - len(running), not running)
        heapq.heapify(free_in)
        for queued in before:
            heapq.heapreplace(free_in, free_in[0] + self._expected_s(queued))
        return None if math.isinf(free_in[0]) else max(STEP_S, math.ceil(free_in[0] / STEP_S) * STEP_S)

    def _left_s(self, queued: QueuedJob) -> float:
        """Return the expected rest of a running job in seconds; infinite if unknown."""
        now = self._clock()
        left_s = queued.progress.left_s(now)
        if left_s is None:
            left_s = queued.begun + self._expected_s(queued) - now
        if not -STEP_S < left_s < math.inf:  # unknown, or the job takes longer than expected
            return math.inf
        return min(max(0.0, left_s), queued.begun + self.bounds.max_seconds - now)

    def _expected_s(self, queued: QueuedJob) -> float:
        """Return the expected seconds of a whole job; infinite if unknown."""
        expected_s = self._paces.expected_s(queued.progress, (one.progress for one in self._running()))
        return expected_s if math.isinf(expected_s) else min(expected_s, self.bounds.max_seconds)

    def _work(self, group: str) -> None:
        """Do the jobs of a group one after the other: the endless loop of a device's thread."""
        while True:
            with self._changed:
                queued = self._changed.wait_for(lambda: self._waiting(group, JobState.WAITING))[0]
                queued.state = JobState.PICKED
            failure = None
            try:
                queued.context.run(self._do, queued)
            except BaseException as error:  # the visitor's thread raises it
                failure = error
            self._begin(queued)  # in case the job ended before its first event
            whole = failure is None and queued.end is None
            queued.events.put(failure)
            with self._changed:
                self._paces.learn(queued.progress, self._clock() - queued.begun, whole)
                queued.state = JobState.OVER
                if queued not in self._of_visitors():
                    self._jobs.remove(queued)
                self._changed.notify_all()
            # Drop all references to the finished job, and to the traceback of its failure, while waiting for
            # the next one: they keep its tensors in memory.
            del queued, failure

    def _do(self, queued: QueuedJob) -> None:
        """Pass on a job's events one by one."""
        assert queued.job is not None
        with closing(queued.job(partial(self._must_end, queued))) as own:
            events = chain(self._first_events, own)
            while True:
                if not queued.next_wanted.acquire(timeout=ABANDONED_S):
                    raise CutShortError(
                        "This job was stopped because no page or program fetched its results for a minute; "
                        "run it again."
                    )
                if not queued.is_kept or (event := next(events, None)) is None:
                    return
                self._begin(queued)
                with self._changed:
                    queued.progress.add(event, self._clock())
                queued.events.put(event)

    def _must_end(self, queued: QueuedJob) -> bool:
        stopped, limit = queued.end is None and queued.stop(), self.bounds.max_seconds
        with self._changed:
            if queued.state is JobState.RUNNING and self._clock() - queued.begun > limit:
                sentence = f"The time limit of {limit:g} s ended this job; ask for less next time."
                self._end(queued, End.CUT_SHORT, sentence)
            elif stopped and queued.end is None:
                self._end(queued, End.STOPPED)
            return queued.end is not None

    def _begin(self, queued: QueuedJob) -> None:
        """Record that a device has begun this job, if this is not recorded yet."""
        with self._changed:
            if queued.state is JobState.PICKED:
                queued.state, queued.begun = JobState.RUNNING, self._clock()
                queued.progress.begin(queued.begun)
                self._changed.notify_all()


def _named(ahead: Sequence[QueuedJob], visitor: Visitor | None) -> str:
    """Return the subject and verb of the sentence that these jobs come before a job of ``visitor``."""
    own = [one for one in ahead if visitor and one.visitor and one.visitor.name == visitor.name]
    others = len(ahead) - len(own)
    parts = [f"your own {KIND_NAMES.get(one.kind, one.kind)}" for one in own]
    parts += [f"{others} other jobs" if others > 1 else "one other job"] if others else []
    return f"{' and '.join(parts)} {'are' if len(ahead) > 1 else 'is'}"
