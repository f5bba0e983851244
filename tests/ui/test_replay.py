"""Pausing, stepping, scrubbing and pacing a run that has arrived: all views show the same rounds."""

import pytest
from helpers.replay import faster, recorded, rounds
from helpers.visitor import (
    FIGURES,
    FRAMES,
    VISIBLE_TOKENS,
    click_token,
    clock,
    open_round,
    press,
    run_to_end,
    scrub,
    stage_state,
    tokens,
)

pytestmark = pytest.mark.slow

PHASE = "() => document.querySelector('[data-role=pass]').dataset.phase"
PACES = {
    "tokens": "shown at 10 tokens/s",
    "0.25": "shown at 1/4 of real speed",
    "1": "shown at real speed",
    "0.05": "shown at 1/20 of real speed",
}


def test_phase_steps_take_a_round_from_pending_to_its_verdict(played):
    page = played("greedy")
    first = rounds(recorded("greedy"))[0]["round"]
    press(page, "to-start")
    assert tokens(page) == []
    seen = []
    for _ in range(3):
        press(page, "phase-on")
        seen.append((tokens(page), page.evaluate(PHASE)))
    k = len(first["drafted"])
    (drafted, drafting), (checked, verifying), (judged, verdict) = seen
    assert [rest for _, *rest in drafted] == [["pending", False, False]] * k
    assert [rest for _, *rest in checked] == [["pending", False, True]] * k
    expected = [[token["status"], token["rejected"], False] for token in first["drafted"]]
    expected.append([first["emission"]["status"], False, False])
    assert [rest for _, *rest in judged] == expected
    assert (drafting, verifying, verdict) == ("draft", "verify", "verdict")
    assert page.locator("[data-role=rounds]").get_attribute("aria-valuenow") == "1"


def test_steps_back_undo_steps_on(played):
    page = played("rejection")
    for unit in ("phase", "round"):
        press(page, "to-start")
        states = [stage_state(page)]
        for direction in ["on"] * 5 + ["back"] * 5:
            press(page, f"{unit}-{direction}")
            states.append(stage_state(page))
        assert states == states[::-1] and len({str(state) for state in states}) == 6


def test_scrubbing_back_and_forth_shows_the_same_as_playing(open_page, service):
    service.replayed = faster(recorded("rejection"), 20)
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=ended]")
    through = stage_state(page)
    scrub(page, clock(page) / 2)
    assert page.get_attribute(".sd", "data-state") == "playing"
    assert 0 < len(tokens(page)) < len(through[0]["speculative"])
    scrub(page, 0)
    assert tokens(page) == []
    press(page, "to-end")
    assert stage_state(page) == through
    assert page.get_attribute(".sd", "data-state") == "ended"


def test_play_pauses_at_the_end_and_then_restarts(played):
    page = played("greedy")
    sentence, play = page.locator("[data-role=sentence]"), page.locator("[data-role=play]")
    everything = len(tokens(page))
    assert sentence.is_visible()
    press(page, "play")
    page.wait_for_selector(".sd[data-state=playing] .sd-token[data-status=pending]")
    assert len(tokens(page)) < everything and sentence.is_hidden()
    assert play.get_attribute("aria-label") == "Pause"
    press(page, "play")
    held = clock(page)
    page.evaluate(FRAMES)
    assert 0 < clock(page) == held
    assert play.get_attribute("aria-label") == "Play"
    press(page, "to-end")
    assert sentence.is_visible()


def test_each_pace_has_its_label_and_the_last_one_is_remembered(open_page):
    page = open_page(pace=None)
    assert page.is_checked(".sd-pace input[value=fit]")
    for value, words in PACES.items():
        # A click from a script, because the page offers ten tokens per second only to lessons.
        page.eval_on_selector(f".sd-pace input[value='{value}']", "radio => radio.click()")
        assert page.inner_text("[data-role=pace-text]") == words
    page.reload()
    page.wait_for_function("document.querySelector('.sd-pace input:checked')?.value === '0.05'")
    assert page.inner_text("[data-role=pace-text]") == PACES["0.05"]


SHOWN = """() => ({
    passes: Number(document.querySelector('[data-lane=speculative] .sd-passes b').textContent),
    chart: Number(document.querySelector('.sd-chart-canvas').dataset.rounds),
    clock: Number(document.querySelector('[data-role=scrub]').value),
    ended: document.querySelector('.sd').dataset.state === 'ended' })"""
