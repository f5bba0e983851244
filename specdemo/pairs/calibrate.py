"""Measure a loaded pair: which row counts give the same bits, and what passes cost.

Everything here runs before the clocks of a run start.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from specdemo.engine.draft_length import FixedLength
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import PickingRule
from specdemo.models.execution import CausalLM
from specdemo.models.runtime import MOST_ROWS, ModelRuntime
from specdemo.models.summation import alike
from specdemo.records.limits import MAX_K
from specdemo.records.trace import Calibration

ROWS = MAX_K + 1
"""Tokens of the longest pass of a run."""
CAPACITY = 256
"""Cache length at which costs are measured: a short prompt and its answer."""
TESTED_CAPACITIES = (256, 2048)
"""Cache lengths at which row counts are tested."""
REPEATS = 5
LEAST_REPEATS = 3
MOST_SECONDS = 2.0
"""Of a measurement that a visitor may be waiting for; a slow machine gets fewer repeats."""
DRAFTED = 4
NEGLIGIBLE = 1.02
"""Costs within this factor count as equal."""


@torch.inference_mode()
def find_batch_invariant_rows(model: CausalLM, vocab_size: int) -> tuple[int, ...]:
    """Return the row counts, 1 to ``MOST_ROWS``, whose passes agree with each other bit for bit.

    They are a set rather than everything from some count on: kernels cut rows into tiles, and a count that
    leaves a small tile over may be summed in another order than its neighbours (seven rows as six and one,
    say). Matrix products are tested on sums that show it, then whole passes at a short and at a long cache
    length.

    Args:
        model: Loaded with the grouped attention.
        vocab_size: Ids are drawn below this.

    Returns:
        The largest such set that holds a pass of ``ROWS`` tokens; empty if there is none, and divergences
        are audited instead.
    """
    ids = _some_ids(model, 2 * MOST_ROWS, vocab_size)
    runtimes = [_filled(model, ids, capacity) for capacity in TESTED_CAPACITIES]
    best: list[int] = []
    for reference in range(MOST_ROWS, ROWS - 1, -1):
        candidates = sorted(alike(model, reference, range(1, MOST_ROWS + 1)))
        if reference in best or len(candidates) <= len(best):
            continue
        for runtime in runtimes:
            candidates = _agreeing(runtime, ids, reference, candidates)
        best = max(best, candidates, key=len)
    return tuple(best)


def measure_target(model: CausalLM, vocab_size: int, invariant: Collection[int]) -> Calibration:
    """Return pass costs at half the length of a cache of ``CAPACITY``, as a ``Calibration`` with c = 0.

    A pass over n tokens gets the cheapest of the ``invariant`` row counts that holds it, in both lanes. The
    unit of all costs is a pass over one token without padding.
    """
    longest = min((n for n in invariant if n >= ROWS), default=ROWS)
    invariant = [n for n in sorted(invariant) if n <= longest]
    ids = _some_ids(model, MOST_ROWS, vocab_size)
    runtime = _filled(model, ids, CAPACITY)
    counts = range(1, ROWS + 1)
    tried = {1, *invariant} if invariant else set(counts)
    times = interleaved({n: timed_pass(runtime, ids[:n]) for n in tried}, REPEATS, MOST_SECONDS)
    cost = {n: statistics.median(seconds) for n, seconds in times.items()}
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
    costs: Calibration, target: ModelRuntime, drafter: Drafter, rule: PickingRule, vocab_size: int
) -> Calibration:
    """Return the target's ``costs`` with the c of ``drafter``: a median over drafts of ``DRAFTED`` tokens.

    Draft steps are compared with target passes made in turn with them. ``target`` and ``drafter`` have room
    for ``CAPACITY`` positions; half of them are filled first.
    """
    ids = _some_ids(target.model, CAPACITY // 2, vocab_size)
    target.begin(CAPACITY)
    target.prefill(ids[:-1])
    text = ids.tolist()
    drafter.begin(text, CAPACITY)
    length = FixedLength(DRAFTED)
    passes: list[float] = []

    def draft() -> float:
        begin = time.perf_counter()
        length.start(DRAFTED)
        drafter.propose(text, length, rule).ids.tolist()
        drafted = time.perf_counter()
        # As in a run, where every round adds a token that the target has passed over.
        drafter.observe(0)
        target.forward(torch.tensor(text[-1:], device=target.device))[-1, 0].item()
        passes.append(time.perf_counter() - drafted)
        text.append(text[-1])
        return drafted - begin

    (seconds,) = interleaved({DRAFTED: draft}, REPEATS, MOST_SECONDS).values()
    step_s = statistics.median(passes[1:]) / costs.v[0]  # the first turn is not counted
    c = statistics.median(seconds) / DRAFTED / step_s
    return replace(costs, c=c, scatter=max(costs.scatter, scatter(seconds)))


def interleaved(
    measures: Mapping[int, Callable[[], float]], repeats: int, most_seconds: float = math.inf
) -> dict[int, list[float]]:
    """Return the seconds of each measure, taken ``repeats`` times after one that does not count.

    Every turn has another order, so that neither a slow moment nor a neighbour favours any. After
    ``most_seconds``, ``LEAST_REPEATS`` are enough.
    """
    order = random.Random(0)
    times: dict[int, list[float]] = {n: [] for n in measures}
    for turn in range(repeats + 1):
        if turn > LEAST_REPEATS and sum(map(sum, times.values())) > most_seconds:
            break
        for n in order.sample(list(measures), len(measures)):
            seconds = measures[n]()
            if turn:
                times[n].append(seconds)
    return times


def scatter(seconds: list[float]) -> float:
    """Return the range between the quartiles of repeated measurements ÷ their median; 0 for fewer than 3."""
    if len(seconds) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return (high - low) / middle


def timed_pass(runtime: ModelRuntime, chunk: Tensor) -> Callable[[], float]:
    """Return a function that makes a pass over ``chunk`` where the runtime stands and returns its seconds."""
    start = runtime.length

    def seconds() -> float:
        begin = time.perf_counter()
        runtime.forward(chunk)[-1, 0].item()
        elapsed = time.perf_counter() - begin
        runtime.rollback(start)
        return elapsed

    return seconds


def _cheapest(cost: Mapping[int, float], counts: list[int]) -> int:
    """Return the smallest of ``counts`` that costs hardly more than the cheapest of them."""
    best = min(cost[n] for n in counts)
    return next(n for n in counts if cost[n] <= NEGLIGIBLE * best)


def _agreeing(runtime: ModelRuntime, ids: Tensor, reference: int, candidates: Iterable[int]) -> list[int]:
    """Return the row counts whose passes agree with two passes of ``reference`` rows over ``ids``.

    A candidate of m rows decodes the m tokens after the first m, so each token is in another row than in the
    reference's passes. Its logits and the cache entries it leaves must be the reference's.
    """
    start = runtime.length
    span = slice(start, start + 2 * reference)
    expected = torch.cat([runtime.forward(ids[:reference]), runtime.forward(ids[reference : 2 * reference])])
    entries = [held[:, :, span] for layer in runtime.execution.layers(runtime.cache) for held in layer]
    expected_entries = [entry.clone() for entry in entries]

    def agrees(rows: int) -> bool:
        runtime.length = start + rows
        logits = runtime.forward(ids[rows : 2 * rows])
        same = torch.equal(logits, expected[rows : 2 * rows]) and all(
            map(torch.equal, entries, expected_entries)
        )
        for entry, correct in zip(entries, expected_entries, strict=True):
            entry.copy_(correct)
        return same

    try:
        return [rows for rows in candidates if agrees(rows)]
    finally:
        runtime.rollback(start)


@torch.inference_mode()
def _filled(model: CausalLM, ids: Tensor, capacity: int) -> ModelRuntime:
    """Return a runtime whose cache is half full of noise: a long prompt without its passes."""
    runtime = ModelRuntime(model)
    runtime.prepare(capacity, MOST_ROWS)
    runtime.prefill(ids[:1])  # a cache of transformers has its buffers after a pass
    for held in runtime.execution.layers(runtime.cache):
        for buffer in held:
            buffer.normal_(generator=torch.Generator(buffer.device).manual_seed(0))
    runtime.length = capacity // 2
    return runtime


def _some_ids(model: CausalLM, count: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (count,), generator=generator).to(next(model.parameters()).device)
