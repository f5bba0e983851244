"""Building a table of n-grams (``models.n_gram``) from text that a target wrote."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specdemo.models.n_gram import ENTRY_BYTES, LONGEST, MAX_IDS, NGramTable, as_bytes, narrow, wide_keys_of
from specdemo.training.text_files import WrittenText

DISCOUNT = 0.75
MAX_BYTES = 8_900_000  # of a table: slightly below the limit for files in a Space without Git LFS
CONFIDENT = 0.7  # minimum probability of a confident draft token
MIN_CALIBRATION = 500  # predictions for a calibration; with fewer, probabilities stay as they are
CALIBRATION_PARTS = 20
# Value of an entry that only improves a probability, relative to one that improves the predicted token. A
# better probability only helps to choose the draft length.
SAME_TOKEN_GAIN = 0.25
HELD_OUT_EVERY = 20  # one in this many texts is held out of a trial table: half calibrate it, half measure it


@dataclass
class _BackoffPredictions:
    """The predictions at each text position from contexts that are one token shorter."""

    follower: NDArray  # probability of the token that actually follows
    token: NDArray  # the most likely token
    chance: NDArray  # its probability


def count_n_grams(texts: Sequence[WrittenText], vocabulary: int, max_bytes: int = MAX_BYTES) -> NGramTable:
    """Return a table, at most ``max_bytes`` large, of the contexts that most improve the predictions.

    Probabilities are interpolated over context lengths with absolute discounting (Chen & Goodman 1999, 2.6):

        P(w | c) = max(n(c, w) - D, 0) / n(c) + D · u(c) / n(c) · P(w | c without its first token).

    n counts occurrences, u(c) is the number of different tokens that follow c, and D is ``DISCOUNT``.
    """
    # 1. Predict each token that the target wrote, without a context.
    ids = np.concatenate([text.ids for text in texts]).astype(np.int64)
    before = np.concatenate([np.arange(len(text.ids)) for text in texts])
    own = np.concatenate([np.arange(len(text.ids)) >= text.start for text in texts])
    positions = np.flatnonzero(own & (before > 0))
    followers = ids[positions]
    alone = np.bincount(followers, minlength=vocabulary) / max(1, len(followers))
    likeliest = np.full(len(followers), alone.argmax())
    shorter = _BackoffPredictions(alone[followers], likeliest, alone[likeliest])
    # 2. Count contexts, from short to long.
    sizes = []
    for size in range(1, LONGEST + 1):
        have = np.flatnonzero(before[positions] >= size)
        contexts = ids[positions[have][:, None] + np.arange(-size, 0)]
        sizes.append(_count(wide_keys_of(contexts), followers[have], have, shorter))
    # 3. Keep the entries that improve the predictions most, over all context lengths.
    keys, tokens, chances, gains = (np.concatenate(parts) for parts in zip(*sizes, strict=True))
    best = np.argsort(-gains, kind="stable")[: max_bytes // ENTRY_BYTES]
    best = best[gains[best] > 0]
    short = narrow(keys[best])
    order = np.argsort(short, kind="stable")  # stable: of entries with the same key, the best is first
    order = order[_changes(short[order])]
    best = best[order]
    return NGramTable(short[order], tokens[best].astype(np.uint16), as_bytes(chances[best]), vocabulary)


class _Contexts(NamedTuple):
    """The contexts of one length."""

    keys: NDArray
    tokens: NDArray  # the most likely next token
    chances: NDArray  # its probability
    gains: NDArray  # estimate of how many more tokens are predicted correctly with this entry


def _count(keys: NDArray, followers: NDArray, have: NDArray, shorter: _BackoffPredictions) -> _Contexts:
    """Count the contexts of one length, and update ``shorter`` in place to their predictions.

    ``keys`` and ``followers`` are the context's key and the next token at each position, ``have`` is the
    position's index in ``shorter``.
    """
    order = np.lexsort((followers, keys))
    keys, followers, have = keys[order], followers[order], have[order]
    new_context = _changes(keys)
    new_pair = new_context | _changes(followers)
    context, pair = np.cumsum(new_context) - 1, np.cumsum(new_pair) - 1
    firsts = np.flatnonzero(new_pair)
    context_of = context[firsts]  # one entry per pair of context and follower, until `best`
    seen, total = np.bincount(pair), np.bincount(context)
    different = np.bincount(context_of)
    kept = np.maximum(seen - DISCOUNT, 0.0)
    passed_on = DISCOUNT * different[context_of] * shorter.follower[have[firsts]]
    chance = (kept + passed_on) / total[context_of]

    by_chance = np.lexsort((-chance, context_of))
    best = by_chance[_changes(context_of[by_chance])]  # one entry per context from here on
    tokens, chances = followers[firsts[best]], chance[best]
    at = have[np.flatnonzero(new_context)]
    shorter_token, shorter_chance = shorter.token[at], shorter.chance[at]
    # The probability, in this context, of the token that the shorter context predicts: first for contexts
    # which this token never followed, then for the others.
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
    return _Contexts(keys[new_context], tokens, chances, np.where(tokens < MAX_IDS, total * better, 0.0))


def _changes(values: NDArray) -> NDArray:
    """Return a mask of the values that differ from the previous one; the first value is always marked."""
    return np.concatenate([np.ones(min(1, len(values)), dtype=bool), values[1:] != values[:-1]])


def count_and_measure(texts: Sequence[WrittenText], vocabulary: int) -> tuple[NGramTable, dict[str, Any]]:
    """Return a calibrated table of all ``texts``, and its figures.

    The calibration and the figures come from a trial table of most texts and from the other, held-out texts.
    """
    held_out = texts[::HELD_OUT_EVERY]
    others = [text for index, text in enumerate(texts) if index % HELD_OUT_EVERY] or held_out
    trial = count_n_grams(others, vocabulary)
    calibrated = calibration(trial, held_out[1::2])
    table = count_n_grams(texts, vocabulary).with_probabilities(calibrated)
    figures = hits(trial.with_probabilities(calibrated), held_out[::2])
    return table, {"tokens": sum(len(text.own) for text in texts), "entries": len(table), **figures}


def hits(table: NGramTable, texts: Sequence[WrittenText]) -> dict[str, float]:
    """Measure a table on ``texts`` that it was not built from.

    ``known`` is the share of the target's tokens for which the table has a draft token, ``agreement`` the
    share of these that are correct; ``sure`` and ``sure_agreement`` count only confident draft tokens.
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
    """Return a function that corrects a table's probabilities to the share of correct predictions.

    A table is overconfident about contexts that occurred only a few times. Its predictions on ``texts``, from
    which it was not built, are sorted by probability and split into equal parts. The function interpolates
    the share of correct predictions in each part, averaged so that it never falls.
    """
    chances, right = _predictions(table, texts)
    if len(chances) < MIN_CALIBRATION:
        return lambda chance: chance
    parts = np.array_split(np.argsort(chances, kind="stable"), CALIBRATION_PARTS)
    means, same = np.unique([chances[part].mean() for part in parts], return_inverse=True)
    shares = np.bincount(same, [right[part].mean() for part in parts]) / np.bincount(same)
    return lambda chance: np.interp(chance, [0.0, *means], [0.0, *_rising(shares)])


def _rising(values: NDArray) -> list[float]:
    """Return ``values`` with falling neighbors averaged so that they never fall (isotonic regression)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def _predictions(table: NGramTable, texts: Sequence[WrittenText]) -> tuple[NDArray, NDArray]:
    """Return the probability of each prediction on ``texts``, and a mask of the correct predictions."""
    found = []
    for text in texts:
        ids = text.ids.tolist()
        for at in range(max(1, text.start), len(ids)):
            predicted = table.after(ids[max(0, at - LONGEST) : at])
            if predicted is not None:
                found.append((predicted.probability, predicted.token == ids[at]))
    chances, right = zip(*found, strict=True) if found else ((), ())
    return np.array(chances, dtype=float), np.array(right, dtype=bool)
