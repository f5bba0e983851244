"""Watched servers next to the page's own models: each request goes to its server, one at a time."""

import threading
import time

import pytest
from helpers.watched_runs import RAW, Own, seen, watching
from helpers.watched_server import Answer, replayed, stand_in

from specdemo.records.limits import UserError
from specdemo.records.trace import Finish
from specdemo.service.jobs import JobKind
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds
from specdemo.service.service import RUNS_ONLY
from specdemo.service.shares import Visitor
from specdemo.watch.servers import Server
from specdemo.watch.service import with_servers


def test_a_time_limit_keeps_the_tokens_and_says_so(opened):
    slow = replayed("llama-ngram-chat-numbers", pause_s=0.1)
    server = opened.enter_context(stand_in("llama-models.json", slow))
    box = watching(Server("Box", server.url), bounds=Bounds(max_seconds=1.0))
    events = []
    with pytest.raises(UserError, match=r"time limit of 1 s ended this job\. Its results so far are kept"):
        for event in box.events(JobKind.RUN, RAW, lambda: False, "watch:Box"):
            events.append(event)
    assert events[-1]["finish"] == Finish.STOPPED and server.left.wait(1)


@pytest.mark.parametrize("kind", [kind for kind in JobKind if kind is not JobKind.RUN])
def test_a_watched_server_is_asked_for_runs_alone(kind):
    own = Own()
    box = watching(Server("Box", "http://127.0.0.1:1"), own=own)
    with pytest.raises(UserError) as raised:
        list(box.events(kind, {}, lambda: False, "watch:Box"))
    assert str(raised.value) == RUNS_ONLY and not own.asked


@pytest.mark.parametrize(
    "pair", [None, "embedded", "watch:Other", 7, ["watch:Box"], "Box", "http://127.0.0.1:1"]
)
def test_a_request_without_a_watched_server_gets_the_page_s_own_models(pair):
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


def test_servers_are_offered_next_to_the_page_s_own_models():
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
