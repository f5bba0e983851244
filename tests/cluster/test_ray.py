"""A real Ray cluster on this machine. The tests are slow and run one after the other."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from helpers.http_visitor import HttpVisitor
from helpers.on_disk import ON_CPU, save_pair
from helpers.reading import Reading
from helpers.waiting import PATIENCE_S, until

from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.cluster.service import LOST, DriverConnection, cluster_service
from specdemo.engine.speculate import never
from specdemo.pairs.presets import OfferedPairs
from specdemo.pairs.sources import Sources
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
VISITORS, WAITING = 20, 12
RUN = {"prompt": "What is deep learning? Answer in two sentences.", "max_new_tokens": 48, "k": 3}
RUN |= {"baseline": False}


class Head:
    """The head of a cluster on this machine, which can be stopped and started again."""

    def __init__(self, port: int):
        self.address = f"127.0.0.1:{port}"
        # Ray's script may belong to another copy of the environment.
        self._command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        self._command += [f"--port={port}", "--num-cpus=3", "--include-dashboard=false"]
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


class Page(NamedTuple):
    """A page whose queue has room for ``WAITING`` jobs of each pair."""

    service: Service
    connection: DriverConnection

    def visit(self, name: int, pair: str = "built-in", **changes: Any) -> Reading:
        visitor = Visitor(f"10.0.0.{name}", str(name))
        return Reading(self.service.events(JobKind.RUN, RUN | changes, never, pair, visitor))

    def storm(self, visitors: int, **changes: Any) -> list[Reading]:
        return [one.wait() for one in [self.visit(number, **changes) for number in range(visitors)]]

    def has_replicas(self, number: int, pair: str = "built-in") -> None:
        until(lambda: self.connection.running(pair) == number, START_S)


def replica_of(reading: Reading) -> int:
    """The process that does a run; 0 if none does."""
    texts = [event["text"] for event in reading.events if event["type"] == "progress"]
    return max([int(number) for number in re.findall(r"replica (\d+)", " ".join(texts))], default=0)


def ended(reading: Reading) -> bool:
    return reading.types[-1:] == ["end"]


@pytest.fixture(scope="module")
def head():
    head = Head(6391)
    head.start()
    yield head
    head.stop()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> list[str]:
    """The folders of a target and a draft that load in a moment."""
    return save_pair(tmp_path_factory)


@pytest.fixture(scope="module")
def page(head, tiny):
    replicas = {"built-in": ReplicaRange(1, 2), "other": ReplicaRange(1, 1)}
    sources = {"built-in": Sources(device="cpu"), "other": Sources(*tiny, **ON_CPU)}
    offered = OfferedPairs("built-in", dict.fromkeys(replicas, "A pair"))
    plan = Plan(head.address, replicas, sources)
    page = Page(*cluster_service(plan, offered, Bounds(max_waiting=WAITING)))
    for pair in replicas:
        page.has_replicas(1, pair)
    yield page
    page.connection.close()


def test_a_bench_on_replicas_has_the_rows_of_one(head, tiny, tmp_path):
    out, prompts = tmp_path / "bench.json", tmp_path / "prompts.jsonl"
    line = '{"id": "%s", "category": "a", "mode": "raw", "prompt": "text %s"}\n'
    prompts.write_text("".join(line % (number, number) for number in range(4)))
    options = ["--prompts", prompts, "--k", "3", "--max-new-tokens", "16", "--out", out]
    options += ["--target", tiny[0], "--draft", tiny[1], "--device", "cpu", "--precision", "fp32"]
    options += ["--cluster", head.address, "--replicas", "2"]
    command = [sys.executable, "-m", "specdemo", "bench", *map(str, options)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4" in ended.stdout and '"replicas":2' in out.read_text(encoding="utf-8").replace(" ", "")


def test_the_app_replaces_its_replica_on_sighup_without_a_refusal_and_ends_with_it(head, tiny):
    url = "http://127.0.0.1:7871"

    def healthy() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/health").status_code == 200
        return False

    def replica() -> int:
        output = ""
        visitor.join("run", {"prompt": "abc", "max_new_tokens": 8}, "session")
        with closing(visitor.messages("session")) as messages:
            for message in messages:
                output += str(message.get("output"))
                if message["msg"] == "process_completed":
                    assert message["success"], message
                    break
        time.sleep(1)
        return int(re.findall(r"replica (\d+)", output)[0])

    options = ["--cluster", head.address, "--replicas", "1", "--port", "7871", "--device", "cpu"]
    options += ["--target", tiny[0], "--draft", tiny[1]]
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


def test_a_storm_is_served_right_or_refused_clearly_and_starts_a_second_replica(page):
    visits = [page.visit(number) for number in range(VISITORS)]
    other = page.visit(VISITORS, "other").wait()
    assert ended(other) and sum(map(ended, visits)) < WAITING // 2, "it waits for none of them"

    def has_second() -> bool:
        if sum(not ended(one) and not one.failure for one in visits) < 4:
            visits.append(page.visit(len(visits)))
        return len({*map(replica_of, visits)} - {0}) == 2

    until(has_second, START_S)
    done = [one for one in visits if not one.wait().failure]
    assert len(done) >= WAITING and all(map(ended, done))
    assert {str(one.failure)[:17] for one in visits if one.failure} == {"The queue is full"}
    assert all(one.ids == done[0].ids for one in done) and len(done[0].ids) == 48
    assert replica_of(other) not in set(map(replica_of, done))


@pytest.mark.parametrize("rule", ["shared-noise", "rejection"])
def test_the_same_seed_gives_the_same_text_on_both_replicas(page, rule):
    page.has_replicas(2)
    visits = page.storm(6, seed=7, temperature=0.8, rule=rule)
    by_replica = Counter(map(replica_of, visits)).values()
    assert len(by_replica) == 2 and min(by_replica) >= 2 and all(map(ended, visits))
    assert all(one.ids == visits[0].ids for one in visits)


def test_stop_ends_a_run_with_its_last_event(page):
    asked = threading.Event()
    events = []
    for event in page.service.events(JobKind.RUN, RUN | {"max_new_tokens": 400}, asked.is_set):
        events.append(event)
        if event["type"] == "round":
            asked.set()
    assert events[-1]["type"] == "end" and events[-1]["finish"] == "stopped"


def test_a_killed_replica_loses_nobody_silently_and_another_takes_its_place(page):
    page.has_replicas(2)
    visits = [page.visit(number, max_new_tokens=400) for number in range(3)]
    until(lambda: any("round" in one.types for one in visits))
    victim = next(replica_of(one) for one in visits if "round" in one.types)
    os.kill(victim, signal.SIGKILL)
    lost = [one for one in visits if not ended(one.wait())]
    assert [str(one.failure) for one in lost] == [LOST] and replica_of(lost[0]) == victim
    page.has_replicas(2)
    again = page.storm(4)
    assert all(map(ended, again)) and victim not in set(map(replica_of, again))


def test_the_page_finds_its_cluster_again_after_the_head_was_lost(head, page):
    head.stop()
    until(lambda: page.service.state is State.LOADING)
    waiting = page.visit(1)
    head.start()
    page.has_replicas(1)
    assert ended(waiting.wait()) and page.service.state is State.READY
