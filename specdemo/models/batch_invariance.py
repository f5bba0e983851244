"""Search for a model's batch-invariant row counts: row counts whose passes give bitwise equal results."""

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.models.execution import CausalLM, execution_of
from specdemo.models.layer_views import vocabulary_of
from specdemo.models.runtime import MAX_ROWS, ModelRuntime
from specdemo.records.limits import MAX_K

ROWS = MAX_K + 1  # number of tokens in the longest verification pass of a run
TESTED_CAPACITIES = (256, 2048)  # cache lengths at which whole passes are tested
MAX_OUTPUTS = 4096  # maximum number of different rows of a test weight; in larger ones, they repeat
# Maximum number of elements of a test weight. A larger layer, such as the head of a large vocabulary, is
# tested with fewer outputs.
MAX_WEIGHTS = 2**26
GROUP = 32  # number of neighboring inputs among which the terms of a test sum cancel
SPREAD = 12  # test inputs span this many powers of two; equal magnitudes would be summed without rounding


def is_batch_invariant(model: CausalLM) -> bool:
    """Return whether passes over any number of rows agree by construction, as compiled passes do."""
    return getattr(execution_of(model), "is_batch_invariant", False)


@torch.inference_mode()
def find_batch_invariant_rows(model: CausalLM) -> tuple[int, ...]:
    """Return, in ascending order, row counts up to ``MAX_ROWS`` whose passes all have bitwise equal results.

    They include a count of at least ``ROWS``. If there are no such counts, passes are not padded, and the
    speculative text may diverge from the baseline. The counts need not be consecutive: kernels cut rows into
    tiles, and a count that leaves a small last tile (seven rows are cut into six and one) may be summed in a
    different order. The search first tests single matrix products, with inputs that reveal the order of a
    sum, and then whole passes with a short and a long cache.
    """
    ids = random_ids(model, 2 * MAX_ROWS)
    runtimes = [half_filled_runtime(model, ids, capacity) for capacity in TESTED_CAPACITIES]
    best: list[int] = []
    for reference in range(MAX_ROWS, ROWS - 1, -1):
        candidates = sorted(rows_summed_alike(model, reference, range(1, MAX_ROWS + 1)))
        if reference in best or len(candidates) <= len(best):
            continue
        for runtime in runtimes:
            candidates = _passes_alike(runtime, ids, reference, candidates)
        best = max(best, candidates, key=len)
    return tuple(best)


def _passes_alike(runtime: ModelRuntime, ids: Tensor, reference: int, candidates: Iterable[int]) -> list[int]:
    """Return the ``candidates`` whose logits and cache entries equal those of passes of ``reference`` rows.

    A candidate of m rows processes the second m tokens of ``ids``. So most tokens are in a different row than
    in the two reference passes.
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
def half_filled_runtime(model: CausalLM, ids: Tensor, capacity: int) -> ModelRuntime:
    """Return a runtime whose cache is half filled with random numbers, which replace a long prompt."""
    runtime = ModelRuntime(model)
    runtime.prepare(capacity)
    runtime.prefill(ids[:1])  # a transformers cache allocates its buffers in the first pass
    for held in runtime.execution.layers(runtime.cache):
        for buffer in held:
            buffer.normal_(generator=torch.Generator(buffer.device).manual_seed(0))
    runtime.length = capacity // 2
    return runtime


def random_ids(model: CausalLM, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary_of(model), (count,), generator=generator)
    return ids.to(next(model.parameters()).device)


class Product(NamedTuple):
    """The properties of a linear layer that can affect the choice of its kernel."""

    outputs: int
    inputs: int
    biased: bool
    dtype: torch.dtype
    device: torch.device


def rows_summed_alike(model: nn.Module, reference: int, candidates: Iterable[int]) -> set[int]:
    """Return the row counts for which every linear layer adds in the same order as for ``reference`` rows.

    A rounded sum depends on the order of its terms, and kernels choose that order by the number of rows.
    Rounding to bf16 hides almost all such differences. In one case, 1 of 17,000 results differed: too few to
    appear in a few passes, but enough to change one text in three. Therefore the terms of each test sum
    cancel to 0. The results are then pure rounding errors, so a different order changes many of them.
    """
    counts = set(candidates)
    most, threads = max(counts | {reference}), torch.get_num_threads()
    agreeing = [_agreeing_pairs(product, most, threads) for product in products(model)]
    return {
        count
        for count in counts
        if all((min(count, reference), max(count, reference)) in pairs for pairs in agreeing)
    }


def products(model: nn.Module) -> set[Product]:
    found = set()
    for layer in model.modules():
        if type(layer) is nn.Linear and not layer.weight.is_meta and layer.weight.is_floating_point():
            (outputs, inputs), weight = layer.weight.shape, layer.weight
            outputs = min(outputs, max(1, MAX_WEIGHTS // inputs))
            found.add(Product(outputs, inputs, layer.bias is not None, weight.dtype, weight.device))
    return found


@cache
@torch.inference_mode()
def _agreeing_pairs(product: Product, most: int, threads: int) -> frozenset[tuple[int, int]]:
    """Return all pairs of row counts up to ``most``, smaller first, whose common rows are bitwise equal.

    ``threads`` is part of the cache key, because the number of threads affects the choice of kernels.
    """
    weight, inputs = cancelling(product.outputs, product.inputs, most, product.dtype)
    layer, inputs = _layer(product, weight), inputs.to(product.device)
    found = {count: layer(inputs[:count]) for count in range(1, most + 1)}
    return frozenset(
        (few, many)
        for many in found
        for few in range(1, many + 1)
        if torch.equal(found[few], found[many][:few])
    )


def cancelling(outputs: int, inputs: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a weight [outputs, inputs] and inputs [rows, inputs] whose exact product is 0.

    Within each ``GROUP`` of inputs, random pairs have equal weights and opposite values. The two inputs of a
    pair are seldom neighbors, so they rarely cancel early in a partial sum. An input without a partner is 0.
    Weights are multiples of 1/1024 from −127/1024 to 127/1024, which bf16 and fp16 hold exactly.
    """
    generator = torch.Generator().manual_seed(0)
    weight = torch.zeros(min(outputs, MAX_OUTPUTS), inputs, dtype=dtype)
    values = torch.zeros(rows, inputs, dtype=dtype)
    for start in range(0, inputs, GROUP):
        pairs = min(GROUP, inputs - start) // 2
        one, other = (start + torch.randperm(2 * pairs, generator=generator)).view(2, pairs)
        drawn = torch.randint(-127, 128, (len(weight), pairs), generator=generator) / 1024
        weight[:, one] = weight[:, other] = drawn.to(dtype)
        sizes = torch.randint(SPREAD, (rows, pairs), generator=generator).exp2()
        drawn = (torch.randn(rows, pairs, generator=generator, dtype=torch.float64) * sizes).to(dtype)
        values[:, one], values[:, other] = drawn, -drawn
    return weight.repeat(-(-outputs // len(weight)), 1)[:outputs], values


def _layer(product: Product, weight: Tensor) -> Callable[[Tensor], Tensor]:
    bias = weight.new_zeros(len(weight)) if product.biased else None
    device = product.device
    return partial(F.linear, weight=weight.to(device), bias=None if bias is None else bias.to(device))
