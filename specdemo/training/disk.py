"""What to say where a training's files cannot be written or read."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdemo.pairs.hub import disk_is_full
from specdemo.records.limits import UserError

NOT_THERE = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    }
)
"""Where nothing can be written at all, however much space there is."""


def refused(path: Path, error: Exception) -> UserError:
    """The sentence for an error of the system, or of torch's own writer, which gives no number.

    Args:
        path: What was being used, where the error does not name it.
    """
    reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0][:200]
    number = getattr(error, "errno", None)
    if disk_is_full(error) or isinstance(error, RuntimeError):
        to_do = "free some space and run the same command with --resume"
    elif number in NOT_THERE:
        to_do = "choose another --out"
    else:
        to_do = "put that right and run the same command with --resume"
    return UserError(f"Cannot use {getattr(error, 'filename', None) or path}: {reason.rstrip('.')}; {to_do}.")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a path to write to; then ``path`` holds all of that or, after an error, what it held before."""
    partial = path.with_suffix(".partial")
    try:
        yield partial
        partial.rename(path)
    except (OSError, RuntimeError):
        partial.unlink(missing_ok=True)
        raise
