"""The layers of a model or of a feature draft on a GPU, their caches, and the launch of their kernels."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from specdemo.models.gpu import kernels
from specdemo.models.gpu.kernels import CONTROL_SIZE, Buffers, Shape, Tile, Weights
from specdemo.models.gpu.recording import IdleCaches, Recorder

ROWS = kernels.ROWS.value  # maximum number of rows of a pass
CACHE_LINE = kernels.CACHE_LINE.value
START, COUNT, IDS = kernels.START.value, kernels.COUNT.value, kernels.IDS.value
MIN_TILES = 90  # tiles that a product should have, so that most processors of a GPU read weights
MAX_SHARED = 72 * 1024  # maximum bytes of a program's loads in flight
MAX_TAPS = 4
# In larger models, waiting programs settle on a few processors: on an H100, passes take 25 % less time with a
# hidden size of 576, but 28 % more with 2,048.
MAX_EARLY_HIDDEN = 1024
EARLY_CAPABILITY = (9, 0)  # of the first GPUs that can start a kernel early
LOG2_E = 1.4426950408889634
WARPS, WIDE_HEAD = 4, 64  # of a program; the attention of wider heads has twice as many


def tile_for(
    outputs: int, inputs: int, products: int = 1, largest: int = 32, units: int = 1, whole: bool = True
) -> Tile:
    """Return the tile of a product, or of two products of the same inputs.

    There are ``units`` · ``outputs`` outputs. If ``whole``, tiles must divide them.
    """
    count = largest
    while count > 8 and (units * -(-outputs // count) < MIN_TILES or (whole and outputs % count)):
        count //= 2
    columns = products * count
    at_once = min(triton.next_power_of_2(inputs), max(64, 4096 // columns))
    while at_once > 64 and -inputs % at_once > inputs // 3:
        at_once //= 2
    # Several warps would compute the same few columns. Each way reads a cache line of every column.
    ways = 4 if columns <= 16 and at_once >= 4 * CACHE_LINE else 1
    size = 2 * at_once * (columns + ROWS)
    return Tile(count, at_once, max(2, min(-(-inputs // at_once) + 1, MAX_SHARED // size)), ways)


def shape_for(
    hidden: int,
    heads: int,
    kv_heads: int,
    width: int,
    mlp: int,
    scored: int,
    epsilon: float,
    scaling: float,
    *,
    early: bool,
    paired: bool = False,
    **changes: Any,
) -> Shape:
    """Return the shape of a model; ``changes`` are other fields of ``Shape``, for measurements."""
    state, down = tile_for(hidden, heads * width), tile_for(hidden, mlp)
    fields: dict[str, Any] = {
        "qkv": tile_for(width // 2, hidden, 2, units=heads + 2 * kv_heads, whole=False),
        "state": state,
        "down": down,
        "gate_up": tile_for(mlp, hidden, 2),
        "head": tile_for(scored, hidden, largest=64, whole=False),
    }
    sizes = (hidden, heads, kv_heads, width, mlp, scored, paired, epsilon, scaling * LOG2_E)
    return Shape(*sizes, **{**fields, "early": early and hidden <= MAX_EARLY_HIDDEN, **changes})


def starts_early(device: torch.device) -> bool:
    """Return whether kernels can start early on a device; ``meta`` stands for the current GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= EARLY_CAPABILITY
    if device.type == "cpu":  # where kernels are interpreted
        return False
    gpu: Any = driver.active
    return divmod(gpu.get_current_target().arch, 10) >= EARLY_CAPABILITY


@dataclass(eq=False)
class GpuCache:
    """The keys and values of one text, and the memory of its passes."""

    buffers: Buffers
    capacity: int
    # Recorded passes by their taps, whether they compute logits, and their depth.
    recordings: dict[tuple[tuple[int, ...], bool, int | None], Callable[[], Any]] = field(
        default_factory=dict
    )

    @property
    def keys(self) -> Tensor:
        return self.buffers.keys

    @property
    def values(self) -> Tensor:
        return self.buffers.vals


