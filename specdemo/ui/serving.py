"""The page's life: it is served until a signal ends the program or its device is lost."""

import gc
import ipaddress
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

import gradio as gr

from specdemo.records.limits import UserError
from specdemo.service.service import RunService
from specdemo.ui.http.gradio_internals import has_undelivered_events, listening_sockets

FINISH_S = 20.0
"""Seconds that the current run may still take. Supervisors kill a process 30 to 90 s after SIGTERM."""
LAST_WORDS_S = 10.0
"""The maximum number of seconds for the last events to reach the browsers."""
LOST_DEVICE = 75
"""The exit status after a lost device, EX_TEMPFAIL: only another process can use the device again."""
POLL_S = 0.1
SENT_AHEAD = 2**18
"""A connection's send buffer in bytes, which Linux doubles; larger, it takes in half a minute of a run."""
UNACKNOWLEDGED_MS = 6_000
"""The time after which a connection is lost if nobody has acknowledged what was sent."""


class _Terminated(BaseException):
    """Raised by SIGTERM."""


def serve_until_ended(page: gr.Blocks, service: RunService, options: Mapping[str, Any]) -> int:
    """Launch the page, wait until the program must end, close service and page, and return the exit status.

    Call this on the main thread. The caller must then end the process without waiting for its threads, which
    may be loading models or hang on a lost device.
    """
    signal.signal(signal.SIGTERM, _terminate)
    # Restore Ctrl-C: a shell makes the programs that it starts in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 0
    try:
        try:
            page.launch(prevent_thread_lock=True, quiet=True, **options)
        except Exception as error:  # Gradio raises errors of any type if it cannot reach its own server
            raise UserError(f"The page cannot be served: {error}") from error
        notice_lost_readers(page)
        gc.freeze()  # otherwise each garbage collection takes 0.3 s to search the imported modules' objects
        address = str(page.local_url).replace("[::]", "[::1]")  # of all addresses, one that a browser opens
        print(f"Open {address} in a browser; Ctrl-C ends the page.", flush=True)
        if others := addresses_for_others(page):
            print(f"Other machines can reach the page at {' or '.join(others)}.", flush=True)
        while not service.lost:
            time.sleep(POLL_S)
        status = LOST_DEVICE
    except KeyboardInterrupt:
        service.close(0.0)
        _close_when_delivered(page)
        raise
    except _Terminated:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the program at once
    service.close(FINISH_S)
    _close_when_delivered(page)
    return status


def addresses_for_others(page: gr.Blocks) -> list[str]:
    """Return the page's addresses on other machines, if it listens on all addresses of this one.

    The first one is that from which this machine reaches others.
    """
    found: list[str] = []
    for listener in listening_sockets(page):
        host, port = listener.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            found += [f"http://{name}:{port}" for name in _addresses_of_this_machine(listener.family)]
    return found


def _addresses_of_this_machine(family: int) -> list[str]:
    addresses: list[str] = []
    # The system chooses the address to send from; nothing is sent. The other one is reserved for documents.
    elsewhere = "2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1"
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))
        addresses.append(probe.getsockname()[0])
    with suppress(OSError):
        addresses += [str(one[4][0]) for one in socket.getaddrinfo(socket.gethostname(), None, family)]
    known = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
    usual = dict.fromkeys(one for one in known if not (one.is_loopback or one.is_link_local))
    return [f"[{one}]" if one.version == 6 else str(one) for one in usual]


def _close_when_delivered(page: gr.Blocks) -> None:
    deadline = time.monotonic() + LAST_WORDS_S
    while has_undelivered_events(page) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    time.sleep(POLL_S)  # an event counts as delivered shortly before its bytes are sent
    page.close(verbose=False)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _Terminated


def notice_lost_readers(page: gr.Blocks) -> None:
    """Limit the unsent bytes of each connection, and the time that sent bytes stay unacknowledged.

    So a reader who leaves is noticed soon, also one whose packets no longer arrive.
    """
    for listener in listening_sockets(page):  # accepted connections inherit the options
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
