"""The kernels of a pass: embed, five for each layer, one for the logits, and one between two draft steps.

A pass computes a tile of 16 rows, of which the first ``rows`` count. Each number is one sum in an order that
depends only on the model and on the position in the text. So a row has the same bits in every pass.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ROWS = tl.constexpr(16)
LOWEST = tl.constexpr(-1e30)  # finite, because −inf − −inf is NaN
CACHE_LINE = tl.constexpr(64)  # in numbers of two bytes
# Places in ``Buffers.control``. LAST is the row of the previous draft step whose state the next one reads.
START, COUNT, LAST, IDS = (tl.constexpr(i) for i in range(4))
CONTROL_SIZE = IDS.value + ROWS.value


class Weights(NamedTuple):
    """A model's tensors, in bf16; those of all layers are stacked.

    Norms need no kernel of their own: a kernel that changes the states also stores them times the gains of
    the next norm, and their sums of squares. The next product multiplies its sums by 1 / √(mean square).
    """

    embedding: Any  # [vocabulary, hidden]
    gains: Any  # of all norms in order: two for each layer, then the final one, [2 · layers + 1, hidden]
    pair_gains: Any  # of the norm of the embedded ids that a feature draft's layer reads, [hidden]
    qkv: Any  # [layers, (heads + 2 · kv_heads) · width, inputs]
    bias: Any  # [layers, (heads + 2 · kv_heads) · width]
    out: Any  # [layers, hidden, heads · width]
    gate_up: Any  # [layers, 2 · mlp, hidden]
    down: Any  # [layers, hidden, mlp]
    head: Any  # [scored, hidden]
    id_map: Any  # target ids of the scored tokens, int32 [scored]


class Buffers(NamedTuple):
    """The cache, and all results inside a pass. ``tiles`` below are those of one row of the states."""

    control: Any  # int32: first position, number of rows, LAST, and 16 ids
    keys: Any  # bf16 [layers, kv_heads, capacity, width]
    vals: Any  # same; Triton's tuples have a method ``values``
    cos: Any  # fp32 [capacity, width / 2]
    sin: Any  # same
    states: Any  # fp32 [16, hidden]
    given: Any  # fp32 [16, hidden], states that a feature draft reads
    scaled: Any  # bf16 [16, hidden], the states times the gains of the next norm
    squares: Any  # fp32 [16, tiles], sums of squares
    pair_scaled: Any  # the same of a feature draft's embedded ids
    pair_squares: Any
    query: Any  # bf16 [16, heads · width]
    context: Any  # same
    mixed: Any  # fp32 [splits, heads, 16, width], attention over a part of the positions, not normalized
    largest: Any  # fp32 [splits, heads, 16], its largest score
    shares: Any  # fp32 [splits, heads, 16], its sum of exponentials
    finished: Any  # int32 [heads], zeros between kernels
    active: Any  # bf16 [16, mlp]
    tapped: Any  # fp32 [taps, 16, hidden], outputs of the tapped layers
    logits: Any  # fp32 [16, scored]
    tops: Any  # fp32 [16, tiles of the head], the largest logit of each tile
    top_rows: Any  # int32, its index
    chosen: Any  # int32 [16], target ids of a draft


@dataclass(frozen=True)
class Tile:
    """The part of a product that one program computes."""

    outputs: int
    inputs: int  # added at once
    stages: int  # loads in flight
    ways: int  # parts of these inputs, each added by warps of its own


@dataclass(frozen=True)
class Shape:
    """Everything that the kernels are compiled for."""

    hidden: int
    heads: int
    kv_heads: int
    width: int  # of a head
    mlp: int
    scored: int
    paired: bool  # whether the first layer reads embedded ids next to given states
    epsilon: float
    scale: float  # of attention scores, times log₂ e
    qkv: Tile
    state: Tile  # of the products that are added to the states
    down: Tile
    gate_up: Tile
    head: Tile
    split: int = 256  # positions that one program of the attention reads
    # A kernel starts while the one before it runs, requests its weights into the L2 cache, and waits.
    early: bool = False

    @property
    def state_tiles(self) -> int:
        return self.hidden // self.state.outputs

    @property
    def head_tiles(self) -> int:
        return -(-self.scored // self.head.outputs)


@triton.jit
def of_layer(pointer, layer, size):
    return pointer + tl.full((), layer, tl.int64) * size


@triton.jit
def wait(S: tl.constexpr):
    """Wait until the kernel before this one has stored all its results, then let the next kernel start.

    Before it waits, a kernel may read what none but kernels before that one write: their results are stored.
    """
    if S.early:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def control(b, place):
    """Load a control value from the L2 cache; before the wait, the L1 cache may hold an earlier one."""
    return tl.load(b.control + place, cache_modifier=".cg")


@triton.jit
def request(weights, first, S: tl.constexpr, OUTPUTS: tl.constexpr, K: tl.constexpr):
    """Request rows of a matrix, which no kernel changes, into the L2 cache."""
    if S.early:
        lines: tl.constexpr = OUTPUTS * K // CACHE_LINE
        i = tl.minimum(tl.arange(0, triton.next_power_of_2(lines)), lines - 1)
        at = (weights + tl.full((), first, tl.int64) * K + i * CACHE_LINE).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def product(
    x, w, outputs, rows, K: tl.constexpr, STRIDE: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STAGES: tl.constexpr, WAYS: tl.constexpr,
):  # fmt: skip
    """Return inputs [16, K] times ``outputs``, rows of a matrix that are ``STRIDE`` numbers apart."""
    if WAYS == 1:
        r, k = tl.arange(0, ROWS)[:, None], tl.arange(0, INPUTS)
        total = tl.zeros((ROWS, OUTPUTS), tl.float32)
        for at in tl.range(0, K, INPUTS, num_stages=STAGES):
            i = at + k
            b = tl.load(w + outputs[None, :] * STRIDE + i[:, None], mask=(i < K)[:, None], other=0.0)
            a = tl.load(x + r * K + i[None, :], mask=(r < rows) & (i < K)[None, :], other=0.0)
            total = tl.dot(a, b, total)
        return total
    else:
        r, part = tl.arange(0, ROWS)[None, :, None], tl.arange(0, INPUTS // WAYS)
        k = tl.arange(0, WAYS)[:, None] * (INPUTS // WAYS) + part[None, :]
        total = tl.zeros((WAYS, ROWS, OUTPUTS), tl.float32)
        for at in tl.range(0, K, INPUTS, num_stages=STAGES):
            i = at + k
            there = (i < K)[:, :, None]
            b = tl.load(w + outputs[None, None, :] * STRIDE + i[:, :, None], mask=there, other=0.0)
            a = tl.load(x + r * K + i[:, None, :], mask=(r < rows) & (i < K)[:, None, :], other=0.0)
            total = tl.dot(a, b, total)
        return tl.sum(total, 0)


@triton.jit
def two_products(
    x, w, first, second, rows, K: tl.constexpr, STRIDE: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STAGES: tl.constexpr, WAYS: tl.constexpr,
):  # fmt: skip
    """Return products of the same inputs with two groups of ``OUTPUTS`` rows: one product, they alternate."""
    both = tl.reshape(tl.join(first, second), (2 * OUTPUTS,))
    found = product(x, w, both, rows, K, STRIDE, 2 * OUTPUTS, INPUTS, STAGES, WAYS)
    return tl.split(tl.reshape(found, (ROWS, OUTPUTS, 2)))


@triton.jit
def squares_of(squares, rows, S: tl.constexpr):
    r, i = tl.arange(0, ROWS)[:, None], tl.arange(0, triton.next_power_of_2(S.state_tiles))[None, :]
    return tl.load(squares + r * S.state_tiles + i, mask=(r < rows) & (i < S.state_tiles), other=0.0)


@triton.jit
def norm_factor(squares, S: tl.constexpr):
    return tl.rsqrt(tl.sum(squares, 1) / S.hidden + S.epsilon)[:, None]


@triton.jit
def prepare_norm(tile, columns, x, gains, scaled, squares, rows, S: tl.constexpr):
    """Store what the next product needs of a tile of its inputs ``x``."""
    r = tl.arange(0, ROWS)
    use = (r < rows)[:, None]
    scaled_x = (x * gains[None, :]).to(tl.bfloat16)
    tl.store(scaled + r[:, None] * S.hidden + columns[None, :], scaled_x, mask=use)
    tl.store(squares + r * S.state_tiles + tile, tl.sum(x * x, 1), mask=r < rows)


@triton.jit(do_not_specialize=["step"])
def embed(step, w, b, S: tl.constexpr):
    """Load the states of the ids. A feature draft keeps them apart from the states that it is given.

    In a later ``step`` of a draft, these are the last row of its own output.
    """
    wait(S)
    tile, r = tl.program_id(0), tl.arange(0, ROWS)
    rows = tl.load(b.control + COUNT)
    columns = tile * S.state.outputs + tl.arange(0, S.state.outputs)
    use = (r < rows)[:, None]
    at = r[:, None] * S.hidden + columns[None, :]
    ids = tl.load(b.control + IDS + r, mask=r < rows, other=0).to(tl.int64)
    source = w.embedding + ids[:, None] * S.hidden + columns[None, :]
    x = tl.load(source, mask=use, other=0.0).to(tl.float32)
    if S.paired:
        gains = tl.load(w.pair_gains + columns)
        prepare_norm(tile, columns, x, gains, b.pair_scaled, b.pair_squares, rows, S)
        x = tl.load(b.given + at, mask=use, other=0.0)
        if step > 0:
            own = b.states + tl.load(b.control + LAST) * S.hidden + r[:, None] * 0 + columns[None, :]
            x = tl.load(own, mask=use, other=0.0)
    tl.store(b.states + at, x, mask=use)
    prepare_norm(tile, columns, x, tl.load(w.gains + columns), b.scaled, b.squares, rows, S)


@triton.jit(do_not_specialize=["layer", "capacity"])
def qkv(layer, capacity, w, b, S: tl.constexpr):
    """Compute queries, keys and values, rotate the first two, and write the last two to the cache.

    A tile has the same columns of both halves of one head, because a rotation mixes them.
    """
    half: tl.constexpr = S.width // 2
    parts: tl.constexpr = (half + S.qkv.outputs - 1) // S.qkv.outputs
    heads: tl.constexpr = S.heads + 2 * S.kv_heads
    inputs: tl.constexpr = 2 * S.hidden if S.paired else S.hidden
    tile, r = tl.program_id(0), tl.arange(0, ROWS)[:, None]
    head, i = tile // parts, tile % parts * S.qkv.outputs + tl.arange(0, S.qkv.outputs)
    first = head * S.width + tl.minimum(i, half - 1)
    weights = of_layer(w.qkv, layer, heads * S.width * inputs)
    request(weights, head * S.width + tile % parts * S.qkv.outputs, S, S.qkv.outputs, inputs)
    request(weights, head * S.width + half + tile % parts * S.qkv.outputs, S, S.qkv.outputs, inputs)
    start, rows = control(b, START), control(b, COUNT)
    bias = of_layer(w.bias, layer, heads * S.width) + first
    bias_x, bias_y = tl.load(bias)[None, :], tl.load(bias + half)[None, :]
    use = (r < rows) & (i < half)[None, :]
    turn = (start + r) * half + i[None, :]
    cos, sin = tl.load(b.cos + turn, mask=use, other=0.0), tl.load(b.sin + turn, mask=use, other=0.0)
    wait(S)
    squares = squares_of(b.squares, rows, S)
    x, y = two_products(
        b.scaled, weights + (inputs - S.hidden), first, first + half, rows, S.hidden, inputs,
        S.qkv.outputs, S.qkv.inputs, S.qkv.stages, S.qkv.ways,
    )  # fmt: skip
    factor = norm_factor(squares, S)
    x, y = x * factor, y * factor
    if S.paired:
        squares = squares_of(b.pair_squares, rows, S)
        x_of_ids, y_of_ids = two_products(
            b.pair_scaled, weights, first, first + half, rows, S.hidden, inputs,
            S.qkv.outputs, S.qkv.inputs, S.qkv.stages, S.qkv.ways,
        )  # fmt: skip
        factor = norm_factor(squares, S)
        x, y = x + x_of_ids * factor, y + y_of_ids * factor
    x, y = x + bias_x, y + bias_y
    if head < S.heads + S.kv_heads:
        x, y = x * cos - y * sin, y * cos + x * sin
    x, y = x.to(tl.bfloat16), y.to(tl.bfloat16)
    position = tl.full((), capacity, tl.int64) * S.width  # numbers of one head in the cache
    if head < S.heads:
        to = b.query + (r * S.heads + head) * S.width + i[None, :]
    elif head < S.heads + S.kv_heads:
        to = b.keys + (layer * S.kv_heads + head - S.heads) * position
        to += (start + r) * S.width + i[None, :]
    else:
        to = b.vals + (layer * S.kv_heads + head - S.heads - S.kv_heads) * position
        to += (start + r) * S.width + i[None, :]
    tl.store(to, x, mask=use)
    tl.store(to + half, y, mask=use)


@triton.jit(do_not_specialize=["layer", "capacity"])
def attention(layer, capacity, w, b, S: tl.constexpr):
    """Attend to one part of the positions, for one head. The last program to finish adds up all parts."""
    head, split = tl.program_id(0) % S.heads, tl.program_id(0) // S.heads
    start, rows = control(b, START), control(b, COUNT)
    wait(S)
    splits = tl.cdiv(start + rows, S.split)
    if split < splits:
        r, d = tl.arange(0, ROWS), tl.arange(0, triton.next_power_of_2(S.width))
        own = (r * S.heads + head)[:, None] * S.width + d[None, :]
        use = (r < rows)[:, None] & (d < S.width)[None, :]
        query = tl.load(b.query + own, mask=use, other=0.0)
        kv_head = layer * S.kv_heads + head // (S.heads // S.kv_heads)
        first = kv_head * tl.full((), capacity, tl.int64) * S.width
        p = split * S.split + tl.arange(0, S.split)
        at = first + p[:, None] * S.width + d[None, :]
        there = (p < start + rows)[:, None] & (d < S.width)[None, :]  # memory after the text may hold NaN
        key = tl.load(b.keys + at, mask=there, other=0.0)
        value = tl.load(b.vals + at, mask=there, other=0.0)
        seen = p[None, :] <= start + r[:, None]
        scores = tl.where(seen, tl.dot(query, key.T) * S.scale, LOWEST)
        largest = tl.max(scores, 1)
        weight = tl.where(seen, tl.exp2(scores - largest[:, None]), 0.0)
        total, mixed = tl.sum(weight, 1), tl.dot(weight.to(tl.bfloat16), value)
        if splits == 1:
            tl.store(b.context + own, (mixed / total[:, None]).to(tl.bfloat16), mask=use)
        else:
            part = (split * S.heads + head) * ROWS + r
            tl.store(b.mixed + part[:, None] * S.width + d[None, :], mixed, mask=use)
            tl.store(b.largest + part, largest, mask=r < rows)
            tl.store(b.shares + part, total, mask=r < rows)
            tl.debug_barrier()  # all threads of this program have stored
            before = tl.atomic_add(b.finished + head, 1, sem="acq_rel", scope="gpu")
            if before == splits - 1:
                tl.store(b.finished + head, 0)
                add_parts(splits, head, own, use, r, d, b, S)


@triton.jit
def add_parts(splits, head, own, use, r, d, b, S: tl.constexpr):
    largest, total = tl.full((ROWS,), LOWEST, tl.float32), tl.zeros((ROWS,), tl.float32)
    for split in range(splits):
        part = (split * S.heads + head) * ROWS + r
        largest = tl.maximum(largest, tl.load(b.largest + part))
    mixed = tl.zeros((ROWS, triton.next_power_of_2(S.width)), tl.float32)
    for split in range(splits):
        part = (split * S.heads + head) * ROWS + r
        share = tl.exp2(tl.load(b.largest + part) - largest)
        total += share * tl.load(b.shares + part)
        mixed += share[:, None] * tl.load(b.mixed + part[:, None] * S.width + d[None, :], mask=use, other=0.0)
    tl.store(b.context + own, (mixed / total[:, None]).to(tl.bfloat16), mask=use)


@triton.jit
def add_to_states(
    x, weights, gains, tap, b, S: tl.constexpr, K: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STAGES: tl.constexpr, WAYS: tl.constexpr,
):  # fmt: skip
    tile, r = tl.program_id(0), tl.arange(0, ROWS)[:, None]
    request(weights, tile * OUTPUTS, S, OUTPUTS, K)
    columns = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    gains, rows = tl.load(gains + columns), control(b, COUNT)
    wait(S)
    at = r * S.hidden + columns[None, :]
    state = tl.load(b.states + at, mask=r < rows, other=0.0)
    state += product(x, weights, columns, rows, K, K, OUTPUTS, INPUTS, STAGES, WAYS)
    tl.store(b.states + at, state, mask=r < rows)
    if tap >= 0:
        tl.store(b.tapped + tap * ROWS * S.hidden + at, state, mask=r < rows)
    prepare_norm(tile, columns, state, gains, b.scaled, b.squares, rows, S)


@triton.jit(do_not_specialize=["layer"])
def out(layer, w, b, S: tl.constexpr):
    weights = of_layer(w.out, layer, S.hidden * S.heads * S.width)
    gains = of_layer(w.gains, 2 * layer + 1, S.hidden)
    add_to_states(
        b.context, weights, gains, -1, b, S, S.heads * S.width,
        S.state.outputs, S.state.inputs, S.state.stages, S.state.ways,
    )  # fmt: skip


@triton.jit(do_not_specialize=["layer"])
def gate_up(layer, w, b, S: tl.constexpr):
    """Compute silu(gate) · up."""
    tile, r = tl.program_id(0), tl.arange(0, ROWS)[:, None]
    i = tile * S.gate_up.outputs + tl.arange(0, S.gate_up.outputs)
    weights = of_layer(w.gate_up, layer, 2 * S.mlp * S.hidden)
    request(weights, tile * S.gate_up.outputs, S, S.gate_up.outputs, S.hidden)
    request(weights, S.mlp + tile * S.gate_up.outputs, S, S.gate_up.outputs, S.hidden)
    rows = control(b, COUNT)
    wait(S)
    squares = squares_of(b.squares, rows, S)
    gate, up = two_products(
        b.scaled, weights, i, i + S.mlp, rows, S.hidden, S.hidden,
        S.gate_up.outputs, S.gate_up.inputs, S.gate_up.stages, S.gate_up.ways,
    )  # fmt: skip
    factor = norm_factor(squares, S)
    gate, up = gate * factor, up * factor
    active = (gate / (1.0 + tl.exp(-gate)) * up).to(tl.bfloat16)
    tl.store(b.active + r * S.mlp + i[None, :], active, mask=r < rows)


@triton.jit(do_not_specialize=["layer", "norm", "tap"])
def down(layer, norm, tap, w, b, S: tl.constexpr):
    """``norm`` is the index of the next norm; ``tap`` the place of the layer's output among taps, or −1."""
    weights, gains = of_layer(w.down, layer, S.hidden * S.mlp), of_layer(w.gains, norm, S.hidden)
    add_to_states(
        b.active, weights, gains, tap, b, S, S.mlp,
        S.down.outputs, S.down.inputs, S.down.stages, S.down.ways,
    )  # fmt: skip


