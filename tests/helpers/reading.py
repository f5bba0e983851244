"""Events that are read on a thread of their own, as a visitor's page reads them."""

import threading
from collections.abc import Iterator
from typing import Any

from helpers.waiting import PATIENCE_S


class Reading:
    """Reads events until they end, or until ``failure`` is raised."""

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
        return [event["type"] for event in self.events if event["type"] != "progress"]

    def wait(self) -> "Reading":
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self
