"""Watched servers next to the page's own models: --watch, who serves a request, and baselines."""

import json
import threading

import pytest
from helpers.reading import Reading
from helpers.waiting import PATIENCE_S, until
from helpers.watched_runs import RAW, Own, run_on, saved, seen, undrafted, watching
from helpers.watched_server import CLOSED, Answer, gated, replayed, streamed

from specdemo.cli.main import main
from specdemo.engine.speculate import never
from specdemo.pairs.presets import OfferedPairs
from specdemo.records import trace_file
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish, dump
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds
from specdemo.service.service import RUNS_ONLY
from specdemo.watch.run import NO_RACE
from specdemo.watch.servers import Server, parse_servers
from specdemo.watch.service import with_servers

NUMBERS, PARIS = "llama-ngram-chat-numbers", "llama-draft-chat-eos-paris"
NOWHERE = Server("Box", "http://127.0.0.1:1")


def test_a_time_limit_keeps_the_tokens_and_says_so(serve):
    server = serve(Answer([*replayed(NUMBERS)][:40], ends="never"))
    box = watching(Server("Box", server.url), bounds=Bounds(max_seconds=0.5))
    events: list[dict] = []
    with pytest.raises(UserError, match=r"time limit of 0\.5 s ended this job; ask for less"):
        events.extend(box.events(JobKind.RUN, RAW, never, "watch:Box"))
    assert events[-1]["finish"] == Finish.STOPPED and server.left.wait(PATIENCE_S)


@pytest.mark.parametrize("kind", [kind for kind in JobKind if kind is not JobKind.RUN])
def test_a_watched_server_does_only_runs(kind):
    own = Own()
    with pytest.raises(UserError) as raised:
        list(watching(NOWHERE, own=own).events(kind, {}, never, "watch:Box"))
    assert str(raised.value) == RUNS_ONLY and not own.asked


@pytest.mark.parametrize("pair", [None, "built-in", "watch:Other", 7, ["watch:Box"], "Box", NOWHERE.url])
def test_a_request_without_a_watched_server_goes_to_the_pages_own_models(pair):
    own = Own()
    events = watching(NOWHERE, own=own).events(JobKind.QUIZ, {}, never, pair)
    assert list(events) == [{"type": "own"}] and own.asked == [(JobKind.QUIZ, pair)]


@pytest.mark.parametrize(("key", "value"), [("prompt", ""), ("max_new_tokens", 10**6), ("nonsense", 1)])
def test_settings_are_checked_before_a_server_is_asked(serve, key, value):
    server = serve()
    with pytest.raises(UserError):
        seen(server, {**RAW, key: value})
    assert not server.keys


def test_servers_are_offered_next_to_the_pages_own_models():
    offered = with_servers(OfferedPairs("built-in", {"built-in": "Small"}), [NOWHERE])
    assert dict(offered.titles) == {"built-in": "Small", "watch:Box": "Box (watched)"}
    assert offered.watched == {"watch:Box"} and offered.default == "built-in"
    assert with_servers(OfferedPairs("built-in"), [NOWHERE]).titles["built-in"] == "built-in"


def test_two_visitors_of_one_server_take_turns_and_those_of_another_do_not_wait(serve):
    gate = threading.Event()
    one, other = serve(gated(PARIS, gate)), serve(replayed(PARIS))
    box = watching(Server("One", one.url), Server("Other", other.url))

    def come(name: str, pair: str) -> Reading:
        return Reading(box.events(JobKind.RUN, RAW, never, pair, Visitor("10.0.0.1", name)))

    first = come("a", "watch:One")
    until(lambda: first.types)
    second = come("b", "watch:One")
    until(lambda: second.events)
    assert "one other job is before you" in second.events[0]["text"]
    assert come("c", "watch:Other").wait().types[-1] == "end"
    assert "end" not in first.types and not second.types, "only the first of two has begun"
    gate.set()
    assert [visitor.wait().types[-1] for visitor in (first, second)] == ["end", "end"]


def test_a_failed_run_leaves_the_server_to_the_next_visitor(serve):
    server = serve(Answer(status=500))
    box = watching(Server("Box", server.url))
    with pytest.raises(UserError, match=r"^Box refused the request \(status 500\);"):
        list(box.events(JobKind.RUN, RAW, never, "watch:Box"))
    server.stream = replayed(PARIS)
    assert [*box.events(JobKind.RUN, RAW, never, "watch:Box")][-1]["type"] == "end"


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("", []),
        (" , ", []),
        (" llama=http://127.0.0.1:8080 , ", [("llama", "http://127.0.0.1:8080")]),
        ("My box 2.0=https://a.example/llm/", [("My box 2.0", "https://a.example/llm")]),
        ("x=http://a:1/v1/", [("x", "http://a:1")]),
        ("x=http://a:1/v1/v1", [("x", "http://a:1/v1")]),
        ("x=http://[::1]:8080", [("x", "http://[::1]:8080")]),
        ("b=http://b:1,a=http://a:1", [("b", "http://b:1"), ("a", "http://a:1")]),
        (
            "b=http://b:1, http://b:2/v1 ,a=http://a:1",
            [("b", "http://b:1", "http://b:2"), ("a", "http://a:1")],
        ),
    ],
)
def test_each_server_has_a_name_an_address_and_perhaps_a_baseline_server(text, servers):
    assert parse_servers(text) == tuple(Server(*one) for one in servers)


NO_URLS = (
    *("127.0.0.1:8080", "ftp://box", "file:///etc/passwd", "HTTP://box\x00", "http://", "http:///v1"),
    *("http://:80", "http://me:secret@box", "http://me@box", "http://box?key=secret", "http://box/?"),
    *("http://box:0", "http://box#top", "http://box:port", "http://box:99999", "http://[::1", "http://a b"),
    *("http://x;b=http://y", "b=http://box"),
)
NO_NAMES = ("", " ", "<b>", "é", "a\nb", "n" * 41)


