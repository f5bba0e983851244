"""A student alone: from the first visit over the lessons and the quiz to a link for a friend."""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers.replay import beginning
from helpers.visitor import FINISHED, WATCH, figures, open_round, press, requested, stage_state, tokens
from playwright.sync_api import expect

from specdemo.ui.controls import DEFAULTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shipped")]
OPENINGS = {
    1: ("five", "pass 0 of 24", {"baseline"}),
    2: ("five", "round 0 of 9", {"speculative"}),
    3: ("editor", "round 1 of 3", {"speculative", "baseline"}),
    4: ("days", "round 11 of 11", {"speculative", "baseline"}),
    5: ("email", "round 0 of 29", {"speculative", "baseline"}),
    6: ("draft-alone", "round 63 of 63", {"speculative", "baseline", "draft"}),
    7: ("block", "round 56 of 56", {"speculative", "baseline"}),
}
"""What each lesson shows on arrival: the recording, the clock, and the lanes."""
APPENDIX = 7  # it follows the quiz
STAGE = ".sd"
SOURCE = "[data-role=source]"
CLOCK = "[data-role=clock]"
LINE = ".sd-prediction-line"
CLAIM = ".sd-claim"
PRIMARY = """() => [...document.querySelectorAll(".sd-learn .sd-button")].filter(button =>
    button.checkVisibility() && getComputedStyle(button).color === "rgb(255, 255, 255)").length"""


def go_to(page: Any, tab: str) -> None:
    page.click(f"#tab-{tab}-button")
    page.wait_for_selector(f"body[data-tab={tab}]")


def lanes(page: Any) -> set[str]:
    return {lane.get_attribute("data-lane") for lane in page.locator("[data-lane]:visible").all()}


def seen(page: Any) -> list[Any]:
    """Return what a visitor of the tab Run sees of the run and its settings."""
    parts = (SOURCE, CLOCK, "[data-role=microscope-title]", "[data-role=pace-text]", LINE, CLAIM)
    words = [page.inner_text(part) for part in parts]
    return [*stage_state(page), lanes(page), words, page.input_value("#prompt textarea"), auto(page)]


def auto(page: Any) -> bool:
    return page.is_checked("#auto input")


