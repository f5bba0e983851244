"""Events that are read on a thread of their own, as a visitor's page reads them."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Reading:
    """Reads events until they end.

    Attributes:
        events: The events so far.
        failure: The exception that ended them, if any.
    """

    def __init__(self, source: Iterator[Any]):
        self.events: list[Any] = []
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._read, args=[source], daemon=True)
        self._thread.start()

    def _read(self, source: Iterator[Any]) -> None:
        try:
            for event in source:
                self.events.append(event)
        except Exception as error:
            self.failure = error

    @property
    def types(self) -> list[str]:
        """The types of the events other than ``progress``."""
        return [event["type"] for event in self.events if event["type"] != "progress"]

    def wait(self) -> "Reading":
        """Return this when the events have ended."""
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self


def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
