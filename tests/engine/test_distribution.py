"""Sampled output has the target's distribution: chi-square over every continuation.

Unlike in ``test_exactness``, the rules draw their own random numbers.
"""

import itertools

import pytest
import torch
from helpers.samples import FAILURE, PROMPT, TOKENS, VOCAB, acceptance, expected, p_value, sample
from helpers.tiny import config_for, tiny_llama

import specdemo.engine.rules
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.drafter import NoDrafter
from specdemo.engine.sampling import probabilities, warp
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Rule

SAMPLES = 800

pytestmark = pytest.mark.usefixtures("one_thread")


def config_of(rule):
    return config_for(rule, k=3, max_new_tokens=TOKENS, temperature=0.9)


@pytest.mark.parametrize("drafter", [None, NoDrafter(torch.device("cpu"))], ids=["draft model", "no draft"])
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.SHARED_NOISE])
def test_output_has_the_targets_distribution(rule, drafter):
    counts, rounds = sample(config_of(rule), samples=SAMPLES, drafter=drafter)
    assert drafter or 0.2 < acceptance(rounds) < 0.95, "the pair must both agree and disagree"
    assert p_value(counts, expected(config_of(rule))) > FAILURE


def compiled_llama(seed: int, precision: str) -> CompiledLlama:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    model = tiny_llama(VOCAB, seed, dtype, spread=0.15, width=64)
    return CompiledLlama(model, rounded=precision == "int8")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "int8"])
def test_every_precision_draws_from_its_own_targets_distribution(precision):
    config = config_for(Rule.REJECTION, k=2, max_new_tokens=3, temperature=0.9)
    target, draft = (ModelRuntime(compiled_llama(seed, precision)) for seed in (1, 2))
    probability_of = {}
    for tail in itertools.product(range(VOCAB), repeat=config.max_new_tokens):
        target.begin(256)
        rows = probabilities(warp(target.forward(torch.tensor([*PROMPT, *tail])), 0.9, 0, 1.0))
        of_tail = rows[len(PROMPT) - 1 : -1].double().gather(1, torch.tensor(tail)[:, None])
        probability_of[tail] = of_tail.prod().item()
    counts, rounds = sample(config, samples=SAMPLES, drafter=DraftModelDrafter(draft), target=target)
    assert 0.2 < acceptance(rounds) < 0.95
    assert p_value(counts, probability_of) > FAILURE


WRONG = {
    "residual": lambda p, q: (p, torch.clamp_min(p - q, 0).sum()),
    "leading_agreements": lambda agree: torch.tensor(len(agree)),
}


@pytest.mark.parametrize("step", WRONG)
def test_a_wrong_residual_and_accepting_everything_fail_the_same_test(monkeypatch, step):
    monkeypatch.setattr(specdemo.engine.rules, step, WRONG[step])
    counts, _ = sample(config_of(Rule.REJECTION), samples=SAMPLES)
    assert p_value(counts, expected(config_of(Rule.REJECTION))) < FAILURE
