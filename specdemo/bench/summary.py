"""What the rows of a bench come to: figures per setting and category, and their table for a terminal."""

import statistics
from collections.abc import Sequence
from typing import Any, Literal

from specdemo.bench.measuring import FIGURES, Row
from specdemo.records.limits import MAX_K
from specdemo.records.trace import AUTO, Rule

Setting = tuple[str, float, str, int | Literal["auto"]]
"""Drafter, temperature, rule and draft length of a row."""


def summary_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Figures of each setting, overall and per category: medians and quartiles over prompts."""
    keys = sorted({_setting(row) for row in rows}, key=_order)
    found = []
    for key in keys:
        measured = [row for row in rows if _setting(row) == key]
        found.append(_summarise(measured, "overall"))
        for category in sorted({row["category"] for row in measured}):
            found.append(_summarise([row for row in measured if row["category"] == category], category))
    return found


def table_of(summary: Sequence[dict[str, Any]]) -> str:
    """A summary for a terminal: one line per setting, overall and per category."""
    head = f"{'drafter':<15}{'k':>5}{'T':>5}  {'category':<12}{'n':>3}{'speedup':>9}{'quartiles':>13}"
    head += f"{'α':>7}{'τ':>7}{'tok/s':>8}{'alone':>8}  identical"
    return "\n".join([head, *map(_table_line, summary)])


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
