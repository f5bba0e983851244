"""Routes of classes: the teacher's page posts what it shows, students' pages read it, answer and draft.

Students need no Gradio session, no queue position and no thread of the server.
"""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cache
from string import Template
from typing import Any
from urllib.parse import urlsplit

import segno
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from specdemo.charts.palette import css_variables
from specdemo.classroom.games import Judge
from specdemo.classroom.room import OtherWindowError, Room, UnknownRunError
from specdemo.classroom.rooms import NoClassError, Rooms
from specdemo.classroom.students import TooOftenError
from specdemo.records.limits import UserError, show
from specdemo.records.trace import dump
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Stop
from specdemo.service.service import EventSource
from specdemo.service.shares import Visitor
from specdemo.ui import stage
from specdemo.ui.component import DRESS, inline_json, static_text
from specdemo.ui.component import PREFIX as STATIC
from specdemo.ui.http.gradio_requests import object_in
from specdemo.ui.http.own_routes import checked_beside, json_reply, posted, refusal, with_routes

PREFIX = "specdemo-class"
SECRET = "x-class-secret"
MAX_TEACHER_BYTES = 1_000_000
"""Size of one post of the teacher's page, which sends a long run in parts."""
MAX_TEACHER_VALUES = 60_000
"""JSON values in one post; a part of a run has half as many."""
MAX_STUDENT_BYTES = 4_000
MAX_ADDRESS_CHARS = 300
NO_ADDRESS = "address must be the page's address, as the browser shows it."
PART = 2**16
"""Bytes that are handed to a connection at once."""
SHEETS = (*stage.STAGE_SHEETS, "learn", "class", "class-student")
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Answer = Callable[[Request, Room], Awaitable[Response]]
StudentAnswer = Callable[[Request, Room, str, dict[str, Any]], Awaitable[Response]]
"""Takes the student's token and the rest of what the student posted."""


class TooLargeError(UserError):
    """A post has too many bytes."""


_STATUS = {
    TooLargeError: 413,
    NoClassError: 404,
    TooOftenError: 429,
    UnknownRunError: 409,
    OtherWindowError: 409,
}


def with_class(options: Mapping[str, Any], rooms: Rooms) -> dict[str, Any]:
    """Return ``options`` of ``launch()`` with the routes to these classes."""
    return with_routes(options, ClassRoutes(rooms).routes())


def judge_with(service: EventSource, address: str, code: str) -> Judge:
    """Return a judge for the games of a class, which counts as one visitor from its teacher's address."""
    visitor = Visitor(address, f"class {code}")

    def results(request: Mapping[str, Any], stop: Stop) -> Mapping[str, Any]:
        *_, last = [{}, *service.events(JobKind.CLASS, request, stop, None, visitor)]
        if last.get("type") != "class-judged":
            raise UserError("The drafts were not judged; start another game.")
        return last

    return lambda request, stop: run_in_threadpool(results, request, stop)


@cache
def student_page(root: str) -> str:
    """Return the students' page: the stage without Gradio, the lessons to read, and what the class is asked.

    Args:
        root: The relative path to the live page, such as ``../``: a proxy may serve both under any path.
    """
    files = f"{root}{STATIC}"
    return Template(static_text("class-student.html")).substitute(
        dress=DRESS,
        palette=css_variables(),
        sheets="\n".join(f'<link rel="stylesheet" href="{files}/{name}.css">' for name in SHEETS),
        files=files,
        root=root,
        stage=static_text("stage.html"),
        lessons=static_text("lessons.html"),
        settings=inline_json(stage.settings()),
    )


class ClassRoutes:
    """The routes to one server's classes."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    def routes(self) -> list[BaseRoute]:
        """Return all routes; paths with a code are about that class."""
        at = f"/{PREFIX}/{{code}}"
        return [
            Route(f"/{PREFIX}", self._open, methods=["POST"]),
            Route(f"/{PREFIX}", _page),
            Route(at, _page),
            Route(f"{at}/join", self._of_student(self._join), methods=["POST"]),
            Route(f"{at}/events", self._of_class(_events)),
            Route(f"{at}/news", self._of_class(_news)),
            Route(f"{at}/answer", self._of_student(_answer), methods=["POST"]),
            Route(f"{at}/own", self._of_class(_own)),
            Route(f"{at}/draft", self._of_student(_draft), methods=["POST"]),
            Route(f"{at}/teach", self._of_class(_teach), methods=["POST"]),
            Route(f"{at}/game", self._of_class(_game)),
            Route(f"{at}/summary", self._of_class(_summary)),
            Route(f"{at}/end", self._of_class(self._end), methods=["POST"]),
        ]

    def _of_class(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint for the teacher's page, or for a student's that reads."""

        async def endpoint(request: Request) -> Response:
            token = request.headers.get(SECRET) or request.query_params.get("student", "")
            return await _refusing(lambda: answer(request, self._find(request, token)))

        return endpoint

    def _of_student(self, answer: StudentAnswer) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint for a student's post, which has the token in its body."""

        async def taken(request: Request) -> Response:
            content = await _content(request, MAX_STUDENT_BYTES)
            student = content.pop("student", "")
            token = student if isinstance(student, str) else ""
            return await answer(request, self._find(request, token), token, content)

        async def endpoint(request: Request) -> Response:
            return await _refusing(lambda: taken(request))

        return endpoint

    def _find(self, request: Request, token: str) -> Room:
        return self._rooms.find(request.path_params["code"], _address(request), token)

    async def _open(self, request: Request) -> Response:
        async def opened() -> Response:
            base = _base(await _content(request, MAX_STUDENT_BYTES))
            room = self._rooms.open(_address(request))
            link = f"{base}{PREFIX}/{room.code}"
            # segno picks the highest error correction that fits the size: the last row has to read it.
            qr = segno.make(link, micro=False).svg_data_uri(border=2, scale=8)
            return json_reply({"code": room.code, "secret": room.secret, "link": link, "qr": qr})

        return await _refusing(opened)

    async def _join(self, request: Request, room: Room, student: str, _content: dict[str, Any]) -> Response:
        """Add a student, unless the token shows that they joined before."""
        if not room.students.knows(student):
            student = self._rooms.join(room, _address(request))
        return json_reply({"student": student, **room.known_of(student)})

    async def _end(self, request: Request, room: Room) -> Response:
        _require_teacher(request, room)
        self._rooms.end(room)
        return json_reply({})


