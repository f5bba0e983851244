"""A table that learns: from what was written, within bounds, believed as far as it proved right."""

import threading

import numpy as np
import pytest

from specdemo.models import learning_table
from specdemo.models.learning_table import LearningTable, empty_table, mean_alpha
from specdemo.models.n_gram import NGramTable, key_of

VOCAB = 70_000
SHIPPED_CONTEXT, SHIPPED_TOKEN = [1, 2], 7


def shipped(chance):
    """A table of one context."""
    keys = np.array([key_of(SHIPPED_CONTEXT)], np.uint32)
    return NGramTable(keys, np.array([SHIPPED_TOKEN], np.uint16), np.array([chance], np.uint8), VOCAB)


def learned(*texts, table=None):
    """A table that has learned whole texts, each twice, so that it believes what it saw."""
    made = LearningTable(table or empty_table(VOCAB))
    for text in [*texts, *texts]:
        made.learn(text, 1)
    return made


def test_what_followed_once_is_proposed_the_next_time():
    table = learned([5, 6, 7, 8, 9, 65_999, 3])
    for context, token in (([5, 6, 7, 8], 9), ([0, 0, 7, 8], 9), ([9], 65_999), ([65_999], 3)):
        assert table.after(context).token == token
    assert table.after([3]) is None and table.after([]) is None


def test_only_the_targets_own_tokens_are_learned_but_after_the_prompts():
    table = LearningTable(empty_table(VOCAB))
    table.learn([5, 6, 7, 8], 3)
    assert table.after([5, 6, 7]).token == 8
    assert table.after([5, 6]) is None and table.after([6]) is None


def test_the_shipped_guess_stays_until_a_learned_one_has_proved_better():
    table = LearningTable(shipped(chance=200))
    visit = [*SHIPPED_CONTEXT, 9]
    seen = []
    for _ in range(12):
        seen.append(table.after(SHIPPED_CONTEXT).token)
        table.learn(visit, 2)
    assert seen[0] == SHIPPED_TOKEN and seen[-1] == 9
    assert seen == sorted(seen), "once it has given way it does not come back"
    believed = LearningTable(shipped(chance=200))
    for _ in range(12):
        believed.learn([*SHIPPED_CONTEXT, SHIPPED_TOKEN], 2)
    assert believed.after(SHIPPED_CONTEXT).token == SHIPPED_TOKEN


def test_a_visit_is_judged_before_it_is_learned():
    table = LearningTable(shipped(chance=200))
    text = [*SHIPPED_CONTEXT, SHIPPED_TOKEN, 4, 5, 6, 4, 5, 6, 4, 5, 6]
    first = table.learn(text, 2)
    assert first.before == first.after == 1.0, "the one guess there was; its own repetitions are not known"
    assert first.tokens == 10
    second = table.learn(text, 2)
    assert second.before == 1.0 and second.after == 1.0
    assert [visit.tokens for visit in table.visits] == [10, 10]
    other = table.learn([4, 5, 9], 2)
    assert (other.before, other.after) == (None, 0.0), "a wrong guess counts"
    assert mean_alpha(visit.before for visit in table.visits) == 1.0
    assert mean_alpha([None]) is None


def test_texts_without_a_token_of_the_targets_are_no_visits():
    table = LearningTable(empty_table(VOCAB))
    assert table.learn([1, 2], 2).tokens == 0 and table.visits == []


def test_chances_say_how_often_such_guesses_were_right():
    rng = np.random.default_rng(0)
    table = LearningTable(empty_table(VOCAB))
    for _ in range(300):
        table.learn([1, 2, 3, 4, int(rng.choice([10, 11], p=[0.8, 0.2]))], 4)
    assert table.after([1, 2, 3, 4]).chance == pytest.approx(0.8, abs=0.1)


def test_a_guess_that_is_mostly_wrong_gives_way():
    table = LearningTable(empty_table(VOCAB))
    for token in (10, 11, 12, 12, 12):
        table.learn([1, token], 1)
    assert table.after([1]).token == 12


def test_contexts_and_visits_are_bounded_and_the_oldest_go(monkeypatch):
    monkeypatch.setattr(learning_table, "MOST_CONTEXTS", 50)
    table = LearningTable(empty_table(VOCAB))
    for token in range(100, 400):
        table.learn([token, token + 1000], 1)
    assert len(table) == 50 and len(table.visits) == learning_table.MOST_VISITS
    assert table.after([100]) is None and table.after([399]).token == 1399


def test_it_learns_while_it_is_asked():
    table, wrong = LearningTable(empty_table(VOCAB)), []

    def ask():
        for _ in range(300):
            guess = table.after([3, 4])
            if guess is not None and guess.token != 5:
                wrong.append(guess)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        table.learn([1, 2, 3, 4, 5, 6, 7], 1)
    for thread in threads:
        thread.join()
    assert not wrong and len(table.visits) == 50
