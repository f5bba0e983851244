"""Whether a model's matrix products sum a row alike however many rows come with it.

A sum of floats depends on the order of its terms, and kernels choose that order by the number of rows.
Rounding to bf16 hides nearly every such difference: one in 17,000 results was seen to differ, too few to
turn up in a few passes and enough to change a text in three. Here the terms of every sum therefore
cancel. What is left of them is nothing but what rounding made of them on the way, so that another order
shows in a good part of the results.
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from specdemo.models.packed_linear import GROUP, PackedLinear

MOST_OUTPUTS = 4096
"""Different rows of a weight; where it has more they repeat."""
MOST_WEIGHTS = 2**26
"""Weights of a layer tried here; of a larger one (a head over a long vocabulary) the first outputs are."""
SPREAD = 12
"""Powers of two over which inputs are spread: equal sizes would add up without any rounding."""


class Product(NamedTuple):
    """What a kernel may be chosen by."""

    kind: type[nn.Module]
    outputs: int
    inputs: int
    biased: bool
    dtype: torch.dtype
    device: torch.device


def alike(model: nn.Module, reference: int, candidates: Iterable[int]) -> set[int]:
    """Those ``candidates`` whose rows every linear layer of ``model`` sums as it does ``reference`` rows."""
    counts = set(candidates)
    most, threads = max(counts | {reference}), torch.get_num_threads()
    agreeing = [_agreeing_pairs(product, most, threads) for product in products(model)]
    return {
        count
        for count in counts
        if all((min(count, reference), max(count, reference)) in pairs for pairs in agreeing)
    }


def products(model: nn.Module) -> set[Product]:
    """The different products of a model's linear layers."""
    found = set()
    for layer in model.modules():
        if isinstance(layer, PackedLinear):
            shape, dtype, device = layer.shape, layer.dtype, torch.device("cpu")
        elif type(layer) is nn.Linear and not layer.weight.is_meta and layer.weight.is_floating_point():
            shape, dtype, device = layer.weight.shape, layer.weight.dtype, layer.weight.device
        else:
            continue
        outputs = min(shape[0], max(1, MOST_WEIGHTS // shape[1]))
        found.add(Product(type(layer), outputs, shape[1], layer.bias is not None, dtype, device))
    return found


@cache
@torch.inference_mode()
def _agreeing_pairs(product: Product, most: int, threads: int) -> frozenset[tuple[int, int]]:
    """Which two numbers of rows, up to ``most``, agree in what both have, the smaller number first.

    Kernels are chosen by the number of ``threads`` too.
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
    """A weight [outputs, inputs] and inputs [rows, inputs] whose products are sums of 0.

    Inputs are paired at random within every ``GROUP``, with equal weights and opposite values, so that both
    of a pair seldom meet in a partial sum; one that is left over is 0. The weights are few whole numbers,
    which bf16, fp16 and what is rounded by the group hold exactly.
    """
    generator = torch.Generator().manual_seed(0)
    weight = torch.zeros(min(outputs, MOST_OUTPUTS), inputs, dtype=dtype)
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


def _layer(product: Product, weight: Tensor) -> nn.Module:
    bias = weight.new_zeros(len(weight)) if product.biased else None
    if issubclass(product.kind, PackedLinear):
        return product.kind(weight, bias)
    layer = nn.Linear(product.inputs, product.outputs, bias=product.biased, device="meta")
    layer.weight = nn.Parameter(weight.to(product.device), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.to(product.device), requires_grad=False)
    return layer
