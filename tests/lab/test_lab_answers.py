"""Theory for chosen numbers and for a finished run."""

from dataclasses import replace

import pytest

from specdemo.lab.answers import run_answer
from specdemo.records import recordings
from specdemo.records.limits import UserError
from specdemo.records.theory import RoundShape, oracle_length, theoretical_speedup
from specdemo.records.trace import SPECULATIVE, Run
from specdemo.records.what_if import accepted_by_token


@pytest.fixture(scope="module")
def run() -> Run:
    return recordings.load("email")


def test_point_of_a_run_has_the_theory_of_its_totals(run):
    point = run_answer(run)["point"]
    assert (point["alpha"], point["speedup"]) == (run.totals["alpha_compared"], run.totals["speedup"])
    again = RoundShape(point["k"], point["k"] * point["c"], 1 + point["k"] * point["growth"])
    assert theoretical_speedup(point["alpha"], again) == pytest.approx(run.totals["s_theory"])


def test_oracle_of_a_run_has_its_cost_and_its_best_speedup(run):
    answer = run_answer(run)["oracle"]
    oracle = oracle_length(run.lanes[SPECULATIVE].rounds, run.calibration)
    assert (answer["s_cost"], answer["s_oracle"]) == (oracle.s_cost, oracle.s_oracle)
    assert answer["s_oracle"] > answer["s_cost"] == pytest.approx(run.totals["s_cost"])
    assert f"{oracle.lengths.count(0)} of {len(oracle.lengths)} rounds" in answer["sentence"]
    assert f"{oracle.open_ended} drafts were accepted in full" in answer["sentence"]
    rounds = sum(sum(trace["y"]) for trace in answer["chart"]["light"]["data"])
    assert rounds == len(oracle.lengths)


def test_what_if_of_a_run_has_its_lengths_and_the_time_of_the_target_alone(run):
    answer = run_answer(run)["what_if"]
    assert [length["k"] for length in answer["lengths"]] == list(range(13))
    assert answer["unknown"] == accepted_by_token(run.lanes[SPECULATIVE].rounds).count(None)
    seconds = sum(count * sum(times) for count, *times in answer["lengths"][0]["expected"])
    assert answer["alone_s"] / seconds == pytest.approx(run.totals["speedup"])
    alone = run_answer(replace(run, lanes={SPECULATIVE: run.lanes[SPECULATIVE]}))["what_if"]
    assert alone["alone_s"] == pytest.approx(64 * run.calibration.step_s)


def test_a_run_without_measured_costs_is_refused(run):
    with pytest.raises(UserError, match="measured costs"):
        run_answer(replace(run, calibration=None))
