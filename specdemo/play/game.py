"""The game of the Play tab: one or two visitors write drafts, and the target verifies them, turn by turn."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specdemo.engine.speculate import never
from specdemo.engine.verdicts import top_fives
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import KINDS
from specdemo.records.events import Event, ids_in
from specdemo.records.limits import (
    MAX_DRAFT_CHARS,
    MAX_K,
    MAX_NEW_TOKENS,
    SCRIPTED,
    UserError,
    parse_config,
    require_known,
    require_readable,
)
from specdemo.records.pieces import PieceTable, inside_sentence
from specdemo.records.sentences import count
from specdemo.records.theory import ratio
from specdemo.records.trace import Finish, Mode, Round, RunConfig

ONE, TWO, MODEL = ("one", "two", "model")
MAX_COUNT = 1_000_000
_INVISIBLE = {"\n": "a line break", "\t": "a tab", "": "nothing"}


@dataclass(frozen=True)
class Score:
    """The counts of one drafter in a game. The page gets them after a turn and sends them with the next turn.

    Attributes:
        rounds: The number of rounds, each with one target pass.
        compared: The number of draft tokens that were compared with the target's tokens.
        accepted: The number of draft tokens that were accepted.
        tokens: The number of emitted tokens, the target's own tokens included.
        streak: The number of tokens accepted since the last rejection.
        best: The maximum of ``streak`` so far.
    """

    rounds: int = 0
    compared: int = 0
    accepted: int = 0
    tokens: int = 0
    streak: int = 0
    best: int = 0

    def after(self, round_: Round) -> "Score":
        """Return a new score that includes one more round."""
        rejected = round_.compared > round_.accepted
        return Score(
            rounds=self.rounds + 1,
            compared=self.compared + round_.compared,
            accepted=self.accepted + round_.accepted,
            tokens=self.tokens + len(round_.emitted),
            streak=0 if rejected else self.streak + round_.accepted,
            best=max(self.best, self.streak + round_.accepted),
        )

    @property
    def alpha(self) -> float | None:
        """The acceptance rate, accepted ÷ compared tokens; None if no token was compared."""
        return ratio(self.accepted, self.compared)

    @property
    def tau(self) -> float | None:
        """The mean number of tokens per target pass; None before the first pass."""
        return ratio(self.tokens, self.rounds)


@dataclass(frozen=True)
class TurnRequest:
    """A request for one turn. Only :func:`parse_turn` creates it.

    Attributes:
        text: The text at the start of the game.
        drafts: Player (``one`` or ``two``) -> draft, including its leading space.
        written: The ids of the tokens that were added to ``text`` in earlier turns.
        scores: Drafter (``one``, ``two`` or ``model``) -> score after the previous turn.
    """

    text: str
    drafts: Mapping[str, str]
    written: tuple[int, ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)


def parse_turn(raw: Mapping[str, Any]) -> TurnRequest:
    """Check an untrusted mapping and return the request.

    Args:
        raw: The keys ``text`` and ``draft``, and optionally ``second_draft``, ``written`` and ``scores``. In
            a game with one player, ``second_draft`` is empty or missing.

    Raises:
        UserError: A key is unknown, or a value has the wrong type or is out of bounds.
    """
    require_known(raw, ("text", "draft", "second_draft", "written", "scores"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    drafts = {ONE: parse_draft(raw.get("draft"))}
    if raw.get("second_draft") not in (None, ""):
        drafts[TWO] = parse_draft(raw["second_draft"])
    written = [] if raw.get("written") is None else raw["written"]
    if isinstance(written, list) and len(written) > MAX_NEW_TOKENS:
        raise UserError(
            f"The game has {len(written):,} tokens, at most {MAX_NEW_TOKENS:,} fit; start a new one."
        )
    if not isinstance(written, list) or not all(type(token) is int and token >= 0 for token in written):
        raise UserError("written must be the list of token ids that the last turn returned.")
    scores = {} if raw.get("scores") is None else raw["scores"]
    if (
        not isinstance(scores, dict)
        or not set(scores) <= {ONE, TWO, MODEL}
        or not all(map(_is_score, scores.values()))
    ):
        raise UserError("scores must be the scores that the last turn returned, by drafter.")
    scored = {player: Score(**counts) for player, counts in scores.items()}
    return TurnRequest(text, drafts, tuple(written), scored)


def _is_score(counts: object) -> bool:
    return (
        isinstance(counts, dict)
        and set(counts) == {one.name for one in fields(Score)}
        and all(type(number) is int and 0 <= number <= MAX_COUNT for number in counts.values())
        and counts["accepted"] <= counts["compared"]
    )


def parse_draft(value: object) -> str:
    """Check an untrusted draft and return it.

    Raises:
        UserError: The draft is not text, is too long, is empty, or contains unreadable characters.
    """
    if not isinstance(value, str):
        raise UserError("The draft must be text.")
    if len(value) > MAX_DRAFT_CHARS:
        raise UserError(f"The draft has {len(value):,} characters; shorten it to {MAX_DRAFT_CHARS:,}.")
    if not value.strip(" "):
        raise UserError("The draft is empty; type the next few words.")
    require_readable("draft", value)
    return value


def play_turn(pair: Pair, request: TurnRequest, stop: Stop = never) -> Iterator[Event]:
    """Verify the players' drafts greedily, and for comparison one draft of the pair's default drafter.

    A draft is cut if it has more than ``MAX_K`` tokens, or more than the target's context has room for. The
    default drafter drafts as many tokens as the longer of the players' drafts has, at most ``MAX_K``.

    Args:
        pair: The models.
        request: The checked request.
        stop: Called before every draft; True ends the turn without a ``turn`` event.

    Yields:
        A ``judged`` event for each drafter, then ``turn`` (see :class:`TurnEvents`).

    Raises:
        UserError: The text has ended or is too long for the target, or ``written`` has ids that the target
            does not have.
    """
    if any(token >= pair.vocab for token in request.written):
        raise UserError("written has token ids that the target does not have; start a new game.")
    if request.written and request.written[-1] in pair.eos_ids:
        raise UserError("The text has ended; start a new game.")
    opening = pair.prompt_ids(parse_config({"prompt": request.text, "mode": Mode.RAW}))
    # Keep the tokens of earlier turns: tokenizing their text again could give other tokens.
    prompt_ids = [*opening, *request.written]
    scripts = {player: pair.script_ids(draft) for player, draft in request.drafts.items()}
    events = TurnEvents(request, pair.default_drafter, pair.pieces)
    for player, draft in request.drafts.items():
        if stop():
            return
        config = one_round_config(request.text, len(scripts[player]), drafter=SCRIPTED, script=draft)
        round_ = one_round(pair, config, prompt_ids)
        yield events.judged(player, round_, cut=pair.pieces.text(scripts[player][len(round_.drafted) :]))
    if stop():
        return
    config = one_round_config(request.text, max(map(len, scripts.values())), drafter=pair.default_drafter)
    yield events.judged(MODEL, one_round(pair, config, prompt_ids))
    yield events.end()


def one_round_config(text: str, tokens: int, **drafter: str) -> RunConfig:
    """Return the settings of a greedy run for :func:`one_round`, with k = ``tokens``, from 1 to ``MAX_K``."""
    request = {"prompt": text, "mode": Mode.RAW, "max_new_tokens": MAX_K + 1, "baseline": False}
    return parse_config({**request, "k": max(1, min(tokens, MAX_K)), **drafter})


def one_round(pair: Pair, config: RunConfig, prompt_ids: list[int]) -> Round:
    """Decode and return the first round of a run; errors as for ``Lanes.speculative``."""
    return next(Lanes(pair, top_fives).speculative(config, prompt_ids))


class TurnEvents:
    """A builder of the events of one turn.

    There is a ``judged`` event for each drafter. It contains the ``player`` (``one``, ``two`` or ``model``),
    the player's ``name``, the ``round``, the text that was ``cut`` from a long draft, the ``score`` in the
    whole game with ``alpha`` and ``tau``, and the text of the tokens (``pieces``).

    The last event, ``turn``, contains the whole ``text`` so far, the token ids ``written`` since the start of
    the game, the player with the ``best`` draft, ``finish`` if the text cannot be continued, a ``sentence``
    about the turn, and a ``closing`` sentence about the game.

    Args:
        request: The request for the turn.
        drafter: The kind of the pair's default drafter, which plays against the visitors.
        pieces: The table with the text of the target's tokens.
    """

    def __init__(self, request: TurnRequest, drafter: str, pieces: PieceTable):
        self._request = request
        self._pieces = pieces
        one = "you" if len(request.drafts) == 1 else "player 1"
        self._names = {ONE: one, TWO: "player 2", MODEL: drafter_name(drafter)}
        self._rounds: dict[str, Round] = {}
        self._cuts: dict[str, str] = {}
        self._scores: dict[str, Score] = {}

    def judged(self, player: str, round_: Round, cut: str = "") -> Event:
        """Return the ``judged`` event for one drafter.

        Args:
            player: ``one``, ``two`` or ``model``.
            round_: The round that verified the draft.
            cut: The text that was cut from the end of the draft.
        """
        self._rounds[player], self._cuts[player] = round_, cut
        score = self._scores[player] = self._request.scores.get(player, Score()).after(round_)
        return {
            "type": "judged",
            "player": player,
            "name": title(self._names[player]),
            "round": asdict(round_),
            "cut": cut,
            "score": asdict(score),
            "alpha": score.alpha,
            "tau": score.tau,
            "pieces": self._pieces.encoded(ids_in(round_)),
            "specials": sorted(self._pieces.specials),
        }

    def end(self) -> Event:
        """Return the ``turn`` event, after the ``judged`` events of all drafters.

        The text is continued with the tokens of the player whose round emitted the most. With greedy
        verification this is safe, because all rounds emit tokens that the target would also write alone.
        """
        best = max(self._request.drafts, key=lambda player: len(self._rounds[player].emitted))
        round_ = self._rounds[best]
        written = [*self._request.written, *round_.emitted]
        rates = [f"{self._names[player]} {acceptance(score.alpha)}" for player, score in self._scores.items()]
        passes = count(self._scores[ONE].rounds, "target pass", "target passes")
        tokens = count(len(written), "token")
        return {
            "type": "turn",
            "best": best,
            "written": written,
            "text": self._request.text + self._pieces.text(written),
            "finish": round_.finish if round_.finish in (Finish.EOS, Finish.CONTEXT) else None,
            "sentence": " ".join(map(self._sentence, self._rounds)),
            "closing": f"Acceptance rates: {', '.join(rates)}. "
            f"{tokens} in {passes}; the target alone needs {len(written):,}.",
        }

    def _sentence(self, player: str) -> str:
        round_, name = self._rounds[player], title(self._names[player])
        if not round_.drafted:
            return f"{name}: nothing drafted."
        total = len(round_.drafted)
        every = "all " if round_.accepted == total > 1 else ""
        sentence = f"{name}: {every}{round_.accepted} of {total} accepted"
        if round_.emission is None:
            sentence += "; the text ends there"
        elif round_.compared > round_.accepted:
            rejected, corrected = (
                quoted(self._pieces.text([token]))
                for token in (round_.drafted[round_.accepted].id, round_.emission.id)
            )
            sentence += f"; the target writes {corrected} instead of {rejected}"
        if cut := self._cuts[player].strip():
            sentence += f". “{inside_sentence(cut)}” was cut: a draft has at most {count(total, 'token')}"
        return f"{sentence}."


def drafter_name(kind: str) -> str:
    """Return the name of a kind of drafter for use within a sentence, such as "the draft model"."""
    return KINDS[kind].who.format(draft="the draft model")


def title(name: str) -> str:
    """Return a drafter's name as a heading: "the draft model" becomes "Draft model"."""
    return name.removeprefix("the ").capitalize()


def acceptance(rate: float | None) -> str:
    """Return an acceptance rate as text, or "n/a" if it is None because no token was compared."""
    return "n/a" if rate is None else f"{rate:.0%}"


def quoted(text: str) -> str:
    """Return stripped ``text`` in quotation marks; for blank text, a description such as "a line break"."""
    return f"“{inside_sentence(text.strip())}”" if text.strip() else _INVISIBLE.get(text[:1], "a space")
