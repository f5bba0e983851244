"""The best draft length against brute force, the oracle's length by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.records.figures import fold
from specdemo.records.theory import best_length, oracle_length
from specdemo.records.trace import SPECULATIVE, Calibration, Round, Rule, Status, TargetToken, Token

V = (1.0, 1.0, 1.05, 1.1, 1.3, 1.35)
COSTS = Calibration(step_s=0.02, c=0.1, v=V, row_floor=2)


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


def test_smaller_of_equal_lengths_is_best():
    assert best_length(0.0, 0.0, (1.0,) * 6) == 0
    assert best_length(0.5, 0.0, (1.0, 1.5, 1.75)) == 0
    assert best_length(1.0, 0.0, (1.0, 1.0, 1.5)) == 1


def test_expensive_drafts_are_best_at_zero_and_free_ones_at_the_maximum():
    assert best_length(0.6, 1.0, V) == 0
    assert best_length(1.0, 0.0, V) == len(V) - 1
    lengths = [best_length(alpha / 10, 0.05, V) for alpha in range(11)]
    assert lengths == sorted(lengths) and lengths[0] == 0 and lengths[-1] == len(V) - 1


def round_(drafted: int, accepted: int, steps: int | None = None, own: bool = True) -> Round:
    """A round of which ``accepted`` drafts were kept; not ``own`` where an accepted token ended the text."""
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


def test_copied_tokens_cost_the_oracle_no_step():
    assert oracle_length([round_(4, 2, steps=0)], COSTS).s_oracle == pytest.approx(3 / V[2])


@given(st.lists(st.integers(0, 5).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), min_size=1))
def test_the_oracle_is_never_slower(drafts):
    found = oracle_length([round_(k, accepted) for k, accepted in drafts], COSTS)
    assert found.s_oracle >= found.s_cost * (1 - 1e-12)
    assert all(0 <= best <= k for best, (k, _) in zip(found.lengths, drafts, strict=True))


def test_no_rounds_have_no_oracle():
    found = oracle_length([], COSTS)
    assert (found.lengths, found.whole, found.s_cost, found.s_oracle) == ((), (), None, None)
