"""The lab's experiments by name: the settings of each, and their measurement point by point."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdemo.bench.measuring import (
    PairedRun,
    all_identical,
    environment,
    measure,
    quartiles,
    suited,
)
from specdemo.bench.prompts import Prompt, builtin_prompts
from specdemo.engine.speculate import never
from specdemo.lab import conditions
from specdemo.lab.ablated_lanes import ablated_lanes, require_draft_model
from specdemo.lab.conditions import NONE, Ablation, Contrast, Side
from specdemo.lab.lab_request import NEW_TOKENS, PROMPTS
from specdemo.lab.points import (
    CATEGORY,
    CONTRASTS,
    DRAFT_COST,
    DRAFT_LENGTH,
    DRAFT_QUALITY,
    DRAFTER,
    HELPS,
    HURTS,
    SWEEPS,
    TEMPERATURE,
    THROUGHPUT,
    TITLES,
    ContrastPoint,
    Point,
    SweepPoint,
)
from specdemo.lab.throughput import ROWS, measure_batches, require_batch_length
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.figures import median_run
from specdemo.records.limits import MAX_K, UserError, parse_config, show
from specdemo.records.sentences import DOUBTS, doubt
from specdemo.records.spread import spread
from specdemo.records.trace import AUTO, USUAL_K, Rule, RunConfig

PROMPTS_BY_CATEGORY = 12
TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
NOISES = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
REPEATS = (1, 2, 3, 4, 6, 8, 12, 16)
AXES = {
    DRAFT_LENGTH: "draft length k",
    TEMPERATURE: "temperature",
    DRAFT_QUALITY: "noise in the draft model",
    DRAFT_COST: "times each draft step is computed",
}

Request = Mapping[str, Any]
"""Run settings for ``limits.parse_config``."""


@dataclass(frozen=True)
class Setting:
    """The settings of one point to measure."""

    x: float | None
    label: str
    configs: tuple[RunConfig, ...]  # one run for each prompt
    ablation: Ablation = NONE
    contrast: Contrast | None = None  # None in a sweep
    side: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment, checked as a whole before anything is measured."""

    name: str
    title: str
    axis: str
    settings: tuple[Setting, ...]  # the points in this order; empty for the throughput experiment
    k: int  # draft length of the throughput experiment
    about: dict[str, Any]  # the machine, the models and the runs; saved with the table

    @property
    def expected(self) -> int:
        return len(self.settings) or len(ROWS)


def plan_experiment(
    name: str, pair: Pair, request: Request | None = None, prompts: Sequence[Prompt] | None = None
) -> Experiment:
    """Plan one of ``points.EXPERIMENTS`` or one contrast; raise ``UserError`` if it cannot run.

    ``request`` has settings of all runs, except those that the experiment varies. Contrasts use only
    ``max_new_tokens`` and ``seed`` of it, throughput only ``k``. ``prompts`` replace a sweep's built-in
    prompts.
    """
    request, axis, k = request or {}, "", USUAL_K
    title, about = TITLES.get(name, ""), {"experiment": name, **environment(pair)}
    contrasts = [contrast for contrast in conditions.CONTRASTS if name in (CONTRASTS, contrast.name)]
    if name == THROUGHPUT:
        require_draft_model(pair)
        k = require_batch_length(request.get("k", k))
        return Experiment(name, title, axis, (), k, about)
    if name in SWEEPS:
        settings, axis = _sweep_settings(name, pair, request, prompts), AXES.get(name, "")
    elif contrasts:
        settings, title = _contrast_settings(contrasts, pair, request), title or contrasts[0].title
    else:
        raise UserError(f"Unknown experiment {show(name)}; choose one of: {', '.join(TITLES)}.")
    configs = [config for setting in settings for config in setting.configs]
    about["prompts"] = list(dict.fromkeys(config.prompt for config in configs))
    about |= {"max_new_tokens": configs[0].max_new_tokens, "seed": configs[0].seed}
    return Experiment(name, title, axis, tuple(settings), k, about)


def measure_experiment(pair: Pair, experiment: Experiment, stop: Stop = never) -> Iterator[Point]:
    """Yield each point of an experiment when it is measured; ``stop`` is called once per round."""
    if experiment.name == THROUGHPUT:
        # The theory assumes the draft model's acceptance rate on a few built-in prompts.
        configs = configs_for(pair, builtin_prompts(PROMPTS), {"k": experiment.k, "drafter": DRAFT_MODEL})
        point = measure_setting(pair, Setting(None, "", configs), stop)
        if isinstance(point, SweepPoint) and point.alpha is not None:
            yield from measure_batches(pair, experiment.k, point.alpha, stop=stop)
        return
    for setting in experiment.settings:
        point = measure_setting(pair, setting, stop)
        if point is None:
            return
        yield point


