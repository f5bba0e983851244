"""A teacher's page and students' pages in a real browser: what each sees, and what they can do.

Most tests share the pages of one class, and find it without a question or game.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.browsing import in_every_font
from helpers.http_visitor import PLAIN, served
from helpers.pages import MOUNTED, PATIENCE_MS, Pages, Visitors
from helpers.replay import beginning, steady
from helpers.stand_in import StandIn, planted
from helpers.visitor import (
    WIDER,
    clock,
    end_class,
    open_class,
    open_round,
    plain_text,
    press,
    run_to_end,
    scrub,
    stage_state,
)
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.classroom.rooms import Rooms
from specdemo.quiz.questions import QUESTIONS
from specdemo.records.trace import SPECULATIVE
from specdemo.ui.http.class_routes import class_routes
from specdemo.ui.page import build_page, launch_options

COST = next(number for number, question in enumerate(QUESTIONS, 1) if question.name == "cost")
RUN = beginning("greedy")
SCROLLS = """() => { const screen = document.querySelector('[data-role=join-screen]');
    return screen.scrollHeight > screen.clientHeight || screen.scrollWidth > screen.clientWidth; }"""
TEXT_SIZES = """() => Object.fromEntries([...document.querySelectorAll('.sd-class *, .sd-class-chip')]
    .filter(node => node.checkVisibility())
    .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
    .map(node => [node.textContent.trim().slice(0, 40), parseFloat(getComputedStyle(node).fontSize)]))"""
STATUSES = (
    "all => all.map(({ textContent, dataset }) => [textContent, dataset.status, 'rejected' in dataset])"
)
NO_STREAMS = "window.EventSource = class { close() {} }"
"""Simulates a proxy that holds back every stream."""
TOLD = ".sd-asked-told"
BODY_WIDER = WIDER.replace("main *", "body *")
MAY_BREAK = """[...document.querySelectorAll('table, tr')]
    .filter(part => getComputedStyle(part).breakInside !== 'avoid').map(part => part.innerText)"""
DISMISS = """() => {
    // One step, because what an earlier test has dismissed may go at any moment.
    const parts = ['asked', 'game'].map(role => document.querySelector(`.sd-class [data-role=${role}]`));
    for (const part of parts) {
        const button = part.hidden ? null : [...part.querySelectorAll('button')].at(-1);
        if (button && !('pressed' in button.dataset)) { button.dataset.pressed = ''; button.click(); }
    }
    return parts.every(part => part.hidden); }"""
"""Dismiss question and game; return whether both are gone."""


class Class:
    """A class with the teacher's page, a student's phone in the dark theme, and a student with a keyboard."""

    def __init__(self, browser: Any, teacher: Any):
        self._browser = browser
        self.teacher = teacher
        open_class(teacher)
        self.phone = self.student(viewport={"width": 390, "height": 844}, color_scheme="dark")
        self.keyboard = self.student()

    def student(self, script: str = "", **options: Any) -> Any:
        """Return the page of another student; an error in its JavaScript counts as the teacher's."""
        context = self._browser.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.teacher.faults.append(str(error)))
        page.add_init_script(script)
        page.goto(self.teacher.text_content(".sd-class-link"))
        page.wait_for_selector(".sd-student[data-state=following]")
        return page

    def close(self) -> None:
        for page in (self.phone, self.keyboard):
            page.context.close()
        go(self.teacher, "class")
        if self.teacher.locator(".sd-class[data-state=open]").count():
            end_class(self.teacher)


@pytest.fixture(scope="module")
def shared_class(browser: Any, visitors: Visitors, url: str, replay: StandIn) -> Iterator[Class]:
    pages = Pages(visitors, url)
    replay.reset()
    shared = Class(browser, pages.open())
    yield shared
    shared.close()
    pages.close()


@pytest.fixture
def room(shared_class: Class, service: StandIn) -> Iterator[Class]:
    service.replayed = RUN
    go(shared_class.teacher, "class")
    until(lambda: shared_class.teacher.evaluate(DISMISS))
    yield shared_class
    assert shared_class.teacher.faults == []


def go(page: Any, tab: str) -> None:
    page.click(f"#tab-{tab}-button")


