"""Writing of output files. Paths are checked before work begins, and a failed write keeps the old file."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

from specdemo.records.limits import UserError


def require_writable(path: Path) -> None:
    """Check that the file ``path`` can be written, without creating it.

    Raises:
        UserError: ``path`` is a folder, or the file or its folder is not writable.
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
    """Check that files can be written in ``folder``, which need not exist yet.

    Raises:
        UserError: The folder, or its nearest existing parent, is not writable.
    """
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise _cannot_write(folder, error) from error


def write_text(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8, as :func:`write_bytes` does."""
    # The name of a folder may have bytes that are not UTF-8; in text they are lone surrogates.
    write_bytes(path, text.encode(errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file in the same folder, then rename it to ``path``.

    Raises:
        UserError: The file cannot be written. An existing file at ``path`` is then unchanged.
    """
    try:
        if path.exists() and not path.is_file():  # for example /dev/stdout, which must not be replaced
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> UserError:
    to_do = "free some space or choose another place" if disk_is_full(error) else "choose another place"
    return UserError(f"Cannot write {path}: {error.strerror}; {to_do}.")


def disk_is_full(error: BaseException | None) -> bool:
    """Return whether a full disk caused an error, directly or through other errors."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        error = error.__cause__ or error.__context__
    return False
