"""The number of threads that compute on a CPU, and its choice for compiled passes."""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from specdemo.models.compiled.openmp import library

SLOW = 1.5  # passes that take this many times the usual start a trial of different numbers of threads
RISE = 0.002  # share by which the usual time rises with each pass that takes longer
PART_SHARE = 0.1  # maximum share by which passes take longer from one part of a text to the next
JUDGED = 5  # number of passes that are judged together
TRIES = 3  # number of passes with each number of threads in a trial
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 8.0  # between two trials; doubled while trials change nothing

_chosen: int | None = None
_fixed = False
_kept = threading.local()  # ``count``: a thread's number of threads while torch's own operations use one


def use_threads(count: int | None = None) -> None:
    """Let the current thread compute with ``count`` threads, and every thread that starts later with one.

    OpenMP keeps a pool of workers for each thread that computes with several. When all pools together have
    more threads than there are processors, the workers sleep at every barrier, and passes take longer. None
    is the number of the last call, or at first torch's own: OMP_NUM_THREADS, or one for each core.
    """
    global _chosen, _fixed
    _chosen, _fixed = count or thread_count(), count is not None
    torch.set_num_threads(_chosen)
    # A thread's first use of torch sets its number to the one that any thread has set last. So let this
    # thread use torch now, and have another thread set 1 for all later threads.
    torch.get_num_threads()
    other = threading.Thread(target=torch.set_num_threads, args=[1])
    other.start()
    other.join()


def is_fixed() -> bool:
    """Return whether the user has set the number; otherwise fewer threads may compute."""
    return _fixed


def thread_count() -> int:
    """Return the number of threads that compute, also if the calling thread has only one."""
    return _chosen or torch.get_num_threads()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch's own operations use one thread; compiled code keeps the number of this Python thread.

    Next to a busy process, each small operation on two threads would wait for one that is not running.
    ``torch.set_num_threads`` would also affect Python threads that start in the meantime.
    """
    own, found = getattr(_kept, "count", None), library()
    if own is not None or found is None:
        yield
        return
    _kept.count = torch.get_num_threads()
    found.omp_set_num_threads(1)
    try:
        yield
    finally:
        found.omp_set_num_threads(_kept.count)
        _kept.count = None


class PassKind(NamedTuple):
    """Passes of one kind take equally long on an idle machine."""

    model: Hashable  # kept as long as the choice
    rows: int
    part: int = 0  # of the text in which the pass starts


class ThreadChoice:
    """Chooses, from ``counts`` (most first), the number of threads with which compiled passes are fastest.

    More threads are faster on an idle machine. Next to busy processes, every barrier of a pass waits for a
    thread that may not be running, and fewer threads are faster. The number changes no bit of a result.
    """

    def __init__(
        self,
        counts: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
        usual: dict[PassKind, float] | None = None,
    ):
        self._counts, self._clock = list(counts), clock
        self.count = self._counts[0]
        self._usual = {} if usual is None else usual  # seconds of the fastest passes of late
        self._recent: deque[float] = deque(maxlen=JUDGED)
        self._untried: list[int] = []
        self._found: dict[int, list[tuple[PassKind, float]]] = {}
        self._before = self.count
        self._next_trial = -float("inf")
        self._wait_s = FIRST_WAIT_S

    def passed(self, kind: PassKind, seconds: float) -> None:
        """Record the time of a pass, and choose ``count`` for the next one."""
        if len(self._counts) == 1:
            return
        if kind not in self._usual:
            self._usual[kind] = self._longest(kind)
        usual = self._usual[kind] = min(seconds, self._usual[kind] * (1 + RISE))
        if self._found:
            self._found[self.count].append((kind, seconds))
            if self._untried:
                self.count = self._untried.pop()
            else:
                self._finish_trial()
            return
        self._recent.append(seconds / usual)
        slow = len(self._recent) == JUDGED and statistics.median(self._recent) > SLOW
        # Fewer threads may seem fast enough when the machine is idle again, so they are always tried again.
        if (slow or self.count != self._counts[0]) and self._clock() >= self._next_trial:
            self._begin_trial()

    def settle(self, run_pass: Callable[[], object], max_seconds: float) -> None:
        """Try all numbers of threads in passes that call :meth:`passed`, before any run."""
        end = self._clock() + max_seconds
        self._begin_trial()
        while self._found:
            run_pass()
            if self._found and self._clock() >= end:  # the model is slow, or the machine is busy
                self._finish_trial()
        self._next_trial, self._wait_s = -float("inf"), FIRST_WAIT_S

    def _longest(self, kind: PassKind) -> float:
        """Return the most seconds that a first pass of ``kind`` would take on an idle machine.

        Otherwise a disturbed first pass would make all later disturbed ones usual.
        """
        return min(
            (
                usual * max(1, kind.rows / known.rows) * (1 + PART_SHARE * max(0, kind.part - known.part))
                for known, usual in self._usual.items()
                if known.model == kind.model
            ),
            default=float("inf"),
        )

    def _begin_trial(self) -> None:
        """Use each number of threads in the next passes, and then the fastest."""
        if len(self._counts) > 1:
            self._found = {count: [] for count in self._counts}
            self._untried = self._counts[::-1] * TRIES
            self._before = self.count
            self.count = self._untried.pop()

    def _finish_trial(self) -> None:
        slowness = {
            count: statistics.median(seconds / self._usual[kind] for kind, seconds in passes)
            for count, passes in self._found.items()
            if passes
        }
        self.count = min(slowness, key=lambda count: slowness[count])
        changed = self.count != self._before
        self._wait_s = FIRST_WAIT_S if changed else min(2 * self._wait_s, LONGEST_WAIT_S)
        self._next_trial = self._clock() + self._wait_s
        self._found, self._recent = {}, deque(maxlen=JUDGED)


_choices: dict[tuple[int, ...], tuple[ThreadChoice, ThreadChoice]] = {}


def choice(rows: int = 1) -> ThreadChoice:
    """Return the choice for passes of the calling thread over one row, or over several ``rows``.

    It is among all of its threads, half of them, …, or one. Reading the weights limits a pass over one row,
    and arithmetic one over several rows, which loses more if it has fewer threads.
    """
    most = getattr(_kept, "count", None) or torch.get_num_threads()
    counts = (most,) if is_fixed() else tuple(most >> halvings for halvings in range(most.bit_length()))
    if counts not in _choices:
        usual: dict[PassKind, float] = {}
        _choices[counts] = (ThreadChoice(counts, usual=usual), ThreadChoice(counts, usual=usual))
    return _choices[counts][rows > 1]