def show_run(teacher: Any, *students: Any) -> None:
    """Run as the teacher to the end, and wait until the students see it."""
    go(teacher, "run")
    run_to_end(teacher)
    for page in students:
        same(teacher, page)


def same(one: Any, other: Any) -> None:
    """Wait until both stages show the same time, tokens and figures."""
    expect(other.locator("[data-role=scrub]")).to_have_value(one.input_value("[data-role=scrub]"))
    expected = stage_state(one)
    until(lambda: stage_state(other) == expected)


def click(teacher: Any, words: str) -> None:
    """Press a button of the tab by its words."""
    teacher.locator(".sd-class").get_by_role("button", name=words, exact=True).click()


def ask(page: Any, text: str = "Faster?") -> None:
    page.fill(".sd-class textarea[name=text]", text)
    page.fill(".sd-class textarea[name=options]", "yes\nno")
    click(page, "Ask the class")
    page.wait_for_selector("text=Close voting")


def ask_prepared(page: Any, name: str) -> None:
    page.select_option(".sd-class [data-role=prepared]", name)
    click(page, "Ask the class")


def start_game(page: Any) -> None:
    page.fill(".sd-class-game textarea[name=text]", "Please answer")
    page.fill(".sd-class-game input[name=seconds]", "5")
    click(page, "Start the game")


def show_end(teacher: Any) -> None:
    """Go to the end of a run, which may not have arrived completely."""
    ended = teacher.locator(".sd[data-state=ended]")
    until(lambda: press(teacher, "to-end") or ended.count())


def told(page: Any) -> Any:
    """Return an assertion about a student's sentence below the question."""
    return expect(page.locator(f"[data-role=asked] {TOLD}"))


def asked(teacher: Any) -> Any:
    return expect(teacher.locator("[data-role=asked]"))


def state(page: Any) -> Any:
    return expect(page.locator(".sd-student"))


def test_students_follow_run_clock_pace_and_opened_round(room):
    teacher, phone = room.teacher, room.phone
    show_run(teacher, phone)
    assert plain_text(phone, SPECULATIVE) == plain_text(teacher, SPECULATIVE) != ""
    scrub(teacher, 0.05)
    expect(phone.locator("[data-role=scrub]")).to_have_value("0.05")
    press(teacher, "round-on")
    same(teacher, phone)
    rounds = teacher.evaluate("document.querySelector('[data-role=rounds]').ariaValueMax")
    open_round(teacher, 1, int(rounds))
    microscope = phone.locator("[data-role=microscope]")
    expect(microscope).to_be_visible()
    title = teacher.text_content("[data-role=microscope-title]")
    expect(phone.locator("[data-role=microscope-title]")).to_have_text(title)
    press(teacher, "microscope-close")
    expect(microscope).to_be_hidden()
    assert not phone.evaluate("document.documentElement.scrollWidth > innerWidth")
    teacher.check(".sd-pace input[value='0.05']", force=True)
    press(teacher, "to-start", "play")
    expect(phone.locator(".sd-pace input[value='0.05']")).to_be_checked()
    phone.wait_for_function("Number(document.querySelector('[data-role=scrub]').value) > 0.01")
    press(teacher, "play")
    expect(phone.locator("[data-role=scrub]")).to_have_value(teacher.input_value("[data-role=scrub]"))
    assert clock(phone) > 0


@pytest.mark.slow
def test_the_class_sees_the_teachers_lesson_tab_and_error(room):
    teacher, phone = room.teacher, room.phone
    go(teacher, "learn")
    teacher.wait_for_selector(".sd-learn[data-at]")
    teacher.get_by_label("Lesson 2:").click()
    expect(phone.locator("[data-lesson='2']")).to_be_visible()
    expect(phone.locator("[data-lesson='1']")).to_be_hidden()
    expect(phone.locator(".sd-do button").first).to_be_hidden()
    go(teacher, "play")
    expect(phone.locator("[data-role=where]")).to_contain_text("“Play”")
    expect(phone.locator("[data-lesson='2']")).to_be_hidden()
    go(teacher, "run")
    prompt = teacher.input_value("#prompt textarea")
    teacher.fill("#prompt textarea", " ")
    teacher.click("#run")
    words = teacher.locator(".sd-error")
    expect(words).to_be_visible()
    expect(phone.locator(".sd-error")).to_have_text(words.text_content())
    teacher.fill("#prompt textarea", prompt)


