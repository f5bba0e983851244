"""Serve the page until a signal ends the program or its device is lost.

After SIGTERM the current run may finish and others are refused. A process cannot recover a lost device; a
supervisor starts the next process.
"""

import gc
import signal
import socket
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import gradio as gr

from specdemo.records.limits import UserError
from specdemo.service.service import EventSource
from specdemo.ui.http.gradio_internals import listening_sockets

FINISH_S = 20.0
"""Seconds that the current run may still take; supervisors kill after 30 to 90 s."""
LAST_WORDS_S = 1.0
"""Seconds for the last events to reach the browsers."""
LOST_DEVICE = 75
"""The exit status for a lost device (EX_TEMPFAIL: trying again may help)."""
POLL_S = 0.1
SENT_AHEAD = 2**18
"""The bytes of a connection's send buffer; Linux doubles them. Without a limit it grows to megabytes: half a
minute of a run that nobody reads but that looks as if it were read."""


class _Terminated(BaseException):
    """The process was asked to end."""


def serve_until_ended(page: gr.Blocks, service: EventSource, options: Mapping[str, Any]) -> int:
    """Launch the page, wait for the program's end, and close the page; call it on the main thread.

    Args:
        page: The page.
        service: The page's service, closed unless Ctrl-C was pressed.
        options: Options of ``page.launch()``.

    Returns:
        The exit status. The caller ends the process without waiting for its threads, which may be loading
        models or hang on a lost device.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the page is closed.
        UserError: The page cannot listen at its address.
    """
    signal.signal(signal.SIGTERM, _terminate)
    # A shell makes the programs that it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 0
    try:
        try:
            page.launch(prevent_thread_lock=True, quiet=True, **options)
        except OSError as error:
            raise UserError(f"The page cannot be served: {error}") from error
        send_little_ahead(page)
        gc.freeze()  # each garbage collection would search the imports' objects for 0.3 s
        print(f"Open {page.local_url} in a browser; Ctrl-C ends the page.", flush=True)
        while not service.lost:
            time.sleep(POLL_S)
        status = LOST_DEVICE
    except KeyboardInterrupt:
        service.close(0.0)
        time.sleep(LAST_WORDS_S)
        page.close(verbose=False)
        raise
    except _Terminated:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the program at once
    service.close(FINISH_S)
    time.sleep(LAST_WORDS_S)
    page.close(verbose=False)
    return status


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _Terminated


def send_little_ahead(page: gr.Blocks) -> None:
    """Limit the unsent bytes of each connection of a launched page, to notice soon that nobody reads them."""
    for listener in listening_sockets(page):  # accepted connections inherit it
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
