"""Text that a target wrote, on disk: token ids, about one byte for each token of the target's own."""

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

from specdemo.pairs.hub import disk_is_full
from specdemo.records.limits import UserError

SUFFIX = ".npz.xz"
TARGET = "target.json"
ARRAYS = ("ids", "lengths", "starts", "ended", "counts", "makes")
UNUSABLE_PATH = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
UNUSABLE_NUMBERS = (errno.EROFS, errno.ENAMETOOLONG)
"""Errors of a path that cannot be written even if there is free space."""


@dataclass(frozen=True)
class WrittenText:
    """A text as token ids.

    Attributes:
        ids: Prompt and output.
        start: Index of the first token that the target wrote.
        ended: Whether the target ended it.
    """

    ids: NDArray
    start: int
    ended: bool = False

    @property
    def own(self) -> NDArray:
        """Return the ids that the target wrote."""
        return self.ids[self.start :]


@dataclass(frozen=True)
class TextGroup:
    """Texts of one kind.

    Attributes:
        kind: ``pool``, ``proposed``, ``second turn``, …
        texts: Conversations or raw texts; the last message of each is the target's own.
    """

    kind: str
    texts: list[WrittenText]

    @property
    def ended_texts(self) -> list[WrittenText]:
        """Return the texts that the target ended."""
        return [text for text in self.texts if text.ended]


def save_groups(groups: Sequence[TextGroup], path: Path) -> None:
    """Write ``groups`` to ``path``, completely or not at all.

    Raises:
        UserError: The disk is full or cannot be written.
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
    """Read a file of :func:`save_groups`.

    Raises:
        UserError: It is damaged.
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
    """Return the files of texts in ``folder``, in order."""
    return sorted(folder.glob(f"text-*{SUFFIX}"))


def text_path(folder: Path, number: int) -> Path:
    """Return the path of round ``number``."""
    return folder / f"text-{number:04d}{SUFFIX}"


def next_number(folder: Path) -> int:
    """Return the number after the last round in ``folder``, of which some may have been removed."""
    numbers = [int(path.name.removeprefix("text-").removesuffix(SUFFIX)) for path in text_paths(folder)]
    return max(numbers, default=-1) + 1


def claim_folder(folder: Path, target: str) -> None:
    """Make ``folder`` and record that its texts are those of ``target``: ids mean nothing to another target.

    Raises:
        UserError: It holds the texts of another target, or cannot be written.
    """
    _require_target(folder, target, "choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TARGET).write_text(json.dumps({"target": target}) + "\n", encoding="utf-8")
    except OSError as error:
        raise file_error(folder, error, "run the same command again") from error


def load_texts(folder: Path, target: str) -> list[WrittenText]:
    """Return all texts of ``target`` in ``folder``.

    Raises:
        UserError: There are none, they are those of another target, or a file is damaged.
    """
    _require_target(folder, target, "write some with this target first")
    texts = [text for path in text_paths(folder) for group in load_groups(path) for text in group.texts]
    if not texts:
        raise UserError(f"{folder} holds no texts; name a folder that specdemo write has filled.")
    return texts


def _require_target(folder: Path, target: str, to_do: str) -> None:
    try:
        held = json.loads((folder / TARGET).read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # an empty folder, or one of an early version
    if held != target:
        raise UserError(f"{folder} holds texts of {held}; {to_do}.")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to, and rename it to ``path``; after an error ``path`` is unchanged."""
    partial = path.with_suffix(".partial")
    try:
        yield partial
        partial.rename(path)
    except (OSError, RuntimeError):
        partial.unlink(missing_ok=True)
        raise


def file_error(path: Path, error: Exception, retry: str = "run the same command with --resume") -> UserError:
    """Return the message for an error of the system, or of torch's writer, which gives no error number.

    Args:
        path: The file or folder, if the error does not name one.
        error: An ``OSError``, or a ``RuntimeError`` of torch.
        retry: What to do once the problem is solved.
    """
    reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0][:200]
    if disk_is_full(error) or isinstance(error, RuntimeError):
        to_do = f"free some space and {retry}"
    elif isinstance(error, UNUSABLE_PATH) or getattr(error, "errno", None) in UNUSABLE_NUMBERS:
        to_do = "choose another --out"
    else:
        to_do = f"solve that and {retry}"
    return UserError(f"Cannot use {getattr(error, 'filename', None) or path}: {reason.rstrip('.')}; {to_do}.")
