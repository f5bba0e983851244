"""Words that the sentences of Play are made of: names of drafters, numbers with their nouns, quotations."""

from typing import NamedTuple

from specdemo.records.drafter_kinds import KINDS
from specdemo.records.pieces import inside_sentence

_UNSEEN = {"\n": "a line break", "\t": "a tab", "": "nothing"}


class Name(NamedTuple):
    """What a drafter is called: by itself, and within a sentence."""

    title: str
    inside: str


def name_of(drafter: str) -> Name:
    """What the drafter beside those who play is called, by its kind."""
    inside = KINDS[drafter].who.format(draft="the draft model")
    return Name(inside.removeprefix("the ").capitalize(), inside)


def share(rate: float | None) -> str:
    """An acceptance rate, or that nothing was compared."""
    return "nothing" if rate is None else f"{rate:.0%}"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def quoted(text: str) -> str:
    """``text`` without the space around it in quotation marks, or what it is if nothing can be seen of it."""
    return f"“{inside_sentence(text.strip())}”" if text.strip() else _UNSEEN.get(text[:1], "a space")
