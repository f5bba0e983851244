"""The number of threads that compute on a CPU."""

import threading

import torch

_chosen: int | None = None
_fixed = False


def use_threads(count: int | None = None) -> None:
    """Let the current thread compute with ``count`` threads, and every thread that starts later with one.

    OpenMP keeps a pool of workers for each thread that computes with several. When all pools together have
    more threads than there are processors, the workers sleep at every barrier, and passes take longer.

    Args:
        count: The number of threads; None for the number of the last call, or at first for torch's own
            choice: the variable OMP_NUM_THREADS, or one for each core.
    """
    global _chosen, _fixed
    _chosen, _fixed = count or thread_count(), count is not None
    torch.set_num_threads(_chosen)
    # A thread's first use of torch sets its number to the one that any thread has set last. So let this
    # thread use torch now, and have another thread set 1 for all later threads.
    torch.get_num_threads()
    other = threading.Thread(target=torch.set_num_threads, args=[1])
    other.start()
    other.join()


def is_fixed() -> bool:
    """Return whether the user has fixed the number; else fewer threads may compute."""
    return _fixed


def thread_count() -> int:
    """Return the number of threads that compute, whichever thread asks."""
    return _chosen or torch.get_num_threads()
