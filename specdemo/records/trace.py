"""A run as plain data: its settings, its rounds, and the JSON that it is saved as (README.md).

Every figure is computed from these records. Standard library only, so that a trace loads without torch.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from specdemo.records.drafter_kinds import DRAFT_MODEL

TRACE_VERSION = 1
WATCHED_VERSION = 2
"""The version of traces of watched servers, in which some values may be missing."""
UNKNOWN_ID = 0
"""The id of a token that a watched server only counts."""

SPECULATIVE = "speculative"
BASELINE = "baseline"
DRAFT = "draft"
"""The lane of the draft model by itself; in its rounds the draft model is the target."""

USUAL_K = 3
AUTO: Final = "auto"
"""An automatic draft length (``draft_length.AutoLength``)."""


Probability = Annotated[float, "0 to 1"]
Seconds = Annotated[float, "0 or more"]


class Rule(StrEnum):
    """Verification rule: how the target accepts or rejects a draft token."""

    GREEDY = "greedy"
    REJECTION = "rejection"
    SHARED_NOISE = "shared-noise"


class Mode(StrEnum):
    """The reading of the prompt: as one chat message, or as raw text to continue."""

    CHAT = "chat"
    RAW = "raw"


class Status(StrEnum):
    """The status of a token. ``pending`` exists only on screen, between draft and verification."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DISCARDED = "discarded"
    CORRECTED = "corrected"
    BONUS = "bonus"


class Finish(StrEnum):
    """The reason why a lane ended."""

    LENGTH = "length"
    EOS = "eos"
    CONTEXT = "context"
    STOPPED = "stopped"


