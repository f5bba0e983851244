"""A class on a projector: everything that students must read is large enough for the last row."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from helpers.browsing import in_every_font
from helpers.layout import assert_in_the_window, faults, resize
from helpers.visitor import end_class, open_class, press, run_to_end
from helpers.waiting import until
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

SIZES = ((1280, 720), (1920, 1080))
LEAST_SHARE = 1 / 28
"""The minimum height of letters as a share of the window's height."""
READ = """root => [...document.querySelectorAll(root)].flatMap(one => [one, ...one.querySelectorAll('*')])
    .filter(node => [...node.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim())
        && node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
        // The teacher's.
        && !node.closest('.sd-sr, .sd-chip, .sd-class-note, option, button, a, select, textarea, form'))
    .map(node => [parseFloat(getComputedStyle(node).fontSize) * node.currentCSSZoom,
        node.textContent.trim().slice(0, 40)])"""
TOKENS = ".sd-text, .sd-hint, .sd-pass-box > b"


class Moment(NamedTuple):
    name: str
    # Selectors of what students read then, and of what has to be in the window.
    read: str
    seen: tuple[str, ...] = ()


def go(page: Any, tab: str) -> None:
    page.click(f"#tab-{tab}-button")


def click(teacher: Any, words: str) -> None:
    teacher.locator(".sd-class").get_by_role("button", name=words, exact=True).click()


def lesson(page: Any, number: int) -> None:
    page.get_by_label(f"Lesson {number}:").click()
    page.wait_for_selector(f"article[data-lesson='{number}'][data-current]")


def end(page: Any) -> None:
    """Go to the end of the recording once it has arrived."""

    def has_ended() -> bool:
        page.keyboard.press("End")
        return page.evaluate(
            "(([now, all]) => now === all)(document.querySelector('.sd-clock').textContent.match(/\\d+/g))"
        )

    until(has_ended)


def joining(page: Any) -> Iterator[Moment]:
    yield Moment("the code", ".sd-class-door", (".sd-class-code", ".sd-class-address"))
    press(page, "join-open")
    yield Moment("the full-screen code", "[data-role=join-screen]")
    page.keyboard.press("Escape")


def asking(page: Any, phone: Any, name: str, text: str = "") -> Iterator[Moment]:
    page.select_option(".sd-class [data-role=prepared]", name)
    if text:
        page.fill(".sd-class textarea[name=text]", text)
        page.fill(".sd-class textarea[name=options]", "yes\nno")
    click(page, "Ask the class")
    phone.click(".sd-asked-option >> nth=1")
    expect(page.locator("[data-role=asked]")).to_contain_text("1 of 1 have answered")
    parts = "[data-role=asked] h2", "[data-role=asked] .sd-answers"
    yield Moment("a question", "[data-role=asked], .sd-class-door", (*parts, ".sd-class-address"))
    click(page, "Close voting")
    expect(page.locator(".sd-answer-count").first).to_be_visible()
    yield Moment("its votes", "[data-role=asked]", parts)
    if text:
        click(page, "A is right")
        yield Moment("its result", "[data-role=asked]", (*parts, ".sd-class-right"))
    click(page, "Next question" if text else "Skip question")
    expect(page.locator("[data-role=ask-form]")).to_be_visible()


def playing(page: Any, phone: Any) -> Iterator[Moment]:
    page.select_option(".sd-class-game select", label="Recipe")
    page.check(".sd-class-game input[name=drafts]")
    page.fill(".sd-class-game input[name=seconds]", "10")
    click(page, "Start the game")
    phone.fill(".sd-game-form textarea", "as soon as you can")
    phone.click(".sd-game-form button")
    expect(page.locator(".sd-game-clock")).to_have_text(re.compile(r"^\d+ s$"))
    expect(page.locator(".sd-game-count")).to_contain_text("1 draft")
    yield Moment("a game", "[data-role=game]", (".sd-game-opening", ".sd-game-clock", ".sd-class-address"))
    expect(page.locator(".sd-game-results")).to_be_visible()
    yield Moment("its result", "[data-role=game]", (".sd-game-figures",))
    click(page, "New game")
    press(page, "sum-up")
    yield Moment("the summary", "[data-role=summary]")


