"""Measurements on several replicas at a time, for the command line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import ActorPool

from specdemo.cluster.driver import connect, replica_resources
from specdemo.cluster.plan import Plan
from specdemo.cluster.replica import Worker
from specdemo.pairs.pair import Pair
from specdemo.records.limits import UserError
from specdemo.service.jobs import internal_failure

T = TypeVar("T")
Work = Callable[[Pair], T]
"""A measurement for one replica: a function of a module, or a ``partial`` of one, because it is pickled."""


class ReplicaGroup:
    """Workers on a cluster. ``facts`` describes their devices, which must be alike."""

    def __init__(self, workers: list[Any]):
        loading = [worker.facts.remote() for worker in workers]
        self.facts = shared_facts([_result(ray.get, facts) for facts in loading])
        self._pool = ActorPool(workers)

    def all(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """Do all ``works`` on the workers, and yield the results in the order of ``works``."""
        for work in works:
            self._pool.submit(lambda worker, work: worker.do.remote(work), work)
        while self._pool.has_next():
            yield _result(self._pool.get_next)


@contextmanager
def replica_group(plan: Plan) -> Iterator[ReplicaGroup]:
    """Start the maximum number of replicas of a plan with one pair, and end them after the ``with`` block."""
    try:
        connect(plan.address)
    except (ConnectionError, RayError) as error:
        raise UserError(
            f"No cluster answers at {plan.address}; start a cluster there, or use --cluster auto."
        ) from error
    try:
        (sources,) = plan.sources.values()
        worker = ray.remote(Worker).options(**replica_resources(plan))
        yield ReplicaGroup([worker.remote(sources, plan.recalibrate) for _ in range(plan.max_replicas)])
    finally:
        ray.shutdown()


def shared_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts that all workers have in common, and their number as ``replicas``."""
    for name in facts[0].keys() - {"date"}:
        if len(values := sorted({str(one[name]) for one in facts})) > 1:
            raise UserError(
                f"The replicas differ in {name.replace('_', ' ')} ({'; '.join(values)[:200]}), so their "
                "timings cannot be compared; use a cluster of identical machines."
            )
    return {**facts[0], "replicas": len(facts)}


def _result(get: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ``get``; convert every error of a replica to ``UserError``."""
    try:
        return get(*arguments)
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, UserError) else internal_failure(cause)) from error
    except RayError as error:
        raise UserError("A replica stopped unexpectedly; run the command again.") from error
