"""Play: the visitor takes the draft's place. What a turn may ask, how it is scored and told in words.

A turn is one round of each drafter on the same text: one or two players, and the draft model beside them.
The target edits all of them greedily, so whatever is kept of any is the beginning of one and the same text,
the one the target would write alone; the longer a player's part of it, the further the game has come.

A turn is told as events:

``judged``  one drafter's ``round``: who (``player``, ``name``), what was ``cut`` from a draft longer than
            ``MAX_K`` tokens, the ``score`` of the whole game with ``alpha`` and ``tau``, and ``pieces``
``turn``    the ``text`` now and the ids ``written`` since the game began, ``finish`` where no more can
            follow, the ``sentence`` of this turn and the ``closing`` one of the game, were it to end here

Nothing is kept between turns: the next one asks with this one's ``written`` and scores. No torch, no page.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specdemo.play.score import Score
from specdemo.play.words import Name, count, name_of, quoted, share
from specdemo.records.events import Event, PiecesOf, ids_in
from specdemo.records.limits import (
    MAX_DRAFT_CHARS,
    MAX_NEW_TOKENS,
    UserError,
    parse_config,
    require_known,
    require_readable,
)
from specdemo.records.pieces import inside_sentence
from specdemo.records.trace import Finish, Mode, Round

ONE = "one"
TWO = "two"
MODEL = "model"
DRAFTERS = (ONE, TWO, MODEL)
MOST_COUNTED = 1_000_000


@dataclass(frozen=True)
class TurnRequest:
    """One turn. Built and bounded by :func:`parse_turn` only.

    Attributes:
        text: What the game began with.
        drafts: Player -> the text that stands for the next tokens, its leading space included.
        written: Ids the game has put behind ``text`` so far.
        scores: The scores that earlier turns have told, by drafter.
    """

    text: str
    drafts: Mapping[str, str]
    written: tuple[int, ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)


def parse_turn(raw: Mapping[str, Any]) -> TurnRequest:
    """Turn an untrusted mapping into a request.

    Its keys are ``text``, ``draft``, ``second_draft``, ``written`` and ``scores``. Only the first two are
    needed; an empty ``second_draft`` is that of a game for one.

    Raises:
        UserError: A key is unknown, or a value has the wrong type or is out of bounds.
    """
    require_known(raw, ("text", "draft", "second_draft", "written", "scores"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    drafts = {ONE: parse_draft(raw.get("draft"))}
    if raw.get("second_draft") not in (None, ""):
        drafts[TWO] = parse_draft(raw["second_draft"])
    return TurnRequest(text, drafts, _written(raw.get("written")), _scores(raw.get("scores")))


def parse_draft(value: object) -> str:
    """An untrusted draft as text.

    Raises:
        UserError: It is no text, too long, blank, or not to be read.
    """
    if not isinstance(value, str):
        raise UserError("The draft must be text.")
    if len(value) > MAX_DRAFT_CHARS:
        raise UserError(f"The draft has {len(value):,} characters; shorten it to {MAX_DRAFT_CHARS:,}.")
    if not value.strip(" "):
        raise UserError("The draft is empty; type the next few words.")
    require_readable("draft", value)
    return value


class TurnLog:
    """Makes the events of one turn from its rounds.

    Args:
        request: The turn.
        drafter: The kind of the drafter beside the players, one of ``NAMES``.
        pieces_of: ``pieces`` of any ids that will occur.
        text_of: Readable text of ids.
        specials: Ids of control tokens.
    """

    def __init__(
        self,
        request: TurnRequest,
        drafter: str,
        pieces_of: PiecesOf,
        text_of: Callable[[Iterable[int]], str],
        specials: Iterable[int] = (),
    ):
        self._request = request
        self._names = {
            ONE: Name("You", "you") if len(request.drafts) == 1 else Name("Player 1", "player 1"),
            TWO: Name("Player 2", "player 2"),
            MODEL: name_of(drafter),
        }
        self._pieces_of = pieces_of
        self._text_of = text_of
        self._specials = sorted(specials)
        self._rounds: dict[str, Round] = {}
        self._cuts: dict[str, str] = {}
        self._scores: dict[str, Score] = {}

    def judged(self, player: str, round_: Round, cut: str = "") -> Event:
        """The event of one drafter's round; ``cut`` is the end of its draft that was not looked at."""
        self._rounds[player] = round_
        self._cuts[player] = cut
        score = self._scores[player] = self._request.scores.get(player, Score()).after(round_)
        return {
            "type": "judged",
            "player": player,
            "name": self._names[player].title,
            "round": asdict(round_),
            "cut": cut,
            "score": asdict(score),
            "alpha": score.alpha,
            "tau": score.tau,
            "pieces": self._pieces_of(ids_in(round_)),
            "specials": self._specials,
        }

    def end(self) -> Event:
        """The event after the last drafter's."""
        best = max((player for player in self._rounds if player != MODEL), key=self._reach)
        round_ = self._rounds[best]
        written = [*self._request.written, *round_.emitted]
        return {
            "type": "turn",
            "best": best,
            "written": written,
            "text": self._request.text + self._text_of(written),
            "finish": round_.finish if round_.finish in (Finish.EOS, Finish.CONTEXT) else None,
            "sentence": " ".join(self._told(player) for player in self._rounds),
            "closing": self._closing(len(written)),
        }

    def _reach(self, player: str) -> int:
        return len(self._rounds[player].emitted)

    def _told(self, player: str) -> str:
        """What became of one draft, in a sentence."""
        round_, name = self._rounds[player], self._names[player].title
        if not round_.drafted:
            return f"{name}: nothing drafted."
        total = len(round_.drafted)
        every = "all " if round_.accepted == total > 1 else ""
        told = f"{name}: {every}{round_.accepted} of {total} accepted"
        if round_.emission is None:
            told += "; with them the text ends"
        elif round_.compared > round_.accepted:
            wrong, right = round_.drafted[round_.accepted].id, round_.emission.id
            told += f"; instead of {self._quoted(wrong)} the target writes {self._quoted(right)}"
        if cut := self._cuts[player].strip():
            told += (
                f". The end, “{inside_sentence(cut)}”, was cut: a draft has {count(total, 'token')} at most"
            )
        return f"{told}."

    def _quoted(self, token: int) -> str:
        return quoted(self._text_of([token]))

    def _closing(self, tokens: int) -> str:
        """How the game stands, as its last sentence would say it."""
        one, *others = self._scores
        rates = [f"{self._names[one].title}: {share(self._scores[one].alpha)} accepted"]
        rates += [f"{self._names[other].inside}: {share(self._scores[other].alpha)}" for other in others]
        passes = count(self._scores[one].rounds, "target pass", "target passes")
        text = count(tokens, "token")
        return f"{', '.join(rates)}. {text} in {passes}; alone the target needs {tokens:,}."


def _written(value: object) -> tuple[int, ...]:
    ids = [] if value is None else value
    if isinstance(ids, list) and len(ids) > MAX_NEW_TOKENS:
        raise UserError(f"The game has written {len(ids):,} tokens; start a new one.")
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise UserError("written must be the list of token ids that the last turn returned.")
    return tuple(ids)


def _scores(value: object) -> dict[str, Score]:
    names = {field_.name for field_ in fields(Score)}
    wrong = UserError("scores must be those that the last turn returned, by drafter.")
    scores = {} if value is None else value
    if not isinstance(scores, dict) or not set(scores) <= set(DRAFTERS):
        raise wrong
    for counts in scores.values():
        if not isinstance(counts, dict) or set(counts) != names:
            raise wrong
        if not all(type(count) is int and 0 <= count <= MOST_COUNTED for count in counts.values()):
            raise wrong
        if counts["accepted"] > counts["compared"]:
            raise wrong
    return {player: Score(**counts) for player, counts in scores.items()}
