"""The choice between Triton kernels and torch on a GPU, and how the page names it."""

import sys

import pytest
import torch
from helpers.tiny import tiny_llama

from specdemo.models.fused_execution import GraphedExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.gpu.choice import KEY, kernels_for, requested
from specdemo.pairs.hardware import place_of


def fused() -> FusedLlama:
    return FusedLlama(tiny_llama(48, 3))


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_a_host_asks_for_kernels(value, expected, monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    if value is not None:
        monkeypatch.setenv(KEY, value)
    assert requested() is expected


def test_without_triton_the_reason_is_stated_with_the_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [name for name in sys.modules if name.startswith("specdemo.models.gpu.")]:
        if not name.endswith(".choice"):
            monkeypatch.delitem(sys.modules, name)
    model = fused()
    reason = kernels_for(model)
    assert isinstance(reason, str) and "triton" in reason
    model.execution = GraphedExecution(model, lambda run: run, note=reason)
    assert f"(CUDA graphs; no Triton kernels: {reason})" in place_of([model], torch.device("cpu"))
    model.execution.failure = "not permitted"
    assert "(no CUDA graphs: not permitted; no Triton kernels: " in place_of([model], torch.device("cpu"))
