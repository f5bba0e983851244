"""Recorded runs over HTTP: the shipped ones, visitors' own files, and the page that plays them offline.

A run is answered as the NDJSON that its decoding streamed. Keeps nothing of any visitor.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import cache

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from specdemo.records import recordings, trace_file
from specdemo.records.events import replay_lines
from specdemo.records.limits import UserError
from specdemo.records.trace import Run, dump
from specdemo.ui import stage
from specdemo.ui.http.gradio_requests import require_few_values
from specdemo.ui.http.offline import player_page
from specdemo.ui.http.own_routes import Arriving, posted

PREFIX = "specdemo-traces"
AT_ONCE = 2
"""Files unfolded at the same time; each takes a core and some hundred megabytes at worst."""
MOST_UPLOADS = 8
"""Files held at the same time, from their last byte to the reply; more are told to come back."""
MAX_VALUES = 1_000_000
"""JSON values of a file; the longest run has two thirds of it."""
_slots = asyncio.Semaphore(AT_ONCE)
_uploads = asyncio.Semaphore(MOST_UPLOADS)
_arriving = Arriving(MOST_UPLOADS * trace_file.MAX_BYTES)


def routes() -> list[BaseRoute]:
    """Where the browser finds recorded runs; to be mounted before the stage's own routes."""
    return [
        Route(f"/{PREFIX}", _listed),
        Route(f"/{PREFIX}", _unfold, methods=["POST"]),
        Route(f"/{PREFIX}/{{name}}", _recording),
        Route(f"/{stage.PREFIX}/player.html", _player),
    ]


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


async def of_posted_run(request: Request, answer: Callable[[Run], Response]) -> Response:
    """Answer a posted trace file.

    Args:
        request: With the file as its body.
        answer: Makes the reply from the run; called on a worker thread.

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


def _player(_request: Request) -> Response:
    return HTMLResponse(player_page(), headers=stage.REVALIDATE)


def _events(lines: bytes) -> Response:
    return Response(lines, media_type="application/x-ndjson", headers=stage.REVALIDATE)


def json_reply(value: object, status: int = 200) -> Response:
    """``value`` as JSON."""
    return Response(dump(value), status, media_type="application/json", headers=stage.REVALIDATE)


def refusal(status: int, error: UserError) -> Response:
    """A reply with the sentence as ``error``, where the page's scripts look for it."""
    return json_reply({"error": str(error)}, status)
