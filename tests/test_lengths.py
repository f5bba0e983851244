"""The draft length: fixed as asked, automatic as the costs and the acceptance seen so far suggest."""

import pytest
import torch

from specdemo.lengths import AutoLength, FixedLength, PlannedLength, length_for
from specdemo.limits import MAX_K
from specdemo.trace import AUTO, Calibration

FREE = (1.0,) * (MAX_K + 1)
STEEP = tuple(1.0 + 0.5 * n for n in range(MAX_K + 1))
SURE = torch.tensor([9.0, 0.0, 0.0])
UNSURE = torch.zeros(200)


def drafted(length, scores, most=MAX_K):
    """How many tokens a drafter would draft that sees ``scores`` at every step."""
    length.start(most)
    count = 0
    while length.wants_step():
        if not length.wants_token(scores):
            break
        count += 1
    return count


def test_a_fixed_length_is_k_unless_less_is_left():
    length = FixedLength(4)
    assert [drafted(length, UNSURE, most) for most in (9, 4, 2, 0)] == [4, 4, 2, 0]


def test_a_sure_cheap_draft_goes_on_to_the_limit_and_an_unsure_one_stops():
    assert drafted(AutoLength(0.05, FREE), SURE) == MAX_K
    assert drafted(AutoLength(0.05, FREE), SURE, most=3) == 3
    assert drafted(AutoLength(0.05, STEEP), UNSURE) == 0
    assert drafted(AutoLength(5.0, FREE), SURE) == 0, "a step dearer than the tokens it can win is never made"


def test_it_learns_from_what_became_of_its_drafts():
    bad = AutoLength(0.1, FREE)
    for _ in range(60):
        count = drafted(bad, SURE)
        bad.observe(accepted=0, compared=min(1, count), emitted=1)
    assert drafted(bad, SURE) <= 1
    good = AutoLength(0.1, FREE)
    for _ in range(60):
        count = drafted(good, UNSURE)
        good.observe(accepted=count, compared=count, emitted=count + 1)
    assert drafted(good, UNSURE) > drafted(AutoLength(0.1, FREE), UNSURE)


def test_copies_are_wanted_in_proportion_to_the_match():
    def copied(matched):
        length = AutoLength(0.1, tuple(1.0 + 0.15 * n for n in range(MAX_K + 1)))
        length.start(MAX_K)
        return sum(1 for _ in iter(lambda: length.wants_copy(matched), False))

    assert copied(1) < copied(2) < copied(3)


def test_a_planned_length_follows_the_acceptance_rate():
    planned = PlannedLength(0.1, FREE)
    planned.observe(accepted=200, compared=200, emitted=200)
    assert drafted(planned, UNSURE) == MAX_K
    for _ in range(300):
        planned.observe(accepted=0, compared=8, emitted=1)
    assert drafted(planned, UNSURE) <= 1


def test_auto_needs_costs_and_follows_the_device():
    costs = Calibration(step_s=0.02, c=0.1, v=FREE, row_floor=2)
    assert isinstance(length_for(3, None, torch.device("cpu")), FixedLength)
    assert isinstance(length_for(AUTO, costs, torch.device("cpu")), AutoLength)
    assert isinstance(length_for(AUTO, costs, torch.device("meta")), PlannedLength)
    with pytest.raises(ValueError, match="needs measured pass costs"):
        length_for(AUTO, None, torch.device("cpu"))
