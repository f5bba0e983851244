"""The guard in front of the web server: allowed routes, limits of bodies, and the headers of every reply.

Gradio serves much that this page never needs (uploads, files, a proxy, editors); only the routes below are
open. Every refusal is one sentence, as JSON. Streams pass through untouched.
"""

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.ui import stage
from specdemo.ui.http import class_routes, offline, own_routes
from specdemo.ui.http.gradio_internals import page_of, serves_tools
from specdemo.ui.http.gradio_requests import API, NotFoundError, check_body, check_query, object_in
from specdemo.ui.http.hosts import Hosts, hosts_for, name_in
from specdemo.ui.http.own_routes import checked_beside
from specdemo.ui.http.visitors import forget_idle_sessions

RawHeaders = list[tuple[bytes, bytes]]
MAX_BODY = 200_000
"""The size of a request to Gradio in bytes. The longest prompt takes 96,000 of them, with each character
escaped; a long game adds 20,000."""

SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take requests of that kind.",
    408: "The request took too long to arrive; send it again.",
    413: f"The request is too large; at most {MAX_BODY:,} bytes are taken.",
    414: "The address is too long; shorten the prompt in it.",
    500: "The request failed inside the program; please try again.",
    503: "Too many runs are waiting; please try again in a minute.",
}
OTHERWISE = "The request was refused; reload the page and try again."
BODY_S = 20.0
MAX_PATH_CHARS = 500
MAX_QUERY_CHARS = 60_000
"""A link may hold the longest prompt, percent-encoded; Gradio reads no address of 65,536 characters."""
PLAYER = f"/{stage.PREFIX}/player.html"
_OWN = "|".join((stage.PREFIX, own_routes.TRACES, own_routes.LAB, class_routes.PREFIX, own_routes.HEALTH))
_FETCHED = re.compile(
    rf"/|/config/?|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt|/(static|assets|svelte)/.+|/({_OWN})(/.+)?"
    rf"|{API}/(info/?|openapi\.json|startup-events|theme\.css|queue/data|heartbeat/[^/]+|app_id/?|call/(v2/)?[^/]+/[^/]+)"
)
_POSTED_TO_GRADIO = re.compile(rf"{API}/(queue/join|cancel|reset/?|call/(v2/)?[^/]+/?|run/[^/]+/?)")
_POSTED_TO_US = re.compile(
    rf"/{own_routes.TRACES}|/{own_routes.LAB}/run|/{class_routes.PREFIX}(/[^/]+/(join|answer|draft|teach|end))?"
)
_MCP = re.compile(rf"{API}/mcp(/|/http/?|/schema/?)?")
"""Without the older transport over two addresses, which hides the request that a job belongs to."""
_MCP_METHODS = ("GET", "POST", "DELETE", "OPTIONS")
_NAMES_THE_HOST = re.compile(r"/|/config/?")
"""Replies into which Gradio writes its address as the visitor named it; no cache may keep them."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]|(^|/)\.\.?(/|$)")
"""Control characters, backslashes, steps up the folders: no address of this page has them."""

COMMON_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # the address may hold a prompt
    "Permissions-Policy": ", ".join(
        f"{feature}=()"
        for feature in ("camera", "microphone", "geolocation", "display-capture", "payment", "usb")
    ),
}
SPACES = ("https://huggingface.co", "https://*.hf.space")
"""The hosts that may show the page in a frame when it runs as a Space."""
_GRADIOS = b"x-gradio-"
"""Headers between Gradio's other services; the page has none of them."""
_FIRST_ONLY = {b"x-forwarded-host", b"x-forwarded-proto"}
"""Headers that proxies in a row turn into a list; the first value is the visitor's."""
STRANGE = "This page has no such name; open it by its own, or let its host add the name with --allow-host."
FOREIGN = "Pages of other sites may not call this one; its host can let them with --allow-host."
_log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A refused request: the reply's status and sentence."""

    def __init__(self, status: int, sentence: str = ""):
        super().__init__(sentence or SENTENCES[status])
        self.status = status


