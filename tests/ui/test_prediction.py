"""The card before a visitor's first run, the captions of its first rounds, and the comparison at its end."""

from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.browsing import in_every_font
from helpers.layout import faults
from helpers.replay import beginning, steady
from helpers.visitor import press, requested
from playwright.sync_api import expect

CARD = ".sd-predict"
LINE = ".sd-prediction-line"
WORDS = f"{LINE} [data-role=words]"
FOCUS = "document.activeElement.className"
HINT = "[data-role=hint]"
PLAYING = ".sd[data-state=playing]"


@pytest.fixture
def first_visit(open_page: Any, service: Any) -> Any:
    def opened(**how: Any) -> Any:
        service.replayed = steady(beginning("greedy"))
        page = open_page(predicts=True, **how)
        page.wait_for_selector(".sd-prediction[data-ready]", state="attached")
        return page

    return opened


def predict(page: Any) -> None:
    for words in ("Faster", "3 of 4"):
        page.click(f"{CARD} label:has-text('{words}')")
    page.click("text=Run with k = 4")


def test_a_card_answered_by_keyboard_runs_with_k_4_explains_two_rounds_and_compares(first_visit, service):
    page = first_visit()
    page.focus("#prompt textarea")
    page.keyboard.press("Enter")
    expect(page.locator(CARD)).to_be_visible()
    for key in ("Space", "Tab", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"):  # Faster; 3 of 4; Run
        page.keyboard.press(key)
    page.wait_for_selector(PLAYING)
    assert page.evaluate(FOCUS) == "sd-text", "the run"
    assert requested(service)["k"] == 4
    expect(page.locator(HINT)).to_contain_text("1. Draft")
    expect(page.locator("[data-role=pace-text]")).to_have_text("slowed for the captions")
    page.wait_for_selector("#run:enabled")
    press(page, "to-start", "phase-on")
    for caption in ("1. Draft", "2. Verify", "3. Accept or correct. Round 1", "1. Draft"):
        expect(page.locator(HINT)).to_contain_text(caption)
        press(page, "phase-on")
    press(page, "round-on", "round-on")
    expect(page.locator(WORDS)).to_have_text("Predicted: faster, 3 of 4 accepted.")
    expect(page.locator("[data-role=pace-text]")).to_have_text("shown at 1/4 of real speed")
    press(page, "to-end")
    totals = service.replayed[-1]["totals"]
    mean = sum(totals["accepted_by_position"]) / totals["passes"]
    words = f"Measured: speedup {totals['speedup']:.2f}×, {mean:.1f} of 4 accepted"
    rate = f"(α {totals['alpha_compared']:.0%}: compared tokens only)."
    judged = "Speed: ✓ right. Accepted tokens: ✗ wrong."
    compared = f"{judged} Predicted: faster, 3 of 4 accepted. {words} {rate}"
    expect(page.locator(WORDS)).to_have_text(compared)
    press(page, "to-start")
    expect(page.locator(WORDS)).to_have_text(compared)
    expect(page.locator("[data-role=pace-text]")).to_have_text("shown at 1/4 of real speed")
    page.click(f"{LINE} [data-role=next]:has-text('k = 12')")
    assert page.evaluate(FOCUS) == "sd-text"
    assert requested(service, 2)["k"] == 12
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    expect(page.locator(WORDS)).to_contain_text(f"k = 12. Measured: {mean:.1f} of 12 draft tokens accepted")
    expect(page.locator(f"{LINE} [data-role=next]")).to_be_hidden()
    page.click("#run")
    page.wait_for_selector(PLAYING)
    requested(service, 3)


@pytest.mark.slow
def test_a_comparison_that_other_work_disturbed_is_offered_again(first_visit, service):
    page = first_visit()
    service.replayed = beginning("greedy")
    page.click("#run")
    predict(page)
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    expect(page.locator(WORDS)).to_contain_text("× (disturbed), ")
    service.replayed = steady(beginning("greedy"))
    page.click(f"{LINE} [data-role=next]:has-text('Run it again')")
    assert requested(service, 2)["k"] == 4
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    expect(page.locator(WORDS)).to_contain_text(
        "Predicted: faster, 3 of 4 accepted. Measured: speedup 2.15×, "
    )
    expect(page.locator(f"{LINE} [data-role=next]")).to_contain_text("k = 12")


@pytest.mark.slow
def test_a_stopped_run_ends_the_comparison(first_visit, service):
    service.gap_s, service.hold_at = 0.05, 6
    page = first_visit()
    page.click("#run")
    predict(page)
    expect(page.locator(WORDS)).to_be_visible()
    page.wait_for_function("document.querySelector('[data-role=scrub]').max > 0")
    page.click("#stop")
    expect(page.locator(LINE)).to_be_hidden()


@pytest.mark.slow
def test_escape_skips_the_card_runs_and_it_never_returns(first_visit, service):
    page = first_visit()
    page.check("#auto input")
    page.click("#run")
    expect(page.locator(CARD)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(CARD)).to_be_hidden()
    page.wait_for_selector(PLAYING)
    assert page.evaluate(FOCUS) == "sd-text"
    assert requested(service)["k"] == "auto", "the visitor's own settings"
    assert page.locator(f"{LINE}:visible").count() == 0
    page.reload()
    page.wait_for_selector(".sd[data-kept]")
    page.click("#run")
    page.wait_for_selector(PLAYING)
    requested(service, 2)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["k=9", "prompt=Once"])
def test_an_address_with_its_own_prompt_or_k_runs_at_once(first_visit, service, query):
    page = first_visit(query=query)
    page.click("#run")
    page.wait_for_selector(PLAYING)
    requested(service)
    assert page.locator(f"{CARD}:visible").count() == 0


@pytest.mark.slow
@in_every_font
def test_nothing_of_card_and_line_is_cut_at_any_size(first_visit):
    page = first_visit()
    sizes = ((1280, 720), (1920, 1080), (1024, 576), (853, 480), (390, 844))
    page.click("#run")
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        box = page.locator(CARD).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] <= height
        assert page.evaluate("card => card.scrollWidth <= card.clientWidth", page.query_selector(CARD))
    assert_accessible(page, CARD)
    page.set_viewport_size({"width": 1280, "height": 720})
    predict(page)
    page.wait_for_selector(PLAYING)
    press(page, "to-end")
    expect(page.locator(f"{LINE} [data-role=next]")).to_be_visible()
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(250)  # resize observers run
        page.evaluate("scrollTo(0, 0)")
        assert [fault for fault in faults(page) if "prediction" in fault or "data-role=words" in fault] == []
        expect(page.locator(LINE)).to_be_in_viewport(ratio=1)
    assert_accessible(page, LINE)
