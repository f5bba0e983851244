"""Thousands of bad requests over HTTP, to the real page around real models: each is refused in a sentence.

None may fail inside the server, show anything of it, or leave the device taken.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
import torch
from http_visitor import API, HttpVisitor
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tiny import service_of, tiny_pair
from tiny_runs import finished

from specdemo.game import parse_turn
from specdemo.lab.questions import QUESTIONS
from specdemo.lab.quiz import number_in
from specdemo.lab.request import parse_lab
from specdemo.limits import UserError, parse_config
from specdemo.offer import Offer
from specdemo.proof.request import parse_proof
from specdemo.ui.page import build_page, launch_options

SECRETS = ("Traceback", 'File "', "site-packages", "/root", "/home", "/usr", ".py")
SOON_S = 20.0
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking, where each try is a round trip."""
TOGETHER = 10
"""Jobs that one session has waiting; the queue takes twice as many."""


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 20),
    st.integers(-(10**40), 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        ["", "NaN", "auto", "greedy", "scripted", "raw", "\x00", "a\u202eb", "\ud800", "x" * 20_000]
    ),
    st.sampled_from(["<script>alert(1)</script>", "${7*7}", "{{7*7}}", "../../etc/passwd", "/etc/passwd"]),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@dataclass(frozen=True)
class Endpoint:
    """One of the jobs: good values by the names of its parameters, and who checks them."""

    good: dict[str, Any]
    parse: Callable[[dict[str, Any]], object]


def parse_run(values: dict[str, Any]) -> object:
    """As the endpoint asks: ``auto`` takes the place of k."""
    raw = dict(values)
    if raw.pop("auto") is True:
        raw["k"] = "auto"
    return parse_config(raw)


RUN = {"prompt": "abc", "mode": "raw", "drafter": "draft-model", "k": 2, "auto": False, "temperature": 0}
RUN |= {"rule": "greedy", "max_new_tokens": 3, "seed": 0, "top_k": 0, "top_p": 1, "baseline": True}
ENDPOINTS = {
    "run": Endpoint({**RUN, "draft_alone": False}, parse_run),
    "play": Endpoint(
        {"text": "abc", "draft": " d", "second_draft": "", "written": [], "scores": {}}, parse_turn
    ),
    "prove": Endpoint(
        {"proof": "distribution", "prompts": 1, "temperature": 0.8, "draws": 1, "rule": "true-rule"}
        | {"prompt": "abc"},
        parse_proof,
    ),
    "measure": Endpoint(
        {"experiment": "draft-length", "k": 2, "temperature": 0, "max_new_tokens": 2, "prompts": 1}
        | {"prompt": "", "mode": "raw", "seed": 0},
        parse_lab,
    ),
    "quiz": Endpoint({"question": 1}, lambda raw: number_in(raw, len(QUESTIONS))),
    "generate": Endpoint({name: RUN[name] for name in RUN if name not in ("auto", "baseline")}, parse_config),
}
PAIRS = st.sampled_from(["embedded", "", None]) | ANYTHING
"""Which models are to do it: mostly those that are there."""


