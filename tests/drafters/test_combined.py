"""A model with copies and a table: the mixture, the sources of the tokens, and the target's output."""

import math

import numpy as np
import pytest
import torch
from helpers.tiny import baseline_rounds, config_for, emitted, nearby, tiny_llama

from specdemo.drafters.combined import COPY_WEIGHT, TABLE_WEIGHT, CombinedDrafter, FallbackDrafter, TextHints
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.lookup import PromptLookupDrafter
from specdemo.engine.draft_length import COPY_PRIORS
from specdemo.engine.drafter import Drafter
from specdemo.engine.speculate import speculate
from specdemo.engine.verdicts import top_fives
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Rule
from specdemo.training.n_grams import WrittenText, count_n_grams

CPU = torch.device("cpu")
VOCAB = 20


def combined(model: DraftModelDrafter, table=None) -> Drafter:
    return CombinedDrafter(model, TextHints(table, copied=2, hinted=1))


def for_a_gpu(model: DraftModelDrafter, table=None) -> Drafter:
    return FallbackDrafter(PromptLookupDrafter(CPU, 2), model)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", [combined, for_a_gpu])
@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_copies_a_table_and_a_model_together_give_the_targets_own_tokens(rule, make):
    target, config = tiny_llama(VOCAB, 4), config_for(rule, k=4, max_new_tokens=60)
    alone = emitted(baseline_rounds(target, [1, 2], config))
    table = count_n_grams([WrittenText(np.array([1, 2, *alone[:20]]), 2)], VOCAB)
    drafter = make(DraftModelDrafter(ModelRuntime(nearby(target, 5, 0.2))), table)
    rounds = list(speculate(ModelRuntime(target), drafter, [1, 2], config, tops=top_fives))
    assert emitted(rounds) == alone
    by = [[token.copied_by or round_.drafted_by for token in round_.drafted] for round_ in rounds]
    assert {name for names in by for name in names} == {"prompt-lookup", "draft-model"}
    assert any(len(set(names)) > 1 for names in by) == (make is combined)
    for round_, names in zip(rounds, by, strict=True):
        assert round_.draft_steps == names.count("draft-model"), "a copied token needs no step"
        for token in round_.drafted:
            assert not token.copied_by or (token.q == 1 and token.target_top and not token.draft_top)


@pytest.mark.usefixtures("one_thread")
def test_a_model_reads_the_copies_that_it_did_not_draft():
    target, config = tiny_llama(VOCAB, 4), config_for(k=6, max_new_tokens=60)
    drafter = combined(DraftModelDrafter(ModelRuntime(target)))
    rounds = list(speculate(ModelRuntime(target), drafter, [1, 2], config))
    assert any({bool(token.copied_by) for token in round_.drafted} == {True, False} for round_ in rounds)
    # The target drafts for itself, so only a copy can be wrong.
    assert all(
        token.copied_by or round_.drafted_by == "prompt-lookup"
        for round_ in rounds
        for token in round_.drafted
        if token.rejected
    )


@pytest.mark.parametrize("id_map", [None, torch.arange(0, VOCAB, 2)])
def test_hints_add_their_weights_to_the_models_distribution(id_map):
    table = count_n_grams([WrittenText(np.array([6, 7, 8, 6, 7, 8, 6, 7, 8]), 0)], VOCAB)
    hints = TextHints(table, copied=6, hinted=2)
    hints.begin()
    hints.follow([6, 7, 4, 9, 6])
    logits = torch.randn(VOCAB if id_map is None else len(id_map), dtype=torch.float64)
    q = logits.softmax(-1)
    row = {token: token if id_map is None else token // 2 for token in (4, 8)}
    q[row[4]] += COPY_WEIGHT * COPY_PRIORS[1]  # after 6, 7 in the text
    q[row[8]] += TABLE_WEIGHT * table.after([6, 7]).probability
    mixed = hints.mixed([7], logits, id_map).softmax(-1)
    assert torch.allclose(mixed, q / q.sum(), atol=1e-12) and math.isclose(mixed.sum(), 1.0)
    # 7 follows 6 in the text and in the table, but a draft with even ids cannot draft it.
    assert torch.equal(hints.mixed([], logits, id_map), logits) == (id_map is not None)


def test_a_long_match_is_certain_and_a_short_one_is_not():
    hints = TextHints(None)
    hints.begin()
    hints.follow([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5])
    assert hints.certain([]) is None
    copy = hints.certain([6])
    assert copy is not None and (copy.token, copy.matched) == (7, 6)
