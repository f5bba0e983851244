"""Measure speculation against the baseline over a prompt set, honestly.

Warm-up first. For every prompt and temperature, one race holds the baseline and every setting, each
on its own clock and interleaved, so that a slow moment of the machine hits all of them alike. Rows
are written as they finish and an interrupted bench resumes.
"""

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from specdemo.engine.speculate import never
from specdemo.pairs.hardware import versions
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.measurements import machine, processor_flags
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.figures import Totals, fold
from specdemo.records.limits import MAX_K, UserError, parse_config
from specdemo.records.race import race
from specdemo.records.trace import (
    AUTO,
    BASELINE,
    SPECULATIVE,
    Calibration,
    Mode,
    Round,
    Rule,
    RunConfig,
    dump,
)
from specdemo.shipped import PROMPTS

PROMPT_KEYS = {"id", "category", "mode", "prompt"}
FIGURES = ("speedup", "speedup_end_to_end", "tokens_per_s", "baseline_tokens_per_s", "alpha_compared")
FIGURES += ("alpha_drafted", "tau", "overhead", "s_theory", "s_cost")

Setting = tuple[str, float, str, int | Literal["auto"]]
"""Drafter, temperature, rule and draft length of a row."""


Row = dict[str, Any]
"""What was measured of one setting on one prompt; plain data."""


@dataclass(frozen=True)
class Prompt:
    """One line of a prompt file."""

    id: str
    category: str
    mode: str
    prompt: str


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


Group = tuple[Prompt, float]
"""A prompt and a temperature: what is measured at once."""


