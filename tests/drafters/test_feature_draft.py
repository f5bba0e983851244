"""The feature draft: decoding equals the unrolled steps of training, and the output is the target's."""

import pytest
import torch
from helpers.tiny import baseline_rounds, config_for, emitted, tiny_llama

from specdemo.drafters.feature import FeatureDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.feature_draft import (
    FeatureRuntime,
    feature_draft_for,
    load_feature_draft,
    save_feature_draft,
)
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Rule
from specdemo.training.labelled_text import LabelledSequence
from specdemo.training.students import FeatureStudent

pytestmark = pytest.mark.usefixtures("one_thread")
VOCAB = 40
KEPT = torch.arange(0, VOCAB, 2)


@pytest.fixture
def target():
    return tiny_llama(VOCAB, 1, torch.float32)


@pytest.fixture
def draft(target):
    torch.manual_seed(3)
    draft = feature_draft_for(target, KEPT).eval()
    with torch.no_grad():
        draft.fuse.weight += 0.3 * torch.randn_like(draft.fuse.weight)
    return draft


def tapped(target, draft):
    return ModelRuntime(target, taps=draft.config.taps)


def test_decoding_steps_equal_the_unrolled_steps_of_training(target, draft):
    ids = torch.randint(VOCAB, (14,), generator=torch.Generator().manual_seed(0))
    nothing = torch.zeros(13, 1)
    with torch.inference_mode():
        host, runtime = tapped(target, draft), FeatureRuntime(draft)
        host.begin(256)
        host.prefill(ids)
        item = LabelledSequence(ids.int(), 0, nothing.int(), nothing, host.features(0, 13))
        unrolled = list(FeatureStudent(draft, steps=3).predict([item]))
        runtime.begin(256)
        for known in range(2, 11):
            # The target has seen ids[:known]; pairs of true states reach to known - 1.
            runtime.rollback(0)
            state, logits = runtime.read(host.features(0, known), ids[1 : known + 1])
            for step in range(3):
                if step:
                    state, logits = runtime.append(state, ids[known + step : known + step + 1])
                expected = logits.log_softmax(-1)
                log_q, rows = unrolled[step]
                row = (rows == known + step).nonzero()[0, 0]
                torch.testing.assert_close(log_q[row], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("prompt", [[5], [1, 2, 3, 4, 5, 6]])
def test_greedy_and_shared_noise_output_is_the_targets_own(target, draft, rule, prompt):
    config = config_for(rule, k=3, max_new_tokens=30)
    host, before = tapped(target, draft), list(draft.own_state())
    rounds = list(speculate(host, FeatureDrafter(FeatureRuntime(draft), host), prompt, config))
    assert any(r.drafted_by == "feature-draft" for r in rounds)
    assert all(token.id % 2 == 0 for r in rounds for token in r.drafted), "only ids of the reduced head"
    assert list(draft.own_state()) == before, "decoding adds no weights"
    if rule.same_text:
        assert emitted(rounds) == emitted(baseline_rounds(target, prompt, config))


def test_each_round_drafts_from_states_of_everything_verified(target, draft):
    # The first draft token of every round equals one computed again from the whole text.
    host = tapped(target, draft)
    drafter = FeatureDrafter(FeatureRuntime(draft), host)
    config, text = config_for(k=3, max_new_tokens=24), [1, 2, 3]
    for round_ in speculate(host, drafter, text[:], config):
        fresh_host, fresh = tapped(target, draft), FeatureRuntime(draft)
        with torch.inference_mode():
            fresh_host.begin(256)
            fresh_host.prefill(torch.tensor(text[:-1]))
            fresh.begin(256)
            _, logits = fresh.read(fresh_host.features(0, len(text) - 1), torch.tensor(text[1:]))
            best = draft.id_map[logits.argmax()]
        if round_.drafted:
            assert round_.drafted[0].id == best
        text += round_.emitted


def test_an_untrained_draft_starts_from_the_targets_last_layer_and_head(target):
    target.model.norm.weight.data = torch.linspace(0.5, 3, 16)
    draft, last = feature_draft_for(target, KEPT), target.model.layers[-1]
    assert torch.equal(draft.mlp.down_proj.weight, last.mlp.down_proj.weight)
    assert torch.equal(draft.q.weight[:, 16:], last.self_attn.q_proj.weight)
    torch.testing.assert_close(draft.norm.weight, target.model.norm.weight)
    assert torch.equal(draft.lm_head.weight, target.lm_head.weight[KEPT])


def test_norms_with_an_offset_gain_are_read_correctly(target):
    class OffsetRMSNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((16,), 0.25))

        def forward(self, x):
            return x * x.pow(2).mean(-1, keepdim=True).rsqrt() * (1 + self.weight)

    target.model.norm = OffsetRMSNorm()
    torch.testing.assert_close(feature_draft_for(target, KEPT).norm.weight, torch.full((16,), 1.25))


def test_saved_and_loaded_it_scores_the_same(target, draft, tmp_path):
    save_feature_draft(draft, tmp_path)
    loaded = load_feature_draft(tmp_path, target)
    assert loaded.embedding is target.get_input_embeddings() and loaded.config == draft.config
    states, ids = torch.randn(1, 4, 16), torch.tensor([[1, 2, 3, 4]])

    def score(model):
        return model.logits(model.step(states, ids, torch.arange(4)[None], lambda q, k, v: q))

    made = score(draft)
    assert (score(loaded) - made).norm() < 0.02 * made.norm()
