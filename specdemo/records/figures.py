"""Fold rounds into the figures that are shown; what they are compared with is ``theory``.

The only place where a figure of a run is computed. No torch, no text, no UI.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdemo.records.theory import RoundShape, break_even_alpha, pass_cost, ratio, theoretical_speedup
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Calibration, Emission, Round, Rule, Status


@dataclass
class LaneTally:
    """Running sums over the rounds of one lane; seconds are decode seconds.

    Entry i of a sum by position is over the drafted tokens at place i of their round.
    """

    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    steps: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    prefill_s: float = 0.0
    cost: float = 0.0
    compared_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    emissions: dict[int, Emission] = field(default_factory=dict)

    def add(self, round_: Round, calibration: Calibration | None) -> None:
        """Fold one more round."""
        emitted = round_.emitted
        self.passes += 1
        self.tokens += len(emitted)
        self.drafted += len(round_.drafted)
        self.draft_s += round_.draft_s
        self.verify_s += round_.verify_s
        self.other_s += round_.other_s
        self.prefill_s += round_.prefill_s
        self.steps += round_.draft_steps
        if calibration:
            self.cost += round_.draft_steps * calibration.c + calibration.v[len(round_.drafted)]
        self.ids += emitted
        if round_.emission:
            self.emissions[len(self.ids) - 1] = round_.emission
        for counts in (self.compared_by_position, self.accepted_by_position):
            counts += [0] * (len(round_.drafted) - len(counts))
        for place, token in enumerate(round_.drafted):
            self.compared_by_position[place] += token.compared
            self.accepted_by_position[place] += token.status is Status.ACCEPTED

    @property
    def seconds(self) -> float:
        """Decode seconds, prefill excluded."""
        return self.draft_s + self.verify_s + self.other_s

    @property
    def compared(self) -> int:
        """Drafted tokens that got a verdict."""
        return sum(self.compared_by_position)

    @property
    def accepted(self) -> int:
        """Drafted tokens that were kept."""
        return sum(self.accepted_by_position)


@dataclass(frozen=True)
class Totals:
    """Every headline figure of a run; None where it is not defined (yet).

    Attributes:
        tokens, baseline_tokens: Tokens emitted by each lane.
        passes, baseline_passes: Target passes of each lane (= rounds).
        passes_saved: Target passes the same tokens would have cost alone, minus those used.
        seconds, baseline_seconds: Decode seconds of each lane.
        ttft_s, baseline_ttft_s: Seconds of prefill plus the first round.
        tokens_per_s, baseline_tokens_per_s: Decode tokens per second of each lane.
        speedup: (baseline_seconds ÷ baseline_tokens) ÷ (seconds ÷ tokens), from the lanes' own clocks.
        speedup_end_to_end: Including prefill.
        alpha_compared: Accepted ÷ compared tokens.
        alpha_drafted: Accepted ÷ drafted tokens.
        tau: Mean tokens emitted per target pass.
        compared_by_position, accepted_by_position: Entry i counts the drafted tokens at place i of
            their round that were compared, or accepted; as long as the longest draft so far.
        draft_s, verify_s, other_s: Where the speculative lane's seconds went.
        baseline_verify_s, baseline_other_s: Where the baseline's went; it drafts nothing.
        overhead: 1 − (draft + verify) ÷ decode seconds.
        s_theory: Predicted speedup from α, k, c and v, assuming independent acceptances.
        s_cost: Predicted speedup of the rounds as they fell, from c and v.
        break_even_alpha: α at which ``s_theory`` is 1; None where no α reaches it.
        identical: Whether both lanes emitted the same tokens (as far as both got); None under
            the rejection rule, whose lanes are two draws from one distribution.
        divergence: First differing output position, from 0.
        divergence_gap: The target's top-two probability gap there.
        draft_alone_tokens, draft_alone_seconds, draft_alone_tokens_per_s: What the draft model wrote
            by itself, in which decode seconds; 0, 0 and None where it was not asked to.
        draft_alone_departs: First output position, from 0, where that differs from the target's text
            (the baseline's, or the speculative lane's where no baseline runs); None while they agree as
            far as both reach, and under the rejection rule, where they differ by chance.
    """

    tokens: int
    baseline_tokens: int
    passes: int
    baseline_passes: int
    passes_saved: int
    seconds: float
    baseline_seconds: float
    ttft_s: float | None
    baseline_ttft_s: float | None
    tokens_per_s: float | None
    baseline_tokens_per_s: float | None
    speedup: float | None
    speedup_end_to_end: float | None
    alpha_compared: float | None
    alpha_drafted: float | None
    tau: float | None
    compared_by_position: tuple[int, ...]
    accepted_by_position: tuple[int, ...]
    draft_s: float
    verify_s: float
    other_s: float
    baseline_verify_s: float
    baseline_other_s: float
    overhead: float | None
    s_theory: float | None
    s_cost: float | None
    break_even_alpha: float | None
    identical: bool | None
    divergence: int | None
    divergence_gap: float | None
    draft_alone_tokens: int
    draft_alone_seconds: float
    draft_alone_tokens_per_s: float | None
    draft_alone_departs: int | None


LEAST_TOKENS = 8
"""Fewer in a lane are too few to tell a speed by: one busy moment would decide it."""


def without_early_speedup(totals: Totals) -> Totals:
    """The figures as a run is watched: no measured speedup before both lanes have ``LEAST_TOKENS``."""
    if min(totals.tokens, totals.baseline_tokens) >= LEAST_TOKENS:
        return totals
    return replace(totals, speedup=None, speedup_end_to_end=None)


class Tally:
    """Fold the rounds of all lanes as they come; :meth:`totals` may be asked at any time."""

    def __init__(self, rule: Rule, calibration: Calibration | None):
        self.rule = rule
        self.calibration = calibration
        spec, base, alone = LaneTally(), LaneTally(), LaneTally()
        self.lanes = {SPECULATIVE: spec, BASELINE: base, DRAFT: alone}
        self._first_s: dict[str, float] = {}
        self._lanes_apart = Parting(spec.ids, base.ids)
        self._draft_apart = {
            SPECULATIVE: Parting(spec.ids, alone.ids),
            BASELINE: Parting(base.ids, alone.ids),
        }

    def add(self, lane: str, round_: Round) -> None:
        """Fold one more round of ``lane``."""
        self._first_s.setdefault(lane, round_.prefill_s + round_.seconds)
        self.lanes[lane].add(round_, self.calibration)

    def totals(self) -> Totals:
        """The figures so far."""
        spec, base, alone = (self.lanes[name] for name in (SPECULATIVE, BASELINE, DRAFT))
        base_rate = ratio(base.tokens, base.seconds)
        rate = ratio(spec.tokens, spec.seconds)
        shape = self.shape()
        alpha = ratio(spec.accepted, spec.compared)
        divergence, departs = self._partings()
        return Totals(
            tokens=spec.tokens,
            baseline_tokens=base.tokens,
            passes=spec.passes,
            baseline_passes=base.passes,
            passes_saved=spec.tokens - spec.passes,
            seconds=spec.seconds,
            baseline_seconds=base.seconds,
            ttft_s=self._first_s.get(SPECULATIVE),
            baseline_ttft_s=self._first_s.get(BASELINE),
            tokens_per_s=rate,
            baseline_tokens_per_s=base_rate,
            speedup=ratio(rate, base_rate),
            speedup_end_to_end=ratio(
                ratio(spec.tokens, spec.seconds + spec.prefill_s),
                ratio(base.tokens, base.seconds + base.prefill_s),
            ),
            alpha_compared=alpha,
            alpha_drafted=ratio(spec.accepted, spec.drafted),
            tau=ratio(spec.tokens, spec.passes),
            compared_by_position=tuple(spec.compared_by_position),
            accepted_by_position=tuple(spec.accepted_by_position),
            draft_s=spec.draft_s,
            verify_s=spec.verify_s,
            other_s=spec.other_s,
            baseline_verify_s=base.verify_s,
            baseline_other_s=base.other_s,
            overhead=ratio(spec.other_s, spec.seconds),
            s_theory=None if alpha is None or shape is None else theoretical_speedup(alpha, shape),
            s_cost=ratio(spec.tokens, spec.cost),
            break_even_alpha=None if shape is None else break_even_alpha(shape),
            identical=None if self.rule is Rule.REJECTION or not base.tokens else divergence is None,
            divergence=divergence,
            divergence_gap=_gap(divergence, base),
            draft_alone_tokens=alone.tokens,
            draft_alone_seconds=alone.seconds,
            draft_alone_tokens_per_s=ratio(alone.tokens, alone.seconds),
            draft_alone_departs=departs,
        )

    def _partings(self) -> tuple[int | None, int | None]:
        """Where the speculative lane leaves the baseline, and where the draft alone leaves the target."""
        if self.rule is Rule.REJECTION:
            return None, None
        reference = BASELINE if self.lanes[BASELINE].tokens else SPECULATIVE
        return self._lanes_apart.position(), self._draft_apart[reference].position()

    def shape(self) -> "RoundShape | None":
        """The speculative lane's average round, whatever decided its length; None without costs or drafts."""
        lane = self.lanes[SPECULATIVE]
        if self.calibration is None or not lane.drafted:
            return None
        k = lane.drafted / lane.passes
        return RoundShape(k, lane.steps / lane.passes * self.calibration.c, pass_cost(self.calibration.v, k))


