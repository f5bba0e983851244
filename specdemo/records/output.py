"""Output files: paths are checked before the work begins, and a failed write keeps the old file."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where abandoned folders stay
    fcntl = None

from specdemo.records.limits import UserError

_scratch_folders: set[Path] = set()


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder for unfinished files in ``parent``, and delete it on exit.

    Folders of this prefix that a killed process has left in ``parent`` are deleted first.
    """
    remove_abandoned(parent, prefix)
    made = Path(tempfile.mkdtemp(dir=parent, prefix="."))
    lock = _lock(made)  # before the folder has the prefix, so that no other process deletes it
    folder = made.rename(parent / f"{prefix}{made.name.removeprefix('.')}")
    _scratch_folders.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _scratch_folders.discard(folder)
        if lock is not None:
            os.close(lock)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Delete the scratch folders in ``parent`` whose process has ended."""
    folders: list[Path] = []
    with suppress(OSError):
        folders += parent.glob(f"{prefix}*")
    for folder in folders:
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def remove_scratch() -> None:
    """Delete this process's scratch folders; for a process that ends without closing its contexts."""
    for folder in [*_scratch_folders]:
        shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> int | None:
    """Return a descriptor that locks the folder until it's closed; None if another process has locked it."""
    if fcntl is None:
        return None
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def require_writable(path: Path) -> None:
    """Check that the file ``path`` can be written, without creating it."""
    try:
        if path.is_dir():
            raise UserError(f"Cannot write {path}: this path is a folder; choose a file in this folder.")
        if path.is_file():
            path.open("ab").close()
        if path.is_file() or not path.exists():
            tempfile.TemporaryFile(dir=path.resolve().parent).close()
        elif not os.access(path, os.W_OK):  # opening a pipe would wait for its reader
            raise UserError(f"Cannot write {path}: permission denied; choose another path.")
    except OSError as error:
        raise _cannot_write(path, error) from error


def require_regular(path: Path) -> None:
    """Check that ``path`` is a file or missing, for a file that is read before it is written."""
    if path.exists() and not path.is_file():
        raise UserError(f"Cannot write {path}: this path is not a regular file; choose another path.")


def require_writable_folder(folder: Path) -> None:
    """Check that files can be written in ``folder`` or, if it is missing, in its nearest parent."""
    try:
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise _cannot_write(folder, error) from error


def write_text(path: Path, text: str) -> None:
    # The name of a folder may have bytes that are not UTF-8; in text they are lone surrogates.
    write_bytes(path, text.encode(errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary file in the same folder, then rename it; a failure keeps the old file."""
    try:
        if path.exists() and not path.is_file():  # for example /dev/stdout, which must not be replaced
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".specdemo-{os.getpid()}.partial")  # shorter than any name that is too long
    try:
        partial.write_bytes(content)
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> UserError:
    to_do = "free some space or choose another path" if disk_is_full(error) else "choose another path"
    return UserError(f"Cannot write {path}: {error.strerror}; {to_do}.")


def disk_is_full(error: BaseException | None) -> bool:
    """Return whether a full disk caused an error, directly or through other errors."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        error = error.__cause__ or error.__context__
    return False
