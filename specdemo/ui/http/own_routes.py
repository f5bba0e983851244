"""The page's own routes next to Gradio's: health, recorded runs, trace files, the lab's quick answers.

They use no model and no queue, and store nothing about visitors.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from specdemo.doctor.chart import round_chart
from specdemo.doctor.finding import explain
from specdemo.doctor.reading import MAX_PASTED, reading_from
from specdemo.engine.race import replay_lines
from specdemo.lab.answers import run_answer
from specdemo.records import recordings, trace_file
from specdemo.records.limits import UserError
from specdemo.records.trace import Run
from specdemo.service.service import Service, State
from specdemo.ui import stage
from specdemo.ui.http.gradio_internals import stopped_counters
from specdemo.ui.http.offline import player_page
from specdemo.ui.http.posts import (
    PartialBodies,
    RefusedError,
    json_reply,
    object_in,
    posted,
    require_few_values,
)

HEALTH, TRACES, LAB, LIVE_COPY = "health", "specdemo-traces", "specdemo-lab", "live"
MAX_CONVERSIONS = 2
"""The maximum number of trace files converted at once; each takes a core and some hundred megabytes."""
MAX_UPLOADS = 8
"""The maximum number of trace files that have arrived completely and have no reply yet."""
MAX_VALUES = 1_000_000
"""The maximum number of JSON values in a trace file; the longest run has two thirds of it."""
HEALTH_SENTENCES = {
    State.LOADING: "The models are loading; try again in a minute.",
    State.FAILED: "The models could not be loaded; the next request tries again.",
    State.LOST: "The device was lost; the server restarts in a moment.",
    State.CLOSING: "The server is shutting down.",
}


_slots = asyncio.Semaphore(MAX_CONVERSIONS)
_uploads = asyncio.Semaphore(MAX_UPLOADS)
_partial_bodies = PartialBodies(MAX_UPLOADS * trace_file.MAX_BYTES)


def own_routes() -> list[Route]:
    """Return the routes; they must come before those of the stage, one of which matches the player's path."""
    return [
        *_script_routes(),
        Route(f"/{TRACES}", _convert, methods=["POST"], middleware=stage.COMPRESSED),
        Route(f"/{TRACES}/index.json", _listed),
        Route(f"/{TRACES}/{{name}}.ndjson", _recording, middleware=stage.COMPRESSED),
        Route(f"/{stage.PREFIX}/player.html", _player),
        Route(f"/{LAB}/run", _run, methods=["POST"], middleware=stage.COMPRESSED),
        Route(f"/{LAB}/run/{{name}}.json", _recorded_run),
        Route(f"/{LAB}/explain", _explain, methods=["POST"]),
    ]


def _script_routes() -> Iterator[Route]:
    if script := stopped_counters():
        name, text = script

        # Each request needs a response of its own, because middleware adds headers to it.
        def without_counters(_request: Request) -> Response:
            return Response(text, media_type="text/javascript", headers=stage.REVALIDATE)

        yield Route(f"/assets/{name}", without_counters)


def health_route(service: Service) -> Route:
    """Return the route that replies with status 200 if a run could begin now, else with 503."""

    def health(_request: Request) -> Response:
        state = service.state
        if state is State.READY:
            return json_reply({"status": str(state)})
        return json_reply({"error": HEALTH_SENTENCES[state]}, 503)

    return Route(f"/{HEALTH}", health)


async def _of_posted_run(request: Request, answer: Callable[[Run], Response]) -> Response:
    """Load the run in a posted trace file and return ``answer(run)``, both on a worker thread."""
    body = await posted(request, trace_file.MAX_BYTES, trace_file.TOO_LARGE, partial=_partial_bodies)
    if _uploads.locked():
        raise RefusedError(503, "Too many files are being sent; please try again in a minute.")

    def load_and_answer() -> Response:
        require_few_values(body, MAX_VALUES)
        return answer(trace_file.load(body))

    async with _uploads, _slots:
        return await run_in_threadpool(load_and_answer)


def _listed(_request: Request) -> Response:
    return json_reply([asdict(recording) for recording in recordings.listed()])


def _recording(request: Request) -> Response:
    return _events(_recorded_events(_recording_name(request)))


def _recorded_run(request: Request) -> Response:
    return json_reply(_recorded_answer(_recording_name(request)))


def _recording_name(request: Request) -> str:
    name = request.path_params["name"]
    try:
        recordings.load(name)
    except UserError as error:
        raise RefusedError(404, str(error)) from error
    return name


@cache
def _recorded_events(name: str) -> bytes:
    return replay_lines(recordings.load(name)).encode()


@cache
def _recorded_answer(name: str) -> dict[str, Any]:
    return run_answer(recordings.load(name))


async def _convert(request: Request) -> Response:
    return await _of_posted_run(request, lambda run: _events(replay_lines(run).encode()))


def _player(_request: Request) -> Response:
    return HTMLResponse(_player_page(), headers=stage.REVALIDATE)


@cache
def _player_page() -> bytes:
    return player_page().encode()  # 5 MB, most of it Plotly


def _events(lines: bytes) -> Response:
    return Response(lines, media_type="application/x-ndjson", headers=stage.REVALIDATE)


async def _run(request: Request) -> Response:
    return await _of_posted_run(request, lambda run: json_reply(run_answer(run)))


async def _explain(request: Request) -> Response:
    too_large = f"The text is too large; paste at most {MAX_PASTED:,} characters."
    sent = object_in(await posted(request, 4 * MAX_PASTED, too_large, partial=_partial_bodies), MAX_PASTED)
    found = await run_in_threadpool(lambda: explain(reading_from(sent)))
    return json_reply(asdict(found) | {"chart": round_chart(found)})
