"""Sentences that summarize a run; ui/static/live/sentences.js has those of runs in a browser."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from specdemo.records.drafter_kinds import KINDS
from specdemo.records.figures import REPETITIVE, Totals
from specdemo.records.spread import Spread
from specdemo.records.theory import best_length, is_slower
from specdemo.records.trace import AUTO, Calibration, Finish, Rule, RunConfig


class Badge(NamedTuple):
    """The result of comparing the speculative text with the baseline's.

    ``kind`` is ``same``, ``different``, or ``distribution`` if the texts are independent samples.
    """

    kind: str
    text: str


class Doubt(StrEnum):
    """A reason not to trust a speedup, as the page shows it next to the figure."""

    DISTURBED = "disturbed"
    ABOVE_TAU = "above τ"
    UNDECIDED = "undecided"  # the interval shows this by itself


DISTURBED = "Pass times were uneven; other work may have disturbed the run."
DOUBTS = {
    Doubt.DISTURBED: DISTURBED,
    Doubt.ABOVE_TAU: "A speedup above τ is not possible; other work slowed the target alone.",
}
END_TO_END = 0.03  # minimum relative difference of the end-to-end speedup that a remark mentions


def closing_sentence(
    totals: Totals, finish: Finish | None, config: RunConfig, calibration: Calibration | None
) -> str:
    """Compare texts, speed, target passes and acceptance rate; give a reason if the run was slower."""
    stopped = finish is Finish.STOPPED
    same = {True: "Same text so far" if stopped else "Same text", False: "Different text", None: ""}
    text, passes = same[totals.identical], _passes(totals)
    sentences = ["Stopped early."] if stopped else []
    slower = is_slower(totals.speedup)
    if totals.speedup is None:
        sentences.append(f"{text}, {passes}." if text else f"{passes}.")
        if config.baseline:
            sentences.append("Too few tokens to measure a speed.")
    elif slower:
        sentences += [f"{text}."] if text else []
        sentences.append(f"Slower: {_speed(totals)}, {passes}.")
    elif text:
        sentences.append(f"{text} at {totals.speedup:.2f}× the speed, {passes}.")
    else:
        sentences.append(f"{_speed(totals)}, {passes}.")
    if totals.alpha_drafted is None:
        sentences.append(_nothing_drafted(config, calibration))
    elif totals.alpha_compared is not None:
        sentences.append(f"Acceptance rate α {share(totals.alpha_compared)}.")
        if slower and calibration is not None:
            sentences.append(_why_slower(totals.alpha_compared, totals.break_even_alpha, config, calibration))
    return " ".join(sentences)


def doubt(totals: Totals, trusted: Spread | None, speedups: Sequence[float] = ()) -> Doubt | None:
    """Return why the speedup of a run, finished or not, cannot be trusted; None if it can.

    ``speedups`` are those of all measured runs, in ascending order. A round takes at least as long as a
    pass of the target alone, so only other work can raise a speedup above τ.
    """
    repeated = len(speedups) > 1
    if trusted and trusted.disturbed and not repeated:
        return Doubt.DISTURBED
    # 1. Noise alone can lift a speedup of about 1 above a τ of about 1.
    interval = (trusted.low, trusted.high) if trusted else None
    if repeated:
        interval = speedups[0], speedups[-1]
    if interval and interval[0] <= 1 <= interval[1]:
        return Doubt.UNDECIDED
    # 2. No interval explains this one.
    if totals.speedup is not None and totals.tau is not None and totals.speedup > totals.tau:
        return Doubt.ABOVE_TAU
    return None


def remarks(
    totals: Totals,
    finish: Finish | None,
    distinct: float | None,
    trusted: Spread | None,
    speedups: Sequence[float],
) -> str:
    """Return sentences about what else decides how to read the figures; empty if there is nothing.

    ``distinct`` is the share from ``figures.distinct_share``; ``speedups`` are those of all measured runs.
    """
    doubted = doubt(totals, trusted, speedups)
    sentences = []
    whole = totals.speedup_end_to_end
    if whole and totals.speedup and abs(whole / totals.speedup - 1) > END_TO_END:
        if is_slower(whole) and not is_slower(totals.speedup):
            sentences.append("Slower than the target alone if prompt processing counts.")
        sentences.append(f"With prompt processing: {whole:.2f}×.")
    if len(speedups) > 1:
        sentences.append(f"Median of {len(speedups)} runs ({speedups[0]:.2f}× to {speedups[-1]:.2f}×).")
    elif doubted is Doubt.UNDECIDED and trusted:
        sentences.append(
            f"Faster or slower is undecided: 95 % interval {trusted.low:.2f}× to {trusted.high:.2f}×."
        )
    if doubted is not None and doubted in DOUBTS:
        sentences.append(DOUBTS[doubted])
    if finish is not Finish.STOPPED:
        sentences += _order_of_ends(totals)
    if distinct is not None and distinct < REPETITIVE and totals.passes_saved:
        sentences.append("The output repeats itself, which is easy to predict and raises the speedup.")
    return " ".join(sentences)


def pieces_sentence(totals: Totals, finish: Finish | None) -> str:
    """Summarize the run of a watched server that does not report its rounds."""
    stopped = "Stopped early. " if finish is Finish.STOPPED else ""
    speed = "" if totals.speedup is None else f", {_speed(totals)}"
    return f"{stopped}{count(totals.tokens, 'piece')} of text in {totals.seconds:.2f} s{speed}."


def badge(totals: Totals, rule: Rule) -> Badge | None:
    """Return the badge next to the closing sentence; None without a baseline."""
    if not totals.baseline_tokens:
        return None
    if not rule.same_text:
        return Badge("distribution", "Another sample, same distribution.")
    if totals.divergence is None:
        return Badge("same", "Identical to the target alone, token for token.")
    gap = totals.divergence_gap
    apart = "" if gap is None else f"; the target's top two tokens are {gap:.4f} apart there"
    return Badge(
        "different", f"Differs from the target alone from output token {totals.divergence + 1} on{apart}."
    )


def draft_divergence_sentence(totals: Totals, rule: Rule) -> str | None:
    """Compare the draft model's own text with the target's; None if it did not run alone."""
    if not totals.draft_alone_tokens:
        return None
    if not rule.same_text:
        return "The draft model alone drew a sample of its own, which cannot be compared token by token."
    if totals.draft_divergence is not None:
        token = totals.draft_divergence + 1
        return f"The text of the draft model alone differs from the target's text from token {token} on."
    target_tokens = totals.baseline_tokens or totals.tokens
    shorter = count(min(totals.draft_alone_tokens, target_tokens), "token")
    same = "same" if totals.draft_alone_tokens == target_tokens else "same first"
    return f"The draft model alone wrote the {same} {shorter} as the target."


def _speed(totals: Totals) -> str:
    return f"{totals.speedup:.2f}× the speed of the target alone"


def _passes(totals: Totals) -> str:
    passes = count(totals.passes, "target pass", "target passes")
    if totals.baseline_tokens not in (0, totals.tokens):
        alone = count(totals.baseline_passes, "pass", "passes")
        tokens = count(totals.baseline_tokens, "token")
        return f"{passes} for {count(totals.tokens, 'token')} (target alone: {alone} for {tokens})"
    return (
        f"{passes} instead of {totals.tokens:,}" if totals.passes_saved else f"{passes}, one for each token"
    )


def _order_of_ends(totals: Totals) -> list[str]:
    """Return a sentence if only the lengths of the texts explain which lane ends first."""
    speedup = totals.speedup_end_to_end
    if speedup is None:
        return []
    lengths = f"{count(totals.tokens, 'token')} against {totals.baseline_tokens:,}"
    # The speculative lane ends later if its text is longer by a factor above the speedup.
    if 1 <= speedup < totals.tokens / totals.baseline_tokens:
        return [f"The speculative lane ends later because its text is longer: {lengths}."]
    if totals.tokens / totals.baseline_tokens < speedup < 1:
        return [f"The speculative lane ends earlier because its text is shorter: {lengths}."]
    return []


def _why_slower(alpha: float, break_even: float | None, config: RunConfig, calibration: Calibration) -> str:
    if break_even is None:
        return "Drafting costs more here than it can save at any acceptance rate."
    if alpha >= break_even:
        return (
            f"Calibration gave a break-even acceptance rate of {share(break_even)}, but this run was slower."
        )
    best = best_length(alpha, calibration.c, calibration.v)
    if config.k != AUTO and 0 < best < config.k:
        return f"A draft length of {count(config.k, 'token')} is too long for this text. Try k = {best}."
    return f"The break-even acceptance rate is {share(break_even)}."


def _nothing_drafted(config: RunConfig, calibration: Calibration | None) -> str:
    kind = KINDS[config.drafter]
    if config.max_new_tokens == 1:
        return "Nothing was drafted: one new token needs no draft."
    if kind.empty_reason:
        return f"Nothing was drafted: {kind.empty_reason}."
    if not kind.computes or config.k != AUTO or calibration is None or len(calibration.v) < 2:
        return "Nothing was drafted."
    price = (calibration.c + calibration.v[1] - calibration.v[0]) / calibration.v[0]
    return (
        f"Nothing was drafted: a draft token costs {share(price)} of a target pass here, more than it saves."
    )


def count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def share(value: float) -> str:
    """Return a share in whole percent. Halves are rounded up, as in the browser, which shows the same."""
    return f"{math.floor(100 * value + 0.5)}%"
