"""What a class is shown, in order: the lines of the run at hand, and the latest word on everything else.

Whoever has read up to a number gets what has changed since then, and who comes late all of it: of the run
every line, of a state (the view, a question) what it is now. So nothing has to be kept for each reader, and
one who reads slowly costs no more than one who reads fast. Knows no students and no transport.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from specdemo.records.limits import UserError

MOST_BYTES = 6_000_000
"""Of one run; the longest that the page makes has two thirds of that."""
TOO_LONG = "This run is too long to be shared with a class; shorten it."


class Frame(NamedTuple):
    """One message, encoded once for all who read it.

    Attributes:
        id: Its number.
        data: Its JSON on one line, which has ``id`` as well.
        event: The same as a server-sent event.
    """

    id: int
    data: bytes
    event: bytes


def frame_of(number: int, data: bytes) -> Frame:
    """A message of that number."""
    return Frame(number, data, b"id: %d\ndata: %s\n\n" % (number, data))


class Log:
    """Grows while a run goes on; a new run takes the place of the one before."""

    def __init__(self) -> None:
        self._last = 0
        self._run: list[Frame] = []
        self._run_bytes = 0
        self._states: dict[str, Frame] = {}
        self._read: tuple[int, int, list[Frame]] = (0, 0, [])

    @property
    def last(self) -> int:
        """The number of the latest message; 0 before the first."""
        return self._last

    def begin(self, message: Mapping[str, Any]) -> None:
        """Another run, or none: what was told of the run before is dropped."""
        self._run, self._run_bytes = [], 0
        self._append(message)

    def extend(self, message: Mapping[str, Any]) -> None:
        """More of the run at hand.

        Raises:
            UserError: It has become too long.
        """
        if not self._run:
            raise UserError("There is no run yet that could go on.")
        self._append(message)

    def put(self, name: str, message: Mapping[str, Any]) -> None:
        """The state of that name is this from now on."""
        self._states[name] = self._frame(message)

    def after(self, number: int) -> list[Frame]:
        """What has changed since the message of that number, by number; for 0 all there is."""
        before, last, frames = self._read
        if (before, last) != (number, self._last):  # most readers ask the same
            frames = [frame for frame in (*self._run, *self._states.values()) if frame.id > number]
            frames.sort(key=lambda frame: frame.id)
            self._read = (number, self._last, frames)
        return frames

    def _append(self, message: Mapping[str, Any]) -> None:
        frame = self._frame(message)
        if self._run_bytes + len(frame.data) > MOST_BYTES:
            raise UserError(TOO_LONG)
        self._run.append(frame)
        self._run_bytes += len(frame.data)

    def _frame(self, message: Mapping[str, Any]) -> Frame:
        data = json.dumps({"id": self._last + 1, **message}, separators=(",", ":")).encode()
        self._last += 1
        return frame_of(self._last, data)
