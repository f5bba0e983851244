"""HTTP requests to a watched server, with replies of limited size. Visitors see the server's name, never its
address, and its own error message only if that contains no address, path or key; the log has all of them."""

import json
import logging
import math
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from functools import cache
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

import httpx
import httpx_sse

from specdemo.records.limits import UserError
from specdemo.service.queue import Stop
from specdemo.watch.reader import finish_of

KEY = "SPECDEMO_WATCH_KEY"
CONNECT_S, SILENT_S = 5.0, 30.0  # maximum waits for a connection, and for the next part of a reply
REPLY_S = 30.0  # maximum time for a whole JSON reply
POLL_S = 0.05
MAX_BYTES = 8_000_000  # of a stream; a thousand tokens with five alternatives each take about 1 MB
MAX_EVENT = 1_000_000  # characters of an event, and bytes of a JSON reply
MAX_EVENTS = 20_000  # of a stream; a run has at most about a thousand tokens
EVENT_STREAM = "text/event-stream"
DONE = "[DONE]"
_PRIVATE = re.compile(
    r"://|[/\\]\w|\d+\.\d+\.\d+\.\d+|::|[\w\]]:\d|\bport\b|localhost|\b[\w-]+\.[a-z]{2,}\b|[<>]",
    re.IGNORECASE,
)
"""Matches an address, a path or an HTML tag. An error message that matches is not shown to visitors."""
_log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    data: dict[str, Any]
    at: float
    """The arrival time of the event, in seconds since the request was sent."""


def fetch_json(url: str, name: str, stop: Stop) -> dict[str, Any] | None:
    """Send a GET request and return the JSON object in the reply; None if ``stop`` ended the wait."""

    def read(client: httpx.Client) -> Iterator[Chunk]:
        with client.stream("GET", url) as response:
            _require_success(response, name)
            body = b"".join(_bounded(response.iter_raw(), MAX_EVENT, name))
        yield Chunk(_json_object(body, name), 0.0)

    with closing(_read_on_thread(read, name, stop, REPLY_S)) as chunks:
        return next((chunk.data for chunk in chunks), None)


def stream_chunks(url: str, name: str, body: Mapping[str, Any], stop: Stop) -> Generator[Chunk, None, None]:
    """Send a POST request, and yield the events of the reply until it ends or ``stop`` returns True."""

    def read(client: httpx.Client) -> Iterator[Chunk]:
        began = monotonic()
        headers = {"Content-Type": "application/json"}
        is_complete = False
        with client.stream("POST", url, content=json.dumps(dict(body)), headers=headers) as response:
            _require_success(response, name)
            _require_event_stream(response, name)
            try:
                for data in _event_data(response, name):
                    if data.strip() == DONE:
                        return
                    found = _require_no_error(_json_object(data, name), name)
                    is_complete = is_complete or finish_of(found) is not None
                    yield Chunk(found, monotonic() - began)
            except httpx.TransportError:
                if not is_complete:
                    raise
        if not is_complete:  # some servers end a complete stream without [DONE]
            raise UserError(f"The reply from {name} ended before the run was complete; try again.")

    return _read_on_thread(read, name, stop, math.inf)


def _read_on_thread(
    read: Callable[[httpx.Client], Iterator[Chunk]], name: str, stop: Stop, max_s: float
) -> Generator[Chunk, None, None]:
    """Call ``read`` on a separate thread, and yield its chunks.

    The thread continues to read while the caller is busy, so arrival times are correct. A stop does not wait
    for the server, and closing the generator closes the connection at once.
    """
    received: SimpleQueue[Chunk | UserError | None] = SimpleQueue()
    connections = _Connections()

    def work() -> None:
        result = None
        try:
            with connections.client() as client:
                for chunk in read(client):
                    received.put(chunk)
        except UserError as error:
            result = error
        except Exception as error:  # after any exception, the waiting caller must get a result
            if not connections.closed:
                _log.warning("Watching %s failed: %r", name, error)
            result = UserError(_sentence(error, name))
        received.put(result)

    threading.Thread(target=work, name="watch", daemon=True).start()
    end = monotonic() + max_s
    try:
        while not stop():
            if monotonic() > end:
                raise UserError(f"{name} took more than {max_s:g} s to answer; try again later.")
            with suppress(Empty):
                chunk = received.get(timeout=POLL_S)
                if chunk is None:
                    return
                if isinstance(chunk, UserError):
                    raise chunk
                yield chunk
    finally:
        connections.close()


