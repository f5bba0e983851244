"""Sweeps: their settings, their points, and the points that remain when one is stopped."""

import dataclasses
import json

import pytest
from helpers.tiny import tiny_pair

import specdemo.lab.experiments
from specdemo.bench.bench import Bench
from specdemo.bench.measuring import measure
from specdemo.bench.prompts import Prompt, Settings, builtin_prompts
from specdemo.lab.experiments import (
    NOISES,
    REPEATS,
    TEMPERATURES,
    measure_plan,
    measure_setting,
    plan_experiment,
)
from specdemo.lab.points import (
    CATEGORY,
    DRAFT_COST,
    DRAFT_LENGTH,
    DRAFT_QUALITY,
    DRAFTER,
    SWEEPS,
    TEMPERATURE,
)
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import AUTO, Mode, Rule

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
PROMPTS = [Prompt("p0", "a", "raw", "first text"), Prompt("p1", "b", "raw", "another one")]
SHORT = {"max_new_tokens": 6}
AXES = {
    DRAFT_LENGTH: [*range(1, MAX_K + 1), None],
    TEMPERATURE: list(TEMPERATURES),
    CATEGORY: [None, None],
    DRAFTER: [None] * 4,
    DRAFT_QUALITY: list(NOISES),
    DRAFT_COST: list(REPEATS),
}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_yields_its_points_in_order(pair, name):
    plan = plan_experiment(name, pair, SHORT, PROMPTS)
    points = list(measure_plan(pair, plan))
    assert [point.x for point in points] == AXES[name]
    assert [point.label for point in points] == [setting.label for setting in plan.settings]
    assert all(
        point.runs == len(setting.configs) for point, setting in zip(points, plan.settings, strict=True)
    )
    for point in points:
        sampled = name == TEMPERATURE and point.x > 0
        assert point.identical is (None if sampled else True)
        assert point.speedup > 0 and point.tokens_per_s > 0 and point.baseline_tokens_per_s > 0
        assert point.speedup_q1 <= point.speedup <= point.speedup_q3
        assert 1 <= point.tau <= MAX_K + 1


@pytest.mark.parametrize("asked", [5, 30, 60])
def test_stopped_sweep_keeps_its_finished_points(pair, asked):
    calls = iter(range(asked))
    plan = plan_experiment(DRAFT_LENGTH, pair, SHORT, PROMPTS)
    points = list(measure_plan(pair, plan, lambda: next(calls, None) is None))
    assert len(points) + 1 < MAX_K
    assert [point.x for point in points] == list(range(1, len(points) + 1))
    assert all(point.runs == 2 and point.identical for point in points)
    assert points or asked < 60


def test_sweep_has_the_same_figures_as_the_bench(pair, tmp_path):
    bench = Bench(PROMPTS, Settings([DRAFT_MODEL], [1, 3, 8], [0.0], None, 10, 1, 0), tmp_path / "out.json")
    bench.run(pair)
    saved = json.loads((tmp_path / "out.json").read_text())
    points = {
        p.x: p
        for p in measure_plan(pair, plan_experiment(DRAFT_LENGTH, pair, {"max_new_tokens": 10}, PROMPTS))
    }
    for item in saved["summary"]:
        if item["category"] == "overall":
            point = points[item["k"]]
            assert point.alpha == pytest.approx(item["alpha_compared"]["median"])
            assert point.tau == pytest.approx(item["tau"]["median"])
            assert point.s_theory == pytest.approx(item["s_theory"]["median"])
            assert point.s_cost == pytest.approx(item["s_cost"]["median"])
    row = next(row for row in saved["rows"] if row["k"] == 3)
    assert (points[3].c, points[3].v) == (row["c"], row["v"][3])
    assert points[None].v is None


def test_point_is_not_identical_if_one_run_differs(pair, monkeypatch):
    def differing(lanes, configs, stop):
        same = configs[0].prompt == PROMPTS[0].prompt
        runs = measure(lanes, configs) or []
        return [run._replace(totals=dataclasses.replace(run.totals, identical=same)) for run in runs]

    monkeypatch.setattr(specdemo.lab.experiments, "measure", differing)
    first = plan_experiment(DRAFT_LENGTH, pair, SHORT, PROMPTS).settings[0]
    assert measure_setting(pair, first).identical is False


