"""Prompt lookup (Saxena 2023): drafts without a model, by copying from earlier text."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from specdemo.drafters.factory import DrafterSpec
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, copied_draft, empty_draft
from specdemo.records.drafter_kinds import PROMPT_LOOKUP

LONGEST_MATCH = 12


class Match(NamedTuple):
    """An earlier occurrence of the last tokens of a text."""

    next_position: int  # the position after the occurrence
    size: int  # number of matching tokens


class NgramIndex:
    """The position after the latest occurrence of each run of 1 to ``LONGEST_MATCH`` tokens."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def extend(self, text: Sequence[int]) -> None:
        """Index the n-grams in ``text`` that a token follows; earlier calls had the start of the text."""
        for end in range(self._indexed, len(text)):
            for size in range(1, min(LONGEST_MATCH, end) + 1):
                self._after[tuple(text[end - size : end])] = end
        self._indexed = max(self._indexed, len(text))

    def find(self, text: Sequence[int], shortest: int) -> Match | None:
        """Find the longest end of ``text`` that occurred before, of at least ``shortest`` tokens."""
        for size in range(min(LONGEST_MATCH, len(text)), shortest - 1, -1):
            position = self._after.get(tuple(text[-size:]))
            if position is not None:
                return Match(position, size)
        return None


class PromptLookupDrafter(Drafter):
    """Copies the tokens that followed the latest earlier occurrence of the text's last tokens.

    At least ``shortest`` tokens must match. This works well if the text repeats itself: edits, code, lists,
    or a small model that goes in circles.
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
        match = self._index.find(text, self._shortest)
        if match is None:
            return empty_draft(self._device)
        tokens = _repeated(text, match.next_position)
        return copied_draft(tokens, match.size, length, self._device, PROMPT_LOOKUP)


def make(spec: DrafterSpec) -> PromptLookupDrafter:
    return PromptLookupDrafter(spec.target.device)


def _repeated(text: Sequence[int], position: int) -> Iterator[int]:
    """Yield the tokens of ``text`` from ``position`` to its end, repeated forever."""
    period = len(text) - position
    for offset in itertools.count():
        yield text[position + offset % period]
