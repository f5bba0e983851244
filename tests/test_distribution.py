"""Sampled speculative output has the target's distribution: chi-square over every four-token continuation.

That the rules are exact is proved in ``test_exactness``, without a sample; here they draw their own
numbers. With k = 3 a single round can emit three accepted tokens and a bonus, or a correction after any
of them, so all of those lie inside the four tokens. Seeds are fixed; a right implementation fails a
setting with probability below 1e-4.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy.stats import chisquare
from tiny import Choosy, TableRuntime, config_for, emitted, nearby, padding, tiny_llama

import specdemo.engine.rules
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.lookup import LookupFirstDrafter, PromptLookupDrafter
from specdemo.engine.draft_length import AutoLength, DraftLength, PlannedLength
from specdemo.engine.drafter import Drafter
from specdemo.engine.sampling import probabilities, warp
from specdemo.engine.speculate import autoregress, speculate
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.packed_linear import DTYPES
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Calibration, Round, Rule, RunConfig

VOCAB = 3
TOKENS = 4
PROMPT = [1, 0]
SAMPLES = 2500
FEW = 800
FAILURE = 1e-4
WARPS = {"top-k": {"top_k": 2}, "top-p": {"top_p": 0.75}}

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


def draft_model() -> Drafter:
    return DraftModelDrafter(TableRuntime(tables()[1]))


def sample(
    config: RunConfig,
    drafter: Drafter | None = None,
    length: Callable[[], DraftLength] = lambda: None,
    samples: int = SAMPLES,
) -> tuple[Counter, list[Round]]:
    """Counts of continuations over many seeds, and all rounds."""
    target = TableRuntime(tables()[0])
    drafter = drafter or draft_model()
    counts: Counter = Counter()
    rounds: list[Round] = []
    for seed in range(samples):
        lane = list(speculate(target, drafter, PROMPT, replace(config, seed=seed), length=length()))
        counts[tuple(emitted(lane))] += 1
        rounds += lane
    return counts, rounds


def acceptance(rounds: list[Round]) -> float:
    """α per compared token."""
    return sum(r.accepted for r in rounds) / sum(r.compared for r in rounds)


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


MANY = pytest.param(SAMPLES, marks=pytest.mark.slow)


@pytest.mark.parametrize("samples", [FEW, MANY])
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_speculative_sampling_has_the_targets_distribution(rule, samples):
    config = config_for(rule, k=3, max_new_tokens=TOKENS, temperature=0.9)
    check_sampled(config, samples)


@pytest.mark.slow
@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_warped_sampling_has_the_warped_targets_distribution(rule, warping):
    config = config_for(rule, k=3, max_new_tokens=TOKENS, temperature=0.9, **WARPS[warping])
    check_sampled(config, SAMPLES)


def check_sampled(config: RunConfig, samples: int) -> None:
    """Draw ``samples`` continuations with a draft model and compare them with what the target would draw."""
    counts, rounds = sample(config, samples=samples)
    assert 0.2 < acceptance(rounds) < 0.95, "the pair must both agree and disagree for this to mean anything"
    assert p_value(counts, expected(config)) > FAILURE


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_the_baseline_has_the_targets_distribution(rule):
    config = config_for(rule, max_new_tokens=TOKENS, temperature=0.9)
    target = TableRuntime(tables()[0])
    lanes = (autoregress(target, PROMPT, replace(config, seed=seed)) for seed in range(SAMPLES))
    counts = Counter(tuple(emitted(list(lane))) for lane in lanes)
    assert p_value(counts, expected(config)) > FAILURE


COSTS = Calibration(step_s=0.02, c=0.1, v=(1.0, 1.02, 1.1, 1.2, *[2.0] * 9), row_floor=1)


def told_by_time(kind: type[AutoLength] | type[PlannedLength]) -> Callable[[], DraftLength]:
    """Lengths of one kind whose rounds take made-up seconds, which give away what became of their drafts."""

    class Told(kind):
        def observe(self, accepted, compared, emitted):
            super().observe(accepted, compared, emitted)
            self.pace = 0.02 * (0.3 if accepted else 2.0)

        def timed(self, draft_steps, rows, draft_s, verify_s):
            super().timed(draft_steps, rows, draft_steps * 0.1 * self.pace, COSTS.v[rows - 1] * 0.02)

    return lambda: Told(COSTS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AutoLength, PlannedLength])
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_an_automatic_length_leaves_the_distribution_alone(rule, kind):
    config = config_for(rule, max_new_tokens=TOKENS, temperature=0.9)
    counts, rounds = sample(config, length=told_by_time(kind))
    assert len({len(r.drafted) for r in rounds}) > 2, "it must not always choose alike"
    assert p_value(counts, expected(config)) > FAILURE


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
@pytest.mark.parametrize("name", ["prompt-lookup", "lookup+model"])
def test_copying_leaves_the_distribution_alone(rule, name):
    device = torch.device("cpu")
    drafters = {
        "prompt-lookup": PromptLookupDrafter(device),
        "lookup+model": LookupFirstDrafter(draft_model(), device, shortest=1),
    }
    config = config_for(rule, k=3, max_new_tokens=TOKENS, temperature=0.9)
    counts, rounds = sample(config, drafters[name])
    assert "prompt-lookup" in {r.drafted_by for r in rounds} and 0.1 < acceptance(rounds) < 0.95
    assert p_value(counts, expected(config)) > FAILURE


PACKED_SAMPLES = 1000


def packed_llama(seed: int, precision: str) -> FusedLlama:
    """A model wide enough for every kernel; its head is one for the tokens of this module."""
    model = tiny_llama(VOCAB, seed, DTYPES[precision], spread=0.15, width=64)
    return FusedLlama(model, precision, "int8" if precision == "int4" else precision)


@pytest.mark.slow
@pytest.mark.parametrize("precision", DTYPES)
def test_every_precision_draws_from_its_own_targets_distribution(precision):
    config = config_for(Rule.REJECTION, k=2, max_new_tokens=3, temperature=0.9)
    target, draft = (packed_llama(seed, precision) for seed in (1, 2))
    runtime = ModelRuntime(target, padding(target, 256, VOCAB))
    chances = {}
    for tail in itertools.product(range(VOCAB), repeat=config.max_new_tokens):
        runtime.begin(256)
        rows = probabilities(warp(runtime.forward(torch.tensor([*PROMPT, *tail])), 0.9, 0, 1.0))
        chances[tail] = (
            rows[len(PROMPT) - 1 : -1].double().gather(1, torch.tensor(tail)[:, None]).prod().item()
        )
    drafter = DraftModelDrafter(ModelRuntime(draft))
    counts: Counter = Counter()
    rounds: list[Round] = []
    for seed in range(PACKED_SAMPLES):
        lane = list(speculate(runtime, drafter, PROMPT, replace(config, seed=seed)))
        counts[tuple(emitted(lane))] += 1
        rounds += lane
    assert 0.2 < acceptance(rounds) < 0.95
    assert p_value(counts, chances) > FAILURE


@pytest.mark.slow
def test_dropping_a_drafted_token_after_seeing_it_fails_the_same_test():
    config = config_for(Rule.REJECTION, k=1, max_new_tokens=TOKENS, temperature=0.9)
    counts, _ = sample(config, Choosy(TableRuntime(tables()[1])))
    assert p_value(counts, expected(config)) < FAILURE


@pytest.mark.parametrize("samples", [FEW, MANY])
def test_a_wrong_residual_fails_the_same_test(monkeypatch, samples):
    monkeypatch.setattr(specdemo.engine.rules, "residual", lambda p, q: (p, torch.clamp_min(p - q, 0).sum()))
    config = config_for(Rule.REJECTION, k=3, max_new_tokens=TOKENS, temperature=0.9)
    counts, _ = sample(config, samples=samples)
    assert p_value(counts, expected(config)) < FAILURE


@pytest.mark.parametrize("samples", [FEW, MANY])
def test_accepting_everything_fails_the_same_test(monkeypatch, samples):
    monkeypatch.setattr(specdemo.engine.rules, "leading_agreements", lambda agree: torch.tensor(len(agree)))
    config = config_for(Rule.REJECTION, k=3, max_new_tokens=TOKENS, temperature=0.9)
    counts, _ = sample(config, samples=samples)
    assert p_value(counts, expected(config)) < FAILURE
