"""The lab's experiments: the settings and figures of each, tables, and the command."""

import csv
import io
import json
from dataclasses import replace

import pytest
from helpers.tiny import tiny_pair

import specdemo.lab.experiments
import specdemo.pairs.load
from specdemo.bench.bench import Bench
from specdemo.bench.measuring import measure
from specdemo.bench.prompts import Prompt, Settings, builtin_prompts
from specdemo.cli.main import main
from specdemo.lab.conditions import BEST, LESS, NONE, Ablation, K
from specdemo.lab.conditions import CONTRASTS as CONDITIONS
from specdemo.lab.experiments import (
    NOISES,
    REPEATS,
    TEMPERATURES,
    Experiment,
    Setting,
    configs_for,
    measure_experiment,
    measure_setting,
    plan_experiment,
)
from specdemo.lab.lab_request import PROMPTS as USUAL_PROMPTS
from specdemo.lab.points import (
    CATEGORY,
    CONTRASTS,
    DRAFT_COST,
    DRAFT_LENGTH,
    DRAFT_QUALITY,
    DRAFTER,
    EXPERIMENTS,
    HELPS,
    HURTS,
    SWEEPS,
    TEMPERATURE,
    THROUGHPUT,
    TITLES,
    ContrastPoint,
    SweepPoint,
    ThroughputPoint,
    points_csv,
    points_json,
)
from specdemo.lab.throughput import measure_batches
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.theory import expected_tokens
from specdemo.records.trace import AUTO, Mode, Rule

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
PROMPTS = [Prompt("p0", "a", "raw", "first text"), Prompt("p1", "b", "raw", "another one")]
SHORT = {"max_new_tokens": 8}
AXES = {
    DRAFT_LENGTH: [*range(1, MAX_K + 1), None],
    TEMPERATURE: list(TEMPERATURES),
    CATEGORY: [None, None],
    DRAFTER: [None] * 4,
    DRAFT_QUALITY: list(NOISES),
    DRAFT_COST: list(REPEATS),
}
NAMES = [contrast.name for contrast in CONDITIONS]
OF_THE_DRAFT = {"cheap-draft", "aligned-draft", "different-distribution"}
POINT = SweepPoint(
    0.5, 'half, "noisy"', 3, 1.25, 1.0, 1.5, 50.5, 40.25, 0.5, 1.75, 0.05, 1.1, 1.3, None, True
)
NAMED = replace(POINT, x=None, label="Ärger", v=None, identical=None)
SIDE = ContrastPoint("overhead", "it costs", HURTS, NAMED)
BATCH = ThroughputPoint(4, 3, 0.5, 0.01, 0.015, 1.5, 0.1, 1.04, 400.0, 416.0)


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def planned(pair, name, request=SHORT, prompts=PROMPTS):
    return plan_experiment(name, pair, request, prompts)


@pytest.mark.parametrize("asked", [5, 60])
def test_stopped_sweep_keeps_its_finished_points(pair, asked):
    calls = iter(range(asked))
    points = list(measure_experiment(pair, planned(pair, DRAFT_LENGTH), lambda: next(calls, None) is None))
    assert [point.x for point in points] == list(range(1, len(points) + 1))
    assert all(point.runs == 2 and point.identical for point in points)
    assert len(points) + 1 < MAX_K and (points or asked == 5)


def test_sweep_has_the_same_figures_as_the_bench(pair, tmp_path):
    bench = Bench(PROMPTS, Settings([DRAFT_MODEL], [1, 3], [0.0], None, 10, 1, 0), tmp_path / "out.json")
    bench.run(pair)
    saved = json.loads((tmp_path / "out.json").read_text())
    experiment = planned(pair, DRAFT_LENGTH, {"max_new_tokens": 10})
    points = {s.x: measure_setting(pair, s) for s in experiment.settings if s.x in (1, 3, None)}
    for item in saved["summary"]:
        if item["category"] == "overall":
            point = points[item["k"]]
            assert point.alpha == pytest.approx(item["alpha_compared"]["median"])
            for figure in ("tau", "s_theory", "s_cost"):
                assert getattr(point, figure) == pytest.approx(item[figure]["median"])
    row = next(row for row in saved["rows"] if row["k"] == 3)
    assert (points[3].c, points[3].v) == (row["c"], row["v"][3])
    assert points[None].v is None


