"""Recorded streams of events: read, changed, and made from other traces."""

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from specdemo.engine.race import replay_events
from specdemo.records import trace_file
from specdemo.records.trace import SPECULATIVE, dump

DATA = Path(__file__).parents[1] / "ui" / "data"
RECORDING = "paris"
"""The one recorded run in the page's menu: ``shared_noise``."""

Event = dict[str, Any]


def recorded(name: str) -> list[Event]:
    """A committed event stream with the figures of every round, which the file leaves out."""
    return copy.deepcopy(_recorded(name))


@cache
def _recorded(name: str) -> list[Event]:
    lines = (DATA / f"{name}.ndjson").read_text(encoding="utf-8").splitlines()
    return _unfolded(trace_of([json.loads(line) for line in lines]))


def trace_of(events: list[Event]) -> Event:
    lanes: dict[str, Any] = {}
    for event in events:
        if event["type"] == "round":
            lanes.setdefault(event["lane"], {"rounds": []})["rounds"].append(event["round"])
    pieces = {token: piece for event in events for token, piece in event.get("pieces", {}).items()}
    specials = [token for token in events[0]["specials"] if str(token) in pieces]
    return events[0]["run"] | {"lanes": lanes, "pieces": pieces, "specials": specials}


def rounds(events: list[Event], lane: str = SPECULATIVE) -> list[Event]:
    return [event for event in events if event["type"] == "round" and event["lane"] == lane]


def edited(events: list[Event], change: Callable[[Event], None]) -> list[Event]:
    """The events of the same run after ``change(trace)``, figures folded again."""
    trace = copy.deepcopy(trace_of(events))
    change(trace)
    return _unfolded(trace)


def faster(events: list[Event], times: float) -> list[Event]:
    def hurry(trace: Event) -> None:
        for lane in trace["lanes"].values():
            for round_ in lane["rounds"]:
                for phase in ("draft_s", "verify_s", "other_s", "prefill_s"):
                    round_[phase] /= times

    return edited(events, hurry)


def steady(events: list[Event]) -> list[Event]:
    """The events of the same run without other work: each round takes its lane's median times."""

    def even(trace: Event) -> None:
        for lane in trace["lanes"].values():
            for phase in ("draft_s", "verify_s", "other_s"):
                usual = median(round_[phase] for round_ in lane["rounds"])
                for round_ in lane["rounds"]:
                    round_[phase] = usual

    return edited(events, even)


@cache
def beginning(name: str, count: int = 8) -> list[Event]:
    """The run of a committed stream if it had ended after ``count`` rounds: less for a page to show."""

    def end_early(trace: Event) -> None:
        speculative, *others = (lane["rounds"] for lane in trace["lanes"].values())
        tokens = sum(
            1 + sum(token["status"] == "accepted" for token in round_["drafted"])
            for round_ in speculative[:count]
        )
        for lane, kept in ((speculative, count), *((lane, tokens) for lane in others)):
            lane[kept - 1]["finish"] = lane[-1]["finish"]
            del lane[kept:]

    return edited(recorded(name), end_early)


def _unfolded(trace: Event) -> list[Event]:
    return [json.loads(dump(event)) for event in replay_events(trace_file.load(dump(trace)))]


def proved(name: str) -> list[Event]:
    """A committed stream of a proof's events: what it shows and, of a distribution test, by which rule."""
    lines = (DATA / f"proof_{name}.ndjson").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
