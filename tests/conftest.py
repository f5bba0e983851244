"""Shared fixtures: reproducible hypothesis runs and the built-in pair, loaded once."""

import gc
import os
from pathlib import Path

import pytest
from helpers.compiled_code import CODE
from hypothesis import HealthCheck, settings

from specdemo.models.threads import thread_count, use_threads
from specdemo.pairs.sources import Sources

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

pytest_plugins = ("helpers.browsing",)

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
