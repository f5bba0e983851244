"""The process between page and cluster, with handles that a test controls: every job gets an end.

Slow only because it needs Ray, which the usual tests do without.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
from helpers.stand_in_driver import PLAN
from helpers.waiting import PATIENCE_S

from specdemo.cluster.driver import Driver, missing_resources
from specdemo.cluster.link import JobEnded, JobEvents, JobLost, RestartReplicas, StartJob, StopJob
from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.pairs.sources import Sources
from specdemo.service.jobs import JobKind, checked

pytestmark = pytest.mark.slow
REQUEST = checked(JobKind.RUN, {"prompt": "x"})
START, END = [{"type": "start"}], [{"type": "end"}]


class Page:
    """The page's end of a driver's connection.

    Attributes:
        stop_requests: The calls of the driver's actor.
    """

    def __init__(self, connection: Any):
        self.send = connection.send
        self.stop_requests: list[tuple[str, int]] = []
        self._connection = connection

    def received(self, count: int) -> list[Any]:
        """The next messages."""
        messages = []
        while len(messages) < count:
            assert self._connection.poll(PATIENCE_S), f"only {messages}"
            messages.append(self._connection.recv())
        return messages

    def silent(self) -> bool:
        return not self._connection.poll(0.2)


@contextmanager
def driving(job: Callable[..., AsyncIterator[Any]]) -> Iterator[Page]:
    """A driver as after its deployment, on a made-up cluster."""
    ours, theirs = Pipe()
    driver, page = Driver(PLAN, theirs), Page(ours)

    def method(name: str) -> Any:
        return SimpleNamespace(remote=lambda number: page.stop_requests.append((name, number)))

    actor = SimpleNamespace(**{name: method(name) for name in ("stop", "forget")})
    handles = {"built-in": SimpleNamespace(job=SimpleNamespace(remote=job))}
    passing = threading.Thread(target=lambda: asyncio.run(driver.pass_on(handles, actor)), daemon=True)
    passing.start()
    threading.Thread(target=driver.read_messages, daemon=True).start()
    yield page
    ours.close()
    passing.join(PATIENCE_S)
    assert not passing.is_alive(), "it ends with the page"


async def short(*_arguments: Any) -> AsyncIterator[Any]:
    yield START
    yield END


def test_a_job_is_passed_on_to_its_end_and_forgotten():
    with driving(short) as page:
        page.send(StartJob(1, "built-in", REQUEST))
        assert page.received(3) == [JobEvents(1, START), JobEvents(1, END), JobEnded(1)]
        assert page.stop_requests == [("forget", 1)]


@pytest.mark.parametrize("fault", [RuntimeError("of Ray"), KeyError("of Serve"), OSError("of the system")])
def test_a_job_is_lost_whatever_the_cluster_raises(fault):
    async def job(*_arguments: Any) -> AsyncIterator[Any]:
        yield START
        raise fault

    with driving(job) as page:
        page.send(StartJob(1, "built-in", REQUEST))
        assert page.received(2) == [JobEvents(1, START), JobLost(1)]
        assert ("stop", 1) in page.stop_requests, "its replica may still be there"


def test_a_job_without_a_replica_ends_at_once_and_one_with_a_replica_ends_itself():
    release = threading.Event()

    async def job(_request: Any, _stop_requests: Any, number: int) -> AsyncIterator[Any]:
        if number == 2:
            yield START
        while not release.is_set():
            await asyncio.sleep(0.01)
        yield END

    with driving(job) as page:
        page.send(StartJob(1, "built-in", REQUEST))
        page.send(StartJob(2, "built-in", REQUEST))
        assert page.received(1) == [JobEvents(2, START)]
        page.send(StopJob(1))
        page.send(StopJob(2))
        assert page.received(1) == [JobEnded(1)] and page.silent()
        assert page.stop_requests == [("stop", 1), ("stop", 2)]
        release.set()
        assert page.received(2) == [JobEvents(2, END), JobEnded(2)]
        page.send(StopJob(1))  # too late, and nothing happens
        assert page.silent()


def test_a_restart_that_fails_keeps_the_replicas(monkeypatch, caplog):
    deployed = []

    def fails(_driver: Driver) -> None:
        deployed.append(1)
        raise RuntimeError("no")

    monkeypatch.setattr(Driver, "deploy", fails)
    with driving(short) as page:
        page.send(RestartReplicas())
        page.send(RestartReplicas())
        page.send(StartJob(1, "built-in", REQUEST))
        assert page.received(3)[-1] == JobEnded(1)
        assert page.silent() and len(deployed) == 2
    assert "the present ones stay" in caplog.text


def test_more_replicas_than_a_cluster_can_hold_are_reported(monkeypatch):
    monkeypatch.setattr("specdemo.cluster.driver.ray.cluster_resources", lambda: {"CPU": 2.0})
    four = Plan("auto", {"built-in": ReplicaRange(4, 4)}, {"built-in": Sources()})
    assert "4 replicas with 1 CPUs each need more than the 2" in missing_resources(four, 1.0)
    assert missing_resources(PLAN, 1.0) == ""
    on_gpus = Plan("auto", {"built-in": ReplicaRange(1, 1)}, {"built-in": Sources()}, gpus=1.0)
    assert "1 GPUs each need more than the 0" in missing_resources(on_gpus, 1.0)
