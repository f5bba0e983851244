"""Count a target's own text into a table of n-grams (``models.n_gram``).

Probabilities are interpolated over lengths of context with absolute discounting (Chen & Goodman 1999, 2.6),

    P(w | c) = max(n(c, w) - D, 0) / n(c) + D · u(c) / n(c) · P(w | c without its first token),

where n counts and u(c) is how many different tokens follow c. So a long context that was seen once is not
believed more than it should.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdemo.models.n_gram import ENTRY_BYTES, LONGEST, MOST_IDS, NGramTable, as_bytes, narrow, wide_keys_of

DISCOUNT = 0.75
MOST_BYTES = 8_900_000
"""Of a table's file, a little less than a plain push to a host's repository may have."""
SURE = 0.7
"""Chance from which on a guess is called sure."""
FEWEST_TRIED = 500
"""Guesses below which nothing is said about chances."""
CALIBRATION_PARTS = 20
SAME_TOKEN = 0.25
"""What a better probability is worth beside a better token: it only helps to decide how far to draft."""


@dataclass(frozen=True)
class WrittenText:
    """A text as ids, of which those from ``start`` on are the target's own."""

    ids: NDArray
    start: int


@dataclass
class _Shorter:
    """What contexts one token shorter say, by position in the text."""

    follower: NDArray
    """Probability of the token that stands there."""
    guess: NDArray
    """The token they would guess there."""
    chance: NDArray
    """Its probability."""


@dataclass(frozen=True)
class _Entries:
    """Contexts of one size, a guess each."""

    keys: NDArray
    tokens: NDArray
    chances: NDArray
    gains: NDArray
    """Tokens more that are guessed right over the text than without the entry, about."""


