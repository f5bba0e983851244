"""What one visitor can have of a queue: a share, and no more than half of it where others want some."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds, JobQueue
from specdemo.service.service import Service, local_service
from specdemo.service.shares import MAX_EACH, Visitor

KINDS = ("run", "play", "class", "quiz", "prove", "measure")
SHARE = (
    r"^One job of a kind and 3 in all may wait or run for each {}; wait for one to end, or stop it first\.$"
)
RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 4}


def never() -> bool:
    return False


def page(number: int, address: str = "10.0.0.1") -> Visitor:
    return Visitor(address, f"session{number}")


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Places that are given back after the test."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("who", "whose"), [(page(1), "page"), (Visitor("10.0.0.1"), "address")], ids=["session", "address"]
)
def test_a_visitor_has_one_job_of_a_kind_and_three_in_all(held, who, whose):
    queue = JobQueue()
    for kind in KINDS[:MAX_EACH]:
        held.enter_context(queue.place(kind, who))
        with pytest.raises(UserError, match=SHARE.format(whose)):
            held.enter_context(queue.place(kind, who))
    with pytest.raises(UserError, match=SHARE.format(whose)):
        held.enter_context(queue.place(KINDS[-1], who))
    for other in (page(2), Visitor("10.0.0.2"), None, None):
        held.enter_context(queue.place("run", other))


def test_a_place_is_free_again_when_its_visitor_leaves():
    queue = JobQueue()
    for _ in range(3):
        with queue.place("run", page(1)):
            pass
    with pytest.raises(ZeroDivisionError), queue.place("run", page(1)):
        _ = 1 / 0
    with queue.place("run", page(1)):
        pass


def test_an_address_with_over_half_of_a_full_line_makes_room_for_others(held):
    queue = JobQueue(Bounds(max_waiting=6))
    greedy = [held.enter_context(queue.place("run", page(number))) for number in range(6)]
    with pytest.raises(UserError, match="queue is full: 6 are waiting"):
        held.enter_context(queue.place("run", page(7)))
    others = [
        held.enter_context(queue.place("run", page(10 + number, f"10.0.1.{number}"))) for number in range(3)
    ]
    with pytest.raises(UserError, match="queue is full: 6 are waiting"):
        held.enter_context(queue.place("run", page(20, "10.0.1.9")))
    assert [place.refused is None for place in greedy] == [True] * 3 + [False] * 3, "the newest made room"
    with pytest.raises(UserError, match=r"your address had more than half of its places; please try again"):
        greedy[-1].require_kept()
    assert all(place.refused is None for place in others)


def test_who_loses_their_place_while_waiting_is_told(held):
    queue, begun, release = JobQueue(Bounds(max_waiting=2)), threading.Event(), threading.Event()

    def job(_stop: Any) -> Iterator[Any]:
        begun.set()
        release.wait(5)
        yield from ()

    def visit() -> None:
        with queue.place("run", page(0)) as place:
            list(queue.turn(place, job, never))

    running = threading.Thread(target=visit)
    running.start()
    begun.wait(5)
    held.enter_context(queue.place("run", page(1)))
    place = held.enter_context(queue.place("run", page(2)))
    waiting = queue.turn(place, job, never)
    assert next(waiting)["ahead"] == 1
    held.enter_context(queue.place("run", page(3, "10.0.1.3")))
    with pytest.raises(UserError, match="more than half"):
        list(waiting)
    release.set()
    running.join(5)


def gated_service(bounds: Bounds, gate: threading.Event) -> Service:
    """Models that are there when the gate opens, and jobs that do nothing."""

    def load(name: str, _progress: Any) -> Any:
        assert gate.wait(10)
        return name

    def perform(_pair: Any, _request: Any, _stop: Any) -> Iterator[Any]:
        yield {"type": "done"}

    return local_service(load, OfferedPairs("home", {"home": "", "a": "", "b": ""}), bounds, perform)


@pytest.mark.parametrize("pair", ["home", "a"])
def test_who_waits_for_models_has_a_place_as_well(pair):
    gate = threading.Event()
    service = gated_service(Bounds(max_waiting=3), gate)
    waiting = [service.events(JobKind.RUN, RUN, never, pair, page(number)) for number in range(3)]
    for one in waiting:
        assert next(one)["type"] == "progress"
    with pytest.raises(UserError, match="queue is full: 3 are waiting"):
        next(service.events(JobKind.RUN, RUN, never, "b", page(3)))
    with pytest.raises(UserError, match=SHARE.format("page")):
        next(service.events(JobKind.RUN, RUN, never, "b", page(0)))
    gate.set()
    assert [list(one)[-1]["type"] for one in waiting] == ["done"] * 3
    assert list(service.events(JobKind.RUN, RUN, never, "b", page(0)))[-1]["type"] == "done"


def test_a_place_lost_while_waiting_for_models_is_told_and_leaves_no_user_behind():
    gate = threading.Event()
    service = gated_service(Bounds(max_waiting=2), gate)
    first, second = (service.events(JobKind.RUN, RUN, never, "a", page(number)) for number in range(2))
    next(first), next(second)
    other = service.events(JobKind.RUN, RUN, never, "b", page(2, "10.0.1.1"))
    next(other)
    with pytest.raises(UserError, match="more than half"):
        list(second)
    gate.set()
    assert list(first)[-1]["type"] == "done" and list(other)[-1]["type"] == "done"
    assert list(service.events(JobKind.RUN, RUN, never, "a", page(1)))[-1]["type"] == "done"
