"""The queue of a page with several replicas: positions, waits and restarts as with one device."""

import threading
import time
from typing import Any

import pytest
from helpers.reading import Reading
from helpers.stand_in_driver import PLAN, StandInDriver
from helpers.waiting import PATIENCE_S, until

from specdemo.cluster.link import ClusterStatus, JobEnded, JobLost
from specdemo.cluster.service import cluster_service
from specdemo.engine.speculate import never
from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds
from specdemo.service.service import Service, State


def visit(service: Service, name: str, stop: Any = never) -> Reading:
    """One visitor's run, read on a thread of its own."""
    visitor = Visitor("10.0.0.1", name)
    return Reading(service.events(JobKind.RUN, {"prompt": "x"}, stop, None, visitor))


def begun(driver: StandInDriver, service: Service, name: str) -> tuple[Reading, int]:
    """A visitor's run that a replica has begun, and its number."""
    one = visit(service, name)
    number = driver.next_begun().number
    driver.tell(number, "start")
    until(lambda: one.types)
    return one, number


@pytest.fixture
def service(driver, monkeypatch):
    monkeypatch.setattr("specdemo.cluster.service.require_ray", lambda: None)
    service, link = cluster_service(PLAN, OfferedPairs(), Bounds(max_waiting=3))
    service.load()
    yield service
    link.close()


def test_as_many_jobs_run_at_once_as_there_are_replicas(driver, service):
    running = [begun(driver, service, name) for name in ("a", "b")]
    third = visit(service, "c")
    time.sleep(0.2)
    assert driver.heard.empty()  # the third waits here, not in the cluster
    driver.say(JobEnded(running[0][1]))
    driver.answer("start", "end")
    driver.say(JobEnded(running[1][1]))
    assert [len(one.wait().types) for one in (running[0][0], running[1][0], third)] == [1, 1, 2]


def test_a_queue_position_counts_all_before_it_at_any_replica(driver, service):
    running = [begun(driver, service, name) for name in ("a", "b")]
    waiting = [visit(service, name) for name in ("c", "d")]
    until(lambda: sorted(one.events[-1].get("ahead", 0) for one in waiting if one.events) == [2, 3])
    # Both replicas are free after the usual 15 s, so each of the two gets one, and another visitor would have
    # to wait for one more job.
    assert {one.events[-1]["wait_s"] for one in waiting} == {15}
    waiting.append(visit(service, "e"))
    until(lambda: waiting[2].events and waiting[2].events[-1].get("wait_s") == 30)
    refused = visit(service, "f").wait().failure
    assert "The queue is full: 3 are waiting already; please try again in" in str(refused)
    for _, number in running:
        driver.say(JobEnded(number))
    for _ in range(3):
        driver.answer("start", "end")
    assert [one.wait().failure for one in (running[0][0], running[1][0], *waiting)] == [None] * 5


def test_a_job_that_no_replica_has_begun_keeps_its_queue_position_and_may_be_stopped(driver, service):
    begun(driver, service, "a")
    stop = threading.Event()
    late = visit(service, "b", stop.is_set)
    driver.next_begun()  # sent to the cluster, which has no replica for it yet
    until(lambda: late.events and late.events[-1].get("ahead") == 1)
    stop.set()
    assert late.wait().events[-1]["text"] == "Stopped before it began"


@pytest.mark.parametrize(("replicas", "wait_s"), [(2, 5), (1, 15)])
def test_fewer_replicas_make_longer_waits(driver, service, replicas, wait_s):
    until(lambda: service.state is State.READY)
    driver.say(ClusterStatus({"built-in": replicas}, ""))
    begun(driver, service, "a")
    late = visit(service, "b")
    driver.next_begun()
    until(lambda: late.events and late.events[-1].get("wait_s") == wait_s)


def test_the_page_is_ready_while_a_replica_is(driver, service):
    until(lambda: service.state is State.READY)
    driver.replicas = 0
    driver.die()
    until(lambda: service.state is State.LOADING)
    one = visit(service, "a")
    until(lambda: one.events and one.events[-1]["text"].startswith("The models are being started"))
    driver.replicas = 1
    driver.die()
    driver.answer("start", "end")
    assert one.wait().types == ["start", "end"]


def test_a_replica_lost_in_the_middle_is_one_sentence_and_the_next_visitor_is_served(driver, service):
    one, number = begun(driver, service, "a")
    driver.say(JobLost(number))
    assert "was lost" in str(one.wait().failure)
    one = visit(service, "b")
    driver.answer("start", "end")
    assert one.wait().types == ["start", "end"]


def test_closing_lets_running_jobs_end_and_refuses_all_others(driver, service):
    running, number = begun(driver, service, "a")
    threading.Timer(0.2, lambda: driver.say(JobEnded(number))).start()
    service.close(PATIENCE_S)
    assert running.wait().failure is None and service.state is State.CLOSING
    with pytest.raises(UserError, match="about to start again"):
        list(service.events(JobKind.RUN, {"prompt": "x"}, lambda: False))


def test_a_bad_request_is_refused_without_a_replica(driver, service):
    with pytest.raises(UserError, match="Unknown pair"):
        list(service.events(JobKind.RUN, {"prompt": "x"}, lambda: False, "nowhere"))
    with pytest.raises(UserError, match="k must be"):
        list(service.events(JobKind.RUN, {"prompt": "x", "k": 99}, lambda: False))
    assert driver.heard.empty()
