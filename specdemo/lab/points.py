"""The lab's experiments and their results: names, points, tables. Does not import torch."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from specdemo.records.sentences import count
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


@dataclass(frozen=True)
class SweepPoint:
    """The medians of one setting's figures over its prompts; see ``figures.Totals`` for the figures.

    ``speedup`` and both tokens/s are those of one run, from ``measuring.median_run``.
    """

    x: float | None  # None if the setting has a name instead of a number
    label: str
    runs: int  # one for each prompt
    speedup: float | None
    speedup_q1: float | None
    speedup_q3: float | None
    tokens_per_s: float | None
    baseline_tokens_per_s: float | None
    alpha: float | None
    tau: float | None
    c: float | None
    v: float | None  # cost of verifying k draft tokens; None if k is automatic
    s_theory: float | None
    s_cost: float | None
    identical: bool | None  # None under the rejection rule
    disturbed: bool = False  # other work disturbed the run whose speedup is shown

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        parts = (
            f"{self.label:<22}{_shown('{:.2f}×', self.speedup):>7}{' (disturbed)' if self.disturbed else ''}",
            _shown("α {:.0%}", self.alpha),
            _shown("τ {:.2f}", self.tau),
            _shown("{:.1f} tok/s", self.tokens_per_s),
            _shown("alone {:.1f}", self.baseline_tokens_per_s),
            _shown("theory {:.2f}×", self.s_theory),
            f"({count(self.runs, 'run')})",
        )
        return "  ".join(parts)


@dataclass(frozen=True)
class ContrastPoint:
    contrast: str
    title: str
    side: str
    point: SweepPoint

    def row(self) -> dict[str, Any]:
        return {"contrast": self.contrast, "side": self.side, **self.point.row()}

    def __str__(self) -> str:
        return f"{self.contrast:<23}{self.side:<7}{self.point}"


@dataclass(frozen=True)
class ThroughputPoint:
    """The measured cost of passes over a batch of texts, and the theoretical speedup."""

    rows: int  # texts in the batch
    k: int
    alpha: float  # the rate that the theory assumes
    single_s: float  # the target's pass over rows × 1 tokens
    verify_s: float  # the target's pass over rows × (k + 1) tokens
    v: float  # ``verify_s`` ÷ ``single_s``
    c: float  # the draft's pass over rows × 1 tokens ÷ ``single_s``
    s_theory: float
    baseline_tokens_per_s: float  # of the whole batch
    tokens_per_s: float  # of the whole batch, in theory

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.rows:>3} × {self.k + 1} tokens  v {self.v:.2f}  c {self.c:.3f}  "
            f"theory {self.s_theory:.2f}×  {self.tokens_per_s:.1f} tok/s  "
            f"alone {self.baseline_tokens_per_s:.1f}"
        )


Point = SweepPoint | ContrastPoint | ThroughputPoint


class ContrastResult(NamedTuple):
    kind: str  # "expected", "close" or "unexpected"
    text: str


CLOSE = 1.1
"""Two speedups with a smaller ratio count as equal: identical runs on a busy machine can differ so much."""


def outcome(helps: SweepPoint, hurts: SweepPoint) -> ContrastResult:
    """Compare the speedup of the side that should help with that of the side that should hurt."""
    if helps.speedup is None or hurts.speedup is None:
        return ContrastResult("close", "No result: a speedup is missing.")
    if helps.disturbed or hurts.disturbed:
        return ContrastResult("close", "No result: other work disturbed the runs. Measure again.")
    ratio = helps.speedup / hurts.speedup
    if max(ratio, 1 / ratio) < CLOSE:
        return ContrastResult("close", "Too close to tell: the two speedups differ by less than 10%.")
    if ratio < 1:
        return ContrastResult(
            "unexpected", f"Not as expected: the second side is {1 / ratio:.1f} times as fast."
        )
    return ContrastResult("expected", f"As expected: the first side is {ratio:.1f} times as fast.")


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
