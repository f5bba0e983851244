"""Readers of what llama.cpp, vLLM, SGLang and LM Studio print about their drafts."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import mean, median
from typing import Any

from specdemo.records.limits import UserError, number, require_known, show
from specdemo.records.theory import ratio

MAX_PASTED = 100_000
"""The maximum number of characters of a pasted text."""
MAX_VALUE = 1e9
ROUNDED = 0.005
"""The largest rounding error of a number with two decimals."""

DRAFTED, PER_SLOT, AFTER_REJECTION = "drafted", "per slot", "after rejection"
"""Printed acceptance rates: accepted ÷ drafted; τ ÷ (k + 1); and the share of all draft tokens that agree
with the target, also after a rejected one."""


@dataclass(frozen=True)
class Reading:
    """The numbers of a run; None if they are unknown. Rates are tokens/s of all users together."""

    plain_rate: float | None = None  # without drafts
    rate: float | None = None  # with drafts
    draft_rate: float | None = None  # the draft model alone
    k: float | None = None  # the draft length, or its maximum
    tau: float | None = None
    tokens: float | None = None
    accepted: float | None = None
    drafted: float | None = None
    compared: float | None = None
    rounds: float | None = None  # only those with a draft
    alpha: float | None = None  # as printed
    alpha_kind: str = DRAFTED
    positions: tuple[float, ...] = ()  # the shares of drafts whose first 1, 2, … tokens were all accepted
    draft_ms: float | None = None  # of a draft token
    users: float | None = None
    context: float | None = None  # prompt tokens
    elsewhere: float | None = None  # the acceptance rate of the same models and prompt in a different setup


FORM = {
    "plain_rate": (1e-3, 1e6),
    "rate": (1e-3, 1e6),
    "draft_rate": (1e-3, 1e6),
    "k": (1, 1_000),
    "tau": (1, 1_000),
    "acceptance": (0, 100),
    "elsewhere": (0, 100),
    "users": (1, 1e6),
    "context": (1, 1e8),
}
"""The numbers of the form, with their bounds. ``acceptance`` and ``elsewhere`` are percentages."""

_N = r"(\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d{1,3})?)"
_LAST = [
    # llama.cpp
    ("accepted", rf"\( *{_N} accepted */"),
    ("drafted", rf"accepted */ *{_N} generated"),
    ("tau", rf"mean (?:acceptance length|len) *= *{_N}"),
    ("accepted", rf"\bn_accept *= *{_N}"),
    ("drafted", rf"\bn_drafted *= *{_N}"),
    ("k", rf"\bn_draft *= *{_N}"),
    ("tokens", rf"\bn_predict *= *{_N}"),
    ("tokens", rf"(?<!prompt )\beval time *= *[\d.]+ ms */ *{_N} tokens"),
    ("rate", rf"(?<!prompt )\beval time *= *[\d.]+ ms */ *\d+ tokens *\([^,()]*, *{_N} tokens per second"),
    ("rate", rf"\bdecoded *\d+ tokens in *[\d.]+ seconds, speed: *{_N}"),
    ("context", rf"prompt eval time *= *[\d.]+ ms */ *{_N} tokens"),
    ("accepted", rf'"draft_n_accepted" *: *{_N}'),
    ("drafted", rf'"draft_n" *: *{_N}'),
    ("tokens", rf'"predicted_n" *: *{_N}'),
    ("rate", rf'"predicted_per_second" *: *{_N}'),
    ("context", rf'"prompt_n" *: *{_N}'),
    # vLLM: what it prints after a batch job, the lines of version 0, and its answers
    ("rounds", rf"\bnum_drafts: *{_N}"),
    ("drafted", rf"\bnum_draft_tokens: *{_N}"),
    ("accepted", rf"\bnum_accepted_tokens: *{_N}"),
    ("tau", rf"\b[Mm]ean acceptance length: *{_N}"),
    ("k", rf"Number of speculative tokens: *{_N}"),
    ("drafted", rf"Number of draft tokens(?: tokens)?: *{_N}"),
    ("tokens", rf"Number of emitted tokens(?: tokens)?: *{_N}"),
    ("rounds", rf'"num_spec_steps" *: *{_N}'),
    ("drafted", rf'"num_draft_tokens" *: *{_N}'),
    ("accepted", rf'"num_accepted_draft_tokens" *: *{_N}'),
    # SGLang
    ("tau", rf"\bspec_accept_length\b[^\n\d]{{0,200}}{_N}"),
    # LM Studio
    ("accepted", rf'(?i:accepted_?draft_?tokens_?count)"? *[:=] *{_N}'),
    ("rejected", rf'(?i:rejected_?draft_?tokens_?count)"? *[:=] *{_N}'),
    ("drafted", rf'(?i:total_?draft_?tokens_?count)"? *[:=] *{_N}'),
    ("tokens", rf'(?i:predicted_?tokens_?count)"? *[:=] *{_N}'),
    ("rate", rf'(?i:tokens_?per_?second)"? *[:=] *{_N}'),
    # Only from the start of a number, otherwise a long list of numbers takes quadratic time.
    ("alpha_percent", rf"(?<!\d)(?<![\d,.][,.]){_N}% draft tokens accepted"),
]
_SUMMED = [
    ("accepted", rf"\bAccepted: *{_N} tokens"),
    ("drafted", rf"\bDrafted: *{_N} tokens"),
    ("rounds", rf"^vllm:spec_decode_num_drafts(?:_total)?(?:\{{[^}}\n]*\}})? +{_N}"),
    ("drafted", rf"^vllm:spec_decode_num_draft_tokens(?:_total)?(?:\{{[^}}\n]*\}})? +{_N}"),
    ("accepted", rf"^vllm:spec_decode_num_accepted_tokens(?:_total)?(?:\{{[^}}\n]*\}})? +{_N}"),
]
_FIELDS = [(name, re.compile(pattern, re.MULTILINE), False) for name, pattern in _LAST]
_FIELDS += [(name, re.compile(pattern, re.MULTILINE), True) for name, pattern in _SUMMED]
_POSITIONS = re.compile(r"(?:acceptance rate per position *= *\(|Per-position acceptance rate: *)([\d., ]*)")
_STATISTIC = re.compile(r"#(gen drafts|gen tokens|acc tokens) *= *(\d+)|dur\(b,g,a\) *= *[\d.]+, *([\d.]+)")
_THROUGHPUT = re.compile(rf"gen(?:eration)? throughput(?: \(token/s\))?: *{_N}")
_USERS = re.compile(rf"(?:Running: *|#running-req: *){_N}")
_SGLANG = re.compile(rf"accept len: *{_N}(?:, accept rate: *{_N})?")
_VLLM_0 = re.compile(rf"Draft acceptance rate: *{_N}, System efficiency: *{_N}")


def reading_from(raw: Mapping[str, Any]) -> Reading:
    """Return the reading of a form: pasted ``text``, and numbers of ``FORM``, which override the text."""
    require_known(raw, ("text", *FORM))
    text = raw.get("text") or ""
    if not isinstance(text, str):
        raise UserError(f"The pasted text must be a string, not {show(text)}.")
    given: dict[str, Any] = {
        name: number(raw, name, 0, *bounds) for name, bounds in FORM.items() if raw.get(name) is not None
    }
    if "acceptance" in given:
        given |= {"alpha": given.pop("acceptance") / 100, "alpha_kind": DRAFTED}
    if "elsewhere" in given:
        given["elsewhere"] /= 100
    reading = replace(read(text, given.get("k")), **given)
    if reading == Reading():
        raise UserError("No numbers were found; paste what the program prints, or fill in the fields.")
    return reading


def read(text: str, k: float | None = None) -> Reading:
    """Return what a program's output says; numbers that are missing, damaged or impossible are unknown.

    ``k`` is the draft length if it is known from elsewhere.
    """
    if len(text) > MAX_PASTED:
        raise UserError(f"The text has {len(text):,} characters; paste at most {MAX_PASTED:,}.")
    found: dict[str, Any] = {}
    for name, pattern, is_summed in _FIELDS:
        values = _numbers(pattern.findall(text))
        if values:
            found[name] = sum(values) if is_summed else values[-1]
    found |= _lines(text, k)
    if "SpecDecoding metrics" in text and found.get("drafted") and found.get("positions"):
        # All of vLLM's drafts have the same length.
        found["rounds"] = found["drafted"] / len(found["positions"])
    if "alpha_percent" in found:
        found["alpha"] = found.pop("alpha_percent") / 100
    if found.get("alpha_kind") == AFTER_REJECTION and {"tokens", "k", "drafted"} <= found.keys():
        found["tau"] = ratio(found.pop("tokens") * found["k"], found["drafted"])
    rejected = found.pop("rejected", None)
    if rejected is not None and "accepted" in found:
        found["compared"] = found["accepted"] + rejected
    return _possible(Reading(**found))


def _lines(text: str, k: float | None) -> dict[str, Any]:
    """Return the values whose meaning depends on the rest of their line or on other lines."""
    found: dict[str, Any] = {}
    rates: list[tuple[float, bool]] = []  # each throughput, and whether its interval had drafts
    users: list[float] = []
    positions: list[tuple[float, ...]] = []
    statistics: dict[str, dict[str, float]] = {}
    lengths: list[float] = []
    shares: list[float] = []
    for line in text.splitlines():
        if shown := _THROUGHPUT.search(line):
            rates += [(value, "accept len" in line) for value in _numbers(shown.groups()) if value >= 1]
        if "SpecDecoding metrics" in line or "Speculative metrics" in line:
            rates[-1:] = [(rate, True) for rate, _ in rates[-1:]]
        if shown := _USERS.search(line):
            users += _numbers(shown.groups())
        if shown := _POSITIONS.search(line):
            positions.append(tuple(_numbers(shown[1].split(","))))
        if shown := _SGLANG.search(line):
            lengths += _numbers([shown[1]])
            shares += _numbers([shown[2]])
        if shown := _VLLM_0.search(line):
            found |= {"alpha": _numbers([shown[1]])[-1], "alpha_kind": AFTER_REJECTION}
        if "statistics" in line:
            name = line.partition("statistics")[2].partition(":")[0].strip()
            statistics[name] = {
                key or "ms": float(value or ms)
                for key, value, ms in _STATISTIC.findall(line)
                if _fits(value or ms)
            }
    with_drafts = [rate for rate, drafted in rates if drafted]
    first = next((index for index, (_, drafted) in enumerate(rates) if drafted), 0)
    if with_drafts:
        found["rate"] = median(with_drafts)
    if first:
        found["plain_rate"] = median(rate for rate, _ in rates[:first])
    if users:
        found["users"] = max(1.0, median(users))
    if positions and len({len(one) for one in positions}) == 1:
        found["positions"] = tuple(mean(column) for column in zip(*positions, strict=True))
    if lengths:
        found |= _sglang(lengths, shares, k)
    found |= _drafting(statistics.values())
    return found


def _drafting(statistics: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return what llama.cpp's statistics say; each of its drafters has a line of its own."""
    used = [one for one in statistics if one.get("gen tokens")]
    sums = {key: sum(one.get(key, 0.0) for one in used) for key in ("gen tokens", "gen drafts", "ms")}
    if not sums["gen tokens"]:
        return {}
    timed = {"draft_ms": sums["ms"] / sums["gen tokens"]} if sums["ms"] else {}
    return timed | ({"k": sums["gen tokens"] / sums["gen drafts"]} if sums["gen drafts"] else {})


