"""Pausing, stepping, scrubbing and pacing a run that has arrived: all views show the same rounds."""

import pytest
from helpers.replay import faster, recorded, rounds
from helpers.visitor import (
    FRAMES,
    clock,
    figures,
    press,
    run_to_end,
    scrub,
    stage_state,
    tokens,
)

pytestmark = pytest.mark.slow

LIT = "() => [...document.querySelectorAll('[data-phase][data-lit]')].map(item => item.dataset.phase)"
PACES = {
    "0.05": "shown at 1/20 of real speed",
    "0.25": "shown at 1/4 of real speed",
    "1": "shown at real speed",
    "tokens": "shown at 10 tokens/s",
}


def set_pace(page, value: str) -> None:
    # A click from a script, because the page offers ten tokens per second only to lessons.
    page.eval_on_selector(f".sd-pace input[value='{value}']", "radio => radio.click()")


def test_phase_steps_take_a_round_from_pending_to_its_verdict(played):
    page = played("greedy")
    first = rounds(recorded("greedy"))[0]["round"]
    press(page, "to-start")
    assert tokens(page) == []
    seen = []
    for _ in range(3):
        press(page, "phase-on")
        seen.append((tokens(page), page.evaluate(LIT)))
    k = len(first["drafted"])
    (drafted, drafting), (checked, verifying), (judged, verdict) = seen
    assert [rest for _, *rest in drafted] == [["pending", False, False]] * k
    assert [rest for _, *rest in checked] == [["pending", False, True]] * k
    expected = [[token["status"], token["rejected"], False] for token in first["drafted"]]
    expected.append([first["emission"]["status"], False, False])
    assert [rest for _, *rest in judged] == expected
    assert (drafting, verifying, verdict) == (["draft"], ["verify"], ["verdict"])
    assert page.locator("[data-role=rounds]").get_attribute("aria-valuenow") == "1"


def test_steps_back_undo_steps_on(played):
    page = played("rejection")
    for unit in ("phase", "round"):
        press(page, "to-start")
        before = [stage_state(page)]
        for _ in range(5):
            press(page, f"{unit}-on")
            before.append(stage_state(page))
        after = [before[-1]]
        for _ in range(5):
            press(page, f"{unit}-back")
            after.append(stage_state(page))
        assert after == before[::-1]
        assert len({str(state) for state in before}) == 6


def test_scrubbing_back_and_forth_shows_the_same_as_playing(open_page, service):
    service.replayed = faster(recorded("rejection"), 20)
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=ended]")
    through = stage_state(page)
    scrub(page, clock(page) / 2)
    assert page.get_attribute(".sd", "data-state") == "playing"
    middle = stage_state(page)
    assert 0 < len(middle[0]["speculative"]) < len(through[0]["speculative"])
    scrub(page, 0)
    assert tokens(page) == []
    press(page, "to-end")
    assert stage_state(page) == through
    assert page.get_attribute(".sd", "data-state") == "ended"


def test_each_pace_has_its_label(played):
    page = played("greedy")
    for value, words in PACES.items():
        set_pace(page, value)
        assert page.inner_text("[data-role=pace-text]") == words


def test_play_pauses_at_the_end_and_then_restarts(played):
    page = played("greedy")
    sentence, play = page.locator("[data-role=sentence]"), page.locator("[data-role=play]")
    everything = len(tokens(page))
    assert sentence.is_visible()
    press(page, "play")
    page.wait_for_selector(".sd[data-state=playing] .sd-token[data-status=pending]")
    assert len(tokens(page)) < everything
    assert sentence.is_hidden()
    assert play.get_attribute("aria-label") == "Pause"
    press(page, "play")
    held = clock(page)
    page.evaluate(FRAMES)
    assert 0 < clock(page) == held
    assert play.get_attribute("aria-label") == "Play"
    press(page, "to-end")
    assert sentence.is_visible()


def test_the_pace_is_remembered(open_page):
    page = open_page(pace=None)
    assert page.is_checked(".sd-pace input[value=fit]")
    set_pace(page, "0.05")
    page.reload()
    page.wait_for_function("document.querySelector('.sd-pace input:checked')?.value === '0.05'")
    assert page.inner_text("[data-role=pace-text]") == PACES["0.05"]


SHOWN = """() => ({
    passes: Number(document.querySelector('[data-lane=speculative] .sd-passes b').textContent),
    chart: Number(document.querySelector('.sd-live-layer').dataset.rounds),
    clock: Number(document.querySelector('[data-role=scrub]').value),
    ended: document.querySelector('.sd').dataset.state === 'ended' })"""
STRIP = """count => {
    const strip = document.querySelector('[data-role=rounds]');
    const canvas = strip.querySelector('canvas');
    const pen = canvas.getContext('2d');
    // The left edge of each column, filled or drawn, as strong as it was played.
    const strong = index => pen.getImageData(18 * index, canvas.height - 3, 1, 1).data[3] > 200;
    const indices = Array.from({ length: count }, (_, index) => index);
    return [Number(strip.getAttribute('aria-valuenow')), indices.map(strong)]; }"""
OF_A_ROUND = ("passes", "tau", "alpha_compared", "tokens_per_s", "seconds")


@pytest.mark.parametrize("recording", ["greedy", "rejection"])
def test_figures_lanes_strip_and_chart_agree_at_every_phase(open_page, service, recording):
    service.replayed = recorded(recording)
    events = rounds(service.replayed)
    page = open_page(width=4000)  # wide enough for columns of 18 whole pixels
    run_to_end(page)
    press(page, "to-start")
    stops, seen = 0, set()
    while not page.evaluate(SHOWN)["ended"]:
        press(page, "phase-on")
        page.evaluate(FRAMES)
        shown = page.evaluate(SHOWN)
        settled = shown["passes"]
        assert shown["chart"] == settled, f"at {shown['clock']} s"
        at, strong = page.evaluate(STRIP, len(events))
        assert at == max(1, settled)
        drafted = [index for index, event in enumerate(events) if event["round"]["drafted"]]
        assert [strong[index] for index in drafted] == [index < settled for index in drafted]
        kept = [status for _, status, *_ in tokens(page) if status not in ("pending", "discarded")]
        if settled:
            totals = events[settled - 1]["totals"]
            reported = figures(page)
            assert {name: reported[name] for name in OF_A_ROUND} == {
                name: totals[name] for name in OF_A_ROUND
            }
            assert len(kept) == totals["tokens"]
        else:
            assert not kept and figures(page)["passes"] is None, "nothing is told before a verdict"
        stops += 1
        seen.add(settled)
        if settled == len(events):
            press(page, "to-end")
            page.wait_for_selector(".sd[data-state=ended]")
    assert seen >= set(range(1, len(events) + 1)) and stops > len(events)
