"""The quiz in the browser, and the link that takes a class to a lesson or question."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.accessible import assert_accessible
from helpers.replay import RECORDING
from helpers.stand_in import planted
from helpers.visitor import FRAMES, run_to_end
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.quiz.questions import QUESTIONS

NUMBERS = range(1, len(QUESTIONS) + 1)
COST = next(number for number, question in zip(NUMBERS, QUESTIONS, strict=True) if question.name == "cost")
FALLS = (planted(speedup=1.7), planted(speedup=0.9))
"""Outcomes that support the third option of the question about the draft's cost."""
CLOSE = (planted(speedup=1.7), planted(speedup=1.4))
SETTINGS = (
    "prompt=Once%20%3Ca%3E%20%26%20for%20all&k=5&temperature=0.8&rule=shared-noise&seed=7&max_new_tokens=33"
)
HOSTILE = "<img src=x onerror=document.title='pwned'>${document.title='pwned'}"
OUTSIDE = """() => [...document.querySelectorAll('#quiz *, .sd-learn *')]
    .filter(part => part.checkVisibility() && part.getBoundingClientRect().right > innerWidth + 1)
    .map(part => part.outerHTML.slice(0, 80))"""


def quiz_page(open_page: Any, number: int = COST, **how: Any) -> Any:
    page = open_page(query=f"lesson=quiz&question={number}", **how)
    page.wait_for_selector(f"[data-question='{number}']:visible")
    return page


def predict(page: Any, number: int, option: int) -> None:
    page.check(f"[data-question='{number}'] input[value='{option}']")


def bar_lengths(page: Any) -> list[float]:
    return page.eval_on_selector_all(
        ".sd-quiz-results td i", "all => all.map(bar => bar.getBoundingClientRect().width)"
    )


def run_it(page: Any, number: int) -> Any:
    page.click("#quiz-run")
    verdict = page.locator(f"[data-result='{number}'] .sd-quiz-verdict")
    verdict.wait_for()
    page.wait_for_selector("#quiz-run:enabled")
    return verdict


def score(page: Any) -> str:
    return page.inner_text("[data-role=quiz-score]")


def outcomes(page: Any) -> list[str | None]:
    return page.eval_on_selector_all(".sd-quiz .sd-dot", "all => all.map(dot => dot.dataset.outcome ?? null)")


def test_a_right_prediction(open_page, service):
    service.outcomes["cost"] = FALLS
    page = quiz_page(open_page)
    assert not page.locator("#stage").is_visible()
    assert score(page) == "No answers yet"
    predict(page, COST, 2)
    verdict = run_it(page, COST)
    assert verdict.get_attribute("data-kind") == "right"
    option = QUESTIONS[COST - 1].options[2]
    assert verdict.inner_text() == f"✓ As you predicted. Measured: C, “{option.text}”."
    assert page.inner_text(f"[data-result='{COST}'] .sd-quiz-why") == option.why
    cells = page.locator(f"[data-result='{COST}'] :is(thead th, td b)").all_inner_texts()
    assert cells == [
        "each step computed once",
        "each step computed 8 times",
        "50%",
        "50%",
        "1.70×",
        "0.90×",
        "100%",
        "100%",
    ]
    assert "a planted machine" in page.inner_text(f"[data-result='{COST}'] footer")
    assert page.locator("[data-measured]").all_inner_texts() == [f"C\n{option.text}"]
    assert page.locator(f"[data-question='{COST}'] input:enabled").count() == 0, "it stands"
    assert service.requests == [{"question": COST}]
    assert (score(page), outcomes(page)[COST - 1]) == ("1 of 1 predicted", "right")
    assert "As you predicted" in page.text_content("[data-role=quiz-live]")


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_a_bar_is_as_long_as_its_figure(open_page, service, width):
    service.outcomes["cost"] = (
        planted(alpha_compared=0.4, speedup=0.6),
        planted(alpha_compared=0.0, speedup=0.75),
    )
    page = quiz_page(open_page, width=width)
    predict(page, COST, 2)
    run_it(page, COST)
    page.evaluate(FRAMES)
    lengths = bar_lengths(page)
    assert lengths[-1] > 100
    assert [round(length / lengths[-1], 2) for length in lengths] == [0.4, 0, 0.8, 1, 1, 1]


@pytest.mark.slow
def test_a_wrong_prediction(open_page, service):
    service.outcomes["cost"] = FALLS
    page = quiz_page(open_page)
    predict(page, COST, 0)
    verdict = run_it(page, COST)
    assert verdict.get_attribute("data-kind") == "wrong"
    assert verdict.inner_text().startswith("✗ Not as you predicted. Measured: C")
    assert verdict.inner_text().endswith("You chose A.")
    assert (score(page), outcomes(page)[COST - 1]) == ("0 of 1 predicted", "wrong")


