"""One device, many visitors: order, bounds, and a device that is free again whatever becomes of a visitor."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from specdemo.records.limits import UserError
from specdemo.service import queue as queue_module
from specdemo.service.queue import ABANDONED_S, Bounds, JobQueue


def never() -> bool:
    return False


def events(queue: JobQueue, kind: str, job: Any, stop: Any, who: Any = None) -> Iterator[Any]:
    """One visit: a place, the wait, the job."""
    with queue.place(kind, who) as place:
        for event in queue.turn(place, job, stop):
            if event.get("text") != "Preparing the run":
                yield event


class Visitor:
    """Asks for a job and reads its events on a thread of its own."""

    def __init__(self, queue: JobQueue, job: Any, stop: Any = never, kind: str = "run", who: Any = None):
        self.events: list[Any] = []
        self.failure: Exception | None = None
        self._source = events(queue, kind, job, stop, who)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for event in self._source:
                self.events.append(event)
        except Exception as error:
            self.failure = error

    def wait(self) -> "Visitor":
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self


class Gate:
    """A job of one event before the gate and one behind it."""

    def __init__(self, name: str = "gate"):
        self.name = name
        self.begun = threading.Event()
        self.open = threading.Event()
        self.ended = False
        self.threads: set[int] = set()

    def __call__(self, stop: Any) -> Iterator[Any]:
        try:
            self.begun.set()
            self.threads.add(threading.get_ident())
            yield {"type": "first", "name": self.name}
            while not self.open.wait(0.01) and not stop():
                pass
            yield {"type": "last", "stopped": stop()}
        finally:
            self.ended = True


def free(queue: JobQueue) -> bool:
    """Whether a job gets the device at once."""
    return [event["type"] for event in events(queue, "check", lambda stop: iter_one(), never)] == ["only"]


def iter_one() -> Iterator[Any]:
    yield {"type": "only"}


def until_idle(queue: JobQueue) -> None:
    """Wait until the device's thread has finished with the last job."""
    queue.first(lambda: None)


def expected_s(queue: JobQueue, kind: str) -> int:
    """The wait behind a job of a kind that has just begun, which is stopped then."""
    gate, stop = Gate(), threading.Event()
    holder = Visitor(queue, gate, stop.is_set, kind)
    gate.begun.wait(5)
    waiting = Visitor(queue, lambda _stop: iter_one(), kind="other")
    until(lambda: waiting.events)
    stop.set()
    holder.wait(), waiting.wait()
    return waiting.events[0]["wait_s"]


def until(condition: Any) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_jobs_are_done_one_at_a_time_in_order_of_arrival_on_one_thread():
    queue, done = JobQueue(), []

    def job(name: int) -> Any:
        def work(stop: Any) -> Iterator[Any]:
            done.append(("begin", name, threading.get_ident()))
            yield {"type": "only"}
            done.append(("end", name, threading.get_ident()))

        return work

    gate = Gate()
    first = Visitor(queue, gate)
    gate.begun.wait(5)
    others = []
    for name in range(5):
        others.append(Visitor(queue, job(name)))
        until(lambda: others[-1].events)
    gate.open.set()
    for visitor in (first, *others):
        visitor.wait()
    assert [(what, name) for what, name, _ in done] == [(w, n) for n in range(5) for w in ("begin", "end")]
    assert {thread for *_, thread in done} == gate.threads


def test_who_waits_is_told_their_place_and_about_how_long():
    queue = JobQueue()
    gates = [Gate() for _ in range(3)]
    visitors = []
    for gate in gates:
        visitors.append(Visitor(queue, gate))
        gates[0].begun.wait(5)
        until(lambda: visitors[-1].events)
    until(lambda: visitors[2].events and visitors[1].events)
    assert (
        visitors[1].events[0]["ahead"] == 1 and "one visitor is before you" in visitors[1].events[0]["text"]
    )
    assert (
        visitors[2].events[0]["ahead"] == 2 and "2 visitors are before you" in visitors[2].events[0]["text"]
    )
    assert visitors[2].events[0]["wait_s"] >= visitors[1].events[0]["wait_s"] > 0
    gates[0].open.set()
    gates[1].begun.wait(5)
    until(lambda: visitors[2].events[-1].get("ahead") == 1)
    for gate in gates:
        gate.open.set()
    assert [visitor.wait().events[-1]["type"] for visitor in visitors] == ["last"] * 3


