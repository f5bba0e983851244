"""Speculative output has the target's distribution: proved to twelve digits over every way a run can go.

A round of k drafted tokens and the target's own, continued by the target where it fell short of k + 1
tokens, must put out each sequence of k + 1 tokens with the probability the target gives it. So must
whole runs of several rounds, whatever drafts and however many tokens.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.all_ways import AT, every_way
from helpers.samples import told_by_time
from helpers.tiny import Choosy, TableRuntime, config_for, emitted
from scipy.stats import chisquare

import specdemo.engine.rules
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.lookup import FirstOf, PromptLookupDrafter
from specdemo.drafters.n_gram import NGramDrafter
from specdemo.drafters.scripted import ScriptedDrafter
from specdemo.engine.draft_length import AutoLength, DraftLength, PlannedLength
from specdemo.engine.drafter import Drafter, NoDrafter
from specdemo.engine.rules import (
    Draft,
    RejectionRule,
    SharedNoiseRule,
)
from specdemo.engine.sampling import probabilities, warp
from specdemo.engine.speculate import autoregress, speculate
from specdemo.lab.ablated_lanes import AblatedRuntime
from specdemo.lab.conditions import Ablation
from specdemo.proof.wrong_rules import WrongAcceptEverything, WrongNoResidual
from specdemo.records.trace import Round, Rule, RunConfig
from specdemo.training.n_grams import WrittenText, count_n_grams

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB = 3
PROMPT = [1, 0, 1]
DEEPEST = 4
SAMPLED = config_for(Rule.REJECTION, temperature=0.9)
WARPS = {"plain": {}, "top-k": {"top_k": 2}, "top-p": {"top_p": 0.75}}
CPU = torch.device("cpu")
EXACT = 1e-12
PLAINLY = 1e-2
"""A wrong rule is further off than this in at least one sequence's probability."""

Logits = dict[tuple[int, ...], torch.Tensor]
Chances = dict[tuple[int, ...], float]


@cache
def logits(seed: int) -> Logits:
    """Random scores after the prompt and every continuation of it."""
    generator = torch.Generator().manual_seed(seed)
    tails = [tail for size in range(DEEPEST + 1) for tail in itertools.product(range(VOCAB), repeat=size)]
    return {(*PROMPT, *t): torch.randn(VOCAB, generator=generator, dtype=torch.float64) for t in tails}


TARGET, DRAFT = logits(8), logits(2)
HEAD = torch.tensor([0, 2])
"""Ids that a draft with a reduced vocabulary can say."""


def whole_draft() -> Drafter:
    return DraftModelDrafter(TableRuntime(DRAFT))


def reduced_draft() -> Drafter:
    runtime = TableRuntime({context: scores[HEAD] for context, scores in DRAFT.items()})
    runtime.id_map = HEAD
    return DraftModelDrafter(runtime)


def chances_of(tails: Iterable[Sequence[int]], start: Sequence[int], config: RunConfig) -> Chances:
    """Probability that the warped target goes on with each of ``tails`` after the prompt and ``start``."""
    found = {}
    for tail in tails:
        text, chance = (*PROMPT, *start), 1.0
        for token in tail:
            chance *= probability(text, config)[token]
            text = (*text, token)
        found[tuple(tail)] = chance
    return found


@cache
def probability(text: tuple[int, ...], config: RunConfig) -> list[float]:
    return probabilities(warp(TARGET[text], config.temperature, config.top_k, config.top_p)).tolist()


def error(ways: Iterable[tuple[float, list[int]]], tokens: int, config: RunConfig) -> float:
    """Largest difference between what comes out and the target, over all sequences of ``tokens``.

    What a way puts out is continued by the target itself.
    """
    heads: Chances = defaultdict(float)
    for chance, ids in ways:
        heads[tuple(ids)] += chance
    found: Chances = defaultdict(float)
    for head, chance in heads.items():
        rest = itertools.product(range(VOCAB), repeat=tokens - len(head))
        for tail, share in chances_of(rest, head, config).items():
            found[*head, *tail] += chance * share
    right = chances_of(itertools.product(range(VOCAB), repeat=tokens), (), config)
    return max(abs(found[tail] - chance) for tail, chance in right.items())


