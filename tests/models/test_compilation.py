"""The folder of compiled code, the memory for weights, and starts at which a folder or library is missing."""

import importlib.util
import mmap
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.compiled_code import CODE
from numba import carray, types
from numba.core import config

from specdemo.models.compiled import openmp
from specdemo.models.compiled.compilation import Compiled, keep_in, thread_number
from specdemo.models.compiled.product import CHUNK_BYTES, LINE_BYTES, room_for

ROOT = Path(__file__).parents[2]
ADD_ONE = types.void(types.CPointer(types.int64))
PROCESS = """
import sys
from pathlib import Path
import torch
from specdemo.models.compiled import compilation, linear
compilation.keep_in(Path(sys.argv[1]))
layer = linear.CompiledLinear(torch.eye(20))
assert torch.equal(layer(torch.ones(3, 20)), torch.ones(3, 20))
"""
NARROW = """
import sys
import pytest
from specdemo.models.compiled.vectors import LANES
assert LANES == 4
chosen = "not transformers or wide or whole or seven"
sys.exit(pytest.main(["-n", "0", "-p", "no:cacheprovider", "-k", chosen, sys.argv[1]]))
"""


def add_one(pointer):
    numbers = carray(pointer, (1,))
    numbers[0] += 1


def count_me(pointer):
    numbers = carray(pointer, (3,))
    numbers[thread_number()] += 1


def files_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def added() -> int:
    numbers = torch.tensor([4])
    Compiled(ADD_ONE, add_one).run(numbers.data_ptr(), 1)
    return int(numbers)


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "code"
    keep_in(folder)
    yield folder
    keep_in(CODE)


def test_compiled_code_is_found_again_in_a_folder_of_the_user_alone(kept):
    assert added() == 5
    files = files_in(kept)
    (version,) = kept.iterdir()
    assert version.stat().st_mode & 0o777 == 0o700
    assert files and added() == 5 and files_in(kept) == files


@pytest.mark.slow
def test_another_process_compiles_nothing(tmp_path):
    files = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", PROCESS, str(tmp_path)], check=True)
        files.append(files_in(tmp_path))
    assert files[0] and files[0] == files[1]


def test_code_of_other_versions_is_deleted_when_it_has_not_been_used_for_a_month(kept):
    added()
    (current,) = kept.iterdir()
    month = 31 * 86_400
    for name, age_s in (("recent", 60), ("old", month)):
        (kept / name).mkdir()
        os.utime(kept / name, (time.time() - age_s,) * 2)
    os.utime(current, (time.time() - month,) * 2)
    keep_in(kept)
    assert {path.name for path in kept.iterdir()} == {"recent", current.name}
    assert added() == 5 and time.time() - current.stat().st_mtime < month


@pytest.mark.parametrize("owner", ["all", "a group", "another user"])
def test_code_in_a_folder_that_others_can_write_is_neither_read_nor_kept(kept, monkeypatch, owner):
    added()
    (version,) = kept.iterdir()
    for path in files_in(kept):
        path.write_bytes(b"not code")
    if owner == "another user":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    else:
        version.chmod(0o777 if owner == "all" else 0o770)
    files = files_in(kept)
    assert added() == 5 and files_in(kept) == files


def test_without_a_folder_code_is_compiled_in_memory(kept, monkeypatch):
    kept.write_text("a file")
    assert added() == 5
    kept.unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert added() == 5 and not files_in(kept)


def test_a_function_runs_once_on_each_thread():
    for count in (1, 2, 3):
        numbers = torch.zeros(3, dtype=torch.long)
        Compiled(ADD_ONE, count_me).run(numbers.data_ptr(), count)
        assert numbers.tolist() == [1] * count + [0] * (3 - count)


def test_the_library_that_is_missing_is_named(monkeypatch):
    assert openmp.missing() is None
    monkeypatch.setattr(openmp, "library", lambda: None)
    assert openmp.missing() == "torch does not use libgomp here"
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else found(name))
    assert openmp.missing() == "numba is not installed"


REASON = "from specdemo.models.compiled.openmp import missing; print(missing())"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are processors of x86")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"NUMBA_CPU_NAME": "ivybridge"}, "this processor lacks FMA"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ({"NUMBA_CPU_NAME": "x86-64-v2"}, "this processor lacks F16C and FMA"),
                ({"NUMBA_CPU_NAME": "haswell"}, "None"),
                ({"NUMBA_CPU_NAME": "bdver2"}, "None"),  # has no AVX2
                ({"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
            )
        ),
    ],
)
def test_a_processor_or_setting_without_compiled_code_is_named(settings, reason):
    env = {**os.environ, "NUMBA_CPU_FEATURES": "", **settings}
    command = [sys.executable, "-c", REASON]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == reason


def test_two_processors_with_one_folder_never_load_the_same_files(kept, monkeypatch):
    assert added() == 5
    (first,) = kept.iterdir()
    files = files_in(first)
    monkeypatch.setattr(config, "CPU_NAME", "haswell")
    assert added() == 5
    (second,) = set(kept.iterdir()) - {first}
    assert files_in(second) and files_in(first) == files


def test_damaged_files_do_not_keep_a_function_from_running(kept):
    added()
    for path in files_in(kept):
        path.write_bytes(b"")
    assert added() == 5
    assert added() == 5 and files_in(kept), "the next start keeps code again"


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are instruction sets of x86")
def test_vectors_of_four_lanes_as_with_neon_compute_the_same(tmp_path):
    played = {"NUMBA_CPU_NAME": "ivybridge", "NUMBA_CPU_FEATURES": "+avx,+fma,+f16c"}
    command = [sys.executable, "-c", NARROW, str(Path(__file__).with_name("test_compiled.py"))]
    env = {**os.environ, **played, "SPECDEMO_CACHE": str(tmp_path)}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_torchs_own_library_is_used_among_several(tmp_path, monkeypatch):
    own = openmp.library()
    assert own is not None
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 0 08:01 1 /usr/lib/libgomp.so.1\n7f02-7f03 r-xp 0 08:01 2 {own._name}\n")
    monkeypatch.setattr(openmp, "MAPS", maps)
    found = openmp.library.__wrapped__()
    assert found is not None and found._name == own._name


def test_weights_share_memory_without_overlap():
    sizes = [1, 100, CHUNK_BYTES // 2, CHUNK_BYTES // 2, 3 * CHUNK_BYTES, 64]
    with torch.inference_mode():
        room_for(1)
    rooms = [room_for(size) for size in sizes]
    for number, room in enumerate(rooms):
        assert room.data_ptr() % LINE_BYTES == 0
        room.fill_(number)
    assert [(len(room), int(room[0]), int(room[-1])) for room in rooms] == [
        (size, number, number) for number, size in enumerate(sizes)
    ]


def test_where_the_system_has_no_huge_pages_weights_have_ordinary_memory(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert len(room_for(2 * CHUNK_BYTES).fill_(1)) == 2 * CHUNK_BYTES
