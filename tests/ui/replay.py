"""A service that replays recorded events instead of running models."""

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specdemo.limits import UserError, parse_config

DATA = Path(__file__).parent / "data"

Event = dict[str, Any]


def recorded(name: str) -> list[Event]:
    """A committed event stream."""
    return [json.loads(line) for line in (DATA / f"{name}.ndjson").read_text(encoding="utf-8").splitlines()]


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
                event["run"]["config"] = asdict(config)
            if event["type"] == "round":
                time.sleep(self.gap_s)
                self.served += 1
            if self.fault and self.served > 3:
                raise UserError(self.fault)
            if event["type"] == "round" and stop():
                yield {**self.events[-1], "finish": "stopped", "sentence": "Stopped early."}
                return
            yield event
