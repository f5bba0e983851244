"""Make a trace small enough to commit: in ``tests``, ``python -m helpers.compact < TRACE.json > OUT.ndjson``.

Rounds figures, keeps the models' top fives for the first rounds only, and leaves out what ``replay.recorded``
fills in again: each round's totals, and null values.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from specdemo.engine.race import replay_events
from specdemo.records import trace_file
from specdemo.records.trace import SPECULATIVE, dump

ROUNDS_WITH_TOPS = 6
TOPS = {"draft_top", "target_top", "top"}


def rounded(text: str) -> Any:
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.5g}"))


def without(value: Any, left_out: Callable[[str, Any], bool]) -> Any:
    """``value`` without the entries that ``left_out(key, entry)`` chooses, at any depth."""
    if isinstance(value, dict):
        return {key: without(item, left_out) for key, item in value.items() if not left_out(key, item)}
    return [without(item, left_out) for item in value] if isinstance(value, list) else value


def is_top(key: str, _entry: Any) -> bool:
    return key in TOPS


def is_blank(key: str, entry: Any) -> bool:
    """Return True if a trace means the same without it."""
    return entry is None or (key in TOPS and not entry)


def compact(trace: dict[str, Any]) -> dict[str, Any]:
    for name, lane in trace["lanes"].items():
        kept = ROUNDS_WITH_TOPS if name == SPECULATIVE else 0
        lane["rounds"] = lane["rounds"][:kept] + without(lane["rounds"][kept:], is_top)
    return trace


def main() -> None:
    run = trace_file.load(dump(compact(rounded(sys.stdin.read()))))
    for event in replay_events(run):
        if event["type"] == "start":
            event["run"]["pieces"] = {}  # they stand beside it, too
        if event["type"] == "round":
            del event["totals"]
            event["round"] = {"emission": None} | without(event["round"], is_blank)
        print(dump(rounded(dump(event))))


if __name__ == "__main__":
    main()
