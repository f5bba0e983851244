"""One device, many visitors: order, bounds, and a device that is free again whatever a visitor does."""

import gc
import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from helpers.reading import Reading
from helpers.waiting import PATIENCE_S, until

from specdemo.engine.speculate import never
from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor
from specdemo.service.progress import Progress
from specdemo.service.queue import ABANDONED_S, Bounds, JobQueue, QueuedJob


def visit(
    queue: JobQueue, job: Any, stop: Any = never, kind: str = "run", work: Progress | None = None
) -> Iterator[Any]:
    with queue.enqueued(kind, progress=work) as queued:
        for event in done(queue, queued, job, stop):
            if event.get("text") != "Preparing the run":
                yield event


def done(queue: JobQueue, queued: QueuedJob, job: Any, stop: Any = never) -> Iterator[Any]:
    """Wait for a device and yield the events of a job, as a service does."""
    if (yield from queue.wait_for_turn(queued, job, stop)):
        while (event := queued.receive()) is not None:
            yield event
            queued.ask()


class Gate:
    """A job of one event before the gate and one after it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self.ended = False
        self.threads: set[int] = set()

    def __call__(self, stop: Any) -> Iterator[Any]:
        try:
            self.begun.set()
            self.threads.add(threading.get_ident())
            yield {"type": "first"}
            while not self.open.wait(0.01) and not stop():
                pass
            yield {"type": "last", "stopped": stop()}
        finally:
            self.ended = True


def short(_stop: Any) -> Iterator[Any]:
    yield {"type": "only"}


def running(
    queue: JobQueue, gate: Gate, stop: Any = never, kind: str = "run", work: Progress | None = None
) -> Reading:
    visitor = Reading(visit(queue, gate, stop, kind, work))
    assert gate.begun.wait(PATIENCE_S)
    return visitor


def waiting(queue: JobQueue, job: Any = short, stop: Any = never, kind: str = "run") -> Reading:
    """A visitor with a queue position."""
    visitor = Reading(visit(queue, job, stop, kind))
    until(lambda: visitor.events)
    return visitor


def is_free(queue: JobQueue) -> bool:
    return [event["type"] for event in visit(queue, short, kind="check")] == ["only"]


def until_idle(queue: JobQueue) -> None:
    queue.first(lambda: None)  # comes after the end of the last job


def test_jobs_are_done_one_at_a_time_in_order_of_arrival_on_one_thread():
    queue, gate, done = JobQueue(), Gate(), []

    def job(name: int) -> Any:
        def work(_stop: Any) -> Iterator[Any]:
            done.append(("begin", name, threading.get_ident()))
            yield {"type": "only"}
            done.append(("end", name, threading.get_ident()))

        return work

    visitors = [running(queue, gate), *(waiting(queue, job(name)) for name in range(5))]
    gate.open.set()
    for visitor in visitors:
        visitor.wait()
    assert [(what, name) for what, name, _ in done] == [(w, n) for n in range(5) for w in ("begin", "end")]
    assert {thread for *_, thread in done} == gate.threads


def test_a_waiting_visitor_reads_the_queue_position():
    queue, gates = JobQueue(), [Gate() for _ in range(3)]
    visitors = [running(queue, gates[0]), waiting(queue, gates[1]), waiting(queue, gates[2])]
    second, third = visitors[1].events[0], visitors[2].events[0]
    assert second["ahead"] == 1 and "one other job is before you" in second["text"]
    assert third["ahead"] == 2 and "2 other jobs are before you" in third["text"]
    assert third["wait_s"] is second["wait_s"] is None and not re.search(r"\d s|wait", second["text"])
    gates[0].open.set()
    gates[1].begun.wait(PATIENCE_S)
    until(lambda: visitors[2].events[-1].get("ahead") == 1)
    for gate in gates:
        gate.open.set()
    assert [visitor.wait().events[-1]["type"] for visitor in visitors] == ["last"] * 3


def taking(now: list[float], seconds: float, fails: bool = False) -> Any:
    """A job of so many seconds on the clock ``now``."""

    def work(stop: Any) -> Iterator[Any]:
        now[0] += seconds
        yield {"type": "first"}
        if fails:
            raise UserError("No.")
        if not stop():
            yield {"type": "last"}

    return work


def expected_s(queue: JobQueue, now: list[float], kind: str, after: float = 0.0) -> int | None:
    """The expected wait after a job of a kind that has run for so many seconds."""
    gate = Gate()
    holder = running(queue, gate, gate.open.is_set, kind)
    now[0] += after
    behind = waiting(queue, kind="other")
    gate.open.set()
    holder.wait(), behind.wait()
    until_idle(queue)
    return behind.events[0]["wait_s"]


def test_the_expected_wait_is_learned_from_the_jobs_of_a_kind():
    now = [0.0]
    queue = JobQueue(clock=lambda: now[0])
    for seconds in (100.0, 100.0, 200.0):
        list(visit(queue, taking(now, seconds), kind="sweep"))
        until_idle(queue)
    # 0.7² · 100 + 0.7 · 100 + 200 = 319 s for 0.7² + 0.7 + 1 = 2.19 jobs, and 30 s are over
    assert expected_s(queue, now, "sweep", after=30) == 120


@pytest.mark.parametrize("way", ["left", "stopped", "failed"])
def test_the_expected_wait_is_not_learned_from_jobs_that_ended_early(way):
    now, stop = [0.0], threading.Event()
    queue = JobQueue(clock=lambda: now[0])
    list(visit(queue, taking(now, 100)))
    early = visit(queue, taking(now, 1, fails=way == "failed"), stop.is_set)
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
    assert expected_s(queue, now, "run") == 100


@pytest.mark.parametrize("way", ["stopped", "left"])
def test_a_visitor_who_stops_or_leaves_while_waiting_gets_no_device(way):
    queue, gate, unwanted, stop = JobQueue(), Gate(), Gate(), threading.Event()
    holder = running(queue, gate)
    source = visit(queue, unwanted, stop.is_set)
    assert next(source)["ahead"] == 1
    if way == "stopped":
        stop.set()
        assert list(source)[-1]["text"] == "Stopped before it began"
    source.close()
    gate.open.set()
    holder.wait()
    assert is_free(queue) and not unwanted.begun.is_set()


@pytest.mark.parametrize("taken", [1, 2])
def test_a_visitor_who_leaves_frees_the_device_before_the_next_event(taken):
    queue, gate = JobQueue(), Gate()
    if taken == 2:
        gate.open.set()
    source = visit(queue, gate)
    for _ in range(taken):
        next(source)
    source.close()
    until(lambda: gate.ended)
    assert is_free(queue)


@pytest.mark.parametrize("kind", ["run", "prove"])
def test_a_visitor_who_left_may_ask_again_while_the_device_ends_the_job(kind):
    queue, gate, ada = JobQueue(), threading.Event(), Visitor("1.2.3.4", "ada")

    def ends_slowly(_stop: Any) -> Iterator[Any]:
        try:
            yield {"type": "first"}
        finally:
            gate.wait(PATIENCE_S)

    def joined(kind: str, job: Any) -> Iterator[Any]:
        with queue.enqueued(kind, ada) as queued:
            yield from done(queue, queued, job)

    source = joined("run", ends_slowly)
    assert [next(source)["type"] for _ in range(2)] == ["progress", "first"]
    with pytest.raises(UserError, match="one job of each kind"):
        next(joined("run", short))
    source.close()
    again = joined(kind, short)
    assert next(again)["text"] == "In the queue: your own run is before you"
    gate.set()
    assert list(again)[-1]["type"] == "only"


@pytest.mark.parametrize("way", ["done", "failed", "left", "left while waiting", "refused"])
def test_the_queue_keeps_no_job_that_is_over(way):
    queue, gate = JobQueue(), Gate()
    holder = running(queue, gate) if way in ("left while waiting", "refused") else None
    job = taking([0.0], 1.0, fails=way == "failed")
    kept, source = weakref.ref(job), visit(queue, job)
    next(source)
    del job
    if way == "refused":
        queue.refuse("Closed.")
    if way.startswith("left"):
        source.close()
    with suppress(UserError):
        list(source)
    del source
    gate.open.set()
    assert holder is None or holder.wait().failure is None
    until(lambda: gc.collect() >= 0 and kept() is None, 5.0)


def test_a_stopped_job_still_sends_its_last_events():
    queue, gate, stop = JobQueue(), Gate(), threading.Event()
    visitor = running(queue, gate, stop.is_set)
    stop.set()
    assert visitor.wait().events == [{"type": "first"}, {"type": "last", "stopped": True}]
    assert is_free(queue)


def test_a_job_waits_until_its_last_event_is_taken():
    queue, computed = JobQueue(), []

    def work(_stop: Any) -> Iterator[Any]:
        for number in range(3):
            computed.append(number)
            yield {"type": "number", "number": number}

    source = visit(queue, work)
    for number in range(3):
        assert next(source)["number"] == number
        time.sleep(0.02)
        assert computed == list(range(number + 1))
    assert not list(source)


def test_a_visitor_who_vanishes_does_not_keep_the_device(monkeypatch):
    monkeypatch.setattr("specdemo.service.queue.ABANDONED_S", 0.1)
    queue, gate = JobQueue(), Gate()
    source = visit(queue, gate)
    next(source)
    until(lambda: gate.ended)
    assert is_free(queue) and ABANDONED_S >= 30


def test_the_time_limit_ends_a_job_keeps_its_events_and_says_so():
    queue = JobQueue(Bounds(max_seconds=0.1))
    visitor = running(queue, Gate()).wait()
    sentence = "The time limit of 0.1 s ended this job; ask for less next time."
    assert isinstance(visitor.failure, UserError) and str(visitor.failure) == sentence
    assert visitor.events == [{"type": "first"}, {"type": "last", "stopped": True}] and is_free(queue)


@pytest.mark.parametrize("failure", [UserError("No."), ValueError("inside"), KeyboardInterrupt()])
def test_a_failure_reaches_its_visitor_and_nobody_else(failure):
    def work(_stop: Any) -> Iterator[Any]:
        yield {"type": "first"}
        raise failure

    queue = JobQueue()
    with pytest.raises(type(failure)):
        list(visit(queue, work))
    assert is_free(queue)


def test_a_closing_queue_lets_the_current_job_finish_and_refuses_all_others():
    queue, gate, unwanted = JobQueue(), Gate(), Gate()
    current, other = running(queue, gate), waiting(queue, unwanted)
    closing = threading.Thread(target=queue.close, args=("Closed.", PATIENCE_S))
    closing.start()
    assert str(other.wait().failure) == "Closed." and not unwanted.begun.is_set()
    for refused in (lambda: next(visit(queue, unwanted)), lambda: queue.first(lambda: None)):
        with pytest.raises(UserError, match=r"^Closed\.$"):
            refused()
    gate.open.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert current.wait().failure is None and current.events[-1] == {"type": "last", "stopped": False}


@pytest.mark.parametrize("deaf", [False, True])
def test_a_job_that_outlasts_a_closing_queue_is_ended_and_its_visitor_reads_why(monkeypatch, deaf):
    monkeypatch.setattr("specdemo.service.queue.CUT_S", 0.05 if deaf else PATIENCE_S)
    queue, gate = JobQueue(), threading.Event()

    def never_stops(_stop: Any) -> Iterator[Any]:
        yield {"type": "first"}
        gate.wait(PATIENCE_S)

    current = Reading(visit(queue, never_stops)) if deaf else running(queue, Gate())
    until(lambda: current.events)
    queue.close("Closed.", 0.05)
    assert str(current.wait().failure) == "This job was ended. Closed."
    assert deaf or current.events[-1] == {"type": "last", "stopped": True}
    gate.set()


def test_the_program_s_own_work_comes_first_on_the_device_s_thread():
    queue, holding, gate, done = JobQueue(), Gate(), Gate(), []
    gate.open.set()
    visitors = [running(queue, holding), waiting(queue, gate)]
    work = lambda: (gate.begun.is_set(), threading.get_ident())  # noqa: E731
    own = threading.Thread(target=lambda: done.append(queue.first(work)))
    own.start()
    until(lambda: visitors[1].events[-1]["ahead"] == 2)
    assert not done
    holding.open.set()
    own.join(PATIENCE_S)
    assert done == [(False, *holding.threads)]
    assert all(visitor.wait().failure is None for visitor in visitors)
    with pytest.raises(ZeroDivisionError):
        queue.first(lambda: 1 / 0)
    assert queue.first(lambda: 7) == 7 and is_free(queue)


def lane_round(lane: str, tokens: int, seconds: float) -> Any:
    drafted = [{"status": "accepted"}] * (tokens - 1)
    times = {"draft_s": 0.0, "verify_s": seconds, "other_s": 0.0}
    return {
        "type": "round",
        "lane": lane,
        "round": {"drafted": drafted, "emission": {}, "finish": None, **times},
    }


def writing(now: list[float], rounds: int, gate: threading.Event) -> Any:
    """A run that is prepared for 9 s; a round of the speculative lane has 4 tokens, one of the target 2."""

    def work(stop: Any) -> Iterator[Any]:
        now[0] += 9
        yield {"type": "start"}
        for _ in range(rounds):
            for lane, tokens in (("speculative", 4), ("baseline", 2)):
                now[0] += 1
                yield lane_round(lane, tokens, 0.5)
        while not gate.wait(0.01) and not stop():
            pass
        yield {"type": "end"}

    return work


def asked(tokens: int) -> Progress:
    """The work of a run with a baseline."""
    return Progress("run", 2 * tokens, tokens)


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        ([("ada", "measure")], "your own measurement is before you"),
        ([("ada", "measure"), ("ada", "prove")], "your own measurement and your own proof are before you"),
        ([("ben", "run"), ("ada", "measure")], "your own measurement and one other job are before you"),
        ([("ben", "run"), ("cleo", "run")], "2 other jobs are before you"),
    ],
)
def test_a_waiting_visitor_reads_which_jobs_are_their_own(ahead, words):
    queue, gate = JobQueue(), Gate()

    def joined(session: str, kind: str) -> Reading:
        def events() -> Iterator[Any]:
            with queue.enqueued(kind, Visitor("1.2.3.4", session)) as queued:
                yield from done(queue, queued, gate)

        visitor = Reading(events())
        until(lambda: visitor.events)
        return visitor

    visitors = [joined(*one) for one in ahead]
    last = joined("ada", "run")
    assert last.events[0]["text"] == f"In the queue: {words}"
    gate.open.set()
    for visitor in (*visitors, last):
        visitor.wait()


def test_the_wait_follows_from_the_tokens_that_the_current_run_and_the_waiting_runs_still_have_to_write():
    now, gate = [0.0], threading.Event()
    queue = JobQueue(clock=lambda: now[0])
    current = Reading(visit(queue, writing(now, 20, gate), work=asked(120)))
    until(lambda: len(current.events) == 41)
    # 80 of 120 and 40 of 120 tokens are written, each lane in 20 s: 10 s and 40 s are left.
    second = Reading(visit(queue, short, work=asked(360)))
    until(lambda: second.events)
    assert second.events[0]["wait_s"] == 50
    assert second.events[0]["text"] == "In the queue: one other job is before you, about 50 s to wait"
    # No run has ended yet, so the second takes three times the 90 s of the first.
    third = waiting(queue)
    assert third.events[0]["wait_s"] == 50 + 270
    now[0] += 15
    until(lambda: third.events[-1]["wait_s"] == 35 + 270)
    now[0] += 50
    until(lambda: third.events[-1]["wait_s"] is None)  # the next round is late
    gate.set()
    assert all(reading.wait().failure is None for reading in (current, second, third))


def test_a_stopped_run_teaches_the_time_of_a_token_unless_it_had_hardly_begun():
    now, gate = [0.0], threading.Event()
    queue = JobQueue(clock=lambda: now[0])
    list(visit(queue, short, work=asked(10)))  # without a token
    for rounds, tokens, wait_s in ((1, 1000, None), (20, 120, 85)):
        end_s = now[0] + 10
        list(visit(queue, writing(now, rounds, gate), lambda: now[0] > end_s, work=asked(tokens)))  # noqa: B023
        until_idle(queue)
        holder = running(queue, held := Gate(), held.open.is_set, work=asked(100))
        assert waiting(queue).events[0]["wait_s"] == wait_s  # 49 s for 120 tokens are 82 s for 200
        held.open.set()
        holder.wait()
        until_idle(queue)


def test_each_device_of_a_group_takes_one_of_the_waiting_jobs():
    now, gates = [0.0], [Gate(), Gate()]
    queue = JobQueue(clock=lambda: now[0], devices={"a": 2})

    def teaching(_stop: Any) -> Iterator[Any]:
        yield {"type": "first"}  # begins the job
        now[0] += 15
        yield {"type": "last"}

    def enter(job: Any) -> Iterator[Any]:
        with queue.enqueued("run", group="a") as queued:
            yield from done(queue, queued, job)

    list(enter(teaching))
    busy = [Reading(enter(gate)) for gate in gates]
    until(lambda: all(one.types for one in busy))
    for ahead, wait_s in ((2, 15), (3, 15), (4, 30)):
        busy.append(Reading(enter(short)))
        until(lambda: busy[-1].events)
        assert (busy[-1].events[0]["ahead"], busy[-1].events[0]["wait_s"]) == (ahead, wait_s)
    for gate in gates:
        gate.open.set()
    assert all(one.wait().failure is None for one in busy)


def test_a_job_that_is_refused_before_its_first_event_is_told_to_stop():
    queue, begun, stopped = JobQueue(devices={"a": 1}), threading.Event(), threading.Event()

    def slow_start(stop: Any) -> Iterator[Any]:
        begun.set()
        until(stop)
        stopped.set()
        yield {"type": "first"}

    def enter() -> Iterator[Any]:
        with queue.enqueued("run", group="a") as queued:
            yield from done(queue, queued, slow_start)

    source = enter()
    next(source)  # "Preparing the run", after which the visitor reads nothing for a while
    assert begun.wait(PATIENCE_S)
    queue.refuse("Closed.")
    assert stopped.wait(PATIENCE_S)
    with pytest.raises(UserError, match=r"^Closed\.$"):
        next(source)
