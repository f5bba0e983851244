"""Connections to the web server: bounded in number, and in the time that they may wait without a request."""

import logging
import time
from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # Windows
    resource = None

REQUEST_S = 20.0
"""The maximum number of seconds until the headers of a connection's next request have arrived."""
MAX_CONNECTIONS = 10_000
FILES_SHARE = 0.75
"""The share of the files that the process may open which connections may take."""
QUIET_S = 60.0
REPEATED = (
    "socket.accept() out of system resource",
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
    "No supported WebSocket library",
)
"""The beginnings of log messages that a client can cause as often as it likes."""


class BoundedConnection(H11Protocol):
    """A connection; if there are too many, the one that has waited longest for a request is closed."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: Any = None
        self._wait()
        # Several connections are made before the first of the closed ones is lost.
        kept: Any = [one for one in self.connections if not one.transport.is_closing()]  # type: ignore[union-attr]
        if len(kept) > max_connections():
            waiting = [one for one in kept if one is not self and one.is_waiting]
            oldest = min(waiting, key=lambda one: one.waits_since, default=self)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._timer.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    @property
    def is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self.waits_since = self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(REQUEST_S, self._close_if_waiting)

    def _close_if_waiting(self) -> None:
        if self.is_waiting:
            self.transport.abort()


def max_connections() -> int:
    """Return the maximum number of connections, which leaves files of the process for other uses."""
    if resource is None:
        return MAX_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files < 0 else min(MAX_CONNECTIONS, int(FILES_SHARE * files))


class QuietRepeats(logging.Filter):
    """Passes each of the ``REPEATED`` messages once in ``QUIET_S``, in one line."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        found = next((known for known in REPEATED if message.startswith(known)), None)
        if found is None:
            return True
        now = time.monotonic()
        if now - self._passed_at.get(found, -QUIET_S) < QUIET_S:
            return False
        self._passed_at[found] = now
        record.msg, record.args, record.exc_info = message.splitlines()[0], (), None
        return True


def quiet_repeats() -> None:
    for name in ("asyncio", "uvicorn.error"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, QuietRepeats) for one in logger.filters):
            logger.addFilter(QuietRepeats())
