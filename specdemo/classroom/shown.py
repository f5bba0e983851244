"""What a teacher's page shows: the events of its run, and the view of it.

Both are untrusted on their way to the students' pages, so the type and size of every value are checked here.
"""

import re
from collections.abc import Mapping
from typing import Any

from specdemo.classroom.log import Log
from specdemo.records.limits import UserError, flag, integer, number, require_known, show

MAX_EVENTS = 20_000
"""Number of events in one message."""
MAX_RUNS = 2**53
MAX_SECONDS = 1e5
MAX_ROUNDS = 100_000
MAX_FIGURES = 10
PACES = ("fit", "tokens", "0.05", "0.25", "1")
_NAME = re.compile(r"[a-z0-9_-]{1,40}")


class UnknownRunError(UserError):
    """Events continue a run that was not begun; the page has to send the run from its beginning."""


class ShownRun:
    """The current run, sent in parts; every event reaches the log once and in order.

    A post may arrive twice (its reply was lost) or after another run has begun in another window, so each
    part has the number of its run and of its first event.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._run: int | None = None
        self._events = 0

    def begin(self, message: Mapping[str, Any]) -> None:
        """Start another run: its number ``run``, the name of a ``recording`` and a lesson's ``topic``.

        Raises:
            UserError: A value has the wrong type or size.
        """
        require_known(message, ("run", "recording", "topic"))
        run = integer(message, "run", 0, 0, MAX_RUNS)
        topic = _topic(message.get("topic", {}))
        self._log.begin({"type": "begin", "recording": _name(message, "recording"), "topic": topic})
        self._run, self._events = run, 0

    def extend(self, message: Mapping[str, Any]) -> None:
        """Add ``events`` of ``run``, starting with number ``from``; known events are skipped.

        Raises:
            UnknownRunError: Another run is shown, or events before these are missing.
            UserError: They are not events, or the run has become too long.
        """
        require_known(message, ("run", "from", "events"))
        events = message.get("events")
        if not isinstance(events, list) or len(events) > MAX_EVENTS:
            raise UserError(f"events must be a list of at most {MAX_EVENTS:,}.")
        if not all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in events):
            raise UserError("Every event must have a type.")
        first = integer(message, "from", 0, 0, MAX_RUNS)
        if integer(message, "run", 0, 0, MAX_RUNS) != self._run or first > self._events:
            raise UnknownRunError("The beginning of this run is missing; send it first.")
        if new := events[self._events - first :]:
            self._log.extend({"type": "events", "events": new})
            self._events += len(new)


def parse_view(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the view of a run after a check of its values.

    Args:
        raw: ``time`` in seconds of the run's clock, ``playing``, ``pace``, the opened ``round`` (from 0, or
            null), and the names of the open ``tab`` and ``lesson``.

    Raises:
        UserError: A value has the wrong type or size.
    """
    require_known(raw, ("time", "playing", "pace", "round", "tab", "lesson"))
    pace = raw.get("pace", "1")
    if pace not in PACES:
        raise UserError(f"pace must be one of: {', '.join(PACES)}; not {show(pace)}.")
    has_round = raw.get("round") is not None
    return {
        "time": number(raw, "time", 0.0, 0.0, MAX_SECONDS),
        "playing": flag(raw, "playing", False),
        "pace": pace,
        "round": integer(raw, "round", 0, 0, MAX_ROUNDS) if has_round else None,
        "tab": _name(raw, "tab"),
        "lesson": _name(raw, "lesson"),
    }


def _topic(raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise UserError("topic must be a mapping.")
    require_known(raw, ("focus", "charts", "figures"))
    topic: dict[str, Any] = {key: _name(raw, key) for key in ("focus", "charts") if raw.get(key) is not None}
    figures = raw.get("figures")
    if figures is not None:
        if not isinstance(figures, list) or len(figures) > MAX_FIGURES:
            raise UserError(f"figures must be a list of at most {MAX_FIGURES} names.")
        topic["figures"] = [_name({"figures": figure}, "figures") for figure in figures]
    return topic


def _name(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    if value is not None and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise UserError(f"{key} must be a name, not {show(value)}.")
    return value
