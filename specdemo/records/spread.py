"""How far the speedup of a run can be trusted: an interval from its own rounds, and signs of other work."""

import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from specdemo.records.trace import BASELINE, ROUGH, SPECULATIVE, Round

RESAMPLES = 1_000  # at the end of a run
TAIL = 0.025  # share of the resampled speedups on either side of the interval
UNEVEN = 0.15  # maximum relative difference of the speedup from ``Spread.typical`` in an undisturbed run
MIN_PASSES = 8  # passes of one kind that are enough to judge their scatter


class Spread(NamedTuple):
    """The interval ``low`` to ``high`` contains 95 % of the speedups of resampled rounds.

    A resampled lane consists of blocks of consecutive rounds, drawn with replacement (circular block
    bootstrap): rounds that follow each other are alike, because other work disturbs several at once.
    """

    low: float
    high: float
    typical: float  # the speedup if every pass and draft step had taken the median time of its kind
    disturbed: bool  # by other work on the machine: passes of one kind scatter, or ``typical`` is far away


def spread(lanes: Mapping[str, Sequence[Round]], resamples: int = RESAMPLES) -> Spread | None:
    """Return the spread of a run's speedup; None if a lane is missing or took no time."""
    drafting, alone = lanes.get(SPECULATIVE, ()), lanes.get(BASELINE, ())
    if not all(sum(round_.seconds for round_ in lane) > 0 for lane in (drafting, alone)):
        return None
    measured, typical = _rate(drafting) / _rate(alone), _typical_rate(drafting) / _typical_rate(alone)
    dice = random.Random(0)
    ratios = sorted(
        fast / slow
        for fast, slow in zip(_rates(drafting, dice, resamples), _rates(alone, dice, resamples), strict=True)
    )
    cut = int(TAIL * resamples)
    uneven = not 1 / (1 + UNEVEN) <= measured / typical <= 1 + UNEVEN
    return Spread(ratios[cut], ratios[-1 - cut], typical, uneven or _scatter(drafting, alone) > ROUGH)


def _rate(rounds: Sequence[Round]) -> float:
    return sum(len(round_.emitted) for round_ in rounds) / sum(round_.seconds for round_ in rounds)


def _rates(rounds: Sequence[Round], dice: random.Random, resamples: int) -> list[float]:
    """Return the tokens per second of ``resamples`` resampled lanes."""
    count = len(rounds)
    size = max(1, round(count**0.5))
    circle = [*rounds, *rounds[: size - 1]]
    tokens = list(accumulate((len(round_.emitted) for round_ in circle), initial=0))
    seconds = list(accumulate((round_.seconds for round_ in circle), initial=0.0))
    rates = []
    for _ in range(resamples):
        starts = dice.choices(range(count), k=-(-count // size))
        drawn = sum(tokens[start + size] - tokens[start] for start in starts)
        rates.append(drawn / max(1e-12, sum(seconds[start + size] - seconds[start] for start in starts)))
    return rates


def _typical_rate(rounds: Sequence[Round]) -> float:
    """Return the tokens per second if every part of a round took the median time of its kind."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for round_ in rounds:
        for kind, seconds in _parts(round_):
            times[kind].append(seconds)
    total = sum(len(group) * statistics.median(group) for group in times.values())
    return sum(len(round_.emitted) for round_ in rounds) / max(1e-12, total)


def _parts(round_: Round) -> tuple[tuple[tuple[str, int], float], ...]:
    """Return each part of a round: its kind, of which all should take equally long, and its seconds."""
    return (
        (("draft", round_.draft_steps), round_.draft_s),
        (("verify", len(round_.drafted)), round_.verify_s),
        (("other", 0), round_.other_s),
    )


def _scatter(*lanes: Sequence[Round]) -> float:
    """Return the largest scatter of a lane's most frequent kind of pass."""
    largest = 0.0
    for rounds in lanes:
        kinds: dict[int, list[float]] = defaultdict(list)
        for round_ in rounds:
            kinds[len(round_.drafted)].append(round_.verify_s)
        times = max(kinds.values(), key=len)
        if len(times) >= MIN_PASSES:
            largest = max(largest, scatter(times))
    return largest


def scatter(seconds: Sequence[float]) -> float:
    """Return the interquartile range of repeated measurements ÷ their median; 0 for fewer than 3 of them."""
    if len(seconds) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
