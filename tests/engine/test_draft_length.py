"""Draft lengths: fixed, or automatic from the costs and the acceptance rates observed so far."""

import dataclasses
import random
from itertools import groupby, pairwise

import pytest
import torch
from helpers.streams import TABLES, costs, decode, rate, stream, table

from specdemo.engine.draft_length import (
    PROBE_AFTER,
    PROBE_SHARE,
    AutoLength,
    FixedLength,
    PlannedLength,
    length_for,
)
from specdemo.records.limits import MAX_K
from specdemo.records.trace import AUTO

FREE = (1.0,) * (MAX_K + 1)
LINEAR = tuple(1.0 + 0.3 * n for n in range(MAX_K + 1))
STEEP = tuple(1.0 + 0.5 * n for n in range(MAX_K + 1))
AFTER_FOUR = (1.0, 1.0, 1.0, 1.0, *[1.6] * 9)
PAID_ONCE = (1.0, *[1.3] * MAX_K)
SURE = torch.tensor([9.0, 0.0, 0.0])
UNSURE = torch.zeros(200)

KINDS = pytest.mark.parametrize("kind", [AutoLength, PlannedLength])


def count(wants):
    return sum(1 for _ in iter(wants, False))


def drafted(length, scores, limit=MAX_K):
    """Return the number of tokens drafted if every step has the logits ``scores``."""
    length.start(limit)
    return count(lambda: length.wants_step() and length.wants_token(scores))


def copied(length, matched):
    length.start(MAX_K)
    return count(lambda: length.wants_copy(matched))


def play(kind, given, text):
    """Simulate a run on a machine with the costs ``given``."""
    return decode(kind(given), text, given)


def test_a_fixed_length_is_k_unless_less_is_left():
    length = FixedLength(4)
    assert [drafted(length, UNSURE, limit) for limit in (9, 4, 2, 0)] == [4, 4, 2, 0]


def test_a_sure_cheap_draft_goes_on_to_the_limit_and_an_unsure_one_stops():
    assert drafted(AutoLength(costs(0.05, FREE)), SURE) == MAX_K
    assert drafted(AutoLength(costs(0.05, FREE)), SURE, limit=3) == 3
    assert drafted(AutoLength(costs(0.05, STEEP)), UNSURE) == 0
    dear = AutoLength(costs(5.0, FREE))
    assert drafted(dear, SURE) == 0, "a step costs more than the tokens it can gain"


def test_a_token_that_is_declined_after_its_step_lowers_the_rate_of_its_position():
    """Otherwise a position would keep the rate of the few good tokens that are drafted there."""
    length, steps = AutoLength(costs(0.05, LINEAR)), []
    for _ in range(40):
        length.start(MAX_K)
        taken = 0
        for scores in (SURE, UNSURE):
            if not length.wants_step():
                break
            taken += 1
            if not length.wants_token(scores):
                break
        length.observe(1, 1, 2)  # the first token is accepted
        steps.append(taken)
    assert steps[:2] == [2, 2] and sum(steps[-10:]) < 15, "most rounds no longer pay for a second step"


@KINDS
def test_nothing_is_drafted_if_no_token_is_useful(kind):
    length = kind(costs(0.05, FREE))
    assert [drafted(length, SURE, limit=0) for _ in range(2 * PROBE_AFTER)] == [0] * 2 * PROBE_AFTER
    assert not length.wants_copy(1)


def test_longer_matches_give_longer_copies_and_none_if_a_draft_would_gain_more():
    sizes = [copied(AutoLength(costs(0.0, LINEAR)), matched) for matched in (1, 2, 3)]
    assert sizes == sorted(set(sizes))
    alone, with_draft = AutoLength(costs(0.0, FREE)), AutoLength(costs(0.01, FREE))
    assert copied(alone, 1) == copied(alone, 3) == copied(with_draft, 3) == MAX_K
    for _ in range(20):
        k = drafted(with_draft, SURE)
        with_draft.observe(k, k, k + 1)
        copied(with_draft, 1)
        with_draft.observe(0, min(1, k), 1)
    assert copied(with_draft, 1) == 0


@KINDS
def test_a_cost_that_rises_in_one_step_is_drafted_up_to_or_beyond(kind):
    hard = [stream(lambda token: 0.5, seed) for seed in range(4)]
    filled = [k for text in hard for k in play(kind, costs(0.05, AFTER_FOUR), text).drafted]
    assert filled.count(3) > len(filled) / 3 and max(filled[:-1]) <= 4
    easy = [stream(lambda token: 0.7, seed) for seed in range(4)]
    jumped = [k for text in easy for k in play(kind, costs(0.02, PAID_ONCE), text).drafted]
    assert sum(k > 1 for k in jumped) > 0.7 * len(jumped) and sum(jumped) > 3 * len(jumped)


