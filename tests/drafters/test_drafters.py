"""Drafters that share the target's layers, and the refusal of a drafter that a pair lacks."""

from dataclasses import replace

import pytest
import torch
from helpers.on_disk import run
from helpers.tiny import baseline_rounds, config_for, emitted, tiny_llama, tiny_pair

from specdemo.drafters.early_exit import EarlyExitDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.attention import ATTENTION
from specdemo.models.layer_views import decoder_layers, first_layers
from specdemo.models.runtime import ExitRuntime, ModelRuntime
from specdemo.records.drafter_kinds import (
    DRAFT,
    FEATURE_DRAFT_HEAD,
    KINDS,
    N_GRAM_TABLE,
    RENAMED,
    drafters_with,
    usual_drafter,
)
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import Rule

pytestmark = pytest.mark.usefixtures("one_thread")
VOCAB = 9


def exit_rounds(target, depth, prompt, config):
    host = ModelRuntime(target)
    return list(speculate(host, EarlyExitDrafter(ExitRuntime(host, depth)), prompt, config))


@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_an_early_exit_leaves_the_targets_cache_as_it_was(rule):
    target = tiny_llama(VOCAB, 2)
    config = config_for(rule, k=3, max_new_tokens=30)
    rounds = exit_rounds(target, 1, [1, 2, 3], config)
    assert emitted(rounds) == emitted(baseline_rounds(target, [1, 2, 3], config))
    assert {r.drafted_by for r in rounds if r.drafted} == {"early-exit"}
    whole = exit_rounds(target, 2, [1, 2, 3], config)
    assert all(r.accepted == len(r.drafted) for r in whole), "after the last layer it is the target"


def test_an_early_exit_drafts_the_argmax_of_the_first_layers():
    target, text = tiny_llama(VOCAB, 3), [1, 2, 3]
    shallow = first_layers(target, 1)
    for round_ in exit_rounds(target, 1, text, config_for(k=2, max_new_tokens=12)):
        context = list(text)
        for token in round_.drafted:
            logits = shallow(torch.tensor([context]), use_cache=False).logits[0, -1]
            assert token.id == logits.argmax().item()
            context.append(token.id)
        text += round_.emitted


def test_a_view_of_the_first_layers_shares_weights_and_changes_nothing():
    target, ids = tiny_llama(VOCAB, 4), torch.tensor([[1, 2, 3]])
    before = target(ids, use_cache=False).logits
    view = first_layers(target, 1)
    assert len(decoder_layers(view)) == view.config.num_hidden_layers == 1
    assert decoder_layers(view)[0] is decoder_layers(target)[0]
    assert view.config._attn_implementation == ATTENTION
    assert len(decoder_layers(target)) == target.config.num_hidden_layers == 2
    assert not torch.equal(view(ids, use_cache=False).logits, before)
    assert torch.equal(target(ids, use_cache=False).logits, before)


@pytest.mark.parametrize("drafter", ["draft-model", "prompt-lookup", "combined", "early-exit"])
@pytest.mark.parametrize("k", [2, "auto"])
def test_every_kind_runs_on_a_pair_and_gives_the_baselines_text(drafter, k):
    record, end = run(tiny_pair(), prompt="abcabcab", drafter=drafter, k=k)
    assert end["badge"]["kind"] == "same"
    assert (record.calibration.c > 0) == (drafter != "prompt-lookup")
    assert drafter != "prompt-lookup" or not any(r.draft_steps for r in record.lanes["speculative"].rounds)


def test_a_script_is_drafted_token_for_token():
    pair = tiny_pair()
    record, end = run(pair, drafter="scripted", script="wxyz", k=4)
    first, *rest = record.lanes["speculative"].rounds
    assert [token.id for token in first.drafted] == pair.tokenizer("wxyz")["input_ids"]
    assert end["badge"]["kind"] == "same" and first.drafted_by == "scripted" and first.draft_steps == 0
    assert not any(round_.drafted for round_ in rest if round_.position >= len(record.prompt_ids) + 4)


def test_a_drafter_that_the_pair_lacks_is_refused():
    with pytest.raises(UserError, match="No feature draft is available"):
        run(tiny_pair(), drafter="feature-draft")
    bare = replace(tiny_pair(), draft=None)
    assert bare.default_drafter == "prompt-lookup"
    for drafter in ("draft-model", "combined"):
        with pytest.raises(UserError, match=f"No draft model is available for the drafter {drafter}"):
            run(bare, drafter=drafter)


@pytest.mark.parametrize(
    ("parts", "usual"),
    [
        ([DRAFT, FEATURE_DRAFT_HEAD], "draft-model"),
        ([FEATURE_DRAFT_HEAD, N_GRAM_TABLE], "feature-draft"),
        ([N_GRAM_TABLE], "prompt-lookup"),
    ],
)
def test_a_run_that_names_no_drafter_has_the_usual_one_of_its_pair(parts, usual):
    assert usual_drafter(drafters_with(*parts)) == usual


@pytest.mark.parametrize("name", RENAMED)
def test_a_link_with_an_earlier_name_of_a_drafter_runs_its_successor(name):
    assert parse_config({"prompt": "a", "drafter": name}).drafter == RENAMED[name]
    assert KINDS[RENAMED[name]].offered and name not in KINDS