def test_requested_settings_hold_for_all_runs_except_the_varied_one(pair):
    request = {"k": 5, "temperature": 0.7, "rule": "shared-noise", "seed": 9, "max_new_tokens": 11}
    request |= {"drafter": "lookup+model"}
    for name in SWEEPS:
        for setting in plan_experiment(name, pair, request, PROMPTS).settings:
            for config in setting.configs:
                assert (config.seed, config.max_new_tokens) == (9, 11)
                assert config.k == ((setting.x or AUTO) if name == DRAFT_LENGTH else 5)
                assert config.drafter == (setting.label if name == DRAFTER else "lookup+model")
                assert config.temperature == (setting.x if name == TEMPERATURE else 0.7)
                assert config.rule == (Rule.SHARED_NOISE if config.temperature else Rule.GREEDY)


def test_temperature_sweep_is_greedy_at_zero_and_keeps_the_requested_rule_above(pair):
    def rules(rule: str | None) -> list[Rule]:
        plan = plan_experiment(TEMPERATURE, pair, {**SHORT, "rule": rule}, PROMPTS)
        return [setting.configs[0].rule for setting in plan.settings]

    others = len(TEMPERATURES) - 1
    assert rules(None) == rules("greedy") == [Rule.GREEDY] + [Rule.REJECTION] * others
    assert rules("shared-noise") == [Rule.GREEDY] + [Rule.SHARED_NOISE] * others


def test_category_point_uses_only_prompts_of_its_category(pair):
    for setting in plan_experiment(CATEGORY, pair, SHORT, PROMPTS).settings:
        own = [prompt.prompt for prompt in PROMPTS if prompt.category == setting.label]
        assert [config.prompt for config in setting.configs] == own


def test_drafter_sweep_includes_only_drafters_of_the_pair(pair):
    def drafters(of) -> list[str]:
        return [setting.label for setting in plan_experiment(DRAFTER, of, SHORT, PROMPTS).settings]

    assert drafters(pair) == [DRAFT_MODEL, "prompt-lookup", "lookup+model", "early-exit"]
    alone = dataclasses.replace(pair, draft=None)
    assert drafters(alone) == ["prompt-lookup", "early-exit"]
    assert (
        plan_experiment(DRAFT_LENGTH, alone, prompts=PROMPTS).settings[0].configs[0].drafter
        == "prompt-lookup"
    )


def test_default_prompts_are_shipped_and_raw_without_a_chat_template(pair, monkeypatch):
    shipped = {prompt.prompt for prompt in builtin_prompts()}
    assert {c.prompt for c in plan_experiment(DRAFT_LENGTH, pair).settings[0].configs} < shipped
    assert [len(setting.configs) for setting in plan_experiment(CATEGORY, pair).settings] == [2] * 6
    modes = {config.mode for s in plan_experiment(CATEGORY, pair).settings for config in s.configs}
    assert modes == {Mode.CHAT, Mode.RAW}
    monkeypatch.setattr(pair.tokenizer, "chat_template", None)
    assert {c.mode for s in plan_experiment(CATEGORY, pair).settings for c in s.configs} == {Mode.RAW}


@pytest.mark.parametrize(
    ("name", "request_", "words"),
    [
        ("k", {}, "Unknown experiment 'k'; choose one of: draft-length"),
        (DRAFT_LENGTH, {"max_new_tokens": 0}, "max_new_tokens must be from 1"),
        (TEMPERATURE, {"drafter": "oracle"}, "Unknown drafter"),
        (DRAFT_QUALITY, {"drafter": "prompt-lookup"}, "choose draft-model instead of prompt-lookup"),
        (DRAFT_COST, {"drafter": "early-exit"}, "choose draft-model instead of early-exit"),
    ],
)
def test_bad_settings_are_refused_before_the_first_run(pair, name, request_, words):
    with pytest.raises(UserError, match=words):
        plan_experiment(name, pair, request_, PROMPTS)


def test_a_sweep_without_prompts_or_draft_model_is_refused(pair):
    with pytest.raises(UserError, match="at least one prompt"):
        plan_experiment(DRAFT_LENGTH, pair, prompts=[])
    with pytest.raises(UserError, match="no draft model"):
        plan_experiment(DRAFT_COST, dataclasses.replace(pair, draft=None), None, PROMPTS)
