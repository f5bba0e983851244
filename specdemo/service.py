"""The running app's one pair of models: loaded once, lent to one run at a time, faults put into words."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from specdemo.events import Event
from specdemo.fetch import Progress, printing
from specdemo.game import parse_turn
from specdemo.lab.events import lab_events
from specdemo.lab.questions import QUESTIONS
from specdemo.lab.quiz import number_in, quiz_events
from specdemo.lab.request import parse_lab
from specdemo.limits import UserError, parse_config
from specdemo.live import LiveRun
from specdemo.pair import Pair
from specdemo.proof.events import proof_events
from specdemo.proof.request import parse_proof
from specdemo.turn import play_turn

POLL_S = 0.25


class Service:
    """Holds the pair that visitors share.

    Args:
        loader: Loads the pair, reporting progress; called in a background thread by :meth:`load`,
            and again on the next request if it failed.
    """

    def __init__(self, loader: Callable[[Progress], Pair]):
        self._loader = loader
        self._print = printing()
        self._device_slot = threading.Lock()
        self._loading = threading.Lock()
        self._progress: tuple[str, float] = ("Starting", 0.0)
        self._pair: Pair | None = None
        self._thread: threading.Thread | None = None
        self._failure: UserError | None = None

    def load(self) -> None:
        """Begin loading in the background, unless it is loaded or under way."""
        with self._loading:
            if self._pair is None and (self._thread is None or not self._thread.is_alive()):
                self._failure = None
                self._thread = threading.Thread(target=self._load, name="load-pair", daemon=True)
                self._thread.start()

    def stream(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """One run: the events of ``LiveRun``."""
        config = parse_config(raw)
        yield from self.work(lambda pair: LiveRun(pair, config, stop).events(), stop)

    def prove(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """One audit or distribution test: the events of ``proof_events``."""
        request = parse_proof(raw)
        yield from self.work(lambda pair: proof_events(pair, request, stop), stop)

    def play(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """One turn of Play: the events of ``play_turn``."""
        request = parse_turn(raw)
        yield from self.work(lambda pair: play_turn(pair, request, stop), stop)

    def quiz(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """One question of the quiz: the events of ``lab.quiz``."""
        number = number_in(raw, len(QUESTIONS))
        yield from self.work(lambda pair: quiz_events(pair, number, QUESTIONS[number - 1], stop), stop)

    def measure(self, raw: Mapping[str, Any], stop: Callable[[], bool]) -> Iterator[Event]:
        """One experiment of the lab: the events of ``lab_events``."""
        request = parse_lab(raw)
        yield from self.work(lambda pair: lab_events(pair, request, stop), stop)

    def work(self, job: Callable[[Pair], Iterator[Event]], stop: Callable[[], bool]) -> Iterator[Event]:
        """Wait for models and device, then do a job on them.

        Yields:
            ``progress`` events (``text``, ``fraction``) while waiting, then those of the job.

        Raises:
            UserError: The models could not be loaded, or the job was refused or failed.
        """
        pair = yield from self._wait_for_pair(stop)
        if pair is None:
            return
        with self._device_slot:
            try:
                yield {"type": "progress", "text": "Preparing the run", "fraction": 1.0}
                yield from job(pair)
            except torch.OutOfMemoryError as error:
                raise UserError(
                    "The device ran out of memory; ask for fewer tokens or a shorter prompt."
                ) from error
            except FloatingPointError as error:
                raise UserError(f"The run was ended because {error}; try another precision.") from error

    def _wait_for_pair(self, stop: Callable[[], bool]) -> Iterator[Event]:
        self.load()
        while self._pair is None:
            thread = self._thread
            if stop():
                return None
            if thread is not None:
                thread.join(POLL_S)
            if self._failure is not None:
                raise self._failure
            text, fraction = self._progress
            yield {"type": "progress", "text": text, "fraction": fraction}
        return self._pair

    def _load(self) -> None:
        try:
            self._pair = self._loader(self._report)
        except UserError as error:
            self._failure = error
        except Exception as error:  # a thread's exception would vanish and leave every visitor waiting
            self._failure = UserError(f"The models could not be loaded ({type(error).__name__}: {error}).")

    def _report(self, text: str, fraction: float) -> None:
        self._progress = (text, fraction)
        self._print(text, fraction)
