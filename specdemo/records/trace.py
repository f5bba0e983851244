"""The data types of a run: its settings, its rounds, and the trace format (described in README.md).

Every figure is computed from these records. This module imports only the standard library and
``drafter_kinds``, so a trace loads without torch.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from specdemo.records.drafter_kinds import DRAFT_MODEL

TRACE_VERSION = 1
WATCHED_VERSION = 2
"""The version of a watched server's trace, in which some values may be None."""
UNKNOWN_ID = 0
"""The id of every token that a watched server counts without sending its text."""

SPECULATIVE = "speculative"
BASELINE = "baseline"
DRAFT = "draft"
"""The lane in which the draft model runs alone. In its rounds the draft model takes the target's role."""

USUAL_K = 3
AUTO: Final = "auto"
"""The value of ``RunConfig.k`` for an automatic draft length (see ``engine.draft_length``)."""


Probability = Annotated[float, "0 to 1"]
Seconds = Annotated[float, "0 or more"]


class Rule(StrEnum):
    """The verification rule, by which the target accepts or rejects draft tokens.

    Attributes:
        label: The rule's name on the page.
        about: A sentence for visitors.
        same_text: Whether the output equals the target's own text. Otherwise only its distribution does.
    """

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
        "Accepts draft tokens together: at least as many as rejection sampling, with the same distribution.",
        False,
    )
    SHARED_NOISE = (
        "shared-noise",
        "shared noise",
        "Accepts a draft token if the target, with the same noise, picks it too; the text is identical.",
        True,
    )


class Mode(StrEnum):
    """The use of the prompt: as a chat message to answer, or as raw text to continue."""

    CHAT = "chat"
    RAW = "raw"


class Status(StrEnum):
    """The status of a token. ``pending`` is only used on the page, for draft tokens before verification."""

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
    """The settings of a run. Requests are checked by ``limits.parse_config``.

    Attributes:
        script: Text that the ``scripted`` drafter proposes; empty for every other drafter.
        baseline: Whether the target also runs alone.
        draft_alone: Whether the draft model also runs alone.
        seed: Seed of all random draws. On the same machine, the same settings give the same text, except
            under rejection and block with ``k`` = ``auto``: draft lengths depend on measured times, and so do
            the random numbers that each token gets.
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
        q, p: The token's probabilities under the draft (q) and the target (p), after temperature, top-k and
            top-p. Under greedy, each is 1 or 0. None if a watched server does not report it.
        raw_q, raw_p: Under greedy, the same probabilities at temperature 1, for display; otherwise None.
            ``raw_q`` is also None if no model drafted the token.
        accept_prob: min(1, p/q) under rejection; h_i (``engine.rules.BlockRule``) under block verification; 1
            or 0 under greedy; None under shared noise.
        u: The uniform random number that was compared with ``accept_prob``; None under greedy and shared
            noise, and under rejection if the token was not compared.
        noise: The Gumbel noise g of this token at this position; None unless the rule is shared noise.
        status: ``accepted`` or ``discarded``.
        compared: Whether the target accepted or rejected the token. False for tokens after a rejected one,
            and for tokens after the end of the text.
        rejected: Whether the target rejected the token; true for at most one token of a round.
        draft_top, target_top: The five most probable tokens of each model at this position, at temperature 1
            under greedy.
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
class TargetToken:
    """The token that the target itself adds at the end of a round.

    Attributes:
        id: Token id.
        status: ``corrected`` after a rejection, else ``bonus``.
        prob: The token's probability in the distribution that it was drawn from: after a rejection under
            the rejection or block rule, the residual distribution; otherwise p. It is 1 under greedy. None if
            a watched server does not report it.
        raw_prob: Under greedy, the token's probability at temperature 1; otherwise None.
        noise: The token's Gumbel noise; None unless the rule is shared noise.
        residual_mass: Σ (p − q)+ = 1 − Σ min(p, q) at the rejected token, under block with the prefix's
            weight times p for p; None under other rules, and if no token was rejected.
        top: The five most probable tokens of the distribution that the token was drawn from, at temperature 1
            under greedy.
        gap: The distance between the target's best two choices: the difference of their probabilities at
            temperature 1 under greedy, of their log p + g under shared noise, None under other rules.
            Rounding can flip a small gap, which explains a divergence from the baseline.
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
        position: Number of tokens of the prompt and the output before the round.
        drafted: The draft tokens in order.
        drafted_by: Name of the drafter kind that proposed the draft tokens; for a combined drafter, the part
            that proposed them. Empty if nothing was drafted. For a watched server that does not report its
            draft tokens, always the server's kind.
        draft_steps: Number of passes that the drafter made; 0 for copied tokens.
        emission: The target's own token; None if an accepted end-of-sequence token ended the text.
        draft_s, verify_s, other_s: Seconds of drafting, of the target pass, and of the rest of the decode
            loop (warping, verdict, bookkeeping, transfers), without display. In the baseline's rounds,
            ``verify_s`` times a pass without padding. For a watched server, all seconds are in ``other_s``.
        prefill_s: In the first round, the seconds of prompt processing before it; 0 in later rounds.
        finish: The reason why the lane ended with this round; None if it did not.
    """

    index: int
    position: int
    drafted: tuple[Token, ...]
    emission: TargetToken | None
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
        """Number of draft tokens that the target accepted or rejected."""
        return sum(token.compared for token in self.drafted)

    @property
    def emitted(self) -> list[int]:
        """Ids that the round added to the text, in order."""
        kept = [token.id for token in self.drafted if token.status is Status.ACCEPTED]
        return kept + ([self.emission.id] if self.emission else [])

    @property
    def seconds(self) -> float:
        """Decode seconds of the round, prefill excluded."""
        return self.draft_s + self.verify_s + self.other_s


ROUGH = 0.3
"""A calibration with a ``scatter`` above this value is called rough."""


@dataclass(frozen=True)
class Calibration:
    """Pass costs of a pair, measured before its runs. The theory and ``k = auto`` use them.

    No measured figure of a run depends on these costs.

    Attributes:
        step_s: Seconds of one target pass over a single token, without padding.
        c: Cost ratio of the run's drafter: seconds of one draft step ÷ ``step_s``; 0 for drafters that make
            no passes.
        v: Verification costs: ``v[n - 1]`` is the time of a target pass over n tokens, padding included,
            ÷ ``step_s``.
        row_floor: Number of rows to which a pass over one token is padded, so that verification and
            single-token decoding give bitwise equal logits. None if passes are not padded.
        rows: Number of rows to which passes over 1, 2, … tokens are padded; empty if nothing is padded.
        scatter: Interquartile range of repeated timings ÷ their median. A high value means that the machine
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
        """True if repeated timings varied too much for exact costs (``scatter`` above ``ROUGH``)."""
        return self.scatter > ROUGH


