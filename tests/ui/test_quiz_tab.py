"""The quiz in the browser, and the link that takes a class to a lesson or question."""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers.accessible import assert_accessible
from helpers.stand_in import planted
from helpers.visitor import FRAMES, WIDER
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.quiz.questions import QUESTIONS, TOO_CLOSE

NUMBERS = range(1, len(QUESTIONS) + 1)
COST = next(number for number, question in zip(NUMBERS, QUESTIONS, strict=True) if question.name == "cost")
FALLS = (planted(alpha_compared=0.4, speedup=1.6), planted(alpha_compared=0.4, speedup=0.8))
"""Outcomes that support the third option of the question about the draft's cost."""
CLOSE = (planted(speedup=1.7), planted(speedup=1.4))
HOSTILE = "<img src=x onerror=document.title='pwned'>${document.title='pwned'}"
RESULT, QUESTION = f"[data-result='{COST}']", f"[data-question='{COST}']"
MARKS = "all => all.map(label => label.dataset.measured)"
BAR_LENGTHS = "all => all.map(bar => bar.getBoundingClientRect().width)"


def quiz_page(open_page: Any, number: int = COST, **how: Any) -> Any:
    page = open_page(query=f"lesson=quiz&question={number}", **how)
    page.wait_for_selector(f"[data-question='{number}']:visible")
    return page


def predict(page: Any, number: int, option: int) -> None:
    page.check(f"[data-question='{number}'] input[value='{option}']")


def run_it(page: Any, number: int = COST) -> Any:
    page.click("#quiz-run")
    verdict = page.locator(f"[data-result='{number}'] .sd-quiz-verdict")
    verdict.wait_for()
    page.wait_for_selector("#quiz-run:enabled")
    return verdict


def open_question(page: Any, number: int) -> None:
    page.get_by_role("button", name=f"Question {number}").click()


def score(page: Any) -> str:
    return page.inner_text("[data-role=quiz-score]")


def outcomes(page: Any) -> list[str | None]:
    return page.eval_on_selector_all(".sd-quiz .sd-dot", "all => all.map(dot => dot.dataset.outcome ?? null)")


def test_a_prediction_is_asked_for_then_measured_and_found_right(open_page, service):
    service.outcomes["cost"] = FALLS
    page = quiz_page(open_page)
    assert not page.locator("#stage").is_visible()
    assert score(page) == "No answers yet"
    page.click("#quiz-run")
    expect(page.locator("[data-role=quiz-told]")).to_have_text("Choose a prediction first.")
    assert page.evaluate("document.activeElement.type") == "radio"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("[data-role=quiz-told]") == ""
    page.focus("#quiz-run")
    page.keyboard.press("Enter")
    verdict = page.locator(f"{RESULT} .sd-quiz-verdict")
    option = QUESTIONS[COST - 1].options[2]
    expect(verdict).to_have_text(f"✓ Your prediction was right. Measured: C, “{option.text}”.")
    assert verdict.get_attribute("data-kind") == "right"
    assert page.inner_text(f"{RESULT} .sd-quiz-why") == option.why
    cells = page.locator(f"{RESULT} :is(thead th, td b)").all_inner_texts()
    sides = ["each step computed once", "each step computed 8 times"]
    assert cells == [*sides, "40%", "40%", "1.60×", "0.80×", "100%", "100%"]
    page.evaluate(FRAMES)
    lengths = page.eval_on_selector_all(".sd-quiz-results td i", BAR_LENGTHS)
    assert lengths[-1] > 100
    assert [round(length / lengths[-1], 2) for length in lengths] == [0.4, 0.4, 1, 0.5, 1, 1]
    assert "a planted machine" in page.inner_text(f"{RESULT} footer")
    assert page.locator("[data-measured]").all_inner_texts() == [f"C\n{option.text}"]
    assert page.locator(f"{QUESTION} input:enabled").count() == 0, "it stands"
    assert service.requests == [{"question": COST}]
    assert (score(page), outcomes(page)[COST - 1]) == ("1 of 1 predicted correctly", "right")
    assert "Your prediction was right" in page.text_content("[data-role=quiz-live]")


