"""A driver without a cluster, which sends the messages of a test."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Queue
from typing import Any

from helpers.waiting import PATIENCE_S

from specdemo.cluster.link import ClusterStatus, JobEnded, JobEvents, Link, StartJob
from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.pairs.sources import Sources

PLAN = Plan("auto", {"built-in": ReplicaRange(2, 2)}, {"built-in": Sources()})


class StandInDriver:
    """Starts drivers for a link; ``heard`` has all that the link sent."""

    def __init__(self, replicas: int = 2):
        self.heard: Queue[Any] = Queue()
        self.replicas = replicas
        self.starts = 0
        self._ended = threading.Event()
        self.connection: Connection

    def start(self, descriptor: int) -> Callable[[], int]:
        """Stand in for ``link.start_driver``."""
        self.starts += 1
        self.connection = Connection(os.dup(descriptor))
        ended = self._ended = threading.Event()
        threading.Thread(target=self._listen, args=[self.connection, ended], daemon=True).start()
        return lambda: int(not ended.wait(PATIENCE_S))

    def _listen(self, connection: Connection, ended: threading.Event) -> None:
        assert connection.recv() is not None  # the plan
        connection.send(ClusterStatus({"built-in": self.replicas}, ""))
        with suppress(EOFError, OSError):
            while True:
                self.heard.put(connection.recv())
        ended.set()

    def say(self, *messages: Any) -> None:
        """Send messages."""
        for message in messages:
            self.connection.send(message)

    def tell(self, number: int, *types: str) -> None:
        """Send events of these types for a job."""
        self.say(JobEvents(number, [{"type": kind} for kind in types]))

    def next_begun(self) -> StartJob:
        """The next job that the link asks for."""
        while not isinstance(message := self.heard.get(timeout=PATIENCE_S), StartJob):
            pass
        return message

    def answer(self, *types: str) -> StartJob:
        """Do the next job that the link asks for, as events of these types."""
        begin = self.next_begun()
        self.tell(begin.number, *types)
        self.say(JobEnded(begin.number))
        return begin

    def die(self) -> None:
        """Vanish."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)  # to close it would not wake the thread that reads it
        self._ended.set()


def linked() -> Link:
    """A link to the stand-in, begun."""
    link = Link(PLAN, lambda _status: None)
    link.begin()
    return link
