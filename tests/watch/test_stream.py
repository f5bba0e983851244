"""Hostile and broken servers over real HTTP: a visitor soon gets one harmless sentence."""

import gzip
import threading

import pytest
from helpers.recorded_streams import recorded
from helpers.waiting import PATIENCE_S, until
from helpers.watched_server import (
    CLOSED,
    DONE,
    JSON,
    Answer,
    StandIn,
    json_answer,
    replayed,
    stand_in,
    streamed,
)

from specdemo.engine.speculate import never
from specdemo.records import trace_file
from specdemo.records.events import STOPPED
from specdemo.records.limits import UserError, parse_config
from specdemo.watch import stream
from specdemo.watch.run import WatchedRun
from specdemo.watch.servers import Server

GOOD = "llama-draft-chat-eos-paris"
PARTS = [*replayed(GOOD)]
CUT = PARTS[:5]
CONFIG = parse_config({"prompt": "What is the capital of France?", "baseline": False})
MODELS, STREAM = "models", "stream"


@pytest.fixture
def server(serve) -> StandIn:
    """A llama.cpp server with good answers, until a test changes them."""
    return serve(replayed(GOOD))


def run_on(server: StandIn, stop=never) -> tuple[WatchedRun, list[dict]]:
    run = WatchedRun(Server("Box", server.url), CONFIG, stop)
    return run, list(run.events())


def refusal(server: StandIn) -> str:
    """Return the one sentence that ends a run, without addresses."""
    with pytest.raises(UserError) as raised:
        run_on(server)
    sentence = str(raised.value)
    assert "Box" in sentence and sentence.endswith(".") and not sentence.endswith("..")
    assert sentence.isprintable() and len(sentence) < 300
    for secret in ("http", "127.0.0.1", "localhost", server.url.rpartition(":")[2], "/", "\\", "gpu-7", "<"):
        assert secret not in sentence, sentence
    return sentence


WINDOWS = [b": ping\r\n", *(part.replace(b"\n", b"\r\n") for part in PARTS), b"event: x\r\nid: 3\r\n"]
SPLIT = [part.replace(b'data: {"', b'id: 1\nretry: x\nevent: y\ndata: {\ndata:"') for part in PARTS]
FORMS = {
    **{f"parts of {size} bytes": replayed(GOOD, size) for size in (1, 7, 1000, 10**6)},
    "Windows lines and comments": Answer(WINDOWS),
    "fields and data in two lines": Answer(SPLIT),
    "another charset": Answer(PARTS, kind="text/event-stream; charset=utf-16"),
    "ends with [DONE]": Answer([*PARTS, DONE, b"data: {"], ends="cut"),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_stream_read_the_same(server, form):
    whole, _ = run_on(server)
    server.stream = FORMS[form]
    again, events = run_on(server)
    assert again.run.lanes["speculative"].rounds[0].prefill_s == pytest.approx(0.500286)
    assert again.run.lanes == whole.run.lanes and again.run.pieces == whole.run.pieces
    assert events[-1]["totals"]["tokens"] == 6


@pytest.mark.parametrize("ends", ["well", "cut", "never"])
def test_a_finished_stream_needs_no_end(monkeypatch, server, ends):
    monkeypatch.setattr(stream, "SILENT_S", 0.2)
    server.stream = Answer(PARTS[:-1], ends=ends)  # without [DONE]
    assert run_on(server)[1][-1]["totals"]["tokens"] == 6


def test_a_server_that_is_not_there_is_reported():
    with stand_in("llama-models.json") as gone:
        pass
    with pytest.raises(UserError, match=r"^Box cannot be reached now; try again later\.$"):
        run_on(gone)


LOST = "The connection to Box was lost"
REDIRECT = "Box redirects to a different address"
EITHER = [
    (CLOSED, LOST),
    (Answer([b"data: {}"], ends="cut"), LOST),
    (json_answer({"error": {"message": "The disk is full."}}, 500), "(status 500): The disk is full;"),
    (json_answer({"error": "no such thing"}, 400), "Box refused the request (status 400): no such thing;"),
    (json_answer({"object": "error", "message": "too long"}, 400), "(status 400): too long;"),
    (json_answer({"error": {"message": 7}}, 503), "(status 503);"),
    (json_answer(b"<html>Bad gateway</html>", 502, kind="text/html"), "(status 502);"),
    (json_answer(b"[" * 100_000, 500), "(status 500);"),
    (json_answer({"error": "..."}, 500), "(status 500);"),
    (json_answer({"error": "\x1b[31m\u202ered\u0000\ud800 "}, 500), "(status 500): [31mred;"),
    (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), REDIRECT),
    (Answer(status=307, headers={"Location": "file:///etc/passwd"}), REDIRECT),
]
"""Answers that are refused in place of a list of models and of a stream."""
LISTS = [
    *(({"object": "list", "data": data}, "lists no models") for data in ([], {}, [None], [{"id": 7}])),
    *((value, "lists no models") for value in ({}, {"data": [{"id": ""}]})),
    *((body, "invalid JSON") for body in ([], b"<html></html>", b"\xff\xfe", b"[" * 100_000)),
    *((body, "invalid JSON") for body in (b'{"a":' * 100_000, gzip.compress(b'{"data": [{"id": "x"}]}'))),
    (b" " * 1_000_001, "Box sent more than 1,000,000 bytes"),
]
UNFINISHED = streamed({"choices": [{"text": "x", "finish_reason": ""}]}, done=False)
GZIP = Answer([gzip.compress(b"".join(PARTS))], headers={"Content-Encoding": "gzip"})
EVENTS = [
    *((event, "invalid JSON") for event in (b"[1]", b"7", b"[" * 100_000, b'{"a":' * 100_000)),
    (b'{"a":' + b"9" * 5000 + b"}", "invalid JSON"),
    (b"", "Box returned no text"),
    ({"error": {"message": "Out of memory."}}, "and ended the run: Out of memory;"),
    ({"object": "error", "message": "too long"}, "Box reported an error and ended the run: too long;"),
    *(({"error": error}, "Box reported an error and ended the run;") for error in ([1], {"message": None})),
    (b'{"x": "' + b"y" * 1_000_000 + b'"}', "an event of more than 1,000,000 characters"),
    ({"timings": {"predicted_n": 1, "predicted_ms": float("nan")}}, "(a time that runs backwards)"),
    ({"timings": {"predicted_n": 999, "predicted_ms": 1}}, "more tokens than requested"),
    ({"timings": {"predicted_n": 1, "predicted_ms": 1, "draft_n": 500}}, "shows at most 128"),
]
STREAMS = [
    (Answer([b"<html></html>"], kind="text/html"), "Box sent a web page"),
    (json_answer({"choices": []}), "Box did not send a stream of events"),
    (replayed(GOOD, ends="never", kind="text/plain"), "Box did not send a stream of events"),
    *((answer, "The reply from Box ended before") for answer in (Answer(CUT), Answer(), GZIP, UNFINISHED)),
    (Answer(CUT, ends="cut"), LOST),
    *((answer, "Box returned no text") for answer in (streamed(), streamed({}, {"choices": []}))),
    *((streamed(event), words) for event, words in EVENTS),
]
REFUSED = [
    *((place, answer, words) for place in (MODELS, STREAM) for answer, words in EITHER),
    *((MODELS, json_answer(value), words) for value, words in LISTS),
    *((STREAM, answer, words) for answer, words in STREAMS),
]


