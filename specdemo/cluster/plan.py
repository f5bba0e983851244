"""Settings of a cluster: the pairs and their replicas. This module imports neither Ray nor torch."""

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
"""The address that means the cluster on this machine; if none runs, the program starts one."""
MAX_REPLICAS = 256
USAGE = "--replicas takes a number, a range as 1..4, or either by pair as built-in=2,smollm2-1.7b=1..2"
NOT_WITH_CLUSTER = "--cluster goes neither with --allow-any-model nor with ZeroGPU."
_PART = re.compile(r"(?:(?P<pair>[^=,\s]+)=)?(?P<minimum>\d{1,3})(?:\.\.(?P<maximum>\d{1,3}))?")


class ReplicaRange(NamedTuple):
    """The minimum and maximum number of replicas. The actual number depends on the demand."""

    minimum: int
    maximum: int


@dataclass(frozen=True)
class Plan:
    """The replicas of one page.

    Attributes:
        address: The cluster's head (``host:6379``), or ``auto``.
        replicas: Pair name -> number of replicas.
        sources: Pair name -> models to load. It has the same names as ``replicas``.
        cpus, gpus: CPU cores and GPUs of each replica; None for ``cpus`` means an even share of the cores.
        max_seconds: The maximum duration of a job. A replica that must end may take this long and a bit more.
        recalibrate: True if each replica measures pass costs until they are steady.
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
        """The maximum number of replicas of all pairs together."""
        return sum(counts.maximum for counts in self.replicas.values())


def parse_replicas(text: str, default: str) -> dict[str, ReplicaRange]:
    """Parse the numbers of replicas: ``2``, ``1..4`` or ``built-in=1..4,smollm2-1.7b=1``.

    Args:
        text: The setting ``--replicas``.
        default: The default pair; a number without a pair's name applies to it.

    Returns:
        Pair name -> minimum and maximum number of replicas.

    Raises:
        UserError: The text has another form, leaves out the default pair, or asks for more than
            ``MAX_REPLICAS`` replicas.
    """
    replicas: dict[str, ReplicaRange] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UserError(f"{USAGE}; got {text[:60]!r}.")
        name, minimum = match["pair"] or default, int(match["minimum"])
        counts = ReplicaRange(minimum, int(match["maximum"] or minimum))
        if name in replicas or not 1 <= counts.minimum <= counts.maximum:
            raise UserError(f"{USAGE}, each pair once and at least one replica of it; got {text[:60]!r}.")
        replicas[name] = counts
    if default not in replicas:
        raise UserError(
            f"--replicas leaves out {default}, the pair that is always there; give it one or more."
        )
    if sum(counts.maximum for counts in replicas.values()) > MAX_REPLICAS:
        raise UserError(f"--replicas asks for more than {MAX_REPLICAS} in all; ask for fewer.")
    return replicas


def require_shares(cpus: float | None, gpus: float) -> None:
    """Raise ``UserError`` unless these are valid numbers of CPU cores and GPUs for a replica."""
    if not (isfinite(gpus) and gpus >= 0) or not (cpus is None or (isfinite(cpus) and cpus > 0)):
        raise UserError("--replica-cpus takes a number above 0, --replica-gpus one of at least 0.")


def require_ray() -> None:
    """Raise ``UserError`` if Ray is not installed; set the environment variables that Ray reads on import."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--cluster needs Ray; install it with: pip install '.[cluster]'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if (Path.home() / ".ray" / "auth_token").is_file():
        # If this file exists, a cluster from ``ray start`` requires its token. A process that joins the
        # cluster sends the token only in this mode.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