def test_point_is_not_identical_if_one_run_differs(pair, monkeypatch):
    def differing(lanes, configs, stop):
        same = configs[0].prompt == PROMPTS[0].prompt
        runs = measure(lanes, configs) or []
        return [run._replace(totals=replace(run.totals, identical=same)) for run in runs]

    monkeypatch.setattr(specdemo.lab.experiments, "measure", differing)
    assert measure_setting(pair, planned(pair, DRAFT_LENGTH).settings[0]).identical is False


@pytest.mark.parametrize("rule", ["shared-noise", "rejection"])
@pytest.mark.parametrize("name", SWEEPS)
def test_requested_settings_hold_for_all_runs_except_the_varied_one(pair, name, rule):
    request = {"k": 5, "temperature": 0.7, "rule": rule, "seed": 9, "max_new_tokens": 11}
    request |= {"drafter": "combined"}
    for setting in planned(pair, name, request).settings:
        own = [p.prompt for p in PROMPTS if name != CATEGORY or p.category == setting.label]
        assert [config.prompt for config in setting.configs] == own
        for config in setting.configs:
            assert (config.seed, config.max_new_tokens) == (9, 11)
            assert config.k == ((setting.x or AUTO) if name == DRAFT_LENGTH else 5)
            assert config.drafter == (setting.label if name == DRAFTER else "combined")
            assert config.temperature == (setting.x if name == TEMPERATURE else 0.7)
            assert config.rule == (rule if config.temperature else Rule.GREEDY)
    above = planned(pair, TEMPERATURE, {**SHORT, "rule": "greedy"}).settings[1:]
    assert {setting.configs[0].rule for setting in above} == {Rule.REJECTION}


def test_a_pair_without_a_draft_model_omits_or_refuses_what_needs_one(pair):
    alone = replace(pair, draft=None)
    labels = [[setting.label for setting in planned(of, DRAFTER).settings] for of in (pair, alone)]
    assert labels[0] == [DRAFT_MODEL, "prompt-lookup", "combined", "early-exit"]
    assert labels[1] == ["prompt-lookup", "early-exit"]
    assert planned(alone, DRAFT_LENGTH).settings[0].configs[0].drafter == "prompt-lookup"
    experiment = planned(alone, CONTRASTS)
    assert [helps.contrast.name for helps, _ in sides(experiment)] == [
        n for n in NAMES if n not in OF_THE_DRAFT
    ]
    last = replace(experiment, settings=experiment.settings[-2:])
    assert [point.side for point in measure_experiment(alone, last)] == [HELPS, HURTS]
    for name in (DRAFT_COST, "cheap-draft"):
        with pytest.raises(UserError, match="no draft model"):
            planned(alone, name)


def test_default_prompts_are_shipped_and_raw_without_a_chat_template(pair, monkeypatch):
    shipped = {prompt.prompt for prompt in builtin_prompts()}
    assert {c.prompt for c in plan_experiment(DRAFT_LENGTH, pair).settings[0].configs} < shipped
    settings = plan_experiment(CATEGORY, pair).settings
    assert [len(setting.configs) for setting in settings] == [2] * 6
    assert {config.mode for s in settings for config in s.configs} == {Mode.CHAT, Mode.RAW}
    monkeypatch.setattr(pair.tokenizer, "chat_template", None)
    assert {c.mode for s in plan_experiment(CATEGORY, pair).settings for c in s.configs} == {Mode.RAW}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("k", {}, "Unknown experiment 'k'; choose one of: draft-length"),
        (DRAFT_LENGTH, {"request": {"max_new_tokens": 0}}, "max_new_tokens must be from 1"),
        (TEMPERATURE, {"request": {"drafter": "oracle"}}, "Unknown drafter"),
        (DRAFT_QUALITY, {"request": {"drafter": "prompt-lookup"}}, "draft-model, got prompt-lookup"),
        (DRAFT_COST, {"request": {"drafter": "early-exit"}}, "draft-model, got early-exit"),
        *((THROUGHPUT, {"request": {"k": k}}, "k from 1 to 12") for k in (0, 13, "auto")),
        (DRAFT_LENGTH, {"prompts": []}, "at least one prompt"),
    ],
)
def test_bad_settings_are_refused_before_the_first_run(pair, name, options, words):
    with pytest.raises(UserError, match=words):
        planned(pair, name, **options)


