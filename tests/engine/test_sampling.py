"""Warping, drawing, residuals and shared noise, each against its definition."""

import math

import pytest
import torch
from helpers.labelled import Labels
from hypothesis import example, given
from hypothesis import strategies as st

from specdemo.engine.sampling import (
    draw,
    gumbel,
    has_numbers,
    probabilities,
    residual,
    warp,
)

PROBS = st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda p: sum(p) > 1e-6)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ((1.0, 0, 1.0), [0.2, 0.5, 0.3]),
        ((1.0, 2, 1.0), [0, 0.5, 0.3]),
        ((1.0, 0, 0.5), [0, 0.5, 0]),
        ((1.0, 0, 0.51), [0, 0.5, 0.3]),
        ((1.0, 0, 0.8), [0, 0.5, 0.3]),
        ((1.0, 0, 0.81), [0.2, 0.5, 0.3]),
        ((1.0, 0, 0.01), [0, 0.5, 0]),
        ((0.5, 0, 1.0), [0.04, 0.25, 0.09]),
    ],
)
def test_temperature_top_k_and_top_p_keep_the_likely_tokens(settings, kept):
    scores = warp(torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log(), *settings)
    assert scores.exp().tolist() == pytest.approx(kept)


@given(weights=PROBS, u=st.floats(0, 1, exclude_max=True))
@example(weights=[0.0, 1.0], u=0.0)
def test_draw_inverts_the_running_sum_and_never_returns_weight_0(weights, u):
    index = draw(torch.tensor(weights), torch.tensor([u], dtype=torch.float64)).item()
    assert weights[index] > 0
    total = math.fsum(weights)
    assert math.fsum(weights[:index]) / total <= u + 1e-6
    assert u <= math.fsum(weights[: index + 1]) / total + 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0])
def test_weights_without_a_distribution_give_a_valid_index(bad):
    for u in (0.0, 0.3, 1 - 2**-53):
        for weights in (torch.full((4,), bad), torch.tensor([0.5, bad, 0.5, 0.0])):
            assert 0 <= draw(weights, torch.tensor([u], dtype=torch.float64)).item() < 4


def test_a_parallel_running_sum_never_draws_weight_0(monkeypatch):
    # On a GPU each step of a running sum is added up in its own order.
    scan, noise = torch.Tensor.cumsum, torch.Generator().manual_seed(0)

    def parallel(weights, dim):
        steps = scan(weights, dim)
        off = 1e-6 * torch.randn(len(steps), generator=noise, dtype=steps.dtype)
        return steps * (1 + off.to(steps.device))

    monkeypatch.setattr(torch.Tensor, "cumsum", parallel)
    weights = torch.zeros(200)
    weights[::10] = torch.rand(20, generator=noise) * 1e-6
    weights[0] = 1.0
    with Labels():
        there = weights.to(torch.device("xpu:0"))
        for u in torch.linspace(0.99999, 1.0, 400, dtype=torch.float64)[:-1]:
            assert weights[draw(there, u[None].to(there.device)).item()] > 0


def test_equal_tokens_at_the_edge_of_top_p_are_kept_by_id_on_every_device(monkeypatch):
    sort = torch.Tensor.sort

    def unstable(scores, dim=-1, descending=False, stable=False):
        # Equal numbers in any order, unless a stable sort is asked for.
        if stable:
            return sort(scores, dim=dim, descending=descending, stable=True)
        found = sort(scores.flip(dim), dim=dim, descending=descending, stable=True)
        return found.values, scores.shape[dim] - 1 - found.indices

    monkeypatch.setattr(torch.Tensor, "sort", unstable)
    logits = torch.tensor([0.1, 0.2, 0.2, 0.2, 0.2, 0.1], dtype=torch.float64).log()
    assert torch.isfinite(warp(logits, 1.0, 0, 0.35)).tolist() == [False, True, True, False, False, False]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_without_a_distribution_is_detected(bad):
    logits = torch.zeros(3, 4)
    logits[1, 2] = float("-inf")
    assert has_numbers(logits)
    logits[2] = bad
    assert not has_numbers(logits)
    for precision, widened in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        assert probabilities(torch.zeros(4, dtype=precision)).dtype == widened


@given(p=PROBS, q=PROBS)
@example(p=[0.25, 0.75], q=[0.25, 0.75])
def test_residual_mass_is_one_minus_the_overlap_and_without_mass_p_is_left(p, q):
    size = min(len(p), len(q))
    p, q = (torch.tensor(weights[:size], dtype=torch.float64) + 1e-9 for weights in (p, q))
    p, q = p / p.sum(), q / q.sum()
    weights, mass = residual(p, q)
    assert mass.item() == pytest.approx(1 - torch.minimum(p, q).sum().item(), abs=1e-12)
    assert torch.equal(weights, (p - q).clamp_min(0) if mass > 0 else p)


def test_noise_depends_on_seed_position_and_token_only():
    ids = torch.arange(50)
    noise = gumbel(3, torch.tensor([7, 8]), ids)
    assert torch.equal(noise[1], gumbel(3, torch.tensor([8]), ids)[0])
    chosen = torch.tensor([40, 2, 17])
    assert torch.equal(noise[:, chosen], gumbel(3, torch.tensor([7, 8]), chosen))
    assert not torch.equal(noise, gumbel(4, torch.tensor([7, 8]), ids))
    assert not torch.equal(noise[0], noise[1])


def test_noise_has_the_gumbel_moments():
    noise = gumbel(11, torch.arange(200), torch.arange(2000), torch.float64)
    assert noise.mean().item() == pytest.approx(0.5772157, abs=0.01)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.02)
    for one, other in ((noise[:, :-1], noise[:, 1:]), (noise[:-1], noise[1:])):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1].item()) < 0.01
