"""The page's end of a cluster: jobs go out, events come in, and a lost job is reported or done again."""

import threading
import time
from typing import Any

import pytest
from helpers.reading import Reading
from helpers.stand_in_driver import PLAN, linked
from helpers.waiting import PATIENCE_S, until

from specdemo.cluster import link as link_module
from specdemo.cluster.link import (
    LOST,
    REFUSED,
    ClusterStatus,
    JobEnded,
    JobEvents,
    JobLost,
    Link,
    RestartReplicas,
    StopJob,
)
from specdemo.engine.speculate import never
from specdemo.service.jobs import JobKind, checked

REQUEST = checked(JobKind.RUN, {"prompt": "x"})


@pytest.fixture
def link(driver):
    link = linked()
    yield link
    link.close()


def reading(link: Link, stop: Any = never) -> Reading:
    """A job whose events are read on a thread of its own."""
    return Reading(link.perform("built-in", REQUEST, stop))


def test_a_job_yields_the_events_of_the_driver(driver, link):
    reader = reading(link)
    assert driver.answer("progress", "start", "round", "end").request == REQUEST
    assert reader.wait().types == ["start", "round", "end"] and reader.failure is None
    assert link.running("built-in") == 2 and link.running("other") == 0


def test_two_jobs_are_kept_apart(driver, link):
    first, second = reading(link), reading(link)
    numbers = [driver.next_begun().number, driver.next_begun().number]
    assert len(set(numbers)) == 2
    for number, kind in zip(numbers, ("a", "b"), strict=True):
        driver.tell(number, kind)
    driver.say(*map(JobEnded, numbers))
    assert sorted(first.wait().types + second.wait().types) == ["a", "b"]


def test_a_refusal_is_the_visitors_sentence(driver, link):
    reader = reading(link)
    number = driver.next_begun().number
    driver.say(JobEvents(number, [{"type": REFUSED, "message": "The prompt is too long."}]), JobEnded(number))
    assert str(reader.wait().failure) == "The prompt is too long."


def test_a_stop_is_passed_on_and_the_remaining_events_are_read(driver, link):
    stop = threading.Event()
    reader = reading(link, stop.is_set)
    number = driver.next_begun().number
    driver.tell(number, "round")
    stop.set()
    assert driver.heard.get(timeout=PATIENCE_S) == StopJob(number)
    driver.tell(number, "end")
    driver.say(JobEnded(number))
    assert reader.wait().types == ["round", "end"]


def test_a_visitor_who_leaves_ends_the_job(driver, link):
    events = link.perform("built-in", REQUEST, never)
    threading.Timer(0.1, lambda: driver.tell(driver.next_begun().number, "round")).start()
    assert next(events)["type"] == "round"
    events.close()
    assert isinstance(driver.heard.get(timeout=PATIENCE_S), StopJob)


def test_a_lost_run_that_had_shown_nothing_is_done_again(driver, link):
    reader = reading(link)
    number = driver.next_begun().number
    driver.tell(number, "progress")
    driver.say(JobLost(number))
    assert driver.answer("progress", "start", "end").number != number
    assert reader.wait().types == ["start", "end"] and reader.failure is None
    assert [event["type"] for event in reader.events] == ["progress", "progress", "start", "end"]


def test_a_lost_run_that_had_shown_something_ends_with_a_sentence(driver, link):
    reader = reading(link)
    number = driver.next_begun().number
    driver.tell(number, "start", "round")
    driver.say(JobLost(number))
    assert reader.wait().types == ["start", "round"] and str(reader.failure) == LOST


def test_a_job_does_not_lose_replicas_for_ever(driver, link):
    reader = reading(link)
    for _ in range(link_module.ATTEMPTS):
        driver.say(JobLost(driver.next_begun().number))
    assert str(reader.wait().failure) == LOST


def test_a_driver_that_ends_is_started_again_and_waiting_jobs_go_on(driver, link):
    reader = reading(link)
    driver.next_begun()
    driver.die()
    assert driver.answer("start", "end")  # of the next driver
    assert reader.wait().types == ["start", "end"] and reader.failure is None
    assert driver.starts == 2


def test_while_there_is_no_replica_jobs_wait_and_can_be_stopped(driver):
    driver.replicas = 0
    link, stop = linked(), threading.Event()
    reader = reading(link, stop.is_set)
    time.sleep(0.2)
    assert driver.heard.empty() and link.running("built-in") == 0
    stop.set()
    assert reader.wait().events == [] and reader.failure is None
    link.close()


def test_a_status_is_passed_on_and_its_error_is_logged(driver, caplog):
    heard: list[ClusterStatus] = []
    link = Link(PLAN, heard.append)
    link.begin()
    assert link.wait("built-in", PATIENCE_S)
    driver.say(ClusterStatus({"built-in": 0}, "no such model"))
    until(lambda: not link.running("built-in"))
    assert heard == [ClusterStatus({"built-in": 2}, ""), ClusterStatus({"built-in": 0}, "no such model")]
    assert "no such model" in caplog.text and link.error == "no such model"
    link.close()


def test_restarting_is_asked_of_the_driver(driver, link):
    assert link.wait("built-in", PATIENCE_S)
    link.restart()
    assert driver.heard.get(timeout=PATIENCE_S) == RestartReplicas()


def test_a_closed_link_starts_no_driver_any_more(driver, link):
    assert link.wait("built-in", PATIENCE_S)
    link.close()
    until(lambda: not link.running("built-in"))
    time.sleep(0.2)
    assert driver.starts == 1
    with pytest.raises(StopIteration):
        next(link.perform("built-in", REQUEST, lambda: True))
