"""The page on other sites: the preview of its link, and frames."""

import io
import re
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from helpers.browsing import in_every_font
from helpers.http_visitor import PLAIN, served
from helpers.replay import RECORDING
from helpers.visitor import press
from PIL import Image
from playwright.sync_api import expect

from specdemo.ui.component import CLAIM
from specdemo.ui.http.hosts import parse_framers
from specdemo.ui.http.sharing import PICTURE_SIZE
from specdemo.ui.page import TITLE, build_page, launch_options

SPACE = "me-demo.hf.space"
FIRST_KILOBYTES = 4_000
"""Some crawlers read no more of a page."""
CONTROLS = "#run, #stop, #prompt, [role=tab], [data-role=recordings], [data-role=save-menu], .sd-tools input"


def preview(address: str, **options: Any) -> dict[str, str]:
    """Return the tags for previews, as a crawler reads them; each may occur once."""
    page = PLAIN.get(address, **options).text
    found = re.findall(r'<meta\s+(?:property|name)="((?:og|twitter):[^"]*)"\s+content="([^"]*)"', page)
    assert len(found) == len(dict(found)) == page.count('"og:') + page.count('"twitter:')
    assert all(page.index(f'"{name}"') < FIRST_KILOBYTES for name in dict(found))
    assert "Click to try out" not in page
    return {name: unescape(text) for name, text in found}


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
    monkeypatch.setenv("SPACE_HOST", SPACE)
    tags = preview(url)
    assert tags["og:url"] == f"https://{SPACE}/" and tags["og:image"].startswith(f"https://{SPACE}/")


@pytest.mark.parametrize(
    ("headers", "root"),
    [
        ("X-Forwarded-Host: demo.localhost:8443; X-Forwarded-Proto: https", "https://demo.localhost:8443"),
        ("X-Forwarded-Host: a.localhost, b.localhost; X-Forwarded-Proto: HTTPS, http", "https://a.localhost"),
        ("Host: a.localhost; X-Forwarded-Proto: Https; X-Forwarded-Port: 443", "https://a.localhost"),
        ("Host: a.localhost; X-Forwarded-Proto: https; X-Forwarded-Port: 80", "https://a.localhost"),
        ("Host: a.localhost; X-Forwarded-Port: 8080, 80", "http://a.localhost:8080"),
        ("Host: a.localhost:81; X-Forwarded-Port: 8080", "http://a.localhost:81"),
        ("Host: a.localhost; X-Forwarded-Port: x", "http://a.localhost"),
        ("Host: [::1]; X-Forwarded-Port: 8080", "http://[::1]:8080"),
        ('Host: x.localhost; Forwarded: for="[::2]:9";host="[::1]:8443";Proto=HTTPS', "https://[::1]:8443"),
        ("Host: x.localhost; Forwarded: host=a.localhost, host=b.localhost", "http://a.localhost"),
        ("Host: a.localhost; Forwarded: for=_x; X-Forwarded-Proto: gopher", "http://a.localhost"),
    ],
    ids=str,
)
def test_the_preview_and_gradio_name_the_address_that_a_proxy_reports(url, headers, root):
    named = dict(one.split(": ", 1) for one in headers.split("; "))
    assert preview(url, headers=named)["og:url"] == f"{root}/"
    assert PLAIN.get(f"{url}config", headers=named).json()["root"] == root


def test_a_long_header_of_a_proxy_holds_nobody_up(url):
    reply = PLAIN.get(url, headers={"Host": "a.localhost", "Forwarded": "x" * 40_000}, timeout=5)
    assert reply.status_code == 200


def test_the_icon_is_the_pages_own(url):
    [link] = re.findall(r'<link rel="icon" [^>]*href="([^"]+)"', PLAIN.get(url).text)
    assert PLAIN.get(f"{url}favicon.ico").text == PLAIN.get(f"{url}pwa_icon").text == PLAIN.get(link).text
    assert PLAIN.get(f"{url}manifest.json").json()["icons"][0]["src"].endswith("pwa_icon")


def test_any_site_may_show_a_replay_in_a_frame_and_no_other_site_the_whole_page(url):
    for path in ("?embed=1", "?embed=1&trace=code", "specdemo-static/player.html"):
        reply = PLAIN.get(f"{url}{path}")
        assert "frame-ancestors" not in reply.headers["content-security-policy"], path
        assert "x-frame-options" not in reply.headers, path
        assert "gradio" not in reply.text.replace("Gradio's", ""), "the replay has nothing that starts a run"
    for path in ("", "?embed=0", "?embed=", "?embed=1&embed=0", "?trace=code", "config?embed=1"):
        policy = PLAIN.get(f"{url}{path}").headers["content-security-policy"]
        assert "frame-ancestors 'self'" in policy.split("; "), path


@pytest.fixture(scope="module")
def framed_url(replay: Any) -> Iterator[str]:
    """Yield the address of a Space's page that sites of this name may show in a frame."""
    options = launch_options(framed_by=parse_framers("localhost, *.school.example"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACE_ID", "me/demo")
        page = build_page(replay)
    yield from served(page, **options)


@pytest.fixture(scope="module")
def other_site(tmp_path_factory: Any) -> Iterator[str]:
    """Yield the address of another site; what follows it is the address that it shows in a frame."""
    folder = tmp_path_factory.mktemp("site")
    script = "document.querySelector('iframe').src = location.search.slice(1)"
    frame = f'<!doctype html><iframe width="700" height="640"></iframe><script>{script}</script>'
    (folder / "index.html").write_text(frame)
    site = partial(SimpleHTTPRequestHandler, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), site)
    Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
    yield f"http://localhost:{server.server_port}/?"
    server.shutdown()


@pytest.mark.slow
@in_every_font
def test_another_site_shows_the_player_and_a_replay_that_links_to_the_page(patient_page, url, other_site):
    page = patient_page()
    page.goto(f"{other_site}{url}?embed=1&trace={RECORDING}")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".sd[data-state=playing]")).to_be_visible()
    page.frames[1].click(".sd-player-more")
    press(page.frames[1], "to-end")
    page.frames[1].click(".sd-player-more")
    expect(frame.locator(".sd[data-state=ended]")).to_be_visible()
    assert page.frames[1].evaluate("document.documentElement.scrollHeight <= innerHeight"), "all is in sight"
    assert frame.locator(CONTROLS).locator("visible=true").count() == 0
    [link] = frame.locator("a:visible").all()
    assert link.get_attribute("href") == f"{url}?trace={RECORDING}"
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener")
    page.goto(f"{other_site}{url}specdemo-static/player.html")
    expect(frame.locator(".sd h2").first).to_be_visible()


@pytest.mark.slow
def test_another_site_shows_the_whole_page_only_if_allowed_and_a_space_links_to_its_source_code(
    patient_page, url, framed_url, other_site
):
    page = patient_page()
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.goto(f"{other_site}{url}")
    assert page.frame_locator("iframe").locator("gradio-app").count() == 0
    page.goto(f"{other_site}{framed_url}")
    frame, files = page.frame_locator("iframe"), "https://huggingface.co/spaces/me/demo/tree/main"
    expect(frame.locator("#run")).to_be_visible()
    expect(frame.get_by_role("link", name="Source")).to_have_attribute("href", files)
    expect(frame.locator("[data-role=bibtex]")).to_contain_text(f"url = {{{files}}} }} @inproceedings")
