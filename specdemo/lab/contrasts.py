"""Measure the two sides of each condition in ``conditions``."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from specdemo.bench.prompts import Prompt, shipped_prompts
from specdemo.engine.speculate import never
from specdemo.lab.conditions import CONTRASTS, PROMPTS, Contrast, K, Side
from specdemo.lab.perturbed import require_draft_model
from specdemo.lab.plans import Request, configs_for
from specdemo.lab.points import HELPS, HURTS, ContrastPoint, SweepPoint
from specdemo.lab.sweeps import Setting, measure_setting
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import DRAFT_MODEL


class PlannedContrast(NamedTuple):
    """A contrast with the settings that will be measured for it."""

    contrast: Contrast
    helps: Setting
    hurts: Setting


def contrast_plan(
    pair: Pair, request: Request | None = None, chosen: Sequence[Contrast] = CONTRASTS
) -> tuple[PlannedContrast, ...]:
    """The contrasts that a pair can show: without a draft model, those that handicap it are left out.

    Args:
        request: ``max_new_tokens`` and ``seed`` of all runs.
        chosen: Which contrasts, in which order.

    Raises:
        UserError: A setting is out of bounds, or the pair can show none of those chosen.
    """
    prompts = shipped_prompts()
    common = {**(request or {}), "drafter": pair.default_drafter, "k": K, "temperature": 0.0, "rule": None}

    def setting(side: Side) -> Setting:
        written: list[Prompt] = [prompt for prompt in prompts if prompt.category == side.category][:PROMPTS]
        return Setting(None, side.label, configs_for(pair, written, common, side.change), side.handicap)

    plan = tuple(
        PlannedContrast(contrast, setting(contrast.helps), setting(contrast.hurts))
        for contrast in chosen
        if pair.draft is not None or not contrast.hurts.handicap.of_draft
    )
    if not plan:
        require_draft_model(pair, DRAFT_MODEL)
    return plan


def contrasts(pair: Pair, plan: Sequence[PlannedContrast], stop: Stop = never) -> Iterator[ContrastPoint]:
    """Measure every contrast, first the side that helps; each side is yielded as it is finished.

    Args:
        stop: Asked once a round; True ends it and drops the side under way.

    Raises:
        UserError: A drafter cannot be run on this pair.
    """
    for contrast, helps, hurts in plan:
        better = measure_setting(pair, helps, stop)
        if better is None:
            return
        yield _side(contrast, HELPS, better)
        worse = measure_setting(pair, hurts, stop)
        if worse is None:
            return
        yield _side(contrast, HURTS, worse)


def _side(contrast: Contrast, side: str, point: SweepPoint) -> ContrastPoint:
    return ContrastPoint(contrast.name, contrast.group, contrast.title, contrast.expected, side, point)
