"""Runs of watched servers as a page gets them: through the queue, as events, as a trace that loads again."""

import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers.recorded_streams import events_of
from helpers.watched_runs import undrafted
from helpers.watched_server import Answer, StandIn, replayed, stand_in, streamed

from specdemo.records import trace_file
from specdemo.records.events import OF_ROUNDS, replay_events
from specdemo.records.limits import MAX_K, UserError, parse_config
from specdemo.records.trace import WATCHED_VERSION, Finish, dump
from specdemo.service.job_kinds import JobKind
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds
from specdemo.service.shares import Visitor
from specdemo.watch.engines import LLAMA_SERVER, LM_STUDIO, OTHER, RAY_SERVE, SGLANG, VLLM, find
from specdemo.watch.live import NO_RACE, WatchedRun
from specdemo.watch.servers import Server
from specdemo.watch.service import RUNS_ONLY, Watching, with_servers

PROMPT = "Write the numbers from one to ten, then write them again."
RAW = {"prompt": PROMPT, "max_new_tokens": 128, "baseline": False}
SERVERS = {
    "llama": ("llama-models.json", "llama-ngram-chat-numbers", LLAMA_SERVER, True),
    "llama-eos": ("llama-models.json", "llama-draft-chat-eos-paris", LLAMA_SERVER, True),
    "vllm": ("vllm-models.json", "vllm-chat-mixed-logprobs", VLLM, True),
    "vllm-plain": ("vllm-models.json", "documented-vllm-chat-plain", VLLM, False),
    "ray": ("ray-models.json", "vllm-draftmodel-greedy", RAY_SERVE, True),
    "sglang": ("sglang-models.json", "documented-sglang-chat", SGLANG, True),
    "sglang-plain": ("sglang-models.json", "documented-sglang-chat-plain", SGLANG, False),
    "lm-studio": ("lmstudio-models.json", "documented-lmstudio-chat", LM_STUDIO, False),
    "lm-studio-plain": ("lmstudio-models.json", "documented-lmstudio-chat-plain", LM_STUDIO, False),
}
"""Of each kind: what it lists, what it streams, its engine, and whether it tells its rounds."""


class Own:
    """Stands for the page's own models."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def events(self, kind, raw, stop, pair=None, visitor=None) -> Iterator[dict]:
        self.asked.append((kind, pair))
        yield {"type": "own"}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def watching(*servers: Server, own: Own | None = None, bounds: Bounds | None = None) -> Watching:
    return Watching(own or Own(), servers, bounds or Bounds())


def seen(server: StandIn, raw: dict | None = None, stop=lambda: False, alone: StandIn | None = None) -> list:
    """The events of one visitor's run."""
    box = Server("Box", server.url, alone and alone.url)
    return list(watching(box).events(JobKind.RUN, raw or RAW, stop, "watch:Box", Visitor("10.0.0.1")))


def saved(events: list[dict]) -> dict:
    """The trace file that a page makes of events."""
    [start] = [event for event in events if event["type"] == "start"]
    lanes: dict[str, Any] = {}
    pieces = dict(start["pieces"])
    for event in events:
        if event["type"] == "round":
            lanes.setdefault(event["lane"], {"rounds": []})["rounds"].append(event["round"])
            pieces |= event["pieces"]
    specials = [token for token in start["specials"] if token in pieces]
    made = {**start["run"], "lanes": lanes, "pieces": pieces, "specials": specials}
    return json.loads(dump(made))


@pytest.mark.parametrize("kind", SERVERS)
def test_a_whole_run_is_told_saved_and_played_again(opened, kind):
    models, name, engine, rounds = SERVERS[kind]
    server = opened.enter_context(stand_in(models, replayed(name)))
    events = seen(server)
    types = [event["type"] for event in events]
    first = types.index("start")
    assert set(types[:first]) == {"progress"} and types[-1] == "end"
    assert set(types[first + 1 : -1]) == {"round"}
    told = events[first]["run"]
    watched = told["watched"]
    assert (watched["engine"], watched["server"], watched["rounds"]) == (engine.title, "Box", rounds)
    assert 0 < len(watched["silent"]) <= 4 and all(words.endswith(".") for words in watched["silent"])
    assert told["version"] == WATCHED_VERSION and told["device"] == "Box" and told["calibration"] is None
    assert (told["config"]["drafter"], told["config"]["k"]) == ("server", "auto")
    run = trace_file.load(dump(saved(events)))
    assert run.watched is not None and run.watched.rounds == rounds
    *_, end = replay_events(run)
    assert end["totals"] == events[-1]["totals"] == run.totals
    assert events[-1]["sentence"].startswith(end["sentence"])
    assert [run.totals[figure] is None for figure in OF_ROUNDS] != [rounds] * len(OF_ROUNDS)
    assert "127.0.0.1" not in dump(events) and server.url not in dump(events)


