"""A stand-in for an inference server, which gives a test's answers over real HTTP, good and bad ones."""

import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps, loads
from typing import Any

from helpers.recorded_streams import recorded
from helpers.waiting import PATIENCE_S

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    parts: Iterable[bytes] | Callable[[], Iterator[bytes]] = ()  # each in a write of its own
    status: int = 200
    kind: str = SSE
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_s: float = 0.0  # waited before each part
    first_s: float = 0.0  # waited before anything at all
    ends: str = "well"  # or "cut" off without the end of the body, or "never"

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts() if callable(self.parts) else self.parts)


CLOSED = Answer(status=0)
"""Close the connection without an answer."""


def replayed(name: str, size: int = 0, **more: Any) -> Answer:
    body = recorded(name)
    if size:
        parts = [body[at : at + size] for at in range(0, len(body), size)]
    else:
        parts = [event + b"\n\n" for event in body.split(b"\n\n") if event.strip()]
    return Answer(parts, **more)


def gated(name: str, gate: threading.Event) -> Answer:
    parts = list(replayed(name))

    def body() -> Iterator[bytes]:
        yield from parts[: len(parts) // 2]
        gate.wait(PATIENCE_S)
        yield from parts[len(parts) // 2 :]

    return Answer(body)


def streamed(*events: Any, done: bool = True, **more: Any) -> Answer:
    """Events as given: bytes as they are, anything else as JSON."""
    lines = [event if isinstance(event, bytes) else dumps(event).encode() for event in events]
    return Answer([b"data: " + line + b"\n\n" for line in lines] + [DONE] * done, **more)


def json_answer(value: Any, status: int = 200, **more: Any) -> Answer:
    body = value if isinstance(value, bytes) else dumps(value).encode()
    return Answer([body], status, **{"kind": JSON, **more})


class StandIn:
    """The server's answers and records; tests may change it while it serves."""

    def __init__(self, models: Answer, stream: Answer):
        self.models, self.stream = models, stream  # the answers to /v1/models and to a request to write
        self.asked: list[tuple[str, dict[str, Any]]] = []  # path and body of every request to write
        self.keys: list[str | None] = []  # the Authorization of every request
        self.sent = 0  # bytes of bodies
        self.left = threading.Event()  # set if a client goes before the end of its answer
        self.url = ""


@contextmanager
def stand_in(models: Answer | str, stream: Answer = CLOSED) -> Iterator[StandIn]:
    """Serve while the context lasts; ``models`` may name a recorded list."""
    known = Answer([recorded(models)], kind=JSON) if isinstance(models, str) else models
    state = StandIn(known, stream)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    server.daemon_threads = True
    server.block_on_close = False
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _handler(state: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.keys.append(self.headers.get("Authorization"))
            self._answer(state.models if self.path == "/v1/models" else Answer(status=404, kind=JSON))

        def do_POST(self) -> None:
            body = loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.keys.append(self.headers.get("Authorization"))
            state.asked.append((self.path, body))
            self._answer(state.stream)

        def _answer(self, answer: Answer) -> None:
            self.close_connection = True
            try:
                self._waited(answer.first_s)
                if answer.status:
                    self._send(answer)
            except OSError:
                state.left.set()

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            headers = {"Content-Type": answer.kind, "Transfer-Encoding": "chunked", "Connection": "close"}
            for name, value in {**headers, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for part in answer:
                self._waited(answer.pause_s)
                if part:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                    state.sent += len(part)
            if answer.ends == "never":
                self._waited(PATIENCE_S)
            elif answer.ends == "well":
                self.wfile.write(b"0\r\n\r\n")

        def _waited(self, seconds: float) -> None:
            """Wait, unless the client goes."""
            end = time.monotonic() + seconds
            while (rest := end - time.monotonic()) > 0:
                if select.select([self.connection], [], [], rest)[0]:
                    raise ConnectionResetError

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
