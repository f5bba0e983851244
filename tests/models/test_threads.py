"""The threads of the arithmetic: one thread of the process has several, and their number follows the load."""

import threading

import pytest
import torch

from specdemo.models.threads import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    PassKind,
    ThreadChoice,
    choice,
    thread_count,
    use_threads,
)
from specdemo.pairs.hardware import device_name

pytestmark = pytest.mark.usefixtures("one_thread")


def on_new_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def limits():
    """Return the calling thread's number of threads in torch, OpenMP and MKL."""
    lines = torch.__config__.parallel_info().splitlines()
    return {int(line.split()[-1]) for line in lines if "get_num_threads" in line or "get_max_threads" in line}


def owning(count):
    use_threads(count)
    fresh = on_new_thread(limits)
    return limits(), fresh


def test_only_the_thread_that_asks_has_several_threads_but_all_read_their_number():
    assert on_new_thread(lambda: owning(3)) == ({3}, {1})
    assert on_new_thread(limits) == limits() == {1}
    assert thread_count() == on_new_thread(thread_count) == 3
    assert device_name(torch.device("cpu")).endswith(", 3 threads")
    assert on_new_thread(lambda: owning(None)) == ({3}, {1}), "the next owner has as many"


class Machine:
    """A machine on which a pass takes as long as ``times`` says for its number of threads."""

    def __init__(self, counts=(4, 2, 1), settle_s=1.0, times=None):
        self.now, self.times = 0.0, times or {4: 0.006, 2: 0.010, 1: 0.018}
        self.rested: dict[int, float] = {}  # times of passes after passes with another number of threads
        self.choice = ThreadChoice(counts, lambda: self.now)
        self.used = []
        self.choice.settle(self.run, settle_s)

    def run(self, passes=1, rows=1, part=0):
        self.used.clear()
        for _ in range(passes):
            count = self.choice.count
            rested = self.used and self.used[-1] != count
            self.used.append(count)
            seconds = (self.rested if rested and self.rested else self.times)[count] * (1 + 0.05 * rows)
            self.now += seconds
            self.choice.passed(PassKind("target", rows, part), seconds)


def test_an_idle_machine_uses_all_threads_and_so_does_a_model_too_slow_for_a_trial():
    machine = Machine()
    machine.run(500)
    assert set(machine.used) == {4}, "nothing is tried while passes take the usual time"
    machine = Machine(settle_s=0.001)
    machine.run(20)
    assert machine.choice.count == 4


@pytest.mark.parametrize("busy", [{4: 0.120, 2: 0.080, 1: 0.030}, {4: 0.080, 2: 0.012, 1: 0.018}])
def test_next_to_a_busy_process_fewer_threads_are_used_until_it_ends(busy):
    machine = Machine()
    machine.run(20)
    idle, machine.times = machine.times, busy
    machine.run(20)
    best = min(busy, key=busy.get)
    assert machine.choice.count == best
    machine.run(1000)
    assert machine.used.count(best) > 0.9 * len(machine.used), "trials of other numbers are rare"
    machine.times = idle
    machine.run(round(2 * LONGEST_WAIT_S / idle[best]))
    assert machine.choice.count == 4


IDLE, BUSY = {2: 0.007, 1: 0.008}, {2: 0.1, 1: 0.015}  # two processors, without and with two busy processes


def test_a_start_next_to_busy_processes_chooses_from_the_passes_for_which_there_was_time():
    machine = Machine((2, 1), settle_s=0.3, times=BUSY)
    assert machine.now > 0.3 and machine.choice.count == 1
    for times, count in ((IDLE, 2), (BUSY, 1)):  # slow first passes do not hide later slow ones
        machine.times = times
        machine.run(round(2 / times[1]))
        assert machine.choice.count == count


@pytest.mark.parametrize(("rows", "part"), [(1, 0), (1, 3), (4, 0), (5, 2)])
def test_a_wrong_choice_ends_within_a_few_passes_also_if_all_passes_of_their_kind_were_slow(rows, part):
    # The trial at load was lucky: the busy processes began after it.
    machine = Machine((2, 1), times=IDLE)
    machine.times = BUSY
    machine.run(15, rows, part)
    assert machine.used[-1] == 1


def test_slow_passes_do_not_become_usual_while_trials_are_misled():
    machine = Machine((2, 1), times=IDLE)
    machine.times, machine.rested = BUSY, {2: 0.1, 1: 0.2}
    machine.run(150)
    assert machine.choice.count == 2
    machine.rested = BUSY
    machine.run(round(LONGEST_WAIT_S / BUSY[2]) + 15)
    assert machine.choice.count == 1


def test_a_slowdown_that_no_number_helps_is_tried_ever_more_seldom_and_a_fixed_number_never_changes():
    for counts, trials in (((2, 1), 9), ((2,), 0)):
        machine = Machine(counts)
        machine.run(20)
        machine.times = {2: 1.0, 1: 1.8}
        machine.run(40)
        assert FIRST_WAIT_S < LONGEST_WAIT_S and machine.used.count(1) <= trials


def test_passes_over_several_rows_have_their_own_choice(monkeypatch):
    times = {(1, 2): 0.010, (1, 1): 0.009, (5, 2): 0.011, (5, 1): 0.018}
    passed = []
    monkeypatch.setattr("specdemo.models.threads._choices", {})
    monkeypatch.setattr("specdemo.models.threads.is_fixed", lambda: False)
    use_threads(2)
    for rows in (1, 5) * 40:  # two lanes take turns
        threads = choice(rows)
        threads._clock = lambda: sum(passed)
        seconds = times[rows, threads.count]
        passed.append(seconds)
        threads.passed(PassKind("target", rows), seconds)
        if sum(passed) > 0.5:  # busy: one row is faster on one thread, several rows still on two
            times = {(1, 2): 0.040, (1, 1): 0.012, (5, 2): 0.020, (5, 1): 0.026}
    assert (choice(1).count, choice(5).count, choice(2).count) == (1, 2, 2)
