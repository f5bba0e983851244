"""int8 layers of drafts: what they compute, and which layers become them."""

import pytest
import torch
from torch import nn

from specdemo.packed import MULTIPLE, PackedLinear, pack_linears, quantise_rows


def test_quantised_rows_are_within_half_a_step():
    weight = torch.randn(7, 40) * torch.logspace(-3, 3, 7)[:, None]
    rows, scale = quantise_rows(weight)
    assert rows.dtype == torch.int8 and scale.shape == (7, 1)
    assert ((rows * scale - weight).abs() <= scale / 2 * 1.001).all()
    assert (rows.abs().amax(1) == 127).all()


def test_a_row_of_zeros_stays_zero():
    rows, scale = quantise_rows(torch.zeros(2, 32))
    assert (rows * scale == 0).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_packed_layer_computes_what_the_plain_one_does(bias, rows):
    plain = nn.Linear(2 * MULTIPLE, 50, bias=bias).to(torch.bfloat16)
    inputs = torch.randn(1, rows, 2 * MULTIPLE, dtype=torch.bfloat16)
    with torch.inference_mode():
        expected, found = plain(inputs), PackedLinear(plain)(inputs)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert (found - expected).float().norm() < 0.02 * expected.float().norm()


def test_only_layers_the_kernel_can_take_are_packed():
    wide, odd = nn.Linear(MULTIPLE, 4), nn.Linear(MULTIPLE + 1, 4)
    embedding = nn.Embedding(4, MULTIPLE)
    model = nn.ModuleDict({"inner": nn.ModuleDict({"wide": wide, "odd": odd}), "embedding": embedding})
    pack_linears(model.to(torch.bfloat16))
    assert isinstance(model["inner"]["wide"], PackedLinear)
    assert model["inner"]["odd"] is odd and model["embedding"] is embedding


def test_fp32_is_left_as_it_is():
    layer = nn.Linear(MULTIPLE, 4)
    assert pack_linears(nn.ModuleDict({"layer": layer}))["layer"] is layer
