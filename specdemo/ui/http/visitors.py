"""Who a visitor is, as far as a request tells: the session of a page or script, and the address behind it.

A forwarded address counts only from proxies that the host names. Tool calls (MCP) reach the queue by way of
this very server; :class:`Loopback` has them keep the address of whoever called. Knows no jobs.
"""

import hmac
import os
import secrets
from ipaddress import ip_network
from typing import Any

import gradio as gr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from specdemo.records.limits import UserError
from specdemo.service.shares import Visitor
from specdemo.ui.http.gradio_internals import current_event

TRUSTED = "FORWARDED_ALLOW_IPS"
"""The web server's own variable: whose forwarded addresses it takes for true."""
_HEADER = "x-specdemo-caller"
_LOOPED = "specdemo.looped"
"""In the scope of what this server asks of itself."""


def trust_proxies(addresses: str) -> None:
    """Take forwarded addresses from these proxies (addresses or networks, joined by commas), or from nobody.

    To be called before the server starts, which by itself would believe whoever is on this machine, and with
    a proxy there whatever its visitors say.

    Raises:
        UserError: One is no address.
    """
    for address in filter(None, addresses.split(",")):
        try:
            ip_network(address.strip())
        except ValueError:
            raise UserError(
                f"--trust-proxy takes addresses and networks (127.0.0.1,10.0.0.0/8); {address!r} is neither."
            ) from None
    os.environ[TRUSTED] = addresses


def visitor_of(request: gr.Request) -> Visitor:
    """The visitor whose share a job counts to: without a session where the request came without one."""
    client = request.client
    session = request.session_hash
    # Gradio calls what came without a session by its event; all callers of tools share one.
    looped = request.request is not None and _LOOPED in request.request.scope
    made_up = session == current_event() or looped
    return Visitor(client.host if client else "", None if made_up else session)


class Loopback:
    """ASGI middleware: what this server asks of itself comes from whoever made it ask."""

    def __init__(self, app: ASGIApp):
        self._app = app
        self._secret = secrets.token_urlsafe(16)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        await self._app(self._signed(scope) if scope["type"] == "http" else scope, receive, send)

    def _signed(self, scope: Scope) -> dict[str, Any]:
        """The request with its caller's address in a header, which Gradio hands on to the call it makes."""
        secret, _, caller = Headers(scope=scope).get(_HEADER, "").partition(" ")
        if hmac.compare_digest(secret.encode(), self._secret.encode()):
            return {**scope, "client": (caller, 0), _LOOPED: True}
        caller = scope["client"][0] if scope.get("client") else ""
        others = [(name, value) for name, value in scope["headers"] if name != _HEADER.encode()]
        return {**scope, "headers": [*others, (_HEADER.encode(), f"{self._secret} {caller}".encode())]}
