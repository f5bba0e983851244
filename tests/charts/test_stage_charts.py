"""The stage's charts: complete, empty, readable, the same in both themes, legible without color."""

import re
from typing import Any

import plotly.graph_objects as go
import pytest

from specdemo.charts.stage import NO_BASELINE, SELECTED, skeletons

# The traces that the browser fills, by chart; also in ``tests/ui/js/plot_contents.test.js``.
FILLED = {
    "rates": ["alpha", "tau"],
    "speedup": ["speedup", "theory", "speedup-lead"],
    "race": ["speculative", "speculative-lead", "baseline", "baseline-lead", "draft", "draft-lead"],
    "time": ["drafting", "verifying", "rest"],
    "position": ["position"],
    "ranks": ["ranks"],
    "entropy": ["entropy"],
}
LIVE = "race"  # the browser sets its axes
Figure = dict[str, Any]


@pytest.fixture
def charts() -> dict[str, Figure]:
    return skeletons()["light"]


def by_uid(figure: Figure) -> dict[str, Any]:
    return {trace["uid"]: trace for trace in figure["data"]}


def axes(figure: Figure) -> dict[str, Any]:
    return {name: part for name, part in figure["layout"].items() if re.fullmatch(r"[xy]axis\d*", name)}


def test_each_chart_has_the_traces_the_browser_fills_each_once(charts):
    uids = {name: [trace["uid"] for trace in figure["data"]] for name, figure in charts.items()}
    rooms = {name: [] if name == LIVE else ["room"] for name in FILLED}
    assert uids == {name: [*filled, *rooms[name]] for name, filled in FILLED.items()}
    everywhere = [uid for filled in FILLED.values() for uid in filled]
    assert len(everywhere) == len(set(everywhere))


def test_no_chart_shows_a_point_before_a_run(charts):
    for name, figure in charts.items():
        for uid in FILLED[name]:
            assert set(by_uid(figure)[uid]["x"]) <= {None, 0}, (name, uid)
    for name in FILLED.keys() - {LIVE}:
        room = by_uid(charts[name])["room"]
        assert (room["mode"], room["hoverinfo"], room["showlegend"]) == ("none", "skip", False)


def test_lines_over_time_are_thick(charts):
    for name in ("rates", "speedup", "race"):
        lines = [trace for trace in charts[name]["data"] if trace["mode"] == "lines"]
        assert lines and all(line["line"]["width"] >= 4 for line in lines)


def test_every_axis_has_a_unit(charts):
    units = {"round", "tokens", "decode seconds", "position in the draft", "rank in the draft's list"}
    units |= {"rejected tokens", "target entropy in bits, at least"}
    for name, figure in charts.items():
        for axis, part in axes(figure).items():
            if (name, axis) != ("time", "yaxis"):  # the names of the lanes
                title = part["title"]["text"]
                assert title in units or "ticksuffix" in part or "%" in part.get("tickformat", ""), title


def test_traces_of_a_chart_differ_without_color(charts):
    race, time = (by_uid(charts[name]) for name in ("race", "time"))
    lanes = ("speculative", "baseline", "draft")
    assert len({race[lane]["line"]["dash"] for lane in lanes}) == 3
    assert len({race[f"{lane}-lead"]["marker"]["symbol"] for lane in lanes}) == 3
    assert len({time[uid]["marker"]["pattern"]["shape"] for uid in FILLED["time"]}) == 3


def test_margins_of_the_live_chart_are_fixed(charts):
    assert charts[LIVE]["layout"]["margin"]["autoexpand"] is False
    assert all(axis["automargin"] is False for axis in axes(charts[LIVE]).values())


def test_speedup_has_a_line_at_one_and_a_hidden_note_and_charts_over_rounds_a_hidden_band(charts):
    layout = charts["speedup"]["layout"]
    (one,) = (shape for shape in layout["shapes"] if shape["type"] == "line")
    assert one["y0"] == one["y1"] == 1
    (note,) = layout["annotations"]
    assert (note["name"], note["visible"]) == (NO_BASELINE, False)
    shapes = [(name, shape) for name in FILLED for shape in charts[name]["layout"].get("shapes", [])]
    bands = {name: shape for name, shape in shapes if shape.get("name") == SELECTED}
    assert bands.keys() == {"rates", "speedup"}
    for band in bands.values():
        assert (band["visible"], band["xref"], band["yref"]) == (False, "x", "paper")


def test_changes_for_narrow_and_dense_charts_are_valid_in_plotly(charts):
    assert [name for name, figure in charts.items() if figure["dense"]] == ["position"]
    for figure in charts.values():
        assert figure["dense"].keys() <= by_uid(figure).keys()
        for uid, look in figure["dense"].items():
            go.Figure(data=[{"type": by_uid(figure)[uid]["type"]} | look])
        assert bool(figure["narrow"]) == figure["layout"]["showlegend"]
        for part, look in figure["narrow"].items():
            go.Layout({part: figure["layout"][part] | look})
