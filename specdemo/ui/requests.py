"""What an endpoint passes on: its arguments that are settings, by name and untouched.

The signatures of endpoints are spelled out, because Gradio shows them; which settings there are is said by
whoever checks them. Knows no widgets and checks nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from specdemo.records.trace import RunConfig

SETTINGS = tuple(field.name for field in fields(RunConfig) if field.name != "script")
"""What a visitor can set of a run; a script is for drafters that no widget and no link offers."""


def raw_request(arguments: Mapping[str, Any], settings: Iterable[str] = SETTINGS) -> dict[str, Any]:
    """The untrusted request in an endpoint's ``locals()``: the arguments named in ``settings``."""
    return {name: arguments[name] for name in settings if name in arguments}
