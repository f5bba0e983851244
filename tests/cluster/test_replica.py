"""One replica, without a cluster: the events of a job are those of the page's own process."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.tiny import service_of, tiny_pair
from helpers.waiting import PATIENCE_S

from specdemo.cluster import replica as replica_module
from specdemo.cluster.link import REFUSED
from specdemo.cluster.replica import Replica, StopRequests, shared_facts
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import BASELINE, SPECULATIVE
from specdemo.service.jobs import JobKind, LostDeviceError, checked

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
RAW = {"prompt": "ab", "mode": "raw", "max_new_tokens": 12, "k": 2}
TIMES = ("draft_s", "verify_s", "other_s", "prefill_s")


@pytest.fixture
def replica(monkeypatch):
    threads: set[int] = set()

    def load(sources: Sources, **_options: Any) -> Any:
        threads.add(threading.get_ident())
        return tiny_pair()

    monkeypatch.setattr(replica_module, "load_sources", load)
    made = Replica(Sources(), False, 1)
    assert threads and threading.get_ident() not in threads  # on the device's own thread
    return made


def events_of(replica: Replica, raw: dict[str, Any], stop_after: int | None = None) -> list[Any]:
    """The events of a job, which is asked to end after so many of them."""

    async def read() -> list[Any]:
        requests, events = StopRequests(), []
        actor = SimpleNamespace(wait=SimpleNamespace(remote=requests.wait))
        async for batch in replica.job(checked(JobKind.RUN, raw), actor, 7):
            events += batch
            if stop_after is not None and len(events) >= stop_after:
                await requests.stop(7)
                await asyncio.sleep(0.05)
        await requests.forget(7)
        return events

    return asyncio.run(read())


def rounds_of(events: list[Any], lane: str) -> list[Any]:
    """A lane's rounds without their times."""
    rounds = [event["round"] for event in events if event["type"] == "round" and event["lane"] == lane]
    return [{**round_, **dict.fromkeys(TIMES)} for round_ in rounds]


def test_a_replica_yields_the_very_events_of_the_page(replica):
    here = service_of(tiny_pair()).events(JobKind.RUN, RAW, lambda: False)
    here = [event for event in here if event["type"] != "progress"]
    first, *there = events_of(replica, RAW)
    assert first["text"].startswith("Preparing the run on replica")
    assert (there[0]["type"], there[-1]["type"]) == ("start", "end")
    for lane in (SPECULATIVE, BASELINE):  # their order depends on measured times
        assert rounds_of(there, lane) == rounds_of(here, lane) != []


def test_a_stop_request_ends_the_job_with_its_last_events(replica, monkeypatch):
    monkeypatch.setattr(replica_module, "BATCH_S", 0.0)
    events = events_of(replica, {**RAW, "max_new_tokens": 200}, stop_after=4)
    assert events[-1]["type"] == "end" and events[-1]["finish"] == "stopped"
    assert len(events) < 30


def test_a_completed_job_leaves_no_listener(monkeypatch):
    """An actor answers at most a thousand calls at once."""
    monkeypatch.setattr(replica_module, "LISTEN_S", 60.0)

    async def many() -> None:
        requests = StopRequests()
        for number in range(1_100):
            listening = asyncio.ensure_future(requests.wait(number))
            await asyncio.sleep(0)
            await requests.forget(number)
            assert await asyncio.wait_for(listening, PATIENCE_S)

    asyncio.run(many())


def test_a_listener_asks_again_and_again(monkeypatch):
    monkeypatch.setattr(replica_module, "LISTEN_S", 0.01)
    assert asyncio.run(StopRequests().wait(1)) is False


def test_events_that_come_fast_travel_together(monkeypatch):
    rounds = [{"type": "round"}] * 5
    events = iter([{"type": "start"}, *rounds, {"type": "end"}])
    monkeypatch.setattr(replica_module, "BATCH_S", 60.0)
    assert [len(batch) for batch in iter(lambda: replica_module.next_batch(events), [])] == [1, 6]
    monkeypatch.setattr(replica_module, "BATCH_S", 0.0)
    slow = iter(rounds)
    assert [len(batch) for batch in iter(lambda: replica_module.next_batch(slow), [])] == [1] * 5


def test_a_refusal_is_an_event(replica):
    events = events_of(replica, {**RAW, "mode": "chat", "prompt": "x" * 8000})
    assert events[-1]["type"] == REFUSED and "tokens" in events[-1]["message"]


def test_a_fault_of_the_program_is_a_sentence_without_its_words(replica, monkeypatch):
    def fails(*_arguments: Any) -> Any:
        yield {"type": "start"}
        raise KeyError("secret")

    monkeypatch.setattr(replica_module, "perform", fails)
    assert events_of(replica, RAW)[-1] == {
        "type": REFUSED,
        "message": "The run failed inside the program (KeyError); please try again.",
    }
    replica.check_health()


def test_a_lost_device_makes_the_cluster_replace_the_replica(replica, monkeypatch):
    def fails(*_arguments: Any) -> Any:
        yield {"type": "start"}
        raise LostDeviceError("The device failed.")

    replica.check_health()
    monkeypatch.setattr(replica_module, "perform", fails)
    assert events_of(replica, RAW)[-1] == {"type": REFUSED, "message": "The device failed."}
    with pytest.raises(RuntimeError, match="lost"):
        replica.check_health()


FACTS = {"device": "A", "processor_flags": ["avx2"], "precision": "fp32", "threads": 1, "date": "2026-01-01"}


def test_a_tables_timings_come_from_one_kind_of_device():
    assert shared_facts([FACTS, {**FACTS, "date": "2026-01-02"}]) == {**FACTS, "replicas": 2}
    for name, other in (("device", "B"), ("threads", 2), ("processor_flags", []), ("precision", "bf16")):
        with pytest.raises(UserError, match=f"differ in {name.replace('_', ' ')}.*one kind"):
            shared_facts([FACTS, {**FACTS, name: other}])
