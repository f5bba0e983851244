"""Tables over replicas, for the command line: pieces of work go to whichever replica is free.

The only module beside ``driver`` that imports Ray; loaded where a cluster is asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util import ActorPool

from specdemo.bench.measuring import environment
from specdemo.cluster.driver import connect, cpus_each, lacking
from specdemo.cluster.one_kind import one_kind
from specdemo.cluster.plan import Plan
from specdemo.pairs.embedded import printing
from specdemo.pairs.load import load_sources
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError

T = TypeVar("T")
Work = Callable[[Pair], T]
"""A piece of work for one replica: pickled, so a function of a module with some of its arguments."""


class _Worker:
    """A replica of the command line's own: a pair, and whatever is to be done with it."""

    def __init__(self, sources: Sources, recalibrate: bool):
        self._sources, self._recalibrate = sources, recalibrate

    def facts(self) -> dict[str, Any]:
        """Load the pair, and say what it is and how many threads it has; what it raises arrives as it is."""
        self._pair = load_sources(self._sources, progress=printing(), recalibrate=self._recalibrate)
        return environment(self._pair) | {"threads": torch.get_num_threads()}

    def do(self, work: Work[T]) -> T:
        """One piece of work."""
        return work(self._pair)


class Team:
    """The replicas of one command; a context manager that ends them.

    Args:
        plan: With one pair, of which there are as many replicas as it has at most.

    Raises:
        UserError: The cluster cannot be had, a pair cannot be loaded, or the replicas are of different kinds.
    """

    def __init__(self, plan: Plan):
        self._plan = plan

    def __enter__(self) -> "Team":
        try:
            connect(self._plan.address)
        except (ConnectionError, RayError) as error:
            raise UserError(f"No cluster answers at {self._plan.address}; start one, or say auto.") from error
        (sources,) = self._plan.sources.values()
        cpus = cpus_each(self._plan)
        if lack := lacking(self._plan, cpus):
            ray.shutdown()
            raise UserError(lack)
        worker = ray.remote(_Worker).options(num_cpus=cpus, num_gpus=self._plan.gpus)
        self._workers = [worker.remote(sources, self._plan.recalibrate) for _ in range(self._plan.most)]
        self._pool = ActorPool(self._workers)
        try:
            self.facts = one_kind(list(map(_got, [worker.facts.remote() for worker in self._workers])))
        except BaseException:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        ray.shutdown()

    def one(self, work: Work[T]) -> T:
        """What one replica makes of ``work``."""
        return _got(self._workers[0].do.remote(work))

    def all(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """What the replicas make of ``works``, in their order.

        Raises:
            UserError: One was refused, or a replica was lost.
        """
        for work in works:
            self._pool.submit(lambda worker, work: worker.do.remote(work), work)
        while self._pool.has_next():
            yield _told_of(self._pool.get_next)  # pyright: ignore[reportReturnType]


def _got(reference: Any) -> Any:
    return _told_of(lambda: ray.get(reference))


def _told_of(get: Callable[[], T]) -> T:
    """What ``get`` returns; faults of replicas as ``UserError``, whatever their work raised otherwise."""
    try:
        return get()
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from error
        raise UserError(f"A replica failed inside the program ({type(error.cause).__name__}).") from error
    except RayError as error:
        raise UserError("A replica was lost; run this again, it goes on where it was if it can.") from error
