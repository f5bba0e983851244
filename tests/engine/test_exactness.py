"""Speculative output has the target's distribution, to twelve digits, over every path of a round or a run."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.all_ways import AT, every_way
from helpers.samples import timed_by_verdict
from helpers.tiny import Choosy, TableRuntime, config_for, emitted

from specdemo.drafters.combined import CombinedDrafter
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.lookup import PromptLookupDrafter
from specdemo.drafters.n_gram import NGramDrafter
from specdemo.drafters.scripted import ScriptedDrafter
from specdemo.engine.draft_length import AutoLength, DraftLength, PlannedLength
from specdemo.engine.drafter import Drafter, NoDrafter
from specdemo.engine.rules import BlockRule, RejectionRule
from specdemo.engine.sampling import probabilities, warp
from specdemo.engine.speculate import autoregress, speculate
from specdemo.lab.ablated_lanes import AblatedRuntime
from specdemo.lab.conditions import Ablation
from specdemo.proof.wrong_rules import (
    WrongAcceptEverything,
    WrongBlockCoins,
    WrongNoResidual,
    WrongTypical,
)
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
PLAINLY = 1e-2  # minimum error of a wrong rule in at least one sequence's probability
SLOW = pytest.mark.slow

Logits = dict[tuple[int, ...], torch.Tensor]
Probabilities = dict[tuple[int, ...], float]


@cache
def logits(seed: int) -> Logits:
    """Return random logits after the prompt and every continuation of it."""
    generator = torch.Generator().manual_seed(seed)
    tails = [tail for size in range(DEEPEST + 1) for tail in itertools.product(range(VOCAB), repeat=size)]
    return {(*PROMPT, *t): torch.randn(VOCAB, generator=generator, dtype=torch.float64) for t in tails}


TARGET, DRAFT = logits(8), logits(2)
HEAD = torch.tensor([0, 2])  # the ids of a draft with a reduced vocabulary


def whole_draft() -> Drafter:
    return DraftModelDrafter(TableRuntime(DRAFT))


def reduced_draft() -> Drafter:
    runtime = TableRuntime({context: scores[HEAD] for context, scores in DRAFT.items()})
    runtime.id_map = HEAD
    return DraftModelDrafter(runtime)


def of_target(length: int, start: Sequence[int], config: RunConfig) -> Probabilities:
    """Return the warped target's probability of each text of ``length`` after the prompt and ``start``."""
    found = {}
    for tail in itertools.product(range(VOCAB), repeat=length):
        text, found[tail] = (*PROMPT, *start), 1.0
        for token in tail:
            found[tail] *= probability(text, config)[token]
            text = (*text, token)
    return found


@cache
def probability(text: tuple[int, ...], config: RunConfig) -> list[float]:
    return probabilities(warp(TARGET[text], config.temperature, config.top_k, config.top_p)).tolist()


def error(ways: Iterable[tuple[float, list[int]]], tokens: int, config: RunConfig) -> float:
    """Return the largest difference in probability from the target, over all sequences of ``tokens``.

    The output of each path is continued by the target alone.
    """
    heads: Probabilities = defaultdict(float)
    for share, ids in ways:
        heads[tuple(ids)] += share
    found: Probabilities = defaultdict(float)
    for head, share in heads.items():
        for tail, of_tail in of_target(tokens - len(head), head, config).items():
            found[*head, *tail] += share * of_tail
    return max(abs(found[text] - right) for text, right in of_target(tokens, (), config).items())


def one_round(
    config: RunConfig,
    drafter: Callable[[], Drafter] = whole_draft,
    at: float = AT[1],
    base: type[RejectionRule] = RejectionRule,
) -> float:
    """Return the error of the first round's output over every path through the engine."""

    def run(rule: RejectionRule) -> list[int]:
        return next(speculate(TableRuntime(TARGET), drafter(), PROMPT, config, rule=rule)).emitted

    return error(every_way(config, run, at, base), config.max_new_tokens, config)


def sampled(k: int, **changes: object) -> RunConfig:
    """Return settings for one round that may draft k tokens."""
    return replace(SAMPLED, k=k, max_new_tokens=k + 1, **changes)


BOTH = pytest.mark.parametrize("base", [RejectionRule, BlockRule])
# Draft lengths, and places of the numbers in their cells; for k = 3 the middle is enough.
SITES = pytest.mark.parametrize(
    ("k", "at"), [*itertools.product((1, 2), AT), pytest.param(3, AT[1], marks=SLOW)]
)


def copies(k: int) -> list[Callable[[], Drafter]]:
    """Return drafters that copy, one for each possible draft."""
    return [lambda s=script: ScriptedDrafter(s, CPU) for script in itertools.product(range(VOCAB), repeat=k)]


@SITES
@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("drafters", [lambda k: [whole_draft], lambda k: [reduced_draft], copies])
@BOTH
def test_a_round_has_exactly_the_targets_distribution(base, drafters, warping, k, at):
    for drafter in drafters(k):
        assert one_round(sampled(k, **WARPS[warping]), drafter, at, base) < EXACT


