"""The tab Lab in the browser, measuring a tiny pair: sweeps, conditions, batches, theory, the last run."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.replay import RECORDING, recorded
from helpers.visitor import WIDER, receive_run

from specdemo.charts.palette import THEMES
from specdemo.lab.experiments import TEMPERATURES
from specdemo.lab.lab_request import parse_lab
from specdemo.records.limits import UserError

pytestmark = pytest.mark.usefixtures("one_thread")
SWEEP, CONDITIONS = "[data-section=sweep]", "[data-section=conditions]"
BATCHES, ORACLE = "[data-section=throughput]", "[data-section=oracle]"
ROWS = f"{SWEEP} tbody tr"
THEORY_DRAWN = "[data-role=theory-chart].js-plotly-plot"
CHART = "(role) => document.querySelector(`[data-role=${role}]`)"
TRACES = f"""role => Object.fromEntries((({CHART})(role).data ?? [])
    .map(({{ uid, x, y, visible }}) => [uid, {{ x: [...(x ?? [])], y: [...(y ?? [])], visible }}]))"""
ANSWER_MS = """() => new Promise(done => {
    const slider = document.querySelector('[data-slider=alpha]'), from = performance.now();
    new MutationObserver(() => done(performance.now() - from))
        .observe(document.querySelector('[data-role=theory-speedup]'), { childList: true });
    slider.value = 0.9;
    slider.dispatchEvent(new Event('input', { bubbles: true })); })"""
FONT_SIZES = """all => all.filter(node => node.textContent.trim() && !node.closest('svg'))
    .map(node => parseFloat(getComputedStyle(node).fontSize))"""
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


def settled(page: Any, section: str, state: str = "over") -> None:
    page.wait_for_selector(f"{section} [data-job][data-state={state}]")


def traces(page: Any, role: str) -> dict[str, Any]:
    return page.evaluate(TRACES, role)


def saved(page: Any, section: str, kind: str) -> str:
    with page.expect_download() as download:
        page.click(f"{section} [data-save={kind}]")
    assert download.value.suggested_filename.endswith(f".{kind}")
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_a_sweep_grows_point_by_point_and_is_taken_away(open_lab, service):
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
    settled(page, SWEEP)
    assert page.inner_text(f"{SWEEP} .sd-job-text") == "All 8 points are measured."
    assert page.evaluate("window.emptied") <= 1, "drawn once, then in place"
    assert traces(page, "sweep-chart")["speedup"]["x"] == [1, 2, 3, 4, 6, 8, 12, 16]
    rows = list(csv.DictReader(saved(page, SWEEP, "csv").splitlines()))
    points = json.loads(saved(page, SWEEP, "json"))["points"]
    assert [float(row["x"]) for row in rows] == [point["x"] for point in points] == [1, 2, 3, 4, 6, 8, 12, 16]
    shown = page.locator(f"{ROWS} td:nth-child(2)").all_inner_texts()
    assert shown == [f"{point['speedup']:.2f}×" for point in points]
    assert (
        service.requests[-1].items()
        >= {"experiment": "draft-cost", "max_new_tokens": 4, "prompts": 1}.items()
    )
    assert page.locator("[data-start]:disabled").count() == 0


@pytest.mark.slow
def test_stop_keeps_the_measured_points_and_the_next_sweep_works(open_lab, service):
    service.hold_at = 2
    page = open_lab()
    vary(page, "draft-length")
    page.wait_for_function(f"document.querySelectorAll('{ROWS}').length >= 2")
    page.click(f"{SWEEP} [data-stop]")
    settled(page, SWEEP)
    kept = page.locator(ROWS).count()
    assert 2 <= kept < 13
    assert page.inner_text(f"{SWEEP} .sd-job-text") == f"Stopped; {kept} of 13 points are measured."
    assert saved(page, SWEEP, "csv").count("\n") == kept + 1
    service.go_on()
    vary(page, "temperature")
    settled(page, SWEEP)
    labels = [f"T = {temperature:g}" for temperature in TEMPERATURES]
    assert page.locator(f"{ROWS} th").all_inner_texts() == labels


@pytest.mark.slow
def test_the_varied_setting_of_a_sweep_cannot_be_set(open_lab, service):
    page = open_lab()
    page.check("[name=experiment][value=temperature]", force=True)
    assert page.is_disabled("[name=temperature]") and page.is_enabled("[name=k]")
    page.fill("[name=k]", "2")
    page.fill("[name=prompt]", "<b>mine</b>")
    vary(page, "category")
    assert page.is_disabled("[name=prompt]")
    settled(page, SWEEP)
    asked = service.requests[-1]
    assert (asked["k"], asked["prompt"], asked["mode"]) == (2, None, None)
    assert page.locator(ROWS).count() == 6


@pytest.mark.slow
def test_two_visitors_wait_for_each_other_and_both_get_theirs(open_lab, service):
    service.hold_at = 1
    one, other = open_lab(), open_lab()
    vary(one, "draft-cost")
    one.wait_for_selector(ROWS)
    other.locator(f"{SWEEP} .sd-job-text").evaluate(
        """node => { window.told = []; const tell = () => window.told.push(node.textContent);
            new MutationObserver(tell).observe(node, { childList: true }); }"""
    )
    vary(other, "temperature")
    other.wait_for_function("window.told.length > 0")
    assert other.evaluate("window.told[0]") == "Waiting for the models"
    assert other.locator(ROWS).count() == 0
    service.go_on()
    settled(one, SWEEP)
    settled(other, SWEEP)
    assert [page.locator(ROWS).count() for page in (one, other)] == [8, 6]


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
    assert card.locator(".sd-outcome").get_attribute("data-kind") in ("expected", "unexpected", "close")
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
def test_the_last_run_is_a_star_and_sets_the_sliders(open_page, service):
    service.replayed = recorded("greedy")
    page = open_page()
    show_lab(page)
    assert traces(page, "theory-chart")["run"]["visible"] is False
    page.click("[data-role=take-run]")
    page.wait_for_function(
        "document.querySelector('[data-role=run-told]').textContent.includes('No finished run')"
    )
    page.click("#tab-run-button")
    receive_run(page)
    page.click("#tab-lab-button")
    page.wait_for_function(
        f"({TRACES})('theory-chart').run.x.length === 1 && ({TRACES})('theory-chart').run.x[0] > 0"
    )
    totals = service.replayed[-1]["totals"]
    star = traces(page, "theory-chart")["run"]
    assert star["x"] == [pytest.approx(totals["alpha_compared"])] and 3 < star["y"][0] <= 4
    page.click("[data-role=take-run]")
    page.wait_for_function("document.querySelector('[data-slider=alpha]').value === '0.44'")
    reported = page.inner_text("[data-role=run-told]")
    assert (
        f"{totals['speedup']:.2f}× measured" in reported
        and f"{totals['s_theory']:.2f}× in theory" in reported
    )
    page.wait_for_function(f"Math.abs(({TRACES})('theory-chart').chosen.x[0] - 0.44) < 0.001")
    page.click("[data-role=ask-oracle]")
    page.wait_for_selector("[data-role=oracle-chart].js-plotly-plot")
    assert page.inner_text("[data-role=oracle-cost]") == f"{totals['s_cost']:.2f}×"
    assert float(page.inner_text("[data-role=oracle-best]")[:-1]) > totals["s_cost"]


@pytest.mark.slow
def test_a_link_opens_the_recording_under_other_conditions_which_keys_change(open_page):
    page = open_page(query=f"trace={RECORDING}#tab=lab&part=what-if", width=390, height=844)
    page.wait_for_selector("[data-role=what-if-controls]:enabled")
    page.wait_for_selector("[data-role=what-if-chart].js-plotly-plot")
    page.wait_for_function("document.activeElement.dataset.section === 'what-if'")

    def shown(figure: str) -> str:
        return page.inner_text(f"[data-role=what-if-{figure}]")

    totals = recorded("shared_noise")[-1]["totals"]
    assert shown("speedup") == f"{totals['speedup']:.2f}×"
    assert shown("words").endswith("The rounds are those of the run.")
    even_ms = float(shown("even").removesuffix(" ms"))
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.is_checked("[name=what-if-draft][value=hidden]")
    hidden = float(shown("speedup")[:-1])
    assert hidden > totals["speedup"]
    assert float(shown("even").removesuffix(" ms")) > even_ms
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert float(shown("speedup")[:-1]) < hidden
    assert "The target alone needs no round trips." in shown("words")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert "k = 1: " in shown("words")
    page.wait_for_function(f"({TRACES})('what-if-chart').chosen.x[0] === 1")
    drawn = traces(page, "what-if-chart")
    assert drawn["hidden"]["x"] == list(range(1, 13))
    assert ("coincide" in shown("words")) == (drawn["hidden"]["y"] == drawn["free"]["y"])
    assert f"{drawn['hidden']['y'][0]:.2f}×" == shown("speedup") == f"{drawn['chosen']['y'][0]:.2f}×"
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    assert page.evaluate(WIDER, 390) == []
    assert_accessible(page, "[data-section=what-if]")


@pytest.mark.slow
def test_without_a_finished_run_the_conditions_are_disabled(open_page, service):
    page = open_page()
    show_lab(page)
    page.locator("[data-section=what-if]").scroll_into_view_if_needed()
    page.wait_for_function(
        "document.querySelector('[data-role=what-if-words]').textContent.includes('No finished run')"
    )
    assert page.locator("[data-section=what-if] input:enabled").count() == 0
    page.click("#tab-run-button")
    receive_run(page)
    page.click("#tab-lab-button")
    page.locator("[data-section=what-if]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-role=what-if-controls]:enabled")


@pytest.mark.slow
def test_bad_input_and_faults_are_reported_in_a_sentence(open_lab, service):
    page = open_lab()
    page.fill("[name=prompts]", "99")
    vary(page, "draft-quality")
    settled(page, SWEEP, "failed")
    with pytest.raises(UserError) as sentence:
        parse_lab({"experiment": "draft-quality", "prompts": 99})
    assert page.inner_text(f"{SWEEP} .sd-job-text") == str(sentence.value)
    assert service.requests == []
    page.fill("[name=prompts]", "1")
    vary(page, "draft-quality")
    settled(page, SWEEP)
    assert page.locator(ROWS).count() == 8
    service.fault = "The device ran out of memory."
    vary(page, "draft-cost")
    settled(page, SWEEP, "failed")
    assert page.inner_text(f"{SWEEP} .sd-job-text") == service.fault
    assert page.locator(ROWS).count() == 1, "the points stay"


@pytest.mark.slow
def test_axe_finds_nothing_serious_in_the_lab(open_lab):
    page = open_lab()
    assert_accessible(page, ".sd-lab", state="before")
    vary(page, "draft-cost")
    page.wait_for_selector(ROWS)
    assert_accessible(page, ".sd-lab", state="measuring")
    settled(page, SWEEP)
    page.click("[data-condition=wrong-guesses] [data-start]")
    settled(page, CONDITIONS)
    assert_accessible(page, ".sd-lab", state="with results")
    page.fill("[name=prompts]", "99")
    vary(page, "draft-cost")
    settled(page, SWEEP, "failed")
    assert_accessible(page, ".sd-lab", state="refused")


@pytest.mark.slow
def test_the_theory_answers_at_once_and_fits_a_small_projector_and_the_lab_a_phone(open_lab):
    page = open_lab()
    box = page.locator("[data-section=theory]").bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 720
    assert min(page.eval_on_selector_all(".sd-lab *", FONT_SIZES)) >= 16
    took_ms = [page.evaluate(ANSWER_MS.replace("0.9", value)) for value in ("0.9", "0.2", "0.8")]
    assert min(took_ms) < 2_000
    page.wait_for_function(f"({TRACES})('theory-chart').chosen.x[0] === 0.8")
    page.evaluate("document.body.classList.add('dark')")
    paper = "document.querySelector('[data-role=theory-chart]').layout.paper_bgcolor"
    page.wait_for_function(f"{paper} === '{THEMES['dark'].surface}'")
    chart = page.locator("[data-role=theory-chart]")
    assert chart.locator(".main-svg").count() and "could not" not in chart.inner_text()
    phone = open_lab(width=390, height=844)
    vary(phone, "draft-length")
    settled(phone, SWEEP)
    phone.click("[data-condition=overhead] [data-start]")
    settled(phone, CONDITIONS)
    assert phone.evaluate("() => document.documentElement.scrollWidth") == 390
    assert phone.evaluate(WIDER, 390) == []
    for part in phone.locator(".sd-lab-card").all():
        assert part.bounding_box()["width"] > 340, "one column"
