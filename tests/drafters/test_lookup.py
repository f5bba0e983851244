"""Prompt lookup: the latest longest match, and copies beyond the end of the text."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdemo.drafters.lookup import LONGEST_MATCH, NgramIndex, PromptLookupDrafter
from specdemo.engine.draft_length import FixedLength

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
