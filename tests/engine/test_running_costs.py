"""Pass costs in a run: corrected by many rounds, unchanged by a single slow one."""

import random

import pytest
from helpers.streams import costs, table

from specdemo.engine.running_costs import RunningCosts

GIVEN = costs(0.1, (1.0, 1.0, 1.2, 1.5, 2.0))


def run(found, times, steps=1, rows=2, c=0.1, v=1.0, pace=1.0):
    """Add rounds in which a step took c and the pass v target passes of 20 ms, at another pace."""
    for _ in range(times):
        found.timed(steps, rows, steps * c * 0.02 * pace, v * 0.02 * pace)


def ratios(found):
    """Return c and v in units of the pass over one token."""
    return found.c / found.v[0], [cost / found.v[0] for cost in found.v]


def test_one_slow_round_changes_nothing_and_a_slower_machine_no_ratio():
    found = RunningCosts(GIVEN)
    for _ in range(3):
        run(found, 1, c=5.0, v=9.0)
        assert found.c == pytest.approx(GIVEN.c, rel=0.01) and found.v == pytest.approx(GIVEN.v, rel=0.01)
        run(found, 3)
    found = RunningCosts(GIVEN)
    for pace in (1.0, 1.7, 0.6):
        run(found, 20, pace=pace)
        c, v = ratios(found)
        assert c == pytest.approx(0.1) and v == pytest.approx(GIVEN.v)


def test_a_pass_that_costs_more_is_distinguished_from_a_slower_machine():
    found = RunningCosts(GIVEN)
    for _ in range(12):
        run(found, 1, steps=0, rows=1, v=1.0)
        run(found, 1, steps=3, rows=4, v=2.4)
    c, v = ratios(found)
    assert c == pytest.approx(0.1) and v[3] == pytest.approx(2.4)
    assert v[1] / GIVEN.v[1] < v[2] / GIVEN.v[2] < 1.6, "between measured rows the correction rises"
    assert v[4] == pytest.approx(2.0 * 1.6), "beyond them it stays"


def test_rounds_without_draft_steps_leave_c_unchanged():
    found = RunningCosts(costs(0.0, GIVEN.v))
    run(found, 5, steps=0, rows=3, v=1.2)
    assert found.c == 0.0 and found.v == pytest.approx(GIVEN.v)


@pytest.mark.parametrize("seed", range(8))
def test_disturbed_passes_of_one_kind_change_no_ratio(seed):
    dice, found = random.Random(seed), RunningCosts(GIVEN)
    for index in range(60):
        slow = 1.0 + dice.expovariate(1.5) + (9.0 if dice.random() < 0.3 else 0.0)
        run(found, 1, rows=1 if index < 4 else 2, v=slow)
    assert 0.7 < ratios(found)[1][1] < 1.4


def test_costs_are_found_on_a_noisy_machine():
    true, dice = table("cliff"), random.Random(0)
    found, seen = RunningCosts(costs(0.3, true.v)), []

    def slow():
        return 1.0 + dice.expovariate(4) + (9.0 if dice.random() < 0.05 else 0.0)

    for index in range(300):
        k = dice.choice([0, 1, 2, 3, 3, 5, 8])
        found.timed(k, k + 1, k * true.c * 0.03 * slow(), true.v[k] * 0.03 * slow())
        c, v = ratios(found)
        if index > 20:
            seen.append((c / true.c, v[3] / true.v[3], v[8] / true.v[8]))
    for ratio in zip(*seen, strict=True):
        ordered = sorted(ratio)
        assert 0.85 < ordered[len(ordered) // 2] < 1.15
        assert ordered[len(ordered) // 20] > 0.65 and ordered[-len(ordered) // 20] < 1.5