@KINDS
def test_a_probe_follows_as_many_undrafted_rounds_as_its_cost_allows(kind):
    length, counts = kind(costs(0.2, FREE)), []
    for _ in range(400):
        counts.append(drafted(length, SURE))
        length.observe(accepted=0, compared=min(1, counts[-1]), emitted=1)
    probes = [index for index, count in enumerate(counts) if count and index >= 200]
    assert set(counts[200:]) == {0, 1}
    assert {later - earlier for earlier, later in pairwise(probes)} == {0.2 / PROBE_SHARE + 1}


@KINDS
def test_other_work_that_takes_turns_does_not_end_drafting(kind):
    dice, true = random.Random(0), costs(0.05, (1.0, 1.02, 1.04, 1.06, 1.1, *[2.0] * 8))

    def disturbed():  # as often and as long as beside two busy processes
        return 1.0 + dice.expovariate(1.5) + (dice.uniform(2.0, 12.0) if dice.random() < 0.3 else 0.0)

    texts = [stream(lambda token: 0.55, seed) for seed in range(12)]
    found = [decode(kind(true), text, true, disturbed) for text in texts]
    runs = [list(same) for one in found for drafts, same in groupby(map(bool, one.drafted)) if not drafts]
    assert max(map(len, runs), default=0) <= 8
    quiet = rate(lambda: kind(true), texts, true)
    assert sum(one.tokens for one in found) / sum(one.cost for one in found) > 0.95 * quiet


@KINDS
@pytest.mark.parametrize("name", TABLES)
def test_good_text_after_a_bad_start_is_drafted_again(kind, name):
    texts = [stream(lambda token: 0.0 if token < 40 else 0.8, seed) for seed in range(4)]
    sure = [dataclasses.replace(text, confidence=(0.9,) * len(text.confidence)) for text in texts]
    good = [stream(lambda token: 0.8, seed) for seed in range(4)]
    for text, fresh in zip(sure, good, strict=True):
        late = play(kind, table(name), text)
        # The cost of a fresh run for as much good text, and the wait for two probes.
        share = (len(text.luck) - 40) / len(fresh.luck)
        bound = 40 * 1.1 + 2 * PROBE_AFTER + 1.1 * share * play(kind, table(name), fresh).cost
        assert late.cost < bound


@KINDS
@pytest.mark.parametrize("given", [*TABLES.values(), (0.25, FREE), (0.25, PAID_ONCE), (5.5, FREE)])
def test_a_draft_that_is_never_right_costs_little(kind, given):
    never = stream(lambda token: 0.0, seed=0)
    for confidence in (0.05, 0.5, 0.95):
        text = dataclasses.replace(never, confidence=(confidence,) * len(never.confidence))
        assert play(kind, costs(*given), text).cost < 1.05 * len(text.luck)


@KINDS
def test_costs_of_drafting_measured_far_too_high_or_too_low_are_corrected(kind):
    true, text = table("bf16"), stream(lambda token: 0.7, seed=1)
    wrong = decode(kind(dataclasses.replace(true, c=5.5)), text, true)
    assert wrong.drafted[:2] == [0, 0] and max(wrong.drafted[:10]) > 1
    assert wrong.rate > 0.95 * play(kind, true, text).rate
    true = costs(0.9, FREE)
    wrong = decode(kind(dataclasses.replace(true, c=0.01)), stream(lambda token: 0.5, seed=1), true)
    assert sum(wrong.drafted[10:]) < 0.2 * len(wrong.drafted[10:])


STREAMS = {
    "hard": (lambda token: 0.3, 1.0),
    "middling": (lambda token: 0.5, 1.0),
    "easy": (lambda token: 0.75, 1.0),
    "fading": (lambda token: 0.7, 0.8),
    "in turns": (lambda token: 0.9 if token // 24 % 2 else 0.2, 1.0),
    "worse and worse": (lambda token: 0.9 - 0.006 * token, 1.0),
}


@KINDS
@pytest.mark.parametrize("name", TABLES)
def test_it_is_nearly_as_good_as_the_best_fixed_length_everywhere(kind, name):
    true, ratios = table(name), {}
    for label, (alpha, fading) in STREAMS.items():
        texts = [stream(alpha, seed, fading) for seed in range(8)]
        best = max(rate(lambda k=k: FixedLength(k), texts, true) for k in range(MAX_K + 1))
        ratios[label] = rate(lambda: kind(true), texts, true) / best
    assert min(ratios.values()) > 0.97, ratios
    if kind is AutoLength:
        assert sum(ratios.values()) > 1.02 * len(ratios), "it has more information than a fixed length"


def test_auto_needs_costs_and_follows_the_device():
    measured = costs(0.1, FREE)
    assert isinstance(length_for(3, None, torch.device("cpu")), FixedLength)
    assert isinstance(length_for(AUTO, measured, torch.device("cpu")), AutoLength)
    assert isinstance(length_for(AUTO, measured, torch.device("meta")), PlannedLength)
    with pytest.raises(ValueError, match="needs measured pass costs"):
        length_for(AUTO, None, torch.device("cpu"))
