"""Recorded runs, trace files and the lab's quick answers over HTTP, without a browser."""

import asyncio
import gzip
import json
import re
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers.http_visitor import PLAIN
from helpers.replay import recorded, trace_of
from helpers.tiny_runs import finished
from helpers.waiting import PATIENCE_S, until
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdemo.engine.race import replay_events
from specdemo.lab.answers import run_answer
from specdemo.records import recordings
from specdemo.records.trace import dump
from specdemo.records.trace_file import MAX_BYTES
from specdemo.ui import stage
from specdemo.ui.http import own_routes, posts

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.fixture
def client(monkeypatch) -> Iterator[TestClient]:
    for name, places in (("_slots", own_routes.MAX_CONVERSIONS), ("_uploads", own_routes.MAX_UPLOADS)):
        monkeypatch.setattr(own_routes, name, asyncio.Semaphore(places))  # each belongs to one event loop
    routes = [*own_routes.own_routes(), *stage.routes()]
    with TestClient(Starlette(routes=routes, exception_handlers=posts.ERROR_HANDLERS)) as client:
        yield client


def events_in(response: Any) -> list:
    assert response.status_code == 200 and response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def test_texts_that_gradio_does_not_compress_are_compressed(client):
    recording = recordings.listed()[0].name
    trace = recordings.FOLDER.joinpath(f"{recording}.json").read_bytes()
    replies = [
        client.get(f"/specdemo-traces/{recording}.ndjson"),
        client.get("/specdemo-static/learn/quiz-answers.ndjson"),
        client.get("/specdemo-static/proof/recorded/other-libraries.ndjson"),
        client.post("/specdemo-traces", content=trace),
        client.post("/specdemo-lab/run", content=trace),
    ]
    for reply in replies:
        assert (reply.status_code, reply.headers["content-encoding"]) == (200, "gzip")
        assert int(reply.headers["content-length"]) < len(reply.content) / 2
    plain = client.get(f"/specdemo-traces/{recording}.ndjson", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == replies[0].content


def test_a_recording_is_listed_and_comes_as_events_and_as_an_answer(client):
    [first, *_] = client.get("/specdemo-traces/index.json").json()
    run = recordings.load(first["name"])
    assert first["tokens"] == run.totals["tokens"] and first["pair"] == run.pair
    response = client.get(f"/specdemo-traces/{first['name']}.ndjson")
    assert events_in(response) == [json.loads(dump(event)) for event in replay_events(run)]
    assert "set-cookie" not in response.headers
    answer = client.get(f"/specdemo-lab/run/{first['name']}.json").json()
    assert answer == json.loads(dump(run_answer(run)))


def test_a_trace_file_comes_back_as_events_and_is_placed_and_judged(client):
    response = client.post("/specdemo-traces", content=finished().to_json().encode())
    assert events_in(response) == [json.loads(dump(event)) for event in replay_events(finished())]
    events = recorded("greedy")
    answer = client.post("/specdemo-lab/run", content=dump(trace_of(events))).json()
    totals = events[-1]["totals"]
    assert answer["point"]["alpha"] == pytest.approx(totals["alpha_compared"])
    assert answer["point"]["s_theory"] == pytest.approx(totals["s_theory"])
    assert answer["oracle"]["s_cost"] == pytest.approx(totals["s_cost"])


def test_a_trace_with_an_infinite_number_or_a_compressed_one_is_refused(client):
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        body = re.sub(rb'("p":)[0-9.e-]+', rb"\g<1>" + number, finished().to_json().encode())
        response = client.post("/specdemo-traces", content=body)
        assert response.status_code == 400 and response.json()["error"].startswith("This "), number
    bomb = gzip.compress(b" " * 1_000_000)
    response = client.post("/specdemo-traces", content=bomb, headers={"content-encoding": "gzip"})
    assert response.status_code == 400 and "JSON" in response.json()["error"]


def test_two_files_are_converted_at_once_and_with_eight_in_memory_another_is_refused(client, monkeypatch):
    go_on, converting = threading.Event(), []

    def held(body: bytes) -> Any:
        converting.append(body)
        assert go_on.wait(PATIENCE_S)
        return finished()

    monkeypatch.setattr(own_routes.trace_file, "load", held)
    post = lambda: client.post("/specdemo-traces", content=b"x")  # noqa: E731
    with ThreadPoolExecutor(own_routes.MAX_UPLOADS) as pool:
        uploads = [pool.submit(post) for _ in range(own_routes.MAX_UPLOADS)]
        until(lambda: own_routes._uploads.locked() and len(converting) == own_routes.MAX_CONVERSIONS)
        refused = post()
        assert len(converting) == own_routes.MAX_CONVERSIONS
        go_on.set()
        assert [reply.result().status_code for reply in uploads] == [200] * own_routes.MAX_UPLOADS
    assert refused.status_code == 503 and "Too many files" in refused.json()["error"]
    assert post().status_code == 200


def test_the_offline_page_is_served_before_the_static_files(client):
    response = client.get("/specdemo-static/player.html")
    assert response.headers["content-type"].startswith("text/html")
    assert response.text.count('<script type="application/x-ndjson" id="specdemo-events"></script>') == 1
    assert client.get("/specdemo-static/stage/stage.js").status_code == 200


@contextmanager
def stalled(url: str, count: int, sent: int, length: int = 1_000_000) -> Iterator[list[socket.socket]]:
    """Yield the connections of ``count`` uploads that stop after ``sent`` bytes."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    head = f"POST /specdemo-traces HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {length}\r\n\r\n"
    address = (parts.hostname, parts.port)
    with ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        for line in lines:
            line.sendall(head.encode() + b"{" * sent)
        yield lines


def test_an_upload_that_stalls_is_refused_and_a_large_one_is_refused_unread(url, monkeypatch):
    monkeypatch.setattr(posts, "READING_S", 0.3)
    for length, status, words in ((1_000_000, 408, "too long to arrive"), (MAX_BYTES + 1, 413, "too large")):
        with stalled(url, 1, sent=1, length=length) as [line]:
            reply = HTTPResponse(line)
            reply.begin()
            assert reply.status == status and words in json.loads(reply.read())["error"]


def test_stalled_uploads_do_not_block_others(url):
    with stalled(url, 3 * own_routes.MAX_UPLOADS, sent=1):
        assert PLAIN.post(f"{url}specdemo-traces", content=finished().to_json()).status_code == 200


def test_with_too_many_bytes_arriving_the_largest_body_is_refused(url, monkeypatch):
    body = finished().to_json().encode()
    monkeypatch.setattr(own_routes, "_partial_bodies", posts.PartialBodies(4 * len(body)))
    with stalled(url, 3, sent=2 * len(body)) as lines:
        refused, *_ = select.select(lines, [], [], PATIENCE_S)
        assert b" 408 " in refused[0].recv(100)
        assert PLAIN.post(f"{url}specdemo-traces", content=body).status_code == 200
