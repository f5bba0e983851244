"""Attention of compiled passes: queries that share keys and values also share reading them.

Keys are stored as [head_dim, capacity], so that the lanes of a vector are positions; values as [capacity,
head_dim]. A score is one sum over the head, and a mixed value one sum over the positions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import carray, types

from specdemo.models.compiled import vectors
from specdemo.models.compiled.compilation import Compiled
from specdemo.models.compiled.product import padded_count
from specdemo.models.compiled.vectors import (
    ADDRESS,
    INTEGER,
    LANES,
    NOTHING,
    REAL,
    at,
    emitted,
    floats,
    integer,
)

QUERIES = 6  # maximum number of queries in a tile
PAIR = 2 * LANES  # positions of a tile of scores, and numbers of a tile of mixed values
HIDDEN, ONE = -1e30, np.float32(1.0)


def _sums(queries: int) -> Callable[..., None]:
    """Return a function that emits sums Σᵢ factors[q, i] · table[i, p] for each query q.

    Scores are such sums over keys, and mixed values over values. Rows of the factors are ``factor_stride``
    numbers apart, those of the table and of the results ``stride``. A query has ``count`` sums, a multiple of
    ``PAIR``.
    """

    def sums_of(
        b: Any,
        factors: Any,
        factor_stride: Any,
        terms: Any,
        table: Any,
        stride: Any,
        count: Any,
        results: Any,
    ) -> None:
        def tile(p: Any, _: list[Any]) -> list[Any]:
            here = at(b, table, p, 4 * PAIR)

            def step(i: Any, sums: list[Any]) -> list[Any]:
                place = at(b, here, b.mul(i, stride), 4)
                pair = [vectors.load(b, b.add(place, integer(4 * LANES * v))) for v in range(2)]
                new = []
                for index in range(queries):
                    number = at(b, factors, b.add(b.mul(factor_stride, integer(index)), i), 4)
                    factor = vectors.broadcast(b, vectors.load(b, number, vectors.F32))
                    new += [vectors.multiply_add(b, pair[v], factor, sums[2 * index + v]) for v in range(2)]
                return new

            start = [vectors.constant(0)] * (2 * queries)
            for index, value in enumerate(vectors.repeated(b, terms, start, step)):
                row = at(b, at(b, results, stride, 4 * (index // 2)), p, 4 * PAIR)
                vectors.store(b, value, b.add(row, integer(4 * LANES * (index % 2))))
            return []

        vectors.repeated(b, b.udiv(count, integer(PAIR)), [], tile)

    return sums_of


@emitted(REAL, ADDRESS, INTEGER)
def exponentials(b: Any, scores: Any, count: Any) -> Any:
    """Replace scores by exp(score − largest score), and return their sum."""
    steps = b.udiv(count, integer(LANES))

    def place(i: Any) -> Any:
        return at(b, scores, i, 4 * LANES)

    (top,) = vectors.repeated(
        b,
        steps,
        [vectors.constant(HIDDEN)],
        lambda i, found: [vectors.larger(b, vectors.load(b, place(i)), found[0])],
    )
    shift = vectors.broadcast(b, vectors.largest(b, top))

    def step(i: Any, sums: list[Any]) -> list[Any]:
        value = vectors.exponential(b, b.fsub(vectors.load(b, place(i)), shift))
        vectors.store(b, value, place(i))
        return [b.fadd(sums[0], value)]

    return vectors.total(b, vectors.repeated(b, steps, [vectors.constant(0)], step)[0])


@emitted(NOTHING, *[INTEGER] * 8)
def add_up(b: Any, queries: Any, *values: Any) -> None:
    """Compute the sums of up to ``QUERIES`` queries; ``values`` are the arguments of ``sums_of``."""
    vectors.choose(b, queries, [partial(_sums(number), b, *values) for number in range(1, QUERIES + 1)])


def attend(query, queries, first, group, head_dim, keys, values, capacity, width, start, scores, results):
    """Mix the values that up to ``QUERIES`` queries of one key/value head attend to.

    Args:
        query: Address of the queries, scaled, [queries, head_dim].
        first: Index of the first query among those of the head: row · group + its index in the group.
        start: Position of the pass's first row. A row reads the positions up to its own.
        scores: Address of [QUERIES, capacity] numbers that the calling thread can overwrite.
        results: Address of the mixed values, [queries, width].
    """
    count = start + (first + queries - 1) // group + 1  # positions of the last row
    whole = padded_count(count, PAIR)
    add_up(queries, query, head_dim, head_dim, keys, capacity, whole, scores)
    for index in range(queries):
        row = scores + index * capacity * 4
        line = carray(floats(row), (whole,))
        for position in range(start + (first + index) // group + 1, whole):
            line[position] = HIDDEN  # its exponential is exactly 0
        inverse = ONE / exponentials(row, whole)
        for position in range(count):
            line[position] *= inverse
    add_up(queries, scores, capacity, count, values, width, width, results)


ATTENTION_ARGUMENTS = 12
attention = Compiled(types.void(*[types.int64] * ATTENTION_ARGUMENTS), attend)
call_attention = vectors.calls(ATTENTION_ARGUMENTS)
