"""The time of a training, and the line that shows how a stage gets on."""

import time

from tqdm import tqdm

REDRAWN_S = 0.5
"""Least seconds between two drawings of a line."""


def now() -> float:
    """Seconds on a clock that only goes forward."""
    return time.monotonic()


class Meter:
    """One stage's line: share done, tokens, tokens a second, time left; drawn from the first call on.

    Args:
        name: Of the stage.
        share: How much of the stage was done before, 0 to 1.
        left_s: Seconds it will take, where that is known before it begins.
    """

    def __init__(self, name: str, share: float = 0.0, left_s: float | None = None):
        self._name = name
        self._start = min(1.0, share)
        self._begun = now()
        self._drawn = float("-inf")
        known = "" if left_s is None else f": {clock_face(max(0.0, left_s))} left"
        form = "{desc} |{bar}| {percentage:.0f}%"
        self._bar = tqdm(desc=name + known, total=1.0, initial=self._start, bar_format=form)

    def show(self, share: float, tokens: int) -> None:
        """``share`` of the stage is done, ``tokens`` were handled since the meter was made."""
        if now() - self._drawn < REDRAWN_S:
            return
        self._drawn = now()
        self._bar.n = min(1.0, share)
        self._bar.set_description_str(self.line(share, tokens))

    def line(self, share: float, tokens: int) -> str:
        """What stands before the bar."""
        elapsed = max(1e-9, now() - self._begun)
        left = elapsed * max(0.0, 1.0 - share) / max(1e-9, share - self._start)
        return f"{self._name}: {tokens:,} tokens, {tokens / elapsed:,.0f} tokens/s, {clock_face(left)} left"

    def close(self, tokens: int) -> None:
        """The stage has ended: a last line, which stays."""
        self._bar.n = 1.0
        self._bar.set_description_str(self.line(1.0, tokens))
        self._bar.close()


def clock_face(seconds: float) -> str:
    """``75.0`` as ``1:15``, an hour and more as ``2:05:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
