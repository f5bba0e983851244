"""Watched servers next to the page's own models: each request goes to its server, one at a time."""

import threading

import pytest
from helpers.waiting import PATIENCE_S, until
from helpers.watched_runs import RAW, Own, seen, watching
from helpers.watched_server import Answer, gated, replayed

from specdemo.pairs.presets import OfferedPairs
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds
from specdemo.service.service import RUNS_ONLY
from specdemo.watch.servers import Server
from specdemo.watch.service import with_servers

PARIS = "llama-draft-chat-eos-paris"
NOWHERE = Server("Box", "http://127.0.0.1:1")


def test_a_time_limit_keeps_the_tokens_and_says_so(serve):
    server = serve(Answer([*replayed("llama-ngram-chat-numbers")][:40], ends="never"))
    box = watching(Server("Box", server.url), bounds=Bounds(max_seconds=0.5))
    events = []
    with pytest.raises(UserError, match=r"time limit of 0\.5 s ended this job\. The results so far are kept"):
        for event in box.events(JobKind.RUN, RAW, lambda: False, "watch:Box"):
            events.append(event)
    assert events[-1]["finish"] == Finish.STOPPED and server.left.wait(PATIENCE_S)


@pytest.mark.parametrize("kind", [kind for kind in JobKind if kind is not JobKind.RUN])
def test_a_watched_server_does_only_runs(kind):
    own = Own()
    with pytest.raises(UserError) as raised:
        list(watching(NOWHERE, own=own).events(kind, {}, lambda: False, "watch:Box"))
    assert str(raised.value) == RUNS_ONLY and not own.asked


@pytest.mark.parametrize("pair", [None, "built-in", "watch:Other", 7, ["watch:Box"], "Box", NOWHERE.url])
def test_a_request_without_a_watched_server_goes_to_the_pages_own_models(pair):
    own = Own()
    events = watching(NOWHERE, own=own).events(JobKind.QUIZ, {}, lambda: False, pair)
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
    gate, order = threading.Event(), []
    one, other = serve(gated(PARIS, gate)), serve(replayed(PARIS))
    box = watching(Server("One", one.url), Server("Other", other.url))

    def visit(name: str, pair: str) -> None:
        for event in box.events(JobKind.RUN, RAW, lambda: False, pair, Visitor("10.0.0.1", name)):
            order.append((name, event["type"], event.get("text")))

    def has(name: str, kind: str) -> bool:
        return any(event[:2] == (name, kind) for event in order)

    def come(name: str, pair: str, seen: str) -> threading.Thread:
        thread = threading.Thread(target=visit, args=(name, pair), daemon=True)
        thread.start()
        until(lambda: has(name, seen))
        return thread

    threads = [come("a", "watch:One", "start"), come("b", "watch:One", "progress")]
    threads.append(come("c", "watch:Other", "end"))
    assert not has("a", "end") and not has("b", "start"), "only the first of two has begun"
    gate.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert "one visitor is before you" in next(text for visitor, _, text in order if visitor == "b")
    kinds = [event[:2] for event in order]
    assert kinds.index(("a", "end")) < kinds.index(("b", "start")) and has("b", "end")


def test_a_failed_run_leaves_the_server_to_the_next_visitor(serve):
    server = serve(Answer(status=500))
    box = watching(Server("Box", server.url))

    def run() -> list:
        return list(box.events(JobKind.RUN, RAW, lambda: False, "watch:Box", Visitor("10.0.0.1")))

    with pytest.raises(UserError, match=r"^Box refused the request \(status 500\);"):
        run()
    server.stream = replayed(PARIS)
    assert run()[-1]["type"] == "end"