@pytest.fixture(scope="module")
def visitor() -> Iterator[HttpVisitor]:
    """A visitor of the running page, whose models are tiny."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    page = build_page(service_of(tiny_pair()))
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    visitor = HttpVisitor(url)
    yield visitor
    visitor.http.close()
    page.close()
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _still_works(visitor: HttpVisitor) -> Iterator[None]:
    """After every test a good run is taken at once."""
    yield
    good_run(visitor)


def good_run(visitor: HttpVisitor) -> None:
    """A run that ends soon, as it should; of another visitor than those whose jobs may still be there."""
    began = time.monotonic()
    event, data = visitor.call("run", ENDPOINTS["run"].good, uuid.uuid4().hex)
    assert event == "complete", data
    assert json.loads(data[0].splitlines()[-1])["type"] == "end"
    assert time.monotonic() - began < SOON_S


def is_sentence(text: object) -> bool:
    """One line with an end."""
    return isinstance(text, str) and text.isprintable() and text.endswith(".") and 10 < len(text) <= 300


def check(reply: httpx.Response) -> None:
    """Whatever it is, it shows nothing of the server; a refusal is one sentence."""
    assert reply.status_code < 500, reply.text
    if reply.status_code >= 400:
        assert is_sentence(reply.json()["error"]), reply.text
        assert not any(secret in reply.text for secret in SECRETS), reply.text


@st.composite
def bad_values(draw: Any) -> tuple[str, dict[str, Any], str]:
    """Values that one of the jobs refuses, with the sentence that says why."""
    name = draw(st.sampled_from(list(ENDPOINTS)))
    endpoint = ENDPOINTS[name]
    changes = st.dictionaries(st.sampled_from(list(endpoint.good)), ANYTHING, min_size=1, max_size=3)
    values, pair = {**endpoint.good, **draw(changes)}, draw(PAIRS)
    refusal = refusal_of(endpoint, values, pair)
    if refusal is None:  # by luck these are good
        first = next(iter(endpoint.good))
        values[first] = draw(st.sampled_from([[], {}, -1.5, "\x7f", "no such thing\x00"]))
        refusal = refusal_of(endpoint, values, pair)
    assert refusal is not None
    return name, {**values, "pair": pair}, refusal


def refusal_of(endpoint: Endpoint, values: dict[str, Any], pair: Any) -> str | None:
    """What the endpoint's own check says, and then that of the pair."""
    try:
        endpoint.parse(values)
        Offer().named(pair)
    except UserError as error:
        return str(error)
    return None


def few_and_many(given_these: Callable[..., Any], test: Callable[..., None], few: int, many: int) -> tuple:
    """The same test with few examples, and slow with many."""
    short, long = (settings(max_examples=count, phases=PHASES)(given_these(test)) for count in (few, many))
    return short, pytest.mark.slow(long)


def refused_in_the_queue(visitor, requests):
    session = uuid.uuid4().hex
    expected = {visitor.join(name, values, session): refusal for name, values, refusal in requests}
    ended = visitor.outcomes(session, len(expected))
    for number, refusal in expected.items():
        assert not ended[number]["success"]
        assert ended[number]["output"]["error"] == refusal and is_sentence(refusal)


(
    test_bad_values_in_the_queue_get_the_sentence_of_their_check,
    test_six_hundred_bad_values_in_the_queue,
) = few_and_many(
    given(st.lists(bad_values(), min_size=TOGETHER, max_size=TOGETHER)), refused_in_the_queue, few=4, many=60
)


def refused_by_name(visitor, request_):
    name, values, refusal = request_
    event, told = visitor.call(name, values)
    assert event == "error" and told["error"] == refusal


(
    test_bad_values_by_name_get_the_sentence_of_their_check,
    test_sixty_bad_values_by_name,
) = few_and_many(given(bad_values()), refused_by_name, few=15, many=60)


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
POSTED = ["queue/join", "call/run", "call/nope", "call/v2/run", "call/v2/nope", "run/run", "run/predict"]
POSTED += ["run/nope", "api/run", "cancel", "reset"]


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
/specdemo-lab/theory?alpha=nan
/specdemo-lab/theory?alpha=1e999&k=x
/specdemo-lab/theory?run_k=inf
/specdemo-lab/theory?theme=1
/specdemo-lab/theory?k=3.7
/specdemo-lab/theory?__proto__=1
/specdemo-lab/run
/gradio_api/queue/join"""


@pytest.mark.parametrize("path", FETCHED.splitlines())
def test_addresses_with_nothing_behind_them_are_refused(visitor, path):
    reply = visitor.http.get(path.format(long="a" * 3_000))
    check(reply)
    assert 400 <= reply.status_code < 500


def test_a_session_nobody_has_ends_its_stream(visitor):
    reply = visitor.http.get(f"{API}/queue/data?session_hash=nobody")
    assert reply.status_code == 200 and json.loads(reply.text.removeprefix("data: "))["session_not_found"]


def test_an_answer_is_fetched_once(visitor):
    body = {"data": visitor.values("quiz", {"question": 0})}
    path = f"{API}/call/quiz/{visitor.post('call/quiz', body).json()['event_id']}"
    assert visitor.answer(path)[0] == "error"
    again = visitor.http.get(path)
    check(again)
    assert again.status_code == 404


@st.composite
def odd_bodies(draw: Any) -> bytes:
    """What Gradio's addresses may be sent: nearly right, or nothing like it."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=40))
    keys = ["data", "fn_index", "session_hash", "event_id", "trigger_id", "event_data", "batched", "prompt"]
    known = {"data": st.lists(ANYTHING, max_size=4), "fn_index": st.integers(-2, 200)}
    known |= {"session_hash": st.sampled_from(["abc", "a b", ""]), "event_id": st.text(max_size=5)}
    body = {
        key: draw(known.get(key, ANYTHING) if draw(st.booleans()) else ANYTHING)
        for key in draw(st.lists(st.sampled_from(keys), unique=True, max_size=6))
    }
    return json.dumps(body).encode()


