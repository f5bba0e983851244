"""The limits of POST requests, and the refusal of a request with a sentence."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from specdemo.classroom.room import OtherWindowError, UnknownRunError
from specdemo.classroom.rooms import NoClassError
from specdemo.classroom.students import TooOftenError
from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.ui import stage
from specdemo.ui.http.gradio_internals import is_file_obj

T = TypeVar("T")
READING_S = 60.0
"""The number of seconds that a body may take to arrive."""
SMALL_BYTES = 2**15
"""The maximum size of a body that is parsed at once; passing it to another thread would take longer."""
MAX_DEPTH = 32
"""The maximum number of nested lists and objects in a request; the page needs four."""
MAX_VALUES = 15_000
"""The maximum number of JSON values in a request; commas in a prompt (at most 8,000) count as well."""
_CLASS_STATUS = {NoClassError: 404, OtherWindowError: 423, UnknownRunError: 409, TooOftenError: 429}


class RefusedError(UserError):
    """The refusal of a request with an HTTP status."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def status_of(error: UserError) -> int:
    return error.status if isinstance(error, RefusedError) else _CLASS_STATUS.get(type(error), 400)


def json_reply(value: object, status: int = 200) -> Response:
    return Response(dump(value), status, media_type="application/json", headers=stage.REVALIDATE)


async def _refuse(_request: Request, error: Any) -> Response:
    return json_reply({"error": str(error)}, status_of(error))


async def _hang_up(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)


ERROR_HANDLERS: dict[Any, Any] = {UserError: _refuse, ClientDisconnect: _hang_up}
"""Starlette's ``exception_handlers`` for the page's own routes."""


class PartialBodies:
    """The partly received bodies of requests to some routes, with a limit on their total size.

    Their number is not limited, so that clients that stop sending do not keep others out. If the total size
    exceeds the limit, the request with the largest body is refused.
    """

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._sizes: dict[asyncio.Timeout, int] = {}

    def set_size(self, deadline: asyncio.Timeout, size: int) -> None:
        """Set the number of bytes received so far of the body with this deadline."""
        self._sizes[deadline] = size
        if sum(self._sizes.values()) > self._max_bytes:
            largest = max(self._sizes, key=lambda one: self._sizes[one])
            del self._sizes[largest]
            largest.reschedule(0)  # the deadline expires now, so the body is refused

    def forget(self, deadline: asyncio.Timeout) -> None:
        """Forget a body that has arrived completely or was refused."""
        self._sizes.pop(deadline, None)


async def posted(
    request: Request,
    max_bytes: int,
    too_large: str,
    within_s: float | None = None,
    partial: PartialBodies | None = None,
) -> bytes:
    """Return the body of a request; raise ``ClientDisconnect`` if the client closed the connection.

    Args:
        request: The request.
        max_bytes: The maximum size; a larger body is not read to its end, and gets status 413.
        too_large: The sentence that refuses a larger body.
        within_s: The time in which the body must arrive, ``READING_S`` by default; later it gets status 408.
        partial: The bodies that share a limit with this one; if together they exceed it, the largest gets
            status 408.
    """
    body, partial = bytearray(), partial or PartialBodies(max_bytes)
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise RefusedError(413, too_large)
    try:
        async with asyncio.timeout(within_s or READING_S) as deadline:
            try:
                async for part in request.stream():
                    body += part
                    if len(body) > max_bytes:
                        raise RefusedError(413, too_large)
                    partial.set_size(deadline, len(body))
            finally:
                partial.forget(deadline)
    except TimeoutError:
        raise RefusedError(408, "The request took too long to arrive; send the request again.") from None
    return bytes(body)


async def checked_beside(body: bytes, check: Callable[[bytes], T]) -> T:
    """Return ``check(body)``; a large body is checked on a worker thread, so that no other request waits."""
    return check(body) if len(body) <= SMALL_BYTES else await run_in_threadpool(check, body)


def object_in(body: bytes, max_values: int = MAX_VALUES) -> dict[str, Any]:
    """Return the JSON object in ``body``, without files, infinite numbers and deep nesting."""
    require_few_values(body, max_values)
    try:
        sent = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise UserError("The request is not JSON in UTF-8; send a JSON object.") from None
    if not isinstance(sent, dict):
        raise UserError("The request must be a JSON object.")
    _check_values(sent)
    return sent


def require_few_values(body: bytes, max_values: int) -> None:
    """Raise ``UserError`` if a JSON body has more than ``max_values`` values, estimated before parsing.

    A million empty lists take only three megabytes, but parsing them would stop all of Python for a second.
    """
    if sum(map(body.count, (b"[", b"{", b","))) > max_values:
        raise UserError(f"The request contains too many values; send at most {max_values:,} values.")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_values(sent: dict[str, Any]) -> None:
    """Refuse files, which Gradio would fetch before calling a function, infinite numbers and deep nesting."""
    level: list[Any] = [sent]
    for _ in range(MAX_DEPTH):
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            raise UserError("The request contains a number that is too large; send a smaller number.")
        # This test of Gradio covers its newer one, which would fail if "meta" is not an object.
        if any(map(is_file_obj, level)):
            raise UserError(
                "This page does not accept file uploads or file paths; leave files out of the request."
            )
        holders = [value for value in level if isinstance(value, list | dict)]
        level = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
    if level:
        raise UserError(f"The request is nested too deeply; use at most {MAX_DEPTH} levels.")
