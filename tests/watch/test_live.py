"""Runs of watched servers as a page gets them: as events, as a trace that loads again."""

import base64
import threading

import pytest
from helpers.recorded_streams import events_of
from helpers.waiting import PATIENCE_S
from helpers.watched_runs import PROMPT, RAW, saved, seen, watching
from helpers.watched_server import Answer, gated, json_answer, replayed, stand_in

from specdemo.engine.race import replay_events
from specdemo.records import trace_file
from specdemo.records.events import ROUND_FIGURES
from specdemo.records.trace import WATCHED_VERSION, Finish, dump
from specdemo.service.jobs import JobKind
from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.reader import Reader
from specdemo.watch.servers import Server
from specdemo.watch.vllm import RayServeReader, VllmReader

SERVERS = {
    "llama": ("llama-models.json", "llama-ngram-chat-numbers", LlamaServerReader, True),
    "llama-eos": ("llama-models.json", "llama-draft-chat-eos-paris", LlamaServerReader, True),
    "vllm": ("vllm-models.json", "vllm-chat-mixed-logprobs", VllmReader, True),
    "vllm-plain": ("vllm-models.json", "documented-vllm-chat-plain", VllmReader, False),
    "ray": ("ray-models.json", "vllm-draftmodel-greedy", RayServeReader, True),
    "sglang": ("sglang-models.json", "documented-sglang-chat-plain", Reader, False),
    "lm-studio": ("lmstudio-models.json", "documented-lmstudio-chat-plain", Reader, False),
}
"""For each kind: its list of models, its stream, its reader, and whether it reports its rounds."""


@pytest.mark.parametrize("kind", SERVERS)
def test_a_whole_run_is_streamed_saved_and_played_again(opened, kind):
    models, name, reader, rounds = SERVERS[kind]
    server = opened.enter_context(stand_in(models, replayed(name)))
    events = seen(server)
    types = [event["type"] for event in events]
    first = types.index("start")
    assert set(types[:first]) == {"progress"} and types[-1] == "end"
    assert set(types[first + 1 : -1]) == {"round"}
    begun = events[first]["run"]
    watched = begun["watched"]
    assert (watched["engine"], watched["server"], watched["rounds"]) == (reader.title, "Box", rounds)
    assert 0 < len(watched["silent"]) <= 4 and all(words.endswith(".") for words in watched["silent"])
    assert begun["version"] == WATCHED_VERSION and begun["device"] == "Box" and begun["calibration"] is None
    assert (begun["config"]["drafter"], begun["config"]["k"]) == ("server", "auto")
    run = trace_file.load(dump(saved(events)))
    assert run.watched is not None and run.watched.rounds == rounds
    *_, end = replay_events(run)
    assert end["totals"] == events[-1]["totals"] == run.totals
    assert events[-1]["sentence"].startswith(end["sentence"])
    assert [run.totals[figure] is None for figure in ROUND_FIGURES] != [rounds] * len(ROUND_FIGURES)
    assert "127.0.0.1" not in dump(events) and server.url not in dump(events)
    choices = [choice for event in events_of(name) for choice in event["choices"]]
    sent = "".join(choice.get("delta", {}).get("content") or "" for choice in choices)
    texts = {token: base64.b64decode(piece) for token, piece in run.pieces.items()}
    ids = [token for token in run.lanes["speculative"].ids if token not in run.specials]
    assert b"".join(texts[token] for token in ids).decode() == sent
    assert b"".join(texts[token] for token in run.prompt_ids).decode() == PROMPT


