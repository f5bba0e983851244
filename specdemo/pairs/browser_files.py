"""The pair as files for a browser: its weights in pieces, and the plan of the memory that its passes read.

``write_files`` starts this module as a program, because numba must be imported for vectors of four lanes.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specdemo.models.compiled.openmp import missing
from specdemo.models.compiled.wasm import FOUR_LANES, STACK_BYTES
from specdemo.records.limits import UserError
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE

PLAN, TOKENS = "pair.json", "tokens.json"
PIECE_BYTES = 20_000_000  # hosts of static pages refuse larger files, and a broken download repeats one piece
CAPACITY = 768  # positions: about 20 MB of keys and values for every 256
MOST_THREADS = 8
LONGEST_DRAFT = 8  # whose costs a browser measures before the first run
MIN_RUN_TOKENS = 128  # room that a prompt leaves for new tokens
CONTROL, PAGE = 4 * STACK_BYTES, 65_536  # the threads' signals and stacks are between these addresses
FIRST = 16 * PAGE
ALIGNMENT = 64
LINES = 16  # rows of logits of a pass
RAW, Q4_1, Q8_0 = "raw", "Q4_1", "Q8_0"
BLOCK_BYTES = {RAW: 1, Q4_1: 20, Q8_0: 34}
BLOCK_NUMBERS = {RAW: 1, Q4_1: 32, Q8_0: 32}
NUMBER_BYTES = {RAW: 1, Q4_1: 2, Q8_0: 2}  # in memory, where quantized weights are bf16
LANES_OF_RUN = {SPECULATIVE: "target", BASELINE: "target", DRAFT: "draft"}


def write_files(folder: Path) -> None:
    """Write the built-in pair's files to a new folder."""
    if (reason := missing()) is not None:
        raise UserError(
            f"The models for browsers cannot be written here ({reason}); use another computer, or leave out "
            "--live."
        )
    command = [sys.executable, "-m", "specdemo.pairs.browser_files", str(folder)]
    if subprocess.run(command, env=os.environ | FOUR_LANES, check=False).returncode:
        raise UserError("The models for browsers could not be written; the reason is above.")


