"""Fixtures: the real page in Chromium, around a service that replays recorded events instead of models."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import pytest
from helpers.http_visitor import served
from helpers.pages import PATIENCE_MS, Pages, Visitors
from helpers.replay import RECORDING, recorded, trace_of
from helpers.stand_in import StandIn
from helpers.visitor import end_class, open_class, run_to_end

from specdemo.classroom.rooms import Rooms
from specdemo.pairs.sources import Sources
from specdemo.records import recordings
from specdemo.records.trace import dump
from specdemo.service.service import RunService
from specdemo.ui.http.class_routes import class_routes, submit_with
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.serving import notice_lost_readers

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A wide, a narrow and a tall font that may be system-ui, each with its fixed-width font and Debian's package.
FONTS = {
    "DejaVu Sans": ("DejaVu Sans Mono", "fonts-dejavu-core"),
    "Liberation Sans": ("Liberation Mono", "fonts-liberation"),
    "Noto Sans": ("Noto Sans Mono", "fonts-noto-core"),
}
DEFAULT_FONT, *OTHER_FONTS = FONTS
in_every_font = pytest.mark.parametrize(
    "font",
    [DEFAULT_FONT, *(pytest.param(font, marks=pytest.mark.slow) for font in OTHER_FONTS)],
    indirect=True,
)
"""Opens the pages of a test in each of ``FONTS``, only in the first one unless slow tests run."""
RULE = """<match target="pattern"><test name="family"><string>{}</string></test>
<edit name="family" mode="assign" binding="strong"><string>{}</string></edit></match>"""
IS_SYSTEM_UI = """family => {
    // Fallbacks of different widths: a font that is missing follows them.
    const context = new OffscreenCanvas(1, 1).getContext('2d');
    const widths = ['system-ui', `"${family}", monospace`, `"${family}", serif`].map(families => {
        context.font = `40px ${families}`;
        return context.measureText('iiiWWW.,0').width; });
    return new Set(widths).size === 1; }"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with browser tests last: no other event loop can start beside Playwright's."""
    needs_browser = {item.path for item in items if "browsers" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in needs_browser)


@pytest.fixture(scope="session")
def replay() -> StandIn:
    return StandIn()


@pytest.fixture
def service(replay: StandIn) -> StandIn:
    replay.reset()
    return replay


@pytest.fixture(scope="session")
def url(replay: StandIn, tmp_path_factory: Any) -> Iterator[str]:
    """Yield the address of the shared page, which ships one recording."""
    folder = tmp_path_factory.mktemp("recordings")
    entry = {"name": RECORDING, "title": "Paris", "about": "Shared noise, with the draft alone."}
    (folder / "index.json").write_text(json.dumps([entry]), encoding="utf-8")
    trace = dump(trace_of(recorded("shared_noise")))
    (folder / f"{RECORDING}.json").write_text(trace, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "FOLDER", folder)
        page = build_page(replay, Sources().drafters)
        rooms = Rooms(submit_for=partial(submit_with, replay))
        options = launch_options(class_routes(rooms))
        _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **options)
        notice_lost_readers(page)
        yield address
        page.close()


@pytest.fixture(scope="session")
def browsers(tmp_path_factory: Any) -> Iterator[Callable[[str], Any]]:
    """Yield a function that returns the Chromium whose system-ui is a font of ``FONTS``, one for all tests.

    Without Chromium the tests are skipped, or fail under CI.
    """
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        leave_out("no Chromium on this machine; install it (Debian: apt-get install chromium)")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    folder = tmp_path_factory.mktemp("fonts")
    with sync_playwright() as playwright, ExitStack() as stack:

        @cache
        def launched(font: str) -> Any:
            mono, _ = FONTS[font]
            names = {"sans-serif": font, "ui-monospace": mono, "monospace": mono}
            rules = "".join(RULE.format(*name) for name in names.items())
            file = folder / f"{font}.conf"
            file.write_text(f"<fontconfig><include>/etc/fonts/fonts.conf</include>{rules}</fontconfig>")
            env = {**os.environ, "FONTCONFIG_FILE": str(file)}
            return stack.enter_context(playwright.chromium.launch(executable_path=path, args=FLAGS, env=env))

        yield launched


