"""Sampled speculative output has the target's distribution: chi-square over every four-token continuation.

Unlike in ``test_exactness``, the rules draw their own random numbers.
"""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from helpers.samples import (
    FAILURE,
    PROMPT,
    SAMPLES,
    TOKENS,
    VOCAB,
    acceptance,
    expected,
    p_value,
    sample,
    tables,
    timed_by_verdict,
)
from helpers.tiny import TableRuntime, config_for, emitted, tiny_llama

import specdemo.engine.rules
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.draft_length import AutoLength, PlannedLength
from specdemo.engine.sampling import probabilities, warp
from specdemo.engine.speculate import autoregress, speculate
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Round, Rule

FEW = 800

pytestmark = pytest.mark.usefixtures("one_thread")


def test_probabilities_of_float32_suit_the_chi_square_test():
    third = torch.tensor(1 / 3).item()
    assert third * 3 - 1 > 1.5e-8, "scipy refuses such a total"
    assert p_value(Counter({0: 100, 1: 100, 2: 100}), dict.fromkeys(range(3), third)) == pytest.approx(1.0)


SAMPLE_SIZES = pytest.mark.parametrize("samples", [FEW, pytest.param(SAMPLES, marks=pytest.mark.slow)])
RULES = pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])


def config_of(rule):
    return config_for(rule, k=3, max_new_tokens=TOKENS, temperature=0.9)


@SAMPLE_SIZES
@RULES
def test_speculative_sampling_has_the_targets_distribution(rule, samples):
    counts, rounds = sample(config_of(rule), samples=samples)
    assert 0.2 < acceptance(rounds) < 0.95, "the pair must both agree and disagree for this to mean anything"
    assert p_value(counts, expected(config_of(rule))) > FAILURE


@pytest.mark.slow
@RULES
def test_the_baseline_has_the_targets_distribution(rule):
    target = TableRuntime(tables()[0])
    lanes = (autoregress(target, PROMPT, replace(config_of(rule), seed=seed)) for seed in range(SAMPLES))
    counts = Counter(tuple(emitted(list(lane))) for lane in lanes)
    assert p_value(counts, expected(config_of(rule))) > FAILURE


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AutoLength, PlannedLength])
@RULES
def test_an_automatic_length_leaves_the_distribution_alone(rule, kind):
    counts, rounds = sample(config_of(rule), length=timed_by_verdict(kind))
    assert len({len(r.drafted) for r in rounds}) > 2, "it must choose different lengths"
    assert p_value(counts, expected(config_of(rule))) > FAILURE


COMPILED_SAMPLES = 1000


def compiled_llama(seed: int, precision: str) -> CompiledLlama:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    model = tiny_llama(VOCAB, seed, dtype, spread=0.15, width=64)
    return CompiledLlama(model, rounded=precision == "int8")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "int8"])
def test_every_precision_draws_from_its_own_targets_distribution(precision):
    config = config_for(Rule.REJECTION, k=2, max_new_tokens=3, temperature=0.9)
    target, draft = (compiled_llama(seed, precision) for seed in (1, 2))
    runtime = ModelRuntime(target)
    probability_of = {}
    for tail in itertools.product(range(VOCAB), repeat=config.max_new_tokens):
        runtime.begin(256)
        rows = probabilities(warp(runtime.forward(torch.tensor([*PROMPT, *tail])), 0.9, 0, 1.0))
        of_tail = rows[len(PROMPT) - 1 : -1].double().gather(1, torch.tensor(tail)[:, None])
        probability_of[tail] = of_tail.prod().item()
    drafter = DraftModelDrafter(ModelRuntime(draft))
    counts: Counter = Counter()
    rounds: list[Round] = []
    for seed in range(COMPILED_SAMPLES):
        lane = list(speculate(runtime, drafter, PROMPT, replace(config, seed=seed)))
        counts[tuple(emitted(lane))] += 1
        rounds += lane
    assert 0.2 < acceptance(rounds) < 0.95
    assert p_value(counts, probability_of) > FAILURE


WRONG = {
    "residual": lambda p, q: (p, torch.clamp_min(p - q, 0).sum()),
    "leading_agreements": lambda agree: torch.tensor(len(agree)),
}


@SAMPLE_SIZES
@pytest.mark.parametrize("step", WRONG)
def test_a_wrong_residual_and_accepting_everything_fail_the_same_test(monkeypatch, step, samples):
    monkeypatch.setattr(specdemo.engine.rules, step, WRONG[step])
    counts, _ = sample(config_of(Rule.REJECTION), samples=samples)
    assert p_value(counts, expected(config_of(Rule.REJECTION))) < FAILURE
