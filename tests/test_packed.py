"""Packed layers: what they compute, and which layers become them."""

import pytest
import torch
from torch import nn

from specdemo.packed import (
    DTYPES,
    GROUP,
    INT4_ROWS,
    MULTIPLE,
    BlockedLinear,
    HalfLinear,
    Int4Linear,
    Int8Linear,
    linear_for,
    pack_linears,
    quantise_groups,
    quantise_rows,
)

KINDS = {"bf16": BlockedLinear, "fp16": HalfLinear, "fp32": BlockedLinear, "int8": Int8Linear, "int4": Int4Linear}
CLOSE = {"bf16": 1e-6, "fp16": 1e-6, "fp32": 1e-6, "int8": 0.02, "int4": 0.15}
"""Largest distance from the plain layer's output, relative to its size."""


def test_quantised_rows_are_within_half_a_step():
    weight = torch.randn(7, 40) * torch.logspace(-3, 3, 7)[:, None]
    rows, scale = quantise_rows(weight)
    assert rows.dtype == torch.int8 and scale.shape == (7, 1)
    assert ((rows * scale - weight).abs() <= scale / 2 * 1.001).all()
    assert (rows.abs().amax(1) == 127).all()


def test_quantised_groups_are_within_half_a_step_and_use_every_value():
    weight = torch.randn(7, 3 * GROUP) * torch.logspace(-3, 3, 7)[:, None] + 1
    values, scale, offset = quantise_groups(weight)
    found = (values.unflatten(1, (-1, GROUP)) - 8) * scale[..., None] + offset[..., None]
    assert ((found.flatten(1) - weight).abs() <= scale.repeat_interleave(GROUP, 1) / 2 * 1.001).all()
    assert values.min() == 0 and values.max() == 15


def test_a_row_of_zeros_stays_zero():
    rows, scale = quantise_rows(torch.zeros(2, 32))
    assert (rows * scale == 0).all()
    values, scale, offset = quantise_groups(torch.zeros(2, 32))
    assert ((values - 8) * scale + offset).abs().max() < 1e-10


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_packed_layer_computes_what_the_plain_one_does(precision, bias, rows):
    plain = nn.Linear(2 * MULTIPLE, 3 * INT4_ROWS, bias=bias).bfloat16().to(DTYPES[precision])
    inputs = torch.randn(1, rows, 2 * MULTIPLE, dtype=DTYPES[precision])
    packed = linear_for(plain.weight, plain.bias, precision)
    assert type(packed) is KINDS[precision]
    with torch.inference_mode():
        expected, found = plain(inputs), packed(inputs)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert (found - expected).float().norm() < CLOSE[precision] * expected.float().norm()


def test_a_layer_that_no_kernel_takes_stays_plain_or_is_rounded_less():
    assert type(linear_for(torch.randn(4, 4, dtype=torch.float64), None, "fp32")) is nn.Linear
    bf16 = torch.randn(INT4_ROWS + 1, MULTIPLE).bfloat16()
    assert type(linear_for(bf16, None, "int4")) is Int8Linear
    assert type(linear_for(torch.randn(INT4_ROWS, MULTIPLE + 1).bfloat16(), None, "int4")) is BlockedLinear


def test_a_model_is_packed_but_for_its_embedding_and_its_head_as_asked():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(INT4_ROWS, MULTIPLE)
            self.inner = nn.ModuleDict({"wide": nn.Linear(MULTIPLE, INT4_ROWS)})
            self.head = nn.Linear(MULTIPLE, INT4_ROWS)

        def get_output_embeddings(self):
            return self.head

    model = Model().to(torch.bfloat16)
    embedding = model.embedding
    assert pack_linears(model, "int4", "int8") is model
    assert type(model.inner["wide"]) is Int4Linear and type(model.head) is Int8Linear
    assert model.embedding is embedding
