"""The costs of batched passes go into the theory as they are measured."""

import dataclasses

import pytest
import torch
from helpers.tiny import tiny_pair

from specdemo.lab.sweeps import measure_setting
from specdemo.lab.throughput import (
    REPEATS,
    ThroughputPlan,
    median_seconds,
    throughput,
)
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
    points = list(throughput(tiny_pair(), ThroughputPlan(k=4, rows=(1, 2, 5), alpha=0.6)))
    assert [point.rows for point in points] == [1, 2, 5]
    for point in points:
        assert (point.k, point.alpha) == (4, 0.6)
        assert point.v == pytest.approx(point.verify_s / point.single_s)
        assert point.s_theory == pytest.approx(expected_tokens(0.6, 4) / (4 * point.c + point.v))
        assert point.baseline_tokens_per_s == pytest.approx(point.rows / point.single_s)
        assert point.tokens_per_s == pytest.approx(point.s_theory * point.baseline_tokens_per_s)


def test_acceptance_is_measured_where_none_is_given(monkeypatch):
    measured = []

    def measure(pair, setting, stop):
        assert {config.k for config in setting.configs} == {2}
        measured.append(
            measure_setting(pair, dataclasses.replace(setting, configs=setting.configs[:1]), stop)
        )
        return measured[-1]

    monkeypatch.setattr("specdemo.lab.throughput.measure_setting", measure)
    (point,) = throughput(tiny_pair(), ThroughputPlan(k=2, rows=(2,)))
    assert point.alpha == measured[0].alpha


def test_stopping_ends_it_between_batches():
    pair = tiny_pair()
    stopped = False
    running = throughput(pair, ThroughputPlan(rows=(1, 2), alpha=0.5), lambda: stopped)
    assert next(running).rows == 1
    stopped = True
    assert list(running) == []
    assert list(throughput(pair, ThroughputPlan(rows=(1,)), lambda: True)) == []


@pytest.mark.parametrize("values", [{"k": 0}, {"k": 13}, {"k": "auto"}, {"rows": (1, 0)}, {"alpha": 1.5}])
def test_plans_out_of_bounds_are_refused(values):
    with pytest.raises(UserError):
        ThroughputPlan(**values)