def test_a_teachers_own_question_from_asking_to_the_summary(room):
    teacher, phone, keyboard = room.teacher, room.phone, room.keyboard
    ask(teacher, "Skipped?")
    click(teacher, "Skip question")
    teacher.wait_for_selector("[data-role=ask-form]:visible")
    ask(teacher)
    options = phone.locator(".sd-asked-option")
    expect(options).to_have_count(2)
    expect(phone.locator(".sd")).to_be_hidden()  # the last run may contain the answer
    options.nth(1).click()
    keyboard.wait_for_selector(".sd-asked-option")
    keyboard.focus(".sd-asked-option >> nth=0")
    keyboard.keyboard.press("Space")
    told(keyboard).to_contain_text("Your answer: A, “yes”")
    asked(teacher).to_contain_text("2 of 2 have answered")
    assert teacher.locator("[data-role=asked] .sd-answer-bar").count() == 0  # not before the close
    phone.reload()
    expect(phone.locator(".sd-asked-option[aria-pressed=true]")).to_contain_text("no")
    click(teacher, "Close voting")
    expect(phone.locator(".sd-answer-count")).to_have_text(["1 (50%)", "1 (50%)"])
    expect(phone.locator(".sd")).to_be_visible()
    text, bar = (phone.locator(part).first.bounding_box() for part in (".sd-answer-text", ".sd-answer-bar"))
    assert bar["y"] >= text["y"] + text["height"]
    click(teacher, "A is right")
    told(keyboard).to_contain_text("You were right. Answer: A, “yes”. 1 of 2 were right.")
    expect(phone.locator(".sd-asked > :first-child")).to_contain_text("You were wrong.")
    assert not phone.evaluate(BODY_WIDER, 390)
    press(teacher, "sum-up")
    summary = teacher.locator("[data-role=summary]")
    expect(summary).to_contain_text("1 of 2 were right.")
    expect(summary).not_to_contain_text("Skipped?")
    click(teacher, "Next question")
    expect(phone.locator("[data-role=asked]")).to_be_hidden()
    expect(summary).to_be_hidden()
    expect(teacher.locator("[data-role=ask-form] h2")).to_be_in_viewport()
    expect(teacher.locator(".sd-class-form textarea[name=text]").first).to_have_value("")
    press(teacher, "sum-up")
    with teacher.expect_download() as download:
        click(teacher, "Save as CSV")
    assert "Faster?" in download.value.path().read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_next_run_is_judged_if_nothing_disturbed_it_and_only_after_its_replay(room, service):
    teacher, phone = room.teacher, room.phone
    ask_prepared(teacher, "run-speed")
    phone.wait_for_selector(".sd-asked-option")
    phone.context.set_offline(True)
    phone.click(".sd-asked-option >> nth=0")
    told(phone).to_have_text("No connection. This page sends it when the connection is back.")
    expect(phone.locator(".sd-asked-option[aria-pressed=true]")).to_contain_text("A")
    phone.click(".sd-asked-option >> nth=1")
    phone.context.set_offline(False)
    told(phone).to_contain_text("Your answer: B")
    late = room.keyboard
    late.context.set_offline(True)
    late.click(".sd-asked-option >> nth=0")
    told(late).to_contain_text("No connection.")
    click(teacher, "Close voting")
    told(phone).to_contain_text("Voting is closed")
    late.context.set_offline(False)
    told(late).to_contain_text("Your answer was not accepted.")
    for run in (RUN, steady(RUN)):
        service.replayed = run
        click(teacher, "Measure it")
        teacher.wait_for_selector(".sd[data-state=playing]")
        told(phone).to_contain_text("is being measured now")
        show_end(teacher)
        if run is RUN:
            told(phone).to_contain_text(
                "Other work disturbed this run, so it gives no verdict. Wait for your teacher."
            )
            go(teacher, "learn")
            expect(phone.locator("[data-role=asked]")).to_be_hidden()
            go(teacher, "class")
            asked(teacher).to_contain_text("Other work disturbed this run")
    told(phone).to_contain_text("✗ You were wrong. Measured: A, “Faster”.")
    teacher.click("text=Show the students' answers")
    asked(teacher).to_contain_text("at 2.15× the speed of the target alone.")


