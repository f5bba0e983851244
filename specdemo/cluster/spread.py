"""Measurements on several replicas at a time, for the command line."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import ActorPool

from specdemo.cluster.driver import connect, cpus_per_replica, missing_resources
from specdemo.cluster.plan import Plan
from specdemo.cluster.replica import Worker, shared_facts
from specdemo.pairs.pair import Pair
from specdemo.records.limits import UserError

T = TypeVar("T")
Work = Callable[[Pair], T]
"""A measurement for one replica: a function of a module, or a ``partial`` of one, because it is pickled."""


class Team:
    """The replicas of one command, as a context manager that starts and ends them.

    Args:
        plan: The plan, with exactly one pair. The maximum number of its replicas is started.

    Raises:
        UserError: On entry, if there is no cluster, the cluster is too small, the pair cannot be loaded, or
            the replicas differ.
    """

    def __init__(self, plan: Plan):
        self._plan = plan

    def __enter__(self) -> "Team":
        try:
            connect(self._plan.address)
        except (ConnectionError, RayError) as error:
            raise UserError(
                f"No cluster answers at {self._plan.address}; start one, or use --cluster auto."
            ) from error
        try:
            cpus = cpus_per_replica(self._plan)
            if missing := missing_resources(self._plan, cpus):
                raise UserError(missing)
            (sources,) = self._plan.sources.values()
            worker = ray.remote(Worker).options(num_cpus=cpus, num_gpus=self._plan.gpus)
            count = self._plan.max_replicas
            self._workers = [worker.remote(sources, self._plan.recalibrate) for _ in range(count)]
            self._pool = ActorPool(self._workers)
            loading = [worker.facts.remote() for worker in self._workers]
            self.facts = shared_facts([_result_of(facts) for facts in loading])
        except BaseException:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        ray.shutdown()

    def one(self, work: Work[T]) -> T:
        """Do ``work`` on the first replica and return its result."""
        return _result_of(self._workers[0].do.remote(work))

    def all(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """Do all ``works`` on the replicas, and yield the results in the order of ``works``.

        Raises:
            UserError: One of the works failed, or a replica was lost.
        """
        for work in works:
            self._pool.submit(lambda worker, work: worker.do.remote(work), work)
        while self._pool.has_next():
            yield _translate_errors(self._pool.get_next)  # pyright: ignore[reportReturnType]


def _result_of(reference: Any) -> Any:
    return _translate_errors(lambda: ray.get(reference))


def _translate_errors(get: Callable[[], T]) -> T:
    """Return the result of ``get``; convert every error of a replica to ``UserError``."""
    try:
        return get()
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from error
        raise UserError(f"A replica failed inside the program ({type(error.cause).__name__}).") from error
    except RayError as error:
        raise UserError("A replica was lost; run the command again to continue.") from error
