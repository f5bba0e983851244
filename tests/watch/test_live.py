"""Runs of watched servers as a page gets them: as events, and as a trace that loads again."""

import base64
import threading

import pytest
from helpers.recorded_streams import events_of
from helpers.waiting import PATIENCE_S
from helpers.watched_runs import PROMPT, RAW, saved, seen, watching
from helpers.watched_server import Answer, gated, json_answer, replayed

from specdemo.engine.race import replay_events
from specdemo.records import trace_file
from specdemo.records.events import ROUND_FIGURES
from specdemo.records.trace import WATCHED_VERSION, Finish, dump
from specdemo.service.jobs import JobKind
from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.reader import Reader
from specdemo.watch.servers import Server
from specdemo.watch.vllm import RayServeReader, VllmReader

# The list of models, the stream, the reader, and whether the server reports its rounds.
SERVERS = {
    "llama": ("llama-models.json", "llama-ngram-chat-numbers", LlamaServerReader, True),
    "llama-eos": ("llama-models.json", "llama-draft-chat-eos-paris", LlamaServerReader, True),
    "vllm": ("vllm-models.json", "vllm-chat-mixed-logprobs", VllmReader, True),
    "vllm-plain": ("vllm-models.json", "documented-vllm-chat-plain", VllmReader, False),
    "ray": ("ray-models.json", "vllm-draftmodel-greedy", RayServeReader, True),
    "sglang": ("sglang-models.json", "documented-sglang-chat-plain", Reader, False),
    "lm-studio": ("lmstudio-models.json", "documented-lmstudio-chat-plain", Reader, False),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_whole_run_is_streamed_saved_and_played_again(serve, kind):
    models, name, reader, rounds = SERVERS[kind]
    server = serve(replayed(name), models)
    events = seen(server)
    types = [event["type"] for event in events]
    first = types.index("start")
    assert set(types[:first]) == {"progress"} and types[-1] == "end"
    assert set(types[first + 1 : -1]) == {"round"}
    begun = events[first]["run"]
    watched = begun["watched"]
    assert (watched["engine"], watched["server"], watched["rounds"]) == (reader.title, "Box", rounds)
    assert 0 < len(watched["silent"]) <= 4 and all(words.endswith(".") for words in watched["silent"])
    assert (begun["version"], begun["device"], begun["calibration"]) == (WATCHED_VERSION, "Box", None)
    assert (begun["config"]["drafter"], begun["config"]["k"]) == ("server", "auto")
    run = trace_file.load(dump(saved(events)))
    assert run.watched is not None and run.watched.rounds == rounds
    *_, end = replay_events(run)
    assert end["totals"] == events[-1]["totals"] == run.totals
    assert events[-1]["sentence"].startswith(end["sentence"])
    assert [run.totals[figure] is None for figure in ROUND_FIGURES] != [rounds] * len(ROUND_FIGURES)
    assert "127.0.0.1" not in dump(events)
    choices = [choice for event in events_of(name) for choice in event["choices"]]
    sent = "".join(choice.get("delta", {}).get("content") or "" for choice in choices)
    texts = {token: base64.b64decode(piece) for token, piece in run.pieces.items()}
    ids = [token for token in run.lanes["speculative"].ids if token not in run.specials]
    assert b"".join(texts[token] for token in ids).decode() == sent
    assert b"".join(texts[token] for token in run.prompt_ids).decode() == PROMPT
    fields = server.asked[-1][1].keys()
    assert ("return_token_ids" in fields) == ("logprobs" in fields) == (kind[:4] in ("vllm", "ray")), (
        "SGLang refuses these fields"
    )
    assert "stream_options" in fields and ("timings_per_token" in fields) == kind.startswith("llama")


def test_the_counts_of_a_run_are_the_servers(serve):
    end = seen(serve(replayed("llama-ngram-chat-numbers")))[-1]
    totals = end["totals"]
    assert (totals["tokens"], totals["passes"], totals["alpha_drafted"]) == (96, 23, 1.0)
    assert end["finish"] == Finish.LENGTH and end["badge"] is None
    assert "73 of 73 draft tokens as accepted (100% per drafted token)." in end["sentence"]


def test_rounds_that_a_server_reports_as_they_happen_are_shown_as_they_happen(serve):
    gate, before_gate = threading.Event(), []
    server = serve(gated("llama-ngram-chat-numbers", gate))
    for event in watching(Server("Box", server.url)).events(JobKind.RUN, RAW, lambda: False, "watch:Box"):
        if event["type"] == "round":
            before_gate.append(not gate.is_set())
            gate.set()
    assert before_gate[0] and len(before_gate) == 23


def test_a_wait_for_rounds_at_the_end_shows_progress(serve):
    events = seen(serve(replayed("vllm-draftmodel-greedy"), "vllm-models.json"))
    waits = [event for event in events if event["type"] == "progress"]
    assert (
        waits[0]["text"] == "Asking Box"
        and "reports its rounds at the end; events so far: 1" in waits[1]["text"]
    )
    assert all(0 <= event["fraction"] <= 1 for event in waits)


def test_the_request_has_the_visitors_settings(serve):
    server = serve(replayed("llama-none-chat-short"))
    sampling = {"temperature": 0.7, "top_k": 9, "top_p": 0.5, "seed": 5}
    seen(server, {"prompt": "Hé?", "baseline": False, "max_new_tokens": 40, **sampling})
    path, body = server.asked[-1]
    assert path == "/v1/chat/completions" and body["messages"] == [{"role": "user", "content": "Hé?"}]
    wanted = {**sampling, "max_tokens": 40, "stream": True, "model": "SmolLM2-135M-Instruct.Q4_1"}
    assert body | wanted == body
    server.stream = replayed("llama-ngram-text-code")
    seen(server, {"prompt": "def area(", "baseline": False, "mode": "raw"})
    path, body = server.asked[-1]
    assert path == "/v1/completions" and body["prompt"] == "def area("
    assert not {"messages", "top_k"} & body.keys()


@pytest.mark.parametrize("owner", [{}, {"owned_by": "somebody"}, {"owned_by": None}, {"owned_by": ["vllm"]}])
def test_a_server_of_an_unknown_kind_is_shown_in_pieces(serve, owner):
    server = serve(replayed("documented-sglang-chat-plain"), json_answer({"data": [{"id": "x", **owner}]}))
    start = next(event for event in seen(server) if event["type"] == "start")
    assert start["run"]["watched"]["engine"] == "a server with OpenAI's API"
    assert start["run"]["watched"]["rounds"] is False and start["run"]["pair"]["target"] == "x"


@pytest.mark.parametrize(("kind", "after"), [("llama", 3), ("vllm", 12), ("sglang", 1), ("lm-studio", 1)])
def test_a_stop_in_the_middle_ends_the_run_and_keeps_its_tokens(serve, kind, after):
    models, name, *_ = SERVERS[kind]
    parts = list(replayed(name))
    server = serve(Answer(parts[: len(parts) // 2], ends="never"), models)
    events = []

    def stop() -> bool:
        return sum(event["type"] == "round" or "events" in event.get("text", "") for event in events) > after

    for event in watching(Server("Box", server.url)).events(JobKind.RUN, RAW, stop, "watch:Box"):
        events.append(event)
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    assert events[-1]["sentence"].startswith("Stopped early.")
    assert 0 < events[-1]["totals"]["tokens"] < 40
    assert trace_file.load(dump(saved(events))).lanes["speculative"].finish is Finish.STOPPED
    assert server.left.wait(PATIENCE_S)
