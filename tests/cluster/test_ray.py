"""A real Ray cluster on this machine with two cores. The tests are slow and run one after the other."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.http_visitor import HttpVisitor
from helpers.reading import Reading
from helpers.waiting import PATIENCE_S, until

from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.cluster.service import LOST, DriverConnection, cluster_service
from specdemo.engine.speculate import never
from specdemo.pairs.presets import OfferedPairs
from specdemo.pairs.sources import Sources
from specdemo.records.trace import SPECULATIVE
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds
from specdemo.service.service import Service, State

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]
ROOT = Path(__file__).parents[2]
START_S = 900
"""The maximum time until replicas run: each imports the libraries and measures its pair."""
VISITORS, WAITING = 50, 30
RUN = {"prompt": "What is deep learning? Answer in two sentences.", "max_new_tokens": 48, "k": 3}


class Head:
    """The head of a cluster on this machine, which can be stopped and started again."""

    def __init__(self, port: int):
        self.address = f"127.0.0.1:{port}"
        # Ray's script may belong to another copy of the environment.
        self._command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        self._command += [f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
        self._command += ["--disable-usage-stats"]

    def start(self) -> None:
        for _ in range(3):  # Ray gives up after 30 s, which may not be enough on a busy machine
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
            assert self._process.stdout is not None
            if any("Ray runtime started" in line for line in self._process.stdout):
                return
            self.stop()
        raise AssertionError("no head was started")

    def stop(self) -> None:
        import psutil

        with suppress(psutil.NoSuchProcess):
            command = psutil.Process(self._process.pid)
            for process in (command, *command.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.wait()


def visit(service: Service, name: object, pair: str = "built-in", **changes: Any) -> Reading:
    visitor = Visitor(f"10.0.0.{name}", str(name))
    return Reading(service.events(JobKind.RUN, {**RUN, **changes}, never, pair, visitor))


def storm(service: Service, visitors: int, **changes: Any) -> list[Reading]:
    """So many visitors at once, after the last one was served."""
    return [one.wait() for one in [visit(service, number, **changes) for number in range(visitors)]]


def replica_of(reading: Reading) -> int:
    """The process that does a run; 0 if none does."""
    texts = [event["text"] for event in reading.events if event["type"] == "progress"]
    return max([int(number) for number in re.findall(r"replica (\d+)", " ".join(texts))], default=0)


def ids_of(reading: Reading) -> tuple[int, ...]:
    ids = []
    for event in reading.events:
        if event["type"] == "round" and event["lane"] == SPECULATIVE:
            own = event["round"]["emission"]
            drafted = [one["id"] for one in event["round"]["drafted"] if one["status"] == "accepted"]
            ids += drafted + ([own["id"]] if own else [])
    return tuple(ids)


def ended(reading: Reading) -> bool:
    return reading.types[-1:] == ["end"]


@contextmanager
def served(address: str, **replicas: ReplicaRange) -> Iterator[tuple[Service, DriverConnection]]:
    """A page's service over replicas of the built-in pair under several names."""
    plan = Plan(address, replicas, dict.fromkeys(replicas, Sources(device="cpu")))
    offered = OfferedPairs("built-in", dict.fromkeys(replicas, "Built-in"))
    service, connection = cluster_service(plan, offered, Bounds(max_waiting=WAITING))
    try:
        for name, counts in replicas.items():
            until(lambda name=name, count=counts.minimum: connection.running(name) >= count, START_S)
        yield service, connection
    finally:
        connection.close()
        time.sleep(3)


@pytest.fixture(scope="module")
def head():
    head = Head(6391)
    head.start()
    yield head
    head.stop()


@pytest.fixture(scope="module")
def pair_of_replicas(head):
    with served(head.address, **{"built-in": ReplicaRange(2, 2)}) as served_pair:
        yield served_pair


def test_a_storm_of_visitors_is_served_right_or_refused_clearly(pair_of_replicas):
    visits = storm(pair_of_replicas[0], VISITORS)
    done = [one for one in visits if not one.failure]
    assert len(done) >= WAITING
    assert all("The queue is full" in str(one.failure) for one in visits if one not in done)
    assert {ids_of(one) for one in done} == {ids_of(done[0])} and len(ids_of(done[0])) == 48
    by_replica = Counter(map(replica_of, done)).values()
    assert len(by_replica) == 2 and min(by_replica) >= len(done) // 3


