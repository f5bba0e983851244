"""Run settings in the page's address: ``?prompt=…&k=4`` sets the widgets, so that a link carries a run.

Values are checked as a request's are. Knows no widgets.
"""

import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from specdemo.records.limits import parse_config
from specdemo.records.trace import AUTO
from specdemo.service.jobs import Events
from specdemo.ui.requests import SETTINGS

_WORDS = frozenset({"prompt", "mode", "drafter", "rule"})
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_SWITCHES = {"true": True, "false": False}


def settings_from(parameters: Mapping[str, str], default_prompt: str) -> dict[str, Any]:
    """The settings an address names, by the fields of ``RunConfig``; other parameters are not ours.

    Raises:
        UserError: A value is out of bounds or contradicts another.
    """
    named = {key: _typed(key, text) for key, text in parameters.items() if key in SETTINGS}
    if not named:
        return {}
    config = parse_config({"prompt": default_prompt, **named})
    # What follows from a setting is set with it: a temperature brings its rule.
    implied = {"temperature", "rule"} if {"temperature", "rule"} & named.keys() else set()
    return {key: getattr(config, key) for key in named.keys() | implied}


def with_pair_named(events: Events, pair: Any) -> Events:
    """The events of a run, its ``start`` with the name in it by which the pair was asked for.

    A link to the run then asks for the same pair.

    Args:
        events: Closed in any case.
        pair: The name; nothing is added where it is empty.
    """
    with closing(events):
        for event in events:
            if event["type"] == "start" and pair:
                run = event["run"]
                yield {**event, "run": {**run, "pair": {**run["pair"], "name": pair}}}
            else:
                yield event


def _typed(key: str, text: str) -> Any:
    """A parameter as the number or switch it spells; the rest stays text, for ``parse_config``."""
    if key in _WORDS or text == AUTO:
        return text
    if text in _SWITCHES:
        return _SWITCHES[text]
    return float(text) if _NUMBER.fullmatch(text) else text
