"""The page on other sites: the preview of its link, and frames."""

import io
import re
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from helpers.http_visitor import LIMITS
from helpers.replay import RECORDING
from helpers.visitor import press
from PIL import Image
from playwright.sync_api import expect

from specdemo.ui.http.hosts import parse_framers
from specdemo.ui.http.sharing import PICTURE_SIZE
from specdemo.ui.page import CLAIM, TITLE, build_page, launch_options

PLAIN = httpx.Client(timeout=60, limits=LIMITS)
SPACE = "me-demo.hf.space"
FIRST_KILOBYTES = 4_000
"""Some crawlers read no more of a page."""
CONTROLS = "#run, #stop, #prompt, [role=tab], [data-role=recordings], [data-role=save-menu], .sd-tools input"
WHOLE = ["", "?embed=0", "?embed=", "?embed=1&embed=0", "?trace=code", "config?embed=1"]


def preview(address: str, **options: Any) -> dict[str, str]:
    """Return the tags for previews, as a crawler reads them; each may occur once."""
    page = PLAIN.get(address, **options).text
    found = re.findall(r'<meta\s+(?:property|name)="((?:og|twitter):[^"]*)"\s+content="([^"]*)"', page)
    assert len(found) == len(dict(found)) == page.count('"og:') + page.count('"twitter:')
    assert all(page.index(f'"{name}"') < FIRST_KILOBYTES for name in dict(found))
    assert "Click to try out" not in page
    return {name: unescape(text) for name, text in found}


def policy(address: str) -> str:
    return PLAIN.get(address).headers["content-security-policy"]


def test_the_preview_of_a_link_describes_the_page_and_shows_a_run(url):
    tags = preview(url)
    assert (tags["og:title"], tags["og:description"], tags["og:url"]) == (TITLE, CLAIM, url)
    assert tags["twitter:card"] == "summary_large_image"
    picture = PLAIN.get(tags["og:image"])
    assert picture.headers["content-type"] == "image/png" and len(picture.content) < 100_000
    assert Image.open(io.BytesIO(picture.content)).size == PICTURE_SIZE


def test_the_preview_names_the_address_that_was_asked_for(url, monkeypatch):
    assert preview(f"{url}?trace=code&k=4")["og:url"] == f"{url}?trace=code&k=4"
    assert preview(f'{url}?prompt="><script>')["og:url"].startswith(f"{url}?prompt=")
    forwarded = {"X-Forwarded-Host": "demo.localhost:8443", "X-Forwarded-Proto": "https"}
    assert preview(url, headers=forwarded)["og:url"] == "https://demo.localhost:8443/"
    monkeypatch.setenv("SPACE_HOST", SPACE)
    tags = preview(url)
    assert tags["og:url"] == f"https://{SPACE}/" and tags["og:image"].startswith(f"https://{SPACE}/")


@pytest.mark.parametrize("path", ["favicon.ico", "pwa_icon"])
def test_the_icon_is_the_pages_own(url, path):
    [link] = re.findall(r'<link rel="icon" [^>]*href="([^"]+)"', PLAIN.get(url).text)
    assert PLAIN.get(f"{url}{path}").text == PLAIN.get(link).text
    assert PLAIN.get(f"{url}manifest.json").json()["icons"][0]["src"].endswith("pwa_icon")


@pytest.mark.parametrize("path", WHOLE)
def test_no_other_site_may_show_the_whole_page_in_a_frame(url, path):
    assert "frame-ancestors 'self'" in policy(f"{url}{path}").split("; ")


@pytest.mark.parametrize("path", ["?embed=1", "?embed=1&trace=code", "specdemo-static/player.html"])
def test_any_site_may_show_a_replay_in_a_frame(url, path):
    reply = PLAIN.get(f"{url}{path}")
    assert "frame-ancestors" not in policy(f"{url}{path}") and "x-frame-options" not in reply.headers
    assert "gradio" not in reply.text.replace("Gradio's", ""), "the replay has nothing that starts a run"


@pytest.fixture(scope="module")
def framed_url(replay: Any) -> Iterator[str]:
    """Yield the address of a Space's page that sites of this name may show in a frame."""
    options = launch_options(framed_by=parse_framers("localhost, *.school.example"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACE_ID", "me/demo")
        page = build_page(replay)
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **options)
    yield address
    page.close()


class _Framing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f'<!doctype html><iframe src="{unescape(self.path[2:])}" width="700" height="640"></iframe>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def other_site() -> Iterator[str]:
    """Yield the address of another site; what follows it is the address that it shows in a frame."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Framing)
    Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
    yield f"http://localhost:{server.server_port}/?"
    server.shutdown()


def test_another_site_shows_a_replay_that_links_to_the_page(patient_page, url, other_site):
    page = patient_page()
    page.goto(f"{other_site}{url}?embed=1&trace={RECORDING}")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".sd[data-state=playing]")).to_be_visible()
    press(page.frames[1], "to-end")
    expect(frame.locator(".sd[data-state=ended]")).to_be_visible()
    assert page.frames[1].evaluate("document.documentElement.scrollHeight <= innerHeight"), "all is in sight"
    assert frame.locator(CONTROLS).locator("visible=true").count() == 0
    [link] = frame.locator("a:visible").all()
    assert link.get_attribute("href") == f"{url}?trace={RECORDING}"
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener")


def test_another_site_shows_the_player(patient_page, url, other_site):
    page = patient_page()
    page.goto(f"{other_site}{url}specdemo-static/player.html")
    expect(page.frame_locator("iframe").locator(".sd h2").first).to_be_visible()


def test_another_site_shows_the_whole_page_only_if_allowed(patient_page, url, framed_url, other_site):
    page = patient_page()
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.goto(f"{other_site}{url}")
    assert page.frame_locator("iframe").locator("gradio-app").count() == 0
    page.goto(f"{other_site}{framed_url}")
    expect(page.frame_locator("iframe").locator("#run")).to_be_visible()


def test_a_space_links_to_its_source_code_and_cites_it(patient_page, framed_url):
    page = patient_page()
    page.goto(framed_url)
    files = "https://huggingface.co/spaces/me/demo/tree/main"
    expect(page.get_by_role("link", name="Source")).to_have_attribute("href", files)
    assert f"url = {{{files}}}\n}}\n\n@inproceedings" in page.text_content("[data-role=bibtex]")
