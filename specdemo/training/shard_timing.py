"""The clock of a stage that makes files one after the other, and may have to end before all are made."""

from pathlib import Path

from specdemo.training import clock

SPENT = "seconds.txt"
PROMPTS_SLACK = 2.0
"""A shard is not begun with less time than this many times what the last one's prompts took."""


class ShardTiming:
    """How far a stage is, by its shards and its clock, and whether there is time for more.

    Args:
        folder: Where the seconds spent are kept.
        name: Of the stage.
        shards, missing: How many there are, and how many are yet to be written.
        steps: Most steps a shard takes.
        seconds: Time for all of it, counted over resumed runs; None for as long as it takes.
    """

    def __init__(self, folder: Path, name: str, shards: int, missing: int, steps: int, seconds: float | None):
        self._folder, self._shards, self._steps, self._seconds = folder, shards, steps, seconds
        self._done, self._step, self._tokens = float(shards - missing), 0, 0
        self._before, self._begun = seconds_spent(folder), clock.now()
        self._shard_begun, self._prompts_s = self._begun, 0.0
        left_s = None if seconds is None else seconds - self._before
        self._meter = clock.Meter(name, self._share, left_s)

    def another(self) -> bool:
        """Whether there is time for the prompts of another shard, which cannot be cut short, and more."""
        return self._seconds is None or self._spent + PROMPTS_SLACK * self._prompts_s < self._seconds

    def go_on(self, tokens: int) -> bool:
        """Take note of a step that wrote so many ``tokens``; whether there is time for the next."""
        if not self._step:
            self._prompts_s = clock.now() - self._shard_begun
        self._tokens += tokens
        self._step += 1
        self._meter.show(self._share, self._tokens)
        return self._seconds is None or self._spent < self._seconds

    def end_shard(self) -> None:
        """Take note of a shard that is in its file."""
        self._done, self._step = self._done + 1, 0
        self._shard_begun = clock.now()
        (self._folder / SPENT).write_text(f"{self._spent:.1f}\n", encoding="utf-8")

    def close(self) -> None:
        """Nothing more is written."""
        self._meter.close(self._tokens)

    @property
    def _spent(self) -> float:
        return self._before + clock.now() - self._begun

    @property
    def _share(self) -> float:
        """How much is done, 0 to 1, by the shards or the time, whichever ends it first."""
        parts = (self._done + self._step / self._steps) / self._shards
        return max(parts, self._spent / self._seconds) if self._seconds else parts


def seconds_spent(folder: Path) -> float:
    """Seconds of writing so far."""
    path = folder / SPENT
    return float(path.read_text(encoding="utf-8")) if path.is_file() else 0.0
