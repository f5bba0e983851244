"""Drafting by copying: what followed the last time these tokens were seen. No model.

Prompt lookup (Saxena 2023; "n-gram" drafting), alone or in front of another drafter. It pays where
text repeats itself: edits, code, lists, and a small model going in circles.
"""

import itertools
from collections.abc import Iterator, Sequence

import torch

from specdemo.drafters.order import Order, make_otherwise
from specdemo.engine.draft import Draft
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Drafter, copied_draft
from specdemo.engine.rules import PickingRule
from specdemo.records.drafter_kinds import PROMPT_LOOKUP

LONGEST_MATCH = 3
SHORTEST_COPY = 2
"""Tokens that must match before a copy is preferred to another draft."""


class NgramIndex:
    """Where each run of 1 to ``LONGEST_MATCH`` tokens was last followed by another token."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def extend(self, text: Sequence[int]) -> None:
        """Take in what is new in ``text``, which only ever grows. Its end is left out: nothing follows it."""
        for end in range(self._indexed, len(text)):
            for size in range(1, min(LONGEST_MATCH, end) + 1):
                self._after[tuple(text[end - size : end])] = end
        self._indexed = max(self._indexed, len(text))

    def find(self, text: Sequence[int], shortest: int) -> tuple[int, int] | None:
        """Position after the latest match of the longest possible end of ``text``, and the match's length."""
        for size in range(min(LONGEST_MATCH, len(text)), shortest - 1, -1):
            position = self._after.get(tuple(text[-size:]))
            if position is not None:
                return position, size
        return None


class PromptLookupDrafter:
    """Copies what followed the latest earlier occurrence of the text's last tokens.

    Args:
        shortest: Least number of tokens that must match.
    """

    def __init__(self, device: torch.device, shortest: int = 1):
        self._device = device
        self._shortest = shortest
        self._index = NgramIndex()

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Take in the prompt."""
        self._index = NgramIndex()
        self._index.extend(prompt_ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """A copy, or nothing where nothing matches."""
        self._index.extend(text)
        found = self._index.find(text, self._shortest)
        if found is None:
            return copied_draft([], 1, length, self._device, PROMPT_LOOKUP)
        position, matched = found
        return copied_draft(_read_on(text, position), matched, length, self._device, PROMPT_LOOKUP)

    def observe(self, accepted: int) -> None:
        """What was kept will be in the text."""


class FirstOf:
    """Asks several drafters in turn and takes the first draft that there is.

    A match of one token is no evidence, so copying needs ``SHORTEST_COPY`` here: a model is better than that.
    """

    def __init__(self, drafters: Sequence[Drafter]):
        self._drafters = drafters
        self._asked_last = drafters[-1]

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """All start."""
        for drafter in self._drafters:
            drafter.begin(prompt_ids, capacity)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """The first draft that is not empty, else the last drafter's."""
        *free, last = self._drafters
        for drafter in free:
            draft = drafter.propose(text, length, rule)
            if len(draft):
                self._asked_last = drafter
                return draft
        self._asked_last = last
        return last.propose(text, length, rule)

    def observe(self, accepted: int) -> None:
        """To whoever drafted. A model's cache is a prefix of the text; others' drafts change nothing."""
        self._asked_last.observe(accepted)


def make(order: Order) -> Drafter:
    """Copying alone, or before the kind that is asked where nothing is to be copied."""
    device, other = order.target.device, make_otherwise(order)
    if other is None:
        return PromptLookupDrafter(device)
    return FirstOf([PromptLookupDrafter(device, SHORTEST_COPY), other])


def _read_on(text: Sequence[int], position: int) -> Iterator[int]:
    """Tokens from ``position`` on; past the end of the text the copy goes on with itself."""
    period = len(text) - position
    for offset in itertools.count():
        yield text[position + offset % period]
