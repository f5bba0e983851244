"""The charts show the rounds and totals of the played part of a run; the race follows at once."""

import itertools
import math
from typing import Any

import pytest
from helpers.layout import resize
from helpers.replay import Event, edited, faster, recorded, rounds
from helpers.visitor import FRAMES, figures, press, run_to_end, scrub

from specdemo.charts.palette import THEMES

DATA = """name => Object.fromEntries(document.querySelector(`[data-plot=${name}]`).data
    .map(({ uid, x, y }) => [uid, { x, y }]))"""
BLANK = [None]  # the data of an empty trace
PLAYED = """([name, count]) => document.querySelector(`[data-plot=${name}]`).data?.[0].x?.length === count"""
PLACES = """wanted => JSON.stringify(document.querySelector('[data-plot=position]').data?.[0].y)
    === JSON.stringify(wanted)"""
ENTROPY = PLACES.replace("position", "entropy")
ALL_DRAWN = "() => document.querySelectorAll('.js-plotly-plot').length === 7"
NOTES = """() => document.querySelector('[data-plot=speedup]').layout.annotations
    .filter(note => note.visible).map(note => note.text)"""
LAYER = "() => ({ ...document.querySelector('.sd-chart-canvas').dataset })"
SETTLED = "() => document.querySelector('.sd-chart-canvas').hidden"
AXES = """() => { const { layout } = document.querySelector('[data-plot=race]');
    return [layout.title.text, layout.xaxis.range, layout.xaxis.title.text, layout.yaxis.range[0]]; }"""
LABELS = """() => [...document.querySelectorAll('[data-plot=race] .ytick text')]
    .map(label => Number(label.textContent))"""
DRAWN = "() => document.querySelector('[data-plot=race]').data[0].y"
MARGINS = """() => { const { _fullLayout: full, layout } = document.querySelector('[data-plot=race]');
    const { l, r, t, b } = full._size; return [{ l, r, t, b }, layout.margin]; }"""
ROUNDS = "() => Number(document.querySelector('.sd-chart-canvas').dataset.rounds)"
PIXEL = """() => [...document.querySelector('.sd-chart-canvas').getContext('2d')
    .getImageData(2, 90, 1, 1).data]"""
PARTS = """() => ['.gtitle', '.legend', '.gridlayer']
    .map(part => document.querySelector(`[data-plot=race] ${part}`).getBoundingClientRect().toJSON())"""
TOOLTIPS = """wanted => wanted ===
    Boolean(document.querySelector('[data-plot=race] .hoverlayer')?.childElementCount)"""
TALL = 2000  # the height of a page with all charts in sight


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
    names = page.eval_on_selector_all("[data-plot]", "all => all.map(node => node.dataset.plot)")
    return {name: page.evaluate(DATA, name) for name in names}


@pytest.mark.parametrize("recording", ["greedy", pytest.param("shared_noise", marks=pytest.mark.slow)])
def test_charts_show_the_played_part_of_a_run(played, recording):
    events = recorded(recording)
    speculative, totals = rounds(events), events[-1]["totals"]
    counts = zip(totals["accepted_by_position"], totals["compared_by_position"], strict=True)
    places = [accepted / compared for accepted, compared in counts]
    page = played(recording)
    shown = charts(page, len(speculative), places=places)
    assert_rounds(shown, speculative, totals)
    assert_race(shown["race"], events)
    assert_sums(shown, totals, places)
    assert sum(shown["ranks"]["ranks"]["y"]) > 0
    compared = [token for event in speculative for token in event["round"]["drafted"] if token["compared"]]
    page.wait_for_function(ENTROPY, arg=shares_by_entropy(compared))
    press(page, "to-start", *["round-on"] * 5)
    shown = charts(page, 5)
    assert_rounds(shown, speculative[:5], figures(page))
    drafted = [token for event in speculative[:5] for token in event["round"]["drafted"]]
    accepted = sum(token["status"] == "accepted" for token in drafted)
    assert shown["race"]["speculative"]["y"][-1] == figures(page)["passes"] + accepted


def shares_by_entropy(tokens: list[Event]) -> list[float | None]:
    """Return the accepted share of tokens by half bits of the target's entropy; the last has all above 2."""
    groups: list[list[bool]] = [[] for _ in range(5)]
    for token in filter(lambda token: token["target_top"], tokens):
        listed = [probability for _, probability in token["target_top"]]
        others = max(0.0, 1 - sum(listed))
        bits = sum(-p * math.log2(p) for p in [*listed, others] if p)
        groups[min(4, int(bits / 0.5))].append(token["status"] == "accepted")
    return [sum(group) / len(group) if group else None for group in groups]


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


def assert_sums(shown: dict[str, Event], totals: Event, places: list[float]) -> None:
    spans = shown["time"]
    assert spans["drafting"]["x"] == [totals["draft_s"], 0]
    assert spans["verifying"]["x"] == [totals["verify_s"], totals["baseline_verify_s"]]
    assert spans["rest"]["x"] == [totals["other_s"], totals["baseline_other_s"]]
    assert shown["position"]["position"]["y"] == places


