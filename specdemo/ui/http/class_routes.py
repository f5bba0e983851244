"""The routes of classes: the teacher's page posts what it shows; students' pages read it, and post answers.

A student takes no Gradio session, no queue position and no thread of the server.
"""

import csv
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from string import Template
from typing import Any
from urllib.parse import urlsplit

import segno
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from specdemo.charts.palette import css_variables
from specdemo.classroom.class_jobs import QUIZ, ClassRequest, Submit
from specdemo.classroom.room import Room
from specdemo.classroom.rooms import Rooms
from specdemo.records.events import Event
from specdemo.records.limits import UserError, show
from specdemo.records.trace import dump
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Stop
from specdemo.service.service import RunService
from specdemo.ui import stage
from specdemo.ui.component import DRESS, inline_json, static_text
from specdemo.ui.component import PREFIX as STATIC
from specdemo.ui.http.hosts import LOOPBACK
from specdemo.ui.http.posts import checked_beside, json_reply, object_in, posted

PREFIX = "specdemo-class"
SHORT_PREFIX = "class"
"""The path that students type; the other one still works."""
SECRET = "x-class-secret"
MAX_TEACHER_BYTES = 1_000_000
"""The maximum size of one post of the teacher's page, which sends a long run in several posts."""
MAX_TEACHER_VALUES = 60_000
"""The maximum number of JSON values in one post; the largest part of a run has half as many."""
MAX_STUDENT_BYTES = 4_000
MAX_ADDRESS_CHARS = 300
NO_ADDRESS = "address must be the page's address, as the browser shows it."
THIS_COMPUTER = LOOPBACK | {"0.0.0.0", "::"}
"""The names in a page's address that lead to the computer on which it is opened."""
PART = 2**16
"""The maximum number of bytes that are passed to a connection at once."""
SHEETS = (*stage.STAGE_SHEETS, "learn/learn", "class/class", "class/class-student")
HERE = b'data: {"type":"here"}\n\n'
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def class_routes(
    rooms: Rooms, addresses: Callable[[], list[str]] = list, has_live_copy: bool = False
) -> list[Route]:
    """Return the routes of ``rooms``; ``addresses`` returns the live page's addresses in the network."""
    at = f"/{PREFIX}/{{code}}"
    endpoints: tuple[tuple[str, str, Callable[..., Any]], ...] = (
        ("POST", f"/{PREFIX}", _open),
        ("POST", f"{at}/join", _join),
        ("GET", f"{at}/events", _events),
        ("GET", f"{at}/news", _news),
        ("POST", f"{at}/answer", _answer),
        ("GET", f"{at}/own", _own),
        ("POST", f"{at}/draft", _draft),
        ("POST", f"{at}/teach", _teach),
        ("GET", f"{at}/game", _game),
        ("GET", f"{at}/summary", _summary),
        ("POST", f"{at}/end", _end),
    )
    routes = [Route(path, partial(answer, rooms), methods=[method]) for method, path, answer in endpoints]
    short = f"/{SHORT_PREFIX}"
    reach = Route(f"/{PREFIX}/addresses", partial(_addresses, addresses))
    page = partial(_page, has_live_copy)
    pages = [Route(path, page) for path in (f"/{PREFIX}", at, short, f"{short}/{{code}}")]
    return [*routes, reach, *pages, *(Route(f"{one.path}/", _to_page) for one in pages)]


def submit_with(service: RunService, address: str, code: str) -> Submit:
    """Return a function that does a class's jobs, which count as one visitor at the teacher's address."""
    visitor = Visitor(address, f"class {code}")

    async def submit(asked: ClassRequest, stop: Stop) -> AsyncGenerator[Event, None]:
        events = service.events(JobKind(asked.kind), asked.settings, stop, asked.pair, visitor)
        try:
            async for event in iterate_in_threadpool(events):
                yield event
                if asked.kind == QUIZ and event["type"] == "verdict" and event["option"] is None:
                    yield recorded_answer(event["question"])
        finally:
            with suppress(ValueError):  # the program ends while a thread waits for the next event
                await run_in_threadpool(events.close)

    return submit


