"""The visitor who sent a request: the session of a page or script, and the network address."""

import asyncio
import hmac
import secrets
import threading
import time
from collections.abc import Callable

import gradio as gr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from specdemo.service.fairness import Visitor
from specdemo.ui.http.gradio_internals import current_event, forget_session, idle_sessions

TRUSTED = "FORWARDED_ALLOW_IPS"
"""The environment variable with the proxies whose ``X-Forwarded-For`` the web server trusts."""
KEPT_S = 60.0
"""Gradio's data of a session is kept for this many seconds after its last job."""
LOOK_S = 10.0
"""The number of seconds between two searches for sessions to forget."""
_HEADER = "x-specdemo-caller"
_LOOPED = "specdemo.looped"
"""A key in the scope of a request that this server sent to itself for a tool call.

Its value is a ``threading.Event`` that is set when the tool call ends, or None if it has ended already."""


def visitor_of(request: gr.Request) -> Visitor:
    """Return the visitor whose share of the queue a job counts towards."""
    client = request.client
    session = request.session_hash
    # If a request has no session, Gradio names one after the event. All callers of tools share one session.
    looped = request.request is not None and _LOOPED in request.request.scope
    made_up = session == current_event() or looped
    return Visitor(client.host if client else "", None if made_up else session)


def caller_gone(request: gr.Request) -> Callable[[], bool]:
    """Return a function that returns whether the tool call that caused a request has ended.

    Gradio makes tool calls through its own client, which does not notice when the caller disconnects.
    """
    scope = request.request.scope if request.request is not None else {}
    if _LOOPED not in scope:
        return lambda: False
    over = scope[_LOOPED]
    return over.is_set if over is not None else lambda: True


class Loopback:
    """ASGI middleware that links each request of this server to itself with the MCP tool call that caused it.

    Gradio copies the headers of a tool call to the request that it makes for the call. So this middleware
    adds a header that names the call, recognizes it in the second request, and restores the caller's address.
    """

    def __init__(self, app: ASGIApp):
        self._app = app
        self._secret = secrets.token_urlsafe(16)
        self._calls: dict[str, threading.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        secret, _, rest = Headers(scope=scope).get(_HEADER, "").partition(" ")
        if hmac.compare_digest(secret.encode(), self._secret.encode()):
            # The second request
            call, _, caller = rest.partition(" ")
            looped = {**scope, "client": (caller, 0), _LOOPED: self._calls.get(call)}
            return await self._app(looped, receive, send)
        # The first request
        call = secrets.token_hex(8)
        caller = scope["client"][0] if scope.get("client") else ""
        named = (_HEADER.encode(), f"{self._secret} {call} {caller}".encode())
        headers = [(name, value) for name, value in scope["headers"] if name != _HEADER.encode()]
        over = self._calls[call] = threading.Event()
        try:
            await self._app({**scope, "headers": [*headers, named]}, receive, send)
        finally:
            over.set()
            del self._calls[call]


async def forget_idle_sessions(page: gr.Blocks) -> None:
    """Forget each session ``KEPT_S`` seconds after its last job; never return.

    Gradio would keep one run for each of the last 2,000 sessions, and some data of every session forever.
    """
    idle_since: dict[str, float] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        now, idle = time.monotonic(), idle_sessions(page)
        idle_since = {session: idle_since.get(session, now) for session in idle}
        for session in [one for one, since in idle_since.items() if now - since > KEPT_S]:
            forget_session(page, session)
            del idle_since[session]
