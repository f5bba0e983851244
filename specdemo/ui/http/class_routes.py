"""Classes over HTTP: a teacher's page tells what it shows, students' pages read it and answer.

Students get server-sent events, or ask for news where a proxy keeps those back; they need no session of
Gradio's, no place in the queue and no thread. The room's secret travels in a header, and is told to nobody
but who has opened the room.
"""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import segno
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from specdemo.classroom.rates import TooOftenError
from specdemo.classroom.room import OtherWindowError, Room
from specdemo.classroom.rooms import NoClassError, Rooms
from specdemo.classroom.shown_run import UnknownRunError
from specdemo.classroom.stream import messages, news
from specdemo.records.limits import UserError, show
from specdemo.records.trace import dump
from specdemo.ui import stage
from specdemo.ui.http.class_page import student_page
from specdemo.ui.http.gradio_requests import object_in
from specdemo.ui.http.own_routes import checked_beside, json_reply, posted, refusal, with_routes

PREFIX = "specdemo-class"
SECRET = "x-class-secret"
MOST_TAUGHT = 1_000_000
"""Bytes of one post of the teacher's page, which sends a long run in parts."""
MAX_TAUGHT_VALUES = 60_000
"""JSON values of one; a part of a run has half as many."""
MOST_SAID = 4_000
"""Bytes of one post of a student's page."""
MOST_ADDRESS_CHARS = 300
NO_ADDRESS = "address must be that of the page, as the browser shows it."
PART = 2**16
"""Bytes that are handed to a connection at once."""
HERE = b'data: {"type":"here"}\n\n'
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Answer = Callable[[Request, Room], Awaitable[Response]]
StudentAnswer = Callable[[Request, Room, str, dict[str, Any]], Awaitable[Response]]
"""Is given the token that came with what a student says, and the rest of it."""


def with_class(options: Mapping[str, Any], rooms: Rooms) -> dict[str, Any]:
    """``options`` of ``launch()`` with the routes to these classes."""
    return with_routes(options, ClassRoutes(rooms).routes())


class TooLargeError(UserError):
    """What was sent has more bytes than are taken."""


_STATUS = {
    TooLargeError: 413,
    NoClassError: 404,
    TooOftenError: 429,
    UnknownRunError: 409,
    OtherWindowError: 409,
}


class ClassRoutes:
    """The routes around one server's classes."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    def routes(self) -> list[BaseRoute]:
        """All of them; paths with a code are about that class."""
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
        """An endpoint about the class that the path names, for its teacher, or for a student who reads."""

        async def answered(request: Request) -> Response:
            token = request.headers.get(SECRET) or request.query_params.get("student", "")
            return await _told(lambda: answer(request, self._find(request, token)))

        return answered

    def _of_student(self, answer: StudentAnswer) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for what a student posts, whose token is in the body."""

        async def taken(request: Request) -> Response:
            said = await _sent(request, MOST_SAID)
            student = said.pop("student", "")
            token = student if isinstance(student, str) else ""
            return await answer(request, self._find(request, token), token, said)

        async def answered(request: Request) -> Response:
            return await _told(lambda: taken(request))

        return answered

    def _find(self, request: Request, token: str) -> Room:
        return self._rooms.find(request.path_params["code"], _address(request), token)

    async def _open(self, request: Request) -> Response:
        return await _told(lambda: self._opened(request))

    async def _opened(self, request: Request) -> Response:
        base = _base(await _sent(request, MOST_SAID))
        room = self._rooms.open(_address(request))
        link = f"{base}{PREFIX}/{room.code}"
        # Of the highest correction that costs no larger code: it is read from the last row of a class room.
        qr = segno.make(link, micro=False).svg_data_uri(border=2, scale=8)
        return json_reply({"code": room.code, "secret": room.secret, "link": link, "qr": qr})

    async def _join(self, request: Request, room: Room, student: str, _said: dict[str, Any]) -> Response:
        """A student who was here before stays who they are; anybody else is new."""
        if not room.students.knows(student):
            student = self._rooms.join(room, _address(request))
        return json_reply({"student": student, **room.known_of(student)})

    async def _end(self, request: Request, room: Room) -> Response:
        room.require_teacher(request.headers.get(SECRET, ""))
        self._rooms.end(room)
        return json_reply({})


