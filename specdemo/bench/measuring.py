"""Races of settings against the target alone on one prompt, with medians and quartiles of the figures."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from specdemo.bench.prompts import Prompt, Settings
from specdemo.engine.race import race
from specdemo.engine.speculate import never
from specdemo.models.execution import readable_positions
from specdemo.pairs.hardware import played, processor_flags, versions
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop, encode_prompt
from specdemo.records.figures import Totals, distinct_share, fold, median_run
from specdemo.records.limits import UserError, first_names
from specdemo.records.pieces import inside_sentence
from specdemo.records.trace import BASELINE, SPECULATIVE, Calibration, Finish, Mode, Round, RunConfig

FIGURES = ("speedup", "speedup_end_to_end", "tokens_per_s", "baseline_tokens_per_s", "alpha_compared")
FIGURES += ("alpha_drafted", "tau", "overhead", "s_theory", "s_cost")
SPEEDS = ("speedup", "tokens_per_s", "baseline_tokens_per_s")
"""Figures that a row shows from one run, so that the speedup is the quotient of the other two."""

MAX_NAMED = 8  # prompts that a message names
Row = dict[str, Any]  # the figures of one setting on one prompt, as values that JSON can store


class PairedRun(NamedTuple):
    """The result of racing one configuration against the baseline."""

    config: RunConfig
    calibration: Calibration
    totals: Totals
    rounds: Mapping[str, list[Round]]  # by lane


def measure(lanes: Lanes, configs: Sequence[RunConfig], stop: Stop = never) -> list[PairedRun] | None:
    """Race several configurations and one baseline on the same prompt; return None if the race was stopped.

    The configurations must agree in the prompt and all settings that affect the baseline. The lane with the
    least time on its clock always runs next, so a slow moment affects all lanes alike. ``stop`` is called
    once per round of each lane.
    """
    prompt_ids = lanes.pair.prompt_ids(configs[0])
    raced = {str(i): lanes.speculative(config, prompt_ids, stop) for i, config in enumerate(configs)}
    raced[BASELINE] = lanes.baseline(configs[0], prompt_ids, stop)
    rounds: dict[str, list[Round]] = {name: [] for name in raced}
    for lane, round_ in race(raced):
        rounds[lane].append(round_)
    runs = []
    for i, config in enumerate(configs):
        own = {SPECULATIVE: rounds[str(i)], BASELINE: rounds[BASELINE]}
        run = paired_run(lanes, config, own)
        if run is None:
            return None
        runs.append(run)
    return runs


def paired_run(lanes: Lanes, config: RunConfig, rounds: Mapping[str, list[Round]]) -> PairedRun | None:
    """Return the run that the finished lanes form, or None if a lane was stopped."""
    if any(not lane or lane[-1].finish is Finish.STOPPED for lane in rounds.values()):
        return None
    costs = lanes.calibrate(config)
    return PairedRun(config, costs, fold(rounds, config.rule, costs), rounds)


def medians(totals: Sequence[Totals]) -> dict[str, Any]:
    """Return the median of each figure over repeats of one setting; a figure missing in any repeat is None.

    ``SPEEDS`` and ``seconds`` are those of the repeat from :func:`median_run`. ``divergence`` and
    ``divergence_gap`` are from the first repeat that diverged.
    """
    figures: dict[str, Any] = {}
    for name in (*FIGURES, "seconds"):
        values = [getattr(item, name) for item in totals]
        figures[name] = None if None in values else statistics.median_low(values)
    shown = median_run([vars(item) for item in totals])
    figures |= {name: shown[name] for name in (*SPEEDS, "seconds") if shown}
    figures["identical"] = all_identical(totals)
    figures["tokens"] = totals[0].tokens
    differing = next((item for item in totals if item.divergence is not None), None)
    figures["divergence"] = differing and differing.divergence
    figures["divergence_gap"] = differing and differing.divergence_gap
    return figures


def all_identical(totals: Sequence[Totals]) -> bool | None:
    """Return True if every run wrote the same tokens as its baseline; None under the rejection rule."""
    same = [item.identical for item in totals]
    return None if None in same else all(same)


def quartiles(values: Sequence[float | None]) -> dict[str, float] | None:
    """Return ``q1``, the lower ``median`` and ``q3`` of the values, without None; None if none is left."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    q1, _, q3 = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    median = statistics.median_low(found)
    return {"q1": min(q1, median), "median": median, "q3": q3}


def suited(pair: Pair, prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return the prompts in a mode that the target has (raw without a chat template), if it can read them."""
    found = [prompt if pair.chats else replace(prompt, mode=str(Mode.RAW)) for prompt in prompts]
    most = readable_positions(pair.target.config)
    long = [one.id for one in found if len(encode_prompt(pair.tokenizer, one.prompt, Mode(one.mode))) >= most]
    if long:
        names = first_names([inside_sentence(name) for name in long], MAX_NAMED)
        raise UserError(
            f"The target can read at most {most - 1:,} tokens, but these prompts are longer: {names}. "
            "Shorten or remove these prompts, or choose another target."
        )
    return found


def measured_rows(settings: Settings, prompt: Prompt, temperature: float, pair: Pair) -> list[Row]:
    """Race every setting on one prompt at one temperature; return a row for each setting."""
    lanes, configs = Lanes(pair), settings.configs(prompt, temperature)
    repeats = [measure(lanes, configs) or [] for _ in range(settings.repeats)]
    return [
        row_of(
            "specdemo",
            pair.precision,
            prompt,
            runs[0].config,
            medians([run.totals for run in runs])
            | {"distinct_share": distinct_share(runs[0].rounds[SPECULATIVE])},
            runs[0].calibration,
        )
        for runs in zip(*repeats, strict=True)
    ]


def row_of(
    engine: str,
    precision: str,
    prompt: Prompt,
    config: RunConfig,
    figures: dict[str, Any],
    calibration: Calibration | None,
) -> Row:
    """Return a row of the bench file; ``calibration`` is None if no pass costs were measured."""
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
    """Return the facts about a measurement: device, models, precision, library versions and date."""
    return {
        "device": pair.place,
        "processor_flags": list(processor_flags()) if pair.device.type == "cpu" else [],
        "played": played(),
        "precision": pair.precision,
        "arithmetic": pair.precision_reason,
        "chat_template": pair.chats,
        "pair": {"target": pair.target_name, "draft": pair.draft_name},
        "versions": dict(versions()),
        "date": datetime.now(UTC).date().isoformat(),
    }
