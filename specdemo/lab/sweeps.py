"""Measure one thing at a time: points along an axis of settings, each raced against the target alone.

A point is measured as the bench measures: one race per prompt, baseline and speculative lane interleaved
on clocks of their own. Points are yielded as they are finished; ending the generator, or ``stop``, loses
no more than the one under way. Which settings make a sweep is said in ``plans``.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specdemo.bench.measuring import measure
from specdemo.bench.summary import quartiles
from specdemo.engine.speculate import never
from specdemo.lab.handicap import NONE, Handicap
from specdemo.lab.perturbed import perturbed
from specdemo.lab.points import SweepPoint
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.figures import Totals
from specdemo.records.trace import AUTO, Calibration, RunConfig


@dataclass(frozen=True)
class Setting:
    """One point to be measured.

    Attributes:
        x, label: As in ``SweepPoint``.
        configs: One run each; they differ in the prompt.
        handicap: What is done to the draft model.
    """

    x: float | None
    label: str
    configs: tuple[RunConfig, ...]
    handicap: Handicap = NONE


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep measures.

    Attributes:
        name: One of ``points.SWEEPS``.
        title, axis: What to call the sweep and its axis.
        settings: In the order in which they are measured.
    """

    name: str
    title: str
    axis: str
    settings: tuple[Setting, ...]


def sweep(pair: Pair, plan: SweepPlan, stop: Stop = never) -> Iterator[SweepPoint]:
    """Measure a plan point by point.

    Args:
        stop: Asked once a round; True ends the sweep and drops the point under way.

    Raises:
        UserError: A drafter cannot be run on this pair.
    """
    for setting in plan.settings:
        point = measure_setting(pair, setting, stop)
        if point is None:
            return
        yield point


def measure_setting(pair: Pair, setting: Setting, stop: Stop = never) -> SweepPoint | None:
    """Race every run of a setting; None if ``stop`` said True meanwhile.

    Raises:
        UserError: The drafter cannot be run on this pair.
    """
    lanes = perturbed(pair, setting.handicap)
    totals: list[Totals] = []
    costs: list[Calibration] = []
    for config in setting.configs:
        prompt_ids = pair.prompt_ids(config)
        totals += measure(lanes, [config], prompt_ids, stop)
        costs.append(lanes.calibrate(config))
        if stop():
            return None
    return _point(setting, totals, costs)


def measured_on(setting: Setting, pair: Pair) -> SweepPoint | None:
    """:func:`measure_setting` as a piece of work that can be sent to wherever a pair is."""
    return measure_setting(pair, setting)


def _point(setting: Setting, totals: list[Totals], costs: list[Calibration]) -> SweepPoint:
    def median(name: str) -> float | None:
        return _median([getattr(item, name) for item in totals])

    k = setting.configs[0].k
    speedups = [item.speedup for item in totals if item.speedup is not None]
    spread = quartiles(speedups) if speedups else {"q1": None, "q3": None}
    same = [item.identical for item in totals]
    return SweepPoint(
        x=setting.x,
        label=setting.label,
        runs=len(totals),
        speedup=median("speedup"),
        speedup_q1=spread["q1"],
        speedup_q3=spread["q3"],
        tokens_per_s=median("tokens_per_s"),
        baseline_tokens_per_s=median("baseline_tokens_per_s"),
        alpha=median("alpha_compared"),
        tau=median("tau"),
        c=_median([item.c for item in costs]),
        v=None if k == AUTO else _median([item.v[k] for item in costs]),
        s_theory=median("s_theory"),
        s_cost=median("s_cost"),
        identical=None if None in same else all(same),
    )


def _median(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None