def test_a_student_predicts_runs_learns_takes_the_quiz_and_shares(open_page, service, url):
    service.replayed = beginning("greedy")

    # Arrive: a recording plays
    page = open_page(predicts=True)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.wait_for_selector(f"{STAGE}[data-recording=arrival][data-running]")
    expect(page.locator(SOURCE)).to_contain_text("Recorded on")
    expect(page.locator("#k input[type=number]")).to_have_value("4")  # the recording's is auto
    page.check("#auto input")

    # Predict, and wait in the queue: a recording plays, named as one
    service.ahead = 1
    page.click("#run")
    for words in ("Faster", "3 of 4"):
        page.click(f".sd-predict label:has-text('{words}')")
    page.click("text=Run with k = 4")
    page.wait_for_selector(f"{STAGE}[data-state=waiting][data-recording=arrival][data-running]")
    expect(page.locator("[data-role=progress-text]")).to_have_text(
        "In the queue. Meanwhile, a recorded run plays."
    )
    expect(page.locator(SOURCE)).not_to_contain_text("Press Run")

    # Run: the line with the prediction takes the place of the sentence about the page until the run has ended
    service.gap_s, service.hold_at, service.ahead = 0.1, 6, 0
    page.wait_for_selector(f"{STAGE}[data-state=playing]:not([data-recording])")
    expect(page.locator("[data-role=hint]")).to_contain_text("1. Draft")
    expect(page.locator(CLAIM)).to_be_hidden()
    expect(page.locator("#k input[type=number]")).to_have_value("4")
    service.go_on()
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    expect(page.locator(LINE)).to_contain_text(
        "Accepted tokens: ✗ wrong. Predicted: faster, 3 of 4 accepted. Measured:"
    )
    page.wait_for_selector("#auto input:checked")
    assert requested(service)["k"] == 4 and figures(page)["speedup"] is not None

    # Microscope
    open_round(page, 2, 8)
    expect(page.locator("[data-role=microscope-title]")).to_contain_text("Round 3:")
    mine = seen(page)

    # Learn: each lesson brings its own stage and has one primary button
    go_to(page, "learn")
    for lesson, (recording, clock, shown) in OPENINGS.items():
        if lesson == APPENDIX:
            page.click(".sd-dot:text-is('Appendix')")
        page.wait_for_selector(f"{STAGE}[data-recording={recording}]:not([data-running])")
        expect(page.locator(CLOCK)).to_have_text(clock)
        assert lanes(page) == shown, lesson
        assert page.evaluate(PRIMARY) == 1, lesson
        assert page.locator(".sd-learn h2:visible").bounding_box()["y"] >= 0, lesson
        if lesson == 1:
            press(page, "round-on")
            expect(page.locator(CLOCK)).to_have_text("pass 1 of 24")
            assert len(tokens(page, "baseline")) == 1
            page.click("[data-lesson='1'] .sd-answer button[data-right]")
            expect(page.locator("[data-lesson='1'] .sd-answer [role=status]")).to_have_text("✓ Right.")
        if lesson == 5:
            page.locator("#run").evaluate(WATCH)
            page.click("[data-lesson='5'] [data-run] >> nth=0")
            page.evaluate(FINISHED)
        page.click("[data-go=next]" if lesson != APPENDIX else "[data-go=back]")
    assert requested(service, 2)["prompt"].startswith("Write a short email")

    # Quiz
    page.click(".sd-quiz [data-question='1'] label >> nth=0")
    page.click("#quiz-run")
    page.wait_for_selector(".sd-quiz-verdict")
    assert requested(service, 3) == {"question": 1}

    # Back to Run, also after other tabs: the student's run is as it was
    for tab in ("run", "lab", "class", "learn"):
        go_to(page, tab)
        go_to(page, "run")
        expect(page.locator("[data-role=microscope]")).to_be_visible()
        assert seen(page) == mine, tab

    # Share, and open the link in another browser
    press(page, "microscope-close")
    page.click("[data-role=save-menu] summary")
    page.click("[data-role=save-menu] [data-role=copy-link]")
    expect(page.locator("[data-role=told]")).to_contain_text("without this run")
    link = page.evaluate("navigator.clipboard.readText()")
    friend = open_page(query=urlsplit(link).query)
    expect(friend.locator(SOURCE)).to_contain_text("Press Run to start the linked run.")
    expect(friend.locator("#prompt textarea")).to_have_value(DEFAULTS.prompt)
    friend.click("#run")
    friend.wait_for_selector(f"{STAGE}:not([data-recording])[data-state=playing]")
    first, *_, last = service.requests
    assert all(last[name] == first[name] for name in ("prompt", "mode", "k", "rule", "seed", "drafter"))


def test_a_run_goes_on_while_the_student_reads_a_lesson(open_page, service):
    service.gap_s, service.hold_at = 0.1, 6
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_selector(f"{STAGE}[data-state=playing]:not([data-recording])")
    go_to(page, "learn")
    page.wait_for_selector(f"{STAGE}[data-recording=five]")
    page.click("[data-go=next]")
    page.click("[data-lesson='2'] [data-show]")
    page.wait_for_selector(f"{STAGE}[data-recording=five][data-focus=speculative]")
    go_to(page, "run")
    expect(page.locator(CLOCK)).to_have_text(re.compile(r"round \d"))
    page.wait_for_selector(f"{STAGE}[data-state=playing]:not([data-recording])")
    go_to(page, "learn")
    page.wait_for_selector(f"{STAGE}[data-recording=five]")
    service.go_on()
    page.wait_for_selector("#run:enabled", state="attached")
    go_to(page, "run")
    press(page, "to-end")
    page.wait_for_selector(f"{STAGE}[data-state=ended]")
    assert page.inner_text("[data-role=sentence]") == service.replayed[-1]["sentence"]
    page.reload()
    page.wait_for_selector(f"{STAGE}[data-kept][data-state=ended]")
