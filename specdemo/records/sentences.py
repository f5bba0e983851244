"""Say in one plain sentence what a run showed. Words only; every figure comes from ``figures``."""

from typing import NamedTuple

from specdemo.records.figures import Totals
from specdemo.records.trace import Finish, Rule


class Badge(NamedTuple):
    """The verdict on sameness: ``kind`` is ``same``, ``different`` or ``distribution``."""

    kind: str
    text: str


def closing_sentence(totals: Totals, finish: Finish | None) -> str:
    """What happened, with the reason where speculation was slower."""
    stopped = "Stopped early. " if finish is Finish.STOPPED else ""
    passes = f"{_count(totals.passes, 'target pass', 'target passes')} instead of {totals.tokens}"
    if totals.speedup is None:
        return (
            f"{stopped}{_count(totals.tokens, 'token')} in {passes}{_right(totals, '; the draft was right')}."
        )
    subject = "Same " if totals.identical else ""
    reference = " as the target alone" if totals.identical else ""
    head = f"{stopped}{subject}{_count(totals.tokens, 'token')}{reference}, in {passes}: "
    if totals.speedup >= 1.0:
        return f"{head}{totals.speedup:.2f}× faster{_right(totals, '; the draft was right')}."
    return f"{head}{totals.speedup:.2f}×, slower: {_why_slower(totals)}."


def badge(totals: Totals, rule: Rule) -> Badge | None:
    """The badge beside the closing sentence; None where no baseline ran."""
    if not totals.baseline_tokens:
        return None
    if rule is Rule.REJECTION:
        return Badge(
            "distribution", "Same distribution, another draw: the tokens differ by chance, not in kind."
        )
    if totals.divergence is None:
        return Badge("same", "Identical to the baseline, token for token.")
    gap = (
        ""
        if totals.divergence_gap is None
        else f" (the target's top two are {totals.divergence_gap:.4f} apart there)"
    )
    return Badge("different", f"Differs from the baseline from output token {totals.divergence + 1} on{gap}.")


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


def _why_slower(totals: Totals) -> str:
    if totals.alpha_compared is None:
        return "nothing was drafted, so nothing could be gained"
    right = _right(totals, "the draft was right")
    if totals.break_even_alpha is None:
        return f"{right}; at this cost and draft length no acceptance rate breaks even"
    threshold = f"{totals.break_even_alpha:.0%}"
    if totals.alpha_compared >= totals.break_even_alpha:
        return f"{right}, past the {threshold} of the theory, but this run's passes were dearer than measured"
    return f"{right}; at this cost it breaks even at {threshold}"


def _right(totals: Totals, words: str) -> str:
    return "" if totals.alpha_compared is None else f"{words} {totals.alpha_compared:.0%} of the time"


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
