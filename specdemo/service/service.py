"""The service behind the page: it checks a visitor's request, queues it, and returns the job's events."""

import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, TypeVar

from specdemo.models.threads import use_threads
from specdemo.pairs.presets import OfferedPairs
from specdemo.records.events import count_emitted
from specdemo.records.limits import UserError
from specdemo.records.trace import SPECULATIVE
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import (
    FailedError,
    JobKind,
    LostDeviceError,
    Request,
    checked,
    internal_failure,
    perform,
    progress_of,
)
from specdemo.service.pair_pool import Lender, Loader, PairPool
from specdemo.service.queue import Bounds, CutShortError, End, Events, JobQueue, Stop

T = TypeVar("T")
Perform = Callable[[Any, Request, Stop], Events]
"""Does a job on borrowed models: :func:`jobs.perform`, or a function that has another process do it."""
RESTARTING = "The server is about to start again; please try again in a minute."
"""The error message for all jobs after the program has begun to close, or after its device has failed."""
RUNS_ONLY = "A watched server supports only runs; choose other models under Settings."
_log = logging.getLogger(__name__)


class RunService(Protocol):
    """The interface that the page uses, implemented by :class:`Service` and ``watch.service.Watching``."""

    @property
    def lost(self) -> bool:
        """True if the device has failed and cannot be used again in this process."""
        ...

    def events(
        self,
        kind: JobKind,
        raw: Mapping[str, Any],
        stop: Stop,
        pair: Any = None,
        visitor: Visitor | None = None,
    ) -> Events:
        """Check a request, wait for the models and the device, then do the job and yield its events.

        ``raw`` and ``pair`` are untrusted; None is the default pair. ``stop`` is called while waiting and
        once a round; True ends the job. The visitor None is the program itself. While waiting, yields
        ``progress`` events (``text``, ``fraction``).
        """
        ...

    def close(self, within_s: float) -> None:
        """Begin no more jobs; end those still running after ``within_s`` seconds."""
        ...


class State(StrEnum):
    """The states of a service. ``FAILED``: the models could not be loaded; the next request tries again."""

    READY = "ready"
    LOADING = "loading"
    FAILED = "failed"
    LOST = "lost"
    CLOSING = "closing"


class Service:
    """The service that does the jobs of all visitors. ``perform`` is called on the thread of a device."""

    def __init__(self, lender: Lender, offered: OfferedPairs, queue: JobQueue, perform: Perform):
        self._lender = lender
        self._offered = offered
        self._queue = queue
        self._perform = perform
        self._lost = self._closing = False

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def state(self) -> State:
        if self._lost:
            return State.LOST
        if self._closing:
            return State.CLOSING
        if self._lender.ready:
            return State.READY
        return State.LOADING if self._lender.loading else State.FAILED

    def load(self) -> None:
        """Begin to load the default pair on a separate thread, unless it is loaded or being loaded."""
        self._lender.begin()

    def alone(self, work: Callable[[], T]) -> T:
        """Call ``work`` while no job computes, see :meth:`JobQueue.first`."""
        return self._queue.first(work)

    def close(self, within_s: float) -> None:
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
        asked_at = time.monotonic()
        models, tokens, outcome = None, 0, End.REFUSED
        try:
            # 1. Refuse a bad request at once, without waiting.
            if isinstance(pair, str) and pair in self._offered.watched and kind is not JobKind.RUN:
                raise UserError(RUNS_ONLY)
            request = checked(kind, raw)
            name = self._offered.named(pair)
            with self._queue.enqueued(kind, visitor, name, progress_of(request, name)) as queued:
                # 2. Wait for the models.
                models = yield from self._lender.borrow(name, lambda: not queued.is_kept or stop())
                if models is None:
                    queued.require_kept()
                    outcome = End.STOPPED
                    return
                try:
                    # 3. Wait for the device.
                    job = partial(self._perform, models, request)
                    if not (yield from self._queue.wait_for_turn(queued, job, stop)):
                        outcome = End.STOPPED
                        return
                    # 4. Pass on the events from the device's thread.
                    while (event := queued.receive()) is not None:
                        if event["type"] != "progress":
                            outcome = End.FAILED  # for the log, if an error ends the job after this point
                        if event["type"] == "start" and kind is JobKind.RUN and pair:
                            # Record the name that the visitor gave, so that a link to the run names the same
                            # pair.
                            run = event["run"]
                            event = {**event, "run": {**run, "pair": {**run["pair"], "name": pair}}}
                        tokens += count_emitted(event) if event.get("lane") == SPECULATIVE else 0
                        yield event
                        queued.ask()
                finally:
                    self._lender.give_back(name)
                outcome = queued.end or End.DONE
        except (CutShortError, GeneratorExit):
            outcome = End.STOPPED
            raise
        except FailedError as error:
            outcome = End.FAILED
            if error.device_lost:
                self._lost = True
                self._queue.refuse(RESTARTING)
            elif isinstance(error, LostDeviceError):
                self._lender.forget(models)
            raise
        except UserError:
            raise
        except Exception as error:
            outcome = End.FAILED
            raise internal_failure(error) from error
        finally:
            _log.info("job %s: %d tokens, %.1f s, %s", kind, tokens, time.monotonic() - asked_at, outcome)


def local_service(
    loader: Loader,
    offered: OfferedPairs | None = None,
    bounds: Bounds | None = None,
    performer: Perform = perform,
    threads: int | None = None,
) -> Service:
    """Return a service whose pairs all run in this process, one job at a time.

    ``loader`` is called on a separate thread, ``performer`` on the device's thread, which computes with
    ``threads`` OpenMP threads, see ``use_threads``.
    """
    offered = offered or OfferedPairs()
    queue = JobQueue(bounds)
    queue.first(partial(use_threads, threads))
    return Service(PairPool(loader, offered.default), offered, queue, performer)
