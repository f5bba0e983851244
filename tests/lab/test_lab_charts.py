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
from specdemo.charts.stage import skeletons
from specdemo.lab.answers import run_answer
from specdemo.lab.charts import (
    bounds_chart,
    contrast_chart,
    sweep_chart,
    theory_chart,
    throughput_chart,
    what_if_chart,
)
from specdemo.lab.points import HELPS, HURTS, ContrastPoint, SweepPoint, ThroughputPoint
from specdemo.records import recordings
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.theory import (
    RoundShape,
    best_length,
    break_even_alpha,
    expected_tokens,
    oracle_length,
    theoretical_speedup,
)
from specdemo.records.trace import SPECULATIVE
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
STAGE = skeletons()
DRAWN = {
    "theory": theory_chart(),
    "what-if": what_if_chart(),
    "sweep": sweep_chart(POINTS, "Draft length", "draft length k", SPOTS),
    "contrast": contrast_chart(SIDES),
    "throughput": throughput_chart(BATCHES),
    "bounds": bounds_chart(1.1, 1.4, [1.8, 2.4, 2.9], [2.0, 2.9, 3.6]),
    **{name: {theme: STAGE[theme][name] for theme in THEMES} for name in STAGE["light"]},
}
EMPTY = (sweep_chart([], "Title", "axis", []), contrast_chart([]), throughput_chart([]))


def test_every_chart_is_legible_on_a_projector_in_colours_of_the_palette_and_can_be_empty():
    colour = re.compile(r"#[0-9a-f]{6}(?:[0-9a-f]{2})?\b")
    for themed in DRAWN.values():
        assert colour.sub("", str(themed["light"])) == colour.sub("", str(themed["dark"]))
        for theme, figure in themed.items():
            used = {found[:7] for found in colour.findall(str(figure))}
            assert used and used <= set(asdict(THEMES[theme]).values())
        assert figure["layout"]["font"]["size"] >= 15 and figure["layout"]["title"]["text"]
        assert all(size >= 15 for size in map(int, re.findall(r"'font': {[^}]*'size': (\d+)", str(figure))))
        assert all(width >= 2 for width in map(int, re.findall(r"'width': (\d+)", str(figure))))
    for figure in (figure for themed in EMPTY for figure in themed.values()):
        go.Figure(data=figure["data"], layout=figure["layout"])


def by_uid(figure: dict[str, Any]) -> dict[str, Any]:
    return {trace["uid"]: trace for trace in figure["data"]}


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
    return json.loads(
        subprocess.run(command, input=given, capture_output=True, encoding="utf-8", check=True).stdout
    )


@pytest.mark.parametrize(
    ("alpha", "k", "c", "growth"), [(0.6, 4, 0.1, 0.05), (1.0, 12, 0.0, 0.0), (0.0, 1, 1.0, 1.0)]
)
def test_the_theory_on_the_page_is_that_of_the_records(alpha, k, c, growth):
    answer = filled({"alpha": alpha, "k": k, "c": c, "growth": growth}, {"alpha": 0.6, "k": 2.5})
    v = [1.0 + growth * drafted for drafted in range(MAX_K + 1)]
    shapes = [RoundShape(length, length * c, v[length]) for length in range(MAX_K + 1)]
    best = best_length(alpha, c, v)
    own = [theoretical_speedup(alpha, shapes[k]), expected_tokens(alpha, k)]
    own.append(shapes[k].draft_cost + shapes[k].verify_cost)
    assert answer["figures"] == pytest.approx([*own, theoretical_speedup(alpha, shapes[best]), best])
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
    shown = {"best": best, "break-even": evens, "chosen": [(alpha, k)], "run": [(0.6, 2.5)]}
    for uid, spots in shown.items():
        assert traces[uid]["x"] == pytest.approx([one for one, _ in spots])
        assert traces[uid]["y"] == [length for _, length in spots]
    assert traces["run"]["marker"]["symbol"] != traces["chosen"]["marker"]["symbol"]
    assert traces["run"]["visible"] is True
    go.Figure(data=answer["figure"]["data"], layout=answer["figure"]["layout"])
    without = by_uid(filled({"alpha": alpha, "k": k, "c": c, "growth": growth})["figure"])
    assert without["run"]["visible"] is False