@dataclass(frozen=True)
class RunConfig:
    """The settings of a run. Only ``limits.parse_config`` makes one from a request.

    Attributes:
        script: Text that the ``scripted`` drafter proposes; empty for every other drafter.
        baseline, draft_alone: Whether the target and the draft model also run alone.
        seed: Seed of every random draw. On one machine it repeats the text, with two exceptions under
            rejection: with ``auto``, measured times decide which numbers a token is drawn with, and a pair
            that learns (``service.hosting``) takes other numbers after every run.
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
    prob: Probability


@dataclass(frozen=True)
class Token:
    """One draft token and its verdict.

    Attributes:
        id: Token id in the target's vocabulary.
        q, p: Its probability under the draft and the target as the rule used them: after
            temperature, top-k and top-p; under greedy 1 or 0. None if a watched server does not report it.
        raw_q, raw_p: Under greedy, the probabilities at temperature 1, for display.
        accept_prob: min(1, p/q) under rejection, 1 or 0 under greedy, None under shared noise.
        u: The uniform draw it was compared with (rejection, compared tokens only).
        noise: The Gumbel noise g of this token at this position (shared noise only).
        status: ``accepted`` or ``discarded``.
        compared: Whether the token got a verdict: true up to and including the first rejected token.
        rejected: True for the one token that the target rejected.
        draft_top, target_top: Top five of both models at this position (temperature 1 under greedy).
    """

    id: int
    q: Probability | None
    p: Probability | None
    status: Status
    compared: bool
    rejected: bool
    accept_prob: Probability | None = None
    u: Probability | None = None
    noise: float | None = None
    raw_q: Probability | None = None
    raw_p: Probability | None = None
    draft_top: tuple[Alternative, ...] = ()
    target_top: tuple[Alternative, ...] = ()


@dataclass(frozen=True)
class Emission:
    """The token that the target itself adds at the end of a round.

    Attributes:
        id: Token id.
        status: ``corrected`` after a rejection, else ``bonus``.
        prob: Its probability under the distribution it was drawn from (the residual after a rejection
            under the rejection rule, else p); 1 under greedy. None if a watched server does not report it.
        raw_prob: Under greedy, its probability at temperature 1.
        noise: Its Gumbel noise (shared noise only).
        residual_mass: Σ (p − q)+ at the rejection (rejection rule only) = 1 − Σ min(p, q).
        top: Top five of the distribution it was drawn from (temperature 1 under greedy).
        gap: Difference between the target's two highest probabilities at temperature 1; a small one
            explains a divergence from the baseline.
    """

    id: int
    status: Status
    prob: Probability | None
    raw_prob: Probability | None = None
    noise: float | None = None
    residual_mass: Probability | None = None
    top: tuple[Alternative, ...] = ()
    gap: float | None = None


@dataclass(frozen=True)
class Round:
    """One draft and one verification. A round of the baseline drafts nothing.

    Attributes:
        index: Number of the round in its lane, from 0.
        position: Length in tokens of prompt and output before the round.
        drafted: The draft tokens in order.
        drafted_by: Kind of the drafter that wrote them; in a combination, the kind that did. Empty if nothing
            was drafted, unless a watched server does not report whether anything was.
        draft_steps: Passes of the draft model, head or early exit; 0 for copied tokens.
        emission: The target's own token; None if an accepted end-of-sequence token ended the run.
        draft_s, verify_s, other_s: Seconds of drafting, of the target pass, and of the rest of the decode
            loop (warping, verdict, bookkeeping, transfers), without display. In the baseline's rounds
            ``verify_s`` is a pass without padding. For a watched server all seconds are ``other_s``.
        prefill_s: Seconds of prompt processing before the first round, 0 in later rounds.
        finish: Why the lane ended with this round, None while it goes on.
    """

    index: int
    position: int
    drafted: tuple[Token, ...]
    emission: Emission | None
    draft_s: Seconds
    verify_s: Seconds
    other_s: Seconds
    prefill_s: Seconds = 0.0
    finish: Finish | None = None
    drafted_by: str = ""
    draft_steps: int = 0

    @property
    def accepted(self) -> int:
        """Number of draft tokens that were accepted."""
        return sum(token.status is Status.ACCEPTED for token in self.drafted)

    @property
    def compared(self) -> int:
        """Number of draft tokens that were compared."""
        return sum(token.compared for token in self.drafted)

    @property
    def emitted(self) -> list[int]:
        """Ids that the round added to the text."""
        kept = [token.id for token in self.drafted if token.status is Status.ACCEPTED]
        return kept + ([self.emission.id] if self.emission else [])

    @property
    def seconds(self) -> float:
        """Decode seconds of the round, prefill excluded."""
        return self.draft_s + self.verify_s + self.other_s


ROUGH = 0.3
"""Scatter above which the costs of a calibration are rough."""


@dataclass(frozen=True)
class Calibration:
    """Pass costs, measured once per process on the loaded pair, for the theory and for ``k = auto``.

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
        """True if the passes varied so much that the costs are only estimates."""
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
    """The server that wrote a run, if it was not this program.

    Attributes:
        engine: Name of the server program.
        server: The host's name for it; never its address.
        silent: Values that it does not report, a sentence each.
        rounds: Whether it reports its rounds; if not, each round is a piece of text.
    """

    engine: str
    server: str
    silent: tuple[str, ...] = ()
    rounds: bool = True


@dataclass(frozen=True)
class Run:
    """One run as it is saved. It can be replayed without a model or a tokenizer.

    Attributes:
        pieces: Bytes of every token that occurs in the run, base64 by token id.
        specials: Ids among ``pieces`` that are control tokens, shown as chips.
        totals: The figures of ``figures.Totals`` at the end of the run.
        arithmetic: Why the models ran in ``precision``, a sentence; empty if unknown.
        watched: The server that wrote the run, None if this program did. Its ids number the pieces of text
            in their order; ``UNKNOWN_ID`` stands for tokens without text.
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
        """Return the run as one line of JSON."""
        return dump(asdict(self))


def dump(value: object) -> str:
    """Return compact JSON; non-ASCII text stays readable, and NaN and infinity raise ``ValueError``."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
