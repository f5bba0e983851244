"""The guard in front of the app: open routes, limits of bodies, headers, and refusals as JSON sentences."""

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
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.ui import stage
from specdemo.ui.http import class_routes, offline, own_routes
from specdemo.ui.http.gradio_internals import page_of, serves_tools
from specdemo.ui.http.gradio_requests import API, check_body, check_query
from specdemo.ui.http.hosts import Hosts, hosts_for, name_in
from specdemo.ui.http.posts import RefusedError, checked_beside, object_in, posted, status_of
from specdemo.ui.http.sharing import is_embedded, path_of
from specdemo.ui.http.visitors import forget_idle_sessions

RawHeaders = list[tuple[bytes, bytes]]
MAX_BODY = 200_000
"""The maximum size of a request to Gradio in bytes. The longest prompt, escaped, takes 96,000 bytes."""

SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not accept this HTTP method.",
    408: "The request took too long to arrive; send the request again.",
    413: f"The request is too large; at most {MAX_BODY:,} bytes are accepted.",
    414: "The address is too long; shorten the prompt in it.",
    500: "The request failed inside the program; please try again.",
    503: "Too many runs are waiting; please try again in a minute.",
}
OTHERWISE = "The request was refused; reload the page and try again."
BODY_S = 20.0
MAX_PATH_CHARS = 500
MAX_QUERY_CHARS = 60_000
"""The maximum length of a query; Gradio cannot read an address of 65,536 characters."""
PLAYER = f"/{stage.PREFIX}/player.html"
_OWN = "|".join(
    (
        stage.PREFIX,
        own_routes.TRACES,
        own_routes.LAB,
        own_routes.LIVE_COPY,
        class_routes.PREFIX,
        own_routes.HEALTH,
    )
)
_FETCHED = re.compile(
    rf"/|/config/?|/theme\.css|/favicon\.ico|/pwa_icon|/manifest\.json|/robots\.txt|/(static|assets|svelte)/.+|/({_OWN})(/.+)?"
    rf"|/({class_routes.PREFIX}|{own_routes.LIVE_COPY})/|/{class_routes.SHORT_PREFIX}(/[^/]*/?)?"
    rf"|{API}/(info/?|openapi\.json|startup-events|theme\.css|queue/data|heartbeat/[^/]+|app_id/?|call/(v2/)?[^/]+/[^/]+)"
)
_POSTED_TO_GRADIO = re.compile(rf"{API}/(queue/join|cancel|reset/?|call/(v2/)?[^/]+/?|run/[^/]+/?)")
_POSTED_TO_US = re.compile(
    rf"/{own_routes.TRACES}|/{own_routes.LAB}/(run|explain)|/{class_routes.PREFIX}(/[^/]+/(join|answer|draft|teach|end))?"
)
_MCP = re.compile(rf"{API}/mcp(/|/http/?|/schema/?)?")
"""The paths of the MCP server, without MCP's older transport, which hides the request of a job."""
_MCP_METHODS = ("GET", "POST", "DELETE", "OPTIONS")
_NAMES_THE_HOST = re.compile(r"/|/config/?")
"""The paths of replies with the host name of the request, which no cache may store."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]|(^|/)\.\.?(/|$)")
"""Control characters, backslashes, and the path parts ``.`` and ``..``."""

COMMON_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # the address may hold a prompt
    "Permissions-Policy": ", ".join(
        f"{feature}=()"
        for feature in ("camera", "microphone", "geolocation", "display-capture", "payment", "usb")
    ),
}
POLICY = "; ".join(
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
    ]
)
"""The policy except the frames. Gradio's templates need inline scripts and ``eval``."""
SPACES = ("https://huggingface.co", "https://*.hf.space")
"""The sites that may show a Space's page in a frame."""
_GRADIOS = b"x-gradio-"
"""The start of the names of headers that only other services of Gradio use."""
_PROXIES = (b"forwarded", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto")
"""Headers with the address that a visitor called. Each proxy adds a value; the first one is the visitor's."""
_PAIR = re.compile(r'(?:^|;)\s*(\w+)="?([^";]*)"?')
"""A name and its value in the header ``Forwarded`` (RFC 7239)."""
UNKNOWN_NAME = "This page does not answer to this host name; its owner can allow it with --allow-host."
FOREIGN_PAGE = "Pages of other sites may not call this page; its owner can allow them with --allow-host."
_log = logging.getLogger(__name__)


def lifespan(
    allowed: Iterable[str] = (), listening: str = "", framed_by: Iterable[str] = ()
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a ``lifespan`` that puts the guard around the app, with arguments as in ``launch_options``."""
    # The option middleware would put the guard inside Gradio's own middleware, which answers some requests
    # itself. gr.mount_gradio_app on our own app would be simpler, but a ZeroGPU Space prepares its GPU in
    # launch().

    @asynccontextmanager
    async def guarded(app: Any) -> AsyncIterator[None]:
        hosts = hosts_for(allowed, app.root_path, listening)
        app.middleware_stack = Guard(app.middleware_stack, framers(framed_by), hosts)
        forgetting = asyncio.create_task(forget_idle_sessions(app.get_blocks()))
        yield
        forgetting.cancel()

    return guarded


def framers(names: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the policy's sources of pages that may frame the page: the sites ``names`` and a Space's hub."""
    sites = tuple(f"{name}:*" for name in names)  # without a port, only the usual port would be allowed
    return (*SPACES, *sites) if os.environ.get("SPACE_ID") else sites


class Guard:
    """ASGI middleware around the whole app; ``framed_by`` has the sources that ``framers`` returns."""

    def __init__(self, app: ASGIApp, framed_by: Iterable[str] = (), hosts: Hosts | None = None):
        self._app = app
        self._framed_by = " ".join(["frame-ancestors 'self'", *framed_by])
        self._hosts = hosts or hosts_for()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        path = path_of(scope)
        reply = _Reply(send, self._headers(scope, path), path)
        try:
            scope["headers"] = admitted_headers(scope["headers"], self._hosts)
            receive = await _admitted(scope, path, receive)
            await self._app(scope, receive, reply.send)
        except UserError as error:
            await reply.refuse(status_of(error), str(error))
        except ClientDisconnect:
            pass
        except Exception as error:
            await reply.fail(error)

    def _headers(self, scope: Scope, path: str) -> dict[str, str]:
        # Any site may show the two pages that only replay runs: no visitor can be tricked into starting one.
        if path == PLAYER:
            policy = offline.POLICY
        else:
            policy = POLICY if is_embedded(scope) else f"{POLICY}; {self._framed_by}"
        fresh = {"Cache-Control": "no-store"} if _NAMES_THE_HOST.fullmatch(path) else {}
        return {"Content-Security-Policy": policy, **COMMON_HEADERS, **fresh}


def admitted_headers(raw: RawHeaders, hosts: Hosts) -> RawHeaders:
    """Check the headers of a request and return those that the app gets."""
    # Gradio builds addresses from some headers and fails on unusual values, so these are removed.
    kept = [one for one in raw if not one[0].startswith(_GRADIOS) and one[0] not in _PROXIES]
    kept += _called(Headers(raw=raw))
    headers = Headers(raw=kept)
    asked = [name_in(value) for key in ("host", "x-forwarded-host") for value in headers.getlist(key)]
    if not all(name and hosts.answers_to(name) for name in asked):
        raise RefusedError(421, UNKNOWN_NAME)
    for origin in headers.getlist("origin"):
        if "host" not in headers or not hosts.admits(origin, [name for name in asked if name]):
            raise RefusedError(403, FOREIGN_PAGE)
    return kept


def _called(headers: Headers) -> RawHeaders:
    """Return the address that the visitor called, in the two headers that Gradio reads."""
    pairs, host, port, scheme = (headers.get(name.decode(), "").split(",")[0].strip() for name in _PROXIES)
    standard = {name.lower(): value for name, value in _PAIR.findall(pairs)}
    host, scheme = host or standard.get("host", ""), (scheme or standard.get("proto", "")).lower()
    named = host or headers.get("host", "")
    # A proxy that ends TLS may report the usual port of the other scheme.
    if port not in ("80", "443") and name_in(f"{named}:{port}"):
        host = f"{named}:{port}"
    called = [(b"x-forwarded-host", host)] if host else []
    if scheme in ("http", "https"):
        called.append((b"x-forwarded-proto", scheme))
    return [(name, value.encode("latin-1")) for name, value in called]


async def _admitted(scope: Scope, path: str, receive: Receive) -> Receive:
    """Check a request and return the ``receive`` from which the app reads its body."""
    page = page_of(scope)
    if len(path) > MAX_PATH_CHARS or _UNSAFE.search(path):
        raise _refused(404)
    if len(scope["query_string"]) > MAX_QUERY_CHARS:
        raise _refused(414)
    if serves_tools(page) and _MCP.fullmatch(path):
        if scope["method"] not in _MCP_METHODS:
            raise _refused(405)
        return await _checked(scope, receive, object_in) if scope["method"] == "POST" else receive
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    allowed = {
        "GET": _FETCHED.fullmatch(path),
        "POST": _POSTED_TO_GRADIO.fullmatch(path) or _POSTED_TO_US.fullmatch(path),
    }
    if not any(allowed.values()):
        raise _refused(404)
    headers = Headers(scope=scope)
    if scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
        return receive  # a CORS preflight, which asks if a page of another site may call; Gradio replies
    if not allowed.get(method):
        raise _refused(405)
    if method == "GET":
        check_query(page, path, QueryParams(scope["query_string"]))
    elif _POSTED_TO_GRADIO.fullmatch(path):
        return await _checked(scope, receive, partial(check_body, page, path))
    return receive


async def _checked(scope: Scope, receive: Receive, check: Callable[[bytes], object]) -> Receive:
    """Read and check the body, and return a ``receive`` that returns it again."""
    body = await posted(Request(scope, receive), MAX_BODY, SENTENCES[413], BODY_S)
    await checked_beside(body, check)
    kept: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return kept.pop() if kept else await receive()

    return again


def _refused(status: int) -> RefusedError:
    return RefusedError(status, SENTENCES[status])


class _Reply:
    """A reply to a client, with our headers; an error reply becomes one sentence."""

    def __init__(self, send: Send, headers: dict[str, str], path: str):
        self._send = send
        self._headers = headers
        self._path = path
        self._begun = False
        self._ended = False
        self._streamed = False
        self._error: MutableMapping[str, Any] | None = None
        self._error_body = bytearray()

    async def send(self, message: Message) -> None:
        """Pass on a message of the app; an error reply only once it is complete, as a sentence."""
        if message["type"] == "http.response.start":
            if message["status"] >= 400 and not _MCP.fullmatch(self._path):
                self._error = message
                return
            await self._begin(message)
        elif self._error is None:
            self._ended = not message.get("more_body")
            await self._send(message)
        else:
            self._error_body += message.get("body", b"")
            if not message.get("more_body"):
                status = self._error["status"]
                if status == 500 and self._path.startswith(f"{API}/run/"):
                    status = 400  # Gradio sends 500 even if a function refuses its values
                sentence = _sentence_in(bytes(self._error_body))
                await self.refuse(status, sentence or SENTENCES.get(status, OTHERWISE))

    async def refuse(self, status: int, sentence: str) -> None:
        reply = Response(
            dump({"error": sentence}), status, {"Cache-Control": "no-store"}, media_type="application/json"
        )
        await self._begin({"type": "http.response.start", "status": status, "headers": reply.raw_headers})
        self._ended = True
        await self._send({"type": "http.response.body", "body": reply.body})

    async def fail(self, error: Exception) -> None:
        """Finish the reply after the app raised ``error``."""
        expected = isinstance(error.__cause__ or error, HTTPException)
        if not expected:
            _log.error("A request to %r failed", self._path, exc_info=error)
        if self._ended:
            return
        if not self._begun:
            await self.refuse(500, SENTENCES[500])
        elif self._streamed:
            await self._send({"type": "http.response.body", "body": b""})
        else:
            raise error  # the reply is incomplete, so the server closes the connection

    async def _begin(self, message: MutableMapping[str, Any]) -> None:
        message.setdefault("headers", [])
        headers = MutableHeaders(scope=message)
        headers.update(self._headers)
        self._begun = True
        self._streamed = headers.get("content-type", "").startswith("text/event-stream")
        await self._send(message)


def _sentence_in(body: bytes) -> str | None:
    try:
        reply = json.loads(body)
    except ValueError:
        return None
    error = reply.get("error") if isinstance(reply, dict) else None
    is_sentence = isinstance(error, str) and error.isprintable() and error.endswith(".") and len(error) <= 300
    return error if is_sentence else None