@triton.jit(do_not_specialize=["step"])
def head(step, w, b, S: tl.constexpr):
    """Compute the logits of all rows; in a draft, those of the last row as row ``step``, else −1."""
    tile, r = tl.program_id(0), tl.arange(0, ROWS)
    request(w.head, tl.minimum(tile * S.head.outputs, S.scored - S.head.outputs), S, S.head.outputs, S.hidden)
    rows = control(b, COUNT)
    wait(S)
    i = tile * S.head.outputs + tl.arange(0, S.head.outputs)
    squares = squares_of(b.squares, rows, S)
    logits = product(
        b.scaled, w.head, tl.minimum(i, S.scored - 1), rows, S.hidden, S.hidden,
        S.head.outputs, S.head.inputs, S.head.stages, S.head.ways,
    )  # fmt: skip
    logits = logits * norm_factor(squares, S)
    to, use = tl.where(step < 0, r, step), (r < rows) & (r >= tl.where(step < 0, 0, rows - 1))
    at = to[:, None].to(tl.int64) * S.scored + i[None, :]
    tl.store(b.logits + at, logits, mask=use[:, None] & (i < S.scored)[None, :])
    logits = tl.where((i < S.scored)[None, :], logits, -float("inf"))
    tops = tl.max(logits, 1)
    top_rows = tl.min(tl.where(logits == tops[:, None], i[None, :], S.scored - 1), 1)
    tl.store(b.tops + to * S.head_tiles + tile, tops, mask=use)
    tl.store(b.top_rows + to * S.head_tiles + tile, top_rows, mask=use)


@triton.jit(do_not_specialize=["step"])
def advance(step, w, b, S: tl.constexpr, BEST: tl.constexpr):
    """Make draft token ``step`` the input of the next step. If ``BEST``, it is the most likely one.

    Of equally likely tokens, it is the first. Otherwise a rule has written it to ``chosen``.
    """
    wait(S)
    if BEST:
        i = tl.arange(0, triton.next_power_of_2(S.head_tiles))
        at, use = step * S.head_tiles + i, i < S.head_tiles
        tops = tl.load(b.tops + at, mask=use, other=-float("inf"))
        top_rows = tl.load(b.top_rows + at, mask=use, other=S.scored - 1)
        row = tl.min(tl.where(tops == tl.max(tops, 0), top_rows, S.scored - 1), 0)
        token = tl.load(w.id_map + row)
        tl.store(b.chosen + step, token)
    else:
        token = tl.load(b.chosen + step)
    rows = tl.load(b.control + COUNT)
    tl.store(b.control + START, tl.load(b.control + START) + rows)
    tl.store(b.control + LAST, rows - 1)
    tl.store(b.control + COUNT, 1)
    tl.store(b.control + IDS, token)