@pytest.mark.parametrize("kind", SERVERS)
def test_the_text_of_a_run_is_the_server_s(opened, kind):
    models, name, *_ = SERVERS[kind]
    server = opened.enter_context(stand_in(models, replayed(name)))
    run = WatchedRun(Server("Box", server.url), parse_config(RAW), lambda: False)
    list(run.events())
    again = trace_file.load(run.run.to_json())
    assert again == run.run
    choices = [choice for event in events_of(name) for choice in event["choices"]]
    sent = "".join(choice.get("delta", {}).get("content") or "" for choice in choices)
    texts = {token: trace_file.base64.b64decode(piece) for token, piece in again.pieces.items()}
    ids = [token for token in again.lanes["speculative"].ids if token not in again.specials]
    assert b"".join(texts[token] for token in ids).decode() == sent
    assert b"".join(texts[token] for token in again.prompt_ids).decode() == PROMPT


def test_counts_of_a_run_are_the_server_s(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-ngram-chat-numbers")))
    end = seen(server)[-1]
    totals = end["totals"]
    assert (totals["tokens"], totals["passes"], totals["alpha_drafted"]) == (96, 23, 1.0)
    assert end["finish"] == Finish.LENGTH and end["badge"] is None
    assert end["sentence"].endswith(
        "The server counts 73 of 73 drafted tokens accepted (100% per drafted token)."
    )


def test_rounds_of_a_server_that_tells_them_as_they_happen_are_shown_as_they_happen(opened):
    slow = replayed("llama-ngram-chat-numbers", pause_s=0.02)
    server = opened.enter_context(stand_in("llama-models.json", slow))
    box = watching(Server("Box", server.url))
    began, times = time.monotonic(), []
    for event in box.events(JobKind.RUN, RAW, lambda: False, "watch:Box"):
        times.append((event["type"], time.monotonic() - began))
    rounds = [at for kind, at in times if kind == "round"]
    assert rounds[-1] - rounds[0] > 1.0


def test_what_comes_at_the_end_is_announced_while_it_is_waited_for(opened):
    server = opened.enter_context(stand_in("vllm-models.json", replayed("vllm-draftmodel-greedy")))
    waits = [event for event in seen(server) if event["type"] == "progress"]
    assert waits[0]["text"] == "Asking Box"
    assert waits[1]["text"] == "Box writes, and tells its rounds at the end: 1 pieces so far"
    assert all(0 <= event["fraction"] <= 1 for event in waits)


def test_what_is_asked_is_what_the_visitor_chose(opened):
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
def test_no_server_is_asked_for_what_another_one_understands(opened, kind):
    models, name, *_ = SERVERS[kind]
    server = opened.enter_context(stand_in(models, replayed(name)))
    seen(server)
    asked = server.asked[-1][1].keys()
    assert ("return_token_ids" in asked) == (kind == "vllm"), "SGLang refuses it"
    assert ("return_spec_tokens_details" in asked) == (kind == "sglang")
    assert ("logprobs" in asked) == (kind != "lm-studio") and "timings_per_token" not in asked


def test_a_server_of_an_unknown_kind_is_one_of_openai_s_api(opened):
    models = Answer([b'{"data":[{"id":"x","owned_by":"somebody"}]}'], kind="application/json")
    server = opened.enter_context(stand_in(models))
    found = find(server.url, "Box", lambda: False)
    assert found is not None and found.engine is OTHER and found.model == "x"


@pytest.mark.parametrize("kind", ["llama", "vllm", "sglang", "lm-studio"])
def test_a_stop_in_the_middle_ends_the_run_and_keeps_what_came(opened, kind):
    models, name, *_ = SERVERS[kind]
    server = opened.enter_context(stand_in(models, replayed(name, pause_s=0.1)))
    stopped_at: list[float] = []

    def stop() -> bool:
        if len(server.asked) and server.sent > 3_000 and not stopped_at:
            stopped_at.append(time.monotonic())
        return bool(stopped_at)

    events = seen(server, stop=stop)
    assert time.monotonic() - stopped_at[0] < 1.0
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    assert events[-1]["sentence"].startswith("Stopped early.")
    assert 0 < events[-1]["totals"]["tokens"] < 40
    assert trace_file.load(dump(saved(events))).lanes["speculative"].finish is Finish.STOPPED
    assert server.left.wait(1)


def test_a_time_limit_keeps_what_came_and_says_so(opened):
    slow = replayed("llama-ngram-chat-numbers", pause_s=0.1)
    server = opened.enter_context(stand_in("llama-models.json", slow))
    box = watching(Server("Box", server.url), bounds=Bounds(most_seconds=1.0))
    events = []
    with pytest.raises(UserError, match="time limit of 1 s ended this, what was done until then is kept"):
        for event in box.events(JobKind.RUN, RAW, lambda: False, "watch:Box"):
            events.append(event)
    assert events[-1]["finish"] == Finish.STOPPED and server.left.wait(1)


@pytest.mark.parametrize("kind", [kind for kind in JobKind if kind is not JobKind.RUN])
def test_a_watched_server_is_asked_for_runs_alone(kind):
    own = Own()
    box = watching(Server("Box", "http://127.0.0.1:1"), own=own)
    with pytest.raises(UserError) as told:
        list(box.events(kind, {}, lambda: False, "watch:Box"))
    assert str(told.value) == RUNS_ONLY and not own.asked


@pytest.mark.parametrize(
    "pair", [None, "embedded", "watch:Other", 7, ["watch:Box"], "Box", "http://127.0.0.1:1"]
)
def test_whoever_names_no_watched_server_gets_the_page_s_own_models(pair):
    own = Own()
    events = watching(Server("Box", "http://127.0.0.1:1"), own=own).events(
        JobKind.QUIZ, {}, lambda: False, pair
    )
    assert list(events) == [{"type": "own"}] and own.asked == [(JobKind.QUIZ, pair)]


@pytest.mark.parametrize(("key", "value"), [("prompt", ""), ("max_new_tokens", 10**6), ("nonsense", 1)])
def test_settings_are_checked_before_a_server_is_asked(opened, key, value):
    server = opened.enter_context(stand_in("llama-models.json"))
    with pytest.raises(UserError):
        seen(server, {**RAW, key: value})
    assert not server.keys


def test_servers_are_offered_beside_the_page_s_own_models():
    offered = with_servers(OfferedPairs("embedded", {"embedded": "Small"}), [Server("Box", "http://x")])
    assert dict(offered.titles) == {"embedded": "Small", "watch:Box": "Box (watched)"}
    assert offered.watched == {"watch:Box"} and offered.home == "embedded"
    assert (
        with_servers(OfferedPairs("embedded"), [Server("Box", "http://x")]).titles["embedded"] == "embedded"
    )


def test_two_visitors_of_one_server_take_turns_and_those_of_another_do_not_wait(opened):
    slow = replayed("llama-draft-chat-eos-paris", pause_s=0.1)
    one, other = (opened.enter_context(stand_in("llama-models.json", slow)) for _ in range(2))
    box = watching(Server("One", one.url), Server("Other", other.url))
    visits: dict[str, list[dict]] = {}

    def visit(name: str, pair: str) -> None:
        visits[name] = []
        for event in box.events(JobKind.RUN, RAW, lambda: False, pair, Visitor("10.0.0.1", name)):
            visits[name].append({**event, "at": time.monotonic()})

    threads = []
    for name, pair in (("a", "watch:One"), ("b", "watch:One"), ("c", "watch:Other")):
        threads.append(threading.Thread(target=visit, args=(name, pair), daemon=True))
        threads[-1].start()
        end = time.monotonic() + 5
        while not visits.get(name) and time.monotonic() < end:
            time.sleep(0.01)
    for thread in threads:
        thread.join(15)
    assert {name: events[-1]["type"] for name, events in visits.items()} == dict.fromkeys("abc", "end")
    assert "one visitor is before you" in visits["b"][0]["text"]
    began = {
        name: events[[e["type"] for e in events].index("start")]["at"] for name, events in visits.items()
    }
    assert began["b"] > visits["a"][-1]["at"] > began["c"]


def test_a_failed_run_leaves_the_server_to_the_next_visitor(opened):
    server = opened.enter_context(stand_in("llama-models.json", Answer(status=500)))
    box = watching(Server("Box", server.url))
    with pytest.raises(UserError, match=r"^Box refused this \(status 500\)\.$"):
        list(box.events(JobKind.RUN, RAW, lambda: False, "watch:Box", Visitor("10.0.0.1")))
    server.stream = replayed("llama-draft-chat-eos-paris")
    again = box.events(JobKind.RUN, RAW, lambda: False, "watch:Box", Visitor("10.0.0.1"))
    assert [*again][-1]["type"] == "end"


RACE = {**RAW, "baseline": True}


def test_a_race_is_run_with_a_server_that_does_not_draft(opened):
    name = "llama-ngram-chat-numbers"
    server = opened.enter_context(stand_in("llama-models.json", replayed(name)))
    alone = opened.enter_context(stand_in("llama-models.json", undrafted(name)))
    events = seen(server, RACE, alone=alone)
    assert events[-1]["badge"]["kind"] == "same" and events[-1]["totals"]["identical"] is True
    assert events[-1]["totals"]["speedup"] == pytest.approx(0.96 / 0.617484, rel=0.05)
    start = next(event for event in events if event["type"] == "start")
    assert start["run"]["config"]["baseline"] is True and NO_RACE not in start["run"]["watched"]["silent"]
    assert {event["lane"] for event in events if event["type"] == "round"} == {"speculative", "baseline"}
    assert server.asked[0][1]["messages"] == alone.asked[0][1]["messages"]
    assert dict(trace_file.load(dump(saved(events))).totals) == events[-1]["totals"]


def test_a_race_of_two_texts_says_where_they_part(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-draft-chat-eos-paris")))
    alone = opened.enter_context(stand_in("llama-models.json", replayed("llama-none-chat-short")))
    badge = seen(server, RACE, alone=alone)[-1]["badge"]
    assert badge["kind"] == "different" and "from output token 1 on" in badge["text"]


def test_without_such_a_server_there_is_no_race_and_the_run_says_so(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-draft-chat-eos-paris")))
    start, *_, end = [event for event in seen(server, RACE) if event["type"] != "progress"]
    assert start["run"]["config"]["baseline"] is False and NO_RACE in start["run"]["watched"]["silent"]
    assert end["badge"] is None and end["totals"]["speedup"] is None
    start = next(event for event in seen(server, RAW) if event["type"] == "start")
    assert NO_RACE not in start["run"]["watched"]["silent"]


def test_a_server_without_drafts_that_drafts_is_refused(opened):
    name = "llama-ngram-chat-numbers"
    server, alone = (opened.enter_context(stand_in("llama-models.json", replayed(name))) for _ in range(2))
    with pytest.raises(UserError, match=r"^Box drafts in its race, too; its host has to give one that"):
        seen(server, RACE, alone=alone)


def test_a_server_without_drafts_that_is_gone_is_told_before_the_other_writes(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-draft-chat-eos-paris")))
    with stand_in("llama-models.json") as alone:
        pass
    with pytest.raises(UserError, match="Box cannot be reached"):
        seen(server, RACE, alone=alone)
    assert not server.asked


def test_a_race_stopped_while_it_drafts_keeps_what_was_written(opened):
    name = "llama-ngram-chat-numbers"
    server = opened.enter_context(stand_in("llama-models.json", replayed(name, pause_s=0.1)))
    alone = opened.enter_context(stand_in("llama-models.json", undrafted(name)))
    events = seen(server, RACE, lambda: server.sent > 4_000, alone)
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    run = trace_file.load(dump(saved(events)))
    assert run.lanes["speculative"].finish is Finish.STOPPED and run.lanes["baseline"].finish is Finish.LENGTH


def test_a_race_stopped_before_it_drafts_asks_the_server_for_nothing(opened):
    name = "llama-ngram-chat-numbers"
    server = opened.enter_context(stand_in("llama-models.json", replayed(name)))
    slow = Answer(list(undrafted(name)), pause_s=0.1)
    alone = opened.enter_context(stand_in("llama-models.json", slow))
    events = seen(server, RACE, lambda: alone.sent > 4_000, alone)
    assert events[-1]["text"] == "Stopped before it began" and not server.asked
    assert not any(event["type"] == "round" for event in events)


def test_a_race_of_pieces_claims_no_sameness(opened):
    """Pieces are cut as they come, so two lanes differ in them where their texts do not."""
    whole = [{"choices": [{"delta": {"content": part}}]} for part in ("One, two", ", three.")]
    parts = [{"choices": [{"delta": {"content": part}}]} for part in ("One,", " two,", " three.")]
    server = opened.enter_context(stand_in("lmstudio-models.json", streamed(*whole)))
    alone = opened.enter_context(stand_in("lmstudio-models.json", streamed(*parts)))
    end = seen(server, RACE, alone=alone)[-1]
    assert end["badge"] is None and end["totals"]["identical"] is None


@pytest.fixture
def trace(opened) -> dict:
    """A good trace of a watched run, to be spoilt."""
    server = opened.enter_context(stand_in("vllm-models.json", replayed("vllm-chat-mixed-logprobs")))
    made = saved(seen(server))
    trace_file.load(dump(made))
    return made


def drafting(trace: dict) -> dict:
    """Its first round with a draft."""
    return next(one for one in trace["lanes"]["speculative"]["rounds"] if one["drafted"])


def as_own(trace: dict) -> None:
    trace["version"], trace["watched"] = 1, None


def with_probabilities(trace: dict) -> None:
    """What this program's own runs tell."""
    as_own(trace)
    for one in trace["lanes"]["speculative"]["rounds"]:
        for token in one["drafted"]:
            token["q"] = token["p"] = 1.0
        if one["emission"]:
            one["emission"]["prob"] = 1.0


def long_draft(trace: dict, length: int) -> None:
    """The first draft with so many tokens; the rest of the run goes."""
    rounds = trace["lanes"]["speculative"]["rounds"]
    place = rounds.index(drafting(trace))
    drafted = rounds[place]["drafted"]
    drafted += [copy.deepcopy(drafted[-1]) for _ in range(length - len(drafted))]
    for token in drafted[-(length - 4) :]:
        token["compared"] = token["rejected"] = False
    del rounds[place + 1 :]


def test_an_own_trace_of_the_same_shape_loads(trace):
    with_probabilities(trace)
    long_draft(trace, MAX_K)
    assert trace_file.load(dump(trace)).watched is None


def test_a_watched_trace_may_have_longer_drafts_than_an_own_one(trace):
    watched = copy.deepcopy(trace)
    long_draft(watched, 128)
    assert len(trace_file.load(dump(watched)).lanes["speculative"].rounds[-1].drafted) == 128
    with_probabilities(trace)
    long_draft(trace, MAX_K + 1)
    with pytest.raises(UserError, match=r"drafted has 13 entries; at most 12 are allowed"):
        trace_file.load(dump(trace))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (as_own, r"drafted\[0\]\.q is missing|emission\.prob is missing"),
        (lambda trace: trace.update(watched=None), "its version is not that of its kind of run"),
        (lambda trace: trace.pop("watched"), "its version is not that of its kind of run"),
        (lambda trace: trace.update(version=1), "its version is not that of its kind of run"),
        (lambda trace: trace.update(version=3), "made by a newer specdemo"),
        (lambda trace: long_draft(trace, 129), "drafted"),
        (lambda trace: trace["watched"].update(rounds="yes"), "watched.rounds"),
        (lambda trace: trace["watched"].update(silent=["x."] * 9), "watched.silent"),
        (lambda trace: trace["watched"].update(url="http://x"), "watched"),
        (lambda trace: drafting(trace)["drafted"][0].update(raw_p=1.5), "raw_p must be a probability"),
        (lambda trace: trace["pieces"].pop("0"), r"has no entry for token 0"),
    ],
    ids=range(11),
)
def test_a_damaged_trace_of_a_watched_run_is_refused(trace, spoil, words):
    spoil(trace)
    with pytest.raises(UserError, match=words):
        trace_file.load(dump(trace))