def sides(experiment: Experiment):
    return zip(experiment.settings[::2], experiment.settings[1::2], strict=True)


def test_sides_differ_only_in_the_condition(pair):
    assert [contrast.group for contrast in CONDITIONS] == [BEST] * 4 + [LESS] * 4
    request = {**SHORT, "seed": 4, "k": 9, "temperature": 1.9}
    for helps, hurts in sides(planned(pair, CONTRASTS, request)):
        name = helps.contrast.name
        assert helps.ablation == NONE and helps.contrast.expected.endswith(".")
        for config in helps.configs:
            assert config.k == (2 if name == "overhead" else K)
            assert config.temperature == (0.8 if name == "different-distribution" else 0)
            assert (config.seed, config.max_new_tokens) == (4, 8)
        assert (hurts.ablation != NONE) == (name in OF_THE_DRAFT | {"parallel-verification"})
        same_prompts = [c.prompt for c in hurts.configs] == [c.prompt for c in helps.configs]
        assert same_prompts == (name != "creative-task")
        if hurts.ablation != NONE:
            assert hurts.configs == helps.configs
        if name == "overhead":
            assert hurts.configs[0].k == MAX_K
        if name == "predictable-text":
            assert (hurts.configs[0].rule, hurts.configs[0].temperature) == (Rule.REJECTION, 1.5)


def test_point_of_a_batch_follows_from_its_pass_costs(pair):
    points = list(measure_batches(pair, 4, 0.6, rows=(1, 2, 5)))
    assert [point.rows for point in points] == [1, 2, 5]
    for point in points:
        assert (point.k, point.alpha) == (4, 0.6)
        assert point.v == pytest.approx(point.verify_s / point.single_s)
        assert point.s_theory == pytest.approx(expected_tokens(0.6, 4) / (4 * point.c + point.v))
        assert point.baseline_tokens_per_s == pytest.approx(point.rows / point.single_s)
        assert point.tokens_per_s == pytest.approx(point.s_theory * point.baseline_tokens_per_s)


def test_batches_take_the_draft_models_acceptance_rate_and_stop_in_between(pair):
    stopped = False
    experiment = plan_experiment(THROUGHPUT, pair, {"k": 2})
    running = measure_experiment(pair, experiment, lambda: stopped)
    first = next(running)
    own = configs_for(pair, builtin_prompts(USUAL_PROMPTS), {"k": 2, "drafter": DRAFT_MODEL})
    assert (first.rows, first.alpha) == (1, measure_setting(pair, Setting(None, "", own)).alpha)
    stopped = True
    assert list(running) == [] == list(measure_experiment(pair, experiment, lambda: True))


@pytest.mark.slow
def test_the_built_in_pair_has_consistent_figures(builtin_pair):
    configs = configs_for(builtin_pair, builtin_prompts(1), {"k": 3, "max_new_tokens": 16})
    point, noisy = (
        measure_setting(builtin_pair, Setting(3, "k = 3", configs, ablation))
        for ablation in (NONE, Ablation(noise=1.0))
    )
    assert 0.1 < point.alpha <= 1 < point.tau <= 4 and noisy.alpha < 0.1
    assert point.identical is not False and noisy.identical is not False
    assert point.speedup == pytest.approx(point.tokens_per_s / point.baseline_tokens_per_s)
    [batch] = measure_batches(builtin_pair, 3, 0.5, rows=(2,))
    assert min(batch.single_s, batch.verify_s, batch.c, batch.s_theory) > 0


@pytest.mark.parametrize("points", [[], [POINT, NAMED], [SIDE], [BATCH, BATCH]])
def test_saved_tables_hold_every_figure(points):
    rows = [point.row() for point in points]
    content = json.loads(points_json(points, {"device": "thing"}))
    assert content == {"about": {"device": "thing"}, "points": rows}
    shown = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    assert list(csv.DictReader(io.StringIO(points_csv(points)))) == shown


