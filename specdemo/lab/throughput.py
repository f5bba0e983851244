"""The speedup of a server that decodes several texts at once: measured passes, theoretical speedup.

With one text, a pass takes as long as reading the weights, so more tokens are almost free. A larger batch
computes more for each read of the weights, so additional tokens to verify cost more.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor

from specdemo.engine.speculate import never
from specdemo.lab.points import ThroughputPoint
from specdemo.models.execution import execution_of
from specdemo.models.runtime import CAPACITY_STEP
from specdemo.pairs.calibrate import interleaved
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.limits import MAX_K, UserError, show
from specdemo.records.theory import RoundShape, theoretical_speedup

ROWS = (1, 2, 4, 8, 16)
REPEATS = 5


def require_batch_length(k: object) -> int:
    """Return ``k`` if it is a fixed draft length; raise ``UserError`` otherwise."""
    if not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise UserError(
            f"The batch experiment needs a fixed draft length k from 1 to {MAX_K}, got {show(k)}."
        )
    return k


def measure_batches(
    pair: Pair, k: int, alpha: float, rows: tuple[int, ...] = ROWS, stop: Stop = never
) -> Iterator[ThroughputPoint]:
    """Yield a point for each batch size, measured on a pair with a draft model; ``alpha`` is for the theory.

    Each pass starts at the middle of a cache of ``CAPACITY_STEP`` positions. The cache contains no text,
    because its content does not affect the time of a pass.
    """
    for size in rows:
        if stop():
            return
        yield _point(pair, k, alpha, size)


def _point(pair: Pair, k: int, alpha: float, rows: int) -> ThroughputPoint:
    assert pair.draft is not None
    target, draft = (execution_of(model).batch(rows, CAPACITY_STEP) for model in (pair.target, pair.draft))

    def batch_pass(
        run: Callable[[Tensor, int], Tensor], tokens: int, device: torch.device
    ) -> Callable[[], Tensor]:
        ids = torch.zeros(rows, tokens, dtype=torch.long, device=device)
        return lambda: run(ids, CAPACITY_STEP // 2)

    single_s, verify_s, draft_s = median_seconds(
        [
            batch_pass(target, 1, pair.device),
            batch_pass(target, k + 1, pair.device),
            batch_pass(draft, 1, pair.draft_device),
        ]
    )
    c, v = draft_s / single_s, verify_s / single_s
    speedup = theoretical_speedup(alpha, RoundShape(k, k * c, v))
    return ThroughputPoint(
        rows=rows,
        k=k,
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
    """Return the median seconds of each function; its first call is not counted."""
    measures = {number: partial(_seconds, one) for number, one in enumerate(passes)}
    return [median(seconds) for seconds in interleaved(measures, REPEATS).values()]


def _seconds(one: Callable[[], Tensor]) -> float:
    begin = time.perf_counter()
    one()[-1, -1, 0].item()
    return time.perf_counter() - begin