@pytest.mark.parametrize(("place", "answer", "words"), REFUSED, ids=range(len(REFUSED)))
def test_an_invalid_answer_is_refused_in_one_sentence(server, place, answer, words):
    setattr(server, place, answer)
    assert words in refusal(server)


SECRETS = ["no model at http://10.0.0.7:8000", "cannot open /srv/models/secret.gguf", "<b>bold</b>"]
SECRETS += [r"cannot open C:\models\secret.gguf", "upstream 10.0.0.7 refused", "LOCALHOST is full"]
SECRETS += [
    "upstream gpu-7:8000 refused",
    "upstream gpu-7.corp.example refused",
    "connect to [fe80::1] failed",
]


@pytest.mark.parametrize("inner", [*SECRETS, "nothing listens on port 8000"])
def test_addresses_and_folders_in_a_servers_message_are_kept_from_visitors(server, inner):
    server.stream = json_answer({"error": {"message": inner}}, 500)
    assert refusal(server).startswith("Box refused the request (status 500); try again")
    server.stream = streamed({"error": {"message": inner}})
    assert refusal(server).startswith("Box reported an error and ended the run; try again")


def test_the_messages_of_vllm_reach_the_visitor(server):
    server.stream = replayed("vllm-error-in-stream")
    assert "ended the run: The min_p and logit_bias sampling parameters" in refusal(server)
    server.stream = Answer(replayed("vllm-error-400.json").parts, status=400, kind=JSON)
    assert "(status 400): max_tokens=5000 cannot be greater than" in refusal(server)


SILENT = "Box was silent for 0.2 s; try again later."
ENDLESS = Answer(lambda: iter(lambda: b" ", b""), kind=JSON, pause_s=0.02)


