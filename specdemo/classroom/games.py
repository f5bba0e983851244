"""Games in which students write drafts, like a draft model, and the target verifies all of them."""

import asyncio
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from specdemo.classroom.class_jobs import GAME, ClassJob, ClassRequest, Jobs
from specdemo.classroom.log import Log
from specdemo.play.game import parse_draft
from specdemo.records.limits import (
    MAX_CLASS_DRAFTS,
    UserError,
    flag,
    integer,
    parse_config,
    require_known,
    without_direction_marks,
)
from specdemo.records.trace import Mode

MAX_GAMES = 100
MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 5, 20, 120
GRACE_S = 1.5
"""Drafts are accepted for this time after the end: each student's page then sends the text typed so far."""
MAX_NAME_CHARS = 16
# The maximum number of nicknames shown for the best drafts.
MAX_NAMES = 5
NOBODY = "Nobody has written a draft. The teacher can start the next game."
NO_JOBS = "Games do not work on this server, because ZeroGPU lends its GPU for one run at a time."
UNJUDGED = "The drafts could not be verified. The teacher can start the next game."
_FOR_ALL = ("alpha", "tau", "model_alpha", "model_name", "agreed", "sentence", "specials", "target")


class Phase(StrEnum):
    OPEN = "open"
    JUDGING = "judging"
    JUDGED = "judged"
    FAILED = "failed"


@dataclass
class Draft:
    text: str
    # The student's nickname; may be empty.
    name: str
    # None until the draft is judged.
    verdict: dict[str, Any] | None = None


@dataclass
class Game:
    """One game in which the class continues ``text``; :func:`parse_game` creates it."""

    # Counts the games of the class from 1.
    number: int
    text: str
    # The writing time.
    seconds: int = DEFAULT_SECONDS
    # True if everybody sees the best drafts, and the nicknames of the students with the best ones.
    open_drafts: bool = False
    phase: Phase = Phase.OPEN
    # The students' tokens and drafts, in the order of the first drafts.
    drafts: dict[str, Draft] = field(default_factory=dict)
    # The part of the results that everybody sees; None before the drafts are judged.
    results: Mapping[str, Any] | None = None
    # The message if the drafts could not be judged.
    error: str | None = None

    def take(self, student: str, raw: Mapping[str, Any]) -> None:
        """Store a student's draft; it replaces the student's earlier draft."""
        require_known(raw, ("game", "draft", "name"))
        if raw.get("game") != self.number:
            raise UserError("This draft is for a different game; write a draft for the current game.")
        if self.phase is not Phase.OPEN:
            raise UserError("The writing time is over; wait for the result.")
        if student not in self.drafts and len(self.drafts) >= MAX_CLASS_DRAFTS:
            raise UserError(
                f"This game already has {MAX_CLASS_DRAFTS} drafts, the maximum; wait for the result."
            )
        draft = parse_draft(without_direction_marks(raw.get("draft")))
        self.drafts[student] = Draft(draft, nickname(raw.get("name")))

    def set_results(self, event: Mapping[str, Any]) -> None:
        """Store the verdicts of a ``class-judged`` event."""
        verdicts = [
            {**_drawn(one["round"]), "count": one["count"], "cut": one["cut"]} for one in event["verdicts"]
        ]
        drafts = list(self.drafts.values())
        for draft, index in zip(drafts, event["drafts"], strict=True):
            draft.verdict = {**verdicts[index], "pieces": _pieces(event, verdicts[index])}
        names = [drafts[index].name for index in event["longest"]] if self.open_drafts else []
        shown = verdicts if self.open_drafts else []
        model = _drawn(event["model"])
        self.results = {
            **{key: event[key] for key in _FOR_ALL},
            "best": list(filter(None, names))[:MAX_NAMES],
            "verdicts": shown,
            "model": model,
            "pieces": _pieces(event, model, *shown),
        }
        self.phase = Phase.JUDGED

    def draft_of(self, student: str) -> dict[str, Any] | None:
        draft = self.drafts.get(student)
        return {"game": self.number, "draft": draft.text} if draft else None

    def verdict_of(self, student: str) -> dict[str, Any] | None:
        draft = self.drafts.get(student)
        return draft.verdict if draft else None

    def for_students(self) -> dict[str, Any]:
        """Return the part of the game's state that everybody may see now."""
        return {
            "number": self.number,
            "text": self.text,
            "seconds": self.seconds,
            "open_drafts": self.open_drafts,
            "phase": self.phase,
            "count": len(self.drafts) if self.phase is not Phase.OPEN else None,
            "results": self.results,
            "error": self.error,
        }

    def for_teacher(self) -> dict[str, Any]:
        return {"number": self.number, "phase": self.phase, "count": len(self.drafts), "error": self.error}


