"""Recordings for a GPU: idle caches serve later runs, and rules read nothing back from the device."""

import gc
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny import config_for
from torch.fx.experimental.proxy_tensor import make_fx

from specdemo.engine.drafter import Draft
from specdemo.engine.rules import rule_for
from specdemo.models.gpu.recording import MAX_FREE_CACHES, IdleCaches, cuda_recorder
from specdemo.records.trace import Rule

VOCAB, K = 48, 3


class Borrower:
    """Stands in for a run's cache, which shares the tensors of the owner."""


def cache(capacity: int) -> SimpleNamespace:
    return SimpleNamespace(keys=torch.ones(1, capacity, 4))


def test_a_cache_serves_one_run_after_the_other():
    idle, owner, run = IdleCaches(), cache(64), Borrower()
    idle.lend(owner, run)
    assert idle.take(64) is None, "the run still uses it"
    del run
    gc.collect()
    assert idle.take(128) is None
    assert idle.take(64) is owner
    assert idle.take(64) is None


def test_the_newest_idle_caches_are_kept():
    idle, runs = IdleCaches(), []
    for n in range(1, MAX_FREE_CACHES + 4):
        runs.append(Borrower())
        idle.lend(cache(64 * n), runs[-1])
    while runs:
        runs.pop(0)
    gc.collect()
    kept = [idle.take(64 * n) is not None for n in range(1, MAX_FREE_CACHES + 4)]
    assert kept == [False] * 3 + [True] * MAX_FREE_CACHES


def trace(computation, *inputs):
    """Trace a computation with tensors that have no values; fail if it reads one."""
    with torch.no_grad():
        make_fx(computation, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


def test_a_trace_fails_if_a_value_is_read():
    with pytest.raises(Exception, match=r"data-dependent|symbolic|item"):
        trace(lambda ids: ids if ids[0].item() else None, torch.tensor([7, 8]))


@pytest.mark.parametrize("rule", list(Rule))
def test_a_rule_reads_nothing_back_from_the_device(rule):
    chosen = rule_for(config_for(rule, top_k=5, top_p=0.9), torch.device("cpu"))
    uniform, inputs = chosen.uniforms(1), (torch.randn(VOCAB), torch.tensor([3]))
    trace(lambda logits, where: chosen.pick(logits, where, uniform, None).row, *inputs)

    def verify(logits, ids, position):
        probs = None if rule is Rule.GREEDY else logits[:K].softmax(-1)
        rows = None if probs is None else ids
        draft = Draft(ids, probs, rows, logits[:K], None, K, "draft-model")
        return chosen.verify(draft, logits, position).accepted

    trace(verify, torch.randn(K + 1, VOCAB), torch.tensor([1, 2, 3]), torch.tensor([5]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device that records")
def test_a_recorder_outlives_its_recordings():
    record, total = cuda_recorder(torch.device("cuda")), torch.zeros(1, device="cuda")
    for _ in range(2):
        replay = record(lambda: total.add_(1).clone())
        before = total.item()
        assert replay().item() == before + 1
        del replay
        gc.collect()
