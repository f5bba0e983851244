"""Live runs: actions during a run, stopping, very fast runs, many runs in one page."""

import copy
from typing import Any

import pytest
from helpers.replay import Event, edited, faster, recorded, rounds
from helpers.visitor import (
    FRAMES,
    assert_figures,
    clock,
    open_round,
    plain_text,
    press,
    run_to_end,
    scrub,
    served_at_last,
    text_of,
    tokens,
)
from helpers.waiting import until

LONGEST_WAIT = """() => new Promise(done => {
    const first = performance.now();
    let last = first, longest = 0;
    const ended = () => document.querySelector('.sd').dataset.state === 'ended';
    const look = () => { const now = performance.now();
        longest = Math.max(longest, now - last); last = now;
        ended() ? done(longest / (now - first)) : requestAnimationFrame(look); };
    look(); })"""
RENDERED = "([lane, n]) => document.querySelectorAll(`[data-lane=${lane}] .sd-round`).length === n"
SETTLED = "count => document.querySelectorAll('[data-lane=speculative] .sd-round').length > count"


def longer(events: list[Event], times: int) -> list[Event]:
    def stretch(trace: Event) -> None:
        trace["config"]["max_new_tokens"] = 1024
        for lane in trace["lanes"].values():
            once = lane["rounds"]
            last = once[-1]
            span = last["position"] - once[0]["position"] + 1 + len(last["drafted"])
            lane["rounds"] = []
            for turn in range(times):
                for round_ in copy.deepcopy(once):
                    round_["index"] += turn * len(once)
                    round_["position"] += turn * span
                    round_["finish"] = round_["finish"] if turn == times - 1 else None
                    lane["rounds"].append(round_)

    return edited(events, stretch)


@pytest.mark.slow
def test_a_run_goes_on_while_the_visitor_looks_back(open_page, service):
    service.replayed = recorded("shared_noise")
    service.gap_s, service.hold_at = 0.02, 70
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_function(SETTLED, arg=2)
    press(page, "play")
    held = clock(page)
    service.hold_at = 110
    until(lambda: service.served == 110)
    page.evaluate(FRAMES)
    assert clock(page) == held
    scrub(page, held / 2)
    assert clock(page) == held / 2
    page.focus("[data-role=rounds]")
    page.keyboard.press("Home")
    assert page.inner_text("[data-role=microscope-title]").startswith("Round 1:")
    assert page.locator("#run:disabled").count() == 1, "the run still goes on"
    page.keyboard.press("Escape")
    service.go_on()
    press(page, "play")
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    page.wait_for_selector(".sd[data-state=ended]")
    assert_figures(page, service.replayed[-1]["totals"])
    page.check("[data-role=show-discards]")
    assert len(tokens(page)) == sum(len(event["round"]["drafted"]) + 1 for event in rounds(service.replayed))


@pytest.mark.slow
def test_playing_waits_for_the_models(open_page, service):
    service.gap_s = 0.3
    service.replayed = faster(service.replayed, 100)
    page = open_page(pace=1)
    page.click("#run")
    words = "document.querySelector('[data-role=pace-text]').textContent"
    page.wait_for_function(f"{words} === 'waiting for the models'")
    shown = len(tokens(page))
    page.wait_for_function(SETTLED, arg=page.locator("[data-lane=speculative] .sd-round").count())
    assert len(tokens(page)) > shown
    page.click("#stop")
    page.wait_for_selector(".sd[data-state=ended]")


@pytest.mark.slow
def test_thousands_of_tokens_a_second_end_right_and_leave_the_page_responsive(open_page, service):
    service.replayed = faster(longer(service.replayed, 6), 100)
    assert service.replayed[-1]["totals"]["tokens"] == 768
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    assert page.evaluate(LONGEST_WAIT) < 0.5, "between two frames, as a share of the whole run"
    assert_figures(page, service.replayed[-1]["totals"])
    for lane in ("speculative", "baseline"):
        page.wait_for_function(RENDERED, arg=[lane, len(rounds(service.replayed, lane))])
        assert plain_text(page, lane) == text_of(service.replayed, lane)


@pytest.mark.slow
def test_stop_ends_the_run_within_a_round_and_the_next_run_works(open_page, service):
    service.gap_s = 0.1  # slow enough for every round to be sent at once
    service.hold_at = served = 6
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_selector(".sd-token[data-status=accepted], .sd-token[data-status=corrected]")
    until(lambda: service.served == served)
    page.click("#stop")
    page.wait_for_selector(".sd[data-state=ended]")
    assert service.served <= served + 2 < len(service.replayed) - 10
    assert page.inner_text("[data-role=sentence]").startswith("Stopped early.")
    page.wait_for_selector("#run:enabled")
    service.go_on()
    run_to_end(page)
    assert page.inner_text("[data-role=sentence]") == service.replayed[-1]["sentence"]


@pytest.mark.slow
def test_closing_the_tab_ends_the_run(open_page, service):
    service.gap_s = 0.25
    page = open_page()
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    page.close()
    assert served_at_last(service) < len(service.replayed) - 10


@pytest.mark.slow
def test_twenty_runs_leave_no_more_behind_than_five(open_page, service):
    page = open_page(height=1800)  # charts in sight
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    heaps, nodes = [], []
    for count in range(1, 21):
        run_to_end(page)
        open_round(page, 2, len(rounds(service.replayed)))
        if count in (5, 20):
            used = measured(session)
            heaps.append(used["JSHeapUsedSize"])
            nodes.append(used["Nodes"])
    assert heaps[1] <= 1.1 * heaps[0] + 2e6
    assert nodes[1] <= 1.1 * nodes[0]


def measured(session: Any) -> dict[str, float]:
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    return {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
