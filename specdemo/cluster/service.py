"""The service of a page whose pairs run on a cluster. In the queue, each replica counts as one device."""

from collections.abc import Generator

from specdemo.cluster.link import ClusterStatus, Link
from specdemo.cluster.plan import NOT_WITH_CLUSTER, Plan, parse_replicas, require_ray, require_shares
from specdemo.pairs.presets import preset_named
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.hosting import Hosting
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.pair_pool import Lender
from specdemo.service.queue import Bounds, JobQueue, Stop
from specdemo.service.service import Service
from specdemo.service.startup import ZERO_GPU

POLL_S = 0.25


class ReplicaLender(Lender):
    """Lends the names of pairs that run on a cluster.

    ``forget`` does nothing, because the cluster itself replaces a replica whose device has failed.
    """

    def __init__(self, link: Link, default: str):
        self._link = link
        self._default = default

    def begin(self) -> None:
        self._link.begin()

    @property
    def ready(self) -> bool:
        return self._link.running(self._default) > 0

    @property
    def loading(self) -> bool:
        return not self.ready

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, str | None]:
        """Wait until a replica of the pair runs, and return the pair's name, see ``Lender.borrow``."""
        while not self._link.wait(name, POLL_S):
            if stop():
                return None
            again = " again" if self._link.error else ""
            yield {"type": "progress", "text": f"The models are being started{again}", "fraction": 0.0}
        return name


def plan_for(
    hosting: Hosting, address: str, replicas: str, cpus: float | None, gpus: float
) -> tuple[Plan, OfferedPairs]:
    """Return the plan of the replicas that the host has set, and the pairs that visitors may choose.

    Args:
        hosting: The host's other settings.
        address: The address of the cluster's head (``host:6379``), or ``auto``.
        replicas: The setting ``--replicas``, for ``plan.parse_replicas``.
        cpus, gpus: CPU cores and GPUs of each replica.

    Raises:
        UserError: A setting is invalid, or two settings contradict each other.
    """
    if ZERO_GPU or hosting.any_model:
        raise UserError(NOT_WITH_CLUSTER)
    require_shares(cpus, gpus)
    default, title = hosting.default
    counts = parse_replicas(replicas, default)
    titles = {name: title if name == default else preset_named(name).title for name in counts}
    sources = {name: hosting.sources_of(name) for name in counts}
    max_seconds = hosting.bounds.max_seconds
    plan = Plan(address, counts, sources, cpus, gpus, max_seconds, recalibrate=hosting.recalibrate)
    return plan, OfferedPairs(default, titles)


def cluster_service(plan: Plan, offered: OfferedPairs, bounds: Bounds) -> tuple[Service, Link]:
    """Return the service and its link to the cluster. The caller has to close the link.

    Raises:
        UserError: Ray is not installed.
    """
    require_ray()
    queue = JobQueue(bounds, devices={name: counts.maximum for name, counts in plan.replicas.items()})

    def on_status(status: ClusterStatus) -> None:
        for name in plan.replicas:
            queue.set_present(name, status.running.get(name, 0))

    link = Link(plan, on_status)
    return Service(ReplicaLender(link, offered.default), offered, queue, link.perform), link
