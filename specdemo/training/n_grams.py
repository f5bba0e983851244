"""Counting a target's own text into a table of n-grams (``models.n_gram``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdemo.models.n_gram import ENTRY_BYTES, LONGEST, MAX_IDS, NGramTable, as_bytes, narrow, wide_keys_of
from specdemo.training.text_files import WrittenText

DISCOUNT = 0.75
MAX_BYTES = 8_900_000
"""Size of a table's file: a little below the limit for files pushed to a Space without Git LFS."""
CONFIDENT = 0.7
"""Probability from which on a draft token is counted as confident."""
MIN_CALIBRATION = 500
"""Minimum number of draft tokens for a calibration."""
CALIBRATION_PARTS = 20
SAME_TOKEN_GAIN = 0.25
"""Value of a better probability relative to a better token: it only helps to decide how far to draft."""
HELD_OUT_EVERY = 20
"""One in so many texts is left out of a first table: half of them calibrate it, half measure it."""


@dataclass
class _Shorter:
    """The predictions of contexts that are one token shorter, by position in the text.

    Attributes:
        follower: Probability of the actual token.
        token: The most probable token.
        chance: Its probability.
    """

    follower: NDArray
    token: NDArray
    chance: NDArray


def count_n_grams(texts: Sequence[WrittenText], vocabulary: int, max_bytes: int = MAX_BYTES) -> NGramTable:
    """Return the table of the n-grams that gain most, in at most ``max_bytes``.

    Probabilities are interpolated over context lengths with absolute discounting (Chen & Goodman 1999, 2.6),

        P(w | c) = max(n(c, w) - D, 0) / n(c) + D · u(c) / n(c) · P(w | c without its first token),

    where n counts occurrences and u(c) is the number of different tokens after c. So a long context that was
    seen once has little weight.
    """
    # 1. Predict each token of the target's own without a context.
    ids = np.concatenate([text.ids for text in texts]).astype(np.int64)
    before = np.concatenate([np.arange(len(text.ids)) for text in texts])
    own = np.concatenate([np.arange(len(text.ids)) >= text.start for text in texts])
    positions = np.flatnonzero(own & (before > 0))
    followers = ids[positions]
    alone = np.bincount(followers, minlength=vocabulary) / max(1, len(followers))
    likeliest = np.full(len(followers), alone.argmax())
    shorter = _Shorter(alone[followers], likeliest, alone[likeliest])
    # 2. Count contexts, from short to long.
    sizes = []
    for size in range(1, LONGEST + 1):
        have = np.flatnonzero(before[positions] >= size)
        contexts = ids[positions[have][:, None] + np.arange(-size, 0)]
        sizes.append(_count(wide_keys_of(contexts), followers[have], have, shorter))
    # 3. Keep the entries that gain most, of all sizes together.
    keys, tokens, chances, gains = (np.concatenate(parts) for parts in zip(*sizes, strict=True))
    best = np.argsort(-gains, kind="stable")[: max_bytes // ENTRY_BYTES]
    best = best[gains[best] > 0]
    short = narrow(keys[best])
    order = np.argsort(short, kind="stable")  # of two entries with one key the better one
    order = order[_changes(short[order])]
    best = best[order]
    return NGramTable(short[order], tokens[best].astype(np.uint16), as_bytes(chances[best]), vocabulary)


def _count(
    keys: NDArray, followers: NDArray, have: NDArray, shorter: _Shorter
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Count the contexts of one size, at positions ``have``, and update ``shorter`` to them.

    Returns:
        The contexts' keys, each one's most probable next token, the probability of that token, and the
        estimated number of additional tokens that are predicted correctly because of the entry.
    """
    order = np.lexsort((followers, keys))
    keys, followers, have = keys[order], followers[order], have[order]
    new_context = _changes(keys)
    new_pair = new_context | _changes(followers)
    context, pair = np.cumsum(new_context) - 1, np.cumsum(new_pair) - 1
    firsts = np.flatnonzero(new_pair)
    context_of = context[firsts]  # indexed by pair of context and follower, until `best`
    seen, total = np.bincount(pair), np.bincount(context)
    different = np.bincount(context_of)
    kept = np.maximum(seen - DISCOUNT, 0.0)
    passed_on = DISCOUNT * different[context_of] * shorter.follower[have[firsts]]
    chance = (kept + passed_on) / total[context_of]

    by_chance = np.lexsort((-chance, context_of))
    best = by_chance[_changes(context_of[by_chance])]  # indexed by context from here on
    tokens, chances = followers[firsts[best]], chance[best]
    at = have[np.flatnonzero(new_context)]
    shorter_token, shorter_chance = shorter.token[at], shorter.chance[at]
    # The probability of the shorter context's token in this one: if it never followed, and if it did.
    shorter_here = DISCOUNT * different / total * shorter_chance
    agrees = followers[firsts] == shorter_token[context_of]
    shorter_here[context_of[agrees]] = chance[agrees]
    stays = shorter_here > chances
    tokens, chances = np.where(stays, shorter_token, tokens), np.where(stays, shorter_here, chances)
    better = np.where(
        tokens == shorter_token, SAME_TOKEN_GAIN * np.abs(chances - shorter_chance), chances - shorter_here
    )

    shorter.follower[have] = chance[pair]
    shorter.token[have], shorter.chance[have] = tokens[context], chances[context]
    return keys[new_context], tokens, chances, np.where(tokens < MAX_IDS, total * better, 0.0)


def _changes(values: NDArray) -> NDArray:
    """Return a mask of the values that differ from the one before; the first one does."""
    return np.concatenate([np.ones(min(1, len(values)), dtype=bool), values[1:] != values[:-1]])


def count_and_measure(texts: Sequence[WrittenText], vocabulary: int) -> tuple[NGramTable, dict[str, Any]]:
    """Count ``texts`` into a calibrated table, and measure a table of most of them on the others.

    Returns:
        The table, and ``tokens``, ``entries`` and the figures of :func:`hits`.
    """
    held_out = texts[::HELD_OUT_EVERY]
    others = [text for index, text in enumerate(texts) if index % HELD_OUT_EVERY] or held_out
    trial = count_n_grams(others, vocabulary)
    calibrated = calibration(trial, held_out[1::2])
    table = count_n_grams(texts, vocabulary).with_chances(calibrated)
    figures = hits(trial.with_chances(calibrated), held_out[::2])
    return table, {"tokens": sum(len(text.own) for text in texts), "entries": len(table), **figures}


def hits(table: NGramTable, texts: Sequence[WrittenText]) -> dict[str, float]:
    """Measure a table on ``texts`` that it was not counted from.

    Returns:
        ``known``: share of the target's tokens for which the table has a draft token; ``agreement``: share of
        these that are right; ``sure``, ``sure_agreement``: the same for probabilities from ``CONFIDENT`` on.
    """
    chances, right = _predictions(table, texts)
    tokens = sum(len(text.ids) - max(1, text.start) for text in texts)
    sure = chances >= CONFIDENT
    return {
        "known": len(right) / max(1, tokens),
        "agreement": float(right.sum()) / max(1, len(right)),
        "sure": float(sure.sum()) / max(1, tokens),
        "sure_agreement": float(right[sure].sum()) / max(1, int(sure.sum())),
    }


def calibration(table: NGramTable, texts: Sequence[WrittenText]) -> Callable[[NDArray], NDArray]:
    """Return a function from a table's probabilities to the share that is right on ``texts``.

    A table is overconfident about contexts that it saw a few times. Its predictions on ``texts``, which it
    does not contain, are split into equal parts by probability; the shares are made to rise and interpolated.
    """
    chances, right = _predictions(table, texts)
    if len(chances) < MIN_CALIBRATION:
        return lambda chance: chance
    parts = np.array_split(np.argsort(chances, kind="stable"), CALIBRATION_PARTS)
    means, same = np.unique([chances[part].mean() for part in parts], return_inverse=True)
    shares = np.bincount(same, [right[part].mean() for part in parts]) / np.bincount(same)
    return lambda chance: np.interp(chance, [0.0, *means], [0.0, *_rising(shares)])


def _rising(values: NDArray) -> list[float]:
    """Return the nearest values that never fall: neighbours that do are averaged."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def _predictions(table: NGramTable, texts: Sequence[WrittenText]) -> tuple[NDArray, NDArray]:
    """Return the probability of each prediction over ``texts``, and whether it is right."""
    found = []
    for text in texts:
        ids = text.ids.tolist()
        for at in range(max(1, text.start), len(ids)):
            guess = table.after(ids[max(0, at - LONGEST) : at])
            if guess is not None:
                found.append((guess.chance, guess.token == ids[at]))
    chances, right = zip(*found, strict=True) if found else ((), ())
    return np.array(chances, dtype=float), np.array(right, dtype=bool)
