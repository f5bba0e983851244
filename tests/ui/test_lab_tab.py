"""The tab Lab in the browser: sweeps, conditions, batches, theory and the last run, with made-up points."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.layout import faults
from helpers.replay import RECORDING, recorded
from helpers.visitor import WIDER, receive_run
from helpers.waiting import until
from playwright.sync_api import TimeoutError, expect

from specdemo.lab.experiments import REPEATS, TEMPERATURES
from specdemo.lab.lab_request import parse_lab
from specdemo.records.limits import UserError

SWEEP, CONDITIONS = "[data-section=sweep]", "[data-section=conditions]"
BATCHES, WHAT_IF = "[data-section=throughput]", "[data-section=what-if]"
ROWS = f"{SWEEP} tbody tr"
THEORY_DRAWN = "[data-role=theory-chart].js-plotly-plot"
TRACES = """role => Object.fromEntries((document.querySelector(`[data-role=${role}]`).data ?? [])
    .map(({ uid, x, y, visible }) => [uid, { x: [...(x ?? [])], y: [...(y ?? [])], visible }]))"""
WATCH_CHART = """() => { const node = document.querySelector('[data-role=sweep-chart]');
    window.emptied = 0;
    new MutationObserver(() => { window.emptied += !node.querySelector('.main-svg'); })
        .observe(node, { childList: true, subtree: true }); }"""


@pytest.fixture
def open_lab(open_page: Callable[..., Any]) -> Callable[..., Any]:
    def open_on_lab(**options: Any) -> Any:
        page = open_page(**options)
        show_lab(page)
        page.fill("[name=max_new_tokens]", "4")
        page.fill("[name=prompts]", "1")
        return page

    return open_on_lab


def show_lab(page: Any) -> None:
    page.click("#tab-lab-button")
    page.wait_for_selector(THEORY_DRAWN)


def vary(page: Any, name: str) -> None:
    page.check(f"[name=experiment][value={name}]", force=True)
    page.click(f"{SWEEP} [data-start]")


def settled(page: Any, section: str, state: str = "over") -> str:
    """Wait until a section's job has ended, and return its sentence."""
    page.wait_for_selector(f"{section} [data-job][data-state={state}]")
    return page.inner_text(f"{section} .sd-job-text")


def traces(page: Any, role: str) -> dict[str, Any]:
    return page.evaluate(TRACES, role)


def saved(page: Any, section: str, kind: str) -> str:
    with page.expect_download() as download:
        page.click(f"{section} [data-save={kind}]")
    assert download.value.suggested_filename.endswith(f".{kind}")
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_a_sweep_grows_point_by_point_and_is_saved(open_lab, service):
    service.hold_at = 3
    page = open_lab()
    page.evaluate(WATCH_CHART)
    vary(page, "draft-cost")
    text = f"document.querySelector('{SWEEP} .sd-job-text').textContent"
    page.wait_for_function(f"/^3 of 8 points, about \\d+ s left$/.test({text})")
    assert page.locator(ROWS).count() == 3
    assert page.locator(f"{CONDITIONS} [data-start]:enabled").count() == 0, "one job at a time"
    assert page.locator(f"{SWEEP} [data-save]:visible").count() == 0
    service.go_on()
    assert settled(page, SWEEP) == "All 8 points are measured."
    assert page.evaluate("window.emptied") <= 1, "drawn once, then in place"
    assert traces(page, "sweep-chart")["speedup"]["x"] == list(REPEATS)
    rows = list(csv.DictReader(saved(page, SWEEP, "csv").splitlines()))
    points = json.loads(saved(page, SWEEP, "json"))["points"]
    assert [float(row["x"]) for row in rows] == [point["x"] for point in points] == list(REPEATS)
    shown = page.locator(f"{ROWS} td:nth-child(2)").all_inner_texts()
    assert shown == [f"{point['speedup']:.2f}×" for point in points]
    asked = {"experiment": "draft-cost", "max_new_tokens": 4, "prompts": 1}
    assert service.requests[-1].items() >= asked.items()
    assert page.locator("[data-start]:disabled").count() == 0


@pytest.mark.slow
def test_a_press_before_the_script_is_there_is_not_lost(open_page, service):
    page, held = open_page(), []
    page.route("**/lab/lab.js", lambda route: held.append(route))
    page.reload()
    page.click("#tab-lab-button")
    page.evaluate("window.isFirst = true")
    start = page.locator(f"{SWEEP} [data-start]")
    expect(start).to_be_visible()
    with pytest.raises(TimeoutError):
        start.click(timeout=1000)  # it would load the page again
    held[0].continue_()
    start.click()
    page.wait_for_selector(f"{SWEEP} [data-job]:is([data-state=running], [data-state=over])")
    until(lambda: service.requests)
    assert page.evaluate("window.isFirst")


