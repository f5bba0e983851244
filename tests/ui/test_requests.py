"""Bad requests to the page around real models: each is refused in a sentence, and nothing else happens."""

import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import httpx
import pytest
from helpers.asking import ANYTHING, ENDPOINTS, HAS_MCP, MCP, POSTED, odd_requests, ways_in
from helpers.http_visitor import API, HttpVisitor
from helpers.tiny import service_of, tiny_pair
from helpers.waiting import PATIENCE_S
from helpers.watched import Watched, watching
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from specdemo.classroom.rooms import Rooms
from specdemo.models.threads import thread_count, use_threads
from specdemo.service.queue import ABANDONED_S
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.http.class_routes import class_routes
from specdemo.ui.http.guard import MAX_QUERY_CHARS
from specdemo.ui.page import build_page, launch_options

POLICY = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin"}
SECRETS = ("Traceback", 'File "', "site-packages", "/root", "/home", "/usr", "/etc", ".py", "root:")
TOGETHER = 10
"""Waiting jobs of one session; the queue allows twice as many."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: Any) -> Iterator[Watched]:
    """Yield a record of what the server does besides replying."""
    with watching(tmp_path_factory.mktemp("gradio")) as watched:
        yield watched


@pytest.fixture(scope="module")
def visitor(watched: Watched) -> Iterator[HttpVisitor]:
    """Yield a visitor of a page around tiny models, with an MCP server if the package is installed."""
    threads = thread_count()
    use_threads(1)
    page = build_page(service_of(tiny_pair()))
    options = launch_options(class_routes(Rooms()))
    options = with_mcp(page, options) if HAS_MCP else options
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    watched.own.add(port)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, server_port=port, **options)
    visitor = HttpVisitor(url)
    yield visitor
    visitor.http.close()
    page.close()
    use_threads(threads)


@pytest.fixture
def still_works(visitor: HttpVisitor) -> Iterator[None]:
    """After the test a run starts at once, because no job before it still has the device."""
    yield
    began = time.monotonic()
    event, data = visitor.call("run", ENDPOINTS["run"], uuid.uuid4().hex)
    assert event == "complete" and json.loads(data[0].splitlines()[-1])["type"] == "end"
    assert time.monotonic() - began < ABANDONED_S


@pytest.fixture(autouse=True)
def _only_replies(watched: Watched) -> Iterator[None]:
    yield
    assert not any(watched.seen().values()), watched.seen()


def is_sentence(text: object) -> bool:
    return isinstance(text, str) and text.isprintable() and text.endswith(".") and 10 < len(text) <= 300


def carries_the_policy(reply: httpx.Response) -> bool:
    policy = reply.headers.get("content-security-policy", "")
    return "default-src" in policy and reply.headers.items() >= POLICY.items()


def check(reply: httpx.Response) -> httpx.Response:
    """Check that a reply shows no server internals, and that a refusal is one sentence."""
    assert reply.status_code < 500 and carries_the_policy(reply), reply.text
    if reply.status_code >= 400 and reply.request.method != "HEAD":
        assert is_sentence(reply.json()["error"]), reply.text
        sent = str(reply.request.url) + reply.request.content.decode(errors="replace")
        assert not any(secret in reply.text for secret in SECRETS if secret not in sent), reply.text
    return reply


FILE = "This page does not accept file uploads or file paths; leave files out of the request."
CLOSED = """upload_progress?upload_id=x deep_link?session_hash=x proxy=https://x.hf.space file=/etc/passwd
    file=app.py file=../app.py file/etc/passwd file=http://127.0.0.1/ file=%2Fproc%2Fself%2Fenviron runs
    component_server vibe-code stream/a/b/1/playlist.m3u8 dev/reload run-history/buckets token user
    login_check queue/status call/run/%00 custom_component/x/client/a/b heartbeat/%00 mcp/sse
    /monitoring /monitoring/summary /logout /login /docs /openapi.json /pwa_icon/99999 /static/%00
    /static/{long} /static/../../routes.py /static/%2e%2e/%2e%2e/routes.py /static/..%2f..%2froutes.py
    /svelte/%2e%2e/x /static/..%5c..%5croutes.py /assets/%2e%2e%2f%2e%2e%2froutes.py /specdemo-static/{long}
    /specdemo-static/../page.py /specdemo-static/%2e%2e/page.py /specdemo-static/%2e%2e%2fpage.py
    /specdemo-static/....//page.py /specdemo-static//etc/passwd /specdemo-static/%2fetc%2fpasswd
    /specdemo-traces/..%2f..%2f..%2fetc%2fpasswd /specdemo-traces/%2e%2e/index /specdemo-traces/{long}
    /specdemo-traces/%00 /specdemo-traces/index /specdemo-lab/run/%00.json"""
CLOSED_POSTS = """upload process_recording component_server stream/x stream/x/close vibe-edit vibe-code
    api/run undo-vibe-edit vibe-starter-queries run-history/connect mcp/messages/"""
JOINS = """\
 -> 400 The request is not JSON in UTF-8
{oops -> 400 The request is not JSON in UTF-8
{"data": ["\xff"]} -> 400 The request is not JSON in UTF-8
{"data": [NaN, Infinity]} -> 400 The request is not JSON in UTF-8
[] -> 400 The request must be a JSON object
{} -> 400 session_hash must be 1 to 64 letters
{"data": ["\\ud800"]} -> 400 session_hash must be 1 to 64 letters
{"data": "x"} -> 400 data must be a list
{"data": [1e999]} -> 400 a number that is too large
{"data": [], "session_hash": 5} -> 400 session_hash must be text
{"data": [], "session_hash": "a", "fn_index": 9999} -> 400 fn_index must be a number from
{"data": [], "session_hash": "a", "fn_index": -1} -> 400 fn_index must be a number from
{"data": [], "session_hash": "a", "fn_index": true} -> 400 fn_index must be a whole number
{"data": [], "session_hash": "a", "fn_index": 1.5} -> 400 fn_index must be a whole number
{"data": [], "session_hash": "a", "event_id": []} -> 400 event_id must be text
{"data": [], "session_hash": "a", "trigger_id": "x"} -> 400 trigger_id must be a whole number
{"data": [], "session_hash": "a", "batched": true} -> 400 Batches are not allowed
{"data": [], "session_hash": "a", "fn_index": 0, "event_data": {"path": "/etc/x"}} -> 400 file uploads"""
TOO_MANY = "too many values; send at most 15,000"
LARGE_JOINS: list[tuple[bytes, int, str]] = [
    (b'{"data": [%s]}' % (b"9" * 5_000), 400, "The request is not JSON in UTF-8"),
    (b'{"data":' + b"[" * 900 + b"]" * 900 + b"}", 400, "nested too deeply; use at most 32 levels"),
    (b'{"data": ["' + b"x" * 2_000_000 + b'"]}', 413, "too large; at most 200,000 bytes"),
    (b'{"data": [%s0]}' % (b"[]," * 40_000), 400, TOO_MANY),
    (b'{"data": [%s0]}' % (b"1," * 40_000), 400, TOO_MANY),
    (b'{"session_hash": "%s"}' % (b"a" * 100_000), 400, "session_hash must be 1 to 64 letters"),
    (b'{"session_hash": "a", "fn_index": %s}' % (b"9" * 400), 400, "fn_index must be a number from"),
]
OTHERS = """\
GET /gradio_api/queue/data -> 400 session_hash must be 1 to 64 letters
GET /gradio_api/queue/data?session_hash=a/../b -> 400 session_hash must be 1 to 64 letters
GET /gradio_api/call/run/nope -> 404 There is no such event, or the answer was fetched before
GET /?page=nope -> 404 There is no such page
GET /specdemo-traces/nope.ndjson -> 404 There is no recording named 'nope'; choose one of: 
GET /specdemo-lab/run/nope.json -> 404 There is no recording named 'nope'; choose one of: 
GET /gradio_api/queue/join -> 405 does not accept this HTTP method
POST /gradio_api/call/run {} -> 400 data must be a list of 15 values, got none.
POST /gradio_api/call/run {"data": []} -> 400 data must be a list of 15 values, got 0.
POST /gradio_api/call/v2/run {"prompt": "x", "y": 1} -> 400 run accepts only these parameters: prompt, mode
POST /gradio_api/call/v2/generate {"k": 1} -> 400 generate needs the parameter prompt;
POST /gradio_api/call/nope {} -> 404 There is no such endpoint; choose one of: generate, measure, play
POST /gradio_api/call/v2/nope {} -> 404 There is no such endpoint; choose one of: generate, measure, play
POST /gradio_api/run/run {"data": []} -> 400 fn_index must be a number from
POST /gradio_api/cancel {"session_hash": "a b"} -> 400 session_hash must be 1 to 64 letters
POST /gradio_api/reset {} -> 400 event_id must be text of at most 64 characters.
POST /specdemo-traces  -> 400 This file is not a trace
POST /specdemo-traces {"version":1} -> 400 This trace is damaged: config is missing.
POST /specdemo-lab/run {} -> 400 This file is not a trace
POST /specdemo-lab/explain {} -> 400 No numbers were found
POST /specdemo-lab/explain {"rate": "x"} -> 400 rate must be a number from 0.001 to 1e+06, not 'x'.
POST /specdemo-lab/explain [1] -> 400 The request must be a JSON object
POST /specdemo-class/ZZZZZZ/join {} -> 404 There is no class with this code
POST /specdemo-class {"address": ""} -> 400 address must be the page's address
POST /specdemo-class {"address": "javascript:alert(1)"} -> 400 address must be the page's address
POST /specdemo-class {"address": "http://["} -> 400 address must be the page's address
POST /specdemo-class {"address": "http://a\\n/"} -> 400 address must be the page's address
"""
NAMES = """\
X-Other: none -> 200
X-Gradio-Server: :::: -> 200
Host: localhost; X-Gradio-Server: http://evil.example -> 200
Host: localhost; X-Forwarded-Host: localhost, evil.example -> 200
Host: localhost; Origin: http://localhost:5000 -> 200
Origin: http://evil.example -> 403
Origin: http://localhost -> 403
Host: localhost; Origin: http://evil.example -> 403
Host: localhost; Origin: null -> 403
Host:; Origin: null -> 421
Host: evil.example -> 421
Host: 999.1.1.1 -> 421
Host: localhost:99999 -> 421
X-Forwarded-Host: [::1 -> 421
Host: localhost; X-Forwarded-Host: [::1 -> 421
Host: localhost; X-Forwarded-Host: evil.example -> 421
Host: localhost; Forwarded: host=evil.example -> 421
Host: localhost; X-Forwarded-Port: 99999 -> 200"""
Row = tuple[str, bytes, int, str]


def rows(table: str) -> Iterator[Row]:
    for line in table.splitlines():
        asked, _, answer = line.rpartition(" -> ")
        method, path, *body = asked.split(" ", 2)
        status, _, words = answer.partition(" ")
        yield f"{method} {path}", "".join(body).encode("latin-1"), int(status), words


JOIN = f"POST {API}/queue/join"
JOIN_ROWS = [*rows("\n".join(f"{JOIN} {line}" for line in JOINS.splitlines()))]
JOIN_ROWS += [(JOIN, *row) for row in LARGE_JOINS]
TRACES = [
    (b'{"version":[%s0]}' % (b"1," * 3_000_000), 400, "too many values; send at most 1,000,000"),
    (b" " * 16_000_001, 413, "The file is too large; choose a trace of at most 16,000,000 bytes."),
]
METHODS: list[Row] = [
    (f"{method} {path}", b"", 405, "does not accept this HTTP method")
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO")
    for path in ("/", f"{API}/queue/join", "/specdemo-traces", "/specdemo-static/stage/stage.js")
]
PATHS: list[Row] = [
    (
        f"{method} {path if path[0] == '/' else f'{API}/{path}'}",
        body,
        404,
        "There is nothing at this address.",
    )
    for method, body, paths in (("GET", b"", CLOSED), ("HEAD", b"", "mcp/sse"), ("POST", b"{}", CLOSED_POSTS))
    for path in paths.split()
]
REFUSED = [*rows(OTHERS), *JOIN_ROWS, *METHODS, *PATHS, *(("POST /specdemo-traces", *row) for row in TRACES)]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[0]} {row[1][:60]}")
def test_a_bad_request_gets_a_status_and_a_sentence(visitor, row):
    request, body, status, words = row
    method, path = request.format(long="a" * 3_000).split(" ", 1)
    url = visitor.http.base_url.copy_with(raw_path=path.encode())
    reply = check(
        visitor.http.request(method, url, content=body, headers={"content-type": "application/json"})
    )
    assert reply.status_code == status and (words in reply.text or method == "HEAD"), reply.text


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_every_way_in_refuses_these_bodies(visitor, kind, still_works):
    for path, (_, body, *_) in product(POSTED, JOIN_ROWS):
        if path != "call/v2/run" or body != b"{}":  # all its parameters have a default
            reply = check(visitor.http.post(f"{API}/{path}", content=body, headers={"content-type": kind}))
            assert 400 <= reply.status_code < 500, (path, body[:80], reply.text)


def tries(count: int) -> settings:
    """Return settings without shrinking, because each try is a round trip."""
    return settings(max_examples=count, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@st.composite
def odd_jobs(draw: Any) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(list(ENDPOINTS)))
    changes = st.dictionaries(st.sampled_from(list(ENDPOINTS[name])), ANYTHING, min_size=1, max_size=3)
    pair = draw(st.sampled_from(["built-in", "", None]) | ANYTHING)
    return name, {**ENDPOINTS[name], **draw(changes), "pair": pair}


def test_a_job_with_odd_values_is_done_or_refused_in_a_sentence(visitor, still_works):
    refused = []

    @tries(6)
    @given(st.lists(odd_jobs(), min_size=TOGETHER, max_size=TOGETHER))
    def ask(jobs):
        session = uuid.uuid4().hex
        numbers = [visitor.join(name, values, session) for name, values in jobs]
        for number, ended in visitor.outcomes(session, len(numbers)).items():
            assert number in numbers and ended["success"] != is_sentence(ended["output"].get("error"))
            refused.append(not ended["success"])

    ask()
    assert sum(refused) > len(refused) / 2


@pytest.mark.parametrize(
    ("name", "wrong", "fact"),
    [
        ("run", {"k": "four"}, "k must be a whole number"),
        ("run", {"pair": "nope"}, "Unknown pair of models 'nope'"),
        ("generate", {"mode": "shout"}, "mode must be"),
        ("play", {"draft": " "}, "The draft is empty"),
        ("prove", {"draws": 0}, "draws must be"),
        ("measure", {"experiment": "nonsense"}, "Unknown experiment"),
        ("quiz", {"question": "three"}, "Unknown question 'three'"),
    ],
)
def test_a_bad_value_gets_the_sentence_of_its_check(visitor, name, wrong, fact):
    event, reported = visitor.call(name, {**ENDPOINTS[name], **wrong})
    assert event == "error" and fact in reported["error"]


@pytest.mark.parametrize("count", [150, pytest.param(2_000, marks=pytest.mark.slow)])
def test_no_odd_request_passes_the_guard(visitor, watched, count, still_works):
    answered: Counter[str] = Counter()

    @tries(count)
    @given(odd_requests(visitor, watched.bait))
    def ask(odd):
        reply = odd.sent(visitor.http)
        answered[f"{odd.method} {reply.status_code}"] += 1
        assert reply.status_code < 500 and carries_the_policy(reply), (odd, reply)
        assert "evil" not in reply.headers.get("access-control-allow-origin", "")
        if reply.status_code >= 400 and "/mcp" not in odd.path:
            check(reply)
        assert not any(watched.seen().values()), (odd, watched.seen())

    ask()
    assert answered["POST 400"] > 10
    often = {"GET 200", "GET 404", "POST 200", "POST 400", "POST 403", "POST 421"}
    statuses = {answer.split()[1] for answer in answered}  # of a long address, by any method
    assert count < 2_000 or (answered.keys() >= often and "414" in statuses)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_file_is_refused_before_anything_is_fetched_or_read(visitor, watched, name):
    meta = {"meta": {"_type": "gradio.FileData"}}
    paths = [{"path": watched.bait, **meta}, {"path": "/etc/hostname", "meta": "x"}]
    shapes = cycle([*paths, [{"value": [paths[0]]}], {"a": {"b": paths[1]}}])
    for key, file in zip(ENDPOINTS[name], shapes, strict=False):
        for way, body in ways_in(visitor, name, {**ENDPOINTS[name], key: file}).items():
            reply = visitor.http.post(f"{API}/{way}", json=body, headers=MCP)
            assert (reply.status_code, reply.json()) == (400, {"error": FILE}), (way, key)


@pytest.mark.usefixtures("still_works")
def test_runs_that_a_component_starts_need_event_data_with_possible_settings(visitor):
    config = visitor.http.get("/config").json()
    asked = [entry["id"] for entry in config["dependencies"] if entry["collects_event_data"]]
    assert len(asked) == 3
    events = ((None, None), ("x", None), ({"address": "k=99"}, False), ({"address": "k=2"}, True))
    for number, (event, succeeds) in product(asked, events):
        session = uuid.uuid4().hex
        body = {"data": visitor.values("run", ENDPOINTS["run"]), "fn_index": number, "event_data": event}
        reply = check(visitor.post("queue/join", body | {"session_hash": session}))
        assert reply.status_code == (400 if succeeds is None else 200)
        if succeeds is not None:
            [ended] = visitor.outcomes(session, 1).values()
            assert ended["success"] is succeeds
            assert succeeds or ended["output"]["error"].startswith("k must be")


def test_the_stream_of_an_unknown_session_ends_and_an_answer_is_fetched_once(visitor):
    reply = visitor.http.get(f"{API}/queue/data?session_hash=nobody")
    assert reply.status_code == 200 and json.loads(reply.text.removeprefix("data: "))["session_not_found"]
    body = {"data": visitor.values("quiz", {"question": 0})}
    path = f"{API}/call/quiz/{visitor.post('call/quiz', body).json()['event_id']}"
    assert visitor.answer(path)[0] == "error"
    assert check(visitor.http.get(path)).status_code == 404


def replied(visitor: HttpVisitor, head: str) -> tuple[int, str]:
    """Send the lines of a request as they are; return the status and the whole reply."""
    with socket.create_connection(("127.0.0.1", visitor.http.base_url.port), timeout=PATIENCE_S) as line:
        line.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        reply = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
    return int(reply.split(" ")[1]), reply


@pytest.mark.parametrize("path", ["/", "/config", f"{API}/info", f"{API}/queue/data?session_hash=x"])
def test_foreign_names_and_pages_are_refused(visitor, path):
    for line in NAMES.splitlines():
        headers, _, expected = line.partition(" -> ")
        # HTTP/1.0 needs no Host, which no client library leaves out any more.
        status, reply = replied(visitor, f"GET {path} HTTP/1.0\n{headers.replace('; ', chr(10))}")
        assert status == int(expected), line
        assert "content-security-policy: default-src" in reply and "evil" not in reply, line
        assert "access-control" not in reply or "Origin: http://localhost:5000" in line
        assert status == 200 or is_sentence(json.loads(reply.partition("\r\n\r\n")[2])["error"]), line


def test_a_foreign_page_gets_no_cors_permission(visitor):
    asking = "Host: localhost\nAccess-Control-Request-Method: POST\nOrigin: http://"
    for origin, expected in (("evil.example", 403), ("localhost:5000", 200)):
        status, reply = replied(visitor, f"OPTIONS {API}/queue/join HTTP/1.0\n{asking}{origin}")
        assert status == expected and "content-security-policy: default-src" in reply
        assert ("access-control-allow-origin" in reply) == (expected == 200)


def test_an_address_is_bounded(visitor):
    for length, expected in ((MAX_QUERY_CHARS, 200), (MAX_QUERY_CHARS + 1, 414), (70_000, 414)):
        status, reply = replied(visitor, f"GET /config?{'x' * length} HTTP/1.0\nHost: localhost")
        assert status == expected and ("The address is too long" in reply) == (expected == 414)
