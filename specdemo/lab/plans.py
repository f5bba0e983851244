"""Which settings make a sweep. Says what is measured; measuring is in ``sweeps``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specdemo.bench.prompts import Prompt, shipped_prompts
from specdemo.lab import points
from specdemo.lab.handicap import Handicap
from specdemo.lab.perturbed import require_draft_model
from specdemo.lab.request import NEW_TOKENS, PROMPTS
from specdemo.lab.sweeps import Setting, SweepPlan
from specdemo.pairs.pair import Pair
from specdemo.records.limits import MAX_K, UserError, parse_config
from specdemo.records.trace import AUTO, Mode, Rule, RunConfig

PROMPTS_BY_CATEGORY = 12
TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
NOISES = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
REPEATS = (1, 2, 3, 4, 6, 8, 12, 16)

Request = Mapping[str, Any]
"""Settings as ``limits.parse_config`` takes them."""
Vary = Callable[[Pair, Sequence[Prompt], Request], tuple[Setting, ...]]


def sweep_plan(
    name: str, pair: Pair, prompts: Sequence[Prompt] | None = None, request: Request | None = None
) -> SweepPlan:
    """A sweep by name, checked as a whole before anything is measured.

    Args:
        name: One of ``points.SWEEPS``.
        prompts: What to write; by default a few of the shipped ones.
        request: What all runs have in common: any of a run's settings but prompt and mode. What the
            sweep varies is not looked at.

    Raises:
        UserError: There is no such sweep, a setting is out of bounds, or the pair lacks what it needs.
    """
    if name not in _PLANS:
        raise UserError(f"Unknown sweep {name!r}; choose one of: {', '.join(_PLANS)}.")
    axis, vary = _PLANS[name]
    if prompts is None:
        prompts = shipped_prompts(PROMPTS_BY_CATEGORY if name == points.CATEGORY else PROMPTS)
    if not prompts:
        raise UserError("A sweep needs at least one prompt.")
    return SweepPlan(name, points.TITLES[name], axis, vary(pair, prompts, request or {}))


def prompts_by_category(count: int) -> list[Prompt]:
    """So many of the shipped prompts of every category."""
    prompts = shipped_prompts()
    of = {category: [p for p in prompts if p.category == category] for category in _categories_of(prompts)}
    return [prompt for members in of.values() for prompt in members[:count]]


def configs_for(pair: Pair, prompts: Sequence[Prompt], *requests: Request) -> tuple[RunConfig, ...]:
    """One checked run per prompt; a later request overrides an earlier one.

    A target without a chat template continues every prompt as raw text.

    Raises:
        UserError: A setting is out of bounds.
    """
    merged: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "drafter": pair.default_drafter}
    for request in requests:
        merged |= request
    chats = pair.tokenizer.chat_template is not None
    return tuple(
        parse_config({**merged, "prompt": prompt.prompt, "mode": prompt.mode if chats else Mode.RAW})
        for prompt in prompts
    )


def _lengths(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[Setting, ...]:
    fixed = [
        Setting(k, f"k = {k}", configs_for(pair, prompts, request, {"k": k})) for k in range(1, MAX_K + 1)
    ]
    return (*fixed, Setting(None, AUTO, configs_for(pair, prompts, request, {"k": AUTO})))


def _temperatures(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[Setting, ...]:
    rule = request.get("rule")
    sampling = None if rule == Rule.GREEDY else rule

    def at(temperature: float) -> Setting:
        change = {"temperature": temperature, "rule": sampling if temperature else None}
        return Setting(temperature, f"T = {temperature:g}", configs_for(pair, prompts, request, change))

    return tuple(map(at, TEMPERATURES))


def _categories(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[Setting, ...]:
    return tuple(
        Setting(None, category, configs_for(pair, [p for p in prompts if p.category == category], request))
        for category in _categories_of(prompts)
    )


def _categories_of(prompts: Sequence[Prompt]) -> list[str]:
    return list(dict.fromkeys(prompt.category for prompt in prompts))


def _drafters(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[Setting, ...]:
    """Each as long as it thinks right, unless a length is asked for: no fixed k is fair to all."""
    return tuple(
        Setting(None, drafter, configs_for(pair, prompts, {"k": AUTO}, request, {"drafter": drafter}))
        for drafter in pair.drafters
    )


def _qualities(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[Setting, ...]:
    configs = _of_a_draft_model(pair, prompts, request)
    return tuple(
        Setting(noise, f"{noise:.0%} noise" if noise else "as it is", configs, Handicap(noise=noise))
        for noise in NOISES
    )


def _costs(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[Setting, ...]:
    configs = _of_a_draft_model(pair, prompts, request)
    return tuple(
        Setting(
            repeats,
            f"{repeats}× the steps" if repeats > 1 else "as it is",
            configs,
            Handicap(repeats=repeats),
        )
        for repeats in REPEATS
    )


def _of_a_draft_model(pair: Pair, prompts: Sequence[Prompt], request: Request) -> tuple[RunConfig, ...]:
    configs = configs_for(pair, prompts, request)
    require_draft_model(pair, configs[0].drafter)
    return configs


_PLANS: dict[str, tuple[str, Vary]] = {
    points.DRAFT_LENGTH: ("draft length k", _lengths),
    points.TEMPERATURE: ("temperature", _temperatures),
    points.CATEGORY: ("", _categories),
    points.DRAFTER: ("", _drafters),
    points.DRAFT_QUALITY: ("noise in the draft", _qualities),
    points.DRAFT_COST: ("times each draft step is made", _costs),
}
"""Sweep -> what its axis is called, and how its settings are made."""
