"""What a host asks of a cluster: which pairs, how many replicas of each, and what each replica gets.

Plain data, read from the command line. Knows neither Ray nor models.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from specdemo.records.limits import UserError

if TYPE_CHECKING:
    from specdemo.pairs.sources import Sources

AUTO = "auto"
"""The address of the cluster that runs on this machine, or of one that is started for this program."""
MOST_REPLICAS = 256
_SHARE = re.compile(r"(?:(?P<pair>[^=,\s]+)=)?(?P<least>\d{1,3})(?:\.\.(?P<most>\d{1,3}))?")
HOW = "--replicas takes a number, a range as 1..4, or either by pair as embedded=2,smollm2-1.7b=1..2"


NOT_WITH_CLUSTER = "--cluster goes with neither --learn nor --allow-any-model, and not with ZeroGPU."
NEEDED = "--cluster needs Ray; install it with: pip install '.[cluster]'."


class Counts(NamedTuple):
    """How many replicas there are: at least and at most, as many as the queue asks for."""

    least: int
    most: int

    @property
    def fixed(self) -> bool:
        """Whether their number never changes."""
        return self.least == self.most


@dataclass(frozen=True)
class Plan:
    """The replicas of one page.

    Attributes:
        address: Of the cluster's head (``host:6379``), or ``auto``.
        replicas: How many of each pair, by its name.
        sources: What to load for each, by the same names.
        cpus, gpus: What each replica gets of its machine; ``cpus`` None shares what the cluster has evenly.
        most_seconds: How long one job may take, and with it a replica that is to end.
        recalibrate: Whether each replica measures pass costs until they are steady.
        page: What tells this page's replicas from those of other pages on the same cluster.
    """

    address: str
    replicas: Mapping[str, Counts]
    sources: Mapping[str, Sources]
    cpus: float | None = None
    gpus: float = 0.0
    most_seconds: float = 300.0
    recalibrate: bool = field(default=False, kw_only=True)
    page: str = field(default_factory=lambda: uuid4().hex[:8], kw_only=True)

    @property
    def most(self) -> int:
        """Replicas of all pairs at most."""
        return sum(bounds.most for bounds in self.replicas.values())


def parse_replicas(text: str, home: str) -> dict[str, Counts]:
    """``2``, ``1..4`` or ``embedded=1..4,smollm2-1.7b=1``: how many replicas of which pair.

    Args:
        text: As the host wrote it.
        home: The pair that a number without a name is for.

    Raises:
        UserError: It cannot be read, or the pair at home gets none.
    """
    replicas: dict[str, Counts] = {}
    for part in text.split(","):
        found = _SHARE.fullmatch(part.strip())
        if found is None:
            raise UserError(f"{HOW}; not {text[:60]!r}.")
        name, least = found["pair"] or home, int(found["least"])
        bounds = Counts(least, int(found["most"] or least))
        if name in replicas or not 1 <= bounds.least <= bounds.most:
            raise UserError(f"{HOW}, each pair once and one replica of it at least; not {text[:60]!r}.")
        replicas[name] = bounds
    if home not in replicas:
        raise UserError(f"--replicas leaves out {home}, the pair that is always there; give it one or more.")
    if sum(bounds.most for bounds in replicas.values()) > MOST_REPLICAS:
        raise UserError(f"--replicas asks for more than {MOST_REPLICAS} in all; ask for fewer.")
    return replicas


def require_ray() -> None:
    """Raise ``UserError`` if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(NEEDED)


def require_shares(cpus: float | None, gpus: float) -> None:
    """Raise ``UserError`` if a replica cannot get these numbers of cores and GPUs."""
    if not (isfinite(gpus) and gpus >= 0) or not (cpus is None or (isfinite(cpus) and cpus > 0)):
        raise UserError("--replica-cpus takes a number above 0, --replica-gpus one from 0 on.")
