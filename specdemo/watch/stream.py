"""What a server answers, as JSON objects: bounded, never redirected, and every fault in one sentence.

The sentences name the server as its host does; where it is, and what else it said, is for the log.
"""

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

from specdemo.records.limits import UserError
from specdemo.service.queue import Stop
from specdemo.watch.servers import KEY

CONNECT_S, SILENT_S = 5.0, 30.0
"""How long a server may take to answer a connection, and between two pieces of its answer."""
REPLY_S = 30.0
"""How long a reply that is no stream may take in all."""
POLL_S = 0.05
MOST_BYTES = 8_000_000
"""Of a whole answer; with five alternatives a token, a thousand tokens take about 1 MB, as objects more."""
MOST_EVENT = 1_000_000
"""Of one event, in bytes."""
MOST_EVENTS = 20_000
"""Of one answer; a run has a thousand tokens at most."""
MOST_REPLY = 1_000_000
"""Of a reply that is no stream."""
TYPE = "text/event-stream"
DONE = "[DONE]"
_PRIVATE = re.compile(
    r"://|[/\\]\w|\d+\.\d+\.\d+\.\d+|::|[\w\]]:\d|\bport\b|localhost|\b[\w-]+\.[a-z]{2,}\b|[<>]",
    re.IGNORECASE,
)
"""In the words of a server: an address, a folder or a tag, which are not for visitors."""
_log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """One event of a stream, and when it was here, in seconds since the request was sent."""

    data: dict[str, Any]
    at: float


def reply(url: str, name: str, stop: Stop) -> dict[str, Any] | None:
    """The JSON object that a server answers a GET with; None where ``stop`` ended the wait for it.

    Raises:
        UserError: It cannot be reached, takes too long, or answers something else.
    """

    def get(client: httpx.Client, tell: Callable[[Chunk], None]) -> None:
        began = monotonic()
        with client.stream("GET", url) as response:
            _require_success(response, name)
            whole = b"".join(_bounded(response.iter_raw(), MOST_REPLY, name))
        tell(Chunk(_object(whole, name), monotonic() - began))

    with closing(_apart(get, name, stop, REPLY_S)) as told:
        return next((chunk.data for chunk in told), None)


def chunks(url: str, name: str, body: Mapping[str, Any], stop: Stop) -> Generator[Chunk, None, None]:
    """The events of a stream, until its end or until ``stop`` says so; to be read on one thread.

    Raises:
        UserError: It cannot be reached, breaks off, is silent, or streams no JSON objects.
    """

    def post(client: httpx.Client, tell: Callable[[Chunk], None]) -> None:
        began, content = monotonic(), json.dumps(dict(body))
        headers = {"Content-Type": "application/json"}
        with client.stream("POST", url, content=content, headers=headers) as response:
            _require_success(response, name)
            _require_stream(response, name)
            for data in _payloads(_bounded(response.iter_raw(), MOST_BYTES, name), name):
                tell(Chunk(_told(_object(data, name), name), monotonic() - began))

    return _apart(post, name, stop, math.inf)


def _apart(
    work: Callable[[httpx.Client, Callable[[Chunk], None]], None], name: str, stop: Stop, most_s: float
) -> Generator[Chunk, None, None]:
    """What ``work`` tells on a thread of its own, for so long at most; who stops reading ends it at once."""
    told: SimpleQueue[Chunk | UserError | None] = SimpleQueue()
    line = _Line()
    threading.Thread(target=_do, args=(work, name, line, told), name="watch", daemon=True).start()
    end = monotonic() + most_s
    try:
        while not stop():
            if monotonic() > end:
                raise UserError(f"{name} took more than {most_s:g} s to answer; try again later.")
            with suppress(Empty):
                chunk = told.get(timeout=POLL_S)
                if chunk is None:
                    return
                if isinstance(chunk, UserError):
                    raise chunk
                yield chunk
    finally:
        line.hang_up()


def _do(
    work: Callable[[httpx.Client, Callable[[Chunk], None]], None],
    name: str,
    line: "_Line",
    told: "SimpleQueue[Chunk | UserError | None]",
) -> None:
    """Work into ``told``, where None is the end; for a thread, which a line that is hung up ends."""
    try:
        with _faults(name, line), _client(line) as client:
            work(client, told.put)
        told.put(None)
    except UserError as error:
        told.put(error)
    except Exception as error:  # a line that is hung up may raise anything; whoever reads must not wait
        _log.info("Watching %s ended: %s", name, error)
        told.put(UserError(f"The connection to {name} was lost; try again."))