def one_round(
    config: RunConfig,
    drafter: Callable[[], Drafter] = whole_draft,
    at: float = AT[1],
    base: type[RejectionRule] = RejectionRule,
) -> float:
    """Error of the first round's output in every way the engine can go through it."""

    def run(rule: RejectionRule) -> list[int]:
        return next(speculate(TableRuntime(TARGET), drafter(), PROMPT, config, rule=rule)).emitted

    return error(every_way(config, run, at, base), config.max_new_tokens, config)


def sampled(k: int, **changes: object) -> RunConfig:
    """Settings for one round that may draft k tokens."""
    return replace(SAMPLED, k=k, max_new_tokens=k + 1, **changes)


SITES = [*itertools.product((1, 2), AT), (3, AT[1])]
"""Draft lengths and where in the cells their numbers lie; what holds at two tokens' ends holds at three's."""


@pytest.mark.parametrize(("k", "at"), SITES)
@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("drafter", [whole_draft, reduced_draft])
def test_a_round_puts_out_exactly_the_targets_distribution(drafter, warping, k, at):
    assert one_round(sampled(k, **WARPS[warping]), drafter, at) < EXACT


@pytest.mark.parametrize(("k", "at"), SITES)
@pytest.mark.parametrize("warping", WARPS)
def test_whatever_is_copied_a_round_puts_out_exactly_the_targets_distribution(warping, k, at):
    config = sampled(k, **WARPS[warping])
    for script in itertools.product(range(VOCAB), repeat=k):
        assert one_round(config, lambda s=script: ScriptedDrafter(s, CPU), at) < EXACT, script


def test_what_the_target_cannot_say_never_comes_out_at_any_number():
    """A coin of 0 against p = 0: the one number that "at most" would take for "less than"."""
    config = sampled(1, top_k=1)
    (only,) = (token for token, p in enumerate(probability(tuple(PROMPT), config)) if p > 0)
    for token in {0, 1, 2} - {only}:
        assert one_round(config, lambda t=token: ScriptedDrafter([t], CPU), AT[0]) < EXACT


TABLE = count_n_grams([WrittenText(np.array([2, 1, 2, 1, 2, 1]), 0)], VOCAB)
DRAFTERS = {
    "draft-model": whole_draft,
    "reduced": reduced_draft,
    "noisy": lambda: DraftModelDrafter(AblatedRuntime(TableRuntime(DRAFT), Ablation(noise=0.5))),
    "hotter": lambda: DraftModelDrafter(AblatedRuntime(TableRuntime(DRAFT), Ablation(temperature=3.0))),
    "prompt-lookup": lambda: PromptLookupDrafter(CPU),
    "lookup+model": lambda: FirstOf([PromptLookupDrafter(CPU), whole_draft()]),
    "n-gram": lambda: NGramDrafter(TABLE, CPU),
    "n-gram+model": lambda: FirstOf([NGramDrafter(TABLE, CPU, 0.5), whole_draft()]),
}


def whole_run(
    config: RunConfig, drafter: Callable[[], Drafter], length: Callable[[], DraftLength] = lambda: None
) -> tuple[float, list[Round]]:
    """Error of a whole run's output over every way it can go, and the rounds of all ways.

    Each way starts a drafter and a length anew.
    """
    rounds: list[Round] = []

    def run(rule: RejectionRule) -> list[int]:
        lane = list(speculate(TableRuntime(TARGET), drafter(), PROMPT, config, length=length(), rule=rule))
        rounds.extend(lane)
        return emitted(lane)

    return error(every_way(config, run, AT[1]), config.max_new_tokens, config), rounds


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_run_of_several_rounds_puts_out_exactly_the_targets_distribution(name, k):
    off, rounds = whole_run(replace(SAMPLED, k=k, max_new_tokens=3), DRAFTERS[name])
    assert off < EXACT
    assert 0 < sum(r.accepted for r in rounds) < sum(r.compared for r in rounds)
    by = {r.drafted_by for r in rounds if r.drafted}
    several = {"lookup+model": {"prompt-lookup", "draft-model"}, "n-gram+model": {"n-gram", "draft-model"}}
    assert by == several.get(name, by) and by


