"""A visitor's share of the queue: one job of a kind, three in all. An address with most of it makes room."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_EACH = 3
"""The maximum number of jobs of one visitor, waiting and running ones together."""


class Visitor(NamedTuple):
    """A page or script, known by its session, or else by its address."""

    address: str
    session: str | None = None

    @property
    def name(self) -> tuple[str, str]:
        """The identity that the share is counted by."""
        return ("session", self.session) if self.session else ("address", self.address)


def refusal(kind: str, visitor: Visitor | None, taken: Iterable[tuple[Visitor | None, str]]) -> str | None:
    """Return why this visitor gets no place for a job of this kind, or None if they get one.

    Args:
        kind: The kind of job.
        visitor: The visitor; the program itself, None, is never refused.
        taken: Visitor and kind of job of all places that are taken.
    """
    if visitor is None:
        return None
    own = [its_kind for owner, its_kind in taken if owner is not None and owner.name == visitor.name]
    if kind not in own and len(own) < MAX_EACH:
        return None
    whose = "page" if visitor.session else "address"
    return (
        f"One job of a kind and {MAX_EACH} in all may wait or run for each {whose}; wait for one to end, "
        "or stop it first."
    )


def making_room(visitor: Visitor | None, waiting: Sequence[Visitor | None]) -> int | None:
    """Return which place in a full queue this visitor gets: the newest of an address with over half of it.

    New sessions cost nothing, addresses do. If all visitors have one address (a school, an unknown proxy) the
    queue stays first come, first served.

    Args:
        visitor: The visitor; the program itself, None, takes nobody's place.
        waiting: The visitors whose job has not begun, in order of arrival.

    Returns:
        An index of ``waiting``, or None if nobody has to make room.
    """
    addresses = [one.address if one is not None else None for one in waiting]
    counts = Counter(address for address in addresses if address is not None)
    if visitor is None or not counts:
        return None
    address, places = counts.most_common(1)[0]
    if address == visitor.address or places <= len(waiting) // 2:
        return None
    return len(addresses) - 1 - addresses[::-1].index(address)
