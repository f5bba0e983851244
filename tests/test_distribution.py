"""Sampled speculative output has the target's distribution: chi-square over every four-token continuation.

With k = 3 a single round can emit three accepted tokens and a bonus, or a correction after any of
them, so all of those lie inside the four tokens. Seeds are fixed; a right implementation fails a
setting with probability below 1e-4.
"""

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy.stats import chisquare
from tiny import TableRuntime, config_for, emitted, nearby, tiny_llama

import specdemo.rules
from specdemo.drafters import DraftModelDrafter
from specdemo.engine import autoregress, speculate
from specdemo.sampling import probabilities, warp
from specdemo.trace import Rule, RunConfig

VOCAB = 3
TOKENS = 4
PROMPT = [1, 0]
SAMPLES = 2500
FAILURE = 1e-4
WARPS = {"plain": {}, "top-k": {"top_k": 2}, "top-p": {"top_p": 0.75}}

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def tables() -> tuple[dict, dict]:
    target = tiny_llama(VOCAB, seed=6, spread=0.25)
    draft = nearby(target, seed=9, noise=0.05)
    return TableRuntime.of(target, PROMPT, TOKENS).table, TableRuntime.of(draft, PROMPT, TOKENS).table


def expected(config: RunConfig) -> dict[tuple[int, ...], float]:
    """Exact probability of every continuation under the warped target."""
    table, _ = tables()
    found = {}
    for tail in itertools.product(range(VOCAB), repeat=TOKENS):
        chance = 1.0
        for i, token in enumerate(tail):
            logits = table[(*PROMPT, *tail[:i])]
            chance *= probabilities(warp(logits, config.temperature, config.top_k, config.top_p))[
                token
            ].item()
        found[tail] = chance
    return found


def sample(config: RunConfig, speculative: bool = True) -> tuple[Counter, float]:
    """Counts of continuations over many seeds, and the acceptance rate α per compared token."""
    target_table, draft_table = tables()
    target = TableRuntime(target_table)
    drafter = DraftModelDrafter(TableRuntime(draft_table))
    counts: Counter = Counter()
    accepted = compared = 0
    for seed in range(SAMPLES):
        seeded = replace(config, seed=seed)
        lane = (
            speculate(target, drafter, PROMPT, seeded) if speculative else autoregress(target, PROMPT, seeded)
        )
        rounds = list(lane)
        counts[tuple(emitted(rounds))] += 1
        accepted += sum(r.accepted for r in rounds)
        compared += sum(r.compared for r in rounds)
    return counts, accepted / max(1, compared)


def p_value(counts: Counter, chances: dict[tuple[int, ...], float]) -> float:
    """Chi-square p-value; cells expected under 5 are pooled, forbidden cells must be empty."""
    for tail, chance in chances.items():
        if chance == 0.0:
            assert counts[tail] == 0, f"{tail} has probability 0 and was drawn"
    total = counts.total()
    cells = [(counts[tail], chance * total) for tail, chance in chances.items() if chance > 0]
    large = [cell for cell in cells if cell[1] >= 5]
    small = [cell for cell in cells if cell[1] < 5]
    if small:
        large.append((sum(c for c, _ in small), sum(e for _, e in small)))
    observed, wanted = zip(*large, strict=True)
    scale = sum(observed) / sum(wanted)
    return chisquare(observed, [value * scale for value in wanted]).pvalue


@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_speculative_sampling_has_the_targets_distribution(rule, k, warping):
    config = config_for(rule, k=k, max_new_tokens=TOKENS, temperature=0.9, **WARPS[warping])
    counts, alpha = sample(config)
    assert 0.2 < alpha < 0.95, "the pair must both agree and disagree for this test to mean anything"
    assert p_value(counts, expected(config)) > FAILURE


@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_the_baseline_has_the_targets_distribution(rule):
    config = config_for(rule, max_new_tokens=TOKENS, temperature=0.9)
    counts, _ = sample(config, speculative=False)
    assert p_value(counts, expected(config)) > FAILURE


def test_a_wrong_residual_fails_the_same_test(monkeypatch):
    monkeypatch.setattr(specdemo.rules, "residual", lambda p, q: (p, torch.clamp_min(p - q, 0).sum()))
    config = config_for(Rule.REJECTION, k=3, max_new_tokens=TOKENS, temperature=0.9)
    counts, _ = sample(config)
    assert p_value(counts, expected(config)) < FAILURE


def test_accepting_everything_fails_the_same_test(monkeypatch):
    monkeypatch.setattr(specdemo.rules, "leading_agreements", lambda agree: torch.tensor(len(agree)))
    config = config_for(Rule.REJECTION, k=3, max_new_tokens=TOKENS, temperature=0.9)
    counts, _ = sample(config)
    assert p_value(counts, expected(config)) < FAILURE
