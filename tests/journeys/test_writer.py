"""A writer: runs an example, and takes pictures, frames, a page and a link of it to an article."""

import base64
import io
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.replay import RECORDING, recorded
from helpers.visitor import figures, press, requested, run_to_end, saved, stage_state, tokens
from PIL import Image, ImageChops
from playwright.sync_api import expect

from specdemo.charts.palette import DARK, LIGHT, Palette

pytestmark = pytest.mark.slow
ENDED = ".sd[data-state=ended]"
PLAYING = ".sd[data-state=playing]"
TOLD = "[data-role=told]"
HOSTILE = "</script><!-- <img src=x onerror=document.title='pwned'>"
PASTED = """async () => {
    const [item] = await navigator.clipboard.read();
    const reader = new FileReader();
    reader.readAsDataURL(await item.getType('image/png'));
    return new Promise(done => { reader.onload = () => done(reader.result); }); }"""
REFUSE = "() => { navigator.clipboard.write = () => Promise.reject(new Error('denied')); }"
# The markup of the copied picture, which the page gives to an image.
NOTE_MARKUP = """() => {
    const { get, set } = Object.getOwnPropertyDescriptor(HTMLImageElement.prototype, 'src');
    Object.defineProperty(HTMLImageElement.prototype, 'src', { get, set(address) {
        if (address.startsWith('data:image/svg')) window.markup = decodeURIComponent(address);
        set.call(this, address); } }); }"""
CHARTS_PX = 2 * (110 + 270)  # the height of the strip and the race in a picture, at two pixels each
WRITTEN = """() => {
    const made = new DOMParser().parseFromString(window.markup.replace(/^[^,]*,/, ''), 'image/svg+xml');
    return [made.querySelectorAll('img').length, made.querySelector('.sd-caption').textContent]; }"""


@pytest.fixture
def writer(open_page: Any, service: Any, url: str) -> Any:
    service.replayed = recorded("shared_noise")
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    return page


def copied(page: Any, role: str, told: str) -> str:
    page.click("[data-role=save-menu] summary")
    press(page, role)
    expect(page.locator(TOLD)).to_have_text(told)
    return page.evaluate("navigator.clipboard.readText()")


def words(page: Any, lane: str) -> list[str]:
    return [text for text, *_ in tokens(page, lane)]


def assert_pictured(picture: Image.Image, theme: Palette) -> None:
    paper, accepted = (tuple(bytes.fromhex(colour[1:])) for colour in (theme.surface, theme.accepted))
    assert picture.width >= 1000 and picture.height >= 500
    colours = {colour: times for times, colour in picture.convert("RGB").getcolors(2**24)}
    assert colours.get(paper, 0) > 0.2 * picture.width * picture.height
    assert colours.get(accepted, 0) > 1000
    charts = picture.convert("RGB").crop((int(0.63 * picture.width), 0, picture.width, picture.height))
    others = ImageChops.difference(charts, Image.new("RGB", charts.size, accepted)).convert("L")
    _, top, _, bottom = others.point(lambda difference: 255 * (difference == 0)).getbbox()
    assert bottom - top > CHARTS_PX, "the strip and, below it, the race"


