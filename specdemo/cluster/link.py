"""The page's side of the connection to a cluster: it starts the driver, sends it jobs and receives events.

This module does not import Ray: the driver is another process, which is started again whenever it ends.
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
"""The seconds between two checks whether a waiting job must stop."""
CLOSE_S = 12.0
"""The maximum wait for a driver to end: a little more than the driver's own limit ``LEAVE_S``."""
RETRY_S = 3.0
"""The time between the end of a driver and the start of the next one."""
ATTEMPTS = 3
"""The maximum number of attempts at a job whose replica is lost before it sends any results."""
LOST = "The replica of this run was lost. Its results so far are kept; run it again."
REFUSED = "refused"
"""The type of the event that ends a refused or failed job; its ``message`` is shown to the visitor."""
_log = logging.getLogger(__name__)


class StartJob(NamedTuple):
    """Message to the driver: do this job on a replica of ``pair``."""

    number: int
    pair: str
    request: Request


class StopJob(NamedTuple):
    """Message to the driver: end this job. The driver still sends the job's last events."""

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
    """Message from the driver: a job failed because its replica was lost."""

    number: int


class ClusterStatus(NamedTuple):
    """Message from the driver: the number of running replicas of each pair, and any error of the cluster."""

    running: Mapping[str, int]
    error: str


def start_driver(descriptor: int) -> Callable[[], int]:
    """Start a driver process.

    Args:
        descriptor: The file descriptor of the driver's end of the connection.

    Returns:
        A function that waits until the driver has ended and returns its exit status.
    """
    command = [sys.executable, "-m", "specdemo.cluster.driver", str(descriptor)]
    # Start a new session, so that Ctrl-C reaches only the page. The page then tells the driver to end.
    return subprocess.Popen(command, pass_fds=[descriptor], start_new_session=True).wait


class Link:
    """The connection to the replicas of a plan. Its methods may be called on any thread.

    Args:
        plan: The replicas.
        on_status: Called with each new status, on the link's own thread.
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
        """Start the driver, unless it is already started."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_driving, name="cluster", daemon=True)
                self._thread.start()

    def close(self, within_s: float = CLOSE_S) -> None:
        """End the driver, which deletes the replicas; wait at most ``within_s`` seconds for its end."""
        self._closed.set()
        with self._changed:
            if self._connection is not None:
                # Shut the socket down instead of closing it: closing would not wake the thread that reads it.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
                    ours.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(within_s)

    def restart(self) -> None:
        """Replace all replicas. Each one finishes its current job first; other jobs wait."""
        if not self._send(RestartReplicas()):
            _log.warning("There is no cluster now whose replicas could be restarted.")

    def running(self, pair: str) -> int:
        """Return the number of running replicas of a pair."""
        return self._status.running.get(pair, 0)

    @property
    def error(self) -> str:
        """The cluster's error message if replicas are missing, for the log; empty if there is none."""
        return self._status.error

    def wait(self, pair: str, seconds: float) -> bool:
        """Wait until a replica of a pair runs; return False if none runs after ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: self.running(pair), seconds) > 0

    def perform(self, pair: str, request: Request, stop: Stop) -> Events:
        """Do a job on a replica.

        If the replica is lost while the job has yielded only ``progress`` events, another replica does the
        job, for at most ``ATTEMPTS`` attempts.

        Args:
            pair: The name of the replica's pair.
            request: The checked request.
            stop: Called many times a second; True ends the job.

        Yields:
            The job's events.

        Raises:
            UserError: The job was refused or failed, or its replica was lost.
        """
        for attempt in range(ATTEMPTS):
            while not self.wait(pair, POLL_S):
                if stop():
                    return
                if attempt:
                    # Send an event, because only then does the page notice that a visitor has left.
                    yield {"type": "progress", "text": "Waiting for another replica", "fraction": 0.0}
            if (yield from self._attempt(pair, request, stop)):
                return
            _log.warning("A job lost its replica.")
        raise UserError(LOST)

    def _attempt(self, pair: str, request: Request, stop: Stop) -> Generator[Event, None, bool]:
        """Yield the events of one attempt and return True.

        Return False if the replica was lost while the job had yielded only ``progress`` events.
        """
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
            except Exception:  # this thread must not end, because all jobs depend on it
                _log.exception("The connection to the cluster failed; trying again.")
            self._closed.wait(RETRY_S)

    def _drive(self) -> None:
        """Start a driver and receive its messages until it ends, then report its unfinished jobs as lost."""
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