def shipped_prompts(limit: int | None = None) -> list[Prompt]:
    """The prompts that come with the program, or ``limit`` of them, spread over their categories."""
    return read_prompts(PROMPTS, limit)


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Read ``{"id", "category", "mode", "prompt"}`` lines; ``limit`` keeps that many, evenly spread.

    Raises:
        UserError: The file cannot be read, or a line is not such an object.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read the prompts from {path}: {error}.") from error
    prompts = [_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UserError(f"{path} holds no prompts.")
    if len({prompt.id for prompt in prompts}) < len(prompts):
        raise UserError(f"{path} uses an id twice; give every prompt its own.")
    if limit is not None and limit < 1:
        raise UserError("--limit must be at least 1.")
    if limit is None or limit >= len(prompts):
        return prompts
    return [prompts[i * len(prompts) // limit] for i in range(limit)]


class Bench:
    """One bench: what is to be measured, what has been, and the file that holds it.

    Args:
        prompts: From :func:`read_prompts`.
        settings: Checked here, before any model is loaded.
        out: JSON file; one that holds the same bench unfinished is continued.

    Raises:
        UserError: A setting is out of bounds, or ``out`` holds another bench.
    """

    def __init__(self, prompts: list[Prompt], settings: Settings, out: Path):
        if settings.repeats < 1:
            raise UserError("--repeats must be at least 1.")
        self._groups = [(p, t) for p in prompts for t in settings.temperatures]
        for prompt, temperature in self._groups:
            settings.configs(prompt, temperature)
        self._settings = settings
        self._out = out
        self._rows: list[Row] = []
        self._resume()

    @property
    def missing(self) -> list[Group]:
        """What is still to be measured, in order."""
        done = {(row["id"], row["temperature"]) for row in self._rows}
        return [group for group in self._groups if (group[0].id, group[1]) not in done]

    def run(self, pair: Pair) -> None:
        """Measure what is missing, one after the other."""
        works = self.works()
        self.fill((work(pair) for work in works), environment(pair))

    def works(self) -> list[Callable[[Pair], list[Row]]]:
        """A piece of work for each group that is missing: gives its rows on a pair. Can be pickled."""
        return [partial(measured_rows, self._settings, *group) for group in self.missing]

    def fill(self, measured: Iterable[list[Row]], facts: dict[str, Any]) -> None:
        """Take in the rows of what is missing as they come, writing the file after each group.

        Args:
            measured: What :meth:`works` gave, in their order.
            facts: What measured them, as :func:`environment` has it.
        """
        done = len(self._groups) - len(self.missing)
        progress = tqdm(measured, desc="bench", unit="prompt", initial=done, total=len(self._groups))
        for rows in progress:
            self._rows += rows
            self._save(facts)
        self._save(facts)

    def table(self) -> str:
        """The summary for a terminal: one line per setting, overall and per category."""
        head = f"{'drafter':<15}{'k':>5}{'T':>5}  {'category':<12}{'n':>3}{'speedup':>9}{'quartiles':>13}"
        head += f"{'α':>7}{'τ':>7}{'tok/s':>8}{'alone':>8}  identical"
        return "\n".join([head, *map(_table_line, self._summary())])

    def _resume(self) -> None:
        if not self._out.exists():
            return
        try:
            saved = json.loads(self._out.read_text(encoding="utf-8"))
            same = saved["settings"] == asdict(self._settings)
            self._rows = saved["rows"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self._out} exists and is no bench; choose another name for --out.") from error
        if not same:
            raise UserError(f"{self._out} holds a bench with other settings; choose another name for --out.")

    def _save(self, facts: dict[str, Any]) -> None:
        content = {
            "environment": facts,
            "settings": asdict(self._settings),
            "rows": self._rows,
            "summary": self._summary(),
        }
        save_text(self._out, dump(content))

    def _summary(self) -> list[dict[str, Any]]:
        keys = sorted({_setting(row) for row in self._rows}, key=_order)
        found = []
        for key in keys:
            rows = [row for row in self._rows if _setting(row) == key]
            found.append(_summarise(rows, "overall"))
            for category in sorted({row["category"] for row in rows}):
                found.append(_summarise([row for row in rows if row["category"] == category], category))
        return found


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
            lanes.calibrate(config, len(prompt_ids)),
        )
        for config, *totals in zip(configs, *repeats, strict=True)
    ]


def save_text(path: Path, text: str) -> None:
    """Write ``text`` in one step, so that an interrupted bench leaves the last whole file.

    Raises:
        UserError: The file cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}; choose another place.") from error


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
            lanes.calibrate(config, len(prompt_ids)),
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
        "floor_cost": calibration and calibration.floor_cost,
        **figures,
    }


def _setting(row: Row) -> Setting:
    return row["drafter"], row["temperature"], row["rule"], row["k"]


def _order(setting: Setting) -> tuple[str, float, str, int]:
    """Settings in the order of a table, an automatic length after the fixed ones."""
    drafter, temperature, rule, k = setting
    return drafter, temperature, rule, MAX_K + 1 if k == AUTO else k


def _summarise(rows: list[Row], category: str) -> dict[str, Any]:
    drafter, temperature, rule, k = _setting(rows[0])
    summary: dict[str, Any] = {
        "drafter": drafter,
        "k": k,
        "temperature": temperature,
        "rule": rule,
        "category": category,
        "prompts": len(rows),
        "identical": sum(row["identical"] is True for row in rows),
        "differing": sum(row["identical"] is False for row in rows),
    }
    for name in FIGURES:
        values = [row[name] for row in rows if row[name] is not None]
        summary[name] = quartiles(values) if values else None
    return summary


def quartiles(values: list[float]) -> dict[str, float]:
    """First quartile, median and third quartile of at least one value."""
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"q1": q1, "median": median, "q3": q3}


def _table_line(item: dict[str, Any]) -> str:
    def median(name: str, pattern: str) -> str:
        return "-" if item[name] is None else pattern.format(item[name]["median"])

    speed = item["speedup"]
    quartiles = f"{speed['q1']:.2f}–{speed['q3']:.2f}" if speed else "-"
    compared = item["identical"] + item["differing"]
    same = "by distribution" if item["rule"] == Rule.REJECTION else f"{item['identical']} of {compared}"
    return (
        f"{item['drafter']:<15}{item['k']:>5}{item['temperature']:>5g}  {item['category']:<12}"
        f"{item['prompts']:>3}"
        f"{median('speedup', '{:.2f}×'):>9}{quartiles:>13}{median('alpha_compared', '{:.0%}'):>7}"
        f"{median('tau', '{:.2f}'):>7}{median('tokens_per_s', '{:.1f}'):>8}"
        f"{median('baseline_tokens_per_s', '{:.1f}'):>8}  {same}"
    )


def environment(pair: Pair) -> dict[str, Any]:
    """What was measured, on what, with what, when."""
    return {
        "device": pair.place,
        "processor_flags": list(processor_flags()) if pair.device.type == "cpu" else [],
        "played": machine()["limits"],
        "precision": pair.precision,
        "arithmetic": pair.arithmetic.reason if pair.arithmetic else "",
        "pair": {"target": pair.target_name, "draft": pair.draft_name},
        "versions": dict(versions()),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _prompt(path: Path, number: int, line: str) -> Prompt:
    try:
        raw = json.loads(line)
        prompt = Prompt(**{key: str(raw[key]) for key in PROMPT_KEYS})
        Mode(prompt.mode)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'{path}, line {number}: expected {{"id", "category", "mode": "chat"|"raw", "prompt"}}.'
        ) from error
    return prompt
