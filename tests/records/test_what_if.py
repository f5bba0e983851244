"""Other draft lengths in hindsight: the run's own length exactly, others by hand, bounds around real runs."""

import pytest
from helpers.tiny import tiny_pair
from hypothesis import given
from hypothesis import strategies as st

from specdemo.pairs.traced_run import TracedRun
from specdemo.records import recordings
from specdemo.records.figures import Totals, fold
from specdemo.records.limits import parse_config
from specdemo.records.trace import SPECULATIVE, Rule, Run
from specdemo.records.what_if import Hindsight, Times, accepted_by_token, expected_rounds, hindsight


def totals_of(run: Run) -> Totals:
    return fold({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, run.calibration)


def lengths_of(run: Run) -> list[Hindsight]:
    assert run.calibration
    return hindsight(run, totals_of(run), run.calibration)


def passes(rounds: list[Times]) -> float:
    return sum(times.count for times in rounds)


def seconds(rounds: list[Times]) -> float:
    return sum(times.count * (times.draft_s + times.verify_s + times.rest_s) for times in rounds)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", ["days", "email", "too-long", "five", "story-sampled", "same-noise"])
def test_the_run_s_own_draft_length_gives_its_passes_and_seconds(name):
    run = recordings.load(name)
    totals = totals_of(run)
    lengths = lengths_of(run)
    assert [length.k for length in lengths] == list(range(13))
    for rounds in (lengths[0], lengths[int(run.config.k)]):
        for found in (rounds.expected, rounds.fewest, rounds.most):
            assert passes(found) == totals.passes
            assert seconds(found) == pytest.approx(totals.seconds)


@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_real_runs_with_another_draft_length_are_within_the_bounds(rule):
    def decoded(k: int) -> Run:
        temperature = 0.0 if rule is Rule.GREEDY else 0.8
        raw = {"prompt": "Ada", "mode": "raw", "max_new_tokens": 32, "rule": rule, "temperature": temperature}
        traced = TracedRun(tiny_pair(), parse_config({**raw, "k": k, "baseline": False}))
        for _ in traced.events():
            pass
        return traced.run

    run = decoded(4)
    assert 0 < (totals_of(run).alpha_compared or 0) < 1
    for k in (1, 2, 8):
        other, found = decoded(k), lengths_of(run)[k]
        assert run.lanes[SPECULATIVE].ids == other.lanes[SPECULATIVE].ids
        assert passes(found.fewest) <= totals_of(other).passes <= passes(found.most)


@pytest.mark.parametrize(
    ("k", "alpha", "rounds"),
    [
        # The target's own tokens are at 2 (corrected) and 4 (not compared).
        (1, 0.5, {1: 3.0}),  # 0 + 1, corrected 2, 3 + 4
        (3, 0.0, {3: 1.0, 2: 1.0}),  # 0 1 + corrected 2, 3 + corrected 4
        (2, 1.0, {2: 2.0}),  # 0 1 + 2, 3 4
    ],
)
def test_rounds_are_counted_by_hand(k, alpha, rounds):
    assert expected_rounds([True, True, False, True, None], k, alpha, 6) == pytest.approx(rounds)
    # The first token is accepted in a quarter of all cases; then the target adds the second.
    assert expected_rounds([None, False], 1, 0.25, 99) == {1: 1.75}
    # A draft ends where the run has no room.
    assert expected_rounds([True, True, True, False], 4, 0.5, 4) == {3: 1.0}
    assert expected_rounds([False, False, False], 4, 0.5, 3) == {2: 1.0, 1: 1.0, 0: 1.0}


@given(
    accepted=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=30),
    k=st.integers(1, 12),
    alpha=st.floats(0, 1),
)
def test_more_accepted_tokens_never_take_more_passes(accepted, k, alpha):
    fewest, expected, most = (
        sum(expected_rounds(accepted, k, chance, 99).values()) for chance in (1.0, alpha, 0.0)
    )
    assert fewest - 1e-9 <= expected <= most + 1e-9


def test_tokens_without_a_compared_draft_are_unknown():
    run = recordings.load("five")
    accepted = accepted_by_token(run.lanes[SPECULATIVE].rounds)
    assert len(accepted) == totals_of(run).tokens
    assert accepted[:5] == [True, True, True, True, None]
