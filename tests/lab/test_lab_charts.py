"""The lab's charts in both themes, distinguishable without colour, and its answers for a finished run."""

import json
import re
import subprocess
from dataclasses import asdict, replace
from typing import Any

import plotly.graph_objects as go
import pytest
from helpers.node import node

from specdemo.charts.palette import THEMES
from specdemo.lab.answers import run_answer
from specdemo.lab.charts import (
    contrast_chart,
    oracle_chart,
    sweep_chart,
    theory_chart,
    throughput_chart,
    what_if_chart,
)
from specdemo.lab.points import HELPS, HURTS, ContrastPoint, SweepPoint, ThroughputPoint
from specdemo.records import recordings
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.theory import (
    OracleLength,
    RoundShape,
    best_length,
    break_even_alpha,
    expected_tokens,
    oracle_length,
    theoretical_speedup,
)
from specdemo.records.trace import SPECULATIVE, Run
from specdemo.records.what_if import accepted_by_token
from specdemo.ui.component import STATIC

POINT = SweepPoint(1.0, "k = 1", 3, 1.25, 1.0, 1.5, 50.0, 40.0, 0.5, 1.75, 0.05, 1.1, 1.3, 1.2, True)
POINTS = [
    POINT,
    replace(POINT, x=2.0, label="k = 2", speedup=1.5, speedup_q1=1.4, speedup_q3=1.9, alpha=0.4),
    replace(POINT, x=None, label="auto", speedup=1.6, alpha=None),
]
SPOTS = [(point.x, point.label) for point in POINTS] + [(None, "later")]
SIDES = [
    ContrastPoint(name, f"when {name}", side, replace(POINT, label=f"{name} {side}", runs=runs))
    for name, side, runs in [("a", HELPS, 2), ("a", HURTS, 2), ("b", HELPS, 2), ("b", HURTS, 0)]
]
BATCHES = [ThroughputPoint(n, 3, 0.5, 0.01, 0.02, 1.0 + n / 10, 0.1, 2.0 / n, 1.0, 1.0) for n in (1, 2, 8)]
DRAWN = {
    "theory": theory_chart(),
    "what-if": what_if_chart(),
    "sweep": sweep_chart(POINTS, "Draft length", "draft length k", SPOTS),
    "contrast": contrast_chart(SIDES),
    "throughput": throughput_chart(BATCHES),
    "oracle": oracle_chart(OracleLength((0, 3, 0, 1, 3), (False, True, False, False, False), 1.1, 1.4)),
}


