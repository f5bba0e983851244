"""Texts written for trainings, on disk: token ids, packed into about a byte for each of the target's own."""

import json
import lzma
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from specdemo.records.limits import UserError
from specdemo.training.corpus import Made
from specdemo.training.disk import whole
from specdemo.training.n_grams import WrittenText

SUFFIX = ".npz.xz"
TARGET = "target.json"
NARROW = 2**16
"""Vocabularies below it are kept in two bytes a token."""


def save_made(made: Sequence[Made], path: Path) -> None:
    """Write texts of several makes; ``path`` holds all of them or what it held before.

    Raises:
        UserError: The disk is full or cannot be written.
    """
    texts = [text for part in made for text in part.texts]
    ids = np.concatenate([text.ids for text in texts]) if texts else np.zeros(0, int)
    kind = np.uint16 if ids.max(initial=0) < NARROW else np.uint32
    packed = BytesIO()
    np.savez(
        packed,
        ids=ids.astype(kind),
        lengths=np.array([len(text.ids) for text in texts], np.int32),
        starts=np.array([text.start for text in texts], np.int32),
        ended=np.array([done for part in made for done in part.ended], bool),
        counts=np.array([len(part.texts) for part in made], np.int32),
        makes=np.array([part.make for part in made], np.str_),
    )
    try:
        with whole(path) as partial:
            partial.write_bytes(lzma.compress(packed.getvalue()))
    except OSError as error:
        raise UserError(
            f"Cannot write {path}: {error.strerror}; free some space or choose another --out."
        ) from error


def load_made(path: Path) -> list[Made]:
    """What :func:`save_made` wrote.

    Raises:
        UserError: The file cannot be read or holds something else.
    """
    try:
        with np.load(BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as held:
            ids, lengths, starts, ended, counts, makes = (
                held[name] for name in ("ids", "lengths", "starts", "ended", "counts", "makes")
            )
        parts = np.split(ids.astype(np.int32), np.cumsum(lengths)[:-1]) if len(lengths) else []
        texts = [WrittenText(part, int(start)) for part, start in zip(parts, starts, strict=True)]
        ends = np.cumsum(counts).tolist()
        return [
            Made(str(make), texts[end - count : end], ended[end - count : end].tolist())
            for make, count, end in zip(makes, counts.tolist(), ends, strict=True)
        ]
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} holds no texts; take it out of its folder, or write them again with specdemo write."
        ) from error


def paths_of(folder: Path) -> list[Path]:
    """The files of texts in ``folder``, in order."""
    return sorted(folder.glob(f"text-*{SUFFIX}"))


def next_number(folder: Path) -> int:
    """The number of the round that comes after all that are there, though some may have been taken out."""
    numbers = [int(path.name.removeprefix("text-").removesuffix(SUFFIX)) for path in paths_of(folder)]
    return max(numbers, default=-1) + 1


def own_or_refuse(folder: Path, target: str) -> None:
    """Make ``folder``, and have it hold texts of ``target`` and of no other: ids mean nothing to another one.

    Raises:
        UserError: It holds another's, or cannot be written.
    """
    held = target_of(folder)
    if held not in (None, target):
        raise UserError(f"{folder} holds texts of {held}; choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TARGET).write_text(json.dumps({"target": target}) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot use {folder}: {error.strerror}; choose another --out.") from error


def target_of(folder: Path) -> str | None:
    """Whose texts ``folder`` holds; None where that is not told."""
    try:
        return json.loads((folder / TARGET).read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def path_of(folder: Path, number: int) -> Path:
    """Where the round ``number`` of a corpus is kept."""
    return folder / f"text-{number:04d}{SUFFIX}"


def load_texts(folder: Path, target: str) -> list[WrittenText]:
    """All texts of ``target`` in ``folder``.

    Raises:
        UserError: There are none, they are another target's, or a file is damaged.
    """
    if target_of(folder) not in (None, target):
        raise UserError(f"{folder} holds texts of {target_of(folder)}; write some with this target first.")
    texts = [text for path in paths_of(folder) for part in load_made(path) for text in part.texts]
    if not texts:
        raise UserError(f"{folder} holds no texts; name a folder that specdemo write has filled.")
    return texts
