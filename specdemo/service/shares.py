"""Each visitor's share of the queue: one job of a kind, a few in all; who has most of it makes room.

Pure rules over the places that are taken. Knows no threads and no protocol.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

MOST_EACH = 3
"""Jobs that one visitor may have, those that wait and the one under way."""


class Visitor(NamedTuple):
    """Who asks: a page or script by its session, or whoever has none by the address they come from."""

    address: str
    session: str | None = None

    @property
    def name(self) -> tuple[str, str]:
        """What the share is counted by."""
        return ("session", self.session) if self.session else ("address", self.address)


class TakenPlace(Protocol):
    """What a place in the queue says of its visitor: one who waits, or whose job is under way."""

    kind: str
    visitor: Visitor | None


Place = TypeVar("Place", bound=TakenPlace)


def refusal(kind: str, visitor: Visitor | None, taken: Sequence[TakenPlace]) -> str | None:
    """Why this visitor gets no place for a job of this kind, as a sentence; None where they get one.

    Args:
        kind: Of the job.
        visitor: Who asks; the program itself, None, is never refused.
        taken: All places that are taken.
    """
    if visitor is None:
        return None
    own = [place.kind for place in taken if place.visitor is not None and place.visitor.name == visitor.name]
    if kind not in own and len(own) < MOST_EACH:
        return None
    whose = "page" if visitor.session else "address"
    return (
        f"One job of a kind and {MOST_EACH} in all may wait or run for each {whose}; wait for one to end, "
        "or stop it first."
    )


def making_room(visitor: Visitor | None, waiting: Sequence[Place]) -> Place | None:
    """Which place of a full queue goes to this visitor: the newest of an address that has over half of it.

    Sessions cost nothing to make up, addresses do. Where all come from one address (a school, a proxy that is
    not told of) the queue stays first come, first served.

    Args:
        visitor: Who asks; the program itself, None, takes nobody's place.
        waiting: The places of those whose job has not begun, in order of arrival.

    Returns:
        None where nobody has to make room.
    """
    places = Counter(place.visitor.address for place in waiting if place.visitor is not None)
    if visitor is None or not places:
        return None
    address, most = places.most_common(1)[0]
    if address == visitor.address or most <= len(waiting) // 2:
        return None
    return [place for place in waiting if place.visitor is not None and place.visitor.address == address][-1]