@pytest.mark.slow
def test_all_other_tabs_name_a_measurement_as_the_visitors_own(open_lab, service):
    service.hold_at = 2
    page = open_lab()
    vary(page, "draft-length")
    chip = page.locator(".sd-job-chip:text-is('Your measurement')")
    assert chip.is_hidden(), "this tab shows it"
    for width, tabs in ((1280, ("run", "learn", "play", "proof", "class")), (390, ("run", "play"))):
        page.set_viewport_size({"width": width, "height": 844})
        for tab in tabs:
            page.click(f"#tab-{tab}-button")
            expect(chip).to_be_visible()
            assert faults(page) == []
    chip.click()
    page.click(f"{SWEEP} [data-stop]")
    settled(page, SWEEP)
    page.click("#tab-run-button")
    expect(chip).to_be_hidden()


@pytest.mark.slow
def test_stop_keeps_the_measured_points_and_the_varied_setting_cannot_be_set(open_lab, service):
    service.hold_at = 2
    page = open_lab()
    vary(page, "draft-length")
    page.wait_for_function(f"document.querySelectorAll('{ROWS}').length >= 2")
    page.click(f"{SWEEP} [data-stop]")
    sentence = settled(page, SWEEP)
    kept = page.locator(ROWS).count()
    assert 2 <= kept < 13 and sentence == f"Stopped; {kept} of 13 points are measured."
    assert saved(page, SWEEP, "csv").count("\n") == kept + 1
    service.go_on()
    vary(page, "temperature")
    assert page.is_disabled("[name=temperature]")
    page.fill("[name=k]", "2")
    page.fill("[name=prompt]", "<b>mine</b>")
    settled(page, SWEEP)
    labels = [f"T = {temperature:g}" for temperature in TEMPERATURES]
    assert page.locator(f"{ROWS} th").all_inner_texts() == labels
    vary(page, "category")
    assert page.is_disabled("[name=prompt]")
    settled(page, SWEEP)
    asked = service.requests[-1]
    assert (asked["k"], asked["prompt"], asked["mode"]) == (2, None, None)


@pytest.mark.slow
def test_one_condition_all_conditions_and_batches_run_by_one_button_each(open_lab):
    page = open_lab()
    card = page.locator("[data-condition=parallel-verification]")
    assert card.locator("b").all_inner_texts() == ["–", "–"] and not card.locator(".sd-outcome").is_visible()
    card.locator("[data-start]").click()
    settled(page, CONDITIONS)
    points = json.loads(saved(page, CONDITIONS, "json"))["points"]
    assert card.locator("b").all_inner_texts() == [f"{point['speedup']:.2f}×" for point in points]
    assert "one pass for each" in card.locator("[data-side=hurts]").inner_text()
    assert card.locator(".sd-outcome").get_attribute("data-kind") == "expected"
    assert page.locator("[data-condition=overhead] b").all_inner_texts() == ["–", "–"]
    page.click(f"{CONDITIONS} [data-job] [data-start]")
    page.wait_for_selector(f"{CONDITIONS} [data-job]:not([data-state=over])")
    settled(page, CONDITIONS)
    assert page.locator(".sd-outcome[data-kind]").count() == 8
    assert "–" not in page.locator(".sd-sides b").all_inner_texts()
    page.wait_for_selector("[data-role=conditions-chart].js-plotly-plot")
    page.click(f"{BATCHES} [data-start]")
    settled(page, BATCHES)
    assert traces(page, "throughput-chart")["batch-speedup"]["x"] == [1, 2, 4, 8, 16]


@pytest.mark.slow
def test_the_last_run_is_a_star_sets_the_sliders_and_has_best_lengths(open_page, service):
    page = open_page()
    show_lab(page)
    assert traces(page, "theory-chart")["run"]["visible"] is False
    page.click("[data-role=take-run]")
    expect(page.locator("[data-role=run-told]")).to_contain_text("No run has finished")
    page.locator(WHAT_IF).scroll_into_view_if_needed()
    expect(page.locator("[data-role=what-if-words]")).to_contain_text("No run has finished")
    page.click("#tab-run-button")
    receive_run(page)
    page.click("#tab-lab-button")
    page.locator(WHAT_IF).scroll_into_view_if_needed()
    page.wait_for_selector("[data-role=what-if-controls]:enabled")
    page.locator("[data-section=theory]").scroll_into_view_if_needed()
    page.wait_for_function(f"({TRACES})('theory-chart').run.x[0] > 0")
    totals = service.replayed[-1]["totals"]
    star = traces(page, "theory-chart")["run"]
    assert star["x"] == [pytest.approx(totals["alpha_compared"])] and 3 < star["y"][0] <= 4
    page.click("[data-role=take-run]")
    page.wait_for_function("document.querySelector('[data-slider=alpha]').value === '0.44'")
    reported = page.inner_text("[data-role=run-told]")
    assert f"measured speedup {totals['speedup']:.2f}×" in reported
    assert f"theoretical speedup {totals['s_theory']:.2f}×" in reported
    page.wait_for_function(f"Math.abs(({TRACES})('theory-chart').chosen.x[0] - 0.44) < 0.001")
    page.click("[data-role=ask-oracle]")
    page.wait_for_selector("[data-role=oracle-chart].js-plotly-plot")
    assert page.inner_text("[data-role=oracle-cost]") == f"{totals['s_cost']:.2f}×"
    best, perfect = (
        float(page.inner_text(f"[data-role=oracle-{part}]")[:-1]) for part in ("best", "perfect")
    )
    assert totals["s_cost"] < best < perfect
    assert re.fullmatch(r".* perfect drafts, k = \d+", page.inner_text("[data-role=oracle-perfect-label]"))


