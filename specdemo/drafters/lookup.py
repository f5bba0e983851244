"""Prompt lookup (Saxena 2023): copies what followed the same tokens earlier in the text, without a model."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from specdemo.drafters.factory import DrafterSpec, make_local
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, copied_draft
from specdemo.records.drafter_kinds import KINDS, PROMPT_LOOKUP

LONGEST_MATCH = 3
SHORTEST_COPY = 2
"""Minimum matching tokens for a copy in a combined drafter; after fewer, a model does better."""


class NgramIndex:
    """The position after the latest occurrence of each run of 1 to ``LONGEST_MATCH`` tokens."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def extend(self, text: Sequence[int]) -> None:
        """Index the new tokens of ``text``, which only grows, except its end, which nothing follows yet."""
        for end in range(self._indexed, len(text)):
            for size in range(1, min(LONGEST_MATCH, end) + 1):
                self._after[tuple(text[end - size : end])] = end
        self._indexed = max(self._indexed, len(text))

    def find(self, text: Sequence[int], shortest: int) -> tuple[int, int] | None:
        """Return the position after the latest match of the longest possible end of ``text``, and its length.

        Returns:
            None if fewer than ``shortest`` tokens match.
        """
        for size in range(min(LONGEST_MATCH, len(text)), shortest - 1, -1):
            position = self._after.get(tuple(text[-size:]))
            if position is not None:
                return position, size
        return None


class PromptLookupDrafter(Drafter):
    """Copies what followed the latest earlier occurrence of the text's last tokens.

    It pays if the text repeats itself: edits, code, lists, and a small model that goes in circles.

    Args:
        device: Device of the target.
        shortest: Minimum number of tokens that must match.
    """

    def __init__(self, device: torch.device, shortest: int = 1):
        self._device = device
        self._shortest = shortest
        self._index = NgramIndex()

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        self._index = NgramIndex()
        self._index.extend(prompt_ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        self._index.extend(text)
        found = self._index.find(text, self._shortest)
        if found is None:
            return copied_draft([], 1, length, self._device, PROMPT_LOOKUP)
        position, matched = found
        return copied_draft(_read_on(text, position), matched, length, self._device, PROMPT_LOOKUP)


class FirstOf(Drafter):
    """Asks several drafters in turn and takes the first draft that is not empty."""

    def __init__(self, drafters: Sequence[Drafter]):
        self._drafters = drafters
        self._asked_last = drafters[-1]

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        for drafter in self._drafters:
            drafter.begin(prompt_ids, capacity)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        *free, last = self._drafters
        for drafter in free:
            draft = drafter.propose(text, length, rule)
            if len(draft):
                self._asked_last = drafter
                return draft
        self._asked_last = last
        return last.propose(text, length, rule)

    def observe(self, accepted: int) -> None:
        """Pass the verdict to the drafter of the last draft; the cache of another one stays valid."""
        self._asked_last.observe(accepted)


def make(spec: DrafterSpec) -> Drafter:
    """Return prompt lookup, alone or followed by the drafter for rounds without a match."""
    device, other = spec.target.device, spec.kind.otherwise
    if not other:
        return PromptLookupDrafter(device)
    return FirstOf([PromptLookupDrafter(device, SHORTEST_COPY), make_local(replace(spec, kind=KINDS[other]))])


def _read_on(text: Sequence[int], position: int) -> Iterator[int]:
    """Yield the tokens from ``position`` on; past the end of the text the copy continues with itself."""
    period = len(text) - position
    for offset in itertools.count():
        yield text[position + offset % period]
