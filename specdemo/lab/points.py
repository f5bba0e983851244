"""The names of the lab's experiments, and their results: a record for each point, tables as CSV and JSON.

This module does not import torch.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from specdemo.records.trace import dump

DRAFT_LENGTH = "draft-length"
TEMPERATURE = "temperature"
CATEGORY = "category"
DRAFTER = "drafter"
DRAFT_QUALITY = "draft-quality"
DRAFT_COST = "draft-cost"
SWEEPS = (DRAFT_LENGTH, TEMPERATURE, CATEGORY, DRAFTER, DRAFT_QUALITY, DRAFT_COST)
CONTRASTS = "contrasts"
THROUGHPUT = "throughput"
EXPERIMENTS = (*SWEEPS, CONTRASTS, THROUGHPUT)
"""The names of all experiments."""
TITLES = {
    DRAFT_LENGTH: "Draft length",
    TEMPERATURE: "Temperature",
    CATEGORY: "Kind of text",
    DRAFTER: "Drafter",
    DRAFT_QUALITY: "Draft quality",
    DRAFT_COST: "Draft cost",
    CONTRASTS: "What helps, what hurts",
    THROUGHPUT: "Speedup of a batch",
}
HELPS, HURTS = "helps", "hurts"
"""The two sides of a contrast."""


@dataclass(frozen=True)
class SweepPoint:
    """One setting, measured on several prompts.

    Each figure is a median over the prompts for which it is defined.

    Attributes:
        x: The setting's position on the sweep's axis; None if the setting has a name instead of a number.
        label: The setting's name.
        runs: The number of prompts; each is measured in a separate race against the baseline.
        speedup, tokens_per_s, baseline_tokens_per_s, s_theory, s_cost, tau: As in ``figures.Totals``.
        speedup_q1, speedup_q3: Quartiles of the speedup over the prompts.
        alpha: Acceptance rate, accepted ÷ compared draft tokens.
        c: Cost of a draft step, in single-token target passes.
        v: Cost of the pass that verifies k draft tokens, in single-token target passes; None if k is
            automatic.
        identical: True if every run wrote the same tokens as its baseline; None under the rejection rule.
    """

    x: float | None
    label: str
    runs: int
    speedup: float | None
    speedup_q1: float | None
    speedup_q3: float | None
    tokens_per_s: float | None
    baseline_tokens_per_s: float | None
    alpha: float | None
    tau: float | None
    c: float | None
    v: float | None
    s_theory: float | None
    s_cost: float | None
    identical: bool | None

    def row(self) -> dict[str, Any]:
        """Return the point as a row of a table."""
        return asdict(self)

    def __str__(self) -> str:
        parts = (
            f"{self.label:<22}{_shown('{:.2f}×', self.speedup):>7}",
            _shown("α {:.0%}", self.alpha),
            _shown("τ {:.2f}", self.tau),
            _shown("{:.1f} tok/s", self.tokens_per_s),
            _shown("alone {:.1f}", self.baseline_tokens_per_s),
            _shown("theory {:.2f}×", self.s_theory),
            f"({self.runs} runs)",
        )
        return "  ".join(parts)


@dataclass(frozen=True)
class ContrastPoint:
    """One side of a contrast.

    Attributes:
        contrast, title: As in ``conditions.Contrast``.
        side: ``HELPS`` or ``HURTS``.
        point: The measured figures of this side.
    """

    contrast: str
    title: str
    side: str
    point: SweepPoint

    def row(self) -> dict[str, Any]:
        """Return the side as a row of a table."""
        return {"contrast": self.contrast, "side": self.side, **self.point.row()}

    def __str__(self) -> str:
        return f"{self.contrast:<23}{self.side:<7}{self.point}"


@dataclass(frozen=True)
class ThroughputPoint:
    """The measured cost of passes over a batch of texts, and the theoretical speedup.

    Attributes:
        rows: Number of texts in the batch.
        k: Draft length.
        alpha: The acceptance rate that the theory assumes.
        single_s, verify_s: Seconds of the target's pass over rows × 1 and over rows × (k + 1) tokens.
        v: Verification cost of the batch, v(k + 1) = ``verify_s`` ÷ ``single_s``.
        c: Cost ratio of the batch: seconds of the draft's pass over rows × 1 tokens ÷ ``single_s``.
        s_theory: Theoretical speedup, E[τ] ÷ (k·c + v).
        baseline_tokens_per_s: Tokens/s of the whole batch without drafts.
        tokens_per_s: Theoretical tokens/s of the whole batch with drafts.
    """

    rows: int
    k: int
    alpha: float
    single_s: float
    verify_s: float
    v: float
    c: float
    s_theory: float
    baseline_tokens_per_s: float
    tokens_per_s: float

    def row(self) -> dict[str, Any]:
        """Return the point as a row of a table."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.rows:>3} × {self.k + 1} tokens  v {self.v:.2f}  c {self.c:.3f}  "
            f"theory {self.s_theory:.2f}×  {self.tokens_per_s:.1f} tok/s  "
            f"alone {self.baseline_tokens_per_s:.1f}"
        )


Point = SweepPoint | ContrastPoint | ThroughputPoint


class Outcome(NamedTuple):
    """The result of a contrast.

    Attributes:
        kind: "expected", "close" or "unexpected".
        text: A sentence for the visitor.
    """

    kind: str
    text: str


CLOSE = 1.05
"""Two speedups count as equal if one is less than this many times the other."""


def outcome(helps: SweepPoint, hurts: SweepPoint) -> Outcome:
    """Compare the speedup of the side that should help with that of the side that should hurt."""
    if helps.speedup is None or hurts.speedup is None:
        return Outcome("close", "No result: a speedup is missing.")
    ratio = helps.speedup / hurts.speedup
    if max(ratio, 1 / ratio) < CLOSE:
        return Outcome("close", "Too close to tell: within 5% of each other.")
    if ratio < 1:
        return Outcome("unexpected", f"Not as expected: the other side is {1 / ratio:.1f} times as fast.")
    return Outcome("expected", f"As expected: {ratio:.1f} times as fast as the other side.")


def points_csv(points: Sequence[Point]) -> str:
    """Return the points as CSV with a header row; undefined values are empty."""
    rows = [point.row() for point in points]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def points_json(points: Sequence[Point], about: Mapping[str, Any]) -> str:
    """Return a JSON object on one line: ``about`` (the machine, models and runs) and ``points``."""
    return dump({"about": dict(about), "points": [point.row() for point in points]})


def _shown(pattern: str, value: float | None) -> str:
    return "–" if value is None else pattern.format(value)
