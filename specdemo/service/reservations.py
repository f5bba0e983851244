"""How long to ask for a lent GPU, learned from the calls that were made, and what they measured there.

Kept by the process that asks; whoever computes is gone after its call. Plain data, no models.
"""

import math
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdemo.records.limits import MAX_NEW_TOKENS
from specdemo.records.trace import Calibration, RunConfig
from specdemo.service.job_kinds import JobKind

MEASURING_S = 20
"""For what is measured inside a call where nothing is known yet: padding, pass costs, graphs."""
SECONDS = {
    JobKind.PLAY: 10,
    JobKind.CALIBRATE: 15,
    JobKind.CLASS: 20,
    JobKind.QUIZ: 40,
    JobKind.PROVE: 70,
    JobKind.MEASURE: 100,
}
"""Of the kinds of job whose length does not follow from the request."""
TOKENS_PER_S = 15
"""Of all lanes together, at the slowest that is to be expected there."""
LEAST_S, MOST_S = 10, 120
"""The least has room for a cache length that nobody has measured yet."""
REMEMBERED = 8
"""Calls of each kind that the next one is judged by."""
MARGIN = 1.25
"""How much longer than the longest of those a call may take."""
UNTRIED = 2 * MARGIN
"""The same for what was never asked for, judged by how much quicker than thought everything else was."""
SIZES = {
    JobKind.MEASURE: ("prompts", "max_new_tokens"),
    "greedy": ("prompts",),
    "shared-noise": ("prompts",),
    "distribution": ("draws",),
}
"""Settings that experiments and the kinds of proof take longer with."""

Costs = Mapping[str, Calibration]
"""Pass costs by drafter kind, as ``PassCosts.known`` has them."""


@dataclass(frozen=True)
class CallReport:
    """What a call tells of itself at its end.

    Attributes:
        gpu: The GPU's name.
        costs: What was measured in the call and not known before.
        start_s: Seconds to the first result, from the fork of the call's process, or from the call's own
            beginning where an earlier one had forked it.
        work_s: Seconds from the first result on.
        size: Tokens that a run wrote in all its lanes; None for other jobs, whose size the request tells.
        whole: Whether nobody asked it to stop.
    """

    gpu: str
    costs: Costs
    start_s: float
    work_s: float
    size: int | None
    whole: bool


def _recent() -> deque[float]:
    return deque(maxlen=REMEMBERED)


@dataclass
class Reservations:
    """What is known of the calls so far; to be used for one call at a time.

    Attributes:
        costs: By the name of the GPU: another type has floors and costs of its own.
    """

    costs: dict[str, dict[str, Calibration]] = field(default_factory=lambda: defaultdict(dict))
    _starts: dict[bool, deque[float]] = field(default_factory=lambda: defaultdict(_recent))
    _rates: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(_recent))
    _paces: deque[float] = field(default_factory=_recent)
    _seen: set[tuple[str, float]] = field(default_factory=set)

    def seconds_for(self, kind: JobKind, raw: Mapping[str, Any]) -> int:
        """Seconds that a job is expected to hold the GPU at most, from ``LEAST_S`` to ``MOST_S``.

        Args:
            kind, raw: Of the request; settings that are missing or odd count as usual ones.
        """
        name, size = _job(kind, raw)
        start = self._starts[(name, size) not in self._seen] or self._starts[True]
        rates = self._rates[name]
        start_s = MARGIN * max(start) if start else MEASURING_S
        pace = min(1.0, UNTRIED * max(self._paces, default=1.0))
        work_s = MARGIN * max(rates) * size if rates else pace * _usual_work(kind, raw)
        return min(MOST_S, max(LEAST_S, math.ceil(start_s + work_s)))

    def learn(self, kind: JobKind, raw: Mapping[str, Any], report: CallReport) -> None:
        """Take in what a call for this request reported at its end."""
        name, size = _job(kind, raw)
        self.costs[report.gpu].update(report.costs)
        self._starts[bool(report.costs)].append(report.start_s)
        self._seen.add((name, size))
        done = report.size if report.size is not None else size if report.whole else 0
        if done:
            self._rates[name].append(report.work_s / done)
            self._paces.append(report.work_s / done * size / _usual_work(kind, raw))

    def was_cut(self, kind: JobKind, raw: Mapping[str, Any]) -> None:
        """The host ended a call before its end: the next one like it gets twice the time."""
        name, size = _job(kind, raw)
        self._rates[name].append(2 * self.seconds_for(kind, raw) / size)


def usual_seconds(kind: JobKind, raw: Mapping[str, Any]) -> int:
    """Seconds that are asked for before anything is known."""
    return Reservations().seconds_for(kind, raw)


def _usual_work(kind: JobKind, raw: Mapping[str, Any]) -> float:
    return SECONDS[kind] if kind in SECONDS else _tokens(raw) / TOKENS_PER_S


def _job(kind: JobKind, raw: Mapping[str, Any]) -> tuple[str, float]:
    """A name for the jobs whose seconds grow alike with their size, and the size of this one."""
    if kind == JobKind.RUN:
        lanes = 1 + (raw.get("baseline", RunConfig.baseline) is True) + (raw.get("draft_alone") is True)
        return kind, lanes * _tokens(raw)
    which = str(raw.get("experiment") or raw.get("proof") or raw.get("question") or "")
    sizes = SIZES.get(which, SIZES.get(kind, ()))
    return f"{kind} {which}", math.prod(max(1, _number(raw, name, 1)) for name in sizes)


def _tokens(raw: Mapping[str, Any]) -> float:
    return max(1, min(MAX_NEW_TOKENS, _number(raw, "max_new_tokens", MAX_NEW_TOKENS)))


def _number(raw: Mapping[str, Any], name: str, other: float) -> float:
    value = raw.get(name)
    return value if isinstance(value, int | float) and math.isfinite(value) else other
