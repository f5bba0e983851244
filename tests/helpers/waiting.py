"""How long tests wait for what happens on other threads, in other processes and in the browser."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 120.0
"""The maximum wait for one event, for slow or busy machines; only a test that fails waits so long."""


def until(condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not after {seconds:g} s"
        time.sleep(0.005)
