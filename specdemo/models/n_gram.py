"""Tables of n-grams of a target's text: ``NGramTable`` is fixed, ``LearningTable`` learns during use."""

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from specdemo.records.output import write_bytes, write_text

LONGEST = 4
"""Number of tokens of the longest context. With the next token, n-grams have up to five tokens."""
MAX_IDS = 2**16
"""Only ids below this number can be drafted, because a table stores ids in two bytes."""
ENTRY_BYTES = 7
WEIGHTS = "n_gram.safetensors"
CONFIG = "n_gram.json"
_FACTOR = 0x9E3779B97F4A7C15
_SEED = 0xD1B54A32D192ED03
_SHIFT, _KEY_SHIFT = 29, 32
_WORD = 2**64 - 1
_CERTAIN = 255

MAX_CONTEXTS = 100_000
"""Maximum number of learned contexts, about 22 MB. The one that was not seen for longest is dropped first."""
MAX_VISITS = 200
"""Maximum number of ``Visit`` records that are kept."""
MAX_TIMES = 4
"""Contexts are grouped into classes by their counts. Counts above this number are treated as this number."""
PRIOR = (1.0, 3.0)
"""The prior of each class's accuracy: the numbers of right and of tried tokens before any observation."""


class NextToken(NamedTuple):
    """The token that is most likely to follow a context, and its probability ``chance``."""

    token: int
    chance: float


