"""Connections that send no request: they neither keep others out nor fill the log."""

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any

import gradio as gr
import httpx
import pytest
from helpers.waiting import PATIENCE_S, until

from specdemo.ui.http import connections
from specdemo.ui.page import launch_options


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Yield the host and the port of a page that accepts 20 connections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "uvloop", None)  # an optional replacement of Python's own event loop
        patch.setattr(connections, "max_connections", lambda: 20)
        patch.setattr(connections, "REQUEST_S", 2 * PATIENCE_S)
        with gr.Blocks() as page:
            gr.Textbox()
        page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
        yield "127.0.0.1", page.server_port
        page.close(verbose=False)


def ended(line: socket.socket) -> bool:
    try:
        return line.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("at_once", [False, True])
def test_idle_connections_above_the_limit_make_room_the_oldest_first(address, at_once, monkeypatch):
    are_open = Event()
    accept = connections.BoundedConnection.connection_made

    def accept_late(self: Any, transport: Any) -> None:
        are_open.wait(PATIENCE_S)
        accept(self, transport)

    if at_once:
        monkeypatch.setattr(connections.BoundedConnection, "connection_made", accept_late)
    with ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection(address)) for _ in range(60)]
        are_open.set()
        until(lambda: sum(map(ended, idle)) >= 40)
        assert httpx.get("http://{}:{}/config".format(*address)).status_code == 200
        assert ended(idle[0]) and not ended(idle[-1])


def test_a_connection_is_closed_if_its_request_takes_too_long(address, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
        slow.sendall(b"GET /config HTTP/1.1\r\nHost:")
        until(lambda: ended(silent) and ended(slow))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("asyncio", "socket.accept() out of system resource\nsocket: <socket>"),
        ("uvicorn.error", "Invalid HTTP request received."),
    ],
)
def test_a_message_that_clients_can_repeat_is_logged_once(caplog, name, message):
    connections.quiet_repeats()
    for _ in range(100):
        logging.getLogger(name).error(message, exc_info=OSError("Too many open files"))
    [record] = caplog.records
    assert record.getMessage() == message.splitlines()[0] and record.exc_info is None
    logging.getLogger(name).error("Another message.")
    assert len(caplog.records) == 2
