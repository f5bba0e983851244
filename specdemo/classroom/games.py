"""Games in which the class is the draft model: students write drafts, the target judges all of them."""

import asyncio
import logging
import threading
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from specdemo.classroom.log import Log
from specdemo.play.game import parse_draft
from specdemo.records.limits import MAX_CLASS_DRAFTS, UserError, flag, integer, parse_config, require_known
from specdemo.records.trace import Mode

Judge = Callable[[Mapping[str, Any], Callable[[], bool]], Awaitable[Mapping[str, Any]]]
"""Takes the ``text`` and ``drafts`` of a game and a stop request; returns a ``class-judged`` event."""
MAX_GAMES = 100
MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 5, 20, 120
GRACE_S = 1.5
"""Time after the end in which drafts are still accepted: pages send what is typed when the time is over."""
MAX_NAME_CHARS = 16
MAX_NAMES = 5
"""Nicknames shown, of the students with the best drafts."""
NOBODY = "Nobody has written a draft; start another game."
NO_JUDGE = "Games are off on this server: its GPU is lent for one run at a time."
FAULT = "The drafts could not be judged because of an internal error; start another game."
_FOR_ALL = ("alpha", "tau", "model_alpha", "model_name", "agreed", "sentence", "specials", "target")
_log = logging.getLogger(__name__)


class Phase(StrEnum):
    """The state of a game."""

    OPEN = "open"
    JUDGING = "judging"
    JUDGED = "judged"
    FAILED = "failed"


@dataclass
class Draft:
    """A student's draft, and the target's verdict on it with its ``pieces`` once it is known."""

    text: str
    name: str
    verdict: dict[str, Any] | None = None


@dataclass
class Game:
    """One game. Built by :func:`parse_game` only.

    Attributes:
        number: From 1, in the order played.
        text: The text that the class continues.
        seconds: Time to write.
        open_drafts: Whether everybody sees all drafts, and the nicknames of the best.
        drafts: Student -> draft, in the order of their first draft.
        results: What everybody sees of the target's verdicts.
        error: Why the drafts could not be judged.
    """

    number: int
    text: str
    seconds: int = DEFAULT_SECONDS
    open_drafts: bool = False
    phase: Phase = Phase.OPEN
    drafts: dict[str, Draft] = field(default_factory=dict)
    results: Mapping[str, Any] | None = None
    error: str | None = None

    def take(self, student: str, raw: Mapping[str, Any]) -> None:
        """Store a student's draft in place of an earlier one.

        Raises:
            UserError: It is not a draft for this game, or the time is over.
        """
        require_known(raw, ("game", "draft", "name"))
        if raw.get("game") != self.number:
            raise UserError("Another game is on; write for that one.")
        if self.phase is not Phase.OPEN:
            raise UserError("The time is over; wait for the result.")
        if student not in self.drafts and len(self.drafts) >= MAX_CLASS_DRAFTS:
            raise UserError(f"This game has {MAX_CLASS_DRAFTS} drafts already; wait for the result.")
        self.drafts[student] = Draft(parse_draft(raw.get("draft")), nickname(raw.get("name")))

    def set_results(self, event: Mapping[str, Any]) -> None:
        """Store the target's verdicts, a ``class-judged`` event of ``play.class_drafts``."""
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
        """Return a student's ``draft`` with the number of the ``game``, if there is one."""
        draft = self.drafts.get(student)
        return {"game": self.number, "draft": draft.text} if draft else None

    def verdict_of(self, student: str) -> dict[str, Any] | None:
        """Return the verdict on a student's draft; None before it is known."""
        draft = self.drafts.get(student)
        return draft.verdict if draft else None

    def for_students(self) -> dict[str, Any]:
        """Return what everybody may see of the game now."""
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
        """Return the state of the game for the teacher's page."""
        return {"number": self.number, "phase": self.phase, "count": len(self.drafts), "error": self.error}


