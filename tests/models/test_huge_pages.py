"""Huge pages: which memory is meant, and that a system without them is left alone."""

import torch

from specdemo.models import huge_pages
from specdemo.models.huge_pages import LEAST_BYTES, use_huge_pages

MAPS = """\
00400000-00500000 r-xp 00000000 08:01 1234 /usr/bin/python
10000000-10500000 rw-p 00000000 00:00 0 [heap]
20000000-20100000 rw-p 00000000 00:00 0
30000000-40000000 rw-p 00000000 00:00 0
50000000-60000000 r--p 00000000 00:00 0
60000000-70000000 rw-s 00000000 00:01 77 /dev/shm/other
70000000-80000000 rw-p 00000000 08:01 99 /home/somebody/model.safetensors
"""


def test_large_private_memory_of_no_file_is_meant():
    found = huge_pages._large_mappings(MAPS)
    assert found == [(0x10000000, 0x500000), (0x30000000, 0x10000000)]
    assert min(size for _, size in found) >= LEAST_BYTES


def test_asking_changes_nothing_that_is_stored():
    weights = torch.arange(4 * LEAST_BYTES, dtype=torch.float32)
    use_huge_pages()
    assert torch.equal(weights, torch.arange(4 * LEAST_BYTES, dtype=torch.float32))


def test_where_there_are_none_nothing_is_asked(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("the C library was asked")

    monkeypatch.setattr(huge_pages.ctypes, "CDLL", refuse)
    (tmp_path / "switch").write_text("always madvise [never]\n")
    for switch in (tmp_path / "switch", tmp_path / "missing"):
        monkeypatch.setattr(huge_pages, "SWITCH", switch)
        use_huge_pages()
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")
    use_huge_pages()