def measure_setting(pair: Pair, setting: Setting, stop: Stop = never) -> SweepPoint | ContrastPoint | None:
    """Race every run of a setting against the baseline; return the point, or None if ``stop`` ended it."""
    lanes, runs = ablated_lanes(pair, setting.ablation), []
    for config in setting.configs:
        measured = measure(lanes, [config], stop)
        if measured is None:
            return None
        runs += measured
    k = setting.configs[0].k
    shown = median_run([vars(run.totals) for run in runs])
    speedups = quartiles([run.totals.speedup for run in runs]) or {}

    def median(figure: Callable[[PairedRun], float | None]) -> float | None:
        spread = quartiles([figure(run) for run in runs])
        return spread["median"] if spread else None

    point = SweepPoint(
        x=setting.x,
        label=setting.label,
        runs=len(runs),
        speedup=shown.get("speedup"),
        speedup_q1=speedups.get("q1"),
        speedup_q3=speedups.get("q3"),
        tokens_per_s=shown.get("tokens_per_s"),
        baseline_tokens_per_s=shown.get("baseline_tokens_per_s"),
        alpha=median(lambda run: run.totals.alpha_compared),
        tau=median(lambda run: run.totals.tau),
        c=median(lambda run: run.calibration.c),
        v=None if k == AUTO else median(lambda run: run.calibration.v[k]),
        s_theory=median(lambda run: run.totals.s_theory),
        s_cost=median(lambda run: run.totals.s_cost),
        identical=all_identical([run.totals for run in runs]),
        disturbed=any(
            doubt(run.totals, spread(run.rounds)) in DOUBTS
            for run in runs
            if run.totals.speedup == shown.get("speedup")
        ),
    )
    contrast = setting.contrast
    return point if contrast is None else ContrastPoint(contrast.name, contrast.title, setting.side, point)


def configs_for(pair: Pair, prompts: Sequence[Prompt], *requests: Request) -> tuple[RunConfig, ...]:
    """Return one checked configuration per prompt; later requests override earlier ones."""
    merged: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "drafter": pair.default_drafter}
    for request in requests:
        merged |= request
    return tuple(
        parse_config({**merged, "prompt": prompt.prompt, "mode": prompt.mode})
        for prompt in suited(pair, prompts)
    )


def by_category(prompts: Sequence[Prompt]) -> dict[str, list[Prompt]]:
    """Return the prompts of each category; categories and prompts keep their order."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.category, []).append(prompt)
    return groups


def _sweep_settings(
    name: str, pair: Pair, request: Request, chosen: Sequence[Prompt] | None
) -> list[Setting]:
    prompts = chosen
    if prompts is None:
        prompts = builtin_prompts(PROMPTS_BY_CATEGORY if name == CATEGORY else PROMPTS)
    elif not prompts:
        raise UserError("This experiment needs at least one prompt; add a prompt.")

    def setting(x: float | None, label: str, ablation: Ablation = NONE, **change: Any) -> Setting:
        return Setting(x, label, configs_for(pair, prompts, request, change), ablation)

    if name == DRAFT_LENGTH:
        return [setting(k, f"k = {k}", k=k) for k in range(1, MAX_K + 1)] + [setting(None, AUTO, k=AUTO)]
    if name == TEMPERATURE:
        rule = None if request.get("rule") == Rule.GREEDY else request.get("rule")
        return [setting(t, f"T = {t:g}", temperature=t, rule=rule if t else None) for t in TEMPERATURES]
    if name == CATEGORY:
        return [
            Setting(None, category, configs_for(pair, own, request))
            for category, own in by_category(prompts).items()
        ]
    if name == DRAFTER:
        # Unless k is requested, each drafter chooses its draft length, because no fixed k is fair to all.
        k = request.get("k", AUTO)
        return [setting(None, drafter, k=k, drafter=drafter) for drafter in pair.drafters]
    if name == DRAFT_QUALITY:
        settings = [setting(n, f"{n:.0%} noise" if n else "as it is", Ablation(noise=n)) for n in NOISES]
    elif name == DRAFT_COST:
        settings = [
            setting(n, f"{n}× the steps" if n > 1 else "as it is", Ablation(repeats=n)) for n in REPEATS
        ]
    else:
        raise AssertionError(name)
    require_draft_model(pair, settings[0].configs[0].drafter)
    return settings


def _contrast_settings(contrasts: Sequence[Contrast], pair: Pair, request: Request) -> list[Setting]:
    """Return both sides of each contrast that this pair can run, the side that helps first."""
    prompts = by_category(builtin_prompts())
    common = {**request, "k": conditions.K, "temperature": 0.0, "rule": None}
    common["drafter"] = pair.default_drafter

    def setting(contrast: Contrast, side: str, shown: Side) -> Setting:
        configs = configs_for(pair, prompts[shown.category][: conditions.PROMPTS], common, shown.change)
        return Setting(None, shown.label, configs, shown.ablation, contrast, side)

    settings = [
        setting(contrast, side, shown)
        for contrast in contrasts
        if pair.draft is not None or not contrast.hurts.ablation.of_draft
        for side, shown in ((HELPS, contrast.helps), (HURTS, contrast.hurts))
    ]
    if not settings:
        require_draft_model(pair)
    return settings