def count_n_grams(texts: Sequence[WrittenText], vocabulary: int, most_bytes: int = MOST_BYTES) -> NGramTable:
    """The table of the n-grams that gain most, within ``most_bytes``."""
    ids = np.concatenate([text.ids for text in texts]).astype(np.int64)
    before = np.concatenate([np.arange(len(text.ids)) for text in texts])
    own = np.concatenate([np.arange(len(text.ids)) >= text.start for text in texts])
    positions = np.flatnonzero(own & (before > 0))
    followers = ids[positions]
    alone = np.bincount(followers, minlength=vocabulary) / max(1, len(followers))
    likeliest = np.full(len(followers), alone.argmax())
    shorter = _Shorter(alone[followers], likeliest, alone[likeliest])
    sizes = []
    for size in range(1, LONGEST + 1):
        have = np.flatnonzero(before[positions] >= size)
        contexts = ids[positions[have][:, None] + np.arange(-size, 0)]
        sizes.append(_count(wide_keys_of(contexts), followers[have], have, shorter))
    return _best(sizes, vocabulary, most_bytes // ENTRY_BYTES)


def _count(keys: NDArray, followers: NDArray, have: NDArray, shorter: _Shorter) -> _Entries:
    """Guesses of contexts of one size, which stand at ``have``; ``shorter`` is brought up to that size."""
    order = np.lexsort((followers, keys))
    keys, followers, have = keys[order], followers[order], have[order]
    new_context = _changes(keys)
    new_pair = new_context | _changes(followers)
    context, pair = np.cumsum(new_context) - 1, np.cumsum(new_pair) - 1
    firsts = np.flatnonzero(new_pair)
    context_of = context[firsts]  # by pair of context and follower, as all until `best`
    seen, total = np.bincount(pair), np.bincount(context)
    different = np.bincount(context_of)
    kept = np.maximum(seen - DISCOUNT, 0.0)
    passed_on = DISCOUNT * different[context_of] * shorter.follower[have[firsts]]
    chance = (kept + passed_on) / total[context_of]

    by_chance = np.lexsort((-chance, context_of))
    best = by_chance[_changes(context_of[by_chance])]  # by context, as all from here on
    tokens, chances = followers[firsts[best]], chance[best]
    at = have[np.flatnonzero(new_context)]
    otherwise, otherwise_chance = shorter.guess[at], shorter.chance[at]
    otherwise_here = DISCOUNT * different / total * otherwise_chance  # where it never followed
    agrees = followers[firsts] == otherwise[context_of]
    otherwise_here[context_of[agrees]] = chance[agrees]
    stays = otherwise_here > chances
    tokens, chances = np.where(stays, otherwise, tokens), np.where(stays, otherwise_here, chances)
    better = np.where(
        tokens == otherwise, SAME_TOKEN * np.abs(chances - otherwise_chance), chances - otherwise_here
    )

    shorter.follower[have] = chance[pair]
    shorter.guess[have], shorter.chance[have] = tokens[context], chances[context]
    return _Entries(keys[new_context], tokens, chances, np.where(tokens < MOST_IDS, total * better, 0.0))


def _best(sizes: Sequence[_Entries], vocabulary: int, most: int) -> NGramTable:
    """The ``most`` entries that gain most, of all sizes together."""
    keys, tokens, chances, gains = (
        np.concatenate([getattr(entries, name) for entries in sizes])
        for name in ("keys", "tokens", "chances", "gains")
    )
    best = np.argsort(-gains, kind="stable")[:most]
    best = best[gains[best] > 0]
    short = narrow(keys[best])
    order = np.argsort(short, kind="stable")  # of two with one key the one that gains more
    order = order[_changes(short[order])]
    best = best[order]
    return NGramTable(short[order], tokens[best].astype(np.uint16), as_bytes(chances[best]), vocabulary)


def _changes(values: NDArray) -> NDArray:
    """Where a value differs from the one before it, shape of ``values``; the first does."""
    return np.concatenate([np.ones(min(1, len(values)), dtype=bool), values[1:] != values[:-1]])


def hits(table: NGramTable, texts: Sequence[WrittenText]) -> dict[str, float]:
    """How a table does on ``texts``, which it was not counted from.

    Returns:
        ``known``: share of the target's tokens for which it has a guess; ``agreement``: share of those
        that are right; ``sure``, ``sure_agreement``: the same of guesses with a chance of ``SURE`` or more.
    """
    chances, right = _tried(table, texts)
    tokens = sum(len(text.ids) - max(1, text.start) for text in texts)
    sure = chances >= SURE
    return {
        "known": len(right) / max(1, tokens),
        "agreement": float(right.sum()) / max(1, len(right)),
        "sure": float(sure.sum()) / max(1, tokens),
        "sure_agreement": float(right[sure].sum()) / max(1, int(sure.sum())),
    }


def calibration(table: NGramTable, texts: Sequence[WrittenText]) -> Callable[[NDArray], NDArray]:
    """What a table's chances are worth on ``texts``, which it was not counted from: the share that came true.

    A table thinks too well of what it saw a few times. Shares are taken of equal parts of the guesses by
    their chance, made to rise with it, and joined by lines.
    """
    chances, right = _tried(table, texts)
    if len(chances) < FEWEST_TRIED:
        return lambda told: told
    order = np.argsort(chances, kind="stable")
    parts = np.array_split(order, CALIBRATION_PARTS)
    told, same = np.unique([chances[part].mean() for part in parts], return_inverse=True)
    true = np.bincount(same, [right[part].mean() for part in parts]) / np.bincount(same)
    return lambda chance: np.interp(chance, [0.0, *told], [0.0, *_rising(true)])


def _rising(values: NDArray) -> list[float]:
    """The nearest values that do not fall: neighbours that do are averaged (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def _tried(table: NGramTable, texts: Sequence[WrittenText]) -> tuple[NDArray, NDArray]:
    """Of each guess over ``texts`` its chance and whether it is right."""
    found = []
    for text in texts:
        ids = text.ids.tolist()
        for at in range(max(1, text.start), len(ids)):
            guess = table.after(ids[max(0, at - LONGEST) : at])
            if guess is not None:
                found.append((guess.chance, guess.token == ids[at]))
    chances, right = zip(*found, strict=True) if found else ((), ())
    return np.array(chances, dtype=float), np.array(right, dtype=bool)
