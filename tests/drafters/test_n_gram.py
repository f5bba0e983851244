"""Tables of n-grams: counts, lookups, files and drafts."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from specdemo.drafters.n_gram import NGramDrafter
from specdemo.engine.draft_length import AutoLength, FixedLength
from specdemo.engine.rules import GreedyRule
from specdemo.models.n_gram import (
    CONFIG,
    ENTRY_BYTES,
    LONGEST,
    WEIGHTS,
    NGramTable,
    key_of,
    load_n_gram,
    narrow,
    wide_keys_of,
)
from specdemo.records.trace import Calibration
from specdemo.training.n_grams import DISCOUNT, WrittenText, calibration, count_n_grams, hits

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
VOCAB = 60


def written(*texts, start=0):
    return [WrittenText(np.array(text), start) for text in texts]


def probability_by_hand(texts, context, token):
    """Return the probability by the module's formula, for one context."""
    own = [(t.ids.tolist(), at) for t in texts for at in range(max(1, t.start), len(t.ids))]
    if not context:
        return sum(ids[at] == token for ids, at in own) / len(own)
    size = len(context)
    after = [ids[at] for ids, at in own if at >= size and tuple(ids[at - size : at]) == context]
    shorter = probability_by_hand(texts, context[1:], token)
    if not after:
        return shorter
    passed_on = DISCOUNT * len(set(after)) * shorter
    return (max(after.count(token) - DISCOUNT, 0) + passed_on) / len(after)


def test_probabilities_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    texts = written(*(rng.integers(0, 5, size=rng.integers(3, 30)) for _ in range(6)), start=2)
    table = count_n_grams(texts, VOCAB)
    tried = 0
    for text in texts:
        ids = text.ids.tolist()
        for at in range(2, len(ids)):
            entry = table.after(ids[:at])
            contexts = [tuple(ids[at - size : at]) for size in range(1, min(LONGEST, at) + 1)]
            candidates = [[probability_by_hand(texts, one, token) for token in range(5)] for one in contexts]
            # A context that adds nothing to a shorter one has no entry.
            assert any(
                entry.probability == pytest.approx(found[entry.token], abs=0.003)
                and found[entry.token] == pytest.approx(max(found))
                for found in candidates
            )
            tried += 1
    assert tried > 50


def test_the_longest_known_context_decides_and_only_the_targets_own_tokens_count():
    table = count_n_grams(written(*[[1, 2, 3, 4, 5]] * 9, *[[9, 3, 4, 7]] * 20), VOCAB)
    assert table.after([1, 2, 3, 4]).token == 5
    assert table.after([8, 3, 4]).token == table.after([4]).token == 7
    assert table.after([50]) is None and table.after([]) is None
    table = count_n_grams(written(*[[1, 2, 3, 4]] * 2, *[[5, 6, 7, 8]] * 3, start=3), VOCAB)
    assert table.after([1, 2, 3]).token == 4
    assert table.after([1]) is None and table.after([1, 2]) is None


def test_one_context_has_the_same_hash_as_in_a_batch():
    contexts = np.random.default_rng(1).integers(0, 200_000, size=(50, 3))
    keys = narrow(wide_keys_of(contexts))
    assert keys.tolist() == [int(key_of(row)) for row in contexts.tolist()]
    assert len(set(keys.tolist())) == 50
    short = [(a,) for a in range(30)] + [(a, b) for a in range(30) for b in range(30)]
    assert len({int(key_of(context)) for context in short}) == len(short)


def test_a_small_table_keeps_the_most_useful_entries():
    texts = written(*[[1, 2]] * 50, *[[3, 4]] * 2, *[[5, 6]] * 20)
    table = count_n_grams(texts, VOCAB, max_bytes=2 * ENTRY_BYTES)
    assert len(table) == 2
    assert table.after([1]).token == 2 and table.after([5]).token == 6 and table.after([3]) is None


def test_a_saved_table_loads_and_a_damaged_one_does_not(tmp_path):
    table = count_n_grams(written(*[[1, 2, 3, 4, 5]] * 3), VOCAB)
    table.save(tmp_path)
    loaded = load_n_gram(tmp_path, VOCAB)
    assert loaded.after([1, 2, 3, 4]) == table.after([1, 2, 3, 4])
    with pytest.raises(ValueError, match="different target"):
        load_n_gram(tmp_path, VOCAB + 1)
    whole = load_file(tmp_path / WEIGHTS)
    for name, broken in {
        "keys": whole["keys"][::-1].copy(),
        "tokens": whole["tokens"] + np.uint16(VOCAB),
        "chances": whole["chances"][1:],
    }.items():
        save_file(whole | {name: broken}, tmp_path / WEIGHTS)
        with pytest.raises(ValueError, match="damaged"):
            load_n_gram(tmp_path, VOCAB)
    (tmp_path / CONFIG).write_text(json.dumps({"longest": 9, "vocabulary": VOCAB}))
    with pytest.raises(ValueError, match="different target or version"):
        load_n_gram(tmp_path, VOCAB)


def test_hits_count_the_tokens_that_a_table_predicts():
    table = count_n_grams(written(*[[1, 2, 3]] * 30), VOCAB)
    found = hits(table, written([1, 2, 3], [1, 9, 3], start=1))
    assert [found["known"], found["sure"]] == [0.75, 0.75]
    assert [found["agreement"], found["sure_agreement"]] == pytest.approx([2 / 3, 2 / 3])


def proposed(table, text, length):
    length.start(8)
    return NGramDrafter(table, CPU).propose(text, length, GreedyRule()).ids.tolist()


def test_a_draft_goes_on_while_the_table_has_entries_that_pay():
    table = count_n_grams(written(*[[1, 2, 3, 4, 5]] * 9), VOCAB)
    assert proposed(table, [7, 1], FixedLength(3)) == [2, 3, 4]
    assert proposed(table, [7, 1], FixedLength(9)) == [2, 3, 4, 5]
    assert proposed(table, [7], FixedLength(3)) == []
    table = count_n_grams(written(*[[1, 2, 3]] * 50, *[[3, token] for token in range(10, 40)]), VOCAB)
    dear = Calibration(step_s=0.01, c=0.0, v=tuple(1 + 0.5 * n for n in range(13)), row_floor=None)
    assert proposed(table, [1], AutoLength(dear)) == [2, 3]
    assert table.after([3]) is None or table.after([3]).probability < 0.3


def test_calibrated_probabilities_are_the_observed_rates():
    rng = np.random.default_rng(3)

    def texts(count):
        tails = [((10, 0.3), (1, 0.6))[at % 2] for at in range(2 * count)]
        return written(*([first, first + (1 if rng.random() < p else 2)] for first, p in tails), start=1)

    entries = sorted((int(key_of([token])), token + 1, stored) for token, stored in ((1, 230), (10, 130)))
    keys, tokens, stored = (np.array(values) for values in zip(*entries, strict=True))
    table = NGramTable(keys.astype(np.uint32), tokens.astype(np.uint16), stored.astype(np.uint8), VOCAB)
    calibrated = table.with_probabilities(calibration(table, texts(1000)))
    assert calibrated.after([1]) == (2, pytest.approx(0.6, abs=0.05))
    assert calibrated.after([10]) == (11, pytest.approx(0.3, abs=0.05))
    assert calibration(table, texts(2))(np.array([0.3])) == 0.3, "too few to tell"