@pytest.mark.slow
def test_a_question_of_the_quiz_is_answered_by_its_measurement_which_can_be_repeated(room, service):
    teacher, phone = room.teacher, room.phone
    service.outcomes = {"cost": (planted(speedup=1.7), planted(speedup=0.9))}
    ask_prepared(teacher, "cost")
    phone.click(".sd-asked-option >> nth=2")
    told(phone).to_contain_text("Your answer: C")
    click(teacher, "Close voting")
    service.fault = "The GPU is gone."
    click(teacher, "Measure it")
    told(phone).to_have_text(f"Voting is closed (answers: 1). {service.fault} Wait for your teacher.")
    asked(teacher).to_contain_text(service.fault)
    service.fault, service.hold_at = None, 1
    click(teacher, "Measure it")
    told(phone).to_contain_text("is being measured now")
    expect(teacher.locator("[data-role=asked] td b").first).to_have_text("50%")
    service.go_on()
    told(phone).to_contain_text("You were right. Measured: C")
    asked(teacher).to_contain_text("1 of 1 were right.")
    assert teacher.locator(".sd-class").is_visible(), "the teacher stays on this tab"
    assert_leaves_while_the_teacher_is_elsewhere(teacher, phone.locator("[data-role=asked]"))
    press(teacher, "sum-up")
    expect(teacher.locator("[data-role=summary]")).to_contain_text(
        "each step computed 8 times: Acceptance rate α 50%, Speedup S over the target alone 0.90×"
    )
    assert service.requests == [{"question": COST}] * 2


@pytest.mark.slow
def test_a_measurement_ends_although_the_teachers_page_is_reloaded_or_gone(room, service, monkeypatch):
    teacher, phone = room.teacher, room.phone
    for name in ("cost", "run-speed"):
        service.replayed, service.hold_at = steady(RUN), 1
        go(teacher, "class")
        ask_prepared(teacher, name)
        phone.click(".sd-asked-option >> nth=0")
        told(phone).to_contain_text("Your answer: A")
        click(teacher, "Close voting")
        click(teacher, "Measure it")
        until(lambda: service.served == 1)
        told(phone).to_contain_text("is being measured now")
        page = teacher.url
        if name == "cost":
            teacher.reload()
            teacher.wait_for_selector(MOUNTED, state="attached")
            asked(teacher).to_contain_text("Stop measuring")
        else:
            teacher.goto("about:blank")
            monkeypatch.setattr("specdemo.classroom.room.SILENT_S", 0.5)
        service.go_on()
        told(phone).to_contain_text("Measured: ")
        teacher.goto(page)
        teacher.wait_for_selector(MOUNTED, state="attached")
        go(teacher, "class")
        asked(teacher).to_contain_text("Measured: ")
        if name == "cost":
            expect(teacher.locator("[data-role=asked] td b").first).to_be_visible()
        click(teacher, "Next question")


@pytest.mark.slow
def test_a_class_goes_on_when_its_teacher_reloads_the_page_on_another_tab(room):
    teacher, phone = room.teacher, room.phone
    go(teacher, "learn")
    lesson = phone.locator("[data-role=lessons] [data-current]")
    expect(lesson).to_be_visible()
    teacher.reload()
    teacher.wait_for_selector(MOUNTED, state="attached")
    expect(teacher.locator(".sd-class-chip")).to_be_visible()
    assert teacher.evaluate("document.body.dataset.tab") == "learn"
    before = lesson.get_attribute("data-lesson")
    teacher.click("[data-go=next]")
    expect(lesson).not_to_have_attribute("data-lesson", before)
    phone.evaluate("scrollTo(0, 0)")
    teacher.locator(".sd-lessons [data-current] [data-show]").first.click()
    expect(phone.locator(".sd-pass")).to_be_in_viewport()


