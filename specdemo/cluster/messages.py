"""What the page's process and the driver's say to one another, pickled, over one connection.

Both are of one program and one version. Every job has a number of the page's.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from specdemo.records.events import Event
from specdemo.service.jobs import Request

REFUSED = "refused"
"""Type of the event by which a replica says that a job was refused or failed; ``message`` is the sentence."""


class Begin(NamedTuple):
    """To the driver: have a replica of ``pair`` do this."""

    number: int
    pair: str
    request: Request


class Stop(NamedTuple):
    """To the driver: end this job; what it did until then is still told."""

    number: int


class Restart(NamedTuple):
    """To the driver: put new replicas in the place of all, one after the other."""


class Told(NamedTuple):
    """From the driver: the next events of a job."""

    number: int
    events: Sequence[Event]


class Ended(NamedTuple):
    """From the driver: a job has told all it had to tell."""

    number: int


class Lost(NamedTuple):
    """From the driver: a job's replica is gone."""

    number: int


class Standing(NamedTuple):
    """From the driver: how many replicas of each pair can take a job, and what is wrong, if anything is."""

    running: Mapping[str, int]
    trouble: str
