"""The pairs in memory: the default pair, which stays loaded, and at most one other pair, the guest.

The guest is not replaced while a job uses it; requests for a different guest wait in order of arrival.
"""

import logging
import re
import threading
import traceback
from collections.abc import Callable, Generator
from typing import Any

from specdemo.pairs.builtin_target import Progress, printing
from specdemo.pairs.pair import Pair
from specdemo.records.events import Event
from specdemo.records.limits import UserError, reason_of
from specdemo.service.jobs import FailedError, devices_answer, drop_unused
from specdemo.service.queue import Stop

POLL_S = 0.25
IN_THE_LOG = "The models could not be loaded; the reason is in the log of this page's host."
_FOLDER = re.compile(r"(?<![\w:/])[~.]*/[\w.]")
"""Matches the beginning of a local path such as ``/home``; does not match a hub id or a URL."""
_log = logging.getLogger(__name__)

Loader = Callable[[str, Progress], Pair]
"""Takes the name of a pair and a function for progress reports; returns the pair or raises ``UserError``."""


class Lender:
    """A source of models by name.

    This base class is for models that run elsewhere and are always available: ``borrow`` returns their name.
    Subclasses override the methods for models that have to be loaded first.
    """

    ready = True
    """True if a job on the default models could begin now."""
    loading = False
    """True if the default models are being loaded."""

    def begin(self) -> None:
        """Begin loading the default models, unless they are loaded or being loaded."""

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Any]:
        """Wait until the models of an offered pair are loaded, yielding ``progress`` events, and return them.

        Return None if ``stop``, which is called several times a second, returned True. The caller must call
        ``give_back`` after a job on the models.
        """
        del stop
        yield from ()
        return name

    def give_back(self, name: str) -> None:
        """Release borrowed models after a job."""

    def forget(self, models: Any) -> None:
        """Discard borrowed models whose device failed, and load them again."""


class PairPool(Lender):
    """Loads pairs and lends them by name. Its methods may be called on any thread.

    ``loader`` runs on a separate thread, so that a download does not delay jobs on loaded pairs. If it fails,
    the next request calls it again.
    """

    def __init__(self, loader: Loader, default: str):
        self._loader = loader
        self._changed = threading.Condition()
        self._default = _PooledPair(default, loader)
        self._guest: _PooledPair | None = None
        self._asking: list[object] = []

    def begin(self) -> None:
        self._default.begin()

    @property
    def ready(self) -> bool:
        return self._default.pair is not None

    @property
    def loading(self) -> bool:
        return self._default.loading

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Pair | None]:
        # 1. Wait until the pool has room for a guest.
        pooled, ticket = self._default, object()
        if name != self._default.name:
            with self._changed:
                self._asking.append(ticket)
            try:
                while (pooled := self._use_guest(ticket, name)) is None:
                    if stop():
                        return None
                    text = "Waiting: other visitors are using a different pair"
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
        """Discard both pairs after a device failure, and load the default pair again.

        The other pair is loaded again when it is next used. If an earlier call has already discarded
        ``models``, do nothing.
        """
        pooled = [one for one in (self._default, self._guest) if one is not None]
        if any(one.pair is models for one in pooled):
            for one in pooled:
                one.pair = None
            self.begin()

    def _use_guest(self, ticket: object, name: str) -> "_PooledPair | None":
        """Count one more user of the guest ``name`` and return it; replace an unused guest if necessary.

        Return None if an earlier request is still waiting, or if another guest is in use or being loaded.
        """
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
        """Load the pair, yielding ``progress`` events; return None if ``stop`` returned True."""
        self.begin()
        while (pair := self.pair) is None:
            thread = self._thread
            if stop():
                return None
            if thread is not None:
                thread.join(POLL_S)
            if self._failure is not None:
                raise FailedError(self._failure, self._device_lost)
            self.begin()  # ``forget`` may have discarded the pair in the meantime
            text, fraction = self._progress
            yield {"type": "progress", "text": text, "fraction": fraction}
        return pair

    def _load(self) -> None:
        pair, failure = None, None
        try:
            pair = self._loader(self.name, self._report)
        except UserError as error:
            failure = str(error)
        except BaseException as error:  # otherwise the thread would end and every visitor would wait forever
            traceback.print_exc()
            failure = f"The models could not be loaded ({type(error).__name__}: {reason_of(error)})."
        if failure is not None:
            _log.error("Loading %s failed: %s", self.name, failure)
            failure = without_folders(failure)
            drop_unused()  # not in the handlers, where the traceback still refers to loaded weights
            self._device_lost = not devices_answer()
        with self._lock:
            self.pair, self._failure, self._thread = pair, failure, None

    def _report(self, text: str, fraction: float) -> None:
        self._progress = (text, fraction)
        self._print(text, fraction)


def without_folders(sentence: str) -> str:
    """Return the error message for visitors: ``IN_THE_LOG`` if ``sentence`` contains a local path."""
    return IN_THE_LOG if _FOLDER.search(sentence) else sentence
