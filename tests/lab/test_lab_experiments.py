"""Saved tables, every experiment by name, and the command."""

import csv
import dataclasses
import io
import json

import pytest
from helpers.tiny import tiny_pair

import specdemo.lab.experiments
import specdemo.pairs.load
from specdemo.bench.prompts import Prompt
from specdemo.cli.main import main
from specdemo.lab.experiments import measure_plan, plan_experiment
from specdemo.lab.points import (
    CONTRASTS,
    DRAFT_COST,
    EXPERIMENTS,
    HURTS,
    SWEEPS,
    THROUGHPUT,
    TITLES,
    ContrastPoint,
    SweepPoint,
    ThroughputPoint,
    points_csv,
    points_json,
)

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
PROMPTS = [Prompt("p", "a", "raw", "some text")]
SHORT = {"max_new_tokens": 4}
POINT = SweepPoint(
    0.5, 'half, "noisy"', 3, 1.25, 1.0, 1.5, 50.5, 40.25, 0.5, 1.75, 0.05, 1.1, 1.3, None, True
)
NAMED = dataclasses.replace(POINT, x=None, label="Ärger", v=None, identical=None)
SIDE = ContrastPoint("overhead", "it costs", HURTS, NAMED)
BATCH = ThroughputPoint(4, 3, 0.5, 0.01, 0.015, 1.5, 0.1, 1.04, 400.0, 416.0)


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture
def loaded(monkeypatch, pair):
    """The command line with a tiny pair in place of the built-in one."""
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: pair)


def read_csv(text: str) -> list[dict[str, str | None]]:
    """Lines by column, empty cells as None."""
    return [{k: v or None for k, v in row.items()} for row in csv.DictReader(io.StringIO(text))]


@pytest.mark.parametrize("points", [[POINT, NAMED], [SIDE], [BATCH, BATCH]])
def test_saved_tables_hold_every_figure(points):
    rows = [point.row() for point in points]
    content = json.loads(points_json(points, {"device": "thing"}))
    assert content == {"about": {"device": "thing"}, "points": rows}
    assert read_csv(points_csv(points)) == [
        {name: None if value is None else str(value) for name, value in row.items()} for row in rows
    ]
    assert set(rows[0]) >= {"speedup", "alpha"} or points[0] is BATCH


def test_table_without_points_is_valid():
    assert points_csv([]).strip() == ""
    assert json.loads(points_json([], {}))["points"] == []


def test_terminal_line_has_the_figures_and_a_dash_for_undefined_ones():
    assert "1.25×" in str(POINT) and "(3 runs)" in str(POINT)
    assert "theory 1.30×" in str(POINT)
    assert str(SIDE).startswith("overhead")
    assert "–" in str(dataclasses.replace(POINT, alpha=None))
    assert "4 × 4 tokens" in str(BATCH) and "1.04×" in str(BATCH)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_by_name(pair, name):
    planned = plan_experiment(name, pair, SHORT, PROMPTS)
    point = next(measure_plan(pair, planned))
    assert planned.expected == {CONTRASTS: 16, THROUGHPUT: 5}.get(name, planned.expected) > 0
    assert (planned.about["experiment"], planned.about["precision"]) == (name, "fp32")
    assert planned.title == TITLES[name] and list(TITLES) == list(EXPERIMENTS)
    if name in SWEEPS:
        assert planned.about["prompts"] == ["some text"] and planned.about["max_new_tokens"] == 4
    assert json.loads(points_json([point], planned.about))["points"] == [point.row()]


@pytest.mark.slow
@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_the_command_prints_every_point_and_writes_the_table(capsys, tmp_path, kind):
    out = tmp_path / f"out.{kind}"
    arguments = ["lab", DRAFT_COST, "--limit", "1", "--max-new-tokens", "4", "--k", "2", "--out", str(out)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and "16× the steps" in lines[-1]
    text = out.read_text(encoding="utf-8")
    rows = read_csv(text) if kind == "csv" else json.loads(text)["points"]
    assert [float(row["x"]) for row in rows] == [1, 2, 3, 4, 6, 8, 12, 16]


@pytest.mark.usefixtures("loaded")
def test_interrupted_command_saves_the_finished_points(capsys, tmp_path, monkeypatch):
    measure, calls = specdemo.lab.experiments.measure, []

    def interrupted(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments)
        return measure(*arguments)

    monkeypatch.setattr(specdemo.lab.experiments, "measure", interrupted)
    out = tmp_path / "out.json"
    assert main(["lab", DRAFT_COST, "--limit", "1", "--max-new-tokens", "4", "--out", str(out)]) == 130
    assert [point["x"] for point in json.loads(out.read_text())["points"]] == [1, 2]


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DRAFT_COST, "--out", "table.txt"], "ends in .json or .csv"),
        ([DRAFT_COST, "--limit", "0"], "--limit must be at least 1"),
        ([DRAFT_COST, "--drafter", "prompt-lookup"], "choose draft-model instead of prompt-lookup"),
        ([THROUGHPUT, "--k", "auto"], "needs a fixed k"),
    ],
)
def test_bad_options_get_one_sentence(capsys, arguments, words):
    assert main(["lab", *arguments]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specdemo: ") and words in message
