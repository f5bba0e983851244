"""Sharing runs: addresses, recordings, trace files, offline pages, pictures and links."""

import base64
import io
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.replay import RECORDING, recorded
from helpers.visitor import figures, press, run_to_end, saved, stage_state
from PIL import Image
from playwright.sync_api import expect

from specdemo.charts.palette import DARK, LIGHT, Palette
from specdemo.records import trace_file
from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.ui.controls import settings_from

pytestmark = pytest.mark.slow

SETTINGS = (
    "prompt=Once%20upon%20%3Ca%3E%20time&k=5&temperature=0.8&seed=7&max_new_tokens=33"
    "&drafter=lookup%2Bmodel&draft_alone=true"
)
WANTED = {
    "k": 5,
    "temperature": 0.8,
    "seed": 7,
    "max_new_tokens": 33,
    "rule": "rejection",
    "mode": "chat",
} | {"prompt": "Once upon <a> time", "drafter": "lookup+model", "draft_alone": True}
PASTED = """async () => {
    const [item] = await navigator.clipboard.read();
    const reader = new FileReader();
    reader.readAsDataURL(await item.getType('image/png'));
    return new Promise(done => { reader.onload = () => done(reader.result); }); }"""
ERROR = "[data-role=error]"
ENDED = ".sd[data-state=ended]"


def wait_for_settings(page: Any) -> None:
    page.wait_for_function(
        "text => document.querySelector('#prompt textarea').value === text", arg=WANTED["prompt"]
    )


def test_an_address_out_of_bounds_or_of_no_recording_gets_one_sentence(open_page, service):
    with pytest.raises(UserError) as refused:
        settings_from({"k": "99"}, "x")
    for query in ("k=99", "trace=%3Cscript%3Ealert(1)%3C/script%3E", "trace=../../etc/passwd"):
        page = open_page(query=query)
        page.wait_for_selector(".sd[data-state=error]")
        reported = page.inner_text(ERROR)
        assert (reported == str(refused.value)) == (query == "k=99")
        assert reported.endswith(".") and "\n" not in reported and "root:" not in page.content()
        assert page.locator(".sd script").count() == 0
        run_to_end(page)
        assert service.requests[-1]["k"] == (3 if query == "k=99" else "auto")
        assert page.locator(ERROR).is_hidden()


def test_a_saved_trace_loads_and_plays_the_same_run_and_a_broken_file_does_not(open_page, service, tmp_path):
    service.replayed = recorded("rejection")
    page = open_page()
    run_to_end(page)
    before = stage_state(page)
    path = saved(page, "save-trace", tmp_path)
    assert path.suffix == ".json" and path.name.startswith("specdemo-what-is-deep-learning")
    run = trace_file.load(path.read_bytes())
    assert json.loads(dump(run.totals)) == recorded("rejection")[-1]["totals"]
    assert page.inner_text("[data-role=told]") == "Trace saved."
    page.set_input_files("[data-role=trace-file]", path)
    page.wait_for_selector(".sd[data-state=playing]")
    press(page, "to-end")
    page.wait_for_selector(ENDED)
    assert stage_state(page) == before
    file = {"name": "broken.json", "mimeType": "application/json", "buffer": b"[1, 2]"}
    page.set_input_files("[data-role=trace-file]", files=[file])
    with pytest.raises(UserError) as refused:
        trace_file.load("[1, 2]")
    expect(page.locator(ERROR)).to_have_text(str(refused.value))
    assert page.get_attribute(".sd", "data-state") == "error"


