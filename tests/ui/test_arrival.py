"""A visitor's arrival: the recording at a plain address, a link's settings, and explanations."""

import json
from typing import Any

import pytest
from helpers.replay import RECORDING, recorded, trace_of
from helpers.visitor import run_to_end
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.records import recordings
from specdemo.records.trace import dump
from specdemo.ui import stage

pytestmark = pytest.mark.slow
NOTE = "Recorded earlier. Press Run for your own."


@pytest.fixture
def arriving(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, open_page: Any) -> Any:
    """Return ``open_page`` for a server with two recordings; the first plays at a plain address."""
    shipped = {stage.ARRIVAL: "greedy", "sampled": "shared_noise"}
    entries = [{"name": name, "title": name, "about": "A run."} for name in shipped]
    (tmp_path / "index.json").write_text(json.dumps(entries))
    for name, run in shipped.items():
        (tmp_path / f"{name}.json").write_text(dump(trace_of(recorded(run))))
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    return open_page


def test_a_plain_address_plays_a_run_labelled_as_recorded(arriving):
    page = arriving()
    page.wait_for_selector(f".sd[data-recording={stage.ARRIVAL}][data-running]")
    expect(page.locator("[data-role=source]")).to_contain_text(NOTE)
    page.click("[data-role=to-end]")
    expect(page.locator("[data-role=source]")).to_contain_text(NOTE)
    run_to_end(page)
    assert page.locator(".sd-kept:visible").count() == 0, "a run of one's own is not a recorded one"


@pytest.mark.parametrize("then", ["a run", "a recording"])
def test_a_run_started_before_the_recording_arrives_stays(arriving, service, then):
    page = arriving(query="lesson=1")
    held: list[Any] = []
    page.route(f"**/specdemo-traces/{stage.ARRIVAL}.ndjson", lambda route: held.append(route))
    page.goto(page.url.split("?")[0])
    page.wait_for_selector(f"option[value={stage.ARRIVAL}]", state="attached")
    until(lambda: page.title() and bool(held))
    first = held.pop()
    if then == "a run":
        run_to_end(page)
        sentence = page.inner_text("[data-role=sentence]")
        assert sentence == service.replayed[-1]["sentence"]
    else:
        page.set_input_files("[data-role=trace-file]", files=[as_file("shared_noise")])
        page.wait_for_selector("[data-lane=draft]")
    with page.expect_response(f"**/specdemo-traces/{stage.ARRIVAL}.ndjson"):
        first.continue_()
    page.wait_for_timeout(300)
    assert page.locator(".sd[data-recording], .sd-kept:visible").count() == 0
    if then == "a run":
        assert page.inner_text("[data-role=sentence]") == sentence


def as_file(name: str) -> Any:
    text = dump(trace_of(recorded(name)))
    return {"name": "run.json", "mimeType": "application/json", "buffer": text.encode()}


def test_with_reduced_motion_the_recording_arrives_finished(arriving):
    page = arriving(query="lesson=1")
    page.emulate_media(reduced_motion="reduce")
    page.goto(page.url.split("?")[0])
    page.wait_for_selector(f".sd[data-recording={stage.ARRIVAL}]")
    page.wait_for_selector(".sd[data-state=ended]")
    assert page.locator(".sd[data-running]").count() == 0
    assert page.inner_text("[data-figure=speedup]") != "–"


@pytest.mark.parametrize("query", ["lesson=2", "lesson=2&prompt=Once", "proof=typical"])
def test_a_link_to_a_lesson_or_proof_plays_no_recording(arriving, query):
    page = arriving(query=query)
    page.wait_for_selector(f"option[value={stage.ARRIVAL}]", state="attached")
    assert page.locator(".sd[data-recording]").count() == 0


@pytest.mark.parametrize(
    ("query", "nearest"),
    [("prompt=Once&k=2&rule=shared-noise&temperature=0.8", "sampled"), ("prompt=Once&k=2", stage.ARRIVAL)],
)
def test_a_link_s_run_can_be_repeated_while_the_nearest_recording_plays(arriving, service, query, nearest):
    page = arriving(query=query)
    page.wait_for_selector(f".sd[data-recording={nearest}]:is([data-state=playing], [data-state=ended])")
    expect(page.locator("[data-role=source]")).to_contain_text("Press Run to repeat this run.")
    assert page.get_by_role("link", name="Load these settings").count() == 0
    run_to_end(page)
    assert (service.requests[-1]["prompt"], service.requests[-1]["k"]) == ("Once", 2)
    assert page.locator(".sd[data-recording], .sd-kept:visible").count() == 0


def test_without_recordings_a_link_asks_to_repeat_its_run(arriving, tmp_path):
    (tmp_path / "index.json").write_text("[]")
    page = arriving(query="prompt=Once")
    assert page.inner_text("[data-role=hint]").endswith("Press Run to repeat this run.")


def test_a_wrong_link_shows_its_error_and_no_recording(arriving):
    page = arriving(query="k=99")
    page.wait_for_selector(".sd[data-state=error]")
    page.wait_for_selector(f"option[value={stage.ARRIVAL}]", state="attached")
    page.wait_for_timeout(300)
    assert page.get_attribute(".sd", "data-state") == "error"


def test_the_first_stop_of_the_keyboard_leads_to_the_run(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    expect(page.locator(".sd-skip")).to_be_focused()
    expect(page.locator(".sd-skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("[data-lane=speculative] .sd-text")).to_be_focused()


def test_every_chart_explains_itself(open_page, service):
    page = open_page(height=1000)
    run_to_end(page)
    for chart in page.locator(".sd-chart").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".sd-help-button").click()
        assert page.inner_text(".sd-help-numbers") not in ("", "No figures yet.")
        page.keyboard.press("Escape")


def test_the_chosen_drafter_and_rule_are_explained(open_page):
    page = open_page()
    page.click("#more > button")
    explained = page.locator("#more [data-choice]:visible")
    expect(explained).to_have_count(2)
    before = explained.all_inner_texts()
    page.click("#drafter input")
    page.get_by_role("option", name="prompt lookup").click()
    page.click("#rule label:has-text('shared noise')")
    expect(explained.nth(1)).to_contain_text("same random noise")
    after = explained.all_inner_texts()
    assert after[0].startswith("Copies what followed") and before[1].startswith(
        "Accepts only the target's most likely"
    )


def test_another_recording_is_offered_but_does_not_play_at_once(open_page):
    page = open_page()
    page.wait_for_selector(f"option[value={RECORDING}]", state="attached")
    assert page.get_attribute(".sd", "data-state") == "idle"
