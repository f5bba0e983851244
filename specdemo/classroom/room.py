"""One class: it processes the teacher's messages and the students' answers, and sends messages to students.

All data from the teacher's page is untrusted, so the type and size of every value are checked.
"""

import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from specdemo.classroom.class_jobs import Jobs, Submit
from specdemo.classroom.games import Games
from specdemo.classroom.log import Frame, Log
from specdemo.classroom.questions import Questions, optional_name
from specdemo.classroom.students import Students
from specdemo.records.limits import UserError, flag, integer, number, require_known, show

# A class ends if the teacher's page has sent nothing for this time.
IDLE_S = 600.0
# After so many seconds without a message, the teacher's page counts as closed or asleep.
SILENT_S = 5.0
# The maximum time between two writes to a stream. Proxies close silent streams, and a closed connection is
# noticed only when something is written to it.
KEEP_ALIVE_S = 2.0
# The maximum time that a poll waits for a message; proxies often end a request after 30 seconds.
POLL_S = 20.0
MAX_NUMBER = 2**53
END = Frame(MAX_NUMBER - 1, b'{"type":"end"}')
"""The last message of every class."""
# Per message.
MAX_EVENTS = 20_000
MAX_SECONDS = 1e5
MAX_ROUNDS = 100_000
MAX_FIGURES = 10
PACES = ("fit", "tokens", "0.05", "0.25", "1")
OVER = "The class is over."
OTHER_WINDOW = (
    "Another window of yours controls this class now; reload this window to control the class here."
)
NOT_THE_TEACHER = "Only the page that opened this class can control the class."


class OtherWindowError(UserError):
    """The class now follows another window of the teacher."""


class UnknownRunError(UserError):
    """The beginning of a run is missing; the teacher's page has to send the run from its first event."""


class Room:
    """One class, which students join with ``code``. All methods must be called on one event loop.

    ``secret`` is the key that identifies the teacher's page. ``submit`` is None if this server does no jobs
    for classes.
    """

    def __init__(
        self, code: str, clock: Callable[[], float] = time.monotonic, submit: Submit | None = None
    ) -> None:
        self.code = code
        self.secret = secrets.token_urlsafe(24)
        self.log = Log()
        self.students = Students(clock)
        jobs = Jobs(submit) if submit else None
        self.questions = Questions(self.log, jobs, lambda: clock() - self._heard_at < SILENT_S)
        self.games = Games(self.log, jobs)
        self._clock = clock
        self._heard_at = clock()
        self._ended = False
        self._window: object = None
        self._last_number = 0
        run = ShownRun(self.log)
        self._kinds: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "begin": run.begin,
            "events": run.extend,
            "view": lambda message: self.log.put("view", {"type": "view", **parse_view(message)}),
            "ask": self.questions.ask,
            "close": lambda _message: self.questions.close(),
            "measure": lambda _message: self.questions.measure(),
            "shown": self.questions.note_shown,
            "reveal": self.questions.reveal,
            "dismiss": lambda _message: self.questions.dismiss(),
            "play": self.games.start,
            "dismiss-game": lambda _message: self.games.dismiss(),
        }

    @property
    def over(self) -> bool:
        """True if the teacher has ended the class, or the teacher's page has sent nothing for ``IDLE_S``."""
        return self._ended or self._clock() - self._heard_at > IDLE_S

    def knows(self, token: str) -> bool:
        """Return whether this is a student's token or the teacher's secret."""
        return self.students.knows(token) or self._is_secret(token)

    def require_teacher(self, secret: str) -> None:
        if not self._is_secret(secret):
            raise UserError(NOT_THE_TEACHER)

    def take(self, post: Mapping[str, Any]) -> dict[str, Any]:
        """Process messages of the teacher's page in order.

        ``post`` has the ``messages`` and the id of the teacher's ``window``; if ``first`` is true, the class
        follows this window from now on. ``seen`` is the part of a measurement that the page has already. If a
        message is refused, the messages before it remain processed. A message with a ``number`` is processed
        only once, even if it is sent several times.

        Returns the number of ``students`` present, the current ``question`` and ``game``, the new events of
        the ``measurement`` (see ``Questions.news``), and the time for ``writing`` (see ``Games.time_left``).
        In ``question`` and ``game``, ``absent`` counts the answers or drafts of students who are not present.
        """
        self._require_open()
        window = post.get("window")
        if post.get("first") is True and window != self._window:
            self._window, self._last_number = window, 0
        if window != self._window:
            raise OtherWindowError(OTHER_WINDOW)
        self._heard_at = self._clock()
        messages, seen = post.get("messages"), post.get("seen", {})
        if not isinstance(seen, dict):
            raise UserError("seen must be an object.")
        if not isinstance(messages, list):
            raise UserError("messages must be a list of objects.")
        for message in messages:
            self._take(message)
        question, game = self.questions.current, self.games.current
        absent = self.students.absent
        return {
            "students": self.students.present,
            "question": {**question.for_teacher(), "absent": absent(question.answers)} if question else None,
            "game": {**game.for_teacher(), "absent": absent(game.drafts)} if game else None,
            "writing": self.games.time_left(),
            "measurement": self.questions.news(seen),
        }

    def summary(self) -> dict[str, Any]:
        return {
            "students": self.students.max_present,
            "questions": self.questions.summary(),
            "games": self.games.summary(),
        }

    def known_of(self, student: str) -> dict[str, Any]:
        """Return the answer, draft and writing time that a student's page shows again after a reload."""
        game = self.games.current
        return {
            "given": self.questions.answer_of(student),
            "drafted": game.draft_of(student) if game else None,
            "writing": self.games.time_left(),
        }

    def answer(self, student: str, raw: Mapping[str, Any]) -> None:
        self._require_open()
        self.students.require_post(student)
        self.questions.answer(student, raw)

    def draft(self, student: str, raw: Mapping[str, Any]) -> None:
        self._require_open()
        self.students.require_post(student)
        self.games.take(student, raw)

    def end(self) -> None:
        """End the class for everybody."""
        self._ended = True
        self.questions.stop()
        self.games.stop()
        self.log.wake()

    async def stream(self, token: str, after: int) -> AsyncIterator[list[Frame]]:
        """Yield lists of the messages with numbers above ``after`` as they arrive; the last one is ``END``.

        Yields an empty list if there was no message for ``KEEP_ALIVE_S``, to keep the connection open.
        """
        with self.students.reading(token):
            while not self.over:
                if new := self.log.after(after):
                    after = new[-1].id
                    yield new  # More may have come while this was sent, so look again before waiting.
                elif not await self.log.wait(KEEP_ALIVE_S):
                    yield []
            yield [*self.log.after(after), END]

    async def poll(self, token: str, after: int) -> list[Frame]:
        """Return the messages with numbers above ``after``; if there are none, wait at most ``POLL_S``."""
        with self.students.reading(token):
            if not self.over and not self.log.after(after):
                await self.log.wait(POLL_S)
            return [*self.log.after(after), *([END] if self.over else [])]

    def _is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self.secret.encode())

    def _require_open(self) -> None:
        if self.over:
            raise UserError(OVER)

    def _take(self, message: object) -> None:
        kind = message.get("type") if isinstance(message, dict) else None
        take = self._kinds.get(kind) if isinstance(kind, str) else None
        if take is None or not isinstance(message, dict):
            raise UserError(f"The type of a message must be one of: {', '.join(self._kinds)}.")
        sent = integer(message, "number", 0, 0, MAX_NUMBER)
        if sent and sent <= self._last_number:
            return
        take({key: value for key, value in message.items() if key not in ("type", "number")})
        self._last_number = max(self._last_number, sent)