class GpuStack:
    """A stack of layers with an embedding and an output layer, ready for passes.

    ``rotations`` returns cos and sin of the first positions, each [positions, width / 2], fp32. On the device
    ``meta``, a launch only compiles the kernels for the current GPU.
    """

    def __init__(self, weights: Weights, shape: Shape, rotations: Callable[[int], tuple[Tensor, Tensor]]):
        self.weights, self.shape, self._rotations = weights, shape, rotations
        self.layers = len(weights.qkv)
        self.device: torch.device = weights.qkv.device
        self._idle = IdleCaches()

    def borrow(self, capacity: int) -> GpuCache:
        """Return a cache that no other run uses, if possible one with recordings from earlier runs."""
        owner = self._idle.take(capacity) or self.open(capacity)
        lent = GpuCache(owner.buffers, capacity, owner.recordings)
        self._idle.lend(owner, lent)
        return lent

    def forget(self) -> None:
        """Delete the caches that no run uses, and their recordings."""
        self._idle = IdleCaches()

    def open(self, capacity: int) -> GpuCache:
        s, splits = self.shape, -(-capacity // self.shape.split)

        def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(sizes, dtype=dtype, device=self.device)

        half, number = torch.bfloat16, torch.int32
        keys = zeros(self.layers, s.kv_heads, capacity, s.width, dtype=half)
        scaled, squares = zeros(ROWS, s.hidden, dtype=half), zeros(ROWS, s.state_tiles)
        cos, sin = (part.float().contiguous() for part in self._rotations(capacity))
        buffers = Buffers(
            control=zeros(CONTROL_SIZE, dtype=number),
            keys=keys,
            vals=torch.zeros_like(keys),
            cos=cos,
            sin=sin,
            states=zeros(ROWS, s.hidden),
            given=zeros(ROWS, s.hidden),
            scaled=scaled,
            squares=squares,
            pair_scaled=torch.zeros_like(scaled),
            pair_squares=torch.zeros_like(squares),
            query=zeros(ROWS, s.heads * s.width, dtype=half),
            context=zeros(ROWS, s.heads * s.width, dtype=half),
            mixed=zeros(splits, s.heads, ROWS, s.width),
            largest=zeros(splits, s.heads, ROWS),
            shares=zeros(splits, s.heads, ROWS),
            finished=zeros(s.heads, dtype=number),
            active=zeros(ROWS, s.mlp, dtype=half),
            tapped=zeros(MAX_TAPS, ROWS, s.hidden),
            logits=zeros(ROWS, s.scored),
            tops=zeros(ROWS, s.head_tiles),
            top_rows=zeros(ROWS, s.head_tiles, dtype=number),
            chosen=zeros(ROWS, dtype=number),
        )
        return GpuCache(buffers, capacity)

    def place(self, cache: GpuCache, start: int, ids: Sequence[int], count: int | None = None) -> None:
        """Write the inputs of the next pass: ``count`` ids, of which the device may add the last ones."""
        count = len(ids) if count is None else count
        if not (0 < count <= ROWS and start >= 0 and start + count <= cache.capacity):
            raise IndexError(f"positions {start} to {start + count - 1} of {cache.capacity}")
        inputs = torch.tensor([start, count, 0, *ids], dtype=torch.int32)
        cache.buffers.control[: len(inputs)].copy_(inputs)

    def launch(
        self,
        cache: GpuCache,
        step: int = -1,
        depth: int | None = None,
        taps: Sequence[int] = (),
        scores: bool = True,
    ) -> None:
        """Start the kernels of a pass over the ids in ``control``; a CUDA graph can record this.

        Args:
            step: Index of a draft step, whose logits are written to this row; −1 for a pass that is none.
            depth: Number of layers; None for all.
            taps: Indices of layers whose outputs are kept.
            scores: Whether logits are computed.
        """
        w, b, s, depth = self.weights, cache.buffers, self.shape, depth or self.layers
        states = s.state_tiles
        groups = (s.heads + 2 * s.kv_heads) * -(-(s.width // 2) // s.qkv.outputs)
        parts = s.heads * -(-cache.capacity // s.split)
        with self._on_device():
            self._start(kernels.embed, states, step, w, b, s)
            for layer in range(depth):
                norm = 2 * layer + 2 if layer + 1 < depth else 2 * self.layers
                tap = taps.index(layer) if layer in taps else -1
                self._start(kernels.qkv, groups, layer, cache.capacity, w, b, s)
                self._start(kernels.attention, parts, layer, cache.capacity, w, b, s)
                self._start(kernels.out, states, layer, w, b, s)
                self._start(kernels.gate_up, s.mlp // s.gate_up.outputs, layer, w, b, s)
                self._start(kernels.down, states, layer, norm, tap, w, b, s)
            if scores:
                self._start(kernels.head, s.head_tiles, step, w, b, s)

    def prepare(
        self,
        cache: GpuCache,
        record: Recorder,
        depth: int | None = None,
        taps: Sequence[int] = (),
        scores: bool = True,
    ) -> None:
        """Record a pass that :meth:`run` replays, before any timing starts; see :meth:`launch`."""
        key = tuple(taps), scores, depth
        if key not in cache.recordings:
            # A recording must not refer to ``cache``, or it would never be deleted.
            own = GpuCache(cache.buffers, cache.capacity)
            self.place(own, 0, [0])
            cache.recordings[key] = record(partial(self.launch, own, -1, depth, taps, scores))

    def run(
        self, cache: GpuCache, depth: int | None = None, taps: Sequence[int] = (), scores: bool = True
    ) -> None:
        """Replay a recorded pass, or start its kernels one by one."""
        key = tuple(taps), scores, depth
        if key in cache.recordings:
            cache.recordings[key]()
        else:
            self.launch(cache, -1, depth, taps, scores)

    def advance(self, cache: GpuCache, step: int, best: bool) -> None:
        """Make draft token ``step`` the input of the next step: the most likely one if ``best``, else
        ``chosen[step]``."""
        with self._on_device():
            self._start(kernels.advance, 1, step, self.weights, cache.buffers, self.shape, best)

    def _start(self, kernel: Any, programs: int, *arguments: Any) -> None:
        is_wide = kernel is kernels.attention and self.shape.width > WIDE_HEAD
        options: dict[str, Any] = {"num_warps": 2 * WARPS if is_wide else WARPS}
        if self.shape.early:
            options["launch_pdl"] = True
        if self.device.type == "meta":
            kernel.warmup(*arguments, grid=(programs,), **options)
        else:
            kernel[(programs,)](*arguments, **options)

    def _on_device(self) -> Any:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
