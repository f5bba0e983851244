"""The page's end of the connection to a cluster: starts the driver, sends jobs, gives out what is told.

Needs no Ray: the driver is a process of its own, which is started again when it ends, as it does when the
cluster's head is gone. Knows neither models nor pages.
"""

import itertools
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import specdemo.cluster.ray_environment  # noqa: F401  (what it starts imports Ray)
from specdemo.cluster.messages import REFUSED, Begin, Ended, Lost, Restart, Standing, Stop
from specdemo.cluster.plan import Plan
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import Request
from specdemo.service.queue import Stop as AskedToStop

POLL_S = 0.05
"""How often a job that tells nothing is asked whether it is to end."""
CLOSE_S = 12.0
"""What a driver may take to end, and a little more."""
AGAIN_S = 3.0
"""Between the end of a driver and the start of the next one."""
ATTEMPTS = 3
"""Replicas that a job may lose before it has shown anything."""
LOST = "The replica that did this was lost; what it showed is kept, please run it again."
_log = logging.getLogger(__name__)


StartDriver = Callable[[int], Callable[[], int]]
"""Called with the descriptor of a driver's end of the connection, starts the driver. What it returns waits
for that driver's end and returns its exit status."""


def start_driver(descriptor: int) -> Callable[[], int]:
    """Start a driver in a process of its own."""
    command = [sys.executable, "-m", "specdemo.cluster.driver", str(descriptor)]
    # In a session of its own: Ctrl-C is for the page, which ends it in order.
    return subprocess.Popen(command, pass_fds=[descriptor], start_new_session=True).wait


class Link:
    """The connection to the replicas of one plan, by way of a driver; to be used on any thread.

    Args:
        plan: What is to be there.
        heard: Called with each new standing, on a thread of the link's.
        start: Starts a driver at the other end of a connection.
    """

    def __init__(self, plan: Plan, heard: Callable[[Standing], None], start: "StartDriver | None" = None):
        self._plan = plan
        self._heard = heard
        self._start = start or start_driver
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._jobs: dict[int, queue.SimpleQueue[Any]] = {}
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._standing = Standing({}, "")

    def begin(self) -> None:
        """Start the driver, unless it was."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_driving, name="cluster", daemon=True)
                self._thread.start()

    def close(self, within_s: float = CLOSE_S) -> None:
        """End the driver, and with it the replicas; waits until it has ended, so long at most."""
        self._closed.set()
        with self._changed:
            if self._connection is not None:
                # To close it would not wake the thread that reads it.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
                    ours.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(within_s)

    def restart(self) -> None:
        """Put new replicas in the place of all: each ends its job, and others wait meanwhile."""
        if not self._send(Restart()):
            _log.warning("There is no cluster now whose replicas could be restarted.")

    def running(self, pair: str) -> int:
        """How many replicas of a pair can take jobs."""
        return self._standing.running.get(pair, 0)

    @property
    def trouble(self) -> str:
        """Why there are fewer replicas than there should be, if the cluster says so; for the log."""
        return self._standing.trouble

    def wait(self, pair: str, seconds: float) -> bool:
        """Wait until a replica of a pair can take jobs, so long at most; whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self.running(pair), seconds) > 0

    def perform(self, pair: str, request: Request, stop: AskedToStop) -> Generator[Event, None, None]:
        """Have a replica do a job; to be read on one thread.

        Args:
            pair: Of which the replica has to be.
            request: Checked.
            stop: Asked all the time.

        Yields:
            The job's events. One whose replica is lost before it has shown anything is done by another.

        Raises:
            UserError: It was refused, failed, or its replica was lost in the middle.
        """
        lost = 0
        while lost < ATTEMPTS:
            while not self.wait(pair, POLL_S):
                if stop():
                    return
                if lost:
                    # Only between two events can a visitor be found to have left.
                    yield {"type": "progress", "text": "Waiting for another replica", "fraction": 0.0}
            shown = False
            for event in self._told(pair, request, stop):
                if isinstance(event, Ended):
                    return
                if isinstance(event, Lost):
                    lost += 1
                    _log.warning("A job lost its replica.")
                    continue
                if event["type"] == REFUSED:
                    raise UserError(event["message"])
                shown = shown or event["type"] != "progress"
                yield event
            if shown:
                break
        raise UserError(LOST)

    def _told(self, pair: str, request: Request, stop: AskedToStop) -> Generator[Any, None, None]:
        """The events of one attempt, then ``Ended`` or ``Lost``; nothing where there is no driver now."""
        number = next(self._numbers)
        told = self._jobs[number] = queue.SimpleQueue()
        stopping = False
        try:
            if not self._send(Begin(number, pair, request)):
                return
            while True:
                if not stopping and stop():
                    self._send(Stop(number))
                    stopping = True
                try:
                    message = told.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                if isinstance(message, Ended | Lost):
                    yield message
                    return
                yield from message.events
        finally:
            self._send(Stop(number))  # who has left wants no more of it
            del self._jobs[number]

    def _send(self, message: Any) -> bool:
        """Whether the driver got it."""
        with self._changed, suppress(OSError):
            if self._connection is not None:
                self._connection.send(message)
                return True
        return False

    def _keep_driving(self) -> None:
        while not self._closed.is_set():
            try:
                self._drive()
            except Exception:  # everybody waits for this thread
                _log.exception("The connection to the cluster failed; trying again.")
            self._closed.wait(AGAIN_S)

    def _drive(self) -> None:
        """Start a driver and take in what it tells until it ends; all that it had are lost then."""
        ours, its = socket.socketpair()
        with its:
            until_ended = self._start(its.fileno())
        with Connection(ours.detach()) as connection:
            try:
                with self._changed:
                    self._connection = connection
                self._send(self._plan)
                with suppress(EOFError, OSError):
                    while True:
                        self._take(connection.recv())
            finally:
                self._lose_all()
        status = until_ended()
        if not self._closed.is_set():
            _log.error("The connection to the cluster was lost (status %d); trying again.", status)

    def _lose_all(self) -> None:
        with self._changed:
            self._connection = None
            self._standing = Standing({}, "it does not answer")
            lost = dict(self._jobs)
        for number, told in lost.items():
            told.put(Lost(number))
        self._heard(self._standing)

    def _take(self, message: Any) -> None:
        if isinstance(message, Standing):
            if message.trouble and message.trouble != self.trouble:
                _log.error("The cluster says: %s", message.trouble)
            self._stand(message)
        elif told := self._jobs.get(message.number):
            told.put(message)

    def _stand(self, standing: Standing) -> None:
        with self._changed:
            self._standing = standing
            self._changed.notify_all()
        self._heard(standing)