@pytest.mark.slow
def test_a_run_that_is_measured_is_shown_again_after_a_reload_and_its_result_only_after_that(room, service):
    teacher, phone = room.teacher, room.phone
    service.replayed, service.hold_at = steady(RUN), 4
    ask_prepared(teacher, "run-speed")
    phone.click(".sd-asked-option >> nth=0")
    told(phone).to_contain_text("Your answer: A")
    click(teacher, "Close voting")
    service.ahead = 2
    click(teacher, "Measure it")
    told(phone).to_contain_text("waits in the queue; jobs before it: 2")
    go(teacher, "class")
    asked(teacher).to_contain_text("In the queue")
    service.ahead = 0
    told(phone).to_contain_text("is being measured now")
    teacher.reload()
    teacher.wait_for_selector(MOUNTED, state="attached")
    go(teacher, "run")
    teacher.wait_for_selector(".sd[data-state=playing] [data-lane=speculative] .sd-token")
    expect(phone.locator("[data-lane=speculative] .sd-token").first).to_be_visible()
    press(teacher, "play")  # pauses it
    service.go_on()
    until(lambda: service.ended)
    told(phone).to_contain_text("is being measured now")
    show_end(teacher)
    told(phone).to_contain_text("✓ You were right. Measured: A, “Faster”.")
    same(teacher, phone)


@pytest.mark.slow
def test_the_class_drafts_during_the_join_screen_and_everybody_sees_the_verdicts(room):
    teacher, phone, keyboard = room.teacher, room.phone, room.keyboard
    teacher.select_option(".sd-class-game select", label="Proverbs")
    expect(teacher.locator(".sd-class-game textarea")).to_have_value(re.compile("A picture is worth$"))
    teacher.check(".sd-class-game input[name=drafts]")
    start_game(teacher)
    phone.fill(".sd-game-form textarea", "as soon as you can")
    phone.fill(".sd-game-form input", "Ana")
    phone.click(".sd-game-form button")
    expect(phone.locator(f".sd-game {TOLD}")).to_contain_text("Draft sent.")
    keyboard.wait_for_selector(".sd-game-form textarea")
    keyboard.focus(".sd-game-form textarea")
    keyboard.keyboard.type("nothing")  # sent when the time is over
    expect(teacher.locator(".sd-game-count b").first).to_have_text("1 draft")
    expect(teacher.locator(".sd-game-clock")).to_have_text(re.compile(r"^[0-5] s$"))
    assert_join_screen_fills_the_window(teacher)
    for page in (phone, keyboard, teacher):
        expect(page.locator(".sd-game-results")).to_be_visible()
    expect(teacher.locator(".sd-game-count")).to_have_text("2 drafts")  # and no time left
    expect(teacher.locator(".sd-game-best")).to_contain_text("Ana")
    expect(phone.locator(".sd-game-drafts").first.locator("b")).to_have_text("12 of 12")
    own = keyboard.locator(".sd-game-drafts").first.locator(".sd-token").evaluate_all(STATUSES)
    assert own[:3] == [[" ", "accepted", False], ["n", "discarded", True], ["a", "corrected", False]]
    assert {status for _, status, _ in own[3:]} == {"discarded"}
    assert not phone.evaluate(BODY_WIDER, 390)
    assert_leaves_while_the_teacher_is_elsewhere(teacher, phone.locator(".sd-student > .sd-game"))
    click(teacher, "Ask a question")
    expect(phone.locator(".sd-student > .sd-game")).to_be_hidden()
    expect(teacher.locator("[data-role=ask-form] h2")).to_be_in_viewport()
    press(teacher, "sum-up")
    expect(teacher.locator("[data-role=summary]")).to_contain_text("The class as the draft model")


def assert_leaves_while_the_teacher_is_elsewhere(teacher: Any, result: Any) -> None:
    for tab in ("learn", "run"):
        go(teacher, tab)
        expect(result).to_be_hidden()
        go(teacher, "class")
        expect(result).to_be_visible()


def assert_join_screen_fills_the_window(teacher: Any) -> None:
    code = teacher.text_content(".sd-class-code")
    press(teacher, "join-open")
    screen = teacher.locator("[data-role=join-screen]")
    for words in (code, "2 students are here.", "Only this computer can open this link."):
        expect(screen).to_contain_text(words)
    address = teacher.text_content("[data-role=join-address]")
    assert f"http://{address}/{code}" == teacher.text_content(".sd-class-link")
    for width, height in ((1920, 1080), (1280, 720)):
        teacher.set_viewport_size({"width": width, "height": height})
        assert teacher.locator("[data-role=join-qr]").bounding_box()["height"] >= height / 2
        assert screen.bounding_box() == {"x": 0, "y": 0, "width": width, "height": height}
        assert not teacher.evaluate(SCROLLS)
    teacher.keyboard.press("Escape")
    expect(screen).to_be_hidden()


