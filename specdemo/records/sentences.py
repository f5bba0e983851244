"""Say in one plain sentence what a run showed. Words only; every figure comes from ``figures``."""

from typing import NamedTuple

from specdemo.records.drafter_kinds import KINDS
from specdemo.records.figures import Totals
from specdemo.records.theory import best_length
from specdemo.records.trace import AUTO, Calibration, Finish, Rule, RunConfig


class Badge(NamedTuple):
    """The verdict on sameness: ``kind`` is ``same``, ``different`` or ``distribution``."""

    kind: str
    text: str


def closing_sentence(
    totals: Totals, finish: Finish | None, config: RunConfig, calibration: Calibration | None
) -> str:
    """What happened, with the reason where speculation was slower.

    Args:
        totals: Without a speedup where the run was too short for one (``figures.without_early_speedup``).
        finish: Why the speculative lane ended.
        config: What was asked for.
        calibration: What passes were measured to cost, if they were.
    """
    stopped = finish is Finish.STOPPED
    sentences = ["Stopped early."] if stopped else []
    if totals.identical is not None:
        same = "Same text as far as both went." if stopped else "Same text."
        sentences.append(same if totals.identical else "Not the same text.")
    saved = totals.passes_saved
    passes = f"{saved:,} of {_count(totals.tokens, 'target pass', 'target passes')} saved"
    head = passes if saved else "No target pass saved"
    if _is_slower(totals):
        link = "yet" if saved else "and"
        why = _why_slower(totals, config, calibration)
        sentences.append(f"{head}, {link} {_times(totals)}: slower{why}.")
        return " ".join(sentences)
    if totals.speedup is not None:
        head = f"{head}: {_times(totals)}"
    elif config.baseline:
        head = f"{head}, too few tokens to tell a speed"
    sentences.append(f"{head}.")
    if totals.alpha_drafted is None:
        nothing = _nothing_drafted(config, calibration)
        sentences.append(f"{nothing[0].upper()}{nothing[1:]}.")
    elif totals.alpha_compared is not None:
        sentences.append(f"{_guesses_right(totals)}.")
    return " ".join(sentences)


def pieces_sentence(totals: Totals, finish: Finish | None) -> str:
    """What happened where a watched server does not tell its rounds."""
    stopped = "Stopped early. " if finish is Finish.STOPPED else ""
    speed = f" ({_times(totals)})" if totals.speedup is not None else ""
    return f"{stopped}{_count(totals.tokens, 'piece')} of text in {totals.seconds:.2f} s{speed}."


def badge(totals: Totals, rule: Rule) -> Badge | None:
    """The badge beside the closing sentence; None where no baseline ran."""
    if not totals.baseline_tokens:
        return None
    if rule is Rule.REJECTION:
        return Badge(
            "distribution", "Same distribution, another draw: the tokens differ by chance, not in kind."
        )
    if totals.divergence is None:
        return Badge("same", "Identical to the target alone, token for token.")
    gap = (
        ""
        if totals.divergence_gap is None
        else f" (the target's top two are {totals.divergence_gap:.4f} apart there)"
    )
    position = totals.divergence + 1
    return Badge("different", f"Differs from the target alone from output token {position} on{gap}.")


def departure_sentence(totals: Totals, rule: Rule) -> str | None:
    """How far the draft model by itself wrote the target's text; None where it did not run."""
    if not totals.draft_alone_tokens:
        return None
    if rule is Rule.REJECTION:
        return "The draft alone is another draw; the two cannot be compared token by token."
    if totals.draft_alone_departs is not None:
        return f"The draft alone leaves the target's text at token {totals.draft_alone_departs + 1}."
    target_tokens = totals.baseline_tokens or totals.tokens
    if totals.draft_alone_tokens == target_tokens:
        return f"The draft alone wrote the same {_count(target_tokens, 'token')}."
    both = _count(min(totals.draft_alone_tokens, target_tokens), "token")
    return f"The draft alone wrote the target's text as far as both went, {both}."


def _is_slower(totals: Totals) -> bool:
    """Whether the speedup reads as less than 1; what is shown as 1.00× is not called slower."""
    return totals.speedup is not None and round(totals.speedup, 2) < 1.0


def _times(totals: Totals) -> str:
    return f"{totals.speedup:.2f}× as fast"


def _why_slower(totals: Totals, config: RunConfig, calibration: Calibration | None) -> str:
    """The clause behind "slower"."""
    if totals.alpha_drafted is None:
        return f", because {_nothing_drafted(config, calibration)}"
    if totals.alpha_compared is None:
        return ""
    right = _guesses_right(totals)
    if calibration is None:
        return f"; {right}"
    if totals.break_even_alpha is None:
        return f", because a draft costs more here than it could win were every guess right; {right}"
    best = best_length(totals.alpha_compared, calibration.c, calibration.v)
    if config.k != AUTO and 0 < best < config.k and totals.alpha_compared < totals.break_even_alpha:
        return f", because k = {config.k} drafts more than is kept: {right}, and k = {best} would suit that"
    needed = f"{totals.break_even_alpha:.0%}"
    if totals.alpha_compared < totals.break_even_alpha:
        return f", because only {right}; it would need {needed} accepted to break even"
    return (
        f", because its passes took longer than those measured before the run; {right}, "
        f"and {needed} accepted should break even"
    )


def _nothing_drafted(config: RunConfig, calibration: Calibration | None) -> str:
    """The clause that says that, and why, no round had a draft."""
    kind = KINDS[config.drafter]
    if not kind.computes:
        return f"nothing was drafted{kind.silence and ': '}{kind.silence}"
    if config.k != AUTO or calibration is None or len(calibration.v) < 2:
        return "nothing was drafted"
    price = (calibration.c + calibration.v[1] - calibration.v[0]) / calibration.v[0]
    return f"auto drafted nothing: a guess costs {price:.0%} of a target pass here, more than it promised"


def _guesses_right(totals: Totals) -> str:
    return f"{totals.alpha_compared:.0%} of the compared guesses were right"


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
