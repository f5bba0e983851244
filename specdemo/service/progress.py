"""Progress of jobs, from their events, and the expected durations of jobs that have not begun."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from specdemo.records.events import Event, count_emitted

MIN_SHARE = 0.05
"""If less of a job is done, its own events do not show yet how long it takes."""
FADING = 0.3
"""Each new job lowers the weight of older jobs in a pace by this share."""


class _Lane(NamedTuple):
    tokens: int = 0
    seconds: float = 0.0
    ended: bool = False


class Progress:
    """The progress of one job.

    Args:
        pace: Jobs with the same pace take equally long for each unit of ``amount``.
        amount: The requested work: the tokens of all lanes of a run, else draws, texts or the whole job (1).
        lane_tokens: The requested tokens of each lane of a run; 0 for other jobs.
    """

    def __init__(self, pace: Hashable, amount: float = 1.0, lane_tokens: int = 0):
        self.pace = pace
        self.amount = amount
        self.done = 0.0
        self.lane_tokens = lane_tokens
        self._lanes: dict[str, _Lane] = {}
        self._share = self._since = self._latest = 0.0

    def begin(self, now: float) -> None:
        self._since = self._latest = now

    def add(self, event: Event, now: float) -> None:
        if self.lane_tokens:
            if "lane" in event:
                self._add_round(event)
        else:
            self._add_other(event)
        self._latest = now
        if not self.done:
            self._since = now  # preparation does not count

    def _add_other(self, event: Event) -> None:
        if event["type"] == "row":
            self.done += 1
        elif "drawn" in event:
            self.done = event["drawn"]
        elif event["type"] == "point":
            self.done = self.amount * event["done"] / event["expected"]
        elif event["type"] == "progress":
            self.done = self.amount * event["fraction"]
        self._share = self.done / self.amount

    def _add_round(self, event: Event) -> None:
        round_, tokens = event["round"], count_emitted(event)
        before = self._lanes.get(event["lane"], _Lane())
        seconds = before.seconds + round_["draft_s"] + round_["verify_s"] + round_["other_s"]
        self._lanes[event["lane"]] = _Lane(before.tokens + tokens, seconds, round_["finish"] is not None)
        self.done += tokens
        # Lanes take turns by their clocks, so the slower lane is alone at the end of the run.
        spent = sum(lane.seconds for lane in self._lanes.values())
        left = sum(
            (self.lane_tokens - lane.tokens) * lane.seconds / max(1, lane.tokens)
            for lane in self._lanes.values()
            if not lane.ended
        )
        self._share = spent / (spent + left) if spent else 0.0

    @property
    def whole_s(self) -> float | None:
        """The expected seconds of the whole job without preparation; None while they are not known."""
        return (self._latest - self._since) / self._share if self._share >= MIN_SHARE else None

    def left_s(self, now: float) -> float | None:
        """Return the seconds left, negative if the next event is late; None while they are not known."""
        return None if (whole_s := self.whole_s) is None else self._since + whole_s - now


class Paces:
    """The seconds for each unit of work, learned from jobs that have ended."""

    def __init__(self) -> None:
        # For each pace, the seconds and the units of recent jobs, older ones with less weight.
        self._sums: defaultdict[Hashable, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    def learn(self, progress: Progress, took_s: float, whole: bool) -> None:
        """Learn from a job that has ended, unless it ended early (not ``whole``) and had hardly begun."""
        # The text of a run may end early; all other jobs do what they were asked for.
        done = progress.amount if whole and not progress.lane_tokens else progress.done
        if done and (whole or progress.whole_s is not None):
            seconds, units = self._sums[progress.pace]
            self._sums[progress.pace] = (1 - FADING) * seconds + took_s, (1 - FADING) * units + done

    def expected_s(self, progress: Progress, running: Iterable[Progress]) -> float:
        """Return the expected seconds of a job from its start on.

        Without earlier jobs, they follow from a running job with the same pace; infinite if nothing is known.
        """
        if progress.pace in self._sums:
            seconds, units = self._sums[progress.pace]
            return progress.amount * seconds / units
        alike = [one for one in running if one.pace == progress.pace]
        known = [progress.amount * one.whole_s / one.amount for one in alike if one.whole_s is not None]
        return min(known, default=math.inf)
