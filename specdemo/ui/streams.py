"""A job's events as text for the page, stop requests, and the end of jobs that nobody reads."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import wraps
from typing import Any

import gradio as gr

from specdemo.records.events import Event
from specdemo.records.limits import UserError
from specdemo.records.trace import dump
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import FREQUENT, JobKind
from specdemo.service.service import RunService
from specdemo.ui.http.gradio_internals import unread_messages
from specdemo.ui.http.visitors import caller_gone, visitor_of

# The minimum time between two updates is MIN_GAP_S if at most FEW events wait, else USUAL_GAP_S. The browser
# may run on the cores that decode, and it reads the whole text again at each update: 15 updates per second
# slowed the decoder by a tenth. Fewer updates do no harm, because the browser plays fast rounds more slowly
# than they arrive.
FEW, MIN_GAP_S, USUAL_GAP_S = 4, 1 / 6, 1 / 2
UNREAD_S = 10.0
"""A job ends after this many seconds in which nobody fetched its updates, even if it still waits to begin."""
FRESH = 2
"""The number of unread messages that is normal even with a reader: the latest update and a heartbeat."""
UNREAD = (
    f"No updates were read for {UNREAD_S:g} s, so the job was stopped; API clients must read events as they "
    "arrive."
)
MAX_REQUESTS = 10_000
"""The maximum number of stop requests per kind of job; far more than there can be jobs."""
WAITING = {"type": "progress", "text": "Waiting for the models", "fraction": 0.0}


class PageJob:
    """A job of a visitor: whether it must stop, and when the page is due an update."""

    def __init__(
        self,
        visitor: Visitor,
        stop: Callable[[], bool],
        unread: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.visitor = visitor
        self.stop = stop
        self._unread = unread  # returns the number of updates that the visitor has not fetched yet
        self._clock = clock
        self._waiting = 0
        self._updated = -math.inf
        self._last_unread = unread()
        self._read = clock()

    def due(self, event: Event) -> bool:
        """Count one more event, and return whether the page is due an update now."""
        self._waiting += 1
        gap = MIN_GAP_S if self._waiting <= FEW else USUAL_GAP_S
        now = self._clock()
        if event["type"] in FREQUENT and now - self._updated < gap:
            return False
        unread = self._unread()
        if unread <= max(self._last_unread, FRESH):  # the reader fetched at least as many as were added
            self._read = now
        self._last_unread = unread
        if now - self._read > UNREAD_S:  # without this limit Gradio would store more and more updates
            raise UserError(UNREAD)
        self._waiting, self._updated = 0, now
        return True


class Stops:
    """The stop requests for one kind of job, one for each session; Gradio calls it on several threads.

    A stop request is created when the visitor presses the start button, so that a job can be stopped while it
    waits. It is deleted when the job ends or the browser tab is closed.
    """

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}

    def begin(self, session: str) -> None:
        if len(self._events) >= MAX_REQUESTS:
            self._events.pop(next(iter(self._events)))
        self._events[session] = threading.Event()

    def stop(self, session: str) -> None:
        if event := self._events.get(session):
            event.set()

    def leave(self, session: str) -> None:
        """Ask the session's job to end, and forget its stop request."""
        self.stop(session)
        self._events.pop(session, None)

    @contextmanager
    def job(self, request: gr.Request) -> Iterator[PageJob]:
        """Yield the job of a request, on the thread of its Gradio event; a ``UserError`` ends the event."""
        session = session_of(request)
        asked = self._events.setdefault(session, threading.Event())  # an API call presses no button
        gone = caller_gone(request)
        try:
            yield PageJob(visitor_of(request), lambda: asked.is_set() or gone(), unread_messages())
        except UserError as error:
            # The component already shows the sentence; visible=False prevents a second copy.
            raise gr.Error(str(error), visible=False, print_exception=bool(error.__cause__)) from error
        finally:
            if self._events.get(session) is asked:  # otherwise the request belongs to a newer job
                self._events.pop(session)


def streamed(
    service: RunService, stops: Stops, kind: JobKind, settings: Callable[..., Mapping[str, Any]]
) -> Callable[..., Iterator[str]]:
    """Return an endpoint that does a job and yields its events as one growing text.

    The endpoint has the name, parameters and docstring of ``settings``, which returns the job's settings. The
    last two parameters are the name of the pair and the request. If the job fails, the last line of the text
    is an ``error`` event.
    """

    @wraps(settings)
    def stream(*values: Any) -> Iterator[str]:
        # The text only grows, so that Gradio, which sends differences, sends just the new lines.
        text, sent, last = first_line(), "", None
        *_, pair, request = values
        with stops.job(request) as job:
            raw = settings(*values)
            try:
                with closing(service.events(kind, raw, job.stop, pair, job.visitor)) as events:
                    for event in events:
                        # A repeated progress event adds no line, but the text is yielded again: Gradio
                        # notices that a visitor has left only when it gets a value.
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

    return stream


def session_of(request: gr.Request) -> str:
    return request.session_hash or ""


def first_line() -> str:
    """Return the text between the press of the button and the service's first event."""
    return _line(WAITING)


def error_line(message: str) -> str:
    return _line({"type": "error", "message": message})


def _line(event: Mapping[str, Any]) -> str:
    return dump(event) + "\n"
