"""The choice between Triton kernels and torch on a GPU, and how the page names it."""

import sys

import torch
from helpers.tiny import tiny_llama

from specdemo.models.fused_execution import FusedExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.gpu.choice import kernels_for
from specdemo.pairs.hardware import place_of


def fused() -> FusedLlama:
    return FusedLlama(tiny_llama(48, 3))


def test_without_triton_the_reason_is_stated_with_the_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [name for name in sys.modules if name.startswith("specdemo.models.gpu.")]:
        if not name.endswith(".choice"):
            monkeypatch.delitem(sys.modules, name)
    model = fused()
    reason = kernels_for(model)
    assert isinstance(reason, str) and "triton" in reason
    model.execution = FusedExecution(model, f"no Triton kernels: {reason}")
    assert f"(no Triton kernels: {reason})" in place_of([model], torch.device("cpu"))