class NGramTable:
    """A fixed table with the most likely next token for each context of 1 to ``LONGEST`` tokens.

    ``training.n_grams`` counts such tables. Drafting from a table needs neither a model nor a pass.

    Args:
        keys: Hashes of the contexts, strictly increasing, uint32, shape [E]. If two contexts have the same
            hash, the table has one entry for both; this can only cause a wrong draft token.
        tokens: The most likely next tokens, uint16, shape [E].
        chances: Probabilities of these tokens, times 255, uint8, shape [E].
        vocabulary: Number of ids of the target.
    """

    def __init__(self, keys: NDArray, tokens: NDArray, chances: NDArray, vocabulary: int):
        self._keys, self._tokens, self._chances = keys, tokens, chances
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self._keys)

    def after(self, text: Sequence[int]) -> NextToken | None:
        """Return the most likely next token after ``text``, from the longest context that is in the table.

        Returns:
            None if no context at the end of ``text`` is in the table.
        """
        for size in range(min(LONGEST, len(text)), 0, -1):
            key = key_of(text[len(text) - size :])
            at = int(self._keys.searchsorted(key))
            if at < len(self) and self._keys[at] == key:
                return NextToken(int(self._tokens[at]), float(self._chances[at]) / _CERTAIN)
        return None

    def with_chances(self, corrected: Callable[[NDArray], NDArray]) -> "NGramTable":
        """Return a table with the same tokens and other probabilities.

        Args:
            corrected: Maps the current probabilities, shape [E], to the new ones.
        """
        chances = np.clip(corrected(self._chances / _CERTAIN), 0.0, 1.0)
        return NGramTable(self._keys, self._tokens, as_bytes(chances), self.vocabulary)

    def save(self, folder: Path) -> None:
        """Write the table to ``folder``; a full disk leaves a table there unchanged."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"keys": self._keys, "tokens": self._tokens, "chances": self._chances}
        write_bytes(folder / WEIGHTS, save(arrays))
        facts = {"longest": LONGEST, "vocabulary": self.vocabulary}
        write_text(folder / CONFIG, json.dumps(facts) + "\n")


def as_bytes(chances: NDArray) -> NDArray:
    """Return probabilities in the format of ``NGramTable``: times 255, uint8."""
    return np.rint(_CERTAIN * chances).astype(np.uint8)


def load_n_gram(folder: Path, vocabulary: int) -> NGramTable:
    """Load the table in ``folder``, for a target with ``vocabulary`` ids.

    Raises:
        OSError: There is no table.
        ValueError: The table has another version, is for another vocabulary size, or is damaged.
    """
    facts = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if facts != {"longest": LONGEST, "vocabulary": vocabulary}:
        raise ValueError(f"The table is for another target or of another version: {facts}.")
    found = load_file(folder / WEIGHTS)
    keys, tokens, chances = found["keys"], found["tokens"], found["chances"]
    kinds = [array.dtype for array in (keys, tokens, chances)]
    if kinds != [np.uint32, np.uint16, np.uint8] or not len(keys) == len(tokens) == len(chances):
        raise ValueError("The table is damaged.")
    if len(keys) and (np.any(keys[1:] <= keys[:-1]) or int(tokens.max()) >= vocabulary):
        raise ValueError("The table is damaged.")
    return NGramTable(keys, tokens, chances, vocabulary)


def empty_table(vocabulary: int) -> NGramTable:
    """Return a table without entries, as the start of a ``LearningTable`` for a target without a table."""
    return NGramTable(np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.uint8), vocabulary)


def key_of(context: Sequence[int]) -> np.uint32:
    """Return the hash of one context; ``narrow(wide_keys_of(…))`` gives the same hashes for many contexts."""
    value = (len(context) * _SEED) & _WORD
    for token in context:
        value = ((value ^ token) * _FACTOR) & _WORD
        value ^= value >> _SHIFT
    return np.uint32(value >> _KEY_SHIFT)


def wide_keys_of(contexts: NDArray) -> NDArray:
    """Return the 64-bit hashes of n contexts of equal size: shape [n, size] to uint64, shape [n]."""
    value = np.full(len(contexts), (contexts.shape[1] * _SEED) & _WORD, dtype=np.uint64)
    for column in contexts.T:
        value = (value ^ column.astype(np.uint64)) * np.uint64(_FACTOR)
        value ^= value >> np.uint64(_SHIFT)
    return value


def narrow(wide_keys: NDArray) -> NDArray:
    """Return the upper 32 bits of 64-bit hashes. Tables store these."""
    return (wide_keys >> np.uint64(_KEY_SHIFT)).astype(np.uint32)


class _Context(NamedTuple):
    """A learned context: its next token, how often that token followed, how often the context occurred."""

    token: int
    right: int
    seen: int


_Class = tuple[int, int, int]
"""A class of contexts that share one accuracy estimate: the number of tokens, and how often the next token
was right and wrong, each at most ``MAX_TIMES``."""


@dataclass
class _Score:
    """The accuracy of predictions: the number of tokens ``tried``, and the number predicted ``right``."""

    right: int = 0
    tried: int = 0

    def add(self, token: int | None, target_token: int) -> None:
        self.tried += 1
        self.right += token == target_token


@dataclass(frozen=True)
class Visit:
    """The accuracy of a ``LearningTable`` on one text, measured before the table learned that text.

    Attributes:
        before: Share of the target's tokens that the original table predicts. A token without a prediction
            counts as wrong. This is α of the first draft token of a round.
        after: The same share for the table with everything learned from earlier texts.
        tokens: Number of the target's tokens in the text.
    """

    before: float
    after: float
    tokens: int


class LearningTable:
    """A table that learns from the target's text during use. Its memory is bounded.

    For each context, it learns the token that usually follows. To measure the probability of learned tokens,
    the table predicts every token of a new text before it learns that text. Methods may be called from any
    thread.

    Args:
        table: The table to start from. It is not changed.

    Attributes:
        texts: Number of texts learned.
        vocabulary: Number of ids of the target.
    """

    def __init__(self, table: NGramTable):
        self._table = table
        self._contexts: OrderedDict[int, _Context] = OrderedDict()
        self._scores: dict[_Class, _Score] = {}
        self._visits: deque[Visit] = deque(maxlen=MAX_VISITS)
        self._lock = threading.Lock()
        self.texts = 0
        self.vocabulary = table.vocabulary

    def __len__(self) -> int:
        """Return the number of learned contexts."""
        return len(self._contexts)

    @property
    def visits(self) -> list[Visit]:
        """The accuracy on the latest texts, oldest first; at most ``MAX_VISITS``."""
        with self._lock:
            return list(self._visits)

    def after(self, text: Sequence[int]) -> NextToken | None:
        """Return the most likely next token after ``text``, from the original table or learned.

        Returns:
            None if no context at the end of ``text`` is known.
        """
        with self._lock:
            return self._better(self._table.after(text), self._known(text))

    def learn(self, text: Sequence[int], start: int) -> None:
        """Learn the target's tokens in a text.

        Args:
            text: Ids of the prompt and the target's output.
            start: Number of prompt ids.
        """
        shipped, learned = _Score(), _Score()
        with self._lock:
            places = [
                (text[max(0, place - LONGEST) : place], text[place]) for place in range(start, len(text))
            ]
            # 1. Predict the whole text before learning any of it. Texts repeat themselves far more than each
            # other, so learning at the same time would overrate the table.
            for context, token in places:
                found, known = self._table.after(context), list(self._known(context))
                better = self._better(found, known)
                shipped.add(None if found is None else found.token, token)
                learned.add(None if better is None else better.token, token)
                for size, one in known:
                    self._scores.setdefault(_class_of(size, one), _Score()).add(one.token, token)
            # 2. Learn the text.
            for context, token in places:
                for size in range(1, len(context) + 1):
                    key = int(key_of(context[-size:]))
                    self._contexts[key] = _updated(self._contexts.pop(key, None), token)
                    if len(self._contexts) > MAX_CONTEXTS:
                        self._contexts.popitem(last=False)
            if places:
                self.texts += 1
                shares = shipped.right / len(places), learned.right / len(places)
                self._visits.append(Visit(*shares, len(places)))

    def _better(self, found: NextToken | None, known: Iterable[tuple[int, _Context]]) -> NextToken | None:
        """Return the more probable of ``found`` and the ``known`` contexts; in a tie, the longest context."""
        for size, one in known:
            score = self._scores.get(_class_of(size, one), _Score())
            chance = (score.right + PRIOR[0]) / (score.tried + PRIOR[1])
            if found is None or chance >= found.chance:
                found = NextToken(one.token, chance)
        return found

    def _known(self, text: Sequence[int]) -> Iterator[tuple[int, _Context]]:
        """Yield the learned contexts at the end of ``text`` with their sizes, the shortest first."""
        for size in range(1, min(LONGEST, len(text)) + 1):
            found = self._contexts.get(int(key_of(text[len(text) - size :])))
            if found is not None:
                yield size, found


def _class_of(size: int, context: _Context) -> _Class:
    return size, min(context.right, MAX_TIMES), min(context.seen - context.right, MAX_TIMES)


def _updated(found: _Context | None, token: int) -> _Context:
    """Return a context's record after it was followed by ``token``. A token that is mostly wrong is replaced.

    Args:
        found: The record so far; None for a new context.
        token: The token that followed.
    """
    if found is None:
        return _Context(token, 1, 1)
    if found.token == token:
        return _Context(token, found.right + 1, found.seen + 1)
    if 2 * found.right < found.seen + 1:
        return _Context(token, 1, 1)
    return _Context(found.token, found.right, found.seen + 1)
