"""Drafts as ONNX graphs: they compute torch's logits, in passes of any size, and a screen changes little."""

import copy
from collections import Counter

import pytest
import torch
from helpers.samples import FAILURE, p_value
from helpers.tiny import config_for, tiny_llama

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.sampling import probabilities, warp
from specdemo.engine.speculate import speculate
from specdemo.models import onnx_draft as onnx_drafts
from specdemo.models import screened_head
from specdemo.models.execution import batched_pass
from specdemo.models.feature_draft import FeatureRuntime, feature_draft_for
from specdemo.models.onnx_draft import (
    OnnxDraft,
    OnnxFeatureDraft,
    OnnxFeatureRuntime,
    onnx_draft,
    onnx_feature_draft,
    runs_graphs,
)
from specdemo.models.reduced_draft import ReducedHeadDraft, slice_of_target
from specdemo.models.runtime import ModelRuntime
from specdemo.models.screened_head import fit_screen
from specdemo.records.trace import Rule

pytestmark = pytest.mark.skipif(not runs_graphs(torch.device("cpu")), reason="graphs run on x86 CPUs")
VOCAB, KEPT = 80, torch.arange(0, 80, 2)
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
DRAWS, LIKELY = 400, 4
ROUNDING = 0.1
"""Maximum mean error of a row in 8-bit arithmetic, as a share of the standard deviation."""


@pytest.fixture(scope="module")
def target():
    return tiny_llama(VOCAB, 0, torch.float32, width=64, spread=0.3)


@pytest.fixture
def draft(target) -> ReducedHeadDraft:
    found = slice_of_target(target, [0, 1], KEPT)
    found.model.set_attn_implementation("sdpa")
    return found


@torch.inference_mode()
def test_passes_of_any_size_give_torchs_logits(draft):
    wanted = draft(IDS[None]).logits[0]
    runtime = ModelRuntime(onnx_draft(draft), id_map=KEPT)
    runtime.begin(256)
    got = [runtime.forward(part) for part in IDS.split([5, 1, 1, 2, 3])]
    assert_close(torch.cat(got), wanted)
    # A rollback overwrites what came after it.
    runtime.rollback(5)
    runtime.forward(torch.tensor([7, 7]))
    runtime.rollback(5)
    assert_close(runtime.forward(IDS[5:]), wanted[5:])
    runtime.begin(256)
    runtime.prefill(IDS[:-1])
    assert_close(runtime.forward(IDS[-1:]), wanted[-1:])


@torch.inference_mode()
def test_a_batch_of_texts_gives_the_logits_of_each(draft):
    texts = torch.stack([IDS, IDS.flip(0), IDS.roll(3)])
    forward = batched_pass(onnx_draft(draft), 3, 256)
    got = torch.cat([forward(texts[:, :8], 0), forward(texts[:, 8:9], 8), forward(texts[:, 9:], 9)], 1)
    for text, logits in zip(texts, got, strict=True):
        assert_close(logits, draft(text[None]).logits[0])


@torch.inference_mode()
def test_a_feature_draft_gives_torchs_states_and_logits(target):
    draft = feature_draft_for(target, KEPT)
    features = torch.randn(6, draft.fuse.in_features)
    graph = onnx_feature_draft(draft)
    assert isinstance(graph, OnnxFeatureDraft)
    steps = []
    for runtime in (FeatureRuntime(draft), OnnxFeatureRuntime(graph)):
        runtime.begin(256)
        first = runtime.read(features[:4], IDS[:4])
        second = runtime.append(first[0], IDS[4:5])
        runtime.rollback(4)
        third = runtime.read(features[4:], IDS[4:6])
        steps.append((first, second, third))
    for wanted, got in zip(*steps, strict=True):
        assert_close(got[0], wanted[0])
        assert_close(got[1], wanted[1])


@torch.inference_mode()
def test_a_screen_keeps_the_logits_of_likely_tokens(draft, monkeypatch):
    monkeypatch.setattr(screened_head, "CANDIDATES", 6)
    wanted = draft(IDS[None]).logits[0]
    states = draft.model(torch.randint(VOCAB, (1, 400))).last_hidden_state[0]
    draft.screen = fit_screen(draft.lm_head.weight, states, rank=32)
    runtime = ModelRuntime(onnx_draft(draft), id_map=KEPT)
    runtime.begin(256)
    got = runtime.forward(IDS)
    assert (got.argmax(-1) == wanted.argmax(-1)).float().mean() > 0.9
    best = wanted.topk(3).indices
    assert_close(got.gather(1, best), wanted.gather(1, best), wanted.std())
    assert (got.softmax(-1).sum(-1) - 1).abs().max() < 1e-5


def test_sampled_output_over_a_screened_draft_has_the_targets_distribution(target, draft):
    # A screen fitted to noise: the draft's distribution differs much from torch's.
    draft.screen = fit_screen(draft.lm_head.weight, torch.randn(400, 64), rank=32)
    graph, prompt = OnnxDraft(draft), IDS[:3].tolist()
    drafter = DraftModelDrafter(ModelRuntime(graph, id_map=KEPT))
    verifier, counts = ModelRuntime(target), Counter()
    verifier.begin(256)
    p = probabilities(warp(verifier.forward(IDS[:3])[-1], 1.0, LIKELY, 1.0))
    for seed in range(DRAWS):
        config = config_for(Rule.REJECTION, top_k=LIKELY, k=2, seed=seed, max_new_tokens=3)
        counts[next(speculate(verifier, drafter, prompt, config)).emitted[0]] += 1
    assert p_value(counts, dict(enumerate(p.tolist()))) > FAILURE


def test_a_graph_that_computes_other_logits_is_refused(draft, monkeypatch):
    right = copy.deepcopy(draft)
    assert onnx_draft(right) is not None
    monkeypatch.setattr(onnx_drafts, "MAX_ERROR", 0.0)
    assert onnx_draft(draft) is None


def test_a_draft_whose_rows_are_no_whole_blocks_is_refused():
    odd = slice_of_target(tiny_llama(VOCAB, 0, torch.float32, width=48), [0], KEPT)
    assert onnx_draft(odd) is None


def assert_close(got: torch.Tensor, wanted: torch.Tensor, scale: torch.Tensor | None = None) -> None:
    error = (got - wanted).abs().mean(-1).max()
    assert error <= ROUNDING * (wanted.std() if scale is None else scale)