def lifespan(
    allowed: Iterable[str] = (), listening: str = ""
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a ``lifespan`` for FastAPI that puts the guard around the app and forgets idle sessions.

    Anything given as ``middleware`` would be inside Gradio's own, which answers some requests itself. So the
    guard goes around Starlette's ``middleware_stack``. ``gr.mount_gradio_app`` on an app of ours would avoid
    that, but a ZeroGPU Space prepares its GPU in ``launch()``.

    Args:
        allowed: Further names of the page; their pages may call it.
        listening: The name of what the server listens on.
    """

    @asynccontextmanager
    async def guarded(app: Any) -> AsyncIterator[None]:
        hosts = hosts_for(allowed, app.root_path, listening)
        app.middleware_stack = Guard(app.middleware_stack, framers(), hosts)
        forgetting = asyncio.create_task(forget_idle_sessions(app.get_blocks()))
        yield
        forgetting.cancel()

    return guarded


def framers() -> tuple[str, ...]:
    """Return the other hosts that may show the page in a frame."""
    return SPACES if os.environ.get("SPACE_ID") else ()


def content_policy(framed_by: Iterable[str] = ()) -> str:
    """Return the content-security policy; Gradio needs inline scripts and ``eval`` for its templates."""
    return "; ".join(
        [
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "object-src 'none'",
            "frame-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            " ".join(["frame-ancestors 'self'", *framed_by]),
        ]
    )


class Guard:
    """ASGI middleware around the whole app.

    Args:
        app: Gradio's app, which has the page as ``get_blocks()``.
        framed_by: Other hosts that may show the page in a frame.
        hosts: The page's names, and the sites whose pages may call it.
    """

    def __init__(self, app: ASGIApp, framed_by: Iterable[str] = (), hosts: Hosts | None = None):
        self._app = app
        self._policy = content_policy(framed_by)
        self._hosts = hosts or hosts_for()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        path = _behind(scope.get("root_path", ""), scope["path"])
        reply = _Reply(send, self._headers(path), path)
        try:
            scope["headers"] = admitted_headers(scope["headers"], self._hosts)
            receive = await _admitted(scope, path, receive)
            await self._app(scope, receive, reply.send)
        except RefusedError as error:
            await reply.tell(error.status, str(error))
        except Exception as error:
            await reply.fail(error)

    def _headers(self, path: str) -> dict[str, str]:
        policy = f"{offline.POLICY}; frame-ancestors 'none'" if path == PLAYER else self._policy
        fresh = {"Cache-Control": "no-store"} if _NAMES_THE_HOST.fullmatch(path) else {}
        return {"Content-Security-Policy": policy, **COMMON_HEADERS, **fresh}


def admitted_headers(raw: RawHeaders, hosts: Hosts) -> RawHeaders:
    """Return the headers that the app gets: Gradio builds addresses from them and fails on odd ones.

    Raises:
        RefusedError: The request names somebody else's host, or comes from a page of one.
    """
    kept = [_first(name, value) for name, value in raw if not name.startswith(_GRADIOS)]
    kept = [one for one in kept if one[0] != b"x-forwarded-proto" or one[1] in (b"http", b"https")]
    headers = Headers(raw=kept)
    asked = [name_in(value) for key in ("host", "x-forwarded-host") for value in headers.getlist(key)]
    if not all(name and hosts.answer_to(name) for name in asked):
        raise RefusedError(421, STRANGE)
    for origin in headers.getlist("origin"):
        if "host" not in headers or not hosts.admit(origin, [name for name in asked if name]):
            raise RefusedError(403, FOREIGN)
    return kept


def _first(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return name, value.split(b",")[0].strip() if name in _FIRST_ONLY else value


def _behind(root: str, path: str) -> str:
    """Return ``path`` without the folder of a proxy, if the proxy has left it in."""
    root = root.rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


async def _admitted(scope: Scope, path: str, receive: Receive) -> Receive:
    """Return the app's source of the request's body, if the app gets the request at all.

    Raises:
        RefusedError: It does not.
    """
    page = page_of(scope)
    if len(path) > MAX_PATH_CHARS or _UNSAFE.search(path):
        raise RefusedError(404)
    if len(scope["query_string"]) > MAX_QUERY_CHARS:
        raise RefusedError(414)
    if serves_tools(page) and _MCP.fullmatch(path):
        if scope["method"] not in _MCP_METHODS:
            raise RefusedError(405)
        return await _message(receive) if scope["method"] == "POST" else receive
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    taken = {"GET": _FETCHED.fullmatch(path), "POST": _posted(path)}
    if not any(taken.values()):
        raise RefusedError(404)
    if _asks_whether_it_may(scope):
        return receive
    if not taken.get(method):
        raise RefusedError(405)
    try:
        if method == "GET":
            check_query(page, path, QueryParams(scope["query_string"]))
        elif _POSTED_TO_GRADIO.fullmatch(path):
            body = await _body(receive)
            await checked_beside(body, partial(check_body, page, path))
            return _replayed(body, receive)
    except NotFoundError as error:
        raise RefusedError(404, str(error)) from error
    except UserError as error:
        raise RefusedError(400, str(error)) from error
    return receive


async def _message(receive: Receive) -> Receive:
    body = await _body(receive)
    try:
        await checked_beside(body, object_in)
    except UserError as error:
        raise RefusedError(400, str(error)) from error
    return _replayed(body, receive)


def _asks_whether_it_may(scope: Scope) -> bool:
    """Return whether a browser asks if another page may send a request (CORS); Gradio answers that."""
    headers = Headers(scope=scope)
    return scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def _posted(path: str) -> re.Match[str] | None:
    return _POSTED_TO_GRADIO.fullmatch(path) or _POSTED_TO_US.fullmatch(path)


async def _body(receive: Receive) -> bytes:
    """Return the body, its bytes counted while they arrive.

    Raises:
        RefusedError: It is too much, or takes too long.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    raise RefusedError(413)
                more = message.get("more_body", False)
    except TimeoutError:
        raise RefusedError(408) from None
    return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` for the app that begins with the body that was already read."""
    kept: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return kept.pop() if kept else await receive()

    return again


class _Reply:
    """One reply on its way out: headers on every one, and every refusal in one sentence."""

    def __init__(self, send: Send, headers: dict[str, str], path: str):
        self._send = send
        self._headers = headers
        self._path = path
        self._begun = False
        self._ended = False
        self._streamed = False
        self._refusal: MutableMapping[str, Any] | None = None
        self._told = bytearray()

    async def send(self, message: Message) -> None:
        """Send the app's message on; an error reply waits until it is complete, to become one sentence."""
        if message["type"] == "http.response.start":
            if message["status"] >= 400 and not _MCP.fullmatch(self._path):
                self._refusal = message
                return
            await self._begin(message)
        elif self._refusal is None:
            self._ended = not message.get("more_body")
            await self._send(message)
        else:
            self._told += message.get("body", b"")
            if not message.get("more_body"):
                await self._restate(self._refusal["status"])

    async def tell(self, status: int, sentence: str) -> None:
        """Refuse with a sentence."""
        body = dump({"error": sentence}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await self._begin({"type": "http.response.start", "status": status, "headers": headers})
        self._ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def fail(self, error: Exception) -> None:
        """Reply that the app raised, unless it had replied, or end what it had begun to stream.

        Raises:
            Exception: The same, where half a file is on its way; the server then cuts the connection.
        """
        expected = isinstance(error.__cause__ or error, HTTPException)
        if not expected:
            _log.error("A request to %r failed", self._path, exc_info=error)
        if self._ended:
            return
        if not self._begun:
            await self.tell(500, SENTENCES[500])
        elif self._streamed:
            await self._send({"type": "http.response.body", "body": b""})
        else:
            raise error

    async def _begin(self, message: MutableMapping[str, Any]) -> None:
        message.setdefault("headers", [])
        headers = MutableHeaders(scope=message)
        headers.update(self._headers)
        self._begun = True
        self._streamed = headers.get("content-type", "").startswith("text/event-stream")
        await self._send(message)

    async def _restate(self, status: int) -> None:
        sentence = _sentence_in(bytes(self._told))
        if self._path.startswith(f"{API}/run/") and status == 500:
            status = 400  # so Gradio calls whatever a function raises about its values
        await self.tell(status, sentence or SENTENCES.get(status, OTHERWISE))


def _sentence_in(body: bytes) -> str | None:
    """Return the sentence that an error reply already has, if it has one."""
    try:
        told = json.loads(body)
    except ValueError:
        return None
    error = told.get("error") if isinstance(told, dict) else None
    one = isinstance(error, str) and error.isprintable() and error.endswith(".") and len(error) <= 300
    return error if one else None
