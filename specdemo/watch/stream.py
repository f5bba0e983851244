"""What a server answers, as JSON objects: bounded, never redirected, and every fault in one sentence.

The sentences name the server as its host does; where it is, and what else it said, is for the log.
"""

import json
import logging
import os
import re
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

import httpx

from specdemo.records.limits import UserError
from specdemo.service.queue_place import Stop
from specdemo.watch.servers import KEY

CONNECT_S, SILENT_S = 5.0, 30.0
"""How long a server may take to answer a connection, and between two pieces of its answer."""
POLL_S = 0.05
MOST_BYTES = 32_000_000
"""Of a whole answer; with five alternatives a token, a thousand tokens take about 1 MB."""
MOST_EVENT = 1_000_000
"""Of one event, in bytes."""
MOST_REPLY = 1_000_000
"""Of a reply that is no stream."""
TYPE = "text/event-stream"
DONE = "[DONE]"
_PRIVATE = re.compile(r"://|[/\\]\w|\d+\.\d+\.\d+\.\d+|localhost")
"""In the words of a server: an address or a folder, which are not for visitors."""
_log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """One event of a stream, and when it was here, in seconds since the request was sent."""

    data: dict[str, Any]
    at: float


def reply(url: str, name: str) -> dict[str, Any]:
    """The JSON object that a server answers a GET with.

    Raises:
        UserError: It cannot be reached, or answers something else.
    """
    with _client() as client, _faults(name), client.stream("GET", url) as response:
        _require_success(response, name)
        return _object(b"".join(_bounded(response.iter_raw(), MOST_REPLY, name)), name)


def chunks(url: str, name: str, body: Mapping[str, Any], stop: Stop) -> Generator[Chunk, None, None]:
    """The events of a stream, until its end or until ``stop`` says so; to be read on one thread.

    Raises:
        UserError: It cannot be reached, breaks off, is silent, or streams no JSON objects.
    """
    with _client() as client:
        told: SimpleQueue[Chunk | UserError | None] = SimpleQueue()
        arguments = client, url, name, body, told
        threading.Thread(target=_read, args=arguments, name="watch", daemon=True).start()
        while not stop():
            with suppress(Empty):
                chunk = told.get(timeout=POLL_S)
                if chunk is None:
                    return
                if isinstance(chunk, UserError):
                    raise chunk
                yield chunk


def _read(
    client: httpx.Client,
    url: str,
    name: str,
    body: Mapping[str, Any],
    told: "SimpleQueue[Chunk | UserError | None]",
) -> None:
    """Read a stream into ``told``, where None is its end; for a thread, which a closed client ends."""
    try:
        with _faults(name):
            began = monotonic()
            with client.stream("POST", url, json=dict(body)) as response:
                _require_success(response, name)
                _require_stream(response, name)
                for data in _payloads(_bounded(response.iter_raw(), MOST_BYTES, name), name):
                    told.put(Chunk(_told(_object(data, name), name), monotonic() - began))
            told.put(None)
    except UserError as error:
        told.put(error)
    except Exception as error:  # a closed client may raise anything; whoever reads must not wait for ever
        _log.info("Watching %s ended: %s", name, error)
        told.put(UserError(f"The connection to {name} was lost; try again."))


def _client() -> httpx.Client:
    headers = {"Accept-Encoding": "identity"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    timeout = httpx.Timeout(SILENT_S, connect=CONNECT_S)
    return httpx.Client(headers=headers, timeout=timeout, follow_redirects=False, trust_env=False)


class _faults:  # noqa: N801 - reads as the context it is
    """Turns what the connection raises into sentences."""

    def __init__(self, name: str):
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if not isinstance(error, httpx.HTTPError):
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
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > MOST_EVENT or any(len(line) > MOST_EVENT for line in lines):
            raise UserError(f"{name} sent an event of more than {MOST_EVENT:,} bytes; this was ended.")
        for line in lines:
            if line.startswith(b"data:"):
                data = line[len(b"data:") :].strip()
                if data == DONE.encode():
                    return
                yield data
    raise UserError(f"The stream of {name} was cut off before its end; try again.")


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
    if not isinstance(message, str) or not message.strip() or _PRIVATE.search(message):
        return ""
    return f": {' '.join(message.split())[:200].rstrip('.')}"
