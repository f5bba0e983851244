"""A bench over a prompt set: rows are written as they finish, and one that was interrupted goes on."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specdemo.bench.measuring import Row, Settings, environment, measured_rows
from specdemo.bench.prompts import Prompt
from specdemo.bench.summary import summary_of, table_of
from specdemo.pairs.pair import Pair
from specdemo.records.limits import UserError
from specdemo.records.output import write_text
from specdemo.records.trace import dump

Group = tuple[Prompt, float]
"""A prompt and a temperature: what is measured at once."""


class Bench:
    """One bench: what is to be measured, what has been, and the file that holds it.

    Args:
        prompts: From :func:`prompts.read_prompts`.
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
            facts: What measured them, as :func:`measuring.environment` has it.
        """
        done = len(self._groups) - len(self.missing)
        progress = tqdm(measured, desc="bench", unit="prompt", initial=done, total=len(self._groups))
        for rows in progress:
            self._rows += rows
            self._save(facts)
        self._save(facts)

    def table(self) -> str:
        """The summary for a terminal: one line per setting, overall and per category."""
        return table_of(summary_of(self._rows))

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
            "summary": summary_of(self._rows),
        }
        write_text(self._out, dump(content))
