"""A visitor's share of the queue: three jobs, and not more than half of a full queue if others wait."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers.reading import Reading
from helpers.waiting import PATIENCE_S, until

from specdemo.engine.speculate import never
from specdemo.pairs.presets import OfferedPairs
from specdemo.records.limits import UserError
from specdemo.service.fairness import MAX_EACH, Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds, JobQueue
from specdemo.service.service import Service, local_service

KINDS = ("run", "play", "class", "quiz", "prove", "measure")
SHARE = "^Each {} may have one job of each kind and 3 jobs in all; stop one"
RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 4}


def page(number: int, address: str = "10.0.0.1") -> Visitor:
    return Visitor(address, f"session{number}")


@pytest.mark.parametrize(("who", "whose"), [(page(1), "page"), (Visitor("10.0.0.1"), "address")])
def test_a_visitor_has_one_job_of_a_kind_and_three_in_all(who, whose):
    queue = JobQueue()
    with ExitStack() as held:
        for kind in KINDS[:MAX_EACH]:
            held.enter_context(queue.enqueued(kind, who))
        for kind in (KINDS[0], KINDS[-1]):
            with pytest.raises(UserError, match=SHARE.format(whose)):
                held.enter_context(queue.enqueued(kind, who))
        for other in (page(2), Visitor("10.0.0.2"), None, None):
            held.enter_context(queue.enqueued("run", other))
    with queue.enqueued("run", who):
        pass


def test_an_address_with_over_half_of_a_full_queue_makes_room_for_others():
    queue = JobQueue(Bounds(max_waiting=6))
    with ExitStack() as held:
        greedy = [held.enter_context(queue.enqueued("run", page(number))) for number in range(6)]
        with pytest.raises(UserError, match="queue is full: 6 jobs are waiting"):
            held.enter_context(queue.enqueued("run", page(7)))
        others = [
            held.enter_context(queue.enqueued("run", page(10 + number, f"10.0.1.{number}")))
            for number in range(3)
        ]
        with pytest.raises(UserError, match="queue is full: 6 jobs are waiting"):
            held.enter_context(queue.enqueued("run", page(20, "10.0.1.9")))
        assert [job.is_kept for job in greedy] == [True] * 3 + [False] * 3, "the newest made room"
        with pytest.raises(UserError, match="more than half of the jobs came from your address; please try"):
            greedy[-1].require_kept()
        assert all(job.is_kept for job in others)


@pytest.fixture
def models() -> threading.Event:
    """Set when the models are loaded."""
    return threading.Event()


@pytest.fixture
def device() -> threading.Event:
    """Set when jobs may end."""
    return threading.Event()


def gated_service(max_waiting: int, models: threading.Event, device: threading.Event) -> Service:
    def load(name: str, _progress: Any) -> Any:
        assert models.wait(PATIENCE_S)
        return name

    def perform(_pair: Any, _request: Any, _stop: Any) -> Iterator[Any]:
        device.wait(PATIENCE_S)
        yield {"type": "done"}

    offered = OfferedPairs("default", {"default": "", "a": "", "b": ""})
    return local_service(load, offered, Bounds(max_waiting=max_waiting), perform)


@pytest.mark.parametrize("pair", ["default", "a"])
def test_jobs_that_wait_for_models_count_as_waiting(models, device, pair):
    service = gated_service(3, models, device)
    waiting = [service.events(JobKind.RUN, RUN, never, pair, page(number)) for number in range(3)]
    for one in waiting:
        assert next(one)["type"] == "progress"
    with pytest.raises(UserError, match="queue is full: 3 jobs are waiting"):
        next(service.events(JobKind.RUN, RUN, never, "b", page(3)))
    with pytest.raises(UserError, match=SHARE.format("page")):
        next(service.events(JobKind.RUN, RUN, never, "b", page(0)))
    models.set(), device.set()
    assert [list(one)[-1]["type"] for one in waiting] == ["done"] * 3


def test_a_job_removed_while_waiting_for_models_is_reported_and_leaves_no_user_behind(models, device):
    service = gated_service(2, models, device)
    first, second = (service.events(JobKind.RUN, RUN, never, "a", page(number)) for number in range(2))
    next(first), next(second)
    other = service.events(JobKind.RUN, RUN, never, "b", page(2, "10.0.1.1"))
    next(other)
    with pytest.raises(UserError, match="more than half"):
        list(second)
    models.set(), device.set()
    assert list(first)[-1]["type"] == "done" and list(other)[-1]["type"] == "done"
    assert list(service.events(JobKind.RUN, RUN, never, "a", page(1)))[-1]["type"] == "done"


def test_a_job_removed_while_waiting_for_the_device_is_reported(models, device):
    models.set()
    service = gated_service(2, models, device)
    readings = []
    for visitor in (page(0), page(1), page(2), page(3, "10.0.1.3")):
        readings.append(Reading(service.events(JobKind.RUN, RUN, never, "default", visitor)))
        until(lambda: readings[-1].events)
    device.set()
    failures = [str(one.wait().failure or "") for one in readings]
    assert "more than half" in failures[2] and failures[:2] == ["", ""] and failures[3] == ""
