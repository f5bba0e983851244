"""A real Ray cluster on this machine, and visitors of its replicas.

In ``tests``, ``python -m helpers.ray_cluster`` measures the speedup of a second replica.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
from helpers.waiting import until

from specdemo.cluster.link import Link
from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.cluster.service import cluster_service
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import SPECULATIVE
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds
from specdemo.service.service import Service

RAY = (sys.executable, "-m", "ray.scripts.scripts")
"""Ray's command line; its script may belong to another copy of the environment."""
PROMPT = "What is deep learning? Answer in two sentences."
START_S = 900
"""The maximum time until replicas are there: each imports the libraries and measures its pair."""


class Head:
    """The head of a cluster on this machine, which can be stopped and started again; running at first."""

    def __init__(self, port: int, cpus: int = 2):
        self.address = f"127.0.0.1:{port}"
        self._command = [*RAY, "start", "--head", "--block", f"--port={port}", f"--num-cpus={cpus}"]
        self._command += ["--include-dashboard=false", "--disable-usage-stats"]
        self.start()

    def start(self) -> None:
        """Start it, as a host would from the command line; returns when it is up."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert any("Ray runtime started" in line for line in self._process.stdout), "no head was started"

    def stop(self) -> None:
        """Kill it with all that it started, and no other cluster that runs here."""
        command = psutil.Process(self._process.pid)
        for process in (command, *command.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


@contextmanager
def head(port: int) -> Iterator[Head]:
    """The head of a cluster."""
    running = Head(port)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def served(address: str, waiting: int = 100, **replicas: ReplicaRange) -> Iterator[tuple[Service, Link]]:
    """A page's service over replicas with one core each, ready; every pair is the built-in one."""
    sources = dict.fromkeys(replicas, Sources(device="cpu"))
    plan = Plan(address, replicas, sources, cpus=1)
    offered = OfferedPairs("built-in", dict.fromkeys(replicas, "Embedded"))
    service, link = cluster_service(plan, offered, Bounds(max_waiting=waiting))
    service.load()
    try:
        for name, counts in replicas.items():
            await_replicas(link, counts.minimum, name)
        yield service, link
    finally:
        link.close()
        time.sleep(3)


def await_replicas(link: Link, count: int, pair: str = "built-in") -> None:
    """Wait until so many replicas of a pair can take jobs."""
    until(lambda: link.running(pair) >= count, START_S)


@dataclass
class Visit:
    """One visitor's run, read on a thread of its own.

    Attributes:
        replica: The process that did it.
        ids: What the speculative lane wrote.
        refusal: The sentence it was refused or ended with.
        held_s: Seconds for which it had that replica.
    """

    service: Service
    name: str
    settings: dict[str, Any]
    pair: str = "built-in"
    replica: int = 0
    ids: list[int] = field(default_factory=list)
    refusal: str = ""
    types: list[str] = field(default_factory=list)
    held_s: float = 0.0

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        visitor = Visitor(f"10.0.{len(self.name)}.{self.name}", self.name)
        try:
            for event in self.service.events(JobKind.RUN, self.settings, lambda: False, self.pair, visitor):
                self._take(event)
        except UserError as error:
            self.refusal = str(error)

    def _take(self, event: dict[str, Any]) -> None:
        self.types.append(event["type"])
        if event["type"] == "progress" and (found := re.search(r"replica (\d+)", event["text"])):
            self.replica, self._began = int(found[1]), time.monotonic()
        if event["type"] == "end":
            self.held_s = time.monotonic() - self._began
        if event["type"] == "round" and event["lane"] == SPECULATIVE:
            round_ = event["round"]
            self.ids += [token["id"] for token in round_["drafted"] if token["status"] == "accepted"]
            self.ids += [round_["emission"]["id"]] if round_["emission"] else []

    def wait(self) -> "Visit":
        self._thread.join(300)
        assert not self._thread.is_alive()
        return self


def settings(**changes: Any) -> dict[str, Any]:
    """Return the settings of a short run, the same on every replica."""
    return {"prompt": PROMPT, "max_new_tokens": 48, "k": 3, **changes}


def storm(service: Service, visitors: int, **changes: Any) -> tuple[list[Visit], float]:
    """Return the visits of so many visitors at once, and the seconds until all were served."""
    began = time.monotonic()
    visits = [Visit(service, str(number), settings(**changes)) for number in range(visitors)]
    return [visit.wait() for visit in visits], time.monotonic() - began


def kill(replica: int) -> None:
    """Kill a replica, as the system does when memory runs out."""
    os.kill(replica, signal.SIGKILL)


def measure(visitors: int) -> None:
    """Print the times of one and two replicas with one thread each."""
    with head(6391) as running:
        took: dict[int, float] = {}
        for count in (1, 2, 1, 2):
            with served(running.address, **{"built-in": ReplicaRange(count, count)}) as (service, _):
                storm(service, 2 * count)  # each has measured and warmed up
                visits, seconds = storm(service, visitors)
            assert not any(visit.refusal for visit in visits)
            took[count] = min(seconds, took.get(count, seconds))
            print(f"{count} replicas: {visitors} runs in {seconds:.1f} s", flush=True)
    print(f"two replicas do {took[1] / took[2]:.2f} times what one does")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--visitors", type=int, default=24)
    measure(parser.parse_args().visitors)
