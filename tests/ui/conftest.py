"""The real page in real Chromium, around a service that replays recorded events instead of models."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from replay import ReplayService

from specdemo.models import offered_drafters
from specdemo.ui.page import build_page, launch_options

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


@pytest.fixture(scope="session")
def replay() -> ReplayService:
    """The one service behind the one page; use ``service``, which resets it."""
    return ReplayService()


@pytest.fixture
def service(replay: ReplayService) -> ReplayService:
    """The replay service as new."""
    replay.reset()
    return replay


@pytest.fixture(scope="session")
def url(replay: ReplayService) -> Iterator[str]:
    """The address of the running page."""
    page = build_page(replay, offered_drafters())
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    yield address
    page.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests; without one, a skip that says so, or under CI a failure."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        sentence = "no Chromium on this machine; install it (Debian: apt-get install chromium)"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, url: str, service: ReplayService) -> Iterator[Callable[..., Any]]:
    """Open the page in a fresh profile: ``open_page(width=, height=, theme=, pace=)``."""
    contexts = []

    def opened(width: int = 1280, height: int = 720, theme: str = "light", pace: float = 0.25) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        context.set_default_timeout(20_000)
        context.add_init_script(f"localStorage.setItem('specdemo-pace', '{pace:g}')")
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("dialog", lambda dialog: (page.faults.append("dialog"), dialog.dismiss()))
        page.goto(f"{url}?__theme={theme}")
        page.wait_for_selector(".sd[data-state=idle]")
        page.wait_for_selector("[data-plot=speedup].js-plotly-plot")
        return page

    yield opened
    faults = [fault for context in contexts for page in context.pages for fault in page.faults]
    for context in contexts:
        context.close()
    assert not faults
