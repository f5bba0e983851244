"""The built-in recorded runs: trace files, which ``index.json`` lists in menu order."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from specdemo.asset_paths import RECORDINGS
from specdemo.records import trace_file
from specdemo.records.limits import UserError, show
from specdemo.records.trace import Rule, Run

FOLDER = RECORDINGS


@dataclass(frozen=True)
class Recording:
    """One entry of the menu: ``name``, ``title`` and ``about`` from the index, the rest from the run."""

    name: str
    title: str
    about: str
    device: str
    pair: Mapping[str, str]
    precision: str
    prompt: str
    rule: Rule
    drafter: str
    k: int | Literal["auto"]
    speedup: float | None
    tokens: int


def listed() -> list[Recording]:
    """Return the recordings in menu order; none if the program was installed without them."""
    return list(_listed(FOLDER))


def names() -> list[str]:
    """Return the names in menu order, without reading the trace files."""
    return [entry["name"] for entry in _index(FOLDER)]


def load(name: str) -> Run:
    if name not in names():
        choice = f"choose one of: {', '.join(names())}" if names() else "no recordings are installed"
        raise UserError(f"There is no recording named {show(name)}; {choice}.")
    return _load(FOLDER / f"{name}.json")


@cache
def _listed(folder: Path) -> tuple[Recording, ...]:
    found = []
    for entry in _index(folder):
        run = _load(folder / f"{entry['name']}.json")
        found.append(
            Recording(
                **entry,
                device=run.device,
                pair=run.pair,
                precision=run.precision,
                prompt=run.config.prompt,
                rule=run.config.rule,
                drafter=run.config.drafter,
                k=run.config.k,
                speedup=run.totals["speedup"],
                tokens=run.totals["tokens"],
            )
        )
    return tuple(found)


@cache
def _index(folder: Path) -> list[dict[str, Any]]:
    path = folder / "index.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


@cache
def _load(path: Path) -> Run:
    return trace_file.load(path.read_bytes())
