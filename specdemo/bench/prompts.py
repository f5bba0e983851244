"""Prompt files: what a bench measures, and what the program comes with."""

import json
from dataclasses import dataclass
from pathlib import Path

from specdemo.records.limits import UserError
from specdemo.records.trace import Mode
from specdemo.shipped import PROMPTS

PROMPT_KEYS = {"id", "category", "mode", "prompt"}


@dataclass(frozen=True)
class Prompt:
    """One line of a prompt file."""

    id: str
    category: str
    mode: str
    prompt: str


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
