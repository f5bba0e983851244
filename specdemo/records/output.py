"""Output files: checked before work begins and replaced in one step; a failure keeps the old file."""

import os
import shutil
import tempfile
from pathlib import Path

from specdemo.records.limits import UserError


def require_writable(path: Path) -> None:
    """Check that a file can be written, without creating it.

    Raises:
        UserError: ``path`` is a folder, or no file can be written in its folder.
    """
    if path.is_dir():
        raise UserError(f"Cannot write {path}: it is a folder; name a file in it.")
    try:
        if path.exists():
            path.open("ab").close()
        if path.is_file() or not path.exists():
            tempfile.TemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise _cannot_write(path, error) from error


def require_writable_folder(folder: Path) -> None:
    """Check that a folder can be written to, or created in the nearest parent that exists.

    Raises:
        UserError: No file can be written there.
    """
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise _cannot_write(folder, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a file through a temporary file next to it.

    Raises:
        UserError: The file cannot be written; an old one is unchanged.
    """
    try:
        if path.exists() and not path.is_file():  # such as /dev/stdout, which must not be replaced
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(f"Cannot write {path}: {error.strerror}; choose another place.")
