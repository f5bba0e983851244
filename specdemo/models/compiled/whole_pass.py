"""A whole pass as one compiled function that every thread runs; a thread computes a part of every product.
The division of the work never changes the order of a sum, so no bit depends on the number of threads.
"""

from typing import Any

import numpy as np
from numba import carray, types

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

(
    # the pass
    IDS, TEXTS, ROWS, START, SCORED, THREADS, ATTENTION, STEPS, NEXT, ID_MAP,
    # the model
    LAYERS, SIZE, WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP, TABLE, NORM, EMBEDDING, OUTPUT, SETTINGS, SCREEN,
    # the cache
    KEYS, VALUES, CAPACITY, VALUE_WIDTH, COS, SIN,
    # memory that all threads share, and each thread's own
    STATES, CHANGE, PROJECTED, QUERY, CONTEXT, GATE, UP, PAIRS, LOW, SCREENED, TOPS, SUMS,
    OWN, OWN_BYTES, NORMED, SCORES, MIXED,
    # other inputs and outputs
    LOGITS, LOGIT_STRIDE, OUTPUTS, BEST, LARGEST, TOTAL, TAP_PLACES, TAPPED, TAPS, GIVEN, PAIR_NORM, LAST,
) = range(58)  # fmt: skip
# Fields of a pass, int64; an address is 0 if the pass has no such thing. A pass has TEXTS · ROWS rows: ROWS
# new tokens of each text, from position START on. The last SCORED rows get logits. WIDTH is SIZE, the length
# of a state, padded to whole vectors. GIVEN are the states of a feature draft, whose first layer reads them
# together with the embedded ids. The last row's state is written to LAST. BEST, LARGEST and TOTAL are the
# decisions about each row of logits. If NEXT is an address, the pass is followed by passes over its best
# token, STEPS passes together: the token's id, found in ID_MAP if there is one, is written to NEXT.
FIELDS = 58
EPSILON, SCALING = range(2)  # the numbers in SETTINGS
# Fields of a layer in TABLE: addresses of both norms' weights, and the descriptions of the four matrices.
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
    heads, kv, d, capacity = c[HEADS], c[KV_HEADS], c[HEAD_DIM], c[CAPACITY]
    group, half, each = heads // kv, d // 2, heads + 2 * kv
    stride = padded_count(each * d, BLOCK)
    projected = carray(floats(c[PROJECTED]), (rows * stride,))
    queries = carray(floats(c[QUERY]), (rows * heads * d,))
    cos, sin = carray(floats(c[COS]), (capacity * half,)), carray(floats(c[SIN]), (capacity * half,))
    scaling = carray(floats(c[SETTINGS]), (2,))[SCALING]
    for job in range(rows * each * me // c[THREADS], rows * each * (me + 1) // c[THREADS]):
        row, head = job // each, job % each
        text, position = row // c[ROWS], c[START] + row % c[ROWS]
        o, turn = row * stride + head * d, position * half
        if head < heads:
            # The queries of a key/value head are neighbors.
            to = (((text * kv + head // group) * c[ROWS] + row % c[ROWS]) * group + head % group) * d
            for i in range(half):
                x, y, co, si = projected[o + i], projected[o + half + i], cos[turn + i], sin[turn + i]
                queries[to + i] = (x * co - y * si) * scaling
                queries[to + half + i] = (y * co + x * si) * scaling
        elif head < heads + kv:
            cache = (layer * c[TEXTS] + text) * kv + head - heads
            keys = carray(floats(c[KEYS] + cache * d * capacity * NUMBER), (d * capacity,))
            for i in range(half):
                x, y, co, si = projected[o + i], projected[o + half + i], cos[turn + i], sin[turn + i]
                keys[i * capacity + position] = x * co - y * si
                keys[(half + i) * capacity + position] = y * co + x * si
        else:
            cache = ((layer * c[TEXTS] + text) * kv + head - heads - kv) * capacity + position
            values = carray(floats(c[VALUES] + cache * c[VALUE_WIDTH] * NUMBER), (d,))
            for i in range(d):
                values[i] = projected[o + i]


@compiled
def mix(c, rows, layer, me, own):
    """Compute the attention of this thread's part of the queries."""
    heads, kv, d, capacity, width = c[HEADS], c[KV_HEADS], c[HEAD_DIM], c[CAPACITY], c[VALUE_WIDTH]
    group, stride = heads // kv, padded_count(heads * d, LANES)
    of_head = c[ROWS] * group  # queries of one text that share keys and values
    context = carray(floats(c[CONTEXT]), (rows * stride,))
    scores, mixed = own + c[SCORES], own + c[MIXED]
    found = carray(floats(mixed), (QUERIES * width,))
    query, end = rows * heads * me // c[THREADS], rows * heads * (me + 1) // c[THREADS]
    while query < end:
        which, first = query // of_head, query % of_head
        count = min(QUERIES, end - query, of_head - first)
        cache = layer * c[TEXTS] * kv + which
        call_attention(
            c[ATTENTION], c[QUERY] + query * d * NUMBER, count, first, group, d,
            c[KEYS] + cache * d * capacity * NUMBER, c[VALUES] + cache * capacity * width * NUMBER,
            capacity, width, c[START], scores, mixed,
        )  # fmt: skip
        for index in range(count):
            row = which // kv * c[ROWS] + (first + index) // group
            to = row * stride + (which % kv * group + (first + index) % group) * d
            for i in range(d):
                context[to + i] = found[index * width + i]
        query += count


@compiled
def gate_and_up(c, matrix, rows, normed, me):
    """Compute this thread's part of silu(gate) · up: the same outputs of gate and up."""
    mlp, groups, each = c[MLP], c[MLP] // LANES, LANES // BLOCK
    first, last = groups * me // c[THREADS] * each, groups * (me + 1) // c[THREADS] * each
    ups = mlp // BLOCK  # the blocks of gate come before those of up
    multiply(matrix, normed, c[WIDTH], rows, c[GATE], mlp, first, last)
    multiply(matrix, normed, c[WIDTH], rows, c[UP] - mlp * NUMBER, mlp, first + ups, last + ups)
    if last > first:
        for r in range(rows):
            offset = (r * mlp + first * BLOCK) * NUMBER
            swiglu(c[GATE] + offset, c[UP] + offset, (last - first) * BLOCK)


@compiled
def run_layers(c, me, own):
    rows, size, width, threads = c[TEXTS] * c[ROWS], c[SIZE], c[WIDTH], c[THREADS]
    projected = padded_count((c[HEADS] + 2 * c[KV_HEADS]) * c[HEAD_DIM], BLOCK)
    context = padded_count(c[HEADS] * c[HEAD_DIM], LANES)
    epsilon = carray(floats(c[SETTINGS]), (2,))[EPSILON]
    table = carray(longs(c[TABLE]), (c[LAYERS] * LAYER_FIELDS,))
    states, changes, normed = c[STATES], c[CHANGE], own + c[NORMED]
    for layer in range(c[LAYERS]):
        at_layer = layer * LAYER_FIELDS
        norm1, norm2, fields = table[at_layer + NORM1], table[at_layer + NORM2], c[TABLE] + at_layer * 8
        # 1. Queries, keys and values. A feature draft's layer reads embedded ids and states side by side.
        stride, right = width, normed
        if c[PAIR_NORM] != 0:
            stride, right = 2 * width, normed + width * NUMBER
            normalize(c[PAIRS], width, rows, size, width, c[PAIR_NORM], normed, stride, epsilon)
        normalize(states, width, rows, size, width, norm1, right, stride, epsilon)
        multiply_share(fields + QKV * 8, normed, stride, rows, c[PROJECTED], projected, me, threads)
        barrier()
        # 2. Attention
        rotate(c, rows, layer, me)
        barrier()
        mix(c, rows, layer, me, own)
        barrier()
        part = multiply_share(fields + OUT * 8, c[CONTEXT], context, rows, changes, width, me, threads)
        add(states, changes, width, rows, part[0], part[1])
        barrier()
        # 3. down(silu(gate) · up)
        normalize(states, width, rows, size, width, norm2, normed, width, epsilon)
        gate_and_up(c, fields + GATE_UP * 8, rows, normed, me)
        barrier()
        part = multiply_share(fields + DOWN * 8, c[GATE], c[MLP], rows, changes, width, me, threads)
        add(states, changes, width, rows, part[0], part[1])
        barrier()
        if me == 0 and c[TAPPED] != 0:
            tap(c, rows, layer)


@compiled
def tap(c, rows, layer):
    size, width, place = c[SIZE], c[WIDTH], carray(longs(c[TAP_PLACES]), (c[LAYERS],))[layer]
    if place < 0:
        return
    states = carray(floats(c[STATES]), (rows * width,))
    for r in range(rows):
        to = carray(floats(c[TAPPED] + (r * c[TAPS] + place) * size * NUMBER), (size,))
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
    rows, width, threads = c[SCORED], c[WIDTH], c[THREADS]
    logits, stride, normed = c[LOGITS], c[LOGIT_STRIDE], own + c[NORMED]
    epsilon = carray(floats(c[SETTINGS]), (2,))[EPSILON]
    scored = c[STATES] + (c[TEXTS] * c[ROWS] - rows) * width * NUMBER
    normalize(scored, width, rows, c[SIZE], width, c[NORM], normed, width, epsilon)
    blocks, chunks = padded_count(c[OUTPUTS], BLOCK) // BLOCK, padded_count(stride, CHUNK) // CHUNK
    first, last = chunks * me // threads, chunks * (me + 1) // threads
    first_block, last_block = first * CHUNK // BLOCK, min(blocks, last * CHUNK // BLOCK)
    if c[SCREEN] == 0:
        multiply(c[OUTPUT], normed, width, rows, logits, stride, first_block, last_block)
    else:
        # 1. The screen's approximation for all tokens
        down, up = c[SCREEN] + SCREEN_DOWN * 8, c[SCREEN] + SCREEN_UP * 8
        rank = carray(longs(up), (MATRIX_FIELDS,))[INPUTS]
        multiply_share(down, normed, width, rows, c[LOW], rank, me, threads)
        barrier()
        multiply(up, c[LOW], rank, rows, logits, stride, first_block, last_block)
        screened = carray(floats(c[SCREENED]), (rows * chunks,))
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
                            multiply(c[OUTPUT], x, width, 1, y, stride, block, block + 1)
    tops, sums = carray(floats(c[TOPS]), (rows * chunks,)), carray(floats(c[SUMS]), (rows * chunks,))
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
    return c[LOGITS] + (r * c[LOGIT_STRIDE] + chunk * CHUNK) * NUMBER, min(
        CHUNK, c[LOGIT_STRIDE] - chunk * CHUNK
    )


@compiled
def end_row(c, r, last):
    """Write −∞ after the last logit of a row, if this thread has computed it in chunk ``last`` − 1."""
    row = carray(floats(c[LOGITS] + r * c[LOGIT_STRIDE] * NUMBER), (c[LOGIT_STRIDE],))
    if last * CHUNK >= c[LOGIT_STRIDE]:
        for i in range(c[OUTPUTS], c[LOGIT_STRIDE]):
            row[i] = NEVER


@compiled
def decide(c):
    """Find the best token of each row from its chunks, in their order."""
    rows, stride = c[SCORED], c[LOGIT_STRIDE]
    chunks = padded_count(stride, CHUNK) // CHUNK
    best, largest = carray(longs(c[BEST]), (rows,)), carray(floats(c[LARGEST]), (rows,))
    total = carray(floats(c[TOTAL]), (rows,))
    for r in range(rows):
        tops, sums = (
            carray(floats(c[TOPS] + r * chunks * NUMBER), (chunks,)),
            carray(floats(c[SUMS] + r * chunks * NUMBER), (chunks,)),
        )
        row = carray(floats(c[LOGITS] + r * stride * NUMBER), (stride,))
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
    row = c[SCORED] - 1
    best = carray(longs(c[BEST]), (row + 1,))[row]
    carray(longs(c[NEXT]), (1,))[0] = (
        best if c[ID_MAP] == 0 else carray(longs(c[ID_MAP]), (c[OUTPUTS],))[best]
    )
    c[START] += c[ROWS]
    c[IDS], c[GIVEN], c[ROWS] = c[NEXT], c[LAST], 1
    c[NEXT] += 8
    c[LOGITS] += c[LOGIT_STRIDE] * NUMBER
    c[BEST] += 8
    c[LARGEST] += NUMBER
    c[TOTAL] += NUMBER


@compiled
def run_one(c, me, own):
    """Run one pass. Only the first thread has all results when it returns."""
    if me == 0:
        rows, width = c[TEXTS] * c[ROWS], c[WIDTH]
        ids = carray(longs(c[IDS]), (rows,))
        embedded = c[STATES] if c[PAIR_NORM] == 0 else c[PAIRS]
        for r in range(rows):
            weights_of_row(c[EMBEDDING], ids[r], embedded + r * width * NUMBER)
        if c[GIVEN] != 0:
            given = carray(floats(c[GIVEN]), (rows * c[SIZE],))
            states = carray(floats(c[STATES]), (rows * width,))
            for r in range(rows):
                for i in range(c[SIZE]):
                    states[r * width + i] = given[r * c[SIZE] + i]
    barrier()
    run_layers(c, me, own)
    if me == 0 and c[LAST] != 0:
        place = c[STATES] + (c[TEXTS] * c[ROWS] - 1) * c[WIDTH] * NUMBER
        state, last = carray(floats(place), (c[SIZE],)), carray(floats(c[LAST]), (c[SIZE],))
        for i in range(c[SIZE]):
            last[i] = state[i]
    if c[SCORED] > 0:
        score(c, me, own)
        barrier()
        if me == 0:
            decide(c)


def run_pass(pointer):
    """Run the passes that ``FIELDS`` numbers at ``pointer`` describe. Every thread calls this."""
    c = carray(pointer, (FIELDS,))
    me = np.int64(thread_number())
    own = c[OWN] + me * c[OWN_BYTES]
    for _ in range(c[STEPS]):
        run_one(c, me, own)
        if me == 0 and c[NEXT] != 0:
            proceed(c)


whole_pass = compilation.Compiled(types.void(types.CPointer(types.int64)), run_pass)
