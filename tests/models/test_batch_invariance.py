"""The self-test finds row counts for which a kernel sums in another order, even if results seldom differ."""

import math

import pytest
import torch
from helpers.tiny import tiny_llama
from torch import nn

from specdemo.models import batch_invariance
from specdemo.models.attention import attend, group_mask
from specdemo.models.batch_invariance import GROUP, cancelling, find_batch_invariant_rows, rows_summed_alike
from specdemo.models.runtime import ModelRuntime

INPUTS = 8 * GROUP


def summed_in(reverse):
    """Return a product in fp32, rounded to bf16, whose sums go backwards for the row counts ``reverse``."""

    def product(inputs, weight, bias=None):
        terms = inputs.float()[:, None] * weight.float()
        total = torch.zeros(terms.shape[:-1])
        for term in (terms.flip(-1) if len(inputs) in reverse else terms).unbind(-1):
            total = total + term
        return total.to(inputs.dtype)

    return product


def model_of(outputs: int) -> nn.Module:
    # Results are kept for each shape, so each product has a shape of its own.
    return nn.Sequential(nn.Embedding(4, INPUTS), nn.Linear(INPUTS, outputs).bfloat16())


def test_a_row_count_that_is_summed_in_another_order_is_excluded(monkeypatch):
    monkeypatch.setattr(batch_invariance.F, "linear", summed_in({1}))
    assert rows_summed_alike(model_of(95), 16, range(1, 17)) == set(range(2, 17))
    assert rows_summed_alike(model_of(95), 1, range(1, 17)) == {1}
    monkeypatch.setattr(batch_invariance.F, "linear", summed_in(()))
    assert rows_summed_alike(model_of(97), 16, range(1, 17)) == set(range(1, 17))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("inputs", [3, GROUP // 2, GROUP, 5 * GROUP + 7])
def test_all_sums_are_zero_and_every_paired_input_counts(inputs, dtype):
    weight, values = cancelling(5000, inputs, 3, dtype)
    assert weight.shape == (5000, inputs) and values.shape == (3, inputs)
    assert weight.dtype == values.dtype == dtype
    assert torch.equal(weight.half().to(dtype), weight) and torch.equal(weight.bfloat16().to(dtype), weight)
    for row in values:
        assert all(math.fsum(terms) == 0 for terms in (weight[:20] * row).tolist())
    assert (values == 0).sum(1).tolist() == [inputs % 2] * 3


def off_by(error):
    """Return a forward pass with an ``error`` for its runtime and number of rows."""

    def forward(self, ids):
        self.length += len(ids)
        return ids[:, None].double() + float(error(self, self.padded(len(ids))))

    return forward


ALL = set(range(1, 17))


@pytest.fixture
def products(monkeypatch):
    """Return the row counts that a product excludes: none, until a test adds some."""
    excluded = set()
    monkeypatch.setattr(
        batch_invariance, "rows_summed_alike", lambda model, reference, counts: {*counts} - excluded
    )
    return excluded


@pytest.mark.parametrize(
    ("error", "invariant"),
    [
        # As with tiles of six rows: the rows after whole tiles are summed in another order.
        (lambda runtime, rows: rows in (1, 2, 7, 14), ALL - {1, 2, 7, 14}),
        (lambda runtime, rows: rows > 14, ALL - {15, 16}),
        (lambda runtime, rows: 0, ALL),
        (lambda runtime, rows: torch.rand(1), set()),
        # Counts must agree at a short and at a long cache length.
        (lambda runtime, rows: runtime.capacity > 256 and rows == 3, ALL - {3}),
    ],
)
def test_invariant_row_counts_are_the_largest_set_with_the_longest_pass(
    error, invariant, products, monkeypatch
):
    monkeypatch.setattr(ModelRuntime, "forward", off_by(error))
    assert set(find_batch_invariant_rows(tiny_llama(7, 0))) == invariant


def test_a_row_count_must_agree_in_every_product_and_leave_the_same_cache(products, monkeypatch):
    plain = ModelRuntime.forward

    def forward(self, ids):
        logits = plain(self, ids)
        if self.padded(len(ids)) == 5:
            keys, _ = self.execution.layers(self.cache)[0]
            keys[:, :, self.length - 1] += 1
        return torch.zeros_like(logits)

    products |= {1, 9}
    monkeypatch.setattr(ModelRuntime, "forward", torch.inference_mode()(forward))
    assert not {1, 5, 9} & set(find_batch_invariant_rows(tiny_llama(7, 0)))


def test_attention_gives_a_row_the_same_bits_for_any_number_of_rows_and_threads():
    query, key = torch.randn(1, 9, 16, 64), torch.randn(1, 3, 256, 64)
    mask = torch.zeros(16, 256).masked_fill_(torch.arange(256) > torch.arange(100, 116)[:, None], -torch.inf)

    def mixed(rows: int) -> torch.Tensor:
        return attend(query[:, :, :rows], key, key, group_mask(mask[None, None, :rows], 3))

    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            whole = mixed(16)
            assert all(torch.equal(mixed(rows), whole[:, :, :rows]) for rows in range(1, 17))
    finally:
        torch.set_num_threads(before)
