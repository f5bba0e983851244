"""A whole pass as one compiled function that every thread runs; a thread computes a part of every product.
The division of the work never changes the order of a sum, so no bit depends on the number of threads.
"""

import ctypes
from typing import Any

import numpy as np
from numba import carray, from_dtype, types

from specdemo.models.compiled import compilation, vectors
from specdemo.models.compiled.attention import QUERIES, call_attention
from specdemo.models.compiled.compilation import barrier, thread_number
from specdemo.models.compiled.product import (
    BLOCK,
    INPUTS,
    MATRIX_FIELDS,
    multiply,
    multiply_share,
    padded_count,
    weights_of_row,
)
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
    longs,
)


class Pass(ctypes.Structure):
    """What a pass reads and writes. An address is 0 if the pass has no such thing.

    A pass has ``texts`` · ``rows`` rows: ``rows`` new tokens of each text, from position ``start`` on. The
    last ``scored`` rows get logits, and ``best``, ``largest`` and ``total`` are the decisions about each of
    them. If ``next`` is an address, the pass is followed by passes over its best token, ``steps`` passes
    together: the token's id, found in ``id_map`` if there is one, is written to ``next``. ``width`` is
    ``size``, the length of a state, padded to whole vectors. ``given`` are the states of a feature draft,
    whose first layer reads them together with the embedded ids; the last row's state is written to ``last``.
    """

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            # the pass
            "ids", "texts", "rows", "start", "scored", "threads", "attention", "steps", "next", "id_map",
            # the model
            "layers", "size", "width", "heads", "kv_heads", "head_dim", "mlp", "table", "norm", "embedding",
            "output", "settings", "screen",
            # the cache
            "keys", "values", "capacity", "value_width", "cos", "sin",
            # memory that all threads share, and each thread's own
            "states", "change", "projected", "query", "context", "gate", "up", "pairs", "low", "screened",
            "tops", "sums", "own", "own_bytes", "normed", "scores", "mixed",
            # other inputs and outputs
            "logits", "logit_stride", "outputs", "best", "largest", "total", "tap_places", "tapped", "taps",
            "given", "pair_norm", "last",
        )
    ]  # fmt: skip


EPSILON, SCALING = range(2)  # the numbers in ``settings``
# Fields of a layer in ``table``: addresses of both norms' weights, and the descriptions of the four matrices.
NORM1, QKV = 0, 1
OUT = QKV + MATRIX_FIELDS
NORM2 = OUT + MATRIX_FIELDS
GATE_UP = NORM2 + 1
DOWN = GATE_UP + MATRIX_FIELDS
LAYER_FIELDS = DOWN + MATRIX_FIELDS
SCREEN_DOWN, SCREEN_UP = 0, MATRIX_FIELDS
# A screen's logits are replaced by exact ones down to this distance from the largest.
MARGIN = np.float32(7.0)
NUMBER = 4  # bytes
CHUNK = 256  # number of logits that are decided together; a multiple of LANES and BLOCK
ZERO, ONE, LOWEST, NEVER = np.float32(0.0), np.float32(1.0), np.float32(-1e30), np.float32(-np.inf)


@emitted(REAL, ADDRESS, INTEGER)
def squares(b: Any, x: Any, width: Any) -> Any:

    def step(i: Any, sums: list[Any]) -> list[Any]:
        number = vectors.load(b, at(b, x, i, 4 * LANES))
        return [vectors.multiply_add(b, number, number, sums[0])]

    return vectors.total(
        b, vectors.repeated(b, b.udiv(width, integer(LANES)), [vectors.constant(0)], step)[0]
    )


@emitted(NOTHING, ADDRESS, ADDRESS, INTEGER)
def swiglu(b: Any, gate: Any, up: Any, width: Any) -> None:
    """Replace ``gate`` by silu(gate) · up."""

    def step(i: Any, _: list[Any]) -> list[Any]:
        place = at(b, gate, i, 4 * LANES)
        x = vectors.load(b, place)
        silu = b.fdiv(x, b.fadd(vectors.exponential(b, b.fneg(x)), vectors.constant(1.0)))
        vectors.store(b, b.fmul(silu, vectors.load(b, at(b, up, i, 4 * LANES))), place)
        return []

    vectors.repeated(b, b.udiv(width, integer(LANES)), [], step)