@pytest.mark.slow
def test_charts_stand_before_a_run_take_the_theme_stay_and_label_a_missing_baseline(open_page, service):
    page = open_page(height=TALL, theme="dark")
    page.wait_for_selector("[data-plot=race].js-plotly-plot")
    page.wait_for_function(SETTLED)
    assert page.evaluate(AXES) == ["The race", [0, 1], "decode seconds", 0]
    assert page.evaluate(LABELS)[-1] == 20
    assert page.evaluate(DRAWN) == BLANK and page.evaluate(ROUNDS) == 0
    paper = page.evaluate("() => document.querySelector('[data-plot=speedup]').layout.paper_bgcolor")
    assert paper == THEMES["dark"].surface
    run_to_end(page)
    charts(page, len(rounds(service.replayed)))
    page.evaluate("() => document.querySelectorAll('.svg-container').forEach(n => { n.kept = 1; })")

    def alone(trace: Event) -> None:
        trace["config"]["baseline"] = False
        del trace["lanes"]["baseline"]

    service.replayed = edited(recorded("shared_noise"), alone)
    run_to_end(page)
    shown = charts(page, len(rounds(service.replayed)))
    kept = "() => [...document.querySelectorAll('.js-plotly-plot .svg-container')].map(n => n.kept)"
    assert page.evaluate(kept) == [1] * 7
    assert page.evaluate(NOTES)[-1] == "the target alone did not run"
    assert set(shown["speedup"]["speedup"]["y"]) == {None}
    assert page.inner_text("[data-figure=speedup]") == "–"
    assert page.inner_text("[data-label=speedup]") == "speedup"


def rounds_until(events: list[Event], seconds: float) -> int:
    """Return the number of speculative rounds that end by then, on their lane's clock."""
    phases = ("prefill_s", "draft_s", "verify_s", "other_s")
    times = (sum(event["round"][phase] for phase in phases) for event in rounds(events))
    return sum(end <= seconds for end in itertools.accumulate(times))


@pytest.mark.slow
def test_the_race_shows_steps_and_theme_at_once_and_plotly_waits_for_the_models(open_page, service):
    service.replayed = faster(recorded("shared_noise"), 8)
    count, totals = len(rounds(service.replayed)), service.replayed[-1]["totals"]
    service.gap_s, service.hold_at = 0.05, 40
    page = open_page(height=TALL, pace=1)
    page.wait_for_function(SETTLED)
    page.wait_for_selector("[data-plot=race].js-plotly-plot")
    page.evaluate(f"""() => {{ window.seen = new Set();
        const look = () => {{
            const [drawn, rounds] = [({DRAWN})()?.length, ({ROUNDS})()];
            if (rounds > 1 && drawn !== rounds) seen.add("only the canvas follows the run");
            if (document.querySelector(".sd-plot[data-old]")) seen.add("other charts wait");
            requestAnimationFrame(look); }};
        look(); }}""")  # a slow machine may play all before a first look from outside
    page.click("#run")
    page.wait_for_function("seen.size === 2")
    service.go_on()
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    page.wait_for_selector(".sd[data-state=ended]")
    page.wait_for_function("document.querySelectorAll('.sd-plot[data-old]').length === 0")
    page.wait_for_function(SETTLED)
    drawn = page.evaluate(DRAWN)
    assert len(drawn) == page.evaluate(ROUNDS) == count
    assert float(page.evaluate(LAYER)["last"]) == drawn[-1] == totals["tokens"]
    seconds = [totals[lane] for lane in ("seconds", "baseline_seconds", "draft_alone_seconds")]
    assert page.evaluate(AXES)[1] == [0, pytest.approx(1.04 * max(seconds))]
    size, margin = page.evaluate(MARGINS)
    assert size == {side: margin[side] for side in "lrtb"}

    def assert_at_once(count: int) -> None:
        page.evaluate(FRAMES)
        assert page.evaluate(ROUNDS) == count

    press(page, "to-start")
    assert_at_once(0)
    press(page, *["round-on"] * 3)
    assert_at_once(3)
    played = rounds_until(service.replayed, 1.5)
    assert 3 < played < count
    scrub(page, 1.5)
    assert_at_once(played)
    page.evaluate("document.body.classList.add('dark')")
    page.evaluate(FRAMES)
    assert bytes(page.evaluate(PIXEL)[:3]).hex() == THEMES["dark"].surface[1:]
    assert_at_once(played)
    service.replayed = recorded("greedy")
    run_to_end(page)
    assert_at_once(len(rounds(service.replayed)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 500), (1340, 720), (1440, 900), (1700, 950), (390, 844)])
def test_the_race_of_three_lanes_has_room_for_its_lines_and_its_legend_leaves_the_title_free(played, size):
    page = played("shared_noise")
    resize(page, size)
    page.locator("[data-plot=race]").scroll_into_view_if_needed()
    page.wait_for_function(PLAYED, arg=["race", len(rounds(recorded("shared_noise")))])
    page.wait_for_function(SETTLED)
    title, legend, plot = page.evaluate(PARTS)
    assert plot["height"] > 80
    assert legend["bottom"] <= plot["top"] + 1
    assert title["right"] < legend["left"]


@pytest.mark.slow
def test_a_new_run_removes_the_tooltip_of_a_chart(open_page, service):
    page = open_page(height=TALL)
    run_to_end(page)
    page.wait_for_function(PLAYED, arg=["race", len(rounds(service.replayed))])
    page.wait_for_function(SETTLED)
    line = page.locator("[data-plot=race] .js-line").first.bounding_box()
    page.mouse.move(line["x"] + line["width"] - 2, line["y"] + 2)  # the last round
    page.wait_for_function(TOOLTIPS, arg=True)
    service.gap_s, service.hold_at = 0.05, 6
    page.evaluate("document.querySelector('#run').click()")  # by a key: the pointer stays on the chart
    page.wait_for_selector(".sd[data-state=playing]")
    page.wait_for_function(TOOLTIPS, arg=False)
    service.go_on()


@pytest.mark.slow
def test_charts_below_the_window_are_drawn_before_anybody_scrolls(open_page):
    page = open_page()
    page.wait_for_function(ALL_DRAWN)
    assert page.evaluate("scrollY") == 0