@dataclass(frozen=True)
class Part:
    """Rows of weights as they are downloaded, and their address in the browser's memory."""

    to: int
    kind: str
    columns: int
    rows: NDArray[np.uint8]  # shape [rows, bytes]

    def split(self, room: int) -> tuple["Part", "Part"]:
        """Return the rows that fit in ``room`` bytes, a multiple of a matrix's blocks, and the others."""
        count = min(len(self.rows), room // self.rows.shape[1] // 4 * 4)
        size = self.columns * NUMBER_BYTES[self.kind]
        rest = replace(self, to=self.to + count * size, rows=self.rows[count:])
        return replace(self, rows=self.rows[:count]), rest


class Memory:
    """The addresses in the browser's memory of this process's tensors."""

    def __init__(self, codes: Mapping[int, int]):
        self.end = FIRST
        self._codes = codes  # the index of each function in the module's table, by its address here
        self._places: dict[int, tuple[int, int]] = {}  # size and address of a tensor, by its address here

    def place(self, size: int) -> int:
        found = -(-self.end // ALIGNMENT) * ALIGNMENT
        self.end = found + size
        return found

    def add(self, tensor: Tensor) -> int | None:
        """Return a new address for a tensor; None if it has one already, or no numbers."""
        if tensor.data_ptr() in self._places or not tensor.nbytes:
            return None
        to = self.place(tensor.nbytes)
        self._places[tensor.data_ptr()] = tensor.nbytes, to
        return to

    def moved(self, numbers: Any) -> list[int]:
        """Replace addresses of this process, which no other number equals, by those in the browser."""
        return [self._moved(int(number)) for number in numbers]

    def _moved(self, number: int) -> int:
        for start, (size, to) in self._places.items():
            if start <= number < start + size:
                return to + number - start
        return self._codes.get(number, number)


def write_pair(folder: Path, pair: Any, quantized: Mapping[int, list[Part]], capacity: int) -> dict[str, Any]:
    """Write a pair's weights and their plan.

    ``quantized`` has the rows of some matrices by the address of their weights here; ``Part.to`` counts from
    the start of the matrix. All other weights are written as they are in memory.
    """
    from specdemo.models.compiled import attention, product, stack

    assert product.LANES == 4, "numba was imported for another processor"
    stack.MOST_THREADS = MOST_THREADS
    functions = [product.PRODUCTS[product.BF16], product.PRODUCTS[product.INT8], attention.attention]
    memory = Memory({function.compile(): index for index, function in enumerate(functions, 1)})
    stacks = {"target": pair.target.stack, "draft": pair.draft.stack}
    caches = {lane: stacks[name].open(capacity) for lane, name in LANES_OF_RUN.items()}
    # 1. Weights and tables of constants
    id_map = pair.id_map.long().contiguous()
    constants = [id_map, *(tensor for cache in caches.values() for tensor in cache.kept[1:])]
    tensors = [tensor for one in stacks.values() for tensor in one.tensors] + constants
    new = [(tensor, to) for tensor in tensors if (to := memory.add(tensor)) is not None]
    # 2. Memory that passes write
    for cache in caches.values():
        for tensor in (cache.keys, cache.values, cache.kept[0]):
            memory.add(tensor)
    lanes = {}
    for lane, cache in caches.items():
        names = [name for name, _ in cache.fields._fields_]
        fields = dict(zip(names, memory.moved(getattr(cache.fields, name) for name in names), strict=True))
        fields["ids"] = memory.place(8 * cache.most)
        fields["logits"] = memory.place(4 * LINES * fields["logit_stride"])
        for name, size in {"best": 8, "largest": 4, "total": 4, "next": 8}.items():
            fields[name] = memory.place(size * LINES)
        fields["id_map"] = memory.moved([id_map.data_ptr()])[0] if lane == DRAFT else 0
        model = stacks[LANES_OF_RUN[lane]]
        lanes[lane] = {
            "at": memory.place(8 * len(fields)),
            "fields": fields,
            "vocabulary": model.output.outputs,
        }
    # 3. Pieces. Addresses inside a table are known only now.
    parts = list[Part]()
    for tensor, to in new:
        if tensor.dtype == torch.long:
            tensor = torch.tensor(memory.moved(tensor.flatten().tolist()))
        raw = tensor.contiguous().flatten().view(torch.uint8).numpy()[:, None]
        known = quantized.get(tensor.data_ptr(), [Part(0, RAW, 1, raw)])
        parts += [replace(part, to=to + part.to) for part in known]
    return {
        "memory": memory.end,
        "pieces": list(_write_pieces(folder, parts)),
        "lanes": lanes,
        "rows": stack.MOST_ROWS,
        "lines": LINES,
        "capacity": capacity,
        "threads": MOST_THREADS,
        "control": CONTROL,
        "stack_bytes": STACK_BYTES,
    }


def _write_pieces(folder: Path, parts: list[Part]) -> Iterator[dict[str, Any]]:
    """Write parts one after another, and yield the entry of each piece."""
    left = parts[::-1]
    number = 0
    while left:
        room, taken = PIECE_BYTES, list[Part]()
        while left:
            now, rest = left.pop().split(room)
            if len(now.rows):
                taken.append(now)
                room -= now.rows.nbytes
            if len(rest.rows):
                left.append(rest)
                break
        content = b"".join(part.rows.tobytes() for part in taken)
        described = [[part.to, part.kind, len(part.rows), part.columns] for part in taken]
        yield write_checked(folder / f"weights-{number:02}.bin", content) | {"parts": described}
        number += 1


def write_checked(path: Path, content: bytes) -> dict[str, Any]:
    path.write_bytes(content)
    return {"file": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def target_parts(stack: Any, gguf: Path) -> dict[int, list[Part]]:
    """Return the target's matrices as blocks of its GGUF file, after checking that they give its weights."""
    from gguf import GGUFReader

    tensors = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}
    heads = {"attn_q": stack.sizes.heads, "attn_k": stack.sizes.kv_heads}
    found = {}
    for index, layer in enumerate(stack.layers):
        groups = {
            layer.qkv: ("attn_q", "attn_k", "attn_v"),
            layer.o: ("attn_output",),
            layer.gate_up: ("ffn_gate", "ffn_up"),
            layer.down: ("ffn_down",),
        }
        for matrix, names in groups.items():
            rows = [_halves(tensors[f"blk.{index}.{name}.weight"], heads.get(name)) for name in names]
            found[matrix.tensors[0].data_ptr()] = _checked(matrix, rows)
    embedding = stack.embedding
    return found | {
        embedding.tensors[0].data_ptr(): _checked(embedding, [_halves(tensors["token_embd.weight"])])
    }


def _halves(tensor: Any, heads: int | None = None) -> tuple[str, NDArray[np.uint8]]:
    """Return the kind and the rows of a tensor, those of each head in the order of transformers.

    In a GGUF file, the two numbers that a position rotates together are neighbors.
    """
    rows = tensor.data
    if heads is not None:
        pairs = rows.reshape(heads, len(rows) // heads // 2, 2, -1)
        rows = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
    return tensor.tensor_type.name, rows


def _checked(matrix: Any, groups: list[tuple[str, NDArray[np.uint8]]]) -> list[Part]:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    stream, to, parts = matrix.tensors[0], 0, []
    for kind, rows in groups:
        columns = rows.shape[1] // BLOCK_BYTES[kind] * BLOCK_NUMBERS[kind]
        numbers = torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind])).bfloat16()
        blocks = (
            numbers.unflatten(0, (-1, stream.shape[2])).unflatten(2, (-1, stream.shape[3])).transpose(1, 2)
        )
        first = to // (stream.shape[1:].numel() * NUMBER_BYTES[kind])
        if not torch.equal(blocks, stream[first : first + len(blocks)]):
            raise UserError("The target's weights are not those of its GGUF file; choose the built-in pair.")
        parts.append(Part(to, kind, columns, rows))
        to += numbers.nbytes
    return parts