class _Line:
    """The connections of one client, which another thread can end: closing one would wait for its reader."""

    def __init__(self) -> None:
        self.ended = False
        self._sockets: list[socket.socket] = []

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """What httpcore tells of its connections."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.ended:
                raise httpx.ConnectError("hung up")

    def hang_up(self) -> None:
        """End them, and those that are still to come."""
        self.ended = True
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _client(line: _Line) -> httpx.Client:
    def traced(request: httpx.Request) -> None:
        request.extensions["trace"] = line.trace

    headers = {"Accept-Encoding": "identity"}
    if key := _key():
        headers["Authorization"] = f"Bearer {key}"
    timeout = httpx.Timeout(SILENT_S, connect=CONNECT_S)
    hooks = {"request": [traced]}
    return httpx.Client(
        headers=headers,
        timeout=timeout,
        verify=_authorities(),
        follow_redirects=False,
        trust_env=False,
        event_hooks=hooks,
    )


def _key() -> str:
    return os.environ.get(KEY, "").strip()


@cache
def _authorities() -> ssl.SSLContext:
    """Whom to believe who a server is; reading them takes longer than many an answer."""
    return httpx.create_ssl_context(trust_env=False)


class _faults:  # noqa: N801 - reads as the context it is
    """Turns what the connection raises into sentences."""

    def __init__(self, name: str, line: _Line):
        self._name = name
        self._line = line

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if not isinstance(error, httpx.HTTPError) or self._line.ended:
            return
        _log.warning("Watching %s failed: %r", self._name, error)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            raise UserError(f"{self._name} cannot be reached now; try again later.") from error
        if isinstance(error, httpx.TimeoutException):
            raise UserError(f"{self._name} was silent for {SILENT_S:g} s; try again later.") from error
        raise UserError(f"The connection to {self._name} broke off; try again.") from error


def _require_success(response: httpx.Response, name: str) -> None:
    if response.is_redirect:
        _log.warning("%s redirects to %r", name, response.headers.get("location", "")[:200])
        raise UserError(
            f"{name} answers with a redirect, which is not followed; its host has to give its address."
        )
    if response.is_success:
        return
    words = b"".join(_bounded(response.iter_raw(), MOST_REPLY, name)).decode(errors="replace")
    _log.warning("%s answers with status %d: %s", name, response.status_code, words[:500])
    raise UserError(f"{name} refused this (status {response.status_code}){_reason(words)}.")


def _require_stream(response: httpx.Response, name: str) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != TYPE:
        _log.warning("%s answers with %r where a stream was expected", name, kind[:80])
        what = "a web page" if "html" in kind else "no stream of events"
        raise UserError(f"{name} answers with {what}; its host has to give the address of the model server.")


def _bounded(parts: Iterator[bytes], most: int, name: str) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > most:
            raise UserError(f"{name} sent more than {most:,} bytes; this was ended.")
        yield part


def _payloads(parts: Iterator[bytes], name: str) -> Iterator[bytes]:
    """What stands behind ``data:`` in a stream of server-sent events, until ``[DONE]``."""
    seen = 0
    for line in _lines(parts, name):
        if line.startswith(b"data:"):
            data = line[len(b"data:") :].strip()
            if data == DONE.encode():
                return
            seen += 1
            if seen > MOST_EVENTS:
                raise UserError(f"{name} sent more than {MOST_EVENTS:,} events; this was ended.")
            yield data
    raise UserError(f"The stream of {name} was cut off before its end; try again.")


def _lines(parts: Iterator[bytes], name: str) -> Iterator[bytes]:
    line = bytearray()
    for part in parts:
        for index, piece in enumerate(part.split(b"\n")):
            if index:
                yield bytes(line)
                line.clear()
            line += piece
            if len(line) > MOST_EVENT:
                raise UserError(f"{name} sent an event of more than {MOST_EVENT:,} bytes; this was ended.")


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        _log.warning("%s sent no JSON object: %r", name, data[:200])
        raise UserError(f"{name} sent something that is no JSON object; it may be no model server.")
    return found


def _told(data: dict[str, Any], name: str) -> dict[str, Any]:
    """An event, unless it tells an error: servers send those with status 200, too."""
    if error := data.get("error"):
        words = error.get("message") if isinstance(error, dict) else error
        _log.warning("%s says: %s", name, str(words)[:500])
        raise UserError(f"{name} ended this{_reason(json.dumps({'error': {'message': words}}))}.")
    return data


def _reason(words: str) -> str:
    """The message in an error's JSON as a clause, if there is one that is harmless to show."""
    message: Any = None
    with suppress(ValueError, RecursionError, AttributeError):
        found = json.loads(words)
        error = found.get("error", found)
        message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str) or _PRIVATE.search(message) or (_key() and _key() in message):
        return ""
    seen = "".join(char for char in " ".join(message.split()) if char.isprintable())
    short = seen[:200].rstrip(" .")
    return f": {short}" if short else ""