def body_is_answered_with_sense(visitor, path, body):
    reply = visitor.http.post(f"{API}/{path}", content=body, headers={"content-type": "application/json"})
    check(reply)


test_gradio_answers_any_body_with_sense, test_five_hundred_odd_bodies = few_and_many(
    given(st.sampled_from(POSTED), odd_bodies()), body_is_answered_with_sense, few=60, many=500
)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
"""What UTF-8 can hold."""


@st.composite
def odd_addresses(draw: Any) -> tuple[str, dict[str, str]]:
    """Anything behind our own prefixes and Gradio's, with any parameters."""
    prefixes = ["", "specdemo-traces", "specdemo-lab", "specdemo-lab/theory", "specdemo-static", "static"]
    prefixes += ["assets", "gradio_api", "gradio_api/file=", "gradio_api/call/run", "config", "svelte"]
    parts = st.text(max_size=8) | st.sampled_from(
        ["..", "%2e%2e", "..%2f..", "etc/passwd", "page.py", "*", "~"]
    )
    path = "/".join([draw(st.sampled_from(prefixes)), *draw(st.lists(parts, max_size=3))])
    words = ["alpha", "k", "c", "growth", "theme", "run_k", "page", "deep_link", "session_hash"]
    values = st.sampled_from(["nan", "-1", "3.7", "1e9", "", "%00", "../x", "9" * 400]) | WORDS
    return path, draw(st.dictionaries(st.sampled_from(words) | WORDS, values, max_size=3))


def address_is_answered_with_sense(visitor, address):
    path, query = address
    if query.get("session_hash") is not None and path.startswith("gradio_api"):
        query["session_hash"] += "!"  # a stream of a session may last
    url = f"/{quote(path, safe='/%').lstrip('/')}?{urlencode(query, errors='replace')}"
    with visitor.http.stream("GET", url) as reply:
        if reply.status_code >= 400:
            reply.read()
        check(reply)


test_any_address_is_answered_with_sense, test_three_hundred_odd_addresses = few_and_many(
    given(odd_addresses()), address_is_answered_with_sense, few=40, many=300
)


def odd_trace_is_answered_with_sense(visitor, value, route, data):
    trace = json.loads(finished().to_json())
    key = data.draw(st.sampled_from([*trace, "__proto__", "constructor"]))
    check(visitor.http.post(f"/{route}", content=json.dumps({**trace, key: value})))


test_our_own_routes_take_no_trace_for_granted, test_a_hundred_and_fifty_odd_traces = few_and_many(
    given(ANYTHING, st.sampled_from(["specdemo-traces", "specdemo-lab/run"]), st.data()),
    odd_trace_is_answered_with_sense,
    few=15,
    many=150,
)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_other_methods_are_refused(visitor, method):
    for path in ("/", f"{API}/queue/join", "/specdemo-traces", "/specdemo-static/stage.js"):
        reply = visitor.http.request(method, path)
        check(reply)
        assert reply.status_code == 405
