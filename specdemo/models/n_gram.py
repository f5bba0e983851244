"""The most likely next token after each short context in a target's text."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from specdemo.records.output import write_bytes, write_text

LONGEST = 4  # number of tokens of the longest context
MAX_IDS = 2**16  # only lower ids can be drafted, because a table stores ids in two bytes
ENTRY_BYTES = 7
WEIGHTS = "n_gram.safetensors"
CONFIG = "n_gram.json"
_FACTOR = 0x9E3779B97F4A7C15
_SEED = 0xD1B54A32D192ED03
_SHIFT, _KEY_SHIFT = 29, 32
_WORD = 2**64 - 1
_CERTAIN = 255


class NextToken(NamedTuple):
    """The token that is most likely to follow a context."""

    token: int
    probability: float


class NGramTable:
    """A fixed table with the most likely next token for each context of 1 to ``LONGEST`` tokens.

    ``training.n_grams`` counts such tables for targets of ``vocabulary`` ids.

    Args:
        keys: Hashes of the contexts, strictly increasing, uint32, shape [E]. If two contexts have the same
            hash, the table has one entry for both; this can only cause a wrong draft token.
        tokens: The most likely next tokens, uint16, shape [E].
        probabilities: Their probabilities, times 255, uint8, shape [E].
    """

    def __init__(self, keys: NDArray, tokens: NDArray, probabilities: NDArray, vocabulary: int):
        self._keys, self._tokens, self._probabilities = keys, tokens, probabilities
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self._keys)

    def after(self, text: Sequence[int]) -> NextToken | None:
        """Return the entry of the longest context at the end of ``text``; None if the table has none."""
        for size in range(min(LONGEST, len(text)), 0, -1):
            key = key_of(text[len(text) - size :])
            at = int(self._keys.searchsorted(key))
            if at < len(self) and self._keys[at] == key:
                return NextToken(int(self._tokens[at]), float(self._probabilities[at]) / _CERTAIN)
        return None

    def with_probabilities(self, corrected: Callable[[NDArray], NDArray]) -> "NGramTable":
        """Return a table whose probabilities [E] are mapped by ``corrected``."""
        probabilities = np.clip(corrected(self._probabilities / _CERTAIN), 0.0, 1.0)
        return NGramTable(self._keys, self._tokens, as_bytes(probabilities), self.vocabulary)

    def save(self, folder: Path) -> None:
        """Write the table to ``folder``; a full disk does not damage a table there."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"keys": self._keys, "tokens": self._tokens, "chances": self._probabilities}
        write_bytes(folder / WEIGHTS, save(arrays))
        facts = {"longest": LONGEST, "vocabulary": self.vocabulary}
        write_text(folder / CONFIG, json.dumps(facts) + "\n")


def as_bytes(probabilities: NDArray) -> NDArray:
    """Return probabilities in the format of ``NGramTable``: times 255, uint8."""
    return np.rint(_CERTAIN * probabilities).astype(np.uint8)


def load_n_gram(folder: Path, vocabulary: int) -> NGramTable:
    """Load the table in ``folder``, for a target with ``vocabulary`` ids.

    Raises:
        OSError: There is no table.
        ValueError: The table has another version, is for another vocabulary size, or is damaged.
    """
    facts = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if facts != {"longest": LONGEST, "vocabulary": vocabulary}:
        raise ValueError(f"The table belongs to a different target or version: {facts}.")
    found = load_file(folder / WEIGHTS)
    keys, tokens, probabilities = found["keys"], found["tokens"], found["chances"]
    kinds = [array.dtype for array in (keys, tokens, probabilities)]
    if kinds != [np.uint32, np.uint16, np.uint8] or not len(keys) == len(tokens) == len(probabilities):
        raise ValueError("The table is damaged.")
    if len(keys) and (np.any(keys[1:] <= keys[:-1]) or int(tokens.max()) >= vocabulary):
        raise ValueError("The table is damaged.")
    return NGramTable(keys, tokens, probabilities, vocabulary)


def key_of(context: Sequence[int]) -> np.uint32:
    """Return the hash of one context, as ``narrow(wide_keys_of(…))`` does for many."""
    value = (len(context) * _SEED) & _WORD
    for token in context:
        value = ((value ^ token) * _FACTOR) & _WORD
        value ^= value >> _SHIFT
    return np.uint32(value >> _KEY_SHIFT)


def wide_keys_of(contexts: NDArray) -> NDArray:
    """Return 64-bit hashes [n] of contexts [n, size]."""
    value = np.full(len(contexts), (contexts.shape[1] * _SEED) & _WORD, dtype=np.uint64)
    for column in contexts.T:
        value = (value ^ column.astype(np.uint64)) * np.uint64(_FACTOR)
        value ^= value >> np.uint64(_SHIFT)
    return value


def narrow(wide_keys: NDArray) -> NDArray:
    """Return the upper 32 bits of 64-bit hashes, as tables store them."""
    return (wide_keys >> np.uint64(_KEY_SHIFT)).astype(np.uint32)