@pytest.mark.parametrize("drafter", [whole_draft, reduced_draft])
@pytest.mark.parametrize("k", [2, pytest.param(3, marks=SLOW)])
def test_block_verification_accepts_more_tokens(drafter, k):
    def accepted(base: type[RejectionRule]) -> float:
        def run(rule: RejectionRule) -> int:
            return next(speculate(TableRuntime(TARGET), drafter(), PROMPT, sampled(k), rule=rule)).accepted

        return sum(share * count for share, count in every_way(sampled(k), run, AT[1], base))

    assert accepted(BlockRule) > accepted(RejectionRule) + 1e-3


@BOTH
def test_a_token_of_probability_0_is_never_emitted(base):
    # A uniform draw of 0 must not be accepted at p = 0.
    config = sampled(1, top_k=1)
    (only,) = (token for token, p in enumerate(probability(tuple(PROMPT), config)) if p > 0)
    for token in {0, 1, 2} - {only}:
        assert one_round(config, lambda t=token: ScriptedDrafter([t], CPU), AT[0], base) < EXACT


TABLE = count_n_grams([WrittenText(np.array([2, 1, 2, 1, 2, 1]), 0)], VOCAB)
DRAFTERS = {
    "draft-model": whole_draft,
    "reduced": reduced_draft,
    "noisy": lambda: DraftModelDrafter(AblatedRuntime(TableRuntime(DRAFT), Ablation(noise=0.5))),
    "hotter": lambda: DraftModelDrafter(AblatedRuntime(TableRuntime(DRAFT), Ablation(temperature=3.0))),
    "prompt-lookup": lambda: PromptLookupDrafter(CPU),
    "n-gram": lambda: NGramDrafter(TABLE, CPU),
    "combined": lambda: CombinedDrafter(PromptLookupDrafter(CPU), whole_draft()),
}


def whole_run(
    config: RunConfig,
    drafter: Callable[[], Drafter],
    length: Callable[[], DraftLength] = lambda: None,
    base: type[RejectionRule] = RejectionRule,
) -> tuple[float, list[Round]]:
    """Return the error of a run's output over every path, and the rounds of all paths."""
    rounds: list[Round] = []

    def run(rule: RejectionRule) -> list[int]:
        lane = list(speculate(TableRuntime(TARGET), drafter(), PROMPT, config, length=length(), rule=rule))
        rounds.extend(lane)
        return emitted(lane)

    return error(every_way(config, run, AT[1], base), config.max_new_tokens, config), rounds


WITH_VARIANTS = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW if name in ("noisy", "hotter") else ()) for name in DRAFTERS]
)


@pytest.mark.parametrize("length", [1, 2, AutoLength, PlannedLength])
@WITH_VARIANTS
@BOTH
def test_a_run_of_several_rounds_has_exactly_the_targets_distribution(base, name, length):
    config, fixed = replace(SAMPLED, max_new_tokens=3), isinstance(length, int)
    config = replace(config, k=length) if fixed else config
    options = {} if fixed else {"length": timed_by_verdict(length)}
    off, rounds = whole_run(config, DRAFTERS[name], base=base, **options)
    assert off < EXACT
    assert 0 < sum(r.accepted for r in rounds) < sum(r.compared for r in rounds)
    assert len({len(r.drafted) for r in rounds}) > 1, "drafts of several lengths"
    by = {r.drafted_by for r in rounds if r.drafted}
    assert by and (not fixed or name != "combined" or by == {"prompt-lookup", "draft-model"})


def test_the_target_alone_draws_exactly_from_its_own_distribution():
    off, rounds = whole_run(replace(SAMPLED, max_new_tokens=3), lambda: NoDrafter(CPU))
    assert off < EXACT and not any(r.drafted for r in rounds)


WRONG = [{"base": base} for base in (WrongBlockCoins, WrongAcceptEverything, WrongNoResidual, WrongTypical)]


@pytest.mark.parametrize("wrong", [*WRONG, {"drafter": lambda: Choosy(TableRuntime(DRAFT))}])
def test_wrong_rules_and_drafters_are_plainly_off(wrong):
    # With one draft token, the wrong block verification equals rejection sampling.
    assert one_round(sampled(3), **wrong) > PLAINLY


# Shared noise: the speculative output equals the baseline, which has the target's distribution.


@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_shared_noise_emits_the_baselines_tokens(name, warping):
    config = config_for(Rule.SHARED_NOISE, temperature=0.9, max_new_tokens=4, k=3, **WARPS[warping])
    rounds: list[Round] = []
    for seed in range(12):
        seeded = replace(config, seed=seed)
        lane = list(speculate(TableRuntime(TARGET), DRAFTERS[name](), PROMPT, seeded))
        assert emitted(lane) == emitted(list(autoregress(TableRuntime(TARGET), PROMPT, seeded)))
        rounds += lane
    assert any(round_.accepted for round_ in rounds)


def test_shared_noise_accepts_every_token_of_a_reduced_draft_that_agrees_with_the_target():
    # Both read the noise by token id, not by row of their heads.
    unsaid = torch.tensor([0.0, float("-inf"), 0.0], dtype=torch.float64)
    target = {context: scores + unsaid for context, scores in TARGET.items()}
    draft = TableRuntime({context: scores[HEAD] for context, scores in TARGET.items()})
    draft.id_map = HEAD
    for seed in range(20):
        config = config_for(Rule.SHARED_NOISE, temperature=0.9, max_new_tokens=4, k=3, seed=seed)
        (only,) = speculate(TableRuntime(target), DraftModelDrafter(draft), PROMPT, config)
        assert only.accepted == 3
