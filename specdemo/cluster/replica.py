"""The processes on the cluster that load a pair. This module does not import Ray."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from specdemo.bench.measuring import environment
from specdemo.models.threads import thread_count, use_threads
from specdemo.pairs.builtin_target import printing
from specdemo.pairs.load import load_sources
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import Sources
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import FREQUENT, REFUSED, LostDeviceError, Request, internal_failure, perform
from specdemo.service.queue import Events

T = TypeVar("T")
STOP_POLL_S = 0.2
"""The seconds between two checks whether the visitor has stopped the job."""
BATCH_S = 0.1
"""Frequent events that occur within this time are sent together."""
_log = logging.getLogger(__name__)


class Replica:
    """Does the jobs of a page, one at a time. A new ``edition`` makes Ray Serve replace running replicas."""

    def __init__(self, sources: Sources, recalibrate: bool, edition: int):
        del edition
        # Use one thread for all computing, because libraries such as OpenMP keep a pool of workers for each
        # thread that computes.
        self._device = ThreadPoolExecutor(1, "device", use_threads)
        loading = self._device.submit(load_sources, sources, progress=printing(), recalibrate=recalibrate)
        self._pair = loading.result()
        self._lost = False

    async def job(self, request: Request, stop_requests: Any, number: int) -> AsyncIterator[list[Event]]:
        """Do a job, and yield batches of its events. If it fails, the last event has the type ``REFUSED``."""
        ended = threading.Event()
        listening = asyncio.ensure_future(_await_stop(stop_requests, number, ended))
        events = self._events(request, ended)
        try:
            loop = asyncio.get_running_loop()
            while batch := await loop.run_in_executor(self._device, next_batch, events):
                yield batch
        finally:
            ended.set()
            listening.cancel()
            self._device.submit(events.close)

    def _events(self, request: Request, ended: threading.Event) -> Events:
        yield {"type": "progress", "text": f"Preparing the run on replica {os.getpid()}", "fraction": 0.0}
        try:
            yield from perform(self._pair, request, ended.is_set)
        except UserError as error:
            self._lost = self._lost or isinstance(error, LostDeviceError)
            yield {"type": REFUSED, "message": str(error)}
        except Exception as error:
            _log.exception("A job failed")
            yield {"type": REFUSED, "message": str(internal_failure(error))}

    def check_health(self) -> None:
        """Raise an error if the device has failed. Ray Serve then replaces this replica."""
        if self._lost:
            raise RuntimeError("The device was lost.")


def next_batch(events: Iterator[Event]) -> list[Event]:
    """Return the next events, or an empty list after the last one."""
    # Each batch takes processor time from the models, so collect frequent events for a moment.
    batch: list[Event] = []
    end = monotonic() + BATCH_S
    for event in events:
        batch.append(event)
        if event["type"] not in FREQUENT or monotonic() >= end:
            break
    return batch


async def _await_stop(stop_requests: Any, number: int, ended: threading.Event) -> None:
    with suppress(Exception):  # the driver has ended, and its actor too
        while not await stop_requests.contains.remote(number):
            await asyncio.sleep(STOP_POLL_S)
    ended.set()


class Worker:
    """Does the measurements of a command such as ``bench``; :meth:`facts` must be called first."""

    def __init__(self, sources: Sources, recalibrate: bool):
        self._sources, self._recalibrate = sources, recalibrate

    def facts(self) -> dict[str, Any]:
        """Load the pair; return the facts that are recorded with the measurements."""
        self._pair = load_sources(self._sources, progress=printing(), recalibrate=self._recalibrate)
        return environment(self._pair) | {"threads": thread_count()}

    def do(self, work: Callable[[Pair], T]) -> T:
        return work(self._pair)
