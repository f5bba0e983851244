"""What usually follows: the commonest n-grams of a target's own text, in a table of a few megabytes.

A context is the last 1 to ``LONGEST`` tokens. The table has, for as many contexts as it has room for, the
token most likely to follow and how likely that is. Drafting from it takes no model and no step. How one is
counted is in ``training.n_grams``.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

LONGEST = 4
"""Tokens of the longest context: n-grams of up to five."""
MOST_IDS = 2**16
"""Ids from here on are not drafted: a table has two bytes for each."""
ENTRY_BYTES = 7
WEIGHTS = "n_gram.safetensors"
CONFIG = "n_gram.json"
_FACTOR = 0x9E3779B97F4A7C15
_SEED = 0xD1B54A32D192ED03
_SHIFT, _KEY_SHIFT = 29, 32
_WORD = 2**64 - 1
_CERTAIN = 255


class Guess(NamedTuple):
    """The token that is most likely to follow, and its probability."""

    token: int
    chance: float


class NGramTable:
    """Guesses by context.

    Args:
        keys: Hashes of contexts, increasing, uint32, shape [E]. Two contexts of one hash share a guess, which
            at most costs a wrong draft.
        tokens: What follows, uint16, shape [E].
        chances: How likely that is, in 255ths, uint8, shape [E].
        vocabulary: How many ids the target has.
    """

    def __init__(self, keys: NDArray, tokens: NDArray, chances: NDArray, vocabulary: int):
        self._keys, self._tokens, self._chances = keys, tokens, chances
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self._keys)

    def after(self, text: Sequence[int]) -> Guess | None:
        """The guess of the longest context at the end of ``text`` that the table has."""
        for size in range(min(LONGEST, len(text)), 0, -1):
            key = key_of(text[len(text) - size :])
            at = int(self._keys.searchsorted(key))
            if at < len(self) and self._keys[at] == key:
                return Guess(int(self._tokens[at]), float(self._chances[at]) / _CERTAIN)
        return None

    def with_chances(self, told: Callable[[NDArray], NDArray]) -> "NGramTable":
        """The same guesses with other chances; ``told`` gets today's, 0 to 1, and gives what they are."""
        chances = np.clip(told(self._chances / _CERTAIN), 0.0, 1.0)
        return NGramTable(self._keys, self._tokens, as_bytes(chances), self.vocabulary)

    def save(self, folder: Path) -> None:
        """Write the table into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"keys": self._keys, "tokens": self._tokens, "chances": self._chances}
        save_file(arrays, folder / WEIGHTS)
        facts = {"longest": LONGEST, "vocabulary": self.vocabulary}
        (folder / CONFIG).write_text(json.dumps(facts) + "\n", encoding="utf-8")


def as_bytes(chances: NDArray) -> NDArray:
    """Probabilities as a table has them, uint8."""
    return np.rint(_CERTAIN * chances).astype(np.uint8)


def load_n_gram(folder: Path, vocabulary: int) -> NGramTable:
    """The table in ``folder``, for a target of ``vocabulary`` ids.

    Raises:
        OSError: There is none.
        ValueError: It is of another make, of another vocabulary, or damaged.
    """
    facts = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if facts != {"longest": LONGEST, "vocabulary": vocabulary}:
        raise ValueError(f"a table for another target or of another make: {facts}")
    found = load_file(folder / WEIGHTS)
    keys, tokens, chances = found["keys"], found["tokens"], found["chances"]
    kinds = [array.dtype for array in (keys, tokens, chances)]
    if kinds != [np.uint32, np.uint16, np.uint8] or not len(keys) == len(tokens) == len(chances):
        raise ValueError("a damaged table")
    if len(keys) and (np.any(keys[1:] <= keys[:-1]) or int(tokens.max()) >= vocabulary):
        raise ValueError("a damaged table")
    return NGramTable(keys, tokens, chances, vocabulary)


def key_of(context: Sequence[int]) -> np.uint32:
    """The hash of a context; :func:`keys_of` gives the same for many at once."""
    value = (len(context) * _SEED) & _WORD
    for token in context:
        value = ((value ^ token) * _FACTOR) & _WORD
        value ^= value >> _SHIFT
    return np.uint32(value >> _KEY_SHIFT)


def wide_keys_of(contexts: NDArray) -> NDArray:
    """Hashes in full, uint64, shape [n], of contexts of one size, shape [n, size]."""
    value = np.full(len(contexts), (contexts.shape[1] * _SEED) & _WORD, dtype=np.uint64)
    for column in contexts.T:
        value = (value ^ column.astype(np.uint64)) * np.uint64(_FACTOR)
        value ^= value >> np.uint64(_SHIFT)
    return value


def narrow(wide_keys: NDArray) -> NDArray:
    """The part of :func:`wide_keys_of` that tables keep, uint32."""
    return (wide_keys >> np.uint64(_KEY_SHIFT)).astype(np.uint32)
