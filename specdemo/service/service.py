"""The service behind the page: from a visitor's request, by way of the queue, to the events of a job."""

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from specdemo.pairs.embedded import Progress
from specdemo.pairs.pair import Pair
from specdemo.records.events import Event, count_emitted
from specdemo.records.limits import UserError
from specdemo.records.trace import SPECULATIVE
from specdemo.service.jobs import (
    Events,
    FailedError,
    JobKind,
    LostDeviceError,
    Request,
    checked,
    devices_answer,
    perform,
)
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.pair_pool import Loader, Loan, PairPool
from specdemo.service.queue import ONLY, Bounds, CutShortError, JobQueue, Stop, Tell
from specdemo.service.shares import Visitor

T = TypeVar("T")
_log = logging.getLogger(__name__)
RESTARTING = "The server is about to start again; please try again in a minute."
"""The refusal of jobs once the program is to end, or its device is lost."""


class EventSource(Protocol):
    """The part of :class:`Service` that the page needs; ``watch.service.Watching`` has it too."""

    @property
    def lost(self) -> bool:
        """Whether it can do nothing more as long as this process lasts."""
        ...

    def events(
        self,
        kind: JobKind,
        raw: Mapping[str, Any],
        stop: Stop,
        pair: Any = None,
        visitor: Visitor | None = None,
    ) -> Events:
        """Do one job, as :meth:`Service.events` does."""
        ...

    def close(self, within_s: float) -> None:
        """Begin no more jobs; the current one may take so many seconds to end."""
        ...


class Lender(Protocol):
    """A source of pairs: ``pair_pool.PairPool``, or one whose pairs are in other processes."""

    @property
    def ready(self) -> bool:
        """Whether a job on the pair at home could begin now."""
        ...

    @property
    def loading(self) -> bool:
        """Whether the pair at home is being loaded."""
        ...

    def begin(self) -> None:
        """Begin loading the pair at home, unless it is loaded or being loaded."""
        ...

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Loan | None]:
        """Wait for the pair of that name, as ``PairPool.borrow`` does."""
        ...

    def forget(self, pair: Any) -> None:
        """Load this pair again: its device was lost."""
        ...


Perform = Callable[[Any, Request, Stop], Events]
"""Does a job on a pair: :func:`jobs.perform`, or a function that has another process do it."""


class State(StrEnum):
    """The states of a service; after ``FAILED`` to load the next request tries again."""

    READY = "ready"
    LOADING = "loading"
    FAILED = "failed"
    LOST = "lost"
    CLOSING = "closing"


class Outcome(StrEnum):
    """The ways a job ends, for the log: ``STOPPED`` by its visitor, a limit or the end of the program;
    ``REFUSED`` before it began."""

    DONE = "done"
    STOPPED = "stopped"
    REFUSED = "refused"
    FAILED = "failed"


