"""The static copy of the page, in Chromium from Python's own web server under a sub-path."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.pages import PATIENCE_MS
from playwright.sync_api import expect

from specdemo.asset_paths import RECORDINGS
from specdemo.cli.main import main
from specdemo.lab.answers import run_answer
from specdemo.quiz.questions import QUESTIONS
from specdemo.records import recordings, trace_file
from specdemo.ui import stage
from specdemo.ui.component import static_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MAX_BYTES = 8_000_000
SUB_PATH = "some/where"
PLAYING, ENDED = ".sd[data-running]", ".sd[data-state=ended]"
TABS = ("run", "learn", "proof", "lab")
THEORY_POINT = (
    "() => document.querySelector('[data-role=theory-chart]').data.find(one => one.uid === 'chosen').x[0]"
)
ONWARD = "[data-role=to-end], [data-role=phase-on], [data-role=round-on]"
"""The buttons that do nothing at the end of a run."""
SHOWN = "button:visible:enabled:not([title^='Save this chart']), summary:visible, a[href]:visible"
KEEP_STATE = """() => {
    window.state = () => location.href + document.body.outerHTML;
    window.before = state(); }"""


@pytest.fixture(scope="module", autouse=True)
def builtin_recordings() -> Iterator[None]:
    """Use the built-in recordings, not those that other tests of the page have put in their place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "FOLDER", RECORDINGS)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the static copy, written by the command."""
    folder = tmp_path_factory.mktemp("web") / SUB_PATH
    assert main(["site", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    root = folder.parents[SUB_PATH.count("/")]
    options = ["--bind", "127.0.0.1", "--directory", str(root)]
    command = [sys.executable, "-u", "-m", "http.server", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout
        port = re.search(r"port (\d+)", server.stdout.readline())
        assert port
        yield f"http://127.0.0.1:{port[1]}/{SUB_PATH}/"
        server.terminate()


@pytest.fixture
def open_copy(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens the copy; the test fails on errors, and on requests to anywhere else."""
    contexts, faults = [], []

    def guard(route: Any) -> None:
        if route.request.url.startswith(address):
            route.continue_()
        else:
            faults.append(route.request.url)
            route.abort()

    def opened(at: str = "", width: int = 1280, height: int = 720, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.route("**/*", guard)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda told: told.type in ("error", "warning") and faults.append(told.text))
        page.on("response", lambda reply: reply.status >= 400 and faults.append(reply.url))
        page.goto(f"{address}{at}", wait_until="commit")
        page.wait_for_selector("[data-role=scrub][aria-valuetext]", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def open_tab(page: Any, name: str) -> None:
    page.click(f"#tab-{name}-button")
    expect(page.locator(f"#tab-{name}")).to_be_visible()


def test_the_copy_is_small_and_a_folder_with_files_is_refused(folder, tmp_path, capsys):
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MAX_BYTES
    (tmp_path / "index.html").touch()
    assert main(["site", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"specdemo: OUT must be a new or empty folder, got {tmp_path}.\n"
    assert not any((tmp_path / "index.html").read_bytes())


def test_a_recorded_run_plays_on_arrival_before_the_charts_have_loaded(open_copy):
    page = open_copy()
    held: list[Any] = []
    page.route("**/plotly.min.js", lambda route: held.append(route))
    page.reload(wait_until="commit")
    page.wait_for_selector(f"{PLAYING}[data-recording={stage.ARRIVAL}]")
    rounds = page.locator("[data-lane=speculative] .sd-passes b")
    page.wait_for_function("document.querySelector('[data-lane=speculative] .sd-passes b').textContent > 2")
    assert held and int(rounds.inner_text()) > 2
    held.pop().continue_()
    page.wait_for_selector("[data-plot=race].js-plotly-plot")
    expect(page.locator("[data-role=source]")).to_contain_text("Recorded on AMD EPYC, 2 threads.")
    assert "Press Run" not in page.inner_text("body")


def test_every_recording_plays_and_has_its_what_if(open_copy):
    page = open_copy("#tab=lab&part=what-if")
    for recording in recordings.listed():
        # Clicks from a script, because switching tabs draws their charts.
        page.eval_on_selector(f"[data-recording-name={recording.name}]", "button => button.click()")
        page.wait_for_selector(f".sd[data-recording={recording.name}]", state="attached")
        page.eval_on_selector("[data-role=to-end]", "button => button.click()")
        page.wait_for_selector(ENDED, state="attached")
        assert page.locator("#examples [aria-pressed=true]").all_text_contents() == [recording.title]
        answer = run_answer(recordings.load(recording.name))["what_if"]
        seconds = sum(count * sum(times) for count, *times in answer["lengths"][0]["expected"])
        words = f"{answer['alone_s'] / seconds:.2f}×"
        expect(page.locator("[data-role=what-if-speedup]")).to_have_text(words)


def test_a_recording_is_saved_as_a_trace_and_a_lesson_plays_its_steps(open_copy):
    page = open_copy("?trace=same-noise")
    page.wait_for_selector(".sd[data-recording=same-noise]")
    page.click("[data-role=save-menu] summary")
    with page.expect_download() as saved:
        page.click("[data-role=save-trace]")
    run, original = trace_file.load(Path(saved.value.path()).read_bytes()), recordings.load("same-noise")
    ids = [{name: lane.ids for name, lane in one.lanes.items()} for one in (run, original)]
    assert ids[0] == ids[1]
    page = open_copy("?lesson=2")
    page.click("[data-lesson='2'] button:text-is('Open the round under the microscope')")
    expect(page.locator("[data-role=microscope-title]")).to_have_text(re.compile("^Round 1:"))
    page.wait_for_selector("[data-lesson='2'][data-done]")


def recorded_answers() -> list[list[dict[str, Any]]]:
    events = map(json.loads, static_text("learn/quiz-answers.ndjson").splitlines())
    return [list(answer) for _, answer in itertools.groupby(events, lambda event: event["question"])]


def test_every_question_has_a_recorded_answer_in_its_current_words():
    for question, (start, *sides, verdict) in zip(QUESTIONS, recorded_answers(), strict=True):
        assert (start["type"], start["name"]) == ("question", question.name)
        assert [side["label"] for side in sides] == [side.label for side in question.sides]
        for told, side in zip(sides, question.sides, strict=True):
            assert [figure["label"] for figure in told["figures"]] == [label for label, *_ in side.figures]
        assert verdict["why"] == question.options[verdict["option"]].why


def test_a_question_shows_its_recorded_answer_once_it_is_predicted(open_copy):
    page = open_copy("?lesson=quiz")
    page.click("#quiz-run")
    expect(page.locator("[data-role=quiz-told]")).to_have_text("Choose a prediction first.")
    *_, verdict = recorded_answers()[1]
    number = verdict["question"]
    page.get_by_role("button", name=f"Question {number}").click()
    page.click(f"[data-question='{number}'] label >> nth={verdict['option']}")
    page.click("#quiz-run")
    result = page.locator(f"[data-result='{number}']")
    expect(result.locator(".sd-quiz-verdict")).to_contain_text("Your prediction was right.")
    expect(result.locator(".sd-quiz-why")).to_have_text(verdict["why"])
    expect(page.locator("#quiz-run")).to_be_hidden()
    expect(page.locator("[data-role=quiz-score]")).to_contain_text("1 of 1 predicted")
    page.click("[data-role=quiz-restart]")
    page.click("[data-question='1'] label >> nth=0")
    page.click("#quiz-run")
    expect(page.locator("[data-result='1'] .sd-quiz-verdict")).to_be_visible()


def test_the_lab_computes_in_the_browser(open_copy):
    page = open_copy("#tab=lab")
    page.wait_for_selector("[data-role=theory-chart].js-plotly-plot")
    before = page.inner_text("[data-role=theory-speedup]")
    page.fill("[data-slider=alpha]", "0.9")
    assert page.inner_text("[data-role=theory-speedup]") != before
    page.wait_for_function(f"({THEORY_POINT})() === 0.9")
    speedup = page.locator("[data-role=what-if-speedup]")
    expect(speedup).to_have_text(re.compile("×$"))
    before = speedup.inner_text()
    page.check("[name=what-if-draft][value=free]", force=True)
    expect(speedup).not_to_have_text(before)
    assert float(speedup.inner_text()[:-1]) > float(before[:-1])


def test_recorded_proofs_open_and_what_needs_a_server_is_absent(open_copy):
    page = open_copy()
    assert "specdemo serve" in page.inner_text("#tab-run")
    for tab in TABS:
        open_tab(page, tab)
        assert page.locator("[data-only=live]:visible, [data-run]:visible, [data-start]:visible").count() == 0
    assert page.locator("option[value=file], #run, #stop, #play, #class").count() == 0
    open_tab(page, "proof")
    recorded = page.locator("[data-role=recorded]")
    expect(recorded).to_contain_text("Recorded earlier:")
    for name in page.eval_on_selector_all("[data-recorded]", "all => all.map(one => one.dataset.recorded)"):
        page.click(f"[data-recorded={name}]")
        page.wait_for_function("name => location.search === `?proof=${name}`", arg=name)
        expect(page.locator("[data-role=verdict]")).to_be_visible()
    page.reload()
    expect(recorded).to_be_visible()


def press_each(page: Any, scope: str) -> int:
    """Press every button and link in ``scope``, check that the page changes, and return their number."""
    count = page.locator(f"{scope} >> {SHOWN}").count()
    for index in range(count):
        control = page.locator(f"{scope} >> {SHOWN}").nth(index)
        if not control.count():
            continue  # an earlier one has hidden it
        at_end = not control.evaluate("(node, onward) => node.matches(onward)", ONWARD)
        page.evaluate(
            "role => document.querySelector(`[data-role=${role}]`).click()",
            "to-end" if at_end else "to-start",
        )
        page.evaluate(KEEP_STATE)
        name = control.evaluate("node => node.outerHTML.slice(0, 200)")
        control.click()
        page.wait_for_function("state() !== before")
        page.keyboard.press("Escape")
        if page.locator(".sd[data-state=idle]").count():  # it has emptied the stage
            page.evaluate("document.querySelector('[data-recording-name]').click()")
            page.wait_for_selector(PLAYING)
        assert page.locator(".sd-error:visible, .sd-proof-error:visible").count() == 0, name
    return count


def test_no_button_is_dead(open_copy):
    page = open_copy(reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_selector(ENDED)
    assert press_each(page, "#tab-run") == len(recordings.listed())
    assert press_each(page, "#stage") > 20
    for role in ("save-trace", "copy-image", "copy-link"):
        page.click("[data-role=save-menu] summary")
        page.click(f".sd-menu [data-role={role}]")
        expect(page.locator("[data-role=told]")).to_have_text(re.compile("saved|copied"))
        page.wait_for_function("!document.querySelector('[data-role=told]').textContent")
    assert page.locator(".sd-menu div button:visible").count() == 0
    open_tab(page, "learn")
    for dot, lesson in enumerate(("1", "2", "3", "4", "5", "6", "summary", "quiz", "7")):
        page.click(f"[data-role=lesson-dots] button >> nth={dot}")
        if lesson.isdigit():
            assert press_each(page, f"[data-lesson='{lesson}']") >= 2
        open_tab(page, "learn")
    open_tab(page, "proof")
    assert press_each(page, "#tab-proof") >= 4
    open_tab(page, "lab")
    assert press_each(page, "#tab-lab") == 2


def test_the_copy_fits_a_phone_and_axe_finds_nothing_serious(open_copy):
    page = open_copy(width=390, height=844)
    page.wait_for_selector(PLAYING)
    for tab in TABS:
        open_tab(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab
        assert_accessible(page, "body" if tab == "run" else f"#tab-{tab}", state=tab)
