"""The distribution test: true rules pass, wrong rules fail, and the figures, the progress and Stop."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache

import pytest
import torch
from helpers.tiny import TableRuntime, config_for, emitted, tiny_pair

from specdemo.engine.rules import rule_for
from specdemo.pairs.lanes import Lanes
from specdemo.proof import distribution
from specdemo.proof.distribution import (
    DistributionProgress,
    DistributionResult,
    MemoisedLanes,
    compare_draws,
    distribution_sentence,
    distribution_test,
)
from specdemo.proof.proof_request import EXAMPLE, MAX_DRAWS, Control
from specdemo.proof.statistics import total_variation
from specdemo.proof.wrong_rules import WrongAcceptEverything, WrongNoResidual
from specdemo.records.limits import MAX_SEED, UserError, parse_config
from specdemo.records.trace import Rule, RunConfig, dump

PROMPT = [1, 0]
LENGTH = 3
DRAWS = 300
REPEATS = pytest.mark.parametrize("repeats", [1, pytest.param(8, marks=pytest.mark.slow)])
SAMPLED = config_for(Rule.REJECTION, k=3, max_new_tokens=LENGTH)

pytestmark = pytest.mark.usefixtures("one_thread")

Table = dict[tuple[int, ...], torch.Tensor]


@cache
def table(seed: int, spread: float) -> Table:
    # Logits of two tokens after the prompt and every continuation of it.
    generator = torch.Generator().manual_seed(seed)
    tails = [tail for size in range(LENGTH + 1) for tail in itertools.product(range(2), repeat=size)]
    signs = torch.randint(2, (len(tails),), generator=generator) * 2 - 1
    return {
        (*PROMPT, *tail): torch.tensor([spread * sign, 0.0], dtype=torch.float64)
        for tail, sign in zip(tails, signs.tolist(), strict=True)
    }


UNSURE, SURE = table(1, 0.3), table(2, 3.5)
"""A target that writes either token, and a draft that nearly always writes its favorite."""


def lanes_for(
    config: RunConfig = SAMPLED, control: Control | None = None, target: Table = UNSURE, draft: Table = SURE
) -> MemoisedLanes:
    return MemoisedLanes(TableRuntime(target), TableRuntime(draft), PROMPT, config, control=control)


def result(lanes: MemoisedLanes, draws: int = DRAWS) -> DistributionResult:
    *_, last = compare_draws(lanes, draws)
    assert isinstance(last, DistributionResult)
    return last


def results_of(
    repeats: int,
    config: RunConfig,
    control: Control | None = None,
    draws: int = DRAWS,
    draft: Table = SURE,
) -> list[DistributionResult]:
    configs = [replace(config, seed=10_000 * repeat) for repeat in range(repeats)]
    return [result(lanes_for(config, control, draft=draft), draws) for config in configs]


@REPEATS
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.BLOCK, Rule.SHARED_NOISE])
def test_true_rule_passes_every_time(rule, repeats):
    results = results_of(repeats, replace(SAMPLED, rule=rule))
    assert not any(found.rejected for found in results), [found.p_value for found in results]
    assert all(found.alpha_in_range and found.caveat == "" for found in results)
    assert len({found.p_value for found in results}) == repeats, "every repetition has new draws"
    assert sum(found.total_variation > found.noise_high for found in results) <= repeats // 8


@REPEATS
@pytest.mark.parametrize(
    "control",
    [
        pytest.param(control, marks=[pytest.mark.slow] if control is Control.RAW_Q else [])
        for control in Control
    ],
)
def test_wrong_rule_is_rejected_every_time(control, repeats):
    # A q from before the temperature errs less than the other rules, and not at all at temperature 1.
    config = replace(SAMPLED, temperature=2.0) if control is Control.RAW_Q else SAMPLED
    draws, draft = (3_000, table(2, 1.5)) if control is Control.RAW_Q else (DRAWS, SURE)
    results = results_of(repeats, config, control, draws, draft)
    assert all(found.rejected for found in results), [found.p_value for found in results]
    assert all(found.total_variation > found.noise_high for found in results)
    assert {found.control for found in results} == {control}
    assert f"does not have the target's distribution ({draws:,} draws of" in distribution_sentence(results[0])


@pytest.mark.parametrize(
    ("lanes", "draws", "alpha_in_range", "words"),
    [
        (lanes_for(draft=UNSURE), DRAWS, False, ": 100% of the compared draft tokens"),
        (lanes_for(target=table(1, 3.5), draft=table(1, -3.5)), DRAWS, False, ": 6% of the compared draft"),
        (lanes_for(replace(SAMPLED, max_new_tokens=1)), 20, False, "no draft token was compared"),
        (lanes_for(), 4, True, "choose more draws"),
    ],
)
def test_caveat_names_the_reason_why_a_test_proves_little(lanes, draws, alpha_in_range, words):
    found = result(lanes, draws)
    assert not found.rejected and found.alpha_in_range is alpha_in_range
    assert words in found.caveat and found.caveat in distribution_sentence(found)
    assert "p < 1e-99. " in distribution_sentence(replace(found, p_value=0.0))


def test_every_draw_is_counted_and_each_model_computes_a_prefix_once():
    found = result(lanes_for(), 150)
    rows = found.continuations
    sides = [row.speculative for row in rows], [row.baseline for row in rows]
    assert list(map(sum, sides)) == [found.drawn, found.draws] == [150, 150]
    totals = list(map(sum, zip(*sides, strict=True)))
    assert totals == sorted(totals, reverse=True) and totals[-1] > 0
    assert all(len(row.ids) == LENGTH for row in rows)
    assert found.total_variation == total_variation(*sides)
    assert json.loads(dump(asdict(found)))["p_value"] == found.p_value
    assert found.passes <= 2 * sum(2**size for size in range(LENGTH))
    # Alone, three passes a draw; with drafts at least one of the target's and one of the draft's.
    assert found.passes + found.passes_saved >= 150 * (3 + 2)


class Recording(MemoisedLanes):
    """Lanes that record the seeds of their draws."""

    def __init__(self, config: RunConfig = SAMPLED):
        super().__init__(TableRuntime(UNSURE), TableRuntime(SURE), PROMPT, config)
        self.drafted: list[int] = []
        self.alone: list[int] = []

    def speculative(self, seed: int) -> Iterator:
        self.drafted.append(seed)
        return super().speculative(seed)

    def baseline(self, seed: int) -> Iterator:
        self.alone.append(seed)
        return super().baseline(seed)


def test_every_draw_has_its_own_seed():
    lanes = Recording(replace(SAMPLED, seed=MAX_SEED - 10))
    result(lanes, 20)
    seeds = {*lanes.drafted, *lanes.alone}
    assert lanes.drafted[0] == MAX_SEED - 10 and len(seeds) == 40
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


def test_progress_has_the_samples_so_far_and_its_clock_stops_between_events(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(distribution, "PROGRESS_S", 0.0)
    monkeypatch.setattr(distribution.time, "perf_counter", lambda: float(next(clock)))
    states = []
    for state in compare_draws(Recording(), 12):
        states.append(state)
        clock = itertools.count(next(clock) + 1000)
    *progress, last = states
    assert [state.drawn for state in progress] == list(range(1, 13))
    assert all(type(state) is DistributionProgress for state in progress)
    for state in progress:
        assert sum(row.speculative for row in state.continuations) == state.drawn
    seconds = [state.seconds for state in states]
    assert seconds == sorted(seconds) and seconds[0] > 0 and last.seconds < 1000


def test_stop_is_checked_before_every_draw_and_keeps_the_samples():
    lanes = Recording()
    *_, found = compare_draws(lanes, 1000, lambda: len(lanes.drafted) == 60)
    assert isinstance(found, DistributionResult)
    assert len(lanes.alone) == found.drawn == 60 and found.draws == 1000
    words = "No difference from the target's distribution was found (60 draws of 3 tokens per sample at temp"
    assert words in distribution_sentence(found)
    assert list(compare_draws(Recording(), 1000, lambda: True)) == []


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(noise=0.1)


def short(**changes: object) -> RunConfig:
    return parse_config({**EXAMPLE, "top_k": 3, "max_new_tokens": 3, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.BLOCK, Rule.SHARED_NOISE])
def test_draw_equals_the_run_of_its_seed(pair, rule):
    config = short(rule=rule, max_new_tokens=4)
    prompt_ids = pair.prompt_ids(config)
    *_, found = distribution_test(pair, config, 25)
    wanted: dict[tuple[int, ...], list[int]] = {}
    for seed in range(50):
        decode = Lanes(pair).speculative if seed < 25 else Lanes(pair).baseline
        ids = tuple(emitted(list(decode(replace(config, seed=seed), prompt_ids))))
        wanted.setdefault(ids, [0, 0])[seed // 25] += 1
    assert {row.ids: [row.speculative, row.baseline] for row in found.continuations} == wanted


def test_continuation_ends_at_the_end_of_the_text(pair, monkeypatch):
    *_, free = distribution_test(pair, short(), 40)
    common = free.continuations[0].ids[0]
    monkeypatch.setattr(type(pair), "eos_ids", frozenset({common}))
    *_, ended = distribution_test(pair, short(), 40)
    assert (common,) in {row.ids for row in ended.continuations}
    assert all(common not in row.ids[:-1] for row in ended.continuations)


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"temperature": 0.0}, (), "set the temperature above 0"),
        ({"drafter": "prompt-lookup"}, (), "needs the drafter draft-model"),
        ({"k": "auto"}, (), "choose a number for k"),
        ({"max_new_tokens": 1}, (), "at least 2"),
        ({"top_k": 0}, (), "set top-k to 1 to 8"),
        ({"max_new_tokens": 12}, (), "set top-k to 1 to 8"),
        ({}, (0,), "draws must be from 1 to 10000"),
        ({}, (MAX_DRAWS + 1,), "draws must be from 1 to 10000"),
        ({"rule": "shared-noise"}, (9, Control.NO_RESIDUAL), "it needs the rejection rule"),
    ],
)
def test_unsuitable_settings_draws_and_controls_are_refused(pair, changes, arguments, words):
    with pytest.raises(UserError, match=words):
        next(distribution_test(pair, short(**changes), *arguments))
    with pytest.raises(UserError, match="a pair with a draft model"):
        next(distribution_test(replace(pair, draft=None), short(), 9))


def test_no_request_can_choose_a_wrong_rule():
    for rule in Rule:
        made = rule_for(config_for(rule), torch.device("cpu"))
        assert not isinstance(made, WrongAcceptEverything | WrongNoResidual)
    for control in Control:
        with pytest.raises(UserError, match="rule must be one of"):
            parse_config({"prompt": "x", "temperature": 1.0, "rule": str(control)})


@pytest.mark.slow
@pytest.mark.parametrize("control", [None, Control.ACCEPT_EVERYTHING, Control.BLOCK_COINS])
def test_the_example_of_the_built_in_pair_accepts_only_the_true_rule(builtin_pair, control):
    draws = 2_000 if control is Control.BLOCK_COINS else 400  # it errs in few texts
    *_, found = distribution_test(builtin_pair, parse_config(EXAMPLE), draws, control)
    assert found.rejected is (control is not None), found.p_value
    assert found.alpha_in_range is (control is not Control.ACCEPT_EVERYTHING), found.alpha
    assert found.passes_saved > 5 * found.passes