class Service:
    """The models, and the queue in front of their devices.

    Args:
        lender: Lends the pairs.
        offered: The pairs that visitors may ask for.
        queue: The jobs; each is in the group with the name of its pair, or in the only one.
        performer: Does a job, on a device's thread.
    """

    def __init__(self, lender: Lender, offered: OfferedPairs, queue: JobQueue, performer: Perform):
        self._offered = offered
        self._pool = lender
        self._queue = queue
        self._perform = performer
        self._closing = False
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether the device cannot be used any more as long as this process lasts."""
        return self._lost

    @property
    def state(self) -> State:
        """What it can do now."""
        if self._lost:
            return State.LOST
        if self._closing:
            return State.CLOSING
        if self._pool.ready:
            return State.READY
        return State.LOADING if self._pool.loading else State.FAILED

    def load(self) -> None:
        """Begin to load the pair at home on a thread of its own, unless it is loaded or being loaded."""
        self._pool.begin()

    def alone(self, work: Callable[[], T]) -> T:
        """Do ``work`` while nothing else computes: on the device's thread, before those who wait.

        Returns:
            What ``work`` returned; blocks until then.

        Raises:
            UserError: The service was closed.
        """
        return self._queue.first("measure this machine", work)

    def close(self, within_s: float) -> None:
        """Begin no more jobs; those that wait and those that come are refused with ``RESTARTING``.

        Args:
            within_s: Seconds until the current job is told to end.
        """
        self._closing = True
        self._queue.close(RESTARTING, within_s)

    def events(
        self,
        kind: JobKind,
        raw: Mapping[str, Any],
        stop: Stop,
        pair: Any = None,
        visitor: Visitor | None = None,
    ) -> Events:
        """Check a request, wait for the models and the device, then do the job.

        Args:
            kind: The kind of job.
            raw: The job's settings, untrusted.
            stop: Called once a round, and while waiting; True ends the job.
            pair: The name of the pair, untrusted; None for the pair at home.
            visitor: The visitor who asks; None for the program itself.

        Yields:
            ``progress`` events (``text``, ``fraction``) while waiting, then those of the job.

        Raises:
            UserError: The request was refused, the models could not be loaded, there is no place in the
                queue, or the job failed.
        """
        asked_at = time.monotonic()
        tokens, outcome = 0, Outcome.REFUSED
        try:
            # 1. Refuse a bad request before anything is waited for.
            request = checked(kind, raw)
            name = self._offered.named(pair)
            with self._queue.place(kind, visitor, self._queue.group_of(name)) as place:
                # 2. Wait for the models.
                loan = yield from self._pool.borrow(name, lambda: place.refused is not None or stop())
                if loan is None:
                    place.require_kept()
                    outcome = Outcome.STOPPED
                    return
                # 3. Wait for the device, then hand over the job's events from its thread.
                try:
                    for event in self._queue.turn(place, self._job(loan.pair, request, place.group), stop):
                        if event["type"] != "progress":
                            outcome = Outcome.FAILED  # if an error ends it from here on
                        if event["type"] == "start" and kind is JobKind.RUN and pair:
                            event = _naming_pair(event, pair)
                        tokens += count_emitted(event) if event.get("lane") == SPECULATIVE else 0
                        yield event
                    outcome = Outcome.DONE
                except LostDeviceError:
                    if not self._lost:
                        self._pool.forget(loan.pair)
                    raise
                finally:
                    loan.give_back()
        except (CutShortError, GeneratorExit):
            outcome = Outcome.STOPPED
            raise
        except UserError as error:
            outcome = Outcome.FAILED if isinstance(error, FailedError) else outcome
            raise
        except Exception as error:
            outcome = Outcome.FAILED
            sentence = f"The run failed inside the program ({type(error).__name__}); please try again."
            raise FailedError(sentence) from error
        finally:
            if outcome is Outcome.DONE and stop():
                outcome = Outcome.STOPPED
            _log.info("job %s: %d tokens, %.1f s, %s", kind, tokens, time.monotonic() - asked_at, outcome)

    def probe(self) -> None:
        """Find out, after a failure, whether the device is lost for this process."""
        self._lost = self._lost or not devices_answer()

    def _job(self, pair: Any, request: Request, group: str) -> Callable[[Tell, Stop], None]:
        """Return what a device's thread does for a request once it has its turn."""

        def job(tell: Tell, stop: Stop) -> None:
            if self._lost:
                raise UserError(RESTARTING)
            if group == ONLY:  # a device elsewhere reports on its own
                tell({"type": "progress", "text": "Preparing the run", "fraction": 0.0})
            try:
                with closing(self._perform(pair, request, stop)) as events:
                    for event in events:
                        tell(event)
            except LostDeviceError:
                self.probe()  # before the next job begins on it
                raise

        return job


def _naming_pair(start: Event, pair: str) -> Event:
    """Return a run's ``start`` with the name of its pair in the request, so that a link asks for the same."""
    run = start["run"]
    return {**start, "run": {**run, "pair": {**run["pair"], "name": pair}}}


def local_service(
    loader: Loader,
    offered: OfferedPairs | None = None,
    bounds: Bounds | None = None,
    performer: Perform = perform,
) -> Service:
    """Return a service with the pairs in this process, and one device for all of them.

    Args:
        loader: Loads a pair by name, on a thread of its own.
        offered: The pairs that visitors may ask for.
        bounds: Limits of the queue and of each job.
        performer: Does a job, on the device's thread.
    """

    def load(name: str, progress: Progress) -> Pair:
        try:
            return loader(name, progress)
        except Exception:
            service.probe()
            raise

    offered = offered or OfferedPairs()
    service = Service(PairPool(load, offered.home), offered, JobQueue(bounds), performer)
    return service
