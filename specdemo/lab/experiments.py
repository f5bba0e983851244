"""Everything the lab can measure, by name: one door for the command line and the page."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specdemo.bench.measuring import environment
from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import never
from specdemo.lab.conditions import CONTRASTS as ALL_CONTRASTS
from specdemo.lab.contrasts import contrast_plan, contrasts
from specdemo.lab.perturbed import require_draft_model
from specdemo.lab.plans import Request, sweep_plan
from specdemo.lab.points import CONTRASTS, THROUGHPUT, TITLES, Point
from specdemo.lab.sweeps import Setting, SweepPlan, sweep
from specdemo.lab.throughput import ThroughputPlan, throughput
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.trace import RunConfig


class Experiment(NamedTuple):
    """Something about to be measured.

    Attributes:
        title: What to call it.
        axis, spots: What the axis is called, and ``x`` and ``label`` of all points; of sweeps only.
        points: Yields each point when it is measured.
        expected: How many there will be.
        about: For ``points.points_json``.
    """

    title: str
    axis: str
    spots: tuple[tuple[float | None, str], ...]
    points: Iterator[Point]
    expected: int
    about: dict[str, Any]


def experiment(
    name: str,
    pair: Pair,
    request: Request | None = None,
    prompts: Sequence[Prompt] | None = None,
    stop: Stop = never,
) -> Experiment:
    """Prepare one of ``points.EXPERIMENTS`` or one contrast; all is checked here, nothing is measured yet.

    Args:
        request: Settings that all runs have in common; contrasts take ``max_new_tokens`` and ``seed`` of
            them, throughput takes ``k``.
        prompts: What a sweep writes; by default a few of the shipped ones.
        stop: Asked once a round; True ends it and keeps what was measured.

    Raises:
        UserError: There is no such experiment, a setting is out of bounds, or the pair lacks what it needs.
    """
    request = request or {}
    asked = [contrast for contrast in ALL_CONTRASTS if name in (CONTRASTS, contrast.name)]
    if asked:
        plan = contrast_plan(pair, request, asked)
        settings = [side for _, *sides in plan for side in sides]
        title = TITLES[name] if name == CONTRASTS else asked[0].title
        return Experiment(
            title, "", (), contrasts(pair, plan, stop), 2 * len(plan), _about(name, pair, settings)
        )
    if name == THROUGHPUT:
        require_draft_model(pair, DRAFT_MODEL)
        batches = ThroughputPlan(k=request.get("k", RunConfig.k))
        about = {"experiment": name} | environment(pair) | {"capacity": batches.capacity}
        return Experiment(TITLES[name], "", (), throughput(pair, batches, stop), len(batches.rows), about)
    sweeping, about = planned_sweep(name, prompts, request, pair)
    points = sweep(pair, sweeping, stop)
    spots = tuple((setting.x, setting.label) for setting in sweeping.settings)
    return Experiment(sweeping.title, sweeping.axis, spots, points, len(spots), about)


def planned_sweep(
    name: str, prompts: Sequence[Prompt] | None, request: Request, pair: Pair
) -> tuple[SweepPlan, dict[str, Any]]:
    """A sweep and what is said about it, as a piece of work that can be sent to wherever a pair is.

    Raises:
        UserError: As for :func:`experiment`.
    """
    sweeping = sweep_plan(name, pair, prompts, request)
    return sweeping, _about(name, pair, sweeping.settings)


def _about(name: str, pair: Pair, settings: Sequence[Setting]) -> dict[str, Any]:
    """Machine, models and versions, and what was written."""
    configs = [config for setting in settings for config in setting.configs]
    return (
        {"experiment": name}
        | environment(pair)
        | {
            "prompts": list(dict.fromkeys(config.prompt for config in configs)),
            "max_new_tokens": configs[0].max_new_tokens,
            "seed": configs[0].seed,
        }
    )
