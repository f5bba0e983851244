"""Batch-invariant row counts of a model: numbers of rows whose passes agree bit for bit."""

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.models.execution import CausalLM
from specdemo.models.layer_views import input_embedding
from specdemo.models.packed_linear import GROUP, PackedLinear
from specdemo.models.runtime import MAX_ROWS, ModelRuntime
from specdemo.records.limits import MAX_K

ROWS = MAX_K + 1
"""Tokens of the longest pass of a run."""
TESTED_CAPACITIES = (256, 2048)
"""Cache lengths at which whole passes are tested."""
MAX_OUTPUTS = 4096
"""Maximum number of different rows of a tested weight; in a larger one they repeat."""
MAX_WEIGHTS = 2**26
"""Maximum size of a tested weight; of a larger one (a head over a large vocabulary) the first outputs are."""
SPREAD = 12
"""Range of the inputs in powers of two: inputs of equal size would be summed without rounding."""


@torch.inference_mode()
def find_batch_invariant_rows(model: CausalLM) -> tuple[int, ...]:
    """Return the row counts, 1 to ``MAX_ROWS``, whose passes agree with each other bit for bit.

    They are a set, not every count from some minimum on: kernels cut rows into tiles, and a count that leaves
    a small tile (such as seven rows, cut into six and one) may be summed in another order. Matrix products
    are tested first, on sums that show a different order, then whole passes at a short and a long cache.

    Args:
        model: Loaded with the grouped attention.

    Returns:
        The largest such set that includes a count of at least ``ROWS``. It is empty if there is none, and
        then runs report their divergences.
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
def half_filled_runtime(model: CausalLM, ids: Tensor, capacity: int) -> ModelRuntime:
    """Return a runtime whose cache is half full of noise: a long prompt without its passes."""
    runtime = ModelRuntime(model)
    runtime.prepare(capacity, MAX_ROWS)
    runtime.prefill(ids[:1])  # a transformers cache has its buffers only after a pass
    for held in runtime.execution.layers(runtime.cache):
        for buffer in held:
            buffer.normal_(generator=torch.Generator(buffer.device).manual_seed(0))
    runtime.length = capacity // 2
    return runtime


def random_ids(model: CausalLM, count: int) -> Tensor:
    """Return ``count`` ids of the model's vocabulary on its device, always the same."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(input_embedding(model).num_embeddings, (count,), generator=generator)
    return ids.to(next(model.parameters()).device)


class Product(NamedTuple):
    """The properties of a linear layer by which its kernel may be chosen."""

    kind: type[nn.Module]
    outputs: int
    inputs: int
    biased: bool
    dtype: torch.dtype
    device: torch.device


def rows_summed_alike(model: nn.Module, reference: int, candidates: Iterable[int]) -> set[int]:
    """Return the ``candidates`` whose rows every linear layer sums as it does ``reference`` rows.

    A sum of floats depends on the order of its terms, and kernels choose that order by the number of rows.
    Rounding to bf16 hides nearly every such difference: one in 17,000 results was seen to differ, too few to
    appear in a few passes and enough to change one text in three. Here the terms of every sum therefore
    cancel. Only rounding error remains, so another order shows in many results.
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
    """Return the different products of a model's linear layers."""
    found = set()
    for layer in model.modules():
        if isinstance(layer, PackedLinear):
            shape, dtype, device = layer.shape, layer.dtype, torch.device("cpu")
        elif type(layer) is nn.Linear and not layer.weight.is_meta and layer.weight.is_floating_point():
            shape, dtype, device = layer.weight.shape, layer.weight.dtype, layer.weight.device
        else:
            continue
        outputs = min(shape[0], max(1, MAX_WEIGHTS // shape[1]))
        found.add(Product(type(layer), outputs, shape[1], layer.bias is not None, dtype, device))
    return found


@cache
@torch.inference_mode()
def _agreeing_pairs(product: Product, most: int, threads: int) -> frozenset[tuple[int, int]]:
    """Return the pairs of row counts up to ``most`` whose common rows agree, the smaller count first.

    ``threads`` is part of the cache key, because kernels are chosen by the number of threads too.
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
    """Return a weight [outputs, inputs] and inputs [rows, inputs] whose products are sums of 0.

    Inputs are paired at random within every ``GROUP``, with equal weights and opposite values, so that both
    of a pair seldom meet in a partial sum; an input without a partner is 0. The weights are a few whole
    numbers, which bf16, fp16 and group-wise rounding hold exactly.
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
    if issubclass(product.kind, PackedLinear):
        return product.kind(weight, bias)
    device = product.device
    return partial(F.linear, weight=weight.to(device), bias=None if bias is None else bias.to(device))
