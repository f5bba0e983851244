"""Prompt files, the built-in prompts, and the settings of a bench. This module does not import torch."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specdemo.asset_paths import PROMPTS
from specdemo.records.limits import UserError, parse_config, reason_of, show
from specdemo.records.trace import Mode, RunConfig

MAX_BYTES = 100_000_000
PROMPT_KEYS = {"id", "category", "mode", "prompt"}


@dataclass(frozen=True)
class Prompt:
    """One line of a prompt file."""

    id: str
    category: str
    mode: str
    prompt: str


@dataclass(frozen=True)
class Settings:
    """The settings of a bench: on every prompt it runs each drafter with each k at each temperature."""

    drafters: list[str]
    ks: list[int | str]
    temperatures: list[float]
    rule: str | None
    max_new_tokens: int
    repeats: int
    seed: int

    def configs(self, prompt: Prompt, temperature: float) -> list[RunConfig]:
        """Return the checked run configurations for one prompt at one temperature."""
        common = {
            "prompt": prompt.prompt,
            "mode": prompt.mode,
            "temperature": temperature,
            "rule": self.rule if temperature > 0 else None,
            "max_new_tokens": self.max_new_tokens,
            "seed": self.seed,
        }
        return [
            parse_config({**common, "drafter": drafter, "k": k}) for drafter in self.drafters for k in self.ks
        ]

    def check(self, prompts: Iterable[Prompt]) -> None:
        if self.repeats < 1:
            raise UserError(f"--repeats must be at least 1, got {self.repeats}.")
        for prompt in prompts:
            for temperature in self.temperatures:
                self.configs(prompt, temperature)


def builtin_prompts(limit: int | None = None) -> list[Prompt]:
    """Return all built-in prompts, or ``limit`` of them, evenly spaced over the file."""
    return read_prompts(PROMPTS, limit)


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Read a file with one JSON object ``{"id", "category", "mode", "prompt"}`` per line.

    ``limit`` prompts are returned, evenly spaced over the file; None returns all.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # a device may have no end
        # JSON may contain line separators such as U+2028, at which splitlines would split.
        lines = data.decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"Cannot read the prompts from {path}: {reason_of(error)}; choose another file."
        ) from error
    if len(data) > MAX_BYTES:
        raise UserError(f"{path} is too large; choose a file of at most {MAX_BYTES / 1e6:.0f} MB.")
    prompts = [_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UserError(
            f"{path} contains no prompts; write one JSON object per line, with the keys id, category, mode "
            "(chat or raw) and prompt."
        )
    (name, uses), *_ = Counter(prompt.id for prompt in prompts).most_common(1)
    if uses > 1:
        raise UserError(f"The id {show(name)} occurs {uses} times in {path}; give each prompt its own id.")
    if limit is not None and limit < 1:
        raise UserError(f"--limit must be at least 1, got {limit}.")
    if limit is None or limit >= len(prompts):
        return prompts
    return [prompts[i * len(prompts) // limit] for i in range(limit)]


def _prompt(path: Path, number: int, line: str) -> Prompt:
    try:
        raw = json.loads(line)
        prompt = Prompt(**{key: str(raw[key]) for key in PROMPT_KEYS})
        Mode(prompt.mode)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"Line {number} of {path} is not a prompt; write a JSON object with the keys id, category, mode "
            "(chat or raw) and prompt."
        ) from error
    return prompt
