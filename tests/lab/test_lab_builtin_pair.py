"""The lab on the built-in pair, with few tokens."""

import pytest

from specdemo.bench.prompts import builtin_prompts
from specdemo.lab.conditions import Ablation
from specdemo.lab.experiments import Setting, configs_for, measure_setting
from specdemo.lab.throughput import measure_batches
from specdemo.records.theory import expected_tokens

PROMPTS = builtin_prompts(1)
pytestmark = pytest.mark.slow


def setting(pair, k: int, ablation: Ablation | None = None) -> Setting:
    configs = configs_for(pair, PROMPTS, {"k": k, "max_new_tokens": 16})
    return Setting(k, f"k = {k}", configs, ablation or Ablation())


def test_two_draft_lengths_have_consistent_figures(builtin_pair):
    points = [measure_setting(builtin_pair, setting(builtin_pair, k)) for k in (1, 3)]
    assert [point.x for point in points] == [1, 3]
    for point in points:
        assert point.identical is not False and point.runs == 1
        assert 0 < point.alpha <= 1 and 1 < point.tau <= point.x + 1
        assert point.speedup == pytest.approx(point.tokens_per_s / point.baseline_tokens_per_s)
        assert min(point.c, point.v, point.s_theory, point.s_cost) > 0


def test_full_noise_removes_the_acceptance_and_keeps_the_text(builtin_pair):
    noisy = measure_setting(builtin_pair, setting(builtin_pair, 3, Ablation(noise=1.0)))
    assert noisy.identical is not False and noisy.alpha < 0.1


def test_figures_of_a_batch_follow_from_the_seconds_of_its_passes(builtin_pair):
    [point] = measure_batches(builtin_pair, 3, 0.5, rows=(2,))
    assert (point.rows, point.k, point.alpha) == (2, 3, 0.5)
    assert min(point.single_s, point.verify_s, point.c) > 0
    assert point.v == pytest.approx(point.verify_s / point.single_s)
    assert point.s_theory == pytest.approx(expected_tokens(0.5, 3) / (3 * point.c + point.v))
    assert point.baseline_tokens_per_s == pytest.approx(2 / point.single_s)
    assert point.tokens_per_s == pytest.approx(point.s_theory * point.baseline_tokens_per_s)
