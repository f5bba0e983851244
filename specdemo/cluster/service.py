"""The service of a page whose pairs run on a cluster. Only the driver, another process, imports Ray."""

import itertools
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import NamedTuple

from specdemo.cluster.plan import Plan, parse_replicas
from specdemo.pairs.presets import OfferedPairs, preset_named
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.hosting import Hosting
from specdemo.service.jobs import REFUSED, Request
from specdemo.service.pair_pool import Lender
from specdemo.service.queue import Bounds, Events, JobQueue, Stop
from specdemo.service.service import Service

POLL_S = 0.05
"""The seconds between two checks whether a job must stop or a replica runs."""
CLOSE_S = 12.0
"""The maximum wait until the driver has deleted its replicas and ended."""
RETRY_S = 3.0
"""The time between the end of a driver and the start of the next one."""
LOST = "The replica of this job stopped unexpectedly; start the job again."
_log = logging.getLogger(__name__)


class JobMessage(NamedTuple):
    """Message to the driver: do a job; without a request, end the job, which still sends its last events."""

    number: int
    pair: str
    request: Request | None


class JobEvents(NamedTuple):
    """Message from the driver: the next events; empty after the last one, None if the replica was lost."""

    number: int
    events: Sequence[Event] | None


def start_driver(connection: Connection) -> subprocess.Popen[bytes]:
    descriptor = connection.fileno()
    command = [sys.executable, "-m", "specdemo.cluster.driver", str(descriptor)]
    # Start a new session, so that Ctrl-C reaches only the page. The page then tells the driver to end.
    return subprocess.Popen(command, pass_fds=[descriptor], start_new_session=True)


class DriverConnection(Lender):
    """The connection to the driver, which is started again whenever it ends. It lends the names of pairs."""

    ready, loading = False, True

    def __init__(self, plan: Plan, default: str):
        self._plan = plan
        self._default = default
        self._numbers = itertools.count(1)
        self._jobs: dict[int, SimpleQueue[Sequence[Event] | None]] = {}
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        # The number of running replicas of each pair; None before the driver has reported it.
        self._running: Mapping[str, int] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_driving, name="cluster", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the driver delete the replicas and end; wait at most ``CLOSE_S`` seconds for its end."""
        self._closed.set()
        self._send(None)
        self._thread.join(CLOSE_S)

    def restart(self) -> None:
        """Replace all replicas. Each one finishes its current job first; other jobs wait."""
        self._send(self._plan)

    def running(self, pair: str) -> int:
        """Return the number of running replicas of a pair."""
        return self._running.get(pair, 0) if self._running else 0

    def expected(self, pair: str) -> int:
        """Return the number of replicas that can shorten a wait; all, until the driver has reported."""
        return self._plan.replicas[pair].maximum if self._running is None else self.running(pair)

    def perform(self, pair: str, request: Request, stop: Stop) -> Events:
        """Do a job on a replica, and yield its events. ``stop`` is called many times a second.

        If the replica is lost before the job has begun, another replica does the job.
        """
        number, received = next(self._numbers), SimpleQueue[Sequence[Event] | None]()
        self._jobs[number] = received
        sent = begun = stopping = ended = False
        try:
            while not ended:
                sent = sent or (self.running(pair) > 0 and self._send(JobMessage(number, pair, request)))
                if not stopping and stop():
                    if not begun:
                        return
                    stopping = self._send(JobMessage(number, pair, None))
                with suppress(Empty):
                    events = received.get(timeout=POLL_S)
                    if events is None and begun:
                        raise UserError(LOST)
                    sent = begun = events is not None
                    ended = events == []
                    for event in events or []:
                        if event["type"] == REFUSED:
                            raise UserError(event["message"])
                        yield event
        finally:
            del self._jobs[number]
            if sent and not ended:
                self._send(JobMessage(number, pair, None))

    def _send(self, message: Plan | JobMessage | None) -> bool:
        """Send a message and return True, or False if there is no driver now."""
        with self._lock:
            if self._connection is None:
                return False
            with suppress(OSError):  # the driver has just ended; ``_keep_driving`` reports its jobs as lost
                self._connection.send(message)
            return True

    def _keep_driving(self) -> None:
        while not self._closed.is_set():
            with suppress(EOFError, OSError):  # the driver has ended, or could not be started
                ours, theirs = Pipe()
                with theirs:
                    driver = start_driver(theirs)
                with driver, ours:
                    with self._lock:
                        self._connection = ours
                    self._send(self._plan)
                    while True:
                        self._receive(ours.recv())
            with self._lock:
                self._connection = None
            self._receive({})
            for received in list(self._jobs.values()):
                received.put(None)
            if not self._closed.wait(RETRY_S):
                _log.error("The connection to the cluster was lost; trying again.")

    def _receive(self, message: JobEvents | Mapping[str, int]) -> None:
        if not isinstance(message, JobEvents):
            self._running = message
            self.ready = self.running(self._default) > 0
            self.loading = not self.ready
        elif received := self._jobs.get(message.number):
            received.put(message.events)


def plan_for(hosting: Hosting, address: str, replicas: str) -> tuple[Plan, OfferedPairs]:
    """Return the plan of the replicas, and the pairs that visitors may choose.

    ``replicas`` is a text for ``parse_replicas``, ``address`` the cluster's head (``host:6379``) or ``auto``.
    """
    default, title = hosting.default
    counts = parse_replicas(replicas, default)
    titles = {name: title if name == default else preset_named(name).title for name in counts}
    sources = {name: hosting.sources_of(name) for name in counts}
    plan = Plan(address, counts, sources, hosting.bounds.max_seconds, hosting.recalibrate)
    return plan, OfferedPairs(default, titles)


def cluster_service(plan: Plan, offered: OfferedPairs, bounds: Bounds) -> tuple[Service, DriverConnection]:
    """Return the service and its connection, which the caller has to close."""
    # In the queue, each replica counts as one device.
    devices = {name: counts.maximum for name, counts in plan.replicas.items()}
    connection = DriverConnection(plan, offered.default)
    queue = JobQueue(bounds, devices=devices, present=connection.expected)
    return Service(connection, offered, queue, connection.perform), connection
