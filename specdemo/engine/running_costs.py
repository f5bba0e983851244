"""What passes cost in a run: the calibration's figures, corrected by the run's own rounds.

A calibration is short and the machine is shared: one measured c was 55 times too high. Every round
brings its own seconds, so what is planned with need not stay wrong. Noise on a shared machine is a round
that took too long, hardly ever one that took too short. So each figure is the lower median of the last few
rounds, of which the calibration is the first: one slow round changes nothing, a figure that was too high
goes with the first round, one that was too low with the second.

Standard library only; knows no tokens and no drafts.
"""

import math
import statistics
from collections import deque

from specdemo.records.trace import Calibration

MEMORY = 7
"""Rounds that a median is taken of."""


class RunningCosts:
    """Draft and target passes of one run in units of its single-token target pass.

    Attributes:
        c, v: As in ``Calibration``, as far as this run knows by now. ``v`` is taken as it is measured: the
            cost of a pass as the engine runs it, where a longer one may have the better kernel.
    """

    def __init__(self, calibration: Calibration):
        self._step_s = calibration.step_s
        self._given = calibration.v
        # All of what follows are logarithms: of the machine's pace now ÷ that of the calibration, of each
        # v(n) ÷ the calibration's, and of c.
        self._pace = _Median(0.0)
        self._rows: dict[int, _Median] = {}
        self._draft = _Median(math.log(calibration.c)) if calibration.c > 0 else None
        self.c = calibration.c
        self.v = list(calibration.v)

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Take in one round's seconds.

        Args:
            draft_steps: Passes of a draft made in ``draft_s`` seconds; what took none teaches nothing of c.
            rows: Tokens in the target pass that took ``verify_s`` seconds.
        """
        if verify_s > 0:
            self._take_pass(rows - 1, math.log(verify_s / (self._step_s * self._given[rows - 1])))
        if draft_steps > 0 and draft_s > 0:
            found = math.log(draft_s / (draft_steps * self._step_s)) - self._pace.value
            self._draft = self._draft or _Median(found)
            self._draft.add(found)
            self.c = math.exp(self._draft.value)

    def _take_pass(self, place: int, slower: float) -> None:
        """A pass took e^``slower`` times what the calibration says: in v(n) or in the machine's pace."""
        row = self._rows.setdefault(place, _Median(0.0))
        self._pace.add(slower - row.value)
        row.add(slower - self._pace.value)
        corrections = _between({place: row.value for place, row in self._rows.items()}, len(self._given))
        self.v = [given * math.exp(more) for given, more in zip(self._given, corrections, strict=True)]


class _Median:
    """The lower median of the last numbers, of which the first is a guess."""

    def __init__(self, guess: float):
        self.value = guess
        self._last = deque([guess], maxlen=MEMORY)

    def add(self, number: float) -> None:
        """Take in one number."""
        self._last.append(number)
        self.value = statistics.median_low(self._last)


def _between(known: dict[int, float], count: int) -> list[float]:
    """Values at 0 … count − 1 from those at some places: straight lines between them, level outside."""
    places = sorted(known)
    values = []
    for at in range(count):
        below = max((place for place in places if place <= at), default=places[0])
        above = min((place for place in places if place >= at), default=places[-1])
        share = 0.0 if above == below else (at - below) / (above - below)
        values.append(known[below] + share * (known[above] - known[below]))
    return values
