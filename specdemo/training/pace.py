"""How a training spends its time on this machine, settled by a trial before it begins and then kept.

The arithmetic, the size of shards and batches and the time of every stage follow from what a few steps
took; they are pinned in a file, so that a resumed training goes on as it began.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from specdemo.records.limits import UserError
from specdemo.training.arithmetic import LEAST_ROWS, Speeds, chosen

PACE = "pace.json"
POOL_FOR_MINUTES = 60_000
"""Most prompts on hand where time, not steps, ends the writing."""
SHORT_OUTPUT = 20
"""Tokens per prompt if the target is short-spoken: so many prompts are on hand that they do not run out."""
WRITING_SHARE = 0.53
"""Of the time that is for writing and learning."""
SHARD_SHARE = 0.25
"""Most of the writing's time that one shard may take, were the writing to have all it can."""
CALIBRATION_PASSES, EVALUATION_PASSES = 600, 110
"""What it takes at most to measure a pair, and to race over a prompt, in passes over one token."""
EVALUATION_SHARE = 0.12
"""Most of all time for the evaluation, unless two prompts need more."""
LEAST_PROMPTS = 2
REAL = 0.7
"""Speed of whole shards, whose prompts are read first and whose rows end one by one, to the trial's."""
FULL_BATCH, LEAST_BATCH, BATCH_STEP = 4096, 512, 256
GOOD_STEPS = 200
"""Learning takes smaller batches rather than fewer steps."""
LEAST_TEXT, LEAST_STEPS = 1_000, 10
"""Tokens and steps below which no training is begun."""
GOOD_TEXT = 100_000
"""Tokens below which a draft is told to be poor."""


class TooShortError(UserError):
    """The minutes asked for are over before anything could be learned."""


@dataclass(frozen=True)
class Trial:
    """What was measured.

    Attributes:
        step_s: Seconds a decode step took by arithmetic and rows.
        learning: Tokens a second by arithmetic; empty where text is only counted.
        load_s: Seconds the target took to load.
        longest_s: Most seconds a step is to take.
    """

    step_s: dict[str, dict[int, float]]
    learning: Speeds
    load_s: float
    longest_s: float = math.inf

    def rows(self, writing: str) -> int:
        """The rows that write fastest, of those whose step does not take too long."""
        steps = self.step_s[writing]
        in_time = [n for n, s in steps.items() if n > 1 and s <= self.longest_s]
        return max(in_time, key=lambda n: n / steps[n], default=LEAST_ROWS)

    @property
    def writing_share(self) -> float:
        """Of the time for writing and learning."""
        return WRITING_SHARE if self.learning else 1.0

    @property
    def writing(self) -> Speeds:
        """Tokens a second by arithmetic, each with its own best rows."""
        return {name: self.rows(name) / steps[self.rows(name)] for name, steps in self.step_s.items()}


@dataclass(frozen=True)
class Pace:
    """What a training computes in, in which portions, and for how long.

    Attributes:
        writing, learning: Arithmetic by name; learning's is empty where text is only counted.
        writing_speeds, learning_speeds: Tokens a second in the trial, of every candidate.
        rows: Continuations in a shard.
        prompts: Size of the pool to write from.
        batch_tokens, warmup_steps: As in ``Recipe``.
        calibrated: Whether the evaluation has the time to measure the pair first.
        writing_s, evaluation_s: Seconds of these stages; None and 0 where steps are counted.
        learning_s: Seconds of learning; what is left when it begins replaces the plan.
    """

    writing: str
    learning: str
    writing_speeds: Speeds
    learning_speeds: Speeds
    rows: int
    prompts: int
    batch_tokens: int
    warmup_steps: int
    calibrated: bool = True
    writing_s: float | None = None
    evaluation_s: float = 0.0
    learning_s: float = 0.0

    @property
    def sentence(self) -> str:
        """The choice in words, with what it was measured against."""
        learned = f", learned in {self.learning} ({_speeds(self.learning_speeds)})" if self.learning else ""
        return f"Text is written in {self.writing} ({_speeds(self.writing_speeds)} tokens/s){learned}."


def pace_for_steps(trial: Trial, rows: int, prompts: int, batch_tokens: int, warmup_steps: int) -> Pace:
    """Where steps are counted only the arithmetic follows from the trial."""
    return Pace(
        chosen(trial.writing),
        chosen(trial.learning) if trial.learning else "",
        trial.writing,
        trial.learning,
        rows,
        prompts,
        batch_tokens,
        warmup_steps,
    )


