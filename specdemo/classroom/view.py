"""What a teacher's page shows of a run: where its clock stands, what is open on it, which tab and lesson.

Untrusted on its way to the students' pages, so of each value its type and size are checked; what they mean is
the page's business.
"""

import re
from collections.abc import Mapping
from typing import Any

from specdemo.records.limits import UserError, flag, integer, number, require_known, show

PACES = ("fit", "tokens", "0.05", "0.25", "1")
MOST_SECONDS = 1e5
MOST_ROUNDS = 100_000
_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_MOST_FIGURES = 10


def parse_view(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The view: ``time`` (seconds of the run's own clock), ``playing``, ``pace``, ``round`` (from 0, or null
    where none is open), ``tab`` and ``lesson``.

    Raises:
        UserError: A value is none of its kind.
    """
    require_known(raw, ("time", "playing", "pace", "round", "tab", "lesson"))
    pace = raw.get("pace", "1")
    if pace not in PACES:
        raise UserError(f"pace must be one of: {', '.join(PACES)}; not {show(pace)}.")
    opened = raw.get("round")
    return {
        "time": number(raw, "time", 0.0, 0.0, MOST_SECONDS),
        "playing": flag(raw, "playing", False),
        "pace": pace,
        "round": None if opened is None else integer(raw, "round", 0, 0, MOST_ROUNDS),
        "tab": _name(raw, "tab"),
        "lesson": _name(raw, "lesson"),
    }


def parse_opening(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a run that begins is shown for: ``recording`` (its name, or null) and the lesson's ``topic``.

    Raises:
        UserError: A value is none of its kind.
    """
    require_known(raw, ("recording", "topic"))
    return {"recording": _name(raw, "recording"), "topic": _topic(raw.get("topic", {}))}


def _topic(raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise UserError("topic must be a mapping.")
    require_known(raw, ("focus", "charts", "figures"))
    topic: dict[str, Any] = {key: _name(raw, key) for key in ("focus", "charts") if raw.get(key) is not None}
    figures = raw.get("figures")
    if figures is not None:
        if not isinstance(figures, list) or len(figures) > _MOST_FIGURES:
            raise UserError(f"figures must be a list of at most {_MOST_FIGURES} names.")
        topic["figures"] = [_name({"figures": one}, "figures") for one in figures]
    return topic


def _name(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    if value is not None and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise UserError(f"{key} must be a name, not {show(value)}.")
    return value