class _Connections:
    """The sockets of one HTTP client, which another thread can close during a read."""

    def __init__(self) -> None:
        self.closed = False
        self._sockets: list[socket.socket] = []

    def client(self) -> httpx.Client:
        def trace(event: str, info: Mapping[str, Any]) -> None:
            if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
                self._sockets.append(info["return_value"].get_extra_info("socket"))
                if self.closed:
                    raise httpx.ConnectError("closed")

        headers = {"Accept-Encoding": "identity"}
        if key := _key():
            headers["Authorization"] = f"Bearer {key}"
        return httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(SILENT_S, connect=CONNECT_S),
            verify=_certificates(),
            follow_redirects=False,
            trust_env=False,
            event_hooks={"request": [lambda request: request.extensions.update(trace=trace)]},
        )

    def close(self) -> None:
        # ``Client.close`` would wait for the thread that reads.
        self.closed = True
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _key() -> str:
    return os.environ.get(KEY, "").strip()


@cache  # reading the certificates takes longer than many answers
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _sentence(error: Exception, name: str) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"{name} cannot be reached now; try again later."
    if isinstance(error, httpx.TimeoutException):
        return f"{name} was silent for {SILENT_S:g} s; try again later."
    return f"The connection to {name} was lost; try again."


def _require_success(response: httpx.Response, name: str) -> None:
    if response.is_redirect:
        _log.warning("%s redirects to %r", name, response.headers.get("location", "")[:200])
        raise UserError(f"{name} redirects to a different address. The address in --watch must be that one.")
    if response.is_success:
        return
    body = b"".join(_bounded(response.iter_raw(), MAX_EVENT, name)).decode(errors="replace")
    _log.warning("%s answers with status %d: %s", name, response.status_code, body[:500])
    error: Any = None
    with suppress(ValueError, RecursionError, AttributeError):
        found = json.loads(body)
        error = found.get("error", found)
    raise UserError(
        f"{name} refused the request (status {response.status_code}){_reason(error)}; "
        "try again, or change the prompt or the settings."
    )


def _require_event_stream(response: httpx.Response, name: str) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != EVENT_STREAM:
        _log.warning("%s answers with %r instead of a stream", name, kind[:80])
        found = "sent a web page" if "html" in kind else "did not send a stream of events"
        raise UserError(f"{name} {found}. The address in --watch must be that of a model server.")


def _bounded(parts: Iterator[bytes], max_bytes: int, name: str) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > max_bytes:
            raise UserError(f"{name} sent more than {max_bytes:,} bytes; try a shorter run.")
        yield part


def _event_data(response: httpx.Response, name: str) -> Iterator[str]:
    """Yield the data of each server-sent event."""
    # httpx-sse does not limit sizes, and decompresses a reply whose headers say that it is compressed. So it
    # gets a new response with the size-limited stream and without the server's headers.
    parts = _bounded(response.iter_raw(), MAX_BYTES, name)
    bare = httpx.Response(200, headers={"Content-Type": f"{EVENT_STREAM}; charset=utf-8-sig"}, content=parts)
    with_data = (event.data for event in httpx_sse.EventSource(bare).iter_sse() if event.data)
    for count, data in enumerate(with_data, 1):
        if len(data) > MAX_EVENT:
            raise UserError(
                f"{name} sent an event of more than {MAX_EVENT:,} characters; choose a different server."
            )
        if count > MAX_EVENTS:
            raise UserError(f"{name} sent more than {MAX_EVENTS:,} events; try a shorter run.")
        yield data


def _json_object(data: str | bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        _log.warning("%s sent no JSON object: %r", name, data[:200])
        raise UserError(f"{name} sent invalid JSON. The address in --watch must be that of a model server.")
    return found


def _require_no_error(data: dict[str, Any], name: str) -> dict[str, Any]:
    # An error may come with status 200; older versions of vLLM send its fields without an object around them.
    if error := data.get("error") or (data.get("object") == "error" and data):
        _log.warning("%s reports an error: %s", name, str(error)[:500])
        raise UserError(
            f"{name} reported an error and ended the run{_reason(error)}; try again, or change the prompt or "
            "the settings."
        )
    return data


def _reason(error: Any) -> str:
    """Return ``": "`` and the server's error message, or ``""`` if visitors must not see the message."""
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str) or _PRIVATE.search(message) or (_key() and _key() in message):
        return ""
    printable = "".join(char for char in " ".join(message.split()) if char.isprintable())
    short = printable[:200].rstrip(" .")
    return f": {short}" if short else ""
