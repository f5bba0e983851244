"""Hostile text from any source is shown as text: it runs nothing and moves nothing."""

import base64
from typing import Any
from urllib.parse import urlencode

import pytest
from helpers.game_page import draft, open_game
from helpers.pages import MOUNTED
from helpers.replay import recorded, trace_of
from helpers.visitor import FRAMES, press, run_to_end, saved
from helpers.watched_runs import watched_events

from specdemo.records.trace import dump

PWN = "document.title='pwned'"
OVERRIDE = "\u202eesrever\u2066\u2069\u200f"
MARKUP = (
    f"<script>{PWN}</script>",
    f"<img src=x onerror={PWN}>",
    f"<a href=javascript:{PWN}>x</a>",
    f"</script><script>{PWN}</script>",
    f"<svg onload={PWN}>",
    "${" + PWN + "}",
    "{{" + PWN + "}}",
    OVERRIDE,
)
HOSTILE = " ".join(MARKUP)
VISIBLE = HOSTILE.translate(dict.fromkeys(map(ord, "\u202e\u2066\u2069\u200f")))
"""The same without the marks that are shown as chips."""
ODD = """() => [...document.querySelectorAll(
        'img[src=x], svg[onload], [onerror], a[href^=javascript], .sd script')]
    .map(node => node.outerHTML)"""
BIDI = (
    "() => /[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f]/.test(document.querySelector('.sd').textContent)"
)
CHIPS = "all => all.map(one => one.dataset.mark)"


def assert_inert(page: Any) -> None:
    assert "pwned" not in page.title()
    assert page.evaluate(ODD) == []


def hostile_trace() -> dict[str, Any]:
    """Return the trace of a run whose names and texts are all hostile."""
    trace = trace_of(recorded("greedy"))
    trace["config"]["prompt"] = HOSTILE
    for name in ("device", "precision", "started_at"):
        trace[name] = HOSTILE
    trace["pair"] = {name: HOSTILE for name in trace["pair"]} | {"__proto__": HOSTILE, HOSTILE: HOSTILE}
    trace["versions"] = {HOSTILE: HOSTILE, "__proto__": HOSTILE}
    for token in trace["pieces"]:
        text = MARKUP[int(token) % len(MARKUP)]
        trace["pieces"][token] = base64.b64encode(text.encode()).decode()
    return trace


def look_everywhere(page: Any) -> None:
    press(page, "to-start", "round-on")
    token = page.locator("[data-lane=speculative] .sd-token >> visible=true").first
    token.scroll_into_view_if_needed()
    page.evaluate(FRAMES)
    token.hover()
    page.wait_for_selector("[data-role=tip]:not([hidden])")
    assert_inert(page)
    page.focus("[data-role=rounds]")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-role=microscope]")
    assert_inert(page)
    assert not page.evaluate(BIDI), "shown as chips"
    assert VISIBLE in page.text_content("[data-lane=speculative] .sd-prompt")
    assert "U+202E" in page.eval_on_selector_all(".sd-prompt .sd-chip", CHIPS)
    assert "U+202E" in page.eval_on_selector_all(".sd-token .sd-chip", CHIPS)