def pace_for_minutes(trial: Trial, minutes: float, used_s: float, prompts: int) -> Pace:
    """The pace of a training of ``minutes``, ``used_s`` seconds of which are over.

    ``prompts`` is how many the evaluation would like to have.

    Raises:
        TooShortError: That is too little to write one shard and learn a few steps.
    """
    writing, learning = chosen(trial.writing), chosen(trial.learning) if trial.learning else ""
    write_speed, learn_speed = REAL * trial.writing[writing], trial.learning.get(learning, 0.0)
    calibrated, evaluation_s = _evaluation(trial, trial.step_s[writing][1], 60 * minutes, prompts)
    free = 60 * minutes - used_s - evaluation_s
    share = trial.writing_share
    writing_s, learning_s = share * free, (1 - share) * free
    need = LEAST_TEXT / write_speed / share
    if learning:
        need = max(need, LEAST_STEPS * LEAST_BATCH / learn_speed / (1 - share))
    if free < need:
        least = _enough_minutes(used_s, evaluation_s, need)
        raise TooShortError(
            f"{minutes:g} minutes are not enough here: loading, trials and evaluation take "
            f"{used_s + evaluation_s:.0f} seconds, and text is written at {write_speed:,.0f} tokens/s; "
            f"give --minutes {least} or more."
        )
    batch = learn_speed * learning_s / GOOD_STEPS // BATCH_STEP * BATCH_STEP
    batch_tokens = int(min(FULL_BATCH, max(LEAST_BATCH, batch)))
    return Pace(
        writing,
        learning,
        trial.writing,
        trial.learning,
        rows=trial.rows(writing),
        prompts=min(POOL_FOR_MINUTES, max(64, int(write_speed * writing_s / SHORT_OUTPUT))),
        batch_tokens=batch_tokens,
        warmup_steps=max(1, min(60, int(learn_speed * learning_s / batch_tokens / 10))),
        calibrated=calibrated,
        writing_s=writing_s,
        evaluation_s=evaluation_s,
        learning_s=learning_s,
    )


def longest_step_s(minutes: float | None, shard_steps: int) -> float:
    """Most seconds that a step of writing is to take, of ``shard_steps`` in a shard."""
    return math.inf if minutes is None else SHARD_SHARE * WRITING_SHARE * 60 * minutes / shard_steps


def outlook(pace: Pace, minutes: float, used_s: float) -> str:
    """What the minutes will give, and what would be needed where that is too little for a good draft."""
    speed = REAL * pace.writing_speeds[pace.writing]
    text = speed * (pace.writing_s or 0.0)
    steps = pace.learning_speeds.get(pace.learning, 0.0) * pace.learning_s / pace.batch_tokens
    learned = f" and {_rounded(steps)} steps" if pace.learning else ""
    gives = f"{minutes:g} minutes will give about {_rounded(text)} tokens of text{learned}"
    if text >= GOOD_TEXT:
        return f"{gives}."
    share = WRITING_SHARE if pace.learning else 1.0
    enough = _enough_minutes(used_s, pace.evaluation_s, GOOD_TEXT / speed / share)
    return f"{gives}, too little for a good draft: {GOOD_TEXT:,} tokens take --minutes {enough} here."


def pinned_pace(work: Path) -> Pace | None:
    """What was settled when the training in ``work`` began."""
    path = work / PACE
    return Pace(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def pin_pace(pace: Pace, work: Path) -> None:
    """Keep it for a resumed training."""
    (work / PACE).write_text(json.dumps(asdict(pace), indent=1) + "\n", encoding="utf-8")


def _evaluation(trial: Trial, pass_s: float, total_s: float, prompts: int) -> tuple[bool, float]:
    """Whether there is time to measure the pair, and the seconds for that and up to ``prompts`` prompts."""
    share, each = EVALUATION_SHARE * total_s, EVALUATION_PASSES * pass_s
    measuring = trial.load_s + CALIBRATION_PASSES * pass_s
    if measuring + LEAST_PROMPTS * each <= share:
        return True, min(measuring + prompts * each, share)
    return False, min(trial.load_s + prompts * each, max(share, trial.load_s + LEAST_PROMPTS * each))


def _speeds(speeds: Speeds) -> str:
    return ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())


def _rounded(count: float) -> str:
    """Two digits of it, since it is a guess."""
    unit = 10 ** max(0, len(str(int(count))) - 2)
    return f"{int(count) // unit * unit:,}"


def _enough_minutes(used_s: float, evaluation_s: float, need_s: float) -> int:
    """Minutes that leave ``need_s``; where there are more of them, trials and evaluation take more too."""
    return math.ceil((2 * used_s + evaluation_s + need_s) / (1 - EVALUATION_SHARE) / 60)
