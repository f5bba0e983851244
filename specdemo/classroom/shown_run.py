"""The run that a teacher's page shows, told to the class in parts: each event once, in order, or not at all.

A post may be sent twice (its reply was lost), or after another window has begun another run: parts name their
run and where they begin. Knows no HTTP.
"""

from collections.abc import Mapping
from typing import Any

from specdemo.classroom.log import Log
from specdemo.classroom.view import parse_opening
from specdemo.records.limits import UserError, integer, require_known

MOST_EVENTS = 20_000
"""In one part."""
MOST_RUNS = 2**53


class UnknownRunError(UserError):
    """What is told goes on from what was never told; it has to be told from its beginning."""


class ShownRun:
    """The run at hand.

    Args:
        log: Where everybody is told.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._run: int | None = None
        self._events = 0

    def begin(self, message: Mapping[str, Any]) -> None:
        """Another run: its number ``run``, ``recording`` and ``topic``.

        Raises:
            UserError: A value is none of its kind.
        """
        opening = {key: value for key, value in message.items() if key != "run"}
        run = integer(message, "run", 0, 0, MOST_RUNS)
        self._log.begin({"type": "begin", **parse_opening(opening)})
        self._run, self._events = run, 0

    def extend(self, message: Mapping[str, Any]) -> None:
        """More ``events`` of ``run``, the first of which is its number ``from``.

        Raises:
            UnknownRunError: Another run is shown, or some of this one is missing.
            UserError: They are no events, or the run has become too long.
        """
        require_known(message, ("run", "from", "events"))
        events = message.get("events")
        if not isinstance(events, list) or len(events) > MOST_EVENTS:
            raise UserError(f"events must be a list of at most {MOST_EVENTS:,}.")
        if not all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in events):
            raise UserError("Every event must have a type.")
        first = integer(message, "from", 0, 0, MOST_RUNS)
        if integer(message, "run", 0, 0, MOST_RUNS) != self._run or first > self._events:
            raise UnknownRunError("The beginning of this run was never told; tell it first.")
        new = events[self._events - first :]
        if new:
            self._log.extend({"type": "events", "events": new})
            self._events += len(new)