def recorded_answer(number: int) -> Event:
    """Return the ``option``, ``why`` and ``place`` of the built-in models' answer to a quiz question."""
    events = map(json.loads, static_text("learn/quiz-answers.ndjson").splitlines())
    merged = {key: value for event in events if event["question"] == number for key, value in event.items()}
    return {**merged, "type": "recorded"}


@cache
def student_page(root: str, has_live_copy: bool) -> str:
    """Return the students' page; ``root`` is the relative path from it to the live page, such as ``../``."""
    files = f"{root}{STATIC}"
    return Template(static_text("class/class-student.html")).substitute(
        dress=DRESS,
        palette=css_variables(),
        sheets="\n".join(f'<link rel="stylesheet" href="{files}/{name}.css">' for name in SHEETS),
        files=files,
        root=root,
        stage=static_text("stage/stage.html"),
        lessons=static_text("learn/lessons.html"),
        settings=inline_json(stage.settings(has_live_copy)),
    )


def _addresses(addresses: Callable[[], list[str]], request: Request) -> Response:
    """Return the addresses that students can open, only to a teacher on this computer."""
    is_here = _address(request) in LOOPBACK and request.url.hostname in THIS_COMPUTER
    return json_reply({"addresses": addresses() if is_here else []})


async def _open(rooms: Rooms, request: Request) -> Response:
    base = _base(await _content(request, MAX_STUDENT_BYTES))
    room = rooms.open(_address(request))
    link = f"{base}{SHORT_PREFIX}/{room.code}"
    # segno picks the highest error correction that fits the size, so that the last row can read the code.
    qr = segno.make(link, micro=False).svg_data_uri(border=2, scale=8)
    return json_reply({"code": room.code, "secret": room.secret, "link": link, "qr": qr})


async def _join(rooms: Rooms, request: Request) -> Response:
    """Add a student, unless the posted token shows that this student has joined before."""
    room, student, _ = await _posted_by_student(rooms, request)
    if not room.students.knows(student):
        student = rooms.join(room, _address(request))
    return json_reply({"student": student, **room.known_of(student)})


async def _answer(rooms: Rooms, request: Request) -> Response:
    room, student, content = await _posted_by_student(rooms, request)
    room.answer(student, content)
    return json_reply({})


async def _draft(rooms: Rooms, request: Request) -> Response:
    room, student, content = await _posted_by_student(rooms, request)
    room.draft(student, content)
    return json_reply({})


async def _own(rooms: Rooms, request: Request) -> Response:
    room, student = _read_by_student(rooms, request)
    game = room.games.current
    return json_reply(game.verdict_of(student) if game else None)


async def _teach(rooms: Rooms, request: Request) -> Response:
    room = _of_teacher(rooms, request)
    return json_reply(room.take(await _content(request, MAX_TEACHER_BYTES)))


async def _game(rooms: Rooms, request: Request) -> Response:
    game = _of_teacher(rooms, request).games.current
    return json_reply(game.for_students() if game else None)


async def _summary(rooms: Rooms, request: Request) -> Response:
    summary = _of_teacher(rooms, request).summary()
    if request.query_params.get("as") != "csv":
        return json_reply(summary)
    return Response(_table(summary), media_type="text/csv; charset=utf-8", headers=stage.REVALIDATE)


async def _end(rooms: Rooms, request: Request) -> Response:
    rooms.end(_of_teacher(rooms, request))
    return json_reply({})


