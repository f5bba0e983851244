"""Weights in huge pages, where Linux offers them on request.

A pass reads every weight once. In pages of 4 kB that is some sixty thousand of them, and looking each up
takes the processor a tenth of the pass and more. The kernel merges pages when it is asked to; elsewhere,
and where it declines, nothing changes.
"""

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path

LEAST_BYTES = 4 * 2**20
"""Smaller mappings have little to gain."""
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
"""Advice of ``madvise(2)``: huge pages are welcome here; make them of what is there already."""
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def use_huge_pages() -> None:
    """Ask for huge pages behind everything large that this process has allocated until now."""
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError, ValueError):
        if "[never]" in SWITCH.read_text(encoding="ascii"):
            return
        gc.collect()
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)  # what loading left behind is not worth a page
        for start, size in _large_mappings(Path("/proc/self/maps").read_text(encoding="utf-8")):
            for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)


def _large_mappings(maps: str) -> list[tuple[int, int]]:
    """Start and size of the large writable private mappings that are of no file."""
    found = []
    for line in maps.splitlines():
        span, mode, _, _, inode, *name = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        of_no_file = inode == "0" and (not name or name[0] in ("[heap]",) or name[0].startswith("[anon"))
        if mode == "rw-p" and of_no_file and end - start >= LEAST_BYTES:
            found.append((start, end - start))
    return found
