"""The queue of a page with several replicas: positions, waits and restarts as with one device."""

import threading
import time
from typing import Any

import pytest
from helpers.stand_in_driver import PLAN, StandInDriver

from specdemo.cluster import link as link_module
from specdemo.cluster.link import ClusterStatus, JobEnded, JobLost, Link
from specdemo.cluster.service import ReplicaLender
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds, JobQueue
from specdemo.service.service import Service, State
from specdemo.service.shares import Visitor


class Visit:
    """One visitor's run, read on a thread of their own."""

    def __init__(self, service: Service, name: str, stop: Any = lambda: False):
        self.events: list[Any] = []
        self.failure: Exception | None = None
        visitor = Visitor("10.0.0.1", name)
        self._source = service.events(JobKind.RUN, {"prompt": "x"}, stop, None, visitor)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self.events.extend(self._source)
        except Exception as error:
            self.failure = error

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events if event["type"] != "progress"]

    def wait(self) -> "Visit":
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.setattr(link_module, "RETRY_S", 0.05)
    return StandInDriver()


@pytest.fixture
def service(driver):
    queue = JobQueue(Bounds(max_waiting=3), devices={"embedded": 2})

    def on_status(status: ClusterStatus) -> None:
        queue.set_present("embedded", status.running.get("embedded", 0))

    link = Link(PLAN, on_status, driver.start)
    service = Service(ReplicaLender(link, "embedded"), OfferedPairs(), queue, link.perform)
    service.load()
    yield service
    link.close()


def until(condition: Any) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_as_many_jobs_run_at_once_as_there_are_replicas(driver, service):
    visits = [Visit(service, str(number)) for number in range(3)]
    first, second = driver.next_begun(), driver.next_begun()
    driver.tell(first.number, "start")
    driver.tell(second.number, "start")
    until(lambda: [visit.types for visit in visits].count(["start"]) == 2)
    time.sleep(0.2)
    assert driver.heard.empty()  # the third waits here, not in the cluster
    driver.say(JobEnded(first.number))
    driver.answer("start", "end")
    driver.say(JobEnded(second.number))
    assert sorted(len(visit.wait().types) for visit in visits) == [1, 1, 2]


def test_a_queue_position_counts_all_before_it_at_any_replica(driver, service):
    running = [Visit(service, str(number)) for number in range(2)]
    begun = [driver.next_begun() for _ in running]
    for begin in begun:
        driver.tell(begin.number, "start")
    until(lambda: all(visit.types for visit in running))
    waiting = [Visit(service, name) for name in ("a", "b")]
    until(lambda: sorted(v.events[-1].get("ahead", 0) for v in waiting if v.events) == [2, 3])
    # Both devices are free after 15 s (what a job is taken to need): the first of the two that wait gets one,
    # the second the other, and a third would have to wait for a job more.
    assert {visit.events[-1]["wait_s"] for visit in waiting} == {15}
    third = Visit(service, "c")
    until(lambda: third.events and third.events[-1].get("wait_s") == 30)
    with pytest.raises(UserError, match="The queue is full: 3 are waiting already; please try again in"):
        list(service.events(JobKind.RUN, {"prompt": "x"}, lambda: False, None, Visitor("10.0.0.1", "d")))
    for begin in begun:
        driver.say(JobEnded(begin.number))
    for _ in range(3):
        driver.answer("start", "end")
    assert [visit.wait().failure for visit in (*running, *waiting, third)] == [None] * 5


def test_a_job_that_no_replica_has_begun_keeps_its_queue_position(driver, service):
    """As while the cluster starts one more: the visitor keeps place and wait, and may leave."""
    stop = threading.Event()
    first, second = Visit(service, "a"), Visit(service, "b", stop.is_set)
    driver.tell(driver.next_begun().number, "start")
    driver.next_begun()
    until(lambda: first.types or second.types)
    late = second if first.types else first
    until(lambda: late.events and late.events[-1].get("ahead") == 1)
    stop.set()
    if late is second:
        assert late.wait().events[-1]["text"] == "Stopped before it began"


@pytest.mark.parametrize(("replicas", "wait_s"), [(2, 5), (1, 15)])
def test_fewer_replicas_make_longer_waits(driver, service, replicas, wait_s):
    until(lambda: service.state is State.READY)
    driver.say(ClusterStatus({"embedded": replicas}, ""))
    running = Visit(service, "a")
    driver.tell(driver.next_begun().number, "start")
    until(lambda: running.types)
    late = Visit(service, "b")
    driver.next_begun()  # sent to the cluster, which has no replica for it yet
    until(lambda: late.events and late.events[-1].get("wait_s") == wait_s)


def test_the_page_is_ready_while_a_replica_is(driver, service):
    until(lambda: service.state is State.READY)
    driver.replicas = 0
    driver.die()
    until(lambda: service.state is State.LOADING)
    visit = Visit(service, "a")
    until(lambda: visit.events and visit.events[-1]["text"].startswith("The models are being started"))
    driver.replicas = 1
    driver.die()
    driver.answer("start", "end")
    assert visit.wait().types == ["start", "end"]


def test_a_replica_lost_in_the_middle_is_one_sentence_and_the_next_visitor_is_served(driver, service):
    visit = Visit(service, "a")
    number = driver.next_begun().number
    driver.tell(number, "start")
    driver.say(JobLost(number))
    assert "was lost" in str(visit.wait().failure)
    visit = Visit(service, "b")
    driver.answer("start", "end")
    assert visit.wait().types == ["start", "end"]


def test_closing_lets_what_runs_end_and_refuses_the_rest(driver, service):
    running = Visit(service, "a")
    begin = driver.next_begun()
    driver.tell(begin.number, "start")
    until(lambda: running.types)
    threading.Timer(0.2, lambda: driver.say(JobEnded(begin.number))).start()
    service.close(5)
    assert running.wait().failure is None and service.state is State.CLOSING
    with pytest.raises(UserError, match="about to start again"):
        list(service.events(JobKind.RUN, {"prompt": "x"}, lambda: False))


def test_what_is_refused_needs_no_replica(driver, service):
    with pytest.raises(UserError, match="Unknown pair"):
        list(service.events(JobKind.RUN, {"prompt": "x"}, lambda: False, "nowhere"))
    with pytest.raises(UserError, match="k must be"):
        list(service.events(JobKind.RUN, {"prompt": "x", "k": 99}, lambda: False))
    assert driver.heard.empty()