async def _events(rooms: Rooms, request: Request) -> Response:
    room, student = _read_by_student(rooms, request)
    after = _after(request)

    async def lines() -> AsyncIterator[bytes]:
        yield HERE  # The page waits for this event to learn that streams get through.
        try:
            async for new in room.stream(student, after):
                for part in _parts(b"".join(frame.event for frame in new) or HERE):
                    yield part
        except UserError as error:
            yield f"data: {dump({'type': 'refused', 'error': str(error)})}\n\n".encode()

    return StreamingResponse(lines(), media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _news(rooms: Rooms, request: Request) -> Response:
    room, student = _read_by_student(rooms, request)
    new = await room.poll(student, _after(request))

    async def lines() -> AsyncIterator[bytes]:
        for frame in new:
            for part in _parts(frame.data):
                yield part
            yield b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=_STREAM_HEADERS)


def _parts(data: bytes) -> Iterator[bytes]:
    """Split data into small parts, so that little more than one waits in memory for a student who stops."""
    return (data[start : start + PART] for start in range(0, len(data), PART))


def _page(has_live_copy: bool, request: Request) -> Response:
    root = "../" if "code" in request.path_params else "./"
    return HTMLResponse(student_page(root, has_live_copy), headers=stage.REVALIDATE)


def _to_page(request: Request) -> Response:
    """Lead an address that was typed with a final slash to the page, whose links are relative."""
    return RedirectResponse(f"../{request.url.path.rstrip('/').rpartition('/')[2]}")


def _table(summary: Mapping[str, Any]) -> str:
    """Return the questions and games of a summary as CSV, with one line per possible answer and per game."""
    lines = io.StringIO()
    rows = csv.writer(lines)
    rows.writerow(["question", "text", "answer", "students", "right", "measured"])
    for number, question in enumerate(summary["questions"], 1):
        is_choice = question["kind"] == "choice"
        measured = _cell(question["figures"]) if is_choice else question["right"]
        for index, bar in enumerate(question["bars"]):
            right = question["right"] == index if is_choice and not question["recorded"] else ""
            texts = _cell(question["text"]), _cell(bar["label"])
            rows.writerow([number, *texts, bar["count"], right, measured])
    for number, game in enumerate(summary["games"], 1):
        texts = _cell(game["text"]), _cell(game["sentence"])
        rows.writerow([f"game {number}", *texts, game["count"], "", game["alpha"]])
    return lines.getvalue()


def _cell(text: str) -> str:
    """Return ``text`` in a form that no spreadsheet runs as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _find(rooms: Rooms, request: Request, token: str) -> Room:
    return rooms.find(request.path_params["code"], _address(request), token)


def _of_teacher(rooms: Rooms, request: Request) -> Room:
    secret = request.headers.get(SECRET, "")
    room = _find(rooms, request, secret)
    room.require_teacher(secret)
    return room


def _read_by_student(rooms: Rooms, request: Request) -> tuple[Room, str]:
    student = request.query_params.get("student", "")
    room = _find(rooms, request, student)
    room.students.require_known(student)
    return room, student


async def _posted_by_student(rooms: Rooms, request: Request) -> tuple[Room, str, dict[str, Any]]:
    content = await _content(request, MAX_STUDENT_BYTES)
    token = content.pop("student", "")
    student = token if isinstance(token, str) else ""
    return _find(rooms, request, student), student, content


async def _content(request: Request, max_bytes: int) -> dict[str, Any]:
    too_large = f"The request is too large; at most {max_bytes:,} bytes are accepted."
    body = await posted(request, max_bytes, too_large)
    return await checked_beside(body, lambda content: object_in(content, MAX_TEACHER_VALUES))


def _after(request: Request) -> int:
    text = request.query_params.get("after", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise UserError(f"The parameter after must be a message number, such as 0, got {show(text)}.")
    return int(text)


def _base(raw: Mapping[str, Any]) -> str:
    """Return the address of the live page, as posted by the teacher's browser, with a slash at the end."""
    address = raw.get("address")
    if not isinstance(address, str) or len(address) > MAX_ADDRESS_CHARS:
        raise UserError(NO_ADDRESS)
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not address.isprintable():
        raise UserError(NO_ADDRESS)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/"


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
