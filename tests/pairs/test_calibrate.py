"""Pass costs."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny import tiny_llama

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.rules import GreedyRule
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs import calibrate
from specdemo.pairs.calibrate import interleaved, measure_draft, measure_target
from specdemo.records.spread import scatter
from specdemo.records.trace import Calibration


def test_passes_take_the_cheapest_invariant_row_count_of_enough_rows(monkeypatch):
    seconds = {1: 1.6, 3: 3.0, 4: 2.0, 5: 2.01, 8: 4.0, 13: 8.0, 16: 7.0}
    monkeypatch.setattr(
        calibrate,
        "interleaved",
        lambda measures, repeats, most: {n: [seconds[n]] * repeats for n in measures},
    )
    costs = measure_target(tiny_llama(7, 0), [3, 4, 5, 8, 13, 16])
    assert costs.rows == (4, 4, 4, 4, 5, 8, 8, 8, *[13] * 5) and costs.row_floor == 4
    assert costs.step_s == 1.6, "a pass over one token without padding"
    assert costs.v[:4] == (1.25,) * 4 and costs.v[12] == 5.0
    assert costs.scatter == 0.0 and not costs.is_rough


def test_a_disturbed_measurement_does_not_make_longer_passes_cheaper(monkeypatch):
    monkeypatch.setattr(
        calibrate,
        "interleaved",
        lambda measures, repeats, most: {
            n: [9.0 if n in (1, 4) else 1.0 + n / 10] * repeats for n in measures
        },
    )
    costs = measure_target(tiny_llama(7, 0), ())
    assert costs.step_s == 1.2 and costs.v[0] == 1.0 and list(costs.v) == sorted(costs.v)


def test_a_busy_machine_gives_a_rough_calibration(monkeypatch):
    moments = itertools.cycle([1.0, 1.9, 1.1, 2.8, 1.0])
    monkeypatch.setattr(calibrate, "timed_pass", lambda runtime, ids: lambda: next(moments))
    assert measure_target(tiny_llama(7, 0), ()).is_rough
    assert scatter([1.0, 1.01, 1.02, 0.99, 1.2]) < 0.3 < scatter([1.0, 1.5, 1.0, 2.0, 1.9])
    assert scatter([0.001, 0.0015, 0.001, 0.002, 0.0019]) == pytest.approx(scatter([1.0, 1.5, 1.0, 2.0, 1.9]))


def test_a_draft_step_is_compared_with_the_target_passes_of_the_same_moment(monkeypatch):
    # The machine is three times slower than when the target was measured alone.
    model, clock = tiny_llama(7, 0, torch.float32), [0.0]
    target, draft = ModelRuntime(model), ModelRuntime(model)
    for owner, seconds in ((target, 3.0), (draft, 0.3)):
        plain = owner.forward
        monkeypatch.setattr(
            owner,
            "forward",
            lambda ids, plain=plain, seconds=seconds: (clock.__setitem__(0, clock[0] + seconds), plain(ids))[
                1
            ],
        )
    monkeypatch.setattr(calibrate, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    costs = Calibration(step_s=1.0, c=0.0, v=(1.0,) * 13, row_floor=None)
    assert measure_draft(costs, target, DraftModelDrafter(draft), GreedyRule()).c == pytest.approx(0.1)


def test_the_first_turn_is_not_counted_and_every_turn_has_another_order():
    turns = []
    times = interleaved({n: lambda n=n: turns.append(n) or float(len(turns)) for n in range(4)}, 5)
    orders = [tuple(turns[at : at + 4]) for at in range(0, len(turns), 4)]
    assert (
        len(orders) == 6 and len(set(orders)) > 1 and all(sorted(order) == [0, 1, 2, 3] for order in orders)
    )
    assert all(len(seconds) == 5 and min(seconds) > 4 for seconds in times.values())


def test_a_slow_machine_gets_fewer_repeats():
    assert interleaved({1: lambda: 1.0}, 5, max_seconds=9.0) == {1: [1.0] * 5}
    assert interleaved({1: lambda: 1.0}, 5, max_seconds=2.0) == {1: [1.0] * 3}


def test_measured_costs_are_positive_and_relative_to_one_pass():
    model = tiny_llama(7, 0, torch.float32)
    costs = measure_target(model, range(2, 17))
    assert costs.step_s > 0 and costs.c == 0 and len(costs.v) == 13 and min(costs.v) > 0
    assert 2 <= costs.row_floor == costs.rows[0] <= 16
    assert measure_target(model, ()).v[0] == 1
    drafter = DraftModelDrafter(ModelRuntime(model))
    drafted = measure_draft(costs, ModelRuntime(model), drafter, GreedyRule())
    assert drafted.c > 0 and drafted.scatter >= costs.scatter and drafted.v == costs.v
