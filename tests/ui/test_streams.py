"""The NDJSON of a run and its stop requests, without a browser."""

import inspect
import itertools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from helpers.http_visitor import request_from
from helpers.stand_in import StandIn
from helpers.tiny import service_of, tiny_pair

from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.ui.controls import PLAIN_SETTINGS, SETTINGS, Controls
from specdemo.ui.jobs import BUSY, CUT, EXPLAIN
from specdemo.ui.streams import MIN_GAP_S, USUAL_GAP_S, PageJob, Stops, first_line, streamed
from specdemo.ui.tabs.run import run


class Counting:
    """A service with one job: numbered events, ``cost`` seconds each, then ``fault`` unless it is None."""

    def __init__(self, count: int, fault: Exception | None = None, cost: float = 0.0, kind: str = "round"):
        self.count, self.fault, self.cost, self.kind = count, fault, cost, kind
        self.now, self.is_closed = 0.0, False

    def events(self, *_: Any) -> Iterator[dict[str, Any]]:
        try:
            for number in range(self.count):
                self.now += self.cost
                yield {"type": self.kind, "number": number}
            if self.fault:
                raise self.fault
        finally:
            self.is_closed = True

    def texts(self) -> Any:
        """Return the updates of the job on this clock, each read at once."""
        job = PageJob(Visitor(""), lambda: False, lambda: 0, lambda: self.now)
        service: Any = SimpleNamespace(events=self.events)
        stops: Any = SimpleNamespace(job=lambda _request: nullcontext(job))
        return streamed(service, stops, JobKind.RUN, lambda _pair, _request: {})("", None)


def numbers(text: str) -> list[int]:
    return [event["number"] for event in map(json.loads, text.splitlines()) if "number" in event]


def test_text_only_grows_from_its_first_line():
    updates = list(Counting(50, cost=MIN_GAP_S).texts())
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(updates))
    assert updates[0].startswith(first_line())
    assert numbers(updates[-1]) == list(range(50))


def test_closing_the_updates_closes_the_events():
    source = Counting(3)
    updates = source.texts()
    next(updates)
    assert not source.is_closed
    updates.close()
    assert source.is_closed


@pytest.mark.parametrize("kind", ["round", "progress"])
def test_fast_events_are_sent_together_slow_ones_one_by_one_and_none_is_lost(kind):
    fast = Counting(1000, cost=MIN_GAP_S / 50, kind=kind)
    updates = list(fast.texts())
    assert len(updates) <= fast.now / USUAL_GAP_S + 2
    assert numbers(updates[-1]) == list(range(1000))
    assert len(list(Counting(30, cost=1.01 * MIN_GAP_S, kind=kind).texts())) == 30
    rare = Counting(3, cost=0.0, kind="experiment").texts()
    assert [numbers(text) for text in rare] == [[0], [0, 1], [0, 1, 2]]


def test_a_refusal_becomes_the_last_line():
    seen = []
    with pytest.raises(UserError, match="Too long"):
        for text in Counting(3, UserError("Too long; shorten it.")).texts():
            seen.append(text)
    last = json.loads(seen[-1].splitlines()[-1])
    assert last == {"type": "error", "message": "Too long; shorten it."}
    assert numbers(seen[-1]) == [0, 1, 2]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_every_failure_shows_a_sentence():
    def error(message: str) -> str:
        return json.dumps({"type": "error", "message": message}, separators=(",", ":")) + "\n"

    begun = first_line() + '{"type":"start"}\n'
    explained = {
        first_line(): first_line() + error(BUSY),
        "": error(CUT),
        begun: begun + error(CUT),
        begun + error("Told."): begun + error("Told."),
    }
    script = f"process.stdout.write(JSON.stringify({json.dumps(list(explained))}.map({EXPLAIN})))"
    shown = subprocess.run(["node", "-e", script], check=True, capture_output=True, encoding="utf-8").stdout
    assert json.loads(shown) == list(explained.values())


def test_stop_reaches_only_the_jobs_of_its_session_and_none_that_begins_later():
    stops = Stops()
    stops.stop("a")
    for session in ("a", "b", "c"):
        stops.begin(session)
    stops.stop("b")
    stops.leave("c")
    for session, stopped in (("a", False), ("b", True), ("c", False)):
        with stops.job(request_from("127.0.0.1", session)) as job:
            assert job.stop() is stopped, session
    request = request_from("127.0.0.1", "a")
    with stops.job(request):
        stops.begin("a")
    stops.stop("a")
    for stopped in (True, False):
        with stops.job(request) as newer:
            assert newer.stop() is stopped


def test_run_has_the_widgets_as_parameters_in_order():
    *taken, request = inspect.signature(streamed(StandIn(), Stops(), JobKind.RUN, run)).parameters
    assert (tuple(taken), request) == (Controls._fields, "request")
    assert set(taken) - {"auto", "pair"} == set(SETTINGS)


DECORATORS = {"generator_context", "limited"}
"""Generators around another one that set what torch does in it."""


def generators(frame: FrameType | None) -> list[str]:
    """Return the generators on a stack, outermost first, without the wrappers of ``speculate``."""
    names = []
    while frame is not None:
        if frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return [name for name in names[::-1] if name not in DECORATORS]


def test_a_round_crosses_six_generators_from_the_decoder_to_the_page():
    pair, stacks = tiny_pair(), []

    def look(*_: Any) -> None:
        visitors, device = sys._current_frames()[threading.main_thread().ident], sys._getframe()
        stacks.append((generators(visitors), generators(device)))

    pair.target.lm_head.register_forward_hook(look)
    endpoint = streamed(service_of(pair), Stops(), JobKind.RUN, run)
    values = {**PLAIN_SETTINGS, "mode": "raw", "max_new_tokens": 8, "auto": False, "pair": ""}
    *_, text = endpoint(*(values[name] for name in Controls._fields), request_from("127.0.0.1", "a"))
    assert json.loads(text.splitlines()[-1])["type"] == "end"
    page, device = stacks[-1]
    assert page[-2:] == ["stream", "events"]
    assert device == ["perform", "_decoded", "race", "speculate"]