def parse_game(raw: Mapping[str, Any], number: int) -> Game:
    """Return the game with the teacher's settings ``text``, ``seconds`` and ``open_drafts`` (untrusted)."""
    require_known(raw, ("text", "seconds", "open_drafts"))
    text = parse_config({"prompt": without_direction_marks(raw.get("text")), "mode": Mode.RAW}).prompt
    seconds = integer(raw, "seconds", DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS)
    return Game(number, text, seconds, flag(raw, "open_drafts", False))


def nickname(value: object) -> str:
    """Return a nickname that can be shown on a projector: letters, digits and a few marks of the typed text.

    An invalid nickname raises no error, because the draft sent with it must not be lost. A value that is not
    text becomes the empty string.
    """
    if not isinstance(value, str):
        return ""
    typed = unicodedata.normalize("NFKC", value[: 4 * MAX_NAME_CHARS])
    kept = [char for char in typed if char in " -_.'" or unicodedata.category(char)[0] in "LMN"]
    return " ".join("".join(kept).split())[:MAX_NAME_CHARS]


class Games:
    """The games of one class, one at a time. All methods must be called on one event loop.

    The class's ``log`` receives everything that students see. ``jobs`` is None if games do not work on this
    server.
    """

    def __init__(self, log: Log, jobs: Jobs | None) -> None:
        self._log = log
        self._jobs = jobs
        self._played: list[Game] = []
        self.current: Game | None = None
        self._end_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._job: ClassJob | None = None
        self._judging: asyncio.Task[None] | None = None  # the reference keeps the task alive

    def start(self, raw: Mapping[str, Any]) -> None:
        if self._jobs is None:
            raise UserError(NO_JOBS)
        if self.current is not None and self.current.phase in (Phase.OPEN, Phase.JUDGING):
            raise UserError("A game is running; wait for the end of this game.")
        if len(self._played) >= MAX_GAMES:
            raise UserError(f"A class can play at most {MAX_GAMES} games; start another class.")
        self.current = parse_game(raw, len(self._played) + 1)
        self._played.append(self.current)
        self._show()
        loop = asyncio.get_running_loop()
        self._end_at = loop.time() + self.current.seconds
        self._timer = loop.call_at(self._end_at + GRACE_S, self._start_judging, self.current)

    def time_left(self) -> dict[str, Any] | None:
        """Return the open ``game``'s number and the seconds ``left`` to write; None if no game is open."""
        if self.current is None or self.current.phase is not Phase.OPEN:
            return None
        left = max(0.0, self._end_at - asyncio.get_running_loop().time())
        return {"game": self.current.number, "left": left}

    def take(self, student: str, raw: Mapping[str, Any]) -> None:
        """Store a student's draft for the current game."""
        if self.current is None:
            raise UserError("No game is running; wait for the next game.")
        self.current.take(student, raw)

    def dismiss(self) -> None:
        """Remove the game from the page. If it has not ended yet, its drafts are not judged."""
        self.stop()
        self.current = None
        self._show()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            self._job.stopped = True

    def summary(self) -> list[dict[str, Any]]:
        return [
            {
                "text": game.text,
                "count": len(game.drafts),
                **{key: game.results[key] for key in ("alpha", "model_alpha", "model_name", "sentence")},
            }
            for game in self._played
            if game.results is not None
        ]

    def _start_judging(self, game: Game) -> None:
        game.phase = Phase.JUDGING
        self._show()
        drafts = [draft.text for draft in game.drafts.values()]
        self._job = ClassJob(ClassRequest(GAME, {"text": game.text, "drafts": drafts}))
        self._judging = asyncio.get_running_loop().create_task(self._have_judged(game, self._job))

    async def _have_judged(self, game: Game, job: ClassJob) -> None:
        assert self._jobs is not None
        error = await self._jobs.do(job) if game.drafts else NOBODY
        if job.stopped:
            return
        last = job.events[-1] if job.events else {}
        if last.get("type") == "class-judged":
            game.set_results(last)
        else:
            game.error, game.phase = error or UNJUDGED, Phase.FAILED
        self._show()

    def _show(self) -> None:
        shown = self.current.for_students() if self.current else None
        self._log.put("game", {"type": "game", "game": shown})


def _drawn(round_: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the part of a round that pages draw, because it is sent to every student."""
    drafted = [{key: token[key] for key in ("id", "status", "rejected")} for token in round_["drafted"]]
    emission = round_["emission"]
    return {
        "drafted": drafted,
        "emission": emission and {"id": emission["id"], "status": emission["status"]},
    }


def _pieces(event: Mapping[str, Any], *rounds: Mapping[str, Any]) -> dict[Any, str]:
    """Return the event's ``pieces`` for the tokens of these rounds, of ``agreed`` and of ``target`` only."""
    ids = {token["id"] for round_ in rounds for token in (*round_["drafted"], round_["emission"]) if token}
    ids |= {token["id"] for token in event["agreed"]} | set(event["target"])
    return {token: piece for token, piece in event["pieces"].items() if int(token) in ids}
