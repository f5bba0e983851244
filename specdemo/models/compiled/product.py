"""The product of rows and weights: each result is one sum over the inputs in a fixed order.

A pass reads the weights as one stream: [outputs / 4, inputs / LANES, 4 outputs, LANES inputs].
"""

import mmap
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from llvmlite import ir
from numba import carray, types
from torch import Tensor

from specdemo.models.compiled import vectors
from specdemo.models.compiled.compilation import Compiled
from specdemo.models.compiled.vectors import (
    ADDRESS,
    INTEGER,
    LANES,
    NOTHING,
    REGISTERS,
    at,
    compiled,
    emitted,
    floats,
    integer,
    longs,
)
from specdemo.models.weight_files import quantize_rows

BLOCK = 4  # number of outputs whose weights are interleaved
# Maximum number of rows per block: their sums fill the registers.
TILE = 6 if REGISTERS == 32 else 3 if REGISTERS == 16 else 2
# Distance of the prefetch. Without it, reading takes a third longer; 2 to 6 KB are as good.
AHEAD_BYTES = 4096
STRIP_BYTES = 128 << 10  # weights that a tile reads before the next one; they fit in second-level caches
LINE_BYTES = 64
CHUNK_BYTES = 64 << 20  # small weights share a chunk, because a huge page has 2 MB
_LOCK = threading.Lock()
_free: list[Tensor] = []
PRODUCT_ARGUMENTS = 9

BF16, FP16, FP32, INT8 = range(4)
NUMBER_KINDS = {torch.bfloat16: BF16, torch.float16: FP16, torch.float32: FP32, torch.int8: INT8}
STORED = {BF16: vectors.I16, FP16: vectors.F16, FP32: vectors.F32, INT8: vectors.I8}
BYTES = {BF16: 2, FP16: 2, FP32: 4, INT8: 1}

# Fields of a matrix's description, int64: addresses (0 for none), the padded width, the number of blocks.
# CODE is the address of the product for these weights.
WEIGHTS, KIND, CODE, INPUTS, BLOCKS, SCALES, BIAS = range(7)
MATRIX_FIELDS = 7