async def _teach(request: Request, room: Room) -> Response:
    room.require_teacher(request.headers.get(SECRET, ""))
    return json_reply(room.take(await _sent(request, MOST_TAUGHT)))


async def _answer(_request: Request, room: Room, student: str, said: dict[str, Any]) -> Response:
    room.answer(student, said)
    return json_reply({})


async def _draft(_request: Request, room: Room, student: str, said: dict[str, Any]) -> Response:
    return json_reply({"number": room.draft(student, said)})


async def _own(request: Request, room: Room) -> Response:
    """What became of a student's own draft."""
    return json_reply(room.games.verdict_on(_student(request, room)))


async def _game(request: Request, room: Room) -> Response:
    """The game on the page, for the teacher's: what everybody has been told of it."""
    room.require_teacher(request.headers.get(SECRET, ""))
    game = room.games.at_hand
    return json_reply(game.told() if game else None)


async def _summary(request: Request, room: Room) -> Response:
    room.require_teacher(request.headers.get(SECRET, ""))
    summary = room.summary()
    if request.query_params.get("as") != "csv":
        return json_reply(summary)
    return Response(table(summary), media_type="text/csv; charset=utf-8", headers=stage.REVALIDATE)


async def _events(request: Request, room: Room) -> Response:
    """Server-sent events, each a message with its number, from behind the one the page has last seen."""
    token = _student(request, room)
    after = _number(request.query_params.get("after", "0"))

    async def lines() -> AsyncIterator[bytes]:
        yield HERE  # that streams come through at all, a page has to know at once
        try:
            async for new in messages(room, token, after):
                for part in _parts(b"".join(frame.event for frame in new) or b": here\n\n"):
                    yield part
        except UserError as error:
            yield f"data: {dump({'type': 'refused', 'error': str(error)})}\n\n".encode()

    return StreamingResponse(lines(), media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _news(request: Request, room: Room) -> Response:
    token, after = _student(request, room), _number(request.query_params.get("after", "0"))
    new = await news(room, token, after)

    async def lines() -> AsyncIterator[bytes]:
        for frame in new:
            for part in _parts(frame.data):
                yield part
            yield b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=_STREAM_HEADERS)


def _parts(data: bytes) -> Iterator[bytes]:
    """So little at a time that a connection which nobody reads holds hardly more than that."""
    return (data[start : start + PART] for start in range(0, len(data), PART))


def _page(request: Request) -> Response:
    root = "../" if "code" in request.path_params else "./"
    return HTMLResponse(student_page(root), headers=stage.REVALIDATE)


def table(summary: Mapping[str, Any]) -> str:
    """A class summed up as CSV: one line an answer, with how many gave it and whether it is right."""
    told = io.StringIO()
    rows = csv.writer(told)
    rows.writerow(["question", "text", "answer", "students", "right"])
    for question in summary["questions"]:
        for index, bar in enumerate(question["bars"]):
            right = question["kind"] == "choice" and question["right"] == index
            rows.writerow(
                [question["number"], _cell(question["text"]), _cell(bar["label"]), bar["count"], right]
            )
    return told.getvalue()


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


async def _told(answer: Callable[[], Awaitable[Response]]) -> Response:
    try:
        return await answer()
    except UserError as error:
        return refusal(_STATUS.get(type(error), 400), error)
    except ClientDisconnect:
        return Response(status_code=400)
    except TimeoutError:
        return refusal(408, UserError("That took too long to arrive; send it again."))


async def _sent(request: Request, most: int) -> dict[str, Any]:
    body = await posted(request, most)
    if len(body) > most:
        raise TooLargeError(f"That is too large; at most {most:,} bytes are taken.")
    return await checked_beside(body, lambda sent: object_in(sent, MAX_TAUGHT_VALUES))


def _student(request: Request, room: Room) -> str:
    token = request.query_params.get("student", "")
    room.students.require_known(token)
    return token


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise UserError(f"after must be the number of a message, not {show(text)}.")
    return int(text)


def _base(raw: Mapping[str, Any]) -> str:
    """The page's address, as the teacher's browser has it; ends with a slash."""
    address = raw.get("address")
    if not isinstance(address, str) or len(address) > MOST_ADDRESS_CHARS:
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
