"""The page's end of the connection to a cluster: it starts the driver, sends jobs and passes events on.

Imports no Ray: the driver is another process, started again whenever it ends.
"""

import itertools
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from specdemo.cluster.plan import Plan
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import Request
from specdemo.service.queue import Events, Stop

POLL_S = 0.05
"""The time between two looks at whether a waiting job is to stop."""
CLOSE_S = 12.0
"""The time a driver gets to end: a little more than its own limit."""
RETRY_S = 3.0
"""The time between the end of a driver and the start of the next one."""
ATTEMPTS = 3
"""The replicas that a job may lose, one after the other, before it has shown anything."""
LOST = "The replica of this run was lost. Its results so far are kept; run it again."
REFUSED = "refused"
"""The type of the event that ends a refused or failed job; ``message`` is the sentence for the visitor."""
_log = logging.getLogger(__name__)


class StartJob(NamedTuple):
    """Message to the driver: have a replica of ``pair`` do this job."""

    number: int
    pair: str
    request: Request


class StopJob(NamedTuple):
    """Message to the driver: end this job; its last events still come."""

    number: int


class RestartReplicas(NamedTuple):
    """Message to the driver: replace all replicas, one after the other."""


class JobEvents(NamedTuple):
    """Message from the driver: the next events of a job."""

    number: int
    events: Sequence[Event]


class JobEnded(NamedTuple):
    """Message from the driver: a job has sent all its events."""

    number: int


class JobLost(NamedTuple):
    """Message from the driver: a job's replica is gone."""

    number: int


class ClusterStatus(NamedTuple):
    """Message from the driver: replicas of each pair that can take a job, and the cluster's error if any."""

    running: Mapping[str, int]
    error: str


def start_driver(descriptor: int) -> Callable[[], int]:
    """Start a driver at the other end of a connection.

    Returns:
        A function that waits for the driver's end and returns its exit status.
    """
    command = [sys.executable, "-m", "specdemo.cluster.driver", str(descriptor)]
    # In a session of its own, so that Ctrl-C reaches only the page, which ends the driver in order.
    return subprocess.Popen(command, pass_fds=[descriptor], start_new_session=True).wait


class Link:
    """The connection to the replicas of a plan; its methods may be called on any thread.

    Args:
        plan: The replicas.
        on_status: Called with each new status, on a thread of the link's.
    """

    def __init__(self, plan: Plan, on_status: Callable[[ClusterStatus], None]):
        self._plan = plan
        self._on_status = on_status
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._jobs: dict[int, queue.SimpleQueue[Any]] = {}
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._status = ClusterStatus({}, "")

    def begin(self) -> None:
        """Start the driver, unless it was started."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_driving, name="cluster", daemon=True)
                self._thread.start()

    def close(self, within_s: float = CLOSE_S) -> None:
        """End the driver and with it the replicas; wait for that, at most ``within_s`` seconds."""
        self._closed.set()
        with self._changed:
            if self._connection is not None:
                # Closing it would not wake the thread that reads it.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
                    ours.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(within_s)

    def restart(self) -> None:
        """Replace all replicas: each ends its job first, and other jobs wait."""
        if not self._send(RestartReplicas()):
            _log.warning("There is no cluster now whose replicas could be restarted.")

    def running(self, pair: str) -> int:
        """Return how many replicas of a pair can take jobs."""
        return self._status.running.get(pair, 0)

    @property
    def error(self) -> str:
        """The cluster's reason for missing replicas, for the log."""
        return self._status.error

    def wait(self, pair: str, seconds: float) -> bool:
        """Wait until a replica of a pair can take jobs; return False if none can after ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: self.running(pair), seconds) > 0

    def perform(self, pair: str, request: Request, stop: Stop) -> Events:
        """Have a replica do a job.

        Args:
            pair: The name of the replica's pair.
            request: The checked request.
            stop: Asked all the time; True ends the job.

        Yields:
            The job's events. A job whose replica is lost before it has shown anything is done by another.

        Raises:
            UserError: The job was refused, failed, or its replica was lost in the middle.
        """
        for attempt in range(ATTEMPTS):
            while not self.wait(pair, POLL_S):
                if stop():
                    return
                if attempt:
                    # A visitor who has left is noticed only when an event is sent.
                    yield {"type": "progress", "text": "Waiting for another replica", "fraction": 0.0}
            if (yield from self._attempt(pair, request, stop)):
                return
            _log.warning("A job lost its replica.")
        raise UserError(LOST)

    def _attempt(self, pair: str, request: Request, stop: Stop) -> Generator[Event, None, bool]:
        """Yield the events of one attempt; return False if its replica was lost before it showed anything."""
        number = next(self._numbers)
        received = self._jobs[number] = queue.SimpleQueue()
        stopping = shown = False
        try:
            if not self._send(StartJob(number, pair, request)):
                return False
            while True:
                if not stopping and stop():
                    stopping = True
                    self._send(StopJob(number))
                try:
                    message = received.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                if isinstance(message, JobLost) and shown:
                    raise UserError(LOST)
                if isinstance(message, JobEnded | JobLost):
                    return isinstance(message, JobEnded)
                for event in message.events:
                    if event["type"] == REFUSED:
                        raise UserError(event["message"])
                    shown = shown or event["type"] != "progress"
                    yield event
        finally:
            self._send(StopJob(number))  # the visitor may have left
            del self._jobs[number]

    def _send(self, message: Any) -> bool:
        """Send a message and return True, or False if there is no driver now."""
        with self._changed, suppress(OSError):
            if self._connection is not None:
                self._connection.send(message)
                return True
        return False

    def _keep_driving(self) -> None:
        while not self._closed.is_set():
            try:
                self._drive()
            except Exception:  # without this thread no job is ever done
                _log.exception("The connection to the cluster failed; trying again.")
            self._closed.wait(RETRY_S)

    def _drive(self) -> None:
        """Start a driver and receive its messages until it ends; its jobs are lost then."""
        ours, theirs = socket.socketpair()
        with theirs:
            wait_for_end = start_driver(theirs.fileno())
        with Connection(ours.detach()) as connection:
            try:
                with self._changed:
                    self._connection = connection
                self._send(self._plan)
                with suppress(EOFError, OSError):
                    while True:
                        self._receive(connection.recv())
            finally:
                with self._changed:
                    self._connection = None
                self._set_status(ClusterStatus({}, "it does not answer"))
                for number, received in list(self._jobs.items()):
                    received.put(JobLost(number))
        status = wait_for_end()
        if not self._closed.is_set():
            _log.error("The connection to the cluster was lost (status %d); trying again.", status)

    def _receive(self, message: Any) -> None:
        if isinstance(message, ClusterStatus):
            if message.error and message.error != self.error:
                _log.error("The cluster reports: %s", message.error)
            self._set_status(message)
        elif received := self._jobs.get(message.number):
            received.put(message)

    def _set_status(self, status: ClusterStatus) -> None:
        with self._changed:
            self._status = status
            self._changed.notify_all()
        self._on_status(status)
