"""Serve the page until the program is told to end or its device is lost.

After SIGTERM the current run may finish and others are refused. A lost device is lost for this process; a
supervisor starts the next one.
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
"""Seconds that the current run may go on; supervisors kill after 30 to 90 s."""
LAST_WORDS_S = 1.0
"""Seconds for the last events to reach the browsers."""
LOST_DEVICE = 75
"""The exit status by which a supervisor knows a lost device (EX_TEMPFAIL: trying again may help)."""
POLL_S = 0.1
SENT_AHEAD = 2**18
"""Bytes of a connection's send buffer, of which Linux takes twice. By itself it grows to megabytes: half a
minute of a run that looks as if it were read."""


class _Terminated(BaseException):
    """The process was asked to end."""


def serve_until_ended(page: gr.Blocks, service: EventSource, options: Mapping[str, Any]) -> int:
    """Launch the page, wait until the program is to end, and end it; for the main thread.

    Args:
        page: The page; it is launched and closed here.
        service: The page's service; closed if the program ends in order.
        options: Options of ``page.launch()``.

    Returns:
        The exit status. The caller ends the process without waiting for its threads, which may be in the
        middle of a load or hang on a lost device.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the page is closed.
        UserError: The page cannot listen at its address.
    """
    signal.signal(signal.SIGTERM, _terminate)
    # A shell that starts a program in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 0
    try:
        try:
            page.launch(prevent_thread_lock=True, quiet=True, **options)
        except OSError as error:
            raise UserError(f"The page cannot be served: {error}") from error
        send_little_ahead(page)
        gc.freeze()  # what the imports made takes 0.3 s of everybody's time whenever garbage is searched for
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
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the second time it means at once
    service.close(FINISH_S)
    time.sleep(LAST_WORDS_S)
    page.close(verbose=False)
    return status


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _Terminated


def send_little_ahead(page: gr.Blocks) -> None:
    """Limit the unsent bytes of each connection, so that it soon shows that nobody reads them.

    Args:
        page: The page, just launched.
    """
    for listener in listening_sockets(page):  # what it accepts inherits this
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