STRIP = """count => {
    const strip = document.querySelector('[data-role=rounds]');
    const canvas = strip.querySelector('canvas');
    const pen = canvas.getContext('2d');
    const { data } = pen.getImageData(0, canvas.height - 3, canvas.width, 1);
    // The left edge of each column, filled or drawn; nothing of a round that has not been played.
    const strong = index => data[4 * 18 * index + 3] > 0;
    const indices = Array.from({ length: count }, (_, index) => index);
    return [Number(strip.getAttribute('aria-valuenow')), indices.map(strong)]; }"""
OF_A_ROUND = ("passes", "tau", "alpha_compared", "tokens_per_s", "seconds")
STEP = f"""async count => {{
    document.querySelector('[data-role=phase-on]').click();
    await ({FRAMES})();
    const kept = ({VISIBLE_TOKENS})('speculative')
        .filter(({{ dataset }}) => !['pending', 'discarded'].includes(dataset.status));
    const figures = ({FIGURES})();
    const reported = Object.fromEntries({list(OF_A_ROUND)}.map(name => [name, figures[name]]));
    return [({STRIP})(count), ({SHOWN})(), kept.length, reported]; }}"""
"""Step to the next phase, and return what each view shows there."""


def test_figures_lanes_strip_and_chart_agree_at_every_phase(open_page, service):
    events = rounds(service.replayed)
    page = open_page(width=4000)  # wide enough for columns of 18 whole pixels
    run_to_end(page)
    press(page, "to-start")
    drafted = [index for index, event in enumerate(events) if event["round"]["drafted"]]
    seen = []
    while not seen or seen[-1] < len(events):
        (at, strong), shown, kept, reported = page.evaluate(STEP, len(events))
        settled = shown["passes"]
        seen.append(settled)
        assert shown["chart"] == settled and at == max(1, settled), f"at {shown['clock']} s"
        assert [strong[index] for index in drafted] == [index < settled for index in drafted]
        if settled:
            totals = events[settled - 1]["totals"]
            assert reported == {name: totals[name] for name in OF_A_ROUND}
            assert kept == totals["tokens"]
        else:
            assert not kept and reported["passes"] is None, "nothing is told before a verdict"
    assert set(seen) >= set(range(1, len(events) + 1)) and len(seen) > len(events)


BESIDE = """() => {
    const seen = role =>
        [...document.querySelectorAll(`[data-role=${role}]`)].find(node => node.checkVisibility());
    const strip = document.querySelector('[data-role=rounds]');
    const hint = seen('hint').textContent.replace('3. Accept or correct. ', '');
    return [hint, strip.getAttribute('aria-valuetext'), seen('clock').textContent,
        seen('microscope-title')?.textContent ?? null, seen('tip')?.textContent ?? null]; }"""
"""The texts about a moment: hint, round of the strip, clock, title of the microscope and tooltip."""
OPENING = "Draft tokens come from the draft model; the target verifies all of them in one pass."
AT_START = [OPENING, "No rounds yet", "round 0 of 73", None, None]
BACK = {
    "button": lambda page: press(page, "to-start"),
    "key": lambda page: page.keyboard.press("Home"),
    "scrub bar": lambda page: scrub(page, 0),
    "replay": lambda page: press(page, "to-end", "play", "play", "to-start"),
}


@pytest.mark.parametrize("back", BACK.values(), ids=BACK)
def test_back_at_the_start_no_text_is_about_a_later_round(played, back):
    page = played("greedy")
    open_round(page, 5, 73)
    click_token(page, 4, 0)
    assert page.evaluate(BESIDE)[3].startswith("Round 5:")
    page.evaluate("document.activeElement.blur()")
    back(page)
    page.evaluate(FRAMES)
    assert page.evaluate(BESIDE) == AT_START
    assert page.locator("[data-selected]").count() == 0
    page.wait_for_timeout(2100)  # a sentence for screen readers may wait for two seconds
    assert not page.inner_text("[data-role=live]").startswith("Round")


def test_each_text_is_about_the_moment_to_which_a_visitor_scrubs(played):
    page = played("greedy")
    ends = [0.0]
    press(page, "to-start")
    for _ in range(4):
        press(page, "round-on")
        ends.append(clock(page))
    press(page, "to-end")
    open_round(page, 2, 73)
    for settled in (4, 3):
        scrub(page, ends[settled])
        page.evaluate(FRAMES)
        hint, *_, opened, _ = page.evaluate(BESIDE)
        assert hint.startswith(f"Round {settled}:") and opened.startswith("Round 3:")
    scrub(page, ends[2])
    page.evaluate(FRAMES)
    hint, strip, at, opened, _ = page.evaluate(BESIDE)
    assert hint == strip and hint.startswith("Round 2:") and at == "round 2 of 73" and opened is None