def test_the_expected_wait_is_learned_from_the_jobs_of_a_kind():
    now = [0.0]
    queue = JobQueue(clock=lambda: now[0])

    def takes(seconds: float) -> Any:
        def work(stop: Any) -> Iterator[Any]:
            now[0] += seconds
            yield {"type": "only"}

        return work

    for seconds in (100.0, 100.0, 200.0):
        list(events(queue, "sweep", takes(seconds), never))
        until_idle(queue)
    gate = Gate()
    holder = Visitor(queue, gate, kind="sweep")
    gate.begun.wait(5)
    now[0] += 30
    waiting = Visitor(queue, takes(0), kind="other")
    until(lambda: waiting.events)
    assert waiting.events[0]["wait_s"] == 100  # 0.7·100 + 0.3·200 = 130, of which 30 are over
    gate.open.set()
    holder.wait(), waiting.wait()


@pytest.mark.parametrize("way", ["left", "stopped", "failed"])
def test_the_expected_wait_is_not_learned_from_jobs_that_ended_early(way):
    now, stop = [0.0], threading.Event()
    queue = JobQueue(clock=lambda: now[0])

    def takes(seconds: float, way: str = "") -> Any:
        def work(stopped: Any) -> Iterator[Any]:
            now[0] += seconds
            yield {"type": "first"}
            if way == "failed":
                raise UserError("No.")
            if not stopped():
                yield {"type": "last"}

        return work

    list(events(queue, "run", takes(100), never))
    early = events(queue, "run", takes(1, way), stop.is_set)
    next(early)
    if way == "left":
        early.close()
    elif way == "stopped":
        stop.set()
        list(early)
    else:
        with pytest.raises(UserError, match="No"):
            list(early)
    until_idle(queue)
    assert expected_s(queue, "run") == 100
    source = events(queue, "run", takes(200), never)
    next(source)
    source.close()
    until_idle(queue)
    assert expected_s(queue, "run") == 130, "but that one needs at least so long is known"


def test_a_full_line_refuses_at_once_and_says_when_to_come_back():
    queue = JobQueue(Bounds(max_waiting=2))
    gate = Gate()
    held = [Visitor(queue, gate)]
    gate.begun.wait(5)
    held += [Visitor(queue, lambda stop: iter_one()) for _ in range(2)]
    until(lambda: held[1].events and held[2].events)
    with pytest.raises(UserError, match=r"queue is full: 2 are waiting .* try again in about \d+ s\.$"):
        next(events(queue, "run", gate, never))
    gate.open.set()
    assert all(visitor.wait().failure is None for visitor in held) and free(queue)


def test_stop_while_waiting_leaves_the_line():
    queue, gate, stop = JobQueue(), Gate(), threading.Event()
    first = Visitor(queue, gate)
    gate.begun.wait(5)
    never_begun = Gate()
    second = Visitor(queue, never_begun, stop.is_set)
    until(lambda: second.events)
    stop.set()
    assert second.wait().events[-1]["text"] == "Stopped before it began"
    assert not never_begun.begun.is_set()
    gate.open.set()
    first.wait()
    assert free(queue)


def test_stop_ends_the_job_under_way():
    queue, gate, stop = JobQueue(), Gate(), threading.Event()
    visitor = Visitor(queue, gate, stop.is_set)
    gate.begun.wait(5)
    stop.set()
    assert visitor.wait().events[-1] == {"type": "last", "stopped": True}


@pytest.mark.parametrize("taken", [1, 2])
def test_who_leaves_frees_the_device_before_the_next_event(taken):
    queue, gate = JobQueue(), Gate()
    gate.open.set() if taken == 2 else None
    source = events(queue, "run", gate, never)
    for _ in range(taken):
        next(source)
    source.close()
    until(lambda: gate.ended)
    assert free(queue)


def test_who_leaves_while_waiting_is_not_worked_for():
    queue, gate, unwanted = JobQueue(), Gate(), Gate()
    holder = Visitor(queue, gate)
    gate.begun.wait(5)
    source = events(queue, "run", unwanted, never)
    assert next(source)["ahead"] == 1
    source.close()
    gate.open.set()
    holder.wait()
    assert free(queue) and not unwanted.begun.is_set()


def test_a_job_waits_until_its_last_event_is_taken():
    queue, computed = JobQueue(), []

    def work(stop: Any) -> Iterator[Any]:
        for number in range(3):
            computed.append(number)
            yield {"type": "number", "number": number}

    source = events(queue, "run", work, never)
    for number in range(3):
        assert next(source)["number"] == number
        time.sleep(0.05)
        assert computed == list(range(number + 1))
    assert not list(source)


