"""Prompt lookup (Saxena 2023): drafts without a model, by copying from earlier text."""

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
"""Minimum number of matching tokens for a copy in a combined drafter. With fewer, the other one is better."""


class NgramIndex:
    """The position after the latest occurrence of each run of 1 to ``LONGEST_MATCH`` tokens."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def extend(self, text: Sequence[int]) -> None:
        """Index the n-grams of the tokens added to ``text`` since the last call, if a token follows them."""
        for end in range(self._indexed, len(text)):
            for size in range(1, min(LONGEST_MATCH, end) + 1):
                self._after[tuple(text[end - size : end])] = end
        self._indexed = max(self._indexed, len(text))

    def find(self, text: Sequence[int], shortest: int) -> tuple[int, int] | None:
        """Find the longest n-gram at the end of ``text`` that occurred before.

        Args:
            text: The text that was indexed.
            shortest: Minimum length of the n-gram.

        Returns:
            The position after its latest earlier occurrence, and the n-gram's length; None if there is none.
        """
        for size in range(min(LONGEST_MATCH, len(text)), shortest - 1, -1):
            position = self._after.get(tuple(text[-size:]))
            if position is not None:
                return position, size
        return None


class PromptLookupDrafter(Drafter):
    """Copies the tokens that followed the latest earlier occurrence of the text's last tokens.

    This works well if the text repeats itself: edits, code, lists, or a small model that goes in circles.

    Args:
        device: Device of the target.
        shortest: Minimum number of last tokens that must occur earlier.
    """

    def __init__(self, device: torch.device, shortest: int = 1):
        self._device = device
        self._shortest = shortest
        self._index = NgramIndex()
        self._prompt: list[int] = []

    def begin(self, capacity: int) -> None:
        self._index = NgramIndex()
        self._prompt = []

    def prefill(self, ids: Sequence[int]) -> None:
        self._prompt += ids
        self._index.extend(self._prompt)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        self._index.extend(text)
        found = self._index.find(text, self._shortest)
        if found is None:
            return copied_draft([], 1, length, self._device, PROMPT_LOOKUP)
        position, matched = found
        return copied_draft(_read_on(text, position), matched, length, self._device, PROMPT_LOOKUP)


class FallbackDrafter(Drafter):
    """Calls several drafters in turn and returns the first draft that is not empty."""

    def __init__(self, drafters: Sequence[Drafter]):
        self._drafters = drafters
        self._asked_last = drafters[-1]

    def begin(self, capacity: int) -> None:
        for drafter in self._drafters:
            drafter.begin(capacity)

    def prefill(self, ids: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.prefill(ids)

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
        """Tell the drafter that was called last; the caches of the other drafters stay valid."""
        self._asked_last.observe(accepted)


def make(spec: DrafterSpec) -> Drafter:
    """Return prompt lookup, alone or combined with the kind in ``fallback`` for rounds without a match."""
    device, other = spec.target.device, spec.kind.fallback
    if not other:
        return PromptLookupDrafter(device)
    return FallbackDrafter(
        [PromptLookupDrafter(device, SHORTEST_COPY), make_local(replace(spec, kind=KINDS[other]))]
    )


def _read_on(text: Sequence[int], position: int) -> Iterator[int]:
    """Yield the tokens of ``text`` from ``position`` to its end, repeated forever."""
    period = len(text) - position
    for offset in itertools.count():
        yield text[position + offset % period]