@pytest.mark.parametrize(
    ("limit", "place", "answer", "sentence"),
    [
        ("SILENT_S", MODELS, Answer(first_s=PATIENCE_S), SILENT),
        ("SILENT_S", STREAM, Answer(first_s=PATIENCE_S), SILENT),
        ("SILENT_S", STREAM, Answer(CUT, ends="never"), SILENT),
        ("REPLY_S", MODELS, ENDLESS, "Box took more than 0.2 s to answer; try again later."),
    ],
    ids=range(4),
)
def test_a_silent_or_slow_server_is_not_waited_for(monkeypatch, server, limit, place, answer, sentence):
    monkeypatch.setattr(stream, limit, 0.2)
    setattr(server, place, answer)
    assert refusal(server) == sentence
    assert server.left.wait(PATIENCE_S), "the server notices that its client has gone"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (b"x" * 65_536, "more than 500,000 bytes"),
        (b"data: {}\n\n" * 1_000, "more than 20,000 events"),
        (b": ping" + b" " * 500_000 + b"\n\n", "more than 500,000 bytes"),
    ],
    ids=["one line", "small events", "nothing but comments"],
)
def test_an_endless_stream_is_ended_before_it_fills_the_memory(monkeypatch, server, part, words):
    monkeypatch.setattr(stream, "MAX_BYTES", 500_000)
    server.stream = Answer(lambda: iter(lambda: part, b""))
    assert words in refusal(server)
    assert server.left.wait(PATIENCE_S), "the server notices that its client has gone"
    assert server.sent < 10_000_000, "little more than the buffers of both sockets"


@pytest.mark.parametrize("place", [MODELS, STREAM])
@pytest.mark.parametrize("how", ["silent", "slow"])
def test_a_stop_ends_any_wait_and_frees_the_server(server, place, how):
    drip = Answer(lambda: iter(lambda: b": wait\n\n", b""), pause_s=0.02)
    setattr(server, place, Answer(first_s=5 * PATIENCE_S) if how == "silent" else drip)
    listed = len(recorded("llama-models.json")) if place == STREAM else 0

    def waits() -> bool:
        has_asked = len(server.keys) > (place == STREAM)
        return has_asked and (how == "silent" or server.sent > listed + 20)

    _, events = run_on(server, waits)
    assert events[-1] == STOPPED
    assert server.left.wait(PATIENCE_S), "the server notices that its client has gone"


def test_a_visitor_who_leaves_frees_the_server_and_the_thread(server):
    server.stream = Answer([*replayed("llama-ngram-chat-numbers")][:8], ends="never")
    events = WatchedRun(Server("Box", server.url), CONFIG, never).events()
    while next(events)["type"] != "round":
        pass
    events.close()
    assert server.left.wait(PATIENCE_S)
    until(lambda: not any(thread.name == "watch" for thread in threading.enumerate()))


def test_no_redirect_is_followed(server):
    with stand_in("llama-models.json", replayed(GOOD)) as other:
        for status in (301, 302, 303, 307, 308):
            server.models = Answer(status=status, headers={"Location": f"{other.url}/v1/models"})
            assert REDIRECT in refusal(server)
        assert not other.keys and not other.asked


def test_no_proxy_of_the_environment_is_used(monkeypatch, server):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run_on(server)[1][-1]["type"] == "end"


def test_the_hosts_key_is_sent_and_shown_to_nobody(monkeypatch, server):
    run_on(server)
    monkeypatch.setenv("SPECDEMO_WATCH_KEY", "sesame")
    run, events = run_on(server)
    assert server.keys == [None, None, "Bearer sesame", "Bearer sesame"]
    assert "sesame" not in str(events) and "sesame" not in run.run.to_json()
    server.stream = json_answer({"error": "the key sesame is wrong"}, 401)
    assert refusal(server).startswith("Box refused the request (status 401); try again")


ODD_TEXTS = [
    "\x1b[31mred\x1b[0m \x07\x00\x7f\x9b2J",
    "\u202eevil\u2066\u200f\ufeff",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "\ud800 and \udfff",
    "é" * 5_000,
    "\u0301\u0301 zalgo",
    "data: [DONE]\n\ndata: {}",
]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_any_text_of_a_server_makes_a_run_that_loads_again(server, text):
    deltas = [{"choices": [{"delta": {"content": part}}]} for part in (text, "then", text)]
    for number, delta in enumerate(deltas, 1):
        delta["timings"] = {"predicted_n": number, "predicted_ms": number * 1e-20, "prompt_ms": 1e-20}
    server.stream = streamed(*deltas)
    run, events = run_on(server)
    assert trace_file.load(run.run.to_json().encode()) == run.run and events[-1]["type"] == "end"


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("/srv/models/Small.gguf", "Small.gguf"),
        (r"C:\models\Small.gguf", "Small.gguf"),
        ("org/Small", "Small"),
        ("Small/", "Small"),
        ("\x1b[31m\u202e\ud800Sm\nall", "[31mSmall"),
        ("/", "unnamed"),
        ("m" * 500, "m" * 80),
    ],
)
def test_a_model_is_shown_by_its_name_without_its_folder(server, model, shown):
    server.models = json_answer({"data": [{"id": model, "owned_by": "llamacpp"}]})
    run, _ = run_on(server)
    assert server.asked[-1][1]["model"] == model
    assert trace_file.load(run.run.to_json().encode()).pair["target"] == shown
