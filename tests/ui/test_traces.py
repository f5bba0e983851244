"""Recorded runs over HTTP, without a browser."""

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from urllib.parse import urlsplit

import pytest
from helpers.http_visitor import PLAIN
from helpers.tiny_runs import finished
from helpers.waiting import PATIENCE_S, until
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdemo.engine.race import replay_events
from specdemo.records import recordings
from specdemo.records.trace import dump
from specdemo.records.trace_file import MAX_BYTES
from specdemo.ui import stage
from specdemo.ui.http import own_routes, posts

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.fixture
def client(tmp_path, monkeypatch) -> Iterator[TestClient]:
    """Yield a client of the own routes over one recording."""
    (tmp_path / "demo.json").write_text(finished().to_json(), encoding="utf-8")
    index = [{"name": "demo", "title": "Demo", "about": "A tiny run."}]
    (tmp_path / "index.json").write_text(json.dumps(index), encoding="utf-8")
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    own_routes._recorded_events.cache_clear()
    for name, places in (("_slots", own_routes.MAX_CONVERSIONS), ("_uploads", own_routes.MAX_UPLOADS)):
        monkeypatch.setattr(own_routes, name, asyncio.Semaphore(places))  # each belongs to one event loop
    app = Starlette(
        routes=[*own_routes.own_routes(), *stage.routes()], exception_handlers=posts.ERROR_HANDLERS
    )
    with TestClient(app) as client:
        yield client


def expected_lines() -> list:
    return [json.loads(dump(event)) for event in replay_events(finished())]


def test_the_list_names_the_recordings(client):
    (entry,) = client.get("/specdemo-traces/index.json").json()
    assert (entry["name"], entry["title"], entry["tokens"]) == ("demo", "Demo", 24)
    assert entry["pair"] == {"target": "tiny target", "draft": "tiny draft"}


def test_a_recording_comes_as_the_events_of_its_run(client):
    response = client.get("/specdemo-traces/demo.ndjson")
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in response.text.splitlines()] == expected_lines()
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("name", ["nope", "..%2Fdemo", "index"])
def test_an_unknown_recording_is_refused_in_a_sentence(client, name):
    response = client.get(f"/specdemo-traces/{name}.ndjson")
    assert response.status_code == 404
    if name != "..%2Fdemo":  # an unknown address
        assert response.json() == {"error": "There is no recording of that name; choose one of: demo."}


def test_a_trace_file_comes_back_as_events(client):
    response = client.post("/specdemo-traces", content=finished().to_json().encode())
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in response.text.splitlines()] == expected_lines()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "This file is not a trace"),
        (b'{"version":1}', 400, "This trace is damaged: config is missing."),
        (b" " * (MAX_BYTES + 1), 413, "The file is too large; a trace has at most 16,000,000 bytes."),
    ],
    ids=["empty", "damaged", "large"],
)
def test_a_bad_file_is_refused_in_a_sentence(client, body, status, words):
    response = client.post("/specdemo-traces", content=body)
    assert response.status_code == status
    assert set(response.json()) == {"error"} and response.json()["error"].startswith(words)


def test_at_most_two_files_are_unfolded_at_once(client, monkeypatch):
    lock, together, most = threading.Lock(), 0, 0
    two = threading.Barrier(2, timeout=PATIENCE_S)

    def slowly(body: bytes) -> bytes:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        two.wait()
        time.sleep(0.1)  # time for a third to start
        with lock:
            together -= 1
        return body

    monkeypatch.setattr(own_routes.trace_file, "load", slowly)
    monkeypatch.setattr(own_routes, "replay_lines", bytes.decode)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.post("/specdemo-traces", content=b"x"), range(6)))
    assert [answer.status_code for answer in answers] == [200] * 6
    assert most == 2


def test_the_offline_page_is_served_before_the_static_files(client):
    response = client.get("/specdemo-static/player.html")
    assert response.headers["content-type"].startswith("text/html")
    assert response.text.count('<script type="application/x-ndjson" id="specdemo-events"></script>') == 1
    assert client.get("/specdemo-static/stage/stage.js").status_code == 200


