"""Tokens as they came, for servers that tell of their passes only at the end, if at all."""

from collections.abc import Sequence
from typing import NamedTuple

from specdemo.watch.steps import Piece, Step, in_order


class Arrival(NamedTuple):
    """Tokens that came together, and when, in seconds since the request."""

    tokens: tuple[Piece, ...]
    at: float


def pieces_only(arrivals: Sequence[Arrival]) -> list[Step]:
    """Every token as a step of its own, where nothing is known of the passes."""
    steps, before = [], 0.0
    for index, (tokens, at) in enumerate(arrivals):
        single = [Step((token,)) for token in tokens]
        if index == 0:
            steps += [Step(single[0].tokens, prompt_s=at), *single[1:]]
        else:
            steps += in_order(single, at - before)
        before = at
    return steps
