"""A real Ray cluster on this machine: two replicas of the built-in pair, with one thread each.

These are slow, one after the other, and need Ray: ``pip install '.[cluster]'``.
"""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from helpers.http_visitor import HttpVisitor

pytest.importorskip("ray")
from helpers.ray_cluster import (
    START_S,
    ReplicaRange,
    Visit,
    await_replicas,
    head,
    kill,
    served,
    settings,
    storm,
)
from helpers.waiting import PATIENCE_S, until

from specdemo.cluster.link import LOST
from specdemo.service.service import State

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
PORT = 6391
VISITORS = 50
WAITING = 30


@pytest.fixture(scope="module")
def running():
    with head(PORT) as running:
        yield running


@pytest.fixture(scope="module")
def address(running):
    return running.address


@pytest.fixture(scope="module")
def pair_of_replicas(address):
    with served(address, WAITING, **{"built-in": ReplicaRange(2, 2)}) as (service, link):
        yield service, link


@contextmanager
def app_on(address: str, port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The app with one replica there, ready."""
    url = f"http://127.0.0.1:{port}"
    options = ["--cluster", address, "--replicas", "1", "--replica-cpus", "1", "--port", str(port)]
    with subprocess.Popen([sys.executable, "app.py", *options], cwd=ROOT) as app:
        try:
            until(lambda: healthy(url), START_S)
            yield app, url
        finally:
            app.kill()


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def replica_of(visitor: HttpVisitor) -> int:
    """The process that did a run for this visitor."""
    session, output = uuid.uuid4().hex, ""
    visitor.join("run", settings(), session)
    with closing(visitor.messages(session)) as messages:
        for message in messages:
            output += str(message.get("output"))
            if message["msg"] == "process_completed":
                assert message["success"], message
                break
    return int(re.findall(r"replica (\d+)", output)[0])


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_storm_of_visitors_is_served_right_or_refused_clearly(pair_of_replicas):
    service, _ = pair_of_replicas
    visits, seconds = storm(service, VISITORS)
    done = [visit for visit in visits if not visit.refusal]
    refused = [visit for visit in visits if visit.refusal]
    assert len(done) >= WAITING and len(done) + len(refused) == VISITORS
    assert {tuple(visit.ids) for visit in done} == {tuple(done[0].ids)} and len(done[0].ids) == 48
    assert all(
        "The queue is full" in visit.refusal and "try again in about" in visit.refusal for visit in refused
    )
    by_replica = [sum(visit.replica == one for visit in done) for one in {visit.replica for visit in done}]
    assert len(by_replica) == 2 and min(by_replica) >= len(done) // 3
    # The speedup depends on the machine; that both replicas work all the time does not.
    assert sum(visit.held_s for visit in done) >= 1.7 * seconds


@pytest.mark.parametrize(
    "changes", [{"temperature": 0.8, "rule": "shared-noise"}, {"temperature": 0.8, "k": 3}]
)
def test_the_same_seed_gives_the_same_text_on_every_replica(pair_of_replicas, changes):
    service, _ = pair_of_replicas
    visits, _ = storm(service, 6, seed=7, **changes)
    assert len({visit.replica for visit in visits}) == 2
    assert {tuple(visit.ids) for visit in visits} == {tuple(visits[0].ids)} and not visits[0].refusal


def test_a_killed_replica_loses_nobody_silently_and_another_takes_its_place(pair_of_replicas):
    service, link = pair_of_replicas
    visits = [Visit(service, str(number), settings(max_new_tokens=400)) for number in range(6)]
    until(lambda: any("round" in visit.types for visit in visits))
    victim = next(visit.replica for visit in visits if "round" in visit.types)
    kill(victim)
    for visit in visits:
        visit.wait()
    lost = [visit for visit in visits if visit.refusal]
    assert [visit.refusal for visit in lost] == [LOST] and lost[0].replica == victim
    assert all(visit.types[-1] == "end" for visit in visits if visit not in lost)
    await_replicas(link, 2)
    again, _ = storm(service, 4)
    assert not any(visit.refusal for visit in again)
    assert victim not in {visit.replica for visit in again}


def test_a_rolling_restart_refuses_nobody(pair_of_replicas):
    service, link = pair_of_replicas
    before = {visit.replica for visit in storm(service, 4)[0]}
    visits = [Visit(service, str(number), settings(max_new_tokens=96)) for number in range(4)]
    until(lambda: any("round" in visit.types for visit in visits))
    link.restart()
    later = []

    def is_restarted() -> bool:
        later.append(Visit(service, f"later {len(later)}", settings()).wait())
        time.sleep(1)  # runs one after the other would take the cores that load the new replicas
        return later[-1].replica not in before

    until(is_restarted, START_S)
    assert [visit.refusal for visit in (*visits, *later) if visit.wait().refusal] == []


def test_the_page_finds_its_cluster_again_after_the_head_was_restarted(running, pair_of_replicas):
    service, link = pair_of_replicas
    running.stop()
    until(lambda: service.state is State.LOADING)
    waiting = Visit(service, "patient", settings())
    running.start()
    until(lambda: service.state is State.READY, START_S)
    assert waiting.wait().types[-1] == "end" and not waiting.refusal
    await_replicas(link, 2)


def test_a_bench_spread_over_replicas_has_the_rows_of_one(address, pair_of_replicas, tmp_path):
    """After the tests of the page's replicas, because this one and those after it need their cores."""
    _, link = pair_of_replicas
    link.close()
    time.sleep(5)
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "specdemo", "bench", "--prompts", "assets/prompts.jsonl", "--limit", "4"]
    command += ["--k", "3", "--max-new-tokens", "16"]
    command += ["--cluster", address, "--replicas", "2", "--replica-cpus", "1"]
    ended = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4" in ended.stdout and '"replicas":2' in out.read_text(encoding="utf-8").replace(" ", "")