def test_a_sweep_shows_speedup_quartiles_theory_and_acceptance():
    figure = DRAWN["sweep"]["light"]
    traces, axis = by_uid(figure), figure["layout"]["xaxis"]
    assert (traces["speedup"]["x"], traces["speedup"]["y"]) == ([1, 2], [1.25, 1.5])
    assert traces["speedup"]["error_y"]["array"] == pytest.approx([0.25, 0.4])
    assert traces["speedup"]["error_y"]["arrayminus"] == pytest.approx([0.25, 0.1])
    assert (traces["speedup-named"]["x"], traces["speedup-named"]["y"]) == ([3], [1.6])
    assert (traces["alpha"]["y"], traces["alpha"]["yaxis"]) == ([0.5, 0.4], "y2")
    assert traces["alpha-named"]["y"] == [None]
    assert traces["theory"]["y"] == [1.3, 1.3] and traces["theory-named"]["y"] == [1.3]
    assert traces["theory"]["line"]["dash"] == "dot"
    curves = ("speedup", "theory", "speedup-named", "theory-named")
    assert len({traces[uid]["marker"]["symbol"] for uid in curves}) == 4
    assert [uid for uid, trace in traces.items() if trace["showlegend"]] == ["speedup", "theory"]
    assert axis["ticktext"] == ["1", "2", "auto", "later"] and axis["title"]["text"] == "draft length k"
    assert axis["range"][0] < 1 and axis["range"][1] > 4, "room for what is not measured yet"
    (line,) = figure["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 1


def test_named_points_follow_one_another():
    named = [replace(POINT, x=None, label=label) for label in ("code", "lists")]
    figure = sweep_chart(named, "Kind of text", "", [(None, "code"), (None, "lists")])["dark"]
    shown = [trace for trace in figure["data"] if trace["showlegend"]]
    assert [trace["uid"] for trace in shown] == ["speedup-named", "theory-named"]
    assert (shown[0]["x"], shown[0]["mode"]) == ([1, 2], "markers")
    assert figure["layout"]["xaxis"]["ticktext"] == ["code", "lists"]


def test_contrasts_are_pairs_of_bars():
    figure = DRAWN["contrast"]["light"]
    traces = by_uid(figure)
    for side in (HELPS, HURTS):
        assert traces[side]["y"] == ["when a", "when b"] and traces[side]["x"] == [1.25, 1.25]
    assert traces[HURTS]["text"] == ["1.25×", "1.25×"]
    assert traces[HELPS]["customdata"] == ["a helps", "b helps"]
    assert len({traces[side]["marker"]["pattern"]["shape"] for side in (HELPS, HURTS)}) == 2
    assert figure["layout"]["barmode"] == "group"
    (line,) = figure["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 1


def test_throughput_shows_speedup_and_verification_cost_by_batch_size():
    figure = DRAWN["throughput"]["light"]
    traces = by_uid(figure)
    assert (traces["batch-speedup"]["x"], traces["batch-speedup"]["y"]) == ([1, 2, 8], [2.0, 1.0, 0.25])
    assert traces["batch-v"]["y"] == [1.1, 1.2, 1.8] and traces["batch-v"]["yaxis"] == "y2"
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "8"]
    assert any("v(4)" in note["text"] for note in figure["layout"]["annotations"])


def test_the_bounds_of_better_drafts_are_drawn_by_draft_length():
    drawn = by_uid(DRAWN["bounds"]["light"])
    assert [(uid, trace["y"]) for uid, trace in drawn.items()] == [
        ("free", [2.0, 2.9, 3.6]),
        ("perfect", [1.8, 2.4, 2.9]),
        ("best", [1.4] * 3),
        ("measured", [1.1] * 3),
    ]
    assert all(trace["x"] == [1, 2, 3] for trace in drawn.values())
    assert len({trace["line"].get("dash") for trace in drawn.values()}) == 4


def test_answers_for_a_run_follow_from_its_totals_and_rounds():
    run = recordings.load("email")
    rounds, answer = run.lanes[SPECULATIVE].rounds, run_answer(run)
    point, best, what_if = answer["point"], answer["oracle"], answer["what_if"]
    assert (point["alpha"], point["speedup"]) == (run.totals["alpha_compared"], run.totals["speedup"])
    again = RoundShape(point["k"], point["k"] * point["c"], 1 + point["k"] * point["growth"])
    assert theoretical_speedup(point["alpha"], again) == pytest.approx(run.totals["s_theory"])
    oracle = oracle_length(rounds, run.calibration)
    assert (best["s_cost"], best["s_oracle"]) == (oracle.s_cost, oracle.s_oracle)
    assert best["s_oracle"] > best["s_cost"] == pytest.approx(run.totals["s_cost"])
    assert f"{oracle.lengths.count(0)} of {len(oracle.lengths)} rounds" in best["sentence"]
    assert f"{oracle.open_ended} drafts were accepted in full" in best["sentence"]
    v, drawn = run.calibration.v, by_uid(best["chart"]["light"])
    assert drawn["perfect"]["y"] == pytest.approx(
        [(k + 1) / (k * point["c"] + v[k]) for k in range(1, len(v))]
    )
    assert drawn["free"]["y"] == pytest.approx([(k + 1) / v[k] for k in range(1, len(v))])
    assert best["s_cost"] < best["s_oracle"] < best["s_perfect"] == drawn["perfect"]["y"][best["k"] - 1]
    assert [length["k"] for length in what_if["lengths"]] == list(range(13))
    assert what_if["unknown"] == accepted_by_token(rounds).count(None)
    seconds = sum(count * sum(times) for count, *times in what_if["lengths"][0]["expected"])
    assert what_if["alone_s"] / seconds == pytest.approx(run.totals["speedup"])
    alone = run_answer(replace(run, lanes={SPECULATIVE: run.lanes[SPECULATIVE]}))["what_if"]
    assert alone["alone_s"] == pytest.approx(64 * run.calibration.step_s)
    with pytest.raises(UserError, match="measured pass costs"):
        run_answer(replace(run, calibration=None))


def test_a_run_of_a_few_tokens_has_no_speedup():
    short = recordings.load("editor")
    answer = run_answer(short)
    assert answer["point"]["speedup"] is None
    assert answer["what_if"]["alone_s"] == pytest.approx(6 * short.calibration.step_s)