@pytest.mark.parametrize("kind", [AutoLength, PlannedLength])
@pytest.mark.parametrize("name", DRAFTERS)
def test_an_automatic_length_puts_out_exactly_the_targets_distribution(name, kind):
    off, rounds = whole_run(replace(SAMPLED, max_new_tokens=3), DRAFTERS[name], told_by_time(kind))
    assert off < EXACT
    assert len({len(r.drafted) for r in rounds}) > 1, "it must not always choose alike"


def test_the_target_alone_draws_exactly_from_its_own_distribution():
    off, rounds = whole_run(replace(SAMPLED, max_new_tokens=3), lambda: NoDrafter(CPU))
    assert off < EXACT and not any(r.drafted for r in rounds)


# What is wrong is seen to be wrong.


@pytest.mark.parametrize("base", [WrongAcceptEverything, WrongNoResidual])
@pytest.mark.parametrize("k", [1, 3])
def test_the_wrong_rules_are_plainly_off(k, base):
    assert one_round(sampled(k), base=base) > PLAINLY


def test_dropping_a_drafted_token_after_seeing_it_is_plainly_off():
    assert one_round(sampled(1), lambda: Choosy(TableRuntime(DRAFT))) > PLAINLY


def test_a_wrong_residual_is_plainly_off(monkeypatch):
    monkeypatch.setattr(specdemo.engine.rules, "residual", lambda p, q: (p, torch.clamp_min(p - q, 0).sum()))
    assert one_round(sampled(3)) > PLAINLY


def test_stopping_at_no_refusal_is_plainly_off(monkeypatch):
    monkeypatch.setattr(specdemo.engine.rules, "leading_agreements", lambda agree: torch.tensor(len(agree)))
    assert one_round(sampled(3)) > PLAINLY


# Shared noise: the speculative output is the baseline's, and the baseline's is the target's.


@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_shared_noise_puts_out_the_baselines_own_tokens(name, warping):
    config = config_for(Rule.SHARED_NOISE, temperature=0.9, max_new_tokens=4, k=3, **WARPS[warping])
    accepted = 0
    for seed in range(25):
        seeded = replace(config, seed=seed)
        rounds = list(speculate(TableRuntime(TARGET), DRAFTERS[name](), PROMPT, seeded))
        assert emitted(rounds) == emitted(list(autoregress(TableRuntime(TARGET), PROMPT, seeded)))
        accepted += sum(round_.accepted for round_ in rounds)
    assert accepted > 0


def test_shared_noise_keeps_every_token_of_a_reduced_draft_that_agrees_with_the_target():
    """Both read the noise of the same ids, whatever rows of their heads those have."""
    unsaid = torch.tensor([0.0, float("-inf"), 0.0], dtype=torch.float64)
    target = {context: scores + unsaid for context, scores in TARGET.items()}
    draft = TableRuntime({context: scores[HEAD] for context, scores in TARGET.items()})
    draft.id_map = HEAD
    for seed in range(20):
        config = config_for(Rule.SHARED_NOISE, temperature=0.9, max_new_tokens=4, k=3, seed=seed)
        (only,) = speculate(TableRuntime(target), DraftModelDrafter(draft), PROMPT, config)
        assert only.accepted == 3


@pytest.mark.parametrize("warping", WARPS)
def test_shared_noise_draws_from_the_targets_distribution_at_every_position(warping):
    config = config_for(Rule.SHARED_NOISE, temperature=0.9, **WARPS[warping])
    rule, scores = SharedNoiseRule(config), TARGET[tuple(PROMPT)][None]
    nothing = Draft(torch.empty(0, dtype=torch.long))
    counts = Counter(rule.verify(nothing, scores, position).token.item() for position in range(1500))
    expected = {t: 1500 * p for t, p in enumerate(probability(tuple(PROMPT), config)) if p > 0}
    assert set(counts) == set(expected)
    assert chisquare([counts[t] for t in expected], list(expected.values())).pvalue > 1e-4
