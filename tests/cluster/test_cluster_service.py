"""A page whose jobs go to a driver: the queue, lost replicas and lost drivers, without a cluster."""

import os
import socket
import threading
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from queue import Queue
from typing import Any

import pytest
from helpers.reading import Reading
from helpers.waiting import PATIENCE_S, until

from specdemo.cluster import service as cluster
from specdemo.cluster.plan import Plan, ReplicaRange
from specdemo.cluster.service import LOST, JobEvents, JobMessage, cluster_service
from specdemo.engine.speculate import never
from specdemo.pairs.presets import OfferedPairs
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import REFUSED, JobKind
from specdemo.service.queue import Bounds
from specdemo.service.service import State

PLAN = Plan("auto", {"built-in": ReplicaRange(2, 2)}, {"built-in": Sources()})


class StandInDriver:
    """Drivers without a cluster; ``heard`` has the messages of the page other than its first, the plan."""

    def __init__(self) -> None:
        self.heard: Queue[Any] = Queue()
        self.joined = threading.Event()
        self.joined.set()
        self.starts = 0
        self.connection: Connection

    def start(self, connection: Connection) -> Any:
        self.connection = Connection(os.dup(connection.fileno()))
        self.starts += 1
        threading.Thread(target=self._listen, args=[self.connection], daemon=True).start()
        return nullcontext()

    def _listen(self, connection: Connection) -> None:
        assert connection.recv() == PLAN
        assert self.joined.wait(PATIENCE_S)
        connection.send({"built-in": 2})
        with suppress(EOFError, OSError):
            while (message := connection.recv()) is not None:
                self.heard.put(message)
        with suppress(OSError):
            self.die()

    def tell(self, number: int, *types: str) -> None:
        self.connection.send(JobEvents(number, [{"type": kind} for kind in types]))

    def end(self, number: int) -> None:
        self.connection.send(JobEvents(number, []))

    def lose(self, number: int) -> None:
        self.connection.send(JobEvents(number, None))

    def next_job(self) -> int:
        """The number of the next job that the page asks for."""
        while (job := self.heard.get(timeout=PATIENCE_S)).request is None:
            pass
        return job.number

    def answer(self, *types: str) -> int:
        number = self.next_job()
        self.tell(number, *types)
        self.end(number)
        return number

    def die(self) -> None:
        with socket.socket(fileno=os.dup(self.connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)  # closing would not wake the thread that reads


class Page:
    """A page with room for three waiting jobs."""

    def __init__(self, driver: StandInDriver):
        self._driver = driver
        self.service, self.connection = cluster_service(PLAN, OfferedPairs(), Bounds(max_waiting=3))

    def visit(self, name: str, stop: Any = never) -> Reading:
        visitor = Visitor("10.0.0.1", name)
        return Reading(self.service.events(JobKind.RUN, {"prompt": "x"}, stop, None, visitor))

    def begun(self, name: str, *types: str, stop: Any = never) -> tuple[Reading, int]:
        """A visitor whose job a replica has begun, and the job's number."""
        reading = self.visit(name, stop)
        number = self._driver.next_job()
        self._driver.tell(number, *(types or ["start"]))
        until(lambda: any(event["type"] == (types or ["start"])[-1] for event in reading.events))
        return reading, number


@pytest.fixture
def driver(monkeypatch):
    driver = StandInDriver()
    monkeypatch.setattr(cluster, "RETRY_S", 0.05)
    monkeypatch.setattr(cluster, "start_driver", driver.start)
    return driver


@pytest.fixture
def page(driver):
    page = Page(driver)
    until(lambda: page.service.state is State.READY)
    yield page
    page.connection.close()


def test_as_many_jobs_run_at_once_as_there_are_replicas(driver, page):
    (first, one), (second, two) = page.begun("a"), page.begun("b")
    third = page.visit("c")
    until(lambda: third.events and third.events[-1].get("ahead") == 2)
    assert driver.heard.empty(), "the third job waits on the page"
    driver.end(one)
    driver.answer("start", "end")
    driver.tell(two, "end")
    driver.end(two)
    types = [reading.wait().types for reading in (first, second, third)]
    assert types == [["start"], ["start", "end"], ["start", "end"]]


def test_the_limit_counts_the_jobs_of_all_replicas(page):
    page.begun("a"), page.begun("b")
    waiting = [page.visit(name) for name in ("c", "d")]
    until(lambda: sorted(one.events[-1].get("ahead", 0) for one in waiting if one.events) == [2, 3])
    waiting.append(page.visit("e"))
    until(lambda: waiting[2].events and waiting[2].events[-1].get("ahead") == 4)
    full = "The queue is full: 3 jobs are waiting; please try again later."
    assert str(page.visit("f").wait().failure) == full


@pytest.mark.parametrize(("replicas", "wait_s"), [(2, 5), (1, None)])
def test_only_running_replicas_count_for_the_expected_wait(driver, page, replicas, wait_s):
    driver.connection.send({"built-in": replicas})
    page.begun("a")
    late = page.visit("b")
    driver.next_job()
    until(lambda: late.events and late.events[-1].get("wait_s", 0) == wait_s)


def test_a_job_that_no_replica_has_begun_can_be_stopped(driver, page):
    stop = threading.Event()
    late = page.visit("b", stop.is_set)
    number = driver.next_job()
    stop.set()
    assert late.wait().types == [] and late.failure is None
    assert driver.heard.get(timeout=PATIENCE_S) == JobMessage(number, "built-in", None)


def test_a_stopped_job_still_sends_its_last_events(driver, page):
    stop = threading.Event()
    reading, number = page.begun("a", "round", stop=stop.is_set)
    stop.set()
    assert driver.heard.get(timeout=PATIENCE_S) == JobMessage(number, "built-in", None)
    driver.tell(number, "end")
    driver.end(number)
    assert reading.wait().types == ["round", "end"]


def test_a_visitor_who_leaves_ends_the_job(driver, page):
    events = page.service.events(JobKind.RUN, {"prompt": "x"}, never)
    threading.Thread(target=lambda: driver.tell(driver.next_job(), "round"), daemon=True).start()
    while next(events)["type"] != "round":
        pass
    events.close()
    assert driver.heard.get(timeout=PATIENCE_S).request is None


def test_a_refusal_is_the_visitors_sentence(driver, page):
    reading = page.visit("a")
    refusal = {"type": REFUSED, "message": "The prompt is too long."}
    driver.connection.send(JobEvents(driver.next_job(), [refusal]))
    assert str(reading.wait().failure) == "The prompt is too long."


def test_a_job_lost_before_it_began_is_done_by_another_replica(driver, page):
    reading = page.visit("a")
    driver.lose(driver.next_job())
    driver.answer("start", "end")
    assert reading.wait().types == ["start", "end"] and reading.failure is None


def test_a_job_lost_in_the_middle_is_one_sentence_and_the_next_visitor_is_served(driver, page):
    reading, number = page.begun("a", "start", "round")
    driver.lose(number)
    assert reading.wait().types == ["start", "round"] and str(reading.failure) == LOST
    reading = page.visit("b")
    driver.answer("start", "end")
    assert reading.wait().types == ["start", "end"]


def test_a_lost_driver_is_started_again_and_waiting_visitors_are_served(driver, page):
    running, _ = page.begun("a")
    waiting = page.visit("b")
    driver.next_job()
    driver.joined.clear()
    driver.die()
    assert str(running.wait().failure) == LOST
    until(lambda: page.service.state is State.LOADING)
    driver.joined.set()
    driver.answer("start", "end")
    assert waiting.wait().types == ["start", "end"] and page.service.state is State.READY


def test_a_restart_and_the_end_of_the_page_reach_the_driver(driver, page):
    page.connection.restart()
    assert driver.heard.get(timeout=PATIENCE_S) == PLAN
    page.connection.close()
    assert driver.starts == 1 and page.service.state is State.LOADING


def test_closing_lets_running_jobs_end_and_refuses_all_others(driver, page):
    running, number = page.begun("a")
    closing = threading.Thread(target=page.service.close, args=[PATIENCE_S])
    closing.start()
    until(lambda: page.service.state is State.CLOSING)
    with pytest.raises(UserError, match="about to start again"):
        list(page.service.events(JobKind.RUN, {"prompt": "x"}, never))
    driver.end(number)
    closing.join(PATIENCE_S)
    assert running.wait().failure is None