def test_a_second_replica_is_started_when_visitors_wait(address):
    with served(address, **{"built-in": ReplicaRange(1, 2)}) as (service, link):
        assert link.running("built-in") == 1
        visits: list[Visit] = []

        def has_second() -> bool:
            if sum(visit.types[-1:] != ["end"] for visit in visits) < 4:
                visits.append(Visit(service, str(len(visits)), settings(max_new_tokens=96)))
            return len({visit.replica for visit in visits} - {0}) == 2

        until(has_second, START_S)
        assert not any(visit.wait().refusal for visit in visits)
        assert len({tuple(visit.ids) for visit in visits}) == 1


def test_each_pair_has_replicas_and_a_queue_of_its_own(address):
    with served(address, **{"built-in": ReplicaRange(1, 1)}, other=ReplicaRange(1, 1)) as (service, _):
        visits = [Visit(service, str(number), settings(), "built-in") for number in range(5)]
        one = Visit(service, "of the other", settings(), "other")
        until(lambda: "start" in one.types)
        assert sum(visit.types[-1:] == ["end"] for visit in visits) < 4, "it waits for none of them"
        assert one.wait().types[-1] == "end" and not one.refusal
        assert not any(visit.wait().refusal for visit in visits)
        assert {visit.replica for visit in visits}.isdisjoint({one.replica})
        assert len({tuple(visit.ids) for visit in (*visits, one)}) == 1


def test_the_app_restarts_its_replicas_on_sighup_and_ends_with_them(address):
    with app_on(address, port=7871) as (app, url):
        visitor = HttpVisitor(url)
        before = replica_of(visitor)
        app.send_signal(signal.SIGHUP)
        after = before

        def is_restarted() -> bool:
            nonlocal after
            after = replica_of(visitor)
            time.sleep(1)
            return after != before

        until(is_restarted, START_S)
        app.send_signal(signal.SIGTERM)
        assert app.wait(PATIENCE_S) == 0
    until(lambda: not alive(after))
