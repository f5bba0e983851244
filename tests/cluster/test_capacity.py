"""How many replicas are needed: the simulation beside Erlang's formulas and the queue that is there."""

import math
import threading
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from specdemo.cluster import capacity
from specdemo.cluster.capacity import MIXED, RUNS, Demand, JobTime, Line, by_formula, needed, simulated
from specdemo.records.limits import UserError
from specdemo.service.queue import Bounds, JobQueue

ONE_JOB = Demand(3600, 1, [JobTime(3, 1)], peak_share=1.0)
"""A job a second, three Erlangs."""
EXPONENTIAL = replace(ONE_JOB, exponential=True)


def erlang_b(load: float, devices: int) -> float:
    terms = [load**number / math.factorial(number) for number in range(devices + 1)]
    return terms[-1] / sum(terms)


def test_load_is_jobs_by_their_length():
    demand = Demand(1000, 3, [JobTime(2, 3), JobTime(10, 1)], peak_share=0.18)
    assert demand.mean_s == 4 and demand.load == pytest.approx(1000 * 0.18 / 3600 * 3 * 4)


def test_one_device_and_equal_times_by_hand():
    line = Line(replicas=1, most_waiting=1)
    asked = {0: 0, 1: 9, 2: None, 10: 10, 11: None, 19.5: None, 20: 10, 45: 0}
    assert [line.wait_s(now, 10) for now in asked] == list(asked.values())


def test_two_devices_and_equal_times_by_hand():
    line = Line(replicas=2, most_waiting=1)
    assert [line.wait_s(now, 10) for now in (0, 4, 5, 6, 10, 11, 14)] == [0, 0, 5, None, 4, None, 6]


@pytest.mark.parametrize("devices, load, loss, waiting", [(5, 3.0, 0.1101, 0.2362), (2, 1.0, 0.2, 1 / 3)])
def test_the_formula_is_erlangs_at_both_ends(devices, load, loss, waiting):
    demand = replace(ONE_JOB, times=[JobTime(load, 1)])
    assert by_formula(demand, devices, 0).turned_away == pytest.approx(loss, abs=1e-4)
    assert erlang_b(load, devices) == pytest.approx(loss, abs=1e-4)
    endless = by_formula(demand, devices, 1000)
    assert endless.turned_away < 1e-12 and endless.utilisation == pytest.approx(load / devices)
    expected = load / (devices - load) * math.log(waiting / 0.05)
    assert endless.likely_s == pytest.approx(expected, rel=1e-3)
    assert endless.median_s == 0


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6])
def test_the_simulation_agrees_with_the_formula_where_times_are_exponential(devices):
    told, played = by_formula(EXPONENTIAL, devices, 5), simulated(EXPONENTIAL, devices, 5, played=30_000)
    assert played.turned_away == pytest.approx(told.turned_away, abs=0.01)
    assert played.utilisation == pytest.approx(told.utilisation, abs=0.02)
    assert played.median_s == pytest.approx(told.median_s, rel=0.05, abs=0.1)
    assert played.likely_s == pytest.approx(told.likely_s, rel=0.05, abs=0.1)


@pytest.mark.parametrize("times", [RUNS, MIXED, [JobTime(3, 1)]])
def test_where_nobody_may_wait_the_lengths_of_jobs_do_not_matter(times):
    demand = Demand(3600, 1, times, peak_share=1.0)
    devices = math.ceil(demand.load)
    share = simulated(demand, devices, 0, played=30_000).turned_away
    assert share == pytest.approx(erlang_b(demand.load, devices), abs=0.015)


def test_equal_times_wait_less_and_unequal_ones_more_than_the_formula_says():
    equal = simulated(ONE_JOB, 4, 20)
    unequal = simulated(replace(ONE_JOB, times=[JobTime(1, 27), JobTime(57, 1)]), 4, 20)
    assert equal.likely_s < 0.7 * by_formula(ONE_JOB, 4, 20).likely_s < unequal.likely_s
    assert equal.turned_away < by_formula(ONE_JOB, 4, 20).turned_away < unequal.turned_away


@pytest.mark.parametrize("pause_s", [0.0, 60.0])
def test_everybody_who_comes_is_served_or_turned_away(pause_s):
    demand = Demand(20_000, 4, pause_s=pause_s)
    played = simulated(demand, 4, 3, played=5_000)
    assert played.arrived == played.served + played.refused
    assert played.arrived == pytest.approx(0.9 * 5_000 * 4, rel=0.02)
    assert played.turned_away == played.refused / played.arrived > 0.1
    busy = demand.load / 4 * (1 - played.turned_away)
    assert played.utilisation == pytest.approx(busy, rel=0.05)


