"""Pass costs during a run: the calibrated costs, corrected by the measured times of the run's own rounds."""

import math
import statistics
from collections import deque

from specdemo.records.trace import Calibration

MEMORY = 7
"""Number of values in each running median."""


class RunningCosts:
    """Costs of draft and target passes in one run, in single-token target passes.

    A calibration is short and the machine may be busy: one measured c was 55 times too high. The times of
    each round correct such errors. On a shared machine, a disturbed round takes too long and almost never too
    short. Each cost is therefore the lower median of the last ``MEMORY`` values, of which the calibrated cost
    is the first. With the lower median, a single slow round changes nothing. A calibrated cost that is too
    high is replaced after one round, one that is too low after two.

    Attributes:
        c: Cost ratio, as in ``Calibration``.
        v: Verification costs v(n), as in ``Calibration``; they need not rise with n.
    """

    def __init__(self, calibration: Calibration):
        self._step_s = calibration.step_s
        self._given = calibration.v
        # Three kinds of logarithms: the current time of a target pass relative to the calibration, the
        # correction of each v(n), and c.
        self._pace = _Median(0.0)
        self._rows: dict[int, _Median] = {}
        self._draft = _Median(math.log(calibration.c)) if calibration.c > 0 else None
        self.c = calibration.c
        self.v = list(calibration.v)

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Correct the costs with the times of one round.

        Args:
            draft_steps: Number of draft passes; c does not change if it is 0.
            rows: Number of tokens in the target pass, k + 1.
            draft_s: Seconds of all draft passes.
            verify_s: Seconds of the target pass.
        """
        if verify_s > 0:
            self._take_pass(rows - 1, math.log(verify_s / (self._step_s * self._given[rows - 1])))
        if draft_steps > 0 and draft_s > 0:
            found = math.log(draft_s / (draft_steps * self._step_s)) - self._pace.value
            self._draft = self._draft or _Median(found)
            self._draft.add(found)
            self.c = math.exp(self._draft.value)

    def _take_pass(self, place: int, slower: float) -> None:
        """Update the machine's speed and v[``place``] with a target pass.

        ``slower`` is the logarithm of the pass's time ÷ its calibrated time.
        """
        row = self._rows.setdefault(place, _Median(0.0))
        self._pace.add(slower - row.value)
        row.add(slower - self._pace.value)
        corrections = _interpolated({place: row.value for place, row in self._rows.items()}, len(self._given))
        self.v = [given * math.exp(more) for given, more in zip(self._given, corrections, strict=True)]


class _Median:
    """The lower median of the last ``MEMORY`` numbers. An initial estimate counts as the first number."""

    def __init__(self, estimate: float):
        self.value = estimate
        self._last = deque([estimate], maxlen=MEMORY)

    def add(self, number: float) -> None:
        self._last.append(number)
        self.value = statistics.median_low(self._last)


def _interpolated(known: dict[int, float], count: int) -> list[float]:
    """Return values at indices 0 to count − 1.

    Values are interpolated linearly between the ``known`` indices and are constant outside them.
    """
    places = sorted(known)
    values = []
    for at in range(count):
        below = max((place for place in places if place <= at), default=places[0])
        above = min((place for place in places if place >= at), default=places[-1])
        share = 0.0 if above == below else (at - below) / (above - below)
        values.append(known[below] + share * (known[above] - known[below]))
    return values
