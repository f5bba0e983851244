"""The page's own routes next to Gradio's: health, recorded runs, the lab's quick answers, and what is posted.

They need no model and no queue, and keep nothing of any visitor.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from specdemo.lab.answers import learned_answer, parse_theory, run_answer, theory_answer
from specdemo.records import recordings, trace_file
from specdemo.records.events import replay_lines
from specdemo.records.limits import UserError
from specdemo.records.trace import Run, dump
from specdemo.service.hosting import Learner
from specdemo.service.service import Service, State
from specdemo.ui import stage
from specdemo.ui.http.gradio_requests import require_few_values
from specdemo.ui.http.offline import player_page

T = TypeVar("T")
HEALTH, TRACES, LAB = "health", "specdemo-traces", "specdemo-lab"
"""First parts of the addresses."""
READING_S = 60.0
"""Seconds that a body may take to arrive."""
SMALL_BYTES = 2**15
"""The size of a body that is parsed in less time than another thread takes to begin."""
AT_ONCE = 2
"""Trace files unfolded at the same time; each takes a core and some hundred megabytes at worst."""
MAX_UPLOADS = 8
"""Trace files held at the same time, from their last byte to the reply."""
MAX_VALUES = 1_000_000
"""JSON values of a trace file; the longest run has two thirds of it."""
HEALTH_SENTENCES = {
    State.LOADING: "The models are being loaded.",
    State.FAILED: "The models could not be loaded; the next request tries again.",
    State.LOST: "The device was lost; the server is about to start again.",
    State.CLOSING: "The server is about to end.",
}


class Arriving:
    """The bodies that are on their way to some routes, limited in bytes all together.

    Not in number: clients that send nothing more must not keep others out. If there are too many bytes, the
    largest body is given up.
    """

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._sizes: dict[asyncio.Timeout, int] = {}

    def set_size(self, deadline: asyncio.Timeout, size: int) -> None:
        """Set the bytes that have arrived of the body with this deadline."""
        self._sizes[deadline] = size
        if sum(self._sizes.values()) > self._max_bytes:
            largest = max(self._sizes, key=lambda one: self._sizes[one])
            del self._sizes[largest]
            largest.reschedule(0)  # is over at once

    def forget(self, deadline: asyncio.Timeout) -> None:
        """Forget a body that has arrived, or never will."""
        self._sizes.pop(deadline, None)


_slots = asyncio.Semaphore(AT_ONCE)
_uploads = asyncio.Semaphore(MAX_UPLOADS)
_arriving = Arriving(MAX_UPLOADS * trace_file.MAX_BYTES)


def routes() -> list[BaseRoute]:
    """Return the routes of recorded runs and of the lab; mount them before the stage's own."""
    return [
        Route(f"/{TRACES}", _listed),
        Route(f"/{TRACES}", _unfold, methods=["POST"]),
        Route(f"/{TRACES}/{{name}}", _recording),
        Route(f"/{stage.PREFIX}/player.html", _player),
        Route(f"/{LAB}/theory", _theory),
        Route(f"/{LAB}/run", _run, methods=["POST"]),
    ]


def with_routes(options: Mapping[str, Any], more: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return ``options`` of ``launch()`` with these routes added."""
    app_kwargs = options["app_kwargs"]
    return {**options, "app_kwargs": {**app_kwargs, "routes": [*app_kwargs["routes"], *more]}}


def with_health(options: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """Return ``options`` of ``launch()`` with a route that replies 200 if a run could begin now, else 503."""

    def health(_request: Request) -> Response:
        state = service.state
        if state is State.READY:
            return json_reply({"status": str(state)})
        return refusal(503, UserError(HEALTH_SENTENCES[state]))

    return with_routes(options, [Route(f"/{HEALTH}", health)])


def with_learned(options: Mapping[str, Any], learner: Learner) -> dict[str, Any]:
    """Return ``options`` of ``launch()`` with a route to what ``learner`` has learned."""

    def learned(_request: Request) -> Response:
        return json_reply(learned_answer(learner.visits, learner.contexts))

    return with_routes(options, [Route(f"/{LAB}/learned", learned)])


def json_reply(value: object, status: int = 200) -> Response:
    """Return a reply with ``value`` as JSON."""
    return Response(dump(value), status, media_type="application/json", headers=stage.REVALIDATE)


def refusal(status: int, error: UserError) -> Response:
    """Return a reply with the sentence as ``error``, as the page's scripts expect it."""
    return json_reply({"error": str(error)}, status)


async def posted(request: Request, most: int, arriving: Arriving | None = None) -> bytes:
    """Return what was posted, or a little more than ``most`` bytes of it.

    Args:
        request: The request.
        most: Bytes.
        arriving: The other bodies that it is limited with.

    Raises:
        TimeoutError: It did not arrive in time, or had to make room.
        ClientDisconnect: The client has gone.
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
    """Return ``check(body)``, called on a worker thread if the body is large: nobody else waits for it."""
    return check(body) if len(body) <= SMALL_BYTES else await run_in_threadpool(check, body)


async def of_posted_run(request: Request, answer: Callable[[Run], Response]) -> Response:
    """Answer a posted trace file.

    Args:
        request: With the file as its body.
        answer: Makes the reply from the run, on a worker thread.

    Returns:
        That reply, or one with status 400, 408, 413 or 503 and the sentence that refuses the file.
    """
    if int(request.headers.get("content-length", 0)) > trace_file.MAX_BYTES:
        return refusal(413, UserError(trace_file.TOO_LARGE))
    try:
        body = await posted(request, trace_file.MAX_BYTES, _arriving)
    except ClientDisconnect:
        return Response(status_code=400)
    except TimeoutError:
        return refusal(408, UserError("The file took too long to arrive; send it again."))
    if _uploads.locked():
        return refusal(503, UserError("Too many files are being sent; please try again in a minute."))
    async with _uploads:
        try:
            async with _slots:
                return await run_in_threadpool(lambda: answer(_loaded(body)))
        except UserError as error:
            return refusal(413 if len(body) > trace_file.MAX_BYTES else 400, error)


def _loaded(body: bytes) -> Run:
    if len(body) <= trace_file.MAX_BYTES:
        require_few_values(body, MAX_VALUES)
    return trace_file.load(body)


def _listed(_request: Request) -> Response:
    return json_reply([asdict(recording) for recording in recordings.listed()])


def _recording(request: Request) -> Response:
    try:
        return _events(_recorded(request.path_params["name"]))
    except UserError as error:
        return refusal(404, error)


@cache
def _recorded(name: str) -> bytes:
    return replay_lines(recordings.load(name)).encode()


async def _unfold(request: Request) -> Response:
    return await of_posted_run(request, lambda run: _events(replay_lines(run).encode()))


def _player(_request: Request) -> Response:
    return HTMLResponse(player_page(), headers=stage.REVALIDATE)


def _events(lines: bytes) -> Response:
    return Response(lines, media_type="application/x-ndjson", headers=stage.REVALIDATE)


def _theory(request: Request) -> Response:
    try:
        return json_reply(theory_answer(parse_theory(_values(request.query_params))))
    except UserError as error:
        return refusal(400, error)


async def _run(request: Request) -> Response:
    return await of_posted_run(request, lambda run: json_reply(run_answer(run)))


def _values(query: QueryParams) -> dict[str, Any]:
    """Return the parameters, numbers as numbers."""
    values: dict[str, Any] = {}
    for key, text in query.items():
        try:
            values[key] = float(text)
        except ValueError:
            values[key] = text
    return values
