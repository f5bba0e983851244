"""Streams of real servers, kept in files, and what a reader makes of them."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specdemo.watch.steps import Outcome, Reader, Step
from specdemo.watch.stream import Chunk

STREAMS = Path(__file__).parents[1] / "watch" / "streams"


@cache
def recorded(name: str) -> bytes:
    """What a server answered; ``name`` is the file's, without ``.sse`` where it is a stream."""
    path = STREAMS / name
    return (path if path.suffix == ".json" else STREAMS / f"{name}.sse").read_bytes()


def events_of(name: str) -> list[dict[str, Any]]:
    """The events of a recorded stream."""
    lines = recorded(name).decode().splitlines()
    return [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: {")]


class Read(NamedTuple):
    """What a reader made of a stream: the steps it told while it came and those at the end."""

    early: list[Step]
    outcome: Outcome

    @property
    def steps(self) -> list[Step]:
        return [*self.early, *self.outcome.steps]

    @property
    def rounds(self) -> list[tuple[int, int, int]]:
        """Tokens drafted, accepted and written by each step."""
        return [(step.drafted, step.accepted, len(step.tokens)) for step in self.steps]

    @property
    def totals(self) -> tuple[int, ...]:
        """The same in all."""
        return tuple(map(sum, zip(*self.rounds, strict=True))) if self.rounds else (0, 0, 0)

    @property
    def text(self) -> str:
        """What was written, without tokens that have no text of their own."""
        pieces = [piece for step in self.steps for piece in step.tokens]
        return b"".join(piece.text for piece in pieces if not piece.special).decode()


def read(reader: Reader, events: Iterable[dict[str, Any]]) -> Read:
    """Have events read that came a tenth of a second apart."""
    early = [step for at, data in enumerate(events, 1) for step in reader.take(Chunk(data, at / 10))]
    return Read(early, reader.end())