def test_the_saved_page_replays_offline(open_page, service, tmp_path, patient_page):
    service.replayed = recorded("shared_noise")
    page = open_page()
    page.fill("#prompt textarea", "</script><!-- <img src=x onerror=document.title='pwned'>")
    run_to_end(page)
    path = saved(page, "save-page", tmp_path)
    offline = patient_page(viewport={"width": 1280, "height": 720})
    offline.context.set_offline(True)
    requests: list[str] = []
    faults: list[str] = []
    offline.on("request", lambda request: requests.append(request.url))
    offline.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    offline.on("pageerror", lambda error: faults.append(str(error)))
    offline.goto(path.as_uri())
    offline.wait_for_selector(".sd[data-state=playing] .sd-token:visible")
    press(offline, "to-end")
    offline.wait_for_selector(ENDED)
    assert stage_state(offline) == stage_state(page)
    assert offline.inner_text("[data-role=sentence]") == page.inner_text("[data-role=sentence]")
    offline.locator("[data-plot=race]").scroll_into_view_if_needed()
    offline.wait_for_selector("[data-plot=race].js-plotly-plot")
    assert "pwned" not in offline.title()
    assert [address for address in requests if not address.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert faults == []


def test_the_image_is_copied_or_saved_and_leaves_the_pace_chosen(open_page, url, tmp_path):
    page = open_page(theme="dark")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    run_to_end(page)
    page.click("[data-role=save-menu] summary")
    press(page, "copy-image")
    expect(page.locator("[data-role=told]")).to_have_text("Image copied.")
    assert_pictured(Image.open(io.BytesIO(base64.b64decode(page.evaluate(PASTED).partition(",")[2]))), DARK)
    assert page.is_checked(".sd-pace input[value='0.25']")
    page.evaluate("() => { navigator.clipboard.write = () => Promise.reject(new Error('denied')); }")
    page.evaluate("document.body.classList.remove('dark')")
    path = saved(page, "copy-image", tmp_path)
    assert path.suffix == ".png"
    assert_pictured(Image.open(path), LIGHT)


def assert_pictured(picture: Image.Image, theme: Palette) -> None:
    paper, accepted = (tuple(bytes.fromhex(colour[1:])) for colour in (theme.surface, theme.accepted))
    assert picture.width >= 1000 and picture.height >= 500
    colours = {colour: times for times, colour in picture.convert("RGB").getcolors(2**24)}
    assert colours.get(paper, 0) > 0.2 * picture.width * picture.height
    assert colours.get(accepted, 0) > 1000


def test_a_copied_link_sets_the_same_settings(open_page, service, url):
    page = open_page(query=SETTINGS)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    wait_for_settings(page)
    service.replayed = recorded("rejection")
    run_to_end(page)
    link = copied_link(page)
    again = open_page(query=urlsplit(link).query)
    wait_for_settings(again)
    run_to_end(again)
    first, second = service.requests
    assert first == second
    assert service.requests[-1].items() >= WANTED.items()


def copied_link(page: Any) -> str:
    return copied(page, "copy-link", "Link copied.")


def copied(page: Any, role: str, told: str) -> str:
    page.click("[data-role=save-menu] summary")
    press(page, role)
    expect(page.locator("[data-role=told]")).to_have_text(told)
    return page.evaluate("navigator.clipboard.readText()")


def test_a_recording_in_the_address_plays_and_its_link_and_frame_are_copied(
    open_page, service, url, patient_page
):
    page = open_page(query=f"trace={RECORDING}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.wait_for_selector(".sd[data-state=playing]")
    assert parse_qs(urlsplit(copied_link(page)).query) == {"trace": [RECORDING], "__theme": ["light"]}
    frame = copied(page, "embed", "Embed code copied. Paste the code into your page.")
    blog = patient_page()
    blog.set_content(frame)
    expect(blog.frame_locator("iframe").locator(".sd-token:visible").first).to_be_visible()
    assert blog.get_attribute("iframe", "src") == f"{url}?__theme=light&embed=1&trace={RECORDING}"
    press(page, "to-end")
    page.wait_for_selector(ENDED)
    assert figures(page)["passes"] == recorded("shared_noise")[-1]["totals"]["passes"]
    expect(page.locator("[data-role=recordings]")).to_have_value(RECORDING)
    option = page.locator(f"[data-role=recordings] option[value={RECORDING}]")
    assert option.text_content() == "Paris"
    assert option.get_attribute("title") == recorded("shared_noise")[0]["run"]["device"]
    assert service.requests == []

    # Its settings can be used for a run of one's own.
    page.get_by_role("link", name="Load these settings").click()
    asked = recorded("shared_noise")[0]["run"]["config"]
    page.wait_for_function(
        "text => document.querySelector('#prompt textarea')?.value === text", arg=asked["prompt"]
    )
    run_to_end(page)
    names = ("prompt", "mode", "k", "rule", "temperature", "seed", "max_new_tokens", "drafter")
    assert {name: service.requests[-1][name] for name in names} == {name: asked[name] for name in names}
    assert page.get_by_role("link", name="Load these settings").count() == 0


def test_a_frame_of_one_s_own_run_comes_with_the_page_that_it_shows(open_page, url, tmp_path):
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    run_to_end(page)
    path = saved(page, "embed", tmp_path)
    expect(page.locator("[data-role=told]")).to_contain_text("Embed code copied and offline page saved.")
    assert f'src="{path.name}"' in page.evaluate("navigator.clipboard.readText()")
    assert 'id="specdemo-events">\n{' in path.read_text(encoding="utf-8")


def test_the_citations_are_copied_or_selected(open_page, url):
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.click(".sd-cite summary")
    press(page, "copy-bibtex")
    expect(page.locator("[data-role=copied]")).to_have_text("Copied.")
    entries = page.evaluate("navigator.clipboard.readText()")
    assert "@software{specdemo," in entries and "@inproceedings{leviathan2023fast," in entries
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    press(page, "copy-bibtex")
    expect(page.locator("[data-role=copied]")).to_contain_text("selected")
    assert page.evaluate("getSelection().toString().trim()") == entries.strip()
    expect(page.locator("[data-role=source-code]")).to_be_hidden()
