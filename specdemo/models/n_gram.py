"""Tables of n-grams of a target's own text: a fixed one on disk, and one that keeps learning in memory."""

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

LONGEST = 4
"""Tokens of the longest context: n-grams of up to five."""
MAX_IDS = 2**16
"""Ids from here on are not drafted: a table has two bytes for each."""
ENTRY_BYTES = 7
WEIGHTS = "n_gram.safetensors"
CONFIG = "n_gram.json"
_FACTOR = 0x9E3779B97F4A7C15
_SEED = 0xD1B54A32D192ED03
_SHIFT, _KEY_SHIFT = 29, 32
_WORD = 2**64 - 1
_CERTAIN = 255

MAX_CONTEXTS = 100_000
"""Maximum number of learned contexts, about 22 MB; the one that was seen longest ago is dropped."""
MAX_VISITS = 200
"""Maximum number of visits whose figures are kept."""
MAX_TIMES = 4
"""Counts above this are treated alike when the acceptance of a class of contexts is estimated."""
PRIOR = (1.0, 3.0)
"""Tokens of each class that count as right and as tried before any was."""


class NextToken(NamedTuple):
    """The token that is most likely to follow a context, and its probability."""

    token: int
    chance: float


class NGramTable:
    """The most likely next token by context, the last 1 to ``LONGEST`` tokens.

    Training counts one (``training.n_grams``). Drafting from it needs neither a model nor a pass.

    Args:
        keys: Hashes of contexts, increasing, uint32, shape [E]. Two contexts with the same hash share an
            entry, which at worst costs a wrong draft token.
        tokens: Next tokens, uint16, shape [E].
        chances: Their probabilities in 255ths, uint8, shape [E].
        vocabulary: Number of ids of the target.
    """

    def __init__(self, keys: NDArray, tokens: NDArray, chances: NDArray, vocabulary: int):
        self._keys, self._tokens, self._chances = keys, tokens, chances
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self._keys)

    def after(self, text: Sequence[int]) -> NextToken | None:
        """Return the next token for the longest context at the end of ``text`` that the table has."""
        for size in range(min(LONGEST, len(text)), 0, -1):
            key = key_of(text[len(text) - size :])
            at = int(self._keys.searchsorted(key))
            if at < len(self) and self._keys[at] == key:
                return NextToken(int(self._tokens[at]), float(self._chances[at]) / _CERTAIN)
        return None

    def with_chances(self, corrected: Callable[[NDArray], NDArray]) -> "NGramTable":
        """Return the same tokens with other probabilities: ``corrected`` maps the current ones, 0 to 1."""
        chances = np.clip(corrected(self._chances / _CERTAIN), 0.0, 1.0)
        return NGramTable(self._keys, self._tokens, as_bytes(chances), self.vocabulary)

    def save(self, folder: Path) -> None:
        """Write the table to ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"keys": self._keys, "tokens": self._tokens, "chances": self._chances}
        save_file(arrays, folder / WEIGHTS)
        facts = {"longest": LONGEST, "vocabulary": self.vocabulary}
        (folder / CONFIG).write_text(json.dumps(facts) + "\n", encoding="utf-8")


def as_bytes(chances: NDArray) -> NDArray:
    """Return probabilities as a table stores them, uint8."""
    return np.rint(_CERTAIN * chances).astype(np.uint8)


def load_n_gram(folder: Path, vocabulary: int) -> NGramTable:
    """Return the table in ``folder``, for a target with ``vocabulary`` ids.

    Raises:
        OSError: There is no table.
        ValueError: The table is of another version or vocabulary, or damaged.
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
    """Return a table without entries, to learn on if a target has none."""
    return NGramTable(np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.uint8), vocabulary)


def key_of(context: Sequence[int]) -> np.uint32:
    """Return the hash of a context, the same as ``narrow(wide_keys_of(…))`` for many at once."""
    value = (len(context) * _SEED) & _WORD
    for token in context:
        value = ((value ^ token) * _FACTOR) & _WORD
        value ^= value >> _SHIFT
    return np.uint32(value >> _KEY_SHIFT)


def wide_keys_of(contexts: NDArray) -> NDArray:
    """Return full hashes, uint64, shape [n], of contexts of one size, shape [n, size]."""
    value = np.full(len(contexts), (contexts.shape[1] * _SEED) & _WORD, dtype=np.uint64)
    for column in contexts.T:
        value = (value ^ column.astype(np.uint64)) * np.uint64(_FACTOR)
        value ^= value >> np.uint64(_SHIFT)
    return value


def narrow(wide_keys: NDArray) -> NDArray:
    """Return the part of :func:`wide_keys_of` that tables store, uint32."""
    return (wide_keys >> np.uint64(_KEY_SHIFT)).astype(np.uint32)


class _Context(NamedTuple):
    """The learned next token of a context, how often it followed, and how often any token did."""

    token: int
    right: int
    seen: int


_Class = tuple[int, int, int]
"""Contexts that share one estimate: their size, times right and times wrong, both up to ``MAX_TIMES``."""


@dataclass
class _Score:
    """Number of tokens that were compared with the target's, and of those that were equal."""

    right: int = 0
    tried: int = 0

    def add(self, token: int | None, target_token: int) -> None:
        self.tried += 1
        self.right += token == target_token


@dataclass(frozen=True)
class Visit:
    """The accuracy of a table on one text, before it learned that text.

    Attributes:
        before: Share of the target's tokens that the table as shipped had predicted (α of a first draft
            token, no prediction counted as wrong).
        after: The same share with what was learned from earlier visits.
        tokens: Number of the target's tokens.
    """

    before: float
    after: float
    tokens: int


class LearningTable:
    """A table that keeps learning from its target's text in bounded memory; the given table is not changed.

    A context is learned with the token that followed it most of the time. The probability of a learned token
    is measured: before a text is learned, the table is tried on each of its tokens. Methods may be called
    from any thread.

    Args:
        table: The table to improve on.

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
        """The latest visits, oldest first."""
        with self._lock:
            return list(self._visits)

    def after(self, text: Sequence[int]) -> NextToken | None:
        """Return the next token after ``text``, learned or from the table, whichever is more probable."""
        with self._lock:
            return self._better(self._table.after(text), self._known(text))

    def learn(self, text: Sequence[int], start: int) -> None:
        """Learn a text of ids, of which those from ``start`` on are the target's own."""
        shipped, learned = _Score(), _Score()
        with self._lock:
            places = [
                (text[max(0, place - LONGEST) : place], text[place]) for place in range(start, len(text))
            ]
            # 1. Try the table on the whole text first: within a text far more is repeated than between texts.
            for context, token in places:
                found, known = self._table.after(context), list(self._known(context))
                better = self._better(found, known)
                shipped.add(None if found is None else found.token, token)
                learned.add(None if better is None else better.token, token)
                for size, one in known:
                    self._scores.setdefault(_class_of(size, one), _Score()).add(one.token, token)
            # 2. Learn it.
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
        """Return ``found`` or the most probable of ``known``; of equals the one with the longest context."""
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
    """Return a context after ``token`` followed it; a token that is mostly wrong is replaced."""
    if found is None:
        return _Context(token, 1, 1)
    if found.token == token:
        return _Context(token, found.right + 1, found.seen + 1)
    if 2 * found.right < found.seen + 1:
        return _Context(token, 1, 1)
    return _Context(found.token, found.right, found.seen + 1)
