"""Whole runs of watched servers as events, from recorded streams replayed over real HTTP."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from helpers.recorded_streams import events_of
from helpers.replay import trace_of
from helpers.watched_server import Answer, StandIn, replayed, stand_in, streamed

from specdemo.engine.speculate import never
from specdemo.records.limits import parse_config
from specdemo.records.trace import dump
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds, Stop
from specdemo.watch.run import WatchedRun
from specdemo.watch.servers import Server
from specdemo.watch.service import Watching

PROMPT = "Write the numbers from one to ten, then write them again."
RAW = {"prompt": PROMPT, "max_new_tokens": 128, "baseline": False}


def watched_events(models: str, stream: str, alone: Answer | None = None) -> list[dict[str, Any]]:
    """Return the events that a page gets; ``alone`` is the answer of a server without drafts."""
    settings = {"prompt": "Say it again.", "max_new_tokens": 256, "baseline": alone is not None}
    with stand_in(models, replayed(stream)) as server, stand_in(models, alone or replayed(stream)) as plain:
        watched = Server("lab", server.url, plain.url if alone else None)
        events = list(WatchedRun(watched, parse_config(settings), never).events())
    return [json.loads(dump(event)) for event in events if event["type"] != "progress"]


def undrafted(name: str) -> Answer:
    """A recorded stream of llama.cpp as it would be without drafts: a round of 10 ms for each token."""
    events = copy.deepcopy(events_of(name))
    for event in events:
        if timings := event.get("timings"):
            timings.pop("draft_n", None), timings.pop("draft_n_accepted", None)
            timings["predicted_ms"] = 10.0 * timings["predicted_n"]
    return streamed(*events)


class Own:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def events(self, kind, raw, stop, pair=None, visitor=None) -> Iterator[dict]:
        self.asked.append((kind, pair))
        yield {"type": "own"}


def watching(*servers: Server, own: Own | None = None, bounds: Bounds | None = None) -> Watching:
    return Watching(own or Own(), servers, bounds or Bounds())


def run_on(
    server: StandIn, raw: dict | None = None, stop: Stop = never, alone: StandIn | None = None
) -> Iterator[dict[str, Any]]:
    box = watching(Server("Box", server.url, alone and alone.url))
    return box.events(JobKind.RUN, raw or RAW, stop, "watch:Box", Visitor("10.0.0.1"))


def seen(server: StandIn, *settings: Any, **more: Any) -> list[dict[str, Any]]:
    return list(run_on(server, *settings, **more))


def saved(events: list[dict]) -> dict:
    return trace_of([json.loads(dump(event)) for event in events if event["type"] != "progress"])