class ShownRun:
    """The current run, which the teacher's page sends in parts. Every event is logged once and in order.

    Each part contains the number of its run and the number of its first event. They are needed because a
    part may arrive twice, if the first reply was lost, or after another window has begun another run.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._run: int | None = None
        self._events = 0

    def begin(self, message: Mapping[str, Any]) -> None:
        """Start a run: its number ``run``, a ``recording``'s name or null, and the lesson's ``topic``."""
        require_known(message, ("run", "recording", "topic"))
        run = integer(message, "run", 0, 0, MAX_NUMBER)
        topic = _topic(message.get("topic", {}))
        self._log.begin({"type": "begin", "recording": optional_name(message, "recording"), "topic": topic})
        self._run, self._events = run, 0

    def extend(self, message: Mapping[str, Any]) -> None:
        """Add events to the current run, and skip those that are logged already.

        ``from`` is the number of the first event. Raises ``UnknownRunError`` if earlier events are missing.
        """
        require_known(message, ("run", "from", "events"))
        events = message.get("events")
        if not isinstance(events, list) or len(events) > MAX_EVENTS:
            raise UserError(f"events must be a list of at most {MAX_EVENTS:,} events.")
        if not all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in events):
            raise UserError("Each event must be an object with a type.")
        first = integer(message, "from", 0, 0, MAX_NUMBER)
        if integer(message, "run", 0, 0, MAX_NUMBER) != self._run or first > self._events:
            raise UnknownRunError(
                "The events before this one are missing; send the run from its first event."
            )
        if new := events[self._events - first :]:
            self._log.extend({"type": "events", "events": new})
            self._events += len(new)


def parse_view(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Check the state of the teacher's view of a run and return it.

    ``time`` is in seconds on the run's clock; ``round`` is the index of the open round or null.
    """
    require_known(raw, ("time", "playing", "pace", "round", "tab", "lesson"))
    pace = raw.get("pace", "1")
    if pace not in PACES:
        raise UserError(f"pace must be one of: {', '.join(PACES)}; got {show(pace)}.")
    has_round = raw.get("round") is not None
    return {
        "time": number(raw, "time", 0.0, 0.0, MAX_SECONDS),
        "playing": flag(raw, "playing", False),
        "pace": pace,
        "round": integer(raw, "round", 0, 0, MAX_ROUNDS) if has_round else None,
        "tab": optional_name(raw, "tab"),
        "lesson": optional_name(raw, "lesson"),
    }


def _topic(raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise UserError("topic must be an object.")
    require_known(raw, ("focus", "charts", "figures"))
    topic: dict[str, Any] = {
        key: optional_name(raw, key) for key in ("focus", "charts") if raw.get(key) is not None
    }
    figures = raw.get("figures")
    if figures is not None:
        if not isinstance(figures, list) or len(figures) > MAX_FIGURES:
            raise UserError(f"figures must be a list of at most {MAX_FIGURES} names.")
        topic["figures"] = [optional_name({"figures": figure}, "figures") for figure in figures]
    return topic
