"""The messages of a class: all messages of the current run, and the latest version of each state."""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from specdemo.records.limits import UserError

MAX_BYTES = 6_000_000
"""The maximum size of one run: one and a half times the longest run that the page can make."""
GAP_S = 0.2
"""The minimum seconds between two wake-ups, because each one sends a message to every student."""
TOO_LONG = "This run is too long to share with a class; start a run with fewer new tokens."


class Frame(NamedTuple):
    """One message, encoded once for all readers."""

    id: int
    # The message as JSON on one line, ``id`` included.
    data: bytes

    @property
    def event(self) -> bytes:
        """The message as a server-sent event."""
        return b"id: %d\ndata: %s\n\n" % (self.id, self.data)


class Log:
    """The messages of one class, and the readers that wait for the next one.

    A reader gives the number of the last message that it has read and gets all newer ones. A new reader gets
    the whole current run and the current states. The log stores nothing for each reader, so a slow reader
    uses no more memory than a fast one.
    """

    def __init__(self) -> None:
        self.last = 0  # the number of the latest message; 0 before the first
        self._run: list[Frame] = []
        self._run_bytes = 0
        self._states: dict[str, Frame] = {}
        self._news = asyncio.Event()
        self._waiting = 0
        self._woken_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, message: Mapping[str, Any]) -> None:
        """Start another run, and delete the messages of the previous run."""
        self._run, self._run_bytes = [], 0
        self._append(message)

    def extend(self, message: Mapping[str, Any]) -> None:
        """Add a message to the current run."""
        if not self._run:
            raise UserError("No run has begun; send a message of type begin first.")
        self._append(message)

    def put(self, name: str, message: Mapping[str, Any]) -> None:
        """Set the state ``name``, such as ``view`` or ``question``, to ``message``."""
        self._states[name] = self._frame(message)

    def after(self, number: int) -> list[Frame]:
        """Return the messages that are newer than ``number``, in order; for 0, all messages."""
        newer = self._run[bisect_right(self._run, number, key=lambda frame: frame.id) :]
        newer += [frame for frame in self._states.values() if frame.id > number]
        return sorted(newer, key=lambda frame: frame.id)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next wake-up; return False if there is none within ``timeout_s`` seconds."""
        news = self._news
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), timeout_s)
        finally:
            self._waiting -= 1
        return news.is_set()

    def wake(self) -> None:
        """Wake all waiting readers, at the earliest ``GAP_S`` seconds after the previous wake-up."""
        if self._waiting and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._woken_at + GAP_S), self._wake_now)

    def _wake_now(self) -> None:
        self._timer = None
        self._woken_at = asyncio.get_running_loop().time()
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _append(self, message: Mapping[str, Any]) -> None:
        frame = self._frame(message)
        if self._run_bytes + len(frame.data) > MAX_BYTES:
            raise UserError(TOO_LONG)
        self._run.append(frame)
        self._run_bytes += len(frame.data)

    def _frame(self, message: Mapping[str, Any]) -> Frame:
        self.last += 1
        self.wake()
        return Frame(self.last, json.dumps({"id": self.last, **message}, separators=(",", ":")).encode())
