"""Wake all readers of a room at once, but not more often than they need to be.

For one event loop only, on which everything of a room happens.
"""

import asyncio
from contextlib import suppress

GAP_S = 0.2
"""Between two wakings: two hundred readers are two hundred messages, on a machine that also decodes."""


class Signal:
    """Readers wait for the next telling."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self._gap_s = gap_s
        self._told = asyncio.Event()
        self._latest = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def tell(self) -> None:
        """There is something to read: now, or as soon as the gap behind the last time is over."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._latest + self._gap_s), self._wake)

    async def wait(self, within_s: float) -> bool:
        """Until readers are woken the next time, or that long; whether they were woken."""
        told = self._told
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), within_s)
        return told.is_set()

    def _wake(self) -> None:
        self._timer = None
        self._latest = asyncio.get_running_loop().time()
        told, self._told = self._told, asyncio.Event()
        told.set()
