"""The decoding loop over random tiny models in float64, and its edge cases."""

import gc
import math
import weakref

import pytest
import torch
from helpers.tiny import (
    at_least,
    baseline_rounds,
    config_for,
    emitted,
    nearby,
    speculative_rounds,
    tiny_llama,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.scripted import ScriptedDrafter
from specdemo.engine.draft_length import FixedLength
from specdemo.engine.drafter import Draft
from specdemo.engine.rules import RejectionRule
from specdemo.engine.speculate import PROMPT_PART, autoregress, speculate
from specdemo.engine.verdicts import describe, no_tops, top_fives, truncate_at_eos
from specdemo.models.runtime import ModelRuntime
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish, Rule, Status

VOCAB = 5
pytestmark = pytest.mark.usefixtures("one_thread")

RULES = st.sampled_from(list(Rule))
SEEDS = st.integers(0, 10_000)


def models(seed: int, noise: float):
    target = tiny_llama(VOCAB, seed)
    return target, nearby(target, seed + 1, noise)


@settings(max_examples=25)
@given(
    seed=SEEDS,
    rule=RULES,
    k=st.integers(0, 6),
    tokens=st.integers(1, 14),
    noise=st.sampled_from([0.0, 0.1, 2.0]),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6),
    eos=st.sampled_from([frozenset(), frozenset({2})]),
)
def test_rounds_are_consistent(seed, rule, k, tokens, noise, prompt, eos):
    target, draft = models(seed, noise)
    config = config_for(rule, k=k, max_new_tokens=tokens, seed=seed)
    rounds = speculative_rounds(target, draft, prompt, config, eos_ids=eos)
    position = len(prompt)
    for index, round_ in enumerate(rounds):
        statuses = [token.status for token in round_.drafted]
        assert round_.index == index
        assert round_.position == position
        assert statuses == sorted(statuses, key=[Status.ACCEPTED, Status.DISCARDED].index)
        assert all(token.compared == (i < round_.compared) for i, token in enumerate(round_.drafted))
        assert [t.rejected for t in round_.drafted].count(True) == (round_.compared > round_.accepted)
        assert len(round_.drafted) == min(k, len(prompt) + tokens - position - 1)
        if round_.emission:
            assert len(round_.emitted) == round_.accepted + 1
            fully = round_.accepted == len(round_.drafted)
            assert round_.emission.status is (Status.BONUS if fully else Status.CORRECTED)
        else:
            assert round_.emitted[-1] in eos and round_.finish is Finish.EOS
        assert (round_.finish is not None) == (round_ is rounds[-1])
        assert min(round_.draft_s, round_.verify_s, round_.other_s) >= 0
        position += len(round_.emitted)
    ids = emitted(rounds)
    assert rounds[-1].finish is (Finish.EOS if ids[-1] in eos else Finish.LENGTH)
    assert len(ids) == tokens or ids[-1] in eos
    assert not eos & set(ids[:-1])
    assert rounds[0].prefill_s > 0 and all(r.prefill_s == 0 for r in rounds[1:])


@settings(max_examples=8)
@given(
    seed=SEEDS,
    rule=st.sampled_from([Rule.GREEDY, Rule.SHARED_NOISE]),
    k=st.integers(1, 6),
    noise=st.floats(0, 3),
)
def test_any_draft_yields_the_targets_own_tokens(seed, rule, k, noise):
    target, draft = models(seed, noise)
    config = config_for(rule, k=k, max_new_tokens=14, seed=seed)
    alone = emitted(baseline_rounds(target, [1, 2], config))
    assert emitted(speculative_rounds(target, draft, [1, 2], config)) == alone
    wrong = [(token + 1) % VOCAB for token in alone]
    adversary = ScriptedDrafter(wrong, torch.device("cpu"))
    rounds = list(speculate(ModelRuntime(target), adversary, [1, 2], config))
    assert emitted(rounds) == alone
    assert sum(r.accepted for r in rounds) == 0


@settings(max_examples=8)
@given(seed=SEEDS, rule=RULES, k=st.integers(1, 6))
def test_a_draft_equal_to_the_target_accepts_everything_compared(seed, rule, k):
    target, twin = models(seed, 0.0)
    rounds = speculative_rounds(target, twin, [3], config_for(rule, k=k, max_new_tokens=24, seed=seed))
    assert all(r.accepted == r.compared == len(r.drafted) for r in rounds)
    assert len(rounds) == math.ceil(24 / (k + 1))


class Reader(ModelRuntime):
    """A runtime that counts its passes and records the sizes of its prefills."""

    def __init__(self, model):
        super().__init__(model)
        self.passes, self.sizes = 0, []

    def forward(self, ids):
        self.passes += 1
        return super().forward(ids)

    def prefill(self, ids):
        self.sizes.append(len(ids))
        super().prefill(ids)


def test_a_round_makes_one_target_pass_and_reports_its_verdict_and_seconds_to_the_draft_length():
    class Listening(FixedLength):
        def observe(self, accepted, compared, emitted):
            verdicts.append((accepted, compared, emitted))

        def timed(self, draft_steps, rows, draft_s, verify_s):
            seconds.append((draft_steps, rows - 1, draft_s, verify_s))

    verdicts, seconds = [], []
    models_ = models(3, 0.1)
    target, alone, draft = (Reader(model) for model in (models_[0], *models_))
    config, prompt = config_for(max_new_tokens=20), [1, 4, 2]
    rounds = list(speculate(target, DraftModelDrafter(draft), prompt, config, length=Listening(3)))
    assert target.passes == len(rounds) < 20
    assert verdicts == [(r.accepted, r.compared, len(r.emitted)) for r in rounds]
    assert seconds == [(r.draft_steps, len(r.drafted), r.draft_s, r.verify_s) for r in rounds]
    assert len({accepted for accepted, _, _ in verdicts}) > 1
    assert len(list(autoregress(alone, prompt, config))) == alone.passes == 20


