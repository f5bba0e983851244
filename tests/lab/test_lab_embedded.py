"""The lab on the embedded pair, with few tokens."""

import pytest

from specdemo.bench.prompts import shipped_prompts
from specdemo.lab.conditions import Ablation
from specdemo.lab.experiments import Setting, configs_for, measure_setting
from specdemo.lab.throughput import measure_batches

PROMPTS = shipped_prompts(1)
pytestmark = pytest.mark.slow


def setting(pair, k: int, ablation: Ablation | None = None) -> Setting:
    configs = configs_for(pair, PROMPTS, {"k": k, "max_new_tokens": 16})
    return Setting(k, f"k = {k}", configs, ablation or Ablation())


def test_two_draft_lengths_have_consistent_figures(embedded_pair):
    points = [measure_setting(embedded_pair, setting(embedded_pair, k)) for k in (1, 3)]
    assert [point.x for point in points] == [1, 3]
    for point in points:
        assert point.identical is not False and point.runs == 1
        assert 0 < point.alpha <= 1 and 1 < point.tau <= point.x + 1
        assert 0 < point.c < 1 and point.v >= 0.9
        assert point.s_cost == pytest.approx(point.tau / (point.x * point.c + point.v), rel=0.15)


def test_full_noise_removes_the_acceptance_and_keeps_the_text(embedded_pair):
    noisy = measure_setting(embedded_pair, setting(embedded_pair, 3, Ablation(noise=1.0)))
    assert noisy.identical is not False and noisy.alpha < 0.1


def test_batch_of_real_passes_has_plausible_costs(embedded_pair):
    # Other work on the machine can disturb the clock of one measurement, hardly of five.
    points = [next(measure_batches(embedded_pair, 3, 0.5, rows=(2,))) for _ in range(5)]
    assert any(point.v > 0.8 and 0 < point.c < 1 for point in points)
