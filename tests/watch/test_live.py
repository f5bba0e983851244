"""Runs of watched servers as a page gets them: as events, and as a trace that loads again."""

import base64
import copy
import json
import threading

import pytest
from helpers.recorded_streams import text_sent
from helpers.waiting import PATIENCE_S
from helpers.watched_runs import PROMPT, run_on, saved, seen
from helpers.watched_server import Answer, gated, json_answer, replayed, stand_in

from specdemo.engine.race import replay_events
from specdemo.records import trace_file
from specdemo.records.events import ROUND_FIGURES
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import WATCHED_VERSION, Finish, dump
from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.reader import Reader
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
    texts = {token: base64.b64decode(piece) for token, piece in run.pieces.items()}
    ids = [token for token in run.lanes["speculative"].ids if token not in run.specials]
    assert b"".join(texts[token] for token in ids).decode() == text_sent(name)
    assert b"".join(texts[token] for token in run.prompt_ids).decode() == PROMPT
    fields = server.asked[-1][1].keys()
    wants_ids = kind[:4] in ("vllm", "ray")  # SGLang refuses these fields
    assert ("return_token_ids" in fields) == ("logprobs" in fields) == wants_ids
    assert "stream_options" in fields and ("timings_per_token" in fields) == kind.startswith("llama")


OTHER, LLAMA, VLLM = "lmstudio-models.json", "llama-models.json", "vllm-models.json"
NO_FIGURES = {"passes": None, "tau": None, "alpha_compared": None, "alpha_drafted": None}
ONE_DRAFT = {"passes": 2, "alpha_compared": 0.5, "alpha_drafted": 0.5}
# The list of models, the texts of the rounds, the figures, and the end of the closing sentence.
ODD = {
    "reasoning-null": (OTHER, ["Hm. ", "So. ", "Yes."], NO_FIGURES, "s."),
    "reasoning-twice": (OTHER, ["Hm. ", "So. Yes."], NO_FIGURES, "s."),
    "no-done": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "no-done-usage": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "done-space": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "byte-order-mark": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "parts": (OTHER, ["Hm. ", "Yes."], NO_FIGURES, "s."),
    "refusal": (OTHER, ["I can", "not."], NO_FIGURES, "s."),
    "finish-empty": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "finish-abort": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "nothing": (OTHER, ["Hello", " world"], NO_FIGURES, "s."),
    "lmstudio-stats": (
        OTHER,
        ["Hello", " world"],
        NO_FIGURES,
        "1 of 4 draft tokens as accepted (25% per drafted token).",
    ),
    "llama-counts-at-the-end": (
        LLAMA,
        [f" {number}" for number in range(9)],
        NO_FIGURES,
        "(42% per drafted token).",
    ),
    "llama-no-counts": (LLAMA, ["Hello", " world"], NO_FIGURES, "s."),
    "llama-held-back": (
        LLAMA,
        ["A", "", "", "", "BCDEFGHIJK", "LM"],
        {"passes": 6, "alpha_compared": 0.5, "alpha_drafted": 7 / 15},
        "(47% per drafted token). For some rounds it reported only sums; they are shown in equal "
        "shares and do not count for α.",
    ),
    "llama-late-text": (LLAMA, ["A", "BC"], {"passes": 2, "alpha_compared": 0.0}, "(0% per drafted token)."),
    "vllm-token-ids": (VLLM, ["Hello", " big world"], ONE_DRAFT, "2.00 tokens per pass with a draft."),
    "vllm-bytes": (VLLM, ["Hi ", "", "😀!"], {"passes": 3}, "2.00 tokens per pass with a draft."),
    "vllm-names": (VLLM, ["Hello", " big world"], ONE_DRAFT, "2.00 tokens per pass with a draft."),
    "vllm-spaces": (VLLM, ["Hello", " big world"], ONE_DRAFT, "2.00 tokens per pass with a draft."),
    "vllm-end": (VLLM, ["Hello", " worldend of text"], ONE_DRAFT, "2.00 tokens per pass with a draft."),
    "vllm-late-text": (VLLM, ["Hello", " big world"], ONE_DRAFT, "2.00 tokens per pass with a draft."),
}


@pytest.mark.parametrize("name", ODD)
def test_a_stream_of_an_unusual_form_is_shown_with_all_that_it_reports_and_no_more(serve, name):
    models, texts, figures, sentence = ODD[name]
    *_, end = events = seen(serve(replayed(f"odd-{name}"), models))
    run = trace_file.load(dump(saved(events)))
    pieces = {token: base64.b64decode(piece) for token, piece in run.pieces.items()}
    rounds = run.lanes["speculative"].rounds
    assert [b"".join(pieces[id_] for id_ in one.emitted).decode() for one in rounds] == texts
    assert {figure: run.totals[figure] for figure in figures} == pytest.approx(figures)
    assert end["totals"] == run.totals and end["sentence"].endswith(sentence)
    assert (
        end["sentence"].startswith("Stopped early.")
        == (end["finish"] == Finish.STOPPED)
        == (name == "finish-abort")
    )
    assert run.watched is not None and run.watched.rounds == (figures is not NO_FIGURES)
    assert (run.watched.silent == Reader.silent) == (figures is NO_FIGURES)


