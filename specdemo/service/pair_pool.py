"""The pairs in memory: one at home, which stays, and room for one guest at a time.

A guest stays while anybody uses it; requests for another one wait in order of arrival. Pairs are loaded on
threads of their own, so that nobody else waits for a download.
"""

import logging
import re
import threading
import traceback
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from specdemo.pairs.embedded import Progress, printing
from specdemo.pairs.pair import Pair
from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.jobs import FailedError, drop_unused
from specdemo.service.queue import Stop

POLL_S = 0.25
IN_THE_LOG = "The models could not be loaded; whoever runs this page finds the reason in its log."
_FOLDER = re.compile(r"(?<![\w:/])[~.]*/[\w.]")
"""Where the name of a folder of this machine begins; a hub id or an address has none."""
_log = logging.getLogger(__name__)

Loader = Callable[[str, Progress], Pair]
"""Loads the pair of a name, telling progress (a text, and how much of it is done from 0 to 1); raises
``UserError``."""


class PairPool:
    """Lends pairs by name; its methods may be called on any thread.

    Args:
        loader: Called in a thread of its own, and again on the next request if it failed.
        home: The name of the pair that stays.
    """

    def __init__(self, loader: Loader, home: str):
        self._loader = loader
        self._changed = threading.Condition()
        self._home = _PooledPair(home, loader)
        self._guest: _PooledPair | None = None
        self._asking: list[object] = []

    def begin(self) -> None:
        """Begin loading the pair at home, unless it is loaded or under way."""
        self._home.begin()

    @property
    def ready(self) -> bool:
        """Whether the pair at home is loaded."""
        return self._home.pair is not None

    @property
    def loading(self) -> bool:
        """Whether the pair at home is under way."""
        return self._home.loading

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, "Loan | None"]:
        """Wait until the pair of that name is loaded.

        Args:
            name: Of an offered pair.
            stop: Asked every ``POLL_S`` while waiting.

        Yields:
            ``progress`` events (``text``, ``fraction``) meanwhile.

        Returns:
            The loan, which its user has to give back, or None where ``stop`` said True.

        Raises:
            UserError: The pair could not be loaded.
        """
        pooled = yield from self._reserved(name, stop)
        if pooled is None:
            return None
        pair = None
        try:
            pair = yield from pooled.loaded(stop)
        finally:
            if pair is None:
                self._release(pooled)
        return None if pair is None else Loan(pair, lambda: self._release(pooled))

    def forget(self, pair: Pair) -> None:
        """Load anew what the device has lost: this pair, and with it whatever else was there.

        Nothing is done where ``pair`` is in the pool no more: somebody else has said so already.
        """
        pooled = [one for one in (self._home, self._guest) if one is not None]
        if any(one.pair is pair for one in pooled):
            for one in pooled:
                one.pair = None
            self.begin()

    def _reserved(self, name: str, stop: Stop) -> Generator[Event, None, "_PooledPair | None"]:
        """Wait until the pool has room for the pair of that name; it has one more user then, or is None."""
        if name == self._home.name:
            with self._changed:
                self._home.users += 1
            return self._home
        ticket = object()
        with self._changed:
            self._asking.append(ticket)
        try:
            while (pooled := self._reserve(ticket, name)) is None:
                if stop():
                    return None
                yield {"type": "progress", "text": "Other visitors still use other models", "fraction": 0.0}
                with self._changed:
                    self._changed.wait(POLL_S)
            return pooled
        finally:
            with self._changed:
                self._asking.remove(ticket)

    def _reserve(self, ticket: object, name: str) -> "_PooledPair | None":
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

    def _release(self, pooled: "_PooledPair") -> None:
        with self._changed:
            pooled.users -= 1
            self._changed.notify_all()


class Loan(NamedTuple):
    """A pair, or what stands for one, while somebody uses it, and the way to say that they do no more."""

    pair: Any
    give_back: Callable[[], None]


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

    @property
    def loading(self) -> bool:
        """Whether a thread is at it."""
        return self._thread is not None

    def begin(self) -> None:
        """Load it, unless it is loaded or under way."""
        with self._lock:
            if self.pair is None and not self.loading:
                self._failure = None
                self._thread = threading.Thread(target=self._load, name=f"load {self.name}", daemon=True)
                self._thread.start()

    def loaded(self, stop: Stop) -> Generator[Event, None, Pair | None]:
        """Wait for the pair, yielding ``progress`` events; None where ``stop`` said True.

        Raises:
            UserError: It could not be loaded.
        """
        self.begin()
        while (pair := self.pair) is None:
            thread = self._thread
            if stop():
                return None
            if thread is not None:
                thread.join(POLL_S)
            if self._failure is not None:
                raise FailedError(self._failure)
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
            drop_unused()  # only the sentence is kept: a traceback holds on to what had been loaded by then
        with self._lock:
            self.pair, self._failure, self._thread = pair, failure, None

    def _report(self, text: str, fraction: float) -> None:
        self._progress = (text, fraction)
        self._print(text, fraction)


def without_folders(sentence: str) -> str:
    """Return the sentence on a failed load for visitors, which names no folder of this machine."""
    return IN_THE_LOG if _FOLDER.search(sentence) else sentence
