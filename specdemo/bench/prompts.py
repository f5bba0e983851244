"""Prompt files, the shipped prompts, and the settings that a bench runs on each prompt. No torch."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import Mode, RunConfig
from specdemo.shipped import PROMPTS

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
    """The settings that a bench runs on every prompt: each drafter with each k at each temperature."""

    drafters: list[str]
    ks: list[int | str]
    temperatures: list[float]
    rule: str | None
    max_new_tokens: int
    repeats: int
    seed: int

    def configs(self, prompt: Prompt, temperature: float) -> list[RunConfig]:
        """Return the checked run configurations of one prompt at one temperature.

        Raises:
            UserError: A value is out of bounds.
        """
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
        """Check every run; raise ``UserError`` if a value is out of bounds."""
        if self.repeats < 1:
            raise UserError(f"--repeats must be at least 1, got {self.repeats}.")
        for prompt in prompts:
            for temperature in self.temperatures:
                self.configs(prompt, temperature)


def shipped_prompts(limit: int | None = None) -> list[Prompt]:
    """Return the shipped prompts, or ``limit`` of them, spread over their categories."""
    return read_prompts(PROMPTS, limit)


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Read lines of ``{"id", "category", "mode", "prompt"}``; ``limit`` keeps that many, evenly spread.

    Raises:
        UserError: The file cannot be read, or a line is not such an object.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read the prompts from {path}: {error}.") from error
    prompts = [_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UserError(f"{path} has no prompts; write one JSON object per line.")
    if len({prompt.id for prompt in prompts}) < len(prompts):
        raise UserError(f"{path} uses an id twice; give every prompt its own id.")
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
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'{path}, line {number}: expected {{"id", "category", "mode": "chat"|"raw", "prompt"}}.'
        ) from error
    return prompt
