"""The card before a visitor's first run, the captions of its first rounds, and the comparison at its end."""

from collections.abc import Callable
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.layout import FONTS, faults, write_in
from helpers.visitor import clock, press, receive_run, requested
from playwright.sync_api import expect

CARD = ".sd-predict"
LINE = ".sd-prediction-line"
WORDS = f"{LINE} [data-role=words]"
CAPTIONS = (
    *("1. Draft", "2. Verify", "3. Keep or correct. Round 1"),
    *("1. Draft", "2. Verify", "3. Keep or correct. Round 2"),
)


@pytest.fixture
def first_visit(open_page: Callable[..., Any]) -> Callable[..., Any]:
    def opened(**how: Any) -> Any:
        page = open_page(predicts=True, **how)
        page.wait_for_selector(".sd-prediction[data-ready]", state="attached")
        return page

    return opened


def predict(page: Any, speed: str = "Faster", count: int = 3) -> None:
    page.click("#run")
    page.click(f"{CARD} label:has-text('{speed}')")
    page.click(f"{CARD} label:has-text('{count} of 4')")
    page.click("text=Run with k = 4")
    page.wait_for_selector(".sd[data-state=playing]")


def test_an_answered_card_runs_with_k_4_and_the_page_compares(first_visit, service):
    page = first_visit()
    predict(page)
    assert requested(service)["k"] == 4
    expect(page.locator(WORDS)).to_have_text("You said: faster, 3 of 4 survive.")
    expect(page.locator("#k input[type=number]")).to_have_value("4")
    press(page, "to-end")
    totals = service.replayed[-1]["totals"]
    mean = sum(totals["accepted_by_position"]) / totals["passes"]
    words = (
        f"You said 3 of 4; measured {mean:.1f} of 4. "
        f"You said faster; measured {totals['speedup']:.2f}× the speed. Same text."
    )
    expect(page.locator(WORDS)).to_have_text(words)
    page.click("text=Now make it slower: k = 12")
    expect(page.locator(LINE)).to_be_hidden()
    page.wait_for_selector(".sd[data-state=playing]")
    assert requested(service, 2)["k"] == 12


def test_the_first_two_rounds_are_slow_and_explained_and_then_the_pace_rises(first_visit):
    page = first_visit()
    predict(page)
    seen: list[str] = []
    for start in CAPTIONS:
        page.wait_for_function(
            "([words, start]) => document.querySelector(words).textContent.startsWith(start)",
            arg=[WORDS, start],
        )
        seen.append(page.text_content("[data-role=pace-text]"))
    assert set(seen) == {"slowed for the captions"}
    expect(page.locator(WORDS)).to_have_text("You said: faster, 3 of 4 survive.")
    expect(page.locator("[data-role=pace-text]")).to_have_text("shown at 1/4 of real speed")


def test_escape_skips_the_card_runs_and_it_never_returns(first_visit, service):
    page = first_visit()
    page.wait_for_selector("#auto input:checked")
    page.click("#run")
    expect(page.locator(CARD)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(CARD)).to_be_hidden()
    page.wait_for_selector(".sd[data-state=playing]")
    assert requested(service)["k"] == "auto", "the visitor's own settings"
    assert page.locator(f"{LINE}:visible").count() == 0
    page.reload()
    page.wait_for_selector(".sd[data-kept]")
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    requested(service, 2)


def test_an_answered_card_never_returns(first_visit, service):
    page = first_visit()
    predict(page)
    page.wait_for_selector("#run:enabled")
    receive_run(page)
    assert len(service.requests) == 2


def test_the_keyboard_alone_answers_it(first_visit, service):
    page = first_visit()
    page.focus("#prompt textarea")
    page.keyboard.press("Enter")
    expect(page.locator(CARD)).to_be_visible()
    for key in ("Space", "Tab", "ArrowRight", "Enter"):  # Faster; 1 of 4; Run
        page.keyboard.press(key)
    page.wait_for_selector(".sd[data-state=playing]")
    expect(page.locator(WORDS)).to_have_text("You said: faster, 1 of 4 survive.")
    assert requested(service)["k"] == 4


@pytest.mark.parametrize("query", ["prompt=Once", "k=9"])
def test_an_address_with_its_own_prompt_or_k_runs_at_once(first_visit, service, query):
    page = first_visit(query=query)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    requested(service)
    assert page.locator(f"{CARD}:visible").count() == 0


def test_lessons_and_recordings_do_not_ask(first_visit, service):
    page = first_visit(query="lesson=2")
    page.click("[data-lesson='2'] [data-run]")
    page.wait_for_selector(".sd[data-state=playing]")
    page.select_option("[data-role=recordings]", "paris")
    page.wait_for_selector(".sd[data-recording=paris]")
    requested(service)
    assert page.locator(f"{CARD}:visible").count() == 0


def test_another_run_and_a_stopped_run_end_the_comparison(first_visit, service):
    service.gap_s, service.hold_at = 0.05, 6
    page = first_visit()
    predict(page)
    page.wait_for_function("document.querySelector('[data-role=scrub]').max > 0")
    page.click("#stop")
    expect(page.locator(LINE)).to_be_hidden()


def test_a_step_past_the_first_rounds_ends_the_captions(first_visit):
    page = first_visit()
    predict(page)
    page.wait_for_selector("#run:enabled")
    press(page, "round-on", "round-on", "round-on")
    assert clock(page) > 0
    expect(page.locator(WORDS)).to_have_text("You said: faster, 3 of 4 survive.")
    press(page, "to-start", "phase-on", "phase-on")
    expect(page.locator(WORDS)).to_contain_text("2. Verify")


@pytest.mark.slow
@pytest.mark.parametrize("font", FONTS)
def test_nothing_of_card_and_line_is_cut_at_any_size(first_visit, font):
    page = first_visit()
    assert write_in(page, font)
    sizes = ((1280, 720), (1920, 1080), (1024, 576), (853, 480), (390, 844))
    page.click("#run")
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        box = page.locator(CARD).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] <= height
        assert page.evaluate("card => card.scrollWidth <= card.clientWidth", page.query_selector(CARD))
    assert_accessible(page, CARD)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.click(f"{CARD} label:has-text('Faster')")
    page.click(f"{CARD} label:has-text('3 of 4')")
    page.click("text=Run with k = 4")
    page.wait_for_selector(".sd[data-state=playing]")
    press(page, "to-end")
    expect(page.locator(f"{LINE} [data-role=next]")).to_be_visible()
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(250)
        page.evaluate("scrollTo(0, 0)")
        assert [fault for fault in faults(page) if "prediction" in fault or "data-role=words" in fault] == []
        expect(page.locator(LINE)).to_be_in_viewport(ratio=1)
    assert_accessible(page, LINE)