def write_builtin_pair(folder: Path) -> None:
    from specdemo.models.compiled import compilation
    from specdemo.pairs.builtin_target import builtin_gguf, printing
    from specdemo.pairs.cache_folder import cache_folder
    from specdemo.pairs.hardware import versions
    from specdemo.pairs.load import assemble_pair
    from specdemo.pairs.pair import PROBE, chat_text
    from specdemo.pairs.sources import Sources

    compilation.keep_in(cache_folder() / "compiled")
    pair = assemble_pair(Sources(device="cpu"))
    folder.mkdir(parents=True)
    parts = target_parts(pair.target.stack, builtin_gguf(printing()))
    plan = write_pair(folder, pair, parts, CAPACITY)
    saved = Path(pair.tokenizer.name_or_path)
    before, after = chat_text(pair.tokenizer, PROBE).split(PROBE)
    pieces = pair.pieces.encoded(range(pair.vocab))
    read = {
        name: json.loads((saved / f"{name}.json").read_bytes()) for name in ("tokenizer", "tokenizer_config")
    }
    content = json.dumps(read | {"pieces": list(pieces.values())}, separators=(",", ":"), ensure_ascii=False)
    plan |= {
        "tokens": write_checked(folder / TOKENS, content.encode()),
        "chat": [before, after],
        "eos": sorted(pair.eos_ids),
        "specials": sorted(pair.pieces.specials),
        "max_k": LONGEST_DRAFT,
        "max_prompt": CAPACITY - MIN_RUN_TOKENS - LINES,
        "run": {
            "pair": pair.names,
            "precision": pair.precision,
            "arithmetic": " ".join(filter(None, [pair.precision_reason, pair.notes])),
            "versions": {"specdemo": versions()["specdemo"]},
        },
    }
    (folder / PLAN).write_text(json.dumps(plan, separators=(",", ":")), encoding="utf-8")


def main() -> None:
    try:
        write_builtin_pair(Path(sys.argv[1]))
    except (UserError, OSError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
