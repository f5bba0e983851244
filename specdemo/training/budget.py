"""The settings of a training, the split of its time limit, and the clock of a stage."""

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from specdemo.records.limits import UserError

MODEL, FEATURE, N_GRAM = "model", "feature", "n-gram"
WRITING_SHARE, EVALUATION_SHARE = 0.5, 0.1
"""Shares of ``--minutes``. Training gets the rest; for an n-gram table, writing gets the rest too."""
BATCH_TOKENS = 4096
TOKENS_PER_PROMPT = 120
EPOCHS = 3  # passes over the text for which a training with ``--steps`` prepares prompts
# Prompts for a training with ``--minutes``: more than a CPU can answer in the time for writing.
PROMPTS_PER_MINUTE, MAX_PROMPTS = 2_000, 60_000
PLAN = "plan.json"
BAR = "{desc} |{bar}| {percentage:.0f}%, {remaining} left{postfix}"

now = time.monotonic


@dataclass(frozen=True)
class TrainingPlan:
    """The settings of a training. A resumed training must have the same settings."""

    target: str  # ``built-in``, a hub id, or a folder
    kind: str  # ``model``, ``feature`` or ``n-gram``
    steps: int | None  # the limit in optimizer steps; None if it is in minutes
    minutes: float | None
    layers: int = 2  # of a new draft model
    head: int = 12_288  # vocabulary size of a new draft
    max_new_tokens: int = 128  # of a continuation
    seed: int = 0
    text: str | None = None  # a folder of texts to learn from; None if the target writes new text
    # A draft to train further, which keeps its vocabulary and layers; None for a new draft.
    start: str | None = None

    @property
    def prompts(self) -> int:
        """The number of prompts to prepare."""
        if self.minutes is not None:
            return min(MAX_PROMPTS, max(64, int(PROMPTS_PER_MINUTE * self.minutes)))
        return max(1, math.ceil((self.steps or 0) * BATCH_TOKENS / (EPOCHS * TOKENS_PER_PROMPT)))

    def seconds(self, share: float) -> float | None:
        """Return ``share`` (0 to 1) of the time limit in seconds, or None if the limit is in steps."""
        return None if self.minutes is None else 60 * self.minutes * share


def check_plan(plan: TrainingPlan, work: Path, resume: bool) -> None:
    """Check that ``work`` has no training, or one with the same plan that is to be resumed."""
    path = work / PLAN
    if not path.exists():
        return
    if not resume:
        raise UserError(
            f"{work.parent} already contains a training run; add --resume to continue this run, or choose "
            "another folder for --out."
        )
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged; delete the folder {work}, or choose another folder for --out."
        ) from error
    if saved != asdict(plan):
        raise UserError(
            f"{work.parent} contains a training run with different settings; use the same settings, or "
            "choose another folder for --out."
        )


def save_plan(plan: TrainingPlan, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / PLAN).write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")


class StageClock:
    """The time limit and the progress bar of one stage.

    Args:
        seconds: The time limit, which includes earlier, interrupted runs; None for no limit.
        spent: Seconds that earlier, interrupted runs took.
        total: Total amount of work, in any unit; None if only the time limit ends the stage.
        done: Work that earlier runs did.
    """

    def __init__(
        self,
        name: str,
        seconds: float | None = None,
        spent: float = 0.0,
        total: float | None = None,
        done: float = 0.0,
    ):
        self._seconds, self._total, self.done = seconds, total, done
        self._created, self._begun = now(), now() - spent
        self._tokens = 0
        self._bar = tqdm(desc=name, total=1.0, initial=self.progress, bar_format=BAR, miniters=0)

    @property
    def spent(self) -> float:
        """The seconds that the stage has taken so far, including earlier runs."""
        return now() - self._begun

    @property
    def expired(self) -> bool:
        return self._seconds is not None and self.spent >= self._seconds

    @property
    def progress(self) -> float:
        """The share of the work done or of the time used, whichever is larger, from 0 to 1."""
        if self.expired:
            return 1.0
        of_work = self.done / self._total if self._total else 0.0
        return min(1.0, max(of_work, self.spent / self._seconds if self._seconds else 0.0))

    def advance(self, tokens: int, work: float) -> None:
        self.done += work
        self._tokens += tokens
        rate = self._tokens / max(1e-9, now() - self._created)
        self._bar.set_postfix_str(f"{self._tokens:,} tokens, {rate:,.0f} tokens/s", refresh=False)
        self._bar.update(max(0.0, self.progress - self._bar.n))

    def close(self) -> None:
        self._bar.update(1.0 - self._bar.n)
        self._bar.close()
