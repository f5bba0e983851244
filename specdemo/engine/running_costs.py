"""Pass costs during a run: the calibrated costs, corrected by the measured times of the run's own rounds."""

import math
from collections import deque

from specdemo.records.trace import Calibration

MEMORY = 7  # number of values in each running quartile


class RunningCosts:
    """The costs c and v(n) of a run, as in ``Calibration``; v need not rise with n.

    A calibration is short and the machine may be busy: one measured c was 55 times too high. On a shared
    machine, a disturbed round takes too long and almost never too short, and short draft steps suffer in
    other rounds than long passes. Each cost is therefore the lower quartile of the last ``MEMORY`` values, of
    which the calibrated cost is the first: a cost of an undisturbed machine. A calibrated cost that is too
    high is replaced after one round; one that is too low after ``MEMORY`` − 2 rounds.
    """

    def __init__(self, calibration: Calibration):
        self._step_s = calibration.step_s
        self._calibrated_v = calibration.v
        # Quartiles of logarithms: the time of a target pass relative to the calibration, the correction of
        # each v(n), and c.
        self._pace = _LowerQuartile(0.0)
        self._rows: dict[int, _LowerQuartile] = {}
        self._draft = _LowerQuartile(math.log(calibration.c)) if calibration.c > 0 else None
        self.c = calibration.c
        self.v = list(calibration.v)

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Correct the costs with a round's times; without draft steps, c does not change."""
        if verify_s > 0:
            slowdown = math.log(verify_s / (self._step_s * self._calibrated_v[rows - 1]))
            self._correct_v(rows - 1, slowdown)
        if draft_steps > 0 and draft_s > 0:
            log_c = math.log(draft_s / (draft_steps * self._step_s)) - self._pace.value
            self._draft = self._draft or _LowerQuartile(log_c)
            self._draft.add(log_c)
            self.c = math.exp(self._draft.value)

    def _correct_v(self, index: int, slowdown: float) -> None:
        """Correct the pace and v[``index``] with log(time of a pass ÷ its calibrated time)."""
        # The pace must not depend on the corrections: if most passes had one number of rows, the two could
        # change against each other without end.
        self._pace.add(slowdown)
        self._rows.setdefault(index, _LowerQuartile(0.0)).add(slowdown - self._pace.value)
        known = {at: quartile.value for at, quartile in self._rows.items()}
        corrections = _interpolated(known, len(self._calibrated_v))
        self.v = [cost * math.exp(by) for cost, by in zip(self._calibrated_v, corrections, strict=True)]


class _LowerQuartile:
    """The lower quartile of the last ``MEMORY`` numbers. An initial estimate counts as the first two."""

    def __init__(self, estimate: float):
        self.value = estimate
        self._last = deque([estimate] * 2, maxlen=MEMORY)

    def add(self, number: float) -> None:
        self._last.append(number)
        self.value = sorted(self._last)[len(self._last) // 4]


def _interpolated(known: dict[int, float], count: int) -> list[float]:
    """Interpolate values at indices 0 to count − 1; they are constant outside the ``known`` indices."""
    indices = sorted(known)
    values = []
    for at in range(count):
        below = max((index for index in indices if index <= at), default=indices[0])
        above = min((index for index in indices if index >= at), default=indices[-1])
        share = 0.0 if above == below else (at - below) / (above - below)
        values.append(known[below] + share * (known[above] - known[below]))
    return values
