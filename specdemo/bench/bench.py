"""A bench over a prompt set. It saves its rows after each prompt and temperature, and can be resumed."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specdemo.bench.measuring import (
    FIGURES,
    SPEEDS,
    Row,
    environment,
    measured_rows,
    quartiles,
    suited,
)
from specdemo.bench.prompts import Prompt, Settings
from specdemo.pairs.pair import Pair
from specdemo.records.figures import REPETITIVE, median_run
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.output import write_text
from specdemo.records.trace import AUTO, Rule, dump

Group = tuple[Prompt, float]  # one race measures all settings on a prompt at a temperature
Setting = tuple[str, float, str, int | str]  # drafter, temperature, rule, and draft length


class Bench:
    """A bench: the groups to measure, the rows measured so far, and the file that contains these rows.

    The settings are checked before any model is loaded. If ``out`` has a bench with the same settings, it
    continues.
    """

    def __init__(self, prompts: list[Prompt], settings: Settings, out: Path):
        settings.check(prompts)
        self._groups = [(prompt, temperature) for prompt in prompts for temperature in settings.temperatures]
        self._prompts, self._settings, self._out = prompts, settings, out
        self._rows: list[Row] = self._saved_rows() if out.exists() else []

    @property
    def missing(self) -> list[Group]:
        """The groups that are still to be measured, in order."""
        done = {(row["id"], row["temperature"]) for row in self._rows}
        return [group for group in self._groups if (group[0].id, group[1]) not in done]

    def run(self, pair: Pair) -> None:
        works = self.works(suited(pair, self._prompts))
        self.fill((work(pair) for work in works), environment(pair))

    def works(self, prompts: Iterable[Prompt]) -> list[Callable[[Pair], list[Row]]]:
        """Return one picklable function per missing group; given a pair, it returns the group's rows.

        ``prompts`` are all prompts of the bench, from :func:`measuring.suited`.
        """
        found = {prompt.id: prompt for prompt in prompts}
        return [
            partial(measured_rows, self._settings, found[prompt.id], temperature)
            for prompt, temperature in self.missing
        ]

    def fill(self, measured: Iterable[list[Row]], facts: dict[str, Any]) -> None:
        """Add the rows of each missing group, in the order of :meth:`works`, and write the file after each
        group.
        """
        done = len(self._groups) - len(self.missing)
        for rows in tqdm(measured, desc="bench", unit="prompt", initial=done, total=len(self._groups)):
            self._rows += rows
            save_bench(self._out, facts, self._settings, self._rows, summary_of(self._rows))

    def table(self) -> str:
        """Return the lines of :func:`summary_of` as a table for a terminal."""
        head = f"{'drafter':<15}{'k':>5}{'T':>5}  {'category':<12}{'n':>3}{'speedup':>9}{'quartiles':>13}"
        head += f"{'α':>7}{'τ':>7}{'tok/s':>8}{'baseline':>10}  identical"
        return "\n".join([head, *map(_table_line, summary_of(self._rows))])

    def _saved_rows(self) -> list[Row]:
        try:
            saved = json.loads(self._out.read_text(encoding="utf-8-sig"))
            settings, rows = saved["settings"], saved["rows"]
            summary_of(rows)
        # A table of another kind may fail anywhere in the summary.
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{self._out} exists, but contains no results of `specdemo bench`; choose another file for "
                "--out."
            ) from error
        if settings != asdict(self._settings):
            raise UserError(
                f"{self._out} contains results measured with different settings; choose another file for "
                "--out, or use the same settings again."
            )
        return rows


def save_bench(
    out: Path, facts: dict[str, Any], settings: Settings, rows: Sequence[Row], summary: Sequence[Row]
) -> None:
    content = {"environment": facts, "settings": asdict(settings), "rows": rows, "summary": summary}
    write_text(out, dump(content))


def summary_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a summary of each setting over all its prompts, over those whose outputs repeat themselves and
    those whose outputs do not, and over the prompts of each category.
    """
    found = []
    for setting in sorted(set(map(_setting, rows)), key=_order):
        measured = [row for row in rows if _setting(row) == setting]
        found.append(_summary(measured, "overall"))
        known = [row for row in measured if row.get("distinct_share") is not None]
        repetitive = [row for row in known if row["distinct_share"] < REPETITIVE]
        if repetitive and len(repetitive) < len(known):
            found.append(_summary([row for row in known if row["distinct_share"] >= REPETITIVE], "varied"))
            found.append(_summary(repetitive, "repetitive"))
        for category in sorted({row["category"] for row in measured}):
            found.append(_summary([row for row in measured if row["category"] == category], category))
    return found


def _setting(row: Row) -> Setting:
    return row["drafter"], row["temperature"], row["rule"], row["k"]


def _order(setting: Setting) -> tuple[str, float, str, Any]:
    """Return the sort key of a setting; it puts an automatic draft length after all fixed ones."""
    drafter, temperature, rule, k = setting
    return drafter, temperature, rule, MAX_K + 1 if k == AUTO else k


def _summary(rows: list[Row], category: str) -> dict[str, Any]:
    shown = median_run(rows)
    return {
        **{name: rows[0][name] for name in ("drafter", "k", "temperature", "rule")},
        "category": category,
        "prompts": len(rows),
        "identical": sum(row["identical"] is True for row in rows),
        "differing": sum(row["identical"] is False for row in rows),
        **{name: quartiles([row[name] for row in rows]) for name in FIGURES},
        "median_run": {name: shown[name] for name in ("id", *SPEEDS) if shown},
    }


def _table_line(item: dict[str, Any]) -> str:
    def median(name: str, pattern: str) -> str:
        value = item["median_run"].get(name, item[name] and item[name]["median"])
        return "-" if value is None else pattern.format(value)

    speed = item["speedup"]
    spread = f"{speed['q1']:.2f}–{speed['q3']:.2f}" if speed else "-"
    compared = item["identical"] + item["differing"]
    same = f"{item['identical']} of {compared}" if Rule(item["rule"]).same_text else "by distribution"
    return (
        f"{item['drafter']:<15}{item['k']:>5}{item['temperature']:>5g}  {item['category']:<12}"
        f"{item['prompts']:>3}"
        f"{median('speedup', '{:.2f}×'):>9}{spread:>13}{median('alpha_compared', '{:.0%}'):>7}"
        f"{median('tau', '{:.2f}'):>7}{median('tokens_per_s', '{:.1f}'):>8}"
        f"{median('baseline_tokens_per_s', '{:.1f}'):>10}  {same}"
    )
