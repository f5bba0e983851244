"""Files of text that a target wrote, as token ids. Each token of the target takes about one byte."""

import errno
import json
import lzma
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specdemo.records.limits import UserError, reason_of
from specdemo.records.output import disk_is_full

SUFFIX = ".npz.xz"
TARGET = "target.json"
ARRAYS = ("ids", "lengths", "starts", "ended", "counts", "makes")
UNUSABLE_PATH = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
# Errors of a path that cannot be written, for reasons other than a full disk.
UNUSABLE_NUMBERS = (errno.EROFS, errno.ENAMETOOLONG)


@dataclass(frozen=True)
class WrittenText:
    """A text as token ids."""

    ids: NDArray  # of the prompt and the output, [n]
    start: int  # index of the first token that the target wrote
    ended: bool = False  # False if the text was cut off

    @property
    def own(self) -> NDArray:
        """The ids that the target wrote."""
        return self.ids[self.start :]


@dataclass(frozen=True)
class TextGroup:
    """All texts of one kind in a batch."""

    kind: str  # ``pool``, ``proposed``, ``second turn``, …
    texts: list[WrittenText]  # conversations, of which the target wrote the last message, or raw texts

    @property
    def ended_texts(self) -> list[WrittenText]:
        return [text for text in self.texts if text.ended]


def save_groups(groups: Sequence[TextGroup], path: Path) -> None:
    """Write ``groups`` to ``path``; after an error, ``path`` is unchanged."""
    texts = [text for group in groups for text in group.texts]
    ids = np.concatenate([text.ids for text in texts]) if texts else np.zeros(0, int)
    packed = BytesIO()
    np.savez(
        packed,
        ids=ids.astype(np.uint16 if ids.max(initial=0) < 2**16 else np.uint32),
        lengths=np.array([len(text.ids) for text in texts], np.int32),
        starts=np.array([text.start for text in texts], np.int32),
        ended=np.array([text.ended for text in texts], bool),
        counts=np.array([len(group.texts) for group in groups], np.int32),
        makes=np.array([group.kind for group in groups], np.str_),
    )
    try:
        with atomic_path(path) as partial:
            partial.write_bytes(lzma.compress(packed.getvalue()))
    except OSError as error:
        raise file_error(path, error, "run the same command again") from error


def load_groups(path: Path) -> list[TextGroup]:
    try:
        with np.load(BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as held:
            ids, lengths, starts, ended, counts, kinds = (held[name] for name in ARRAYS)
        parts = np.split(ids.astype(np.int32), np.cumsum(lengths)[:-1]) if len(lengths) else []
        rows = zip(parts, starts.tolist(), ended.tolist(), strict=True)
        texts = [WrittenText(part, start, end) for part, start, end in rows]
        ends = np.cumsum(counts).tolist()
        return [
            TextGroup(str(kind), texts[end - count : end])
            for kind, count, end in zip(kinds, counts.tolist(), ends, strict=True)
        ]
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} contains no texts; delete this file, or write new texts with `specdemo write`."
        ) from error


def text_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"text-*{SUFFIX}"))


def text_path(folder: Path, number: int) -> Path:
    return folder / f"text-{number:04d}{SUFFIX}"


def next_number(folder: Path) -> int:
    """Return one more than the highest batch number in ``folder``; earlier batches may be missing."""
    numbers = [int(path.name.removeprefix("text-").removesuffix(SUFFIX)) for path in text_paths(folder)]
    return max(numbers, default=-1) + 1


def claim_folder(folder: Path, target: str) -> None:
    """Create ``folder`` and record ``target`` in it, because token ids are valid for one target only."""
    try:
        _require_target(folder, target, "choose another folder for --out")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TARGET).write_text(json.dumps({"target": target}) + "\n", encoding="utf-8")
    except OSError as error:
        raise file_error(folder, error, "run the same command again") from error


def load_texts(folder: Path, target: str) -> list[WrittenText]:
    """Return all texts in ``folder``, which ``target`` must have written."""
    _require_target(folder, target, "write texts with this target first")
    texts = [text for path in text_paths(folder) for group in load_groups(path) for text in group.texts]
    if not texts:
        raise UserError(f"{folder} contains no texts; choose a folder that `specdemo write` has filled.")
    return texts


def _require_target(folder: Path, target: str, to_do: str) -> None:
    path = folder / TARGET
    if not path.exists():
        return  # the folder is empty, or an early version wrote it
    try:
        held = json.loads(path.read_text(encoding="utf-8"))["target"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged; delete this file if {target} wrote all texts in {folder}, or {to_do}."
        ) from error
    if held != target:
        raise UserError(f"The texts in {folder} were written by another target, {held}; {to_do}.")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it to ``path`` on exit; an error leaves ``path`` unchanged."""
    partial = path.with_suffix(".partial")
    try:
        yield partial
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def file_error(path: Path, error: Exception, retry: str = "run the same command with --resume") -> UserError:
    """Return the error for an ``OSError``, or a ``RuntimeError`` of ``torch.save``, which has no error
    number.

    ``path`` is named if the error names no file. ``retry`` is the advice after the problem is solved.
    """
    reason = getattr(error, "strerror", None) or reason_of(error)
    if disk_is_full(error) or isinstance(error, RuntimeError):
        to_do = f"free some space, then {retry}"
    elif isinstance(error, UNUSABLE_PATH) or getattr(error, "errno", None) in UNUSABLE_NUMBERS:
        to_do = "choose another folder for --out"
    else:
        to_do = f"solve this problem, then {retry}"
    return UserError(f"Cannot use {getattr(error, 'filename', None) or path}: {reason}; {to_do}.")