@compiled
def normalize(states, stride, rows, size, width, weight, results, result_stride, epsilon):
    """Write the root-mean-square norm of each row (Zhang & Sennrich 2019)."""
    gains = carray(floats(weight), (width,))
    for r in range(rows):
        place = states + r * stride * NUMBER
        x, y = (
            carray(floats(place), (width,)),
            carray(floats(results + r * result_stride * NUMBER), (width,)),
        )
        factor = ONE / np.sqrt(squares(place, width) / np.float32(size) + epsilon)
        for i in range(width):
            y[i] = x[i] * factor * gains[i]


@compiled
def add(states, changes, stride, rows, first, last):
    """Add the blocks from ``first`` to ``last`` of each row of ``changes``."""
    for r in range(rows):
        offset = (r * stride + first * BLOCK) * NUMBER
        x = carray(floats(states + offset), ((last - first) * BLOCK,))
        y = carray(floats(changes + offset), ((last - first) * BLOCK,))
        for i in range((last - first) * BLOCK):
            x[i] += y[i]


@compiled
def rotate(c, rows, layer, me):
    """Rotate queries and keys, scale the queries, and write keys and values to the cache."""
    heads, kv, d, capacity = c.heads, c.kv_heads, c.head_dim, c.capacity
    group, half, each = heads // kv, d // 2, heads + 2 * kv
    stride = padded_count(each * d, BLOCK)
    projected = carray(floats(c.projected), (rows * stride,))
    queries = carray(floats(c.query), (rows * heads * d,))
    cos, sin = carray(floats(c.cos), (capacity * half,)), carray(floats(c.sin), (capacity * half,))
    scaling = carray(floats(c.settings), (2,))[SCALING]
    for job in range(rows * each * me // c.threads, rows * each * (me + 1) // c.threads):
        row, head = job // each, job % each
        text, position = row // c.rows, c.start + row % c.rows
        o, turn = row * stride + head * d, position * half
        if head < heads:
            # The queries of a key/value head are neighbors.
            to = (((text * kv + head // group) * c.rows + row % c.rows) * group + head % group) * d
            for i in range(half):
                x, y, co, si = projected[o + i], projected[o + half + i], cos[turn + i], sin[turn + i]
                queries[to + i] = (x * co - y * si) * scaling
                queries[to + half + i] = (y * co + x * si) * scaling
        elif head < heads + kv:
            cache = (layer * c.texts + text) * kv + head - heads
            keys = carray(floats(c.keys + cache * d * capacity * NUMBER), (d * capacity,))
            for i in range(half):
                x, y, co, si = projected[o + i], projected[o + half + i], cos[turn + i], sin[turn + i]
                keys[i * capacity + position] = x * co - y * si
                keys[(half + i) * capacity + position] = y * co + x * si
        else:
            cache = ((layer * c.texts + text) * kv + head - heads - kv) * capacity + position
            values = carray(floats(c.values + cache * c.value_width * NUMBER), (d,))
            for i in range(d):
                values[i] = projected[o + i]


@compiled
def mix(c, rows, layer, me, own):
    """Compute the attention of this thread's part of the queries."""
    heads, kv, d, capacity, width = c.heads, c.kv_heads, c.head_dim, c.capacity, c.value_width
    group, stride = heads // kv, padded_count(heads * d, LANES)
    of_head = c.rows * group  # queries of one text that share keys and values
    context = carray(floats(c.context), (rows * stride,))
    scores, mixed = own + c.scores, own + c.mixed
    found = carray(floats(mixed), (QUERIES * width,))
    query, end = rows * heads * me // c.threads, rows * heads * (me + 1) // c.threads
    while query < end:
        which, first = query // of_head, query % of_head
        count = min(QUERIES, end - query, of_head - first)
        cache = layer * c.texts * kv + which
        call_attention(
            c.attention, c.query + query * d * NUMBER, count, first, group, d,
            c.keys + cache * d * capacity * NUMBER, c.values + cache * capacity * width * NUMBER,
            capacity, width, c.start, scores, mixed,
        )  # fmt: skip
        for index in range(count):
            row = which // kv * c.rows + (first + index) // group
            to = row * stride + (which % kv * group + (first + index) % group) * d
            for i in range(d):
                context[to + i] = found[index * width + i]
        query += count


@compiled
def gate_and_up(c, matrix, rows, normed, me):
    """Compute this thread's part of silu(gate) · up: the same outputs of gate and up."""
    mlp, groups, each = c.mlp, c.mlp // LANES, LANES // BLOCK
    first, last = groups * me // c.threads * each, groups * (me + 1) // c.threads * each
    ups = mlp // BLOCK  # the blocks of gate come before those of up
    multiply(matrix, normed, c.width, rows, c.gate, mlp, first, last)
    multiply(matrix, normed, c.width, rows, c.up - mlp * NUMBER, mlp, first + ups, last + ups)
    if last > first:
        for r in range(rows):
            offset = (r * mlp + first * BLOCK) * NUMBER
            swiglu(c.gate + offset, c.up + offset, (last - first) * BLOCK)


@compiled
def run_layers(c, me, own):
    rows, size, width, threads = c.texts * c.rows, c.size, c.width, c.threads
    projected = padded_count((c.heads + 2 * c.kv_heads) * c.head_dim, BLOCK)
    context = padded_count(c.heads * c.head_dim, LANES)
    epsilon = carray(floats(c.settings), (2,))[EPSILON]
    table = carray(longs(c.table), (c.layers * LAYER_FIELDS,))
    states, changes, normed = c.states, c.change, own + c.normed
    for layer in range(c.layers):
        at_layer = layer * LAYER_FIELDS
        norm1, norm2, fields = table[at_layer + NORM1], table[at_layer + NORM2], c.table + at_layer * 8
        # 1. Queries, keys and values. A feature draft's layer reads embedded ids and states side by side.
        stride, right = width, normed
        if c.pair_norm != 0:
            stride, right = 2 * width, normed + width * NUMBER
            normalize(c.pairs, width, rows, size, width, c.pair_norm, normed, stride, epsilon)
        normalize(states, width, rows, size, width, norm1, right, stride, epsilon)
        multiply_share(fields + QKV * 8, normed, stride, rows, c.projected, projected, me, threads)
        barrier()
        # 2. Attention
        rotate(c, rows, layer, me)
        barrier()
        mix(c, rows, layer, me, own)
        barrier()
        part = multiply_share(fields + OUT * 8, c.context, context, rows, changes, width, me, threads)
        add(states, changes, width, rows, part[0], part[1])
        barrier()
        # 3. down(silu(gate) · up)
        normalize(states, width, rows, size, width, norm2, normed, width, epsilon)
        gate_and_up(c, fields + GATE_UP * 8, rows, normed, me)
        barrier()
        part = multiply_share(fields + DOWN * 8, c.gate, c.mlp, rows, changes, width, me, threads)
        add(states, changes, width, rows, part[0], part[1])
        barrier()
        if me == 0 and c.tapped != 0:
            tap(c, rows, layer)


@compiled
def tap(c, rows, layer):
    size, width, place = c.size, c.width, carray(longs(c.tap_places), (c.layers,))[layer]
    if place < 0:
        return
    states = carray(floats(c.states), (rows * width,))
    for r in range(rows):
        to = carray(floats(c.tapped + (r * c.taps + place) * size * NUMBER), (size,))
        for i in range(size):
            to[i] = states[r * width + i]


@emitted(REAL, ADDRESS, INTEGER)
def largest_of(b: Any, numbers: Any, count: Any) -> Any:
    """Return the largest of ``count`` numbers, a multiple of ``LANES``; NaN if one of them is NaN."""

    def larger(x: Any, found: Any) -> Any:
        wins = b.or_(b.fcmp_ordered(">", x, found), b.fcmp_unordered("!=", x, x))
        return b.select(wins, x, found)

    (top,) = vectors.repeated(
        b,
        b.udiv(count, integer(LANES)),
        [vectors.constant(-np.inf)],
        lambda i, found: [larger(vectors.load(b, at(b, numbers, i, 4 * LANES)), found[0])],
    )
    return vectors.folded(b, top, lambda low, high: larger(high, low))


@emitted(REAL, ADDRESS, INTEGER, REAL)
def sum_of_exponentials(b: Any, numbers: Any, count: Any, shift: Any) -> Any:
    """Return Σ exp(number − ``shift``)."""
    shifts = vectors.broadcast(b, shift)

    def step(i: Any, sums: list[Any]) -> list[Any]:
        number = vectors.load(b, at(b, numbers, i, 4 * LANES))
        return [b.fadd(sums[0], vectors.exponential(b, b.fsub(number, shifts)))]

    return vectors.total(
        b, vectors.repeated(b, b.udiv(count, integer(LANES)), [vectors.constant(0)], step)[0]
    )


@compiled
def score(c, me, own):
    """Compute this thread's logits, whole chunks of them, and the largest and the sum of each chunk."""
    rows, width, threads = c.scored, c.width, c.threads
    logits, stride, normed = c.logits, c.logit_stride, own + c.normed
    epsilon = carray(floats(c.settings), (2,))[EPSILON]
    scored = c.states + (c.texts * c.rows - rows) * width * NUMBER
    normalize(scored, width, rows, c.size, width, c.norm, normed, width, epsilon)
    blocks, chunks = padded_count(c.outputs, BLOCK) // BLOCK, padded_count(stride, CHUNK) // CHUNK
    first, last = chunks * me // threads, chunks * (me + 1) // threads
    first_block, last_block = first * CHUNK // BLOCK, min(blocks, last * CHUNK // BLOCK)
    if c.screen == 0:
        multiply(c.output, normed, width, rows, logits, stride, first_block, last_block)
    else:
        # 1. The screen's approximation for all tokens
        down, up = c.screen + SCREEN_DOWN * 8, c.screen + SCREEN_UP * 8
        rank = carray(longs(up), (MATRIX_FIELDS,))[INPUTS]
        multiply_share(down, normed, width, rows, c.low, rank, me, threads)
        barrier()
        multiply(up, c.low, rank, rows, logits, stride, first_block, last_block)
        screened = carray(floats(c.screened), (rows * chunks,))
        for r in range(rows):
            end_row(c, r, last)
            for chunk in range(first, last):
                numbers, count = chunk_of(c, r, chunk)
                screened[r * chunks + chunk] = largest_of(numbers, count)
        barrier()
        # 2. Exact logits where the approximation is near the largest
        for r in range(rows):
            x, y = normed + r * width * NUMBER, logits + r * stride * NUMBER
            row = carray(floats(y), (stride,))
            top = LOWEST
            for chunk in range(chunks):
                top = max(top, screened[r * chunks + chunk])
            for chunk in range(first, last):
                if screened[r * chunks + chunk] >= top - MARGIN:
                    for block in range(chunk * CHUNK // BLOCK, min(blocks, (chunk + 1) * CHUNK // BLOCK)):
                        i = block * BLOCK
                        if max(max(row[i], row[i + 1]), max(row[i + 2], row[i + 3])) >= top - MARGIN:
                            multiply(c.output, x, width, 1, y, stride, block, block + 1)
    tops, sums = carray(floats(c.tops), (rows * chunks,)), carray(floats(c.sums), (rows * chunks,))
    for r in range(rows):
        end_row(c, r, last)
        for chunk in range(first, last):
            numbers, count = chunk_of(c, r, chunk)
            top = largest_of(numbers, count)
            tops[r * chunks + chunk] = top
            sums[r * chunks + chunk] = sum_of_exponentials(numbers, count, top)


@compiled
def chunk_of(c, r, chunk):
    """Return the address of a chunk of a row of logits, and the number of its logits."""
    return c.logits + (r * c.logit_stride + chunk * CHUNK) * NUMBER, min(
        CHUNK, c.logit_stride - chunk * CHUNK
    )


@compiled
def end_row(c, r, last):
    """Write −∞ after the last logit of a row, if this thread has computed it in chunk ``last`` − 1."""
    row = carray(floats(c.logits + r * c.logit_stride * NUMBER), (c.logit_stride,))
    if last * CHUNK >= c.logit_stride:
        for i in range(c.outputs, c.logit_stride):
            row[i] = NEVER


@compiled
def decide(c):
    """Find the best token of each row from its chunks, in their order."""
    rows, stride = c.scored, c.logit_stride
    chunks = padded_count(stride, CHUNK) // CHUNK
    best, largest = carray(longs(c.best), (rows,)), carray(floats(c.largest), (rows,))
    total = carray(floats(c.total), (rows,))
    for r in range(rows):
        tops, sums = (
            carray(floats(c.tops + r * chunks * NUMBER), (chunks,)),
            carray(floats(c.sums + r * chunks * NUMBER), (chunks,)),
        )
        row = carray(floats(c.logits + r * stride * NUMBER), (stride,))
        top, winner = tops[0], 0
        for chunk in range(1, chunks):
            if tops[chunk] > top or tops[chunk] != tops[chunk]:
                top, winner = tops[chunk], chunk
        added = ZERO
        for chunk in range(chunks):
            added += sums[chunk] * np.exp(tops[chunk] - top)
        best[r], largest[r], total[r] = 0, top, added
        for i in range(winner * CHUNK, min(stride, (winner + 1) * CHUNK)):
            if row[i] == top:
                best[r] = i
                break


@compiled
def proceed(c):
    """Make the best token after the last row, and the state of that row, the input of the next pass."""
    row = c.scored - 1
    best = carray(longs(c.best), (row + 1,))[row]
    carray(longs(c.next), (1,))[0] = best if c.id_map == 0 else carray(longs(c.id_map), (c.outputs,))[best]
    c.start += c.rows
    c.ids, c.given, c.rows = c.next, c.last, 1
    c.next += 8
    c.logits += c.logit_stride * NUMBER
    c.best += 8
    c.largest += NUMBER
    c.total += NUMBER


@compiled
def run_one(c, me, own):
    """Run one pass. Only the first thread has all results when it returns."""
    if me == 0:
        rows, width = c.texts * c.rows, c.width
        ids = carray(longs(c.ids), (rows,))
        embedded = c.states if c.pair_norm == 0 else c.pairs
        for r in range(rows):
            weights_of_row(c.embedding, ids[r], embedded + r * width * NUMBER)
        if c.given != 0:
            given = carray(floats(c.given), (rows * c.size,))
            states = carray(floats(c.states), (rows * width,))
            for r in range(rows):
                for i in range(c.size):
                    states[r * width + i] = given[r * c.size + i]
    barrier()
    run_layers(c, me, own)
    if me == 0 and c.last != 0:
        place = c.states + (c.texts * c.rows - 1) * c.width * NUMBER
        state, last = carray(floats(place), (c.size,)), carray(floats(c.last), (c.size,))
        for i in range(c.size):
            last[i] = state[i]
    if c.scored > 0:
        score(c, me, own)
        barrier()
        if me == 0:
            decide(c)


def run_pass(pointer):
    """Run the ``Pass`` at ``pointer`` and those that follow it. Every thread calls this."""
    c = carray(pointer, (1,))[0]
    me = np.int64(thread_number())
    own = c.own + me * c.own_bytes
    for _ in range(c.steps):
        run_one(c, me, own)
        if me == 0 and c.next != 0:
            proceed(c)


whole_pass = compilation.Compiled(types.void(types.CPointer(from_dtype(np.dtype(Pass)))), run_pass)
