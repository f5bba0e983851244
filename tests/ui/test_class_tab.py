"""A teacher's page and students' pages in a real browser: what each sees, and what they can do."""

from collections.abc import Callable
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.layout import write_in
from helpers.stand_in import planted
from helpers.visitor import (
    WIDER,
    clock,
    open_round,
    plain_text,
    press,
    requested,
    run_to_end,
    scrub,
    stage_state,
)
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.quiz.questions import QUESTIONS
from specdemo.records.trace import SPECULATIVE

COST = next(number for number, question in enumerate(QUESTIONS) if question.name == "cost")
SCROLLS = """() => { const screen = document.querySelector('[data-role=join-screen]');
    return screen.scrollHeight > screen.clientHeight || screen.scrollWidth > screen.clientWidth; }"""
RETYPE = """(box, text) => { box.value = text; box.dispatchEvent(new Event("input", { bubbles: true })); }"""
TEXT_SIZES = """() => Object.fromEntries([...document.querySelectorAll('.sd-class *, .sd-class-chip')]
    .filter(node => node.checkVisibility())
    .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
    .map(node => [node.textContent.trim().slice(0, 40), parseFloat(getComputedStyle(node).fontSize)]))"""
NO_STREAMS = "window.EventSource = class { close() {} }"
"""Simulates a proxy that holds back every stream."""


