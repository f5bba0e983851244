"""A table that learns from written text within bounds and measures how often it is right."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from specdemo.models import n_gram
from specdemo.models.n_gram import LearningTable, NGramTable, Visit, empty_table, key_of

VOCAB = 70_000
SHIPPED_CONTEXT, SHIPPED_TOKEN = [1, 2], 7


def shipped(chance):
    """Return a table of one context."""
    keys = np.array([key_of(SHIPPED_CONTEXT)], np.uint32)
    return NGramTable(keys, np.array([SHIPPED_TOKEN], np.uint16), np.array([chance], np.uint8), VOCAB)


def learned(*texts, table=None):
    """Return a table that has learned whole texts, each twice, so that their tokens are probable."""
    made = LearningTable(table or empty_table(VOCAB))
    for text in [*texts, *texts]:
        made.learn(text, 1)
    return made


def test_a_token_that_followed_once_is_proposed_the_next_time():
    table = learned([5, 6, 7, 8, 9, 65_999, 3])
    for context, token in (([5, 6, 7, 8], 9), ([0, 0, 7, 8], 9), ([9], 65_999), ([65_999], 3)):
        assert table.after(context).token == token
    assert table.after([3]) is None and table.after([]) is None


def test_only_the_targets_own_tokens_are_learned():
    table = LearningTable(empty_table(VOCAB))
    table.learn([5, 6, 7, 8], 3)
    assert table.after([5, 6, 7]).token == 8
    assert table.after([5, 6]) is None and table.after([6]) is None


def test_the_shipped_token_stays_until_a_learned_one_has_proved_better():
    table = LearningTable(shipped(chance=200))
    visit = [*SHIPPED_CONTEXT, 9]
    seen = []
    for _ in range(12):
        seen.append(table.after(SHIPPED_CONTEXT).token)
        table.learn(visit, 2)
    assert seen[0] == SHIPPED_TOKEN and seen[-1] == 9
    assert seen == sorted(seen), "a replaced token does not come back"
    believed = LearningTable(shipped(chance=200))
    for _ in range(12):
        believed.learn([*SHIPPED_CONTEXT, SHIPPED_TOKEN], 2)
    assert believed.after(SHIPPED_CONTEXT).token == SHIPPED_TOKEN


def test_a_visit_is_scored_before_it_is_learned():
    table = LearningTable(shipped(chance=200))
    text = [*SHIPPED_CONTEXT, SHIPPED_TOKEN, 4, 5, 6, 4, 5, 6, 4, 5, 6]
    table.learn(text, 2)
    table.learn(text, 2)
    table.learn([4, 5, 9], 2)
    first, second, other = table.visits
    assert first == Visit(0.1, 0.1, 10), "one token of ten; its own repetitions are not known yet"
    assert second.before == 0.1 and second.after == 1.0
    assert other == Visit(0.0, 0.0, 1), "a wrong token"
    assert table.texts == 3


def test_texts_without_a_token_of_the_target_are_not_visits():
    table = LearningTable(empty_table(VOCAB))
    table.learn([1, 2], 2)
    assert table.visits == [] and table.texts == 0


def test_a_chance_is_the_share_of_right_tokens():
    rng = np.random.default_rng(0)
    table = LearningTable(empty_table(VOCAB))
    for _ in range(300):
        table.learn([1, 2, 3, 4, int(rng.choice([10, 11], p=[0.8, 0.2]))], 4)
    assert table.after([1, 2, 3, 4]).chance == pytest.approx(0.8, abs=0.1)


def test_a_token_that_is_mostly_wrong_is_replaced():
    table = LearningTable(empty_table(VOCAB))
    for token in (10, 11, 12, 12, 12):
        table.learn([1, token], 1)
    assert table.after([1]).token == 12


def test_contexts_and_visits_are_bounded_and_the_oldest_are_dropped(monkeypatch):
    monkeypatch.setattr(n_gram, "MAX_CONTEXTS", 50)
    table = LearningTable(empty_table(VOCAB))
    for token in range(100, 400):
        table.learn([token, token + 1000], 1)
    assert len(table) == 50 and len(table.visits) == n_gram.MAX_VISITS
    assert table.after([100]) is None and table.after([399]).token == 1399


def test_threads_may_learn_and_look_up_at_once(monkeypatch):
    monkeypatch.setattr(n_gram, "MAX_CONTEXTS", 30)
    table = LearningTable(empty_table(VOCAB))

    def teach(own):
        for turn in range(60):
            first = 1000 * own + 7 * turn
            table.learn([first, *range(first + 1, first + 7)], 1)
            found = table.after([first])
            assert found is None or found.token == first + 1

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(teach, own) for own in range(4)]:
            done.result()
    assert table.texts == 240 and len(table) == 30
