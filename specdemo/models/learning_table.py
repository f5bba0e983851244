"""A table of n-grams that goes on learning from what its target writes, in memory and within bounds.

A context is learned with the token that followed it most of the time. How far such a guess is to be
believed is counted, too: it is tried, before it is learned, on every token that the target wrote.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specdemo.models.n_gram import LONGEST, Guess, NGramTable, key_of

MOST_CONTEXTS = 100_000
"""Contexts learned at most, about 22 MB; the one that was met longest ago gives way."""
MOST_VISITS = 200
"""Visits whose figures are kept."""
MOST_TIMES = 4
"""Occurrences up to which contexts are told apart when it is counted how far their guesses hold."""
DOUBT = (1.0, 3.0)
"""Guesses of each sort that are taken to have been right and tried before any was."""


class _Context(NamedTuple):
    """What followed a context: the token, how often it did, and how often anything did."""

    token: int
    right: int
    seen: int


class _Sort(NamedTuple):
    """Guesses that are believed alike: by size of context, times right and times wrong, each cut off."""

    size: int
    right: int
    wrong: int


@dataclass
class _Score:
    """Guesses that were tried, and those that were the target's token."""

    right: int = 0
    tried: int = 0

    def take(self, token: int | None, right: int) -> None:
        self.tried += 1
        self.right += token == right


@dataclass(frozen=True)
class Visit:
    """How the table's guesses did on one text, before that was learned.

    Attributes:
        before: Share of the target's tokens that the table as it was shipped had guessed from those before:
            α of a first drafted token, silence counted as wrong.
        after: The same with what was learned from the visits before this one.
        tokens: How many of the target's there are.
    """

    before: float
    after: float
    tokens: int


class LearningTable:
    """Guesses of a table, or better ones of its own; the table is never changed, and nothing is written.

    Its methods may be called on any thread.

    Args:
        table: The one to improve.

    Attributes:
        texts: How many were learned from.
        vocabulary: How many ids the target has.
    """

    def __init__(self, table: NGramTable):
        self._table = table
        self._contexts: OrderedDict[int, _Context] = OrderedDict()
        self._worth: dict[_Sort, _Score] = {}
        self._visits: deque[Visit] = deque(maxlen=MOST_VISITS)
        self._lock = threading.Lock()
        self.texts = 0
        self.vocabulary = table.vocabulary

    def __len__(self) -> int:
        """Contexts learned."""
        return len(self._contexts)

    @property
    def visits(self) -> list[Visit]:
        """The latest, the oldest first."""
        with self._lock:
            return list(self._visits)

    def after(self, text: Sequence[int]) -> Guess | None:
        """What follows ``text`` by what was learned or by the table, whichever is more certain."""
        with self._lock:
            return self._better(self._table.after(text), self._known(text))

    def learn(self, text: Sequence[int], start: int) -> None:
        """Take in a text of ids, of which those from ``start`` on are the target's own."""
        shipped, learned = _Score(), _Score()
        with self._lock:
            places = [
                (text[max(0, place - LONGEST) : place], text[place]) for place in range(start, len(text))
            ]
            for context, token in places:
                guess, known = self._table.after(context), list(self._known(context))
                shipped.take(_token(guess), token)
                learned.take(_token(self._better(guess, known)), token)
                # Other texts are judged by, not this one: within a text far more is repeated.
                for size, found in known:
                    self._worth.setdefault(_sort_of(size, found), _Score()).take(found.token, token)
            for context, token in places:
                for size in range(1, len(context) + 1):
                    self._learn(context[-size:], token)
            if places:
                self.texts += 1
                self._visits.append(
                    Visit(shipped.right / len(places), learned.right / len(places), len(places))
                )

    def _better(self, guess: Guess | None, known: Iterable[tuple[int, _Context]]) -> Guess | None:
        """The table's ``guess`` or the surest of what is ``known``, of equals that of the longest context."""
        for size, found in known:
            chance = self._chance(_sort_of(size, found))
            if guess is None or chance >= guess.chance:
                guess = Guess(found.token, chance)
        return guess

    def _chance(self, sort: _Sort) -> float:
        score = self._worth.get(sort, _Score())
        return (score.right + DOUBT[0]) / (score.tried + DOUBT[1])

    def _known(self, text: Sequence[int]) -> Iterator[tuple[int, _Context]]:
        """What was learned of the contexts at the end of ``text``, with their sizes, the shortest first."""
        for size in range(1, min(LONGEST, len(text)) + 1):
            found = self._contexts.get(int(key_of(text[len(text) - size :])))
            if found is not None:
                yield size, found

    def _learn(self, context: Sequence[int], token: int) -> None:
        key = int(key_of(context))
        found = self._contexts.pop(key, None)
        self._contexts[key] = _with(found, token)
        if len(self._contexts) > MOST_CONTEXTS:
            self._contexts.popitem(last=False)


def empty_table(vocabulary: int) -> NGramTable:
    """A table that knows nothing, to learn on where a target has none."""
    return NGramTable(np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.uint8), vocabulary)


def _token(guess: Guess | None) -> int | None:
    return None if guess is None else guess.token


def _sort_of(size: int, context: _Context) -> _Sort:
    return _Sort(size, min(context.right, MOST_TIMES), min(context.seen - context.right, MOST_TIMES))


def _with(found: _Context | None, token: int) -> _Context:
    """What is known of a context once ``token`` followed it; a guess that is mostly wrong gives way."""
    if found is None:
        return _Context(token, 1, 1)
    if found.token == token:
        return _Context(token, found.right + 1, found.seen + 1)
    if 2 * found.right < found.seen + 1:
        return _Context(token, 1, 1)
    return _Context(found.token, found.right, found.seen + 1)