@pytest.mark.slow
def test_a_hostile_trace_and_the_page_saved_from_it_are_inert(open_page, patient_page, tmp_path):
    page = open_page()
    file = {"name": f"{PWN}.json", "mimeType": "application/json", "buffer": dump(hostile_trace()).encode()}
    page.set_input_files("[data-role=trace-file]", files=[file])
    page.wait_for_selector(".sd[data-state=playing], .sd[data-state=ended]")
    press(page, "to-end")
    page.wait_for_selector(".sd[data-state=ended]")
    look_everywhere(page)
    press(page, "microscope-close")
    path = saved(page, "save-page", tmp_path)
    assert set(path.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    offline = patient_page()
    logged: list[str] = []
    offline.on("console", lambda message: logged.append(message.text))
    offline.on("dialog", lambda dialog: (logged.append("dialog"), dialog.dismiss()))
    offline.goto(path.as_uri())
    press(offline, "to-end")
    offline.wait_for_selector(".sd[data-state=ended]")
    look_everywhere(offline)
    blocked = offline.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked" and [text for text in logged if "Content Security Policy" in text]


@pytest.mark.slow
def test_a_hostile_prompt_and_answer_are_only_shown(open_page, service):
    trace = hostile_trace()
    for event in service.replayed:
        event.get("pieces", {}).update({key: trace["pieces"][key] for key in event.get("pieces", {})})
    page = open_page(query=urlencode({"prompt": HOSTILE}))
    page.wait_for_function("text => document.querySelector('#prompt textarea').value === text", arg=HOSTILE)
    run_to_end(page)
    assert service.requests[-1]["prompt"] == HOSTILE
    look_everywhere(page)


@pytest.mark.slow
def test_addresses_run_nothing(open_page, url):
    names, page = ("trace", "lesson", "question", "draft", "k", "__proto__"), open_page()
    for query in (*({name: HOSTILE} for name in names), dict.fromkeys(names, HOSTILE)):
        page.goto(f"{url}?{urlencode(query)}")
        page.wait_for_selector(MOUNTED, state="attached")
        page.wait_for_timeout(300)
        assert_inert(page)
        assert not page.evaluate(BIDI), query
    page.get_by_role("tab", name="Run", exact=True).click()
    run_to_end(page)
    assert_inert(page)


@pytest.mark.slow
def test_a_game_of_hostile_words_is_only_shown(open_page, service):
    page = open_game(open_page)
    page.select_option("[data-role=opening]", "own")
    page.fill("#play-own", HOSTILE)
    page.click(".sd-play-own button")
    draft(page, MARKUP[1])
    assert_inert(page)
    assert service.requests[0]["text"] == HOSTILE
    text = page.text_content(".sd-play")
    assert not set(text) & set(OVERRIDE) - set("esrever") and MARKUP[1] in text
    assert "U+202E" in page.eval_on_selector_all(".sd-play .sd-chip", CHIPS)
    assert f"“onerror={PWN}>” was cut" in page.inner_text(".sd-play [data-role=notice]")


@pytest.mark.slow
def test_text_from_right_to_left_turns_nothing_around_it_and_a_chart_escapes_its_marks(open_page):
    hebrew = "\u05e9\u05dc\u05d5\u05dd"
    page = open_page()
    page.fill("#prompt textarea", f"123 {hebrew} 456")
    page.click("#more > button")
    page.check("#mode input[value=raw]")
    page.click("#more > button")
    run_to_end(page)
    [right, left], directions = page.evaluate(
        """() => { const lane = document.querySelector('[data-lane=speculative]');
            const [prompt, token] = ['.sd-prompt', '.sd-token'].map(part => lane.querySelector(part));
            const way = part => getComputedStyle(lane.querySelector(part)).direction;
            return [[token.getBoundingClientRect().right, prompt.getBoundingClientRect().left],
                ['.sd-text', 'header'].map(way)]; }"""
    )
    assert right <= left + 1 and directions == ["rtl", "ltr"], "the answer follows the prompt, to its left"
    isolated = "all => all.every(node => getComputedStyle(node).unicodeBidi === 'isolate')"
    assert page.eval_on_selector_all(".sd-prompt, .sd-hint, .sd-source-prompt", isolated)
    chart = "import(new URL('specdemo-static/common/plotly_chart.js', document.baseURI))"
    shown = page.evaluate(f"async text => (await {chart}).plotText(text)", f"<b>{OVERRIDE}\t\r\n")
    assert shown == "&lt;b&gt;U+202EesreverU+2066U+2069U+200F⇥⏎"


@pytest.mark.slow
def test_names_from_a_watched_server_are_only_shown(open_page, service):
    events = watched_events("llama-models.json", "llama-ngram-text-code")
    run = events[0]["run"]
    run["pair"] = {"target": HOSTILE, "draft": HOSTILE}
    run["device"] = HOSTILE
    run["watched"] |= {"engine": HOSTILE, "server": HOSTILE, "silent": [HOSTILE]}
    service.replayed = events
    page = open_page()
    run_to_end(page)
    page.click("[data-help=run]")
    assert_inert(page)
    assert not page.evaluate(BIDI), "shown as chips"
    assert MARKUP[1] in page.text_content(".sd")


@pytest.mark.slow
def test_a_question_and_answers_of_a_class_are_only_shown(teacher, patient_page):
    student = patient_page()
    student.goto(teacher.text_content(".sd-class-link"))
    teacher.fill(".sd-class textarea[name=text]", VISIBLE)
    teacher.fill(".sd-class textarea[name=options]", "\n".join(MARKUP[:4]))
    teacher.click("text=Ask the class")
    answer = student.get_by_role("button", name=f"B {MARKUP[1]}")
    answer.wait_for()
    answer.click()
    for page in (teacher, student):
        page.wait_for_timeout(300)
        assert_inert(page)
        assert MARKUP[0] in page.text_content("body")


@pytest.mark.slow
def test_drafts_and_nicknames_of_students_are_only_shown(teacher, patient_page):
    students = [patient_page(), patient_page()]
    for student in students:
        student.goto(teacher.text_content(".sd-class-link"))
    teacher.fill(".sd-class-game textarea[name=text]", "Please answer")
    teacher.fill(".sd-class-game input[name=seconds]", "10")
    teacher.check(".sd-class-game input[name=drafts]")
    teacher.click("text=Start the game")
    writer, reader = students
    writer.fill(".sd-game-form textarea", "<b>hi</b>")
    writer.fill(".sd-game-form input", "<b>x</b>")
    writer.click(".sd-game-form button")
    for page in (teacher, writer, reader):
        page.wait_for_selector(".sd-game-results")
        page.wait_for_timeout(300)
        assert_inert(page)
        assert "b>hi</b>" in page.locator(".sd-game-results").text_content()
        assert page.locator("b:text-is('hi'), b:text-is('x')").count() == 0


@pytest.mark.slow
def test_the_page_breaks_no_policy_and_could_not_call_out(open_page, url):
    page = open_page()
    logged: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    page.reload()
    for tab in ("Learn", "Play", "Is it the same?", "Lab", "Class", "Run"):
        page.get_by_role("tab", name=tab).click()
    run_to_end(page)
    page.locator("[data-plot=speedup]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=speedup].js-plotly-plot")
    for role, words in (("save-page", "Page saved"), ("copy-image", "Image"), ("save-trace", "Trace saved")):
        page.click("[data-role=save-menu] summary")
        page.click(f"[data-role={role}]")
        page.wait_for_function(
            f"document.querySelector('[data-role=told]').textContent.startsWith('{words}')"
        )
    assert not [text for text in logged if "Content Security Policy" in text]
    blocked = page.evaluate(
        """async () => {
            const seen = new Promise(done => addEventListener("securitypolicyviolation", done));
            const stolen = await fetch("http://127.0.0.1:9/?" + document.title).catch(() => null);
            return [stolen, (await seen).effectiveDirective];
        }"""
    )
    assert blocked == [None, "connect-src"]
    assert page.evaluate("eval('1 + 1')") == 2, "which Gradio's templates need"
