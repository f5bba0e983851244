"""Events that are read on a thread of their own, as a visitor's page reads them."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from helpers.waiting import PATIENCE_S


def ids_of(rounds: Iterable[dict[str, Any]]) -> list[int]:
    """The token ids of a lane's rounds."""
    ids = []
    for one in rounds:
        ids += [token["id"] for token in one["drafted"] if token["status"] == "accepted"]
        ids += [one["emission"]["id"]] if one["emission"] else []
    return ids


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

    @property
    def ids(self) -> list[int]:
        """The tokens of a run without other lanes."""
        return ids_of(event["round"] for event in self.events if event["type"] == "round")

    def wait(self) -> "Reading":
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self
