"""The layers of a model or of a feature draft, and their caches, for compiled passes."""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.models.compiled.attention import PAIR, QUERIES, attention
from specdemo.models.compiled.product import BLOCK, LANES, Matrix, padded
from specdemo.models.compiled.whole_pass import CHUNK, Pass, whole_pass
from specdemo.models.decisions import Decisions, with_decisions
from specdemo.records.limits import MAX_K

MOST_ROWS = 48  # maximum number of rows of a pass over one text; a prompt is read in several passes
MOST_THREADS = os.cpu_count() or 1


class Sizes(NamedTuple):
    """The sizes of a stack."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int  # the width between gate and down
    epsilon: float
    scaling: float


class Layer(NamedTuple):
    """The weights of one layer; the norms are in fp32."""

    norm1: Tensor
    qkv: Matrix
    o: Matrix
    norm2: Tensor
    gate_up: Matrix
    down: Matrix


class ScreenMatrices(NamedTuple):
    """A screen of the output layer."""

    down: Matrix
    up: Matrix  # with the bias


class Scores(NamedTuple):
    """The results of a pass."""

    logits: Tensor  # shape [scored, V], with decisions
    tapped: Tensor | None  # outputs of the layers in ``taps``, concatenated, shape [texts · n, taps · d]
    last: Tensor | None  # the last row's state before the final norm, shape [1, d]; None without given states


@dataclass(eq=False)
class StackCache:
    """Keys and values of several texts of equal length, and the memory of a pass."""

    keys: Tensor  # shape [layers, texts, kv_heads, head_dim, capacity]
    values: Tensor  # shape [layers, texts, kv_heads, capacity, padded head_dim]
    capacity: int  # maximum number of positions
    most: int  # maximum number of rows of a pass
    fields: Pass  # those that do not change from pass to pass are set
    kept: tuple[Tensor, ...]  # the tensors that the fields point to
    written: "WrittenDraft | None" = None  # by the last :meth:`Stack.write`


class Results:
    """Memory for n rows of logits [n, padded V] and their decisions."""

    def __init__(self, rows: int, width: int):
        self.logits = torch.empty(rows, width)
        self._best = np.empty(rows, np.int64)
        self._numbers = np.empty((2, rows), np.float32)  # the largest logits, and the sums

    def place(self, c: Pass, row: int) -> None:
        """Let a pass write its first row of logits to ``row``."""
        largest = self._numbers.ctypes.data + 4 * row
        c.logits = self.logits.data_ptr() + 4 * row * self.logits.shape[1]
        c.best = self._best.ctypes.data + 8 * row
        c.largest, c.total = largest, largest + 4 * self._numbers.shape[1]

    def decisions(self, rows: int) -> Decisions:
        return Decisions(self._best[:rows].tolist(), *self._numbers[:, :rows].tolist())


class WrittenDraft:
    """Memory for the steps of a draft, with the tokens and the last state that the next step reads."""

    def __init__(self, width: int, outputs: int, hidden: int):
        self.results = Results(MAX_K + 1, width)
        self.last = torch.zeros(1, hidden)
        ids = torch.zeros(MAX_K + 1, dtype=torch.long)
        counts = range(MAX_K + 2)
        # Views by the number of steps, made once, because making them takes long between passes.
        self.ids = [ids[:count] for count in counts]
        self.logits = [self.results.logits[:count, :outputs] for count in counts]


class Stack:
    """A stack of layers with an embedding and an output layer, ready for compiled passes.

    ``rotations`` returns cos and sin of the first positions, each [positions, head_dim / 2], fp32.
    ``pair_norm`` is the norm of the embedded ids, if the first layer reads them together with given states.
    """

    def __init__(
        self,
        sizes: Sizes,
        layers: Sequence[Layer],
        norm: Tensor,
        embedding: Matrix,
        output: Matrix,
        rotations: Callable[[int], tuple[Tensor, Tensor]],
        screen: ScreenMatrices | None = None,
        pair_norm: Tensor | None = None,
    ):
        self.sizes, self.layers, self.embedding, self.output = sizes, list(layers), embedding, output
        self._rotations, self._screen = rotations, screen
        self._width = width = padded(sizes.hidden)
        vectors = [norm, *(vector for layer in layers for vector in (layer.norm1, layer.norm2))]
        vectors += [] if pair_norm is None else [pair_norm]
        self._vectors = [F.pad(vector.detach().float(), (0, width - len(vector))) for vector in vectors]
        self._norm, rest = self._vectors[0], self._vectors[1:]
        self._pair_norm = None if pair_norm is None else rest.pop()
        table = []
        for index, layer in enumerate(layers):
            first, second = rest[2 * index : 2 * index + 2]
            table += [first.data_ptr(), *layer.qkv.description, *layer.o.description]
            table += [second.data_ptr(), *layer.gate_up.description, *layer.down.description]
        self._table = torch.tensor(table)
        self._settings = torch.tensor([sizes.epsilon, sizes.scaling])
        screens = [] if screen is None else [*screen.down.description, *screen.up.description]
        self._screens = torch.tensor(screens, dtype=torch.long)
        self._taps: dict[tuple[int, ...], Tensor] = {}

    @property
    def tensors(self) -> list[Tensor]:
        """The weights that passes read, and the tables of their addresses, int64."""
        weights = [
            matrix for layer in self.layers for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down)
        ]
        weights += [self.embedding, self.output, *(self._screen or ())]
        found = [tensor for matrix in weights for tensor in (*matrix.tensors, matrix.description)]
        return [*found, *self._vectors, self._table, self._settings, self._screens]

    def open(self, capacity: int, texts: int = 1) -> StackCache:
        sizes, width, layers = self.sizes, self._width, len(self.layers)
        hidden, heads, kv_heads, d, mlp, *_ = sizes
        positions, value_width = padded(capacity, PAIR), padded(d, PAIR)
        keys = torch.zeros(layers, texts, kv_heads, d, positions)
        values = torch.zeros(layers, texts, kv_heads, positions, value_width)
        cos, sin = (part.float().contiguous() for part in self._rotations(positions))
        # One pass verifies the drafts of all texts, because a second one would read the weights again.
        most, mlp = max(MOST_ROWS, texts * (MAX_K + 1)), padded(mlp)
        low = padded(self._screen.down.outputs) if self._screen else 0
        stride = padded(self.output.outputs)
        chunks = padded(stride, CHUNK) // CHUNK
        shared = {
            "states": width, "change": width, "pairs": width,
            "projected": padded((heads + 2 * kv_heads) * d, BLOCK), "query": heads * d,
            "context": padded(heads * d), "gate": mlp, "up": mlp, "low": low,
            "screened": chunks, "tops": chunks, "sums": chunks,
        }  # fmt: skip
        own = {"normed": most * 2 * width, "scores": QUERIES * positions, "mixed": QUERIES * value_width}
        own_size = padded(sum(own.values()))
        memory = torch.zeros(most * sum(shared.values()) + MOST_THREADS * own_size + len(shared) * LANES)
        c = Pass()
        place = memory.data_ptr()
        for name, size in shared.items():
            setattr(c, name, place)
            place += 4 * padded(most * size)
        c.own, c.own_bytes = place, 4 * own_size
        offset = 0
        for name, size in own.items():
            setattr(c, name, offset)
            offset += 4 * size
        c.texts, c.layers, c.attention = texts, layers, attention.compile()
        c.size, c.width = hidden, width
        c.heads, c.kv_heads, c.head_dim, c.mlp = heads, kv_heads, d, mlp
        c.table, c.norm = self._table.data_ptr(), self._norm.data_ptr()
        c.embedding, c.output = self.embedding.address, self.output.address
        c.settings = self._settings.data_ptr()
        c.screen = self._screens.data_ptr() if self._screen else 0
        c.pair_norm = 0 if self._pair_norm is None else self._pair_norm.data_ptr()
        c.keys, c.values = keys.data_ptr(), values.data_ptr()
        c.capacity, c.value_width = positions, value_width
        c.cos, c.sin = cos.data_ptr(), sin.data_ptr()
        c.logit_stride, c.outputs = stride, self.output.outputs
        return StackCache(keys, values, capacity, most, c, (memory, cos, sin))

    def run(
        self,
        cache: StackCache,
        ids: Tensor,
        start: int,
        scored: int,
        threads: int,
        depth: int | None = None,
        taps: Sequence[int] = (),
        given: Tensor | None = None,
    ) -> Scores:
        """Append n tokens to each text of the cache.

        Args:
            ids: The ids of the first text, then of the next, and so on, shape [texts · n], int64.
            start: Position of the first id in every text.
            scored: Number of final rows that get logits.
            depth: Number of layers to run; None for all.
            taps: Indices of layers whose outputs are returned.
            given: States that the first layer reads together with the ids, shape [texts · n, d].
        """
        texts = cache.keys.shape[1]
        n = len(ids) // texts
        self._check(cache, ids, start, n)
        size, at_once = self.sizes.hidden, cache.most // texts
        assert texts == 1 or n <= at_once, "the rows of several texts are in order only within one pass"
        c = cache.fields
        results = Results(scored, c.logit_stride)
        tapped = torch.empty(len(ids), len(taps) * size) if taps else None
        last = torch.empty(1, size) if given is not None else None
        c.taps = len(taps)
        if taps:
            c.tap_places = self._tap_places(tuple(taps)).data_ptr()
        for first in range(0, n, at_once):
            rows = min(at_once, n - first)
            part = slice(first, first + rows)
            own_ids = (ids[part] if texts == 1 else ids).contiguous()
            own_given = None if given is None else given[part].contiguous()
            wanted = max(0, min(texts * rows, scored - texts * (n - first - rows)))
            c.steps, c.next = 1, 0
            c.ids, c.rows, c.start, c.scored = own_ids.data_ptr(), rows, start + first, wanted
            results.place(c, scored - texts * (n - first - rows) - wanted)
            c.given = 0 if own_given is None else own_given.data_ptr()
            c.last = 0 if last is None else last.data_ptr()
            c.tapped = 0 if tapped is None else tapped[first:].data_ptr()
            self._start(c, threads, depth)
        logits = with_decisions(results.logits[:, : self.output.outputs], results.decisions(scored))
        return Scores(logits, tapped, last)

    def write(
        self,
        cache: StackCache,
        ids: Tensor,
        start: int,
        first: int,
        steps: int,
        threads: int,
        id_map: Tensor | None = None,
        depth: int | None = None,
        given: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Make ``steps`` steps of a draft in one call, each over the most likely token of the step before.

        Args:
            ids: The ids that the draft's first step appends, shape [n]; later steps do not read them.
            first: Number of this draft's steps before this call.
            id_map: The id of each logit, shape [V]; None if they are equal.
            given: As in :meth:`run`, of the first step; later steps read the last state of the one before.

        Returns:
            Tokens and logits of all steps of the draft, [first + steps] and [first + steps, V], with
            decisions. The next draft overwrites them.
        """
        n, c = 1 if first else len(ids), cache.fields
        self._check(cache, ids, start, n + steps - 1)
        assert n <= cache.most, "the ids of a draft's first step are one pass"
        if cache.written is None:
            cache.written = WrittenDraft(c.logit_stride, self.output.outputs, self.sizes.hidden)
        written, following = cache.written, cache.written.ids[-1].data_ptr() + 8 * first
        c.taps = c.tapped = 0
        c.steps, c.next = steps, following
        c.id_map = 0 if id_map is None else id_map.data_ptr()
        c.ids = following - 8 if first else ids.data_ptr()
        c.rows, c.start, c.scored = n, start, 1
        c.given = c.last = 0
        if self._pair_norm is not None:
            states = written.last if first else given
            assert states is not None, "the first step of a feature draft reads given states"
            c.given, c.last = states.data_ptr(), written.last.data_ptr()
        written.results.place(c, first)
        self._start(c, threads, depth)
        total = first + steps
        return written.ids[total], with_decisions(written.logits[total], written.results.decisions(total))

    def _check(self, cache: StackCache, ids: Tensor, start: int, count: int) -> None:
        """Raise an IndexError instead of reading or writing other memory."""
        if start < 0 or start + count > cache.capacity:
            raise IndexError(f"positions {start} to {start + count - 1} of {cache.capacity}")
        known = ids.tolist()
        if known and not 0 <= min(known) <= max(known) < self.embedding.outputs:
            raise IndexError(f"ids from {min(known)} to {max(known)} of {self.embedding.outputs}")

    def _start(self, c: Pass, threads: int, depth: int | None) -> None:
        c.threads = min(threads, MOST_THREADS)
        c.layers = len(self.layers) if depth is None else depth
        whole_pass.run(ctypes.addressof(c), c.threads)

    def _tap_places(self, taps: tuple[int, ...]) -> Tensor:
        if taps not in self._taps:
            places = torch.full((len(self.layers),), -1)
            places[list(taps)] = torch.arange(len(taps))
            self._taps[taps] = places
        return self._taps[taps]


def rotations_of(rotary: Any, most: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Return the rotations of transformers' ``rotary``; later positions than ``most`` repeat the last one."""

    def rotations(positions: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(positions).clamp_max(most - 1)
        cos, sin = rotary(torch.zeros(1), places[None])
        half = cos.shape[-1] // 2
        return cos[0, :, :half], sin[0, :, :half]

    return rotations
