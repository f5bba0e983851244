"""The NDJSON of a run and its stop requests, without a browser."""

import inspect
import itertools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from helpers.requests_made import request_from
from helpers.stand_in import StandIn
from helpers.tiny import service_of, tiny_pair

from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor
from specdemo.ui.controls import PLAIN_SETTINGS, SETTINGS, Controls
from specdemo.ui.jobs import BUSY, CUT, EXPLAIN
from specdemo.ui.streams import MIN_GAP_S, USUAL_GAP_S, PageJob, Stops, first_line, ndjson
from specdemo.ui.tabs.run import run_endpoint


class Counting:
    """Yields numbered events of a ``kind``, ``cost`` seconds each, then raises ``fault`` if given."""

    def __init__(self, count: int, fault: Exception | None = None, cost: float = 0.0, kind: str = "round"):
        self.count, self.fault, self.cost, self.kind = count, fault, cost, kind
        self.now = 0.0

    def stream(self) -> Iterator[dict[str, Any]]:
        for number in range(self.count):
            self.now += self.cost
            yield {"type": self.kind, "number": number}
        if self.fault:
            raise self.fault


def texts(source: Counting) -> Iterator[str]:
    """Return the updates of one run on the source's clock, each read at once."""
    job = PageJob(Visitor(""), lambda: False, lambda: 0, lambda: source.now)
    return ndjson(source.stream(), job)


def numbers(text: str) -> list[int]:
    return [event["number"] for event in map(json.loads, text.splitlines()) if "number" in event]


def test_text_only_grows_from_its_first_line():
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


def test_slow_rounds_are_sent_one_by_one_and_fast_ones_together():
    slow, fast = Counting(30, cost=1.01 * MIN_GAP_S), Counting(1000, cost=MIN_GAP_S / 50)
    assert len(list(texts(slow))) == 30
    assert len(list(texts(fast))) <= fast.now / USUAL_GAP_S + 2


def test_rare_events_are_sent_at_once():
    updates = list(texts(Counting(3, cost=0.0, kind="experiment")))
    assert [numbers(text) for text in updates] == [[0], [0, 1], [0, 1, 2]]


def test_a_refusal_becomes_the_last_line():
    seen = []
    with pytest.raises(UserError, match="Too long"):
        for text in texts(Counting(3, UserError("Too long; shorten it."))):
            seen.append(text)
    last = json.loads(seen[-1].splitlines()[-1])
    assert last == {"type": "error", "message": "Too long; shorten it."}
    assert numbers(seen[-1]) == [0, 1, 2]


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


def test_stop_reaches_a_job_that_has_not_begun_and_only_in_its_session():
    stops = Stops()
    stops.stop("a")
    for session in ("a", "b", "c"):
        stops.begin(session)
    stops.stop("b")
    stops.leave("c")
    for session, stopped in (("a", False), ("b", True), ("c", False)):
        with stops.job(request_from("127.0.0.1", session)) as job:
            assert job.stop() is stopped, session


def test_the_end_of_a_job_leaves_the_stop_request_of_a_newer_one():
    stops, request = Stops(), request_from("127.0.0.1", "a")
    with stops.job(request):
        stops.begin("a")
    stops.stop("a")
    with stops.job(request) as newer:
        assert newer.stop()
    with stops.job(request) as newest:
        assert not newest.stop()


def test_run_has_the_widgets_as_parameters_in_order():
    *taken, request = inspect.signature(run_endpoint(StandIn(), Stops())).parameters
    assert (tuple(taken), request) == (Controls._fields, "request")
    assert set(taken) - {"auto", "pair"} == set(SETTINGS)


def test_closing_the_updates_closes_the_events():
    source = Counting(3)
    events = source.stream()
    updates = ndjson(events, PageJob(Visitor(""), lambda: False, lambda: 0))
    next(updates)
    updates.close()
    with pytest.raises(StopIteration):
        next(events)


def generators(frame: FrameType | None) -> list[str]:
    """Return the generators on a stack, outermost first, without torch's wrapper of ``speculate``."""
    names = []
    while frame is not None:
        if frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return [name for name in names[::-1] if name != "generator_context"]


def test_a_round_crosses_eight_generators_from_the_decoder_to_the_page():
    pair, stacks = tiny_pair(), []

    def look(*_: Any) -> None:
        visitors, device = sys._current_frames()[threading.main_thread().ident], sys._getframe()
        stacks.append((generators(visitors), generators(device)))

    pair.target.lm_head.register_forward_hook(look)
    endpoint = run_endpoint(service_of(pair), Stops())
    values = {**PLAIN_SETTINGS, "mode": "raw", "max_new_tokens": 8, "auto": False, "pair": ""}
    *_, text = endpoint(**values, request=request_from("127.0.0.1", "a"))
    assert json.loads(text.splitlines()[-1])["type"] == "end"
    page, device = stacks[-1]
    assert page[-4:] == ["run", "ndjson", "events", "turn"]
    assert device == ["perform", "events", "race", "speculate"]
