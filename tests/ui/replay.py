"""A service that replays recorded runs, and lets the lab measure a tiny pair, instead of running models."""

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from tiny import tiny_pair

from specdemo import trace_file
from specdemo.events import replay_events
from specdemo.lab.events import lab_events
from specdemo.lab.request import parse_lab
from specdemo.limits import UserError, parse_config
from specdemo.pair import Pair
from specdemo.trace import SPECULATIVE, dump

DATA = Path(__file__).parent / "data"
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
    """The trace file of a run, from its events."""
    lanes: dict[str, Any] = {}
    for event in events:
        if event["type"] == "round":
            lanes.setdefault(event["lane"], {"rounds": []})["rounds"].append(event["round"])
    pieces = {token: piece for event in events for token, piece in event.get("pieces", {}).items()}
    specials = [token for token in events[0]["specials"] if str(token) in pieces]
    return events[0]["run"] | {"lanes": lanes, "pieces": pieces, "specials": specials}


def rounds(events: list[Event], lane: str = SPECULATIVE) -> list[Event]:
    """The round events of one lane."""
    return [event for event in events if event["type"] == "round" and event["lane"] == lane]


def edited(events: list[Event], change: Callable[[Event], None]) -> list[Event]:
    """The events of the same run after ``change(trace)``, figures folded again."""
    trace = copy.deepcopy(trace_of(events))
    change(trace)
    return _unfolded(trace)


def faster(events: list[Event], times: float) -> list[Event]:
    """The same run on a machine so many times as fast."""

    def hurry(trace: Event) -> None:
        for lane in trace["lanes"].values():
            for round_ in lane["rounds"]:
                for phase in ("draft_s", "verify_s", "other_s", "prefill_s"):
                    round_[phase] /= times

    return edited(events, hurry)


def _unfolded(trace: Event) -> list[Event]:
    return [json.loads(dump(event)) for event in replay_events(trace_file.load(dump(trace)))]


@cache
def _measured_pair() -> Pair:
    return tiny_pair()


class ReplayService:
    """Stands in for ``service.Service``: checks requests the same way, then replays ``events``."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to a fast replay of the greedy run, with no request seen."""
        self.events = recorded("greedy")
        self.gap_s = 0.0
        self.fault: str | None = None
        self.served = 0
        self.requests: list[Mapping[str, Any]] = []

    def stream(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """Yield the recording as if ``raw`` had been run, ending it when asked to."""
        config = parse_config(raw)
        self.requests.append(raw)
        self.served = 0
        yield {"type": "progress", "text": "Preparing the run", "fraction": 1.0}
        for event in copy.deepcopy(self.events):
            if event["type"] == "start":
                event["run"]["config"] = self._configured(asdict(config))
            if event["type"] == "round":
                time.sleep(self.gap_s)
                self.served += 1
            if self.fault and self.served > 3:
                raise UserError(self.fault)
            if event["type"] == "round" and stop():
                yield {**self.events[-1], "finish": "stopped", "sentence": "Stopped early."}
                return
            yield event

    def measure(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """Measure a tiny pair on little text, whatever was asked for."""
        asked = parse_lab(raw)
        request = replace(asked, settings={**asked.settings, "max_new_tokens": 4}, prompts=1)
        self.requests.append(raw)
        self.served = 0
        for event in lab_events(_measured_pair(), request, stop):
            if event["type"] == "point":
                time.sleep(self.gap_s)
                self.served += 1
            if self.fault and self.served > 1:
                raise UserError(self.fault)
            yield event

    def _configured(self, config: dict[str, Any]) -> dict[str, Any]:
        """``config`` with what the recording's rounds and lanes follow from."""
        recording = self.events[0]["run"]["config"]
        return config | {key: recording[key] for key in ("rule", "temperature", "baseline", "draft_alone")}
