"""The pairs in memory: one at home, which stays, and room for one guest at a time.

A guest stays while it is used; requests for another one wait in order of arrival.
"""

import logging
import re
import threading
import traceback
from collections.abc import Callable, Generator
from typing import Any

from specdemo.pairs.embedded import Progress, printing
from specdemo.pairs.pair import Pair
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import FailedError, devices_answer, drop_unused
from specdemo.service.queue import Stop

POLL_S = 0.25
IN_THE_LOG = "The models could not be loaded; the host of this page finds the reason in its log."
_FOLDER = re.compile(r"(?<![\w:/])[~.]*/[\w.]")
"""The beginning of a folder of this machine; a hub id or an address does not match."""
_log = logging.getLogger(__name__)

Loader = Callable[[str, Progress], Pair]
"""Loads the pair of a name, reporting progress; raises ``UserError``."""


class Lender:
    """A source of models by name. This one lends the names of models elsewhere that are always there."""

    ready = True
    """True if a job on the models at home could begin now."""
    loading = False
    """True if the models at home are being loaded."""

    def begin(self) -> None:
        """Begin loading the models at home, unless they are loaded or being loaded."""

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Any]:
        """Wait until the models of that name are loaded.

        Args:
            name: The name of an offered pair.
            stop: Called several times a second while waiting.

        Yields:
            ``progress`` events meanwhile.

        Returns:
            The models, which the caller has to give back, or None if ``stop`` returned True.

        Raises:
            UserError: The models could not be loaded.
        """
        del stop
        yield from ()
        return name

    def give_back(self, name: str) -> None:
        """Return borrowed models."""

    def forget(self, models: Any) -> None:
        """Load borrowed models again whose device was lost."""


class PairPool(Lender):
    """Lends pairs by name; its methods may be called on any thread.

    Args:
        loader: Called on a thread of its own, so that a download delays nobody else, and again on the next
            request if it failed.
        home: The name of the pair that stays.
    """

    def __init__(self, loader: Loader, home: str):
        self._loader = loader
        self._changed = threading.Condition()
        self._home = _PooledPair(home, loader)
        self._guest: _PooledPair | None = None
        self._asking: list[object] = []

    def begin(self) -> None:
        self._home.begin()

    @property
    def ready(self) -> bool:
        return self._home.pair is not None

    @property
    def loading(self) -> bool:
        return self._home.loading

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Pair | None]:
        """Wait until the pair of that name is loaded, see :meth:`Lender.borrow`."""
        # 1. Wait until the pool has room for a guest.
        pooled, ticket = self._home, object()
        if name != self._home.name:
            with self._changed:
                self._asking.append(ticket)
            try:
                while (pooled := self._use_guest(ticket, name)) is None:
                    if stop():
                        return None
                    text = "Other visitors still use other models"
                    yield {"type": "progress", "text": text, "fraction": 0.0}
                    with self._changed:
                        self._changed.wait(POLL_S)
            finally:
                with self._changed:
                    self._asking.remove(ticket)
        # 2. Wait until the pair is loaded.
        pair = None
        try:
            pair = yield from pooled.loaded(stop)
        finally:
            if pair is None:
                self.give_back(name)
        return pair

    def give_back(self, name: str) -> None:
        with self._changed:
            if self._guest is not None and self._guest.name == name:
                self._guest.users -= 1
                self._changed.notify_all()

    def forget(self, models: Pair) -> None:
        """Load this pair and all others again, because their device was lost.

        Do nothing if another visitor has reported the loss already, so that the pool has a new pair.
        """
        pooled = [one for one in (self._home, self._guest) if one is not None]
        if any(one.pair is models for one in pooled):
            for one in pooled:
                one.pair = None
            self.begin()

    def _use_guest(self, ticket: object, name: str) -> "_PooledPair | None":
        """Return the guest of that name with one more user, if it is this ticket's turn and there is room."""
        with self._changed:
            if self._asking[0] is not ticket:
                return None
            if self._guest is None or self._guest.name != name:
                if self._guest is not None and (self._guest.users or self._guest.loading):
                    return None
                self._guest = None
                drop_unused()
                self._guest = _PooledPair(name, self._loader)
            self._guest.users += 1
            return self._guest


class _PooledPair:
    """One pair of the pool: loading, loaded, or failed to load."""

    def __init__(self, name: str, loader: Loader):
        self.name = name
        self.pair: Pair | None = None
        self.users = 0
        self._loader = loader
        self._print = printing()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._progress = ("Starting", 0.0)
        self._failure: str | None = None
        self._device_lost = False

    @property
    def loading(self) -> bool:
        return self._thread is not None

    def begin(self) -> None:
        with self._lock:
            if self.pair is None and not self.loading:
                self._failure = None
                self._thread = threading.Thread(target=self._load, name=f"load {self.name}", daemon=True)
                self._thread.start()

    def loaded(self, stop: Stop) -> Generator[Event, None, Pair | None]:
        """Wait for the pair, yielding ``progress`` events; return None if ``stop`` returned True.

        Raises:
            FailedError: It could not be loaded.
        """
        self.begin()
        while (pair := self.pair) is None:
            thread = self._thread
            if stop():
                return None
            if thread is not None:
                thread.join(POLL_S)
            if self._failure is not None:
                raise FailedError(self._failure, self._device_lost)
            self.begin()  # it may have been forgotten meanwhile
            text, fraction = self._progress
            yield {"type": "progress", "text": text, "fraction": fraction}
        return pair

    def _load(self) -> None:
        pair, failure = None, None
        try:
            pair = self._loader(self.name, self._report)
        except UserError as error:
            failure = str(error)
        except BaseException as error:  # it would vanish with the thread and leave every visitor waiting
            traceback.print_exc()
            reason = (str(error).splitlines() or [""])[0][:200]
            failure = f"The models could not be loaded ({type(error).__name__}: {reason})."
        if failure is not None:
            _log.error("Loading %s failed: %s", self.name, failure)
            failure = without_folders(failure)
            drop_unused()  # after the handlers, because a traceback keeps loaded weights
            self._device_lost = not devices_answer()
        with self._lock:
            self.pair, self._failure, self._thread = pair, failure, None

    def _report(self, text: str, fraction: float) -> None:
        self._progress = (text, fraction)
        self._print(text, fraction)


def without_folders(sentence: str) -> str:
    """Return the sentence on a failed load for visitors, without any folder of this machine."""
    return IN_THE_LOG if _FOLDER.search(sentence) else sentence
