"""The NDJSON of a run, and stopping it, without a browser."""

import inspect
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.replay import recorded
from helpers.requests_made import request_from
from helpers.stand_in import StandIn

from specdemo.records.limits import UserError
from specdemo.ui.address import with_pair_named
from specdemo.ui.controls import PLAIN_SETTINGS, Controls
from specdemo.ui.jobs import BUSY, CUT, EXPLAIN
from specdemo.ui.requests import SETTINGS
from specdemo.ui.streams import MIN_GAP_S, USUAL_GAP_S, Stops, first_line, ndjson
from specdemo.ui.tabs.run import run_endpoint


class Counting:
    """Yields numbered events of a ``kind``, ``cost`` seconds each, then raises ``fault`` if there is one."""

    def __init__(self, count: int, fault: Exception | None = None, cost: float = 0.0, kind: str = "round"):
        self.count, self.fault, self.cost, self.kind = count, fault, cost, kind
        self.now = 0.0

    def stream(self) -> Iterator[dict[str, Any]]:
        """The events."""
        for number in range(self.count):
            self.now += self.cost
            yield {"type": self.kind, "number": number}
        if self.fault:
            raise self.fault


def texts(source: Counting) -> Iterator[str]:
    """The updates of one run on the source's own clock."""
    return ndjson(source.stream(), clock=lambda: source.now)


def numbers(text: str) -> list[int]:
    """The events a text holds."""
    return [event["number"] for event in map(json.loads, text.splitlines()) if "number" in event]


def test_text_only_grows_and_begins_as_the_press_of_run_left_it():
    updates = list(texts(Counting(50, cost=MIN_GAP_S)))
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(updates))
    assert updates[0].startswith(first_line())
    assert numbers(updates[-1]) == list(range(50))


@pytest.mark.parametrize("kind", ["round", "progress"])
def test_updates_are_throttled_and_the_last_is_never_lost(kind):
    source = Counting(1000, cost=MIN_GAP_S / 50, kind=kind)
    updates = list(texts(source))
    assert len(updates) <= source.now / MIN_GAP_S + 2
    assert numbers(updates[-1]) == list(range(1000))


def test_rounds_that_come_slowly_are_sent_as_they_do_and_fast_ones_together():
    slow, fast = Counting(30, cost=1.01 * MIN_GAP_S), Counting(1000, cost=MIN_GAP_S / 50)
    assert len(list(texts(slow))) == 30
    assert len(list(texts(fast))) <= fast.now / USUAL_GAP_S + 2


def test_what_comes_seldom_is_sent_at_once():
    updates = list(texts(Counting(3, cost=0.0, kind="experiment")))
    assert [numbers(text) for text in updates] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("fault", [UserError("Too long; shorten it."), RuntimeError("boom")])
def test_a_fault_becomes_the_last_line_and_one_sentence(fault):
    seen = []
    with pytest.raises(UserError) as told:
        for text in texts(Counting(3, fault)):
            seen.append(text)
    last = json.loads(seen[-1].splitlines()[-1])
    assert last == {"type": "error", "message": str(told.value)}
    assert numbers(seen[-1]) == [0, 1, 2]
    assert "boom" not in str(told.value)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_every_failure_shows_a_sentence():
    def explained(shown: str) -> str:
        script = f"process.stdout.write(({EXPLAIN})({json.dumps(shown)}))"
        return subprocess.run(["node", "-e", script], check=True, capture_output=True, text=True).stdout

    def error(message: str) -> str:
        return json.dumps({"type": "error", "message": message}, separators=(",", ":")) + "\n"

    assert explained(first_line()) == first_line() + error(BUSY)
    assert explained("") == error(CUT)
    begun = first_line() + '{"type":"start"}\n'
    assert explained(begun) == begun + error(CUT)
    assert explained(begun + error("Told.")) == begun + error("Told.")


def test_stop_reaches_a_queued_run_and_only_this_session():
    stops = Stops()
    stops.begin("a")
    stops.begin("b")
    stops.stop("a")
    assert stops.current("a").is_set()
    assert not stops.current("b").is_set()


def test_stop_without_a_run_does_not_end_the_next_one():
    stops = Stops()
    stops.stop("a")
    stops.begin("a")
    assert not stops.current("a").is_set()


def test_a_run_forgets_only_its_own_flag():
    stops = Stops()
    old = stops.current("a")
    stops.begin("a")
    new = stops.current("a")
    stops.leave("a", old)
    assert stops.current("a") is new
    stops.leave("a", new)
    assert stops.current("a") is not new


def test_run_takes_what_the_widgets_hold_in_their_order():
    *taken, request = inspect.signature(run_endpoint(StandIn(), Stops())).parameters
    assert (tuple(taken), request) == (Controls._fields, "request")
    assert set(taken) - {"auto", "pair"} == set(SETTINGS)


@pytest.mark.parametrize("pair", ["smollm2-1.7b", "a/target, b/draft", "", None])
def test_a_run_says_by_which_name_its_models_were_asked_for(pair):
    values = {**PLAIN_SETTINGS, "prompt": "abc", "auto": False, "pair": pair}
    endpoint = run_endpoint(StandIn(), Stops())
    *_, text = endpoint(**values, request=request_from("127.0.0.1", "a"))
    events = list(map(json.loads, text.splitlines()))
    (start,) = (event for event in events if event["type"] == "start")
    recorded_pair = recorded("greedy")[0]["run"]["pair"]
    assert start["run"]["pair"] == (recorded_pair | {"name": pair} if pair else recorded_pair)
    assert events[-1]["type"] == "end"


def test_whoever_ends_a_run_ends_what_its_events_come_from():
    source = Counting(3).stream()
    events = with_pair_named(source, "embedded")
    next(events)
    events.close()
    with pytest.raises(StopIteration):
        next(source)
