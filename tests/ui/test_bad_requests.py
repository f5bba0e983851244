"""Thousands of bad requests to the real page around real models: each is refused in a sentence.

None may fail inside the server, show anything of it, or leave the device taken.
"""

import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from helpers.asking import ENDPOINTS, HAS_MCP, MCP, POSTED, Endpoint, Odd, odd_requests, ways_in
from helpers.http_visitor import API, HttpVisitor
from helpers.odd import ANYTHING, odd_addresses, odd_bodies
from helpers.tiny import service_of, tiny_pair
from helpers.tiny_runs import finished
from helpers.waiting import PATIENCE_S
from helpers.watched import Watched, watching
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from specdemo.models.threads import thread_count, use_threads
from specdemo.pairs.presets import OfferedPairs
from specdemo.records.limits import UserError
from specdemo.service.queue import ABANDONED_S
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.page import build_page, launch_options

POLICY = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin"}
SECRETS = ("Traceback", 'File "', "site-packages", "/root", "/home", "/usr", ".py")
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: each try is a round trip."""
TOGETHER = 10
"""Waiting jobs of one session; the queue allows twice as many."""


PAIRS = st.sampled_from(["built-in", "", None]) | ANYTHING
"""Names of models, mostly existing ones."""


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
    options = with_mcp(page, launch_options()) if HAS_MCP else launch_options()
    watched.own.add(port := free_port())
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, server_port=port, **options)
    visitor = HttpVisitor(url)
    yield visitor
    visitor.http.close()
    page.close()
    use_threads(threads)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(autouse=True)
def _still_works(visitor: HttpVisitor, watched: Watched) -> Iterator[None]:
    """After every test a good run starts at once, and the server did nothing besides replying."""
    yield
    good_run(visitor)
    assert not any(watched.seen().values()), watched.seen()


def good_run(visitor: HttpVisitor) -> None:
    """Run in a session of its own and check that no job before it still had the device."""
    began = time.monotonic()
    event, data = visitor.call("run", ENDPOINTS["run"].good, uuid.uuid4().hex)
    assert event == "complete", data
    assert json.loads(data[0].splitlines()[-1])["type"] == "end"
    assert time.monotonic() - began < ABANDONED_S


def is_sentence(text: object) -> bool:
    return isinstance(text, str) and text.isprintable() and text.endswith(".") and 10 < len(text) <= 300


def check(reply: httpx.Response) -> None:
    """A reply shows no server internals, and a refusal is one sentence."""
    assert reply.status_code < 500, reply.text
    assert carries_the_policy(reply)
    if reply.status_code >= 400:
        assert is_sentence(reply.json()["error"]), reply.text
        assert not any(secret in reply.text for secret in SECRETS), reply.text


def carries_the_policy(reply: httpx.Response) -> bool:
    policy = reply.headers.get("content-security-policy", "")
    return "default-src" in policy and reply.headers.items() >= POLICY.items()


@st.composite
def bad_values(draw: Any) -> tuple[str, dict[str, Any], str]:
    """Draw values that a job refuses, with the sentence of its refusal."""
    name = draw(st.sampled_from(list(ENDPOINTS)))
    endpoint = ENDPOINTS[name]
    changes = st.dictionaries(st.sampled_from(list(endpoint.good)), ANYTHING, min_size=1, max_size=3)
    values, pair = {**endpoint.good, **draw(changes)}, draw(PAIRS)
    refusal = refusal_of(endpoint, values, pair)
    if refusal is None:  # the drawn values are good
        first = next(iter(endpoint.good))
        values[first] = draw(st.sampled_from([[], {}, -1.5, "\x7f", "no such thing\x00"]))
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


def few_and_many(given_these: Callable[..., Any], test: Callable[..., None], few: int, many: int) -> tuple:
    """Return the same test with few examples and, slow, with many."""
    short, long = (settings(max_examples=count, phases=PHASES)(given_these(test)) for count in (few, many))
    return short, pytest.mark.slow(long)


def refused_in_the_queue(visitor, requests):
    session = uuid.uuid4().hex
    expected = {visitor.join(name, values, session): refusal for name, values, refusal in requests}
    ended = visitor.outcomes(session, len(expected))
    for number, refusal in expected.items():
        assert not ended[number]["success"]
        assert ended[number]["output"]["error"] == refusal and is_sentence(refusal)


(test_bad_values_in_the_queue_get_the_sentence_of_their_check, test_six_hundred_bad_values_in_the_queue) = (
    few_and_many(
        given(st.lists(bad_values(), min_size=TOGETHER, max_size=TOGETHER)),
        refused_in_the_queue,
        few=4,
        many=60,
    )
)


def refused_by_name(visitor, request_):
    name, values, refusal = request_
    event, reported = visitor.call(name, values)
    assert event == "error" and reported["error"] == refusal


(test_bad_values_by_name_get_the_sentence_of_their_check, test_sixty_bad_values_by_name) = few_and_many(
    given(bad_values()), refused_by_name, few=15, many=60
)


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{oops",
    "no UTF-8": b'{"data": ["\xff"]}',
    "a list": b"[]",
    "null": b"null",
    "text": b'"x"',
    "no data": b"{}",
    "data is text": b'{"data": "x"}',
    "data is an object": b'{"data": {}}',
    "too few": b'{"data": []}',
    "too many": json.dumps({"data": [1] * 500}).encode(),
    "not a number": b'{"data": [NaN, Infinity]}',
    "deep": b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "less deep": b'{"data":' + b"[" * 900 + b"]" * 900 + b"}",
    "many digits": b'{"data": [' + b"9" * 5_000 + b"]}",
    "beyond a float": b'{"data": [1e999]}',
    "half a character": b'{"data": ["\\ud800"]}',
    "session is a number": b'{"data": [], "session_hash": 5}',
    "session of controls": b'{"data": [], "session_hash": "\\u0000"}',
    "endless session": json.dumps({"data": [], "session_hash": "a" * 100_000}).encode(),
    "no such function": b'{"data": [], "fn_index": 9999, "session_hash": "a"}',
    "negative function": b'{"data": [], "fn_index": -1, "session_hash": "a"}',
    "function is text": b'{"data": [], "fn_index": "x", "session_hash": "a"}',
    "function is true": b'{"data": [], "fn_index": true, "session_hash": "a"}',
    "huge function": b'{"data": [], "fn_index": ' + b"9" * 400 + b', "session_hash": "a"}',
    "half a function": b'{"data": [], "fn_index": 1.5, "session_hash": "a"}',
    "batched": b'{"data": [], "fn_index": 1, "session_hash": "a", "batched": true}',
    "event is a list": b'{"data": [], "fn_index": 1, "session_hash": "a", "event_id": []}',
    "too large": b'{"data": ["' + b"x" * 2_000_000 + b'"]}',
}


@pytest.mark.parametrize("path", POSTED)
def test_bodies_of_the_wrong_shape_are_refused(visitor, path):
    taken = {("call/v2/run", "no data")}  # all parameters have a default
    for name, body in BODIES.items():
        for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
            if (path, name) not in taken or kind != "application/json":
                reply = visitor.http.post(f"{API}/{path}", content=body, headers={"content-type": kind})
                check(reply)
                assert 400 <= reply.status_code < 500, (path, name, reply.text)


FETCHED = """/gradio_api/queue/data
/gradio_api/queue/data?session_hash=
/gradio_api/queue/data?session_hash=%00
/gradio_api/queue/data?session_hash=a/../b
/gradio_api/call/run/nope
/gradio_api/call/run/%00
/gradio_api/call/nope/x
/gradio_api/heartbeat/%00
/?page=nope
/static/%00
/static/{long}
/specdemo-static/{long}
/specdemo-traces/{long}
/specdemo-traces/%00
/specdemo-traces/index
/specdemo-traces/nope.ndjson
/specdemo-lab/run
/specdemo-lab/run/nope.json
/specdemo-lab/run/%00.json
/gradio_api/queue/join"""


@pytest.mark.parametrize("path", FETCHED.splitlines())
def test_unknown_addresses_are_refused(visitor, path):
    reply = visitor.http.get(path.format(long="a" * 3_000))
    check(reply)
    assert 400 <= reply.status_code < 500


def test_the_stream_of_an_unknown_session_ends(visitor):
    reply = visitor.http.get(f"{API}/queue/data?session_hash=nobody")
    assert reply.status_code == 200 and json.loads(reply.text.removeprefix("data: "))["session_not_found"]


def test_an_answer_is_fetched_once(visitor):
    body = {"data": visitor.values("quiz", {"question": 0})}
    path = f"{API}/call/quiz/{visitor.post('call/quiz', body).json()['event_id']}"
    assert visitor.answer(path)[0] == "error"
    again = visitor.http.get(path)
    check(again)
    assert again.status_code == 404


def body_is_answered_with_sense(visitor, path, body):
    reply = visitor.http.post(f"{API}/{path}", content=body, headers={"content-type": "application/json"})
    check(reply)


test_any_body_gets_a_proper_reply, test_five_hundred_odd_bodies = few_and_many(
    given(st.sampled_from(POSTED), odd_bodies()), body_is_answered_with_sense, few=60, many=500
)


def address_is_answered_with_sense(visitor, address):
    path, query = address
    if query.get("session_hash") is not None and path.startswith("gradio_api"):
        query["session_hash"] += "!"  # a stream of a session may last
    url = f"/{quote(path, safe='/%').lstrip('/')}?{urlencode(query, errors='replace')}"
    with visitor.http.stream("GET", url) as reply:
        if reply.status_code >= 400:
            reply.read()
        check(reply)


test_any_address_gets_a_proper_reply, test_three_hundred_odd_addresses = few_and_many(
    given(odd_addresses()), address_is_answered_with_sense, few=40, many=300
)


def odd_trace_is_answered_with_sense(visitor, value, route, data):
    trace = json.loads(finished().to_json())
    key = data.draw(st.sampled_from([*trace, "__proto__", "constructor"]))
    check(visitor.http.post(f"/{route}", content=json.dumps({**trace, key: value})))


test_any_trace_gets_a_proper_reply, test_a_hundred_and_fifty_odd_traces = few_and_many(
    given(ANYTHING, st.sampled_from(["specdemo-traces", "specdemo-lab/run"]), st.data()),
    odd_trace_is_answered_with_sense,
    few=15,
    many=150,
)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_other_methods_are_refused(visitor, method):
    for path in ("/", f"{API}/queue/join", "/specdemo-traces", "/specdemo-static/stage/stage.js"):
        reply = visitor.http.request(method, path)
        check(reply)
        assert reply.status_code == 405


FILE = "The request names a file; this page accepts none."


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


def test_an_event_of_the_page_brings_no_file_either(visitor, watched):
    body = {"data": [], "fn_index": 0, "session_hash": "abc", "event_data": {"path": watched.bait}}
    for way in ("queue/join", "run/load"):
        assert visitor.post(way, body).json() == {"error": FILE}


def test_values_that_no_widget_has_are_refused_without_a_fault(visitor):
    for value in ("x", None, -5, 1e9, [], {"a": 1}):
        for number, count in visitor.events:
            body = {"fn_index": number, "data": [value] * count, "event_data": {"address": "k=99"}}
            check(visitor.post("run/event", body))


def answers_to_odd_requests(visitor: HttpVisitor, watched: Watched, count: int) -> Counter[str]:
    """Send odd requests and count the replies; fail if one passes the guard."""
    answered: Counter[str] = Counter()

    @settings(max_examples=count, phases=PHASES)
    @given(odd_requests(visitor, watched))
    def ask(odd: Odd) -> None:
        reply = odd.sent(visitor.http)
        answered[f"{odd.method} {reply.status_code}"] += 1
        assert reply.status_code < 500 and carries_the_policy(reply), (odd, reply)
        assert "evil" not in reply.headers.get("access-control-allow-origin", "")
        if reply.status_code >= 400 and "/mcp" not in odd.path and odd.method != "HEAD":
            check(reply)
        assert not any(watched.seen().values()), (odd, watched.seen())

    ask()
    return answered


def test_no_odd_request_passes_the_guard(visitor, watched):
    assert answers_to_odd_requests(visitor, watched, 100)["POST 400"] > 10


@pytest.mark.slow
def test_none_of_two_thousand_odd_requests_passes_the_guard(visitor, watched):
    answered = answers_to_odd_requests(visitor, watched, 2_000)
    print(dict(answered))
    assert {"GET 200", "GET 414", "POST 200", "POST 400", "POST 403", "POST 421"} <= answered.keys()


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
@pytest.mark.parametrize("path", ["/", "/config"])
def test_a_request_without_a_host_is_answered_with_the_policy(visitor, path, header, status):
    """HTTP/1.0 allows it; no client library speaks it any more."""
    with socket.create_connection(("127.0.0.1", visitor.http.base_url.port), timeout=PATIENCE_S) as line:
        line.sendall(f"GET {path} HTTP/1.0\r\n{header}\r\n\r\n".encode())
        reported = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
    assert reported.split(" ")[1] == str(status)
    assert "content-security-policy: default-src" in reported and "access-control" not in reported
