"""Memory for weights in huge pages, where Linux offers them.

A pass reads all weights once. With pages of 4 KB, up to half of that time is spent on looking up pages.
"""

import mmap
import threading
from contextlib import suppress

import torch
from torch import Tensor

CHUNK_BYTES = 64 << 20
"""Small weights share a chunk, because a huge page has 2 MB."""
ALIGNMENT = 64

_LOCK = threading.Lock()
_rest: list[Tensor] = []


@torch.inference_mode(False)  # a chunk may be used in this mode now and without it later
def room_for(size: int) -> Tensor:
    """Return ``size`` bytes, uint8. A full chunk is freed with the last tensor in it."""
    aligned = -(-size // ALIGNMENT) * ALIGNMENT
    with _LOCK:
        if not _rest or len(_rest[0]) < aligned:
            _rest[:] = [_chunk(max(aligned, CHUNK_BYTES))]
        found, rest = _rest[0][:size], _rest[0][aligned:]
        _rest[:] = [rest] if len(rest) else []
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
