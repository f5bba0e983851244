"""Shared fixtures: reproducible hypothesis runs, the built-in pair and a browser, each loaded once."""

import gc
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.compiled_code import CODE
from helpers.pages import PATIENCE_MS
from hypothesis import HealthCheck, settings

from specdemo.models.threads import thread_count, use_threads
from specdemo.pairs.sources import Sources

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

settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("default")


if "PYTEST_XDIST_WORKER" in os.environ:
    # As many workers as cores: each keeps to its own.
    use_threads(1)


@pytest.fixture(scope="session", autouse=True)
def code_is_kept():
    """Keep compiled code in ``CODE`` even if a test names another cache folder."""
    from specdemo.models.compiled import compilation

    compilation.keep_in(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "keep_in", lambda folder: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with browser tests last: no other event loop can start beside Playwright's."""
    needs_browser = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in needs_browser)


def pytest_collection_finish():
    """Leave what the imports made out of every later search for garbage, which some tests ask for often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def builtin_pair():
    """The real built-in pair on the CPU in the default precision; fetched on first use."""
    from specdemo.pairs.load import load_sources

    return load_sources(Sources(device="cpu"))


@pytest.fixture
def one_thread():
    """Tiny models run fastest on one thread."""
    before = thread_count()
    use_threads(1)
    yield
    use_threads(before)


@pytest.fixture
def few_measurements(monkeypatch):
    """Pass costs are measured once instead of several times: for tests that do not look at them."""
    monkeypatch.setattr("specdemo.pairs.calibrate.REPEATS", 1)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Yield one Chromium for all tests; without Chromium skip them, or fail under CI."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        sentence = "no Chromium on this machine; install it (Debian: apt-get install chromium)"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()