@pytest.mark.slow
def test_a_link_opens_the_recording_under_other_conditions_which_keys_change(open_page):
    page = open_page(query=f"trace={RECORDING}#tab=lab&part=what-if", width=390, height=844)
    page.wait_for_selector("[data-role=what-if-controls]:enabled")
    page.wait_for_selector("[data-role=what-if-chart].js-plotly-plot")
    page.wait_for_function("document.activeElement.dataset.section === 'what-if'")

    def shown(figure: str) -> str:
        return page.inner_text(f"[data-role=what-if-{figure}]")

    def press(*keys: str) -> float:
        """Press the keys, and return the speedup."""
        for key in keys:
            page.keyboard.press(key)
        return float(shown("speedup")[:-1])

    totals = recorded("shared_noise")[-1]["totals"]
    assert shown("speedup") == f"{totals['speedup']:.2f}×"
    assert shown("words").endswith("All rounds use the draft lengths of the run.")
    page.focus("[name=what-if-draft]:checked")
    hidden = press("ArrowRight")
    assert page.is_checked("[name=what-if-draft][value=hidden]")
    assert hidden > totals["speedup"]
    assert press("Tab", "End") < hidden
    assert "the target needs no round trips" in shown("words")
    press("Home", "Tab", "ArrowRight")
    assert "k = 1: " in shown("words")
    page.wait_for_function(f"({TRACES})('what-if-chart').chosen.x[0] === 1")
    drawn = traces(page, "what-if-chart")
    assert drawn["hidden"]["x"] == list(range(1, 13))
    assert f"{drawn['hidden']['y'][0]:.2f}×" == shown("speedup") == f"{drawn['chosen']['y'][0]:.2f}×"
    assert page.evaluate(WIDER, 390) == []
    assert_accessible(page, WHAT_IF)


@pytest.mark.slow
def test_bad_input_and_faults_are_reported_in_a_sentence_on_a_phone(open_lab, service):
    page = open_lab(width=390, height=844)
    page.fill("[name=prompts]", "99")
    vary(page, "draft-quality")
    with pytest.raises(UserError) as sentence:
        parse_lab({"experiment": "draft-quality", "prompts": 99})
    assert settled(page, SWEEP, "failed") == str(sentence.value)
    assert service.requests == []
    assert_accessible(page, ".sd-lab", state="refused")
    page.fill("[name=prompts]", "1")
    vary(page, "draft-quality")
    settled(page, SWEEP)
    expect(page.locator(ROWS)).to_have_count(8)
    page.wait_for_selector("[data-role=sweep-chart] .main-svg")
    page.click("[data-condition=overhead] [data-start]")
    settled(page, CONDITIONS)
    assert_accessible(page, ".sd-lab", state="with results")
    assert page.evaluate(WIDER, 390) == []
    for part in page.locator(".sd-lab-card").all():
        assert part.bounding_box()["width"] > 340, "one column"
    service.fault = "The device ran out of memory."
    vary(page, "draft-cost")
    assert settled(page, SWEEP, "failed") == service.fault
    expect(page.locator(ROWS)).to_have_count(1)  # the points stay


def test_the_speedup_of_another_program_is_explained_on_the_page(open_lab):
    page = open_lab()
    doctor = "[data-section=doctor]"
    page.click(f"{doctor} [type=submit]")
    answer = page.locator("[data-role=doctor-answer]")
    expect(answer).to_contain_text("No numbers were found")
    page.fill(f"{doctor} [name=text]", "draft acceptance = 0.35 ( 35 accepted / 100 generated)")
    for name, value in {"plain_rate": "12.2", "rate": "7.1", "k": "3", "draft_rate": "29.2"}.items():
        page.fill(f"{doctor} [name={name}]", value)
    page.click(f"{doctor} [type=submit]")
    expect(answer.locator("li b").first).to_have_text("draft too slow")
    page.wait_for_selector("[data-role=doctor-chart].js-plotly-plot")
    times = traces(page, "doctor-chart")
    assert sum(part["x"][1] for part in times.values()) == pytest.approx(288.7, abs=0.1)
    assert_accessible(page, doctor)
    page.fill(f"{doctor} [name=rate]", "")
    page.click(f"{doctor} [type=submit]")
    expect(answer).to_contain_text("Unknown: the speed with drafts")
    assert page.locator("[data-role=doctor-chart]").is_hidden()