def test_counts_of_a_run_are_the_server_s(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-ngram-chat-numbers")))
    end = seen(server)[-1]
    totals = end["totals"]
    assert (totals["tokens"], totals["passes"], totals["alpha_drafted"]) == (96, 23, 1.0)
    assert end["finish"] == Finish.LENGTH and end["badge"] is None
    assert end["sentence"].endswith(
        "The server counts 73 of 73 drafted tokens accepted (100% per drafted token)."
    )


def test_rounds_that_a_server_reports_as_they_happen_are_shown_as_they_happen(opened):
    gate, seen_before = threading.Event(), []
    stream = gated("llama-ngram-chat-numbers", gate)
    server = opened.enter_context(stand_in("llama-models.json", stream))
    for event in watching(Server("Box", server.url)).events(JobKind.RUN, RAW, lambda: False, "watch:Box"):
        if event["type"] == "round":
            seen_before.append(not gate.is_set())
            gate.set()
    assert seen_before[0] and len(seen_before) == 23


def test_a_wait_for_rounds_at_the_end_shows_progress(opened):
    server = opened.enter_context(stand_in("vllm-models.json", replayed("vllm-draftmodel-greedy")))
    waits = [event for event in seen(server) if event["type"] == "progress"]
    assert waits[0]["text"] == "Asking Box"
    assert waits[1]["text"] == "Box writes, and reports its rounds at the end: 1 pieces so far"
    assert all(0 <= event["fraction"] <= 1 for event in waits)


def test_the_request_has_the_visitors_settings(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-none-chat-short")))
    chosen = {"temperature": 0.7, "top_k": 9, "top_p": 0.5, "seed": 5, "max_new_tokens": 40}
    seen(server, {"prompt": "Hé?", "baseline": False, **chosen})
    path, body = server.asked[-1]
    assert path == "/v1/chat/completions" and body["messages"] == [{"role": "user", "content": "Hé?"}]
    wanted = {**chosen, "max_tokens": chosen["max_new_tokens"]}
    del wanted["max_new_tokens"]
    assert {key: body[key] for key in wanted} == wanted and body["stream"] is True
    assert body["timings_per_token"] is True and body["model"] == "SmolLM2-135M-Instruct.Q4_1"
    server.stream = replayed("llama-ngram-text-code")
    seen(server, {"prompt": "def area(", "baseline": False, "mode": "raw"})
    path, body = server.asked[-1]
    assert path == "/v1/completions" and body["prompt"] == "def area(" and "messages" not in body
    assert "top_k" not in body


@pytest.mark.parametrize("kind", ["vllm", "sglang", "lm-studio"])
def test_each_request_has_only_fields_that_its_server_knows(opened, kind):
    models, name, *_ = SERVERS[kind]
    server = opened.enter_context(stand_in(models, replayed(name)))
    seen(server)
    asked = server.asked[-1][1].keys()
    assert ("return_token_ids" in asked) == ("logprobs" in asked) == (kind == "vllm"), "SGLang refuses it"
    assert "stream_options" in asked and "timings_per_token" not in asked


@pytest.mark.parametrize("owner", [{}, {"owned_by": "somebody"}, {"owned_by": None}, {"owned_by": ["vllm"]}])
def test_a_server_of_an_unknown_kind_is_shown_in_pieces(opened, owner):
    models = json_answer({"data": [{"id": "x", **owner}]})
    server = opened.enter_context(stand_in(models, replayed("documented-sglang-chat-plain")))
    start = next(event for event in seen(server) if event["type"] == "start")
    assert start["run"]["watched"]["engine"] == "a server with OpenAI's API"
    assert start["run"]["watched"]["rounds"] is False and start["run"]["pair"]["target"] == "x"


AFTER = {"llama": 3, "vllm": 12, "sglang": 1, "lm-studio": 1}
"""The number of a run's rounds or pieces before a stop; each server's stream has at least twice as many."""


@pytest.mark.parametrize("kind", AFTER)
def test_a_stop_in_the_middle_ends_the_run_and_keeps_its_tokens(opened, kind):
    models, name, *_ = SERVERS[kind]
    parts = list(replayed(name))
    half = Answer(parts[: len(parts) // 2], ends="never")
    server = opened.enter_context(stand_in(models, half))
    events = []

    def stop() -> bool:
        return (
            sum(event["type"] == "round" or "pieces" in event.get("text", "") for event in events)
            > AFTER[kind]
        )

    for event in watching(Server("Box", server.url)).events(JobKind.RUN, RAW, stop, "watch:Box"):
        events.append(event)
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    assert events[-1]["sentence"].startswith("Stopped early.")
    assert 0 < events[-1]["totals"]["tokens"] < 40
    assert trace_file.load(dump(saved(events))).lanes["speculative"].finish is Finish.STOPPED
    assert server.left.wait(PATIENCE_S)