def learning(page: Any) -> Iterator[Moment]:
    """Read each lesson and press its first button, which brings the run into the window."""
    go(page, "learn")
    page.wait_for_selector(".sd-learn[data-at]")
    for number in range(1, 7):
        lesson(page, number)
        yield Moment(f"lesson {number}", "article[data-current] :is(h2, p, legend)")
        page.locator("article[data-current] [data-show]").first.click()
        end(page)
        yield Moment(f"the run of lesson {number}", f"{TOKENS}, .sd-closing p, .sd-figures")


def measure(page: Any, moment: Moment) -> Iterator[str]:
    """Yield what is too small at a moment, at both sizes of the window."""
    for size in SIZES:
        resize(page, size)
        read = page.evaluate(READ, moment.read)
        assert read, moment
        least = LEAST_SHARE * size[1]
        yield from (f"{moment.name} at {size[1]}: {px:.1f} px: {words}" for px, words in read if px < least)
        found = [] if page.locator("dialog:visible").count() else faults(page)
        # The title is not shown, and a choice may be longer than its widget.
        yield from (
            f"{moment.name} at {size[1]}: {fault}"
            for fault in found
            if not re.search("h1|cut: select", fault)
        )
        assert_in_the_window(page, size[1], *moment.seen)
    resize(page, SIZES[0])


@in_every_font
def test_students_read_everything_of_a_class_from_the_last_row(open_page, patient_page, shipped):
    page = open_page(*SIZES[0])
    page.check("[data-role=projector]")
    open_class(page)
    phone = patient_page(viewport={"width": 390, "height": 844})
    phone.goto(page.text_content(".sd-class-link"))
    phone.wait_for_selector(".sd-student[data-state=following]")
    small = [
        fault
        for moments in (
            joining(page),
            asking(page, phone, "", "Faster?"),
            asking(page, phone, "noise"),  # the longest one
            playing(page, phone),
            learning(page),
        )
        for moment in moments
        for fault in measure(page, moment)
    ]
    go(page, "run")
    run_to_end(page)
    small += measure(page, Moment("a run", TOKENS))
    go(page, "class")
    end_class(page)
    assert not small, "\n".join(small)


def test_the_plan_is_done_by_hand_and_its_answers_are_on_the_projector(open_page, shipped):
    page = open_page(*SIZES[0])
    page.check("[data-role=projector]")
    go(page, "learn")
    clock, text = page.locator(".sd-clock"), page.locator("[data-lane=baseline] .sd-text")
    expect(clock).to_have_text("pass 0 of 24")
    for _ in range(5):
        page.click("text=Step one pass")
    expect(clock).to_have_text("pass 5 of 24")
    expect(text).to_contain_text("def fib")

    # The space bar pauses what a button has started.
    page.click("text=Play the target alone")
    page.wait_for_selector(".sd[data-running]")
    page.wait_for_function("Number(document.querySelector('[data-role=scrub]').value) > 0.02")
    page.keyboard.press("Space")
    page.wait_for_selector(".sd:not([data-running])")
    assert float(page.input_value("[data-role=scrub]")) > 0.02
    assert_in_the_window(page, SIZES[0][1], ".sd-pass", "[data-lane=baseline]", ".sd-transport")

    for number, button, answers in (
        (4, "Greedy: two lanes, one text", ("same text", "Same text at 1.24× the speed")),
        (5, "Email, k = 4", ("tokens per pass τ", "2.21", "60%", "1.36×")),
    ):
        lesson(page, number)
        page.click(f"text='{button}'")
        end(page)
        for answer in answers:
            expect(page.locator(f".sd-headline :text('{answer}') >> visible=true").first).to_be_in_viewport()
