"""Measure a loaded pair once: which numbers of rows make passes agree bit for bit, and what passes cost.

Everything here runs before the clocks of a run start. Knows models only as runtimes.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.draft_length import FixedLength
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import PickingRule
from specdemo.models.execution import CausalLM
from specdemo.models.runtime import MOST_ROWS, ModelRuntime
from specdemo.models.summation import alike
from specdemo.records.limits import MAX_K
from specdemo.records.strict_json import Rebuilder, fitting
from specdemo.records.trace import Calibration

ROWS = MAX_K + 1
"""Tokens of the longest pass of a run."""
REPEATS = 3
MOST_BATCHES = 6
AGREED, ALIKE = 1.05, 1.2
"""Batches are believed once their medians are within the first factor together and the second each."""
CHECKED = 5
"""Tokens of the pass by which costs kept from an earlier start are checked."""
STILL = 1.25
"""Factor within which they count as the same."""
PADDING_S = 0.5
FEWEST_TURNS = 4
"""How long, and at least how often, passes with and without padding take turns to be compared."""
DRAFTED = 4
NEARLY = 1.02
"""Costs within this factor are the same to a measurement."""


def find_good_rows(model: CausalLM, capacity: int, vocab_size: int) -> tuple[int, ...]:
    """The numbers of rows, 1 to ``MOST_ROWS``, whose passes agree with each other bit for bit.

    They are a set rather than everything from some number on: kernels cut rows into tiles, and a number
    that leaves a small tile over may be summed in another order than its neighbours (seven rows in six and
    one, say). Matrix products are tried on sums that show it, then whole passes for all that is around them.

    Args:
        model: Loaded with the grouped attention.
        capacity: The cache length to test; the answer holds for this length only.
        vocab_size: Ids are drawn below this.

    Returns:
        The largest such set that holds a pass of ``ROWS`` tokens; empty where there is none, and runs are
        audited instead.
    """
    ids = _some_ids(model, capacity // 2 + 3 * MOST_ROWS, vocab_size)
    runtime = ModelRuntime(model)
    _fill(runtime, ids[: capacity // 2], capacity)
    found: list[tuple[int, ...]] = []
    for reference in range(MOST_ROWS, ROWS - 1, -1):
        if not any(reference in rows for rows in found):
            candidates = alike(model, reference, range(1, MOST_ROWS + 1))
            found.append(_agreeing(runtime, ids[capacity // 2 :], reference, sorted(candidates)))
    return max(found, key=len)


def measure_target(model: CausalLM, capacity: int, vocab_size: int, good: Iterable[int]) -> Calibration:
    """Pass times at half a cache's length, as a ``Calibration`` without a draft (c = 0).

    A pass over n tokens is given the cheapest of the ``good`` numbers of rows that hold it, in both lanes.
    The unit of all costs is such a pass over one token, less what padding costs it.
    """
    good = sorted(good)
    start = capacity // 2
    ids = _some_ids(model, start + MOST_ROWS, vocab_size)
    runtime = ModelRuntime(model)
    _fill(runtime, ids[:start], capacity)
    counts = range(1, ROWS + 1)
    tried = {1, *good} if good else counts
    cost = steady_medians({n: timed_pass(runtime, ids[start : start + n]) for n in tried})
    rows = tuple(_cheapest(cost, [n for n in good if n >= count]) for count in counts if good)
    taken = rows or counts
    step_s = cost[taken[0]] / _padding_cost(runtime, ids[start:], taken[0])
    # More tokens than one can always be had by as many passes over one.
    v = tuple(min(cost[n], count * cost[taken[0]]) / step_s for count, n in enumerate(taken, 1))
    return Calibration(step_s=step_s, c=0.0, v=v, row_floor=rows[0] if rows else None, rows=rows)


def refreshed(model: CausalLM, capacity: int, vocab_size: int, costs: Calibration) -> Calibration | None:
    """Costs measured before with today's ``step_s`` and cost of padding.

    None if passes as they are padded no longer agree bit for bit, or what is said of longer ones is untrue.
    """
    start = capacity // 2
    ids = _some_ids(model, start + 3 * MOST_ROWS, vocab_size)
    runtime = ModelRuntime(model)
    _fill(runtime, ids[:start], capacity)
    used = set(costs.rows)
    if used and used - set(_agreeing(runtime, ids[start:], max(used), used)):
        return None
    runtime.rows = costs.rows
    cost = steady_medians({n: timed_pass(runtime, ids[start : start + n]) for n in (1, CHECKED)})
    before, now = costs.v[CHECKED - 1] / costs.v[0], cost[CHECKED] / cost[1]
    if not 1 / STILL <= now / before <= STILL:
        return None
    runtime.rows = ()
    padding = _padding_cost(runtime, ids[start:], costs.rows[0] if costs.rows else 1)
    v = tuple(passes / costs.v[0] * padding for passes in costs.v)
    return replace(costs, step_s=cost[1] / padding, v=v)


def _padding_cost(runtime: ModelRuntime, ids: Tensor, rows: int) -> float:
    """How many times as long a pass over ``rows`` tokens takes as one over a single token; at least 1.

    What speedups are told against stands or falls with it, so that it is measured by itself and in turns.
    """
    if rows == 1:
        return 1.0
    passes = {count: timed_pass(runtime, ids[:count]) for count in (1, rows)}
    cost = medians_in_turns(passes, _turns_for(PADDING_S), random.Random(0))
    return max(1.0, cost[rows] / cost[1])


def _turns_for(seconds: float) -> Iterator[int]:
    """``FEWEST_TURNS`` turns, and further ones for as long as ``seconds`` have not passed."""
    until = time.perf_counter() + seconds
    for turn in itertools.count():
        if turn >= FEWEST_TURNS and time.perf_counter() >= until:
            return
        yield turn


def calibration_from(kept: Any) -> Calibration | None:
    """A calibration from what ``dataclasses.asdict`` made of it and JSON of that; None where it is none."""
    found = fitting(_READ, kept)
    if found is None:
        return None
    positive = found.step_s > 0 and found.c >= 0 and len(found.v) == ROWS and min(found.v) > 0
    holding = len(found.rows) in (0, ROWS) and all(
        tokens <= rows <= MOST_ROWS for tokens, rows in enumerate(found.rows, 1)
    )
    return found if positive and holding else None


_READ = Rebuilder({"v": ROWS, "rows": ROWS}, 0, {}).reader(Calibration)


@torch.inference_mode()
def measure_draft_step(
    target: ModelRuntime, drafter: Drafter, rule: PickingRule, capacity: int, vocab_size: int
) -> float:
    """Seconds per token of a draft of ``DRAFTED`` tokens at half a cache's length."""
    ids = _some_ids(target.model, capacity // 2, vocab_size)
    _fill(target, ids[:-1], capacity)
    text = ids.tolist()
    drafter.begin(text, capacity)
    length = FixedLength(DRAFTED)

    def draft() -> float:
        begin = time.perf_counter()
        length.start(DRAFTED)
        drafter.propose(text, length, rule).ids.tolist()
        seconds = time.perf_counter() - begin
        # As in a run, where every round adds a token that the target has passed over.
        drafter.observe(0)
        target.forward(torch.tensor(text[-1:], device=target.device))[-1, 0].item()
        text.append(text[-1])
        return seconds

    return steady_medians({DRAFTED: draft})[DRAFTED] / DRAFTED


def steady_medians(measures: Mapping[int, Callable[[], float]]) -> dict[int, float]:
    """Seconds of each measure: medians of batches, repeated until two batches in a row agree.

    Whatever disturbs a machine makes it slower, so the lower median counts, and of a machine that never
    rests the lowest.
    """
    order = random.Random(0)
    for measure in measures.values():
        measure()  # the first time anything runs it is slower
    best: dict[int, float] = {}
    for batch in range(MOST_BATCHES):
        medians = medians_in_turns(measures, range(REPEATS), order)
        steady = batch > 0 and all(medians[n] <= ALIKE * best[n] for n in measures)
        steady = steady and sum(medians.values()) <= AGREED * sum(best.values())
        best = {n: min(medians[n], best.get(n, medians[n])) for n in measures}
        if steady:
            break
    return best


def medians_in_turns(
    measures: Mapping[int, Callable[[], float]], turns: Iterable[object], order: random.Random
) -> dict[int, float]:
    """Median seconds of each measure, made once in each of ``turns``.

    Every turn has another order, from ``order``: neither a slow moment nor a neighbour favours any.
    """
    times: dict[int, list[float]] = {n: [] for n in measures}
    for _ in turns:
        for n in order.sample(list(measures), len(measures)):
            times[n].append(measures[n]())
    return {n: statistics.median(seconds) for n, seconds in times.items()}


def _cheapest(cost: Mapping[int, float], numbers: list[int]) -> int:
    """The smallest of ``numbers`` that costs hardly more than the cheapest of them."""
    best = min(cost[n] for n in numbers)
    return next(n for n in numbers if cost[n] <= NEARLY * best)


def _agreeing(
    runtime: ModelRuntime, ids: Tensor, reference: int, candidates: Iterable[int]
) -> tuple[int, ...]:
    """Those numbers of rows whose passes agree with passes of ``reference`` rows over ``ids``.

    The reference decodes all of ``ids``. A candidate of m rows decodes m tokens, then one token with m - 1
    rows of padding; the reference goes on from there, which proves that the cache entries agree as well.
    """
    start = runtime.length

    def decode(sizes: Iterable[int], padded: Mapping[int, int]) -> Tensor:
        runtime.rollback(start)
        parts, at = [], 0
        for size in sizes:
            runtime.rows = tuple(padded.get(n, n) for n in range(1, MOST_ROWS + 1))
            parts.append(runtime.forward(ids[at : at + size]))
            at += size
        return torch.cat(parts)

    try:
        expected = decode([reference] * 3, {})
        return tuple(
            rows
            for rows in candidates
            if torch.equal(found := decode([rows, 1, reference], {1: rows}), expected[: len(found)])
        )
    finally:
        runtime.rows = ()
        runtime.rollback(start)


def _fill(runtime: ModelRuntime, ids: Tensor, capacity: int) -> None:
    runtime.prepare(capacity, MOST_ROWS)
    runtime.prefill(ids)


def timed_pass(runtime: ModelRuntime, chunk: Tensor) -> Callable[[], float]:
    """The seconds of a pass over ``chunk`` from where the runtime stands, each time anew."""
    start = runtime.length

    def seconds() -> float:
        begin = time.perf_counter()
        runtime.forward(chunk)[-1, 0].item()
        elapsed = time.perf_counter() - begin
        runtime.rollback(start)
        return elapsed

    return seconds


def _some_ids(model: CausalLM, count: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (count,), generator=generator).to(next(model.parameters()).device)