@dataclass(frozen=True)
class Lane:
    """The rounds of one lane: speculative, target alone or draft model alone."""

    rounds: tuple[Round, ...] = ()

    @property
    def ids(self) -> list[int]:
        """All emitted ids in order."""
        return [token for round_ in self.rounds for token in round_.emitted]

    @property
    def finish(self) -> Finish | None:
        """The reason why the lane ended; None if it has no rounds or was cut off between rounds."""
        return self.rounds[-1].finish if self.rounds else None


@dataclass(frozen=True)
class Watched:
    """The watched server whose answer a run records.

    Attributes:
        engine: Name of the server program.
        server: The name that the operator gave the server; never its address.
        silent: Sentences, one for each kind of value that the server does not report.
        rounds: Whether the server reports its rounds. If not, each ``Round`` of the run stands for one piece
            of text that arrived.
    """

    engine: str
    server: str
    silent: tuple[str, ...] = ()
    rounds: bool = True


@dataclass(frozen=True)
class Run:
    """One run in the form in which it is saved. It can be replayed without a model or a tokenizer.

    Attributes:
        pieces: Bytes of every token that occurs in the run, in base64, by token id.
        specials: Ids among ``pieces`` that are control tokens. The page shows them as labels.
        totals: The figures at the end of the run, with the fields of ``figures.Totals``.
        arithmetic: Sentences on the precision of weights, drafts and arithmetic, and on settings of the
            target that are not applied; empty if unknown.
        watched: The server that wrote the run; None if this program did. In a watched run, ids are not from
            a vocabulary: they number the pieces of text, and ``UNKNOWN_ID`` stands for tokens without text.
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
    """Return ``value`` as compact JSON, with non-ASCII text unescaped.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