@pytest.mark.slow
def test_a_close_result_has_no_verdict_and_does_not_count(open_page, service):
    service.outcomes["cost"] = CLOSE
    page = quiz_page(open_page)
    predict(page, COST, 2)
    verdict = run_it(page, COST)
    assert (verdict.get_attribute("data-kind"), verdict.inner_text()) == ("close", "≈ No verdict.")
    assert page.inner_text(f"[data-result='{COST}'] .sd-quiz-why").startswith("Too close to call")
    assert page.locator("[data-measured]").count() == 0
    assert score(page) == "0 of 0 predicted, 1 too close to call"
    service.outcomes["cost"] = FALLS
    page.click("#quiz-run")
    page.wait_for_selector(f"[data-result='{COST}'] .sd-quiz-verdict[data-kind=right]")
    assert score(page) == "1 of 1 predicted"


def test_nothing_runs_without_a_prediction(open_page, service):
    page = quiz_page(open_page)
    page.click("#quiz-run")
    expect(page.locator("[data-role=quiz-told]")).to_have_text("Choose a prediction first.")
    assert page.evaluate("document.activeElement.type") == "radio"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("[data-role=quiz-told]") == ""
    page.focus("#quiz-run")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"[data-result='{COST}'] .sd-quiz-verdict")
    assert service.requests == [{"question": COST}]


@pytest.mark.slow
def test_all_eight_in_turn_and_remembered(open_page, service):
    page = quiz_page(open_page, 1)
    for number in NUMBERS:
        assert page.locator("[data-question]:visible").count() == 1
        predict(page, number, 0)
        run_it(page, number)
        if number < len(QUESTIONS):
            page.click(f"[data-result='{number}'] footer button")
            assert f"question={number + 1}" in page.url
            assert page.evaluate("document.activeElement.tagName") == "H3"
    assert [request["question"] for request in service.requests] == list(NUMBERS)
    total, found = score(page), outcomes(page)
    assert total.startswith("All done: ") and None not in found
    page.reload()
    page.wait_for_selector("[data-question='8']:visible")
    assert (score(page), outcomes(page)) == (total, found)
    assert page.locator("[data-result='8'] .sd-quiz-verdict").is_visible()
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
    page.wait_for_selector(f"[data-result='{COST}'] progress")
    assert page.locator(f"[data-question='{COST}'] input:enabled").count() == 0
    page.get_by_role("button", name="Question 5").click()
    assert page.locator(f"[data-result='{COST}']").is_hidden()
    page.click("#quiz-stop")
    page.wait_for_selector("#quiz-run:enabled")
    page.get_by_role("button", name=f"Question {COST}").click()
    expect(page.locator(f"[data-result='{COST}']")).to_contain_text("Stopped before both runs")
    assert service.served < 2 and score(page) == "No answers yet"
    assert page.locator(f"[data-question='{COST}'] input:enabled").count() == 4
    service.go_on()
    run_it(page, COST)


@pytest.mark.slow
def test_the_question_of_the_pressed_button_is_measured_if_another_is_opened_at_once(open_page, service):
    held: list[Any] = []
    page = quiz_page(open_page)
    predict(page, COST, 1)
    page.route("**/run/predict*", lambda route: held.append(route))
    page.click("#quiz-run")
    until(lambda: page.title() and held)
    page.get_by_role("button", name="Question 5").click()
    held[0].continue_()
    page.unroute("**/run/predict*")
    page.wait_for_selector("#quiz-run:enabled")
    page.wait_for_selector(f"[data-result='{COST}'] .sd-quiz-verdict", state="attached")
    assert service.requests == [{"question": COST}]


@pytest.mark.slow
def test_a_fault_gets_its_sentence_as_text(open_page, service):
    service.fault = HOSTILE
    page = quiz_page(open_page)
    predict(page, COST, 1)
    page.click("#quiz-run")
    expect(page.locator(f"[data-result='{COST}'] .sd-quiz-error")).to_have_text(HOSTILE)
    page.wait_for_selector("#quiz-run:enabled")
    assert page.title() != "pwned"
    service.fault = None
    run_it(page, COST)


@pytest.mark.slow
def test_a_browser_that_remembers_nonsense_starts_anew(open_page):
    page = quiz_page(open_page)
    for kept in ("{", "[]", "null", '{"cost": {"picked": 9}}', '{"cost": 3}', f'"{"x" * 99}"'):
        page.evaluate("kept => localStorage.setItem('specdemo-quiz', kept)", kept)
        page.reload()
        page.wait_for_selector(f"[data-question='{COST}']:visible")
        assert score(page) == "No answers yet", kept


@pytest.mark.slow
def test_the_quiz_follows_the_last_lesson(open_page):
    page = open_page(query="lesson=7")
    assert not page.locator("#quiz").is_visible() and page.locator("#stage").is_visible()
    page.click("[data-go=next]")
    assert page.locator("#quiz").is_visible() and not page.locator("#stage").is_visible()
    assert "lesson=quiz" in page.url
    page.get_by_role("button", name="Question 4").click()
    assert "question=4" in page.url
    page.get_by_label("Lesson 2:").click()
    assert page.locator("#stage").is_visible() and "question" not in page.url
    page.click("#tab-learn-button")
    page.get_by_role("button", name="Quiz: predict, then run").click()
    page.click("#tab-run-button")
    assert page.locator("#stage").is_visible(), "only the quiz itself takes its place"


