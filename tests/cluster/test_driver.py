"""The process between page and cluster, with handles that a test controls: no job is left without an end.

Slow only because it needs Ray, which the usual tests do without.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
from helpers.stand_in_driver import PLAN

from specdemo.cluster.driver import Driver, lacking
from specdemo.cluster.messages import Begin, Ended, Lost, Restart, Stop, Told
from specdemo.cluster.plan import Counts, Plan
from specdemo.pairs.sources import Sources
from specdemo.service.jobs import JobKind, checked

pytestmark = pytest.mark.slow
REQUEST = checked(JobKind.RUN, {"prompt": "x"})


class Deployed:
    """A driver as after its deployment, on a cluster that is made up."""

    def __init__(self, job: Callable[..., AsyncIterator[Any]]):
        self.page, ours = Pipe()
        self.driver = Driver(PLAN, ours)
        self.wished: list[tuple[str, int]] = []
        names = ("stop", "forget")
        self.driver._wishes = SimpleNamespace(**{name: self._wish(name) for name in names})  # type: ignore[assignment]
        self.driver._handles = {"embedded": SimpleNamespace(job=SimpleNamespace(remote=job))}  # type: ignore[dict-item]

    def _wish(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda number: self.wished.append((name, number)))

    def told(self) -> list[Any]:
        """What the page has been told by now."""
        told = []
        while self.page.poll(0.05):
            told.append(self.page.recv())
        return told


async def settled(driver: Driver) -> None:
    while driver._begun:
        await asyncio.sleep(0.01)


def test_a_job_is_told_to_its_end_and_forgotten():
    async def job(*_arguments: Any) -> AsyncIterator[Any]:
        yield [{"type": "start"}]
        yield [{"type": "end"}]

    deployed = Deployed(job)

    async def play() -> None:
        deployed.driver._take(Begin(1, "embedded", REQUEST))
        await settled(deployed.driver)

    asyncio.run(play())
    assert deployed.told() == [Told(1, [{"type": "start"}]), Told(1, [{"type": "end"}]), Ended(1)]
    assert deployed.wished == [("forget", 1)] and not deployed.driver._telling


@pytest.mark.parametrize("fault", [RuntimeError("of Ray"), KeyError("of Serve"), OSError("of the system")])
def test_whatever_a_cluster_raises_the_job_is_told_lost(fault):
    async def job(*_arguments: Any) -> AsyncIterator[Any]:
        yield [{"type": "start"}]
        raise fault

    deployed = Deployed(job)

    async def play() -> None:
        deployed.driver._take(Begin(1, "embedded", REQUEST))
        await settled(deployed.driver)

    asyncio.run(play())
    assert deployed.told() == [Told(1, [{"type": "start"}]), Lost(1)]
    assert ("stop", 1) in deployed.wished, "its replica may be there all the same"


def test_a_job_that_no_replica_has_is_ended_at_once_and_one_that_has_begun_ends_itself():
    release: asyncio.Event

    async def job(_request: Any, _wishes: Any, number: int) -> AsyncIterator[Any]:
        if number == 2:
            yield [{"type": "start"}]
        await release.wait()
        yield [{"type": "end"}]

    deployed = Deployed(job)

    async def play() -> None:
        nonlocal release
        release = asyncio.Event()
        for number in (1, 2):
            deployed.driver._take(Begin(number, "embedded", REQUEST))
        await asyncio.sleep(0.05)
        for number in (1, 2):
            deployed.driver._take(Stop(number))
        await asyncio.sleep(0.05)
        release.set()
        await settled(deployed.driver)
        deployed.driver._take(Stop(1))  # too late, and nothing happens

    asyncio.run(play())
    assert deployed.told() == [Told(2, [{"type": "start"}]), Ended(1), Told(2, [{"type": "end"}]), Ended(2)]
    assert [wish for wish in deployed.wished if wish[0] == "stop"] == [("stop", 1), ("stop", 2)]


def test_a_restart_that_fails_leaves_what_is_there(monkeypatch, caplog):
    async def job(*_arguments: Any) -> AsyncIterator[Any]:
        yield [{"type": "end"}]

    deployed, times = Deployed(job), []

    def fails() -> None:
        times.append(1)
        raise RuntimeError("no")

    monkeypatch.setattr(deployed.driver, "_deploy", fails)

    async def play() -> None:
        deployed.driver._take(Restart())
        deployed.driver._take(Restart())
        assert deployed.driver._redeploying is not None
        await deployed.driver._redeploying
        deployed.driver._take(Begin(1, "embedded", REQUEST))
        await settled(deployed.driver)

    asyncio.run(play())
    assert len(times) == 2 and "those that are there stay" in caplog.text
    assert deployed.told()[-1] == Ended(1)


def test_more_replicas_than_a_cluster_can_hold_are_told(monkeypatch):
    there = SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0})
    monkeypatch.setattr("specdemo.cluster.driver.ray", there)
    four = Plan("auto", {"embedded": Counts(4, 4)}, {"embedded": Sources()})
    assert "4 replicas with 1 CPUs each need more than the 2" in lacking(four, 1.0)
    assert lacking(PLAN, 1.0) == ""
    on_gpus = Plan("auto", {"embedded": Counts(1, 1)}, {"embedded": Sources()}, gpus=1.0)
    assert "1 GPUs each need more than the 0" in lacking(on_gpus, 1.0)
