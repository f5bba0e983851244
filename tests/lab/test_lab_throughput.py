"""The costs of batched passes go into the theory as they are measured."""

import pytest
from helpers.tiny import tiny_pair

from specdemo.bench.prompts import builtin_prompts
from specdemo.lab.experiments import Setting, configs_for, measure_plan, measure_setting, plan_experiment
from specdemo.lab.lab_request import PROMPTS
from specdemo.lab.points import THROUGHPUT
from specdemo.lab.throughput import measure_batches
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import UserError
from specdemo.records.theory import expected_tokens

pytestmark = pytest.mark.usefixtures("one_thread")


def test_point_of_a_batch_follows_from_its_pass_costs():
    points = list(measure_batches(tiny_pair(), 4, 0.6, rows=(1, 2, 5)))
    assert [point.rows for point in points] == [1, 2, 5]
    for point in points:
        assert (point.k, point.alpha) == (4, 0.6)
        assert point.v == pytest.approx(point.verify_s / point.single_s)
        assert point.s_theory == pytest.approx(expected_tokens(0.6, 4) / (4 * point.c + point.v))
        assert point.baseline_tokens_per_s == pytest.approx(point.rows / point.single_s)
        assert point.tokens_per_s == pytest.approx(point.s_theory * point.baseline_tokens_per_s)


def test_acceptance_rate_is_the_draft_models_on_builtin_prompts():
    pair = tiny_pair()
    plan = plan_experiment(THROUGHPUT, pair, {"k": 2})
    own = Setting(None, "", configs_for(pair, builtin_prompts(PROMPTS), {"k": 2, "drafter": DRAFT_MODEL}))
    assert next(measure_plan(pair, plan)).alpha == measure_setting(pair, own).alpha


def test_stop_ends_the_experiment_between_batches():
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
