"""One replica, without a cluster: the events of a job are those of the page's own process."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.tiny import service_of, tiny_pair

from specdemo.cluster import replica as replica_module
from specdemo.cluster.replica import Replica
from specdemo.pairs.sources import Sources
from specdemo.records.trace import BASELINE, SPECULATIVE
from specdemo.service.jobs import REFUSED, JobKind, LostDeviceError, checked

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
RAW = {"prompt": "ab", "mode": "raw", "max_new_tokens": 12, "k": 2}
TIMES = ("draft_s", "verify_s", "other_s", "prefill_s")


@pytest.fixture
def replica(monkeypatch):
    threads: set[int] = set()

    def load(_sources: Sources, **_options: Any) -> Any:
        threads.add(threading.get_ident())
        return tiny_pair()

    monkeypatch.setattr(replica_module, "load_sources", load)
    made = Replica(Sources(), False, 1)
    assert threads and threading.get_ident() not in threads, "it loads on the device's own thread"
    return made


def events_of(replica: Replica, raw: dict[str, Any], stop_after: int = 10**6) -> list[Any]:
    """The events of a job that the driver asks to end after so many of them."""

    stopped: set[int] = set()

    async def contains(number: int) -> bool:
        return number in stopped

    async def read() -> list[Any]:
        events = []
        actor = SimpleNamespace(contains=SimpleNamespace(remote=contains))
        async for batch in replica.job(checked(JobKind.RUN, raw), actor, 7):
            events += batch
            if len(events) >= stop_after:
                stopped.add(7)
                await asyncio.sleep(0.01)
        return events

    return asyncio.run(read())


def rounds_of(events: list[Any], lane: str) -> list[Any]:
    """A lane's rounds without their times."""
    rounds = [event["round"] for event in events if event["type"] == "round" and event["lane"] == lane]
    return [{**round_, **dict.fromkeys(TIMES)} for round_ in rounds]


def test_a_replica_yields_the_very_events_of_the_page(replica):
    here = list(service_of(tiny_pair()).events(JobKind.RUN, RAW, lambda: False))
    first, *there = events_of(replica, RAW)
    assert first["text"].startswith("Preparing the run on replica")
    assert (there[0]["type"], there[-1]["type"]) == ("start", "end")
    for lane in (SPECULATIVE, BASELINE):  # their order depends on measured times
        assert rounds_of(there, lane) == rounds_of(here, lane) != []


def test_a_stop_request_ends_the_job_with_its_last_events(replica, monkeypatch):
    monkeypatch.setattr(replica_module, "BATCH_S", 0.0)
    monkeypatch.setattr(replica_module, "STOP_POLL_S", 0.0)
    events = events_of(replica, {**RAW, "max_new_tokens": 200}, stop_after=4)
    assert events[-1]["type"] == "end" and events[-1]["finish"] == "stopped" and len(events) < 60


@pytest.mark.parametrize(("batch_s", "sizes"), [(60.0, [1, 6]), (0.0, [1] * 7)])
def test_frequent_events_that_come_fast_travel_together(monkeypatch, batch_s, sizes):
    monkeypatch.setattr(replica_module, "BATCH_S", batch_s)
    events = iter([{"type": "start"}, *[{"type": "round"}] * 5, {"type": "end"}])
    assert [len(batch) for batch in iter(lambda: replica_module.next_batch(events), [])] == sizes


@pytest.mark.parametrize(
    ("error", "message", "healthy"),
    [
        (LostDeviceError("The device failed."), "The device failed.", False),
        (KeyError("secret"), "The job failed inside the program (KeyError); please try again.", True),
    ],
)
def test_an_error_is_the_last_event_and_a_lost_device_makes_the_replica_unhealthy(
    replica, monkeypatch, error, message, healthy
):
    def fails(*_arguments: Any) -> Any:
        yield {"type": "start"}
        raise error

    replica.check_health()
    monkeypatch.setattr(replica_module, "perform", fails)
    assert events_of(replica, RAW)[-1] == {"type": REFUSED, "message": message}
    if healthy:
        replica.check_health()
    else:
        with pytest.raises(RuntimeError, match="lost"):
            replica.check_health()
