"""A stand-in for the package of ZeroGPU hosts, with its contract: a call runs in a process forked for it.

Arguments and results are pickled, of an exception only the class's name comes back, results are sent as soon
as they are made whether or not anybody takes them, and closing the generator waits until the call is over.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

CONTEXT = multiprocessing.get_context("fork")


class Lender:
    """``spaces.GPU``; remembers the ``durations`` it was asked for, the ``processes`` that worked, and the
    number of ``results`` of each."""

    def __init__(self) -> None:
        self.durations: list[int] = []
        self.processes: list[int] = []
        self.results: list[int] = []
        self.refusal: Exception | None = None

    def __call__(self, *, duration: Callable[..., int]) -> Callable[[Any], Any]:
        def decorate(task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            def handler(*args: Any) -> Iterator[Any]:
                self.durations.append(duration(*args))
                if self.refusal is not None:
                    raise self.refusal
                results, asked = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()
                asked.put(args)
                process = CONTEXT.Process(target=_work, args=(task, asked, results), daemon=True)
                process.start()
                self.processes.append(process.pid)
                self.results.append(0)
                try:
                    while (told := results.get()) is not None:
                        if isinstance(told, str):
                            raise RuntimeError(told)
                        self.results[-1] += 1
                        yield told[0]
                finally:
                    while process.is_alive():
                        process.join(0.02)
                        while not results.empty():  # a full pipe would keep the process from its end
                            self.results[-1] += results.get() is not None

            return handler

        return decorate


def _work(task: Any, asked: Any, results: Any) -> None:
    import torch

    torch.set_num_threads(1)  # a forked process cannot use its parent's threads
    try:
        for result in task(*asked.get()):
            results.put((result,))
    except Exception as error:
        results.put(type(error).__name__)
    results.put(None)
    os._exit(0)