def fold(lanes: Mapping[str, Iterable[Round]], rule: Rule, calibration: Calibration | None) -> Totals:
    """The figures of finished lanes."""
    return tallied(lanes, rule, calibration).totals()


def tallied(lanes: Mapping[str, Iterable[Round]], rule: Rule, calibration: Calibration | None) -> Tally:
    """The tally of finished lanes."""
    tally = Tally(rule, calibration)
    for name, rounds in lanes.items():
        for round_ in rounds:
            tally.add(name, round_)
    return tally


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """First position where two id sequences differ, as far as both reach; None where they agree."""
    return Parting(left, right).position()


class Parting:
    """Where two growing id sequences part; each position is looked at once, however often one asks."""

    def __init__(self, left: Sequence[int], right: Sequence[int]):
        self._left, self._right = left, right
        self._agreed = 0

    def position(self) -> int | None:
        """First position where they differ, as far as both reach; None where they agree."""
        reach = min(len(self._left), len(self._right))
        while self._agreed < reach and self._left[self._agreed] == self._right[self._agreed]:
            self._agreed += 1
        return self._agreed if self._agreed < reach else None


def _gap(position: int | None, base: LaneTally) -> float | None:
    emission = base.emissions.get(position) if position is not None else None
    return emission.gap if emission else None
