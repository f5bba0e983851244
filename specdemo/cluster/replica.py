"""The processes on the cluster: replicas of a page, and workers of the command line.

This module does not import Ray.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from specdemo.bench.measuring import environment
from specdemo.cluster.link import REFUSED
from specdemo.models.threads import use_threads
from specdemo.pairs.builtin_target import printing
from specdemo.pairs.load import load_sources
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import Sources
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import FREQUENT, LostDeviceError, Request, perform

T = TypeVar("T")
LISTEN_S = 30.0
"""The maximum seconds that one call waits for a stop request.

An actor processes only a limited number of calls at a time, so no call may wait forever.
"""
BATCH_S = 0.1
"""Frequent events that occur within this time are sent together."""
_log = logging.getLogger(__name__)


class Replica:
    """One pair in a process on the cluster. It does one job at a time.

    Args:
        sources: The models of the pair.
        recalibrate: True measures pass costs until they are steady.
        edition: The number of the deployment; not used here. A new number makes Ray Serve replace the
            running replicas.
    """

    def __init__(self, sources: Sources, recalibrate: bool, edition: int):
        del edition
        # Use one thread for all computing, because libraries such as OpenMP keep a pool of workers for each
        # thread that computes.
        self._device = ThreadPoolExecutor(1, "device", use_threads)
        load = partial(load_sources, sources, progress=printing(), recalibrate=recalibrate)
        self._pair = self._device.submit(load).result()
        self._lost = False

    async def job(self, request: Request, stop_requests: Any, number: int) -> AsyncIterator[list[Event]]:
        """Do one job.

        Args:
            request: The request, checked by the page.
            stop_requests: The driver's ``StopRequests`` actor. If the driver ends, the actor ends too.
            number: The job's number.

        Yields:
            Batches of the job's events. The first event has the type ``progress``. If the job fails, the last
            event has the type ``refused`` and an error message.
        """
        ended = threading.Event()
        listening = asyncio.ensure_future(_wait_for_stop(stop_requests, number, ended))
        events = self._events(request, ended)
        loop = asyncio.get_running_loop()
        try:
            preparing = f"Preparing the run on replica {os.getpid()}"
            yield [{"type": "progress", "text": preparing, "fraction": 0.0}]
            while batch := await loop.run_in_executor(self._device, next_batch, events):
                yield batch
        finally:
            ended.set()
            listening.cancel()
            self._device.submit(events.close)

    def _events(self, request: Request, ended: threading.Event) -> Generator[Event, None, None]:
        try:
            yield from perform(self._pair, request, ended.is_set)
        except UserError as error:
            self._lost = self._lost or isinstance(error, LostDeviceError)
            yield {"type": REFUSED, "message": str(error)}
        except Exception as error:
            _log.exception("A job failed")
            message = f"The run failed inside the program ({type(error).__name__}); please try again."
            yield {"type": REFUSED, "message": message}

    def check_health(self) -> None:
        """Raise ``RuntimeError`` if the device has failed. Ray Serve then replaces this replica."""
        if self._lost:
            raise RuntimeError("The device was lost.")


def next_batch(events: Iterator[Event]) -> list[Event]:
    """Return the next events, or an empty list after the last one.

    Frequent events are collected for up to ``BATCH_S`` seconds, because sending each event separately would
    take processor time from the models.
    """
    batch: list[Event] = []
    end = monotonic() + BATCH_S
    for event in events:
        batch.append(event)
        if event["type"] not in FREQUENT or monotonic() >= end:
            break
    return batch


async def _wait_for_stop(stop_requests: Any, number: int, ended: threading.Event) -> None:
    """Set ``ended`` when the visitor stops the job, or when the driver has ended."""
    with suppress(Exception):
        while not await stop_requests.wait.remote(number):
            pass
    ended.set()


class StopRequests:
    """An actor, started by the driver, from which replicas learn that a job must stop."""

    def __init__(self) -> None:
        self._stopped: dict[int, asyncio.Event] = {}

    async def wait(self, number: int) -> bool:
        """Wait for a stop request and return True; return False if there is none within ``LISTEN_S`` seconds.

        :meth:`forget` also ends the wait, with the result True.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.setdefault(number, asyncio.Event()).wait(), LISTEN_S)
            return True
        return False

    async def stop(self, number: int) -> None:
        """Tell the job with this number to stop."""
        self._stopped.setdefault(number, asyncio.Event()).set()

    async def forget(self, number: int) -> None:
        """Forget a job that has ended, and let a pending :meth:`wait` for it return."""
        if stopped := self._stopped.pop(number, None):
            stopped.set()

    async def ping(self) -> bool:
        """Return True, to show that the actor answers."""
        return True


class Worker:
    """One pair in a process on the cluster, for the measurements of a command such as ``bench``."""

    def __init__(self, sources: Sources, recalibrate: bool):
        self._sources, self._recalibrate = sources, recalibrate

    def facts(self) -> dict[str, Any]:
        """Load the pair; return the facts recorded with the measurements (device, versions, threads)."""
        import torch

        self._pair = load_sources(self._sources, progress=printing(), recalibrate=self._recalibrate)
        return environment(self._pair) | {"threads": torch.get_num_threads()}

    def do(self, work: Callable[[Pair], T]) -> T:
        """Return the result of ``work`` on the pair. Call :meth:`facts` first, which loads the pair."""
        return work(self._pair)


def shared_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts that all workers have in common, and ``replicas``, the number of workers.

    Args:
        facts: The result of ``Worker.facts`` for each worker.

    Raises:
        UserError: The workers differ in a fact other than the date, so their timings must not be put in one
            table.
    """
    for name in facts[0].keys() - {"date"}:
        if len(values := sorted({str(one[name]) for one in facts})) > 1:
            raise UserError(
                f"The replicas differ in {name.replace('_', ' ')} ({'; '.join(values)[:200]}), so their "
                "timings do not belong in one table; ask for devices of one kind."
            )
    return {**facts[0], "replicas": len(facts)}