def test_terminal_line_has_the_figures_and_a_dash_for_undefined_ones():
    assert all(words in str(POINT) for words in ("1.25×", "(3 runs)", "theory 1.30×"))
    assert str(SIDE).startswith("overhead") and "–" in str(replace(POINT, alpha=None))
    assert "4 × 4 tokens" in str(BATCH) and "1.04×" in str(BATCH)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_by_name_and_its_points_have_figures(pair, name):
    experiment = planned(pair, name)
    assert experiment.expected == {CONTRASTS: 16, THROUGHPUT: 5}.get(name) or len(AXES[name])
    assert (experiment.about["experiment"], experiment.about["precision"]) == (name, "fp32")
    assert experiment.title == TITLES[name] and list(TITLES) == list(EXPERIMENTS)
    if name not in SWEEPS:
        assert next(measure_experiment(pair, experiment)).row()
        return
    assert (experiment.about["prompts"], experiment.about["max_new_tokens"]) == (
        [p.prompt for p in PROMPTS],
        8,
    )
    assert [setting.x for setting in experiment.settings] == AXES[name]
    ends = experiment.settings[0], experiment.settings[-1]
    for setting, point in zip(
        ends, measure_experiment(pair, replace(experiment, settings=ends)), strict=True
    ):
        assert (point.x, point.label, point.runs) == (setting.x, setting.label, len(setting.configs))
        assert point.identical is (None if name == TEMPERATURE and point.x > 0 else True)
        assert 0 < point.speedup_q1 <= point.speedup <= point.speedup_q3
        assert point.tokens_per_s > 0 and point.baseline_tokens_per_s > 0
        assert 1 <= point.tau <= MAX_K + 1


@pytest.mark.slow
def test_the_command_writes_its_table_also_when_interrupted_and_refuses_bad_options(
    capsys, tmp_path, monkeypatch, pair
):
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: pair)
    command = ["lab", DRAFT_COST, "--limit", "1", "--max-new-tokens", "4", "--k", "2", "--out"]
    assert main([*command, str(tmp_path / "out.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and "16× the steps" in lines[-1]
    with (tmp_path / "out.csv").open(encoding="utf-8") as table:
        assert [float(row["x"]) for row in csv.DictReader(table)] == list(REPEATS)

    def interrupted(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments)
        return measure(*arguments)

    calls = []
    monkeypatch.setattr(specdemo.lab.experiments, "measure", interrupted)
    assert main([*command, str(tmp_path / "out.json")]) == 130
    assert [point["x"] for point in json.loads((tmp_path / "out.json").read_text())["points"]] == [1, 2]
    for arguments, words in {
        ("lab", DRAFT_COST, "--out", "table.txt"): "ends in .json or .csv",
        ("lab", DRAFT_COST, "--limit", "0"): "--limit must be at least 1",
        ("lab", THROUGHPUT, "--k", "auto"): "needs a fixed draft length k",
    }.items():
        assert main(arguments) == 2
        assert words in capsys.readouterr().err.splitlines()[-1]


def test_a_row_shows_the_speedup_and_both_rates_of_one_run(pair, monkeypatch):
    rates = {PROMPTS[0].prompt: (60.0, 50.0), PROMPTS[1].prompt: (30.0, 20.0)}

    def measured(lanes, configs, stop):
        own, alone = rates[configs[0].prompt]
        made = {"speedup": own / alone, "tokens_per_s": own, "baseline_tokens_per_s": alone}
        return [run._replace(totals=replace(run.totals, **made)) for run in measure(lanes, configs)]

    monkeypatch.setattr(specdemo.lab.experiments, "measure", measured)
    point = measure_setting(pair, planned(pair, DRAFT_LENGTH).settings[0])
    assert (point.speedup, point.tokens_per_s, point.baseline_tokens_per_s) == (1.2, 60.0, 50.0)
    assert point.speedup_q1 <= point.speedup <= point.speedup_q3


def test_runs_of_a_few_tokens_have_no_speedup(pair):
    point = measure_setting(pair, planned(pair, DRAFT_LENGTH, {"max_new_tokens": 7}).settings[0])
    assert (point.speedup, point.tokens_per_s, point.speedup_q1) == (None, None, None)
    assert point.alpha is not None
