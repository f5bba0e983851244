"""From a service's events to what the page shows: append-only NDJSON, and the way to stop it.

The text a run yields only ever grows, so that Gradio's diff sends just the new lines. Knows no widgets.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any

from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.service.jobs import FREQUENT, Events

MIN_GAP_S, USUAL_GAP_S = 1 / 6, 1 / 2
"""Shortest time between two updates sent to the browser, where at most ``FEW`` events wait and where more do.

Rounds in between travel together. Whoever reads them may share the decoder's cores, and each update has the
browser look at the whole text again: at 15 a second streaming cost the decoder a tenth of its speed. Rounds
that come fast are played slower than they come; those that come slowly are sent as they do."""

FEW = 4
MOST_WISHES = 10_000
"""Sessions of each kind of job whose flag is kept; far more than can have a job."""
WAITING = {"type": "progress", "text": "Waiting for the models", "fraction": 0.0}


class Stops:
    """For one kind of job: a flag for each session that has one, set when its visitor asks for its end.

    A flag lives from the press of Run (so that a job still queued can be stopped too) to the end of the job,
    or until its tab is closed. The methods are called on the threads of the page's events.
    """

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}

    def begin(self, session: str) -> None:
        """Give the session a new flag, for the job that it is about to start."""
        if len(self._events) >= MOST_WISHES:
            self._events.pop(next(iter(self._events)))
        self._events[session] = threading.Event()

    def current(self, session: str) -> threading.Event:
        """The flag of this session's job; one started through the API has none before, and gets it here."""
        return self._events.setdefault(session, threading.Event())

    def stop(self, session: str) -> None:
        """Ask this session's job to end; nothing happens where none is under way."""
        if event := self._events.get(session):
            event.set()

    def leave(self, session: str, event: threading.Event | None = None) -> None:
        """Drop the session's flag; where ``event`` is given, only if it is that one and not a newer job's."""
        if event is None or self._events.get(session) is event:
            self._events.pop(session, None)


def first_line() -> str:
    """What the stage shows from the press of Run until the service speaks."""
    return _line(WAITING)


def ndjson(source: Events, clock: Callable[[], float] = time.monotonic) -> Generator[str, None, None]:
    """One job as text that grows by whole lines, none of them lost, with the gaps above between updates.

    A ``progress`` event that repeats the one before adds no line; the text is yielded all the same, since
    only then does Gradio notice that a visitor has left.

    Args:
        source: The job; closed in any case.
        clock: Gives seconds.

    Raises:
        UserError: After an ``error`` line that holds the same sentence has been yielded.
    """
    text, sent, sent_at, waiting, last = first_line(), "", -math.inf, 0, None
    try:
        with closing(source) as events:
            for event in events:
                text += _line(event) if event != last else ""
                last = event if event["type"] == "progress" else None
                waiting += 1
                gap = MIN_GAP_S if waiting <= FEW else USUAL_GAP_S
                if clock() - sent_at >= gap or event["type"] not in FREQUENT:
                    yield text
                    sent, sent_at, waiting = text, clock(), 0
    except UserError as error:
        yield text + error_line(str(error))
        raise
    except Exception as error:
        told = UserError(f"The run failed inside the program ({type(error).__name__}); please try again.")
        yield text + error_line(str(told))
        raise told from error
    if text != sent:
        yield text


def error_line(message: str) -> str:
    """What the stage shows in place of a run."""
    return _line({"type": "error", "message": message})


def _line(event: Mapping[str, Any]) -> str:
    return dump(event) + "\n"
