"""The visitor behind a request: the session of a page or script, and its address.

MCP tool calls reach the queue through a request of this server to itself; :class:`Loopback` keeps the address
of their caller.
"""

import asyncio
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import gradio as gr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from specdemo.service.shares import Visitor
from specdemo.ui.http.gradio_internals import current_event, forget_session, idle_sessions

TRUSTED = "FORWARDED_ALLOW_IPS"
"""The web server's environment variable for the proxies whose forwarded addresses it trusts."""
KEPT_S = 60.0
"""Seconds that a session's last answer is kept after its last job."""
LOOK_S = 10.0
"""Seconds between two searches for sessions that are kept too long."""
_HEADER = "x-specdemo-caller"
_LOOPED = "specdemo.looped"
"""A key in the scope of a request of this server to itself: the event that is set when its caller's request
ends, or None if that had ended before."""


def visitor_of(request: gr.Request) -> Visitor:
    """Return the visitor whose share a job counts towards; without a session if the request had none."""
    client = request.client
    session = request.session_hash
    # Gradio names a request without a session by its event; all callers of tools share one session.
    looped = request.request is not None and _LOOPED in request.request.scope
    made_up = session == current_event() or looped
    return Visitor(client.host if client else "", None if made_up else session)


def caller_gone(request: gr.Request) -> Callable[[], bool]:
    """Return a function that returns whether the tool call behind a request is over.

    Gradio makes tool calls through its own client, which does not notice that their caller has gone.
    """
    scope = request.request.scope if request.request is not None else {}
    if _LOOPED not in scope:
        return lambda: False
    over = scope[_LOOPED]
    return over.is_set if over is not None else lambda: True


class Loopback:
    """ASGI middleware that assigns a request of this server to itself to the request that caused it.

    Gradio copies the headers of a tool call to the request that it makes for it; one of them names the call.
    """

    def __init__(self, app: ASGIApp):
        self._app = app
        self._secret = secrets.token_urlsafe(16)
        self._calls: dict[str, threading.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        secret, _, rest = Headers(scope=scope).get(_HEADER, "").partition(" ")
        if hmac.compare_digest(secret.encode(), self._secret.encode()):
            return await self._app(self._looped(scope, rest), receive, send)
        call = secrets.token_hex(8)
        over = self._calls[call] = threading.Event()
        try:
            await self._app(self._signed(scope, call), receive, send)
        finally:
            over.set()
            del self._calls[call]

    def _signed(self, scope: Scope, call: str) -> dict[str, Any]:
        caller = scope["client"][0] if scope.get("client") else ""
        others = [(name, value) for name, value in scope["headers"] if name != _HEADER.encode()]
        return {**scope, "headers": [*others, (_HEADER.encode(), f"{self._secret} {call} {caller}".encode())]}

    def _looped(self, scope: Scope, named: str) -> dict[str, Any]:
        call, _, caller = named.partition(" ")
        return {**scope, "client": (caller, 0), _LOOPED: self._calls.get(call)}


async def forget_idle_sessions(page: gr.Blocks) -> None:
    """Forget sessions ``KEPT_S`` after their last job; never return.

    Gradio keeps a run for each of the last 2,000 sessions, and some data of every session forever.
    """
    idle_since: dict[str, float] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        now, idle = time.monotonic(), idle_sessions(page)
        idle_since = {session: idle_since.get(session, now) for session in idle}
        for session in [one for one, since in idle_since.items() if now - since > KEPT_S]:
            forget_session(page, session)
            del idle_since[session]
