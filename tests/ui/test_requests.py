"""Bad requests to the page around real models: each is refused in a sentence, and nothing else happens."""

import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from helpers.asking import ENDPOINTS, HAS_MCP, MCP, POSTED, Endpoint, odd_requests, ways_in
from helpers.http_visitor import API, HttpVisitor
from helpers.odd import ANYTHING, odd_addresses, odd_bodies
from helpers.tiny import service_of, tiny_pair
from helpers.tiny_runs import finished
from helpers.waiting import PATIENCE_S
from helpers.watched import Watched, watching
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from specdemo.classroom.rooms import Rooms
from specdemo.models.threads import thread_count, use_threads
from specdemo.pairs.presets import OfferedPairs
from specdemo.records.limits import UserError
from specdemo.service.queue import ABANDONED_S
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.http.class_routes import class_routes
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
    event, data = visitor.call("run", ENDPOINTS["run"].good, uuid.uuid4().hex)
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
null -> 400 The request must be a JSON object
"x" -> 400 The request must be a JSON object
{} -> 400 session_hash must be 1 to 64 letters
{"data": ["\\ud800"]} -> 400 session_hash must be 1 to 64 letters
{"data": [], "session_hash": "\\u0000"} -> 400 session_hash must be 1 to 64 letters
{"data": "x"} -> 400 data must be a list
{"data": {}} -> 400 data must be a list
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
LARGE_JOINS: list[tuple[bytes, int, str]] = [
    (b'{"data": [%s]}' % (b"9" * 5_000), 400, "The request is not JSON in UTF-8"),
    (b'{"data":' + b"[" * 900 + b"]" * 900 + b"}", 400, "nested too deeply; use at most 32 levels"),
    (b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 413, "too large; at most 200,000 bytes"),
    (b'{"data": ["' + b"x" * 2_000_000 + b'"]}', 413, "too large; at most 200,000 bytes"),
    (b'{"data": [%s0]}' % (b"[]," * 40_000), 400, "too many values; send at most 15,000"),
    (b'{"data": [%s0]}' % (b"1," * 40_000), 400, "too many values; send at most 15,000"),
    (b'{"data": [], "session_hash": "%s"}' % (b"a" * 100_000), 400, "session_hash must be 1 to 64 letters"),
    (
        b'{"data": [], "session_hash": "a", "fn_index": %s}' % (b"9" * 400),
        400,
        "fn_index must be a number from",
    ),
]
OTHERS = """\
GET /gradio_api/queue/data -> 400 session_hash must be 1 to 64 letters
GET /gradio_api/queue/data?session_hash= -> 400 session_hash must be 1 to 64 letters
GET /gradio_api/queue/data?session_hash=a/../b -> 400 session_hash must be 1 to 64 letters
GET /gradio_api/call/run/nope -> 404 There is no such event, or the answer was fetched before
GET /?page=nope -> 404 There is no such page
GET /specdemo-traces/nope.ndjson -> 404 There is no recording named 'nope'; choose one of: 
GET /specdemo-lab/run/nope.json -> 404 There is no recording named 'nope'; choose one of: 
GET /specdemo-lab/run -> 405 does not accept this HTTP method
GET /gradio_api/queue/join -> 405 does not accept this HTTP method
POST /gradio_api/call/run {} -> 400 data must be a list of 14 values, got none.
POST /gradio_api/call/run {"data": []} -> 400 data must be a list of 14 values, got 0.
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
POST /specdemo-class/ZZZZZZ/join {} -> 404 There is no class with this code
POST /specdemo-class {} -> 400 address must be the page's address
POST /specdemo-class {"address": ""} -> 400 address must be the page's address
POST /specdemo-class {"address": "javascript:alert(1)"} -> 400 address must be the page's address
POST /specdemo-class {"address": "ftp://x/"} -> 400 address must be the page's address
POST /specdemo-class {"address": "http://"} -> 400 address must be the page's address
POST /specdemo-class {"address": "http://["} -> 400 address must be the page's address
POST /specdemo-class {"address": "http://a\\n/"} -> 400 address must be the page's address
"""
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


@pytest.mark.parametrize("path", POSTED)
@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_every_way_in_refuses_these_bodies(visitor, path, kind, still_works):
    for _, body, *_ in JOIN_ROWS:
        if path != "call/v2/run" or body != b"{}":  # all its parameters have a default
            reply = check(visitor.http.post(f"{API}/{path}", content=body, headers={"content-type": kind}))
            assert 400 <= reply.status_code < 500, (body[:80], reply.text)


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])


