"""The race: its layer shows the same as the lanes, at once."""

from typing import Any

import pytest
from helpers.replay import Event, faster, recorded, rounds
from helpers.visitor import FRAMES, press, run_to_end, scrub

from specdemo.charts.palette import THEMES

LAYER = "() => ({ ...document.querySelector('.sd-live-layer').dataset })"
SETTLED = "() => document.querySelector('.sd-live-layer').hidden"
AXES = """() => { const { layout } = document.querySelector('[data-plot=race]');
    return [layout.title.text, layout.xaxis.range, layout.xaxis.title.text, layout.yaxis.range[0]]; }"""
LABELS = """() => [...document.querySelectorAll('[data-plot=race] .ytick text')]
    .map(label => Number(label.textContent))"""
DRAWN = "() => document.querySelector('[data-plot=race]').data[0].y"
MARGINS = """() => { const { _fullLayout: full, layout } = document.querySelector('[data-plot=race]');
    const { l, r, t, b } = full._size; return [{ l, r, t, b }, layout.margin]; }"""
WATCH = """ends => { window.pace = { worst: 0, shown: [], late: 0 };
    const layer = document.querySelector('.sd-live-layer');
    const clock = document.querySelector('[data-role=scrub]');
    const reached = [];
    let frame = 0;
    const look = now => {
        frame += 1;
        const played = ends.filter(end => end <= Number(clock.value)).length;
        while (reached.length <= played) reached.push([now, frame]);
        // Since when and for how many frames the round after the last shown has been played.
        const [since, first] = reached[Number(layer.dataset.rounds) + 1] ?? [now, frame];
        window.pace.worst = Math.max(window.pace.worst, now - since);
        // On a machine that is busy elsewhere two frames may take longer than that.
        if (frame - first > 2 && now - since > 100) window.pace.late += 1;
        const shown = [layer.dataset.rounds, layer.dataset.points].map(Number);
        if (window.pace.shown.at(-1)?.[0] !== shown[0]) window.pace.shown.push(shown);
        requestAnimationFrame(look); };
    requestAnimationFrame(look); }"""
ROUNDS = "() => Number(document.querySelector('.sd-live-layer').dataset.rounds)"
PIXEL = """() => [...document.querySelector('.sd-live-layer').getContext('2d')
    .getImageData(2, 90, 1, 1).data]"""
TALL = 1500
"""The height of a page with all charts in sight."""


def layer(page: Any) -> Event:
    page.evaluate(FRAMES)
    return page.evaluate(LAYER)


def drawn(page: Any) -> list[float | None]:
    return page.evaluate(DRAWN)


def last(events: list[Event]) -> Event:
    """Return the totals of a run."""
    return events[-1]["totals"]


def slowest(events: list[Event]) -> float:
    """Return the decode seconds of the lane that took the longest."""
    lanes = ("seconds", "baseline_seconds", "draft_alone_seconds")
    return max(last(events)[lane] or 0 for lane in lanes)


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
def test_title_and_empty_axes_stand_before_the_first_run(open_page, theme):
    page = open_page(height=TALL, theme=theme)
    page.wait_for_selector("[data-plot=race].js-plotly-plot")
    page.wait_for_function(SETTLED)
    assert page.evaluate(AXES) == ["The race", [0, 1], "decode seconds", 0]
    assert page.evaluate(LABELS)[-1] == 20
    assert drawn(page) == [None]
    assert layer(page)["rounds"] == "0"


@pytest.mark.slow
@pytest.mark.parametrize("recording", ["shared_noise", "greedy"])
def test_the_layer_keeps_pace_with_a_replay_at_real_speed(open_page, service, recording):
    service.replayed = faster(recorded(recording), 8)
    known = len(rounds(service.replayed))
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
    assert all(points == played for played, points in pace["shown"])
    assert pace["shown"][-1][0] == known
    page.wait_for_function(SETTLED)
    assert len(drawn(page)) == known
    assert float(layer(page)["last"]) == drawn(page)[-1] == last(service.replayed)["tokens"]
    left, right = page.evaluate(AXES)[1]
    assert left == 0 and right == pytest.approx(1.04 * slowest(service.replayed)), (
        "axes end where the lanes do"
    )


def test_seeking_steps_theme_and_another_run_show_at_once(open_page, service):
    service.replayed = recorded("shared_noise")
    page = open_page(height=TALL)
    run_to_end(page)
    page.wait_for_function(SETTLED)

    def at_once(count: int) -> None:
        page.evaluate(FRAMES)
        assert page.evaluate(ROUNDS) == count

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
def test_the_layer_and_plotly_have_the_same_margins(open_page, service):
    service.replayed = recorded("shared_noise")
    page = open_page(height=TALL)
    run_to_end(page)
    page.wait_for_function(SETTLED)
    size, margin = page.evaluate(MARGINS)
    assert size == {side: margin[side] for side in "lrtb"}


def test_plotly_waits_while_the_models_use_the_processor_of_the_page(open_page, service):
    service.replayed = faster(recorded("shared_noise"), 8)
    service.gap_s, service.hold_at = 0.1, 40
    page = open_page(height=TALL, pace=1)
    page.wait_for_function(SETTLED)
    page.wait_for_selector("[data-plot=race].js-plotly-plot")
    page.click("#run")
    page.wait_for_function(f"({ROUNDS})() > 1")
    page.wait_for_selector(".sd-plot[data-old]")
    assert len(drawn(page)) != int(layer(page)["rounds"]), "only the layer follows the run"
    service.go_on()
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    page.wait_for_selector(".sd[data-state=ended]")
    page.wait_for_function("document.querySelectorAll('.sd-plot[data-old]').length === 0")
    page.wait_for_function(SETTLED)
    assert len(drawn(page)) == len(rounds(service.replayed))