@pytest.mark.parametrize(
    "text",
    [
        *("llama", "http://127.0.0.1:8080", "x" * 10_000),
        *(f"a={url}" for url in NO_URLS),
        *(f"{name}=http://box" for name in NO_NAMES),
        *("a=http://a,b", "a=http://a,=http://b", "a=http://a,http://b,http://c"),
    ],
)
def test_an_invalid_server_is_refused_with_the_right_form(text):
    with pytest.raises(UserError, match=r"^--watch must be NAME=URL or NAME=URL,BASELINE-URL") as raised:
        parse_servers(text)
    assert str(raised.value).endswith(".") and len(str(raised.value)) < 200


def test_two_servers_with_one_name_are_refused():
    with pytest.raises(UserError, match="two servers named a"):
        parse_servers("a=http://x,a=http://y")


RACE = {**RAW, "baseline": True}


def half(answer: Answer) -> Answer:
    """The first half of a stream, without an end."""
    parts = [*answer]
    return Answer(parts[: len(parts) // 2], ends="never")


def test_the_baseline_is_written_first_and_gives_speedup_and_badge(serve):
    server, alone = serve(replayed(NUMBERS)), serve(undrafted(NUMBERS))
    events = seen(server, RACE, alone=alone)
    assert events[-1]["badge"]["kind"] == "same" and events[-1]["totals"]["identical"] is True
    assert events[-1]["totals"]["speedup"] == pytest.approx(0.96 / 0.617484, rel=0.05)
    start = next(event for event in events if event["type"] == "start")
    assert start["run"]["config"]["baseline"] is True and NO_RACE not in start["run"]["watched"]["silent"]
    assert {event["lane"] for event in events if event["type"] == "round"} == {"speculative", "baseline"}
    assert server.asked[0][1]["messages"] == alone.asked[0][1]["messages"]
    assert dict(trace_file.load(dump(saved(events))).totals) == events[-1]["totals"]


def test_the_command_watch_prints_and_saves_a_row_for_each_prompt(serve, tmp_path, capsys):
    server, alone = serve(replayed(NUMBERS)), serve(undrafted(NUMBERS))
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "watched.json"
    prompts.write_text('{"id": "a", "category": "facts", "mode": "chat", "prompt": "abc"}\n')
    options = ["--alone", alone.url + "/v1/", "--prompts", str(prompts), "--out", str(out)]
    assert main(["watch", server.url, *options, "--max-new-tokens", "96"]) == 0
    [row] = json.loads(out.read_text())["rows"]
    assert row["speedup"] > 1.5 and "1 of 1" in capsys.readouterr().out
    plain = serve(replayed("documented-sglang-chat-plain"), "sglang-models.json")
    assert main(["watch", plain.url, *options[2:4], "--out", f"{out}.2"]) == 2
    assert "does not report its rounds" in capsys.readouterr().err


def test_a_race_of_two_texts_shows_where_they_diverge(serve):
    badge = seen(serve(replayed(PARIS)), RACE, alone=serve(replayed("llama-none-chat-short")))[-1]["badge"]
    assert badge["kind"] == "different" and "from output token 1 on" in badge["text"]


def test_without_a_baseline_server_a_run_has_no_speedup_and_says_so(serve):
    server = serve(replayed(PARIS))
    start, *_, end = [event for event in seen(server, RACE) if event["type"] != "progress"]
    assert start["run"]["config"]["baseline"] is False and NO_RACE in start["run"]["watched"]["silent"]
    assert end["badge"] is None and end["totals"]["speedup"] is None
    start = next(event for event in seen(server, RAW) if event["type"] == "start")
    assert NO_RACE not in start["run"]["watched"]["silent"], "no baseline was requested"


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("llama-models.json", "for Box also uses drafts"),
        ("vllm-models.json", "Box and the baseline server run different software"),
        (CLOSED, "The connection to Box was lost"),
    ],
)
def test_an_unsuitable_baseline_server_is_refused_before_the_run(serve, models, words):
    server, alone = serve(replayed(NUMBERS)), serve(replayed(NUMBERS), models)
    with pytest.raises(UserError, match=words):
        seen(server, RACE, alone=alone)
    assert not server.asked


def test_a_race_stopped_while_it_drafts_keeps_its_tokens(serve):
    server, alone = serve(half(replayed(NUMBERS))), serve(undrafted(NUMBERS))
    events: list[dict] = []
    stop = lambda: any(event.get("lane") == "speculative" for event in events)  # noqa: E731
    events.extend(run_on(server, RACE, stop, alone))
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    run = trace_file.load(dump(saved(events)))
    assert run.lanes["speculative"].finish is Finish.STOPPED and run.lanes["baseline"].finish is Finish.LENGTH


def test_a_race_stopped_before_it_drafts_asks_the_server_for_nothing(serve):
    server, alone = serve(replayed(NUMBERS)), serve(half(undrafted(NUMBERS)))
    events = seen(server, RACE, lambda: alone.sent > 4_000, alone)
    assert events[-1]["text"] == "Stopped before it began" and not server.asked
    assert not any(event["type"] == "round" for event in events)


def test_a_race_of_pieces_claims_no_sameness(serve):
    # Pieces are cut at random, so the pieces of two equal texts may differ.
    whole, parts = (
        streamed(*({"choices": [{"delta": {"content": part}}]} for part in text))
        for text in (("One, two", ", three."), ("One,", " two,", " three."))
    )
    models = "lmstudio-models.json"
    end = seen(serve(whole, models), RACE, alone=serve(parts, models))[-1]
    assert end["badge"] is None and end["totals"]["identical"] is None
