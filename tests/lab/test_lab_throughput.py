"""The costs of batched passes go into the theory as they are measured."""

import pytest
import torch
from helpers.tiny import tiny_pair

from specdemo.bench.prompts import shipped_prompts
from specdemo.lab.experiments import Setting, configs_for, measure_plan, measure_setting, plan_experiment
from specdemo.lab.lab_request import PROMPTS
from specdemo.lab.points import THROUGHPUT
from specdemo.lab.throughput import REPEATS, measure_batches, median_seconds
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import UserError
from specdemo.records.theory import expected_tokens

pytestmark = pytest.mark.usefixtures("one_thread")


def test_costs_are_medians_after_a_first_pass_that_does_not_count(monkeypatch):
    clock = iter(
        [0.0, 100.0] + [float(value) for i in range(REPEATS) for value in (200 + i, 200 + i + (i + 1))]
    )
    monkeypatch.setattr("specdemo.lab.throughput.time.perf_counter", lambda: next(clock))
    assert median_seconds([lambda: torch.zeros(1, 1, 1)]) == [3.0]


def test_passes_take_turns():
    made = []

    def note(index):
        def run():
            made.append(index)
            return torch.zeros(1, 1, 1)

        return run

    median_seconds([note(0), note(1), note(2)])
    turns = [made[i : i + 3] for i in range(0, len(made), 3)]
    assert len(turns) == REPEATS + 1 and all(sorted(turn) == [0, 1, 2] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1


def test_each_batch_size_yields_a_point_that_adds_up():
    points = list(measure_batches(tiny_pair(), 4, 0.6, rows=(1, 2, 5)))
    assert [point.rows for point in points] == [1, 2, 5]
    for point in points:
        assert (point.k, point.alpha) == (4, 0.6)
        assert point.v == pytest.approx(point.verify_s / point.single_s)
        assert point.s_theory == pytest.approx(expected_tokens(0.6, 4) / (4 * point.c + point.v))
        assert point.baseline_tokens_per_s == pytest.approx(point.rows / point.single_s)
        assert point.tokens_per_s == pytest.approx(point.s_theory * point.baseline_tokens_per_s)


def test_the_acceptance_rate_is_that_of_the_draft_model_on_shipped_prompts():
    pair = tiny_pair()
    plan = plan_experiment(THROUGHPUT, pair, {"k": 2})
    own = Setting(None, "", configs_for(pair, shipped_prompts(PROMPTS), {"k": 2, "drafter": DRAFT_MODEL}))
    assert next(measure_plan(pair, plan)).alpha == measure_setting(pair, own).alpha


def test_stopping_ends_it_between_batches():
    pair = tiny_pair()
    stopped = False
    running = measure_batches(pair, 3, 0.5, (1, 2), lambda: stopped)
    assert next(running).rows == 1
    stopped = True
    assert list(running) == []
    assert list(measure_plan(pair, plan_experiment(THROUGHPUT, pair), lambda: True)) == []


@pytest.mark.parametrize("k", [0, 13, "auto"])
def test_draft_lengths_out_of_bounds_are_refused(k):
    with pytest.raises(UserError, match="fixed k from 1 to 12"):
        plan_experiment(THROUGHPUT, tiny_pair(), {"k": k})
