"""Placement of a pair's models on devices, and devices' free memory. Imports torch only for GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from specdemo.records.limits import UserError

CGROUP = Path("sys/fs/cgroup")
CGROUP_V1 = CGROUP / "memory"
GB = 1e9


@dataclass(frozen=True)
class Placement:
    """Devices of a pair.

    Attributes:
        target: Device of the target, or of its first shard.
        draft: Device of the draft.
        shards: Maximum bytes of the target on each device it is spread over; None if it is in one piece.
    """

    target: str
    draft: str
    shards: Mapping[str, int] | None = None


def plan(free: Mapping[str, int], target_bytes: int, draft_bytes: int) -> Placement:
    """Choose the devices of a pair on one machine.

    If there is only one device, it gets both models. Otherwise the device with the most free memory gets the
    target and another device gets the draft; if no other device has room, both models go to the same device.
    If they do not fit there, the target is spread over all devices, and the draft goes to the device with the
    most free memory.

    Args:
        free: Free bytes of each device, at least one device.
        target_bytes: Bytes that the target needs, caches included.
        draft_bytes: Bytes that the draft needs, caches included.

    Raises:
        UserError: Several devices together are too small.
    """
    if len(free) == 1:
        (only,) = free
        return Placement(only, only)
    freest, *others = sorted(free, key=lambda device: -free[device])
    if target_bytes <= free[freest]:
        for device in others:
            if draft_bytes <= free[device]:
                return Placement(freest, device)
        if target_bytes + draft_bytes <= free[freest]:
            return Placement(freest, freest)
    left = {**free, freest: free[freest] - draft_bytes}
    if left[freest] < 0 or target_bytes > sum(left.values()):
        raise UserError(
            f"These models need {(target_bytes + draft_bytes) / GB:.0f} GB and the {len(free)} devices here "
            f"have {sum(free.values()) / GB:.0f} GB free; choose smaller models."
        )
    return Placement(next(iter(free)), freest, left)


def free_memory(device: str) -> int:
    """Return the free bytes of a device: what CUDA reports, or the RAM left to this process.

    Args:
        device: torch's name: ``cpu``, ``cuda``, ``cuda:1``.
    """
    if not device.startswith("cuda"):
        return free_ram()
    import torch

    return torch.cuda.mem_get_info(torch.device(device))[0]


def free_ram(root: Path = Path("/")) -> int:
    """Return the free bytes of RAM: the machine's or the container's, whichever are fewer.

    Args:
        root: Folder with ``proc`` and ``sys``.
    """
    machine = _numbers(root / "proc/meminfo").get("MemAvailable:", 0) * 1024
    return max(0, min([machine, *_container_limits(root)]))


def _container_limits(root: Path) -> Iterator[int]:
    """Yield the free bytes under each memory limit of this process's control groups.

    Memory for inactive cached files counts as free.
    """
    for folder in _cgroups(root):
        statistics = _numbers(folder / "memory.stat")
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, now = _number(folder / limit), _number(folder / used)
            if most is not None and now is not None:
                yield most - now + statistics.get(cached, 0)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups of this process, outermost included, of both versions."""
    own = root / "proc/self/cgroup"
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            top = root / (CGROUP_V1 if controllers else CGROUP)
            inner = top / path.lstrip("/")
            # Inside a container the path may be the host's, and only the top of it is mounted.
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    """Return the number in a file; None if it contains a word (``max``) or does not exist."""
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None


def _numbers(path: Path) -> dict[str, int]:
    """Return the first number of each line by its first word."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.is_file() else []
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
