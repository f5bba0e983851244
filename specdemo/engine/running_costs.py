"""Pass costs during a run: the calibrated costs, corrected by the measured times of the run's own rounds."""

import math
from collections import deque

from specdemo.records.trace import Calibration

KEPT = 7  # number of values of each cost


class RunningCosts:
    """The costs c and v(n) of a run, as in ``Calibration``; v need not rise with n.

    A calibration is short and the machine may be busy: one measured c was 55 times too high. On a shared
    machine, a disturbed round takes too long and almost never too short, and not all parts of a round need be
    disturbed. Each cost is therefore the value a third of the way up in the last ``KEPT``, about that of an
    undisturbed machine. (Next to two busy processes, a third gave more tokens per second than a quarter.) A
    calibrated c that is too high is replaced after one round of drafts.
    """

    def __init__(self, calibration: Calibration):
        self._step_s = calibration.step_s
        self._calibrated_v = calibration.v
        # Logarithms: time of a target pass relative to the calibration, correction of each v(n), and c.
        self._pace = _LowNumber(0.0, 2)
        self._rows: dict[int, _LowNumber] = {}
        self._draft = _LowNumber(math.log(calibration.c), 1) if calibration.c > 0 else None
        self.c = calibration.c
        self.v = list(calibration.v)

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Correct the costs with a round's times; without draft steps, c does not change."""
        if verify_s > 0:
            slowdown = math.log(verify_s / (self._step_s * self._calibrated_v[rows - 1]))
            self._correct_v(rows - 1, slowdown)
        if draft_steps > 0 and draft_s > 0:
            log_c = math.log(draft_s / (draft_steps * self._step_s)) - self._pace.value
            self._draft = self._draft or _LowNumber(log_c, 1)
            self._draft.add(log_c)
            self.c = math.exp(self._draft.value)

    def _correct_v(self, index: int, slowdown: float) -> None:
        """Correct the pace and v[``index``] with log(time of a pass ÷ its calibrated time)."""
        # The pace must not depend on the corrections: if most passes had one number of rows, the two could
        # change against each other without end.
        self._pace.add(slowdown)
        self._rows.setdefault(index, _LowNumber(0.0, 2)).add(slowdown - self._pace.value)
        known = {at: low.value for at, low in self._rows.items()}
        corrections = _interpolated(known, len(self._calibrated_v))
        self.v = [cost * math.exp(by) for cost, by in zip(self._calibrated_v, corrections, strict=True)]


class _LowNumber:
    """The number a third of the way up in the last ``KEPT``; an estimate counts as the first ``weight``."""

    def __init__(self, estimate: float, weight: int):
        self.value = estimate
        self._last = deque([estimate] * weight, maxlen=KEPT)

    def add(self, number: float) -> None:
        self._last.append(number)
        self.value = sorted(self._last)[len(self._last) // 3]


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
