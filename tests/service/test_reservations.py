"""What is asked of a lent GPU: much before anything is known, then what like calls took and a margin."""

import pytest

from specdemo.records.trace import Calibration
from specdemo.service.job_kinds import JobKind
from specdemo.service.reservations import (
    LEAST_S,
    MARGIN,
    MEASURING_S,
    MOST_S,
    REMEMBERED,
    CallReport,
    Reservations,
)
from specdemo.service.reservations import usual_seconds as usual

RUN = {"prompt": "abc", "max_new_tokens": 128, "baseline": True}
LONG = {**RUN, "max_new_tokens": 1024}
COSTS = {(256, ""): Calibration(0.01, 0.0, (1.0,) * 13, 1)}


def taken(start_s=1.0, work_s=2.0, size=256, costs=None, whole=True, gpu="H200"):
    return CallReport(gpu, costs or {}, start_s, work_s, size, whole)


def test_the_first_call_has_time_to_measure_and_later_ones_ask_for_what_they_need():
    known = Reservations()
    assert known.seconds_for("run", LONG) == usual("run", LONG) >= MEASURING_S + 60
    known.learn("run", LONG, taken(9.0, 10.24, 2048, COSTS))
    again = known.seconds_for("run", LONG)
    assert again == 25 and again <= usual("run", LONG) / 3, "start and work, and a quarter more"
    known.learn("run", LONG, taken(2.0, 10.24, 2048))
    assert known.seconds_for("run", LONG) == 16, "nothing is left to be measured"
    assert known.seconds_for("run", RUN) == 13, "another length may have to be measured"
    for _ in range(3):
        known.learn("run", RUN, taken(2.0, 1.0, 256))
    assert known.seconds_for("run", RUN) == LEAST_S


def test_a_signed_out_visitor_has_more_than_three_runs_a_day():
    known, left, runs = Reservations(), 120.0, 0
    while known.seconds_for("run", LONG) <= left:
        left -= 3.0 + 6.0
        known.learn("run", LONG, taken(3.0, 6.0, 2048, {} if runs else COSTS))
        runs += 1
    assert runs > 10


def test_floors_and_costs_are_kept_by_the_type_of_gpu():
    known = Reservations()
    known.learn("run", RUN, taken(costs=COSTS, gpu="H200"))
    known.learn("run", RUN, taken(costs={(512, ""): COSTS[256, ""]}, gpu="H200"))
    assert known.costs.keys() == {"H200"} and known.costs["H200"].keys() == {(256, ""), (512, "")}
    known.learn("run", RUN, taken(costs=COSTS, gpu="A100"))
    assert known.costs["A100"] == COSTS


def test_the_slowest_of_the_last_calls_counts_and_is_forgotten_after_some():
    known = Reservations()
    known.learn("run", LONG, taken(1.0, 60.0, 2048))
    for _ in range(REMEMBERED - 1):
        known.learn("run", LONG, taken(1.0, 20.0, 2048))
        assert known.seconds_for("run", LONG) >= MARGIN * 60
    known.learn("run", LONG, taken(1.0, 20.0, 2048))
    assert known.seconds_for("run", LONG) == 27


def test_a_call_that_was_cut_gets_more_time_the_next_time():
    known = Reservations()
    known.learn("run", RUN, taken(1.0, 1.0, 256))
    before = known.seconds_for("run", RUN)
    known.was_cut("run", RUN)
    assert known.seconds_for("run", RUN) >= 2 * before
    for _ in range(9):
        known.was_cut("run", RUN)
    assert known.seconds_for("run", RUN) == MOST_S


def test_what_was_stopped_tells_nothing_of_what_the_whole_takes():
    asked = {"experiment": "overhead", "prompts": 3, "max_new_tokens": 32}
    known = Reservations()
    known.learn("measure", asked, taken(2.0, 0.1, None, COSTS, whole=False))
    assert known.seconds_for("measure", asked) >= 100
    known.learn("measure", asked, taken(2.0, 24.0, None))
    assert known.seconds_for("measure", asked) == 33
    assert known.seconds_for("measure", {**asked, "prompts": 6}) == 63
    assert known.seconds_for("measure", {**asked, "experiment": "other"}) == 63
    known.learn("run", RUN, taken(1.0, 0.2, 16, whole=False))
    assert known.seconds_for("run", LONG) == 35, "a run counts what it wrote, however it ended"


def test_what_was_never_asked_for_is_judged_by_how_quick_the_rest_was():
    known = Reservations()
    known.learn("run", LONG, taken(2.0, 6.0, 2048, COSTS))
    for kind, raw in (("quiz", {"question": 3}), ("prove", {"proof": "greedy", "prompts": 8})):
        assert known.seconds_for(kind, raw) <= usual(kind, raw) / 3
    known.learn("quiz", {"question": 3}, taken(2.0, 60.0, None))
    prove = {"proof": "greedy", "prompts": 8}
    assert known.seconds_for("prove", prove) == 73, "never more than was thought at first"


@pytest.mark.parametrize("kind", list(JobKind))
@pytest.mark.parametrize("raw", [{}, {"max_new_tokens": "x", "prompts": None, "draws": float("nan")}])
def test_every_kind_gets_some_time_whatever_is_missing(kind, raw):
    known = Reservations()
    assert LEAST_S <= known.seconds_for(kind, raw) <= MOST_S
    known.learn(kind, raw, taken(size=None))
    known.was_cut(kind, raw)
    assert LEAST_S <= known.seconds_for(kind, raw) <= MOST_S