def test_a_loaded_model_of_a_router_is_watched(serve):
    def asked(*states: object) -> str:
        listed = [{"id": f"m{index}", "status": state} for index, state in enumerate(states)]
        server = serve(replayed("odd-no-done"), json_answer({"data": listed}))
        seen(server)
        return server.asked[-1][1]["model"]

    unloaded, asleep, loaded = ({"value": value} for value in ("unloaded", "sleeping", "loaded"))
    assert asked(unloaded, asleep, loaded, loaded) == "m2"
    assert asked(unloaded, asleep, unloaded) == "m1"
    assert asked(unloaded, unloaded) == asked({"value": ["loaded"]}, None) == asked(None, None) == "m0"


def test_rounds_are_shown_as_they_happen_with_the_counts_of_the_server(serve):
    gate, before_gate, end = threading.Event(), [], {}
    server = serve(gated("llama-ngram-chat-numbers", gate))
    for end in run_on(server):
        if end["type"] == "round":
            before_gate.append(not gate.is_set())
            gate.set()
    assert before_gate[0] and len(before_gate) == 23
    totals = end["totals"]
    assert (totals["tokens"], totals["passes"], totals["alpha_drafted"]) == (96, 23, 1.0)
    assert end["finish"] == Finish.LENGTH and end["badge"] is None
    assert "73 of 73 draft tokens as accepted (100% per drafted token)." in end["sentence"]


def test_a_wait_for_rounds_at_the_end_shows_progress(serve):
    events = seen(serve(replayed("vllm-draftmodel-greedy"), "vllm-models.json"))
    first, second, *others = [event for event in events if event["type"] == "progress"]
    assert first["text"] == "Asking Box" and "at the end; events so far: 1" in second["text"]
    assert all(0 <= event["fraction"] <= 1 for event in (first, second, *others))


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
    events: list[dict] = []

    def stop() -> bool:
        return sum(event["type"] == "round" or "events" in event.get("text", "") for event in events) > after

    events.extend(run_on(server, stop=stop))
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    assert events[-1]["sentence"].startswith("Stopped early.")
    assert 0 < events[-1]["totals"]["tokens"] < 40
    assert trace_file.load(dump(saved(events))).lanes["speculative"].finish is Finish.STOPPED
    assert server.left.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def good() -> str:
    with stand_in("vllm-models.json", replayed("vllm-chat-mixed-logprobs")) as server:
        return dump(saved(seen(server)))


@pytest.fixture
def trace(good) -> dict:
    return json.loads(good)


def rounds_of(trace: dict) -> list[dict]:
    return trace["lanes"]["speculative"]["rounds"]


def draft_of(trace: dict) -> list[dict]:
    """Its first draft."""
    return next(one["drafted"] for one in rounds_of(trace) if one["drafted"])


def as_own(trace: dict) -> None:
    trace["version"], trace["watched"] = 1, None


def with_probabilities(trace: dict) -> None:
    """Add the fields of this program's own runs."""
    as_own(trace)
    for one in rounds_of(trace):
        for token in one["drafted"]:
            token["q"] = token["p"] = 1.0
        if one["emission"]:
            one["emission"]["prob"] = 1.0


def long_draft(trace: dict, length: int) -> None:
    """Give the first draft this many tokens, and end the run there."""
    drafted = draft_of(trace)
    drafted += [copy.deepcopy(drafted[-1]) for _ in range(length - len(drafted))]
    for token in drafted[-(length - 4) :]:
        token["compared"] = token["rejected"] = False
    del rounds_of(trace)[[one["drafted"] for one in rounds_of(trace)].index(drafted) + 1 :]


@pytest.mark.parametrize(("is_own", "longest"), [(False, 128), (True, MAX_K)])
def test_only_a_watched_trace_may_have_drafts_longer_than_the_programs_own(trace, is_own, longest):
    if is_own:
        with_probabilities(trace)
    long_draft(trace, longest)
    run = trace_file.load(dump(trace))
    assert len(run.lanes["speculative"].rounds[-1].drafted) == longest and is_own == (run.watched is None)
    draft_of(trace).append(draft_of(trace)[-1])
    with pytest.raises(UserError, match=rf"drafted has .*\b{longest}\b"):
        trace_file.load(dump(trace))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (as_own, r"drafted\[0\]\.q is missing|emission\.prob is missing"),
        (lambda trace: trace.update(watched=None), "version"),
        (lambda trace: trace.pop("watched"), "version"),
        (lambda trace: trace.update(version=1), "version"),
        (lambda trace: trace.update(version=3), "newer specdemo"),
        (lambda trace: trace["watched"].update(rounds="yes"), "watched.rounds"),
        (lambda trace: trace["watched"].update(silent=["x."] * 9), "watched.silent"),
        (lambda trace: trace["watched"].update(url="http://x"), "watched"),
        (lambda trace: draft_of(trace)[0].update(raw_p=1.5), "raw_p must be"),
        (lambda trace: trace["pieces"].pop("0"), r"has no entry for token 0"),
    ],
    ids=range(10),
)
def test_a_damaged_trace_of_a_watched_run_is_refused(trace, spoil, words):
    spoil(trace)
    with pytest.raises(UserError, match=words):
        trace_file.load(dump(trace))
