"""A service that offers watched servers in addition to the page's own models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Thread
from typing import Any

from specdemo.pairs.presets import OfferedPairs
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind, Request
from specdemo.service.pair_pool import Lender
from specdemo.service.queue import Bounds, Events, JobQueue, Stop
from specdemo.service.service import RunService, Service
from specdemo.watch.run import WatchedRun
from specdemo.watch.servers import Server


class Watching:
    """A service that sends requests for a watched server to that server, and all others to ``own``.

    Each server does one run at a time. ``bounds`` are the limits of the servers' queue and of its jobs.
    """

    def __init__(self, own: RunService, servers: Sequence[Server], bounds: Bounds):
        self._own = own
        self._servers = {server.pair: server for server in servers}
        titles = dict.fromkeys(self._servers, "")
        offered = OfferedPairs(next(iter(titles)), titles, watched=frozenset(titles))
        queue = JobQueue(bounds, devices=dict.fromkeys(self._servers, 1))
        self._watched = Service(Lender(), offered, queue, self._perform)

    @property
    def lost(self) -> bool:
        return self._own.lost

    def close(self, within_s: float) -> None:
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
        watched = isinstance(pair, str) and pair in self._servers
        return (self._watched if watched else self._own).events(kind, raw, stop, pair, visitor)

    def _perform(self, name: str, request: Request, stop: Stop) -> Events:
        server = self._servers[name]
        yield {"type": "progress", "text": f"Asking {server.name}", "fraction": 0.0}
        yield from WatchedRun(server, request.parsed, stop).events()


def with_servers(offered: OfferedPairs, servers: Sequence[Server]) -> OfferedPairs:
    """Return ``offered`` with the watched servers added at the end."""
    titles = dict(offered.titles) or {offered.default: offered.default}
    watched = {server.pair: f"{server.name} (watched)" for server in servers}
    return replace(offered, titles={**titles, **watched}, watched=frozenset(watched))
