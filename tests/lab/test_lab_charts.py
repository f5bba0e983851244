"""The lab's charts: their figures in both themes, distinguishable without colour."""

import re
from dataclasses import asdict, replace
from typing import Any

import plotly.graph_objects as go
import pytest

from specdemo.charts.palette import THEMES
from specdemo.lab.charts import contrast_chart, oracle_chart, sweep_chart, theory_figure, throughput_chart
from specdemo.lab.points import HELPS, HURTS, ContrastPoint, SweepPoint, ThroughputPoint
from specdemo.records.theory import OracleLength, theory_surface

V = (1.0, 1.0, 1.05, 1.1, 1.3, 1.35)
SURFACE = theory_surface(0.1, V)
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
    "theory": {theme: theory_figure(theme, SURFACE, (0.4, 3), (0.6, 2.5)) for theme in THEMES},
    "sweep": sweep_chart(POINTS, "Draft length", "draft length k", SPOTS),
    "contrast": contrast_chart(SIDES),
    "throughput": throughput_chart(BATCHES),
    "oracle": oracle_chart(OracleLength((0, 3, 0, 1, 3), (False, True, False, False, False), 1.1, 1.4)),
}


@pytest.fixture(params=THEMES)
def charts(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """The charts of a theme."""
    return {name: themed[request.param] for name, themed in DRAWN.items()}


def by_uid(figure: dict[str, Any]) -> dict[str, Any]:
    """uid -> trace."""
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


def test_the_theory_has_break_even_best_length_and_the_run(charts):
    traces = by_uid(charts["theory"])
    surface = traces["theory-surface"]
    assert surface["z"] == [list(row) for row in SURFACE.speedups]
    assert (surface["x"], surface["y"]) == (list(SURFACE.alphas), list(SURFACE.ks))
    even, best, run = traces["break-even"], traces["best"], traces["run"]
    assert list(zip(even["x"], even["y"], strict=True)) == list(
        zip(SURFACE.break_even, SURFACE.ks, strict=True)
    )
    paying = [(alpha, k) for alpha, k in zip(SURFACE.alphas, SURFACE.best, strict=True) if k > 0]
    assert list(zip(best["x"], best["y"], strict=True)) == paying
    assert (run["x"], run["y"]) == ([0.6], [2.5])
    assert (traces["chosen"]["x"], traces["chosen"]["y"]) == ([0.4], [3])
    assert run["marker"]["symbol"] != traces["chosen"]["marker"]["symbol"]
    assert even["line"]["dash"] == "dash" != best["line"].get("dash")


def test_break_even_has_the_background_colour(charts):
    surface = by_uid(charts["theory"])["theory-surface"]
    middle, colour = surface["colorscale"][1]
    assert middle * surface["zmax"] == pytest.approx(1.0)
    assert colour == charts["theory"]["layout"]["plot_bgcolor"]


def test_theory_that_never_pays_can_be_drawn_without_a_run():
    figure = theory_figure("light", theory_surface(4.0, V), (0.4, 3))
    assert by_uid(figure)["break-even"]["x"] == [] == by_uid(figure)["best"]["x"]
    assert by_uid(figure)["run"]["visible"] is False
    go.Figure(data=figure["data"], layout=figure["layout"])


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
