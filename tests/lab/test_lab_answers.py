"""Theory for chosen numbers and for a finished run."""

from dataclasses import replace
from typing import Any

import pytest

from specdemo.lab.answers import parse_theory, run_answer, theory_answer
from specdemo.records import recordings
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.theory import RoundShape, best_length, linear_costs, oracle_length, theoretical_speedup
from specdemo.records.trace import SPECULATIVE, Run
from specdemo.records.what_if import accepted_by_token

CHOSEN = {"alpha": 0.6, "k": 4.0, "c": 0.1, "growth": 0.05}


@pytest.fixture(scope="module")
def run() -> Run:
    return recordings.load("email")


def test_the_chosen_point_has_the_figures_of_the_theory():
    answer = theory_answer(parse_theory(CHOSEN))
    shape = RoundShape(4, 0.4, 1.2)
    assert answer["speedup"] == pytest.approx(theoretical_speedup(0.6, shape))
    assert answer["round_cost"] == pytest.approx(1.6)
    assert answer["expected_tokens"] / answer["round_cost"] == pytest.approx(answer["speedup"])
    best = best_length(0.6, 0.1, linear_costs(0.05, MAX_K))
    assert answer["best_k"] == best != 4
    assert answer["best_speedup"] > answer["speedup"]


def test_the_figure_marks_the_chosen_point_and_a_run():
    def traces(**more: Any) -> dict[str, Any]:
        figure = theory_answer(parse_theory({**CHOSEN, **more}))["figure"]
        return {trace["uid"]: trace for trace in figure["data"]}

    assert (traces()["chosen"]["x"], traces()["chosen"]["y"]) == ([0.6], [4])
    assert traces()["run"]["visible"] is False
    marked = traces(run_alpha=0.4, run_k=2.5)["run"]
    assert (marked["x"], marked["y"]) == ([0.4], [2.5])
    assert traces(theme="dark")["chosen"]["marker"] != traces()["chosen"]["marker"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 1.1},
        {"alpha": float("nan")},
        {"k": 2.5},
        {"k": 13},
        {"c": -0.1},
        {"growth": "much"},
        {"theme": "pink"},
        {"run_alpha": 2, "run_k": 2},
        {"run_k": 99},
    ],
    ids=str,
)
def test_settings_out_of_bounds_get_one_sentence(wrong):
    with pytest.raises(UserError, match=r"^[^\n]+\.$"):
        parse_theory({**CHOSEN, **wrong})


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
    uids = [trace["uid"] for trace in answer["chart"]["light"]["data"]]
    assert uids == ["free", "hidden", "measured", "chosen"]
    alone = run_answer(replace(run, lanes={SPECULATIVE: run.lanes[SPECULATIVE]}))["what_if"]
    assert alone["alone_s"] == pytest.approx(64 * run.calibration.step_s)


def test_a_run_without_measured_costs_is_refused(run):
    with pytest.raises(UserError, match="measured costs"):
        run_answer(replace(run, calibration=None))
