"""Measure one prompt honestly: warm-up first, then one race of the baseline and every setting.

They are interleaved, each on its own clock, so that a slow moment of the machine hits all of them alike.
"""

import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import never
from specdemo.pairs.hardware import played, processor_flags, versions
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.figures import Totals, fold
from specdemo.records.limits import parse_config
from specdemo.records.race import race
from specdemo.records.trace import BASELINE, SPECULATIVE, Calibration, Round, RunConfig

FIGURES = ("speedup", "speedup_end_to_end", "tokens_per_s", "baseline_tokens_per_s", "alpha_compared")
FIGURES += ("alpha_drafted", "tau", "overhead", "s_theory", "s_cost")

Row = dict[str, Any]
"""What was measured of one setting on one prompt; plain data."""


@dataclass(frozen=True)
class Settings:
    """What is measured on every prompt: each drafter with each k at each temperature."""

    drafters: list[str]
    ks: list[int | str]
    temperatures: list[float]
    rule: str | None
    max_new_tokens: int
    repeats: int
    seed: int

    def configs(self, prompt: Prompt, temperature: float) -> list[RunConfig]:
        """The checked run configurations of one prompt at one temperature."""
        return [
            parse_config(
                {
                    "prompt": prompt.prompt,
                    "mode": prompt.mode,
                    "drafter": drafter,
                    "k": k,
                    "temperature": temperature,
                    "rule": self.rule if temperature > 0 else None,
                    "max_new_tokens": self.max_new_tokens,
                    "seed": self.seed,
                }
            )
            for drafter in self.drafters
            for k in self.ks
        ]


def measured_rows(settings: Settings, prompt: Prompt, temperature: float, pair: Pair) -> list[Row]:
    """Race every setting on one prompt at one temperature; a row for each."""
    configs = settings.configs(prompt, temperature)
    prompt_ids = pair.prompt_ids(configs[0])
    lanes = Lanes(pair)
    repeats = [measure(lanes, configs, prompt_ids) for _ in range(settings.repeats)]
    return [
        row_of(
            "specdemo",
            pair.precision,
            prompt,
            config,
            medians(totals),
            lanes.calibrate(config),
        )
        for config, *totals in zip(configs, *repeats, strict=True)
    ]


def measure(
    lanes: Lanes, configs: list[RunConfig], prompt_ids: list[int], stop: Stop = never
) -> list[Totals]:
    """Race every configuration and one baseline, interleaved; each one's figures against that baseline.

    Args:
        configs: What to measure; they differ in nothing that the baseline depends on.
        stop: Asked once a round and lane; once it said True the figures are of cut-off runs.

    Raises:
        UserError: The pair lacks what a drafter needs.
    """
    raced = {str(i): lanes.speculative(config, prompt_ids, stop) for i, config in enumerate(configs)}
    raced[BASELINE] = lanes.baseline(configs[0], prompt_ids, stop)
    rounds: dict[str, list[Round]] = {name: [] for name in raced}
    for name, round_ in race(raced):
        rounds[name].append(round_)
    return [
        fold(
            {SPECULATIVE: rounds[str(index)], BASELINE: rounds[BASELINE]},
            config.rule,
            lanes.calibrate(config),
        )
        for index, config in enumerate(configs)
    ]


def medians(totals: list[Totals]) -> dict[str, Any]:
    """Each figure's median over repeats; sameness must hold in every repeat."""
    figures: dict[str, Any] = {}
    for name in (*FIGURES, "seconds"):
        values = [getattr(item, name) for item in totals]
        figures[name] = None if None in values else statistics.median(values)
    same = [item.identical for item in totals]
    figures["identical"] = None if None in same else all(same)
    figures["tokens"] = totals[0].tokens
    differing = [item for item in totals if item.divergence is not None]
    figures["divergence"] = differing[0].divergence if differing else None
    figures["divergence_gap"] = differing[0].divergence_gap if differing else None
    return figures


def row_of(
    engine: str,
    precision: str,
    prompt: Prompt,
    config: RunConfig,
    figures: dict[str, Any],
    calibration: Calibration | None,
) -> Row:
    """A row as the file has it; ``calibration`` is None where passes were not measured."""
    return {
        "engine": engine,
        "drafter": config.drafter,
        "k": config.k,
        "temperature": config.temperature,
        "rule": config.rule,
        "precision": precision,
        "id": prompt.id,
        "category": prompt.category,
        "c": calibration and calibration.c,
        "v": calibration and list(calibration.v),
        "scatter": calibration and calibration.scatter,
        **figures,
    }


def environment(pair: Pair) -> dict[str, Any]:
    """What was measured, on what, with what, when."""
    return {
        "device": pair.place,
        "processor_flags": list(processor_flags()) if pair.device.type == "cpu" else [],
        "played": played(),
        "precision": pair.precision,
        "arithmetic": pair.precision_reason,
        "pair": {"target": pair.target_name, "draft": pair.draft_name},
        "versions": dict(versions()),
        "date": datetime.now(UTC).date().isoformat(),
    }
