"""The data types of a run: its settings, its rounds, and the trace format (described in README.md)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from specdemo.records.drafter_kinds import DRAFT_MODEL

TRACE_VERSION = 1
WATCHED_VERSION = 2
"""The version of a watched server's trace, in which some values may be None."""
MAX_PROMPT_CHARS = 8_000
MAX_NEW_TOKENS = 1_024
MAX_VOCABULARY = 2**18
MAX_REPEATS = 5
MAX_WATCHED_K = 128
"""Maximum draft length of a watched server; its operator chooses the draft length."""
UNKNOWN_ID = 0
"""The id of every token that a watched server counts without sending its text."""

SPECULATIVE = "speculative"
BASELINE = "baseline"
DRAFT = "draft"
"""The lane in which the draft model runs alone. In its rounds the draft model takes the target's role."""

USUAL_K = 3
AUTO: Final = "auto"
"""The value of ``RunConfig.k`` for an automatic draft length (see ``engine.draft_length``)."""


class Limits:
    """Limits of a field, as entries of pydantic's schema. They are checked when a trace is loaded."""

    # pydantic's own annotations would import it, which would slow down every command.

    def __init__(self, **entries: Any):
        self._entries = entries

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> dict[str, Any]:
        return handler(kind) | self._entries


def at_most(entries: int) -> Limits:
    """Return the limits of a tuple, of which only the first wrong entry is reported."""
    return Limits(max_length=entries, fail_fast=True)


# Sums and quotients of numbers stay finite. A rounded sum of probabilities may exceed 1.
Number = Annotated[float, Limits(strict=True, ge=-1e9, le=1e9)]
Seconds = Annotated[float, Limits(strict=True, ge=0.0, le=1e9)]
Probability = Annotated[float, Limits(strict=True, ge=0.0, le=1.001)]
Whole = Annotated[int, Limits(strict=True, ge=0, le=2**32 - 1)]
Flag = Annotated[bool, Limits(strict=True)]
Text = Annotated[str, Limits(strict=True, max_length=MAX_PROMPT_CHARS)]


class Rule(StrEnum):
    """The verification rule; ``same_text`` is False if only the distribution equals the target's."""

    label: str
    about: str
    same_text: bool

    def __new__(cls, name: str, label: str, about: str, same_text: bool) -> "Rule":
        rule = str.__new__(cls, name)
        rule._value_ = name
        rule.label, rule.about, rule.same_text = label, about, same_text
        return rule

    GREEDY = (
        "greedy",
        "greedy",
        "Accepts a draft token if it is the target's most likely token; the text is the target's own.",
        True,
    )
    REJECTION = (
        "rejection",
        "rejection sampling",
        "Accepts a draft token with probability min(1, p/q); same distribution, different text.",
        False,
    )
    BLOCK = (
        "block",
        "block verification",
        "Accepts draft tokens together: on average at least as many as rejection; same distribution.",
        False,
    )
    SHARED_NOISE = (
        "shared-noise",
        "shared noise",
        "Accepts a draft token if the target, with the same noise, picks it too; the text is the target's.",
        True,
    )


class Mode(StrEnum):
    """The use of the prompt: a chat message to answer, or raw text to continue."""

    CHAT = "chat"
    RAW = "raw"


class Status(StrEnum):
    """The status of a token. Only the page uses ``pending``, for draft tokens before verification."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DISCARDED = "discarded"
    CORRECTED = "corrected"
    BONUS = "bonus"


class Finish(StrEnum):
    LENGTH = "length"
    EOS = "eos"
    CONTEXT = "context"
    STOPPED = "stopped"


@dataclass(frozen=True)
class RunConfig:
    """The settings of a run. ``limits.parse_config`` checks requests."""

    prompt: str
    mode: Mode = Mode.CHAT
    k: int | Literal["auto"] = USUAL_K
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    rule: Rule = Rule.GREEDY
    drafter: str = DRAFT_MODEL
    script: str = ""  # the text that the ``scripted`` drafter proposes
    # On one machine, equal settings give equal texts, except under rejection and block with ``k`` = ``auto``:
    # draft lengths depend on measured times, and so do the random numbers that each token gets.
    seed: int = 0
    max_new_tokens: int = 128
    baseline: bool = True
    draft_alone: bool = False
    repeats: int = 1  # number of times that the run is measured; the one with the median speedup is shown


class Alternative(NamedTuple):
    """One of a model's five most likely tokens."""

    id: Whole
    prob: Probability


@dataclass(frozen=True)
class Token:
    """One draft token and its verdict; see README.md for the fields."""

    id: Whole
    q: Probability | None
    p: Probability | None
    status: Status
    compared: Flag
    rejected: Flag
    accept_prob: Probability | None = None
    u: Probability | None = None
    noise: Number | None = None
    raw_q: Probability | None = None
    raw_p: Probability | None = None
    draft_top: Annotated[tuple[Alternative, ...], at_most(5)] = ()
    target_top: Annotated[tuple[Alternative, ...], at_most(5)] = ()


@dataclass(frozen=True)
class TargetToken:
    """The token that the target itself adds at the end of a round; see README.md for the fields."""

    id: Whole
    status: Status
    prob: Probability | None
    raw_prob: Probability | None = None
    noise: Number | None = None
    residual_mass: Probability | None = None
    top: Annotated[tuple[Alternative, ...], at_most(5)] = ()
    gap: Number | None = None


