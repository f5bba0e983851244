"""The theory against the paper's formula and brute force, the oracle's length by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.records.figures import fold
from specdemo.records.theory import (
    RoundShape,
    best_length,
    best_round,
    break_even_alpha,
    expected_tokens,
    is_slower,
    oracle_length,
    theoretical_speedup,
    tokens_by_length,
)
from specdemo.records.trace import SPECULATIVE, Calibration, Round, Rule, Status, TargetToken, Token

V = (1.0, 1.0, 1.05, 1.1, 1.3, 1.35)
COSTS = Calibration(step_s=0.02, c=0.1, v=V, row_floor=2)


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"), [(0.0, 4, 1.0), (1.0, 4, 5.0), (0.5, 2, 1.75), (0.8, 3, 2.952)]
)
def test_expected_tokens_follow_equation_1(alpha, k, tokens):
    assert expected_tokens(alpha, k) == pytest.approx(tokens)
    assert tokens_by_length([alpha] * k)[k] == pytest.approx(tokens)


def test_tokens_by_length_use_the_rate_of_each_place():
    assert tokens_by_length([]) == [1.0]
    assert tokens_by_length([0.5, 0.8, 0.0, 1.0]) == pytest.approx([1.0, 1.5, 1.9, 1.9, 1.9])


def test_the_best_round_may_follow_a_cost_that_is_paid_once():
    tokens = tokens_by_length([0.7] * 6)
    assert best_round(tokens, 0.02, (1.0, *[1.8] * 6)) == 6
    assert best_round(tokens[:2], 0.02, (1.0, *[1.8] * 6)) == 0, "one token more would not pay for it"
    assert best_round(tokens, 0.02, (1.0, 1.0, 1.0, *[2.5] * 4)) == 2


def test_the_speedup_at_the_break_even_rate_is_1():
    shape = RoundShape(3, 0.3, 1.1)
    assert theoretical_speedup(break_even_alpha(shape), shape) == pytest.approx(1.0)
    assert break_even_alpha(RoundShape(3, 6.0, 1.0)) is None


@given(
    alpha=st.floats(0, 1),
    c=st.floats(0, 2),
    v=st.lists(st.floats(1, 4), min_size=2, max_size=13).map(lambda costs: [1.0, *sorted(costs)]),
)
def test_best_length_equals_brute_force(alpha, c, v):
    speedups = [sum(alpha**i for i in range(k + 1)) / (k * c + v[k]) for k in range(len(v))]
    best = best_length(alpha, c, v)
    assert speedups[best] == pytest.approx(max(speedups))
    assert all(speedup < speedups[best] * (1 + 1e-9) for speedup in speedups)


@pytest.mark.parametrize(
    ("alpha", "c", "v", "k"),
    [
        (0.0, 0.0, (1.0,) * 6, 0),
        (0.5, 0.0, (1.0, 1.5, 1.75), 0),
        (1.0, 0.0, (1.0, 1.0, 1.5), 1),
        (0.6, 1.0, V, 0),
        (1.0, 0.0, V, 5),
    ],
)
def test_the_smallest_of_equal_lengths_is_best(alpha, c, v, k):
    assert best_length(alpha, c, v) == k


def round_(drafted: int, accepted: int, steps: int | None = None, own: bool = True) -> Round:
    tokens = tuple(
        Token(
            i, 1.0, 1.0, Status.ACCEPTED if i < accepted else Status.DISCARDED, i <= accepted, i == accepted
        )
        for i in range(drafted)
    )
    status = Status.BONUS if accepted == drafted else Status.CORRECTED
    emission = TargetToken(9, status, prob=1.0) if own else None
    return Round(0, 5, tokens, emission, 0.01, 0.02, 0.0, draft_steps=drafted if steps is None else steps)


def test_oracle_drafts_the_accepted_tokens_of_each_round():
    rounds = [round_(4, 2), round_(4, 0), round_(4, 4), round_(0, 0), round_(3, 2, own=False)]
    found = oracle_length(rounds, COSTS)
    assert found.lengths == (2, 0, 4, 0, 1)
    assert found.whole == (False, False, True, False, False) and found.open_ended == 1
    tokens, fallen = 3 + 1 + 5 + 1 + 2, 3 * (0.4 + V[4]) + 1.0 + (0.3 + V[3])
    assert found.s_cost == pytest.approx(tokens / fallen)
    assert found.s_cost == pytest.approx(fold({SPECULATIVE: rounds}, Rule.GREEDY, COSTS).s_cost)
    least = (0.2 + V[2]) + V[0] + (0.4 + V[4]) + V[0] + (0.1 + V[1])
    assert found.s_oracle == pytest.approx(tokens / least)
    copied = oracle_length([round_(4, 2, steps=0)], COSTS)
    assert copied.s_oracle == pytest.approx(3 / V[2]), "copied tokens take no step"
    none = oracle_length([], COSTS)
    assert (none.lengths, none.whole, none.s_cost, none.s_oracle) == ((), (), None, None)


@given(st.lists(st.integers(0, 5).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), min_size=1))
def test_the_oracle_is_never_slower(drafts):
    found = oracle_length([round_(k, accepted) for k, accepted in drafts], COSTS)
    assert found.s_oracle >= found.s_cost * (1 - 1e-12)
    assert all(0 <= best <= k for best, (k, _) in zip(found.lengths, drafts, strict=True))


@pytest.mark.parametrize(("speedup", "slower"), [(0.994, True), (0.996, False), (1.0, False), (None, False)])
def test_slower_is_decided_on_the_speedup_as_it_is_shown(speedup, slower):
    assert is_slower(speedup) is slower