def test_a_seed_brings_the_same_visitors():
    first, again, other = (simulated(ONE_JOB, 3, 5, 2_000, seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("demand", [EXPONENTIAL, replace(ONE_JOB, times=MIXED), Demand(30_000)])
@pytest.mark.parametrize("way", [by_formula, lambda *asked: simulated(*asked, played=5_000)])
def test_more_replicas_turn_fewer_away(demand, way):
    some = [way(demand, replicas, 5) for replicas in range(2, 40, 4)]
    for fewer, more in pairwise(some):
        assert fewer.turned_away >= more.turned_away and fewer.utilisation >= more.utilisation - 0.02
        assert fewer.likely_s >= more.likely_s


@pytest.mark.parametrize("way", [by_formula, lambda *asked: simulated(*asked, played=3_000)])
@pytest.mark.parametrize("visitors", [500, 5_000, 20_000])
def test_what_is_needed_is_good_and_one_less_is_not(way, visitors):
    demand = Demand(visitors)
    replicas = needed(demand, way=way)
    assert way(demand, replicas, 20).good
    assert replicas == 1 or not way(demand, replicas - 1, 20).good


def test_a_day_is_all_visitors_and_its_busiest_hour_as_given():
    for peak in (0.05, 0.15, 0.5):
        shares = capacity.day(peak)
        assert len(shares) == 24 and sum(shares) == pytest.approx(1) and max(shares) == pytest.approx(peak)
    hours = capacity.device_hours(Demand(20_000), way=by_formula)
    assert 24 < hours < 24 * needed(Demand(20_000), way=by_formula)


def test_what_cannot_be_is_refused():
    for wrong in (
        {"visitors": 0},
        {"times": []},
        {"times": [JobTime(0, 1)]},
        {"peak_share": 1.5},
        {"jobs_each": 0},
        {"pause_s": -1},
    ):
        with pytest.raises(UserError):
            Demand(**{"visitors": 10, **wrong})
    with pytest.raises(UserError, match="Not even 2 replicas are enough for"):
        needed(Demand(100_000), most=2, way=by_formula)
    with pytest.raises(UserError, match="busiest hour"):
        capacity.day(0.01)


def test_the_table_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(capacity, "needed", lambda *asked, way=None: 3)
    capacity.main(["--visitors", "2000", "--jobs", "2", "--seconds", "2.5:9,40:1", "--peak-share", "0.2"])
    told = capsys.readouterr().out
    assert told.startswith("1.39 Erlangs at the peak, 6.25 s a job\nneeded: 3 by formula, 3 simulated\n")
    assert "4 by formula" in told and len(told.splitlines()) == 15
    with pytest.raises(SystemExit):
        capacity.main(["--max-waiting", "-1"])
    assert "may wait" in capsys.readouterr().err


class Timed:
    """A job of so many seconds of the clock, and whoever asks the queue for it."""

    def __init__(self, queue: JobQueue, clock: Any, came: float, seconds: float):
        self.seconds, self._clock, self._came = seconds, clock, came
        self.wait_s: float | None = None
        self.refused: UserError | None = None
        self._end = threading.Event()
        self._queue = queue
        self._thread = threading.Thread(target=self._visit, daemon=True)
        self._thread.start()

    def _visit(self) -> None:
        try:
            with self._queue.place("run", group="embedded") as place:
                list(self._queue.turn(place, self._work, lambda: False))
        except UserError as error:
            self.refused = error

    def _work(self, tell: Any, _stop: Any) -> None:
        self.wait_s = self._clock() - self._came
        tell({"type": "start"})
        assert self._end.wait(10)

    @property
    def ends_at(self) -> float:
        return math.inf if self.wait_s is None else self._came + self.wait_s + self.seconds

    def end(self) -> None:
        self._end.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


class Played:
    """The queue that is there with a clock of its own, before devices that take as long as they are told."""

    def __init__(self, devices: int, most_waiting: int):
        self.now = 0.0
        self._devices = devices
        self._queue = JobQueue(Bounds(most_waiting), lambda: self.now, {"embedded": devices})
        self._there: list[Timed] = []

    def come(self, now: float, seconds: float) -> Timed:
        self.run_until(now)
        job = Timed(self._queue, lambda: self.now, now, seconds)
        self._there.append(job)
        self._settle(lambda: job.refused is not None or len(self._queue._taken) == len(self._there))
        if job.refused is not None:
            self._there.remove(job)
        self._settle()
        return job

    def run_until(self, now: float) -> None:
        while self._there and (first := min(self._there, key=lambda job: job.ends_at)).ends_at <= now:
            self.now = first.ends_at
            self._there.remove(first)
            first.end()
            self._settle()
        self.now = now

    def _settle(self, also: Any = lambda: True) -> None:
        """Until threads have done what they can without the clock going on."""
        end = time.monotonic() + 10
        while not also() or (self._there and not self._at_rest()):
            assert time.monotonic() < end
            time.sleep(0.001)

    def _at_rest(self) -> bool:
        refused = sum(job.refused is not None for job in self._there)
        there, queue = len(self._there) - refused, self._queue
        running = min(self._devices, there)
        begun = sum(job.wait_s is not None for job in self._there)
        return (len(queue._running), begun, len(queue._waiting)) == (running, running, there - running)


@pytest.mark.parametrize("devices, most_waiting", [(3, 4), (3, 0), (1, 2)])
def test_the_queue_that_is_there_does_what_the_simulation_says(devices, most_waiting):
    demand = replace(EXPONENTIAL, visitors=3600 * devices / 2)  # half as much again as can be done
    chance = capacity.random.Random(devices)
    visits = [(now, jobs[0][0]) for now, _, _, jobs in capacity._visitors(demand, 60, chance)]
    line, queue = Line(devices, most_waiting), Played(devices, most_waiting)
    told = [line.wait_s(*visit) for visit in visits]
    jobs = [queue.come(*visit) for visit in visits]
    queue.run_until(math.inf)
    assert [job.refused is not None for job in jobs] == [wait is None for wait in told]
    assert [job.wait_s for job in jobs] == [wait if wait is None else pytest.approx(wait) for wait in told]
    figures = simulated(demand, devices, most_waiting, played=60, seed=devices)
    assert figures.refused == sum(job.refused is not None for job in jobs[6:]) > 5
    assert all("The queue is full" in str(job.refused) for job in jobs if job.refused is not None)