def tries(count: int) -> settings:
    """Return settings without shrinking, because each try is a round trip."""
    return settings(max_examples=count, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@st.composite
def bad_values(draw: Any) -> tuple[str, dict[str, Any], str]:
    """Draw values that a job refuses, with the sentence of its refusal."""
    name = draw(st.sampled_from(list(ENDPOINTS)))
    endpoint = ENDPOINTS[name]
    changes = st.dictionaries(st.sampled_from(list(endpoint.good)), ANYTHING, min_size=1, max_size=3)
    values, pair = (
        {**endpoint.good, **draw(changes)},
        draw(st.sampled_from(["built-in", "", None]) | ANYTHING),
    )
    refusal = refusal_of(endpoint, values, pair)
    if refusal is None:  # the drawn values are good
        values[next(iter(endpoint.good))] = draw(st.sampled_from([[], {}, -1.5, "\x7f", "no such thing\x00"]))
        refusal = refusal_of(endpoint, values, pair)
    assert refusal is not None
    return name, {**values, "pair": pair}, refusal


def refusal_of(endpoint: Endpoint, values: dict[str, Any], pair: Any) -> str | None:
    """Return the sentence of the endpoint's own check or of the pair's, if one refuses."""
    try:
        endpoint.parse(values)
        OfferedPairs().named(pair)
    except UserError as error:
        return str(error)
    return None


@few_or_many(4, 60)
def test_bad_values_in_the_queue_get_the_sentence_of_their_check(visitor, count, still_works):
    @tries(count)
    @given(st.lists(bad_values(), min_size=TOGETHER, max_size=TOGETHER))
    def ask(requests):
        session = uuid.uuid4().hex
        expected = {visitor.join(name, values, session): refusal for name, values, refusal in requests}
        ended = visitor.outcomes(session, len(expected))
        for number, refusal in expected.items():
            assert not ended[number]["success"]
            assert ended[number]["output"]["error"] == refusal and is_sentence(refusal)

    ask()


@few_or_many(15, 60)
def test_bad_values_by_name_get_the_sentence_of_their_check(visitor, count, still_works):
    @tries(count)
    @given(bad_values())
    def ask(request):
        name, values, refusal = request
        event, reported = visitor.call(name, values)
        assert event == "error" and reported["error"] == refusal

    ask()


@few_or_many(60, 500)
def test_any_body_gets_a_proper_reply(visitor, count, still_works):
    @tries(count)
    @given(st.sampled_from(POSTED), odd_bodies())
    def ask(path, body):
        check(visitor.http.post(f"{API}/{path}", content=body, headers={"content-type": "application/json"}))

    ask()


@few_or_many(40, 300)
def test_any_address_gets_a_proper_reply(visitor, count):
    @tries(count)
    @given(odd_addresses())
    def ask(address):
        path, query = address
        if query.get("session_hash") is not None and path.startswith("gradio_api"):
            query["session_hash"] += "!"  # a stream of a session may last
        url = f"/{quote(path, safe='/%').lstrip('/')}?{urlencode(query, errors='replace')}"
        with visitor.http.stream("GET", url) as reply:
            if reply.status_code >= 400:
                reply.read()
            check(reply)

    ask()


@few_or_many(15, 150)
def test_any_trace_gets_a_proper_reply(visitor, count):
    trace = json.loads(finished().to_json())
    keys = st.sampled_from([*trace, "__proto__", "constructor"])

    @tries(count)
    @given(keys, ANYTHING, st.sampled_from(["specdemo-traces", "specdemo-lab/run"]))
    def ask(key, value, route):
        check(visitor.http.post(f"/{route}", content=json.dumps({**trace, key: value})))

    ask()


@few_or_many(100, 2_000)
def test_no_odd_request_passes_the_guard(visitor, watched, count, still_works):
    answered: Counter[str] = Counter()

    @tries(count)
    @given(odd_requests(visitor, watched))
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
    assert count < 2_000 or answered.keys() >= {
        "GET 200",
        "GET 414",
        "POST 200",
        "POST 400",
        "POST 403",
        "POST 421",
    }


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_file_is_refused_before_anything_is_fetched_or_read(visitor, watched, name):
    meta = {"meta": {"_type": "gradio.FileData"}}
    for path in (watched.bait, "/etc/hostname"):
        for file in (
            {"path": path, **meta},
            {"path": path, "meta": "x"},
            [{"value": [{"path": path, **meta}]}],
        ):
            for key in ENDPOINTS[name].good:
                for way, body in ways_in(visitor, name, {**ENDPOINTS[name].good, key: file}).items():
                    reply = visitor.http.post(f"{API}/{way}", json=body, headers=MCP)
                    assert (reply.status_code, reply.json()) == (400, {"error": FILE}), way


def test_values_that_no_widget_has_are_refused_without_a_fault(visitor, still_works):
    for value in ("x", None, 1e9, {"a": 1}):
        for number, count in visitor.events:
            body = {"fn_index": number, "data": [value] * count, "event_data": {"address": "k=99"}}
            check(visitor.post("run/event", body))


def test_the_stream_of_an_unknown_session_ends(visitor):
    reply = visitor.http.get(f"{API}/queue/data?session_hash=nobody")
    assert reply.status_code == 200 and json.loads(reply.text.removeprefix("data: "))["session_not_found"]


def test_an_answer_is_fetched_once(visitor):
    body = {"data": visitor.values("quiz", {"question": 0})}
    path = f"{API}/call/quiz/{visitor.post('call/quiz', body).json()['event_id']}"
    assert visitor.answer(path)[0] == "error"
    assert check(visitor.http.get(path)).status_code == 404


@pytest.mark.parametrize("path", ["/", "/config"])
@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("X-Other: none", 200),
        ("X-Gradio-Server: ::::", 200),
        ("Origin: http://evil.example", 403),
        ("Origin: http://localhost", 403),
        ("Host:\r\nOrigin: null", 421),
        ("X-Forwarded-Host: [::1", 421),
    ],
)
def test_a_request_without_a_host_is_answered_with_the_policy(visitor, path, header, status):
    # HTTP/1.0 allows it, which no client library speaks any more.
    with socket.create_connection(("127.0.0.1", visitor.http.base_url.port), timeout=PATIENCE_S) as line:
        line.sendall(f"GET {path} HTTP/1.0\r\n{header}\r\n\r\n".encode())
        reported = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
    assert reported.split(" ")[1] == str(status)
    assert "content-security-policy: default-src" in reported and "access-control" not in reported
