"""Prompt lookup: the latest longest match, copies beyond the end of the text, and the target's output."""

import numpy as np
import pytest
import torch
from helpers.tiny import baseline_rounds, config_for, emitted, nearby, tiny_llama
from hypothesis import given
from hypothesis import strategies as st

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.lookup import LONGEST_MATCH, FallbackDrafter, NgramIndex, PromptLookupDrafter
from specdemo.drafters.n_gram import NGramDrafter
from specdemo.engine.draft_length import FixedLength
from specdemo.engine.speculate import speculate
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Rule
from specdemo.training.n_grams import WrittenText, count_n_grams

CPU = torch.device("cpu")
TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def proposed(text, k, shortest=1):
    drafter, length = PromptLookupDrafter(CPU, shortest), FixedLength(k)
    drafter.begin(64)
    length.start(k)
    return drafter.propose(text, length, None).ids.tolist()


def brute_force(text, shortest):
    for size in range(min(LONGEST_MATCH, len(text)), shortest - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                return end, size
    return None


@given(text=TEXTS, shortest=st.integers(1, 3), split=st.integers(0, 30))
def test_the_index_finds_the_same_match_as_a_search(text, shortest, split):
    index = NgramIndex()
    index.extend(text[:split])
    index.extend(text)
    assert index.find(text, shortest) == brute_force(text, shortest)


@pytest.mark.parametrize(
    ("text", "shortest", "copied"),
    [
        # The longest match wins, and on a tie the latest.
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 1, [9, 2]),
        ([5, 3, 9, 5, 3, 8, 5, 3], 1, [8, 5]),
        # A copy goes on past the end of the text.
        ([7, 1, 2, 1, 2], 1, [1, 2, 1, 2, 1]),
        ([4, 4], 1, [4, 4]),
        # Enough tokens must match.
        ([1, 2, 3, 4], 1, []),
        ([1, 2, 3, 1], 2, []),
    ],
)
def test_the_latest_longest_match_is_copied(text, shortest, copied):
    assert proposed(text, max(2, len(copied)), shortest) == copied


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_copies_a_table_and_drafts_together_give_the_targets_own_tokens(rule):
    target, config = tiny_llama(20, 4), config_for(rule, k=4, max_new_tokens=60)
    alone = emitted(baseline_rounds(target, [1, 2], config))
    table = count_n_grams([WrittenText(np.array([1, 2, *alone[:20]]), 2)], 20)
    model = DraftModelDrafter(ModelRuntime(nearby(target, 5, 0.2)))
    drafter = FallbackDrafter([PromptLookupDrafter(CPU, 2), NGramDrafter(table, CPU), model])
    rounds = list(speculate(ModelRuntime(target), drafter, [1, 2], config))
    assert emitted(rounds) == alone
    by = {round_.drafted_by for round_ in rounds if round_.drafted}
    assert by == {"prompt-lookup", "n-gram", "draft-model"}
    assert sum(round_.accepted for round_ in rounds if round_.drafted_by == "n-gram") > 0
    for round_ in rounds:
        assert round_.draft_steps == (len(round_.drafted) if round_.drafted_by == "draft-model" else 0)
