"""What the page asks for events: the service of its own models, or what stands before several."""

from collections.abc import Generator, Mapping
from typing import Any, Protocol

from specdemo.records.events import Event
from specdemo.service.job_kinds import JobKind
from specdemo.service.queue_place import Stop
from specdemo.service.shares import Visitor

Events = Generator[Event, None, None]
"""The events of one job; reading them may raise ``UserError``, closing them ends the job."""
FREQUENT = frozenset({"round", "progress"})
"""Types of events that a job may yield as often as once a round; any other is worth sending at once."""


class EventSource(Protocol):
    """What the page needs of ``jobs.Service``."""

    def events(
        self,
        kind: JobKind,
        raw: Mapping[str, Any],
        stop: Stop,
        pair: Any = None,
        visitor: Visitor | None = None,
    ) -> Events:
        """The events of one job, as ``Service.events`` gives them."""
        ...


class Served(EventSource, Protocol):
    """What whoever serves the page needs of it besides."""

    @property
    def lost(self) -> bool:
        """Whether it can do nothing more as long as this process lasts."""
        ...

    def close(self, within_s: float) -> None:
        """Begin no more jobs; those under way may take so many seconds to end."""
        ...
