"""Routes of our own beside Gradio's, and what is posted to them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

T = TypeVar("T")
READING_S = 60.0
SMALL_BYTES = 2**15
"""The size of a body that is parsed in less time than another thread takes to begin."""


class Arriving:
    """The bodies that are on their way to some routes, bounded in bytes all together.

    Not in number: clients that send nothing more must not keep others out. When there are too many bytes, the
    largest body is given up.
    """

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._sizes: dict[asyncio.Timeout, int] = {}

    def set_size(self, deadline: asyncio.Timeout, size: int) -> None:
        """Note how much has arrived of the body that has this deadline."""
        self._sizes[deadline] = size
        if sum(self._sizes.values()) > self._max_bytes:
            largest = max(self._sizes, key=lambda one: self._sizes[one])
            del self._sizes[largest]
            largest.reschedule(0)  # is over at once

    def forget(self, deadline: asyncio.Timeout) -> None:
        """Note that the body has arrived, or never will."""
        self._sizes.pop(deadline, None)


def with_route(
    options: Mapping[str, Any], path: str, answer: Callable[[Request], Response]
) -> dict[str, Any]:
    """``options`` of ``launch()`` with a route of that ``path`` more."""
    return with_routes(options, [Route(path, answer)])


def with_routes(options: Mapping[str, Any], more: Iterable[BaseRoute]) -> dict[str, Any]:
    """``options`` of ``launch()`` with these routes more."""
    app_kwargs = options["app_kwargs"]
    return {**options, "app_kwargs": {**app_kwargs, "routes": [*app_kwargs["routes"], *more]}}


async def posted(request: Request, most: int, arriving: Arriving | None = None) -> bytes:
    """Return what was posted, but hardly more of it than ``most`` bytes: longer is what was too long.

    Args:
        request: Posts it.
        most: Bytes.
        arriving: Bounds it together with other bodies.

    Raises:
        TimeoutError: It did not arrive in time, or had to make room.
        ClientDisconnect: Whoever sent it has gone.
    """
    body, arriving = bytearray(), arriving or Arriving(most + 1)
    async with asyncio.timeout(READING_S) as deadline:
        try:
            async for part in request.stream():
                body += part
                if len(body) > most:
                    break
                arriving.set_size(deadline, len(body))
        finally:
            arriving.forget(deadline)
    return bytes(body)


async def checked_beside(body: bytes, check: Callable[[bytes], T]) -> T:
    """Return ``check(body)``, made on a worker thread if the body is large: nobody else waits for it."""
    return check(body) if len(body) <= SMALL_BYTES else await run_in_threadpool(check, body)
