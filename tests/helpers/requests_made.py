"""Requests as Gradio hands them to a function, without a server."""

from typing import Any

import gradio as gr
from starlette.requests import Request


def request_from(address: str | None, session: str | None, **more: Any) -> gr.Request:
    scope = {"type": "http", "headers": [], "client": address and (address, 1), **more}
    return gr.Request(Request(scope), session_hash=session)
