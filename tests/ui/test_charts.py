"""The charts show the rounds and totals of the played part of a recording."""

from typing import Any

import pytest
from helpers.replay import Event, edited, recorded, rounds
from helpers.visitor import FRAMES, figures, press, run_to_end

from specdemo.charts.palette import THEMES

DATA = """name => Object.fromEntries(document.querySelector(`[data-plot=${name}]`).data
    .map(({ uid, x, y }) => [uid, { x, y }]))"""
BLANK = [None]
"""The data of an empty trace."""
PLAYED = """([name, count]) => document.querySelector(`[data-plot=${name}]`).data?.[0].x?.length === count"""
PLACES = """wanted => JSON.stringify(document.querySelector('[data-plot=position]').data?.[0].y)
    === JSON.stringify(wanted)"""
ALL_DRAWN = "() => document.querySelectorAll('.js-plotly-plot').length === 6"
NOTES = """() => document.querySelector('[data-plot=speedup]').layout.annotations
    .filter(note => note.visible).map(note => note.text)"""


def charts(page: Any, count: int, places: list[float] | None = None) -> dict[str, Event]:
    """Return the data of every chart once they show ``count`` speculative rounds."""
    # Charts out of sight are not drawn.
    for part, name in ((".sd-live", "race"), (".sd-plots", "rates")):
        page.locator(part).evaluate("node => node.scrollIntoView()")
        page.wait_for_function(PLAYED, arg=[name, count])
    page.locator("[data-plot=position]").evaluate("node => node.scrollIntoView()")
    page.wait_for_function(ALL_DRAWN)
    if places is not None:
        page.wait_for_function(PLACES, arg=places)
    page.evaluate(FRAMES)
    return {
        name: page.evaluate(DATA, name)
        for name in page.eval_on_selector_all("[data-plot]", "all => all.map(node => node.dataset.plot)")
    }


@pytest.mark.parametrize(
    "recording",
    [
        "greedy",
        pytest.param("rejection", marks=pytest.mark.slow),
        pytest.param("shared_noise", marks=pytest.mark.slow),
    ],
)
def test_charts_show_the_whole_recording_at_its_end(played, recording):
    events = recorded(recording)
    speculative = rounds(events)
    totals = events[-1]["totals"]
    counts = zip(totals["accepted_by_position"], totals["compared_by_position"], strict=True)
    places = [accepted / compared for accepted, compared in counts]
    shown = charts(played(recording), len(speculative), places=places)
    assert_rounds(shown, speculative, events[-1]["totals"])
    assert_race(shown["race"], events)
    assert_sums(shown, events[-1]["totals"])
    assert_ranks(shown["ranks"]["ranks"], speculative)


def test_charts_show_no_more_than_has_been_played(played):
    events = recorded("greedy")
    page = played("greedy")
    press(page, "to-start", *["round-on"] * 5)
    shown = charts(page, 5)
    assert_rounds(shown, rounds(events)[:5], figures(page))
    assert shown["race"]["speculative"]["y"][-1] == figures(page)["passes"] + sum(
        token["status"] == "accepted" for event in rounds(events)[:5] for token in event["round"]["drafted"]
    )


def assert_rounds(shown: dict[str, Event], speculative: list[Event], latest: Event) -> None:
    """Check the charts over rounds; ``latest`` are the page's figures."""
    numbers = list(range(1, len(speculative) + 1))
    for line, figure in (("alpha", "alpha_compared"), ("tau", "tau")):
        assert shown["rates"][line] == {"x": numbers, "y": [e["totals"][figure] for e in speculative]}
    for line, figure in (("speedup", "speedup"), ("theory", "s_theory")):
        before = [event["totals"][figure] for event in speculative[:-1]]
        assert shown["speedup"][line]["x"] == numbers
        assert shown["speedup"][line]["y"][:-1] == before
    assert shown["speedup"]["speedup"]["y"][-1] == latest["speedup"], "it ends at the headline"


def assert_race(shown: Event, events: list[Event]) -> None:
    for lane, prefix in (("speculative", ""), ("baseline", "baseline_"), ("draft", "draft_alone_")):
        own = [event["totals"] for event in rounds(events, lane)]
        assert shown[lane]["x"] == ([totals[f"{prefix}seconds"] for totals in own] or BLANK)
        assert shown[lane]["y"] == ([totals[f"{prefix}tokens"] for totals in own] or BLANK)


def assert_sums(shown: dict[str, Event], totals: Event) -> None:
    spans = shown["time"]
    assert spans["drafting"]["x"] == [totals["draft_s"], 0]
    assert spans["verifying"]["x"] == [totals["verify_s"], totals["baseline_verify_s"]]
    assert spans["rest"]["x"] == [totals["other_s"], totals["baseline_other_s"]]
    counts = zip(totals["accepted_by_position"], totals["compared_by_position"], strict=True)
    assert shown["position"]["position"]["y"] == [accepted / compared for accepted, compared in counts]


def assert_ranks(shown: Event, speculative: list[Event]) -> None:
    counts = [0] * 6
    for round_ in (event["round"] for event in speculative):
        for token in round_["drafted"]:
            if token["rejected"] and token["draft_top"]:
                listed = [other for other, _ in token["draft_top"]]
                own = round_["emission"]["id"]
                counts[listed.index(own) if own in listed else 5] += 1
    assert sum(counts) and shown == {"x": [1, 2, 3, 4, 5, 6], "y": counts}


@pytest.mark.slow
def test_charts_stay_where_they_are_from_run_to_run(open_page, service):
    page = open_page()
    run_to_end(page)
    charts(page, len(rounds(service.replayed)))
    page.evaluate("() => document.querySelectorAll('.svg-container').forEach(n => { n.kept = 1; })")
    service.replayed = recorded("shared_noise")
    run_to_end(page)
    charts(page, len(rounds(service.replayed)))
    kept = "() => [...document.querySelectorAll('.js-plotly-plot .svg-container')].map(n => n.kept)"
    assert page.evaluate(kept) == [1] * 6


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_charts_take_the_theme_of_the_page(open_page, theme):
    page = open_page(theme=theme)
    page.locator("[data-plot=speedup]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=speedup].js-plotly-plot")
    paper = page.evaluate("() => document.querySelector('[data-plot=speedup]').layout.paper_bgcolor")
    assert paper == THEMES[theme].surface


@pytest.mark.slow
def test_a_run_without_a_baseline_is_labelled(open_page, service):
    def alone(trace: Event) -> None:
        trace["config"]["baseline"] = False
        del trace["lanes"]["baseline"]

    service.replayed = edited(service.replayed, alone)
    page = open_page()
    run_to_end(page)
    shown = charts(page, len(rounds(service.replayed)))
    assert page.evaluate(NOTES)[-1] == "the target alone did not run"
    assert set(shown["speedup"]["speedup"]["y"]) == {None}
    assert page.inner_text("[data-figure=speedup]") == "–"
    assert page.inner_text("[data-label=speedup]") == "speedup"
