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
    show,
)
from specdemo.records.pieces import PieceTable, inside_sentence
from specdemo.records.sentences import count, share
from specdemo.records.theory import ratio
from specdemo.records.trace import Finish, Mode, Round, RunConfig

ONE, TWO, MODEL = ("one", "two", "model")
MAX_COUNT = 1_000_000
_INVISIBLE = {"\n": "a line break", "\t": "a tab", "": "nothing"}


@dataclass(frozen=True)
class Score:
    """The counts of one drafter in a game, which the page sends back with the next turn."""

    rounds: int = 0
    compared: int = 0
    accepted: int = 0
    tokens: int = 0  # emitted tokens, including the target's own
    streak: int = 0  # tokens accepted since the last rejection
    best: int = 0  # the longest streak

    def after(self, round_: Round) -> "Score":
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
        return ratio(self.accepted, self.compared)

    @property
    def tau(self) -> float | None:
        return ratio(self.tokens, self.rounds)


@dataclass(frozen=True)
class TurnRequest:
    """A checked request for one turn, from :func:`parse_turn`."""

    text: str  # at the start of the game
    drafts: Mapping[str, str]
    """Player (``one`` or ``two``) -> draft, including its leading space."""
    written: tuple[int, ...] = ()  # the ids that earlier turns added to ``text``
    scores: Mapping[str, Score] = field(default_factory=dict)
    """Drafter (``one``, ``two`` or ``model``) -> score after the previous turn."""


def parse_turn(raw: Mapping[str, Any]) -> TurnRequest:
    """Check an untrusted mapping; with one player, ``second_draft`` is empty or missing."""
    require_known(raw, ("text", "draft", "second_draft", "written", "scores"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    drafts = {ONE: parse_draft(raw.get("draft"))}
    if raw.get("second_draft") not in (None, ""):
        drafts[TWO] = parse_draft(raw["second_draft"])
    written = [] if raw.get("written") is None else raw["written"]
    if isinstance(written, list) and len(written) > MAX_NEW_TOKENS:
        raise UserError(f"This game has reached its limit of {MAX_NEW_TOKENS:,} tokens; start a new game.")
    if not isinstance(written, list) or not all(type(token) is int and token >= 0 for token in written):
        raise UserError("written must be the list of token ids that the last turn returned.")
    scores = {} if raw.get("scores") is None else raw["scores"]
    if (
        not isinstance(scores, dict)
        or not set(scores) <= {ONE, TWO, MODEL}
        or not all(map(_is_score, scores.values()))
    ):
        raise UserError("scores must be the scores that the last turn returned.")
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
    if not isinstance(value, str):
        raise UserError(f"The draft must be text, not {show(value)}.")
    if len(value) > MAX_DRAFT_CHARS:
        raise UserError(
            f"The draft must have at most {MAX_DRAFT_CHARS:,} characters, got {len(value):,}; "
            "shorten the draft."
        )
    if not value.strip(" "):
        raise UserError("The draft is empty; type the next few words.")
    require_readable("draft", value)
    return value


def play_turn(pair: Pair, request: TurnRequest, stop: Stop = never) -> Iterator[Event]:
    """Verify the players' drafts and a draft of the pair's default drafter greedily, see :class:`TurnEvents`.

    A draft is cut after ``MAX_K`` tokens, or where the target's context ends. The default drafter drafts as
    many tokens as the longest draft of a player. ``stop`` is called before every draft; True ends the turn
    without a ``turn`` event.
    """
    if any(token >= pair.vocab for token in request.written):
        raise UserError(f"written must contain only token ids below {pair.vocab:,}; start a new game.")
    if request.written and request.written[-1] in pair.eos_ids:
        raise UserError("The target has ended the text; start a new game.")
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
    """Return the settings of a greedy run with k = ``tokens``, bounded to 1 to ``MAX_K``."""
    request = {"prompt": text, "mode": Mode.RAW, "max_new_tokens": MAX_K + 1, "baseline": False}
    return parse_config({**request, "k": max(1, min(tokens, MAX_K)), **drafter})


def one_round(pair: Pair, config: RunConfig, prompt_ids: list[int]) -> Round:
    return next(iter(Lanes(pair, top_fives).speculative(config, prompt_ids)))


class TurnEvents:
    """A builder of the events of one turn: ``judged`` for each drafter, then ``turn``.

    A ``judged`` event contains the ``score`` in the whole game, and the text that was ``cut`` from the draft.
    The ``turn`` event contains the ``text`` so far, the ids ``written`` since the start of the game, the
    player with the ``best`` draft, and ``finish`` if the text cannot be continued. Its ``sentence`` is about
    the turn, its ``closing`` about the game.
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
        # Under greedy verification, all rounds emit the beginning of the target's own text. Take the longest
        # round of a player; that of the default drafter is for comparison only.
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
            f"{tokens} in {passes}; the target alone needs {count(len(written), 'pass', 'passes')}.",
        }

    def _sentence(self, player: str) -> str:
        round_, name = self._rounds[player], title(self._names[player])
        if not round_.drafted:
            return f"{name}: no draft tokens."
        total = len(round_.drafted)
        every = "all " if round_.accepted == total > 1 else ""
        sentence = f"{name}: {every}{round_.accepted} of {total} accepted"
        if round_.emission is None:
            sentence += "; the target's text ends there"
        elif round_.compared > round_.accepted:
            rejected, corrected = (
                quoted(self._pieces.text([token]))
                for token in (round_.drafted[round_.accepted].id, round_.emission.id)
            )
            sentence += f"; the target writes {corrected} instead of {rejected}"
        if cut := self._cuts[player].strip():
            sentence += (
                f". “{inside_sentence(cut)}” was cut, because the limit is {count(total, 'draft token')}"
            )
        return f"{sentence}."


def drafter_name(kind: str) -> str:
    """Return a drafter's name for use within a sentence, such as "the draft model"."""
    return KINDS[kind].who.format(draft="the draft model")


def title(name: str) -> str:
    """Return a drafter's name as a heading: "the draft model" becomes "Draft model"."""
    return name.removeprefix("the ").capitalize()


def acceptance(rate: float | None) -> str:
    return "n/a" if rate is None else share(rate)


def quoted(text: str) -> str:
    """Return ``text`` in quotation marks, or a description of blank text, such as "a line break"."""
    return f"“{inside_sentence(text.strip())}”" if text.strip() else _INVISIBLE.get(text[:1], "a space")
