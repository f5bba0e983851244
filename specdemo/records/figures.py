"""The measured figures of a run, added up from its rounds. No other module computes measured figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdemo.records.theory import RoundShape, break_even_alpha, pass_cost, ratio, theoretical_speedup
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Calibration, Round, Rule, Status, TargetToken


@dataclass
class LaneTally:
    """Running sums over the rounds of one lane."""

    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    prefill_s: float = 0.0
    cost: float = 0.0  # in single-token target passes; 0 without calibration
    # Entry i counts the compared tokens that were at index i of their round's draft.
    compared_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    emissions: dict[int, TargetToken] = field(default_factory=dict)

    def add(self, round_: Round, calibration: Calibration | None) -> None:
        emitted = round_.emitted
        self.passes += 1
        self.tokens += len(emitted)
        self.drafted += len(round_.drafted)
        self.accepted += round_.accepted
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
            self.accepted_by_position[place] += token.compared and token.status is Status.ACCEPTED

    @property
    def seconds(self) -> float:
        """Decode seconds, without prefill."""
        return self.draft_s + self.verify_s + self.other_s

    @property
    def alpha(self) -> float | None:
        return ratio(sum(self.accepted_by_position), sum(self.compared_by_position))


@dataclass(frozen=True)
class Totals:
    """The figures of a run; None while a figure is not defined. README.md describes all of them.

    Positions count output tokens from 0. Seconds are decode seconds without prefill, except ``ttft_s``
    (prefill and first round) and ``speedup_end_to_end``.
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
    draft_divergence: int | None


MIN_TOKENS = 8
"""Tokens that each lane needs before a speedup is shown; in shorter runs, noise dominates."""


class Tally:
    def __init__(self, rule: Rule, calibration: Calibration | None):
        self._rule = rule
        self._calibration = calibration
        self._lanes = {SPECULATIVE: LaneTally(), BASELINE: LaneTally(), DRAFT: LaneTally()}
        self._first_s: dict[str, float] = {}

    def add(self, lane: str, round_: Round) -> None:
        self._first_s.setdefault(lane, round_.prefill_s + round_.seconds)
        self._lanes[lane].add(round_, self._calibration)

    def totals(self) -> Totals:
        """Return the figures so far, without measured speedups if a lane has fewer than ``MIN_TOKENS``."""
        spec, base, alone = (self._lanes[name] for name in (SPECULATIVE, BASELINE, DRAFT))
        base_rate = ratio(base.tokens, base.seconds)
        rate = ratio(spec.tokens, spec.seconds)
        is_long = min(spec.tokens, base.tokens) >= MIN_TOKENS
        shape = self.shape()
        alpha = spec.alpha
        divergence = draft_divergence = None
        if self._rule.same_text:
            divergence = first_difference(spec.ids, base.ids)
            draft_divergence = first_difference((base if base.tokens else spec).ids, alone.ids)
        at_divergence = None if divergence is None else base.emissions.get(divergence)
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
            speedup=ratio(rate, base_rate) if is_long else None,
            speedup_end_to_end=ratio(
                ratio(spec.tokens, spec.seconds + spec.prefill_s),
                ratio(base.tokens, base.seconds + base.prefill_s),
            )
            if is_long
            else None,
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
            identical=divergence is None if self._rule.same_text and base.tokens else None,
            divergence=divergence,
            divergence_gap=at_divergence.gap if at_divergence else None,
            draft_alone_tokens=alone.tokens,
            draft_alone_seconds=alone.seconds,
            draft_alone_tokens_per_s=ratio(alone.tokens, alone.seconds),
            draft_divergence=draft_divergence,
        )

    def shape(self) -> "RoundShape | None":
        """Return the cost of the speculative lane's mean round; None without calibration or drafts."""
        lane, costs = self._lanes[SPECULATIVE], self._calibration
        if costs is None or not lane.drafted:
            return None
        k = lane.drafted / lane.passes
        return RoundShape(k, lane.steps / lane.passes * costs.c, pass_cost(costs.v, k))


def fold(lanes: Mapping[str, Iterable[Round]], rule: Rule, calibration: Calibration | None) -> Totals:
    """Return the figures of a run from the rounds of its lanes, by lane name."""
    return tallied(lanes, rule, calibration).totals()


def tallied(lanes: Mapping[str, Iterable[Round]], rule: Rule, calibration: Calibration | None) -> Tally:
    tally = Tally(rule, calibration)
    for name, rounds in lanes.items():
        for round_ in rounds:
            tally.add(name, round_)
    return tally


GRAM = 4
"""Tokens in each of the runs of tokens that ``distinct_share`` counts."""
MIN_GRAMS = 16
REPETITIVE = 0.9
"""A text in which a smaller share of the runs of tokens is distinct repeats itself."""


def median_run(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the figures of the run with the lower median speedup; empty if no run has a speedup."""
    known = [run for run in runs if run["speedup"] is not None]
    return sorted(known, key=lambda run: run["speedup"])[(len(known) - 1) // 2] if known else {}


def distinct_share(rounds: Iterable[Round]) -> float | None:
    """Return distinct ÷ all runs of ``GRAM`` tokens in the output; None for a short output.

    The prompt does not count, because lookup drafters are meant to copy from it.
    """
    ids = [token for round_ in rounds for token in round_.emitted]
    grams = list(zip(*(ids[start:] for start in range(GRAM)), strict=False))
    return len(set(grams)) / len(grams) if len(grams) >= MIN_GRAMS else None


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first position at which two sequences differ; None if one is a prefix of the other."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((position for position, (one, other) in pairs if one != other), None)
