"""The charts of tokens per round and speedup: their layers show the same as the lanes, at once."""

import math
from typing import Any

import pytest
from helpers.replay import Event, faster, recorded, rounds
from helpers.visitor import FRAMES, figures, press, run_to_end, scrub

from specdemo.charts.palette import THEMES

LAYERS = """() => Object.fromEntries([...document.querySelectorAll('.sd-live-layer')].map(layer =>
    [layer.parentNode.dataset.plot, { ...layer.dataset, hidden: layer.hidden }]))"""
SETTLED = "() => [...document.querySelectorAll('.sd-live-layer')].every(layer => layer.hidden)"
AXES = """name => { const { layout } = document.querySelector(`[data-plot=${name}]`);
    return [layout.title.text, layout.xaxis.range, layout.xaxis.title.text, layout.yaxis.range[0]]; }"""
LABELS = """name => [...document.querySelectorAll(`[data-plot=${name}] .xtick text`)]
    .map(label => Number(label.textContent))"""
WATCH = """ends => { window.pace = { worst: 0, shown: [], late: 0 };
    const layers = [...document.querySelectorAll('.sd-live-layer')];
    const clock = document.querySelector('[data-role=scrub]');
    const reached = [];
    let frame = 0;
    const look = now => {
        frame += 1;
        const played = ends.filter(end => end <= Number(clock.value)).length;
        while (reached.length <= played) reached.push([now, frame]);
        for (const layer of layers) {
            // Since when and for how many frames the round after the last shown has been played.
            const [since, first] = reached[Number(layer.dataset.rounds) + 1] ?? [now, frame];
            window.pace.worst = Math.max(window.pace.worst, now - since);
            // On a machine that is busy elsewhere two frames may take longer than that.
            if (frame - first > 2 && now - since > 100) window.pace.late += 1;
        }
        const [{ points }, { rounds, bars }] = layers.map(layer => layer.dataset);
        const shown = [rounds, bars, points].map(Number);
        if (window.pace.shown.at(-1)?.[0] !== shown[0]) window.pace.shown.push(shown);
        requestAnimationFrame(look); };
    requestAnimationFrame(look); }"""
ROUNDS = """() => [...document.querySelectorAll('.sd-live-layer')]
    .map(layer => Number(layer.dataset.rounds))"""
PIXEL = """() => [...document.querySelector('[data-plot=acceptance] .sd-live-layer').getContext('2d')
    .getImageData(2, 90, 1, 1).data]"""
TALL = 1500
"""The height of a page with all charts in sight."""


def layers(page: Any) -> dict[str, Event]:
    page.evaluate(FRAMES)
    return page.evaluate(LAYERS)


def drawn(page: Any, chart: str) -> list[float | None]:
    return page.evaluate("name => document.querySelector(`[data-plot=${name}]`).data[0].y", chart)


def ends(events: list[Event]) -> list[float]:
    """Return the time at which each speculative round ended, on its lane's clock."""
    clock, ended = 0.0, []
    for event in rounds(events):
        for phase in ("prefill_s", "draft_s", "verify_s", "other_s"):
            clock += event["round"][phase]
        ended.append(clock)
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_titles_and_empty_axes_stand_before_the_first_run(open_page, theme):
    page = open_page(height=TALL, theme=theme)
    page.wait_for_function("document.querySelectorAll('.sd-live-layer').length === 2")
    page.wait_for_function("document.querySelector('[data-plot=speedup].js-plotly-plot')")
    page.wait_for_function(SETTLED)
    titles = {"acceptance": "Draft tokens per round", "speedup": "Speedup so far"}
    for chart, title in titles.items():
        assert page.evaluate(AXES, chart) == [title, [0.5, 12.5], "round", 0]
        assert page.evaluate(LABELS, chart)[-1] == 12
        assert drawn(page, chart) == [None]
    shown = layers(page)
    assert shown["acceptance"]["rounds"] == shown["speedup"]["rounds"] == "0"


