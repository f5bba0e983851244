"""Batched passes compute what single ones do, and their costs go into the theory as they are."""

import dataclasses

import pytest
import torch
from helpers.tiny import tiny_llama, tiny_pair

from specdemo.lab.sweeps import measure_setting
from specdemo.lab.throughput import (
    REPEATS,
    FusedBatch,
    PlainBatch,
    ThroughputPlan,
    batch_of,
    median_seconds,
    throughput,
)
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.reduced_draft import slice_of_target
from specdemo.records.limits import UserError
from specdemo.records.theory import expected_tokens

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS, CAPACITY = 3, 64


def texts(count: int, vocab: int = 50) -> torch.Tensor:
    """Different texts of one length, [ROWS, count]."""
    return torch.randint(vocab, (ROWS, count), generator=torch.Generator().manual_seed(0))


def plain_logits(model, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([model(row[None], use_cache=False).logits[0] for row in ids])


@pytest.mark.parametrize("kind", [PlainBatch, FusedBatch])
def test_a_batch_scores_every_text_as_if_it_were_alone(kind):
    model = tiny_llama(50, seed=1, dtype=torch.float32)
    ids = texts(9)
    wanted = plain_logits(model, ids)
    runner = FusedLlama(model, "fp32", "fp32") if kind is FusedBatch else model
    batch = batch_of(runner, ROWS, CAPACITY)
    assert type(batch) is kind
    got = [batch.run(ids[:, :4], 0), batch.run(ids[:, 4:5], 4)]
    batch.run(texts(3), 5)  # thrown away: the next pass writes over it
    got.append(batch.run(ids[:, 5:], 5))
    torch.testing.assert_close(torch.cat(got, 1), wanted, rtol=1e-4, atol=1e-4)


def test_a_draft_with_a_reduced_head_can_be_batched():
    target = tiny_llama(50, seed=1, dtype=torch.float32)
    draft = slice_of_target(target, [0, 1], torch.arange(0, 50, 2))
    ids = texts(5)
    got = batch_of(draft, ROWS, CAPACITY).run(ids, 0)
    torch.testing.assert_close(got, plain_logits(target, ids)[..., ::2], rtol=1e-4, atol=1e-4)


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
