"""Settings of a cluster: the pairs and their replicas. This module imports neither Ray nor torch."""

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError

AUTO = "auto"
"""The address that means the cluster on this machine; if none runs, the program starts one."""
USAGE = (
    "--replicas must be a number, a range such as 1..4, or a number or range for each pair, such as "
    "built-in=2,gpt2-xl=1..2"
)
_PART = re.compile(r"(?:(?P<pair>[^=,\s]+)=)?(?P<minimum>\d{1,3})(?:\.\.(?P<maximum>\d{1,3}))?")


class ReplicaRange(NamedTuple):
    minimum: int
    maximum: int


@dataclass(frozen=True)
class Plan:
    """The replicas of one page. Both mappings have the names of the pairs as keys."""

    address: str
    replicas: Mapping[str, ReplicaRange]
    sources: Mapping[str, Sources]
    # A replica that has to end may finish a job of this length.
    max_seconds: float = 300.0
    recalibrate: bool = False
    # Distinguishes this page's replicas from those of other pages on the same cluster.
    page: str = field(default_factory=lambda: uuid4().hex[:8])

    @property
    def max_replicas(self) -> int:
        return sum(counts.maximum for counts in self.replicas.values())


def parse_replicas(text: str, default: str) -> dict[str, ReplicaRange]:
    """Parse ``2``, ``1..4`` or ``built-in=1..4,gpt2-xl=1``; a number without a name is for ``default``."""
    replicas: dict[str, ReplicaRange] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UserError(f"{USAGE}; got {text[:60]!r}.")
        name, minimum = match["pair"] or default, int(match["minimum"])
        counts = ReplicaRange(minimum, int(match["maximum"] or minimum))
        if name in replicas:
            raise UserError(f"--replicas contains {name} more than once; give each pair one number or range.")
        if not 1 <= counts.minimum <= counts.maximum:
            raise UserError(
                f"--replicas must be 1 or more, and a range must increase, as in 1..4; got {text[:60]!r}."
            )
        replicas[name] = counts
    if default not in replicas:
        raise UserError(f"--replicas must include the default pair, {default}; got {text[:60]!r}.")
    return replicas


def require_ray() -> None:
    """Raise ``UserError`` if Ray is not installed; set the environment variables that Ray reads on import."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--cluster needs Ray; install Ray with: pip install '.[cluster]'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if (Path.home() / ".ray" / "auth_token").is_file():
        # If this file exists, a cluster from ``ray start`` requires its token. A process that joins the
        # cluster sends the token only in this mode.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