async def _teach(request: Request, room: Room) -> Response:
    _require_teacher(request, room)
    return json_reply(room.take(await _content(request, MAX_TEACHER_BYTES)))


async def _answer(_request: Request, room: Room, student: str, content: dict[str, Any]) -> Response:
    room.answer(student, content)
    return json_reply({})


async def _draft(_request: Request, room: Room, student: str, content: dict[str, Any]) -> Response:
    room.draft(student, content)
    return json_reply({})


async def _own(request: Request, room: Room) -> Response:
    """Reply with the verdict on a student's own draft."""
    token, game = _student(request, room), room.games.current
    return json_reply(game.verdict_of(token) if game else None)


async def _game(request: Request, room: Room) -> Response:
    """Reply to the teacher's page with what everybody sees of the current game."""
    _require_teacher(request, room)
    game = room.games.current
    return json_reply(game.for_students() if game else None)


async def _summary(request: Request, room: Room) -> Response:
    _require_teacher(request, room)
    summary = room.summary()
    if request.query_params.get("as") != "csv":
        return json_reply(summary)
    return Response(_table(summary), media_type="text/csv; charset=utf-8", headers=stage.REVALIDATE)


async def _events(request: Request, room: Room) -> Response:
    """Reply with server-sent events: the messages after the last one that the page has seen."""
    token, after = _student(request, room), _after(request)

    async def lines() -> AsyncIterator[bytes]:
        yield b'data: {"type":"here"}\n\n'  # The page must know at once that streams get through.
        try:
            async for new in room.stream(token, after):
                for part in _parts(b"".join(frame.event for frame in new) or b": here\n\n"):
                    yield part
        except UserError as error:
            yield f"data: {dump({'type': 'refused', 'error': str(error)})}\n\n".encode()

    return StreamingResponse(lines(), media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _news(request: Request, room: Room) -> Response:
    """Reply with the messages after the last one that the page has seen, as NDJSON."""
    new = await room.poll(_student(request, room), _after(request))

    async def lines() -> AsyncIterator[bytes]:
        for frame in new:
            for part in _parts(frame.data):
                yield part
            yield b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=_STREAM_HEADERS)


def _parts(data: bytes) -> Iterator[bytes]:
    """Yield small parts, so that a connection that nobody reads holds hardly more than one."""
    return (data[start : start + PART] for start in range(0, len(data), PART))


def _page(request: Request) -> Response:
    root = "../" if "code" in request.path_params else "./"
    return HTMLResponse(student_page(root), headers=stage.REVALIDATE)


def _table(summary: Mapping[str, Any]) -> str:
    """Return the questions of a lesson summary as CSV, one line per answer."""
    lines = io.StringIO()
    rows = csv.writer(lines)
    rows.writerow(["question", "text", "answer", "students", "right"])
    for question in summary["questions"]:
        for index, bar in enumerate(question["bars"]):
            right = question["kind"] == "choice" and question["right"] == index
            text, label = _cell(question["text"]), _cell(bar["label"])
            rows.writerow([question["number"], text, label, bar["count"], right])
    return lines.getvalue()


def _cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


async def _refusing(answer: Callable[[], Awaitable[Response]]) -> Response:
    """Return the answer, or a refusal with the status of the error that it raised."""
    try:
        return await answer()
    except UserError as error:
        return refusal(_STATUS.get(type(error), 400), error)
    except ClientDisconnect:
        return Response(status_code=400)
    except TimeoutError:
        return refusal(408, UserError("The request took too long to arrive; send it again."))


async def _content(request: Request, max_bytes: int) -> dict[str, Any]:
    body = await posted(request, max_bytes)
    if len(body) > max_bytes:
        raise TooLargeError(f"The request is too large; at most {max_bytes:,} bytes are accepted.")
    return await checked_beside(body, lambda content: object_in(content, MAX_TEACHER_VALUES))


def _require_teacher(request: Request, room: Room) -> None:
    room.require_teacher(request.headers.get(SECRET, ""))


def _student(request: Request, room: Room) -> str:
    token = request.query_params.get("student", "")
    room.students.require_known(token)
    return token


def _after(request: Request) -> int:
    text = request.query_params.get("after", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise UserError(f"after must be the number of a message, not {show(text)}.")
    return int(text)


def _base(raw: Mapping[str, Any]) -> str:
    """Return the page's address as the teacher's browser has it, with a slash at the end."""
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
