"""One visitor's place in the queue, where their thread and the device's hand events to one another.

Knows neither the other places nor models.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.service.job_kinds import CutShortError
from specdemo.service.shares import Visitor

Stop = Callable[[], bool]
"""Asked once a round by whatever can be ended early; True ends it."""
Job = Callable[[Stop], Generator[Event, None, None]]
"""What is done on the device, as events."""

ONLY = ""
"""The group of the one device of a program that has no others."""
ABANDONED_S = 60.0
"""A job whose events nobody takes for so long is ended: its visitor's thread was lost without a word."""


class EndOfJob:
    """What a place's ``told`` holds after the last event of a job that was not ended by an exception."""


END_OF_JOB: Final = EndOfJob()


@dataclass(eq=False)
class Place:
    """One visitor's place in the queue, and their job once it can be done.

    Attributes:
        kind: What the job is called.
        visitor: Whose share it counts to; None for the program's own.
        group: Which devices can do it.
        refused: The sentence with which the place was taken away before the job began; None while it is kept.
        job: What is to be done; None while the visitor waits for models.
        stop: The visitor's wish to end it.
        context: Of the visitor's request, which libraries below may want to read.
        told: From the device's thread to the visitor's: the job's events as they come, and behind them
            ``END_OF_JOB`` or the exception that ended it.
        next_wanted: From the visitor's thread to the device's: released for each event that was taken.
        taken_up: Whether a device's thread has it; from then on it waits for that device alone.
        begun: When the device began the job, in seconds of the queue's clock; None before.
        left: Whether the visitor has gone, so that nobody takes its events any more.
        cut: The sentence that says why the job was ended before it was done; None where it was not.
    """

    kind: str
    visitor: Visitor | None = None
    group: str = ONLY
    refused: str | None = None
    job: Job | None = None
    stop: Stop = lambda: False
    context: Context = field(default_factory=copy_context)
    told: SimpleQueue[Event | BaseException | EndOfJob] = field(default_factory=SimpleQueue)
    next_wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    taken_up: bool = False
    begun: float | None = None
    left: bool = False
    cut: str | None = None

    def require_kept(self) -> None:
        """Do nothing while the visitor has this place.

        Raises:
            UserError: It was taken away.
        """
        if self.refused is not None:
            raise UserError(self.refused)

    def events(self) -> Generator[Event, None, None]:
        """The events of the job as they come; for the visitor's thread.

        Raises:
            CutShortError: The job was ended before it was done.
            Exception: Whatever the job raised.
        """
        while not isinstance(event := self.told.get(), EndOfJob):
            if isinstance(event, BaseException):
                raise event
            yield event
            self.next_wanted.release()
        if self.cut is not None:
            raise CutShortError(self.cut)

    def do_job(self, clock: Callable[[], float], most_seconds: float, begin: Callable[[], None]) -> bool:
        """Do the job, which a device's thread has taken up; for that thread.

        Args:
            clock: Gives seconds; ``begun`` is one of its readings.
            most_seconds: How long the job may take once it has begun.
            begin: Called when it has told something, which sets ``begun``.

        Returns:
            Whether it was done to its end: nobody asked it to stop, and its visitor stayed.
        """
        asked, job = False, self.job
        assert job is not None

        def ended() -> bool:
            nonlocal asked
            if self.cut is None and self.begun is not None and clock() - self.begun > most_seconds:
                self.cut = (
                    f"The time limit of {most_seconds:g} s ended this, what was done until then "
                    "is kept; ask for less at once."
                )
            gone = self.left or self.refused is not None
            asked = asked or gone or self.cut is not None or self.stop()
            return asked

        # ``closing`` wants generators, which all jobs are.
        with closing(job(ended)) as events:  # type: ignore[misc, type-var]
            for event in events:
                begin()
                self.told.put(event)
                if not self.next_wanted.acquire(timeout=ABANDONED_S):
                    raise UserError("Nobody took what this told for a minute, so it was ended; run it again.")
                if self.left:
                    return False
        return not asked
