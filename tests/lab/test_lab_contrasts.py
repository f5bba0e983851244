"""Contrasts: the settings of both sides, and their figures."""

import dataclasses

import pytest
from helpers.tiny import tiny_pair

from specdemo.lab.conditions import BEST, CONTRASTS, LESS, NONE, K
from specdemo.lab.experiments import Plan, measure_plan, plan_experiment
from specdemo.lab.points import CONTRASTS as ALL
from specdemo.lab.points import HELPS, HURTS
from specdemo.records.limits import MAX_K
from specdemo.records.trace import Rule

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
SHORT = {"max_new_tokens": 6}
NAMES = [contrast.name for contrast in CONTRASTS]
OF_THE_DRAFT = {"cheap-draft", "aligned-draft", "different-distribution"}
ABLATED = OF_THE_DRAFT | {"parallel-verification"}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def measured(pair, name):
    """Return the points of a contrast, or of all of them."""
    return list(measure_plan(pair, plan_experiment(name, pair, SHORT)))


def sides(plan: Plan):
    """Return both settings of each contrast."""
    return zip(plan.settings[::2], plan.settings[1::2], strict=True)


@pytest.mark.slow
def test_every_contrast_has_both_sides_in_order(pair):
    points = measured(pair, ALL)
    assert [(p.contrast, p.side) for p in points] == [
        (name, side) for name in NAMES for side in (HELPS, HURTS)
    ]
    assert [contrast.group for contrast in CONTRASTS] == [BEST] * 4 + [LESS] * 4
    assert all(contrast.expected.endswith(".") for contrast in CONTRASTS)
    for point in points:
        assert point.title and point.point.label
        assert point.point.speedup > 0
        assert point.point.runs == 2


@pytest.mark.slow
def test_one_by_one_verification_costs_a_pass_per_token_and_changes_no_token(pair):
    together, each = (p.point for p in measured(pair, "parallel-verification"))
    assert each.v == K + 1 > together.v
    assert each.s_theory < together.s_theory
    assert (each.alpha, each.tau, each.identical) == (together.alpha, together.tau, True)


def test_wrong_words_are_never_accepted_and_change_no_token(pair):
    _, wrong = (p.point for p in measured(pair, "wrong-guesses"))
    assert (wrong.alpha, wrong.tau, wrong.c, wrong.identical) == (0.0, 1.0, 0.0, True)


def test_sides_differ_only_in_the_condition(pair):
    for helps, hurts in sides(plan_experiment(ALL, pair, {**SHORT, "seed": 4, "k": 9, "temperature": 1.9})):
        contrast = helps.contrast
        assert helps.ablation == NONE
        for config in helps.configs:
            assert config.k == (2 if contrast.name == "overhead" else K)
            assert config.temperature == (0.8 if contrast.name == "different-distribution" else 0)
            assert (config.seed, config.max_new_tokens) == (4, 6)
        assert (hurts.ablation != NONE) == (contrast.name in ABLATED)
        same_prompts = [c.prompt for c in hurts.configs] == [c.prompt for c in helps.configs]
        assert same_prompts == (contrast.name != "creative-task")
        if hurts.ablation != NONE:
            assert hurts.configs == helps.configs
    plans = {hurts.contrast.name: hurts for _, hurts in sides(plan_experiment(ALL, pair))}
    assert plans["overhead"].configs[0].k == MAX_K
    assert plans["predictable-text"].configs[0].rule is Rule.REJECTION
    assert plans["predictable-text"].configs[0].temperature == 1.5


def test_pair_without_a_draft_model_omits_contrasts_of_the_draft(pair):
    alone = dataclasses.replace(pair, draft=None)
    plan = plan_experiment(ALL, alone, SHORT)
    assert [helps.contrast.name for helps, _ in sides(plan)] == [
        name for name in NAMES if name not in OF_THE_DRAFT
    ]
    last = dataclasses.replace(plan, settings=plan.settings[-4:])
    assert [point.side for point in measure_plan(alone, last)] == [HELPS, HURTS] * 2
