"""One replica: a pair on its device, which does one job at a time and tells its events as they come.

Runs in a process of the cluster. Does what the page's own process would do, by the same code.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from specdemo.cluster.messages import REFUSED
from specdemo.pairs.embedded import printing
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import Sources
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import FREQUENT, LostDeviceError, Request, perform

ASK_S = 30.0
"""How long a replica listens for a wish at a time: an actor answers so many calls at once and no more."""
TOGETHER_S = 0.1
"""Events that come within so long are told at once."""
_log = logging.getLogger(__name__)


class Replica:
    """Holds one pair.

    Args:
        sources: The pair.
        recalibrate: Whether to measure pass costs until they are steady.
        edition: Of the deployment; another one makes the cluster put new replicas in place of the old.
    """

    def __init__(self, sources: Sources, recalibrate: bool, edition: int):
        del edition
        # One thread computes, whatever it is: the libraries below keep a team of workers for every thread.
        self._device = ThreadPoolExecutor(1, "device")
        load = partial(load_sources, sources, progress=printing(), recalibrate=recalibrate)
        self._pair = self._device.submit(load).result()
        self._lost = False

    async def job(self, request: Request, wishes: Any, number: int) -> AsyncIterator[list[Event]]:
        """Do one job.

        Args:
            request: Checked by the page.
            wishes: Actor whose ``stopped(number)`` returns when its visitor asks for the end; it is gone with
                the driver.
            number: Of the job.

        Yields:
            Its events, some at a time: ``progress`` first; where it fails, ``refused`` with a sentence last.
        """
        ended = threading.Event()
        listening = asyncio.ensure_future(_wait_for_stop(wishes, number, ended))
        events = self._with_faults_told(perform(self._pair, request, ended.is_set))
        loop = asyncio.get_running_loop()
        try:
            preparing = f"Preparing the run on replica {os.getpid()}"
            yield [{"type": "progress", "text": preparing, "fraction": 0.0}]
            while some := await loop.run_in_executor(self._device, next_few, events):
                yield some
        finally:
            ended.set()
            listening.cancel()
            self._device.submit(events.close)

    def _with_faults_told(self, events: Iterator[Event]) -> Generator[Event, None, None]:
        try:
            yield from events
        except UserError as error:
            self._lost = self._lost or isinstance(error, LostDeviceError)
            yield {"type": REFUSED, "message": str(error)}
        except Exception as error:
            _log.exception("A job failed")
            told = f"The run failed inside the program ({type(error).__name__}); please try again."
            yield {"type": REFUSED, "message": told}

    def check_health(self) -> None:
        """Asked by the cluster now and then, which ends a replica that raises and starts another.

        Raises:
            RuntimeError: The device was lost, and with it the pair.
        """
        if self._lost:
            raise RuntimeError("The device was lost.")


def next_few(events: Iterator[Event]) -> list[Event]:
    """The events of the next moment; none where there are no more.

    What travels takes the processor from what computes, and a page shows several a moment together anyway.
    """
    few: list[Event] = []
    end = monotonic() + TOGETHER_S
    for event in events:
        few.append(event)
        if event["type"] not in FREQUENT or monotonic() >= end:
            break
    return few


async def _wait_for_stop(wishes: Any, number: int, ended: threading.Event) -> None:
    """Set ``ended`` when the visitor asks for it, or when nobody is there any more who could."""
    with suppress(Exception):
        while not await wishes.stopped.remote(number):
            pass
    ended.set()


class Wishes:
    """An actor of the driver's: who wants their job ended. Gone with the driver, and so are the jobs then."""

    def __init__(self) -> None:
        self._stopped: dict[int, asyncio.Event] = {}

    async def stopped(self, number: int) -> bool:
        """Wait until the job of this number is to end, for ``ASK_S`` at most; whether it is."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.setdefault(number, asyncio.Event()).wait(), ASK_S)
            return True
        return False

    async def stop(self, number: int) -> None:
        """Have the job of this number end."""
        self._stopped.setdefault(number, asyncio.Event()).set()

    async def forget(self, number: int) -> None:
        """The job of this number is over; who still waits for its end need not."""
        if stopped := self._stopped.pop(number, None):
            stopped.set()

    async def here(self) -> bool:
        """Answer, which says that the actor is there."""
        return True
