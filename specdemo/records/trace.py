"""The one thing that flows: a run's configuration, its rounds, and the file they are saved in.

Every figure shown anywhere (page, plots, terminal, bench, tests) is folded from these records;
nobody recounts. Standard library only: a trace must load where no model can.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from specdemo.records.drafter_kinds import DRAFT_MODEL

TRACE_VERSION = 1
WATCHED_VERSION = 2
"""Of the traces of watched servers, which lack what others have."""
UNTOLD = 0
"""The id of a token of which a watched server tells only that it was there."""

SPECULATIVE = "speculative"
BASELINE = "baseline"
DRAFT = "draft"
"""The draft model by itself. What its rounds say of a target they say of the draft."""

USUAL_K = 3
AUTO: Final = "auto"
"""A draft length that follows what pays (``draft_length.AutoLength``)."""


class Rule(StrEnum):
    """Verification rule: how the target decides whether a drafted token stays."""

    GREEDY = "greedy"
    REJECTION = "rejection"
    SHARED_NOISE = "shared-noise"


class Mode(StrEnum):
    """Whether the prompt is one chat message or raw text to continue."""

    CHAT = "chat"
    RAW = "raw"


class Status(StrEnum):
    """What became of a token. ``pending`` exists only on screen, between draft and verdict."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DISCARDED = "discarded"
    CORRECTED = "corrected"
    BONUS = "bonus"


class Finish(StrEnum):
    """Why a lane ended."""

    LENGTH = "length"
    EOS = "eos"
    CONTEXT = "context"
    STOPPED = "stopped"


@dataclass(frozen=True)
class RunConfig:
    """Everything a visitor chooses. Built and bounded by ``limits.parse_config`` only.

    ``script`` is the text that the ``scripted`` drafter proposes; empty for every other drafter.
    ``baseline`` and ``draft_alone`` ask for the target's and the draft model's own lane.
    ``seed`` settles every draw. On one machine it repeats the text, but for ``auto`` under rejection: lengths
    then follow measured times, and whether a token is drafted decides which numbers it is drawn with. Nor
    does it there where the pair learns (``service.hosting``): that takes other numbers after every run.
    """

    prompt: str
    mode: Mode = Mode.CHAT
    k: int | Literal["auto"] = USUAL_K
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    rule: Rule = Rule.GREEDY
    drafter: str = DRAFT_MODEL
    script: str = ""
    seed: int = 0
    max_new_tokens: int = 128
    baseline: bool = True
    draft_alone: bool = False


class Alternative(NamedTuple):
    """One entry of a model's top five."""

    id: int
    prob: float


@dataclass(frozen=True)
class Token:
    """One drafted token and its verdict.

    Attributes:
        id: Token id in the target's vocabulary.
        q, p: Its probability under the draft and the target as the rule used them: after
            temperature, top-k and top-p; under greedy 1 or 0. None where a watched server does not tell.
        raw_q, raw_p: Under greedy, the probabilities at temperature 1, for the reader's eye.
        accept_prob: min(1, p/q) under rejection, 1 or 0 under greedy, None under shared noise.
        u: The uniform draw it was compared with (rejection, compared tokens only).
        noise: The Gumbel noise g of this token at this position (shared noise only).
        status: ``accepted`` or ``discarded``.
        compared: Whether a verdict was reached: true up to and including the first rejection.
        rejected: True for the one token that the target refused.
        draft_top, target_top: Top five of both models at this position (temperature 1 under greedy).
    """

    id: int
    q: float | None
    p: float | None
    status: Status
    compared: bool
    rejected: bool
    accept_prob: float | None = None
    u: float | None = None
    noise: float | None = None
    raw_q: float | None = None
    raw_p: float | None = None
    draft_top: tuple[Alternative, ...] = ()
    target_top: tuple[Alternative, ...] = ()


@dataclass(frozen=True)
class Emission:
    """The token that the target itself adds at the end of a round.

    Attributes:
        id: Token id.
        status: ``corrected`` after a rejection, else ``bonus``.
        prob: Its probability under the distribution it was drawn from (the residual after a
            rejection under the rejection rule, else p); 1 under greedy. None where a watched server does
            not tell.
        raw_prob: Under greedy, its probability at temperature 1.
        noise: Its Gumbel noise (shared noise only).
        residual_mass: Σ (p − q)+ at the rejection (rejection rule only) = 1 − Σ min(p, q).
        top: Top five of the distribution it was drawn from (temperature 1 under greedy).
        gap: Difference between the target's two highest temperature-1 probabilities here; what a
            divergence from the baseline is explained by.
    """

    id: int
    status: Status
    prob: float | None
    raw_prob: float | None = None
    noise: float | None = None
    residual_mass: float | None = None
    top: tuple[Alternative, ...] = ()
    gap: float | None = None


