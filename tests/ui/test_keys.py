"""Keys of the whole page, explanations of figures, and announcements to screen readers."""

import pytest
from helpers.replay import recorded, rounds
from helpers.visitor import clock, figures, press, run_to_end, tokens
from playwright.sync_api import expect

HELP = "#sd-help"


# Records each text at the time of writing; an observer would run only after the task.
def blur(page) -> None:
    page.evaluate("document.activeElement.blur()")


def press_keys(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


@pytest.mark.slow
def test_keys_play_and_step_unless_the_focused_field_or_button_uses_them_or_the_run_is_hidden(played):
    page = played("greedy")
    blur(page)
    page.keyboard.press("Home")
    assert clock(page) == 0
    page.keyboard.press("ArrowRight")
    assert {status for _, status, *_ in tokens(page)} == {"pending"}
    press_keys(page, "Shift+ArrowRight", "Shift+ArrowRight", "ArrowLeft")
    assert figures(page)["passes"] == 1, "the second round's verdict is undone"
    at = clock(page)
    page.focus("#prompt textarea")
    press_keys(page, "Space", "ArrowLeft", "Home", "Shift+ArrowRight", "?")
    assert clock(page) == at and page.locator(".sd-keys[open]").count() == 0
    page.focus("[data-role=round-on]")
    page.keyboard.press("Space")
    assert figures(page)["passes"] == 2 and page.locator(".sd[data-running]").count() == 0, "not played"
    page.focus("[data-role=scrub]")
    page.keyboard.press("Shift+ArrowLeft")
    assert figures(page)["passes"] == 1, "after scrubbing the arrows still step"
    page.focus("[data-role=rounds]")
    page.keyboard.press("Space")
    page.wait_for_selector(".sd[data-running]")
    assert page.locator("[data-role=microscope]").is_hidden()
    press_keys(page, "Space", "Enter")
    expect(page.locator("[data-role=microscope]")).to_be_visible()
    page.keyboard.press("Escape")
    blur(page)
    page.keyboard.press("End")
    expect(page.locator(".sd")).to_have_attribute("data-state", "ended")
    assert page.evaluate("scrollY") == 0, "no key scrolled as well"
    page.click("#tab-lab-button")
    page.wait_for_selector("#stage", state="hidden")
    blur(page)
    at = clock(page)
    press_keys(page, "Home", "?")
    assert clock(page) == at and page.locator(".sd-keys[open]").count() == 0, "the run is hidden"
    page.click("#tab-run-button")
    page.wait_for_selector("#stage")


def test_a_question_mark_lists_the_keys(played):
    page = played("greedy")
    blur(page)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert dialog.is_visible() and "Play or pause" in dialog.inner_text()
    at = clock(page)
    press_keys(page, "Home", "Escape")
    assert clock(page) == at and dialog.is_hidden(), "the list has the keys to itself"


def test_a_figure_is_explained_with_the_numbers_of_the_run(played):
    page = played("greedy")
    totals = recorded("greedy")[-1]["totals"]
    button, open_help = page.locator("[data-help=alpha]"), page.locator(HELP)
    for expanded in ("false", "true"):
        assert button.get_attribute("aria-expanded") == expanded
        button.click()
    expect(open_help).to_have_count(0)
    button.click()
    assert page.get_attribute(HELP, "id") == button.get_attribute("aria-controls")
    assert f"= {totals['alpha_compared']:.0%}" in page.inner_text(HELP)
    page.click("[data-help=speedup]")
    expect(open_help).to_have_count(1)
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


@pytest.mark.slow
def test_no_speedup_is_shown_before_both_lanes_have_eight_tokens(played):
    page = played("greedy")
    label = page.locator("[data-label=identical]")
    assert label.inner_text() == "same text"
    press(page, "round-back")
    assert label.inner_text() == "same text so far"
    press(page, "to-start")
    seen = []
    for _ in range(12):
        press(page, "round-on")
        seen.append("after 8 tokens" in page.inner_text("[data-label=speedup]"))
        assert seen[-1] == (figures(page)["speedup"] is None)
    assert seen[0] and not seen[-1]


@pytest.mark.slow
def test_tokens_of_a_round_without_a_draft_are_plain(open_page, service):
    service.replayed = recorded("greedy")
    for event in rounds(service.replayed)[:2]:
        event["round"]["drafted"] = []
    page = open_page()
    run_to_end(page)
    press(page, "to-start", "round-on", "round-on")
    assert [status for _, status, *_ in tokens(page)] == [None, None]
    page.focus("[data-role=rounds]")
    page.keyboard.press("Enter")
    assert page.inner_text(".sd-card header").endswith("target's own")
    assert page.locator(".sd-card [data-status]").count() == 0


@pytest.mark.slow
def test_escape_in_a_list_of_the_settings_closes_only_the_list(open_page):
    page = open_page()
    page.click("#more > button")
    panel = page.locator("#more > div:not(.wrap)").bounding_box()
    rule = page.locator("#rule label").last.bounding_box()
    assert rule["x"] + rule["width"] <= panel["x"] + panel["width"], "the last rule is whole"
    page.click("#drafter input")
    options = page.locator("[role=listbox]")
    expect(options).to_be_visible()
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    expect(page.locator("#rule")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#rule")).to_be_hidden()
