"""Measurement of pass costs before runs: v(n) of the target, and c of each drafter."""

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdemo.engine.draft_length import FixedLength
from specdemo.engine.drafter import Drafter, PickingRule
from specdemo.models.batch_invariance import (
    ROWS,
    find_batch_invariant_rows,
    half_filled_runtime,
    is_batch_invariant,
    random_ids,
)
from specdemo.models.execution import CausalLM, WholeModel
from specdemo.models.runtime import MAX_ROWS, ModelRuntime, Stopwatch
from specdemo.records.spread import scatter
from specdemo.records.trace import Calibration

if TYPE_CHECKING:  # needs Triton
    from specdemo.engine.recorded_round import RecordedRounds

TARGET_ALONE = ""  # the key of the costs of the target alone in ``PassCosts.known``
CAPACITY = 256  # cache length at which costs are measured: a short prompt and its answer
REPEATS = 5
MIN_REPEATS = 3
MAX_SECONDS = 2.0  # per measurement, for which a visitor may be waiting; slow machines repeat less often
MAX_CHOICE_S = 0.3
SEVERAL = 4  # rows of a usual verification
DRAFTED = 4  # tokens in each measured draft
NEGLIGIBLE = 1.02  # costs within this factor count as equal


@dataclass
class PassCosts:
    """The measured pass costs of a loaded pair."""

    # By drafter kind; those of the target alone under ``TARGET_ALONE``.
    known: dict[str, Calibration] = field(default_factory=dict)
    _rows: tuple[int, ...] | None = None

    def of_target(self, target: WholeModel) -> Calibration:
        """Return the costs of the target alone, measured on first use."""
        if TARGET_ALONE not in self.known:
            if self._rows is None:
                self._rows = () if is_batch_invariant(target) else find_batch_invariant_rows(target)
            self.known[TARGET_ALONE] = measure_target(target, self._rows)
        return self.known[TARGET_ALONE]


def choose_threads(model: WholeModel) -> None:
    """Choose the numbers of threads of compiled passes, by measuring for up to ``MAX_CHOICE_S`` each."""
    if not is_batch_invariant(model) or next(model.parameters()).device.type != "cpu":
        return
    from specdemo.models.threads import choice

    ids = random_ids(model, SEVERAL)
    runtime = half_filled_runtime(model, ids, CAPACITY)
    for rows in (1, SEVERAL):
        choice(rows).settle(timed_pass(runtime, ids[:rows]), MAX_CHOICE_S)


def measure_target(model: CausalLM, invariant: Collection[int]) -> Calibration:
    """Return the target's pass costs at half the length of a cache of ``CAPACITY``, with c = 0.

    A pass over n tokens is padded to about the cheapest of the ``invariant`` row counts that are at least n.
    """
    longest = min((n for n in invariant if n >= ROWS), default=ROWS)
    invariant = [n for n in sorted(invariant) if n <= longest]
    ids = random_ids(model, MAX_ROWS)
    runtime = half_filled_runtime(model, ids, CAPACITY)
    counts = range(1, ROWS + 1)
    tried = {1, *invariant} if invariant else set(counts)
    times = interleaved({n: timed_pass(runtime, ids[:n]) for n in tried}, REPEATS, MAX_SECONDS)
    cost = {n: statistics.median(seconds) for n, seconds in times.items()}
    if not invariant:
        # A pass over fewer tokens takes no longer. If it did, other work disturbed its measurement.
        cost = {n: min(cost[more] for more in counts if more >= n) for n in counts}
    rows = tuple(_cheapest(cost, [n for n in invariant if n >= count]) for count in counts if invariant)
    return Calibration(
        step_s=cost[1],
        c=0.0,
        v=tuple(cost[n] / cost[1] for n in rows or counts),
        row_floor=rows[0] if rows else None,
        rows=rows,
        scatter=statistics.median(map(scatter, times.values())),
    )


@torch.inference_mode()
def measure_draft(
    costs: Calibration,
    target: ModelRuntime,
    drafter: Drafter,
    rule: PickingRule,
    recorded: "RecordedRounds | None" = None,
) -> Calibration:
    """Return the target's ``costs`` with the c of ``drafter``: the median over drafts of ``DRAFTED`` tokens.

    Drafts and target passes are measured alternately, with a text of half of ``CAPACITY`` tokens. If given,
    ``recorded`` are the lane's rounds with drafts of this length.
    """
    ids = random_ids(target.model, CAPACITY // 2)
    target.begin(CAPACITY)
    target.prefill(ids[:-1])
    text = ids.tolist()
    drafter.begin(CAPACITY)
    drafter.prefill(text[:-1])
    length = FixedLength(DRAFTED)
    passes: list[float] = []

    def draft() -> float:
        length.start(DRAFTED)
        if recorded is not None:
            watch = Stopwatch(target.device)
            recorded.run(text, length, watch).results.tolist()
            drafted_s, verified_s = watch.laps()
            drafter.observe(0)
            target.rollback(len(text))
            passes.append(verified_s / costs.v[DRAFTED] * costs.v[0])
            text.append(text[-1])
            return drafted_s
        begin = time.perf_counter()
        drafter.propose(text, length, rule).ids.tolist()
        drafted = time.perf_counter()
        # As in a run, the text grows by one token, which the target processes.
        drafter.observe(0)
        target.forward(torch.tensor(text[-1:], device=target.device))[-1, 0].item()
        passes.append(time.perf_counter() - drafted)
        text.append(text[-1])
        return drafted - begin

    (seconds,) = interleaved({DRAFTED: draft}, REPEATS, MAX_SECONDS).values()
    step_s = statistics.median(passes[1:]) / costs.v[0]  # the first turn is not counted
    c = statistics.median(seconds) / DRAFTED / step_s
    return replace(costs, c=c, scatter=max(costs.scatter, scatter(seconds)))


def interleaved(
    measures: Mapping[int, Callable[[], float]], repeats: int, max_seconds: float = math.inf
) -> dict[int, list[float]]:
    """Return the seconds of each measurement, repeated in random order so that a slow moment favors none.

    A first turn does not count. After ``max_seconds``, ``MIN_REPEATS`` turns are enough.
    """
    order = random.Random(0)
    times: dict[int, list[float]] = {n: [] for n in measures}
    for turn in range(repeats + 1):
        if turn > MIN_REPEATS and sum(map(sum, times.values())) > max_seconds:
            break
        for n in order.sample(list(measures), len(measures)):
            seconds = measures[n]()
            if turn:
                times[n].append(seconds)
    return times


def timed_pass(runtime: ModelRuntime, chunk: Tensor) -> Callable[[], float]:
    """Return a function that runs a pass over ``chunk``, rolls it back, and returns the pass's seconds."""
    start = runtime.length

    def seconds() -> float:
        begin = time.perf_counter()
        runtime.forward(chunk)[-1, 0].item()
        elapsed = time.perf_counter() - begin
        runtime.rollback(start)
        return elapsed

    return seconds


def _cheapest(cost: Mapping[int, float], counts: list[int]) -> int:
    """Return the smallest of ``counts`` whose cost is within ``NEGLIGIBLE`` of the cheapest."""
    best = min(cost[n] for n in counts)
    return next(n for n in counts if cost[n] <= NEGLIGIBLE * best)
