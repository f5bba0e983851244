"""Where a pair's models go: which device each, and how much memory a device has left.

The plan is a pure function of bytes. How a device's free memory is found out stands beside it; torch is
imported only where a GPU is asked.
"""

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
        target: Where the target is, or, of one in shards, its first part.
        draft: Where the draft is.
        shards: Most bytes of the target on each device it is spread over; None where it is in one piece.
    """

    target: str
    draft: str
    shards: Mapping[str, int] | None = None


def plan(free: Mapping[str, int], target_bytes: int, draft_bytes: int) -> Placement:
    """Place a pair on devices of one machine.

    One device takes both. Of several, the freest takes the target and another one the draft; both go to
    one where no other has room. A target too large for any device is spread over all of them, beside the
    draft on the freest.

    Args:
        free: Bytes that each device can still hold, at least one device.
        target_bytes, draft_bytes: What each model needs there, caches included.

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
    """Bytes that a device can still hold: what CUDA says is free, or the RAM that is left to this process.

    Args:
        device: As torch names it: ``cpu``, ``cuda``, ``cuda:1``.
    """
    if not device.startswith("cuda"):
        return free_ram()
    import torch

    return torch.cuda.mem_get_info(torch.device(device))[0]


def free_ram(root: Path = Path("/")) -> int:
    """Bytes of RAM left: the machine's, or those of the container, whichever are fewer.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    machine = _numbers(root / "proc/meminfo").get("MemAvailable:", 0) * 1024
    return max(0, min([machine, *_container_limits(root)]))


def _container_limits(root: Path) -> Iterator[int]:
    """What every memory limit above this process leaves. Pages of read files do not count as used."""
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
    """Folders of the control groups this process is in, outermost included; of both versions."""
    own = root / "proc/self/cgroup"
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            top = root / (CGROUP_V1 if controllers else CGROUP)
            inner = top / path.lstrip("/")
            # Inside a container the path may be the host's, of which only the top is mounted.
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    """The number a file holds; nothing where it holds a word (``max``) or is not there."""
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None


def _numbers(path: Path) -> dict[str, int]:
    """First number of each line by its first word."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.is_file() else []
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