@pytest.mark.parametrize("changes", [{"rule": "shared-noise"}, {"rule": "rejection"}])
def test_the_same_seed_gives_the_same_text_on_every_replica(pair_of_replicas, changes):
    visits = storm(pair_of_replicas[0], 6, seed=7, temperature=0.8, **changes)
    assert len(set(map(replica_of, visits))) == 2 and all(map(ended, visits))
    assert len(set(map(ids_of, visits))) == 1


def test_stop_ends_a_run_with_its_last_event(pair_of_replicas):
    asked = threading.Event()
    events = []
    for event in pair_of_replicas[0].events(JobKind.RUN, {**RUN, "max_new_tokens": 400}, asked.is_set):
        events.append(event)
        if event["type"] == "round":
            asked.set()
    assert events[-1]["type"] == "end" and events[-1]["finish"] == "stopped"


def test_a_killed_replica_loses_nobody_silently_and_another_takes_its_place(pair_of_replicas):
    service, connection = pair_of_replicas
    visits = [visit(service, number, max_new_tokens=400) for number in range(6)]
    until(lambda: any("round" in one.types for one in visits))
    victim = next(replica_of(one) for one in visits if "round" in one.types)
    os.kill(victim, signal.SIGKILL)
    lost = [one for one in visits if not ended(one.wait())]
    assert [str(one.failure) for one in lost] == [LOST] and replica_of(lost[0]) == victim
    until(lambda: connection.running("built-in") == 2, START_S)
    again = storm(service, 4)
    assert all(map(ended, again)) and victim not in set(map(replica_of, again))


def test_the_page_finds_its_cluster_again_after_the_head_was_lost(head, pair_of_replicas):
    service, connection = pair_of_replicas
    head.stop()
    until(lambda: service.state is State.LOADING)
    waiting = visit(service, 1)
    head.start()
    until(lambda: connection.running("built-in") == 2, START_S)
    assert ended(waiting.wait()) and service.state is State.READY


def test_a_bench_on_replicas_has_the_rows_of_one(head, pair_of_replicas, tmp_path):
    pair_of_replicas[1].close()  # this test and the following ones need its cores
    time.sleep(5)
    out = tmp_path / "bench.json"
    options = ["--prompts", "assets/prompts.jsonl", "--limit", "4", "--k", "3", "--max-new-tokens", "16"]
    options += ["--cluster", head.address, "--replicas", "2", "--out", str(out)]
    ended = subprocess.run(
        [sys.executable, "-m", "specdemo", "bench", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4" in ended.stdout and '"replicas":2' in out.read_text(encoding="utf-8").replace(" ", "")


def test_a_second_replica_is_started_when_visitors_wait(head):
    with served(head.address, **{"built-in": ReplicaRange(1, 2)}) as (service, _):
        visits: list[Reading] = []

        def has_second() -> bool:
            if sum(not ended(one) for one in visits) < 4:
                visits.append(visit(service, len(visits), max_new_tokens=96))
            return len({*map(replica_of, visits)} - {0}) == 2

        until(has_second, START_S)
        assert all(ended(one.wait()) for one in visits)


def test_each_pair_has_replicas_and_a_queue_of_its_own(head):
    one_each = {"built-in": ReplicaRange(1, 1), "other": ReplicaRange(1, 1)}
    with served(head.address, **one_each) as (service, _):
        visits = [visit(service, number) for number in range(5)]
        other = visit(service, 9, "other")
        until(lambda: "start" in other.types)
        assert sum(map(ended, visits)) < 4, "it waits for none of them"
        assert all(ended(one.wait()) for one in (*visits, other))
        assert replica_of(other) not in set(map(replica_of, visits))


def test_the_app_replaces_its_replica_on_sighup_without_a_refusal_and_ends_with_it(head):
    url = "http://127.0.0.1:7871"

    def healthy() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/health").status_code == 200
        return False

    def replica() -> int:
        output = ""
        visitor.join("run", RUN, "session")
        with closing(visitor.messages("session")) as messages:
            for message in messages:
                output += str(message.get("output"))
                if message["msg"] == "process_completed":
                    assert message["success"], message
                    break
        time.sleep(1)
        return int(re.findall(r"replica (\d+)", output)[0])

    options = ["--cluster", head.address, "--replicas", "1", "--port", "7871"]
    with subprocess.Popen([sys.executable, "app.py", *options], cwd=ROOT) as app:
        try:
            until(healthy, START_S)
            visitor = HttpVisitor(url)
            before = replica()
            app.send_signal(signal.SIGHUP)
            until(lambda: replica() != before, START_S)
            after = replica()
            app.send_signal(signal.SIGTERM)
            assert app.wait(PATIENCE_S) == 0
            until(lambda: not Path(f"/proc/{after}").exists())
        finally:
            app.kill()
