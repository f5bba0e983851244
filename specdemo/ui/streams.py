"""From a job's events to the updates of the page: append-only NDJSON, stop requests, readers who left.

The text only ever grows, so that Gradio's diff sends just the new lines.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import gradio as gr

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.service.jobs import FREQUENT, Events
from specdemo.service.shares import Visitor
from specdemo.ui.http.gradio_internals import unread_messages
from specdemo.ui.http.visitors import caller_gone, visitor_of

FEW, MIN_GAP_S, USUAL_GAP_S = 4, 1 / 6, 1 / 2
"""The shortest time between two updates: of at most ``FEW`` events, and of more.

The browser may share the decoder's cores and reads the whole text again at each update: 15 updates a second
cost the decoder a tenth of its speed. The browser plays fast rounds more slowly than they arrive."""
UNREAD_S = 10.0
"""Seconds without a reader after which a job ends, whether it has begun or not."""
FRESH = 2
"""Messages that a reader may not have had the time to fetch: the latest update and a heartbeat."""
UNREAD = f"Nobody read the updates for {UNREAD_S:g} s, so the job was ended; read them as they arrive."
MAX_REQUESTS = 10_000
"""The maximum number of sessions with a stop request, for each kind of job; far more than can have a job."""
WAITING = {"type": "progress", "text": "Waiting for the models", "fraction": 0.0}


class PageJob:
    """One job of a visitor: its stop request, and when an update is due.

    Args:
        visitor: The visitor whose share the job counts towards.
        stop: Returns True once the job is to end.
        unread: Returns the number of updates that wait to be fetched.
        clock: Returns seconds.
    """

    def __init__(
        self,
        visitor: Visitor,
        stop: Callable[[], bool],
        unread: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.visitor = visitor
        self.stop = stop
        self._unread = unread
        self._clock = clock
        self._waiting = 0
        self._updated = -math.inf
        self._last_unread = unread()
        self._read = clock()

    def due(self, event: Event) -> bool:
        """Count one more event; return whether an update is due now.

        Raises:
            UserError: Nobody has read the updates for ``UNREAD_S``. Gradio itself would store ever more.
        """
        self._waiting += 1
        gap = MIN_GAP_S if self._waiting <= FEW else USUAL_GAP_S
        now = self._clock()
        if event["type"] in FREQUENT and now - self._updated < gap:
            return False
        unread = self._unread()
        if unread <= max(self._last_unread, FRESH):  # although the last update added one
            self._read = now
        self._last_unread = unread
        if now - self._read > UNREAD_S:
            raise UserError(UNREAD)
        self._waiting, self._updated = 0, now
        return True


class Stops:
    """The stop requests for one kind of job, one for each session.

    A request exists from the press of the button, so that a waiting job can be stopped too, to the end of the
    job, or until the browser tab is closed. The page's events call the methods on their threads.
    """

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}

    def begin(self, session: str) -> None:
        """Give the session a new stop request, for the job that it is about to start."""
        if len(self._events) >= MAX_REQUESTS:
            self._events.pop(next(iter(self._events)))
        self._events[session] = threading.Event()

    def stop(self, session: str) -> None:
        """End this session's job, if there is one."""
        if event := self._events.get(session):
            event.set()

    def leave(self, session: str) -> None:
        """End this session's job, and forget it."""
        self.stop(session)
        self._events.pop(session, None)

    @contextmanager
    def job(self, request: gr.Request) -> Iterator[PageJob]:
        """Yield the job for a request; call it on the thread of Gradio's event.

        Raises:
            gr.Error: In place of a ``UserError``.
        """
        session = session_of(request)
        asked = self._events.setdefault(session, threading.Event())  # the API presses no button
        gone = caller_gone(request)
        try:
            yield PageJob(visitor_of(request), lambda: asked.is_set() or gone(), unread_messages())
        except UserError as error:
            # The component already shows the sentence; visible=False prevents a second copy.
            raise gr.Error(str(error), visible=False, print_exception=bool(error.__cause__)) from error
        finally:
            if self._events.get(session) is asked:  # not that of a newer job
                self._events.pop(session)


def session_of(request: gr.Request) -> str:
    """Return the session of a request; empty if Gradio gives none."""
    return request.session_hash or ""


def ndjson(events: Events, job: PageJob) -> Generator[str, None, None]:
    """Yield a job's events as text that grows by whole lines, none of them lost.

    A ``progress`` event that repeats the one before adds no line, but the text is yielded again: only then
    does Gradio notice that a visitor has left.

    Args:
        events: The job's events; always closed.
        job: Decides when an update is due.

    Raises:
        UserError: The job was refused or failed, after an ``error`` line with the sentence.
    """
    text, sent, last = first_line(), "", None
    try:
        with closing(events):
            for event in events:
                text += _line(event) if event != last else ""
                last = event if event["type"] == "progress" else None
                if job.due(event):
                    yield text
                    sent = text
    except UserError as error:
        yield text + error_line(str(error))
        raise
    if text != sent:
        yield text


def first_line() -> str:
    """Return the text shown from the press of the button to the service's first event."""
    return _line(WAITING)


def error_line(message: str) -> str:
    """Return the line that ends a job that was refused or failed."""
    return _line({"type": "error", "message": message})


def _line(event: Mapping[str, Any]) -> str:
    return dump(event) + "\n"
