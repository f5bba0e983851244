"""Recorded streams of real servers, and the rounds that a reader makes of them."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specdemo.watch.reader import Reader, ServerRound, StreamEnd

STREAMS = Path(__file__).parents[1] / "watch" / "streams"


@cache
def recorded(name: str) -> bytes:
    """Return a server's answer; ``name`` is the file's, without ``.sse`` for a stream."""
    path = STREAMS / name
    return (path if path.suffix == ".json" else STREAMS / f"{name}.sse").read_bytes()


def events_of(name: str) -> list[dict[str, Any]]:
    lines = recorded(name).decode().splitlines()
    return [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: {")]


def text_sent(name: str) -> str:
    choices = [choice for event in events_of(name) for choice in event["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


class Read(NamedTuple):
    """The rounds that a reader made of a stream: those returned while it came, and those at the end."""

    early: list[ServerRound]
    end: StreamEnd

    @property
    def rounds(self) -> list[ServerRound]:
        return [*self.early, *self.end.rounds]

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        return [(one.drafted, one.accepted, len(one.tokens)) for one in self.rounds]

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(*self.counts, strict=True))) if self.rounds else (0, 0, 0)

    @property
    def text(self) -> str:
        tokens = [token for one in self.rounds for token in one.tokens]
        return b"".join(token.text for token in tokens if not token.special).decode()


def read(reader: Reader, events: Iterable[dict[str, Any]]) -> Read:
    """Have a reader read events that come a tenth of a second apart."""
    early = [one for number, data in enumerate(events, 1) for one in reader.read(data, number / 10)]
    return Read(early, reader.end())
