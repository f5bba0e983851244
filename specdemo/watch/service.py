"""Watched servers beside the page's own models: a queue before each, and requests go to whom they name."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Thread
from typing import Any

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import Events, JobKind, Request
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.pair_pool import Loan
from specdemo.service.queue import Bounds, JobQueue, Stop
from specdemo.service.service import EventSource, Service
from specdemo.service.shares import Visitor
from specdemo.watch.engines import title_of
from specdemo.watch.live import WatchedRun
from specdemo.watch.servers import Server

RUNS_ONLY = "A watched server can only be run; choose other models under Settings for this."


class Watching:
    """The page's own models, and servers beside them.

    Args:
        own: Does what names no server.
        servers: Which servers there are.
        bounds: Of the queue before them; each does one run at a time.
    """

    def __init__(self, own: EventSource, servers: Sequence[Server], bounds: Bounds):
        self._own = own
        self._servers = {server.pair: server for server in servers}
        offered = OfferedPairs(next(iter(self._servers)), dict.fromkeys(self._servers, ""))
        queue = JobQueue(bounds, devices=dict.fromkeys(self._servers, 1))
        self._watched = Service(_Ready(self._servers), offered, queue, _perform)

    @property
    def lost(self) -> bool:
        """Whether the page's own device is lost."""
        return self._own.lost

    def close(self, within_s: float) -> None:
        """Begin no more jobs, of either; what runs may take so long to end."""
        closing_servers = Thread(target=self._watched.close, args=[within_s])
        closing_servers.start()
        self._own.close(within_s)
        closing_servers.join()

    def events(
        self,
        kind: JobKind,
        raw: Mapping[str, Any],
        stop: Stop,
        pair: Any = None,
        visitor: Visitor | None = None,
    ) -> Events:
        """See ``jobs.Service.events``.

        Raises:
            UserError: Also where a watched server is asked for something else than a run.
        """
        watched = isinstance(pair, str) and pair in self._servers
        if watched and kind is not JobKind.RUN:
            raise UserError(RUNS_ONLY)
        source = self._watched if watched else self._own
        with closing(source.events(kind, raw, stop, pair, visitor)) as events:
            yield from events


class _Ready:
    """Lends servers, which are always there: whether they answer is found out by asking them."""

    ready = True
    loading = False

    def __init__(self, servers: Mapping[str, Server]):
        self._servers = servers

    def begin(self) -> None:
        """Nothing is loaded."""

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Loan | None]:
        """The server of that name."""
        del stop
        yield from ()
        return Loan(self._servers[name], lambda: None)

    def forget(self, pair: Any) -> None:
        """Nothing is kept."""


def _perform(server: Server, request: Request, stop: Stop) -> Generator[Event, None, None]:
    yield {"type": "progress", "text": f"Asking {server.name}", "fraction": 0.0}
    events: Iterator[Event] = WatchedRun(server, request.parsed, stop).events()
    yield from events


def with_servers(offered: OfferedPairs, servers: Sequence[Server]) -> OfferedPairs:
    """The pairs to choose from, and the servers behind them."""
    titles = dict(offered.titles) or {offered.home: offered.home}
    watched = {server.pair: title_of(server) for server in servers}
    return replace(offered, titles={**titles, **watched}, watched=frozenset(watched))