@pytest.mark.slow
@pytest.mark.parametrize("named", ["0", "9", "x", "2.5", ""])
def test_an_address_with_an_unknown_question_opens_the_first(open_page, named):
    page = open_page(query=f"lesson=quiz&question={named}")
    page.wait_for_selector("[data-question='1']:visible")


def class_link(page: Any, url: str) -> str:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.click("[data-role=class-link]")
    expect(page.locator("[data-role=class-told]")).to_have_text("Link copied.")
    return urlsplit(page.evaluate("navigator.clipboard.readText()")).query


@pytest.mark.slow
@pytest.mark.parametrize("place", ["lesson=4", "lesson=quiz&question=5"])
def test_a_class_link_brings_back_lesson_prompt_and_settings(open_page, service, url, place):
    first = open_page(query=f"lesson=1&{SETTINGS}")
    first.wait_for_function("document.querySelector('#prompt textarea').value.startsWith('Once')")
    if "quiz" in place:
        first.get_by_role("button", name="Quiz: predict, then run").click()
        first.get_by_role("button", name="Question 5").click()
    else:
        first.get_by_label("Lesson 4:").click()
    link = class_link(first, url)
    again = open_page(query=link)
    shown = "[data-question='5']" if "quiz" in place else "[data-lesson='4'][data-current]"
    again.wait_for_selector(f"{shown}:visible")
    again.wait_for_function("document.querySelector('#prompt textarea').value.startsWith('Once')")
    for page in (first, again):
        page.click("#tab-run-button")
        run_to_end(page)
    before, after = service.requests
    assert before == after
    assert before["prompt"] == "Once <a> & for all"
    assert (before["k"], before["rule"], before["seed"], before["max_new_tokens"]) == (
        5,
        "shared-noise",
        7,
        33,
    )


@pytest.mark.slow
def test_a_class_link_has_the_widgets_as_they_are_and_the_recording_that_plays(open_page, url):
    page = open_page(query=f"lesson=2&trace={RECORDING}")
    page.wait_for_selector(".sd[data-state=playing]")
    page.click("#tab-run-button")
    page.fill("#prompt textarea", "changed & not run")
    page.check("#auto input")
    page.click("#tab-learn-button")
    asked = parse_qs(class_link(page, url))
    assert (asked["lesson"], asked["trace"], asked["k"]) == (["2"], [RECORDING], ["auto"])
    assert asked["prompt"] == ["changed & not run"]


@pytest.mark.slow
def test_if_copying_is_denied_the_address_bar_has_the_class_link(open_page):
    page = open_page(query="lesson=3")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    page.click("[data-role=class-link]")
    expect(page.locator("[data-role=class-told]")).to_have_text("Copy it from the address bar.")
    assert parse_qs(urlsplit(page.url).query)["lesson"] == ["3"] and "prompt=" in page.url


@pytest.mark.slow
def test_axe_finds_nothing_serious(open_page, service):
    service.outcomes["cost"] = FALLS
    page = quiz_page(open_page)
    page.get_by_role("button", name="Question 2").click()
    predict(page, 2, 0)
    run_it(page, 2)
    page.get_by_role("button", name=f"Question {COST}").click()
    predict(page, COST, 0)
    run_it(page, COST)
    assert_accessible(page, "#quiz", ".sd-learn")


@pytest.mark.slow
def test_question_and_verdict_fit_a_small_projector(open_page, service):
    service.outcomes["cost"] = FALLS
    page = quiz_page(open_page)
    predict(page, COST, 2)
    run_it(page, COST)
    for part in (f"[data-question='{COST}']", "#quiz-run", f"[data-result='{COST}'] .sd-quiz-why"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 720, part


@pytest.mark.slow
def test_nothing_is_wider_than_a_phone(open_page, service):
    page = quiz_page(open_page, 1, width=390, height=844)
    for number in NUMBERS:
        page.locator(".sd-quiz .sd-dot").nth(number - 1).click()
        predict(page, number, 0)
        run_it(page, number)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.evaluate(OUTSIDE) == [], number


@pytest.mark.slow
def test_the_printed_quiz_has_all_questions_and_results(open_page, service):
    page = quiz_page(open_page)
    predict(page, COST, 2)
    run_it(page, COST)
    page.emulate_media(media="print")
    assert page.locator("[data-question]:visible").count() == len(QUESTIONS)
    assert page.locator("[data-result]:visible").count() == 1
    assert page.locator("[data-lesson]:visible").count() == 1
    assert page.locator("#quiz button:visible, .sd-learn button:visible").count() == 0