@pytest.mark.slow
def test_typed_numbers_count_also_those_of_absent_students_and_after_the_teachers_reload(room):
    teacher, phone = room.teacher, room.phone
    code = teacher.text_content(".sd-class-code")
    teacher.check(".sd-class input[value=number]")
    expect(teacher.locator(".sd-class textarea[name=options]")).to_be_hidden()
    teacher.fill(".sd-class textarea[name=text]", "How many times as fast?")
    click(teacher, "Ask the class")
    leaving = room.student()
    for page, typed in ((phone, "much"), (phone, "1,5"), (leaving, "9")):
        page.fill(".sd-asked input", typed)
        page.keyboard.press("Enter")
        told(page).to_contain_text("Type a number, such as 1.5." if typed == "much" else "Your answer: ")
    told(phone).to_contain_text("Your answer: 1.5.")
    leaving.context.close()
    asked(teacher).to_contain_text("2 of 3 have answered, 1 from absent students")
    teacher.reload()
    go(teacher, "class")
    teacher.wait_for_selector(".sd-class[data-state=open]")
    assert teacher.text_content(".sd-class-code") == code
    expect(teacher.locator("[data-role=here]")).to_have_text("2 students are here.")
    click(teacher, "Close voting")
    told(phone).to_contain_text("closed")
    teacher.fill("[data-role=asked] input", "1.45")
    click(teacher, "Show the measured value")
    told(phone).to_contain_text("You were right. Answer: 1.45. 1 of 2 were right (within 10%).")
    click(teacher, "Next question")
    teacher.check(".sd-class input[value=choice]")


@pytest.mark.slow
def test_a_late_page_polls_if_streams_are_held_back(room):
    show_run(room.teacher)
    polling = room.student(NO_STREAMS)
    same(room.teacher, polling)
    scrub(room.teacher, 0.1)
    same(room.teacher, polling)
    polling.context.close()


@pytest.mark.slow
def test_both_pages_are_accessible(room):
    teacher, phone = room.teacher, room.phone

    def check(moment: str) -> None:
        assert_accessible(teacher, ".sd-class", state=moment)
        assert_accessible(phone, "body", state=moment)

    press(teacher, "join-open")
    assert_accessible(teacher, "[data-role=join-screen]")
    teacher.keyboard.press("Escape")
    ask(teacher)
    phone.click(".sd-asked-option >> nth=0")
    told(phone).to_contain_text("Your answer")
    check("open")
    click(teacher, "Close voting")
    click(teacher, "B is right")
    press(teacher, "sum-up")
    told(phone).to_contain_text("You were wrong")
    check("revealed")
    click(teacher, "Next question")
    start_game(teacher)
    phone.fill(".sd-game-form textarea", "as soon as you can")
    for page in (phone, teacher):
        expect(page.locator(".sd-game-results")).to_be_visible()
    check("judged")


@pytest.mark.slow
@in_every_font
def test_the_longest_question_fits_the_projector(teacher):
    ask_prepared(teacher, "noise")  # the longest one
    teacher.check("[data-role=projector]")
    rows = teacher.locator("[data-role=asked] :is(.sd-answers li, .sd-class-count)")
    expect(rows).to_have_count(5)
    words = teacher.locator("text=/^(Close voting|Lesson summary)$/")
    for part in (*rows.all(), *words.all(), teacher.locator(".sd-class-code")):
        expect(part).to_be_in_viewport(ratio=1)
    sizes = teacher.evaluate(TEXT_SIZES)
    assert min(sizes.values()) >= 24, sizes


@pytest.mark.slow
def test_a_student_at_the_teachers_address_finds_a_field_for_the_code(room, open_page):
    page, code = open_page(), room.teacher.text_content(".sd-class-code")
    go(page, "class")
    page.wait_for_selector(".sd-class[data-ready]")
    page.fill(".sd-class-join input", f"{code[:2].lower()} {code[2:]}")
    page.keyboard.press("Enter")
    page.wait_for_selector(".sd-student[data-state=following]")


