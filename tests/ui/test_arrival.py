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
NOTE = "Recorded on AMD EPYC, 2 threads. Press Run for your own."
SOURCE = "[data-role=source]"
LISTED = f"option[value={stage.ARRIVAL}]"
PLAYED = ".sd[data-recording], .sd-kept:visible"


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
    expect(page.locator(SOURCE)).to_contain_text(NOTE)
    page.click("[data-role=to-end]")
    expect(page.locator(SOURCE)).to_contain_text(NOTE)
    run_to_end(page)
    assert page.locator(".sd-kept:visible").count() == 0, "a run of one's own is not a recorded one"
    page.evaluate("localStorage.removeItem('specdemo-last-run')")
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    page.wait_for_selector(f".sd[data-recording={stage.ARRIVAL}][data-state=ended]:not([data-running])")
    assert page.inner_text("[data-figure=speedup]") != "–"


@pytest.mark.parametrize("then", ["a run", "a recording"])
def test_a_run_started_before_the_recording_arrives_stays(arriving, service, then):
    page = arriving(query="lesson=1")
    held: list[Any] = []
    page.route(f"**/specdemo-traces/{stage.ARRIVAL}.ndjson", lambda route: held.append(route))
    page.goto(page.url.split("?")[0])
    page.wait_for_selector(LISTED, state="attached")
    until(lambda: page.title() and bool(held))
    first = held.pop()
    if then == "a run":
        run_to_end(page)
        sentence = page.inner_text("[data-role=sentence]")
        assert sentence == service.replayed[-1]["sentence"]
    else:
        trace = dump(trace_of(recorded("shared_noise"))).encode()
        file = {"name": "run.json", "mimeType": "application/json", "buffer": trace}
        page.set_input_files("[data-role=trace-file]", files=[file])
        page.wait_for_selector("[data-lane=draft]")
    with page.expect_response(f"**/specdemo-traces/{stage.ARRIVAL}.ndjson"):
        first.continue_()
    page.wait_for_timeout(300)
    assert page.locator(PLAYED).count() == 0
    if then == "a run":
        assert page.inner_text("[data-role=sentence]") == sentence


def test_a_recording_plays_again_and_again_while_the_wait_in_the_queue_does_not_change(arriving, service):
    page = arriving(pace=1)
    page.wait_for_selector(f".sd[data-recording={stage.ARRIVAL}]")
    service.ahead = 1  # the stand-in names the wait once
    page.click("#run")
    page.wait_for_selector(".sd[data-state=waiting]")
    for _ in range(2):
        page.wait_for_selector(".sd[data-state=waiting][data-running]")
        page.wait_for_selector(".sd[data-state=waiting]:not([data-running])")
    service.go_on()
    page.wait_for_selector(".sd[data-state=ended]:not([data-recording])")


@pytest.mark.parametrize("query", ["proof=typical", "k=99"])
def test_a_link_to_a_proof_or_wrong_settings_plays_no_recording(arriving, query):
    page = arriving(query=query)
    page.wait_for_selector(LISTED, state="attached")
    page.wait_for_timeout(300)
    assert page.locator(".sd[data-recording]").count() == 0
    assert (page.get_attribute(".sd", "data-state") == "error") == (query == "k=99")


@pytest.mark.parametrize(
    ("query", "nearest"),
    [("prompt=Once&k=2&rule=shared-noise&temperature=0.8", "sampled"), ("prompt=Once&k=2", stage.ARRIVAL)],
)
def test_a_link_s_run_can_be_repeated_while_the_nearest_recording_plays(arriving, service, query, nearest):
    page = arriving(query=query)
    page.wait_for_selector(f".sd[data-recording={nearest}]:is([data-state=playing], [data-state=ended])")
    expect(page.locator(SOURCE)).to_contain_text("Press Run to start the linked run.")
    assert page.get_by_role("link", name="Load these settings").count() == 0
    run_to_end(page)
    assert (service.requests[-1]["prompt"], service.requests[-1]["k"]) == ("Once", 2)
    assert page.locator(PLAYED).count() == 0


def test_without_recordings_a_link_asks_to_repeat_its_run(arriving, tmp_path):
    (tmp_path / "index.json").write_text("[]")
    page = arriving(query="prompt=Once")
    assert page.inner_text("[data-role=hint]").endswith("Press Run to start the linked run.")


def test_the_keyboard_leads_to_the_run_and_settings_and_charts_are_explained(open_page):
    page = open_page(height=1000)
    page.wait_for_selector(f"option[value={RECORDING}]", state="attached")
    assert page.get_attribute(".sd", "data-state") == "idle", "another recording does not play at once"
    page.keyboard.press("Tab")
    expect(page.locator(".sd-skip")).to_be_focused()
    expect(page.locator(".sd-skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("[data-lane=speculative] .sd-text")).to_be_focused()
    page.click("#more > button")
    explained = page.locator("#more [data-choice]:visible")
    expect(explained).to_have_count(2)
    before = explained.all_inner_texts()
    page.click("#drafter input")
    page.get_by_role("option", name="prompt lookup").click()
    page.click("#rule label:has-text('shared noise')")
    expect(explained.nth(1)).not_to_have_text(before[1])
    assert not set(explained.all_inner_texts()) & set(before)
    page.click("#more > button")
    run_to_end(page)
    for chart in page.locator(".sd-chart").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".sd-help-button").click()
        assert page.inner_text(".sd-help-numbers") not in ("", "Figures appear after the first round.")
        page.keyboard.press("Escape")
