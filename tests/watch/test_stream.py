"""Hostile and broken servers over real HTTP: a visitor soon gets one harmless sentence."""

import gzip
import threading
import tracemalloc
from collections.abc import Iterator

import pytest
from helpers.recorded_streams import recorded
from helpers.waiting import PATIENCE_S
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

from specdemo.records import trace_file
from specdemo.records.limits import UserError, parse_config
from specdemo.watch import stream
from specdemo.watch.run import WatchedRun
from specdemo.watch.servers import Server

GOOD = "llama-draft-chat-eos-paris"
CONFIG = parse_config({"prompt": "What is the capital of France?", "baseline": False})


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A llama.cpp server with good answers, until a test changes them."""
    with stand_in("llama-models.json", replayed(GOOD)) as one:
        yield one


def run_on(server: StandIn, stop=lambda: False) -> tuple[WatchedRun, list[dict]]:
    """A whole run, and its events."""
    run = WatchedRun(Server("Box", server.url), CONFIG, stop)
    return run, list(run.events())


def refusal(server: StandIn) -> str:
    """Return the one sentence that ends a run, without addresses; then check a run of a good server."""
    with pytest.raises(UserError) as raised:
        run_on(server)
    sentence = str(raised.value)
    assert "Box" in sentence and sentence.endswith(".") and not sentence.endswith("..")
    assert sentence.isprintable() and len(sentence) < 300
    for secret in ("http", "127.0.0.1", "localhost", server.url.rpartition(":")[2], "/", "\\", "gpu-7", "<"):
        assert secret not in sentence, sentence
    server.models, server.stream = GOOD_MODELS, replayed(GOOD)
    assert run_on(server)[1][-1]["type"] == "end"
    return sentence


GOOD_MODELS = Answer([recorded("llama-models.json")], kind=JSON)
INNER = [
    "no model at http://10.0.0.7:8000",
    "cannot open /srv/models/secret.gguf",
    r"cannot open C:\models\secret.gguf",
    "upstream 10.0.0.7 refused",
    "upstream gpu-7:8000 refused",
    "upstream gpu-7.corp.example refused",
    "nothing listens on port 8000",
    "connect to [fe80::1] failed",
    "LOCALHOST is full",
    "<b>bold</b>",
]


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_a_stream_reads_the_same_however_it_is_cut_into_parts(server, size):
    whole, _ = run_on(server)
    server.stream = replayed(GOOD, size)
    again, _ = run_on(server)
    assert again.run.lanes["speculative"].rounds[0].prefill_s == pytest.approx(0.500286)
    assert again.run.lanes == whole.run.lanes and again.run.pieces == whole.run.pieces


WINDOWS = [
    b": ping\r\n",
    *(part.replace(b"\n", b"\r\n") for part in replayed(GOOD)),
    b"event: x\r\nid: 3\r\n",
]
SPLIT = [part.replace(b'data: {"', b'id: 1\nretry: x\nevent: y\ndata: {\ndata:"') for part in replayed(GOOD)]


@pytest.mark.parametrize(
    "answer",
    [Answer(WINDOWS), Answer(SPLIT), Answer(list(replayed(GOOD)), kind="text/event-stream; charset=utf-16")],
    ids=["Windows lines and comments", "fields and data in two lines", "another charset"],
)
def test_other_ways_to_write_a_stream_read_the_same(server, answer):
    server.stream = answer
    assert run_on(server)[1][-1]["totals"]["tokens"] == 6


def test_a_server_that_is_not_there_is_reported():
    with stand_in("llama-models.json") as gone:
        url = gone.url
    with pytest.raises(UserError, match=r"^Box cannot be reached now; try again later\.$"):
        list(WatchedRun(Server("Box", url), CONFIG, lambda: False).events())


@pytest.mark.parametrize("place", ["models", "stream"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CLOSED, "The connection to Box was lost; try again."),
        (Answer([b"data: {}"], ends="cut"), "The connection to Box was lost; try again."),
        (json_answer({"error": {"message": "The disk is full."}}, 500), "(status 500): The disk is full."),
        (json_answer({"error": "no such thing"}, 400), "Box refused this (status 400): no such thing."),
        (json_answer({"object": "error", "message": "too long"}, 400), "(status 400): too long."),
        (json_answer({"error": {"message": 7}}, 503), "Box refused this (status 503)."),
        (json_answer(b"<html>Bad gateway</html>", 502, kind="text/html"), "Box refused this (status 502)."),
        (json_answer(b"[" * 100_000, 500), "Box refused this (status 500)."),
        (json_answer({"error": "..."}, 500), "Box refused this (status 500)."),
        (json_answer({"error": "\x1b[31m\u202ered\u0000\ud800 "}, 500), "(status 500): [31mred."),
        (
            Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}),
            "a redirect, which is not followed",
        ),
        (Answer(status=307, headers={"Location": "file:///etc/passwd"}), "a redirect, which is not followed"),
    ],
    ids=range(12),
)
def test_a_server_that_fails_is_refused_in_one_sentence(server, place, answer, words):
    setattr(server, place, answer)
    assert words in refusal(server)


@pytest.mark.parametrize(
    ("place", "answer"),
    [
        ("models", Answer(first_s=PATIENCE_S)),
        ("stream", Answer(first_s=PATIENCE_S)),
        ("stream", Answer([*list(replayed(GOOD))[:5]], ends="never")),
    ],
    ids=range(3),
)
def test_a_silent_server_is_not_waited_for(monkeypatch, server, place, answer):
    setattr(server, place, answer)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "SILENT_S", 0.5)
        with pytest.raises(UserError, match=r"^Box was silent for 0\.5 s; try again later\.$"):
            run_on(server)
    assert server.left.wait(PATIENCE_S), "the server notices that its client has gone"


@pytest.mark.parametrize("inner", INNER)
def test_addresses_and_folders_in_a_server_s_words_are_kept_from_visitors(server, inner):
    server.stream = json_answer({"error": {"message": inner}}, 500)
    assert refusal(server) == "Box refused this (status 500)."
    server.stream = streamed({"error": {"message": inner}})
    assert refusal(server) == "Box ended this."


def test_the_words_of_vllm_reach_the_visitor(server):
    server.stream = replayed("vllm-error-in-stream")
    not_yet = "sampling parameters are not yet supported with speculative decoding."
    assert refusal(server) == f"Box ended this: The min_p and logit_bias {not_yet}"
    server.stream = Answer(replayed("vllm-error-400.json").parts, status=400, kind=JSON)
    assert refusal(server).startswith("Box refused this (status 400): max_tokens=5000 cannot be greater than")


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (json_answer({"detail": "Not Found"}, 404), "(status 404)"),
        (json_answer({"object": "list", "data": []}), "Box lists no model"),
        (json_answer({"data": {}}), "Box lists no model"),
        (json_answer({"data": [None]}), "Box lists no model"),
        (json_answer({"data": [{"id": 7}]}), "Box lists no model"),
        (json_answer({"data": [{"id": ""}]}), "Box lists no model"),
        (json_answer({}), "Box lists no model"),
        (json_answer([]), "no JSON object"),
        (json_answer(b"<html></html>", kind="text/html"), "no JSON object"),
        (json_answer(b"\xff\xfe"), "no JSON object"),
        (json_answer(b"[" * 100_000), "no JSON object"),
        (json_answer(b'{"a":' * 100_000), "no JSON object"),
        (json_answer(gzip.compress(b'{"data": [{"id": "x"}]}')), "no JSON object"),
        (json_answer(b" " * 1_000_001), "Box sent more than 1,000,000 bytes, so its answer was cut off."),
    ],
    ids=range(14),
)
def test_an_invalid_list_of_models_is_refused_in_one_sentence(server, models, words):
    server.models = models
    assert words in refusal(server)


def test_a_list_of_models_that_never_ends_is_not_waited_for(monkeypatch, server):
    monkeypatch.setattr(stream, "REPLY_S", 1.0)
    server.models = Answer(lambda: iter(lambda: b" ", b""), kind=JSON, pause_s=0.05)
    with pytest.raises(UserError, match=r"^Box took more than 1 s to answer; try again later\.$"):
        run_on(server)
    assert server.left.wait(PATIENCE_S)


NUMBERS = "9" * 5000


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer([b"<html></html>"], kind="text/html"), "Box answers with a web page"),
        (json_answer({"choices": []}), "Box answers with no stream of events"),
        (replayed(GOOD, ends="never", kind="text/plain"), "Box answers with no stream of events"),
        (Answer([*list(replayed(GOOD))[:5]]), "The stream of Box was cut off before its end; try again."),
        (Answer([*list(replayed(GOOD))[:5]], ends="cut"), "The connection to Box was lost; try again."),
        (Answer(), "The stream of Box was cut off before its end"),
        (streamed(), "Box wrote nothing"),
        (streamed({}, {"choices": []}), "Box wrote nothing"),
        (streamed(b"{", b"}"), "no JSON object"),
        (streamed(b"[1]"), "no JSON object"),
        (streamed(b"7"), "no JSON object"),
        (streamed(b""), "Box wrote nothing"),
        (streamed(b"[" * 100_000), "no JSON object"),
        (streamed(b'{"a":' * 100_000), "no JSON object"),
        (streamed(b'{"a":' + NUMBERS.encode() + b"}"), "no JSON object"),
        (streamed({"error": {"message": "Out of memory."}}), "Box ended this: Out of memory."),
        (streamed({"error": "Out of memory"}), "Box ended this: Out of memory."),
        (streamed({"error": [1]}), "Box ended this."),
        (streamed({"error": {"message": None}}), "Box ended this."),
        (
            Answer([gzip.compress(b"".join(replayed(GOOD)))], headers={"Content-Encoding": "gzip"}),
            "was cut off before its end",
        ),
        (streamed(b'{"x": "' + b"y" * 5_000_000 + b'"}'), "an event of more than 1,000,000 characters"),
        (
            streamed(b'{"timings":{"predicted_n":1,"predicted_ms":NaN}}'),
            "(a time that runs backwards)",
        ),
        (
            streamed(b'{"timings":{"predicted_n":1,"predicted_ms":1,"draft_n":1,"draft_n_accepted":2}}'),
            "(2 accepted of 1 drafted)",
        ),
        (streamed(b'{"timings":{"predicted_n":999,"predicted_ms":1}}'), "more tokens than were asked for"),
        (
            streamed(b'{"timings":{"predicted_n":1,"predicted_ms":1,"draft_n":500}}'),
            "Box drafts 500 tokens in a round; at most 128 can be shown.",
        ),
    ],
    ids=range(25),
)
def test_an_invalid_stream_is_refused_in_one_sentence(server, answer, words):
    server.stream = answer
    assert words in refusal(server)


def endless(part: bytes, most: int = 100_000_000) -> Answer:
    return Answer(lambda: (part for _ in range(most // len(part))))


@pytest.mark.parametrize(
    ("answer", "words", "most_sent"),
    [
        (endless(b"x" * 65_536), "more than 8,000,000 bytes", 20_000_000),
        (endless(b"data: {}\n\n" * 1_000), "more than 20,000 events", 20_000_000),
        (endless(b": ping" + b" " * 500_000 + b"\n\n"), "more than 8,000,000 bytes", 20_000_000),
    ],
    ids=["one line", "small events", "nothing but comments"],
)
def test_an_endless_stream_is_ended_before_it_fills_the_memory(server, answer, words, most_sent):
    server.stream = answer
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=words):
            run_on(server)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000
    assert server.left.wait(PATIENCE_S) and server.sent < most_sent, (
        "the server notices that its client has gone"
    )
    server.stream = replayed(GOOD)
    assert run_on(server)[1][-1]["type"] == "end"


@pytest.mark.parametrize("place", ["models", "stream"])
@pytest.mark.parametrize("how", ["silent", "slow"])
def test_a_stop_ends_any_wait_and_frees_the_server(monkeypatch, server, place, how):
    monkeypatch.setattr(stream, "SILENT_S", 10 * PATIENCE_S)
    drip = Answer(lambda: iter(lambda: b": wait\n\n", b""), pause_s=0.05)
    setattr(server, place, Answer(first_s=5 * PATIENCE_S) if how == "silent" else drip)
    listed = len(recorded("llama-models.json")) if place == "stream" else 0

    def waits() -> bool:
        has_asked = len(server.keys) > (place == "stream")
        return has_asked and (how == "silent" or server.sent > listed + 20)

    _, events = run_on(server, waits)
    assert events[-1] == {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
    assert server.left.wait(PATIENCE_S), "the server notices that its client has gone"


def test_a_visitor_who_leaves_frees_the_server(server):
    server.stream = Answer(list(replayed("llama-ngram-chat-numbers"))[:8], ends="never")
    events = WatchedRun(Server("Box", server.url), CONFIG, lambda: False).events()
    while next(events)["type"] != "round":
        pass
    events.close()
    assert server.left.wait(PATIENCE_S)
    for reader in [one for one in threading.enumerate() if one.name == "watch"]:
        reader.join(PATIENCE_S)
        assert not reader.is_alive()


def test_no_request_goes_to_an_address_that_a_server_names(server):
    with stand_in("llama-models.json", replayed(GOOD)) as other:
        for status in (301, 302, 303, 307, 308):
            server.models = Answer(status=status, headers={"Location": f"{other.url}/v1/models"})
            assert "redirect" in refusal(server)
        assert not other.keys and not other.asked


def test_no_proxy_of_the_environment_is_used(monkeypatch, server):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run_on(server)[1][-1]["type"] == "end"


def test_the_host_s_key_is_sent_and_shown_to_nobody(monkeypatch, server):
    run_on(server)
    monkeypatch.setenv("SPECDEMO_WATCH_KEY", "sesame")
    run, events = run_on(server)
    assert server.keys == [None, None, "Bearer sesame", "Bearer sesame"]
    assert "sesame" not in str(events) and "sesame" not in run.run.to_json()


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
    again = trace_file.load(run.run.to_json().encode())
    assert again == run.run and events[-1]["type"] == "end"


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
        ("<b>x", "<b>x"),
    ],
)
def test_a_model_is_called_by_its_name_without_its_folder(server, model, shown):
    server.models = json_answer({"data": [{"id": model, "owned_by": "llamacpp"}]})
    run, _ = run_on(server)
    assert run.run.pair["target"] == shown
    assert server.asked[-1][1]["model"] == model
    assert trace_file.load(run.run.to_json().encode()).pair["target"] == shown


def test_a_stream_ends_with_its_done_event(server):
    server.stream = Answer([*replayed(GOOD), DONE, b"data: {"], ends="cut")
    assert run_on(server)[1][-1]["totals"]["tokens"] == 6
