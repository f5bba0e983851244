"""The recorded runs that ship with the program, to be played where no model is loaded.

Each is a trace file; ``index.json`` beside them says what the menu shows, in its order. No torch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from specdemo.records import trace_file
from specdemo.records.limits import UserError
from specdemo.records.trace import Rule, Run
from specdemo.shipped import RECORDINGS

FOLDER = RECORDINGS


@dataclass(frozen=True)
class Recording:
    """One entry of the menu.

    Attributes:
        name: What :func:`load` takes.
        title, about: A few words and a sentence, from the index; everything else is the run's own.
    """

    name: str
    title: str
    about: str
    device: str
    pair: Mapping[str, str]
    precision: str
    rule: Rule
    drafter: str
    k: int | Literal["auto"]
    speedup: float | None
    tokens: int


def listed() -> list[Recording]:
    """Every recording in the order of the menu; none where the program was installed without them."""
    return list(_listed(FOLDER))


def names() -> list[str]:
    """The names of :func:`listed`, without looking at the runs."""
    return [entry["name"] for entry in _index(FOLDER)]


def load(name: str) -> Run:
    """One recording.

    Raises:
        UserError: There is none of this name.
    """
    if name not in names():
        choice = f"choose one of: {', '.join(names())}" if names() else "none are installed"
        raise UserError(f"There is no recording of that name; {choice}.")
    return _load(FOLDER / f"{name}.json")


@cache
def _listed(folder: Path) -> tuple[Recording, ...]:
    return tuple(_describe(entry, _load(folder / f"{entry['name']}.json")) for entry in _index(folder))


def _describe(entry: Mapping[str, str], run: Run) -> Recording:
    return Recording(
        **entry,
        device=run.device,
        pair=run.pair,
        precision=run.precision,
        rule=run.config.rule,
        drafter=run.config.drafter,
        k=run.config.k,
        speedup=run.totals["speedup"],
        tokens=run.totals["tokens"],
    )


@cache
def _index(folder: Path) -> list[dict[str, Any]]:
    path = folder / "index.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


@cache
def _load(path: Path) -> Run:
    return trace_file.load(path.read_bytes())
