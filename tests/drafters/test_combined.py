"""Copies and a model together: both draft, and the output is the target's."""

import pytest
import torch
from helpers.tiny import baseline_rounds, config_for, emitted, nearby, tiny_llama

from specdemo.drafters.combined import CombinedDrafter
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.lookup import PromptLookupDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Rule

pytestmark = pytest.mark.usefixtures("one_thread")


def rounds_of(target, draft, config):
    copies = PromptLookupDrafter(torch.device("cpu"), 2)
    drafter = CombinedDrafter(copies, DraftModelDrafter(ModelRuntime(draft)))
    return list(speculate(ModelRuntime(target), drafter, [1, 2], config))


@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_copies_and_drafts_together_give_the_targets_own_tokens(rule):
    target, config = tiny_llama(20, 4), config_for(rule, k=4, max_new_tokens=60)
    rounds = rounds_of(target, nearby(target, 5, 0.2), config)
    assert emitted(rounds) == emitted(baseline_rounds(target, [1, 2], config))
    assert {round_.drafted_by for round_ in rounds if round_.drafted} == {"prompt-lookup", "draft-model"}
    for round_ in rounds:
        assert round_.draft_steps == (len(round_.drafted) if round_.drafted_by == "draft-model" else 0)


def test_the_model_reads_the_copies_that_it_did_not_draft():
    target = tiny_llama(20, 4)
    rounds = rounds_of(target, target, config_for(k=4, max_new_tokens=60))
    assert any(round_.drafted_by == "prompt-lookup" for round_ in rounds)
    # The target drafts for itself, so only a copy can be wrong.
    for round_ in rounds:
        assert round_.drafted_by != "draft-model" or round_.accepted == len(round_.drafted)
