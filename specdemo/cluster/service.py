"""The service of a page whose pairs are on a cluster: the same queue, before as many devices as replicas."""

from collections.abc import Generator
from typing import Any

from specdemo.cluster.link import Link
from specdemo.cluster.messages import Standing
from specdemo.cluster.plan import NOT_WITH_CLUSTER, Plan, parse_replicas, require_ray, require_shares
from specdemo.pairs.presets import preset_named
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.hosting import Hosting
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.pair_pool import Loan
from specdemo.service.queue import Bounds, JobQueue, Stop
from specdemo.service.service import Service
from specdemo.service.startup import ZERO_GPU

POLL_S = 0.25


class ReplicaLender:
    """Lends pairs that are elsewhere: what is lent is the name."""

    def __init__(self, link: Link, home: str):
        self._link = link
        self._home = home

    @property
    def ready(self) -> bool:
        """Whether a replica of the pair at home can take jobs."""
        return self._link.running(self._home) > 0

    @property
    def loading(self) -> bool:
        """Whether there is none yet, or none again; the link goes on trying."""
        return not self.ready

    def begin(self) -> None:
        """Have the replicas started, unless they were."""
        self._link.begin()

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Loan | None]:
        """Wait until a replica of that pair can take jobs, as ``PairPool.borrow`` waits for a pair."""
        while not self._link.wait(name, POLL_S):
            if stop():
                return None
            again = " again" if self._link.trouble else ""
            yield {"type": "progress", "text": f"The models are being started{again}", "fraction": 0.0}
        return Loan(name, _nothing_to_do)

    def forget(self, pair: Any) -> None:
        """Nothing: the cluster replaces a replica that has lost its device."""


def plan_for(
    hosting: Hosting, address: str, replicas: str, cpus: float | None, gpus: float
) -> tuple[Plan, OfferedPairs]:
    """What a cluster is to hold for a host, and what of it visitors may ask for.

    Args:
        hosting: The host's other settings.
        address: Of the cluster, or ``auto``.
        replicas: How many of which pair, as ``plan.parse_replicas`` reads it.
        cpus, gpus: What each replica gets.

    Raises:
        UserError: The settings do not go together.
    """
    if ZERO_GPU or hosting.learner is not None or hosting.any_model:
        raise UserError(NOT_WITH_CLUSTER)
    require_shares(cpus, gpus)
    home, title = hosting.home
    counts = parse_replicas(replicas, home)
    titles = {name: title if name == home else preset_named(name).title for name in counts}
    sources = {name: hosting.sources_of(name) for name in counts}
    most_seconds = hosting.bounds.most_seconds
    plan = Plan(address, counts, sources, cpus, gpus, most_seconds, recalibrate=hosting.recalibrate)
    return plan, OfferedPairs(home, titles)


def cluster_service(plan: Plan, offered: OfferedPairs, bounds: Bounds) -> tuple[Service, Link]:
    """The service, and the link that it has its jobs done over, which is the caller's to close.

    Raises:
        UserError: Ray is not installed.
    """
    require_ray()
    queue = JobQueue(bounds, devices={name: some.most for name, some in plan.replicas.items()})

    def heard(standing: Standing) -> None:
        for name in plan.replicas:
            queue.set_present(name, standing.running.get(name, 0))

    link = Link(plan, heard)
    return Service(ReplicaLender(link, offered.home), offered, queue, link.perform), link


def _nothing_to_do() -> None:
    pass