@dataclass(frozen=True)
class Round:
    """One draft phase, one target pass, one verdict. A baseline step drafts nothing.

    Attributes:
        index: Number of the round in its lane, from 0.
        position: Length in tokens of prompt and output before the round.
        drafted: The drafted tokens in order.
        drafted_by: The drafter kind that wrote them; of a combination, the one that did. Empty
            where nothing was drafted, but not of a watched server that does not tell whether anything was.
        draft_steps: Passes of a draft (model, head or exit) made for them; 0 for copied tokens.
        emission: The target's own token; None when an accepted end-of-sequence token ended the run.
        draft_s, verify_s, other_s: Seconds spent drafting, in the target pass, and in the rest of
            the decode loop (warping, verdict, bookkeeping, transfers). Display work is in none. In the
            baseline's rounds ``verify_s`` is a pass without padding. A watched server does not report how
            it spent its seconds: all are ``other_s`` there.
        prefill_s: Seconds of prompt processing before the first round, 0 after.
        finish: Why the lane ended with this round, None while it goes on.
    """

    index: int
    position: int
    drafted: tuple[Token, ...]
    emission: Emission | None
    draft_s: float
    verify_s: float
    other_s: float
    prefill_s: float = 0.0
    finish: Finish | None = None
    drafted_by: str = ""
    draft_steps: int = 0

    @property
    def accepted(self) -> int:
        """Drafted tokens that were kept."""
        return sum(token.status is Status.ACCEPTED for token in self.drafted)

    @property
    def compared(self) -> int:
        """Drafted tokens that got a verdict."""
        return sum(token.compared for token in self.drafted)

    @property
    def emitted(self) -> list[int]:
        """Ids this round added to the text."""
        kept = [token.id for token in self.drafted if token.status is Status.ACCEPTED]
        return kept + ([self.emission.id] if self.emission else [])

    @property
    def seconds(self) -> float:
        """Decode seconds of the round, prefill excluded."""
        return self.draft_s + self.verify_s + self.other_s


ROUGH = 0.3
"""Scatter of a calibration above which its costs are rough."""


@dataclass(frozen=True)
class Calibration:
    """Pass costs, measured once per process on the loaded pair: what theory and ``k = auto`` start from.

    No measured figure of a run depends on them.

    Attributes:
        step_s: Seconds of one target pass over a single token, without padding.
        c: Cost ratio of the run's drafter: one draft step ÷ ``step_s``; 0 for drafters that only copy.
        v: ``v[n - 1]`` is the target pass over n tokens as the engine runs it (padding included)
            ÷ ``step_s``.
        row_floor: Rows that a pass over one token is padded to so that verification and single-token
            decoding give the same bits; None if the self-test found no such row counts and divergences
            are audited.
        rows: The same for passes over 1, 2, … tokens; empty if nothing is padded.
        scatter: Range between the quartiles of repeated passes ÷ their median; above ``ROUGH`` the machine
            was busy.
    """

    step_s: float
    c: float
    v: tuple[float, ...]
    row_floor: int | None
    rows: tuple[int, ...] = ()
    scatter: float = 0.0

    @property
    def is_rough(self) -> bool:
        """Whether the passes scattered too much for more than an estimate."""
        return self.scatter > ROUGH


@dataclass(frozen=True)
class Lane:
    """The rounds of one decoder."""

    rounds: tuple[Round, ...] = ()

    @property
    def ids(self) -> list[int]:
        """All emitted ids in order."""
        return [token for round_ in self.rounds for token in round_.emitted]

    @property
    def finish(self) -> Finish | None:
        """Why the lane ended; None if it was cut off between rounds."""
        return self.rounds[-1].finish if self.rounds else None


@dataclass(frozen=True)
class Watched:
    """What is known of the server that wrote a run, where it was not this program.

    Attributes:
        engine: Which server program it is.
        server: What the host calls it; never its address.
        silent: What it does not tell, a sentence each.
        rounds: Whether it tells its rounds; where it does not, each round is but a piece of text.
    """

    engine: str
    server: str
    silent: tuple[str, ...] = ()
    rounds: bool = True


@dataclass(frozen=True)
class Run:
    """One run as saved: replayable with no model and no tokeniser.

    Attributes:
        pieces: Token id -> its bytes, base64; enough to show every token that occurs in the run.
        specials: Ids among ``pieces`` that are control tokens, shown as chips.
        totals: The figures of ``figures.Totals`` at the end of the run.
        arithmetic: Why the models computed in ``precision``, a sentence; empty if unknown.
        watched: The server that wrote it, None where this program did. Its ids are the run's own: numbers of
            pieces of text in the order in which they came, ``UNTOLD`` for tokens that were not told.
    """

    config: RunConfig
    prompt_ids: tuple[int, ...]
    pair: Mapping[str, str]
    device: str
    precision: str
    versions: Mapping[str, str]
    started_at: str
    calibration: Calibration | None
    lanes: Mapping[str, Lane]
    pieces: Mapping[int, str] = field(default_factory=dict)
    specials: tuple[int, ...] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)
    version: int = TRACE_VERSION
    arithmetic: str = ""
    watched: Watched | None = None

    def to_json(self) -> str:
        """The run as one line of JSON."""
        return dump(asdict(self))


def dump(value: object) -> str:
    """Compact JSON that keeps non-ASCII text readable and refuses NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
