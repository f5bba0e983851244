"""Settings of a cluster: pairs and their replicas. Imports neither Ray nor torch."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from specdemo.records.limits import UserError

if TYPE_CHECKING:
    from specdemo.pairs.sources import Sources

AUTO = "auto"
"""The address of the cluster that runs on this machine, or of one that is started for this program."""
MAX_REPLICAS = 256
USAGE = "--replicas takes a number, a range as 1..4, or either by pair as embedded=2,smollm2-1.7b=1..2"
NOT_WITH_CLUSTER = "--cluster goes with neither --learn nor --allow-any-model, and not with ZeroGPU."
_PART = re.compile(r"(?:(?P<pair>[^=,\s]+)=)?(?P<minimum>\d{1,3})(?:\.\.(?P<maximum>\d{1,3}))?")


class ReplicaRange(NamedTuple):
    """The smallest and largest number of replicas; the queue decides in between."""

    minimum: int
    maximum: int


@dataclass(frozen=True)
class Plan:
    """The replicas of one page.

    Attributes:
        address: The cluster's head (``host:6379``), or ``auto``.
        replicas: The number of replicas of each pair, by its name.
        sources: The models to load for each pair, by the same names.
        cpus, gpus: The resources of each replica; ``cpus`` None gives each an even share of the cluster.
        max_seconds: The longest time for a job, and so for a replica that is to end.
        recalibrate: Whether each replica measures pass costs until they are steady.
        page: Distinguishes this page's replicas from those of other pages on the same cluster.
    """

    address: str
    replicas: Mapping[str, ReplicaRange]
    sources: Mapping[str, Sources]
    cpus: float | None = None
    gpus: float = 0.0
    max_seconds: float = 300.0
    recalibrate: bool = field(default=False, kw_only=True)
    page: str = field(default_factory=lambda: uuid4().hex[:8], kw_only=True)

    @property
    def max_replicas(self) -> int:
        """The largest number of replicas of all pairs together."""
        return sum(counts.maximum for counts in self.replicas.values())


def parse_replicas(text: str, home: str) -> dict[str, ReplicaRange]:
    """Parse ``2``, ``1..4`` or ``embedded=1..4,smollm2-1.7b=1``.

    Args:
        text: The host's setting.
        home: The pair that a number without a name is for.

    Raises:
        UserError: The text has another form, or the home pair gets no replica.
    """
    replicas: dict[str, ReplicaRange] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UserError(f"{USAGE}; got {text[:60]!r}.")
        name, minimum = match["pair"] or home, int(match["minimum"])
        counts = ReplicaRange(minimum, int(match["maximum"] or minimum))
        if name in replicas or not 1 <= counts.minimum <= counts.maximum:
            raise UserError(f"{USAGE}, each pair once and at least one replica of it; got {text[:60]!r}.")
        replicas[name] = counts
    if home not in replicas:
        raise UserError(f"--replicas leaves out {home}, the pair that is always there; give it one or more.")
    if sum(counts.maximum for counts in replicas.values()) > MAX_REPLICAS:
        raise UserError(f"--replicas asks for more than {MAX_REPLICAS} in all; ask for fewer.")
    return replicas


def require_shares(cpus: float | None, gpus: float) -> None:
    """Raise ``UserError`` if a replica cannot get these numbers of cores and GPUs."""
    if not (isfinite(gpus) and gpus >= 0) or not (cpus is None or (isfinite(cpus) and cpus > 0)):
        raise UserError("--replica-cpus takes a number above 0, --replica-gpus one of at least 0.")


def require_ray() -> None:
    """Raise ``UserError`` if Ray is not installed, else set its environment, which it reads on import."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--cluster needs Ray; install it with: pip install '.[cluster]'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if (Path.home() / ".ray" / "auth_token").is_file():
        # ``ray start`` asks for a token if there is one, which a process that joins sends only with this.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
