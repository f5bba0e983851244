"""The class is the draft: every student writes the next words, and the target judges all of them.

What a game asks, takes and tells; who judges is its caller's business. Drafts have numbers instead of names,
so that each student finds their own. Everybody's are shown, with nicknames, only where the teacher wants it.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from specdemo.play.game import parse_draft
from specdemo.records.limits import MAX_CLASS_DRAFTS, UserError, flag, integer, parse_config, require_known
from specdemo.records.trace import Mode

LEAST_SECONDS, USUAL_SECONDS, MOST_SECONDS = 5, 20, 120
GRACE_S = 1.5
"""How much later than its end a draft may arrive: pages send what stands there when the time is over."""
MOST_NAME_CHARS = 16
MOST_NAMED = 5
"""Students whose nicknames are shown: of those whose draft was kept longest."""
_KEPT = ("L", "M", "N")
_FOR_ALL = ("alpha", "tau", "model_alpha", "model_name", "agreed", "sentence", "specials", "target")
_MARKS = " -_.'"


class Phase(StrEnum):
    """How far a game has come."""

    OPEN = "open"
    JUDGING = "judging"
    TOLD = "told"
    FAILED = "failed"


@dataclass
class Draft:
    """What one student has written."""

    text: str
    name: str


@dataclass
class Game:
    """One game. Built by :func:`parse_game` only.

    Attributes:
        number: Of the game, from 1, in its room.
        text: The beginning that is drafted behind.
        seconds: How long one may write.
        open_drafts: Whether everybody sees all drafts, and the nicknames of the best.
        drafts: By student, in the order of their first draft; numbers count it from 1.
        results: What the target made of them, for everybody.
        error: Why it could not be judged, in a sentence.
    """

    number: int
    text: str
    seconds: int = USUAL_SECONDS
    open_drafts: bool = False
    phase: Phase = Phase.OPEN
    drafts: dict[str, Draft] = field(default_factory=dict)
    results: Mapping[str, Any] | None = None
    error: str | None = None
    _verdicts: list[dict[str, Any]] = field(default_factory=list)

    def take(self, student: str, raw: Mapping[str, Any]) -> int:
        """Take a student's draft in place of the one before; its number.

        Raises:
            UserError: It is none for this game, or comes too late.
        """
        require_known(raw, ("game", "draft", "name"))
        if raw.get("game") != self.number:
            raise UserError("Another game is on now; write for that one.")
        if self.phase is not Phase.OPEN:
            raise UserError("The time is over; wait for the target.")
        if student not in self.drafts and len(self.drafts) >= MAX_CLASS_DRAFTS:
            raise UserError(f"{MAX_CLASS_DRAFTS} have written already; watch how they fare.")
        self.drafts[student] = Draft(parse_draft(raw.get("draft")), nickname(raw.get("name")))
        return self.number_of(student)

    def number_of(self, student: str) -> int:
        """The number of a student's draft, from 1; 0 where there is none."""
        return list(self.drafts).index(student) + 1 if student in self.drafts else 0

    def request(self) -> dict[str, Any]:
        """What ``play.class_request`` takes, drafts by number."""
        return {"text": self.text, "drafts": [draft.text for draft in self.drafts.values()]}

    def judged(self, event: Mapping[str, Any]) -> None:
        """Take the target's verdicts, a ``class-judged`` event of ``play.class_results``."""
        verdicts = [
            {**_drawn(one["round"]), "count": one["count"], "cut": one["cut"]} for one in event["verdicts"]
        ]
        self._verdicts = [
            {**verdicts[index], "pieces": _pieces(event, verdicts[index])} for index in event["drafts"]
        ]
        best = [list(self.drafts.values())[index].name for index in event["longest"]]
        shown = verdicts if self.open_drafts else []
        self.results = {
            **{key: event[key] for key in _FOR_ALL},
            "best": [name for name in best if name][:MOST_NAMED] if self.open_drafts else [],
            "verdicts": shown,
            "model": _drawn(event["model"]),
            "pieces": _pieces(event, _drawn(event["model"]), *shown),
        }
        self.phase = Phase.TOLD

    def verdict_on(self, student: str) -> dict[str, Any] | None:
        """What became of a student's draft, with its ``pieces``; None before that is known, or with none."""
        number = self.number_of(student)
        return self._verdicts[number - 1] if number and self.results else None

    def fail(self, sentence: str) -> None:
        """It could not be judged."""
        self.error, self.phase = sentence, Phase.FAILED

    def told(self) -> dict[str, Any]:
        """What everybody may see of it now."""
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

    def counted(self) -> dict[str, Any]:
        """How it stands, for the teacher's page."""
        return {"number": self.number, "phase": self.phase, "count": len(self.drafts), "error": self.error}

    def summed_up(self) -> dict[str, Any]:
        """For the page at the end of a lesson."""
        results = self.results or {}
        return {
            "text": self.text,
            "count": len(self.drafts),
            **{key: results.get(key) for key in ("alpha", "model_alpha", "model_name", "sentence")},
        }


def parse_game(raw: Mapping[str, Any], number: int) -> Game:
    """A game as the teacher asks for it: ``text``, ``seconds``, ``open_drafts``.

    Raises:
        UserError: It cannot be played.
    """
    require_known(raw, ("text", "seconds", "open_drafts"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    seconds = integer(raw, "seconds", USUAL_SECONDS, LEAST_SECONDS, MOST_SECONDS)
    return Game(number, text, seconds, flag(raw, "open_drafts", False))


def nickname(value: object) -> str:
    """A nickname that may stand on a projector: of what was typed the letters, digits and few marks.

    A name that cannot be shown must not cost the draft it comes with, so nothing is refused.
    """
    if not isinstance(value, str):
        return ""
    kept = [char for char in unicodedata.normalize("NFKC", value[: 4 * MOST_NAME_CHARS]) if _is_shown(char)]
    return " ".join("".join(kept).split())[:MOST_NAME_CHARS]


def _is_shown(char: str) -> bool:
    return char in _MARKS or unicodedata.category(char)[0] in _KEPT


def _drawn(round_: Mapping[str, Any]) -> dict[str, Any]:
    """Of a round what is drawn: two hundred students get it, and it has every top five."""
    drafted = [{key: token[key] for key in ("id", "status", "rejected")} for token in round_["drafted"]]
    emission = round_["emission"]
    return {
        "drafted": drafted,
        "emission": emission and {"id": emission["id"], "status": emission["status"]},
    }


def _pieces(event: Mapping[str, Any], *rounds: Mapping[str, Any]) -> dict[Any, str]:
    """The bytes of these rounds' tokens, of those most agreed on and of the target's."""
    ids = {token["id"] for round_ in rounds for token in (*round_["drafted"], round_["emission"]) if token}
    ids |= {token["id"] for token in event["agreed"]} | set(event["target"])
    return {token: piece for token, piece in event["pieces"].items() if int(token) in ids}
