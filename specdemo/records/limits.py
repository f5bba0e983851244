"""The limits and checks of requests, which the page, the API and the command line share.

Every function that checks a value raises ``UserError`` for an invalid one.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from specdemo.records.drafter_kinds import KINDS, NEEDED_NAMES, RENAMED, SCRIPTED, DrafterKind
from specdemo.records.trace import (
    AUTO,
    MAX_NEW_TOKENS,
    MAX_PROMPT_CHARS,
    MAX_REPEATS,
    Mode,
    Rule,
    RunConfig,
)

MAX_K = 12
MAX_TEMPERATURE = 2.0
MAX_TOP_K = 1_000
MAX_SEED = 2**32 - 1
MAX_SCRIPT_CHARS = MAX_PROMPT_CHARS
MAX_DRAFT_CHARS = 400
MAX_CLASS_DRAFTS = 300
MAX_LAB_TOKENS = 96
MAX_LAB_PROMPTS = 6
"""Prompts for each measured point. A sweep at both maxima takes some minutes."""
DRAFTERS = tuple(kind.name for kind in KINDS.values() if kind.module)
"""The drafters that a request can choose."""
AUTO_PRECISION = "auto"
PRECISIONS = (AUTO_PRECISION, "bf16", "fp32", "int8")
PAIRS = (
    "built-in",
    "qwen2.5-7b",
    "qwen2.5-1.5b",
    "smollm2-1.7b",
    "llama3.1-8b",
    "gpt2-large",
    "gpt2-xl",
    "pythia-1.4b",
    "pythia-2.8b",
)
"""The names of the presets in ``pairs.presets``."""

SAMPLED_RULES = tuple(str(rule) for rule in Rule if rule is not Rule.GREEDY)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters (C0, DEL and C1), except tab, line feed and carriage return."""
DIRECTION_MARKS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that set or reverse the direction of the text next to them."""
_WITHOUT_MARKS = dict.fromkeys(map(ord, DIRECTION_MARKS))

GREEDY_BELOW = 1e-3
"""Temperatures below this value count as 0 (greedy), because dividing logits by them could overflow."""


class UserError(ValueError):
    """An error with a message for the user: what is wrong and what to do."""


def parse_config(raw: Mapping[str, Any]) -> RunConfig:
    """Check an untrusted mapping of settings and return its ``RunConfig``; missing keys get their defaults.

    The default rule is greedy at temperature 0 and rejection above.
    """
    require_known(raw, RunConfig.__dataclass_fields__)
    temperature = number(raw, "temperature", 0.0, 0.0, MAX_TEMPERATURE)
    greedy = temperature < GREEDY_BELOW
    rule = choice(raw, "rule", Rule, Rule.GREEDY if greedy else Rule.REJECTION)
    if greedy != (rule is Rule.GREEDY):
        raise UserError(
            f"The {rule} rule needs a temperature of {GREEDY_BELOW:g} or more; raise the temperature, or "
            "choose the greedy rule."
            if greedy
            else "The greedy rule needs temperature 0; set the temperature to 0, or choose one of: "
            f"{', '.join(SAMPLED_RULES)}."
        )
    drafter = raw.get("drafter", RunConfig.drafter)
    if isinstance(drafter, str):
        drafter = RENAMED.get(drafter, drafter)
    if not isinstance(drafter, str) or drafter not in KINDS:
        raise UserError(f"Unknown drafter {show(drafter)}; choose one of: {', '.join(DRAFTERS)}.")
    baseline = flag(raw, "baseline", RunConfig.baseline)
    repeats = integer(raw, "repeats", RunConfig.repeats, 1, MAX_REPEATS)
    if repeats > 1 and not baseline:
        raise UserError(
            "Repeated runs are compared by their speedups; also run the target alone (baseline), or set "
            "repeats to 1."
        )
    return RunConfig(
        prompt=_prompt(raw),
        mode=choice(raw, "mode", Mode, Mode.CHAT),
        k=_draft_length(raw),
        temperature=0.0 if greedy else temperature,
        top_k=integer(raw, "top_k", 0, 0, MAX_TOP_K),
        top_p=number(raw, "top_p", 1.0, 0.01, 1.0),
        rule=rule,
        drafter=drafter,
        script=_script(raw, drafter),
        seed=integer(raw, "seed", 0, 0, MAX_SEED),
        max_new_tokens=integer(raw, "max_new_tokens", RunConfig.max_new_tokens, 1, MAX_NEW_TOKENS),
        baseline=baseline,
        draft_alone=flag(raw, "draft_alone", RunConfig.draft_alone),
        repeats=repeats,
    )


def _text(raw: Mapping[str, Any], name: str, max_chars: int) -> str:
    text = raw.get(name, "")
    if not isinstance(text, str):
        raise UserError(f"The {name} must be text, not {show(text)}.")
    if len(text) > max_chars:
        raise UserError(f"The {name} has {len(text):,} characters; shorten the {name} to {max_chars:,}.")
    require_readable(name, text)
    return text


def _prompt(raw: Mapping[str, Any]) -> str:
    prompt = _text(raw, "prompt", MAX_PROMPT_CHARS)
    if not prompt.strip():
        raise UserError("The prompt is empty; write something for the models to continue.")
    return prompt


def _draft_length(raw: Mapping[str, Any]) -> int | Literal["auto"]:
    value = raw.get("k", RunConfig.k)
    if value == AUTO:
        return AUTO
    if isinstance(value, str):
        raise UserError(f"k must be a whole number from 1 to {MAX_K}, or auto; got {show(value)}.")
    return integer({"k": value}, "k", MAX_K, 1, MAX_K)


def _script(raw: Mapping[str, Any], drafter: str) -> str:
    script = _text(raw, "script", MAX_SCRIPT_CHARS)
    if script and drafter != SCRIPTED:
        raise UserError("A script needs the scripted drafter; choose this drafter, or leave out the script.")
    if drafter == SCRIPTED and not script:
        raise UserError(
            "The scripted drafter needs a script; write the text that the drafter should propose."
        )
    return script


def require_known(raw: Mapping[str, Any], known: Iterable[str]) -> None:
    if unknown := sorted(set(map(str, raw)) - set(known)):
        raise UserError(f"Unknown setting {show(unknown[0])}; correct the name, or leave out this setting.")


def require_readable(name: str, text: str) -> None:
    """Refuse lone surrogates, and control characters other than tabs and line breaks."""
    if not text.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise UserError(
            f"The {name} contains a broken character, such as half of an emoji (a lone surrogate); delete "
            "this character, or paste the text again."
        )
    if control := _CONTROL.search(text):
        raise UserError(
            f"The {name} contains the control character U+{ord(control[0]):04X} at position "
            f"{control.start() + 1:,}; remove this character."
        )


def without_direction_marks(value: Any) -> Any:
    """Remove the characters that reverse the text next to them; return other values unchanged."""
    return value.translate(_WITHOUT_MARKS) if isinstance(value, str) else value


def number(raw: Mapping[str, Any], key: str, default: float, low: float, high: float) -> float:
    """Return ``raw[key]``, a finite number from ``low`` to ``high``; ``default`` if it is missing."""
    value = raw.get(key, default)
    if not _is_number(value):
        raise UserError(f"{key} must be a number from {low:g} to {high:g}, not {show(value)}.")
    if not low <= value <= high:
        raise UserError(f"{key} must be from {low:g} to {high:g}, not {show(value)}.")
    return float(value)


def integer(raw: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
    """Return ``raw[key]``, a whole number (3.0 is one) from ``low`` to ``high``, or ``default``."""
    value = raw.get(key, default)
    if not _is_number(value) or value != int(value):
        raise UserError(f"{key} must be a whole number from {low} to {high}, not {show(value)}.")
    if not low <= value <= high:
        raise UserError(f"{key} must be from {low} to {high}, not {show(value)}.")
    return int(value)


def flag(raw: Mapping[str, Any], key: str, default: bool) -> bool:
    value = raw.get(key, default)
    if not isinstance(value, bool):
        raise UserError(f"{key} must be true or false, not {show(value)}.")
    return value


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def choice(raw: Mapping[str, Any], key: str, kind: type[StrEnum], default: Any) -> Any:
    """Return the member of ``kind`` whose value is ``raw[key]``; ``default`` if it is missing or None."""
    value = raw.get(key)
    if value is None:
        return default
    names = [str(member) for member in kind]
    if not isinstance(value, str) or value not in names:
        raise UserError(f"{key} must be one of: {', '.join(names)}; got {show(value)}.")
    return kind(value)


def show(value: object) -> str:
    """Return a short, one-line description of any value, for messages."""
    if isinstance(value, list | dict | tuple | set):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a huge number"
    text = repr(value[:41] if isinstance(value, str) else value)
    return text if len(text) <= 40 else text[:37] + "..."


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names for a sentence, such as "a, b and 4 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's message without its final mark; the error's type if it is empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:200].rstrip(" .:;!")


def missing_part(kind: DrafterKind) -> UserError:
    needed = NEEDED_NAMES[kind.drafting_kind(()).needs]
    return UserError(f"No {needed} is available for the drafter {kind.name}; choose another drafter.")


def unknown_pair(name: object, names: Iterable[str]) -> UserError:
    return UserError(f"Unknown pair of models {show(name)}; choose one of: {', '.join(names)}.")


def require_precision(name: object) -> None:
    if name not in PRECISIONS:
        raise UserError(f"Unknown precision {show(name)}; choose one of: {', '.join(PRECISIONS)}.")