@pytest.mark.slow
@pytest.mark.parametrize("recording", ["shared_noise", "greedy"])
def test_layers_keep_pace_with_a_replay_at_real_speed(open_page, service, recording):
    service.replayed = faster(recorded(recording), 8)
    known = len(rounds(service.replayed))
    bar = math.ceil(known / 50)
    page = open_page(height=TALL, pace=1)
    page.wait_for_function(SETTLED)
    run_to_end(page)
    press(page, "to-start")
    page.evaluate(FRAMES)
    page.evaluate(WATCH, ends(service.replayed))
    press(page, "play")
    page.wait_for_selector(".sd[data-state=ended]")
    page.evaluate(FRAMES)
    pace = page.evaluate("window.pace")
    assert pace["late"] == 0, pace["worst"]
    assert len(pace["shown"]) > 8, "it was seen to grow"
    for played, bars, points in pace["shown"]:
        assert (bars, points) == (math.ceil(played / bar), played)
    assert pace["shown"][-1][0] == known
    page.wait_for_function(SETTLED)
    assert len(drawn(page, "acceptance")) == math.ceil(known / bar)
    assert len(drawn(page, "speedup")) == known
    shown = layers(page)
    assert float(shown["acceptance"]["last"]) == drawn(page, "acceptance")[-1]
    assert float(shown["speedup"]["last"]) == drawn(page, "speedup")[-1] == figures(page)["speedup"]
    assert page.evaluate(AXES, "speedup")[1] == [0.5, known + 0.5], "axes end where the rounds do"


@pytest.mark.slow
def test_rounds_of_a_long_run_share_bars_and_the_axis_is_labelled(open_page, service):
    service.replayed = recorded("greedy")
    known = len(rounds(service.replayed))
    assert known > 50
    page = open_page(height=TALL)
    run_to_end(page)
    assert layers(page)["acceptance"]["bars"] == str(math.ceil(known / 2))
    page.wait_for_function(SETTLED)
    assert page.evaluate(AXES, "acceptance")[1:3] == [[0.5, known + 0.5], "round (each bar is the mean of 2)"]
    kept = [
        sum(token["status"] == "accepted" for token in event["round"]["drafted"])
        for event in rounds(service.replayed)
    ]
    assert drawn(page, "acceptance")[0] == sum(kept[:2]) / 2


def test_seeking_steps_theme_and_another_run_show_at_once(open_page, service):
    service.replayed = recorded("shared_noise")
    page = open_page(height=TALL)
    run_to_end(page)
    page.wait_for_function(SETTLED)

    def at_once(count: int) -> None:
        page.evaluate(FRAMES)
        assert page.evaluate(ROUNDS) == [count, count]

    press(page, "to-start")
    at_once(0)
    press(page, *["round-on"] * 3)
    at_once(3)
    scrub(page, 12.0)
    played = sum(end <= 12.0 for end in ends(service.replayed))
    at_once(played)
    page.evaluate("document.body.classList.add('dark')")
    page.evaluate(FRAMES)
    paper = page.evaluate(PIXEL)
    assert bytes(paper[:3]).hex() == THEMES["dark"].surface[1:]
    at_once(played)
    service.replayed = recorded("greedy")
    run_to_end(page)
    at_once(len(rounds(service.replayed)))


@pytest.mark.slow
def test_layer_and_plotly_have_the_same_margins(open_page, service):
    service.replayed = recorded("shared_noise")
    page = open_page(height=TALL)
    run_to_end(page)
    page.wait_for_function(SETTLED)
    for chart in ("acceptance", "speedup"):
        size, margin = page.evaluate(
            """name => { const { _fullLayout: full, layout } = document.querySelector(`[data-plot=${name}]`);
            const { l, r, t, b } = full._size; return [{ l, r, t, b }, layout.margin]; }""",
            chart,
        )
        assert size == {side: margin[side] for side in "lrtb"}


def test_plotly_waits_while_the_models_use_the_processor_of_the_page(open_page, service):
    service.replayed = faster(recorded("shared_noise"), 8)
    service.gap_s, service.hold_at = 0.1, 40
    page = open_page(height=TALL, pace=1)
    page.wait_for_function(SETTLED)
    page.wait_for_selector("[data-plot=race].js-plotly-plot")
    page.click("#run")
    page.wait_for_function(f"({ROUNDS})().every(rounds => rounds > 1)")
    page.wait_for_selector(".sd-plot[data-old]")
    assert len(drawn(page, "speedup")) != int(layers(page)["speedup"]["rounds"]), (
        "only the layer follows the run"
    )
    service.go_on()
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    page.wait_for_selector(".sd[data-state=ended]")
    page.wait_for_function("document.querySelectorAll('.sd-plot[data-old]').length === 0")
    page.wait_for_function(SETTLED)
    assert len(drawn(page, "speedup")) == len(rounds(service.replayed))