@pytest.mark.slow
def test_a_student_can_look_elsewhere_and_return_and_keeps_the_run_after_the_end(room):
    teacher, phone, keyboard = room.teacher, room.phone, room.keyboard
    show_run(teacher, phone, keyboard)
    phone.click(".sd-player-more")
    press(phone, "to-start")
    state(phone).to_have_attribute("data-state", "apart")
    scrub(teacher, 0.2)
    expect(keyboard.locator("[data-role=scrub]")).to_have_value("0.2")
    assert clock(phone) == 0
    press(phone, "back")
    state(phone).to_have_attribute("data-state", "following")
    same(teacher, phone)
    keyboard.focus("[data-role=rounds]")
    keyboard.keyboard.press("Enter")  # opens a round of their own, by keyboard only
    expect(keyboard.locator("[data-role=microscope]")).to_be_visible()
    state(keyboard).to_have_attribute("data-state", "apart")
    run_to_end(teacher)
    state(keyboard).to_have_attribute("data-state", "following")
    same(teacher, keyboard)
    go(teacher, "class")
    press(teacher, "end")
    assert teacher.locator(".sd-class[data-state=open]").count()  # a slip does not end it
    press(teacher, "end")
    expect(teacher.locator(".sd-class [data-role=said]")).to_contain_text("The class has ended")
    expect(phone.locator("[data-role=where]")).to_contain_text("The class has ended")
    assert plain_text(phone, SPECULATIVE)
    expect(teacher.locator(".sd-class-chip")).to_have_count(0)


@pytest.mark.slow
def test_a_class_on_the_servers_computer_has_its_address_in_the_network(patient_page, service):
    network = ["http://192.0.2.7:7860", "http://192.0.2.8:7860"]
    routes = class_routes(Rooms(), lambda: network)
    for url in served(build_page(service), **launch_options(routes)):
        page = patient_page()
        page.goto(url)
        go(page, "class")
        reach = page.locator(".sd-class-none")
        expect(reach).to_contain_text("Students will open 192.0.2.7:7860/class on their devices.")
        expect(reach).to_contain_text("another address of this computer: http://192.0.2.8:7860/.")
        expect(page.locator("[data-role=reach-local]")).to_be_hidden()
        click(page, "Start a class")
        press(page, "join-open")
        screen = page.locator("[data-role=join-screen]")
        expect(screen).to_contain_text("192.0.2.7:7860/class")
        expect(screen.locator("[data-role=join-local]")).to_be_hidden()
        code = page.text_content(".sd-class-code")
        assert page.text_content(".sd-class-link") == f"http://192.0.2.7:7860/class/{code}"
        asked = f"{url}specdemo-class/addresses"
        assert PLAIN.get(asked).json() == {"addresses": network}
        assert PLAIN.get(asked, headers={"Host": "192.0.2.7"}).json() == {"addresses": []}


@pytest.mark.slow
@in_every_font
def test_worksheet_and_plans_print_on_a_sheet_each_and_the_answer_key_on_two(open_page, patient_page):
    page = open_page()
    page.click("#tab-class-button")
    plan = page.locator("[data-role=plan][href]").evaluate("link => link.href")
    paper = patient_page()
    paper.goto(plan)
    assert_sheets(paper, 2)
    paper.click("text=Worksheet")
    expect(paper.locator(".blank > b").first).to_be_hidden()
    assert_sheets(paper, 1)
    paper.click("text=Answer key")
    expect(paper.locator(".blank > b").first).to_be_visible()
    assert_sheets(paper, 2)
    paper.emulate_media(media="print")
    assert paper.evaluate(MAY_BREAK) == []


def assert_sheets(paper: Any, most: int) -> None:
    """Check the number of sheets, and that they are as high as the paper in the printer."""
    for name, points in {"A4": 842, "Letter": 792}.items():
        printed = paper.pdf(format=name, prefer_css_page_size=True)
        heights = re.findall(rb"/MediaBox \[0 0 [\d.]+ ([\d.]+)\]", printed)
        assert 0 < len(heights) <= most, name
        assert all(abs(float(height) - points) < 2 for height in heights), heights
