"""The live copy of a server: its routes, and the links to it in a long queue and for students."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.http_visitor import PLAIN, served
from helpers.pages import Pages, Visitors
from helpers.stand_in import StandIn
from helpers.visitor import open_class, run_to_end
from playwright.sync_api import expect

from specdemo.classroom.rooms import Rooms
from specdemo.cli.main import parsed
from specdemo.cli.serve import environment_arguments
from specdemo.records.limits import UserError
from specdemo.ui import live_copy
from specdemo.ui.http.class_routes import class_routes
from specdemo.ui.live_copy import LiveCopy
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.site import ISOLATION

LINK = "Run in this browser"
PROMPT = "2 + 2 = ? & why"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache folder, to which a small stand-in for the copy is written."""

    def write(folder: Path, live: bool) -> None:
        assert live
        (folder / "specdemo-models").mkdir(parents=True)
        (folder / "index.html").write_text("a live copy")
        (folder / "specdemo-models" / "weights-00.bin").write_bytes(b"0123")

    monkeypatch.setattr(live_copy, "write_site", write)
    monkeypatch.setattr(live_copy, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def serving(copy: LiveCopy, root: str = "", service: Any = None) -> Iterator[str]:
    routes = [*class_routes(Rooms(), has_live_copy=True), *copy.routes()]
    options = launch_options(routes) | ({"root_path": root} if root else {})
    return served(build_page(service or StandIn(), has_live_copy=True), **options)


@pytest.mark.slow
@pytest.mark.parametrize("root", ["", "/demo"])
def test_the_copy_is_served_below_its_path_with_the_headers_for_threads(cache, root):
    copy = LiveCopy()
    for url in serving(copy, root):
        for at in {url, f"{url}demo/"} if root else {url}:
            assert PLAIN.get(f"{at}live/").json() == {"error": "There is nothing at this address."}
        copy.write()
        for at in {url, f"{url}demo/"} if root else {url}:
            page = PLAIN.get(f"{at}live/?prompt=x&k=2")
            assert (page.status_code, page.text) == (200, "a live copy")
            assert page.headers.items() >= ISOLATION.items()
            assert PLAIN.head(f"{at}live/").status_code == 200
            piece = PLAIN.get(f"{at}live/specdemo-models/weights-00.bin?abc")
            assert (piece.content, piece.headers["cache-control"]) == (b"0123", "no-cache")
            assert PLAIN.get(f"{at}live/../app.py").status_code == 404
            assert PLAIN.get(f"{at}live/%2e%2e/%2e%2e/index.html").status_code == 404
        assert PLAIN.get(f"{url}live", follow_redirects=True).text == "a live copy"
        assert not ISOLATION.keys() & PLAIN.get(url).headers.keys()


def test_a_copy_is_written_once_for_each_release(cache, monkeypatch):
    LiveCopy().write()
    (first,) = cache.iterdir()
    (first / "index.html").write_text("of the first start")
    LiveCopy().write()
    assert [*cache.iterdir()] == [first] and (first / "index.html").read_text() == "of the first start"
    monkeypatch.setattr(live_copy, "__version__", "9.9")
    LiveCopy().write()
    (second,) = cache.iterdir()
    assert second != first and (second / "index.html").read_text() == "a live copy"


FULL = OSError(28, "No space left on device")
UNMADE = UserError("The models for browsers could not be written; the reason is above.")


@pytest.mark.parametrize(("error", "reason"), [(FULL, f"{FULL.strerror}."), (UNMADE, str(UNMADE))])
def test_a_copy_that_cannot_be_written_is_one_line_in_the_log(cache, monkeypatch, caplog, error, reason):
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(live_copy, "write_site", fail)
    LiveCopy().write()
    sentence = f"The live copy was not written, so no page links to it: {reason}"
    assert [record.getMessage() for record in caplog.records] == [sentence]
    assert not [*cache.iterdir()]


def test_the_environment_sets_the_option_too(monkeypatch):
    assert parsed(["serve"]).live is False
    monkeypatch.setenv("SPECDEMO_LIVE", "true")
    assert "--live" in environment_arguments()


@pytest.fixture
def open_at(browser: Any, cache: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens the page of a server with a copy, and the server's stand-in and copy."""
    service, copy = StandIn(), LiveCopy()
    with contextmanager(serving)(copy, service=service) as url:
        visitors = Visitors(browser, url)
        pages = Pages(visitors, url)
        yield lambda: (pages.open(), service, copy)
        pages.close()
        visitors.close()


def parameters(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)


@pytest.mark.slow
def test_a_visitor_in_a_long_queue_gets_a_link_with_the_settings(open_at):
    page, service, copy = open_at()
    link = page.get_by_role("link", name=LINK)
    page.fill("#prompt textarea", PROMPT)
    for ahead, is_written, offered in ((3, False, False), (1, True, False), (3, True, True)):
        if is_written:
            copy.write()
        service.ahead = ahead
        page.click("#run")
        page.wait_for_selector(".sd[data-state=waiting]")
        expect(page.locator("[data-role=progress-text]")).to_contain_text("In the queue")
        page.wait_for_timeout(300)
        assert link.is_visible() == offered
        if offered:
            assert parameters(link.get_attribute("href")) == {
                "prompt": [PROMPT],
                "mode": ["chat"],
                "k": ["4"],
                "max_new_tokens": ["64"],
            }
        service.go_on()
        page.wait_for_selector(".sd:not([data-state=waiting])")
        page.wait_for_selector("#run:enabled")
    service.ahead = 3
    page.click("#run")
    link.click()
    page.wait_for_url("**/live/?prompt=2*")
    expect(page.locator("body")).to_have_text("a live copy")
    service.go_on()


@pytest.mark.slow
def test_a_student_runs_the_prompt_of_the_class_in_the_own_browser(open_at):
    teacher, _, copy = open_at()
    copy.write()
    open_class(teacher)
    student = teacher.context.new_page()
    student.goto(teacher.text_content(".sd-class-link"))
    student.wait_for_selector(".sd-student[data-state=following]")
    link = student.get_by_role("link", name=LINK)
    teacher.click("#tab-run-button")
    teacher.fill("#prompt textarea", PROMPT)
    run_to_end(teacher)
    expect(link).to_be_visible()
    expect(link).to_have_attribute("href", re.compile("prompt=2"))
    shown = teacher.evaluate("""async () => {
        const { stageOfPage } = await import('./specdemo-static/stage/stage.js');
        return stageOfPage().trace.start.run.config; }""")
    asked = {name: [str(shown[name])] for name in ("prompt", "mode", "k", "max_new_tokens")}
    assert parameters(link.get_attribute("href")) == asked
    with student.context.expect_page() as opened:
        link.click()
    expect(opened.value.locator("body")).to_have_text("a live copy")
    student.close()
