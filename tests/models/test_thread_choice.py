"""The choice of the number of threads, with planted times of passes."""

import pytest

from specdemo.models.threads import FIRST_WAIT_S, LONGEST_WAIT_S, ThreadChoice


class Machine:
    """A machine on which a pass takes as long as ``times`` says for its number of threads."""

    def __init__(self, counts: tuple[int, ...] = (2, 1)):
        self.now, self.times = 0.0, {4: 0.006, 2: 0.010, 1: 0.018}
        self.choice = ThreadChoice(counts, lambda: self.now)
        self.used: list[int] = []

    def run(self, passes: int = 1) -> None:
        for _ in range(passes):
            count = self.choice.count
            self.used.append(count)
            self.now += self.times[count]
            self.choice.passed("target", self.times[count])


def settled() -> Machine:
    """Return an idle machine after the trial at load and some passes."""
    machine = Machine()
    machine.choice.settle(machine.run, 1.0)
    machine.run(20)
    return machine


def test_an_idle_machine_uses_all_threads():
    machine = Machine()
    machine.choice.settle(machine.run, 1.0)
    assert set(machine.used) == {2, 1} and machine.choice.count == 2
    machine.used.clear()
    machine.run(500)
    assert set(machine.used) == {2}, "nothing is tried while passes take the usual time"


def test_a_model_too_slow_for_a_trial_uses_all_threads():
    machine = Machine()
    machine.choice.settle(machine.run, 0.001)
    machine.run(20)
    assert machine.choice.count == 2


def test_beside_a_busy_process_one_thread_is_used_until_it_ends():
    machine = settled()
    machine.times = {2: 0.080, 1: 0.030}
    machine.run(15)
    assert machine.choice.count == 1
    machine.used.clear()
    machine.run(300)
    assert machine.used.count(2) < 0.1 * len(machine.used), "trials with more threads are rare"
    machine.times = {2: 0.010, 1: 0.018}
    machine.run(round(2 * LONGEST_WAIT_S / 0.018))
    assert machine.choice.count == 2


def test_with_four_threads_two_may_be_fastest_beside_a_busy_process():
    machine = Machine((4, 2, 1))
    machine.choice.settle(machine.run, 1.0)
    machine.run(20)
    assert machine.choice.count == 4
    machine.times = {4: 0.080, 2: 0.012, 1: 0.018}
    machine.run(20)
    assert machine.choice.count == 2
    machine.used.clear()
    machine.run(1000)
    assert machine.used.count(2) > 0.9 * len(machine.used)
    machine.times = {4: 0.006, 2: 0.010, 1: 0.018}
    machine.run(round(2 * LONGEST_WAIT_S / 0.010))
    assert machine.choice.count == 4


def test_a_slowdown_that_no_number_helps_is_tried_ever_more_seldom():
    machine = settled()
    machine.times = {2: 1.0, 1: 1.8}
    machine.used.clear()
    machine.run(40)
    assert FIRST_WAIT_S < LONGEST_WAIT_S and machine.used.count(1) <= 9


@pytest.mark.parametrize("count", [1, 2])
def test_a_fixed_number_never_changes(count):
    machine = Machine((count,))
    machine.choice.settle(machine.run, 1.0)
    machine.run(10)
    machine.times = {2: 1.0, 1: 1.0}
    machine.run(50)
    assert set(machine.used) <= {count} and machine.choice.count == count
