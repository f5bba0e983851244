"""Checkpoints from the Hugging Face hub or its cache: configuration, tokenizer, weights as safetensors.
Pickles and code are never fetched.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import constants, errors, snapshot_download
from tqdm.asyncio import tqdm_asyncio

from specdemo.pairs.builtin_target import Progress, no_progress
from specdemo.records.limits import UserError, reason_of
from specdemo.records.output import disk_is_full

WANTED = ("*.safetensors", "*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken", "*.tokenizer")
"""The last three are tokenizers: ``tokenizer.model``, ``spiece.model``, ``sentencepiece.bpe.model``, …"""
# Copies of the weights for other programs, which transformers does not read.
UNWANTED = ("*/*", "consolidated*")
COMMIT = re.compile(r"[0-9a-f]{40}")
MB = 1e6


@dataclass(frozen=True)
class Files:
    """The files of a model."""

    name: str  # on the page
    folder: Path
    revision: str | None  # commit on the hub; None if the files are not from the hub


def fetch_checkpoint(name: str, revision: str | None = None, progress: Progress = no_progress) -> Files:
    """Return the files of a checkpoint, a folder or hub id. Fetch them if they are not in the hub's cache.

    ``revision`` is a branch, tag or commit; None for the main branch. After a failure, fetched files stay in
    the cache.
    """
    if Path(name).is_file():
        raise UserError(
            f"{name} is a file, but single files such as GGUF cannot be loaded; choose the folder of a "
            "checkpoint that was saved as safetensors."
        )
    if Path(name).is_dir():
        if revision is not None:
            raise UserError(
                f"{name} is a folder, and folders have no revisions; leave out the revision {revision}."
            )
        folder = Path(name)
    else:
        folder = _from_hub(name, revision, progress)
    if (folder / "adapter_config.json").is_file():
        raise UserError(
            f"{name} is an adapter, not a whole model; merge the adapter into the base model, and save the "
            "merged model as safetensors."
        )
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{name} contains no safetensors files, the only kind that can be loaded; choose a checkpoint "
            "that was saved as safetensors."
        )
    return Files(name, folder, folder.name if COMMIT.fullmatch(folder.name) else None)


def within(progress: Progress, start: float, end: float) -> Progress:
    """Return a callback for one stage of a task, which maps its progress 0–1 to ``start``–``end``."""

    def report(text: str, fraction: float) -> None:
        progress(text, start + (end - start) * fraction)

    return report


def _from_hub(name: str, revision: str | None, progress: Progress) -> Path:
    options: dict[str, Any] = {
        "revision": revision,
        "allow_patterns": list(WANTED),
        "ignore_patterns": list(UNWANTED),
    }
    size = _missing_bytes(name, options)
    _require_room(name, size)
    most = 0.0

    def show(done: float, _total: float | None, unit: str) -> None:
        nonlocal most
        # The hub's client has two byte counters, for received and for written bytes. Show the larger one.
        if unit == "B" and most < done <= size:
            most = done
            progress(f"Fetching {name} ({size / MB:,.0f} MB)", done / size)

    try:
        return Path(snapshot_download(name, tqdm_class=counting_bar(show), **options))
    # The hub's client, its two transports and the disk each raise errors of their own.
    except Exception as error:
        raise UserError(_sentence(name, revision, error)) from error


def _missing_bytes(name: str, options: dict[str, Any]) -> int:
    """Return the bytes to fetch; 0 if the hub does not answer, since the download then reports why."""
    try:
        silent_bar = counting_bar(lambda done, total, unit: None)
        files = snapshot_download(name, dry_run=True, tqdm_class=silent_bar, **options)
    except Exception:
        return 0
    return sum(file.file_size or 0 for file in files if file.will_download)


def _require_room(name: str, size: int) -> None:
    cache = Path(constants.HF_HUB_CACHE)
    there = next(folder for folder in (cache, *cache.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if size > free:
        raise UserError(
            f"{name} needs {size / MB:,.0f} MB, but the disk of {cache} has only {free / MB:,.0f} MB free; "
            "free some disk space, or choose a smaller model."
        )


def counting_bar(show: Callable[[float, float | None, str], None]) -> type[tqdm_asyncio]:
    """Return a progress bar class for the hub's client that draws nothing and calls ``show``.

    The arguments of ``show`` are the amount done, the total if known, and the unit.
    """

    class CountingBar(tqdm_asyncio):
        def __init__(self, *args: Any, **options: Any):
            options.pop("name", None)  # an argument of the hub's own bars
            super().__init__(*args, **{**options, "disable": True})
            self.count_unit = options.get("unit", "it")

        def __iter__(self) -> Iterator[Any]:
            for item in self.iterable:
                yield item
                self.update(1)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            show(self.n, self.total, self.count_unit)

    return CountingBar


def _sentence(name: str, revision: str | None, error: Exception) -> str:
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its licence at {constants.ENDPOINT}/{name} and log in with "
            "`hf auth login`, or set HF_TOKEN."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"Cannot load {name}: the hub has no model of that name, or it is private; check the name."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"Cannot load {name}: it has no revision {revision}; check the revision or omit it."
    if isinstance(error, errors.HFValidationError):
        return f"Cannot load {name}: it is neither a folder nor a hub id; check the name."
    if disk_is_full(error):
        return f"The disk is full; free some space for {name} in {constants.HF_HUB_CACHE}."
    wanted = f"{name} at revision {revision}" if revision else name
    if constants.HF_HUB_OFFLINE:
        return f"Cannot load {wanted}: it is not complete in {constants.HF_HUB_CACHE}; unset HF_HUB_OFFLINE."
    if isinstance(error, errors.LocalEntryNotFoundError):
        return f"Cannot load {wanted}: it is not in the cache, and the hub is offline; check the connection."
    return f"Fetching {wanted} failed ({reason_of(error)}); check the connection and try again."