@pytest.fixture
def student(teacher: Any, patient_page: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``student(**options)``: a student's page, which fails the test on a JavaScript error."""

    def come(script: str = "", **options: Any) -> Any:
        page = patient_page(reduced_motion="reduce", **options)
        page.on("pageerror", lambda error: pytest.fail(str(error)))
        if script:
            page.add_init_script(script)
        page.goto(teacher.text_content(".sd-class-link"))
        page.wait_for_selector(".sd-student:is([data-state=following], [data-state=over])")
        return page

    return come


def go(page: Any, tab: str) -> None:
    page.click(f"#tab-{tab}-button")


def ask(page: Any, text: str = "Faster?", options: str = "yes\nno") -> None:
    go(page, "class")
    page.fill(".sd-class textarea[name=text]", text)
    page.fill(".sd-class textarea[name=options]", options)
    page.click("text=Ask the class")
    page.wait_for_selector("text=Close voting")


def same(one: Any, other: Any) -> None:
    """Wait until both stages show the same tokens and figures."""
    expected = stage_state(one)
    until(lambda: stage_state(other) == expected)


def test_a_student_sees_the_run_its_clock_and_the_opened_round(teacher, student):
    watching = student(viewport={"width": 390, "height": 844}, color_scheme="dark")
    go(teacher, "run")
    run_to_end(teacher)
    same(teacher, watching)
    assert plain_text(watching, SPECULATIVE) == plain_text(teacher, SPECULATIVE) != ""
    scrub(teacher, 0.05)
    expect(watching.locator("[data-role=scrub]")).to_have_value("0.05")
    same(teacher, watching)
    press(teacher, "round-on")
    same(teacher, watching)
    rounds = teacher.evaluate("document.querySelector('[data-role=rounds]').ariaValueMax")
    open_round(teacher, 1, int(rounds))
    expect(watching.locator("[data-role=microscope]")).to_be_visible()
    title = teacher.text_content("[data-role=microscope-title]")
    expect(watching.locator("[data-role=microscope-title]")).to_have_text(title)
    press(teacher, "microscope-close")
    expect(watching.locator("[data-role=microscope]")).to_be_hidden()
    assert not watching.evaluate("document.documentElement.scrollWidth > innerWidth")
    same(teacher, student())  # a latecomer


def test_pace_and_playing_clock_follow_the_teacher(teacher, student):
    watching = student()
    go(teacher, "run")
    run_to_end(teacher)
    teacher.check(".sd-pace input[value='0.05']", force=True)
    press(teacher, "to-start", "play")
    expect(watching.locator(".sd-pace input[value='0.05']")).to_be_checked()
    watching.wait_for_function("Number(document.querySelector('[data-role=scrub]').value) > 0.01")
    press(teacher, "play")
    expect(watching.locator("[data-role=scrub]")).to_have_value(teacher.input_value("[data-role=scrub]"))
    assert clock(watching) > 0
    same(teacher, watching)


def test_a_student_can_look_elsewhere_and_return_with_one_press(teacher, student):
    watching = student()
    go(teacher, "run")
    run_to_end(teacher)
    same(teacher, watching)
    press(watching, "to-start")
    expect(watching.locator(".sd-student")).to_have_attribute("data-state", "apart")
    scrub(teacher, 0.2)
    watching.wait_for_timeout(700)
    assert clock(watching) == 0
    press(watching, "back")
    expect(watching.locator(".sd-student")).to_have_attribute("data-state", "following")
    same(teacher, watching)
    watching.focus("[data-role=rounds]")
    watching.keyboard.press("Enter")  # opens a round of their own, by keyboard only
    expect(watching.locator("[data-role=microscope]")).to_be_visible()
    expect(watching.locator(".sd-student")).to_have_attribute("data-state", "apart")
    go(teacher, "run")
    run_to_end(teacher)  # another run is watched by all
    expect(watching.locator(".sd-student")).to_have_attribute("data-state", "following")
    same(teacher, watching)


def test_the_class_sees_the_teacher_s_lesson_tab_and_error(teacher, student):
    watching = student()
    go(teacher, "learn")
    teacher.wait_for_selector(".sd-learn[data-at]")
    teacher.click("[data-go=next]")
    expect(watching.locator("[data-lesson='2']")).to_be_visible()
    expect(watching.locator("[data-lesson='1']")).to_be_hidden()
    expect(watching.locator(".sd-do button").first).to_be_hidden()
    go(teacher, "lab")
    expect(watching.locator("[data-role=where]")).to_contain_text("“Lab”")
    expect(watching.locator("[data-lesson='2']")).to_be_hidden()
    go(teacher, "run")
    teacher.fill("#prompt textarea", " ")
    teacher.click("#run")
    words = teacher.locator(".sd-error")
    expect(words).to_be_visible()
    expect(watching.locator(".sd-error")).to_have_text(words.text_content())


def test_a_teacher_s_own_question_from_asking_to_the_summary(teacher, student):
    phone = student(viewport={"width": 390, "height": 844})
    keyboard = student()
    ask(teacher)
    options = phone.locator(".sd-asked-option")
    expect(options).to_have_count(2)
    expect(phone.locator(".sd")).to_be_hidden()  # the last run may contain the answer
    options.nth(1).click()
    keyboard.wait_for_selector(".sd-asked-option")
    keyboard.focus(".sd-asked-option >> nth=0")
    keyboard.keyboard.press("Space")
    expect(keyboard.locator(".sd-asked-told")).to_contain_text("Your answer: A, “yes”")
    expect(teacher.locator("[data-role=asked]")).to_contain_text("2 of 2 have answered")
    assert teacher.locator("[data-role=asked] .sd-answer-bar").count() == 0  # not before the close
    phone.reload()
    expect(phone.locator(".sd-asked-option[aria-pressed=true]")).to_contain_text("no")
    teacher.click("text=Close voting")
    expect(phone.locator(".sd-answer-count")).to_have_text(["1", "1"])
    expect(phone.locator(".sd")).to_be_visible()
    for text, bar in zip(
        *(phone.locator(part).all() for part in (".sd-answer-text", ".sd-answer-bar")), strict=True
    ):
        assert bar.bounding_box()["y"] >= text.bounding_box()["y"] + text.bounding_box()["height"]
    teacher.click("text=A is right")
    expect(keyboard.locator(".sd-asked-told")).to_contain_text(
        "You were right. Answer: A, “yes”. 1 of 2 were right."
    )
    expect(phone.locator(".sd-asked > :first-child")).to_contain_text("You were wrong.")
    assert not phone.evaluate(WIDER.replace("main *", "body *"), 390)
    press(teacher, "sum-up")
    summary = teacher.locator("[data-role=summary]")
    expect(summary).to_contain_text("1 of 2 were right.")
    teacher.click("text=Next question")
    expect(phone.locator("[data-role=asked]")).to_be_hidden()
    expect(summary).to_be_hidden()
    expect(teacher.locator("[data-role=ask-form] h2")).to_be_in_viewport()
    for field in ("text", "options"):
        expect(teacher.locator(f".sd-class-form textarea[name={field}]").first).to_have_value("")
    press(teacher, "sum-up")
    expect(summary).to_contain_text("1 of 2 were right.")
    with teacher.expect_download() as download:
        teacher.click("text=Save as CSV")
    assert "Faster?" in download.value.path().read_text(encoding="utf-8")


def test_a_question_that_is_skipped_before_voting_closes_is_not_in_the_summary(teacher):
    for text in ("First?", "Second?"):
        ask(teacher, text)
        teacher.click("text=Skip question" if text == "First?" else "text=Close voting")
        teacher.wait_for_selector(
            ".sd-class-form:visible >> nth=0" if text == "First?" else "text=A is right"
        )
    press(teacher, "sum-up")
    expect(teacher.locator("[data-role=summary] h3")).to_have_text(["Second?"])


@pytest.mark.slow
def test_a_number_may_be_asked_and_typed(teacher, student):
    watching = student()
    teacher.check(".sd-class input[value=number]")
    expect(teacher.locator(".sd-class textarea[name=options]")).to_be_hidden()
    teacher.fill(".sd-class textarea[name=text]", "How many times as fast?")
    teacher.click("text=Ask the class")
    watching.fill(".sd-asked input", "much")
    watching.keyboard.press("Enter")
    expect(watching.locator(".sd-asked-told")).to_have_text("Type a number, such as 1.5.")
    watching.fill(".sd-asked input", "1,5")
    watching.keyboard.press("Enter")
    expect(watching.locator(".sd-asked-told")).to_contain_text("Your answer: 1.5.")
    teacher.click("text=Close voting")
    teacher.fill("[data-role=asked] input", "1.45")
    teacher.click("text=Show as measured")
    expect(watching.locator(".sd-asked-told")).to_contain_text(
        "You were right. Answer: 1.45. 1 of 1 were right (within 10%)."
    )


def test_the_teacher_sees_how_many_answers_have_no_student_here(teacher, student):
    leaving, staying = student(), student()
    ask(teacher)
    for page in (leaving, staying):
        page.locator(".sd-asked-option").first.click()
    asked = teacher.locator("[data-role=asked]")
    expect(asked).to_contain_text("2 of 2 have answered")
    expect(asked).not_to_contain_text("without a student")
    leaving.close()
    expect(asked).to_contain_text("2 of 2 have answered, 1 without a student here")
    staying.close()


def test_a_question_of_the_quiz_is_answered_by_its_measurement(teacher, student, service):
    service.outcomes = {"cost": (planted(speedup=1.7), planted(speedup=0.9))}
    watching = student()
    teacher.select_option(".sd-class [data-role=prepared]", "cost")
    teacher.click("text=Ask the class")
    watching.click(".sd-asked-option >> nth=2")
    expect(watching.locator(".sd-asked-told")).to_contain_text("Your answer: C")
    teacher.click("text=Close voting")
    service.hold_at = 1
    teacher.click("text=Measure it")
    expect(watching.locator(".sd-asked-told")).to_contain_text("is measuring the answer now")
    expect(teacher.locator("[data-role=asked] td b").first).to_have_text("50%")
    service.go_on()
    expect(watching.locator(".sd-asked-told")).to_contain_text("You were right. Measured: C")
    expect(teacher.locator("[data-role=asked]")).to_contain_text("1 of 1 were right.")
    assert teacher.locator(".sd-class").is_visible(), "the teacher stays on this tab"
    press(teacher, "sum-up")
    expect(teacher.locator("[data-role=summary]")).to_contain_text(
        "each step computed 8 times: Acceptance rate α 50%, Speedup S over the target alone 0.90×"
    )
    assert service.requests == [{"question": COST + 1}]


@pytest.mark.parametrize("font", ["Liberation", "DejaVu"])
def test_a_long_question_fits_the_projector_with_its_options_and_buttons(teacher, font):
    teacher.select_option(".sd-class [data-role=prepared]", "noise")
    teacher.click("text=Ask the class")
    assert write_in(teacher, font)
    teacher.check("[data-role=projector]")
    rows = teacher.locator("[data-role=asked] :is(h2, .sd-answers li, .sd-class-count)")
    expect(rows).to_have_count(6)
    code = teacher.locator(".sd-class-code")
    for part in (
        *rows.all(),
        code,
        teacher.locator("text=Close voting"),
        teacher.locator("text=Lesson summary"),
    ):
        expect(part).to_be_in_viewport(ratio=1)
    assert all(
        float(row.evaluate("row => parseFloat(getComputedStyle(row).fontSize)")) >= 28 for row in rows.all()
    )
    sizes = teacher.evaluate(TEXT_SIZES)
    assert min(sizes.values()) >= 24, sizes
    tabs = teacher.locator("#tabs [role=tab]:visible").all()
    assert len({tab.bounding_box()["y"] for tab in tabs}) == 1
    switch = teacher.locator("label:has([data-role=projector])").bounding_box()
    assert switch["x"] + switch["width"] == pytest.approx(1280 - 24, abs=1)


@pytest.mark.parametrize("font", ["Liberation", "DejaVu"])
def test_the_projected_page_shows_an_open_question_large(teacher, font):
    ask(teacher, "Is it faster than the target alone?", "yes, a lot\nyes, a little\nno\nit depends")
    assert write_in(teacher, font)
    for (width, height), projected, smallest in (((1280, 720), False, 26), ((1920, 1080), True, 40)):
        teacher.set_viewport_size({"width": width, "height": height})
        teacher.locator("[data-role=projector]").set_checked(projected)
        rows = teacher.locator("[data-role=asked] .sd-answers li")
        expect(rows).to_have_count(4)
        for row in (*rows.all(), teacher.locator(".sd-class-count")):
            assert float(row.evaluate("row => parseFloat(getComputedStyle(row).fontSize)")) >= smallest
            expect(row).to_be_in_viewport(ratio=1)
        assert [row.inner_text()[0] for row in rows.all()] == ["A", "B", "C", "D"]
    sizes = teacher.evaluate(TEXT_SIZES)
    assert min(sizes.values()) >= 24, sizes


def test_a_class_predicts_the_teachers_run_which_answers_it(teacher, student, service):
    watching = student()
    teacher.select_option(".sd-class [data-role=prepared]", "run-survivors")
    # The prompt changes after the form was filled.
    teacher.locator("#prompt textarea").evaluate(RETYPE, "What is a leap year?")
    teacher.click("text=Ask the class")
    expect(watching.locator("[data-role=asked] h2")).to_contain_text("“What is a leap year?”")
    totals = service.replayed[-1]["totals"]
    right = round(sum(totals["accepted_by_position"]) / totals["passes"])
    watching.click(f".sd-asked-option >> nth={right}")
    teacher.click("text=Close voting")
    teacher.locator("#prompt textarea").evaluate(RETYPE, "A prompt for later")
    teacher.click("text=Measure it")
    expect(watching.locator(".sd-asked-told")).to_contain_text("is measuring the answer now")
    expect(watching.locator(".sd-answers")).to_be_hidden()
    teacher.wait_for_selector(".sd[data-state=playing]")
    assert requested(service)["k"] == 4
    press(teacher, "to-end")
    expect(watching.locator(".sd-asked-told")).to_contain_text(f"You were right. Measured: {'ABCDE'[right]}")
    assert service.requests[-1]["prompt"] == "What is a leap year?", "the one that the question quotes"
    teacher.click("text=Show the answers")
    expect(teacher.locator("[data-role=asked]")).to_contain_text("1 of 1 were right.")
    expect(teacher.locator("[data-role=asked]")).to_contain_text(f"{totals['speedup']:.2f}× the speed")


def test_a_failed_measurement_is_said_and_can_be_repeated(teacher, student, service):
    watching = student()
    teacher.select_option(".sd-class [data-role=prepared]", "cost")
    teacher.click("text=Ask the class")
    teacher.click("text=Close voting")
    service.fault = "The GPU is gone."
    teacher.click("text=Measure it")
    expect(teacher.locator(".sd-class [data-role=said]")).to_have_text(service.fault)
    expect(watching.locator(".sd-asked-told")).to_have_text(
        "Voting is closed (0 answered). Wait for the result."
    )
    service.fault = None
    teacher.click("text=Measure it")
    expect(watching.locator(".sd-asked-told")).to_contain_text("Measured:")


def test_the_quiz_measures_a_class_s_question_after_a_prediction_too(teacher, student, service):
    watching = student()
    teacher.select_option(".sd-class [data-role=prepared]", "cost")
    teacher.click("text=Ask the class")
    watching.wait_for_selector(".sd-asked-option")
    go(teacher, "learn")
    teacher.click(".sd-dot[aria-label^=Quiz]")
    teacher.click(f".sd-quiz .sd-dot:text-is('{COST + 1}')")
    teacher.check(f"[data-question='{COST + 1}'] input[value='0']")
    teacher.click("#quiz-run")
    expect(watching.locator(".sd-asked-told")).to_contain_text("Measured:")


def test_the_join_screen_shows_code_address_and_students(teacher, student):
    student()
    code = teacher.text_content(".sd-class-code")
    press(teacher, "join-open")
    screen = teacher.locator("[data-role=join-screen]")
    expect(screen).to_contain_text(code)
    expect(screen).to_contain_text("1 student is here.")
    expect(screen).to_contain_text("Only this computer can open this link.")
    address = teacher.text_content("[data-role=join-address]")
    assert f"http://{address}/{code}" == teacher.text_content(".sd-class-link")
    for width, height in ((1280, 720), (1920, 1080)):
        teacher.set_viewport_size({"width": width, "height": height})
        box = teacher.locator("[data-role=join-qr]").bounding_box()
        assert box["height"] >= height / 2
        assert screen.bounding_box() == {"x": 0, "y": 0, "width": width, "height": height}
        assert not teacher.evaluate(SCROLLS)
    assert_accessible(teacher, "[data-role=join-screen]")
    teacher.keyboard.press("Escape")
    expect(screen).to_be_hidden()


def test_the_class_drafts_and_everybody_sees_the_verdicts(teacher, student):
    phone = student(viewport={"width": 390, "height": 844}, color_scheme="dark")
    keyboard = student()
    teacher.fill(".sd-class-game textarea[name=text]", "Please answer")
    teacher.fill(".sd-class-game input[name=seconds]", "5")
    teacher.check(".sd-class-game input[name=drafts]")
    teacher.click("text=Start the game")
    phone.fill(".sd-game-form textarea", "as soon as you can")
    phone.fill(".sd-game-form input", "Ana")
    phone.click(".sd-game-form button")
    expect(phone.locator(".sd-game .sd-asked-told")).to_contain_text("Sent.")
    keyboard.wait_for_selector(".sd-game-form textarea")
    keyboard.focus(".sd-game-form textarea")
    keyboard.keyboard.type("nothing")  # sent when the time is over
    expect(teacher.locator(".sd-game-count")).to_have_text("1 draft")
    for page in (phone, keyboard, teacher):
        expect(page.locator(".sd-game-results")).to_be_visible()
    expect(teacher.locator(".sd-game-count")).to_have_text("2 drafts")
    expect(teacher.locator(".sd-game-best")).to_have_text("Best: Ana.")
    own = phone.locator(".sd-game-drafts").first
    expect(own.locator("b")).to_have_text("12 of 12")
    statuses = (
        keyboard.locator(".sd-game-drafts")
        .first.locator(".sd-token")
        .evaluate_all(
            "all => all.map(one => [one.textContent, one.dataset.status, 'rejected' in one.dataset])"
        )
    )
    accepted, rejected, corrected, *discarded = statuses
    assert accepted == [" ", "accepted", False]
    assert rejected == ["n", "discarded", True] and corrected == ["a", "corrected", False]
    assert {status for _, status, _ in discarded} == {"discarded"}
    assert_accessible(phone, "body")
    assert_accessible(teacher, ".sd-class")
    assert not phone.evaluate(WIDER.replace("main *", "body *"), 390)
    teacher.click("text=New game")
    expect(phone.locator(".sd-student > .sd-game")).to_be_hidden()
    press(teacher, "sum-up")
    expect(teacher.locator("[data-role=summary]")).to_contain_text("The class as the draft model")


@pytest.mark.slow
def test_the_teachers_reload_keeps_the_class(teacher, student):
    watching = student()
    code = teacher.text_content(".sd-class-code")
    ask(teacher)
    teacher.reload()
    go(teacher, "class")
    teacher.wait_for_selector(".sd-class[data-state=open]")
    assert teacher.text_content(".sd-class-code") == code
    expect(teacher.locator("[data-role=here]")).to_have_text("1 student is here.")
    teacher.click("text=Close voting")
    expect(watching.locator(".sd-asked-told")).to_contain_text("closed")


@pytest.mark.slow
def test_a_page_polls_if_streams_are_held_back(teacher, student):
    watching = student(NO_STREAMS)
    go(teacher, "run")
    run_to_end(teacher)
    same(teacher, watching)
    scrub(teacher, 0.1)
    same(teacher, watching)


def test_the_end_of_a_class_is_announced_and_the_run_stays(teacher, student):
    watching = student()
    go(teacher, "run")
    run_to_end(teacher)
    same(teacher, watching)
    go(teacher, "class")
    press(teacher, "end")
    assert teacher.locator(".sd-class[data-state=open]").count()  # a slip does not end it
    press(teacher, "end")
    expect(teacher.locator(".sd-class [data-role=said]")).to_have_text("The class is over.")
    expect(watching.locator("[data-role=where]")).to_contain_text("The class is over.")
    assert plain_text(watching, SPECULATIVE)
    expect(teacher.locator(".sd-class-chip")).to_have_count(0)


@pytest.mark.slow
def test_a_wrong_code_can_be_corrected(teacher, patient_page, url):
    page = patient_page()
    page.goto(f"{url}specdemo-class/zzzzzz")
    expect(page.locator("[data-role=refused]")).to_contain_text("no class with this code")
    page.fill("input[name=code]", teacher.text_content(".sd-class-code").lower())
    page.click("text=Join")
    page.wait_for_selector(".sd-student[data-state=following]")
    page.goto(f"{url}specdemo-class")
    expect(page.locator("input[name=code]")).to_be_visible()


@pytest.mark.slow
def test_both_pages_are_accessible(teacher, student):
    watching = student()
    assert_accessible(teacher, ".sd-class")
    ask(teacher)
    watching.click(".sd-asked-option >> nth=0")
    expect(watching.locator(".sd-asked-told")).to_contain_text("Your answer")
    assert_accessible(teacher, ".sd-class")
    assert_accessible(watching, "body")
    teacher.click("text=Close voting")
    teacher.click("text=B is right")
    expect(watching.locator(".sd-asked-told")).to_contain_text("You were wrong")
    press(teacher, "sum-up")
    assert_accessible(teacher, ".sd-class")
    assert_accessible(watching, "body")