@dataclass(frozen=True)
class Round:
    """One draft and one verification. A round of the baseline drafts nothing."""

    index: Whole
    position: Whole
    drafted: Annotated[tuple[Token, ...], at_most(MAX_WATCHED_K)]
    emission: TargetToken | None
    # Without display. In the baseline, ``verify_s`` times a pass without padding. For a watched server, all
    # seconds are in ``other_s``.
    draft_s: Seconds
    verify_s: Seconds
    other_s: Seconds
    prefill_s: Seconds = 0.0  # only in the first round
    finish: Finish | None = None
    drafted_by: Text = ""
    draft_steps: Whole = 0  # passes that the drafter made; 0 for copied tokens

    @property
    def accepted(self) -> int:
        return sum(token.status is Status.ACCEPTED for token in self.drafted)

    @property
    def compared(self) -> int:
        return sum(token.compared for token in self.drafted)

    @property
    def emitted(self) -> list[int]:
        """Ids that the round added to the text, in order."""
        kept = [token.id for token in self.drafted if token.status is Status.ACCEPTED]
        return kept + ([self.emission.id] if self.emission else [])

    @property
    def seconds(self) -> float:
        """Decode seconds, without prefill."""
        return self.draft_s + self.verify_s + self.other_s


ROUGH = 0.3


@dataclass(frozen=True)
class Calibration:
    """Pass costs of a pair, measured before its runs, for the theory and for ``k = auto``.

    No measured figure of a run depends on these costs.
    """

    step_s: Number  # seconds of one target pass over a single token, without padding
    c: Number  # seconds of one draft step ÷ ``step_s``; 0 for drafters without passes
    v: Annotated[tuple[Number, ...], at_most(256)]
    row_floor: Whole | None
    rows: Annotated[tuple[Whole, ...], at_most(256)] = ()
    scatter: Number = 0.0  # interquartile range ÷ median of repeated timings; high if the machine was busy

    @property
    def is_rough(self) -> bool:
        return self.scatter > ROUGH


@dataclass(frozen=True)
class Lane:
    rounds: Annotated[tuple[Round, ...], at_most(MAX_NEW_TOKENS)] = ()

    @property
    def ids(self) -> list[int]:
        return [token for round_ in self.rounds for token in round_.emitted]

    @property
    def finish(self) -> Finish | None:
        """The reason why the lane ended; None if it has no rounds or was cut off between rounds."""
        return self.rounds[-1].finish if self.rounds else None


@dataclass(frozen=True)
class Watched:
    """The watched server whose answer a run records."""

    engine: Text
    server: Text
    silent: Annotated[tuple[Text, ...], at_most(8)] = ()
    rounds: Flag = True


@dataclass(frozen=True)
class Run:
    """One run as it is saved. It can be replayed without a model or a tokenizer.

    In a watched run, ids are not from a vocabulary: they number the pieces of text, and ``UNKNOWN_ID`` stands
    for tokens without text.
    """

    config: RunConfig
    # Up to four byte tokens for each character, and 1,024 tokens for a chat template.
    prompt_ids: Annotated[tuple[Whole, ...], at_most(4 * MAX_PROMPT_CHARS + 1_024)]
    pair: Annotated[Mapping[Text, Text], Limits(max_length=8)]
    device: Text
    precision: Text
    versions: Annotated[Mapping[Text, Text], Limits(max_length=32)]
    started_at: Text
    calibration: Calibration | None
    lanes: Mapping[Text, Lane]
    pieces: Mapping[int, str] = field(default_factory=dict)
    specials: Annotated[tuple[Whole, ...], at_most(MAX_VOCABULARY)] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)
    version: Whole = TRACE_VERSION
    arithmetic: Text = ""
    watched: Watched | None = None
    # The lanes of the other runs, if the run was repeated.
    repeats: Annotated[tuple[Mapping[Text, Lane], ...], at_most(MAX_REPEATS - 1)] = ()

    def to_json(self) -> str:
        return dump(asdict(self))


def with_repeats(shown: Run, runs: Sequence[Run]) -> Run:
    """Return the run ``shown`` with the lanes of the other ``runs``, which have the same settings.

    Of the others, only what figures need is kept: ids, verdicts and times, without lists of alternatives.
    """
    others = [run for run in runs if run is not shown]
    repeats = tuple({name: _slim(lane) for name, lane in run.lanes.items()} for run in others)
    rounds = [round_ for lanes in repeats for lane in lanes.values() for round_ in lane.rounds]
    kept = {token.id for round_ in rounds for token in (*round_.drafted, round_.emission) if token}
    pieces = dict(shown.pieces)
    for run in others:
        pieces |= {token: piece for token, piece in run.pieces.items() if token in kept}
    specials = {token for run in runs for token in run.specials} & pieces.keys()
    return replace(shown, repeats=repeats, pieces=pieces, specials=tuple(sorted(specials)))


def _slim(lane: Lane) -> Lane:
    return Lane(
        tuple(
            replace(
                round_,
                drafted=tuple(replace(token, draft_top=(), target_top=()) for token in round_.drafted),
                emission=round_.emission and replace(round_.emission, top=()),
            )
            for round_ in lane.rounds
        )
    )


def dump(value: object) -> str:
    """Return compact JSON with unescaped non-ASCII text; NaN and infinite numbers raise ``ValueError``."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
