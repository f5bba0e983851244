"""The charts the page embeds: complete, empty, readable, alike in both themes, told apart without colour."""

import re
from dataclasses import asdict
from typing import Any

import plotly.graph_objects as go
import pytest

from specdemo.charts.palette import THEMES
from specdemo.charts.stage import NO_BASELINE, SELECTED, skeletons
from specdemo.proof.proof_events import distribution_chart

pytestmark = pytest.mark.usefixtures("one_thread")
FILLED = {
    "acceptance": ["accepted", "discarded", "corrected", "bonus"],
    "rates": ["alpha", "tau"],
    "speedup": ["speedup", "theory", "speedup-lead"],
    "race": ["speculative", "speculative-lead", "baseline", "baseline-lead", "draft", "draft-lead"],
    "time": ["drafting", "verifying", "rest"],
    "position": ["position"],
}
"""Chart -> uids of the traces that the browser fills; ``tests/ui/js/plots.test.js`` names the same."""

LIVE = {"acceptance", "speedup"}
"""The charts whose axes the browser sets."""

Figure = dict[str, Any]


@pytest.fixture(params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    """Each theme."""
    return request.param


@pytest.fixture
def charts(theme: str) -> dict[str, Figure]:
    """The charts of a theme."""
    return skeletons()[theme]


def by_uid(figure: Figure) -> dict[str, Any]:
    """uid -> trace."""
    return {trace["uid"]: trace for trace in figure["data"]}


def axes(figure: Figure) -> dict[str, Any]:
    """Name -> axis."""
    return {name: part for name, part in figure["layout"].items() if re.fullmatch(r"[xy]axis\d*", name)}


def test_each_chart_has_the_traces_the_browser_fills_each_once(charts):
    uids = {name: [trace["uid"] for trace in figure["data"]] for name, figure in charts.items()}
    rooms = {name: [] if name in LIVE else ["room"] for name in FILLED}
    assert uids == {name: [*filled, *rooms[name]] for name, filled in FILLED.items()}
    everywhere = [uid for filled in FILLED.values() for uid in filled]
    assert len(everywhere) == len(set(everywhere))


def test_no_chart_shows_a_point_before_a_run(charts):
    for name, figure in charts.items():
        for uid in FILLED[name]:
            assert set(by_uid(figure)[uid]["x"]) <= {None, 0}, (name, uid)
    for name in FILLED.keys() - LIVE:
        room = by_uid(charts[name])["room"]
        assert (room["mode"], room["hoverinfo"], room["showlegend"]) == ("none", "skip", False)


def test_themes_differ_in_colours_of_the_palette_only(theme):
    charts = skeletons()
    colour = re.compile(r"#[0-9a-f]{6}")
    assert colour.sub("", str(charts["light"])) == colour.sub("", str(charts["dark"]))
    assert set(colour.findall(str(charts[theme]))) <= set(asdict(THEMES[theme]).values())


def test_text_and_lines_are_seen_from_the_back_of_the_room(charts):
    for figure in charts.values():
        assert figure["layout"]["font"]["size"] >= 15
        assert figure["layout"]["title"]["text"]
        assert all(size >= 15 for size in map(int, re.findall(r"'font': {[^}]*'size': (\d+)", str(figure))))
        assert all(width >= 2 for width in map(int, re.findall(r"'width': (\d+)", str(figure))))
    for name in ("rates", "speedup", "race"):
        lines = [trace for trace in charts[name]["data"] if trace["mode"] == "lines"]
        assert lines and all(line["line"]["width"] >= 4 for line in lines)


def test_every_axis_says_its_unit(charts):
    units = {"round", "tokens", "decode seconds", "place in the draft"}
    for name, figure in charts.items():
        for axis, part in axes(figure).items():
            lanes = name == "time" and axis == "yaxis"
            assert (
                lanes or part["title"]["text"] in units or "ticksuffix" in part or "%" in part["tickformat"]
            )


def test_what_shares_a_chart_is_told_apart_without_colour(charts):
    race, time, acceptance = (by_uid(charts[name]) for name in ("race", "time", "acceptance"))
    lanes = ("speculative", "baseline", "draft")
    assert len({race[lane]["line"]["dash"] for lane in lanes}) == 3
    assert len({race[f"{lane}-lead"]["marker"]["symbol"] for lane in lanes}) == 3
    assert len({time[uid]["marker"]["pattern"]["shape"] for uid in FILLED["time"]}) == 3
    assert len({acceptance[uid]["marker"]["pattern"]["shape"] for uid in ("accepted", "discarded")}) == 2
    assert len({acceptance[uid]["marker"]["symbol"] for uid in ("corrected", "bonus")}) == 2


def test_margins_of_the_live_charts_stay_as_they_are(charts):
    for name in LIVE:
        assert charts[name]["layout"]["margin"]["autoexpand"] is False
        assert all(axis["automargin"] is False for axis in axes(charts[name]).values())


def test_speedup_has_a_line_at_one_and_a_word_for_runs_without_baseline(charts):
    layout = charts["speedup"]["layout"]
    (one,) = (shape for shape in layout["shapes"] if shape["type"] == "line")
    assert one["y0"] == one["y1"] == 1
    (note,) = layout["annotations"]
    assert (note["name"], note["visible"], note["text"]) == (
        NO_BASELINE,
        False,
        "the target alone did not run",
    )


def test_charts_over_rounds_can_mark_one(charts):
    bands = {
        name: [shape for shape in figure["layout"].get("shapes", []) if shape.get("name") == SELECTED]
        for name, figure in charts.items()
    }
    assert {name for name, found in bands.items() if found} == {"acceptance", "rates", "speedup"}
    for band in filter(None, bands.values()):
        assert band[0]["visible"] is False
        assert (band[0]["xref"], band[0]["yref"]) == ("x", "paper")


def test_the_other_looks_are_plotly_s_too(charts):
    assert [name for name, figure in charts.items() if figure["dense"]] == ["position"]
    for figure in charts.values():
        assert figure["dense"].keys() <= by_uid(figure).keys()
        for uid, look in figure["dense"].items():
            bar = {
                key: part for key, part in by_uid(figure)[uid].items() if key not in ("marker", "textfont")
            }
            go.Figure(data=[bar | look])
        assert bool(figure["narrow"]) == figure["layout"]["showlegend"]
        for part, look in figure["narrow"].items():
            go.Layout({part: figure["layout"][part] | look})


def test_the_bars_of_two_samples_are_empty_and_told_apart_by_pattern(theme):
    figure = distribution_chart()[theme]
    bars = by_uid(figure)
    assert list(bars) == ["speculative", "baseline"]
    assert all(bar["orientation"] == "h" and bar["x"] == [None] for bar in bars.values())
    patterns = {bar["marker"]["pattern"].get("shape") for bar in bars.values()}
    assert len(patterns) == 2
    assert figure["layout"]["barmode"] == "group" and figure["layout"]["showlegend"]
    assert "legend" in figure["narrow"]
