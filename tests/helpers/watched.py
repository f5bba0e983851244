"""Record what a server does besides replying: files in Gradio's cache, outgoing calls, logged faults."""

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from gradio import processing_utils

LOOPBACK = "127.0.0.1"


class _Bait(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.callers.append(f"the listener, for {self.path}")
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"bait")

    def log_message(self, *_: Any) -> None:
        pass


class Watched:
    """Records what the servers of this process do, except on their ``own`` ports.

    ``bait`` is the address of a file that nobody should fetch, though Gradio may.
    """

    def __init__(self, cache: Path):
        self._cache = cache
        self._called: list[str] = []
        self._listener = HTTPServer((LOOPBACK, 0), _Bait)
        self._listener.callers = self._called
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()
        self.bait = f"http://{LOOPBACK}:{self._listener.server_port}/bait.png"
        self.own: set[int] = set()
        self.faults: list[str] = []

    def seen(self) -> dict[str, list[str]]:
        """Return all actions since the start that the server should not take."""
        files = [str(path) for path in self._cache.rglob("*") if path.is_file()]
        return {"files": files, "calls": self._called, "faults": self.faults}

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo" and arguments[0] not in (LOOPBACK, "localhost", None):
            self._called.append(f"the address of {arguments[0]!r}")
        if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][1] not in self.own:
            self._called.append(str(arguments[1]))

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()


class _Faults(logging.Handler):
    def __init__(self, faults: list[str]):
        super().__init__(logging.WARNING)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self._faults.append(f"{record.name}: {record.getMessage()} {record.exc_info}")


@contextmanager
def watching(cache: Path) -> Iterator[Watched]:
    """Yield a record of this process; Gradio's cache is ``cache``, and Gradio may call this machine."""
    watched = Watched(cache)
    active = [watched]
    sys.addaudithook(lambda event, arguments: [one.heard(event, arguments) for one in active] and None)
    handler, loggers = _Faults(watched.faults), [logging.getLogger(name) for name in ("", "uvicorn")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(cache))
        patch.setattr(processing_utils, "PUBLIC_HOSTNAME_WHITELIST", [LOOPBACK, "localhost"])
        patch.setattr(traceback, "print_exc", lambda *_: watched.faults.append(traceback.format_exc()))
        for logger in loggers:
            logger.addHandler(handler)
        yield watched
        for logger in loggers:
            logger.removeHandler(handler)
    active.clear()
    watched.close()
