"""Keys of the whole page, explanations of figures, and announcements to screen readers."""

from itertools import pairwise

import pytest
from helpers.pages import MOUNTED
from helpers.replay import faster, recorded, rounds
from helpers.visitor import clock, figures, press, run_to_end, tokens
from playwright.sync_api import expect

HELP = "#sd-help"
LIVE = "[data-role=live]"
# Records each text at the time of writing; an observer would run only after the task.
SAID = """() => { window.said = [];
    const live = document.querySelector('[data-role=live]');
    const { get, set } = Object.getOwnPropertyDescriptor(Node.prototype, 'textContent');
    Object.defineProperty(live, 'textContent', {
        get, set(words) { said.push([performance.now(), words]); set.call(this, words); } }); }"""


def blur(page) -> None:
    page.evaluate("document.activeElement.blur()")


def press_keys(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_keys_play_and_step_from_anywhere_on_the_page(played):
    page = played("greedy")
    blur(page)
    page.keyboard.press("Home")
    assert clock(page) == 0
    page.keyboard.press("ArrowRight")
    assert {status for _, status, *_ in tokens(page)} == {"pending"}
    page.keyboard.press("Shift+ArrowRight")
    assert figures(page)["passes"] == 1
    press_keys(page, "Shift+ArrowRight", "ArrowLeft")
    assert figures(page)["passes"] == 1, "the second round's verdict is undone"
    page.keyboard.press("End")
    assert page.get_attribute(".sd", "data-state") == "ended"
    press_keys(page, "Home", "Space")
    page.wait_for_selector(".sd[data-running]")
    page.keyboard.press("Space")
    page.wait_for_selector(".sd:not([data-running])")
    assert page.evaluate("scrollY") == 0, "no key scrolled as well"
    page.click("#tab-lab-button")
    page.wait_for_selector("#stage", state="hidden")
    blur(page)
    at = clock(page)
    press_keys(page, "Home", "?")
    assert clock(page) == at and page.locator(".sd-keys[open]").count() == 0, "the run is hidden"
    page.click("#tab-run-button")
    page.wait_for_selector("#stage")


def test_keys_keep_their_function_in_fields_and_buttons(played):
    page = played("greedy")
    press(page, "to-start", "round-on")
    at = clock(page)
    page.focus("#prompt textarea")
    press_keys(page, "Space", "ArrowLeft", "Home", "Shift+ArrowRight", "?")
    assert clock(page) == at and page.locator(".sd-keys[open]").count() == 0
    page.focus("[data-role=round-on]")
    page.keyboard.press("Space")
    assert figures(page)["passes"] == 2, "pressed"
    assert page.locator(".sd[data-running]").count() == 0, "not played"
    page.focus("[data-role=scrub]")
    page.keyboard.press("Shift+ArrowLeft")
    assert figures(page)["passes"] == 1, "after scrubbing the arrows still step"
    page.focus("[data-role=rounds]")
    page.keyboard.press("Space")
    page.wait_for_selector(".sd[data-running]")
    assert page.locator("[data-role=microscope]").is_hidden()
    press_keys(page, "Space", "Enter")
    assert page.locator("[data-role=microscope]").is_visible()
    at = int(page.inner_text("[data-role=microscope-title]").split()[1].rstrip(":"))
    blur(page)
    page.keyboard.press("ArrowRight")
    assert page.inner_text("[data-role=microscope-title]").startswith(f"Round {at + 1}:")


def test_a_question_mark_lists_the_keys(played):
    page = played("greedy")
    blur(page)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert dialog.is_visible() and "Play or pause" in dialog.inner_text()
    at = clock(page)
    page.keyboard.press("Home")
    assert clock(page) == at, "the list has the keys to itself"
    page.keyboard.press("Escape")
    assert dialog.is_hidden()


def test_a_figure_is_explained_with_the_numbers_of_the_run(played):
    page = played("greedy")
    totals = recorded("greedy")[-1]["totals"]
    accepted, compared = sum(totals["accepted_by_position"]), sum(totals["compared_by_position"])
    button, open_help = page.locator("[data-help=alpha]"), page.locator(HELP)
    assert button.get_attribute("aria-expanded") == "false"
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert page.get_attribute(HELP, "id") == button.get_attribute("aria-controls")
    assert f"{accepted} of {compared} = {totals['alpha_compared']:.0%}" in page.inner_text(HELP)
    page.click("[data-help=speedup]")
    expect(open_help).to_have_count(1)
    assert f"= {totals['speedup']:.2f}×" in page.inner_text(HELP)
    page.click(f"{HELP} [data-more=theory]")
    assert f"{totals['s_theory']:.2f}×" in page.inner_text(HELP)
    page.keyboard.press("Escape")
    expect(open_help).to_have_count(0)
    assert page.evaluate("document.activeElement.dataset.help") == "speedup"
    button.click()
    page.mouse.click(3, 3)
    expect(open_help).to_have_count(0)
    page.focus("[data-help=tau]")
    page.keyboard.press("Space")
    assert page.locator(HELP).is_visible() and page.locator(".sd[data-running]").count() == 0
    page.keyboard.press("Space")
    assert open_help.count() == 0, "the same button closes it"


@pytest.mark.slow
def test_help_opens_by_touch_and_lies_within_a_phone(patient_page, url, service):
    page = patient_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(url)
    page.wait_for_selector(MOUNTED, state="attached")
    page.locator("[data-help=speedup]").tap()
    box = page.locator(HELP).bounding_box()
    assert "Figures appear after the first round." in page.inner_text(HELP)
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] >= 0
    page.locator("[data-role=play]").tap(force=True)
    assert page.locator(HELP).count() == 0


@pytest.mark.slow
def test_a_listener_hears_a_round_at_most_every_two_seconds_and_the_headline_at_once(open_page, service):
    service.replayed = faster(recorded("greedy"), 2)
    page = open_page(pace=1)
    page.evaluate(SAID)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=ended]")
    heard = [(at, words) for at, words in page.evaluate("said") if words]
    times = [at for at, words in heard if words.startswith("Round ")]
    assert len(times) > 2 and all(later - at >= 1990 for at, later in pairwise(times))
    assert heard[-1][1] == service.replayed[-1]["sentence"]
    assert page.get_attribute(LIVE, "aria-live") == "polite"


@pytest.mark.slow
def test_no_speedup_is_shown_before_both_lanes_have_eight_tokens(played):
    page = played("greedy")
    label = page.locator("[data-label=identical]")
    assert label.inner_text() == "same text"
    press(page, "round-back")
    assert label.inner_text() == "same text so far"
    press(page, "to-start")
    seen = set()
    for _ in range(12):
        press(page, "round-on")
        shown = figures(page)
        early = "after 8 tokens" in page.inner_text("[data-label=speedup]")
        assert early == (shown["speedup"] is None)
        seen.add(early)
    assert seen == {True, False}


@pytest.mark.slow
def test_tokens_of_a_round_without_a_draft_are_plain(open_page, service):
    service.replayed = recorded("greedy")
    for event in rounds(service.replayed)[:2]:
        event["round"]["drafted"] = []
        assert event["round"]["emission"]["status"] in {"bonus", "corrected"}
    page = open_page()
    run_to_end(page)
    press(page, "to-start", "round-on", "round-on")
    assert [status for _, status, *_ in tokens(page)] == [None, None]
    page.focus("[data-role=rounds]")
    page.keyboard.press("Enter")
    assert page.inner_text(".sd-card header").endswith("target's own")
    assert page.locator(".sd-card [data-status]").count() == 0