def test_an_accepted_eos_discards_the_rest_of_the_draft():
    target, _ = models(4, 0.0)
    alone = emitted(baseline_rounds(target, [1], config_for(max_new_tokens=8)))
    eos = frozenset({alone[1]}) if alone[1] != alone[0] else frozenset({alone[0]})
    script = ScriptedDrafter(alone, torch.device("cpu"))
    config = config_for(k=6, max_new_tokens=8)
    (only,) = list(speculate(ModelRuntime(target), script, [1], config, eos_ids=eos))
    kept = alone.index(next(iter(eos))) + 1
    assert only.emitted == alone[:kept] and only.emission is None and only.finish is Finish.EOS
    assert [t.status for t in only.drafted[kept:]] == [Status.DISCARDED] * (6 - kept)
    assert not any(t.compared or t.rejected for t in only.drafted[kept:])


def test_stop_ends_the_run_within_its_round():
    target, draft = models(1, 0.1)
    answers = iter([False, False, True])
    config = config_for(k=2, max_new_tokens=200)
    rounds = speculative_rounds(target, draft, [1], config, stop=lambda: next(answers))
    assert len(rounds) == 3 and rounds[-1].finish is Finish.STOPPED


def test_a_run_ends_at_the_context_limit_and_a_prompt_that_fills_it_is_refused():
    target = tiny_llama(VOCAB, 0, context=32)
    draft = nearby(target, 1, 0.1)
    rounds = speculative_rounds(target, draft, [1] * 28, config_for(k=4, max_new_tokens=50))
    assert rounds[-1].finish is Finish.CONTEXT and len(emitted(rounds)) == 4
    padded = ModelRuntime(target, rows=at_least(4))
    for prompt, words in (([1] * 29, "29 tokens, but the target can read at most 28"), ([], "is empty")):
        with pytest.raises(UserError, match=words):
            next(autoregress(padded, prompt, config_for(max_new_tokens=4)))


@pytest.mark.parametrize("rule", list(Rule))
def test_nan_logits_raise_before_anything_is_emitted(rule):
    target, draft = models(0, 0.1)
    target.lm_head.weight.data[2] = float("nan")
    with pytest.raises(FloatingPointError, match="NaN"):
        speculative_rounds(target, draft, [1], config_for(rule, max_new_tokens=4))


def test_recorded_probabilities_are_those_of_the_models():
    target, draft = models(7, 0.3)
    config = config_for(Rule.REJECTION, k=3, max_new_tokens=16, temperature=0.8, seed=5)
    text = [1, 3]
    for round_ in speculative_rounds(target, draft, text, config, tops=top_fives):
        for i, token in enumerate(round_.drafted):
            context = torch.tensor([text + [t.id for t in round_.drafted[:i]]])
            p, q = (m(context, use_cache=False).logits[0, -1].div(0.8).softmax(-1) for m in (target, draft))
            assert token.p == pytest.approx(p[token.id].item(), abs=1e-9)
            assert token.q == pytest.approx(q[token.id].item(), abs=1e-9)
            assert token.accept_prob == pytest.approx(min(1.0, token.p / token.q))
            assert token.target_top[0].prob == pytest.approx(p.max().item(), abs=1e-9)
            assert token.draft_top[0].id == q.argmax().item()
            if token.compared:
                assert (token.u < token.accept_prob) == (token.status is Status.ACCEPTED)
            if token.rejected:
                assert round_.emission.residual_mass == pytest.approx(
                    (p - q).clamp_min(0).sum().item(), abs=1e-9
                )
        text += round_.emitted


def test_a_draft_token_whose_probability_rounds_to_0_can_be_recorded():
    # The draft computes in float64, the target in float32.
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 1e-60]], dtype=torch.float64)
    draft = Draft(torch.tensor([1]), probs=q, rows=torch.tensor([1]), logits=q.log(), by="draft-model")
    logits = p.log().expand(2, -1)
    verdict = RejectionRule(config_for(Rule.REJECTION), torch.device("cpu")).verify(draft, logits, 3)
    [token], _ = describe(draft, verdict, logits, truncate_at_eos(1, 0, [1], frozenset()), no_tops)
    assert verdict.q_of_draft.tolist() == [0.0] and verdict.accepted == 1
    assert (token.q, token.p, token.accept_prob) == (0.0, 0.5, 1.0)


LONG_PROMPT = [(7 * i + i // 5) % VOCAB for i in range(2 * PROMPT_PART + 10)]


def test_both_models_process_a_long_prompt_in_parts():
    target, draft = (Reader(model) for model in models(3, 0.1))
    config = config_for(k=3, max_new_tokens=12)
    rounds = list(speculate(target, DraftModelDrafter(draft), LONG_PROMPT, config))
    assert target.sizes == draft.sizes == [PROMPT_PART, PROMPT_PART, 9]
    text = list(LONG_PROMPT)
    for _ in range(12):
        text.append(int(target.model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    assert emitted(rounds) == text[len(LONG_PROMPT) :]


def test_a_stop_between_two_parts_of_the_prompt_ends_the_run_and_frees_its_caches_at_once():
    target, draft = (Reader(model) for model in models(3, 0.1))
    kept = weakref.ref(target)
    gc.disable()  # no reference cycle keeps them until the garbage collector runs
    try:
        rounds = speculate(target, DraftModelDrafter(draft), LONG_PROMPT, config_for(), stop=lambda: True)
        assert list(rounds) == []
        assert target.sizes == draft.sizes == [PROMPT_PART]
        del target, rounds
        assert kept() is None
    finally:
        gc.enable()
