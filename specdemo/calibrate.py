"""Measure a loaded pair once: which row floor makes passes agree bit for bit, and what passes cost.

Everything here runs before the clocks of a run start. Knows models only as runtimes.
"""

import random
import statistics
import time

import torch
from torch import Tensor, nn

from specdemo.drafters import Drafter
from specdemo.lengths import FixedLength
from specdemo.limits import MAX_K
from specdemo.rules import VerificationRule
from specdemo.runtime import ModelRuntime
from specdemo.trace import Calibration

FLOOR_CANDIDATES = (1, 2, 3, 4, 6, 8, 16)
ROWS = MAX_K + 1
REPEATS = 7
DRAFTED = 4
NEARLY = 1.02
"""Costs within this factor are the same to a measurement."""


def find_row_floor(model: nn.Module, capacity: int, vocab_size: int) -> int | None:
    """The smallest row floor at which every pass of 1 to ``MAX_K`` + 1 tokens gives the same bits.

    Each candidate decodes the same ids one by one, then in one pass of n followed by one of the rest,
    for every n, and compares all logits bitwise; the second pass proves that the cache entries
    written by the first agree as well.

    Args:
        model: Loaded with the grouped attention.
        capacity: The cache length to test; the answer holds for this length only.
        vocab_size: Ids are drawn below this.

    Returns:
        The floor, or None where no candidate works (runs are then audited instead).
    """
    ids = _some_ids(model, capacity // 2 + ROWS, vocab_size)
    return next((floor for floor in FLOOR_CANDIDATES if _agrees(model, capacity, ids, floor)), None)


def measure_target(model: nn.Module, capacity: int, vocab_size: int, least_floor: int | None) -> Calibration:
    """Median pass times at half a cache's length, as a ``Calibration`` without a draft (c = 0).

    Any floor from ``least_floor`` (the self-test's answer) on makes passes agree, and some kernels take
    four rows faster than two. The smallest of the fastest for a single token is chosen, for both lanes.
    The unit of all costs is the faster of that pass and one without padding.
    """
    widest = max(ROWS, least_floor or 0)
    ids = _some_ids(model, capacity // 2 + widest, vocab_size)
    start = capacity // 2
    runtime = ModelRuntime(model)
    _fill(runtime, ids[:start], capacity)
    times: dict[int, list[float]] = {n: [] for n in range(1, widest + 1)}
    order = random.Random(0)
    for _ in range(REPEATS + 1):
        # In turns and each time in another order: neither a slow moment nor a neighbour favours any.
        for n in order.sample(list(times), len(times)):
            times[n].append(_pass_s(runtime, ids[start : start + n], start))
    cost = {n: statistics.median(seconds[1:]) for n, seconds in times.items()}
    floor = None if least_floor is None else _smallest_good(cost, least_floor)
    step_s = min(cost[1], cost[floor or 1])
    v = tuple(cost[max(n, floor or 1)] / step_s for n in range(1, ROWS + 1))
    return Calibration(step_s=step_s, c=0.0, v=v, row_floor=floor)


def _smallest_good(cost: dict[int, float], least: int) -> int:
    """The smallest number of rows from ``least`` on that costs hardly more than the cheapest."""
    best = min(seconds for n, seconds in cost.items() if n >= least)
    return next(n for n in sorted(cost) if n >= least and cost[n] <= NEARLY * best)


def measure_draft_step(
    target: ModelRuntime, drafter: Drafter, rule: VerificationRule, capacity: int, vocab_size: int
) -> float:
    """Median seconds per token of a draft of ``DRAFTED`` tokens at half a cache's length."""
    ids = _some_ids(target.model, capacity // 2, vocab_size)
    _fill(target, ids[:-1], capacity)
    text = ids.tolist()
    drafter.begin(text, capacity)
    length = FixedLength(DRAFTED)

    times = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        length.start(DRAFTED)
        drafter.propose(text, length, rule).ids.tolist()
        times.append(time.perf_counter() - begin)
        # As in a run, where every round adds a token that the target has passed over.
        drafter.observe(0)
        target.forward(torch.tensor(text[-1:], device=target.device))[-1, 0].item()
        text.append(text[-1])
    return statistics.median(times[1:]) / DRAFTED


def _agrees(model: nn.Module, capacity: int, ids: Tensor, floor: int) -> bool:
    runtime = ModelRuntime(model, row_floor=floor)
    start = len(ids) - ROWS

    def decode(sizes: list[int]) -> Tensor:
        runtime.rollback(start)
        parts, at = [], start
        for size in sizes:
            parts.append(runtime.forward(ids[at : at + size]))
            at += size
        return torch.cat(parts)

    _fill(runtime, ids[:start], capacity)
    alone = decode([1] * ROWS)
    splits = ([n, ROWS - n] if n < ROWS else [n] for n in range(2, ROWS + 1))
    return all(torch.equal(alone, decode(split)) for split in splits)


def _fill(runtime: ModelRuntime, ids: Tensor, capacity: int) -> None:
    runtime.prepare(capacity, max(FLOOR_CANDIDATES))
    runtime.prefill(ids)


def _pass_s(runtime: ModelRuntime, chunk: Tensor, start: int) -> float:
    begin = time.perf_counter()
    runtime.forward(chunk)[-1, 0].item()
    seconds = time.perf_counter() - begin
    runtime.rollback(start)
    return seconds


def _some_ids(model: nn.Module, count: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (count,), generator=generator).to(next(model.parameters()).device)
