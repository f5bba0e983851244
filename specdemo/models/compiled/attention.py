"""Attention of compiled passes: queries that share keys and values also share reading them.

Keys are stored as [head_dim, capacity], so that neighboring lanes are neighboring positions; values as
[capacity, head_dim]. A score is one sum over the head, and a mixed value one sum over the positions.
"""

from typing import Any

import numpy as np
from numba import carray

from specdemo.models.compiled import vectors
from specdemo.models.compiled.vectors import (
    ADDRESS,
    INTEGER,
    LANES,
    NOTHING,
    REAL,
    at,
    compiled,
    emitted,
    floats,
    integer,
)

QUERIES = 6
"""Maximum number of queries in a tile."""
PAIR = 2 * LANES
"""Positions of a tile of scores, and numbers of a tile of mixed values: two vectors."""
HIDDEN, ONE = -1e30, np.float32(1.0)


def _scores(queries: int) -> Any:
    """Return a function that computes the scores of some queries; ``count`` is a multiple of PAIR."""

    @emitted(NOTHING, ADDRESS, INTEGER, ADDRESS, INTEGER, INTEGER, ADDRESS)
    def scores(b: Any, query: Any, head_dim: Any, keys: Any, capacity: Any, count: Any, results: Any) -> None:
        def tile(p: Any, _: list[Any]) -> list[Any]:
            here = at(b, keys, p, 4 * PAIR)

            def step(i: Any, sums: list[Any]) -> list[Any]:
                place = at(b, here, b.mul(i, capacity), 4)
                pair = [vectors.load(b, b.add(place, integer(4 * LANES * v))) for v in range(2)]
                new = []
                for index in range(queries):
                    number = at(b, query, b.add(b.mul(head_dim, integer(index)), i), 4)
                    factor = vectors.broadcast(b, vectors.load(b, number, vectors.F32))
                    new += [vectors.multiply_add(b, pair[v], factor, sums[2 * index + v]) for v in range(2)]
                return new

            start = [vectors.constant(0)] * (2 * queries)
            for index, value in enumerate(vectors.repeated(b, head_dim, start, step)):
                row = at(b, at(b, results, capacity, 4 * (index // 2)), p, 4 * PAIR)
                vectors.store(b, value, b.add(row, integer(4 * LANES * (index % 2))))
            return []

        vectors.repeated(b, b.udiv(count, integer(PAIR)), [], tile)

    return scores


def _mixed(queries: int) -> Any:
    """Return a function that adds up ``count`` values, weighted by each query's scores."""

    @emitted(NOTHING, ADDRESS, INTEGER, ADDRESS, INTEGER, INTEGER, ADDRESS)
    def mixed(b: Any, weights: Any, capacity: Any, values: Any, width: Any, count: Any, results: Any) -> None:
        def tile(j: Any, _: list[Any]) -> list[Any]:
            here = at(b, values, j, 4 * PAIR)

            def step(p: Any, sums: list[Any]) -> list[Any]:
                place = at(b, here, b.mul(p, width), 4)
                pair = [vectors.load(b, b.add(place, integer(4 * LANES * v))) for v in range(2)]
                new = []
                for index in range(queries):
                    number = at(b, weights, b.add(b.mul(capacity, integer(index)), p), 4)
                    factor = vectors.broadcast(b, vectors.load(b, number, vectors.F32))
                    new += [vectors.multiply_add(b, pair[v], factor, sums[2 * index + v]) for v in range(2)]
                return new

            start = [vectors.constant(0)] * (2 * queries)
            for index, value in enumerate(vectors.repeated(b, count, start, step)):
                row = at(b, at(b, results, width, 4 * (index // 2)), j, 4 * PAIR)
                vectors.store(b, value, b.add(row, integer(4 * LANES * (index % 2))))
            return []

        vectors.repeated(b, b.udiv(width, integer(PAIR)), [], tile)

    return mixed


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


scores1, scores2, scores3, scores4, scores5, scores6 = map(_scores, range(1, QUERIES + 1))
mixed1, mixed2, mixed3, mixed4, mixed5, mixed6 = map(_mixed, range(1, QUERIES + 1))


@compiled
def attend(query, queries, first, group, head_dim, keys, values, capacity, width, start, scores, results):
    """Mix the values that up to ``QUERIES`` queries of one key/value head attend to.

    Args:
        query: Address of the queries, scaled, [queries, head_dim].
        first: Index of the first query among those of the head: row · group + its index in the group.
        start: Position of the pass's first row. A row reads the positions up to its own.
        scores: Address of [QUERIES, capacity] numbers that the calling thread may overwrite.
        results: Address of the mixed values, [queries, width].
    """
    count = start + (first + queries - 1) // group + 1  # positions of the last row
    whole = (count + PAIR - 1) // PAIR * PAIR
    if queries == 1:
        scores1(query, head_dim, keys, capacity, whole, scores)
    elif queries == 2:
        scores2(query, head_dim, keys, capacity, whole, scores)
    elif queries == 3:
        scores3(query, head_dim, keys, capacity, whole, scores)
    elif queries == 4:
        scores4(query, head_dim, keys, capacity, whole, scores)
    elif queries == 5:
        scores5(query, head_dim, keys, capacity, whole, scores)
    else:
        scores6(query, head_dim, keys, capacity, whole, scores)
    for index in range(queries):
        row = scores + index * capacity * 4
        line = carray(floats(row), (whole,))
        for position in range(start + (first + index) // group + 1, whole):
            line[position] = HIDDEN  # its exponential is exactly 0
        inverse = ONE / exponentials(row, whole)
        for position in range(count):
            line[position] *= inverse
    if queries == 1:
        mixed1(scores, capacity, values, width, count, results)
    elif queries == 2:
        mixed2(scores, capacity, values, width, count, results)
    elif queries == 3:
        mixed3(scores, capacity, values, width, count, results)
    elif queries == 4:
        mixed4(scores, capacity, values, width, count, results)
    elif queries == 5:
        mixed5(scores, capacity, values, width, count, results)
    else:
        mixed6(scores, capacity, values, width, count, results)
