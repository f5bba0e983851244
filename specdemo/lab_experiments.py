"""Everything the lab can measure, by name: one door for the command line and the page."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specdemo.bench import Prompt, environment
from specdemo.engine import never
from specdemo.lab import Setting, sweep
from specdemo.lab_contrasts import contrast_plan, contrasts
from specdemo.lab_plans import Request, sweep_plan
from specdemo.lab_points import CONTRASTS, THROUGHPUT, Point
from specdemo.pair import Pair, Stop
from specdemo.spoiled import MODEL, require_draft_model
from specdemo.throughput import ThroughputPlan, throughput
from specdemo.trace import RunConfig


class Experiment(NamedTuple):
    """Something about to be measured.

    Attributes:
        points: Yields each point when it is measured.
        expected: How many there will be.
        about: For ``lab_points.points_json``.
    """

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
    """Prepare one of ``lab_points.EXPERIMENTS``; everything is checked here, nothing is measured yet.

    Args:
        request: Settings that all runs have in common; contrasts take ``max_new_tokens`` and ``seed`` of
            them, throughput takes ``k``.
        prompts: What a sweep writes; by default a few of the shipped ones.
        stop: Asked once a round; True ends it and keeps what was measured.

    Raises:
        UserError: There is no such experiment, a setting is out of bounds, or the pair lacks what it needs.
    """
    request = request or {}
    if name == CONTRASTS:
        plan = contrast_plan(pair, request)
        settings = [side for _, *sides in plan for side in sides if side is not None]
        return Experiment(contrasts(pair, plan, stop), 2 * len(plan), _about(name, pair, settings))
    if name == THROUGHPUT:
        require_draft_model(pair, MODEL)
        batches = ThroughputPlan(k=request.get("k", RunConfig.k))
        facts = {"experiment": name} | environment(pair) | {"capacity": batches.capacity}
        return Experiment(throughput(pair, batches, stop), len(batches.rows), facts)
    sweeping = sweep_plan(name, pair, prompts, request)
    settings = list(sweeping.settings)
    return Experiment(sweep(pair, sweeping, stop), len(settings), _about(name, pair, settings))


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
