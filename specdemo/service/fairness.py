"""Fair sharing of the queue.

Each visitor may have one job of each kind and three jobs in all. If the queue is full, an address with more
than half of the waiting jobs loses its newest one to a visitor from another address.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_EACH = 3
"""The maximum number of jobs of one visitor, waiting and running jobs together."""


class Visitor(NamedTuple):
    """An open page or a script, identified by its session, or by its address if it has no session."""

    address: str
    session: str | None = None

    @property
    def name(self) -> tuple[str, str]:
        return ("session", self.session) if self.session else ("address", self.address)


def refusal(kind: str, visitor: Visitor | None, taken: Iterable[tuple[Visitor | None, str]]) -> str | None:
    """Return an error message if this visitor has too many jobs to add one of this kind, else None.

    ``taken`` has the visitor and the kind of every waiting and running job. The visitor None is the program
    itself, which is never refused.
    """
    if visitor is None:
        return None
    own = [its_kind for owner, its_kind in taken if owner is not None and owner.name == visitor.name]
    if kind not in own and len(own) < MAX_EACH:
        return None
    whose = "page" if visitor.session else "address"
    return (
        f"Each {whose} may have one job of each kind and {MAX_EACH} jobs in all; "
        "stop one, or wait until it ends."
    )


def making_room(visitor: Visitor | None, waiting: Sequence[Visitor | None]) -> int | None:
    """Return the index of the waiting job that must make room for this visitor in a full queue, or None.

    ``waiting`` has the visitor of each job that has not begun, in order of arrival. The rule counts
    addresses, because anyone can open new sessions for free. If all visitors have one address (a school, or
    an untrusted proxy), nobody makes room. The program itself (None) removes no job.
    """
    addresses = [one.address if one is not None else None for one in waiting]
    counts = Counter(address for address in addresses if address is not None)
    if visitor is None or not counts:
        return None
    address, count = counts.most_common(1)[0]
    if address == visitor.address or count <= len(waiting) // 2:
        return None
    return len(addresses) - 1 - addresses[::-1].index(address)
