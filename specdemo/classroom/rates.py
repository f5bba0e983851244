"""How often something may happen: a bucket that fills at a rate and holds a burst, one for each who asks."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from specdemo.records.limits import UserError


class TooOftenError(UserError):
    """It may happen again a little later."""


MOST_KEPT = 10_000
"""Buckets; of more who ask the one that was silent longest is forgotten."""


class Rates:
    """One bucket a key.

    Args:
        per_s: What comes in each second.
        burst: What a full bucket holds.
        clock: Gives seconds.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable) -> bool:
        """Whether it may happen once more; counted if so."""
        left = self._left(key)
        allowed = left >= 1
        self._buckets.pop(key, None)
        self._buckets[key] = (left - allowed, self._clock())
        if len(self._buckets) > MOST_KEPT:
            self._buckets.popitem(last=False)
        return allowed

    def allow(self, key: Hashable) -> bool:
        """Return whether it may happen once more, without counting it."""
        return self._left(key) >= 1

    def _left(self, key: Hashable) -> float:
        now = self._clock()
        left, then = self._buckets.get(key, (float(self._burst), now))
        return min(self._burst, left + (now - then) * self._per_s)
