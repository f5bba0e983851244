"""Each visitor's share of the queue: one job of a kind, three in all; an address with most of it makes room.

These are pure rules over the places that are taken.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

MOST_EACH = 3
"""Jobs that one visitor may have, those that wait and the one under way."""


class Visitor(NamedTuple):
    """A page or script, known by its session, or else by its address."""

    address: str
    session: str | None = None

    @property
    def name(self) -> tuple[str, str]:
        """The identity that the share is counted by."""
        return ("session", self.session) if self.session else ("address", self.address)


class TakenPlace(Protocol):
    """A place in the queue: of a visitor who waits, or whose job is running."""

    kind: str
    visitor: Visitor | None


Place = TypeVar("Place", bound=TakenPlace)


def refusal(kind: str, visitor: Visitor | None, taken: Sequence[TakenPlace]) -> str | None:
    """Return why this visitor gets no place for a job of this kind; None if they get one.

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
    """Return the place in a full queue that this visitor gets: the newest of an address with over half of it.

    New sessions cost nothing, addresses do. If all visitors have one address (a school, an unknown proxy) the
    queue stays first come, first served.

    Args:
        visitor: Who asks; the program itself, None, takes nobody's place.
        waiting: The places of those whose job has not begun, in order of arrival.

    Returns:
        None if nobody has to make room.
    """
    places = Counter(place.visitor.address for place in waiting if place.visitor is not None)
    if visitor is None or not places:
        return None
    address, most = places.most_common(1)[0]
    if address == visitor.address or most <= len(waiting) // 2:
        return None
    return [place for place in waiting if place.visitor is not None and place.visitor.address == address][-1]
