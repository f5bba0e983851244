"""Requests to the lab, checked for the page and the API. Does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdemo.lab.conditions import CONDITIONS
from specdemo.lab.points import CATEGORY, DRAFTER, EXPERIMENTS, SWEEPS
from specdemo.records.limits import (
    MAX_LAB_PROMPTS,
    MAX_LAB_TOKENS,
    UserError,
    integer,
    parse_config,
    require_known,
    show,
)
from specdemo.records.trace import Mode

PROMPTS = 3
NEW_TOKENS = 32
"""With these defaults a sweep takes about a minute on two CPU cores."""
RUN_SETTINGS = ("k", "temperature", "max_new_tokens", "seed")
SETTINGS = ("experiment", *RUN_SETTINGS, "prompts", "prompt", "mode")


@dataclass(frozen=True)
class LabRequest:
    experiment: str  # one of ``EXPERIMENTS`` or ``CONDITIONS``
    settings: Mapping[str, Any]  # requested run settings, by names of ``RUN_SETTINGS``
    prompts: int  # built-in prompts at each point of a sweep
    prompt: str  # empty to use the built-in prompts
    mode: Mode  # of ``prompt``


def parse_lab(raw: Mapping[str, Any]) -> LabRequest:
    """Check an untrusted mapping; a value of None counts as missing."""
    raw = {key: value for key, value in raw.items() if value is not None}
    require_known(raw, SETTINGS)
    experiment = raw.get("experiment")
    if not isinstance(experiment, str) or experiment not in (*EXPERIMENTS, *CONDITIONS):
        raise UserError(
            f"Unknown experiment {show(experiment)}; choose: {', '.join(EXPERIMENTS)}, or the name of a "
            "condition of the Lab."
        )
    tokens = integer(raw, "max_new_tokens", NEW_TOKENS, 1, MAX_LAB_TOKENS)
    settings = {key: raw[key] for key in RUN_SETTINGS if key in raw} | {"max_new_tokens": tokens}
    if experiment == DRAFTER:
        settings.pop("k", None)  # each drafter chooses its draft length, because no fixed k is fair to all
    prompt = raw.get("prompt", "")
    config = parse_config({**settings, "prompt": prompt if prompt != "" else "-", "mode": raw.get("mode")})
    if prompt and experiment not in SWEEPS:
        raise UserError("This experiment uses its own prompts; leave the prompt empty.")
    if prompt and experiment == CATEGORY:
        raise UserError(
            "This experiment compares categories of built-in prompts; leave your own prompt empty."
        )
    prompts = integer(raw, "prompts", PROMPTS, 1, MAX_LAB_PROMPTS)
    return LabRequest(experiment, settings, prompts, prompt, config.mode)