def test_a_visitor_lost_without_a_word_does_not_keep_the_device(monkeypatch):
    monkeypatch.setattr("specdemo.service.queue.ABANDONED_S", 0.1)
    queue, gate = JobQueue(), Gate()
    source = events(queue, "run", gate, never)
    next(source)
    until(lambda: gate.ended)
    assert free(queue) and ABANDONED_S >= 30


def test_the_time_limit_ends_a_job_keeps_what_it_did_and_says_so():
    queue = JobQueue(Bounds(max_seconds=0.1))
    told = []
    with pytest.raises(UserError, match=r"time limit of 0\.1 s ended this, what was done until then is kept"):
        for event in events(queue, "run", Gate(), never):
            told.append(event)
    assert [event["type"] for event in told] == ["first", "last"] and told[-1]["stopped"]
    assert free(queue)


@pytest.mark.parametrize("failure", [UserError("No."), ValueError("inside"), KeyboardInterrupt()])
def test_a_failure_reaches_its_visitor_and_nobody_else(failure):
    def work(stop: Any) -> Iterator[Any]:
        yield {"type": "first"}
        raise failure

    queue = JobQueue()
    with pytest.raises(type(failure)):
        list(events(queue, "run", work, never))
    assert free(queue)


def test_a_line_that_closes_lets_the_job_under_way_finish_and_refuses_the_rest():
    queue, gate, unwanted = JobQueue(), Gate(), Gate()
    running = Visitor(queue, gate)
    gate.begun.wait(5)
    waiting = Visitor(queue, unwanted)
    until(lambda: waiting.events)
    closing = threading.Thread(target=queue.close, args=("Closed.", 10.0))
    closing.start()
    assert str(waiting.wait().failure) == "Closed." and not unwanted.begun.is_set()
    with pytest.raises(UserError, match=r"^Closed\.$"):
        next(events(queue, "run", unwanted, never))
    with pytest.raises(UserError, match=r"^Closed\.$"):
        queue.first(lambda: None)
    gate.open.set()
    closing.join(5)
    assert not closing.is_alive()
    assert running.wait().failure is None and running.events[-1] == {"type": "last", "stopped": False}


def test_a_job_that_outlasts_the_closing_line_is_ended_and_keeps_what_it_did():
    queue, gate = JobQueue(), Gate()
    running = Visitor(queue, gate)
    gate.begun.wait(5)
    queue.close("Closed.", 0.05)
    assert str(running.wait().failure) == "This was ended, what was done until then is kept. Closed."
    assert running.events[-1] == {"type": "last", "stopped": True} and gate.ended


def test_a_closing_line_tells_the_visitor_of_a_job_that_never_asks_whether_to_end(monkeypatch):
    monkeypatch.setattr(queue_module, "CUT_S", 0.05)
    queue, stuck, gate = JobQueue(), threading.Event(), threading.Event()

    def deaf(_stop: Any) -> Iterator[Any]:
        yield {"type": "first"}
        stuck.set()
        gate.wait(30)  # longer than the visitor is waited for

    running = Visitor(queue, deaf)
    stuck.wait(5)
    queue.close("Closed.", 0.05)
    assert str(running.wait().failure) == "This was ended, what was done until then is kept. Closed."
    gate.set()


def test_the_program_s_own_work_comes_first_on_the_device_s_thread():
    queue, holding, gate = JobQueue(), Gate(), Gate()
    gate.open.set()
    visitors = [Visitor(queue, holding)]
    holding.begun.wait(5)
    visitors += [Visitor(queue, gate)]
    until(lambda: visitors[1].events)
    done: list[Any] = []
    own = threading.Thread(
        target=lambda: done.append(queue.first(lambda: (gate.begun.is_set(), threading.get_ident())))
    )
    own.start()
    until(lambda: visitors[1].events[-1]["ahead"] == 2)
    assert not done
    holding.open.set()
    own.join(5)
    assert done == [(False, *holding.threads)]
    assert all(visitor.wait().failure is None for visitor in visitors) and free(queue)


def test_own_work_that_fails_is_told_to_who_wanted_it():
    queue = JobQueue()
    with pytest.raises(ZeroDivisionError):
        queue.first(lambda: 1 / 0)
    assert queue.first(lambda: 7) == 7 and free(queue)