def _sglang(lengths: Sequence[float], shares: Sequence[float], k: float | None) -> dict[str, Any]:
    """Return τ, and what the accept rates mean, which depends on the version: τ ÷ (k + 1), or (τ − 1) ÷ k."""
    found: dict[str, Any] = {"tau": mean(lengths)}
    if len(shares) != len(lengths) or min(shares) <= ROUNDED:
        return found
    fitting = []
    for kind, own in ((PER_SLOT, 0), (DRAFTED, 1)):
        counts = [(length - own) / part for length, part in zip(lengths, shares, strict=True)]
        whole = round(mean(counts))
        errors = [(count + 1) * ROUNDED / part for count, part in zip(counts, shares, strict=True)]
        close = all(abs(count - whole) <= error for count, error in zip(counts, errors, strict=True))
        if close and k in (None, whole - 1 + own):
            fitting.append((kind, whole - 1.0 + own))
    if len(fitting) == 1:  # otherwise, the meaning of the rates is unknown
        found |= {"alpha": mean(shares), "alpha_kind": fitting[0][0], "k": fitting[0][1]}
    return found


def _possible(reading: Reading) -> Reading:
    """Remove numbers that contradict each other."""
    values = {field.name: getattr(reading, field.name) for field in fields(reading)}
    drafted, accepted, tokens = (values[name] for name in ("drafted", "accepted", "tokens"))
    if accepted is not None and drafted is not None and accepted > drafted:
        values |= {"accepted": None, "drafted": None, "compared": None}
    if accepted is not None and tokens is not None and accepted >= tokens:
        values["tokens"] = None
    for name in ("rate", "plain_rate", "k", "draft_ms"):
        values[name] = values[name] or None
    if values["tau"] is not None and values["tau"] < 1:
        values["tau"] = None
    if values["alpha"] is not None and values["alpha"] > 1:
        values["alpha"] = None
    if any(share > 1 for share in reading.positions) or [*reading.positions] != sorted(
        reading.positions, reverse=True
    ):
        values["positions"] = ()
    return Reading(**values)


def _numbers(texts: Sequence[str | None]) -> list[float]:
    values = [float(text.replace(",", "")) for text in texts if text and _fits(text)]
    return [value for value in values if value <= MAX_VALUE]


def _fits(text: str) -> bool:
    try:
        return math.isfinite(float(text.replace(",", "")))
    except ValueError:
        return False
