"""Packed layers: their results, and the choice of layers that become one; huge pages for them."""

import pytest
import torch
from torch import nn

from specdemo.models import packed_linear
from specdemo.models.packed_linear import (
    DTYPES,
    GROUP,
    INT4_ROWS,
    MIN_MAPPING_BYTES,
    MULTIPLE,
    BlockedLinear,
    HalfLinear,
    Int4Linear,
    Int8Linear,
    has_blocked_kernel,
    has_half_kernel,
    large_mappings,
    linear_for,
    pack_linears,
    quantize_groups,
    quantize_rows,
    use_huge_pages,
)

BF16 = BlockedLinear if has_blocked_kernel(torch.bfloat16) else nn.Linear
FP32 = BlockedLinear if has_blocked_kernel(torch.float32) else nn.Linear
FP16 = HalfLinear if has_half_kernel() else FP32
KINDS = {"bf16": BF16, "fp16": FP16, "fp32": FP32, "int8": Int8Linear, "int4": Int4Linear}
"""The layer of each precision on this machine."""
CLOSE = {"bf16": 1e-6, "fp16": 1e-6, "fp32": 1e-6, "int8": 0.02, "int4": 0.15}
"""Maximum distance from the plain layer's output, relative to its size."""


def test_quantised_rows_are_within_half_a_step():
    weight = torch.randn(7, 40) * torch.logspace(-3, 3, 7)[:, None]
    rows, scale = quantize_rows(weight)
    assert rows.dtype == torch.int8 and scale.shape == (7, 1)
    assert ((rows * scale - weight).abs() <= scale / 2 * 1.001).all()
    assert (rows.abs().amax(1) == 127).all()
    rows, scale = quantize_rows(torch.zeros(2, 32))
    assert (rows * scale == 0).all()


def test_quantised_groups_are_within_half_a_step_and_use_every_value():
    weight = torch.randn(7, 3 * GROUP) * torch.logspace(-3, 3, 7)[:, None] + 1
    values, scale, offset = quantize_groups(weight)
    found = (values.unflatten(1, (-1, GROUP)) - 8) * scale[..., None] + offset[..., None]
    assert ((found.flatten(1) - weight).abs() <= scale.repeat_interleave(GROUP, 1) / 2 * 1.001).all()
    assert values.min() == 0 and values.max() == 15
    values, scale, offset = quantize_groups(torch.zeros(2, 32))
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


def test_a_layer_without_a_kernel_stays_plain_or_is_rounded_less():
    assert type(linear_for(torch.randn(4, 4, dtype=torch.float64), None, "fp32")) is nn.Linear
    bf16 = torch.randn(INT4_ROWS + 1, MULTIPLE).bfloat16()
    assert type(linear_for(bf16, None, "int4")) is Int8Linear
    assert type(linear_for(torch.randn(INT4_ROWS, MULTIPLE + 1).bfloat16(), None, "int4")) is BF16
    third = torch.full((INT4_ROWS, MULTIPLE), 1 / 3)
    assert type(linear_for(third, None, "fp16")) is FP32, "fp16 would change its numbers"


def test_fp16_holds_the_small_numbers_of_bf16_and_the_rest_is_counted():
    subnormal = torch.tensor([2.0**-24, 3 * 2.0**-24, 2.0**-17, 1.9921875 * 2.0**-15, -65280.0, 0.0])
    assert torch.equal(subnormal.bfloat16().float(), subnormal)
    assert HalfLinear(subnormal[None]).left_share == 0
    for outside in (2.0**-25, 2.0**-24 * 1.5, 65536.0):
        assert HalfLinear(torch.tensor([[1.0, outside]])).left_share == 0.5


@pytest.mark.skipif(not has_half_kernel(), reason="no kernel for fp16 weights on this processor")
@pytest.mark.parametrize("odd", [(), (2.0**-30, -(2.0**-24) * 1.5, 1e-40), (70000.0, -(2.0**20))])
def test_a_product_with_fp16_weights_reads_every_number_exactly(odd):
    weight = (torch.randn(8 * INT4_ROWS, 8 * MULTIPLE) * 2.0**-14).half().float()
    weight[3, 5 : 5 + len(odd)] = torch.tensor(odd)
    layer = linear_for(weight, None, "fp16")
    assert type(layer) is HalfLinear and (weight.abs() < 2.0**-14).sum() > 0
    with torch.inference_mode():
        assert torch.equal(layer(torch.eye(8 * MULTIPLE)).T, weight)


def test_a_model_is_packed_without_its_embedding_and_its_head_in_the_given_precision():
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


MAPS = """\
00400000-00500000 r-xp 00000000 08:01 1234 /usr/bin/python
10000000-10500000 rw-p 00000000 00:00 0 [heap]
20000000-20100000 rw-p 00000000 00:00 0
30000000-40000000 rw-p 00000000 00:00 0
50000000-60000000 r--p 00000000 00:00 0
60000000-70000000 rw-s 00000000 00:01 77 /dev/shm/other
70000000-80000000 rw-p 00000000 08:01 99 /home/somebody/model.safetensors
"""


def test_only_large_private_mappings_without_a_file_are_found():
    found = large_mappings(MAPS)
    assert found == [(0x10000000, 0x500000), (0x30000000, 0x10000000)]
    assert min(size for _, size in found) >= MIN_MAPPING_BYTES


def test_huge_pages_keep_the_stored_numbers():
    weights = torch.arange(4 * MIN_MAPPING_BYTES, dtype=torch.float32)
    use_huge_pages()
    assert torch.equal(weights, torch.arange(4 * MIN_MAPPING_BYTES, dtype=torch.float32))


def test_a_system_without_huge_pages_is_left_alone(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("the C library was asked")

    monkeypatch.setattr(packed_linear.ctypes, "CDLL", refuse)
    (tmp_path / "switch").write_text("always madvise [never]\n")
    for switch in (tmp_path / "switch", tmp_path / "missing"):
        monkeypatch.setattr(packed_linear, "SWITCH", switch)
        use_huge_pages()
    monkeypatch.setattr(packed_linear.sys, "platform", "darwin")
    use_huge_pages()
