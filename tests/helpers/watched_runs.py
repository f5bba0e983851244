"""Whole runs of watched servers as events, from recorded streams replayed over real HTTP."""

import copy
import json
from typing import Any

from helpers.recorded_streams import events_of
from helpers.watched_server import Answer, replayed, stand_in, streamed

from specdemo.engine.speculate import never
from specdemo.records.limits import parse_config
from specdemo.records.trace import dump
from specdemo.watch.live import WatchedRun
from specdemo.watch.servers import Server


def watched_events(models: str, stream: str, alone: Answer | None = None) -> list[dict[str, Any]]:
    """What a page gets of a run; ``alone`` is what a server without drafts answers."""
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
