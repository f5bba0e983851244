"""Routes of our own beside Gradio's, and what is posted to them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

READING_S = 60.0


def with_route(
    options: Mapping[str, Any], path: str, answer: Callable[[Request], Response]
) -> dict[str, Any]:
    """``options`` of ``launch()`` with a route of that ``path`` more."""
    return with_routes(options, [Route(path, answer)])


def with_routes(options: Mapping[str, Any], more: Iterable[BaseRoute]) -> dict[str, Any]:
    """``options`` of ``launch()`` with these routes more."""
    app_kwargs = options["app_kwargs"]
    return {**options, "app_kwargs": {**app_kwargs, "routes": [*app_kwargs["routes"], *more]}}


async def posted(request: Request, most: int) -> bytes:
    """What was sent, but hardly more of it than ``most`` bytes: longer is what was too long.

    Raises:
        TimeoutError: It did not arrive in time.
        ClientDisconnect: Whoever sent it has gone.
    """
    body = bytearray()
    async with asyncio.timeout(READING_S):
        async for part in request.stream():
            body += part
            if len(body) > most:
                break
    return bytes(body)
