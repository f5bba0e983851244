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
UNUSABLE_NUMBERS = (errno.EROFS, errno.ENAMETOOLONG)
"""Errors of a path that cannot be written, for reasons other than a full disk."""


@dataclass(frozen=True)
class WrittenText:
    """A text as token ids.

    Attributes:
        ids: The ids of the prompt and the output, [n].
        start: Index of the first token that the target wrote.
        ended: True if the target ended the text; False if it was cut off.
    """

    ids: NDArray
    start: int
    ended: bool = False

    @property
    def own(self) -> NDArray:
        """The ids that the target wrote."""
        return self.ids[self.start :]


@dataclass(frozen=True)
class TextGroup:
    """All texts of one kind in a round.

    Attributes:
        kind: The kind: ``pool``, ``proposed``, ``second turn``, …
        texts: Conversations, of which the target wrote the last message, or raw texts.
    """

    kind: str
    texts: list[WrittenText]

    @property
    def ended_texts(self) -> list[WrittenText]:
        """The texts that the target ended."""
        return [text for text in self.texts if text.ended]


def save_groups(groups: Sequence[TextGroup], path: Path) -> None:
    """Write ``groups`` to ``path``; after an error, ``path`` is unchanged.

    Raises:
        UserError: The disk is full, or ``path`` cannot be written.
    """
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
    """Read a file that :func:`save_groups` wrote.

    Raises:
        UserError: The file cannot be read or is damaged.
    """
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
            f"{path} holds no texts; remove it from its folder, or write the texts again with specdemo write."
        ) from error


def text_paths(folder: Path) -> list[Path]:
    """Return the paths of all text files in ``folder``, in order."""
    return sorted(folder.glob(f"text-*{SUFFIX}"))


def text_path(folder: Path, number: int) -> Path:
    """Return the path of the file for round ``number``."""
    return folder / f"text-{number:04d}{SUFFIX}"


def next_number(folder: Path) -> int:
    """Return one more than the highest round number in ``folder``; earlier rounds may be missing."""
    numbers = [int(path.name.removeprefix("text-").removesuffix(SUFFIX)) for path in text_paths(folder)]
    return max(numbers, default=-1) + 1


def claim_folder(folder: Path, target: str) -> None:
    """Create ``folder`` and record ``target`` in it, because token ids are valid for one target only.

    Raises:
        UserError: ``folder`` holds texts of another target, or cannot be written.
    """
    try:
        _require_target(folder, target, "choose another --out")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TARGET).write_text(json.dumps({"target": target}) + "\n", encoding="utf-8")
    except OSError as error:
        raise file_error(folder, error, "run the same command again") from error


def load_texts(folder: Path, target: str) -> list[WrittenText]:
    """Return all texts in ``folder``, which ``target`` must have written.

    Raises:
        UserError: ``folder`` holds no texts, or texts of another target, or a damaged file.
    """
    _require_target(folder, target, "write some with this target first")
    texts = [text for path in text_paths(folder) for group in load_groups(path) for text in group.texts]
    if not texts:
        raise UserError(f"{folder} holds no texts; name a folder that specdemo write has filled.")
    return texts


def _require_target(folder: Path, target: str, to_do: str) -> None:
    path = folder / TARGET
    if not path.exists():
        return  # the folder is empty, or an early version wrote it
    try:
        held = json.loads(path.read_text(encoding="utf-8"))["target"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged; delete it if {target} has written all texts next to it, or {to_do}."
        ) from error
    if held != target:
        raise UserError(f"{folder} holds texts of {held}; {to_do}.")


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
    """Return a ``UserError`` for an error of the system or of ``torch.save``, which sets no error number.

    Args:
        path: The file or folder to name if the error names none.
        error: An ``OSError``, or a ``RuntimeError`` of torch.
        retry: The advice for the user after the problem is solved, as a phrase that starts with a verb.
    """
    reason = getattr(error, "strerror", None) or reason_of(error)
    if disk_is_full(error) or isinstance(error, RuntimeError):
        to_do = f"free some space and {retry}"
    elif isinstance(error, UNUSABLE_PATH) or getattr(error, "errno", None) in UNUSABLE_NUMBERS:
        to_do = "choose another --out"
    else:
        to_do = f"solve that and {retry}"
    return UserError(f"Cannot use {getattr(error, 'filename', None) or path}: {reason}; {to_do}.")