@pytest.mark.slow
def test_a_close_result_gets_the_recorded_answer_and_is_not_counted(open_page, service):
    service.outcomes["cost"] = CLOSE
    page = quiz_page(open_page)
    predict(page, COST, 0)
    verdict = run_it(page)
    assert verdict.inner_text().startswith("≈ No verdict. Recorded answer: C")
    assert score(page) == "0 of 0 predicted correctly, 1 without a verdict"
    expect(page.locator(f"{RESULT} .sd-quiz-why")).to_have_text(
        re.compile(
            f"^{re.escape(TOO_CLOSE)} Recorded on .*: {re.escape(QUESTIONS[COST - 1].options[2].why)}$"
        )
    )
    assert page.locator("[data-measured]").evaluate_all(MARKS) == ["recorded"]
    page.route("**/quiz-answers.ndjson", lambda route: route.abort())
    page.click("#quiz-run")
    expect(verdict).to_have_text("≈ No verdict.")
    assert score(page) == "0 of 0 predicted correctly, 1 without a verdict"
    service.outcomes["cost"] = FALLS
    page.click("#quiz-run")
    page.wait_for_selector(f"{RESULT} .sd-quiz-verdict[data-kind=wrong]")
    assert verdict.inner_text().startswith("✗ Your prediction was wrong. Measured: C")
    assert (score(page), outcomes(page)[COST - 1]) == ("0 of 1 predicted correctly", "wrong")
    for part in (QUESTION, "#quiz-run", f"{RESULT} .sd-quiz-why"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    assert_accessible(page, "#quiz", ".sd-learn")
    page.emulate_media(media="print")
    assert page.locator("[data-question]:visible").count() == len(QUESTIONS)
    assert page.locator("[data-result]:visible, [data-lesson]:visible").count() == 2
    assert page.locator("#quiz button:visible, .sd-learn button:visible").count() == 0


@pytest.mark.slow
def test_all_eight_in_turn_on_a_phone_and_remembered(open_page, service):
    page = quiz_page(open_page, 1, width=390, height=844)
    for number in NUMBERS:
        assert page.locator("[data-question]:visible").count() == 1
        predict(page, number, 0)
        run_it(page, number)
        assert page.evaluate(WIDER, 390) == [], number
        if number < len(QUESTIONS):
            page.click(f"[data-result='{number}'] footer button")
            assert f"question={number + 1}" in page.url
            assert page.evaluate("document.activeElement.tagName") == "H3"
    assert [request["question"] for request in service.requests] == list(NUMBERS)
    total, found = score(page), outcomes(page)
    assert total.startswith("All done: ") and None not in found
    page.reload()
    page.wait_for_selector("[data-result='8'] .sd-quiz-verdict")
    assert (score(page), outcomes(page)) == (total, found)
    page.click("[data-role=quiz-restart]")
    assert (score(page), set(outcomes(page))) == ("No answers yet", {None})
    assert page.locator("[data-question='1'] input:enabled").count() == 4
    assert page.locator(".sd-quiz input:checked, .sd-quiz-verdict").count() == 0


@pytest.mark.slow
def test_a_run_can_be_stopped_and_another_question_read_meanwhile(open_page, service):
    service.hold_at = 1
    page = quiz_page(open_page)
    predict(page, COST, 1)
    page.click("#quiz-run")
    page.wait_for_selector("#quiz-stop:enabled")
    page.wait_for_selector(f"{RESULT} progress")
    assert page.locator(f"{QUESTION} input:enabled").count() == 0
    open_question(page, 5)
    assert page.locator(RESULT).is_hidden()
    page.click("#quiz-stop")
    page.wait_for_selector("#quiz-run:enabled")
    open_question(page, COST)
    expect(page.locator(RESULT)).to_contain_text("Stopped before both runs")
    assert service.served < 2 and score(page) == "No answers yet"
    service.go_on()
    service.fault = HOSTILE
    page.click("#quiz-run")
    expect(page.locator(f"{RESULT} .sd-quiz-error")).to_have_text(HOSTILE)
    page.wait_for_selector("#quiz-run:enabled")
    assert page.title() != "pwned"

    # The question of the pressed button is measured, even if another is opened at once.
    service.fault = None
    held: list[Any] = []
    page.route("**/run/predict*", lambda route: held.append(route))
    page.click("#quiz-run")
    until(lambda: page.title() and held)
    open_question(page, 5)
    held[0].continue_()
    page.unroute("**/run/predict*")
    page.wait_for_selector(f"{RESULT} .sd-quiz-verdict", state="attached")
    assert service.requests == [{"question": COST}] * 3


@pytest.mark.slow
def test_the_quiz_follows_the_last_lesson_and_a_class_link_leads_to_its_question(open_page, url):
    page = open_page(query="lesson=summary&prompt=Once%20%3Ca%3E&k=5")
    expect(page.locator("#quiz")).to_be_hidden()
    page.click("[data-go=next]")
    expect(page.locator("#quiz")).to_be_visible()
    assert not page.locator("#stage").is_visible() and "lesson=quiz" in page.url
    open_question(page, 5)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.click("[data-role=class-link]")
    expect(page.locator("[data-role=class-told]")).to_have_text("Link copied.")
    again = open_page(query=urlsplit(page.evaluate("navigator.clipboard.readText()")).query)
    expect(again.locator("[data-question='5']")).to_be_visible()
    expect(again.locator("#prompt textarea")).to_have_value("Once <a>")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    page.click("[data-role=class-link]")
    expect(page.locator("[data-role=class-told]")).to_contain_text("Copy the link")
    assert "prompt=Once" in page.url and "question=5" in page.url
    page.get_by_label("Lesson 2:").click()
    expect(page.locator("#stage")).to_be_visible()
    assert "question" not in page.url
    page.get_by_role("button", name="Quiz: predict, then run").click()
    page.click("#tab-run-button")
    expect(page.locator("#stage")).to_be_visible()  # only the quiz itself takes its place
