"""Recorded passes, with a recorder that calls the function instead of replaying it."""

import copy
import gc

import pytest
import torch
from helpers.recorder import Recorder, recorded
from helpers.tiny import at_least, config_for, emitted, nearby, tiny_llama
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from specdemo.drafters.draft_model import DraftModelDrafter, RecordedDraftLoop
from specdemo.engine.rules import rule_for
from specdemo.engine.speculate import speculate
from specdemo.models.attention import attend, group_mask
from specdemo.models.fused_execution import MAX_FREE_CACHES, GraphedExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Rule, Status

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB = 48


def fused(seed: int = 3) -> FusedLlama:
    return FusedLlama(tiny_llama(VOCAB, seed))


def test_recorded_passes_give_the_same_logits_and_states():
    record = Recorder()
    plain = fused()
    eager = ModelRuntime(copy.deepcopy(plain), at_least(2), taps=(0, 1))
    replayed = ModelRuntime(recorded(plain, record), at_least(2), taps=(0, 1))
    replayed.prepare(64, 5)
    assert record.recorded == 4
    eager.begin(64)
    ids = torch.randint(VOCAB, (30,))
    kept = []
    for runtime in (eager, replayed):
        runtime.prefill(ids[:9])
        parts = [runtime.forward(part) for part in ids[9:].split([1, 5, 3, 1, 7, 4])]
        kept.append((torch.cat(parts), runtime.features(0, 30)))
    torch.testing.assert_close(*kept, rtol=1e-12, atol=1e-12)
    assert record.replayed == 5, "a pass of 7 was not prepared and runs kernel by kernel"


def test_a_cache_with_its_recordings_serves_one_run_after_the_other():
    record = Recorder()
    execution = GraphedExecution(fused(), record)
    first, second = execution.open(64), execution.open(64)
    assert first.keys is not second.keys
    first.keys.fill_(float("nan"))
    for _ in range(2):
        execution.prepare(first, [1, 2], ())
    assert record.recorded == 2
    held = first.keys
    del first
    gc.collect()
    again = execution.open(64)
    assert again.keys is held and execution.open(64).keys is not held
    assert (again.keys == 0).all()
    execution.prepare(again, [1, 2], ())
    assert record.recorded == 2
    assert execution.open(128).keys.shape[3] == 128


def test_the_newest_free_caches_are_kept():
    execution = GraphedExecution(fused(), Recorder())
    caches = [execution.open(64 * n) for n in range(1, MAX_FREE_CACHES + 4)]
    keys = [cache.keys for cache in caches]
    while caches:
        caches.pop(0)
    gc.collect()
    again = [execution.open(64 * n) for n in range(1, len(keys) + 1)]
    kept = [cache.keys is one for cache, one in zip(again, keys, strict=True)]
    assert kept == [False] * 3 + [True] * MAX_FREE_CACHES


def test_a_pass_that_cannot_be_recorded_runs_and_reports_the_reason():
    def record(run):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    execution = GraphedExecution(fused(), record)
    cache = execution.open(64)
    execution.prepare(cache, [1, 2], ())
    assert execution.failure == "operation not permitted when stream is capturing"
    logits, states = execution.run(torch.tensor([3]), 0, cache, 1, ())
    assert logits.shape == (1, VOCAB) and states is None


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("rule", list(Rule))
def test_a_recorded_draft_loop_drafts_the_same_as_the_plain_loop(rule, reduced):
    target, record = fused(), Recorder()
    id_map = torch.arange(0, VOCAB, 2) if reduced else None
    draft = nearby(tiny_llama(VOCAB, 3), 1, 0.05)
    if reduced:
        draft.lm_head = nn.Linear(16, len(id_map), bias=False, dtype=torch.float64)
    draft, config = FusedLlama(draft), config_for(rule, k=3, max_new_tokens=40)

    def rounds(with_loop):
        chosen = rule_for(config, torch.device("cpu"))
        runtime, loop = ModelRuntime(draft, id_map=id_map), None
        if with_loop:
            runtime = ModelRuntime(recorded(draft, record), id_map=id_map)
            runtime.prepare(256, 2)
            loop = RecordedDraftLoop(runtime, chosen, record)
        drafter = DraftModelDrafter(runtime, loop)
        return list(speculate(ModelRuntime(target), drafter, [1, 2, 3], config, rule=chosen))

    plain, replayed = rounds(False), rounds(True)
    assert record.replayed > 30
    assert emitted(replayed) == emitted(plain)
    for a, b in zip(plain, replayed, strict=True):
        assert [(t.id, t.status) for t in a.drafted] == [(t.id, t.status) for t in b.drafted]
        assert [t.q for t in a.drafted] == pytest.approx([t.q for t in b.drafted])
        assert (a.draft_steps, a.drafted_by if a.drafted else "") == (b.draft_steps, b.drafted_by)
    assert {t.status for r in replayed for t in r.drafted} == {Status.ACCEPTED, Status.DISCARDED}


def trace(computation, *inputs):
    """Trace a computation with tensors that have no values; fail if it reads one."""
    with torch.no_grad():
        make_fx(computation, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


def test_a_pass_reads_nothing_back_from_the_device():
    model, inputs = fused(), (torch.tensor([1, 2]), torch.tensor([7, 8]))
    cache = model.open(64)
    trace(lambda ids, positions: model(ids, positions, cache, 2, (0,)), *inputs)
    with pytest.raises(Exception, match=r"data-dependent|symbolic|item"):
        trace(lambda ids, positions: ids if positions[0].item() else None, *inputs)


@pytest.mark.parametrize("rule", list(Rule))
def test_a_choice_of_a_token_reads_nothing_back_from_the_device(rule):
    chosen = rule_for(config_for(rule, top_k=5, top_p=0.9), torch.device("cpu"))
    uniform, inputs = chosen.uniforms(1), (torch.randn(VOCAB), torch.tensor([3]))
    trace(lambda logits, where: chosen.pick(logits, where, uniform, None).row, *inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device that records")
def test_a_device_records_and_replays():
    model = fused().to("cuda")
    plain = copy.deepcopy(model)
    execution = GraphedExecution(model)
    cache = execution.open(64)
    with torch.inference_mode():
        execution.prepare(cache, [1, 2], ())
        assert execution.failure is None
        for start, ids in ((0, [3, 4]), (2, [5]), (3, [6, 7])):
            ids = torch.tensor(ids, device="cuda")
            found, _ = execution.run(ids, start, cache, len(ids), ())
        own = plain.open(64)
        expected, _ = plain(torch.tensor([3, 4, 5, 6, 7], device="cuda"), own.positions[:5], own, 2)
    torch.testing.assert_close(found, expected)


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