@pytest.fixture(scope="session")
def browser(browsers: Callable[[str], Any]) -> Any:
    return browsers(DEFAULT_FONT)


@pytest.fixture
def font(request: Any, browsers: Callable[[str], Any]) -> str:
    """The font of the test's pages; tests ``in_every_font`` are skipped without it, or fail under CI."""
    font = getattr(request, "param", None)
    if font is None:
        return DEFAULT_FONT
    page = browsers(font).new_page()
    is_there = page.evaluate(IS_SYSTEM_UI, font)
    page.close()
    if not is_there:
        leave_out(f"no {font} on this machine; install it (Debian: apt-get install {FONTS[font][1]})")
    return font


def leave_out(sentence: str) -> None:
    pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)


@pytest.fixture(scope="session")
def visitors_in(browsers: Callable[[str], Any], url: str) -> Callable[[str], Visitors]:
    return cache(lambda font: Visitors(browsers(font), url))


@pytest.fixture(scope="session")
def visitors(visitors_in: Callable[[str], Visitors]) -> Visitors:
    return visitors_in(DEFAULT_FONT)


@pytest.fixture
def open_page(visitors_in: Any, font: str, url: str, service: StandIn) -> Iterator[Callable[..., Any]]:
    pages = Pages(visitors_in(font), url)
    yield pages.open
    pages.close()


@pytest.fixture
def open_page_of(browser: Any) -> Iterator[Callable[[RunService], Callable[..., Any]]]:
    """Return a function that serves the page around another service and returns its ``open_page``."""
    with ExitStack() as stack:

        def serve(service: RunService) -> Callable[..., Any]:
            url = stack.enter_context(contextmanager(served)(build_page(service), **launch_options()))
            visitors = Visitors(browser, url)
            stack.callback(visitors.close)
            pages = Pages(visitors, url)
            stack.callback(pages.close)
            return pages.open

        yield serve


@pytest.fixture
def patient_page(browsers: Callable[[str], Any], font: str) -> Iterator[Callable[..., Any]]:
    contexts = []

    def opened(**options: Any) -> Any:
        contexts.append(browsers(font).new_context(**options))
        contexts[-1].set_default_timeout(PATIENCE_MS)
        return contexts[-1].new_page()

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def teacher(open_page: Callable[..., Any]) -> Iterator[Any]:
    page = open_page()
    open_class(page)
    yield page
    if page.locator(".sd-class[data-state=open]").count():
        page.click("#tab-class-button")
        end_class(page)


class SharedPage:
    """One page for many tests; each finds a recording at its end and nothing else changed."""

    def __init__(self, page: Any, replay: StandIn):
        self._page = page
        self._replay = replay
        self._shown: str | None = None

    def show(self, recording: str) -> Any:
        """Return the page with this recording at its end."""
        page = self._page
        page.mouse.move(0, 0)
        page.evaluate("window.scrollTo(0, 0)")
        if self._shown != recording:
            self._replay.replayed = recorded(recording)
            run_to_end(page)
            self._shown = recording
            return page
        page.focus("[data-role=rounds]")
        for _ in ("tooltip", "microscope"):
            page.keyboard.press("Escape")
        page.check(".sd-pace input[value='0.25']", force=True)
        page.uncheck("[data-role=show-discards]")
        page.click("[data-role=to-end]")
        page.wait_for_selector(".sd[data-state=ended]")
        return page


@pytest.fixture(scope="module")
def shared_page(visitors: Visitors, url: str, replay: StandIn) -> Iterator[SharedPage]:
    pages = Pages(visitors, url)
    replay.reset()
    yield SharedPage(pages.open(), replay)
    pages.close()


@pytest.fixture
def played(shared_page: SharedPage) -> Callable[[str], Any]:
    """Return ``played(recording)``: a page with this recording at its end, for tests that start no runs."""
    return shared_page.show
