"""Pass costs in a run: the calibration's figures, corrected by the seconds of the run's own rounds."""

import math
import statistics
from collections import deque

from specdemo.records.trace import Calibration

MEMORY = 7
"""Number of rounds in a median."""


class RunningCosts:
    """Costs of draft and target passes in one run, in single-token target passes.

    A calibration is short and the machine is shared: one measured c was 55 times too high. Every round
    brings its own seconds, so a wrong figure need not stay. Noise on a shared machine is a round that took
    too long, hardly ever one that took too short. Each figure is therefore the lower median of the last
    rounds, with the calibration as the first of them: one slow round changes nothing, a figure that was too
    high is gone after one round, one that was too low after two.

    Attributes:
        c: Cost ratio, as in ``Calibration``.
        v: Verification costs v(n) as the engine runs the passes; v need not rise with n.
    """

    def __init__(self, calibration: Calibration):
        self._step_s = calibration.step_s
        self._given = calibration.v
        # Logarithms: the machine's current pace ÷ that of the calibration, each v(n) ÷ the calibration's, c.
        self._pace = _Median(0.0)
        self._rows: dict[int, _Median] = {}
        self._draft = _Median(math.log(calibration.c)) if calibration.c > 0 else None
        self.c = calibration.c
        self.v = list(calibration.v)

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Learn from one round's seconds.

        Args:
            draft_steps: Draft passes made in ``draft_s`` seconds; a round with none leaves c as it is.
            rows: Tokens in the target pass that took ``verify_s`` seconds.
            draft_s: Seconds of drafting.
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
        """Split a pass that took e^``slower`` times the calibrated time into v(n) and the machine's pace."""
        row = self._rows.setdefault(place, _Median(0.0))
        self._pace.add(slower - row.value)
        row.add(slower - self._pace.value)
        corrections = _interpolated({place: row.value for place, row in self._rows.items()}, len(self._given))
        self.v = [given * math.exp(more) for given, more in zip(self._given, corrections, strict=True)]


class _Median:
    """The lower median of the last ``MEMORY`` numbers, the first of which is an initial estimate."""

    def __init__(self, estimate: float):
        self.value = estimate
        self._last = deque([estimate], maxlen=MEMORY)

    def add(self, number: float) -> None:
        self._last.append(number)
        self.value = statistics.median_low(self._last)


def _interpolated(known: dict[int, float], count: int) -> list[float]:
    """Return values at 0 … count − 1: linear between the known places, constant outside them."""
    places = sorted(known)
    values = []
    for at in range(count):
        below = max((place for place in places if place <= at), default=places[0])
        above = min((place for place in places if place >= at), default=places[-1])
        share = 0.0 if above == below else (at - below) / (above - below)
        values.append(known[below] + share * (known[above] - known[below]))
    return values