def test_the_page_has_the_same_size_limit():
    script = (stage.STATIC / "stage" / "recordings.js").read_text(encoding="utf-8")
    assert f"const MOST_BYTES = {MAX_BYTES:_};" in script


def test_the_number_of_held_files_is_limited(client, monkeypatch):
    opened = threading.Event()
    monkeypatch.setattr(own_routes.trace_file, "load", lambda body: opened.wait(PATIENCE_S) and finished())
    with ThreadPoolExecutor(own_routes.MAX_UPLOADS) as pool:
        held = [
            pool.submit(client.post, "/specdemo-traces", content=b"x") for _ in range(own_routes.MAX_UPLOADS)
        ]
        until(own_routes._uploads.locked)
        turned_away = client.post("/specdemo-traces", content=b"x")
        opened.set()
        assert [reply.result().status_code for reply in held] == [200] * own_routes.MAX_UPLOADS
    assert turned_away.status_code == 503
    assert turned_away.json() == {"error": "Too many files are being sent; please try again in a minute."}
    assert client.post("/specdemo-traces", content=b"x").status_code == 200


@contextmanager
def stalled(url: str, count: int, sent: int, length: int = 1_000_000) -> Iterator[list[socket.socket]]:
    """Yield the connections of ``count`` uploads that stop after ``sent`` bytes."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    head = f"POST /specdemo-traces HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {length}\r\n\r\n"
    with ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(count)
        ]
        for line in lines:
            line.sendall(head.encode() + b"{" * sent)
        time.sleep(0.5)
        yield lines


def test_an_upload_that_stalls_is_refused_and_a_large_one_is_refused_unread(url, monkeypatch):
    monkeypatch.setattr(posts, "READING_S", 0.3)
    late = "The request took too long to arrive; send it again."
    large = "The file is too large; a trace has at most 16,000,000 bytes."
    for length, status, sentence in ((1_000_000, 408, late), (MAX_BYTES + 1, 413, large)):
        with stalled(url, 1, sent=1, length=length) as [line]:
            reply = HTTPResponse(line)
            reply.begin()
            assert (reply.status, json.loads(reply.read())) == (status, {"error": sentence})


def test_stalled_uploads_do_not_block_others(url):
    with stalled(url, 3 * own_routes.MAX_UPLOADS, sent=1):
        reply = PLAIN.post(f"{url}specdemo-traces", content=finished().to_json())
        assert reply.status_code == 200, reply.text


def test_with_too_many_bytes_arriving_the_largest_body_is_given_up(url, monkeypatch):
    body = finished().to_json().encode()
    monkeypatch.setattr(own_routes, "_partial_bodies", posts.PartialBodies(4 * len(body)))
    with stalled(url, 3, sent=2 * len(body)):
        assert PLAIN.post(f"{url}specdemo-traces", content=body).status_code == 200


@pytest.mark.parametrize("values", ["[],", "1,"])
def test_a_file_of_many_values_is_refused_before_it_is_parsed(client, values):
    body = b'{"version": [' + values.encode() * 3_000_000 + b"0]}"
    response = client.post("/specdemo-traces", content=body)
    assert response.status_code == 400
    assert response.json() == {"error": "The request has too many values; at most 1,000,000 are allowed."}


def test_a_trace_of_numbers_that_are_none_is_refused(client):
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        body = re.sub(rb'("p":)[0-9.e-]+', rb"\g<1>" + number, finished().to_json().encode())
        response = client.post("/specdemo-traces", content=body)
        assert response.status_code == 400 and response.json()["error"].startswith("This "), number


def test_a_compressed_file_is_not_unpacked(client):
    bomb = gzip.compress(b" " * 1_000_000)
    response = client.post("/specdemo-traces", content=bomb, headers={"content-encoding": "gzip"})
    assert response.status_code == 400 and "no JSON" in response.json()["error"]