def padded(count: int, multiple: int = LANES) -> int:
    return -(-count // multiple) * multiple


padded_count = compiled(padded)  # the same function for compiled code


def _widened(b: Any, kind: int, address: Any) -> Any:
    """Load ``LANES`` weights as fp32."""
    stored = vectors.load(b, address, ir.VectorType(STORED[kind], LANES))
    if kind == BF16:  # the upper half of the fp32 number
        bits = b.shl(b.zext(stored, vectors.INTS), ir.Constant(vectors.INTS, [16] * LANES))
        return b.bitcast(bits, vectors.VECTOR)
    if kind == FP16:
        return b.fpext(stored, vectors.VECTOR)
    if kind == INT8:
        return b.sitofp(b.sext(stored, vectors.INTS), vectors.VECTOR)
    return stored


def _tile(kind: int, rows: int) -> Callable[..., None]:
    """Return a function that emits the product of a block and ``rows`` rows."""
    step_bytes = BYTES[kind] * LANES * BLOCK

    def tile(
        b: Any, weights: Any, inputs: Any, input_stride: Any, width: Any, results: Any, result_stride: Any
    ) -> None:
        def step(i: Any, sums: list[Any]) -> list[Any]:
            places = [at(b, at(b, inputs, i, 4 * LANES), input_stride, 4 * row) for row in range(rows)]
            x = [vectors.load(b, place) for place in places]
            block = at(b, weights, i, step_bytes)
            for line in range(0, step_bytes, LINE_BYTES):
                vectors.prefetch(b, b.add(block, integer(AHEAD_BYTES + line)))
            new = []
            for j in range(BLOCK):
                weight = _widened(b, kind, b.add(block, integer(BYTES[kind] * LANES * j)))
                new += [vectors.multiply_add(b, weight, x[row], sums[j * rows + row]) for row in range(rows)]
            return new

        start = [vectors.constant(0)] * (BLOCK * rows)
        sums = vectors.repeated(b, b.udiv(width, integer(LANES)), start, step)
        for j in range(BLOCK):
            for row in range(rows):
                place = b.add(at(b, results, result_stride, 4 * row), integer(4 * j))
                vectors.store(b, vectors.total(b, sums[j * rows + row]), place)

    return tile


def _blocks(kind: int) -> Any:
    """Return a function that multiplies the blocks from ``first`` to ``last`` by all rows."""
    tiles = [_tile(kind, rows) for rows in range(1, TILE + 1)]

    @emitted(NOTHING, *[INTEGER] * PRODUCT_ARGUMENTS)
    def blocks(
        b: Any,
        weights: Any,
        inputs: Any,
        stride: Any,
        rows: Any,
        width: Any,
        results: Any,
        result_stride: Any,
        first: Any,
        last: Any,
    ) -> None:
        # The first tile of rows reads a strip of blocks from memory, and the others from a cache.
        strip = b.add(b.udiv(integer(STRIP_BYTES), b.mul(width, integer(BYTES[kind] * BLOCK))), integer(1))
        with vectors.counted(b, first, last, strip) as start:
            end = b.add(start, strip)
            end = b.select(b.icmp_signed("<", end, last), end, last)
            tile_starts = vectors.counted(b, integer(0), rows, integer(TILE))
            with tile_starts as row, vectors.counted(b, start, end, integer(1)) as block:
                here = at(b, weights, b.mul(block, width), BYTES[kind] * BLOCK)
                block_results = at(b, results, block, 4 * BLOCK)
                x, y = (
                    at(b, inputs, b.mul(row, stride), 4),
                    at(b, block_results, b.mul(row, result_stride), 4),
                )
                values = here, x, stride, width, y, result_stride
                vectors.choose(b, b.sub(rows, row), [partial(tile, b, *values) for tile in tiles])

    return blocks


bf16_blocks, fp16_blocks, fp32_blocks, int8_blocks = map(_blocks, (BF16, FP16, FP32, INT8))


# Functions of a module, because numba keeps no compiled code of functions inside functions on disk.
def multiply_bf16(weights, inputs, stride, rows, width, results, result_stride, first, last) -> None:
    bf16_blocks(weights, inputs, stride, rows, width, results, result_stride, first, last)


def multiply_fp16(weights, inputs, stride, rows, width, results, result_stride, first, last) -> None:
    fp16_blocks(weights, inputs, stride, rows, width, results, result_stride, first, last)


def multiply_fp32(weights, inputs, stride, rows, width, results, result_stride, first, last) -> None:
    fp32_blocks(weights, inputs, stride, rows, width, results, result_stride, first, last)


def multiply_int8(weights, inputs, stride, rows, width, results, result_stride, first, last) -> None:
    int8_blocks(weights, inputs, stride, rows, width, results, result_stride, first, last)


_SIGNATURE = types.void(*[types.int64] * PRODUCT_ARGUMENTS)
# Each is compiled alone, because LLVM would optimize them again in every function that contains them.
PRODUCTS = {
    BF16: Compiled(_SIGNATURE, multiply_bf16),
    FP16: Compiled(_SIGNATURE, multiply_fp16),
    FP32: Compiled(_SIGNATURE, multiply_fp32),
    INT8: Compiled(_SIGNATURE, multiply_int8),
}
call_product = vectors.calls(PRODUCT_ARGUMENTS)


def _output_of(kind: int) -> Any:
    """Return a function that writes the ``width`` weights of output ``j`` of a block as fp32."""

    @emitted(NOTHING, ADDRESS, INTEGER, INTEGER, ADDRESS)
    def output_of(b: Any, block: Any, j: Any, width: Any, results: Any) -> None:
        def step(i: Any, _: list[Any]) -> list[Any]:
            place = at(b, block, b.add(b.mul(i, integer(BLOCK)), j), BYTES[kind] * LANES)
            vectors.store(b, _widened(b, kind, place), at(b, results, i, 4 * LANES))
            return []

        vectors.repeated(b, b.udiv(width, integer(LANES)), [], step)

    return output_of


bf16_output, fp16_output, fp32_output, int8_output = map(_output_of, (BF16, FP16, FP32, INT8))
BYTES_BF16, BYTES_FP32, BYTES_INT8 = BYTES[BF16], BYTES[FP32], BYTES[INT8]


@compiled
def multiply(description, inputs, stride, rows, results, result_stride, first, last):
    """Multiply the blocks from ``first`` to ``last`` of a matrix by all rows.

    The inputs of neighboring rows, fp32, are ``stride`` numbers apart, and their results ``result_stride``.
    ``description``, ``inputs`` and ``results`` are addresses; ``results`` has room for all blocks.
    """
    matrix = carray(longs(description), (MATRIX_FIELDS,))
    code, w, width = matrix[CODE], matrix[WEIGHTS], matrix[INPUTS]
    call_product(code, w, inputs, stride, rows, width, results, result_stride, first, last)
    outputs = (last - first) * BLOCK
    offset = first * BLOCK * 4
    if matrix[SCALES] != 0:
        scales = carray(floats(matrix[SCALES] + offset), (outputs,))
        for row in range(rows):
            y = carray(floats(results + offset + row * result_stride * 4), (outputs,))
            for j in range(outputs):
                y[j] *= scales[j]
    if matrix[BIAS] != 0:
        bias = carray(floats(matrix[BIAS] + offset), (outputs,))
        for row in range(rows):
            y = carray(floats(results + offset + row * result_stride * 4), (outputs,))
            for j in range(outputs):
                y[j] += bias[j]


@compiled
def multiply_share(description, inputs, stride, rows, results, result_stride, me, threads):
    """Multiply thread ``me``'s blocks of a matrix by all rows; return the first of them and their end."""
    blocks = carray(longs(description), (MATRIX_FIELDS,))[BLOCKS]
    first, last = blocks * me // threads, blocks * (me + 1) // threads
    multiply(description, inputs, stride, rows, results, result_stride, first, last)
    return first, last


@compiled
def weights_of_row(description, row, results):
    """Write the weights of one output as fp32; in a table of embeddings, they are an embedding."""
    matrix = carray(longs(description), (MATRIX_FIELDS,))
    kind, width, j = matrix[KIND], matrix[INPUTS], row % BLOCK
    size = BYTES_FP32 if kind == FP32 else BYTES_INT8 if kind == INT8 else BYTES_BF16
    block = matrix[WEIGHTS] + row // BLOCK * BLOCK * width * size
    if kind == BF16:
        bf16_output(block, j, width, results)
    elif kind == FP16:
        fp16_output(block, j, width, results)
    elif kind == INT8:
        int8_output(block, j, width, results)
    else:
        fp32_output(block, j, width, results)
    if matrix[SCALES] != 0:
        scale = carray(floats(matrix[SCALES]), (matrix[BLOCKS] * BLOCK,))[row]
        found = carray(floats(results), (width,))
        for i in range(width):
            found[i] *= scale


@torch.inference_mode(False)  # a chunk may be used in this mode now and without it later
def room_for(size: int) -> Tensor:
    """Return ``size`` bytes of memory in huge pages, if Linux offers them. Small weights share a chunk.

    A pass reads all weights once. With pages of 4 KB, looking up pages takes up to half of that time. A full
    chunk is freed with the last tensor in it.
    """
    aligned = -(-size // LINE_BYTES) * LINE_BYTES
    with _LOCK:
        if not _free or len(_free[0]) < aligned:
            _free[:] = [_chunk(max(aligned, CHUNK_BYTES))]
        found, rest = _free[0][:size], _free[0][aligned:]
        _free[:] = [rest] if len(rest) else []
    return found


def _chunk(size: int) -> Tensor:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes of weights") from error
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


@dataclass(eq=False)
class Matrix:
    """Weights in the order of a pass."""

    outputs: int  # without padding
    inputs: int  # without padding
    tensors: tuple[Tensor, ...]  # the weights, the scales and the bias; empty if there are none
    description: Tensor  # the fields of the matrix, shape [MATRIX_FIELDS], int64

    @property
    def address(self) -> int:
        return self.description.data_ptr()

    @property
    def padded_outputs(self) -> int:
        return padded(self.outputs, BLOCK)


def pack(weight: Tensor, bias: Tensor | None = None, parts: int = 1, rounded: bool = False) -> Matrix:
    """Store a weight [out, in] in the order in which a pass reads it; if ``rounded``, in int8 with scales.

    The input consists of ``parts`` vectors of equal length, each of which is padded.
    """
    weight = weight.detach() if weight.dtype in NUMBER_KINDS else weight.detach().float()
    outputs, inputs = weight.shape
    scales = torch.empty(0)
    if rounded:
        weight, scales = quantize_rows(weight)
        scales = scales[:, 0]
    blocks, width = padded(outputs, BLOCK) // BLOCK, padded(inputs // parts)
    whole = F.pad(weight.unflatten(1, (parts, -1)), (0, width - inputs // parts, 0, 0, 0, -outputs % BLOCK))
    ordered = whole.reshape(blocks, BLOCK, -1, LANES).transpose(1, 2)
    stream = room_for(ordered.nbytes).view(ordered.dtype).view(ordered.shape).copy_(ordered)
    after = F.pad(scales, (0, -outputs % BLOCK)) if rounded else scales
    added = torch.empty(0) if bias is None else F.pad(bias.detach().float(), (0, -outputs % BLOCK))
    kind = NUMBER_KINDS[weight.dtype]
    fields = [stream.data_ptr(), kind, PRODUCTS[kind].compile(), parts * width, blocks]
    fields += [tensor.data_ptr() if len(tensor) else 0 for tensor in (after, added)]
    return Matrix(outputs, inputs, (stream, after, added), torch.tensor(fields))


def unpack(matrix: Matrix) -> tuple[Tensor, Tensor]:
    """Return the weights [out, in] and the bias, [out] or empty, in fp32."""
    stream, scales, bias = matrix.tensors
    weight = stream.transpose(1, 2).flatten(2).flatten(0, 1)[: matrix.outputs, : matrix.inputs].float()
    weight = weight * scales[: matrix.outputs, None] if len(scales) else weight
    return weight, bias[: matrix.outputs]
