"""The choice of the number of threads for compiled passes, which may change between passes."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence

import torch

from specdemo.models.threads import is_fixed

SLOW = 1.5
"""Other numbers of threads are tried when passes take this many times the usual."""
FALL, RISE = 0.2, 0.02
"""Shares by which a shorter or longer pass changes the usual time."""
JUDGED = 5
"""Number of passes that are judged together."""
TRIES = 3
"""Number of passes with each number of threads in a trial."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 8.0
"""Seconds between a trial and the next one; they double while trials change nothing."""


class ThreadChoice:
    """Chooses the number of threads with which passes are fastest at the moment.

    More threads are faster on an idle machine. Next to busy processes, every barrier of a pass waits for
    a thread that may not be running, and fewer threads are faster. No bit of a result depends on the number.

    Args:
        counts: The numbers of threads to choose from, most first; one number is never changed.
        clock: Returns seconds; tests replace it.
    """

    def __init__(self, counts: Sequence[int], clock: Callable[[], float] = time.perf_counter):
        self._counts, self._clock = list(counts), clock
        self.count = self._counts[0]
        self._usual: dict[Hashable, float] = {}
        self._recent: deque[float] = deque(maxlen=JUDGED)
        self._untried: list[int] = []
        self._found: dict[int, list[float]] = {}
        self._before = self.count
        self._next_trial = -float("inf")
        self._wait_s = FIRST_WAIT_S

    def passed(self, kind: Hashable, seconds: float) -> None:
        """Take note of a pass with ``count`` threads, and choose ``count`` for the next one.

        Args:
            kind: Passes of one kind usually take equally long.
            seconds: The time of the pass.
        """
        if len(self._counts) == 1:
            return
        usual = self._usual.setdefault(kind, seconds)
        slowness = seconds / usual
        self._usual[kind] += (seconds - usual) * (FALL if seconds < usual else RISE)
        if self._found:
            self._found[self.count].append(slowness)
            if self._untried:
                self.count = self._untried.pop()
            else:
                self._finish_trial()
            return
        self._recent.append(slowness)
        slow = len(self._recent) == JUDGED and statistics.median(self._recent) > SLOW
        # Fewer threads may look well enough when the machine is idle again, so they are doubted at any speed.
        if (slow or self.count != self._counts[0]) and self._clock() >= self._next_trial:
            self._begin_trial()

    def settle(self, run_pass: Callable[[], object], max_seconds: float) -> None:
        """Try all numbers of threads in passes that nobody waits for; :meth:`passed` must hear of each."""
        end = self._clock() + max_seconds
        self._begin_trial()
        while self._found and self._clock() < end:
            run_pass()
        if self._found:  # too slow a model to try them all
            self._found, self._untried, self.count = {}, [], self._counts[0]
        self._next_trial, self._wait_s = -float("inf"), FIRST_WAIT_S

    def _begin_trial(self) -> None:
        """Use each number of threads in the next passes, and then the one with which they were fastest."""
        if len(self._counts) > 1:
            self._found = {count: [] for count in self._counts}
            self._untried = self._counts[::-1] * TRIES
            self._before = self.count
            self.count = self._untried.pop()

    def _finish_trial(self) -> None:
        self.count = min(self._counts, key=lambda count: statistics.median(self._found[count]))
        changed = self.count != self._before
        self._wait_s = FIRST_WAIT_S if changed else min(2 * self._wait_s, LONGEST_WAIT_S)
        self._next_trial = self._clock() + self._wait_s
        self._found, self._recent = {}, deque(maxlen=JUDGED)


_choices: dict[tuple[int, ...], ThreadChoice] = {}


def choice() -> ThreadChoice:
    """Return the choice for passes on the calling thread: all of its threads, half of them, …, or one."""
    most = torch.get_num_threads()
    counts = (most,) if is_fixed() else tuple(most >> halvings for halvings in range(most.bit_length()))
    if counts not in _choices:
        _choices[counts] = ThreadChoice(counts)
    return _choices[counts]