def test_a_writer_takes_a_run_to_an_article(writer, service, url, tmp_path, patient_page):
    page = writer

    # An example, whose two lanes end with visibly the same text.
    page.click("#more > button")
    page.click("#examples button:has-text('Story')")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("story"))
    example = page.input_value("#prompt textarea")
    run_to_end(page)
    assert requested(service)["prompt"] == example
    assert words(page, "speculative") == words(page, "baseline")
    page.check("[data-role=show-discards]")
    assert len(words(page, "speculative")) > len(words(page, "baseline"))
    page.uncheck("[data-role=show-discards]")

    # A picture of what is seen, in both themes, copied or else saved.
    page.evaluate(NOTE_MARKUP)
    copied(page, "copy-image", "Image copied.")
    assert_pictured(Image.open(io.BytesIO(base64.b64decode(page.evaluate(PASTED).partition(",")[2]))), LIGHT)
    images, heading = page.evaluate(WRITTEN)
    assert images == 0, "Safari would leave them out"
    assert heading == f"Speculative decoding, live · {url}"
    assert page.is_checked(".sd-pace input[value='0.25']")
    page.evaluate(REFUSE)
    page.evaluate("document.body.classList.add('dark')")
    path = saved(page, "copy-image", tmp_path)
    assert path.suffix == ".png"
    assert_pictured(Image.open(path), DARK)
    page.evaluate("document.body.classList.remove('dark')")

    # A single chart.
    chart = page.locator("[data-plot=speedup]")
    chart.scroll_into_view_if_needed()
    files = {}
    for kind in ("PNG", "SVG"):
        chart.hover()
        with page.expect_download() as download:
            chart.get_by_role("button", name=f"Save this chart as {kind}").click()
        files[download.value.suggested_filename] = Path(download.value.path())
    assert list(files) == ["specdemo-speedup-so-far.png", "specdemo-speedup-so-far.svg"]
    assert Image.open(files["specdemo-speedup-so-far.png"]).width > 700
    assert "Speedup so far" in files["specdemo-speedup-so-far.svg"].read_text(encoding="utf-8")

    # A frame in the article, with the page that it shows next to it.
    path = saved(page, "embed", tmp_path)
    expect(page.locator(TOLD)).to_contain_text("Embed code copied and offline page saved.")
    article = tmp_path / "article.html"
    article.write_text(page.evaluate("navigator.clipboard.readText()"), encoding="utf-8")
    blog = patient_page()
    blog.goto(article.as_uri())
    assert blog.get_attribute("iframe", "src") == path.name
    expect(blog.frame_locator("iframe").locator(".sd-token:visible").first).to_be_visible()


def test_a_writer_keeps_a_run_as_a_page_that_needs_no_network(writer, tmp_path, patient_page):
    page = writer
    page.fill("#prompt textarea", HOSTILE)
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
    offline.wait_for_selector(f"{PLAYING} .sd-token:visible")
    press(offline, "to-end")
    offline.wait_for_selector(ENDED)
    assert stage_state(offline) == stage_state(page)
    assert offline.inner_text("[data-role=sentence]") == page.inner_text("[data-role=sentence]")
    offline.locator("[data-plot=race]").scroll_into_view_if_needed()
    offline.wait_for_selector("[data-plot=race].js-plotly-plot")
    assert "pwned" not in offline.title()
    assert [address for address in requests if not address.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert faults == []


def test_a_writer_links_to_a_recording_and_a_reader_runs_its_settings(
    writer, open_page, service, url, patient_page
):
    page = writer
    option = page.locator(f"[data-role=recordings] option[value={RECORDING}]")
    expect(option).to_have_text("Paris")
    assert option.get_attribute("title") == recorded("shared_noise")[0]["run"]["device"]
    page.select_option("[data-role=recordings]", RECORDING)
    page.wait_for_selector(PLAYING)
    link = urlsplit(copied(page, "copy-link", "Link copied."))
    assert parse_qs(link.query) == {"trace": [RECORDING], "__theme": ["light"]}
    frame = copied(page, "embed", "Embed code copied. Paste the code into your page.")
    blog = patient_page()
    blog.set_content(frame)
    expect(blog.frame_locator("iframe").locator(".sd-token:visible").first).to_be_visible()
    assert blog.get_attribute("iframe", "src") == f"{url}?__theme=light&embed=1&trace={RECORDING}"

    reader = open_page(query=f"trace={RECORDING}")
    reader.wait_for_selector(PLAYING)
    press(reader, "to-end")
    reader.wait_for_selector(ENDED)
    assert figures(reader)["passes"] == recorded("shared_noise")[-1]["totals"]["passes"]
    expect(reader.locator("[data-role=recordings]")).to_have_value(RECORDING)
    assert service.requests == []
    reader.get_by_role("link", name="Load these settings").click()
    asked = recorded("shared_noise")[0]["run"]["config"]
    reader.wait_for_function(
        "text => document.querySelector('#prompt textarea')?.value === text", arg=asked["prompt"]
    )
    run_to_end(reader)
    names = ("prompt", "mode", "k", "rule", "temperature", "seed", "max_new_tokens", "drafter")
    assert {name: service.requests[-1][name] for name in names} == {name: asked[name] for name in names}
    assert reader.get_by_role("link", name="Load these settings").count() == 0