def parse_game(raw: Mapping[str, Any], number: int) -> Game:
    """Return the game that the teacher starts: ``text``, ``seconds``, ``open_drafts``.

    Raises:
        UserError: A value has the wrong type or is out of bounds.
    """
    require_known(raw, ("text", "seconds", "open_drafts"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    seconds = integer(raw, "seconds", DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS)
    return Game(number, text, seconds, flag(raw, "open_drafts", False))


def nickname(value: object) -> str:
    """Return the letters, digits and few marks of a typed nickname, fit to be shown on a projector.

    Nothing is refused: a bad nickname must not cost the student the draft it comes with.
    """
    if not isinstance(value, str):
        return ""
    typed = unicodedata.normalize("NFKC", value[: 4 * MAX_NAME_CHARS])
    kept = [char for char in typed if char in " -_.'" or unicodedata.category(char)[0] in "LMN"]
    return " ".join("".join(kept).split())[:MAX_NAME_CHARS]


class Games:
    """The games of one class, one at a time. Everything happens on one event loop.

    Args:
        log: Gets what everybody sees.
        judge: Judges the drafts; None if this server cannot.

    Attributes:
        current: The game on the page, if any.
    """

    def __init__(self, log: Log, judge: Judge | None) -> None:
        self._log = log
        self._judge = judge
        self._played: list[Game] = []
        self.current: Game | None = None
        self._end_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._judging: asyncio.Task[None] | None = None

    def start(self, raw: Mapping[str, Any]) -> None:
        """Start a game.

        Raises:
            UserError: It is malformed, another game is on, or this server cannot judge.
        """
        if self._judge is None:
            raise UserError(NO_JUDGE)
        if self.current is not None and self.current.phase in (Phase.OPEN, Phase.JUDGING):
            raise UserError("A game is on; wait for its end.")
        if len(self._played) >= MAX_GAMES:
            raise UserError(f"A class plays at most {MAX_GAMES} games; start another class.")
        self.current = parse_game(raw, len(self._played) + 1)
        self._played.append(self.current)
        self._show()
        loop = asyncio.get_running_loop()
        self._end_at = loop.time() + self.current.seconds
        self._timer = loop.call_at(self._end_at + GRACE_S, self._start_judging, self.current)

    def time_left(self) -> dict[str, Any] | None:
        """Return the number of the ``game`` that is open and the seconds ``left``, if one is."""
        if self.current is None or self.current.phase is not Phase.OPEN:
            return None
        left = max(0.0, self._end_at - asyncio.get_running_loop().time())
        return {"game": self.current.number, "left": left}

    def take(self, student: str, raw: Mapping[str, Any]) -> None:
        """Store a student's draft; raise ``UserError`` if it is refused."""
        if self.current is None:
            raise UserError("No game is on; wait for the next.")
        self.current.take(student, raw)

    def dismiss(self) -> None:
        """Take the game off the page; one that is still on is not judged."""
        self.stop()
        self.current = None
        self._show()

    def stop(self) -> None:
        """Stop the clock and the judging."""
        if self._timer is not None:
            self._timer.cancel()
        if self._judging is not None:
            self._judging.cancel()

    def summary(self) -> list[dict[str, Any]]:
        """Return the outcome of every judged game."""
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
        self._judging = asyncio.get_running_loop().create_task(self._have_judged(game))

    async def _have_judged(self, game: Game) -> None:
        assert self._judge is not None
        ended = threading.Event()
        try:
            if not game.drafts:
                raise UserError(NOBODY)
            drafts = [draft.text for draft in game.drafts.values()]
            game.set_results(await self._judge({"text": game.text, "drafts": drafts}, ended.is_set))
        except UserError as error:
            game.error, game.phase = str(error), Phase.FAILED
        except Exception:
            _log.exception("A class's drafts could not be judged")
            game.error, game.phase = FAULT, Phase.FAILED
        finally:
            ended.set()  # If the game was dismissed, the judge must free the device.
        self._show()

    def _show(self) -> None:
        shown = self.current.for_students() if self.current else None
        self._log.put("game", {"type": "game", "game": shown})


def _drawn(round_: Mapping[str, Any]) -> dict[str, Any]:
    """Return what pages draw of a round; every student gets it, so the top-5 lists are left out."""
    drafted = [{key: token[key] for key in ("id", "status", "rejected")} for token in round_["drafted"]]
    emission = round_["emission"]
    return {
        "drafted": drafted,
        "emission": emission and {"id": emission["id"], "status": emission["status"]},
    }


def _pieces(event: Mapping[str, Any], *rounds: Mapping[str, Any]) -> dict[Any, str]:
    """Return the pieces of these rounds' tokens, of the agreed ones and of the target's."""
    ids = {token["id"] for round_ in rounds for token in (*round_["drafted"], round_["emission"]) if token}
    ids |= {token["id"] for token in event["agreed"]} | set(event["target"])
    return {token: piece for token, piece in event["pieces"].items() if int(token) in ids}