@pytest.fixture(params=THEMES)
def charts(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return {name: themed[request.param] for name, themed in DRAWN.items()}


def by_uid(figure: dict[str, Any]) -> dict[str, Any]:
    return {trace["uid"]: trace for trace in figure["data"]}


def test_themes_differ_in_colours_of_the_palette_only():
    colour = re.compile(r"#[0-9a-f]{6}(?:[0-9a-f]{2})?\b")
    for themed in DRAWN.values():
        assert colour.sub("", str(themed["light"])) == colour.sub("", str(themed["dark"]))
        for theme, figure in themed.items():
            used = {found[:7] for found in colour.findall(str(figure))}
            assert used and used <= set(asdict(THEMES[theme]).values())


def test_text_and_lines_are_large_enough_for_a_projector(charts):
    for figure in charts.values():
        assert figure["layout"]["font"]["size"] >= 15 and figure["layout"]["title"]["text"]
        assert all(size >= 15 for size in map(int, re.findall(r"'font': {[^}]*'size': (\d+)", str(figure))))
        assert all(width >= 2 for width in map(int, re.findall(r"'width': (\d+)", str(figure))))


FILL = """
import { readFileSync } from "node:fs";
const theory = await import(`${process.argv[1]}/theory.js`);
const { fillTheory } = await import(`${process.argv[1]}/theory_chart.js`);
const { figure, point, run, maxK } = JSON.parse(readFileSync(0));
fillTheory(figure, point, run, maxK);
const { speedup, k } = theory.bestDraftLength(point, maxK);
const own = [theory.theoreticalSpeedup(point), theory.expectedTokens(point), theory.roundCost(point)];
const figures = [...own, speedup, k];
console.log(JSON.stringify({ figures, figure }));
"""


def filled(point: dict[str, float], run: dict[str, float] | None = None) -> dict[str, Any]:
    given = json.dumps({"figure": theory_chart()["light"], "point": point, "run": run, "maxK": MAX_K})
    command = [node(), "--input-type=module", "-e", FILL, (STATIC / "lab").as_uri()]
    return json.loads(subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("alpha", "k", "c", "growth"),
    [(0.6, 4, 0.1, 0.05), (1.0, 12, 0.0, 0.0), (0.0, 1, 1.0, 1.0), (0.4, 3, 1.0, 1.0)],
)
def test_the_theory_on_the_page_is_that_of_the_records(alpha, k, c, growth):
    answer = filled({"alpha": alpha, "k": k, "c": c, "growth": growth}, {"alpha": 0.6, "k": 2.5})
    v = [1.0 + growth * drafted for drafted in range(MAX_K + 1)]
    shapes = [RoundShape(length, length * c, v[length]) for length in range(MAX_K + 1)]
    best = best_length(alpha, c, v)
    assert answer["figures"] == pytest.approx(
        [
            theoretical_speedup(alpha, shapes[k]),
            expected_tokens(alpha, k),
            shapes[k].draft_cost + shapes[k].verify_cost,
            theoretical_speedup(alpha, shapes[best]),
            best,
        ]
    )
    traces = by_uid(answer["figure"])
    surface = traces["theory-surface"]
    alphas = surface["x"]
    assert (alphas[0], alphas[-1], len(alphas)) == (0, 1, 51) and surface["y"] == list(range(1, MAX_K + 1))
    for shape, row in zip(shapes[1:], surface["z"], strict=True):
        assert row == pytest.approx([theoretical_speedup(one, shape) for one in alphas])
    middle, colour = surface["colorscale"][1]
    assert middle * surface["zmax"] == pytest.approx(1.0)
    assert colour == answer["figure"]["layout"]["plot_bgcolor"]
    best = [(one, length) for one in alphas if (length := best_length(one, c, v))]
    evens = [(even, shape.k) for shape in shapes[1:] if (even := break_even_alpha(shape)) is not None]
    for uid, spots in {
        "best": best,
        "break-even": evens,
        "chosen": [(alpha, k)],
        "run": [(0.6, 2.5)],
    }.items():
        assert traces[uid]["x"] == pytest.approx([one for one, _ in spots])
        assert traces[uid]["y"] == [length for _, length in spots]
    assert traces["run"]["marker"]["symbol"] != traces["chosen"]["marker"]["symbol"]
    go.Figure(data=answer["figure"]["data"], layout=answer["figure"]["layout"])


def test_theory_without_a_run_has_no_star():
    point = {"alpha": 0.4, "k": 3, "c": 1.0, "growth": 1.0}
    assert by_uid(filled(point)["figure"])["run"]["visible"] is False
    assert by_uid(filled(point, point)["figure"])["run"]["visible"] is True


def test_a_sweep_shows_speedup_quartiles_theory_and_acceptance(charts):
    figure = charts["sweep"]
    traces = by_uid(figure)
    assert (traces["speedup"]["x"], traces["speedup"]["y"]) == ([1, 2], [1.25, 1.5])
    assert traces["speedup"]["error_y"]["array"] == pytest.approx([0.25, 0.4])
    assert traces["speedup"]["error_y"]["arrayminus"] == pytest.approx([0.25, 0.1])
    assert (traces["speedup-named"]["x"], traces["speedup-named"]["y"]) == ([3], [1.6])
    assert (traces["alpha"]["y"], traces["alpha"]["yaxis"]) == ([0.5, 0.4], "y2")
    assert traces["alpha-named"]["y"] == [None]
    assert traces["theory"]["y"] == [1.3, 1.3] and traces["theory-named"]["y"] == [1.3]
    assert traces["theory"]["line"]["dash"] == "dot"
    symbols = [
        traces[uid]["marker"]["symbol"] for uid in ("speedup", "theory", "speedup-named", "theory-named")
    ]
    assert symbols == ["circle", "circle-open", "diamond", "diamond-open"]
    assert [uid for uid, trace in traces.items() if trace["showlegend"]] == ["speedup", "theory"]
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "auto", "later"]
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < 1 and high > 4, "room for what is not measured yet"
    assert figure["layout"]["xaxis"]["title"]["text"] == "draft length k"
    (line,) = figure["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 1


def test_named_points_follow_one_another():
    named = [replace(POINT, x=None, label=label) for label in ("code", "lists")]
    figure = sweep_chart(named, "Kind of text", "", [(None, "code"), (None, "lists")])["dark"]
    traces = by_uid(figure)
    assert traces["speedup-named"]["x"] == [1, 2] and traces["speedup-named"]["mode"] == "markers"
    assert [uid for uid, trace in traces.items() if trace["showlegend"]] == ["speedup-named", "theory-named"]
    assert figure["layout"]["xaxis"]["ticktext"] == ["code", "lists"]


def test_charts_without_points_can_be_drawn():
    for themed in (sweep_chart([], "Title", "axis", []), contrast_chart([]), throughput_chart([])):
        for figure in themed.values():
            go.Figure(data=figure["data"], layout=figure["layout"])


def test_contrasts_are_pairs_of_bars(charts):
    traces = by_uid(charts["contrast"])
    for side in (HELPS, HURTS):
        assert traces[side]["y"] == ["when a", "when b"] and traces[side]["x"] == [1.25, 1.25]
    assert traces[HURTS]["text"] == ["1.25×", "1.25×"]
    assert traces[HELPS]["customdata"] == ["a helps", "b helps"]
    patterns = {traces[side]["marker"]["pattern"]["shape"] for side in (HELPS, HURTS)}
    assert len(patterns) == 2
    assert charts["contrast"]["layout"]["barmode"] == "group"
    (line,) = charts["contrast"]["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 1


def test_throughput_shows_speedup_and_verification_cost_by_batch_size(charts):
    figure = charts["throughput"]
    traces = by_uid(figure)
    assert (traces["batch-speedup"]["x"], traces["batch-speedup"]["y"]) == ([1, 2, 8], [2.0, 1.0, 0.25])
    assert traces["batch-v"]["y"] == [1.1, 1.2, 1.8] and traces["batch-v"]["yaxis"] == "y2"
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "8"]
    assert any("v(4)" in note["text"] for note in figure["layout"]["annotations"])


def test_the_oracle_counts_rounds_by_their_best_length(charts):
    traces = by_uid(charts["oracle"])
    assert traces["exact"]["x"] == traces["whole"]["x"] == [0, 1, 2, 3]
    assert (traces["exact"]["y"], traces["whole"]["y"]) == ([2, 1, 0, 1], [0, 0, 0, 1])
    assert traces["exact"]["marker"]["pattern"]["shape"] != traces["whole"]["marker"]["pattern"]["shape"]


@pytest.fixture(scope="module")
def run() -> Run:
    return recordings.load("email")


def test_point_of_a_run_has_the_theory_of_its_totals(run):
    point = run_answer(run)["point"]
    assert (point["alpha"], point["speedup"]) == (run.totals["alpha_compared"], run.totals["speedup"])
    again = RoundShape(point["k"], point["k"] * point["c"], 1 + point["k"] * point["growth"])
    assert theoretical_speedup(point["alpha"], again) == pytest.approx(run.totals["s_theory"])


def test_oracle_of_a_run_has_its_cost_and_its_best_speedup(run):
    answer = run_answer(run)["oracle"]
    oracle = oracle_length(run.lanes[SPECULATIVE].rounds, run.calibration)
    assert (answer["s_cost"], answer["s_oracle"]) == (oracle.s_cost, oracle.s_oracle)
    assert answer["s_oracle"] > answer["s_cost"] == pytest.approx(run.totals["s_cost"])
    assert f"{oracle.lengths.count(0)} of {len(oracle.lengths)} rounds" in answer["sentence"]
    assert f"{oracle.open_ended} drafts were accepted in full" in answer["sentence"]
    rounds = sum(sum(trace["y"]) for trace in answer["chart"]["light"]["data"])
    assert rounds == len(oracle.lengths)


def test_what_if_of_a_run_has_its_lengths_and_the_time_of_the_target_alone(run):
    answer = run_answer(run)["what_if"]
    assert [length["k"] for length in answer["lengths"]] == list(range(13))
    assert answer["unknown"] == accepted_by_token(run.lanes[SPECULATIVE].rounds).count(None)
    seconds = sum(count * sum(times) for count, *times in answer["lengths"][0]["expected"])
    assert answer["alone_s"] / seconds == pytest.approx(run.totals["speedup"])
    alone = run_answer(replace(run, lanes={SPECULATIVE: run.lanes[SPECULATIVE]}))["what_if"]
    assert alone["alone_s"] == pytest.approx(64 * run.calibration.step_s)


def test_a_run_without_measured_costs_is_refused(run):
    with pytest.raises(UserError, match="measured pass costs"):
        run_answer(replace(run, calibration=None))


def test_a_run_of_a_few_tokens_has_no_speedup():
    short = recordings.load("editor")
    answer = run_answer(short)
    assert answer["point"]["speedup"] is None
    assert answer["what_if"]["alone_s"] == pytest.approx(6 * short.calibration.step_s)
