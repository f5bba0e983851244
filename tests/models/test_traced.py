"""Traced passes: the same bits as untraced ones, whatever the number of tokens, the capacity and the taps."""

import pytest
import torch
from helpers.tiny import tiny_llama

import specdemo.models.traced
from specdemo.models.attention import attend, group_mask
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.packed_linear import DTYPES, has_half_kernel
from specdemo.models.runtime import ExitRuntime, ModelRuntime
from specdemo.models.traced import TracedExecution

pytestmark = pytest.mark.usefixtures("one_thread")
VOCAB = 48
IDS = torch.arange(40) % VOCAB


def fused(precision: str = "fp32") -> FusedLlama:
    model = tiny_llama(VOCAB, 1, torch.bfloat16, spread=0.2, width=64).to(DTYPES[precision])
    return FusedLlama(model, precision, precision)


def decoded(model: FusedLlama, sizes: list[int], capacity: int = 256, taps: tuple[int, ...] = ()) -> tuple:
    """Logits of passes over so many tokens each, one after the other, and the states behind ``taps``."""
    runtime = ModelRuntime(model, taps=taps)
    runtime.prepare(capacity, 16)
    runtime.prefill(IDS[:5])
    parts = [runtime.forward(part) for part in IDS[5 : 5 + sum(sizes)].split(sizes)]
    return torch.cat(parts), runtime.features(0, 5 + sum(sizes)) if taps else torch.empty(0)


def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TracedExecution, "prepare", lambda *_: None)


@pytest.mark.parametrize("precision", DTYPES)
def test_a_traced_pass_gives_the_same_bits(precision, monkeypatch):
    sizes, taps = [1, 2, 3, 5, 7, 11], (0, 1)
    traced = fused(precision)
    found = [decoded(traced, sizes, capacity, taps) for capacity in (256, 512)]
    assert all(isinstance(run, torch.jit.ScriptModule) for run in traced.traced._passes.values())
    untraced(monkeypatch)
    plain = fused(precision)
    expected = [decoded(plain, sizes, capacity, taps) for capacity in (256, 512)]
    assert not plain.traced._passes
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_one_trace_serves_every_run_of_a_model():
    model = fused()
    decoded(model, [3])
    first = dict(model.traced._passes)
    decoded(model, [9, 2], capacity=512)
    assert model.traced._passes == first and len(first) == 1


def test_the_first_layers_have_a_trace_of_their_own():
    model = fused()
    host = ModelRuntime(model)
    host.prepare(256, 4)
    host.prefill(IDS[:5])
    runtime = ExitRuntime(host, 1)
    runtime.begin(256)
    shallow = runtime.forward(IDS[5:6])
    host.forward(IDS[5:6])
    assert not torch.equal(shallow, decoded(model, [1])[0])
    again = ExitRuntime(host, 1)
    assert again.execution is runtime.execution


def test_what_cannot_be_traced_runs_as_it_is(monkeypatch):
    def refuse(*args, **options):
        raise RuntimeError("no")

    monkeypatch.setattr(specdemo.models.traced.torch.jit, "trace", refuse)
    model = fused()
    logits, _ = decoded(model, [2, 3])
    assert not isinstance(model.traced._passes[()], torch.jit.ScriptModule)
    monkeypatch.undo()
    assert torch.equal(logits, decoded(fused(), [2, 3])[0])


@pytest.mark.skipif(not has_half_kernel(), reason="no kernel for fp16 weights on this processor")
def test_fp16_weights_compute_what_fp32_ones_do():
    sizes = [1, 4, 6]
    one, other = decoded(fused("fp16"), sizes)[0], decoded(fused("fp32"), sizes)[0]
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_attention_gives_a_row_the_same_bits_whatever_the_number_of_rows_and_threads_set():
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
