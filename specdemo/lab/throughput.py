"""What a draft is worth to a server: passes over a batch of texts, and the speedup theory leaves them.

One text at a time a target pass waits for its weights to be read, and a few tokens more are free. A batch
reads them once for all texts; the more texts, the more a pass computes, and verification has its price.
Passes are measured, over a cache without text in it, since what it holds does not change the cost; the
speedup is theory (``theory.theoretical_speedup``) with these costs and an acceptance rate measured before.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specdemo.bench.prompts import shipped_prompts
from specdemo.engine.speculate import never
from specdemo.lab.plans import configs_for
from specdemo.lab.points import ThroughputPoint
from specdemo.lab.request import PROMPTS
from specdemo.lab.sweeps import Setting, measure_setting
from specdemo.models.batch import Batch, batch_of
from specdemo.models.runtime import CAPACITY_STEP
from specdemo.pairs.calibrate import interleaved
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.theory import RoundShape, theoretical_speedup
from specdemo.records.trace import USUAL_K

ROWS = (1, 2, 4, 8, 16)
REPEATS = 5


@dataclass(frozen=True)
class ThroughputPlan:
    """What is measured.

    Attributes:
        k: Draft length, 1 to ``MAX_K``.
        rows: Batch sizes.
        alpha: Acceptance rate per compared token; None to measure it first, on a few shipped prompts.
        capacity: Cache length of each text; passes are made at its middle.

    Raises:
        UserError: A value is out of bounds.
    """

    k: int = USUAL_K
    rows: tuple[int, ...] = ROWS
    alpha: float | None = None
    capacity: int = CAPACITY_STEP

    def __post_init__(self) -> None:
        if not isinstance(self.k, int) or not 1 <= self.k <= MAX_K:
            raise UserError(f"A batch needs a fixed k from 1 to {MAX_K}, not {self.k}.")
        if any(rows < 1 for rows in self.rows):
            raise UserError("A batch has at least one text.")
        if self.alpha is not None and not 0.0 <= self.alpha <= 1.0:
            raise UserError(f"The acceptance rate must be from 0 to 1, not {self.alpha:g}.")


def throughput(pair: Pair, plan: ThroughputPlan, stop: Stop = never) -> Iterator[ThroughputPoint]:
    """Measure a batch size after the other, on a pair that has a draft model (``require_draft_model``).

    Args:
        stop: Asked between batch sizes, and once a round where α is measured; True ends it.
    """
    alpha = _measured_alpha(pair, plan.k, stop) if plan.alpha is None else plan.alpha
    for rows in plan.rows:
        if alpha is None or stop():
            return
        yield _point(pair, plan, rows, alpha)


def _measured_alpha(pair: Pair, k: int, stop: Stop) -> float | None:
    request = {"k": k, "drafter": DRAFT_MODEL}
    point = measure_setting(
        pair, Setting(None, "", configs_for(pair, shipped_prompts(PROMPTS), request)), stop
    )
    return None if point is None else point.alpha


def _point(pair: Pair, plan: ThroughputPlan, rows: int, alpha: float) -> ThroughputPoint:
    start = plan.capacity // 2
    assert pair.draft is not None, "asked for by require_draft_model"
    target, draft = (batch_of(model, rows, plan.capacity) for model in (pair.target, pair.draft))

    def timed(batch: Batch, tokens: int, device: torch.device) -> Callable[[], Tensor]:
        ids = torch.zeros(rows, tokens, dtype=torch.long, device=device)
        return lambda: batch.run(ids, start)

    single_s, verify_s, draft_s = median_seconds(
        [
            timed(target, 1, pair.device),
            timed(target, plan.k + 1, pair.device),
            timed(draft, 1, pair.draft_device),
        ]
    )
    c, v = draft_s / single_s, verify_s / single_s
    speedup = theoretical_speedup(alpha, RoundShape(plan.k, plan.k * c, v))
    return ThroughputPoint(
        rows=rows,
        k=plan.k,
        alpha=alpha,
        single_s=single_s,
        verify_s=verify_s,
        v=v,
        c=c,
        s_theory=speedup,
        baseline_tokens_per_s=rows / single_s,
        tokens_per_s=speedup * rows / single_s,
    )


def median_seconds(passes: list[Callable[[], Tensor]]) -> list[float]:
    """Return the median seconds of each pass; the first time it is made does not count."""
    measures = {number: partial(_seconds, one) for number, one in enumerate(passes)}
    return [statistics.median(seconds) for seconds in interleaved(measures, REPEATS).values()]


def _seconds(one: Callable[[], Tensor]) -> float:
    begin = time.perf_counter()
    one()[-1, -1, 0].item()
    return time.perf_counter() - begin
