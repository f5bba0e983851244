"""The threads of the arithmetic: one thread of the process has them, all others compute alone."""

import threading

import pytest
import torch

from specdemo.models.threads import thread_count, use_threads
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


def test_only_the_thread_that_asks_has_several_threads():
    assert on_new_thread(lambda: owning(3)) == ({3}, {1})
    assert on_new_thread(limits) == limits() == {1}


def test_every_thread_reads_the_owner_s_number():
    on_new_thread(lambda: use_threads(3))
    assert thread_count() == on_new_thread(thread_count) == 3
    assert device_name(torch.device("cpu")).endswith(", 3 threads")


def test_without_a_number_the_next_owner_has_as_many():
    on_new_thread(lambda: use_threads(3))
    assert on_new_thread(lambda: owning(None)) == ({3}, {1})
