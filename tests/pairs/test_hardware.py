"""The choice of devices, their free memory, and the sentences about a pair's precision."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdemo.pairs import hardware
from specdemo.pairs.hardware import Placement, free_ram, plan, precision_for
from specdemo.records.limits import UserError

GPUS = ("cuda:0", "cuda:1", "cuda:2")


@pytest.mark.parametrize(
    ("free", "target", "draft", "expected"),
    [
        ((10,), 8, 4, Placement("cuda:0", "cuda:0")),  # one device takes both; whether they fit is seen then
        ((10, 10), 8, 4, Placement("cuda:0", "cuda:1")),
        ((10, 20), 8, 4, Placement("cuda:1", "cuda:0")),
        ((20, 3), 8, 4, Placement("cuda:0", "cuda:0")),
        ((20, 3, 5), 8, 4, Placement("cuda:0", "cuda:2")),
        ((10, 10), 14, 2, Placement("cuda:0", "cuda:0", {"cuda:0": 8, "cuda:1": 10})),
        ((10, 12), 14, 2, Placement("cuda:0", "cuda:1", {"cuda:0": 10, "cuda:1": 10})),
        # Each fits on some device, but both do not fit at once.
        ((10, 3), 8, 4, Placement("cuda:0", "cuda:0", {"cuda:0": 6, "cuda:1": 3})),
    ],
)
def test_models_go_to_devices_with_enough_memory(free, target, draft, expected):
    assert plan(dict(zip(GPUS, free, strict=False)), target, draft) == expected


@pytest.mark.parametrize("target", [17, 40])
def test_models_that_are_too_large_for_the_gpus_are_refused(target):
    with pytest.raises(UserError, match=r"need \d+ GB of memory, but the 2 devices .* 20 GB free; choose"):
        plan({"cuda:0": 10 * 10**9, "cuda:1": 10 * 10**9}, target * 10**9, 4 * 10**9)


@given(
    free=st.lists(st.integers(0, 50), min_size=2, max_size=3),
    target=st.integers(1, 60),
    draft=st.integers(0, 60),
)
def test_a_plan_never_puts_more_on_a_device_than_it_holds(free, target, draft):
    room = dict(zip(GPUS, free, strict=False))
    try:
        found = plan(room, target, draft)
    except UserError:
        assert target + draft > sum(free) or draft > max(free)
        return
    room[found.draft] -= draft
    if found.shards is None:
        room[found.target] -= target
    else:
        assert sum(found.shards.values()) >= target
        room = {device: left - found.shards[device] for device, left in room.items()}
    assert min(room.values()) >= 0


V2, V1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
ALL = 8_192_000
NESTED = {
    "proc/self/cgroup": "0::/a/b\n",
    f"{V2}a/b/memory.max": "max\n",
    f"{V2}a/b/memory.current": "1000\n",
    f"{V2}a/memory.max": "5000\n",
    f"{V2}a/memory.current": "4000\n",
    f"{V2}a/memory.stat": "anon 7\ninactive_file 300\n",
}
FULL = {
    "proc/self/cgroup": "4:memory:/docker/x\n3:cpu:/docker/x\n",
    f"{V1}memory.limit_in_bytes": "2000",
    f"{V1}memory.usage_in_bytes": "2500",
}
WIDE = {"proc/self/cgroup": "0::/\n", f"{V2}memory.max": "900000000000", f"{V2}memory.current": "1"}


@pytest.mark.parametrize(("files", "expected"), [({}, ALL), (NESTED, 1300), (FULL, 0), (WIDE, ALL)])
def test_free_ram_respects_the_containers_limits(tmp_path, files, expected):
    meminfo = {"proc/meminfo": "MemTotal:  16000 kB\nMemAvailable:   8000 kB\n"}
    for name, text in (meminfo | files).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_ram(tmp_path) == expected


@pytest.mark.parametrize(("capability", "chosen"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_the_precision_follows_from_the_gpu(capability, chosen, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precision_for(torch.device("cuda")) == chosen


@pytest.mark.parametrize(
    ("device", "precision", "drafts", "words"),
    [
        ("cpu", "bf16", "int8", "Weights in bf16, drafts in int8; all arithmetic in fp32."),
        ("cpu", "int8", "int8", "Weights in int8; all arithmetic in fp32."),
        ("cuda", "bf16", "bf16", "Weights and arithmetic in bf16."),
    ],
)
def test_weights_and_arithmetic_are_named(device, precision, drafts, words, monkeypatch):
    monkeypatch.setattr(hardware, "missing", lambda: None)
    assert hardware.arithmetic_of(torch.device(device), precision, drafts) == words
