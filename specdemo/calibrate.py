"""Measure a loaded pair once: which row floor makes passes agree bit for bit, and what passes cost.

Everything here runs before the clocks of a run start. Knows models only as runtimes.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from specdemo.limits import MAX_K
from specdemo.runtime import ModelRuntime
from specdemo.trace import Calibration

FLOOR_CANDIDATES = (1, 2, 3, 4, 6, 8, 16)
ROWS = MAX_K + 1
REPEATS = 5


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


def measure(
    target: ModelRuntime, draft: ModelRuntime, capacity: int, vocab_size: int, row_floor: int | None
) -> Calibration:
    """Median pass times at half a cache's length, as a ``Calibration``.

    The draft step includes its argmax, as drafting does. ``row_floor`` is what the self-test found.
    """
    ids = _some_ids(target.model, capacity // 2 + ROWS, vocab_size)
    start = capacity // 2
    _fill(draft, ids[:start], capacity)
    draft_s = _median_s(draft, start, lambda: draft.forward(ids[start : start + 1])[-1].argmax(-1).item())
    _fill(target, ids[:start], capacity)
    passes = [_pass_s(target, ids[start : start + n], start) for n in range(1, ROWS + 1)]
    step_s = passes[0]
    if target.row_floor > 1:
        unpadded = ModelRuntime(target.model)
        _fill(unpadded, ids[:start], capacity)
        step_s = _pass_s(unpadded, ids[start : start + 1], start)
    return Calibration(
        step_s=step_s,
        c=draft_s / step_s,
        v=tuple(seconds / step_s for seconds in passes),
        row_floor=row_floor,
    )


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
    runtime.begin(capacity)
    runtime.prefill(ids)


def _pass_s(runtime: ModelRuntime, chunk: Tensor, start: int) -> float:
    return _median_s(runtime, start, lambda: runtime.forward(chunk)[-1, 0].item())


def _median_s(runtime: ModelRuntime, start: int, once: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS + 1):
        runtime.rollback(start)
        begin = time.perf_counter()
        once()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def _some_ids(model: nn.Module, count: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (count,), generator=generator).to(next(model.parameters()).device)
